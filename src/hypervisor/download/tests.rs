#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::atomic::{AtomicU32, Ordering};

use drover_model::id::{CloudId, NodeName};
use drover_model::image::Downloader;
use drover_model::ports::FileKind;
use futures_util::stream;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Clients as _, Script, Step, token};

const DISK: &[u8] = b"QFI\xfb, a disk image";
const VOLUME: &str = "local:import/disk-0.qcow2";

/// A server with one file, which it sends in these chunks.
struct Server {
    size: Option<u64>,
    chunks: Vec<Result<Bytes, String>>,
    asked: AtomicU32,
}

impl Server {
    fn of(chunks: &[&'static [u8]]) -> Self {
        let size = Some(chunks.iter().map(|chunk| chunk.len() as u64).sum());
        let chunks = chunks.iter().map(|chunk| Ok(Bytes::from_static(chunk))).collect();
        Self { size, chunks, asked: AtomicU32::new(0) }
    }
}

impl Web for Server {
    fn get(&self, _: &str, _: &Route) -> BoxFuture<'static, Result<WebFile, WebFault>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let (size, chunks) = (self.size, self.chunks.clone());
        Box::pin(async move { Ok(WebFile { size, body: stream::iter(chunks).boxed() }) })
    }
}

fn call(algorithm: &str, checksum: &str) -> PullCall {
    PullCall {
        cloud: CloudId::new("primary"),
        node: NodeName::new("pve1"),
        storage: "local".into(),
        url: "https://mirror.example/disk.qcow2".into(),
        checksum: checksum.into(),
        algorithm: algorithm.into(),
        kind: FileKind::DiskImage,
        file: "disk-0.qcow2".into(),
        by: Downloader::Drover(Route::Environment),
        limit: Duration::from_secs(60),
    }
}

fn sum(algorithm: &str) -> String {
    let mut sum = Sum::new(algorithm).unwrap();
    sum.add(DISK);
    sum.hex()
}

/// A storage with these files.
fn storage(files: Value) -> Script {
    Script::new(move |asked| match asked.split(' ').take(2).collect::<Vec<_>>()[..] {
        ["GET", "/nodes/pve1/storage/local/content"] => Step::Data(files.clone()),
        ["POST", "/nodes/pve1/storage/local/upload"] => {
            Step::Data(json!("UPID:pve1:00000001:00000001:00000001:imgcopy::ci@pve!drover:"))
        }
        _ => panic!("{asked}"),
    })
}

struct Pulled {
    result: Result<Option<Upid>, Fault>,
    seen: Vec<String>,
    left: usize,
}

async fn pulled(server: Server, files: Value, call: PullCall) -> Pulled {
    let folder = tempfile::tempdir().unwrap();
    let downloads = Downloads::open(Arc::new(server), folder.path().join("downloads")).unwrap();
    let script = storage(files);
    let client = script.client(&["pve1"], token());
    let done = downloads.pull(&client, &call, &Route::Environment).await;
    let result = done.map_err(|error| client.fault(&error));
    let left = std::fs::read_dir(folder.path().join("downloads")).unwrap().count();
    Pulled { result, seen: script.seen(), left }
}

fn uploads(pulled: &Pulled) -> Vec<&String> {
    pulled.seen.iter().filter(|line| line.contains("/upload")).collect()
}

// Invariant: only a file with the right checksum is uploaded, as a disk image to import, and nothing
// of it stays on drover's machine.

#[tokio::test]
async fn a_file_with_the_right_checksum_is_uploaded_and_goes_from_the_folder() {
    for algorithm in ["sha224", "sha256", "sha384", "sha512"] {
        let server = Server::of(&[&DISK[..5], &DISK[5..]]);
        let pulled = pulled(server, json!([]), call(algorithm, &sum(algorithm))).await;
        assert!(matches!(pulled.result, Ok(Some(_))), "{:?}", pulled.result);
        let [upload] = uploads(&pulled)[..] else { panic!("{:?}", pulled.seen) };
        let fields =
            format!("content=import checksum-algorithm={algorithm} checksum={}", sum(algorithm));
        assert!(upload.ends_with(&fields), "{upload}");
        assert_eq!(pulled.left, 0);
    }
}

#[tokio::test]
async fn a_file_with_another_checksum_or_another_size_is_not_uploaded() {
    let wrong = call("sha256", &"ab".repeat(32));
    let short = Server { size: Some(1000), ..Server::of(&[DISK]) };
    let torn = Server {
        chunks: vec![Ok(Bytes::from_static(DISK)), Err("connection reset".into())],
        ..Server::of(&[DISK])
    };
    let huge = Server { size: Some(1 << 60), ..Server::of(&[DISK]) };
    let right = || call("sha256", &sum("sha256"));
    let cases = [
        (Server::of(&[DISK]), wrong, FaultKind::Broken, "checksum mismatch: got"),
        (short, right(), FaultKind::Contention, "18 of 1000 bytes came"),
        (torn, right(), FaultKind::Contention, "was cut off: connection reset"),
        (huge, right(), FaultKind::Broken, "MiB free, and a download of"),
        (Server::of(&[DISK]), call("md5", "ab"), FaultKind::Broken, "checksum of kind `md5`"),
    ];
    for (server, call, kind, text) in cases {
        let pulled = pulled(server, json!([]), call).await;
        let fault = pulled.result.as_ref().unwrap_err();
        assert!(fault.text.contains(text), "{}", fault.text);
        assert_eq!((&fault.kind, &fault.culprit), (&kind, &Culprit::Template));
        assert_eq!((uploads(&pulled).len(), pulled.left), (0, 0), "{text}");
    }
}

// Invariant: a file that is there is not sent again, and one that was cut off is.

#[tokio::test]
async fn a_file_of_the_same_name_and_size_stays_and_a_smaller_one_is_replaced() {
    let there = |size: usize| json!([{"volid": VOLUME, "format": "qcow2", "size": size}]);
    let right = || call("sha256", &sum("sha256"));
    let same = pulled(Server::of(&[DISK]), there(DISK.len()), right()).await;
    assert_eq!(same.result, Ok(None));
    assert!(uploads(&same).is_empty());
    let smaller = pulled(Server::of(&[DISK]), there(DISK.len() - 1), right()).await;
    assert_eq!((smaller.result.is_ok(), uploads(&smaller).len()), (true, 1));
    // A server that says no size leaves nothing to compare.
    let silent = Server { size: None, ..Server::of(&[DISK]) };
    let unknown = pulled(silent, there(DISK.len()), right()).await;
    assert_eq!(uploads(&unknown).len(), 1);
}

// Invariant: what a crash left in the folder goes at the next start, and nothing else does.

#[test]
fn leftovers_of_a_crash_are_removed_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("downloads");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("disk.qcow2.part"), DISK).unwrap();
    std::fs::write(path.join("notes"), "of an operator").unwrap();
    Downloads::open(Arc::new(Server::of(&[])), path.clone()).unwrap();
    let left: Vec<_> =
        std::fs::read_dir(path).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(left, ["notes"]);
}
