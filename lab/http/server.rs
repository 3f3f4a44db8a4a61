//! A binary that serves a data directory of its own, which the binary has made itself: an earlier
//! one may have another schema.

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::load::{self, Load, Outcome};
use crate::records;

/// The unit of the processor time in `/proc`, whatever the kernel's own clock does.
const TICK_MICROSECONDS: f64 = 10_000.0;

/// A running server. It ends when dropped.
pub(crate) struct Server {
    process: RefCell<Process>,
    binary: PathBuf,
    /// On the disk of the build. A temporary directory may be in memory, where a sync costs
    /// nothing.
    pub directory: TempDir,
    /// Of each tenant. The tenants' names are `tenant-0`, `tenant-1` and so on.
    pub keys: Vec<String>,
}

struct Process {
    child: Child,
    address: SocketAddr,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Makes so many tenants and serves them.
    pub(crate) fn start(binary: &Path, tenants: usize) -> io::Result<Server> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let mut serve = serve(binary, directory.path());
        for number in 0..tenants {
            serve.args(["--create-tenant", &format!("tenant-{number}")]);
        }
        let (process, keys) = start(serve)?;
        let (process, binary) = (RefCell::new(process), binary.to_owned());
        Ok(Server { process, binary, directory, keys })
    }

    /// Stops the process and starts it again. Returns the milliseconds to the first response.
    pub(crate) fn restart(&self) -> io::Result<f64> {
        let mut process = self.process.borrow_mut();
        kill_process(Pid::from_child(&process.child), Signal::TERM)?;
        process.child.wait()?;
        let begun = Instant::now();
        *process = start(serve(&self.binary, self.directory.path()))?.0;
        drop(process);
        self.load(1, Duration::ZERO, 200, &mut || Some(self.get(0, "/customers.php")))?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }

    /// Gives all tenants the records of the first one, and starts the server again.
    pub(crate) fn copy_first_tenant(&self, tenants: usize) -> io::Result<()> {
        let mut process = self.process.borrow_mut();
        kill_process(Pid::from_child(&process.child), Signal::TERM)?;
        process.child.wait()?;
        let file = |id: usize| self.directory.path().join(format!("data/tenants/{id}.db"));
        for id in 2..=tenants {
            fs::copy(file(1), file(id))?;
        }
        *process = start(serve(&self.binary, self.directory.path()))?.0;
        Ok(())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.process.borrow().address
    }

    /// Gives a tenant so many records of real width.
    pub(crate) fn fill(&self, tenant: usize, records: u64) -> io::Result<()> {
        let file = self.directory.path().join("records.jsonl");
        records::write(&file, records, records::wide_customer)?;
        self.import(tenant, &file, &[])?;
        fs::remove_file(file)
    }

    /// Imports a file of customers. Returns the seconds and the most megabytes that it took.
    pub(crate) fn import(
        &self,
        tenant: usize,
        file: &Path,
        options: &[&str],
    ) -> io::Result<(f64, f64)> {
        let mut command = command(&self.binary, self.directory.path());
        command.args(["import", &format!("tenant-{tenant}"), "customers"]).arg(file).args(options);
        let begun = Instant::now();
        let mut child = command.stdout(Stdio::null()).spawn()?;
        let mut peak = 0.0;
        loop {
            // A process that has ended has no such line.
            peak = megabytes(child.id(), "VmHWM:").unwrap_or(peak);
            match child.try_wait()? {
                Some(status) if status.success() => {
                    return Ok((begun.elapsed().as_secs_f64(), peak));
                }
                Some(status) => return Err(io::Error::other(format!("the import: {status}"))),
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Puts load on the server. Returns its processor time for each request, in microseconds, too.
    pub(crate) fn load(
        &self,
        connections: usize,
        time: Duration,
        status: u16,
        next: &mut dyn FnMut() -> Option<Vec<u8>>,
    ) -> io::Result<(Outcome, f64)> {
        let address = self.address();
        let before = self.processor_time();
        let outcome = Load { address, connections, time, status }.run(next)?;
        let spent = self.processor_time() - before;
        let each = spent / outcome.sent as f64;
        Ok((outcome, each))
    }

    /// A load of one client alone, that another thread can put.
    pub(crate) fn one_client(&self, time: Duration) -> Load {
        Load { address: self.address(), connections: 1, time, status: 200 }
    }

    pub(crate) fn get(&self, tenant: usize, target: &str) -> Vec<u8> {
        self.request(tenant, "GET", target, "", "")
    }

    /// `headers` are lines with their ends.
    pub(crate) fn request(
        &self,
        tenant: usize,
        method: &str,
        target: &str,
        headers: &str,
        body: &str,
    ) -> Vec<u8> {
        let headers = format!("Authorization: Bearer {}\r\n{headers}", self.keys[tenant]);
        load::request(method, target, &headers, body)
    }

    /// The resident memory in megabytes.
    pub(crate) fn memory(&self) -> f64 {
        megabytes(self.process.borrow().child.id(), "VmRSS:").unwrap_or(f64::NAN)
    }

    /// In microseconds.
    fn processor_time(&self) -> f64 {
        let path = format!("/proc/{}/stat", self.process.borrow().child.id());
        let stat = fs::read_to_string(path).unwrap_or_default();
        // User and system time are the 14th and 15th field; the second, a name, is in parentheses.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
        ticks.sum::<f64>() * TICK_MICROSECONDS
    }
}

fn command(binary: &Path, directory: &Path) -> Command {
    let mut command = Command::new(binary);
    command.env_clear().arg("--data-dir").arg(directory.join("data")).stdin(Stdio::null());
    command
}

fn serve(binary: &Path, directory: &Path) -> Command {
    let mut command = command(binary, directory);
    command.args(["serve", "--listen", "127.0.0.1:0", "--rate-limit", "4000000000"]);
    command
}

/// Starts a server. Returns the keys that it prints, too.
fn start(mut serve: Command) -> io::Result<(Process, Vec<String>)> {
    let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let output = child.stdout.take().expect("it is piped");
    let mut keys = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        if let Some(key) = line.strip_prefix("API key:") {
            keys.push(key.trim().to_owned());
        }
        if let Some(address) = line.strip_prefix("listening on http://") {
            let address = address.parse().map_err(io::Error::other)?;
            return Ok((Process { child, address }, keys));
        }
    }
    Err(io::Error::other(format!("{serve:?} did not start: {}", child.wait()?)))
}

/// A line of a process's status, in KiB, as megabytes of 1,000,000 bytes.
fn megabytes(process: u32, name: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? * 1024.0 / 1e6)
}
