//! Whether it pays to keep many tenants open.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Watches how often a tenant is used again soon enough to be found open.
///
/// If many more tenants are in use than may be open, few uses find their file open, and every open file slows each opening: SQLite
/// walks through a list of them, and memory that was used long ago is no longer in the processor's caches. Then few are kept.
#[derive(Debug)]
pub(super) struct WorkingSet {
    /// Counts the uses of all tenants.
    uses: AtomicU64,
    /// How many of the last uses came soon: a moving average, [`WorkingSet::ALL`] if all did.
    soon: AtomicU32,
    /// Tenants that may be open at once.
    most: usize,
}

impl WorkingSet {
    /// How many uses the average is about.
    const USES: u32 = 1_024;
    const ALL: u32 = WorkingSet::USES * WorkingSet::USES;

    pub fn new(most: usize) -> WorkingSet {
        WorkingSet { uses: AtomicU64::new(0), soon: AtomicU32::new(WorkingSet::ALL), most }
    }

    /// Counts a use of the tenant that was used last in `last_use`, and writes down there which use this is.
    pub fn count(&self, last_use: &AtomicU64) {
        let now = self.uses.fetch_add(1, Ordering::Relaxed);
        // Fewer others were used in between than may be open: it is found open if as many are kept.
        let soon = now.saturating_sub(last_use.load(Ordering::Relaxed)) <= self.most as u64;
        last_use.store(now, Ordering::Relaxed);
        let before = self.soon.load(Ordering::Relaxed);
        // Of two that do this at once one may be lost, which the average tolerates.
        self.soon
            .store(before - before / WorkingSet::USES + if soon { WorkingSet::USES } else { 0 }, Ordering::Relaxed);
    }

    /// How many tenants to keep open: few where less than a quarter of the uses would find theirs among all that may be.
    pub fn worth_keeping(&self) -> usize {
        if self.soon.load(Ordering::Relaxed) < WorkingSet::ALL / 4 { self.most.div_ceil(32) } else { self.most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tenants' last uses.
    fn tenants(count: usize) -> Vec<AtomicU64> {
        std::iter::repeat_with(AtomicU64::default).take(count).collect()
    }

    fn use_in_turn(working_set: &WorkingSet, tenants: &[AtomicU64], uses: usize) {
        tenants.iter().cycle().take(uses).for_each(|last_use| working_set.count(last_use));
    }

    #[test]
    fn all_are_kept_while_they_are_used_again_and_few_when_they_are_not() {
        let working_set = WorkingSet::new(1_000);
        let all = tenants(10_000);
        use_in_turn(&working_set, &all[..1_000], 50_000);
        assert_eq!(working_set.worth_keeping(), 1_000);
        use_in_turn(&working_set, &all, 10_000);
        assert_eq!(working_set.worth_keeping(), 32);
        use_in_turn(&working_set, &all[..1_000], 2_000);
        assert_eq!(working_set.worth_keeping(), 1_000, "told by how they are used, not by which are found open");
    }

    #[test]
    fn one_that_is_used_all_the_time_keeps_many_open_only_with_others() {
        let working_set = WorkingSet::new(1_000);
        let all = tenants(10_000);
        let (busy, others) = all.split_first().unwrap();
        for part in others.chunks(9) {
            working_set.count(busy);
            use_in_turn(&working_set, part, 9);
        }
        assert_eq!(working_set.worth_keeping(), 32, "a tenth of the uses");
        for other in others {
            working_set.count(busy);
            working_set.count(other);
        }
        assert_eq!(working_set.worth_keeping(), 1_000, "half of the uses");
    }
}
