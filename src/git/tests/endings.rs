//! Operations that end early: at their time limit, and when the caller gives up.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tokio::sync::mpsc;

use super::silent_server::SilentServer;
use super::source::Source;
use super::{Bench, remote};
use crate::testing::{HttpServer, Rules};
use crate::{Git, GitError, Limits, Login, Remote, Wanted};

/// Has the form of a key alone.
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----";

const PASSWORD: &str = "hidden-word-17";

fn over_ssh(server: &SilentServer) -> Remote {
    let mut remote = remote(&format!("ssh://127.0.0.1:{}/config.git", server.address.port()));
    remote.login = Login::SshKey { username: "git".to_owned(), key: KEY.into() };
    remote
}

// Invariant: no process and no key outlives its operation.

#[tokio::test]
async fn a_server_that_never_answers_ends_at_the_time_limit() {
    let mut server = SilentServer::start().await;
    let url = format!("http://{}/config.git", server.address);
    for remote in [remote(&url), over_ssh(&server)] {
        let mut time = Duration::from_millis(300);
        loop {
            let bench = Bench::limited(Limits { time, ..Limits::default() });
            let error = bench.git.fetch(&remote, &Wanted::Head).await.unwrap_err();
            let said =
                format!("the repository {} did not answer completely within {time:?}", remote.url);
            assert_eq!(error.to_string(), said);
            assert!(!bench.scratch().join("ssh").exists());
            // On a busy machine, git may not even come to connect.
            if server.opened.try_recv().is_ok() {
                break;
            }
            time *= 2;
        }
        // `git-remote-http` and `ssh` are the children of git that hold the connection.
        server.closes().await;
    }
}

#[tokio::test]
async fn a_caller_that_gives_up_ends_the_programs_and_removes_the_key() {
    let mut server = SilentServer::start().await;
    let remote = over_ssh(&server);
    let bench = Bench::new();
    let key = bench.scratch().join("ssh/key");
    tokio::select! {
        ended = bench.git.head(&remote) => panic!("{ended:?}"),
        opened = server.opened.recv() => opened.unwrap(),
    }
    server.closes().await;
    assert!(!key.exists());
    // The next operation finds nothing in its way.
    let mut operation = Box::pin(bench.git.head(&remote));
    tokio::select! {
        ended = &mut operation => panic!("{ended:?}"),
        opened = server.opened.recv() => opened.unwrap(),
    }
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&key).unwrap(), format!("{KEY}\n"));
    drop(operation);
    assert!(!key.exists());
    server.closes().await;
}

#[tokio::test]
async fn a_key_that_a_killed_service_left_is_removed_first() {
    let (source, id) = Source::with(&[("a.yaml", "")]);
    let bench = Bench::new();
    let folder = bench.scratch().join("ssh");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("key"), "left over").unwrap();
    assert_eq!(bench.git.head(&remote(&source.url())).await.unwrap(), id);
    assert!(!folder.exists());
}

// Invariant: other users of the machine do not see a password.

#[tokio::test]
async fn the_arguments_of_a_running_git_have_no_secret() {
    let (source, _) = Source::with(&[("a.yaml", "")]);
    let (to_held, mut held) = mpsc::unbounded_channel();
    let server = HttpServer::start(Rules {
        root: source.folder.path().to_owned(),
        login: Some(("robot".to_owned(), PASSWORD.to_owned())),
        holds: Some(to_held),
        ..Rules::default()
    })
    .await;
    let mut remote = remote(&server.url("config.git"));
    remote.login = Login::Password { username: "robot".to_owned(), password: PASSWORD.into() };
    let bench = Bench::new();
    let mut operation = Box::pin(bench.git.fetch(&remote, &Wanted::Head));
    tokio::select! {
        ended = &mut operation => panic!("{ended:?}"),
        opened = held.recv() => opened.unwrap(),
    }
    let seen = arguments_of_children(&bench.scratch());
    assert!(seen.iter().any(|line| line.contains("remote-http")), "{seen:?}");
    assert!(seen.iter().all(|line| !line.contains(PASSWORD)), "{seen:?}");
}

/// The arguments of all processes that work in the folder.
fn arguments_of_children(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap() {
        let process = process.unwrap().path();
        if std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == folder)
            && let Ok(arguments) = std::fs::read(process.join("cmdline"))
        {
            lines.push(String::from_utf8_lossy(&arguments).into_owned());
        }
    }
    lines
}

// Invariant: a program that is missing is named.

#[tokio::test]
async fn a_machine_without_git_is_named() {
    let bench = Bench::new();
    let programs = bench.folder.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    let mut git = Git::at(bench.scratch(), Limits::default());
    git.search = Some(programs.clone().into_os_string());
    let said = |error: GitError| error.to_string();
    let missing = |program| format!("the program `{program}` is not installed, or not in PATH");
    let remote = remote("/nowhere");
    assert_eq!(said(git.head(&remote).await.unwrap_err()), missing("sh"));
    std::os::unix::fs::symlink("/bin/sh", programs.join("sh")).unwrap();
    assert_eq!(said(git.head(&remote).await.unwrap_err()), missing("git"));
    assert_eq!(said(git.fetch(&remote, &Wanted::Head).await.unwrap_err()), missing("git"));
}

#[tokio::test]
async fn a_machine_without_ssh_is_named() {
    let mut server = SilentServer::start().await;
    let bench = Bench::new();
    let programs = bench.folder.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    let mut git = Git::at(bench.scratch(), Limits::default());
    for program in ["sh", "git"] {
        let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|folder| folder.join(program))
            .find(|path| path.exists())
            .unwrap();
        std::os::unix::fs::symlink(found, programs.join(program)).unwrap();
    }
    git.search = Some(programs.into_os_string());
    let error = git.head(&over_ssh(&server)).await.unwrap_err();
    assert_eq!(error.to_string(), "the program `ssh` is not installed, or not in PATH");
    assert!(server.opened.try_recv().is_err());
}

// Invariant: operations can be spawned, and take turns.

#[tokio::test]
async fn operations_at_the_same_time_take_turns() {
    fn spawnable<T: Send>(future: T) -> T {
        future
    }
    let (source, id) = Source::with(&[("a.yaml", "a: 1\n")]);
    let bench = Bench::new();
    let remote = remote(&source.url());
    let (one, two, three) = tokio::join!(
        spawnable(bench.git.fetch(&remote, &Wanted::Head)),
        spawnable(bench.git.read(&remote, &id, "a.yaml")),
        spawnable(bench.git.head(&remote)),
    );
    assert_eq!((one.unwrap().id, two.unwrap().len(), three.unwrap()), (id.clone(), 1, id));
}
