//! The first contact with a node: whether it is a Proxmox VE, the certificate that it shows, and whether
//! a setting trusts that.

use std::sync::Arc;
use std::time::Duration;

use proxmox_client::tls::{CertificateRefused, PresentedCertificate, client_config};
use proxmox_client::transport::{Method, Reply, Request, Transport as _};
use proxmox_client::wire::Wire;
use proxmox_client::{Connection, Endpoint, Login, Tls, refused_certificate};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The limit for one look at a node.
const CONTACT_TIMEOUT: Duration = Duration::from_secs(5);
/// What Proxmox VE answers without a login, and at once (book: proxmox, section 3).
const REALMS: &str = "/access/domains";
/// The kind of the realm that every Proxmox VE has, and no other product.
const OWN_REALM: &str = "pve";

/// Why a node's certificate could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ContactError {
    /// Nobody answers there, or not by TLS.
    #[error("`{endpoint}` does not answer: {why}")]
    Silent { endpoint: String, why: String },
    /// Somebody else answers there.
    #[error("`{endpoint}` does not answer as Proxmox VE does: {why}")]
    Stranger { endpoint: String, why: String },
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

/// Asks what Proxmox VE answers without a login, and does not ask who signed the certificate: nothing
/// that is sent is a secret.
///
/// # Errors
/// Where nobody answers, or something else than Proxmox VE.
pub async fn recognise(endpoint: &Endpoint) -> Result<(), ContactError> {
    let (shown, path) = (endpoint.to_string(), REALMS);
    let silent = |why: String| ContactError::Silent { endpoint: shown.clone(), why };
    let nobody = Login::Token { id: String::new(), secret: String::new().into() };
    let connection = Connection::new(vec![endpoint.clone()], nobody, Tls::Ignore);
    let wire = Wire::new(endpoint, &connection).map_err(|error| silent(error.chain()))?;
    let request = Request {
        method: Method::Get,
        path: path.to_owned(),
        params: Vec::new(),
        file: None,
        headers: Vec::new(),
        timeout: CONTACT_TIMEOUT,
    };
    let why = match tokio::time::timeout(CONTACT_TIMEOUT, wire.send(request)).await {
        Err(_) => return Err(silent(format!("not within {} s", CONTACT_TIMEOUT.as_secs()))),
        Ok(Err(error)) => causes::chain(&error),
        Ok(Ok(reply)) => match stranger(&reply) {
            None => return Ok(()),
            Some(why) => why,
        },
    };
    Err(ContactError::Stranger { endpoint: shown, why })
}

/// Why an answer to [`REALMS`] is not Proxmox VE's.
fn stranger(reply: &Reply) -> Option<String> {
    let Reply { status, reason, body, .. } = reply;
    if *status != 200 {
        return Some(format!("it answers {status} {reason} where the list of realms should be"));
    }
    let all: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let realms = all.as_ref().and_then(|all| all.get("data")?.as_array());
    let is_own =
        |realm: &serde_json::Value| realm.get("type").is_some_and(|kind| kind == OWN_REALM);
    match realms {
        Some(realms) if realms.iter().any(is_own) => None,
        Some(_) => Some(format!("its list of realms has none of the kind `{OWN_REALM}`")),
        None => Some("its answer is not the list of realms".to_owned()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: only what answers as a real Proxmox VE was seen to answer is taken for one.

    #[test]
    fn an_answer_is_proxmoxs_own_or_it_is_said_why_not() {
        let said = |status: u16, reason: &str, body: &str| {
            let (reason, body) = (reason.to_owned(), body.to_owned().into());
            stranger(&Reply { status, reason, content_type: None, body })
                .unwrap_or("Proxmox VE".into())
        };
        let recorded = r#"{"data":[{"realm":"pve","type":"pve","comment":"Proxmox VE authentication server"},
            {"realm":"pam","comment":"Linux PAM standard authentication","type":"pam"}]}"#;
        let backup = r#"{"data":[{"realm":"pam","type":"pam"},{"realm":"pbs","type":"pbs"}]}"#;
        let all = [
            said(200, "OK", recorded),
            said(200, "OK", backup),
            said(200, "OK", "<html></html>"),
            said(200, "OK", "[]"),
            said(404, "Not Found", ""),
        ];
        insta::assert_snapshot!(all.join("\n"), @r"
        Proxmox VE
        its list of realms has none of the kind `pve`
        its answer is not the list of realms
        its answer is not the list of realms
        it answers 404 Not Found where the list of realms should be
        ");
    }
}
