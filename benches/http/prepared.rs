//! Data directories of records of real width, imported once and copied for each run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

use crate::data::Data;
use crate::device;
use crate::process::{Process, binary};
use crate::sections::data_dir;

/// The pieces of hardware of the second tenant.
pub(crate) const SMALL: u64 = 1000;

/// A copy of a data directory. Its first tenant has `records` pieces of hardware, a tenth as many
/// employees and a hundredth as many customers. The second has the same for [`SMALL`].
#[derive(Debug)]
pub(crate) struct Prepared {
    pub data: Data,
    pub records: u64,
    pub directory: TempDir,
    /// The number of the next piece of hardware.
    next: AtomicU64,
}

impl Prepared {
    /// Copies the directory; makes it first if it does not exist.
    pub(crate) fn copy(records: u64) -> io::Result<Prepared> {
        let source = source(records)?;
        if !source.exists() {
            let unfinished = source.with_extension("unfinished");
            if unfinished.exists() {
                fs::remove_dir_all(&unfinished)?;
            }
            make(&unfinished, records)?;
            fs::rename(unfinished, &source)?;
        }
        let directory = data_dir()?;
        complete(
            Command::new("cp")
                .args(["-a", "--reflink=auto"])
                .arg(source.join("data"))
                .arg(directory.path()),
        )?;
        // The kernel would write the copy to the disk during the measurement.
        rustix::fs::sync();
        let keys = fs::read_to_string(source.join("keys"))?.lines().map(str::to_owned).collect();
        let data = Data { dir: directory.path().join("data"), keys };
        Ok(Prepared { data, records, directory, next: AtomicU64::new(records) })
    }

    pub(crate) fn serve(&self) -> io::Result<Process> {
        Process::serve(&self.data.dir)
    }

    /// The next piece of hardware of the first tenant as a POST, without an idempotency key.
    pub(crate) fn post(&self) -> Vec<u8> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let body = device::hardware(n, employees(self.records)).to_string();
        request(&self.data.keys[0], "POST", "/hardware.php", &body)
    }

    /// How many POSTs were made.
    pub(crate) fn posted(&self) -> u64 {
        self.next.load(Ordering::Relaxed) - self.records
    }

    pub(crate) fn put(&self, id: u64, field: &str, value: &str) -> Vec<u8> {
        let body = serde_json::json!({ field: value }).to_string();
        request(&self.data.keys[0], "PUT", &format!("/hardware.php?id={id}"), &body)
    }

    pub(crate) fn delete(&self, id: u64) -> Vec<u8> {
        request(&self.data.keys[0], "DELETE", &format!("/hardware.php?id={id}"), "")
    }
}

fn request(key: &str, method: &str, target: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {target} HTTP/1.1\r\nHost: desk.example\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Where the directory is kept. Binaries with different names have different ones, because their
/// schemas may differ.
fn source(records: u64) -> io::Result<PathBuf> {
    let name = binary().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench-data");
    fs::create_dir_all(&directory)?;
    Ok(directory.join(format!("{name}-{records}")))
}

fn make(directory: &Path, records: u64) -> io::Result<()> {
    eprintln!("importing {records} records");
    let data = directory.join("data");
    let mut keys = String::new();
    fs::create_dir(directory)?;
    for (tenant, records) in [("large", records), ("small", SMALL)] {
        complete(command(&data).args(["tenant", "create", tenant]))?;
        keys += &complete(
            command(&data).args(["key", "create", tenant, "--name", "bench", "--scope", "all"]),
        )?;
        fill(&data, tenant, records)?;
    }
    fs::write(directory.join("keys"), keys)
}

fn customers(records: u64) -> u64 {
    (records / 100).max(1)
}

/// The employees of a tenant with so many pieces of hardware.
pub(crate) fn employees(records: u64) -> u64 {
    (records / 10).max(1)
}

fn fill(data: &Path, tenant: &str, records: u64) -> io::Result<()> {
    let (customers, employees) = (customers(records), employees(records));
    let csv = data.with_extension("csv");
    let import = |resource| complete(&mut import(data, tenant, resource, &csv)).map(drop);
    device::write_csv(&csv, customers, device::customer)?;
    import("customers")?;
    device::write_csv(&csv, employees, |n| device::employee(n, customers))?;
    import("employees")?;
    device::write_csv(&csv, records, |n| device::hardware(n, employees))?;
    import("hardware")?;
    fs::remove_file(&csv)
}

/// The command that imports a file.
pub(crate) fn import(data: &Path, tenant: &str, resource: &str, csv: &Path) -> Command {
    let mut command = command(data);
    command.args(["import", tenant, resource]).arg(csv);
    command
}

fn command(data: &Path) -> Command {
    let mut command = Command::new(binary());
    command.env_clear().arg("--data-dir").arg(data).stdin(Stdio::null());
    command
}

/// Runs a command and returns its standard output. Fails if the command does.
fn complete(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(io::Error::other(format!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        ))),
    }
}
