//! nginx or Caddy in front of a server, with the configuration that users copy from `examples/`.
//! Only ports, certificate and rates are replaced.

use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};

use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::tls::{self, Stream};
use super::{DEADLINE, example, free_port, until, uuid};

/// The host of the service behind a proxy with one machine.
pub(crate) const HOST: &str = "desk.example";

/// The host of a tenant behind a proxy with several machines.
const TENANT_HOST: &str = "acme.desk.example";

/// The headers that a proxy adds to every response, by itself or by its example's configuration.
const ADDED_HEADERS: [&str; 2] = ["server", "strict-transport-security"];

/// A proxy program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nginx,
    Caddy,
}

impl Kind {
    pub(crate) const ALL: [Kind; 2] = [Kind::Nginx, Kind::Caddy];

    /// The end of a line in the file of routes.
    pub(crate) fn end_of_route(self) -> &'static str {
        if self == Kind::Nginx { ";" } else { "" }
    }

    fn program(self) -> &'static str {
        match self {
            Kind::Nginx => "nginx",
            Kind::Caddy => "caddy",
        }
    }
}

/// A proxy with one of the configurations in `examples/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deployment {
    pub kind: Kind,
    /// Whether each tenant has a host of its own, which the proxy routes to its machine
    /// (`examples/several`).
    pub several_machines: bool,
}

impl Deployment {
    pub(crate) fn all() -> impl Iterator<Item = Deployment> {
        Kind::ALL.into_iter().flat_map(|kind| {
            [false, true].map(|several_machines| Deployment { kind, several_machines })
        })
    }

    /// The host of the service.
    pub(crate) fn host(self) -> &'static str {
        if self.several_machines { TENANT_HOST } else { HOST }
    }

    /// Starts the proxy in front of `server`, with rates that no test reaches.
    pub(crate) fn start(self, server: SocketAddr) -> Proxy {
        self.start_with(server, unlimited)
    }

    /// Starts the proxy in front of `server`. `changed` returns the text to use in place of a file
    /// of the example.
    pub(crate) fn start_with(
        self,
        server: SocketAddr,
        changed: impl Fn(String) -> String,
    ) -> Proxy {
        let routes = format!("{TENANT_HOST} one{}\n", self.kind.end_of_route());
        Proxy::launch(self, [server; 2], &routes, &changed)
    }
}

/// The example with rates that no test reaches.
fn unlimited(text: String) -> String {
    text.replace("rate=50r/s", "rate=99999r/s").replace("s 50;", "s 5000;")
}

/// Whether proxies add the header `name` to responses.
pub(crate) fn adds(name: &str) -> bool {
    ADDED_HEADERS.iter().any(|added| name.eq_ignore_ascii_case(added))
}

/// A running proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    child: Child,
    address: SocketAddr,
    /// The shell command that reloads its configuration.
    reload: String,
    home: PathBuf,
    certificate: Arc<Certificate>,
    /// The host of the service.
    host: &'static str,
}

impl Proxy {
    /// The host of the service behind it.
    pub(crate) fn host(&self) -> &'static str {
        self.host
    }

    /// Starts one in front of machines, named `one` and `two` in `routes`.
    pub(crate) fn start_several(kind: Kind, machines: [SocketAddr; 2], routes: &str) -> Proxy {
        let deployment = Deployment { kind, several_machines: true };
        Proxy::launch(deployment, machines, routes, &unlimited)
    }

    fn launch(
        deployment: Deployment,
        machines: [SocketAddr; 2],
        routes: &str,
        changed: &impl Fn(String) -> String,
    ) -> Proxy {
        let host = deployment.host();
        let certificate = certificate();
        let home = certificate.home.path().join(uuid());
        fs::create_dir(&home).unwrap();
        fs::write(home.join("routes"), routes).unwrap();
        let mut log = String::new();
        for _ in 0..10 {
            let address = free_address();
            let command = if deployment.kind == Kind::Nginx { nginx } else { caddy };
            let several = deployment.several_machines;
            let (mut command, reload) = command(several, &home, address, machines, changed);
            let output = fs::File::create(home.join("log")).unwrap();
            let streams = (Stdio::from(output.try_clone().unwrap()), Stdio::from(output));
            let mut child =
                command.stdin(Stdio::null()).stdout(streams.0).stderr(streams.1).spawn().unwrap();
            if answers(&mut child, address) {
                return Proxy { child, address, reload, home, certificate, host };
            }
            let _ = child.kill();
            let _ = child.wait();
            log = fs::read_to_string(home.join("log")).unwrap_or_default();
        }
        panic!("{} does not start: {log}", deployment.kind.program());
    }

    /// The shell command that reloads its configuration.
    pub(crate) fn reload(&self) -> &str {
        &self.reload
    }

    /// The file of routes of a proxy in front of several machines.
    pub(crate) fn routes(&self) -> PathBuf {
        self.home.join("routes")
    }

    /// A connection to it.
    pub(crate) fn connect(&self) -> io::Result<Stream> {
        TcpStream::connect_timeout(&self.address, DEADLINE).and_then(secure)
    }

    /// A connection to its port for plain HTTP.
    pub(crate) fn connect_plainly(&self) -> io::Result<TcpStream> {
        TcpStream::connect_timeout(&plain(self.address), DEADLINE)
    }

    /// A connection to it, from the address `from` of this machine.
    pub(crate) fn connect_from(&self, from: Ipv4Addr) -> io::Result<Stream> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        socket.connect_timeout(&self.address.into(), DEADLINE)?;
        secure(socket.into())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // nginx ends its workers on SIGTERM; a kill would leave them running.
        super::signal(self.child.id(), "TERM");
        let _ = self.child.wait();
    }
}

