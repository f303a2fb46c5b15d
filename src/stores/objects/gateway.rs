//! Requests to one object store, beneath the prefix of one journal.
//!
//! A request that may come to something later is sent again a few times. A conditional write is safe
//! to repeat: what it writes has a name that nothing else has, so the object shows whose write it was.
//!
//! The log's callers block, so requests run on a thread of their own.

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use causes::{causes, chain};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use object_store::aws::AmazonS3Builder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{
    ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutResult, RetryConfig,
    UpdateVersion,
};
use proxmox_client::Tls;
use secrecy::ExposeSecret as _;
use tokio::runtime::{Builder, Runtime};

use super::address::{ObjectAddress, S3, Service};
use super::client::{Http, NoAnswer, said};

/// How long a store may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// The same for a call of the register: those who lead wait for it.
const REGISTER_ANSWER_LIMIT: Duration = Duration::from_millis(1500);
/// The pauses before a request is sent again.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1000)];
/// How many objects are read at once.
const READS_AT_ONCE: usize = 16;
/// The most objects in one folder: far more than a journal has.
const LIST_MAX: usize = 500_000;

type Fault = Box<dyn std::error::Error + Send + Sync>;

/// Why a request brought nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CallError {
    /// It was not done.
    #[error("{0}")]
    Refused(String),
    /// It was not done, since a condition does not hold.
    #[error("another write came first")]
    Conflict,
    /// It may have been done.
    #[error("no answer came, and it may have been written: {0}")]
    Unknown(String),
}

/// What became of an object that must not be there before.
#[derive(Debug)]
pub(super) enum Created {
    Done(Stamp),
    /// Another one is there.
    Taken,
}

/// Which write made an object what it is, as the store says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) e_tag: Option<String>,
    /// The generation in GCS.
    pub(super) version: Option<String>,
}

impl Stamp {
    fn of(put: PutResult) -> Self {
        Self { e_tag: put.e_tag, version: put.version }
    }
}

/// How long requests try.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// How long a store may take to answer.
    answer: Duration,
    /// The pauses before a request is sent again.
    pauses: &'static [Duration],
}

impl Limits {
    const USUAL: Self = Self { answer: ANSWER_LIMIT, pauses: &PAUSES };
    /// Of those who ask again by themselves, and soon.
    pub(super) const REGISTER: Self = Self { answer: REGISTER_ANSWER_LIMIT, pauses: &[] };
}

/// The requests to one store.
pub(crate) struct Gateway {
    store: Arc<dyn ObjectStore>,
    /// Where requests run; gone only while this is dropped.
    runtime: Option<Runtime>,
    place: String,
    bucket: String,
    prefix: String,
    pauses: &'static [Duration],
}

/// What one request came to.
enum Outcome<T> {
    Done(T),
    /// A condition does not hold.
    Conflict,
    Missing(CallError),
    Refused(CallError),
    /// It may be sent again.
    Again {
        error: CallError,
        sent: bool,
    },
}

impl Gateway {
    /// Prepares the requests; connects at the first one.
    pub(crate) fn new(address: &ObjectAddress) -> Result<Self, Fault> {
        Self::over(store(address)?, address)
    }

    /// The same, for requests that try shorter.
    pub(super) fn limited(address: &ObjectAddress, limits: Limits) -> Result<Self, Fault> {
        let mut gateway = Self::over(store_limited(address, limits.answer)?, address)?;
        gateway.pauses = limits.pauses;
        Ok(gateway)
    }

