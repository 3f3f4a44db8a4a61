//! tokio's channel for one value, with a receiver that blocks.

use shuttle::sync::Arc;

use super::monitor::Monitor;

struct State<T> {
    value: Option<T>,
    is_closed: bool,
}

pub struct Sender<T>(Arc<Monitor<State<T>>>);

pub struct Receiver<T>(Arc<Monitor<State<T>>>);

pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = Arc::new(Monitor::new(State { value: None, is_closed: false }));
    (Sender(Arc::clone(&state)), Receiver(state))
}

impl<T> Sender<T> {
    pub fn is_closed(&self) -> bool {
        self.0.lock().is_closed
    }

    pub fn send(self, value: T) -> Result<(), T> {
        let mut state = self.0.lock();
        if state.is_closed {
            return Err(value);
        }
        state.value = Some(value);
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.change_for_all(|state| state.is_closed = true);
    }
}

impl<T> Receiver<T> {
    /// `None` where the sender was dropped without a value.
    pub fn wait(self) -> Option<T> {
        self.0.wait_until(|state| state.is_closed).value.take()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.change_for_all(|state| state.is_closed = true);
    }
}