/// Returns an address for a proxy, with another host than other proxies have. Caddy starts even if
/// another Caddy listens on the same address (`SO_REUSEPORT`). Each would get some connections.
fn free_address() -> SocketAddr {
    let [first, second, third, ..] = *uuid::Uuid::new_v4().as_bytes();
    SocketAddr::from((Ipv4Addr::new(127, first, second, third.clamp(1, 254)), free_port()))
}

/// The address in place of port 80. No other proxy has its host.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port() ^ 1)
}

/// Waits until it answers on both ports. False if it has ended.
fn answers(child: &mut Child, address: SocketAddr) -> bool {
    until("the proxy answers", || {
        if child.try_wait().unwrap().is_some() {
            return Some(false);
        }
        // The first write completes the TLS handshake.
        let handshake = TcpStream::connect(address)
            .and_then(secure)
            .and_then(|mut stream| stream.write_all(b"\r\n"))
            .and_then(|()| TcpStream::connect(plain(address)));
        handshake.is_ok().then_some(true)
    })
}

/// The paths of the certificate in the examples.
const CERTIFICATE: &str = "/etc/ssl/desk.example/fullchain.pem";
const KEY: &str = "/etc/ssl/desk.example/privkey.pem";

/// A file of the examples, in which each first text of `replacements` is replaced by the second.
fn adapted(
    file: &str,
    changed: &impl Fn(String) -> String,
    replacements: &[(&str, String)],
) -> String {
    let text = changed(fs::read_to_string(example(file)).unwrap());
    replacements.iter().fold(text, |text, (old, new)| {
        assert!(text.contains(old), "{file} has no {old:?}");
        text.replace(old, new)
    })
}

/// The addresses of the machines in the examples, and what stands in their place.
fn addresses(several: bool, machines: [SocketAddr; 2]) -> Vec<(&'static str, String)> {
    let names =
        if several { &["10.0.0.11:8080", "10.0.0.12:8080"][..] } else { &["127.0.0.1:8080"] };
    names.iter().copied().zip(machines.map(|machine| machine.to_string())).collect()
}

/// Returns the command that runs it, and the shell command that reloads its configuration.
fn nginx(
    several: bool,
    home: &Path,
    address: SocketAddr,
    machines: [SocketAddr; 2],
    changed: &impl Fn(String) -> String,
) -> (Command, String) {
    let (certificate, plain) = (certificate(), plain(address));
    let path = |name: &str| home.join(name).display().to_string();
    let shared = adapted("nginx/tenantdesk-site", changed, &[]);
    fs::write(home.join("tenantdesk-site"), shared).unwrap();
    let mut replacements = addresses(several, machines);
    replacements.extend([
        ("listen 80;", format!("listen {plain};")),
        ("listen [::]:80;", String::new()),
        ("listen 443 ssl http2;", format!("listen {address} ssl http2;")),
        ("listen [::]:443 ssl http2;", String::new()),
        (CERTIFICATE, certificate.certificate.display().to_string()),
        (KEY, certificate.key.display().to_string()),
        ("/etc/nginx/tenantdesk-site", path("tenantdesk-site")),
    ]);
    if several {
        replacements.push(("/etc/nginx/tenantdesk-routes", path("routes")));
    }
    let file = if several { "several/nginx.conf" } else { "nginx/tenantdesk.conf" };
    fs::write(home.join("site.conf"), adapted(file, changed, &replacements)).unwrap();
    let (home, temp) = (home.display(), path("temp"));
    let main = format!(
        "daemon off; user {}; worker_processes 1; pid {home}/pid; error_log stderr;\n\
         events {{ worker_connections 512; }}\n\
         http {{ access_log off; client_body_temp_path {temp}-body; proxy_temp_path {temp}-proxy;\n\
         fastcgi_temp_path {temp}-f; uwsgi_temp_path {temp}-u; scgi_temp_path {temp}-s;\n\
         include {home}/site.conf; }}\n",
        user()
    );
    let path = path("nginx.conf");
    fs::write(&path, main).unwrap();
    let mut command = Command::new("nginx");
    command.args(["-p", &home.to_string(), "-e", "stderr", "-c", &path]);
    (command, format!("nginx -p '{home}' -e stderr -c '{path}' -s reload"))
}