    /// The same over another store.
    pub(super) fn over(
        store: Arc<dyn ObjectStore>,
        address: &ObjectAddress,
    ) -> Result<Self, Fault> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("objects")
            .enable_all()
            .build()?;
        Ok(Self {
            store,
            runtime: Some(runtime),
            place: address.to_string(),
            bucket: address.bucket().to_owned(),
            prefix: address.prefix().to_owned(),
            pauses: Limits::USUAL.pauses,
        })
    }

    /// The address, for people.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}/{name}", self.prefix))
    }

    /// Writes an object that must not be there.
    pub(super) fn create(&self, name: &str, bytes: Bytes) -> Result<Created, CallError> {
        let (store, path) = (Arc::clone(&self.store), self.path(name));
        self.repeat(move || {
            let (store, path, bytes) = (Arc::clone(&store), path.clone(), bytes.clone());
            async move {
                let put = store.put_opts(&path, bytes.clone().into(), PutMode::Create.into()).await;
                match outcome(put) {
                    Outcome::Done(put) => Outcome::Done(Created::Done(Stamp::of(put))),
                    Outcome::Conflict => match outcome(read(&*store, &path).await) {
                        // This write, of which an answer was lost.
                        Outcome::Done((there, stamp)) if there == bytes => {
                            Outcome::Done(Created::Done(stamp))
                        }
                        Outcome::Done(_) => Outcome::Done(Created::Taken),
                        // Two wrote at once, and the store refused both.
                        Outcome::Missing(error) => Outcome::Again { error, sent: false },
                        Outcome::Conflict => Outcome::Conflict,
                        Outcome::Refused(error) => Outcome::Again { error, sent: true },
                        Outcome::Again { error, .. } => Outcome::Again { error, sent: true },
                    },
                    Outcome::Missing(error) => Outcome::Missing(error),
                    Outcome::Refused(error) => Outcome::Refused(error),
                    Outcome::Again { error, sent } => Outcome::Again { error, sent },
                }
            }
        })
    }

    /// Writes an object if it still has this stamp. Returns the new one; none where it has not.
    pub(super) fn update(
        &self,
        name: &str,
        before: &Stamp,
        bytes: Bytes,
    ) -> Result<Option<Stamp>, CallError> {
        let mode = PutMode::Update(UpdateVersion {
            e_tag: before.e_tag.clone(),
            version: before.version.clone(),
        });
        let (store, path) = (Arc::clone(&self.store), self.path(name));
        // Where an attempt may have happened, another one that finds a conflict says nothing.
        let done = self.repeat(move || {
            let (store, path, bytes) = (Arc::clone(&store), path.clone(), bytes.clone());
            let options = PutOptions { mode: mode.clone(), ..PutOptions::default() };
            async move {
                let put = store.put_opts(&path, bytes.clone().into(), options).await;
                match outcome(put) {
                    Outcome::Done(put) => Outcome::Done(Some(Stamp::of(put))),
                    Outcome::Conflict => match outcome(read(&*store, &path).await) {
                        Outcome::Done((there, stamp)) if there == bytes => {
                            Outcome::Done(Some(stamp))
                        }
                        Outcome::Done(_) | Outcome::Missing(_) | Outcome::Conflict => {
                            Outcome::Conflict
                        }
                        Outcome::Refused(error) => Outcome::Again { error, sent: true },
                        Outcome::Again { error, .. } => Outcome::Again { error, sent: true },
                    },
                    Outcome::Missing(_) => Outcome::Conflict,
                    Outcome::Refused(error) => Outcome::Refused(error),
                    Outcome::Again { error, sent } => Outcome::Again { error, sent },
                }
            }
        });
        match done {
            Err(CallError::Conflict) => Ok(None),
            Ok(_) | Err(CallError::Refused(_) | CallError::Unknown(_)) => done,
        }
    }

    /// Writes an object, whatever is there.
    pub(super) fn overwrite(&self, name: &str, bytes: Bytes) -> Result<(), CallError> {
        let (store, path) = (Arc::clone(&self.store), self.path(name));
        self.repeat(move || {
            let (store, path, bytes) = (Arc::clone(&store), path.clone(), bytes.clone());
            async move { outcome(store.put(&path, bytes.into()).await.map(drop)) }
        })
    }

    /// What an object holds.
    pub(super) fn get(&self, name: &str) -> Result<Option<(Bytes, Stamp)>, CallError> {
        let (store, path, pauses) = (Arc::clone(&self.store), self.path(name), self.pauses);
        self.wait(async move { get(&store, &path, pauses).await }).map_err(CallError::of_a_read)
    }

    /// What each of these objects holds, in this order.
    pub(super) fn get_all(&self, names: &[String]) -> Result<Vec<Option<Bytes>>, CallError> {
        let (store, pauses) = (Arc::clone(&self.store), self.pauses);
        let paths: Vec<_> = names.iter().map(|name| self.path(name)).collect();
        let read = async move {
            let reads = paths.into_iter().map(|path| {
                let store = Arc::clone(&store);
                async move { Ok(get(&store, &path, pauses).await?.map(|(bytes, _)| bytes)) }
            });
            stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await
        };
        self.wait(read).map_err(CallError::of_a_read)
    }

    /// The objects of a folder behind a name, or all of them. A folder of theirs is part of their
    /// names, which are as they are given to the other calls.
    pub(super) fn list(
        &self,
        folder: &str,
        after: Option<&str>,
    ) -> Result<Vec<(String, ObjectMeta)>, CallError> {
        let (store, bucket) = (Arc::clone(&self.store), self.bucket.clone());
        let (folder, after) = (self.path(folder), after.map(|after| self.path(after)));
        let listed = self.repeat(move || {
            let (store, folder, after) = (Arc::clone(&store), folder.clone(), after.clone());
            let missing = format!("there is no bucket `{bucket}`: create it, or name another one");
            async move {
                let found = match &after {
                    Some(after) => store.list_with_offset(Some(&folder), after),
                    None => store.list(Some(&folder)),
                };
                let found: Result<Vec<_>, _> = found.take(LIST_MAX + 1).try_collect().await;
                match outcome(found) {
                    Outcome::Done(found) if found.len() > LIST_MAX => {
                        let text = format!("more than {LIST_MAX} objects are beneath `{folder}`");
                        Outcome::Refused(CallError::Refused(text))
                    }
                    Outcome::Missing(_) => Outcome::Refused(CallError::Refused(missing)),
                    Outcome::Done(found) => Outcome::Done(found),
                    Outcome::Conflict => Outcome::Conflict,
                    Outcome::Refused(error) => Outcome::Refused(error),
                    Outcome::Again { error, sent } => Outcome::Again { error, sent },
                }
            }
        });
        let named = |meta: ObjectMeta| {
            let name = meta.location.as_ref().strip_prefix(&self.prefix)?.strip_prefix('/')?;
            Some((name.to_owned(), meta))
        };
        let mut found: Vec<_> =
            listed.map_err(CallError::of_a_read)?.into_iter().filter_map(named).collect();
        // Not every store sorts.
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(found)
    }

    /// The paths of a few objects beneath any prefix of the bucket.
    pub(super) fn some_beneath(&self, prefix: &str, most: usize) -> Result<Vec<String>, CallError> {
        let (store, prefix) = (Arc::clone(&self.store), Path::from(prefix));
        let listed = self.repeat(move || {
            let (store, prefix) = (Arc::clone(&store), prefix.clone());
            async move {
                let found = store.list(Some(&prefix)).take(most);
                outcome(found.map_ok(|meta| meta.location.to_string()).try_collect().await)
            }
        });
        listed.map_err(CallError::of_a_read)
    }

    /// Deletes these objects; those that are not there are no fault.
    pub(super) fn delete(&self, names: &[String]) -> Result<(), CallError> {
        if names.is_empty() {
            return Ok(());
        }
        let (store, paths) = (Arc::clone(&self.store), self.paths(names));
        self.repeat(move || delete(Arc::clone(&store), paths.clone()))
    }

    /// Deletes these objects some time. Those that stay are litter.
    pub(super) fn delete_soon(&self, names: &[String]) {
        let (store, paths) = (Arc::clone(&self.store), self.paths(names));
        if let Some(runtime) = &self.runtime {
            runtime.spawn(async move {
                match delete(store, paths).await {
                    Outcome::Done(()) | Outcome::Conflict | Outcome::Missing(_) => {}
                    Outcome::Refused(error) | Outcome::Again { error, .. } => {
                        tracing::debug!(%error, "old objects of the journal stay");
                    }
                }
            });
        }
    }

    fn paths(&self, names: &[String]) -> Vec<Path> {
        names.iter().map(|name| self.path(name)).collect()
    }

    /// Sends a request until it comes to something.
    fn repeat<T: Send + 'static, F>(
        &self,
        request: impl Fn() -> F + Send + 'static,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Outcome<T>> + Send + 'static,
    {
        self.wait(repeat(self.pauses, request))
    }

    /// Runs a request on its own thread, and waits for it.
    fn wait<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> Result<T, CallError> {
        let ended = || CallError::Unknown("the request's thread ended".to_owned());
        let runtime = self.runtime.as_ref().ok_or_else(ended)?;
        let (reply, answer) = mpsc::sync_channel(1);
        runtime.spawn(async move {
            // The caller waits for this alone.
            let _ = reply.send(request.await);
        });
        answer.recv().map_err(|_| ended())?
    }
}

