//! Work on a tenant's file between its commits: segments of the search tables are merged in bounded steps, and the write-ahead log
//! is copied into the file. Neither happens inside a commit, which a client waits for.
//!
//! One thread does this for all tenants, in turn. A step holds the tenant's writing connection for a few milliseconds.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use scheduled_thread_pool::ScheduledThreadPool;

use super::writer::Writer;
use crate::store::connection::{self, Checkpoint};
use crate::store::records;

/// Frames from which the log has to start again from its beginning, which it does only if no commit came during the checkpoint. 16 MB:
/// the log stays below the size to which SQLite truncates it, so commits overwrite blocks of the file and allocate none.
const RESTART_FRAMES: u32 = 4_000;

/// Frames that may be left to copy while mutations wait: the sync of as many scattered pages takes two milliseconds.
const LAST_FRAMES: u32 = 32;

/// The most copies beside the commits for one restart: a log that a reader or a slow disk keeps from being copied starts again later.
const MOST_COPIES: u32 = 8;

/// Segments from which merging takes as much time as the commits between its steps, and from which it does not pause.
const MANY_SEGMENTS: u64 = 64;
const MOST_SEGMENTS: u64 = 256;

/// The pause after a step that found the file locked by another process.
const LOCKED_PAUSE: Duration = Duration::from_millis(100);

/// Queues the tenant of `writer` if something is due.
pub(super) fn schedule(writer: &Arc<Writer>, thread: &Arc<ScheduledThreadPool>) {
    if writer.due_maintenance().begin_schedule() {
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
        tenant.due_maintenance().end_schedule();
        // A commit since the step found the tenant still scheduled.
        if let Some(thread) = thread.upgrade() {
            schedule(&tenant, &thread);
        }
    });
}

/// One checkpoint, if it is due, and one step of merging. Returns the pause until the next step, `None` if nothing is left to do.
fn run_step(writer: &Writer) -> Option<Duration> {
    let due = writer.due_maintenance();
    if due.needs_checkpoint() {
        run_checkpoint(writer);
    }
    if !due.needs_merge() {
        return None;
    }
    let started = Instant::now();
    match writer.with_connection(|connection| connection::without_lock_wait(connection, merge)) {
        Ok(Some((true, segments))) => {
            due.set_segments(segments);
            let took = started.elapsed();
            writer.count_merge(took);
            Some(pause_after(took, segments))
        }
        Ok(Some((false, segments))) => {
            due.merged(Some(segments));
            None
        }
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Some(LOCKED_PAUSE),
        // Merging is tried again after some commits. These report what is wrong with the file.
        Ok(None) => {
            due.merged(None);
            None
        }
        Err(error) => {
            writer.commit_failed(&error);
            due.merged(None);
            None
        }
    }
}

/// The pause after a step of merging, in which mutations find the writing connection free.
fn pause_after(took: Duration, segments: u64) -> Duration {
    match segments {
        ..MANY_SEGMENTS => took * 3,
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

fn run_checkpoint(writer: &Writer) {
    let started = Instant::now();
    let due = writer.due_maintenance();
    let log = if writer.leaves_checkpoints() { empty_log(writer) } else { copy_log(writer) };
    match log {
        Ok(Some(log)) => {
            due.checkpointed(log.frames);
            writer.count_checkpoint(started.elapsed());
        }
        // A log that was not copied has no consequence but its length. It is tried again after as many frames.
        Ok(None) | Err(_) => due.checkpointed(due.frames()),
    }
}

/// Copies a log into the file and truncates it if it is too long, which it is if Litestream does not run.
fn empty_log(writer: &Writer) -> rusqlite::Result<Option<Checkpoint>> {
    let due = writer.due_maintenance();
    if !due.is_log_too_long() {
        return Ok(None);
    }
    let truncate = |connection: &mut Connection| writer.truncate_log(connection);
    let log = writer.with_connection(|connection| connection::without_lock_wait(connection, truncate))?.flatten();
    // The log is empty. Its frames count from zero again with the next commit, and until then no checkpoint is due.
    Ok(log.map(|log| Checkpoint { frames: due.frames(), ..log }))
}

/// Copies the log while others write. A log that has grown long is then copied to its end while nobody writes, which makes the next
/// commit start it again. Each copy takes what was written during the one before, so that little is left for this last one.
fn copy_log(writer: &Writer) -> rusqlite::Result<Option<Checkpoint>> {
    let beside = writer.connect_beside()?;
    let mut log = writer.checkpoint(&beside)?;
    let Some(Checkpoint { frames: RESTART_FRAMES.., .. }) = log else { return Ok(log) };
    for _ in 0..MOST_COPIES {
        match log {
            Some(Checkpoint { copied, .. }) if writer.due_maintenance().frames() > copied + LAST_FRAMES => {
                log = writer.checkpoint(&beside)?;
            }
            _ => break,
        }
    }
    Ok(writer.with_connection(|connection| writer.checkpoint(connection))?.flatten())
}
