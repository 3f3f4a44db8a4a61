//! Takes sources of the program, has them use Shuttle in place of `std`, and adds the faults of
//! the self-tests.

use std::path::Path;
use std::{env, fs};

/// The sources, without their tests.
const SOURCES: [&str; 9] = [
    "http/fair_queue.rs",
    "http/scheduler.rs",
    "http/worker_pool.rs",
    "http/responder.rs",
    "http/request.rs",
    "store/error.rs",
    "store/tenant/mod.rs",
    "store/tenant/writer.rs",
    "store/tenant/upkeep.rs",
];

/// In all sources.
const PATHS: [(&str, &str); 14] = [
    (
        "use parking_lot::{Condvar, Mutex, MutexGuard};",
        "use crate::stand_ins::condvar::Condvar; use parking_lot::{Mutex, MutexGuard};",
    ),
    ("rusqlite::", "crate::stand_ins::rusqlite::"),
    ("r2d2::Pool", "crate::stand_ins::r2d2::Pool"),
    ("r2d2_sqlite::", "crate::stand_ins::r2d2::"),
    ("scheduled_thread_pool::", "crate::stand_ins::r2d2::"),
    ("try_lock_for(", "try_lock_or_wait("),
    ("tiny_http::", "crate::stand_ins::tiny_http::"),
    ("std::os::unix::net::UnixStream", "crate::stand_ins::tiny_http::UnixStream"),
    ("tokio::sync::oneshot", "crate::stand_ins::oneshot"),
    ("std::sync::mpsc", "crate::stand_ins::mpsc"),
    ("std::sync::", "shuttle::sync::"),
    ("std::thread", "crate::stand_ins::thread"),
    ("std::collections::HashMap", "crate::stand_ins::HashMap"),
    // `include!` takes no documentation of a module.
    ("//!", "//"),
];

/// Smaller limits, so that little reaches them, and modules that `src/lib.rs` has.
const CHANGES: [(&str, &str, &str); 8] = [
    (
        "http/scheduler.rs",
        "pub const MAX_WAITING: usize = 1024;",
        "pub const MAX_WAITING: usize = 4;",
    ),
    ("http/worker_pool.rs", "const MAX_UNSENT: usize = 1024;", "const MAX_UNSENT: usize = 4;"),
    ("http/worker_pool.rs", "const MAX_SENT: usize = 8;", "const MAX_SENT: usize = 2;"),
    ("http/worker_pool.rs", "const MAX_RECEIVING: usize = 3;", "const MAX_RECEIVING: usize = 1;"),
    ("store/tenant/writer.rs", "const GROUP: usize = 128;", "const GROUP: usize = 2;"),
    (
        "store/tenant/writer.rs",
        "const MAX_WAITING: usize = 1_024;",
        "const MAX_WAITING: usize = 2;",
    ),
    (
        "store/tenant/mod.rs",
        "mod upkeep;
mod writer;",
        "",
    ),
    ("store/tenant/mod.rs", "mod file;", "use crate::stand_ins::TryLockOrWait as _;"),
];

/// The changes of the program that `Fault` in `src/faults.rs` names. `{}` becomes a boolean:
/// whether the fault is present.
const FAULTS: [(&str, &str, &str, &str); 15] = [
    (
        "NobodyReceives",
        "http/worker_pool.rs",
        "if jobs.receiving == 0 {",
        "if jobs.receiving == 0 && !{} {",
    ),
    (
        "RequestsStayInTheOutbox",
        "http/worker_pool.rs",
        "        outbox.send();\n        let exchange =",
        "if !{} { outbox.send(); } let exchange =",
    ),
    (
        "StopWakesNobody",
        "http/worker_pool.rs",
        "self.shared.server.unblock();",
        "if !{} { self.shared.server.unblock(); }",
    ),
    (
        "WatchdogIsForgotten",
        "http/worker_pool.rs",
        "outbox.watchdog.take().map(|watchdog| watchdog.send(()));",
        "if !{} { outbox.watchdog.take().map(|watchdog| watchdog.send(())); }",
    ),
    (
        "PanicEndsTheWorker",
        "http/worker_pool.rs",
        "let result = panic::catch_unwind(AssertUnwindSafe(work));",
        "let result = if {} { Ok(work()) } else { panic::catch_unwind(AssertUnwindSafe(work)) };",
    ),
    (
        "JobKeepsItsPlace",
        "http/scheduler.rs",
        "            state.running -= 1;",
        "if !{} { state.running -= 1; }",
    ),
    (
        "OneLaneIsServed",
        "http/scheduler.rs",
        "self.lanes.iter().position(may_run)?",
        "self.lanes.iter().take(if {} { 1 } else { usize::MAX }).position(may_run)?",
    ),
    (
        "RestOfAClientIsLost",
        "http/fair_queue.rs",
        "        if !items.is_empty() {",
        "if !items.is_empty() && !{} {",
    ),
    (
        "DroppedWithoutAnswer",
        "http/responder.rs",
        "        self.finish(Response::from(ApiError::internal()));",
        "if !{} { self.finish(Response::from(ApiError::internal())); }",
    ),
    (
        "RefusedWithoutAnswer",
        "store/tenant/writer.rs",
        "tell(refused.done, Err(StoreError::Unavailable));",
        "if !{} { tell(refused.done, Err(StoreError::Unavailable)); }",
    ),
    (
        "MissingLockIsNotTold",
        "store/tenant/writer.rs",
        "tell(first.done, Err(self.write_failed(&error)));",
        "if !{} { tell(first.done, Err(self.write_failed(&error))); }",
    ),
    (
        "FailedCommitIsNotTold",
        "store/tenant/writer.rs",
        "tell(done, outcome.and(committed));",
        "tell(done, if {} { outcome } else { outcome.and(committed) });",
    ),
    ("NothingIsUndone", "store/tenant/writer.rs", "if !keeps {", "if !keeps && !{} {"),
    (
        "PanicEndsTheWriter",
        "store/tenant/writer.rs",
        "    let _ = catch_unwind(AssertUnwindSafe(|| done(committed)));",
        "if {} { done(committed) }
        else { let _ = catch_unwind(AssertUnwindSafe(|| done(committed))); }",
    ),
    (
        "CloseDoesNotWait",
        "store/tenant/mod.rs",
        "let _ = writer.join();",
        "if !{} { let _ = writer.join(); }",
    ),
];

fn main() {
    let source_directory = Path::new("../../src");
    let out_directory = env::var_os("OUT_DIR").expect("Cargo sets it");
    println!("cargo::rerun-if-changed=build.rs");
    for name in SOURCES {
        let path = source_directory.join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        let source = fs::read_to_string(&path).expect("a source of the program");
        let mut source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or("").to_owned();
        for (_, from, to) in CHANGES.iter().filter(|change| change.0 == name) {
            source = replaced_once(name, &source, from, to);
        }
        for (fault, _, from, to) in FAULTS.iter().filter(|fault| fault.1 == name) {
            let is_present = format!("crate::faults::Fault::{fault}.is_present()");
            source = replaced_once(name, &source, from, &to.replace("{}", &is_present));
        }
        for (from, to) in PATHS {
            source = source.replace(from, to);
        }
        let target = Path::new(&out_directory).join(name);
        fs::create_dir_all(target.parent().expect("a directory")).expect("a new directory");
        fs::write(target, source).expect("a new file");
    }
}

fn replaced_once(name: &str, source: &str, from: &str, to: &str) -> String {
    assert_eq!(source.matches(from).count(), 1, "src/{name} does not have this once: {from:?}");
    source.replacen(from, to, 1)
}
