//! Repositories over SSH: keys, host keys, and servers that do not let the newer protocol through.

use std::error::Error as _;

use super::source::Source;
use super::{Bench, remote, size};
use crate::testing::SshServer;
use crate::{CommitId, GitError, Login, Remote, Wanted};

/// Has the form of a key alone.
const NO_KEY: &str = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----";

fn to(server: &SshServer, path: &str) -> Remote {
    let mut remote = remote(&format!("ssh://127.0.0.1:{}{path}", server.port));
    remote.login = Login::SshKey { username: server.user.clone(), key: server.key.clone().into() };
    remote.known_hosts = Some(server.known_hosts.clone());
    remote
}

fn source() -> (Source, CommitId) {
    let text = "0123456789abcdef".repeat(1 << 16);
    Source::with(&[("conf/a.yaml", "a: 1\n"), ("conf/b.yaml", "b: 2\n"), ("large", &text)])
}

async fn assert_reads(bench: &Bench, remote: &Remote, id: &CommitId) {
    assert_eq!(bench.git.head(remote).await.unwrap(), *id);
    assert_eq!(bench.git.fetch(remote, &Wanted::Head).await.unwrap().id, *id);
    let read = bench.git.read(remote, id, "conf").await.unwrap();
    let texts: Vec<_> =
        read.iter().map(|file| (file.path.as_str(), file.bytes.as_slice())).collect();
    assert_eq!(texts, [("conf/a.yaml", &b"a: 1\n"[..]), ("conf/b.yaml", &b"b: 2\n"[..])]);
    assert!(!bench.scratch().join("ssh").exists());
}

async fn failures(remote: &Remote) -> [String; 2] {
    let bench = Bench::new();
    let head = bench.git.head(remote).await.unwrap_err();
    let fetch = bench.git.fetch(remote, &Wanted::Head).await.unwrap_err();
    assert!(!bench.scratch().join("ssh").exists());
    let shown = |error: &GitError| {
        assert!(!format!("{error:?}").contains("PRIVATE"));
        error.to_string().replace(remote.url.as_str(), "URL")
    };
    [shown(&head), shown(&fetch)]
}

// Invariant: a known host is read with the key.

#[tokio::test]
async fn a_branch_is_read_with_a_key() {
    if !SshServer::is_there() {
        return;
    }
    let (source, id) = source();
    let server = SshServer::start(true);
    let bench = Bench::new();
    let mut remote = to(&server, &source.url());
    assert_reads(&bench, &remote, &id).await;
    assert!(size(&bench.scratch()) < 1 << 20);
    // The user in the URL comes first, and Windows' line ends in a key are none of ssh's.
    remote.url =
        format!("ssh://{}@127.0.0.1:{}{}", server.user, server.port, source.url()).parse().unwrap();
    let key = server.key.replace('\n', "\r\n").trim().to_owned();
    remote.login = Login::SshKey { username: "nobody-else".to_owned(), key: key.into() };
    assert_reads(&bench, &remote, &id).await;
}

#[tokio::test]
async fn a_server_that_does_not_let_the_newer_protocol_through_is_read() {
    if !SshServer::is_there() {
        return;
    }
    let (source, id) = source();
    let server = SshServer::start(false);
    assert_reads(&Bench::new(), &to(&server, &source.url()), &id).await;
    source.serve("uploadpack.allowFilter", "false");
    assert_reads(&Bench::new(), &to(&server, &source.url()), &id).await;
}

// Invariant: nothing is trusted on first use, and each refusal is named.

#[tokio::test]
async fn an_unknown_host_key_is_refused() {
    if !SshServer::is_there() {
        return;
    }
    let (source, _) = source();
    let server = SshServer::start(true);
    let mut remote = to(&server, &source.url());
    let said = "the host key of the repository URL is not trusted: \
                no key of this host is among the known hosts";
    for known_hosts in [None, Some("other.example ssh-ed25519 AAAA".to_owned())] {
        remote.known_hosts = known_hosts;
        assert_eq!(failures(&remote).await, [said, said]);
    }
}

#[tokio::test]
async fn a_changed_host_key_is_refused() {
    if !SshServer::is_there() {
        return;
    }
    let (source, _) = source();
    let server = SshServer::start(true);
    let mut remote = to(&server, &source.url());
    remote.known_hosts = Some(server.wrong_known_hosts());
    for said in failures(&remote).await {
        let (words, fingerprint) = said.split_once(" (SHA256:").unwrap();
        assert_eq!(
            words,
            "the host key of the repository URL is not trusted: \
             the host presents another key than the known one"
        );
        assert_eq!(fingerprint.len(), 44, "{fingerprint}");
    }
}

#[tokio::test]
async fn a_key_that_the_server_does_not_know_is_refused() {
    if !SshServer::is_there() {
        return;
    }
    let (source, _) = source();
    let server = SshServer::start(true);
    let mut remote = to(&server, &source.url());
    let username = server.user.clone();
    remote.login = Login::SshKey { username: username.clone(), key: server.other_key().into() };
    let said = format!(
        "the repository URL refuses the login: {username}@127.0.0.1: Permission denied (publickey)."
    );
    assert_eq!(failures(&remote).await, [said.clone(), said]);
}

#[tokio::test]
async fn a_key_that_cannot_be_used_is_named() {
    if !SshServer::is_there() {
        return;
    }
    let server = SshServer::start(true);
    let mut remote = to(&server, "/config.git");
    for (key, said) in [
        (server.locked_key(), "the SSH key has a passphrase: use a key without one"),
        (
            server.known_hosts.clone(),
            "the SSH key is not a private key in PEM, as `ssh-keygen` writes it",
        ),
    ] {
        remote.login = Login::SshKey { username: server.user.clone(), key: key.into() };
        let error = Bench::new().git.head(&remote).await.unwrap_err();
        assert_eq!(error.source().unwrap().to_string(), said);
    }
    let key = "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----";
    remote.login = Login::SshKey { username: server.user.clone(), key: key.into() };
    let said = "the repository URL refuses the login: ssh cannot read the SSH key";
    assert_eq!(failures(&remote).await, [said, said]);
}

#[tokio::test]
async fn a_path_where_no_repository_is_is_named() {
    if !SshServer::is_there() {
        return;
    }
    let server = SshServer::start(true);
    let said = "the repository URL cannot be read: \
                '/nowhere/at/all' does not appear to be a git repository";
    assert_eq!(failures(&to(&server, "/nowhere/at/all")).await, [said, said]);
}

#[tokio::test]
async fn a_port_where_nothing_listens_is_named() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut remote = remote(&format!("ssh://git@127.0.0.1:{port}/config.git"));
    remote.login = Login::SshKey { username: "git".to_owned(), key: NO_KEY.into() };
    let said = format!(
        "the repository URL cannot be read: \
         ssh: connect to host 127.0.0.1 port {port}: Connection refused"
    );
    assert_eq!(failures(&remote).await, [said.clone(), said]);
}
