//! Webhooks of sources: verified, counted once, and turned into a poll.
//!
//! A webhook is believed by a signature over its raw body, or, for GitLab, by a secret that it
//! carries. A webhook has one effect: the source is polled at once. A lost webhook costs the time
//! until the next poll, and a repeated one costs nothing.
//!
//! In: headers and body, from the HTTP server. [`Hooks::precheck`] refuses what no body can make
//! valid, so that the server does not read a body in vain; [`Hooks::receive`] verifies. Out: a
//! [`HookOutcome`], or a [`HookRefusal`] that the server answers with a status.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use drover_model::id::SourceId;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::{SignedDuration, Timestamp};
use parking_lot::{Mutex, RwLock};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// How long a delivery is remembered, to recognise it when it is sent again.
const DELIVERY_MEMORY: Duration = Duration::from_secs(3600);
/// The most deliveries that are remembered over all sources; the oldest go first.
const DELIVERIES_MAX: usize = 10_000;
/// The longest name of a delivery that is stored as it is; of a longer one the digest is stored.
const DELIVERY_NAME_MAX_BYTES: usize = 128;
/// The most webhooks of one source that are accepted within [`HOOK_WINDOW`].
const HOOKS_PER_WINDOW: u32 = 1_000;
const HOOK_WINDOW: Duration = Duration::from_secs(10);

/// Headers that carry the signature, each with the prefix of its hexadecimal digits.
pub(crate) const SIGNATURE_HEADERS: [(&str, &str); 3] =
    [("x-hub-signature-256", "sha256="), ("x-gitea-signature", ""), ("x-forgejo-signature", "")];
/// Headers that name the delivery; a repeated delivery has the same name.
pub(crate) const DELIVERY_HEADERS: [&str; 3] =
    ["x-github-delivery", "x-gitea-delivery", "x-forgejo-delivery"];

/// Headers that name the event.
const EVENT_HEADERS: [&str; 2] = ["x-github-event", "x-gitea-event"];
/// GitLab's headers: the secret as it is, the event, and the name of the delivery. The idempotency
/// key is the same for a repeated delivery. The event UUID is shared by webhooks that webhooks
/// caused, so it counts only where the key is missing.
const GITLAB_TOKEN_HEADER: &str = "x-gitlab-token";
const GITLAB_EVENT_HEADER: &str = "x-gitlab-event";
const GITLAB_DELIVERY_HEADERS: [&str; 2] = ["idempotency-key", "x-gitlab-event-uuid"];
/// GitLab's events that may mean news of jobs.
const GITLAB_JOB_EVENTS: [&str; 2] = ["Job Hook", "Pipeline Hook"];

/// How a source's webhooks prove who sent them; the kind of the source alone decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookAuth {
    /// A signature over the raw body.
    Signature,
    /// The secret itself, in a header: who reads one webhook can send others. GitLab offers no
    /// better.
    Token,
}

/// What a source's webhooks are verified with.
#[derive(Debug, Clone)]
pub struct HookSecret {
    pub auth: HookAuth,
    pub secret: SecretString,
}

/// The result of a verified webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookOutcome {
    /// The source may have news, and is polled.
    News,
    /// The delivery was received before, or is older than the deliveries that are remembered.
    Repeated,
    /// The event says nothing of jobs, or only tests the connection.
    Ignored,
}

/// Why a webhook is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookRefusal {
    /// No source of this name accepts webhooks.
    UnknownSource,
    /// The signature or secret is missing or wrong.
    NotAuthentic,
    /// The body is signed and is no JSON.
    NotJson,
    /// There were too many webhooks; the next one is accepted after this time.
    TooMany(Duration),
}

/// Called with the body of each webhook that is news.
type Hint = Box<dyn Fn(&SourceId, &[u8]) + Send + Sync>;

/// When a webhook arrived, by both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// By the monotonic clock.
    pub at: Instant,
    /// By the wall clock.
    pub wall: Timestamp,
}

impl Arrival {
    /// The current time.
    pub fn now() -> Self {
        Self { at: Instant::now(), wall: Timestamp::now() }
    }
}

/// The sources that send webhooks, and the deliveries that were received.
#[derive(Default)]
pub struct Hooks {
    hint: Option<Hint>,
    secrets: RwLock<BTreeMap<SourceId, HookSecret>>,
    received: Mutex<Received>,
}

