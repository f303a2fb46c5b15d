//! Repositories over HTTP: logins, redirects, and servers of all kinds.

use super::source::Source;
use super::{Bench, remote, size};
use crate::testing::{HttpServer, Rules};
use crate::{CommitId, GitError, Login, Remote, Wanted};

const PASSWORD: &str = "pass'w\\o$rd \"1 %s";

fn login(password: &str) -> Login {
    Login::Password { username: "robot".to_owned(), password: password.into() }
}

/// Rules of a server that wants the login.
fn guarded(source: &Source) -> Rules {
    Rules {
        root: source.folder.path().to_owned(),
        login: Some(("robot".to_owned(), PASSWORD.to_owned())),
        ..Rules::default()
    }
}

fn open(source: &Source) -> Rules {
    Rules { root: source.folder.path().to_owned(), ..Rules::default() }
}

fn shown(error: &GitError, remote: &Remote) -> String {
    error.to_string().replace(remote.url.as_str(), "URL")
}

async fn failures(remote: &Remote) -> [String; 2] {
    let bench = Bench::new();
    let head = bench.git.head(remote).await.unwrap_err();
    let fetch = bench.git.fetch(remote, &Wanted::Head).await.unwrap_err();
    for text in [format!("{head:?}{head}"), format!("{fetch:?}{fetch}")] {
        assert!(!text.contains(PASSWORD) && !text.contains("wrong-word"), "{text}");
    }
    [shown(&head, remote), shown(&fetch, remote)]
}

async fn assert_reads(bench: &Bench, remote: &Remote, id: &CommitId) {
    assert_eq!(bench.git.head(remote).await.unwrap(), *id);
    assert_eq!(bench.git.fetch(remote, &Wanted::Head).await.unwrap().id, *id);
    let read = bench.git.read(remote, id, "conf").await.unwrap();
    let texts: Vec<_> =
        read.iter().map(|file| (file.path.as_str(), file.bytes.as_slice())).collect();
    assert_eq!(texts, [("conf/a.yaml", &b"a: 1\n"[..]), ("conf/b.yaml", &b"b: 2\n"[..])]);
}

fn source() -> (Source, CommitId) {
    let text = "0123456789abcdef".repeat(1 << 16);
    Source::with(&[("conf/a.yaml", "a: 1\n"), ("conf/b.yaml", "b: 2\n"), ("large", &text)])
}

// Invariant: a login is sent to the host that it is for, when that host asks, and shown nowhere.

#[tokio::test]
async fn a_branch_is_read_with_a_password() {
    let (source, id) = source();
    let server = HttpServer::start(guarded(&source)).await;
    let mut remote = remote(&server.url("config.git"));
    remote.login = login(PASSWORD);
    let bench = Bench::new();
    assert_reads(&bench, &remote, &id).await;
    assert_eq!(server.seen.lock().unwrap().first(), Some(&None), "the host asked first");
    assert!(!bench.scratch().join("repo.git").join("large").exists());
    assert_no_secret_in_files(&bench.scratch());
}

fn assert_no_secret_in_files(folder: &std::path::Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_no_secret_in_files(&path);
        } else {
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            assert!(!text.contains("pass'w"), "{}", path.display());
        }
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused() {
    let (source, _) = source();
    let refusal = "you sent AUTH and wrong-word\u{1b}[31m".to_owned();
    let server = HttpServer::start(Rules { refusal, ..guarded(&source) }).await;
    let mut remote = remote(&server.url("config.git"));
    remote.login = login("wrong-word");
    let said = "the repository URL refuses the login: Authentication failed for 'URL/'";
    assert_eq!(failures(&remote).await, [said, said]);
}

#[tokio::test]
async fn a_host_that_asks_for_a_login_that_is_not_there_is_named() {
    let (source, _) = source();
    let server = HttpServer::start(guarded(&source)).await;
    let said = "the repository URL refuses the login: it wants a login, and none fits it";
    assert_eq!(failures(&remote(&server.url("config.git"))).await, [said, said]);
}

#[tokio::test]
async fn a_host_that_forbids_is_a_refusal() {
    let (source, _) = source();
    let server = HttpServer::start(Rules { status: Some(403), ..open(&source) }).await;
    let said = "the repository URL refuses the login: unable to access 'URL/': \
                The requested URL returned error: 403";
    assert_eq!(failures(&remote(&server.url("config.git"))).await, [said, said]);
}

#[tokio::test]
async fn a_redirect_within_http_is_followed_without_the_password() {
    let (source, id) = source();
    let other = HttpServer::start(open(&source)).await;
    let redirect = Some(format!("http://{}", other.address));
    let first = HttpServer::start(Rules { redirect, ..open(&source) }).await;
    let mut remote = remote(&first.url("config.git"));
    remote.login = login(PASSWORD);
    assert_reads(&Bench::new(), &remote, &id).await;
    let seen = other.seen.lock().unwrap();
    assert!(!seen.is_empty() && seen.iter().all(Option::is_none), "{seen:?}");
}

