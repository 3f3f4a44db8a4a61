//! TLS with a certificate that can be replaced at run time.

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
    #[error("cannot read {0} as PEM: {1}")]
    Read(PathBuf, #[source] pem::Error),
    /// The certificate is missing or malformed, or the key does not belong to it.
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
    /// Those of [`Tls::load`]. The previous certificate stays in use.
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
    let chain: Result<Vec<CertificateDer<'_>>, pem::Error> =
        CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain = chain.map_err(|error| TlsError::Read(certificate.clone(), error))?;
    let private = PrivateKeyDer::from_pem_file(key);
    let private = private.map_err(|error| TlsError::Read(key.clone(), error))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| TlsError::Unusable(certificate.clone(), key.clone(), error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
