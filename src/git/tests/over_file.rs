//! Repositories in folders: what is read.

use super::source::Source;
use super::{Bench, file, read, remote};
use crate::{Commit, Wanted};

// Invariant: what was pushed is what is read.

#[tokio::test]
async fn a_branch_is_asked_for_fetched_and_read() {
    let (source, id) = Source::with(&[("a.yaml", "a: 1\n"), ("deep/er/b.yaml", "b: 2\n")]);
    for url in [source.url(), format!("file://{}", source.url())] {
        let bench = Bench::new();
        let remote = remote(&url);
        assert_eq!(bench.git.head(&remote).await.unwrap(), id);
        let commit = bench.git.fetch(&remote, &Wanted::Head).await.unwrap();
        let expected = Commit {
            id: id.clone(),
            at_epoch_seconds: 1_700_000_100,
            author: "Ada\u{fffd}[31m Example".to_owned(),
            subject: "The first commit".to_owned(),
        };
        assert_eq!(commit, expected);
        let read = bench.git.read(&remote, &id, "deep/er/b.yaml").await.unwrap();
        assert_eq!(read, [file("deep/er/b.yaml", "b: 2\n")]);
    }
}

#[tokio::test]
async fn a_folder_is_read_as_its_visible_yaml_files_by_name() {
    let (source, id) = Source::with(&[
        ("conf/z.yml", "z\n"),
        ("conf/a.yaml", ""),
        ("conf/same.yaml", "z\n"),
        ("conf/.hidden.yaml", "h\n"),
        ("conf/note.txt", "n\n"),
        ("conf/sub.yaml/x.yaml", "x\n"),
    ]);
    let read = read(&source, &id, "conf").await.unwrap();
    let all = [file("conf/a.yaml", ""), file("conf/same.yaml", "z\n"), file("conf/z.yml", "z\n")];
    assert_eq!(read, all);
}

#[tokio::test]
async fn a_path_with_signs_of_patterns_is_taken_literally() {
    let (source, id) = Source::with(&[("*.yaml", "star\n"), (":(top)b", "b\n"), ("c.yaml", "c\n")]);
    assert_eq!(read(&source, &id, "*.yaml").await.unwrap(), [file("*.yaml", "star\n")]);
    assert_eq!(read(&source, &id, ":(top)b").await.unwrap(), [file(":(top)b", "b\n")]);
}

#[tokio::test]
async fn a_branch_that_moved_by_force_has_another_head() {
    let (source, first) = Source::with(&[("a.yaml", "a: 1\n")]);
    let bench = Bench::new();
    let remote = remote(&source.url());
    assert_eq!(bench.git.fetch(&remote, &Wanted::Head).await.unwrap().id, first);
    source.git(&["checkout", "--quiet", "--orphan", "other"]);
    source.write("a.yaml", b"a: 2\n");
    let second = source.commit("Another history");
    assert_eq!(bench.git.fetch(&remote, &Wanted::Head).await.unwrap().id, second);
    let read = bench.git.read(&remote, &second, "a.yaml").await.unwrap();
    assert_eq!(read, [file("a.yaml", "a: 2\n")]);
}

#[tokio::test]
async fn a_repository_with_long_ids_is_read() {
    let source = Source::of_hash("sha256");
    source.write("a.yaml", b"a: 1\n");
    let id = source.commit("Long");
    assert_eq!(id.as_str().len(), 64);
    let bench = Bench::new();
    let remote = remote(&source.url());
    assert_eq!(bench.git.head(&remote).await.unwrap(), id);
    assert_eq!(bench.git.fetch(&remote, &Wanted::Head).await.unwrap().id, id);
    assert_eq!(bench.git.read(&remote, &id, "a.yaml").await.unwrap(), [file("a.yaml", "a: 1\n")]);
    assert_eq!(read(&source, &id, "a.yaml").await.unwrap(), [file("a.yaml", "a: 1\n")]);
}

#[tokio::test]
async fn an_older_commit_is_fetched_by_its_id() {
    let (source, first) = Source::with(&[("a.yaml", "a: 1\n")]);
    source.write("a.yaml", b"a: 2\n");
    source.commit("The second commit");
    let bench = Bench::new();
    let remote = remote(&source.url());
    bench.git.fetch(&remote, &Wanted::Head).await.unwrap();
    let commit = bench.git.fetch(&remote, &Wanted::Commit(first.clone())).await.unwrap();
    assert_eq!((commit.id, commit.subject.as_str()), (first.clone(), "The first commit"));
    let read = bench.git.read(&remote, &first, "a.yaml").await.unwrap();
    assert_eq!(read, [file("a.yaml", "a: 1\n")]);
}

#[tokio::test]
async fn what_is_in_the_scratch_folder_needs_no_repository() {
    let (source, id) = Source::with(&[("a.yaml", "a: 1\n")]);
    let bench = Bench::new();
    let remote = remote(&source.url());
    bench.git.read(&remote, &id, "a.yaml").await.unwrap();
    std::fs::remove_dir_all(source.bare()).unwrap();
    assert_eq!(bench.git.fetch(&remote, &Wanted::Commit(id.clone())).await.unwrap().id, id);
    assert_eq!(bench.git.read(&remote, &id, "a.yaml").await.unwrap(), [file("a.yaml", "a: 1\n")]);
}

#[tokio::test]
async fn a_folder_of_another_user_is_read() {
    let (source, id) = Source::with(&[("a.yaml", "a: 1\n")]);
    if std::os::unix::fs::chown(source.bare(), Some(12345), None).is_err() {
        return; // Only root can give a folder away.
    }
    assert_eq!(read(&source, &id, "a.yaml").await.unwrap(), [file("a.yaml", "a: 1\n")]);
}