#[tokio::test]
async fn a_redirect_to_a_host_that_asks_does_not_get_the_password() {
    let (source, _) = source();
    let other = HttpServer::start(guarded(&source)).await;
    let redirect = Some(format!("http://{}", other.address));
    let first = HttpServer::start(Rules { redirect, ..open(&source) }).await;
    let mut remote = remote(&first.url("config.git"));
    remote.login = login(PASSWORD);
    let said = "the repository URL refuses the login: it wants a login, and none fits it";
    assert_eq!(failures(&remote).await, [said, said]);
    let seen = other.seen.lock().unwrap();
    assert!(!seen.is_empty() && seen.iter().all(Option::is_none), "{seen:?}");
}

#[tokio::test]
async fn a_redirect_behind_a_login_does_not_carry_the_password_on() {
    let (source, _) = source();
    for rules in [guarded(&source), open(&source)] {
        let other = HttpServer::start(rules).await;
        let redirect = Some(format!("http://{}", other.address));
        let first = HttpServer::start(Rules { redirect, ..guarded(&source) }).await;
        let mut remote = remote(&first.url("config.git"));
        remote.login = login(PASSWORD);
        // git takes over a new address only from the answer to its very first request.
        failures(&remote).await;
        let seen = other.seen.lock().unwrap();
        assert!(!seen.is_empty() && seen.iter().all(Option::is_none), "{seen:?}");
    }
}

#[tokio::test]
async fn a_redirect_to_another_protocol_is_not_followed() {
    let (source, _) = source();
    for protocol in ["file", "ftp"] {
        let redirect = Some(format!("{protocol}://{}", source.folder.path().display()));
        let server = HttpServer::start(Rules { redirect, ..open(&source) }).await;
        // How libcurl goes on differs between its versions.
        let said = format!(
            "the repository URL cannot be read: unable to access 'URL/': Protocol \"{protocol}\" "
        );
        for failure in failures(&remote(&server.url("config.git"))).await {
            assert_eq!(failure.get(..said.len()), Some(said.as_str()));
        }
    }
}

// Invariant: servers that are older, or less able, are read all the same.

#[tokio::test]
async fn a_server_without_filters_is_read() {
    let (source, id) = source();
    source.serve("uploadpack.allowFilter", "false");
    let server = HttpServer::start(open(&source)).await;
    assert_reads(&Bench::new(), &remote(&server.url("config.git")), &id).await;
}

#[tokio::test]
async fn a_server_with_filters_sends_no_large_file() {
    let (source, id) = source();
    let server = HttpServer::start(open(&source)).await;
    let bench = Bench::new();
    assert_reads(&bench, &remote(&server.url("config.git")), &id).await;
    let object = source.git(&["rev-parse", "HEAD:large"]);
    let kept = std::process::Command::new("git")
        .args(["cat-file", "-e", object.trim()])
        .env("GIT_DIR", bench.scratch().join("repo.git"))
        .output()
        .unwrap();
    assert!(!kept.status.success());
    assert!(size(&bench.scratch()) < 1 << 20);
}

#[tokio::test]
async fn a_server_that_does_not_hand_out_single_files_is_read() {
    let (source, id) = source();
    let server = HttpServer::start(Rules { is_old: true, ..open(&source) }).await;
    assert_reads(&Bench::new(), &remote(&server.url("config.git")), &id).await;
}

#[tokio::test]
async fn a_server_that_does_not_hand_out_commits_by_their_id_is_named() {
    let (source, first) = source();
    source.write("conf/a.yaml", b"a: 3\n");
    source.commit("The second commit");
    let server = HttpServer::start(Rules { is_old: true, ..open(&source) }).await;
    let remote = remote(&server.url("config.git"));
    let error = Bench::new().git.fetch(&remote, &Wanted::Commit(first.clone())).await.unwrap_err();
    let said = format!(
        "the repository URL does not have the commit {}, or does not hand out commits by their id",
        first.short()
    );
    assert_eq!(shown(&error, &remote), said);
}

// Invariant: what cannot be reached, or is no repository, is named.

#[tokio::test]
async fn what_is_not_there_is_named() {
    let (source, _) = source();
    let server = HttpServer::start(open(&source)).await;
    let said = "the repository URL cannot be read: repository 'URL/' not found";
    assert_eq!(failures(&remote(&server.url("gone.git"))).await, [said, said]);
    let server = HttpServer::start(Rules { status: Some(200), ..open(&source) }).await;
    let said =
        "the repository URL cannot be read: URL/info/refs not valid: is this a git repository?";
    let all = failures(&remote(&server.url("config.git"))).await;
    assert_eq!(all, [said, said]);
    let server = HttpServer::start(Rules { status: Some(500), ..open(&source) }).await;
    let said = "the repository URL cannot be read: unable to access 'URL/': \
                The requested URL returned error: 500";
    assert_eq!(failures(&remote(&server.url("config.git"))).await, [said, said]);
}

#[tokio::test]
async fn a_port_where_nothing_listens_is_named() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let remote = remote(&format!("http://127.0.0.1:{port}/config.git"));
    let [head, fetch] = failures(&remote).await;
    // How libcurl goes on differs between its versions.
    let said = format!(
        "the repository URL cannot be read: unable to access 'URL/': Failed to connect to \
         127.0.0.1 port {port}"
    );
    assert_eq!(head.get(..said.len()), Some(said.as_str()));
    assert_eq!(fetch.get(..said.len()), Some(said.as_str()));
}
