//! Errors of a poll, as an operator sees them, and jobs whose runner's row is gone.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use drover_model::gate::Gate;
use proxmox_client::Tls;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::gitea::{Dialect, Scope, Settings};

/// Answers by the beginning of the path: status, more headers, body.
type Book = &'static [(&'static str, u16, &'static str, &'static str)];

/// Starts a server that answers by its book, and 404 to all else; returns its URL.
async fn server(book: Book) -> String {
    server_by_polls(vec![book]).await
}

/// Starts a server with a book for each poll; the last one stays. A poll begins with the list of
/// runners.
async fn server_by_polls(books: Vec<Book>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let own = url.clone();
    tokio::spawn(async move {
        let mut polls: usize = 0;
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(stream.read_u8().await.unwrap());
            }
            let asked = String::from_utf8(asked).unwrap();
            let path = asked.split(' ').nth(1).unwrap();
            polls += usize::from(path.contains("/actions/runners?"));
            let book = books[polls.saturating_sub(1).min(books.len() - 1)];
            let found = book.iter().find(|(start, ..)| path.starts_with(start));
            let (_, status, more, body) = found.unwrap_or(&("", 404, "", "not found"));
            let more = more.replace("HERE", &own);
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status} So\r\nConnection: close\r\nContent-Length: {length}\r\n{more}\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    url
}

/// The error text of a Gitea or Forgejo that answers by this book.
async fn error_text(dialect: Dialect, book: Book) -> String {
    let url = server(book).await;
    poll_error(dialect, &url).await
}

fn git(dialect: Dialect, url: &str) -> Gitea {
    let http =
        Http::new(&url.parse().unwrap(), &Tls::System, &Route::Direct, Gate::default()).unwrap();
    let token = "a-token-of-git".to_owned().into();
    let settings = Settings { dialect, scope: Scope::Server, token };
    Gitea::new(http, &settings, None)
}

async fn poll_error(dialect: Dialect, url: &str) -> String {
    let looked = git(dialect, url).poll(&Known::new()).await;
    looked.unwrap_err().fault(&SourceId::new("git")).text.replace(url, "URL")
}

// Invariant: a source behind a proxy is called through that proxy, by its own name.