#[derive(Default)]
struct Received {
    /// The oldest first.
    deliveries: VecDeque<(Instant, SourceId, String)>,
    counts: BTreeMap<SourceId, (Instant, u32)>,
}

impl Hooks {
    /// Calls `hint` with each webhook that is news, before its source is polled.
    pub fn with_hint(hint: impl Fn(&SourceId, &[u8]) + Send + Sync + 'static) -> Self {
        Self { hint: Some(Box::new(hint)), ..Self::default() }
    }

    /// Replaces all secrets, after a reload of the configuration.
    pub fn replace(&self, secrets: BTreeMap<SourceId, HookSecret>) {
        *self.secrets.write() = secrets;
    }

    /// Refuses by the headers alone what no body can make valid: an unknown source, a missing or
    /// malformed signature, a wrong secret, too many webhooks.
    pub fn precheck<'a>(
        &self,
        source: &SourceId,
        header: impl Fn(&str) -> Option<&'a str>,
        now: Instant,
    ) -> Result<(), HookRefusal> {
        let HookSecret { auth, secret } = self.secret(source)?;
        match auth {
            HookAuth::Signature => drop(signature(&header).ok_or(HookRefusal::NotAuthentic)?),
            HookAuth::Token => check_secret(&secret, &header)?,
        }
        self.received.lock().has_room(source, now)
    }

    fn secret(&self, source: &SourceId) -> Result<HookSecret, HookRefusal> {
        let secrets = self.secrets.read();
        secrets.get(source).cloned().ok_or(HookRefusal::UnknownSource)
    }

    /// Verifies a webhook by its headers and its raw body.
    pub fn receive<'a>(
        &self,
        source: &SourceId,
        header: impl Fn(&str) -> Option<&'a str>,
        body: &[u8],
        arrival: Arrival,
    ) -> Result<HookOutcome, HookRefusal> {
        let now = arrival.at;
        let HookSecret { auth, secret } = self.secret(source)?;
        let delivery = match auth {
            HookAuth::Signature => {
                let signature = signature(&header).ok_or(HookRefusal::NotAuthentic)?;
                if !is_signed(&secret, body, &signature) {
                    return Err(HookRefusal::NotAuthentic);
                }
                if EVENT_HEADERS.iter().find_map(|name| header(name)) == Some("ping") {
                    return Ok(HookOutcome::Ignored);
                }
                DELIVERY_HEADERS.iter().find_map(|name| header(name))
            }
            HookAuth::Token => {
                check_secret(&secret, &header)?;
                if header(GITLAB_EVENT_HEADER)
                    .is_some_and(|event| !GITLAB_JOB_EVENTS.contains(&event))
                {
                    return Ok(HookOutcome::Ignored);
                }
                GITLAB_DELIVERY_HEADERS.iter().find_map(|name| header(name))
            }
        };
        if !is_json(body, header("content-type").unwrap_or_default()) {
            return Err(HookRefusal::NotJson);
        }
        let mut received = self.received.lock();
        received.admits(source, now)?;
        let mut heard = received.take(source, delivery, now);
        // The signature covers the body and not the delivery's name, so a copy under another name
        // is recognised by the digest of its body.
        if let Some(job) = JobHook::of(body) {
            let margin = SignedDuration::try_from(DELIVERY_MEMORY).unwrap_or_default();
            let old = job.dated.is_some_and(|dated| dated + margin < arrival.wall);
            if old || received.take(source, Some(&digest_of(body)), now) == HookOutcome::Repeated {
                heard = HookOutcome::Repeated;
            }
        }
        drop(received);
        if let (HookOutcome::News, Some(hint)) = (heard, &self.hint) {
            hint(source, body);
        }
        Ok(heard)
    }
}

/// Whether a body is JSON, or the form that GitHub and Gitea send instead where they are asked to: it has
/// the JSON in one field.
fn is_json(body: &[u8], kind: &str) -> bool {
    let is_form = kind.starts_with("application/x-www-form-urlencoded");
    (is_form && body.starts_with(b"payload="))
        || serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok()
}

/// When a webhook about a job was sent, by its body.
struct JobHook {
    /// None for a job that waits: GitHub may have delayed it for days before it sent the webhook.
    dated: Option<Timestamp>,
}

