//! The first contact with a node: the certificate that it shows, and whether a setting trusts it.

use std::sync::Arc;
use std::time::Duration;

use proxmox_client::tls::{CertificateRefused, PresentedCertificate, client_config};
use proxmox_client::{Endpoint, Tls, refused_certificate};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The limit for one look at a node.
const CONTACT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a node's certificate could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ContactError {
    /// Nobody answers there, or not by TLS.
    #[error("`{endpoint}` does not answer: {why}")]
    Silent { endpoint: String, why: String },
    /// The setting does not trust the certificate.
    #[error("`{endpoint}`: {refused}")]
    Refused { endpoint: String, refused: CertificateRefused },
}

/// The certificate that a node shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presented {
    /// The SHA-256 fingerprint, upper case with colons.
    pub sha256: String,
    /// Subject, issuer and end of validity, for people.
    pub about: String,
}

/// Reads the certificate that a node shows, and does not ask who signed it. No login is sent.
///
/// # Errors
/// Where nobody answers.
pub async fn present(endpoint: &Endpoint) -> Result<Presented, ContactError> {
    look(endpoint, &Tls::Ignore).await
}

/// Whether a setting trusts the certificate that a node shows. No login is sent.
///
/// # Errors
/// Why it does not, or where nobody answers.
pub async fn trusts(endpoint: &Endpoint, tls: &Tls) -> Result<Presented, ContactError> {
    look(endpoint, tls).await
}

async fn look(endpoint: &Endpoint, tls: &Tls) -> Result<Presented, ContactError> {
    let silent = |why: String| ContactError::Silent { endpoint: endpoint.to_string(), why };
    let seen = tokio::time::timeout(CONTACT_TIMEOUT, handshake(endpoint, tls));
    match seen.await {
        Ok(seen) => seen,
        Err(_) => Err(silent(format!("not within {} s", CONTACT_TIMEOUT.as_secs()))),
    }
}

async fn handshake(endpoint: &Endpoint, tls: &Tls) -> Result<Presented, ContactError> {
    let silent = |why: String| ContactError::Silent { endpoint: endpoint.to_string(), why };
    let config = client_config(tls).map_err(|error| silent(error.chain()))?;
    let host = endpoint.host();
    let name = ServerName::try_from(host.to_owned()).map_err(|error| silent(error.to_string()))?;
    let stream = TcpStream::connect((host, endpoint.port()));
    let stream = stream.await.map_err(|error| silent(error.to_string()))?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let session = connected.map_err(|error| match refused_certificate(&error) {
        Some(refused) => ContactError::Refused { endpoint: endpoint.to_string(), refused },
        None => silent(error.to_string()),
    })?;
    let shown = session.get_ref().1.peer_certificates().and_then(|all| all.first());
    let shown = shown.ok_or_else(|| silent("it shows no certificate".to_owned()))?;
    let PresentedCertificate { sha256, about } = PresentedCertificate::of(shown);
    Ok(Presented { sha256, about: about.trim().to_owned() })
}
