//! Every command, and lists, searches and changes, beside many records of one resource: memory and
//! temporary files are bounded, and no time grows faster than the number of records.
//!
//! `cargo test --release --test contract -- --ignored --nocapture a_million_records` takes some
//! minutes, and prints a table. Unit tests of `store/records/` find a sort or a filter without an
//! index.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenantdesk::model::{HARDWARE, Kind};

use crate::support::client::Call;
use crate::support::{Api, Reply, TestServer, encoded};

const PATH: &str = "/hardware.php";

/// No process of the service may take more, in KiB.
const MEMORY_LIMIT: u64 = 200 << 10;

/// SQLite's temporary files of a process may not be larger, in bytes for each record: where they go
/// may be small, or memory. An import into an empty table sorts the values of a column for its index.
const TEMPORARY_LIMIT: u64 = 64;

/// A write-ahead log may be this long once a transaction has followed a large one, in bytes.
const LONGEST_LOG: u64 = 32 << 20;

const EMPLOYEES: usize = 100;

#[test]
#[ignore = "takes 5 s; `make proof` runs it"]
fn proof_a_few_thousand_records() {
    run(2_000);
}

#[test]
#[ignore = "takes minutes, and some GiB of disk"]
fn a_million_records() {
    let small = run(100_000);
    let large = run(1_000_000);
    println!("100,000 records\n{small}\n1,000,000 records\n{large}");
    // A quadratic operation would take a hundred times as long.
    for ((operation, large, _), (_, small, _)) in large.0.iter().zip(&small.0) {
        let most = *small * 40 + Duration::from_millis(500);
        assert!(*large < most, "{operation} took {large:?}, and {small:?} before");
    }
}

/// The most that a process took of its machine: memory in KiB, SQLite's temporary files in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    memory: u64,
    temporary: u64,
}

/// Each operation with its time and usage.
#[derive(Default)]
struct Table(Vec<(String, Duration, Usage)>);

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| operation | seconds | peak MiB |\n|---|---|---|")?;
        for (operation, time, usage) in &self.0 {
            let seconds = time.as_secs_f64();
            writeln!(f, "| {operation} | {seconds:.4} | {} |", usage.memory >> 10)?;
        }
        Ok(())
    }
}

/// The most that a process takes while `work` runs.
fn watch<T>(process: u32, work: impl FnOnce() -> T) -> (T, Usage) {
    // Resets the peak to the present memory of the process.
    fs::write(format!("/proc/{process}/clear_refs"), "5").unwrap();
    thread::scope(|scope| {
        let (running, ended) = mpsc::channel::<()>();
        let watching = scope.spawn(move || {
            let mut usage = Usage::default();
            // The end of `work`, also by a panic, drops the sender.
            while ended.recv_timeout(Duration::from_millis(1)) == Err(RecvTimeoutError::Timeout) {
                // A command that has ended takes nothing more.
                let now = usage_of(process).unwrap_or_default();
                usage.memory = usage.memory.max(now.memory);
                usage.temporary = usage.temporary.max(now.temporary);
            }
            usage
        });
        let result = work();
        drop(running);
        (result, watching.join().unwrap())
    })
}

fn usage_of(process: u32) -> Option<Usage> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let memory = peak.split_whitespace().next()?.parse().ok()?;
    let mut temporary = 0;
    for file in fs::read_dir(format!("/proc/{process}/fd")).ok()?.filter_map(Result::ok) {
        // SQLite's temporary files have no name any more, but the process has them open.
        let is_temporary = |name: &Path| name.to_string_lossy().contains("etilqs_");
        if fs::read_link(file.path()).is_ok_and(|name| is_temporary(&name)) {
            temporary += fs::metadata(file.path()).map_or(0, |file| file.len());
        }
    }
    Some(Usage { memory, temporary })
}

/// A tenant with many records, and the measurements.
struct Scale {
    server: TestServer,
    api: Api,
    count: i64,
    table: Table,
}