/// User and group of this process, for nginx's workers, which must be able to enter its directory.
fn user() -> String {
    let ask = |what: &str| {
        String::from_utf8(Command::new("id").arg(what).output().unwrap().stdout).unwrap()
    };
    format!("{} {}", ask("-un").trim(), ask("-gn").trim())
}

/// Returns the command that runs it, and the shell command that reloads its configuration.
fn caddy(
    several: bool,
    home: &Path,
    address: SocketAddr,
    machines: [SocketAddr; 2],
    changed: &impl Fn(String) -> String,
) -> (Command, String) {
    let (certificate, plain, admin) = (certificate(), plain(address), free_address());
    let path = |name: &str| home.join(name).display().to_string();
    let pem = certificate.certificate.display().to_string();
    let key = certificate.key.display().to_string();
    let shared = adapted("caddy/tenantdesk-site", changed, &[]);
    fs::write(home.join("tenantdesk-site"), shared).unwrap();
    let name = if several { "*.desk.example" } else { HOST };
    let (site, http) = (format!("\n{name} {{"), format!("\nhttp://{name} {{"));
    let mut own = format!("\nhttps://{name}:{} {{\n\tbind {}", address.port(), address.ip());
    let mut replacements = addresses(several, machines);
    if several {
        replacements.push(("/etc/caddy/tenantdesk-routes", path("routes")));
        replacements.extend([(CERTIFICATE, pem), (KEY, key)]);
    } else {
        own += &format!("\n\ttls {pem} {key}");
    }
    replacements.extend([
        ("\n{\n", format!("\n{{\n\tadmin {admin}\n\tauto_https off\n")),
        (&site, own),
        (&http, format!("\nhttp://{name}:{} {{\n\tbind {}", plain.port(), plain.ip())),
        ("/etc/caddy/tenantdesk-site", path("tenantdesk-site")),
    ]);
    let file = if several { "several/Caddyfile" } else { "caddy/Caddyfile" };
    fs::write(home.join("Caddyfile"), adapted(file, changed, &replacements)).unwrap();
    let path = path("Caddyfile");
    let mut command = Command::new("caddy");
    command.args(["run", "--adapter", "caddyfile", "--config", &path]);
    for variable in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
        command.env(variable, home);
    }
    command.env("GOMAXPROCS", "2");
    let reload = "caddy reload --adapter caddyfile --config";
    (command, format!("{reload} '{path}' --address {admin} 2>/dev/null"))
}

#[derive(Debug)]
struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
    config: Arc<ClientConfig>,
    home: tempfile::TempDir,
}

/// The certificate of all running proxies of this process. Its directory is removed with the last
/// proxy.
fn certificate() -> Arc<Certificate> {
    static LAST: Mutex<Weak<Certificate>> = Mutex::new(Weak::new());
    let mut last = LAST.lock().unwrap();
    last.upgrade().unwrap_or_else(|| {
        let home = tempfile::tempdir().unwrap();
        let files = tls::Certificate::make(home.path());
        let config = files.trusted();
        let tls::Certificate { certificate, key } = files;
        let made = Arc::new(Certificate { certificate, key, config, home });
        *last = Arc::downgrade(&made);
        made
    })
}

fn secure(socket: TcpStream) -> io::Result<Stream> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(DEADLINE))?;
    socket.set_write_timeout(Some(DEADLINE))?;
    let name = ServerName::try_from(HOST).map_err(io::Error::other)?;
    Ok(Stream::secure(socket, Arc::clone(&certificate().config), name))
}
