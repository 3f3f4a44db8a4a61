//! The first machine, the copy that Litestream makes of it, and the second machine that takes over.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{DataDir, until, uuid};

/// How many ports are tried for sshd, which must be told its port before it starts.
const PORTS_TRIED: usize = 10;

pub(crate) fn litestream() -> String {
    std::env::var("LITESTREAM").unwrap_or_else(|_| "litestream".to_owned())
}

const SSHD: &str = "/usr/sbin/sshd";

/// The account that receives the copy. Only root can change its root directory, and sshd runs as
/// root then.
pub(crate) const ACCOUNT: &str = "root";

/// Whether these tests can run: root runs them, and the programs that all of them start are
/// installed.
pub(crate) fn equipped() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    assert!(is_root || std::env::var_os("CI").is_none(), "root must run these tests");
    if !is_root {
        let _ =
            writeln!(std::io::stderr(), "\n*** LEFT OUT: root must run the tests of the copy ***");
    }
    is_root && installed(&[&litestream(), SSHD])
}

/// Whether these programs are installed. With `CI` set, a missing one fails the test.
pub(crate) fn installed(programs: &[&str]) -> bool {
    let there = |program: &&str| Command::new(program).arg("--version").output().is_ok();
    let missing: Vec<&str> = programs.iter().copied().filter(|program| !there(program)).collect();
    if missing.is_empty() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "not installed: {missing:?}");
    // The test harness captures what macros print.
    let _ = writeln!(
        std::io::stderr(),
        "\n*** LEFT OUT: {missing:?} not installed, so the copy was not tried ***"
    );
    false
}

pub(crate) fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/standby").join(name)
}

/// Replaces a text that must occur.
pub(crate) fn replace(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "the example has no {old:?} any more");
    text.replace(old, new)
}

/// The destination of a copy.
#[derive(Debug)]
pub(crate) struct Copy {
    directory: tempfile::TempDir,
    /// `None` if the copy is a directory of the first machine.
    sshd: Option<Sshd>,
}

#[derive(Debug)]
struct Sshd {
    child: Child,
    port: u16,
}

impl Copy {
    /// To a directory.
    pub(crate) fn to_directory() -> Copy {
        Copy { directory: tempfile::tempdir().unwrap(), sshd: None }
    }

    /// To a second host, over SFTP. sshd changes its root directory, so root owns all directories
    /// above, and nobody else can write to them.
    pub(crate) fn to_second_host() -> Copy {
        let directory = tempfile::tempdir_in("/run").unwrap();
        let sshd = Sshd::start(directory.path());
        Copy { directory, sshd: Some(sshd) }
    }

    /// The port of sshd.
    pub(crate) fn port(&self) -> u16 {
        self.sshd.as_ref().unwrap().port
    }

