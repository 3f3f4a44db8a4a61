//! The shipped binary on a data directory of its own, and its command line.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::thread;

use serde_json::Value;
use tokio_rustls::rustls::ClientConfig;

use super::client::Api;
use super::proxy::Proxy;
use super::tls::{Certificate, Stream};
use super::until;

/// Every scope.
pub(crate) const ALL: &[&str] = &["all"];

/// The id of an unprivileged user.
const NOBODY: u32 = 65_534;

/// The directory of the databases that 1.0.0 made, `databases.zip`, and of their records,
/// `records.jsonl`.
pub(crate) fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/schema-6")
}

/// The environment variable that names another binary to test.
const TEST_BINARY: &str = "TEST_BINARY";

/// The binary that is tested: the one of this build, unless the environment names another.
pub(crate) fn binary() -> PathBuf {
    let built = || env!("CARGO_BIN_EXE_tenantdesk").into();
    std::env::var_os(TEST_BINARY).unwrap_or_else(built).into()
}

/// A data directory, the address at which it is served, and the secrets that its log must not
/// contain.
#[derive(Debug)]
pub(crate) struct DataDir {
    home: tempfile::TempDir,
    binary: PathBuf,
    unprivileged: bool,
    address: Mutex<Option<SocketAddr>>,
    /// The certificate of a server with HTTPS, and the configuration of its clients.
    https: OnceLock<(Certificate, Arc<ClientConfig>)>,
    /// The proxy that its clients go through, if any.
    proxy: Mutex<Option<Proxy>>,
    secrets: Mutex<Vec<String>>,
}

impl DataDir {
    pub(crate) fn new(unprivileged: bool) -> Arc<DataDir> {
        let home = if unprivileged { tempfile::tempdir_in("/tmp") } else { tempfile::tempdir() };
        DataDir::in_home(home.unwrap(), unprivileged)
    }

    /// A data directory with the tenant `acme`.
    pub(crate) fn acme() -> Arc<DataDir> {
        let data_dir = DataDir::new(false);
        data_dir.tenant("acme");
        data_dir
    }

    /// A data directory of this user, whose commands another user can run, too.
    pub(crate) fn for_two_users() -> Arc<DataDir> {
        let home = tempfile::tempdir_in("/tmp").unwrap();
        let binary = copy_binary(home.path());
        DataDir::with_binary(home, binary, false)
    }

    /// A data directory in this directory, where there may be one already.
    pub(crate) fn in_home(home: tempfile::TempDir, unprivileged: bool) -> Arc<DataDir> {
        let unprivileged = unprivileged && is_root();
        let mut binary = binary();
        if unprivileged {
            binary = copy_binary(home.path());
            chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        DataDir::with_binary(home, binary, unprivileged)
    }

    fn with_binary(home: tempfile::TempDir, binary: PathBuf, unprivileged: bool) -> Arc<DataDir> {
        Arc::new(DataDir {
            home,
            binary,
            unprivileged,
            address: Mutex::default(),
            https: OnceLock::new(),
            proxy: Mutex::default(),
            secrets: Mutex::default(),
        })
    }

    /// Puts the databases of a schema version there: the registry, and the file of its tenant acme.
    pub(crate) fn place_fixture(&self) {
        std::fs::create_dir_all(self.data().join("tenants")).unwrap();
        let databases = std::fs::File::open(fixture().join("databases.zip")).unwrap();
        let mut databases = zip::ZipArchive::new(databases).unwrap();
        for (from, to) in [("registry.db", "registry.db"), ("tenant.db", "tenants/1.db")] {
            let mut to = std::fs::File::create(self.data().join(to)).unwrap();
            std::io::copy(&mut databases.by_name(from).unwrap(), &mut to).unwrap();
        }
    }

    /// A directory beside the data directory, for whatever a test needs.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    pub(crate) fn registry_file(&self) -> PathBuf {
        self.data().join("registry.db")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address.lock().unwrap().expect("the data directory is not served")
    }

    pub(crate) fn set_address(&self, address: SocketAddr) {
        *self.address.lock().unwrap() = Some(address);
    }

