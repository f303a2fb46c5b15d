//! The certificate of an endpoint, and when it expires.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use proxmox_client::tls::{PresentedCertificate, client_config};
use proxmox_client::{Connection, Endpoint};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The limit for reading one certificate.
const CERTIFICATE_TIMEOUT: Duration = Duration::from_secs(10);

/// A certificate that an endpoint presented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The SHA-256 fingerprint, upper case with colons.
    pub sha256: String,
    /// The expiry date, Unix seconds; none where it cannot be read.
    pub until: Option<i64>,
}

/// Reads the certificates of endpoints.
pub trait CertificateReader: Sync {
    /// The certificate that an endpoint presents; none where it cannot be read: the calls to that
    /// endpoint then report the reason.
    fn read<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        connection: &'a Connection,
    ) -> BoxFuture<'a, Option<Certificate>>;
}

/// Reads certificates over the network.
#[derive(Debug, Clone, Copy, Default)]
pub struct NetworkCertificates;

impl CertificateReader for NetworkCertificates {
    fn read<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        connection: &'a Connection,
    ) -> BoxFuture<'a, Option<Certificate>> {
        async move { tokio::time::timeout(CERTIFICATE_TIMEOUT, look(endpoint, connection)).await.ok()? }.boxed()
    }
}

async fn look(endpoint: &Endpoint, connection: &Connection) -> Option<Certificate> {
    let config = client_config(&connection.tls).ok()?;
    let host = endpoint.host();
    let name = ServerName::try_from(host.to_owned()).ok()?;
    let stream = TcpStream::connect((host, endpoint.port())).await.ok()?;
    let tls = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    let (_, session) = tls.get_ref();
    session.peer_certificates().and_then(|all| all.first()).map(certificate_of)
}

/// The fingerprint and expiry date of a certificate.
pub(super) fn certificate_of(certificate: &CertificateDer<'_>) -> Certificate {
    let parsed = x509_parser::parse_x509_certificate(certificate.as_ref());
    let until = parsed.ok().map(|(_, parsed)| parsed.validity().not_after.timestamp());
    Certificate { sha256: PresentedCertificate::of(certificate).sha256, until }
}

/// Returns a fixed certificate, for clusters without a network.
#[derive(Debug, Default)]
pub struct FixedCertificates(pub Mutex<Option<Certificate>>);

impl CertificateReader for FixedCertificates {
    fn read<'a>(
        &'a self,
        _: &'a Endpoint,
        _: &'a Connection,
    ) -> BoxFuture<'a, Option<Certificate>> {
        let fixed = self.0.lock().clone();
        async move { fixed }.boxed()
    }
}
