//! The notification protocol of systemd (sd_notify(3)). Without `NOTIFY_SOCKET` nothing is sent.

use sd_notify::NotifyState;

/// Sends the supervisor a message. A failure is logged: the server can serve all the same.
fn notify(message: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(message) {
        tracing::warn!(%error, "the supervisor in NOTIFY_SOCKET cannot be notified");
    }
}

/// Reports that the server accepts requests. `status` is shown to the operator.
pub(crate) fn notify_ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that the configuration is being reloaded. `READY=1` must follow.
pub(crate) fn notify_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "the supervisor cannot be notified of a reload"),
    }
}

/// Reports that the server stops.
pub(crate) fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Pings the supervisor's watchdog, if there is one.
pub(crate) fn ping() {
    if sd_notify::watchdog_enabled().is_some() {
        notify(&[NotifyState::Watchdog]);
    }
}