    /// Its clients go through `proxy`.
    pub(crate) fn set_proxy(&self, proxy: Proxy) {
        *self.proxy.lock().unwrap() = Some(proxy);
    }

    /// Whether its clients go through a proxy.
    pub(crate) fn is_proxied(&self) -> bool {
        self.proxy.lock().unwrap().is_some()
    }

    /// A connection to its proxy, if it has one.
    pub(crate) fn connect_to_proxy(&self) -> Option<std::io::Result<Stream>> {
        self.proxy.lock().unwrap().as_ref().map(Proxy::connect)
    }

    /// The certificate of the server. The first call creates it.
    pub(crate) fn certificate(&self) -> &Certificate {
        let make = || {
            let made = Certificate::make(self.home());
            let trusted = made.trusted();
            (made, trusted)
        };
        &self.https.get_or_init(make).0
    }

    /// The configuration of its clients, if it is served by HTTPS.
    pub(crate) fn https(&self) -> Option<Arc<ClientConfig>> {
        self.https.get().map(|(_, trusted)| Arc::clone(trusted))
    }

    /// A client without a key.
    pub(crate) fn anonymous(self: &Arc<DataDir>) -> Api {
        Api::new(Arc::clone(self), None)
    }

    /// A client with this key, whatever it is.
    pub(crate) fn with_key(self: &Arc<DataDir>, key: &str) -> Api {
        Api::new(Arc::clone(self), Some(key))
    }

    /// Makes a tenant. If acme is the first one, it is a copy ([`WITH_TENANT`]).
    #[track_caller]
    pub(crate) fn tenant(self: &Arc<DataDir>, name: &str) -> Tenant {
        if name != "acme" || self.unprivileged || self.data().exists() {
            return self.tenant_with(name, &[]);
        }
        WITH_TENANT.copy_to(self);
        Tenant {
            data_dir: Arc::clone(self),
            name: name.to_owned(),
            id: 1,
            password: WITH_TENANT.secrets[0].clone(),
        }
    }

    /// Makes a tenant with further options.
    #[track_caller]
    pub(crate) fn tenant_with(self: &Arc<DataDir>, name: &str, options: &[&str]) -> Tenant {
        let made = self.cli_json(&[&["tenant", "create", name], options].concat());
        let password = made["password"].as_str().unwrap().to_owned();
        self.secrets.lock().unwrap().push(password.clone());
        Tenant {
            data_dir: Arc::clone(self),
            name: name.to_owned(),
            id: made["id"].as_i64().unwrap(),
            password,
        }
    }

    /// Runs a command on this data directory.
    #[track_caller]
    pub(crate) fn cli(&self, arguments: &[&str]) -> Output {
        self.cli_with_input(arguments, "")
    }

    /// Runs a command with `--json`, which succeeds. Returns what the command prints.
    #[track_caller]
    pub(crate) fn cli_json(&self, arguments: &[&str]) -> Value {
        self.cli(&[&["--json"], arguments].concat()).done().json()
    }

    /// The row of a key of the tenant acme.
    #[track_caller]
    pub(crate) fn listed_key(&self, id: i64) -> Value {
        let keys = self.cli_json(&["key", "list", "acme"]);
        keys.as_array().unwrap().iter().find(|row| row["id"] == id).unwrap().clone()
    }

    /// Runs a command with something on its standard input.
    #[track_caller]
    pub(crate) fn cli_with_input(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = self.command();
        command.arg("--data-dir").arg(self.data()).args(arguments);
        run(command, input)
    }

