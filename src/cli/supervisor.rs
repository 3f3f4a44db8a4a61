//! The notification protocol of systemd (sd_notify(3)). Without `NOTIFY_SOCKET` nothing is sent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use sd_notify::NotifyState;

/// The number of watchdog pings within the watchdog timeout.
const PINGS_PER_TIMEOUT: u32 = 3;

/// Sends the supervisor a message. A failure is logged: the server can serve all the same.
pub(super) fn notify(message: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(message) {
        tracing::warn!(%error, "the supervisor in NOTIFY_SOCKET cannot be notified");
    }
}

/// Reports that the server accepts requests. `status` is shown to the operator.
pub(super) fn notify_ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that the configuration is being reloaded. `READY=1` must follow.
pub(super) fn notify_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "the supervisor cannot be notified of a reload"),
    }
}

/// If the supervisor has a watchdog, starts a thread that pings it until the process ends, but only
/// while `heartbeat`, the counter of successful health checks, increases.
pub(super) fn start_watchdog(heartbeat: Arc<AtomicU64>) -> io::Result<()> {
    let timeout = sd_notify::watchdog_enabled().filter(|timeout| !timeout.is_zero());
    let Some(timeout) = timeout else { return Ok(()) };
    let mut last = None;
    let work = move || {
        loop {
            if has_advanced(&heartbeat, &mut last) {
                notify(&[NotifyState::Watchdog]);
            } else {
                tracing::warn!(
                    "no health check has succeeded since the last watchdog ping; the next ping is \
                     omitted"
                );
            }
            thread::sleep(timeout / PINGS_PER_TIMEOUT);
        }
    };
    thread::Builder::new().name("watchdog".to_owned()).spawn(work).map(drop)
}

fn has_advanced(heartbeat: &AtomicU64, last: &mut Option<u64>) -> bool {
    let count = heartbeat.load(Ordering::Relaxed);
    last.replace(count) != Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_stop_with_the_heartbeat() {
        let (heartbeat, mut last) = (AtomicU64::new(1), None);
        assert!(has_advanced(&heartbeat, &mut last));
        assert!(!has_advanced(&heartbeat, &mut last), "the heartbeat has not increased");
        heartbeat.fetch_add(1, Ordering::Relaxed);
        assert!(has_advanced(&heartbeat, &mut last));
    }
}
