//! The secret half of a cloud: what its connection is told apart by, and which certificates are
//! taken.

use proxmox_client::{Connection, Login, Tls};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};

/// A number that changes with anything in it, secrets included; tells nothing about them.
pub(super) fn fingerprint(connection: &Connection) -> u64 {
    let mut hash = Sha256::new();
    let mut part = |name: &str, bytes: &[u8]| {
        hash.update(name.as_bytes());
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    for endpoint in &connection.endpoints {
        part("endpoint", endpoint.base().as_bytes());
    }
    match &connection.login {
        Login::Token { id, secret } => {
            part("token", id.as_bytes());
            part("secret", secret.expose_secret().as_bytes());
        }
        Login::Password { username, secret } => {
            part("username", username.as_bytes());
            part("password", secret.expose_secret().as_bytes());
        }
    }
    match &connection.tls {
        Tls::System => part("system", &[]),
        Tls::Bundle(texts) => texts.iter().for_each(|text| part("bundle", text.as_bytes())),
        Tls::Pins(pins) => pins.iter().for_each(|pin| part("pin", pin)),
        Tls::Ignore => part("ignore", &[]),
    }
    part("connect", &connection.connect_timeout.as_millis().to_be_bytes());
    part("call", &connection.call_timeout.as_millis().to_be_bytes());
    let digest = hash.finalize();
    digest.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// Looks whether a PEM text holds certificates, and only such that can be read.
pub(super) fn certificates(pem: &str) -> Result<(), String> {
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("no valid PEM: {error:?}"))?;
        x509_parser::parse_x509_certificate(&certificate)
            .map_err(|error| format!("certificate {} can not be read: {error}", count + 1))?;
        count += 1;
    }
    if count == 0 {
        return Err("no certificate is in it".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use proxmox_client::Endpoint;

    fn spec() -> Connection {
        Connection {
            endpoints: vec![Endpoint::new("a", 8006)],
            login: Login::Token { id: "a@pve!a".to_owned(), secret: "one".into() },
            tls: Tls::System,
            connect_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(60),
            user_agent: String::new(),
        }
    }

    // Invariant: the fingerprint changes with each part of a connection and with nothing else.

    #[test]
    fn each_part_of_a_connection_changes_the_fingerprint() {
        let variants: [fn(&mut Connection); 9] = [
            |_| {},
            |spec| spec.endpoints.push(Endpoint::new("b", 8006)),
            |spec| spec.login = Login::Token { id: "a@pve!a".to_owned(), secret: "two".into() },
            |spec| {
                spec.login = Login::Password { username: "a@pve!a".into(), secret: "one".into() }
            },
            |spec| spec.tls = Tls::Ignore,
            |spec| spec.tls = Tls::Pins(vec![[1; 32]]),
            |spec| spec.tls = Tls::Bundle(vec!["x".to_owned()]),
            |spec| spec.connect_timeout = Duration::from_secs(11),
            |spec| spec.call_timeout = Duration::from_secs(61),
        ];
        let mut seen = std::collections::BTreeSet::new();
        for change in variants {
            let mut changed = spec();
            change(&mut changed);
            assert!(seen.insert(fingerprint(&changed)));
        }
        assert!(seen.contains(&fingerprint(&spec())));
    }

    // Invariant: a connection never prints its secrets.

    #[test]
    fn a_connection_does_not_print_its_secret() {
        let login = Login::Token { id: "a@pve!a".to_owned(), secret: "hunter2".into() };
        let shown = format!("{:?}", Connection { login, ..spec() });
        assert!(!shown.contains("hunter2"));
    }
}