    /// The binary, run by the user of this data directory and without variables `TENANTDESK_…`.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        self.as_its_user(&mut command);
        command
    }

    /// Has `command` run as the server does.
    pub(crate) fn as_its_user(&self, command: &mut Command) {
        command.current_dir(self.home.path());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TENANTDESK_") {
                command.env_remove(name);
            }
        }
        if self.unprivileged {
            command.uid(NOBODY).gid(NOBODY).env("TMPDIR", "/tmp");
        }
    }

    /// The secrets that must never be in a log.
    pub(crate) fn secrets(&self) -> Vec<String> {
        self.secrets.lock().unwrap().clone()
    }

    pub(crate) fn keep_secret(&self, secret: &str) {
        self.secrets.lock().unwrap().push(secret.to_owned());
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Copies the binary to a directory that other users can enter. The clone may lie in one that they
/// cannot, such as root's home. Another process copies: a child of this one could inherit the
/// descriptor, and the copy could not be executed.
fn copy_binary(directory: &Path) -> PathBuf {
    let copy = directory.join("tenantdesk");
    assert!(Command::new("cp").arg(binary()).arg(&copy).status().unwrap().success());
    for path in [directory, &copy] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    copy
}

/// Runs a command to its end.
#[track_caller]
pub(crate) fn run(mut command: Command, input: &str) -> Output {
    let what = format!("{:?}", command.get_args().collect::<Vec<_>>());
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that reads nothing may be gone before the input is written.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Output {
        what,
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The output of a command.
#[derive(Debug)]
pub(crate) struct Output {
    what: String,
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    #[track_caller]
    pub(crate) fn done(self) -> Output {
        self.ends_with(0)
    }

    /// Exit code 1, and the last line on standard error says why.
    #[track_caller]
    pub(crate) fn fails_saying(self, why: &str) -> Output {
        let output = self.ends_with(1);
        let last = output.stderr.lines().last().unwrap_or_default().to_lowercase();
        assert!(
            last.contains(&why.to_lowercase()),
            "the last line does not say {why:?}: {output:?}"
        );
        assert!(!output.stderr.contains("panicked"), "{output:?}");
        output
    }

    #[track_caller]
    pub(crate) fn ends_with(self, code: i32) -> Output {
        assert_eq!(self.code, Some(code), "{}: {self:?}", self.what);
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("not one JSON document ({error}): {self:?}"))
    }
}

/// A tenant.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    data_dir: Arc<DataDir>,
    pub name: String,
    pub id: i64,
    pub password: String,
}

/// A new key.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub id: i64,
    pub prefix: String,
    pub key: String,
}

impl Tenant {
    /// Makes a key with these scopes.
    #[track_caller]
    pub(crate) fn key(&self, scopes: &[&str]) -> Key {
        self.key_with(scopes, &[])
    }

    #[track_caller]
    pub(crate) fn key_named(&self, name: &str, scopes: &[&str]) -> Key {
        let mut arguments = vec!["--json", "key", "create", &self.name, "--name", name];
        arguments.extend(scopes.iter().flat_map(|scope| ["--scope", scope]));
        self.new_key(&arguments)
    }

    /// Makes a key with these scopes and further options.
    #[track_caller]
    pub(crate) fn key_with(&self, scopes: &[&str], options: &[&str]) -> Key {
        let mut arguments = vec!["--json", "key", "create", &self.name, "--name", "a test's"];
        arguments.extend(scopes.iter().flat_map(|scope| ["--scope", scope]));
        arguments.extend(options);
        self.new_key(&arguments)
    }

    /// Replaces a key with this overlap, and returns the new one.
    #[track_caller]
    pub(crate) fn replace_key(&self, key: &Key, overlap: &str) -> Key {
        let id = key.id.to_string();
        self.new_key(&["--json", "key", "replace", &self.name, &id, "--overlap", overlap])
    }

    /// The key that a command makes.
    #[track_caller]
    fn new_key(&self, arguments: &[&str]) -> Key {
        let made = self.data_dir.cli(arguments).done().json();
        let key = made["key"].as_str().unwrap().to_owned();
        self.data_dir.keep_secret(&key);
        Key {
            id: made["id"].as_i64().unwrap(),
            prefix: made["prefix"].as_str().unwrap().to_owned(),
            key,
        }
    }

    /// A client with a new key of these scopes.
    #[track_caller]
    pub(crate) fn with_scopes(&self, scopes: &[&str]) -> Api {
        self.data_dir.with_key(&self.key(scopes).key)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.data_dir.data().join("tenants").join(format!("{}.db", self.id))
    }

