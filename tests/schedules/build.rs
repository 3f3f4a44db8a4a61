//! Takes sources of the program, has them use Shuttle in place of `std`, and adds the faults of
//! the self-tests.
//!
//! A change in `src/` can break this build in three ways. If the build script does not find a text
//! once, copy the new line from `src/` into the row of the table that the message shows. If a type
//! or function is missing, add it to the file of its name in `src/stand_ins/`. If a module is
//! missing, add its file to `SOURCES` and to `src/lib.rs`.

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

/// Constants and their values here: small ones, so that scenarios reach the limits.
const LIMITS: [(&str, &str, u8); 6] = [
    ("http/scheduler.rs", "MAX_WAITING", 4),
    ("http/worker_pool.rs", "MAX_UNSENT", 4),
    ("http/worker_pool.rs", "MAX_SENT", 2),
    ("http/worker_pool.rs", "MAX_RECEIVING", 1),
    ("store/tenant/writer.rs", "GROUP", 2),
    ("store/tenant/writer.rs", "MAX_WAITING", 2),
];

/// How a fault changes a source.
enum Change {
    /// This statement is left out.
    LeaveOut(&'static str),
    /// This condition of an `if` is never true.
    NeverTrue(&'static str),
    /// The first text becomes the second. `{}` is whether the fault is present.
    Replace(&'static str, &'static str),
}

use Change::{LeaveOut, NeverTrue, Replace};

/// The changes of the program that `Fault` in `src/faults.rs` names.
const FAULTS: [(&str, &str, Change); 15] = [
    ("NobodyReceives", "http/worker_pool.rs", NeverTrue("jobs.receiving == 0")),
    (
        "RequestsStayInTheOutbox",
        "http/worker_pool.rs",
        Replace(
            "outbox.send();\n        let exchange =",
            "if !{} { outbox.send(); } let exchange =",
        ),
    ),
    ("StopWakesNobody", "http/worker_pool.rs", LeaveOut("self.shared.server.unblock();")),
    (
        "WatchdogIsForgotten",
        "http/worker_pool.rs",
        LeaveOut("outbox.watchdog.take().map(|watchdog| watchdog.send(()));"),
    ),
    (
        "PanicEndsTheWorker",
        "http/worker_pool.rs",
        Replace(
            "panic::catch_unwind(AssertUnwindSafe(work));",
            "if {} { Ok(work()) } else { panic::catch_unwind(AssertUnwindSafe(work)) };",
        ),
    ),
    ("JobKeepsItsPlace", "http/scheduler.rs", LeaveOut("state.running -= 1;")),
    (
        "OneLaneIsServed",
        "http/scheduler.rs",
        Replace("position(may_run)", "take(if {} { 1 } else { usize::MAX }).position(may_run)"),
    ),
    ("RestOfAClientIsLost", "http/fair_queue.rs", NeverTrue("!items.is_empty()")),
    (
        "DroppedWithoutAnswer",
        "http/responder.rs",
        LeaveOut("self.finish(Response::from(ApiError::internal()));"),
    ),
    (
        "RefusedWithoutAnswer",
        "store/tenant/writer.rs",
        LeaveOut("tell(refused.done, Err(StoreError::Unavailable));"),
    ),
    (
        "MissingLockIsNotTold",
        "store/tenant/writer.rs",
        LeaveOut("tell(first.done, Err(self.write_failed(&error)));"),
    ),
    (
        "FailedCommitIsNotTold",
        "store/tenant/writer.rs",
        Replace("outcome.and(committed)", "if {} { outcome } else { outcome.and(committed) }"),
    ),
    ("NothingIsUndone", "store/tenant/writer.rs", NeverTrue("!keeps")),
    (
        "PanicEndsTheWriter",
        "store/tenant/writer.rs",
        Replace(
            "let _ = catch_unwind(AssertUnwindSafe(|| done(committed)));",
            "if {} { done(committed) }
            else { let _ = catch_unwind(AssertUnwindSafe(|| done(committed))); }",
        ),
    ),
    ("CloseDoesNotWait", "store/tenant/mod.rs", LeaveOut("let _ = writer.join();")),
];

fn main() {
    let source_directory = Path::new("../../src");
    let out_directory = env::var_os("OUT_DIR").expect("Cargo sets it");
    println!("cargo::rerun-if-changed=build.rs");
    for name in SOURCES {
        let path = source_directory.join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        let source = fs::read_to_string(&path).expect("a source of the program");
        let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or("");
        // `src/lib.rs` declares the modules.
        let is_kept = |line: &&str| !(line.starts_with("mod ") && line.ends_with(';'));
        let mut source = source.lines().filter(is_kept).collect::<Vec<_>>().join("\n");
        for (_, constant, value) in LIMITS.iter().filter(|limit| limit.0 == name) {
            source = with_value(name, &source, constant, *value);
        }
        for (fault, _, change) in FAULTS.iter().filter(|fault| fault.1 == name) {
            let is_present = format!("crate::faults::Fault::{fault}.is_present()");
            let (from, to) = match change {
                LeaveOut(statement) => {
                    (statement.to_string(), format!("if !{is_present} {{ {statement} }}"))
                }
                NeverTrue(condition) => {
                    (format!("if {condition} {{"), format!("if {condition} && !{is_present} {{"))
                }
                Replace(from, to) => (from.to_string(), to.replace("{}", &is_present)),
            };
            source = replaced_once(name, &source, &from, &to);
        }
        for (from, to) in PATHS {
            source = source.replace(from, to);
        }
        let target = Path::new(&out_directory).join(name);
        fs::create_dir_all(target.parent().expect("a directory")).expect("a new directory");
        fs::write(target, source).expect("a new file");
    }
}

fn with_value(name: &str, source: &str, constant: &str, value: u8) -> String {
    let start = format!("const {constant}: usize = ");
    let (before, rest) =
        source.split_once(&start).unwrap_or_else(|| panic!("src/{name} has no {start:?}"));
    let (_, after) = rest.split_once(';').expect("a constant ends with a semicolon");
    format!("{before}{start}{value};{after}")
}

fn replaced_once(name: &str, source: &str, from: &str, to: &str) -> String {
    assert_eq!(source.matches(from).count(), 1, "src/{name} does not have this once: {from:?}");
    source.replacen(from, to, 1)
}