impl JobHook {
    fn of(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Hook {
            action: String,
            workflow_job: Dates,
        }
        #[derive(Deserialize)]
        struct Dates {
            started_at: Option<String>,
            completed_at: Option<String>,
        }
        let Hook { action, workflow_job: Dates { started_at, completed_at } } =
            serde_json::from_slice(body).ok()?;
        let text = match action.as_str() {
            "in_progress" => started_at,
            "completed" => completed_at,
            _ => None,
        };
        Some(Self { dated: text.and_then(|text| text.parse().ok()) })
    }
}

/// The name of a delivery as it is stored and compared: itself, or the digest of a long one.
fn short(name: &str) -> Cow<'_, str> {
    if name.len() <= DELIVERY_NAME_MAX_BYTES {
        return Cow::Borrowed(name);
    }
    Cow::Owned(format!("sha256:{}", digest_of(name.as_bytes())))
}

fn digest_of(body: &[u8]) -> String {
    Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Received {
    fn admits(&mut self, source: &SourceId, now: Instant) -> Result<(), HookRefusal> {
        let (since, count) = self.counts.entry(source.clone()).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= HOOK_WINDOW {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        let left = HOOK_WINDOW.saturating_sub(now.saturating_duration_since(*since));
        if *count > HOOKS_PER_WINDOW { Err(HookRefusal::TooMany(left)) } else { Ok(()) }
    }

    /// Whether one more webhook of this source would be accepted; does not count it.
    fn has_room(&self, source: &SourceId, now: Instant) -> Result<(), HookRefusal> {
        let Some((since, count)) = self.counts.get(source) else { return Ok(()) };
        let left = HOOK_WINDOW.saturating_sub(now.saturating_duration_since(*since));
        if *count < HOOKS_PER_WINDOW || left.is_zero() {
            Ok(())
        } else {
            Err(HookRefusal::TooMany(left))
        }
    }

    fn take(&mut self, source: &SourceId, delivery: Option<&str>, now: Instant) -> HookOutcome {
        let old = |at: &Instant| now.saturating_duration_since(*at) >= DELIVERY_MEMORY;
        while self.deliveries.front().is_some_and(|(at, ..)| old(at)) {
            self.deliveries.pop_front();
        }
        // A webhook without a name may be any one, and one poll too many does no harm.
        let Some(delivery) = delivery.map(|name| short(name).into_owned()) else {
            return HookOutcome::News;
        };
        let same =
            |(_, of, received): &(Instant, SourceId, String)| of == source && *received == delivery;
        if self.deliveries.iter().any(same) {
            return HookOutcome::Repeated;
        }
        if self.deliveries.len() >= DELIVERIES_MAX {
            self.deliveries.pop_front();
        }
        self.deliveries.push_back((now, source.clone(), delivery));
        HookOutcome::News
    }
}

/// The signature that a webhook claims.
fn signature<'a>(header: &impl Fn(&str) -> Option<&'a str>) -> Option<Vec<u8>> {
    SIGNATURE_HEADERS.iter().find_map(|(name, before)| {
        let digits = header(name)?.strip_prefix(before)?;
        bytes_of(digits)
    })
}

/// Verifies the secret of a webhook, in constant time.
fn check_secret<'a>(
    secret: &SecretString,
    header: &impl Fn(&str) -> Option<&'a str>,
) -> Result<(), HookRefusal> {
    let given = header(GITLAB_TOKEN_HEADER).ok_or(HookRefusal::NotAuthentic)?;
    let right = given.as_bytes().ct_eq(secret.expose_secret().as_bytes());
    if bool::from(right) { Ok(()) } else { Err(HookRefusal::NotAuthentic) }
}

