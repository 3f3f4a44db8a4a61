//! Checkpoints beside the import. A portion changes nearly every page of the indexes, so copying the write-ahead log takes as long as
//! writing it. No commit waits for that: neither of the import nor of another writer.

use std::path::Path;
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;

use crate::store::connection::{self, Checkpoint, OpenError, unusable};

/// A thread that copies the log when it is asked to. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Checkpoints {
    requests: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Attempts to copy the log to its end, which lets the next commit start it again: others write meanwhile.
const ATTEMPTS: usize = 3;

impl Checkpoints {
    pub fn start(database: &Path) -> Result<Checkpoints, OpenError> {
        let failed = |error: &dyn ToString| unusable(database, error.to_string());
        let connection = connection::connect(database).map_err(|error| failed(&error))?;
        let (requests, requested) = mpsc::sync_channel(1);
        let work = move || requested.iter().for_each(|()| copy_log(&connection));
        let thread =
            thread::Builder::new().name("checkpoints".to_owned()).spawn(work).map_err(|error| failed(&error))?;
        Ok(Checkpoints { requests: Some(requests), thread: Some(thread) })
    }

    /// Has the log copied, unless that is requested already.
    pub fn request(&self) {
        if let Some(requests) = &self.requests {
            let _ = requests.try_send(());
        }
    }
}

/// An error is ignored: the log grows, and the next request copies it.
fn copy_log(connection: &Connection) {
    for _ in 0..ATTEMPTS {
        match connection::checkpoint(connection) {
            Ok(Checkpoint { frames, copied }) if copied < frames => (),
            _ => return,
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