    /// The file, its write-ahead log and its index.
    pub(crate) fn files(&self) -> [PathBuf; 3] {
        ["", "-wal", "-shm"]
            .map(|suffix| PathBuf::from(format!("{}{suffix}", self.file().display())))
    }

    /// A `tenant` command on this tenant.
    #[track_caller]
    pub(crate) fn ask(&self, command: &str, options: &[&str]) -> Output {
        self.data_dir.cli(&[&["tenant", command, &self.name], options].concat()).done()
    }

    /// A `key` command on one of this tenant's keys.
    #[track_caller]
    pub(crate) fn key_command(&self, command: &str, key: &Key) -> Output {
        self.data_dir.cli(&["key", command, &self.name, &key.id.to_string()]).done()
    }
}

/// A data directory with the tenant `acme`. Most tests start with a copy, because the command and
/// the hash of the password take longer than many a test.
static WITH_TENANT: LazyLock<PreparedDir> = LazyLock::new(|| {
    let data_dir = DataDir::new(false);
    data_dir.tenant_with("acme", &[]);
    PreparedDir::of(&data_dir)
});

/// The same with a key of every scope, which is its last secret.
static WITH_KEY: LazyLock<PreparedDir> = LazyLock::new(|| {
    let data_dir = DataDir::new(false);
    data_dir.tenant("acme").key(ALL);
    PreparedDir::of(&data_dir)
});

/// The paths of a data directory, parents first, and the secrets that its commands printed.
struct PreparedDir {
    /// A file has a content, a directory has none.
    paths: Vec<(PathBuf, std::fs::Permissions, Option<Vec<u8>>)>,
    secrets: Vec<String>,
}

impl PreparedDir {
    fn of(data_dir: &DataDir) -> PreparedDir {
        let data = data_dir.data();
        let read = |path: PathBuf| {
            let permissions = path.metadata().unwrap().permissions();
            let content = path.is_file().then(|| std::fs::read(&path).unwrap());
            (path.strip_prefix(data_dir.home()).unwrap().to_owned(), permissions, content)
        };
        let paths = std::iter::once(data.clone()).chain(super::tree(&data));
        PreparedDir { paths: paths.map(read).collect(), secrets: data_dir.secrets() }
    }

    fn copy_to(&self, data_dir: &DataDir) {
        for (path, permissions, content) in &self.paths {
            let path = data_dir.home().join(path);
            match content {
                Some(content) => std::fs::write(&path, content).unwrap(),
                None => std::fs::create_dir(&path).unwrap(),
            }
            std::fs::set_permissions(&path, permissions.clone()).unwrap();
        }
        self.secrets.iter().for_each(|secret| data_dir.keep_secret(secret));
    }
}

/// How a server is started.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    options: Vec<String>,
    variables: Vec<(String, String)>,
    unprivileged: bool,
    /// `ulimit`'s options.
    limits: Vec<String>,
    https: bool,
}

impl Setup {
    /// The contract's defaults.
    pub(crate) fn plain() -> Setup {
        Setup::default()
    }

    /// With a rate limit that no test reaches.
    pub(crate) fn without_rate_limit() -> Setup {
        Setup::plain().option("--rate-limit").option("100000000")
    }

    /// One more word on the command line of `serve`.
    pub(crate) fn option(mut self, word: &str) -> Setup {
        self.options.push(word.to_owned());
        self
    }

    /// One environment variable.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Setup {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Served by a user who has no rights but on the data directory.
    pub(crate) fn unprivileged(mut self) -> Setup {
        self.unprivileged = true;
        self
    }

    /// Under a limit of the system, as options of `ulimit`.
    pub(crate) fn limited_to(mut self, limit: &str) -> Setup {
        self.limits.push(limit.to_owned());
        self
    }

    /// Served by HTTPS.
    pub(crate) fn over_tls(mut self) -> Setup {
        self.https = true;
        self
    }

    #[track_caller]
    pub(crate) fn start(self) -> TestServer {
        let data_dir = DataDir::new(self.unprivileged);
        self.start_at(data_dir)
    }

