//! The certificate authority of a simulated cluster, and the nodes' server certificate.
//!
//! The HTTPS server needs real certificates. The transport in memory needs no key, so that fake
//! ones, made from a seed, are enough. They exist before the world, which shows them at
//! `/nodes/{node}/certificates/info`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use secrecy::SecretString;
use sha2::{Digest, Sha256};

/// The validity of all certificates: 2020-01-01 to 2036-01-01 in Unix seconds.
const VALIDITY_UNIX_SECS: (i64, i64) = (1_577_836_800, 2_082_758_400);

/// The common name of a cluster's own authority.
pub(crate) const CLUSTER_AUTHORITY: &str = "Proxmox Virtual Environment";

/// A certificate authority with its key.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Creates an authority with this common name.
    ///
    /// # Errors
    /// When the key or the certificate cannot be created.
    pub(crate) fn new(name: &str) -> Result<Self, rcgen::Error> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, name);
        authority.not_before = rcgen::date_time_ymd(2020, 1, 1);
        authority.not_after = rcgen::date_time_ymd(2036, 1, 1);
        Ok(Self { issuer: CertifiedIssuer::self_signed(authority, KeyPair::generate()?)? })
    }

    /// Signs a new server certificate for these node names, `localhost` and `127.0.0.1`.
    ///
    /// # Errors
    /// When a node's name is not a DNS name.
    pub(crate) fn issue(&self, nodes: &[String]) -> Result<Certificates, rcgen::Error> {
        let issuer = &self.issuer;
        let names = all_names(nodes);
        let mut leaf = CertificateParams::new(names.clone())?;
        leaf.distinguished_name.push(DnType::CommonName, common_name(nodes));
        leaf.not_before = rcgen::date_time_ymd(2020, 1, 1);
        leaf.not_after = rcgen::date_time_ymd(2036, 1, 1);
        let key = KeyPair::generate()?;
        let certificate = leaf.signed_by(&key, issuer)?;
        Ok(Certificates {
            ca_pem: issuer.pem(),
            leaf_pem: certificate.pem(),
            key_pem: Some(key.serialize_pem().into()),
            ca_fingerprint: fingerprint(issuer.der()),
            leaf_fingerprint: fingerprint(certificate.der()),
            names,
            not_before: VALIDITY_UNIX_SECS.0,
            not_after: VALIDITY_UNIX_SECS.1,
        })
    }
}

/// An authority's certificate, and the server certificate that it signed for the nodes.
#[derive(Debug, Clone)]
pub struct Certificates {
    /// The authority's certificate, PEM; it identifies the cluster.
    pub ca_pem: String,
    pub leaf_pem: String,
    /// The server's private key; none for fake certificates.
    pub key_pem: Option<SecretString>,
    /// SHA-256 of the authority's certificate, as pairs of upper-case digits joined by colons.
    pub ca_fingerprint: String,
    /// SHA-256 of the server's certificate in the same form.
    pub leaf_fingerprint: String,
    /// The names and addresses in the server's certificate.
    pub names: Vec<String>,
    /// Start of both certificates' validity, in Unix seconds.
    pub not_before: i64,
    /// End of both certificates' validity, in Unix seconds.
    pub not_after: i64,
}

impl Certificates {
    /// Creates an authority and a server certificate for these node names, `localhost` and
    /// `127.0.0.1`.
    ///
    /// # Errors
    /// When a node's name is not a DNS name.
    pub fn generate(nodes: &[String]) -> Result<Self, rcgen::Error> {
        Authority::new(CLUSTER_AUTHORITY)?.issue(nodes)
    }

    /// Fake certificates: PEM text and fingerprints derived from the seed, equal for equal seeds.
    pub fn fake(seed: u64, nodes: &[String]) -> Self {
        let der = |what: &str| Sha256::digest(format!("{what}/{seed}/{nodes:?}")).to_vec();
        let pem = |der: &[u8]| {
            let text = STANDARD.encode(der);
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        let (ca, leaf) = (der("authority"), der("server"));
        Self {
            ca_pem: pem(&ca),
            leaf_pem: pem(&leaf),
            key_pem: None,
            ca_fingerprint: fingerprint(&ca),
            leaf_fingerprint: fingerprint(&leaf),
            names: all_names(nodes),
            not_before: VALIDITY_UNIX_SECS.0,
            not_after: VALIDITY_UNIX_SECS.1,
        }
    }
}

impl From<&Certificates> for crate::world::Certificates {
    fn from(made: &Certificates) -> Self {
        Self {
            ca_pem: made.ca_pem.clone(),
            ca_fingerprint: made.ca_fingerprint.clone(),
            leaf_pem: made.leaf_pem.clone(),
            leaf_fingerprint: made.leaf_fingerprint.clone(),
            proxy: None,
        }
    }
}

fn all_names(nodes: &[String]) -> Vec<String> {
    let fixed = ["localhost", "127.0.0.1"].map(str::to_owned);
    fixed.into_iter().chain(nodes.iter().cloned()).collect()
}

fn common_name(nodes: &[String]) -> &str {
    nodes.first().map_or("localhost", String::as_str)
}

/// SHA-256 in Proxmox's notation.
fn fingerprint(der: &[u8]) -> String {
    let pairs: Vec<String> = Sha256::digest(der).iter().map(|byte| format!("{byte:02X}")).collect();
    pairs.join(":")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn fake_certificates_are_equal_for_equal_seeds_only() {
        let nodes = ["pve1".to_owned()];
        let (one, same) = (Certificates::fake(1, &nodes), Certificates::fake(1, &nodes));
        assert_eq!(one.ca_fingerprint, same.ca_fingerprint);
        assert_ne!(one.ca_fingerprint, Certificates::fake(2, &nodes).ca_fingerprint);
        assert_eq!(one.leaf_fingerprint.len(), 32 * 3 - 1);
    }

    #[test]
    fn real_certificates_name_nodes_and_loopback_and_match_their_fingerprint() {
        let made = Certificates::generate(&["pve1".to_owned()]).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(made.leaf_pem.as_bytes()).unwrap();
        let leaf = pem.parse_x509().unwrap();
        assert_eq!(fingerprint(&pem.contents), made.leaf_fingerprint);
        assert_eq!(leaf.validity().not_after.timestamp(), made.not_after);
        let names = leaf.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names.len(), 3);
    }
}