    /// A client of OpenSSH with the first machine's key.
    pub(crate) fn ssh_client(&self, program: &str) -> Command {
        let directory = self.directory.path();
        let host_key = fs::read_to_string(directory.join("host.pub")).unwrap();
        let known = directory.join("known_hosts");
        let port = self.port();
        fs::write(&known, format!("[127.0.0.1]:{port} {host_key}")).unwrap();
        let mut command = Command::new(program);
        command.args(["-F", "none", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"]);
        command.arg("-o").arg(format!("UserKnownHostsFile={}", known.display()));
        command.arg("-o").arg(format!("Port={port}")).arg("-i").arg(directory.join("client"));
        command
    }

    /// The directory of the copy.
    pub(crate) fn directory(&self) -> PathBuf {
        self.directory.path().join("root/data")
    }

    /// The example's configuration for this place and this copy.
    fn config(&self, data: &Path) -> String {
        let data = data.to_str().unwrap();
        let Some(sshd) = &self.sshd else {
            let text = fs::read_to_string(example("to-directory.yml")).unwrap();
            let text = replace(&text, "/var/lib/tenantdesk", data);
            return replace(&text, "/mnt/elsewhere/tenantdesk", self.directory().to_str().unwrap());
        };
        let text = fs::read_to_string(example("to-second-machine.yml")).unwrap();
        let key = self.directory.path().join("client");
        let host_key = fs::read_to_string(self.directory.path().join("host.pub")).unwrap();
        let host_key: Vec<&str> = host_key.split_whitespace().take(2).collect();
        let mut text = replace(&text, "/var/lib/tenantdesk", data);
        for (old, new) in [
            ("second.example:22", format!("127.0.0.1:{}", sshd.port).as_str()),
            ("user: tenantdesk-copy", &format!("user: {ACCOUNT}")),
            ("/etc/tenantdesk-copy.key", key.to_str().unwrap()),
            ("ssh-ed25519 THE-SECOND-MACHINES-KEY", &host_key.join(" ")),
        ] {
            text = replace(&text, old, new);
        }
        text
    }

    /// Starts Litestream on the data of a machine.
    pub(crate) fn begin(&self, data_dir: &DataDir) -> Copying {
        self.begin_as(data_dir, |command| command)
    }

    /// The same with a command that `made` makes of Litestream's.
    pub(crate) fn begin_as(
        &self,
        data_dir: &DataDir,
        made: impl FnOnce(Command) -> Command,
    ) -> Copying {
        let config = self.directory.path().join("litestream.yml");
        fs::write(&config, self.config(&data_dir.data())).unwrap();
        let log_file = self.directory.path().join("litestream.log");
        let log = fs::OpenOptions::new().create(true).append(true).open(&log_file).unwrap();
        let mut command = Command::new(litestream());
        command.args(["replicate", "-config"]).arg(&config);
        let mut command = made(command);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        Copying { child, log: log_file }
    }

    /// Waits until the registry and each of these tenants have begun to be copied.
    pub(crate) fn await_begun(&self, tenants: impl IntoIterator<Item = i64>) {
        for file in tenants
            .into_iter()
            .map(|id| format!("tenants/{id}.db"))
            .chain(["registry.db".to_owned()])
        {
            until(&format!("{file} is copied"), || self.has_begun(&file).then_some(()));
        }
    }

    /// Whether the copy has anything of this file of the data directory.
    pub(crate) fn has_begun(&self, file: &str) -> bool {
        let first = self.directory().join(file).join("ltx/0");
        fs::read_dir(first).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Waits until the copy holds so many customers of a tenant. Returns the directory into which
    /// the copy was fetched.
    pub(crate) fn await_customers(&self, tenant: &str, count: usize) -> Arc<DataDir> {
        until("the copy has caught up", || {
            let data_dir = DataDir::new(false);
            let fetched = take_over(&data_dir, self).output().unwrap();
            let listed = data_dir.cli(&["export", tenant, "customers", "--format", "jsonl"]);
            let all = fetched.status.success()
                && listed.code == Some(0)
                && listed.stdout.lines().count() == count;
            all.then_some(data_dir)
        })
    }
}

impl Sshd {
    /// The system's sshd with the example's part of its configuration, on a port and with keys of
    /// its own.
    fn start(directory: &Path) -> Sshd {
        for name in ["host", "client"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(directory.join(name))
                .status()
                .unwrap();
            assert!(made.success());
        }
        // sshd does not change its root directory to one that others can enter by a directory that
        // is theirs.
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(directory.join("root/data")).unwrap();
        // If root starts it, sshd requires this directory, which the unit of its service makes.
        let _ = fs::create_dir("/run/sshd");
        let example = fs::read_to_string(example("sshd.conf")).unwrap();
        let example =
            replace(&example, "Match User tenantdesk-copy", &format!("Match User {ACCOUNT}"));
        let example =
            replace(&example, "/srv/tenantdesk-copy", directory.join("root").to_str().unwrap());
        let keys = directory.join("client.pub");
        let example =
            replace(&example, "/etc/ssh/tenantdesk-copy/authorized_keys", keys.to_str().unwrap());
        for _ in 0..PORTS_TRIED {
            let port = 20_000 + u16::from_str_radix(&uuid()[..4], 16).unwrap() % 12_000;
            let own = format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nPidFile none\nStrictModes no\nUsePAM no\n\
                 Subsystem sftp internal-sftp\n",
                directory.join("host").display()
            );
            fs::write(directory.join("sshd_config"), format!("{own}{example}")).unwrap();
            if let Some(sshd) = Sshd::try_start(directory, port) {
                return sshd;
            }
        }
        panic!(
            "sshd does not start: {}",
            fs::read_to_string(directory.join("sshd.log")).unwrap_or_default()
        );
    }

    /// Returns `None` if it cannot listen on the port of its configuration in `directory`.
    fn try_start(directory: &Path, port: u16) -> Option<Sshd> {
        let (config, log) = (directory.join("sshd_config"), directory.join("sshd.log"));
        let mut sshd = Command::new(SSHD);
        sshd.arg("-D").arg("-f").arg(&config).arg("-E").arg(&log);
        let mut child = sshd.spawn().unwrap();
        let mut connect = Command::new("bash");
        connect.args(["-c", &format!("exec 3<>/dev/tcp/127.0.0.1/{port}")]);
        connect.stderr(Stdio::null());
        let listens = until("sshd listens or ends", || {
            let ended = child.try_wait().unwrap().is_some();
            let connected = connect.status().unwrap().success();
            (ended || connected).then_some(!ended)
        });
        listens.then_some(Sshd { child, port })
    }

    fn kill(&mut self) {
        for process in descendants(self.child.id()) {
            // It may have ended by itself.
            let _ = Command::new("kill")
                .arg("-9")
                .arg(process.to_string())
                .stderr(Stdio::null())
                .status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processes that a process has started, and their descendants.
fn descendants(parent: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let process = entry.unwrap().file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            let parent = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
            Some((process, parent))
        })
        .collect();
    let mut found = vec![parent];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(process, _)| process));
        next += 1;
    }
    found.split_off(1)
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A running Litestream.
#[derive(Debug)]
pub(crate) struct Copying {
    child: Child,
    log: PathBuf,
}

impl Copying {
    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Its output so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Its warnings and errors so far.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let bad = |line: &&str| line.contains("level=ERROR") || line.contains("level=WARN");
        self.log().lines().filter(bad).map(str::to_owned).collect()
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A machine that serves.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) data_dir: Arc<DataDir>,
    child: Child,
    /// Stays open, because printing to a closed pipe fails.
    _output: BufReader<ChildStdout>,
    /// The time from the command to the first answer.
    pub(crate) took: Duration,
}

