//! The resources that a process uses.

use std::fs;

/// Threads, open descriptors, and memory in KiB: now, and the most there ever was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStats {
    pub threads: usize,
    pub descriptors: usize,
    pub memory: usize,
    pub peak_memory: usize,
}

impl ProcessStats {
    /// Of a running process.
    pub(crate) fn of(pid: u32) -> ProcessStats {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let number = |name: &str| -> usize {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        ProcessStats {
            threads: number("Threads:"),
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count(),
            memory: number("VmRSS:"),
            peak_memory: number("VmHWM:"),
        }
    }
}