#[cfg(any(test, feature = "testing"))]
impl Gateway {
    /// Whether the store serves.
    pub(crate) fn is_ready(&self) -> bool {
        self.list("ready", None).is_ok()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // A runtime that waits for its threads must not be dropped where others wait for it.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl CallError {
    /// Nothing can have happened where a read got no answer.
    fn of_a_read(self) -> Self {
        match self {
            Self::Unknown(text) => Self::Refused(text),
            Self::Refused(_) | Self::Conflict => self,
        }
    }
}

/// Sends a request until it comes to something. What stays without an answer may have been done, and
/// so may one that finds a conflict after an attempt without an answer.
async fn repeat<T, F>(pauses: &'static [Duration], request: impl Fn() -> F) -> Result<T, CallError>
where
    F: Future<Output = Outcome<T>>,
{
    let (mut unknown, mut pauses) = (false, pauses.iter());
    loop {
        let error = match request().await {
            Outcome::Done(done) => return Ok(done),
            Outcome::Conflict => CallError::Conflict,
            Outcome::Missing(error) | Outcome::Refused(error) => error,
            Outcome::Again { error, sent } => {
                unknown |= sent;
                if let Some(pause) = pauses.next() {
                    tokio::time::sleep(*pause).await;
                    continue;
                }
                error
            }
        };
        return Err(if unknown { CallError::Unknown(error.to_string()) } else { error });
    }
}

async fn read(store: &dyn ObjectStore, path: &Path) -> object_store::Result<(Bytes, Stamp)> {
    let found = store.get(path).await?;
    let stamp = Stamp { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
    Ok((found.bytes().await?, stamp))
}

async fn get(
    store: &Arc<dyn ObjectStore>,
    path: &Path,
    pauses: &'static [Duration],
) -> Result<Option<(Bytes, Stamp)>, CallError> {
    repeat(pauses, || async {
        match outcome(read(&**store, path).await) {
            Outcome::Done(found) => Outcome::Done(Some(found)),
            Outcome::Missing(_) => Outcome::Done(None),
            Outcome::Conflict => Outcome::Conflict,
            Outcome::Refused(error) => Outcome::Refused(error),
            Outcome::Again { error, sent } => Outcome::Again { error, sent },
        }
    })
    .await
}

async fn delete(store: Arc<dyn ObjectStore>, paths: Vec<Path>) -> Outcome<()> {
    let paths = stream::iter(paths.into_iter().map(Ok)).boxed();
    let mut deleted = store.delete_stream(paths);
    while let Some(one) = deleted.next().await {
        match outcome(one) {
            // A try before this one may have deleted it.
            Outcome::Done(_) | Outcome::Missing(_) => {}
            Outcome::Conflict => return Outcome::Conflict,
            Outcome::Refused(error) => return Outcome::Refused(error),
            Outcome::Again { error, sent } => return Outcome::Again { error, sent },
        }
    }
    Outcome::Done(())
}

/// What a request's result means.
fn outcome<T>(result: object_store::Result<T>) -> Outcome<T> {
    use object_store::Error;
    /// How some stores name a key that is not there when several are deleted at once, such as versitygw 1.8; S3
    /// itself takes it as deleted (S3 API reference, DeleteObjects).
    const NO_SUCH_KEY: &str = "(code: NoSuchKey)";
    let error = match result {
        Ok(done) => return Outcome::Done(done),
        Err(error) => error,
    };
    let whole = chain(&error);
    let unanswered = causes(&error).find_map(|cause| cause.downcast_ref::<NoAnswer>());
    if let Some(unanswered) = unanswered {
        let sent = match unanswered {
            NoAnswer::NotSent(_) => false,
            NoAnswer::Lost(_) | NoAnswer::Busy { .. } => true,
        };
        let text = with_advice(&whole, unanswered.to_string());
        return Outcome::Again { error: CallError::Refused(text), sent };
    }
    let text = with_advice(&whole, said(&whole));
    // A list that is refused has no kind of its own.
    let has_status = |status: u16| whole.contains(&format!("status code: {status}"));
    let is_conflict = matches!(
        error,
        Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. }
    );
    if is_conflict {
        Outcome::Conflict
    } else if matches!(error, Error::NotFound { .. })
        || has_status(404)
        || whole.contains(NO_SUCH_KEY)
    {
        Outcome::Missing(CallError::Refused(text))
    } else if has_status(401) || has_status(403) {
        Outcome::Refused(CallError::Refused(format!("the store refuses this login: {text}")))
    } else {
        Outcome::Refused(CallError::Refused(text))
    }
}

/// What went wrong; where it was the search for a login, also what to do.
fn with_advice(whole: &str, text: String) -> String {
    /// Where a machine of AWS or Google asks for its own login.
    const METADATA: &str = "169.254.169.254";
    if !whole.contains(METADATA) {
        return text;
    }
    format!("no login is given, and this machine has none; give one by file or environment: {text}")
}

/// The store of an address.
pub(super) fn store(address: &ObjectAddress) -> Result<Arc<dyn ObjectStore>, Fault> {
    store_limited(address, Limits::USUAL.answer)
}

fn store_limited(address: &ObjectAddress, answer: Duration) -> Result<Arc<dyn ObjectStore>, Fault> {
    let tls = match address.authority() {
        Some(pem) => Tls::Bundle(vec![pem.to_owned()]),
        None if address.is_plain() => Tls::Ignore,
        None => Tls::System,
    };
    let http = Http::new(&tls, answer)?;
    // Requests are repeated above, where it is known what they mean.
    let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    match address.service() {
        Service::S3(s3) => {
            Ok(Arc::new(amazon(address, s3).with_http_connector(http).with_retry(once).build()?))
        }
        Service::Gcs { credentials } => {
            let mut builder = GoogleCloudStorageBuilder::new().with_bucket_name(address.bucket());
            if let Some(path) = credentials {
                builder = builder.with_application_credentials(path.display().to_string());
            }
            if let Some(endpoint) = address.endpoint() {
                builder = builder.with_base_url(&endpoint);
            }
            Ok(Arc::new(builder.with_http_connector(http).with_retry(once).build()?))
        }
    }
}

fn amazon(address: &ObjectAddress, s3: &S3) -> AmazonS3Builder {
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(address.bucket())
        .with_region(&s3.region)
        .with_virtual_hosted_style_request(!s3.path_style);
    if let Some(endpoint) = address.endpoint() {
        builder = builder.with_endpoint(endpoint);
    }
    match &s3.login {
        Some(login) => {
            builder = builder
                .with_access_key_id(&login.id)
                .with_secret_access_key(login.secret.expose_secret());
            if let Some(session) = &login.session {
                builder = builder.with_token(session.expose_secret());
            }
        }
        None => {
            for (name, value) in &s3.role {
                if let Ok(key) = name.to_ascii_lowercase().parse() {
                    builder = builder.with_config(key, value);
                }
            }
        }
    }
    builder
}
