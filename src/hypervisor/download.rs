//! Sources of images that drover downloads itself, for nodes that have no internet, and uploads.
//!
//! ```text
//! ask for it ──> same size on the storage? ──> file in the folder, checksum on the way ──> upload
//!                        │ yes                      │ too large, no room, wrong sum
//!                        v                          v
//!                  nothing to do             the file goes, and the pull fails
//! ```
//!
//! - Nothing reaches a storage before its checksum is right. The node checks it once more.
//! - The whole file is in the folder before the upload begins: a node ends an upload in which nothing
//!   came for 5 s (pve-http-server, `AnyEvent.pm`, `timeout`), and a slow publisher would do that.
//! - One file at a time, so that the folder has room for the journal beside it. A file is removed when
//!   its upload is over, and at the next start after a crash.
//! - drover never takes over from a node that cannot download: a node says no more than `exit code 4`,
//!   which a publisher that is down for a minute causes too.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::Upid;
use drover_model::image::Route;
use drover_model::ports::PullCall;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use proxmox_client::transport::{Content, UploadFile};
use sha2::{Digest as _, Sha224, Sha256, Sha384, Sha512};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::client::{Client, Failure, task};
use crate::proxmox::Proxmox;

/// The largest file that is downloaded.
const LARGEST_BYTES: u64 = 64 << 30;
/// What stays free for the journal and all else on the file system of the folder.
const ROOM_LEFT_BYTES: u64 = 1 << 30;
/// How much is written between two looks at the room that is left.
const LOOK_EVERY_BYTES: u64 = 64 << 20;
const MIB: u64 = 1 << 20;

/// An answer with a file.
pub struct WebFile {
    /// Its size in bytes, where the server says it.
    pub size: Option<u64>,
    /// Its bytes, as they come.
    pub body: BoxStream<'static, Result<Bytes, String>>,
}

/// Why there is no file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct WebFault {
    /// Whether another try may help.
    pub passes: bool,
    pub text: String,
}

/// The web, from this machine.
pub trait Web: Send + Sync {
    /// Asks for a file.
    fn get(&self, url: &str, route: &Route) -> BoxFuture<'static, Result<WebFile, WebFault>>;
}

/// The downloads of a service.
pub struct Downloads {
    web: Arc<dyn Web>,
    folder: PathBuf,
    turn: Semaphore,
}

/// A file in the folder, which goes when this is dropped.
struct Spooled {
    path: PathBuf,
    size: u64,
}

impl Drop for Spooled {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            let path = self.path.display();
            tracing::warn!(%path, %error, "a downloaded file was not removed");
        }
    }
}

fn broken(text: String) -> Failure {
    Fault::new(FaultKind::Broken, Culprit::Template, text).into()
}

fn passing(text: String) -> Failure {
    Fault::new(FaultKind::Contention, Culprit::Template, text).into()
}

/// A checksum that grows with the file.
enum Sum {
    Sha224(Sha224),
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl Sum {
    fn new(algorithm: &str) -> Option<Self> {
        match algorithm {
            "sha224" => Some(Self::Sha224(Sha224::new())),
            "sha256" => Some(Self::Sha256(Sha256::new())),
            "sha384" => Some(Self::Sha384(Sha384::new())),
            "sha512" => Some(Self::Sha512(Sha512::new())),
            _ => None,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha224(sum) => sum.update(bytes),
            Self::Sha256(sum) => sum.update(bytes),
            Self::Sha384(sum) => sum.update(bytes),
            Self::Sha512(sum) => sum.update(bytes),
        }
    }

    fn hex(self) -> String {
        let bytes = match self {
            Self::Sha224(sum) => sum.finalize().to_vec(),
            Self::Sha256(sum) => sum.finalize().to_vec(),
            Self::Sha384(sum) => sum.finalize().to_vec(),
            Self::Sha512(sum) => sum.finalize().to_vec(),
        };
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Whether drover can check sums of this kind.
pub fn checks_sums_of(algorithm: &str) -> bool {
    Sum::new(algorithm).is_some()
}

impl Proxmox {
    /// Lets it download sources of images by itself.
    pub fn with_downloads(mut self, downloads: Downloads) -> Self {
        self.downloads = Some(Arc::new(downloads));
        self
    }
}

impl Downloads {
    /// Downloads into this folder, which is made, and emptied of what a crash left there.
    ///
    /// # Errors
    /// The folder cannot be made or read.
    pub fn open(web: Arc<dyn Web>, folder: PathBuf) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == "part") {
                tracing::info!(path = %path.display(), "removes a download that was not finished");
                std::fs::remove_file(&path)?;
            }
        }
        Ok(Self { web, folder, turn: Semaphore::new(1) })
    }

