//! What the process asks of its allocator and of systemd.

use sd_notify::NotifyState;

/// Sends the supervisor a message (sd_notify(3)), if `NOTIFY_SOCKET` names one. A failure is logged:
/// the server can serve all the same.
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

/// jemalloc. The system's own allocator keeps most of the memory that a thousand slow clients made
/// it allocate. `.cargo/config.toml` sets jemalloc up. It stands in the library, so that tests have
/// it too.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Starts the allocator's thread. It returns freed memory to the system within a second, even if
/// the process is idle.
///
/// jemalloc could start it by itself, with the first allocation. In a static binary, this comes
/// before glibc knows which permissions a stack needs: the stack would be executable, which
/// systemd's `MemoryDenyWriteExecute=` denies.
pub(crate) fn return_memory_when_idle() {
    if let Err(error) = tikv_jemalloc_ctl::background_thread::write(true) {
        tracing::warn!(%error, "the allocator's thread does not start; an idle process keeps \
                                freed memory");
    }
}
