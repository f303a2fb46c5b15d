//! Repositories and servers that want more than to be read.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::source::Source;
use super::{Bench, file, read, remote, shown};
use crate::testing::{HttpServer, Rules};
use crate::{CommitId, GitError, Login, Wanted};

/// Pushes a commit of a tree in bytes, as no git would write it.
fn push_tree(source: &Source, tree: &[u8]) -> CommitId {
    let tree =
        source.git_with(&["hash-object", "-t", "tree", "-w", "--literally", "--stdin"], tree);
    let commit = source.git(&["commit-tree", tree.trim(), "-m", "Odd"]);
    source.git(&["update-ref", "HEAD", commit.trim()]);
    source.push("main");
    commit.trim().parse().unwrap()
}

fn entry(mode: &str, name: &[u8], object: &str) -> Vec<u8> {
    let mut bytes = format!("{mode} ").into_bytes();
    bytes.extend(name);
    bytes.push(0);
    let digits = object.trim().as_bytes().chunks(2);
    bytes.extend(
        digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()),
    );
    bytes
}

// Invariant: nothing of a repository is run.

#[tokio::test]
async fn no_program_that_a_repository_names_is_run() {
    let source = Source::empty();
    let mark = source.folder.path().join("mark");
    let touch = format!("touch {}", mark.display());
    source.write("a.yaml", b"a: 1\n");
    source.write(".gitattributes", b"*.yaml filter=evil diff=evil\n");
    source.write(
        ".gitmodules",
        format!("[submodule \"m\"]\n\tpath = m\n\turl = ext::{touch}\n\tupdate = !{touch}\n")
            .as_bytes(),
    );
    let first = source.commit("First");
    source.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{first},m")]);
    source.git(&["commit", "--quiet", "-m", "Module"]);
    source.push("main");
    for name in ["pre-receive", "post-update", "reference-transaction", "post-checkout"] {
        let hook = source.bare().join("hooks").join(name);
        std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
        std::fs::write(&hook, format!("#!/bin/sh\n{touch}\n")).unwrap();
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&hook, all).unwrap();
    }
    for key in ["uploadpack.packObjectsHook", "core.fsmonitor", "filter.evil.smudge"] {
        source.serve(key, &touch);
    }
    let bench = Bench::new();
    let remote = remote(&source.url());
    bench.git.head(&remote).await.unwrap();
    let id = bench.git.fetch(&remote, &Wanted::Head).await.unwrap().id;
    let read = bench.git.read(&remote, &id, "a.yaml").await.unwrap();
    assert_eq!(read, [file("a.yaml", "a: 1\n")]);
    assert!(!mark.exists());
    assert!(!bench.scratch().join("repo.git/hooks").exists());
    assert!(!bench.scratch().join("repo.git/modules").exists());
}

// Invariant: what a repository says has no effect where it is shown.

#[tokio::test]
async fn a_subject_with_escape_sequences_is_shown_without_effect() {
    let (source, _) = Source::with(&[("a.yaml", "")]);
    source.commit("\u{1b}]0;title\u{7}Sub\u{202e}ject\tend\n\nBody");
    let bench = Bench::new();
    let commit = bench.git.fetch(&remote(&source.url()), &Wanted::Head).await.unwrap();
    assert_eq!(commit.subject, "\u{fffd}]0;title\u{fffd}Sub\u{fffd}ject end");
}

#[tokio::test]
async fn names_that_are_no_plain_text_are_refused_or_left_out() {
    let (source, _) = Source::with(&[("conf/a.yaml", "a: 1\n")]);
    source.write("conf/line\nend.txt", b"");
    let id = source.commit("Odd text");
    assert_eq!(read(&source, &id, "conf").await.unwrap(), [file("conf/a.yaml", "a: 1\n")]);
    source.write("conf/\u{1b}[31m.yaml", b"");
    let id = source.commit("Odd name");
    let error = read(&source, &id, "conf").await.unwrap_err();
    let said = "`conf/\u{fffd}[31m.yaml` is a file whose name is not plain text";
    assert_eq!(error.to_string(), said);
    let error = read(&source, &id, "conf/b").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "the commit {} has no file `conf/b`; it has `conf/\u{fffd}[31m.yaml`, `conf/a.yaml`",
            id.short()
        )
    );
    let object = source.git(&["rev-parse", "HEAD:conf/a.yaml"]);
    let folder = source.git_with(
        &["hash-object", "-t", "tree", "-w", "--stdin"],
        &entry("100644", OsStr::from_bytes(b"\xff.yaml").as_bytes(), &object),
    );
    let id = push_tree(&source, &entry("40000", b"conf", &folder));
    let error = read(&source, &id, "conf").await.unwrap_err();
    let said = "`conf/\u{fffd}.yaml` is a file whose name is not plain text";
    assert_eq!(error.to_string(), said);
}

#[tokio::test]
async fn a_folder_with_names_that_lead_elsewhere_is_not_taken() {
    let (source, _) = Source::with(&[("a.yaml", "a: 1\n")]);
    let object = source.git(&["rev-parse", "HEAD:a.yaml"]);
    push_tree(&source, &entry("100644", b"..", &object));
    let bench = Bench::new();
    let error = bench.git.fetch(&remote(&source.url()), &Wanted::Head).await.unwrap_err();
    let GitError::Program { doing, status, stderr } = &error else { panic!("{error:?}") };
    assert_eq!((*doing, status.as_str()), ("fetch the branch", "exit status: 128"));
    assert!(stderr.contains("hasDotdot: contains '..'"), "{stderr}");
}

#[tokio::test]
async fn what_a_server_sends_back_of_a_secret_is_masked() {
    let (source, _) = Source::with(&[("a.yaml", "")]);
    let server = HttpServer::start(Rules {
        root: source.folder.path().to_owned(),
        login: Some(("robot".to_owned(), "right-word".to_owned())),
        refusal: "you sent AUTH, which is wrong-word \u{1b}[31m".to_owned(),
        ..Rules::default()
    })
    .await;
    let mut remote = remote(&server.url("config.git"));
    remote.login = Login::Password { username: "robot".to_owned(), password: "wrong-word".into() };
    let error = Bench::new().git.head(&remote).await.unwrap_err();
    assert!(!format!("{error:?}").contains("wrong-word"), "{error:?}");
    assert!(!error.to_string().contains('\u{1b}'));
}

// Invariant: a file of huge size is not read, however small it is packed.

#[tokio::test]
async fn a_file_that_is_small_only_while_it_is_packed_is_refused() {
    let source = Source::empty();
    source.write("bomb.yaml", &vec![b'a'; 32 << 20]);
    let id = source.commit("Bomb");
    let error = read(&source, &id, "bomb.yaml").await.unwrap_err();
    assert_eq!(shown(&error, &source), "the content of `bomb.yaml` is larger than 4194304 bytes");
}
