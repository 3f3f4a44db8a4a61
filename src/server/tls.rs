//! TLS with a certificate that can be replaced at run time.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

use crate::config::TlsFiles;

#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    current: RwLock<Arc<ServerConfig>>,
}

/// Why a certificate and its key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, io::Error),
    /// `item` is a certificate or a private key.
    #[error("{path} has no {item} in PEM format; name a file that has one")]
    NotPem { path: PathBuf, item: &'static str },
    #[error("the key in {key} does not belong to the certificate in {certificate}")]
    OtherKey { certificate: PathBuf, key: PathBuf },
    #[error("the certificate in {0} and the key in {1} cannot be used: {2}")]
    Unusable(PathBuf, PathBuf, #[source] rustls::Error),
}

impl Tls {
    /// Reads both files.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file cannot be read or the pair cannot be used.
    pub fn load(files: &TlsFiles) -> Result<Tls, TlsError> {
        Ok(Tls { files: files.clone(), current: RwLock::new(read(files)?) })
    }

    /// Reads both files again and uses them for new connections.
    ///
    /// # Errors
    ///
    /// The same as [`Tls::load`]. The previous certificate stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let new = read(&self.files)?;
        *self.current.write() = new;
        Ok(())
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.current.read()).into()
    }
}

fn read(TlsFiles { certificate, key }: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let failed = |path: &PathBuf, item, error| match error {
        pem::Error::Io(error) => TlsError::Read(path.clone(), error),
        _ => TlsError::NotPem { path: path.clone(), item },
    };
    let chain: Result<Vec<CertificateDer<'_>>, pem::Error> =
        CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain = chain.map_err(|error| failed(certificate, "certificate", error))?;
    if chain.is_empty() {
        return Err(failed(certificate, "certificate", pem::Error::NoItemsFound));
    }
    let private = PrivateKeyDer::from_pem_file(key);
    let private = private.map_err(|error| failed(key, "private key", error))?;
    let builder = ServerConfig::builder().with_no_client_auth();
    let mut config = builder.with_single_cert(chain, private).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::OtherKey { certificate: certificate.clone(), key: key.clone() }
        }
        error => TlsError::Unusable(certificate.clone(), key.clone(), error),
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
