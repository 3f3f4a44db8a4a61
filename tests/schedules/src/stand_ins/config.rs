use std::time::Duration;

#[derive(Clone, Copy)]
pub struct TenantLimits {
    pub open: usize,
    pub keep_changes: Duration,
    pub max_size: u64,
}
