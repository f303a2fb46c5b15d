//! The web as drover's machine sees it: files by URL, how fast they come, and what goes wrong.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use drover_hypervisor::download::{Downloads, Web, WebFault, WebFile};
use drover_model::image::Route;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, stream};

/// How much comes at once.
const CHUNK_BYTES: usize = 64 << 10;

#[derive(Default)]
struct Inner {
    files: BTreeMap<String, Bytes>,
    /// Between two chunks.
    pause: Duration,
    /// The answers that end after this many chunks.
    cuts: Vec<usize>,
    /// Whether the server says how large a file is.
    silent: bool,
    asked: Vec<(String, Route)>,
}

/// Files that drover's machine can download.
#[derive(Clone, Default)]
pub struct Mirror(Arc<Mutex<Inner>>);

impl Mirror {
    /// Puts a file there.
    pub fn publish(&self, url: &str, content: impl Into<Bytes>) {
        self.0.lock().unwrap().files.insert(url.to_owned(), content.into());
    }

    /// Makes every chunk of 64 KiB take so long.
    pub fn slow(&self, pause: Duration) {
        self.0.lock().unwrap().pause = pause;
    }

    /// Ends the next answer after this many chunks.
    pub fn cut(&self, chunks: usize) {
        self.0.lock().unwrap().cuts.push(chunks);
    }

    /// Says no sizes any more.
    pub fn hide_sizes(&self) {
        self.0.lock().unwrap().silent = true;
    }

    /// What was asked for, and by which way.
    pub fn asked(&self) -> Vec<(String, Route)> {
        self.0.lock().unwrap().asked.clone()
    }

    /// Downloads from it, into this folder.
    pub fn downloads(&self, folder: &Folder) -> Downloads {
        Downloads::open(Arc::new(self.clone()), folder.path().join("downloads")).unwrap()
    }
}

impl Web for Mirror {
    fn get(&self, url: &str, route: &Route) -> BoxFuture<'static, Result<WebFile, WebFault>> {
        let (found, pause, cut, silent) = {
            let mut inner = self.0.lock().unwrap();
            inner.asked.push((url.to_owned(), route.clone()));
            (inner.files.get(url).cloned(), inner.pause, inner.cuts.pop(), inner.silent)
        };
        Box::pin(async move {
            let Some(content) = found else {
                let text = "the server answers 404 Not Found".to_owned();
                return Err(WebFault { passes: false, text });
            };
            let size = (!silent).then_some(content.len() as u64);
            let chunks: Vec<Bytes> =
                content.chunks(CHUNK_BYTES).map(|part| content.slice_ref(part)).collect();
            let most = cut.unwrap_or(chunks.len());
            let torn = (most < chunks.len()).then(|| Err("connection reset by peer".to_owned()));
            let parts = chunks.into_iter().take(most).map(Ok).chain(torn);
            let body = stream::iter(parts).then(move |part| async move {
                tokio::time::sleep(pause).await;
                part
            });
            Ok(WebFile { size, body: body.boxed() })
        })
    }
}

/// A folder of a test, which goes with it.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("drover-world-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &PathBuf {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}
