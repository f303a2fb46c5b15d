//! The certificate by which a caller shows etcd who it is, where etcd wants one.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem};

/// A certificate with those that signed it, and its key.
#[derive(Clone)]
pub(super) struct Identity(Arc<CertifiedKey>);

/// Why texts are no certificate with its key.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("`certFile` has no certificate in PEM")]
    NoCertificate,
    #[error("a certificate of `certFile` cannot be read")]
    Certificate(#[source] pem::Error),
    #[error("`keyFile` has no key in PEM without a passphrase")]
    Key(#[source] pem::Error),
    #[error("`certFile` and `keyFile` cannot be used together")]
    Pair(#[source] rustls::Error),
}

impl Identity {
    /// Reads both from PEM.
    ///
    /// # Errors
    /// [`IdentityError`]; also where they are not of one pair.
    pub(super) fn read(certificates: &str, key: &str) -> Result<Self, IdentityError> {
        let certificates: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(certificates.as_bytes()).collect();
        let certificates = certificates.map_err(IdentityError::Certificate)?;
        if certificates.is_empty() {
            return Err(IdentityError::NoCertificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(IdentityError::Key)?;
        let key = any_supported_type(&key).map_err(IdentityError::Pair)?;
        let certified = CertifiedKey::new(certificates, key);
        certified.keys_match().map_err(IdentityError::Pair)?;
        Ok(Self(Arc::new(certified)))
    }

    /// Shows it on connections of this configuration.
    pub(super) fn show_on(&self, config: &mut ClientConfig) {
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(Arc::clone(&self.0)));
    }
}

/// Without the key.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}
