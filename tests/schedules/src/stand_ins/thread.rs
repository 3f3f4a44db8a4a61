//! Shuttle's threads, with the functions of `std` that Shuttle lacks.

use std::io;
pub use std::thread::panicking;
use std::time::Duration;

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
pub struct Builder(shuttle::thread::Builder);

#[derive(Debug)]
pub struct JoinHandle<T> {
    thread: shuttle::thread::JoinHandle<T>,
    is_finished: Arc<AtomicBool>,
}

struct Finish(Arc<AtomicBool>);

impl Builder {
    pub fn new() -> Builder {
        Builder::default()
    }

    #[must_use]
    pub fn name(self, name: String) -> Builder {
        Builder(self.0.name(name))
    }

    #[must_use]
    pub fn stack_size(self, _: usize) -> Builder {
        self
    }

    pub fn spawn<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let is_finished = Arc::new(AtomicBool::new(false));
        let finish = Finish(Arc::clone(&is_finished));
        let thread = self.0.spawn(move || {
            let _finish = finish;
            work()
        })?;
        Ok(JoinHandle { thread, is_finished })
    }
}

impl<T> JoinHandle<T> {
    pub fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::SeqCst)
    }

    pub fn join(self) -> shuttle::thread::Result<T> {
        self.thread.join()
    }
}

impl Drop for Finish {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Lets others run.
pub fn sleep(_: Duration) {
    shuttle::thread::yield_now();
}
