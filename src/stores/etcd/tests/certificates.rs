//! An etcd that takes callers with a certificate alone.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

use super::*;

/// Writes an authority, and certificates of a server and a client that it signed.
fn certificates(folder: &Path) {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    };
    let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    write("ca.pem", &authority.pem());
    for name in ["server", "client"] {
        let mut leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        leaf.distinguished_name.push(rcgen::DnType::CommonName, name);
        // The gateway of etcd calls itself, and shows the certificate of the server then.
        leaf.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        write(&format!("{name}.pem"), &leaf.signed_by(&key, &authority).unwrap().pem());
        write(&format!("{name}.key"), &key.serialize_pem());
    }
}

// Invariant: an etcd that asks callers who they are takes those that show it, and no others.

#[test]
fn a_caller_shows_its_certificate_to_an_etcd_that_wants_one() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let Some(cluster) = Cluster::start_with(1, Some(folder.path().to_owned())) else { return };
    let mut log = open(&cluster, "herd");
    log.append(0, &records(1..=2), true).unwrap();
    assert_eq!(numbers(&open(&cluster, "herd")), [1, 2]);
    let shown = format!("{:?}", cluster.address("herd"));
    assert!(!shown.contains("PRIVATE") && shown.contains("Identity"), "{shown}");

    let text = cluster.text("herd");
    let (without, _) = text.split_once("&certFile").unwrap();
    let refused = EtcdLog::open(&without.parse().unwrap()).err().unwrap();
    assert!(matches!(refused, LogError::Io { .. }), "{refused:?}");

    // A key of another certificate is noticed before anything is called.
    let server = folder.path().join("server.key");
    let mixed = text.replace(
        &folder.path().join("client.key").display().to_string(),
        &server.display().to_string(),
    );
    let refused = causes::chain(&mixed.parse::<EtcdAddress>().unwrap_err());
    assert!(refused.contains("cannot be used together"), "{refused}");
}
