//! Where a panic happened, so that whoever catches it can log the place beside what it interrupted.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

/// A panic that was caught.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Panicked {
    /// File, line and column.
    pub place: String,
    pub message: String,
}

thread_local! {
    static LAST: RefCell<Option<Panicked>> = const { RefCell::new(None) };
}

/// From now on panics are noted. They are printed as before, too: one that nobody catches is to be seen.
pub fn note() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let message = info.payload_as_str().unwrap_or_default().to_owned();
            LAST.with_borrow_mut(|last| *last = Some(Panicked { place, message }));
            previous(info);
        }));
    });
}

/// This thread's last panic, once.
pub fn last() -> Panicked {
    LAST.take().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caught_panic_has_its_place() {
        note();
        assert!(panic::catch_unwind(|| panic!("as asked")).is_err());
        let Panicked { place, message } = last();
        assert!(place.starts_with("src/panics.rs:"), "{place}");
        assert_eq!(message, "as asked");
        assert_eq!(last(), Panicked::default());
    }
}
