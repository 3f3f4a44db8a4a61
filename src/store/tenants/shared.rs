//! What all tenants share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use scheduled_thread_pool::ScheduledThreadPool;

use super::page_cache::CacheBudget;
use crate::metrics::Metrics;
use crate::store::schema::Schema;

/// How long a request waits for others to finish with a tenant's file before the file counts as not responding.
pub(super) const STALLED: Duration = Duration::from_millis(250);

/// What all tenants share.
pub(super) struct Shared {
    pub schema: &'static Schema,
    /// Requests that read from one tenant at the same time.
    pub max_reads: usize,
    pub budget: Arc<CacheBudget>,
    /// Opens connections for all pools.
    pub opener: Arc<ScheduledThreadPool>,
    /// Works on the files between their commits.
    pub maintenance: Arc<ScheduledThreadPool>,
    pub metrics: Arc<Metrics>,
    /// How long an entry of a journal is kept.
    pub keep_changes: Duration,
    /// Tenants whose file is open, also those that close when their last request ends.
    pub open: Arc<AtomicUsize>,
}