/// Whether this is the HMAC-SHA-256 of the body, compared in constant time.
fn is_signed(secret: &SecretString, body: &[u8], signature: &[u8]) -> bool {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()) else {
        return false;
    };
    mac.update(body);
    mac.verify_slice(signature).is_ok()
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    if !digits.is_ascii() || digits.len() != 64 {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok();
    (0..32).map(byte).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn hooks() -> Hooks {
        let hooks = Hooks::default();
        let secret = |auth| HookSecret { auth, secret: "key".to_owned().into() };
        let lab = (SourceId::new("lab"), secret(HookAuth::Token));
        hooks.replace([(SourceId::new("git"), secret(HookAuth::Signature)), lab].into());
        hooks
    }

    fn signature(key: &str, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
        mac.update(body);
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn hear(
        hooks: &Hooks,
        source: &str,
        headers: &[(&str, String)],
    ) -> Result<HookOutcome, HookRefusal> {
        let header = |name: &str| {
            headers.iter().find(|(received, _)| *received == name).map(|(_, value)| value.as_str())
        };
        hooks.receive(&SourceId::new(source), header, b"{}", Arrival::now())
    }

    // Invariant: a webhook is accepted only from a sender that knows the secret.

    #[test]
    fn a_hook_is_heard_by_its_signature_alone() {
        let (hooks, good) = (hooks(), signature("key", b"{}"));
        let hub = |digits: &str| [("x-hub-signature-256", format!("sha256={digits}"))];
        assert_eq!(hear(&hooks, "git", &hub(&good)), Ok(HookOutcome::News));
        assert_eq!(
            hear(&hooks, "git", &[("x-gitea-signature", good.clone())]),
            Ok(HookOutcome::News)
        );
        for wrong in [&signature("other", b"{}"), &signature("key", b"{ }"), "", "é"] {
            assert_eq!(hear(&hooks, "git", &hub(wrong)), Err(HookRefusal::NotAuthentic), "{wrong}");
        }
        assert_eq!(hear(&hooks, "git", &[]), Err(HookRefusal::NotAuthentic));
        assert_eq!(hear(&hooks, "hub", &hub(&good)), Err(HookRefusal::UnknownSource));
    }

    #[test]
    fn which_proof_is_taken_is_by_the_source_and_by_nothing_in_the_hook() {
        let (hooks, good) = (hooks(), signature("key", b"{}"));
        let token = |text: &str| ("x-gitlab-token", text.to_owned());
        let signed = ("x-gitea-signature", good);
        assert_eq!(hear(&hooks, "lab", &[token("key")]), Ok(HookOutcome::News));
        assert_eq!(hear(&hooks, "git", &[token("key")]), Err(HookRefusal::NotAuthentic));
        assert_eq!(
            hear(&hooks, "lab", std::slice::from_ref(&signed)),
            Err(HookRefusal::NotAuthentic)
        );
        for wrong in ["", "ke", "keys", "KEY"] {
            assert_eq!(
                hear(&hooks, "lab", &[token(wrong)]),
                Err(HookRefusal::NotAuthentic),
                "{wrong}"
            );
        }
        let both = [signed, token("wrong")];
        assert_eq!(hear(&hooks, "lab", &both), Err(HookRefusal::NotAuthentic));
    }

    #[test]
    fn of_a_gitlab_only_news_of_jobs_counts_and_each_delivery_once() {
        let hooks = hooks();
        let hear = |event: &str, key: Option<&str>, uuid: &str| {
            let mut headers = vec![("x-gitlab-token", "key".to_owned())];
            headers.push(("x-gitlab-event", event.to_owned()));
            headers.push(("x-gitlab-event-uuid", uuid.to_owned()));
            headers.extend(key.map(|key| ("idempotency-key", key.to_owned())));
            self::hear(&hooks, "lab", &headers)
        };
        assert_eq!(hear("Push Hook", Some("a"), "u"), Ok(HookOutcome::Ignored));
        assert_eq!(hear("Job Hook", Some("a"), "u"), Ok(HookOutcome::News));
        assert_eq!(hear("Job Hook", Some("a"), "u"), Ok(HookOutcome::Repeated), "sent again");
        assert_eq!(hear("Job Hook", Some("b"), "u"), Ok(HookOutcome::News), "one led to the other");
        assert_eq!(hear("Job Hook", None, "v"), Ok(HookOutcome::News));
        assert_eq!(hear("Job Hook", None, "v"), Ok(HookOutcome::Repeated));
    }

    // Invariant: a delivery counts once, and the number of webhooks is bounded.

    #[test]
    fn a_delivery_that_comes_again_is_no_news() {
        let (hooks, good) = (hooks(), signature("key", b"{}"));
        let named =
            |id: &str| [("x-gitea-signature", good.clone()), ("x-gitea-delivery", id.to_owned())];
        let heard: Vec<_> = ["a", "a", "b", "a"].map(|id| hear(&hooks, "git", &named(id))).into();
        let (news, again) = (Ok(HookOutcome::News), Ok(HookOutcome::Repeated));
        assert_eq!(heard, [news, again, news, again]);
    }

    #[test]
    fn a_delivery_counts_once_however_long_its_name_is() {
        let mut received = Received::default();
        let (source, now) = (SourceId::new("git"), Instant::now());
        for length in [127, 128, 129, 5_000] {
            let name = "é".repeat(length);
            let other = format!("{name}2");
            assert_eq!(received.take(&source, Some(&name), now), HookOutcome::News, "{length}");
            assert_eq!(received.take(&source, Some(&name), now), HookOutcome::Repeated, "{length}");
            assert_eq!(received.take(&source, Some(&other), now), HookOutcome::News, "{length}");
        }
        assert!(received.deliveries.iter().all(|(.., name)| name.len() <= DELIVERY_NAME_MAX_BYTES));
    }

    #[test]
    fn a_job_of_hours_ago_is_no_news_and_neither_is_a_copy_under_another_name() {
        let wall: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let hinted = std::sync::Arc::new(Mutex::new(0));
        let count = std::sync::Arc::clone(&hinted);
        let hooks = Hooks::with_hint(move |_, _| *count.lock() += 1);
        let secret = HookSecret { auth: HookAuth::Signature, secret: "key".to_owned().into() };
        hooks.replace([(SourceId::new("git"), secret)].into());
        let hear = |action: &str, hour: u32, id: &str, event: &str| {
            let body = format!(
                "{{\"action\":\"{action}\",\"workflow_job\":{{\
                 \"started_at\":\"2026-01-01T{hour}:00:00Z\",\
                 \"completed_at\":\"2026-01-01T{hour}:30:00Z\"}}}}"
            );
            let signed = format!("sha256={}", signature("key", body.as_bytes()));
            let header = |name: &str| match name {
                "x-hub-signature-256" => Some(signed.as_str()),
                "x-github-delivery" => Some(id),
                "x-github-event" => Some(event),
                _ => None,
            };
            let arrival = Arrival { at: Instant::now(), wall };
            hooks.receive(&SourceId::new("git"), header, body.as_bytes(), arrival).unwrap()
        };
        assert_eq!(hear("completed", 10, "a", "workflow_job"), HookOutcome::Repeated, "it is old");
        assert_eq!(hear("completed", 11, "b", "workflow_job"), HookOutcome::News);
        assert_eq!(hear("completed", 11, "c", "workflow_job"), HookOutcome::Repeated, "a copy");
        assert_eq!(hear("in_progress", 10, "d", "workflow_job"), HookOutcome::Repeated);
        assert_eq!(
            hear("queued", 10, "e", "workflow_job"),
            HookOutcome::News,
            "held back until now"
        );
        assert_eq!(hear("queued", 11, "f", "ping"), HookOutcome::Ignored);
        assert_eq!(
            hear("queued", 11, "f", "workflow_job"),
            HookOutcome::News,
            "a ping is no delivery"
        );
        assert_eq!(*hinted.lock(), 3);
    }

    #[test]
    fn deliveries_are_forgotten_in_the_end_and_hooks_are_counted() {
        let mut received = Received::default();
        let (source, start) = (SourceId::new("git"), Instant::now());
        for n in 0..DELIVERIES_MAX + 5 {
            received.take(&source, Some(&n.to_string()), start);
        }
        assert_eq!(received.deliveries.len(), DELIVERIES_MAX);
        assert_eq!(received.take(&source, Some("9999"), start), HookOutcome::Repeated);
        assert_eq!(
            received.take(&source, Some("9999"), start + DELIVERY_MEMORY),
            HookOutcome::News
        );
        assert!((0..HOOKS_PER_WINDOW).all(|_| received.admits(&source, start).is_ok()));
        let later = Duration::from_millis(3_400);
        let left = HOOK_WINDOW - later;
        assert_eq!(received.admits(&source, start + later), Err(HookRefusal::TooMany(left)));
        assert_eq!(received.admits(&source, start + HOOK_WINDOW), Ok(()));
    }
}
