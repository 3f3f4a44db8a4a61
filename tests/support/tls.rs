//! HTTPS for the client of the tests, and certificates.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, IpAddr, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A certificate that signs itself, with its key, as files in PEM form.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Certificate {
    /// Makes one for 127.0.0.1 and the hosts of the proxies, in `directory`. Files of an earlier one
    /// are overwritten.
    pub(crate) fn make(directory: &Path) -> Certificate {
        let files =
            Certificate { certificate: directory.join("cert.pem"), key: directory.join("key.pem") };
        let made = Command::new("openssl")
            .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split(' '))
            .args("-days 2 -subj /CN=localhost -addext".split(' '))
            .arg("subjectAltName=IP:127.0.0.1,DNS:desk.example,DNS:*.desk.example")
            // rustls accepts no certificate of an authority from a server.
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-out"])
            .arg(&files.certificate)
            .arg("-keyout")
            .arg(&files.key)
            .stderr(Stdio::null())
            .status()
            .expect("openssl");
        assert!(made.success());
        files
    }

    /// A client's settings that trust this certificate and no other.
    pub(crate) fn trusted(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.certificate).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        Arc::new(config.with_root_certificates(roots).with_no_client_auth())
    }
}

/// A connection to a server, by HTTP or HTTPS.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    pub(crate) fn new(socket: TcpStream, https: Option<Arc<ClientConfig>>) -> Stream {
        let Some(config) = https else { return Stream::Plain(socket) };
        let name = IpAddr::from(socket.peer_addr().unwrap().ip()).into();
        Stream::secure(socket, config, name)
    }

    /// By HTTPS, to a server that has to show a certificate of this name.
    pub(crate) fn secure(
        socket: TcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Stream {
        Stream::Tls(Box::new(StreamOwned::new(
            ClientConnection::new(config, name).unwrap(),
            socket,
        )))
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}