impl Scale {
    /// Runs a command, which has to succeed, on a data directory. Returns the JSON that it prints.
    fn command(&mut self, data: &Path, operation: &str, arguments: &[&str]) -> Value {
        let mut command = self.server.command();
        command.arg("--data-dir").arg(data).arg("--json").args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let begun = Instant::now();
        let child = command.spawn().unwrap();
        let (output, usage) = watch(child.id(), || child.wait_with_output().unwrap());
        assert!(output.status.success(), "{operation}: {output:?}");
        self.table.0.push((operation.to_owned(), begun.elapsed(), usage));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The same on the data directory of the server, which is running.
    fn here(&mut self, operation: &str, arguments: &[&str]) -> Value {
        let data = self.server.data();
        self.command(&data, operation, arguments)
    }

    /// Reads a page three times, and keeps the shortest time. `None` if the list was ended because
    /// it took longer than a list may.
    fn read_slow(&mut self, operation: &str, query: &str) -> Option<Value> {
        let target = format!("{PATH}?{query}");
        let call = || timed_reply(self.api.call("GET", &target));
        let (replies, usage) = watch(self.server.pid(), || [(); 3].map(|()| call()));
        let (shortest, reply) = replies.into_iter().min_by_key(|(time, _)| *time).unwrap();
        self.table.0.push((format!("{operation} ({query})"), shortest, usage));
        if reply.status == 400 {
            reply.fails_with(400, "bad_request").saying("took longer than 5 seconds");
            return None;
        }
        Some(reply.is(200).json())
    }

    /// The same, where no list is ended.
    fn read(&mut self, operation: &str, query: &str) -> Value {
        self.read_slow(operation, query).unwrap()
    }

    fn import(&mut self) {
        let customer = self.api.customer("Its customer");
        (0..EMPLOYEES).for_each(|_| _ = self.api.employee(customer));
        let file = self.server.home().join("hardware.csv");
        write_csv(&file, self.count);
        let import = ["import", "acme", "hardware", file.to_str().unwrap()];
        let dry_run = [&import[..], &["--dry-run"]].concat();
        self.here("import, dry run", &dry_run);
        let pid = self.server.pid();
        let (said, usage) = watch(pid, || self.here("import, beside a server", &import));
        assert_eq!(said["rows"], self.count);
        self.table.0.push(("the server meanwhile".to_owned(), Duration::ZERO, usage));
        assert_eq!(self.api.total(PATH), self.count);
        self.take_back();
        self.api.customer("Another");
        let log = self.server.data().join("tenants/1.db-wal");
        assert!(fs::metadata(&log).unwrap().len() < LONGEST_LOG, "{:?}", fs::metadata(&log));
        fs::remove_file(file).unwrap();
    }

    /// Takes the import back, and then takes that back.
    fn take_back(&mut self) {
        for (operation, left) in [("undo, deletes all", 0), ("undo, creates all", self.count)] {
            let last = self.here("last change", &["changes", "acme", "--last", "1"]);
            let request = last[0]["request_id"].as_str().unwrap();
            self.here(operation, &["undo", "acme", "--request", request]);
            assert_eq!(self.api.total(PATH), left);
        }
    }

    /// The first page and a far one of every sort, a filter by every field, and searches for words
    /// that few, many and no records have.
    fn lists(&mut self) {
        for field in HARDWARE.sortable_fields() {
            for sort in [field.name.to_owned(), format!("-{}", field.name)] {
                let list = format!("limit=200&sort={sort}");
                let mut page = self.read("first page", &list);
                for _ in 0..self.count.min(50_000) / 200 - 1 {
                    let cursor = page["next_cursor"].as_str().unwrap();
                    page = timed(self.api.call("GET", &format!("{PATH}?{list}&cursor={cursor}"))).1;
                }
                assert_eq!(page["data"].as_array().unwrap().len(), 200, "{sort}");
            }
        }
        let record = self.read("one record", "id=2");
        let custom = record["custom"].as_object().unwrap().iter();
        let custom = custom.map(|(name, value)| (format!("custom.{name}"), value));
        let own = record.as_object().unwrap().iter().map(|(name, value)| (name.clone(), value));
        for (name, value) in own.chain(custom) {
            if !["id", "notes", "custom", "etag"].contains(&name.as_str()) && !value.is_null() {
                let text = value.as_str().map_or(value.to_string(), str::to_owned);
                let filter = format!("{name}={}", encoded(&text));
                if let Some(page) = self.read_slow("filter", &format!("{filter}&total=true")) {
                    assert!(page["total"].as_i64() >= Some(1), "{filter}");
                }
                let sorted = format!("{filter}&sort=-serial_number");
                self.read_slow("filter with another sort", &sorted);
            }
        }
        let serial = record["serial_number"].as_str().unwrap().to_lowercase();
        for (word, found) in [
            (serial.as_str(), 1),
            ("charger", self.count),
            ("sn", self.count),
            ("qq", 0),
            ("zeppelin", 0),
            // "cha", "han" and "and" are in every record, but not together.
            ("chand", 0),
        ] {
            if let Some(page) = self.read_slow("search", &format!("q={word}&total=true")) {
                assert_eq!(page["total"], found, "{word}");
            }
        }
    }

    fn export(&mut self) {
        for format in ["csv", "jsonl", "xlsx"] {
            let file = self.server.home().join(format!("out.{format}"));
            let file = file.to_str().unwrap();
            let operation = format!("export as {format}");
            let said = self.here(&operation, &["export", "acme", "hardware", "--output", file]);
            assert_eq!(said["rows"], self.count);
            fs::remove_file(file).unwrap();
        }
    }

    /// Makes a backup, checks, changes records, and restores in three ways.
    fn back_up_and_restore(&mut self) {
        let backups = self.server.home().join("backups");
        let backups = backups.to_str().unwrap();
        self.here("backup, beside a server", &["backup", backups]);
        self.here("check, beside a server", &["check"]);
        self.here("doctor, beside a server", &["doctor", "--backups", backups]);
        self.changes();
        let other = self.server.home().join("other");
        let restore = ["restore", backups];
        let one = ["restore", backups, "acme"];
        let forced = ["restore", backups, "acme", "--force"];
        for (operation, data, arguments) in [
            ("restore, into the file of a running server", self.server.data(), &forced[..]),
            ("restore, everything", other.clone(), &restore),
            ("restore, one tenant", other.clone(), &one),
        ] {
            let said = self.command(&data, operation, arguments);
            let records = json!({"customers": 2, "employees": EMPLOYEES, "hardware": self.count});
            assert_eq!(said["tenants"][0]["records"], records, "{operation}");
            let _ = fs::remove_dir_all(&other);
        }
        assert_eq!(self.api.total(&format!("{PATH}?q=charger")), self.count);
    }

    /// POST, PUT and DELETE of the same records.
    fn changes(&mut self) {
        let ids = self.count + 1..=self.count + 500;
        for method in ["POST", "PUT", "DELETE"] {
            let body = json!({"name": "New", "asset_tag": method, "notes": "with a charger"});
            let change = |id: i64| {
                let target = format!("{PATH}?id={id}");
                match method {
                    "POST" => timed(self.api.call(method, PATH).json(&body)).0,
                    "PUT" => timed(self.api.call(method, &target).json(&body)).0,
                    _ => timed(self.api.call(method, &target)).0,
                }
            };
            let (times, usage): (Vec<Duration>, _) =
                watch(self.server.pid(), || ids.clone().map(change).collect());
            assert_eq!(usage.temporary, 0, "a change needs no temporary file");
            let slowest = times.into_iter().max().unwrap();
            self.table.0.push((format!("{method}, slowest"), slowest, usage));
        }
    }
}

/// Sends a request that has to succeed. Returns how long the reply took, and its body as JSON.
#[track_caller]
fn timed(call: Call<'_>) -> (Duration, Value) {
    let (time, reply) = timed_reply(call);
    assert!((200..300).contains(&reply.status), "{reply}");
    (time, serde_json::from_slice(&reply.body).unwrap_or_default())
}

/// Sends a request, and returns how long the reply took.
fn timed_reply(call: Call<'_>) -> (Duration, Reply) {
    let begun = Instant::now();
    let reply = call.try_send().unwrap();
    (begun.elapsed(), reply)
}

/// Writes records as `import` takes them, about 500 bytes each as JSON.
fn write_csv(path: &Path, count: i64) {
    let choices = |field: &str| match HARDWARE.field(field).unwrap().kind {
        Kind::Choice(names) => names,
        kind => panic!("{field} is {kind:?}"),
    };
    let (types, statuses) = (choices("type"), choices("status"));
    let mut file = BufWriter::new(File::create_new(path).unwrap());
    file.write_all(
        b"name,employee_id,type,status,manufacturer,model,serial_number,asset_tag,purchase_date,\
          warranty_until,purchase_cost_cents,is_leased,notes,custom.contract,custom.mac,custom.os,\
          custom.room,custom.socket\n",
    )
    .unwrap();
    for n in 1..=count {
        let at = usize::try_from(n).unwrap();
        // Numbers without order. Different `n` have different ones.
        let mixed = n.wrapping_mul(2_654_435_761) & 0xFFFF_FFFF;
        let maker = ["Lenovo", "Dell", "Fujitsu", "Apple"][at / 7 % 4];
        let (kind, status) = (types[at % types.len()], statuses[at / 3 % statuses.len()]);
        let (employee, leased) = (at % EMPLOYEES + 1, at % 3 / 2);
        let (year, month, day) = (2010 + mixed % 15, mixed % 12 + 1, mixed % 28 + 1);
        let (model, cost) = (mixed % 5_000, mixed % 300_000);
        let (contract, note) = (mixed % 9_999, mixed % 10_000);
        writeln!(
            file,
            "{maker} {kind} {n},{employee},{kind},{status},{maker},{maker} {model},SN-{mixed:08X},\
             AT{n:07},{year}-{month:02}-{day:02},2030-{month:02}-01,{cost},{leased},\"Bought for the \
             office, handed over with charger, bag and docking station; contract {note}\",\
             V-{contract},{:012x},Debian,{}.{},{}",
            mixed << 8,
            n % 5,
            n % 97,
            n % 2_000
        )
        .unwrap();
    }
    file.flush().unwrap();
}

/// Does everything there is to do beside so many records.
fn run(count: i64) -> Table {
    let (server, api) = TestServer::with_unlimited_api();
    let mut scale = Scale { server, api, count, table: Table::default() };
    scale.import();
    scale.lists();
    scale.export();
    scale.back_up_and_restore();
    let Scale { mut server, table, .. } = scale;
    server.stop();
    let most_temporary = (64 << 10) + TEMPORARY_LIMIT * count.unsigned_abs();
    for (operation, _, usage) in &table.0 {
        assert!(usage.memory < MEMORY_LIMIT, "{operation}: {usage:?}\n{table}");
        assert!(usage.temporary < most_temporary, "{operation}: {usage:?}\n{table}");
    }
    table
}
