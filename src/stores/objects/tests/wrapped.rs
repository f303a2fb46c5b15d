//! A real store behind a wrapper that spoils what it does.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt as _, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use parking_lot::Mutex;

use super::{ObjectAddress, gateway};

/// A store that takes so many writes and deletions and no more, or ignores conditions.
#[derive(Debug, Clone)]
pub(super) struct Wrapped {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) left: Arc<AtomicUsize>,
    /// Whether it writes where an object is although none may be.
    pub(super) ignores_none_match: bool,
    /// Whether it writes where another object is than the one that is named.
    pub(super) ignores_match: bool,
    /// A write that arrives right after the first look for it.
    pub(super) late: Arc<Mutex<Option<(Path, Bytes)>>>,
}

impl Wrapped {
    pub(super) fn of(address: &ObjectAddress) -> Self {
        let store = gateway::store(address).unwrap();
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        let late = Arc::default();
        Self { store, left, ignores_none_match: false, ignores_match: false, late }
    }

    fn lives(&self) -> Result<()> {
        let less = |left: usize| left.checked_sub(1);
        match self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Generic { store: "wrapped", source: "it died".into() }),
        }
    }
}

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Wrapped {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        self.lives()?;
        let ignores = match &options.mode {
            PutMode::Overwrite => false,
            PutMode::Create => self.ignores_none_match,
            PutMode::Update(_) => self.ignores_match,
        };
        if ignores {
            options.mode = PutMode::Overwrite;
        }
        self.store.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let found = self.store.get_opts(location, options).await;
        let late = self.late.lock().take_if(|(path, _)| path == location);
        if let Some((path, bytes)) = late {
            self.store.put(&path, bytes.into()).await?;
        }
        found
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let wrapped = self.clone();
        let delete = move |location: Result<Path>| {
            let wrapped = wrapped.clone();
            async move {
                let location = location?;
                wrapped.lives()?;
                wrapped.store.delete(&location).await?;
                Ok(location)
            }
        };
        locations.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}
