//! Files that versions of redb wrote: a journal is read by every drover that comes after it.
//!
//! Each file is kept as its length and those of its pages that are not empty. Those of the version
//! in use are made by `cargo test -p drover-journal keep_files -- --ignored`, before redb is
//! upgraded, and are listed in [`KEPT`].
#![expect(clippy::unwrap_used, reason = "a test may end at the first surprise")]

use super::*;

/// Bytes of a page.
const PAGE: usize = 4096;

/// The versions of redb, each with a file as it closed it, and one as it was when the process ended in
/// the midst of its work.
const KEPT: [&str; 2] = ["4.4", "4.6"];

/// Where the file of a version is kept.
fn place(version: &str, how: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("redb_log/kept");
    folder.join(format!("redb-{version}-{how}.pages"))
}

fn record(seq: u64) -> Vec<u8> {
    format!("record {seq}").into_bytes()
}

/// A journal that took the place of one before it: a snapshot in parts, and records behind it, the
/// last one accepted without being durable.
fn journal(path: &Path) -> RedbLog {
    let mut log = RedbLog::open(path).unwrap();
    for seq in 0..6 {
        log.append(seq, &[record(seq + 1)], true).unwrap();
    }
    let mut next = log.successor(4).unwrap();
    next.put(b"what four records ").unwrap();
    next.put(b"add up to").unwrap();
    next.append(&[record(5), record(6)]).unwrap();
    next.ready().unwrap();
    log.append(6, &[record(7)], true).unwrap();
    log.succeed(7, &[record(7)]).unwrap();
    log.append(7, &[record(8)], true).unwrap();
    log.append(8, &[record(9)], false).unwrap();
    log
}

fn packed(file: &[u8]) -> Vec<u8> {
    let mut kept = (file.len() as u64).to_le_bytes().to_vec();
    for (index, page) in file.chunks(PAGE).enumerate().filter(|(_, page)| page != &[0; PAGE]) {
        kept.extend((index as u64).to_le_bytes());
        kept.extend(page);
    }
    kept
}

fn unpacked(kept: &[u8]) -> Vec<u8> {
    let number = |bytes: &[u8]| usize::try_from(u64::from_le_bytes(bytes.try_into().unwrap()));
    let (length, pages) = kept.split_at(8);
    let mut file = vec![0; number(length).unwrap()];
    for entry in pages.chunks(8 + PAGE) {
        let (index, page) = entry.split_at(8);
        let start = number(index).unwrap() * PAGE;
        file[start..start + PAGE].copy_from_slice(page);
    }
    file
}

/// The version of redb in use, without its last number.
fn in_use() -> String {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock"));
    let lock = lock.unwrap();
    let (_, rest) = lock.split_once("name = \"redb\"\nversion = \"").unwrap();
    let (version, _) = rest.split_once('"').unwrap();
    version.rsplit_once('.').unwrap().0.to_owned()
}

// Invariant: a file of an earlier version is read whole, and written to.

#[test]
fn files_of_earlier_versions_are_read_and_written_to() {
    for version in KEPT {
        for (how, last) in [("closed", 9), ("crashed", 8)] {
            let kept = std::fs::read(place(version, how)).unwrap();
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("journal.redb");
            std::fs::write(&path, unpacked(&kept)).unwrap();
            let mut log = RedbLog::open(&path).unwrap();
            let snapshot = log.snapshot().unwrap();
            let expected = Some((4, b"what four records add up to".to_vec()));
            assert_eq!(snapshot, expected, "{version}, {how}");
            let records = |last: u64| (5..=last).map(|seq| (seq, record(seq))).collect::<Vec<_>>();
            assert_eq!(log.read_from(1).unwrap(), records(last), "{version}, {how}");
            assert_eq!(log.append(last, &[record(last + 1)], true).unwrap(), last + 1);
            drop(log);
            let log = RedbLog::open(&path).unwrap();
            assert_eq!(log.read_from(1).unwrap(), records(last + 1), "{version}, {how}");
        }
    }
}

#[test]
fn files_of_the_version_in_use_are_kept_for_those_to_come() {
    let in_use = in_use();
    assert!(KEPT.contains(&in_use.as_str()), "none of redb {in_use}");
}

#[test]
#[ignore = "writes the files of the version in use into the sources"]
fn keep_files_of_the_version_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.redb");
    let log = journal(&path);
    let crashed = std::fs::read(&path).unwrap();
    drop(log);
    let closed = std::fs::read(&path).unwrap();
    for (how, file) in [("closed", closed), ("crashed", crashed)] {
        assert_eq!(unpacked(&packed(&file)), file);
        std::fs::write(place(&in_use(), how), packed(&file)).unwrap();
    }
}
