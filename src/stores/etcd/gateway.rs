//! Calls to etcd: its API as JSON over HTTP, which every member serves.
//!
//! A call goes to the member that answered last, then to the others. Repeating a call is safe: a
//! transaction that happened finds another head the second time. A member that is there and takes
//! no call (its answer is an error of etcd) ends it, unless it says that it cannot serve now.
//!
//! The log's callers block, so calls run on a thread of their own.

use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causes::chain;
use parking_lot::Mutex;
use proxmox_client::Tls;
use proxmox_client::tls::client_config_with;
use reqwest::{Client, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use super::address::EtcdAddress;
use super::layout::KeyRange;
use crate::tls_advice;

/// How long a member may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// How many times every member is tried.
const ROUNDS: usize = 2;
/// The pause between two rounds: a cluster elects a leader in that time, as a rule.
const ROUND_PAUSE: Duration = Duration::from_millis(500);
/// The keys that are asked for at once where their values are large.
const PAGE_KEYS: u32 = 4;
/// The most where they are small. At their largest so many fit into no answer: the page is then asked
/// for again as a small one.
const SMALL_PAGE_KEYS: u32 = 512;
/// The bytes of values that make a page large.
const LARGE_PAGE_BYTES: usize = 512 << 10;
/// The same, without their values.
const PAGE_NAMES: u32 = 1000;
/// The most bytes of an answer: base64 of a page's keys at their largest.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Why a call brought nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CallError {
    /// It was not done.
    #[error("{0}")]
    Refused(String),
    /// It may have been done.
    #[error("no answer came, and it may have been written: {0}")]
    Unknown(String),
    /// A page that was read has too many bytes.
    #[error("{0}: the answer has more than 64 MiB")]
    TooLarge(String),
}

/// A part of a transaction.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    Put(String, Vec<u8>),
    DeleteRange(KeyRange),
}

/// A key as it was at one revision.
pub(crate) struct Found {
    /// Its value, and the revision that wrote it.
    pub(crate) value: Option<(Vec<u8>, u64)>,
    /// The revision of the store.
    pub(crate) at: u64,
}

/// The calls to one cluster.
pub(crate) struct Gateway {
    inner: Arc<Inner>,
    /// Where calls run; gone only while this is dropped.
    runtime: Option<Runtime>,
    place: String,
}

struct Inner {
    http: Client,
    bases: Vec<String>,
    /// The member that answered last.
    preferred: AtomicUsize,
    login: Option<(String, SecretString)>,
    token: Mutex<Option<String>>,
    rounds: usize,
}

/// How long calls try.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// How long a member may take to answer.
    pub(super) answer: Duration,
    /// How many times every member is tried.
    pub(super) rounds: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { answer: ANSWER_LIMIT, rounds: ROUNDS }
    }
}

/// What one member made of a call.
enum Outcome {
    Answer(Value),
    /// Another member may do it.
    Next(CallError),
    Refused(CallError),
    /// The token is not known, or not any more.
    Login(String),
}

#[derive(Deserialize)]
struct Header {
    #[serde(deserialize_with = "number")]
    revision: u64,
}

#[derive(Deserialize)]
struct RangeAnswer {
    header: Header,
    #[serde(default)]
    kvs: Vec<KeyValue>,
    #[serde(default)]
    more: bool,
}

#[derive(Deserialize)]
struct KeyValue {
    #[serde(deserialize_with = "bytes")]
    key: Vec<u8>,
    /// Left out where it is empty.
    #[serde(default, deserialize_with = "bytes")]
    value: Vec<u8>,
    #[serde(deserialize_with = "number")]
    mod_revision: u64,
}

#[derive(Deserialize)]
struct TxnAnswer {
    header: Header,
    /// Left out where it is false.
    #[serde(default)]
    succeeded: bool,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: String,
}

/// What etcd says of a call that it refuses.
#[derive(Deserialize)]
struct Refusal {
    message: String,
    code: u32,
}

/// The codes of gRPC that say: try another member.
const PASSING: [u32; 3] = [1, 4, 14];
/// The code of gRPC for a login that does not count.
const UNAUTHENTICATED: u32 = 16;

impl Gateway {
    /// Prepares the calls; connects at the first one.
    pub(crate) fn new(
        address: &EtcdAddress,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Self::limited(address, Limits::default())
    }