    /// Starts with the tenant `acme`.
    #[track_caller]
    pub(crate) fn start_with_tenant(self) -> (TestServer, Tenant) {
        let data_dir = DataDir::new(self.unprivileged);
        let tenant = data_dir.tenant("acme");
        (self.start_at(data_dir), tenant)
    }

    /// Starts with the tenant `acme`, and returns a client of that tenant with every scope.
    #[track_caller]
    fn start_with_api(self) -> (TestServer, Api) {
        let data_dir = DataDir::new(false);
        WITH_KEY.copy_to(&data_dir);
        let api = data_dir.with_key(WITH_KEY.secrets.last().unwrap());
        (self.start_at(data_dir), api)
    }

    /// Starts on an existing data directory.
    #[track_caller]
    pub(crate) fn start_at(self, data_dir: Arc<DataDir>) -> TestServer {
        self.try_start_at(&data_dir).unwrap_or_else(|log| panic!("the server ended: {log}"))
    }

    /// The same. If the server ends, returns its log.
    pub(crate) fn try_start_at(self, data_dir: &Arc<DataDir>) -> Result<TestServer, String> {
        let (child, log, output) = self.spawn(data_dir);
        let (data_dir, child) = (Arc::clone(data_dir), Some(child));
        let mut server = TestServer { data_dir, setup: self, child, log, output };
        if server.await_address() {
            return Ok(server);
        }
        server.ended();
        Err(server.log())
    }

    /// The running process, its log and its output.
    fn spawn(&self, data_dir: &Arc<DataDir>) -> (Child, Text, Text) {
        let mut command = if self.limits.is_empty() {
            data_dir.command()
        } else {
            let limits: String =
                self.limits.iter().map(|limit| format!("ulimit {limit} && ")).collect();
            let mut command = Command::new("sh");
            command.arg("-c").arg(format!("{limits} exec \"$@\"")).arg("sh").arg(&data_dir.binary);
            data_dir.as_its_user(&mut command);
            command
        };
        command
            .arg("--data-dir")
            .arg(data_dir.data())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(&self.options);
        if self.https {
            let files = data_dir.certificate();
            command.arg("--tls-cert").arg(&files.certificate).arg("--tls-key").arg(&files.key);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = Text::of(child.stdout.take().unwrap());
        let log = Text::of(child.stderr.take().unwrap());
        (child, log, output)
    }
}

/// Text that another thread reads from a pipe.
#[derive(Debug)]
struct Text {
    gathered: Arc<Mutex<String>>,
    gathering: thread::JoinHandle<()>,
}

impl Text {
    fn of(source: impl Read + Send + 'static) -> Text {
        let gathered = Arc::<Mutex<String>>::default();
        let all = Arc::clone(&gathered);
        let gathering = thread::spawn(move || {
            let mut lines = BufReader::new(source);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                all.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        Text { gathered, gathering }
    }

    fn so_far(&self) -> String {
        self.gathered.lock().unwrap().clone()
    }

    /// Waits until everything that an ended process wrote is read.
    #[track_caller]
    fn await_end(&self) {
        until("all that the server wrote is read", || self.gathering.is_finished().then_some(()));
    }
}

/// A running server. It is a [`DataDir`]: tenants, clients and commands come from there.
#[derive(Debug)]
pub(crate) struct TestServer {
    data_dir: Arc<DataDir>,
    setup: Setup,
    child: Option<Child>,
    log: Text,
    output: Text,
}

impl std::ops::Deref for TestServer {
    type Target = Arc<DataDir>;
    fn deref(&self) -> &Arc<DataDir> {
        &self.data_dir
    }
}

impl TestServer {
    /// The shipped binary with its defaults.
    #[track_caller]
    pub(crate) fn start() -> TestServer {
        Setup::plain().start()
    }

    /// The same with a rate limit that no test reaches.
    #[track_caller]
    pub(crate) fn without_rate_limit() -> TestServer {
        Setup::without_rate_limit().start()
    }

    /// The shipped binary with the tenant `acme`.
    #[track_caller]
    pub(crate) fn with_tenant() -> (TestServer, Tenant) {
        Setup::plain().start_with_tenant()
    }

    /// The same with a rate limit that no test reaches.
    #[track_caller]
    pub(crate) fn with_unlimited_tenant() -> (TestServer, Tenant) {
        Setup::without_rate_limit().start_with_tenant()
    }

    /// The shipped binary with the tenant `acme`, and a client of that tenant with every scope.
    #[track_caller]
    pub(crate) fn with_api() -> (TestServer, Api) {
        Setup::plain().start_with_api()
    }

    /// The same with a rate limit that no test reaches.
    #[track_caller]
    pub(crate) fn with_unlimited_api() -> (TestServer, Api) {
        Setup::without_rate_limit().start_with_api()
    }

    /// Waits until the server says where it listens. False if it ends.
    #[track_caller]
    fn await_address(&mut self) -> bool {
        let scheme = if self.setup.https { "https" } else { "http" };
        let start = format!("listening on {scheme}://");
        let address = until("the server says where it listens, or ends", || {
            let has_ended = self.child.as_mut().unwrap().try_wait().unwrap().is_some();
            let output = self.output();
            let address = output.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok());
            let is_known = address.is_some() && output.ends_with('\n');
            (has_ended || is_known).then_some(address.filter(|_| !has_ended))
        });
        if let Some(address) = address {
            self.data_dir.set_address(address);
        }
        address.is_some()
    }

    /// The log of the server so far.
    pub(crate) fn log(&self) -> String {
        self.log.so_far()
    }

    /// The output of the server so far.
    pub(crate) fn output(&self) -> String {
        self.output.so_far()
    }

    /// The server's process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it has ended").id()
    }

