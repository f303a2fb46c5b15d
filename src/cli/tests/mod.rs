//! The command line against a real service socket with a scripted herd.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod audit;
mod breakers;
mod ending;
mod events;
mod forms;
mod hold;
mod ids;
mod images;
mod lease;
mod lease_scripts;
mod leases;
mod nodes;
mod notify;
mod plans;
mod prints;
mod resync;
mod scripts;
mod secrets;
mod setup;
mod tree;
mod unanswered;
mod why;

use std::path::Path;

use super::*;
use drover_model::canary::{FailingVersion, Version};
use drover_model::id::AgentId;
use drover_model::status::CanaryStatus;
use drover_server::testing::Served;

fn global(socket: &Path) -> Global {
    Global { socket: Some(socket.to_owned()), ..Global::default() }
}

/// A template that goes on with an old version.
fn a_canary() -> CanaryStatus {
    let version = |image: &str| Version { image: image.into(), spec: "1a2b3c4d5e6f7a8b".into() };
    let [old, bad, new] = ["4f8z1c3px9t2vkab", "5f8z1c3px9t2vkab", "6f8z1c3px9t2vkab"].map(version);
    let cause = "no address after 60 s".to_owned();
    CanaryStatus {
        proven: Some(old),
        trial: Some((AgentId::new("a2"), new)),
        given_up: vec![FailingVersion { version: bad, failures: 3, cause }],
    }
}

// Invariant: a service that is not there, or is something else, is named, with what to do.

#[tokio::test]
async fn no_service_says_how_to_start_one() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("none.sock");
    let fault = async || {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut term = Term::new(&mut out, &mut err);
        let fault =
            remote::run(&global(&socket), Command::Status(ViewOptions::default()), &mut term)
                .await
                .unwrap_err();
        assert_eq!(fault.exit_code(), 69);
        chain(&fault).replace(&socket.display().to_string(), "SOCKET")
    };
    insta::assert_snapshot!(
        fault().await,
        @"no drover is listening on `SOCKET`: is it running? start it with `drover run --config FILE`, or name its socket with --socket or DROVER_SOCKET; for one on another machine give --url and --token-file (DROVER_URL, DROVER_TOKEN_FILE)"
    );
    // A socket that nobody listens on any more is reported the same way.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(fault().await.starts_with("no drover is listening"));
}

// Invariant: the socket is the one named, else that of the configuration named, else the usual one.

#[test]
fn the_socket_named_comes_before_the_configurations_and_that_before_the_usual() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("drover.yaml");
    let text = "cloudConfigurations:\n  a: {name: A, credentialsId: t}\n\
                credentials:\n  t: {kind: proxmoxToken, tokenId: a@pve!a, secret: 5f0c8d36-8b0e}\n\
                service: {socket: /run/other.sock}\n";
    std::fs::write(&file, text).unwrap();
    let place = |socket: Option<&str>, config: Option<&Path>| {
        let socket = socket.map(Into::into);
        let global = Global { socket, config: config.map(Into::into), ..Global::default() };
        Client::new(&global).map(|client| client.place().to_owned())
    };
    assert_eq!(place(Some("/run/named.sock"), Some(&file)).ok().unwrap(), "/run/named.sock");
    assert_eq!(place(None, Some(&file)).ok().unwrap(), "/run/other.sock");
    assert_eq!(place(None, None).ok().unwrap(), DEFAULT_SOCKET);
    std::fs::write(&file, text.replace("socket:", "sockets:")).unwrap();
    assert_eq!(place(Some("/run/named.sock"), Some(&file)).ok().unwrap(), "/run/named.sock");
    let fault = place(None, Some(&file)).unwrap_err();
    assert_eq!(fault.exit_code(), 2);
    let text = fault.to_string();
    assert!(text.contains("name the socket with `--socket PATH` or DROVER_SOCKET"), "{text}");
    assert!(text.contains("unknown key `sockets`"), "{text}");
    assert!(!text.contains("5f0c8d36"), "{text}");
}

