//! What is missing in a repository, or is something else than what was asked for.

use super::source::Source;
use super::{Bench, read, remote, shown};
use crate::{CommitId, GitError, Login, Wanted};

// Invariant: each thing that is missing is named, with what is there.

#[tokio::test]
async fn a_branch_that_is_missing_is_named_with_those_that_are_there() {
    let (source, _) = Source::with(&[("a.yaml", "")]);
    source.push("feature/x");
    let bench = Bench::new();
    let mut remote = remote(&source.url());
    remote.branch = "mian".to_owned();
    let said = "the repository URL has no branch `mian`; it has `feature/x`, `main`";
    let error = bench.git.head(&remote).await.unwrap_err();
    assert_eq!(shown(&error, &source), said);
    let error = bench.git.fetch(&remote, &Wanted::Head).await.unwrap_err();
    assert_eq!(shown(&error, &source), said);
    assert_eq!(error.help(), "push the branch, or set one that is there");
}

#[tokio::test]
async fn a_repository_without_commits_has_no_branch() {
    let source = Source::empty();
    let said = "the repository URL has no branch `main`; it has no branches at all";
    let error = Bench::new().git.head(&remote(&source.url())).await.unwrap_err();
    assert_eq!(shown(&error, &source), said);
    let error = Bench::new().git.fetch(&remote(&source.url()), &Wanted::Head).await.unwrap_err();
    assert_eq!(shown(&error, &source), said);
}

#[tokio::test]
async fn a_file_that_is_missing_is_named_with_those_that_are_near() {
    let (source, id) = Source::with(&[
        ("conf/drover.yml", ""),
        ("conf/other.txt", ""),
        ("old/drover.yaml", ""),
        ("x.yaml", ""),
    ]);
    let said = |error: GitError| shown(&error, &source).replace(id.short(), "ID");
    assert_eq!(
        said(read(&source, &id, "conf/drover.yaml").await.unwrap_err()),
        "the commit ID has no file `conf/drover.yaml`; it has `old/drover.yaml`, `conf/drover.yml`"
    );
    assert_eq!(
        said(read(&source, &id, "none/at/all").await.unwrap_err()),
        "the commit ID has no file `none/at/all`; no file has a similar path"
    );
}

#[tokio::test]
async fn a_folder_without_yaml_is_refused() {
    let (source, id) = Source::with(&[("conf/note.txt", "")]);
    let error = read(&source, &id, "conf").await.unwrap_err();
    let said = "the folder `conf` of the commit ID has no file that ends in .yaml or .yml";
    assert_eq!(error.to_string().replace(id.short(), "ID"), said);
}

#[tokio::test]
async fn links_and_submodules_are_refused_by_name() {
    let (source, first) = Source::with(&[("conf/a.yaml", "")]);
    source.link("link.yaml", "/etc/passwd");
    source.link("linked", "conf");
    source.link("conf/b.yaml", "a.yaml");
    source.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{first},module")]);
    source.git(&["add", "link.yaml", "linked", "conf"]);
    source.git(&["commit", "--quiet", "-m", "Links"]);
    source.push("main");
    let id: CommitId = source.git(&["rev-parse", "HEAD"]).trim().parse().unwrap();
    for (path, said) in [
        ("link.yaml", "`link.yaml` is a symbolic link, not a file"),
        ("linked/a.yaml", "`linked` is a symbolic link, not a file"),
        ("conf", "`conf/b.yaml` is a symbolic link, not a file"),
        ("module", "`module` is a submodule, not a file"),
        ("module/a.yaml", "`module` is a submodule, not a file"),
        ("conf/a.yaml/b", "`conf/a.yaml` is a file, not a folder"),
    ] {
        assert_eq!(read(&source, &id, path).await.unwrap_err().to_string(), said);
    }
}

#[tokio::test]
async fn what_is_not_a_repository_is_named() {
    let (source, _) = Source::with(&[("a.yaml", "")]);
    let bench = Bench::new();
    bench.git.fetch(&remote(&source.url()), &Wanted::Head).await.unwrap();
    let plain = tempfile::tempdir().unwrap();
    for path in [plain.path().to_owned(), plain.path().join("gone")] {
        let url = path.display().to_string();
        let said = format!(
            "the repository {url} cannot be read: '{url}' does not appear to be a git repository"
        );
        let error = bench.git.head(&remote(&url)).await.unwrap_err();
        assert_eq!(error.to_string(), said);
        let error = bench.git.fetch(&remote(&url), &Wanted::Head).await.unwrap_err();
        assert_eq!(error.to_string(), said);
    }
}

#[tokio::test]
async fn a_commit_that_is_nowhere_is_named() {
    let (source, id) = Source::with(&[("a.yaml", "")]);
    let tree = source.git(&["rev-parse", "HEAD^{tree}"]).trim().to_owned();
    let bench = Bench::new();
    let remote = remote(&source.url());
    for absent in ["0123456789012345678901234567890123456789", &tree] {
        let absent: CommitId = absent.parse().unwrap();
        let said = format!(
            "the repository URL does not have the commit {}, or does not hand out commits by \
             their id",
            absent.short()
        );
        let error = bench.git.fetch(&remote, &Wanted::Commit(absent.clone())).await.unwrap_err();
        assert_eq!(shown(&error, &source), said);
        let error = bench.git.read(&remote, &absent, "a.yaml").await.unwrap_err();
        assert_eq!(shown(&error, &source), said);
    }
    assert_eq!(bench.git.head(&remote).await.unwrap(), id);
}

#[tokio::test]
async fn a_login_that_does_not_fit_is_refused_before_anything_runs() {
    let mut remote = remote("/nowhere");
    remote.login = Login::Password { username: "u".to_owned(), password: "secret-1".into() };
    let error = Bench::new().git.head(&remote).await.unwrap_err();
    assert_eq!(error.to_string(), "the login does not fit the repository /nowhere");
    assert_eq!(format!("{error:?}"), "Login { url: \"/nowhere\", source: NeedsNothing }");
}
