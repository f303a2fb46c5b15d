//! How a node's certificate is checked: against the system's authorities, given ones, or pins, or
//! not at all.
//!
//! [`client_config`] builds the TLS configuration for a [`Tls`] setting. A refusal
//! ([`CertificateRefused`]) always shows the certificate that the node presented, with its
//! fingerprint, so that a person can compare it on the node and pin it. Servers of another kind are
//! checked by [`client_config_with`], with advice of their own.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest, Sha256};
use x509_parser::parse_x509_certificate;

use crate::connection::{Tls, fingerprint};
use crate::error::PveError;
use crate::refusal::bounded;

/// A certificate as messages show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentedCertificate {
    /// The SHA-256 fingerprint, upper case with colons.
    pub sha256: String,
    /// Subject, issuer and end of validity; empty when the certificate cannot be parsed.
    pub about: String,
}

impl PresentedCertificate {
    /// Describes a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let sha256 = fingerprint(&Sha256::digest(certificate.as_ref()));
        let about = parse_x509_certificate(certificate.as_ref()).map(|(_, parsed)| {
            let until = parsed.validity().not_after;
            bounded(&format!(
                " (subject `{}`, issuer `{}`, valid until {until})",
                parsed.subject(),
                parsed.issuer()
            ))
        });
        Self { sha256, about: about.map(|text| format!(" {text}")).unwrap_or_default() }
    }
}

/// What a refusal asks a person to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advice {
    /// Where the certificate has none of the pinned fingerprints.
    pub unpinned: &'static str,
    /// Where no trusted authority signed it, or for another name.
    pub untrusted: &'static str,
}

/// The advice for a node of Proxmox VE.
const FOR_A_NODE: Advice = Advice {
    unpinned: "compare it on the node with `pvenode cert info`, and pin the new one only if it is \
               the node's",
    untrusted: "give the cluster's authority (`/etc/pve/pve-root-ca.pem`) as CA bundle, or pin this \
                fingerprint after comparing it on the node with `pvenode cert info`",
};

/// Why a certificate was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RefusalReason {
    /// It has none of these fingerprints.
    Pins(Vec<String>),
    /// No trusted authority signed it.
    Authority(String),
}

/// A node's certificate that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRefused {
    certificate: PresentedCertificate,
    reason: RefusalReason,
    advice: Advice,
}

impl CertificateRefused {
    /// The certificate that the node presented.
    pub fn certificate(&self) -> &PresentedCertificate {
        &self.certificate
    }

    /// What was wrong with it, without advice.
    pub fn what(&self) -> String {
        let PresentedCertificate { sha256, about } = &self.certificate;
        match &self.reason {
            RefusalReason::Pins(pins) => format!(
                "the certificate is not a pinned one: saw SHA-256 `{sha256}`{about}, expected `{}`",
                pins.join("` or `"),
            ),
            RefusalReason::Authority(text) => {
                format!("the certificate is not trusted ({text}): saw SHA-256 `{sha256}`{about}")
            }
        }
    }

    /// What a person is asked to do.
    pub fn advice(&self) -> &'static str {
        match self.reason {
            RefusalReason::Pins(_) => self.advice.unpinned,
            RefusalReason::Authority(_) => self.advice.untrusted,
        }
    }
}

impl std::error::Error for CertificateRefused {}

impl fmt::Display for CertificateRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what(), self.advice())
    }
}

/// Builds the TLS configuration of a connection to a node.
pub fn client_config(tls: &Tls) -> Result<ClientConfig, PveError> {
    client_config_with(tls, FOR_A_NODE)
}

/// The same for a server of another kind, whose refusals say what to do there.
pub fn client_config_with(tls: &Tls, advice: Advice) -> Result<ClientConfig, PveError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let trust = match tls {
        Tls::System => Trust::Authority(authority(system_roots()?, &provider)?),
        Tls::Bundle(texts) => Trust::Authority(authority(bundle_roots(texts)?, &provider)?),
        Tls::Pins(pins) if pins.is_empty() => {
            return Err(PveError::setup("no fingerprint is pinned: give at least one"));
        }
        Tls::Pins(pins) => Trust::Pins(pins.clone()),
        Tls::Ignore => Trust::Nothing,
    };
    let verifier = Arc::new(Verifier { trust, advice, provider: provider.clone() });
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions.map_err(|error| setup("no TLS version is usable", error))?;
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

fn setup(what: &str, source: impl Into<crate::transport::BoxError>) -> PveError {
    PveError::Setup { what: what.to_owned(), source: Some(source.into()) }
}

fn authority(
    roots: RootCertStore,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, PveError> {
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| setup("the certificate authorities cannot be used", error))
}

fn system_roots() -> Result<RootCertStore, PveError> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(loaded.certs);
    if added == 0 {
        return Err(PveError::setup(
            "the system has no certificate authorities: install the package `ca-certificates`, or \
             give a CA bundle or a fingerprint",
        ));
    }
    Ok(roots)
}

fn bundle_roots(texts: &[String]) -> Result<RootCertStore, PveError> {
    let mut roots = RootCertStore::empty();
    for text in texts {
        for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
            let certificate =
                certificate.map_err(|error| setup("the CA bundle is not valid PEM", error))?;
            roots
                .add(certificate)
                .map_err(|error| setup("the CA bundle holds a bad certificate", error))?;
        }
    }
    if roots.is_empty() {
        return Err(PveError::setup(
            "the CA bundle holds no certificate: give PEM that begins with `-----BEGIN CERTIFICATE-----`",
        ));
    }
    Ok(roots)
}

#[derive(Debug)]
enum Trust {
    Authority(Arc<WebPkiServerVerifier>),
    Pins(Vec<[u8; 32]>),
    Nothing,
}

#[derive(Debug)]
struct Verifier {
    trust: Trust,
    advice: Advice,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn refuse(&self, end_entity: &CertificateDer<'_>, reason: RefusalReason) -> rustls::Error {
        let certificate = PresentedCertificate::of(end_entity);
        let refused = CertificateRefused { certificate, reason, advice: self.advice };
        rustls::Error::Other(OtherError(Arc::new(refused)))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match &self.trust {
            Trust::Nothing => Ok(ServerCertVerified::assertion()),
            Trust::Pins(pins) => {
                let digest = Sha256::digest(end_entity.as_ref());
                if pins.iter().any(|pin| pin.as_slice() == digest.as_slice()) {
                    return Ok(ServerCertVerified::assertion());
                }
                let pins = pins.iter().map(|pin| fingerprint(pin)).collect();
                Err(self.refuse(end_entity, RefusalReason::Pins(pins)))
            }
            Trust::Authority(inner) => inner
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
                .map_err(|error| {
                    self.refuse(end_entity, RefusalReason::Authority(bounded(&error.to_string())))
                }),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
