//! What an endpoint proves itself with, and until when.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use proxmox_client::tls::{PresentedCertificate, client_config};
use proxmox_client::{Connection, Endpoint};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long a look at a certificate may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A certificate that was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its SHA-256, upper case with colons.
    pub sha256: String,
    /// When it ends, Unix seconds; none when it can not be read.
    pub until: Option<i64>,
}

/// Looks at the certificates of endpoints.
pub trait Certificates: Sync {
    /// The certificate an endpoint shows; none when it could not be seen, which the calls to that
    /// endpoint tell the reason of.
    fn look<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        connection: &'a Connection,
    ) -> BoxFuture<'a, Option<Shown>>;
}

/// Looks over the network.
#[derive(Debug, Clone, Copy, Default)]
pub struct WireCertificates;

impl Certificates for WireCertificates {
    fn look<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        connection: &'a Connection,
    ) -> BoxFuture<'a, Option<Shown>> {
        async move { tokio::time::timeout(LIMIT, look(endpoint, connection)).await.ok()? }.boxed()
    }
}

async fn look(endpoint: &Endpoint, connection: &Connection) -> Option<Shown> {
    let config = client_config(&connection.tls).ok()?;
    let host = endpoint.host();
    let name = ServerName::try_from(host.to_owned()).ok()?;
    let stream = TcpStream::connect((host, endpoint.port())).await.ok()?;
    let tls = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    let (_, session) = tls.get_ref();
    session.peer_certificates().and_then(|all| all.first()).map(shown)
}

/// What a certificate says.
pub(super) fn shown(certificate: &CertificateDer<'_>) -> Shown {
    let parsed = x509_parser::parse_x509_certificate(certificate.as_ref());
    let until = parsed.ok().map(|(_, parsed)| parsed.validity().not_after.timestamp());
    Shown { sha256: PresentedCertificate::of(certificate).sha256, until }
}

/// Answers that were put down before, for clusters without a network.
#[derive(Debug, Default)]
pub struct ToldCertificates(pub Mutex<Option<Shown>>);

impl Certificates for ToldCertificates {
    fn look<'a>(&'a self, _: &'a Endpoint, _: &'a Connection) -> BoxFuture<'a, Option<Shown>> {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        async move { told }.boxed()
    }
}
