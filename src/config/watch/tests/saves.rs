//! Every way in which a file is saved or replaced, by what the program that does it really does to
//! the file system, with the system's own events.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::super::*;
use super::{GOOD, name, named, site};

/// The longest anything may take before a test fails.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// A configuration under the system's own watch. What comes through the poll alone comes too late.
struct Saved {
    dir: tempfile::TempDir,
    watch: Watch,
}

impl Saved {
    /// A path inside the directory; `.` is the directory itself.
    async fn at(path: &str) -> Self {
        let dir = site();
        let path = dir.path().join(path);
        Self::open(dir, &path).await
    }

    async fn open(dir: tempfile::TempDir, path: &Path) -> Self {
        let (mut watch, first) = Watch::open(path, Environment::default()).await;
        first.unwrap();
        watch.poll += WAIT_LIMIT * 2;
        Self { dir, watch }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Expects the next outcome, by an event and not by the poll.
    async fn is_reported(&mut self, wanted: &str) {
        let reported = tokio::time::timeout(WAIT_LIMIT, self.watch.next()).await;
        self.watch.poll += WAIT_LIMIT * 2;
        let reported = reported.unwrap_or_else(|_| panic!("the watch did not report {wanted}"));
        assert_eq!(name(reported.change), wanted);
    }

    /// Expects no outcome of anything before: the next one is of this save.
    async fn nothing_until(&mut self, wanted: &str) {
        put(&self.path("drover.yaml"), &named(wanted));
        self.is_reported(wanted).await;
    }
}

fn put(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

/// Writes a file piece by piece, truncated first or cut to its length at the end.
fn in_pieces(path: &Path, text: &str, truncate: bool) {
    let mut file = OpenOptions::new();
    let mut file = file.write(true).create(true).truncate(truncate).open(path).unwrap();
    for piece in text.as_bytes().chunks(7) {
        file.write_all(piece).unwrap();
    }
    file.set_len(text.len() as u64).unwrap();
}

// Invariant: however a file is saved, the new one is taken once, and only whole.

#[tokio::test]
async fn vim_moves_the_old_file_away_and_makes_a_new_one() {
    let mut saved = Saved::at("drover.yaml").await;
    let (file, backup) = (saved.path("drover.yaml"), saved.path("drover.yaml~"));
    put(&saved.path(".drover.yaml.swp"), "swap");
    put(&saved.path("4913"), "");
    fs::remove_file(saved.path("4913")).unwrap();
    fs::rename(&file, &backup).unwrap();
    in_pieces(&file, &named("B"), true);
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    fs::remove_file(&backup).unwrap();
    fs::remove_file(saved.path(".drover.yaml.swp")).unwrap();
    saved.is_reported("B").await;
    saved.nothing_until("C").await;
}

#[tokio::test]
async fn vim_with_backupcopy_and_nano_and_vs_code_write_in_place() {
    let mut saved = Saved::at("drover.yaml").await;
    fs::copy(saved.path("drover.yaml"), saved.path("drover.yaml~")).unwrap();
    in_pieces(&saved.path("drover.yaml"), &named("B"), true);
    saved.is_reported("B").await;
    in_pieces(&saved.path("drover.yaml"), &named("C"), false);
    saved.is_reported("C").await;
    saved.nothing_until("D").await;
}

#[tokio::test]
async fn emacs_leaves_a_lock_and_an_auto_save_beside_the_file() {
    for path in ["drover.yaml", "."] {
        let mut saved = Saved::at(path).await;
        symlink("me@host.1234:1700000000", saved.path(".#drover.yaml")).unwrap();
        put(&saved.path("#drover.yaml#"), "half: [");
        fs::rename(saved.path("drover.yaml"), saved.path("drover.yaml~")).unwrap();
        in_pieces(&saved.path("drover.yaml"), &named("B"), true);
        saved.is_reported("B").await;
        fs::remove_file(saved.path(".#drover.yaml")).unwrap();
        fs::remove_file(saved.path("#drover.yaml#")).unwrap();
        saved.nothing_until("C").await;
    }
}

#[tokio::test]
async fn a_copy_written_beside_and_renamed_over() {
    // sed -i, VS Code, gedit, rsync, ansible and puppet: each calls its copy as it likes.
    let mut saved = Saved::at(".").await;
    let copies = [
        "sedXa81Kd",
        "drover.yaml.vsctmp",
        ".goutputstream-9X2K",
        ".drover.yaml.Q2hVfd",
        ".ansible_tmpab1drover.yaml",
        "drover.yaml20261121-77-1x2y3z",
    ];
    for (index, copy) in copies.into_iter().enumerate() {
        let copy = saved.path(copy);
        in_pieces(&copy, &named(&format!("n{index}")), true);
        fs::set_permissions(&copy, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::chown(&copy, None, None).unwrap();
        fs::rename(&copy, saved.path("drover.yaml")).unwrap();
        saved.is_reported(&format!("n{index}")).await;
    }
    saved.nothing_until("last").await;
}

#[tokio::test]
async fn a_file_copied_over_it_or_moved_from_elsewhere() {
    let mut saved = Saved::at("drover.yaml").await;
    let elsewhere = tempfile::tempdir_in(saved.dir.path().parent().unwrap()).unwrap();
    let fresh = elsewhere.path().join("fresh");
    put(&fresh, &named("B"));
    fs::copy(&fresh, saved.path("drover.yaml")).unwrap();
    saved.is_reported("B").await;
    put(&fresh, &named("C"));
    fs::rename(&fresh, saved.path("drover.yaml")).unwrap();
    saved.is_reported("C").await;
    saved.nothing_until("D").await;
}

#[tokio::test]
async fn leftovers_of_editors_are_no_configuration() {
    let mut saved = Saved::at(".").await;
    for leftover in [
        "drover.yaml~",
        ".drover.yaml.swp",
        ".drover.yaml.swx",
        "4913",
        "#drover.yaml#",
        "drover.yaml.bak",
        "drover.yaml.orig",
        "drover.yaml.rej",
        "drover.yaml.dpkg-dist",
        "drover.yaml.rpmsave",
        "._drover.yaml",
        ".hidden.yml",
    ] {
        put(&saved.path(leftover), "nonsense: [");
    }
    saved.nothing_until("B").await;
}

// Invariant: a swapped link is a change, wherever on the way it is.

fn with_token(token: &Path, name: &str) -> String {
    named(name).replace("secretFile: token", &format!("secretFile: {}", token.display()))
}

fn swap(link: &Path, target: &str) {
    let fresh = link.with_file_name("..data_tmp");
    symlink(target, &fresh).unwrap();
    fs::rename(&fresh, link).unwrap();
}

#[tokio::test]
async fn a_volume_of_kubernetes_swaps_its_data() {
    for path in ["volume/drover.yaml", "volume"] {
        let dir = site();
        let (root, token) = (dir.path().join("volume"), dir.path().join("token"));
        for (version, name) in [("..1", "A"), ("..2", "B")] {
            fs::create_dir_all(root.join(version)).unwrap();
            put(&root.join(version).join("drover.yaml"), &with_token(&token, name));
        }
        symlink("..1", root.join("..data")).unwrap();
        symlink("..data/drover.yaml", root.join("drover.yaml")).unwrap();
        let path = dir.path().join(path);
        let mut saved = Saved::open(dir, &path).await;
        swap(&root.join("..data"), "..2");
        fs::remove_dir_all(root.join("..1")).unwrap();
        saved.is_reported("B").await;
        // What is behind the link now is followed too.
        put(&root.join("..2/drover.yaml"), &with_token(&token, "C"));
        saved.is_reported("C").await;
        fs::create_dir(root.join("..3")).unwrap();
        put(&root.join("..3/drover.yaml"), &with_token(&token, "D"));
        swap(&root.join("..data"), "..3");
        saved.is_reported("D").await;
    }
}

#[tokio::test]
async fn a_directory_that_is_a_link_is_swapped() {
    for path in ["current", "current/drover.yaml"] {
        let dir = site();
        let (root, token) = (dir.path().to_owned(), dir.path().join("token"));
        for (release, name) in [("one", "A"), ("two", "B")] {
            fs::create_dir(root.join(release)).unwrap();
            put(&root.join(release).join("drover.yaml"), &with_token(&token, name));
        }
        symlink("one", root.join("current")).unwrap();
        let mut saved = Saved::open(dir, &root.join(path)).await;
        swap(&root.join("current"), "two");
        saved.is_reported("B").await;
        put(&root.join("two/drover.yaml"), &with_token(&token, "C"));
        saved.is_reported("C").await;
    }
}

#[tokio::test]
async fn a_link_pointed_elsewhere_by_ln_is_gone_for_a_moment() {
    let dir = site();
    let (file, link) = (dir.path().join("real"), dir.path().join("drover.yaml"));
    fs::rename(&link, &file).unwrap();
    symlink("real", &link).unwrap();
    let mut saved = Saved::open(dir, &link).await;
    put(&saved.path("other"), &named("B"));
    fs::remove_file(&link).unwrap();
    symlink("other", &link).unwrap();
    saved.is_reported("B").await;
    in_pieces(&saved.path("other"), &named("C"), false);
    saved.is_reported("C").await;
}

// Invariant: what happens to several files at once is one change.

#[tokio::test]
async fn a_checkout_of_several_files_is_one_change() {
    let dir = site();
    let root = dir.path().join("conf");
    fs::create_dir(&root).unwrap();
    let (clouds, rest) = GOOD.split_at(GOOD.find("credentials:").unwrap());
    let rest = rest.replace("secretFile: token", "secretFile: ../token");
    let cloud = |name: &str| clouds.replace("name: A", &format!("name: {name}"));
    put(&root.join("clouds.yaml"), &cloud("A"));
    put(&root.join("credentials.yaml"), &rest);
    let mut saved = Saved::open(dir, &root).await;
    // As git does: unlinked, made again, one of them under another name.
    fs::remove_file(root.join("clouds.yaml")).unwrap();
    fs::remove_file(root.join("credentials.yaml")).unwrap();
    in_pieces(&root.join("clouds.yaml"), &cloud("B"), true);
    in_pieces(&root.join("secrets.yaml"), &rest, true);
    saved.is_reported("B").await;
    // The directory itself is made again.
    let old = root.with_extension("old");
    fs::rename(&root, &old).unwrap();
    fs::create_dir(&root).unwrap();
    put(&root.join("clouds.yaml"), &cloud("C"));
    put(&root.join("secrets.yaml"), &rest);
    fs::remove_dir_all(&old).unwrap();
    saved.is_reported("C").await;
    put(&root.join("clouds.yaml"), &cloud("D"));
    saved.is_reported("D").await;
}

#[tokio::test]
async fn a_file_added_to_a_directory_or_taken_out_is_a_change() {
    let mut saved = Saved::at(".").await;
    // By its key it comes before the other.
    let added = "cloudConfigurations:\n  Z: {name: Z, credentialsId: t}\n";
    put(&saved.path("added.yaml"), added);
    saved.is_reported("Z").await;
    fs::remove_file(saved.path("added.yaml")).unwrap();
    saved.is_reported("A").await;
}

// Invariant: a file that is still open for writing is not taken, though its writer pauses.

#[tokio::test]
async fn a_writer_that_pauses_half_way_is_waited_for() {
    let mut saved = Saved::at("drover.yaml").await;
    let mut file = File::create(saved.path("drover.yaml")).unwrap();
    // Half of it reads well, and ends with its line.
    file.write_all(named("B").as_bytes()).unwrap();
    let early = tokio::time::timeout(DEBOUNCE * 5, saved.watch.next()).await;
    assert!(early.is_err(), "half of a file was taken");
    file.write_all(b"cloudDefaults:\n  instanceCap: 5\n").unwrap();
    drop(file);
    let reported = tokio::time::timeout(WAIT_LIMIT, saved.watch.next()).await.unwrap();
    let Change::Reloaded(checked) = reported.change else { panic!("{reported:?}") };
    assert_eq!(checked.herd.clouds.values().next().unwrap().cap, Some(5));
}

#[tokio::test]
async fn a_storm_of_edits_is_one_change() {
    let mut saved = Saved::at("drover.yaml").await;
    let file = saved.path("drover.yaml");
    let writer = std::thread::spawn(move || {
        for edit in 0..2_000 {
            in_pieces(&file, &named(&format!("n{edit}")), edit % 3 == 0);
        }
        put(&file, &named("last"));
    });
    saved.is_reported("last").await;
    writer.join().unwrap();
    saved.nothing_until("after").await;
}