    /// The same, for calls that try shorter or longer.
    pub(super) fn limited(
        address: &EtcdAddress,
        limits: Limits,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let tls = match address.authority() {
            Some(pem) => Tls::Bundle(vec![pem.to_owned()]),
            None if address.bases().iter().all(|base| base.starts_with("http:")) => Tls::Ignore,
            None => Tls::System,
        };
        let mut tls = client_config_with(&tls, tls_advice::FOR_A_STORE)?;
        if let Some(identity) = address.identity() {
            identity.show_on(&mut tls);
        }
        let http = Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_LIMIT.min(limits.answer))
            .timeout(limits.answer)
            .tcp_nodelay(true)
            .build()?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("etcd")
            .enable_all()
            .build()?;
        let inner = Inner {
            http,
            bases: address.bases(),
            preferred: AtomicUsize::new(0),
            login: address.login().cloned(),
            token: Mutex::new(None),
            rounds: limits.rounds,
        };
        Ok(Self { inner: Arc::new(inner), runtime: Some(runtime), place: address.to_string() })
    }

    /// The address, for people.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// A key as it is now.
    pub(crate) fn get(&self, key: &str) -> Result<Found, CallError> {
        let answer: RangeAnswer = self.read(json!({ "key": encoded(key) }))?;
        let value = answer.kvs.into_iter().next().map(|found| (found.value, found.mod_revision));
        Ok(Found { value, at: answer.header.revision })
    }

    /// The keys of a range and their values, as a revision has them.
    pub(super) fn range(
        &self,
        range: &KeyRange,
        revision: u64,
    ) -> Result<Vec<(String, Vec<u8>)>, CallError> {
        let page = json!({ "revision": revision.to_string() });
        self.pages(range, page, PAGE_KEYS..=SMALL_PAGE_KEYS)
    }

    /// The keys of a range as they are now, in order.
    pub(super) fn keys(&self, range: &KeyRange) -> Result<Vec<String>, CallError> {
        let page = json!({ "keys_only": true });
        Ok(self
            .pages(range, page, PAGE_NAMES..=PAGE_NAMES)?
            .into_iter()
            .map(|(key, _)| key)
            .collect())
    }

    /// The first keys of a range.
    pub(super) fn first_keys(
        &self,
        range: &KeyRange,
        most: usize,
    ) -> Result<Vec<String>, CallError> {
        let KeyRange(from, to) = range;
        let answer: RangeAnswer = self.read(json!({
            "key": encoded(from), "range_end": encoded(to), "limit": most.to_string(), "keys_only": true,
        }))?;
        let keys = answer.kvs.into_iter().filter_map(|one| String::from_utf8(one.key).ok());
        Ok(keys.collect())
    }

    /// A range in pages, each asked for as `question` says. A page has more keys, up to so many, where the one
    /// before was small: a journal of many small writes is read in few calls.
    fn pages(
        &self,
        range: &KeyRange,
        mut question: Value,
        keys: RangeInclusive<u32>,
    ) -> Result<Vec<(String, Vec<u8>)>, CallError> {
        let KeyRange(mut from, to) = range.clone();
        let (mut found, mut limit) = (Vec::new(), *keys.start());
        loop {
            question["key"] = encoded(&from).into();
            question["range_end"] = encoded(&to).into();
            question["limit"] = limit.to_string().into();
            let answer = match self.read(question.clone()) {
                Err(CallError::TooLarge(_)) if limit > *keys.start() => {
                    limit = *keys.start();
                    continue;
                }
                answer => answer?,
            };
            let bytes: usize = answer.kvs.iter().map(|one| one.value.len()).sum();
            let is_small = bytes < LARGE_PAGE_BYTES;
            limit = if is_small { (2 * limit).min(*keys.end()) } else { *keys.start() };
            for one in answer.kvs {
                let key = String::from_utf8(one.key)
                    .map_err(|_| CallError::Refused("a key is no text".to_owned()))?;
                found.push((key, one.value));
            }
            let Some((last, _)) = found.last().filter(|_| answer.more) else { return Ok(found) };
            from = format!("{last}\0");
        }
    }

    /// Writes one key.
    pub(super) fn put(&self, key: &str, value: &[u8]) -> Result<(), CallError> {
        let question = json!({ "key": encoded(key), "value": STANDARD.encode(value) });
        self.call::<Value>("kv/put", question).map(drop)
    }

    /// Deletes the keys of a range.
    pub(super) fn delete(&self, range: &KeyRange) -> Result<(), CallError> {
        let KeyRange(from, to) = range;
        let question = json!({ "key": encoded(from), "range_end": encoded(to) });
        self.call::<Value>("kv/deleterange", question).map(drop)
    }

    /// Does all operations if `key` was last written by this revision, zero where it must not be
    /// there. Returns the new revision; none where it was not so.
    pub(super) fn txn(
        &self,
        key: &str,
        revision: u64,
        operations: &[Operation],
    ) -> Result<Option<u64>, CallError> {
        let operations: Vec<Value> = operations.iter().map(Operation::as_json).collect();
        let revision = revision.to_string();
        let compare = json!({
            "key": encoded(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision,
        });
        let question = json!({ "compare": [compare], "success": operations });
        let answer: TxnAnswer = self.call("kv/txn", question)?;
        Ok(answer.succeeded.then_some(answer.header.revision))
    }

    /// Nothing can have happened where no answer came.
    fn read(&self, question: Value) -> Result<RangeAnswer, CallError> {
        self.call("kv/range", question).map_err(|error| match error {
            CallError::Refused(text) | CallError::Unknown(text) => CallError::Refused(text),
            CallError::TooLarge(_) => error,
        })
    }

    fn call<T: DeserializeOwned>(
        &self,
        path: &'static str,
        question: Value,
    ) -> Result<T, CallError> {
        let inner = Arc::clone(&self.inner);
        let answer = self.wait(async move { inner.call(path, &question).await })?;
        serde_json::from_value(answer)
            .map_err(|error| CallError::Unknown(format!("an answer is not etcd's: {error}")))
    }

    /// Runs a call on its own thread, and waits for it.
    fn wait<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, CallError>> + Send + 'static,
    ) -> Result<T, CallError> {
        let ended = || CallError::Unknown("the call's thread ended".to_owned());
        let runtime = self.runtime.as_ref().ok_or_else(ended)?;
        let (reply, answer) = mpsc::sync_channel(1);
        runtime.spawn(async move {
            // The caller waits for this alone.
            let _ = reply.send(call.await);
        });
        answer.recv().map_err(|_| ended())?
    }
}

