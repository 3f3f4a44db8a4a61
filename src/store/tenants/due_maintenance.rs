//! What is due between the commits of one tenant's file.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::store::connection::MOST_LOG_FRAMES;

/// Commits, and so new segments, after which merging is due. FTS5 merges as many of a level (`usermerge` in `schema.sql`).
const MERGE_COMMITS: u32 = 16;

/// Frames that the write-ahead log grows by before the next checkpoint. A page that several commits changed is copied once.
const CHECKPOINT_FRAMES: u32 = 2_000;

/// What is due for one tenant's file.
#[derive(Debug, Default)]
pub(super) struct DueMaintenance {
    /// Whether the maintenance thread has this tenant in its queue, or works on it.
    is_scheduled: AtomicBool,
    /// Commits since merging found nothing to do.
    commits: AtomicU32,
    /// Frames in the write-ahead log after the last commit.
    frames: AtomicU32,
    /// Frames in the log at the last checkpoint.
    frames_at_checkpoint: AtomicU32,
    /// The segments of the search table that has most, as of the last step.
    segments: AtomicU64,
}

impl DueMaintenance {
    /// Counts a commit. `frames` is the length of the write-ahead log.
    pub fn count_commit(&self, frames: u32) {
        self.frames.store(frames, Ordering::Relaxed);
        self.frames_at_checkpoint.fetch_min(frames, Ordering::Relaxed);
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes merging due. `segments` is the number of segments of the search table that has most.
    pub fn set_segments(&self, segments: u64) {
        self.segments.store(segments, Ordering::Relaxed);
        if segments >= u64::from(MERGE_COMMITS) {
            self.commits.fetch_max(MERGE_COMMITS, Ordering::Relaxed);
        }
    }

    /// The segments of the search table that has most, as of the last step.
    pub fn segments(&self) -> u64 {
        self.segments.load(Ordering::Relaxed)
    }

    /// Whether segments may have to be merged.
    pub fn needs_merge(&self) -> bool {
        self.commits.load(Ordering::Relaxed) >= MERGE_COMMITS
    }

    /// Whether something is due and the tenant is not scheduled yet. It is from then on.
    pub fn begin_schedule(&self) -> bool {
        (self.needs_merge() || self.needs_checkpoint()) && !self.is_scheduled.swap(true, Ordering::AcqRel)
    }

    /// The maintenance thread has finished with the tenant.
    pub fn end_schedule(&self) {
        self.is_scheduled.store(false, Ordering::Release);
    }

    /// Whether the log has to be copied into the file.
    pub fn needs_checkpoint(&self) -> bool {
        let (frames, before) = (self.frames.load(Ordering::Relaxed), self.frames_at_checkpoint.load(Ordering::Relaxed));
        frames.saturating_sub(before) >= CHECKPOINT_FRAMES
    }

    /// The frames in the write-ahead log after the last commit.
    pub fn frames(&self) -> u32 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Whether more is in the log than checkpoints usually leave.
    pub fn is_log_too_long(&self) -> bool {
        self.needs_checkpoint() && self.frames.load(Ordering::Relaxed) >= MOST_LOG_FRAMES
    }

    /// Merging found nothing to do, or failed. `segments` are left, if they could be counted.
    pub fn merged(&self, segments: Option<u64>) {
        self.commits.store(0, Ordering::Relaxed);
        if let Some(segments) = segments {
            self.segments.store(segments, Ordering::Relaxed);
        }
    }

    /// A checkpoint has copied the log, whose length was `frames`, or has failed.
    pub fn checkpointed(&self, frames: u32) {
        self.frames_at_checkpoint.store(frames, Ordering::Relaxed);
    }
}