impl Machine {
    /// Serves the data of a directory.
    pub(crate) fn first(data_dir: Arc<DataDir>) -> Machine {
        let mut command = data_dir.command();
        command.arg("--data-dir").arg(data_dir.data()).args(SERVE);
        Machine::start(data_dir, command)
    }

    /// Runs the command of the example on the second machine.
    pub(crate) fn second(copy: &Copy) -> Machine {
        let data_dir = DataDir::new(false);
        let mut command = take_over(&data_dir, copy);
        command.args(SERVE);
        Machine::start(data_dir, command)
    }

    fn start(data_dir: Arc<DataDir>, mut command: Command) -> Machine {
        let log = fs::File::create(data_dir.home().join("log")).unwrap();
        let began = Instant::now();
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let took = began.elapsed();
        let address = line.trim().strip_prefix("listening on http://").map(str::parse);
        let Some(Ok(address)) = address else {
            panic!(
                "it says {line:?}: {}",
                fs::read_to_string(data_dir.home().join("log")).unwrap()
            );
        };
        data_dir.set_address(address);
        Machine { data_dir, child, _output: output, took }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.data_dir.home().join("log")).unwrap()
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const SERVE: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--rate-limit", "100000000"];

/// The script of the example, without the command that it runs at its end.
pub(crate) fn take_over(data_dir: &DataDir, copy: &Copy) -> Command {
    let mut command = Command::new(example("take-over"));
    command.arg(copy.directory()).arg(data_dir.data());
    command.env("TENANTDESK", env!("CARGO_BIN_EXE_tenantdesk")).env("LITESTREAM", litestream());
    command
}
