//! Logs panics.

use std::panic;
use std::sync::Once;

/// Installs a panic hook that logs each panic of the process with its place and message. The
/// previous hook still runs. Further calls have no effect.
pub fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let message = info.payload_as_str().unwrap_or_default();
            tracing::error!(place, panic = message, "a thread panicked");
            previous(info);
        }));
    });
}