#[tokio::test]
async fn a_remote_service_takes_a_token_from_a_file() {
    let served = Served::default();
    let token = served.directory.path().join("token");
    let status = async |text: &str| {
        std::fs::write(&token, text).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut term = Term::new(&mut out, &mut err);
        let global = Global {
            url: Some(served.base.clone()),
            token_file: Some(token.clone()),
            ..Global::default()
        };
        let result = remote::run(&global, Command::Reload, &mut term).await;
        result.map_err(|fault| chain(&fault).replace(&token.display().to_string(), "TOKEN"))
    };
    insta::assert_snapshot!(status("admin-token\n").await.unwrap_err(), @"the configuration was refused, the old one stays in force: drover.yaml: unknown key");
    insta::assert_snapshot!(status("viewer-token\n").await.unwrap_err(), @"the caller may not do this: `token:viewer` has the role viewer, and this needs admin; use a token of that role");
    insta::assert_snapshot!(status("wrong\n").await.unwrap_err(), @"the caller is not known: no token of the configuration is the one given");
    insta::assert_snapshot!(status("two tokens\n").await.unwrap_err(), @"`TOKEN` must hold one token and nothing else");
    served.stop().await;
}

#[test]
fn the_address_of_a_service_wants_a_token_and_no_path_of_the_api() {
    let fault = |words: &[&str]| {
        let cli = Cli::try_parse_from(["drover"].iter().chain(words)).unwrap();
        let fault = Client::new(&cli.global).err().unwrap();
        assert_eq!(fault.exit_code(), 2);
        fault.to_string()
    };
    insta::assert_snapshot!(
        [
            fault(&["--url", "http://x", "status"]),
            fault(&["--url", "https://x:8080/v1/", "--token-file", "/none", "status"]),
        ]
        .join("\n"),
        @r"
    a service elsewhere (--url or DROVER_URL) wants a token: name the file that holds it with --token-file or DROVER_TOKEN_FILE
    give the address without /v1, which every call has of its own: `https://x:8080`
    "
    );
}

#[tokio::test]
async fn a_server_that_speaks_plain_http_is_named_with_the_address_to_try() {
    let served = Served::default();
    let token = served.directory.path().join("token");
    std::fs::write(&token, "admin-token").unwrap();
    let url = served.base.replace("http://", "https://");
    let global = Global { url: Some(url.clone()), token_file: Some(token), ..Global::default() };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term::new(&mut out, &mut err);
    let fault = remote::run(&global, Command::Reload, &mut term).await.unwrap_err();
    let host = url.trim_start_matches("https://");
    assert_eq!(fault.exit_code(), 69);
    insta::assert_snapshot!(
        chain(&fault).replace(host, "HOST"),
        @"the server on `https://HOST` speaks plain HTTP: try `http://HOST`"
    );
    served.stop().await;
}

// Invariant: what nobody can understand is wrong usage, what the service refuses has failed.

#[tokio::test]
async fn what_was_typed_wrong_is_reported_by_the_exit_code() {
    let served = Served::default();
    let code = async |words: &[&str]| {
        let line = ["drover"].iter().chain(words);
        let cli = Cli::try_parse_from(line).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut term = Term::new(&mut out, &mut err);
        let fault = remote::run(&global(&served.socket), cli.command, &mut term).await;
        fault.unwrap_err().exit_code()
    };
    assert_eq!(code(&["lease", "--label-expression", "linux &&", "--", "true"]).await, 2);
    assert_eq!(code(&["lease", "--labels", "a b", "--", "true"]).await, 2);
    assert_eq!(code(&["breakers", "reset", ""]).await, 2);
    assert_eq!(code(&["breakers", "reset", " "]).await, 2);
    assert_eq!(code(&["release", ""]).await, 2);
    assert_eq!(code(&["lease", "release", "x", " "]).await, 2);
    assert_eq!(code(&["lease", "renew", ""]).await, 2);
    assert_eq!(code(&["lease", "--template", "nope", "--", "true"]).await, 1);
    assert_eq!(code(&["provision", "nope"]).await, 1);
    assert_eq!(code(&["retire", "nope"]).await, 1);
    assert_eq!(code(&["breakers", "reset", "nope"]).await, 1);
    assert_eq!(code(&["reload"]).await, 2, "the file has faults");
    served.stop().await;
}

#[tokio::test]
async fn another_server_is_not_taken_for_drover() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let other = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        let _read = stream.read(&mut request).await.unwrap();
        let answer = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\nno";
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "t").unwrap();
    let global = Global { url: Some(base.clone()), token_file: Some(token), ..Global::default() };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term::new(&mut out, &mut err);
    let fault =
        remote::run(&global, Command::Status(ViewOptions::default()), &mut term).await.unwrap_err();
    insta::assert_snapshot!(
        chain(&fault).replace(&base, "URL"),
        @"`URL` answered 502, and not as drover does: is something else there?"
    );
    other.await.unwrap();
}