    /// Asks the server to end and returns at once.
    pub(crate) fn signal(&self, name: &str) {
        super::signal(self.pid(), name);
    }

    /// Waits until the process has ended.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let status = self.ended_whatever_it_said();
        self.check_log();
        status
    }

    /// The same for tests that cause a panic, which the log then contains.
    #[track_caller]
    pub(crate) fn ended_whatever_it_said(&mut self) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        let status = until("the server ends", || child.try_wait().unwrap());
        self.log.await_end();
        self.output.await_end();
        status
    }

    /// Ends the server as its supervisor would. Its exit code must be 0.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        self.signal("TERM");
        let status = self.ended();
        assert_eq!(status.code(), Some(0), "{}", self.log());
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        self.child.as_mut().unwrap().kill().unwrap();
        self.ended_whatever_it_said();
    }

    /// Starts the server again on the same data directory.
    #[track_caller]
    pub(crate) fn restart(&mut self) {
        if self.child.is_some() {
            self.stop();
        }
        let ended = self.try_restart();
        assert_eq!(ended, None, "the server ended: {}", self.log());
    }

    /// Starts the server again, which has ended. Returns its exit code if it ends at once, too.
    #[track_caller]
    pub(crate) fn try_restart(&mut self) -> Option<i32> {
        let (child, log, output) = self.setup.spawn(&self.data_dir);
        (self.child, self.log, self.output) = (Some(child), log, output);
        if self.await_address() { None } else { self.ended().code() }
    }

    /// Waits until the server has ended because the disk refused to sync, which it says once.
    #[track_caller]
    pub(crate) fn ended_at_failed_sync(&mut self) {
        let code = self.ended().code();
        self.assert_failed_sync(code);
    }

    /// Exit code 1, and one line in the log says why.
    #[track_caller]
    pub(crate) fn assert_failed_sync(&self, code: Option<i32>) {
        let log = self.log();
        assert_eq!((code, log.matches("refused to sync").count()), (Some(1), 1), "{log}");
    }

    /// Checks what holds for every log.
    #[track_caller]
    fn check_log(&self) {
        let log = self.log();
        assert!(!log.contains("panicked"), "{log}");
        for secret in self.data_dir.secrets() {
            assert!(!log.contains(&secret), "{secret} is in the log: {log}");
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if self.child.is_none() {
            return;
        }
        if thread::panicking() {
            self.kill();
            eprintln!("the server's log:\n{}", self.log());
        } else {
            self.stop();
        }
    }
}
