//! Repositories over HTTPS: whose certificates are trusted.

use std::sync::Arc;

use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;

use super::source::Source;
use super::{Bench, file, remote};
use crate::testing::{HttpServer, Rules};
use crate::{GitError, Wanted};

/// A server with a certificate for `name`, and that certificate in PEM.
async fn start(source: &Source, name: &str, redirect: Option<String>) -> (HttpServer, String) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let rules = Rules { root: source.folder.path().to_owned(), redirect, ..Rules::default() };
    let server = HttpServer::start_over(rules, Some(TlsAcceptor::from(Arc::new(config)))).await;
    (server, made.cert.pem())
}

// Invariant: a server is read when its certificate is trusted, and refused by name otherwise.

#[tokio::test]
async fn a_branch_is_read_from_a_server_whose_certificate_the_ca_file_has() {
    let (source, id) = Source::with(&[("a.yaml", "a: 1\n")]);
    let (server, pem) = start(&source, "127.0.0.1", None).await;
    let bench = Bench::new();
    let ca_file = bench.folder.path().join("ca file.pem");
    std::fs::write(&ca_file, pem).unwrap();
    let mut remote = remote(&format!("https://{}/config.git", server.address));
    remote.ca_file = Some(ca_file);
    assert_eq!(bench.git.head(&remote).await.unwrap(), id);
    assert_eq!(bench.git.fetch(&remote, &Wanted::Head).await.unwrap().id, id);
    assert_eq!(bench.git.read(&remote, &id, "a.yaml").await.unwrap(), [file("a.yaml", "a: 1\n")]);
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_or_of_another_host_is_named() {
    let (source, _) = Source::with(&[("a.yaml", "a: 1\n")]);
    let (server, pem) = start(&source, "other.example", None).await;
    let bench = Bench::new();
    let ca_file = bench.folder.path().join("ca.pem");
    let mut remote = remote(&format!("https://{}/config.git", server.address));
    let error = bench.git.head(&remote).await.unwrap_err();
    assert!(matches!(error, GitError::Certificate { .. }), "{error:?}");
    std::fs::write(&ca_file, pem).unwrap();
    remote.ca_file = Some(ca_file.clone());
    let error = bench.git.head(&remote).await.unwrap_err();
    assert!(matches!(error, GitError::Certificate { .. }), "{error:?}");
    std::fs::write(&ca_file, "no certificate").unwrap();
    let error = bench.git.head(&remote).await.unwrap_err();
    assert!(matches!(error, GitError::Certificate { .. }), "{error:?}");
    let begin = format!("the certificate of the repository {} is not trusted: ", remote.url);
    assert!(error.to_string().starts_with(&begin), "{error}");
}

#[tokio::test]
async fn a_server_that_sends_from_tls_to_clear_text_is_not_followed() {
    let (source, _) = Source::with(&[("a.yaml", "a: 1\n")]);
    let rules = Rules { root: source.folder.path().to_owned(), ..Rules::default() };
    let clear = HttpServer::start(rules).await;
    let redirect = Some(format!("http://{}", clear.address));
    let (server, pem) = start(&source, "127.0.0.1", redirect).await;
    let bench = Bench::new();
    let ca_file = bench.folder.path().join("ca.pem");
    std::fs::write(&ca_file, pem).unwrap();
    let mut remote = remote(&format!("https://{}/config.git", server.address));
    remote.ca_file = Some(ca_file);
    let error = bench.git.head(&remote).await.unwrap_err();
    assert!(matches!(error, GitError::Repository { .. }), "{error:?}");
    assert!(clear.seen.lock().unwrap().is_empty());
}
