//! Shuttle's channel. A timeout passes at any time, or never.

use std::fmt;
use std::time::Duration;

use shuttle::sync::mpsc;
pub use shuttle::sync::mpsc::{RecvError, RecvTimeoutError, TryRecvError, TrySendError};
use shuttle::thread;

use super::happens;

pub struct SyncSender<T>(mpsc::SyncSender<T>);

pub struct Receiver<T>(mpsc::Receiver<T>);

pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::sync_channel(bound);
    (SyncSender(sender), Receiver(receiver))
}

impl<T> SyncSender<T> {
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.0.try_send(value)
    }
}

impl<T> fmt::Debug for SyncSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SyncSender")
    }
}

impl<T> Receiver<T> {
    pub fn recv(&self) -> Result<T, RecvError> {
        self.0.recv()
    }

    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.0.try_recv()
    }

    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        if !timeout.is_zero() && !happens(2) {
            return self.0.recv().map_err(|RecvError| RecvTimeoutError::Disconnected);
        }
        thread::yield_now();
        self.0.try_recv().map_err(|error| match error {
            TryRecvError::Empty => RecvTimeoutError::Timeout,
            TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
        })
    }
}