    /// Brings a source to its storage. None where it is there already.
    pub(crate) async fn pull(
        &self,
        client: &Client,
        call: &PullCall,
        route: &Route,
    ) -> Result<Option<Upid>, Failure> {
        let end = Instant::now() + call.limit;
        let late = || passing(format!("the download of {} took too long", call.url));
        let turn = tokio::time::timeout_at(end, self.turn.acquire());
        let Ok(Ok(_turn)) = turn.await else { return Err(late()) };
        let asked = tokio::time::timeout_at(end, self.web.get(&call.url, route));
        let file = asked.await.map_err(|_| late())?.map_err(|fault| {
            let text = format!("drover cannot download {}: {}", call.url, fault.text);
            if fault.passes { passing(text) } else { broken(text) }
        })?;
        let node = call.node.as_str();
        let there = client.files(node, &call.storage, call.kind.word()).await?;
        let volume = call.volume();
        // Its name has the checksum. What a copy that was cut off left is smaller.
        if there
            .iter()
            .any(|one| one.volid == volume && one.size.is_some() && one.size == file.size)
        {
            return Ok(None);
        }
        let spooled = tokio::time::timeout_at(end, self.spool(call, file));
        let spooled = spooled.await.map_err(|_| late())??;
        let content = Content::File { path: spooled.path.clone(), size: spooled.size };
        let limit = Some(end.saturating_duration_since(Instant::now()).max(Duration::from_secs(1)));
        let file = UploadFile { name: call.file.clone(), content, limit };
        let sum = (&*call.algorithm, &*call.checksum);
        let started = client.upload(node, &call.storage, (call.kind.word(), file), sum).await;
        Ok(Some(task(started?)))
    }

    /// Writes the file into the folder.
    async fn spool(&self, call: &PullCall, mut file: WebFile) -> Result<Spooled, Failure> {
        let url = &call.url;
        let Some(mut sum) = Sum::new(&call.algorithm) else {
            let text = format!("drover cannot check a checksum of kind `{}`", call.algorithm);
            return Err(broken(text));
        };
        if let Some(size) = file.size {
            self.has_room(size)?;
        }
        let folder = self.folder.display();
        let path = self.folder.join(format!("{}.part", call.file));
        let failed = |error: io::Error| {
            passing(format!("drover cannot write `{}`: {error}", path.display()))
        };
        let mut spooled = Spooled { path: path.clone(), size: 0 };
        let mut out = tokio::fs::File::create(&path).await.map_err(failed)?;
        let mut looked = 0;
        while let Some(chunk) = file.body.next().await {
            let chunk = chunk
                .map_err(|text| passing(format!("the download of {url} was cut off: {text}")))?;
            spooled.size += chunk.len() as u64;
            if spooled.size > LARGEST_BYTES {
                let most = LARGEST_BYTES / (1 << 30);
                return Err(broken(format!("{url} is larger than {most} GiB")));
            }
            if spooled.size - looked >= LOOK_EVERY_BYTES {
                looked = spooled.size;
                self.has_room(0)?;
            }
            sum.add(&chunk);
            out.write_all(&chunk).await.map_err(failed)?;
        }
        out.flush().await.map_err(failed)?;
        if let Some(wanted) = file.size.filter(|wanted| *wanted != spooled.size) {
            let text = format!("{url}: {} of {wanted} bytes came", spooled.size);
            return Err(passing(text));
        }
        let got = sum.hex();
        if !got.eq_ignore_ascii_case(&call.checksum) {
            let wanted = &call.checksum;
            let text = format!("{url}: checksum mismatch: got '{got}' != expect '{wanted}'");
            return Err(broken(text));
        }
        tracing::info!(%url, %folder, bytes = spooled.size, "downloaded the source of an image");
        Ok(spooled)
    }

    /// Checks that the folder takes so many bytes and has room left beside them.
    fn has_room(&self, bytes: u64) -> Result<(), Failure> {
        let free = free_bytes(&self.folder).map_err(|error| {
            passing(format!("drover cannot see the room in `{}`: {error}", self.folder.display()))
        })?;
        if free >= bytes.saturating_add(ROOM_LEFT_BYTES) {
            return Ok(());
        }
        let (needed, left) = (bytes / MIB, ROOM_LEFT_BYTES / MIB);
        Err(broken(format!(
            "`{}` has {} MiB free, and a download of {needed} MiB must leave {left} MiB: free \
             space there, or move `stateDirectory`",
            self.folder.display(),
            free / MIB
        )))
    }
}

fn free_bytes(folder: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(folder)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests;
