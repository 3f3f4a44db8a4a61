//! Work on a tenant's file between its commits: segments of the search tables are merged in bounded steps, and the write-ahead log
//! is copied into the file. Neither happens inside a commit, which a client waits for.
//!
//! One thread does this for all tenants, in turn. A step holds the tenant's writing connection for a few milliseconds.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use scheduled_thread_pool::ScheduledThreadPool;

use super::writer::Writer;
use crate::store::connection::{self, Checkpoint};
use crate::store::records;

/// Commits, and so new segments, after which merging is due. FTS5 merges as many of a level (`usermerge` in `schema.sql`).
const MERGE_COMMITS: u32 = 16;

/// Frames that the write-ahead log grows by before the next checkpoint: as many as SQLite's own automatic checkpoint waits for.
const CHECKPOINT_FRAMES: u32 = 1_000;

/// Frames of a log that has to start again from its beginning, which it can only while nobody writes: 16 MiB.
const RESTART_FRAMES: u32 = 4_000;

/// Frames from which a commit does the checkpoint itself: the thread is too slow for this disk.
const MOST_FRAMES: u32 = 4 * RESTART_FRAMES;

/// Segments from which merging takes as much time as the commits between its steps, and from which it does not pause.
const MANY_SEGMENTS: u64 = 64;
const MOST_SEGMENTS: u64 = 256;

/// The pause after a step that found the file locked by another process.
const LOCKED_PAUSE: Duration = Duration::from_millis(100);

/// What is due for one tenant's file.
#[derive(Debug, Default)]
pub(super) struct Maintenance {
    /// Whether the thread has this tenant in its queue, or works on it.
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

impl Maintenance {
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

    fn needs_merge(&self) -> bool {
        self.commits.load(Ordering::Relaxed) >= MERGE_COMMITS
    }

    fn needs_checkpoint(&self) -> bool {
        let (frames, before) = (self.frames.load(Ordering::Relaxed), self.frames_at_checkpoint.load(Ordering::Relaxed));
        frames.saturating_sub(before) >= CHECKPOINT_FRAMES
    }

    /// Whether the commit has to do the checkpoint itself.
    pub fn is_log_too_long(&self) -> bool {
        self.needs_checkpoint() && self.frames.load(Ordering::Relaxed) >= MOST_FRAMES
    }
}

/// Queues the tenant of `writer` if something is due.
pub(super) fn schedule(writer: &Arc<Writer>, thread: &Arc<ScheduledThreadPool>) {
    let maintenance = writer.maintenance();
    let is_due = maintenance.needs_merge() || maintenance.needs_checkpoint();
    if is_due && !maintenance.is_scheduled.swap(true, Ordering::AcqRel) {
        run_after(Duration::ZERO, Arc::downgrade(writer), Arc::downgrade(thread));
    }
}

/// The queue holds no tenant open, and a thread pool that ends runs nothing.
fn run_after(pause: Duration, writer: Weak<Writer>, thread: Weak<ScheduledThreadPool>) {
    let Some(pool) = thread.upgrade() else { return };
    pool.execute_after(pause, move || {
        let Some(tenant) = writer.upgrade() else { return };
        if let Some(pause) = run_step(&tenant) {
            return run_after(pause, writer, thread);
        }
        tenant.maintenance().is_scheduled.store(false, Ordering::Release);
        // A commit since the step found the tenant still scheduled.
        if let Some(thread) = thread.upgrade() {
            schedule(&tenant, &thread);
        }
    });
}

/// One checkpoint, if it is due, and one step of merging. Returns the pause until the next step, `None` if nothing is left to do.
fn run_step(writer: &Writer) -> Option<Duration> {
    let maintenance = writer.maintenance();
    if maintenance.needs_checkpoint() {
        run_checkpoint(writer);
    }
    if !maintenance.needs_merge() {
        return None;
    }
    let started = Instant::now();
    match writer.with_connection(|connection| connection::without_lock_wait(connection, merge)) {
        Ok(Some((true, segments))) => {
            maintenance.set_segments(segments);
            let took = started.elapsed();
            writer.count_merge(took);
            Some(pause_after(took, segments))
        }
        Ok(Some((false, segments))) => {
            maintenance.segments.store(segments, Ordering::Relaxed);
            maintenance.commits.store(0, Ordering::Relaxed);
            None
        }
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Some(LOCKED_PAUSE),
        // Merging is tried again after some commits. These report what is wrong with the file.
        Ok(None) | Err(_) => {
            maintenance.commits.store(0, Ordering::Relaxed);
            None
        }
    }
}

/// The pause after a step of merging, in which mutations find the writing connection free.
fn pause_after(took: Duration, segments: u64) -> Duration {
    match segments {
        0..MANY_SEGMENTS => took * 3,
        MANY_SEGMENTS..MOST_SEGMENTS => took,
        _ => Duration::ZERO,
    }
}

/// Returns whether there was anything to merge, and the segments that are left.
fn merge(connection: &mut Connection) -> rusqlite::Result<(bool, u64)> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let merged = records::merge_segments(&transaction)?;
    let segments = records::most_segments(&transaction)?;
    transaction.commit()?;
    Ok((merged, segments))
}

/// Copies the log while others write. A log that has grown long is then copied to its end while nobody writes, which makes the next
/// commit start it again; only what came meanwhile is left to copy.
fn run_checkpoint(writer: &Writer) {
    let started = Instant::now();
    // A failure has no consequence but a longer log. It is tried again after as many frames.
    let Ok(Some(Checkpoint { frames, copied })) = writer.checkpoint_beside() else { return };
    if copied < frames && frames >= RESTART_FRAMES {
        let _ = writer.with_connection(|connection| connection::checkpoint(connection));
    }
    writer.maintenance().frames_at_checkpoint.store(frames, Ordering::Relaxed);
    writer.count_checkpoint(started.elapsed());
}