#[cfg(any(test, feature = "testing"))]
impl Gateway {
    /// The token of the last login.
    #[cfg(test)]
    pub(crate) fn token_for_tests(&self) -> parking_lot::MutexGuard<'_, Option<String>> {
        self.inner.token.lock()
    }

    /// A call of any kind, as an administrator makes it.
    pub(crate) fn administer(&self, path: &'static str, question: Value) {
        self.call::<Value>(path, question).unwrap_or_default();
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

impl Operation {
    fn as_json(&self) -> Value {
        match self {
            Self::Put(key, value) => {
                json!({ "request_put": { "key": encoded(key), "value": STANDARD.encode(value) } })
            }
            Self::DeleteRange(KeyRange(from, to)) => json!({
                "request_delete_range": { "key": encoded(from), "range_end": encoded(to) },
            }),
        }
    }
}

impl Inner {
    async fn call(&self, path: &str, question: &Value) -> Result<Value, CallError> {
        let mut unknown = false;
        let mut last = CallError::Refused("it has no members".to_owned());
        for round in 0..self.rounds {
            if round > 0 {
                tokio::time::sleep(ROUND_PAUSE).await;
            }
            let first = self.preferred.load(Ordering::Relaxed);
            for step in 0..self.bases.len() {
                let member = (first + step) % self.bases.len();
                match self.call_member(member, path, question).await {
                    Outcome::Answer(answer) => {
                        self.preferred.store(member, Ordering::Relaxed);
                        return Ok(answer);
                    }
                    Outcome::Refused(error) if !unknown => return Err(error),
                    Outcome::Refused(error) | Outcome::Next(error) => {
                        unknown |= matches!(error, CallError::Unknown(_));
                        last = error;
                    }
                    Outcome::Login(text) => return Err(CallError::Refused(text)),
                }
            }
        }
        match last {
            CallError::Refused(text) if unknown => Err(CallError::Unknown(text)),
            CallError::Refused(_) | CallError::Unknown(_) | CallError::TooLarge(_) => Err(last),
        }
    }

    /// Calls one member, with a new login where the last one does not count any more.
    async fn call_member(&self, member: usize, path: &str, question: &Value) -> Outcome {
        let lacks_token = self.login.is_some() && self.token.lock().is_none();
        if lacks_token && let Err(outcome) = self.log_in(member).await {
            return outcome;
        }
        match self.send(member, path, question).await {
            Outcome::Login(_) if self.login.is_some() => match self.log_in(member).await {
                Ok(()) => self.send(member, path, question).await,
                Err(outcome) => outcome,
            },
            outcome @ (Outcome::Answer(_)
            | Outcome::Next(_)
            | Outcome::Refused(_)
            | Outcome::Login(_)) => outcome,
        }
    }

    async fn log_in(&self, member: usize) -> Result<(), Outcome> {
        let Some((user, password)) = &self.login else { return Ok(()) };
        *self.token.lock() = None;
        let question = json!({ "name": user, "password": password.expose_secret() });
        let answer = match self.send(member, "auth/authenticate", &question).await {
            Outcome::Answer(answer) => answer,
            // Nothing was written.
            Outcome::Next(CallError::Unknown(text)) => {
                return Err(Outcome::Next(CallError::Refused(text)));
            }
            other @ (Outcome::Next(CallError::Refused(_) | CallError::TooLarge(_))
            | Outcome::Refused(_)
            | Outcome::Login(_)) => return Err(other),
        };
        let answer: TokenAnswer = serde_json::from_value(answer).map_err(|_| {
            Outcome::Refused(CallError::Refused("its answer to a login has no token".to_owned()))
        })?;
        *self.token.lock() = Some(answer.token);
        Ok(())
    }

    async fn send(&self, member: usize, path: &str, question: &Value) -> Outcome {
        let base = &self.bases[member];
        let mut request = self.http.post(format!("{base}/v3/{path}")).json(question);
        if let Some(token) = self.token.lock().clone() {
            request = request.header("authorization", token);
        }
        let mut answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => {
                // Without a connection nothing was sent.
                let sent = !error.is_connect();
                let text = format!("{base}: {}", chain(&error.without_url()));
                let error = if sent { CallError::Unknown(text) } else { CallError::Refused(text) };
                return Outcome::Next(error);
            }
        };
        let status = answer.status();
        let mut body = Vec::new();
        loop {
            match answer.chunk().await {
                Ok(Some(part)) if body.len() + part.len() <= ANSWER_BYTES_MAX => body.extend(part),
                Ok(Some(_)) => {
                    return Outcome::Refused(CallError::TooLarge(base.clone()));
                }
                Ok(None) => break,
                Err(error) => {
                    let text = format!("{base}: {}", chain(&error.without_url()));
                    return Outcome::Next(CallError::Unknown(text));
                }
            }
        }
        outcome(base, status, &body)
    }
}

/// What an answer means.
fn outcome(base: &str, status: StatusCode, body: &[u8]) -> Outcome {
    if status.is_success() {
        let answer = serde_json::from_slice(body);
        return answer.map_or_else(
            |error| {
                let text = format!("{base}: an answer is not etcd's: {error}");
                Outcome::Next(CallError::Unknown(text))
            },
            Outcome::Answer,
        );
    }
    let Ok(refusal) = serde_json::from_slice::<Refusal>(body) else {
        let text = format!("{base}: an answer with status {} is not etcd's", status.as_u16());
        return Outcome::Next(CallError::Unknown(text));
    };
    let text = format!("{base}: {}", refusal.message);
    match refusal.code {
        UNAUTHENTICATED => Outcome::Login(text),
        code if PASSING.contains(&code) => Outcome::Next(CallError::Unknown(text)),
        _ => Outcome::Refused(CallError::Refused(text)),
    }
}

fn encoded(key: &str) -> String {
    STANDARD.encode(key)
}

/// The gateway writes 64-bit numbers as text.
fn number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

fn bytes<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    STANDARD.decode(String::deserialize(from)?).map_err(serde::de::Error::custom)
}