#[tokio::test]
async fn a_source_is_reached_by_its_proxy() {
    const BOOK: Book = &[("http://git.lan/api/v1/version", 200, "", r#"{"version":"1.26.0"}"#)];
    let proxy = server(BOOK).await.parse().unwrap();
    let url = "http://git.lan".parse().unwrap();
    let http = Http::new(&url, &Tls::System, &Route::Proxy(proxy), Gate::default()).unwrap();
    let answer: serde_json::Value = http.get("api/v1/version").await.unwrap();
    assert_eq!(answer["version"], "1.26.0");
}

const RUNNERS: &str = "/api/v1/admin/actions/runners";
const VERSION: &str = "/api/v1/version";

// Invariant: no answer, a refused login, a missing right, an answer from elsewhere and an answer
// without meaning are distinguished, each with what to do.

#[tokio::test]
async fn a_source_that_does_not_answer_is_reported_as_that() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error_text = poll_error(Dialect::Gitea, &url).await;
    assert!(
        error_text
            .starts_with("source `git` does not answer at `URL` (`url`), asked for GET /api/"),
        "{error_text}"
    );
}

#[tokio::test]
async fn a_login_that_is_refused_and_one_that_lacks_a_right_are_reported_apart() {
    const LACKS: &str = r#"{"message":"token does not have at least one of required scope(s)"}"#;
    let all = [
        error_text(Dialect::Gitea, &[(RUNNERS, 401, "", r#"{"message":"invalid token"}"#)]).await,
        error_text(Dialect::Gitea, &[(RUNNERS, 403, "", LACKS)]).await,
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[tokio::test]
async fn a_source_that_moved_is_reported_with_where_it_is() {
    const MOVED: &str = "Location: HERE/git/api/v1/admin/actions/runners?limit=50&page=1\r\n";
    const LOGIN: &str = "Location: https://who:secret@sso.lan/login?from=git\r\n";
    let all = [
        error_text(Dialect::Gitea, &[(RUNNERS, 301, MOVED, "")]).await,
        error_text(Dialect::Gitea, &[(RUNNERS, 302, LOGIN, "")]).await,
        error_text(Dialect::Gitea, &[(RUNNERS, 302, "", "")]).await,
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[tokio::test]
async fn answers_that_mean_nothing_are_reported_as_that() {
    let all = [
        error_text(Dialect::Gitea, &[(RUNNERS, 200, "", "<html>")]).await,
        error_text(Dialect::Gitea, &[(RUNNERS, 502, "", "<html>")]).await,
        error_text(Dialect::Gitea, &[(VERSION, 200, "", r#"{"version":"1.26.0"}"#)]).await,
        error_text(Dialect::Gitea, &[(RUNNERS, 200, "", "{}")]).await,
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[tokio::test]
async fn a_gitea_that_is_called_a_forgejo_is_reported_as_what_it_is_and_the_reverse() {
    const FORGEJO: Book =
        &[(RUNNERS, 200, "", "[]"), (VERSION, 200, "", r#"{"version":"15.0.1+gitea-1.22.0"}"#)];
    const GITEA: Book = &[
        (RUNNERS, 200, "", r#"{"runners":[],"total_count":0}"#),
        (VERSION, 200, "", r#"{"version":"1.26.0"}"#),
    ];
    let all =
        [error_text(Dialect::Gitea, FORGEJO).await, error_text(Dialect::Forgejo, GITEA).await];
    insta::assert_snapshot!(all.join("\n"));
}

// Invariant: a row was removed under its job where the server answers 404 for its number; where
// that is not answered, the runner may be connected. Gitea reports the job of a removed row without
// `runner_name` and with `runner_id` (`ToActionWorkflowJob` in services/convert/convert.go).

#[tokio::test]
async fn a_row_that_was_removed_under_its_job_is_reported_apart_from_one_that_cannot_be_read() {
    const ROW: &str = "/api/v1/admin/actions/runners/7";
    const JOB: &str = r#"{"jobs":[{"id":9,"status":"in_progress","runner_id":7}],"total_count":1}"#;
    const REMOVED: Book =
        &[(LIST, 200, "", NO_ROWS), (RUNNING, 200, "", JOB), (QUEUED, 200, "", NO_JOBS)];
    const UNREADABLE: Book = &[
        (ROW, 500, "", "a fault of its own"),
        (LIST, 200, "", NO_ROWS),
        (RUNNING, 200, "", JOB),
        (QUEUED, 200, "", NO_JOBS),
    ];
    let name = RunnerName::new("drover-7k2m9qxw-4f8z1c3px9t2vkab");
    let known: Known = [(name.clone(), [7].into())].into();
    for (book, removed) in [(REMOVED, true), (UNREADABLE, false)] {
        let url = server(book).await;
        let observation = git(Dialect::Gitea, &url).poll(&known).await.unwrap();
        assert_eq!(observation.removed.contains(&name), removed);
        let rows: Vec<(bool, u32)> =
            observation.rows.iter().map(|row| (row.online, row.jobs)).collect();
        assert_eq!(rows, [(!removed, 1)], "its job counts either way");
        assert!(observation.gone.is_empty(), "{:?}", observation.gone);
    }
}

// Invariant: the job of a runner whose row is gone is over where it waits again, and where a token
// that could read it gets a 404; a 404 to another token says nothing.

const LIST: &str = "/api/v1/admin/actions/runners?";
const RUNNING: &str = "/api/v1/admin/actions/jobs?status=in_progress";
const QUEUED: &str = "/api/v1/admin/actions/jobs?status=queued";
const JOB: &str = "/api/v1/repos/drover/a/actions/jobs/35";
const ROW: &str =
    r#"{"runners":[{"id":7,"name":"drover-7k2m9qxw-4f8z1c3px9t2vkab"}],"total_count":1}"#;
const NO_ROWS: &str = r#"{"runners":[],"total_count":0}"#;
const NO_JOBS: &str = r#"{"jobs":[],"total_count":0}"#;
const ON_IT: &str = r#"{"jobs":[{"id":35,"url":"http://git/api/v1/repos/drover/a/actions/jobs/35",
    "status":"in_progress","runner_id":7}],"total_count":1}"#;
const AGAIN: &str = r#"{"jobs":[{"id":35,"url":"http://git/api/v1/repos/drover/a/actions/jobs/35",
    "run_attempt":1,"status":"queued","steps":[]}],"total_count":1}"#;
const READ: &str = r#"{"id":35,"status":"in_progress","runner_id":7}"#;

/// How the job ended that the first poll saw on a runner, as the last poll says.
async fn job_over(books: Vec<Book>) -> Option<&'static str> {
    let name = RunnerName::new("drover-7k2m9qxw-4f8z1c3px9t2vkab");
    let known: Known = [(name.clone(), [7].into())].into();
    let polls = books.len();
    let git = git(Dialect::Gitea, &server_by_polls(books).await);
    let mut last = git.poll(&known).await.unwrap();
    assert!(last.gone.is_empty() && last.over.is_empty());
    for _ in 1..polls {
        last = git.poll(&known).await.unwrap();
        assert!(last.gone.contains(&name));
    }
    last.over.get(&name).copied()
}

#[tokio::test]
async fn a_job_that_waits_again_is_over_for_its_runner_by_the_list_alone() {
    const BEFORE: Book = &[
        (JOB, 403, "", ""),
        (LIST, 200, "", ROW),
        (RUNNING, 200, "", ON_IT),
        (QUEUED, 200, "", NO_JOBS),
    ];
    const AFTER: Book = &[
        (JOB, 403, "", ""),
        (LIST, 200, "", NO_ROWS),
        (RUNNING, 200, "", NO_JOBS),
        (QUEUED, 200, "", AGAIN),
    ];
    assert_eq!(job_over(vec![BEFORE, AFTER]).await, Some("done"));
}

#[tokio::test]
async fn a_job_that_is_deleted_is_over_to_a_token_that_could_read_it() {
    const BEFORE: Book = &[
        (JOB, 200, "", READ),
        (LIST, 200, "", ROW),
        (RUNNING, 200, "", ON_IT),
        (QUEUED, 200, "", NO_JOBS),
    ];
    const UNREAD: Book = &[
        (JOB, 404, "", ""),
        (LIST, 200, "", ROW),
        (RUNNING, 200, "", ON_IT),
        (QUEUED, 200, "", NO_JOBS),
    ];
    const DELETED: Book = &[
        (JOB, 404, "", ""),
        (LIST, 200, "", NO_ROWS),
        (RUNNING, 200, "", NO_JOBS),
        (QUEUED, 200, "", NO_JOBS),
    ];
    const DENIED: Book = &[
        (JOB, 403, "", ""),
        (LIST, 200, "", NO_ROWS),
        (RUNNING, 200, "", NO_JOBS),
        (QUEUED, 200, "", NO_JOBS),
    ];
    assert_eq!(job_over(vec![BEFORE, DELETED, DELETED]).await, Some("done"));
    assert_eq!(job_over(vec![BEFORE, DENIED, DENIED]).await, None);
    assert_eq!(job_over(vec![UNREAD, DELETED, DELETED]).await, None);
}
