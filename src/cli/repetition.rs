//! A thread that does something again and again.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Dropping it stops the thread and waits for its end.
#[derive(Debug)]
pub(super) struct Repetition {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Repetition {
    /// Runs `work` at once and again after each pause, on a thread of this name.
    pub(super) fn start(
        name: &str,
        pause: Duration,
        mut work: impl FnMut() + Send + 'static,
    ) -> io::Result<Repetition> {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            loop {
                work();
                if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
        Ok(Repetition { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Repetition {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of the thread was logged.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
