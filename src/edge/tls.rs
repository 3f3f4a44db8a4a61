//! TLS with a certificate that can be replaced at run time.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

#[derive(Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<ServerConfig>>,
}

/// Why a certificate and its key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, #[source] std::io::Error),
    #[error("{0} holds no certificate in PEM form")]
    NoCertificate(PathBuf),
    #[error("{0} holds no private key in PEM form")]
    NoKey(PathBuf),
    /// The certificate is malformed, or the key does not belong to it.
    #[error("the certificate in {0} and the key in {1} cannot be used: {2}")]
    Unusable(PathBuf, PathBuf, #[source] rustls::Error),
}

impl Tls {
    /// Reads both files.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file cannot be read or the pair cannot be used.
    pub fn load(certificate: PathBuf, key: PathBuf) -> Result<Tls, TlsError> {
        let current = RwLock::new(read(&certificate, &key)?);
        Ok(Tls { certificate, key, current })
    }

    /// Reads both files again and uses them for new connections.
    ///
    /// # Errors
    ///
    /// Those of [`Tls::load`]. The previous certificate stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let new = read(&self.certificate, &self.key)?;
        *self.current.write() = new;
        Ok(())
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.current.read()).into()
    }
}

fn read(certificate: &PathBuf, key: &PathBuf) -> Result<Arc<ServerConfig>, TlsError> {
    let text = fs::read(certificate).map_err(|e| TlsError::Read(certificate.clone(), e))?;
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain
        .ok()
        .filter(|chain| !chain.is_empty())
        .ok_or(TlsError::NoCertificate(certificate.clone()))?;
    let text = fs::read(key).map_err(|e| TlsError::Read(key.clone(), e))?;
    let private = PrivateKeyDer::from_pem_slice(&text).map_err(|_| TlsError::NoKey(key.clone()))?;
    let unusable = |e| TlsError::Unusable(certificate.clone(), key.clone(), e);
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
