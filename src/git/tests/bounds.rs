//! Limits, and the scratch folder that may be removed or damaged.

use super::source::Source;
use super::{Bench, file, remote, shown, size};
use crate::{CommitId, GitError, Limits, Wanted};

// Invariant: limits hold, and what is too large is named.

#[tokio::test]
async fn too_large_and_too_many_files_are_refused() {
    let (source, id) = Source::with(&[("c/a.yaml", "12345678"), ("c/b.yaml", "12345678")]);
    let remote = remote(&source.url());
    let limits = Limits { file_bytes: 15, ..Limits::default() };
    let bench = Bench::limited(limits);
    let error = bench.git.read(&remote, &id, "c").await.unwrap_err();
    assert_eq!(error.to_string(), "the content of `c` is larger than 15 bytes");
    assert_eq!(bench.git.read(&remote, &id, "c/a.yaml").await.unwrap().len(), 1);
    let bench = Bench::limited(Limits { files: 1, ..Limits::default() });
    let error = bench.git.read(&remote, &id, "c").await.unwrap_err();
    assert_eq!(error.to_string(), "the folder `c` has 2 YAML files, and at most 1 are read");
}

#[tokio::test]
async fn large_files_beside_the_wanted_one_stay_with_the_server() {
    let (source, id) = large();
    let bench = Bench::new();
    bench.git.fetch(&remote(&source.url()), &Wanted::Head).await.unwrap();
    bench.git.read(&remote(&source.url()), &id, "a.yaml").await.unwrap();
    assert!(size(&bench.scratch()) < 1 << 20, "{}", size(&bench.scratch()));
    let error = bench.git.read(&remote(&source.url()), &id, "large").await.unwrap_err();
    assert_eq!(error.to_string(), "the content of `large` is larger than 4194304 bytes");
    assert!(size(&bench.scratch()) < 1 << 20, "{}", size(&bench.scratch()));
}

#[tokio::test]
async fn a_server_that_sends_large_files_all_the_same_runs_into_the_limit() {
    let (source, id) = large();
    source.serve("uploadpack.allowFilter", "false");
    let bench = Bench::limited(Limits { disk_bytes: 4 << 20, ..Limits::default() });
    let error = bench.git.fetch(&remote(&source.url()), &Wanted::Head).await.unwrap_err();
    assert_eq!(
        shown(&error, &source),
        "the content of the repository URL is larger than 4194304 bytes"
    );
    assert!(size(&bench.scratch()) < 1 << 20, "{}", size(&bench.scratch()));
    let bench = Bench::new();
    let read = bench.git.read(&remote(&source.url()), &id, "a.yaml").await.unwrap();
    assert_eq!(read, [file("a.yaml", "a: 1\n")]);
}

#[tokio::test]
async fn a_repository_that_became_large_is_fetched_from_scratch() {
    let (source, id) = Source::with(&[("a.yaml", "a: 1\n")]);
    let bench = Bench::new();
    bench.git.fetch(&remote(&source.url()), &Wanted::Head).await.unwrap();
    let large = bench.scratch().join("repo.git/objects/large");
    std::fs::File::create(&large).unwrap().set_len(65 << 20).unwrap();
    assert_eq!(bench.git.fetch(&remote(&source.url()), &Wanted::Head).await.unwrap().id, id);
    assert!(!large.exists());
}

/// A repository with 50 MB beside a small file, which no one compresses.
fn large() -> (Source, CommitId) {
    let source = Source::empty();
    source.git(&["config", "core.compression", "0"]);
    source.serve("core.compression", "0");
    source.serve("receive.unpackLimit", "1");
    source.write("large", &vec![b'x'; 50 << 20]);
    source.write("a.yaml", b"a: 1\n");
    let id = source.commit("Large");
    assert!(size(&source.bare()) > 50 << 20);
    (source, id)
}

// Invariant: the scratch folder may be removed or damaged at any time.

#[tokio::test]
async fn a_scratch_folder_that_is_gone_or_damaged_is_made_again() {
    let (source, id) = Source::with(&[("a.yaml", "a: 1\n")]);
    let remote = remote(&source.url());
    let bench = Bench::new();
    let repository = bench.scratch().join("repo.git");
    let damages: [&dyn Fn(); 6] = [
        &|| std::fs::remove_dir_all(bench.scratch()).unwrap(),
        &|| std::fs::remove_file(repository.join("HEAD")).unwrap(),
        &|| {
            std::fs::remove_dir_all(&repository).unwrap();
            std::fs::write(&repository, "a file").unwrap();
        },
        &|| {
            for entry in std::fs::read_dir(repository.join("objects/pack")).unwrap() {
                let path = entry.unwrap().path();
                std::fs::remove_file(&path).unwrap();
                std::fs::write(&path, "damaged").unwrap();
            }
        },
        &|| std::fs::write(repository.join("config"), "[damaged").unwrap(),
        &|| std::fs::write(repository.join("shallow.lock"), "").unwrap(),
    ];
    for (at, damage) in damages.iter().enumerate() {
        bench.git.read(&remote, &id, "a.yaml").await.unwrap();
        damage();
        let head = bench.git.fetch(&remote, &Wanted::Head).await.unwrap();
        assert_eq!(head.id, id, "damage {at}");
        bench.git.read(&remote, &id, "a.yaml").await.unwrap();
        damage();
        let read = bench.git.read(&remote, &id, "a.yaml").await.unwrap();
        assert_eq!(read, [file("a.yaml", "a: 1\n")], "damage {at}");
    }
}

#[tokio::test]
async fn a_commit_of_an_earlier_repository_is_not_one_of_the_next() {
    let (first, id) = Source::with(&[("a.yaml", "a: 1\n")]);
    let (second, _) = Source::with(&[("a.yaml", "a: 2\n")]);
    let bench = Bench::new();
    bench.git.read(&remote(&first.url()), &id, "a.yaml").await.unwrap();
    let error = bench.git.read(&remote(&second.url()), &id, "a.yaml").await.unwrap_err();
    assert!(matches!(error, GitError::NoCommit { .. }), "{error:?}");
}
