//! Records location and message of panics, so that the code that catches one can log them with its own context.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

/// A panic that was caught.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PanicInfo {
    /// File, line and column.
    pub location: String,
    /// The panic message; empty if it is not text.
    pub message: String,
}

thread_local! {
    static LAST: RefCell<Option<PanicInfo>> = const { RefCell::new(None) };
}

/// Installs a panic hook that records each panic of the process for [`last`]. The previous hook still runs, so that uncaught
/// panics are printed. Further calls have no effect.
pub fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let location = info.location().map(ToString::to_string).unwrap_or_default();
            let message = info.payload_as_str().unwrap_or_default().to_owned();
            LAST.with_borrow_mut(|last| *last = Some(PanicInfo { location, message }));
            previous(info);
        }));
    });
}

/// Returns and clears the last panic of the current thread; empty strings if there is none.
pub fn last() -> PanicInfo {
    LAST.take().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caught_panic_has_its_location() {
        install_hook();
        assert!(panic::catch_unwind(|| panic!("on purpose")).is_err());
        let PanicInfo { location, message } = last();
        assert!(location.starts_with("src/panics.rs:"), "{location}");
        assert_eq!(message, "on purpose");
        assert_eq!(last(), PanicInfo::default());
    }
}
