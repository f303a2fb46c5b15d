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
const REMEMBERED: Duration = Duration::from_secs(3600);
/// The most deliveries that are remembered over all sources; the oldest go first.
const DELIVERIES: usize = 10_000;
/// The longest name of a delivery that is stored as it is; of a longer one the digest is stored.
const NAME: usize = 128;
/// The most webhooks of one source that are accepted within [`WINDOW`].
const HOOKS: u32 = 1_000;
const WINDOW: Duration = Duration::from_secs(10);

/// Headers that carry the signature, each with the prefix of its hexadecimal digits.
pub const SIGNATURES: [(&str, &str); 3] =
    [("x-hub-signature-256", "sha256="), ("x-gitea-signature", ""), ("x-forgejo-signature", "")];
/// Headers that name the delivery; a repeated delivery has the same name.
pub const DELIVERY: [&str; 3] = ["x-github-delivery", "x-gitea-delivery", "x-forgejo-delivery"];

/// Headers that name the event.
const EVENT: [&str; 2] = ["x-github-event", "x-gitea-event"];
/// GitLab's headers: the secret as it is, the event, and the name of the delivery. The idempotency
/// key
/// is the same for a repeated delivery. The event UUID is shared by webhooks that webhooks caused,
/// so
/// it counts only where the key is missing.
const TOKEN: &str = "x-gitlab-token";
const EVENT_OF_TOKENS: &str = "x-gitlab-event";
const DELIVERY_OF_TOKENS: [&str; 2] = ["idempotency-key", "x-gitlab-event-uuid"];
/// GitLab's events that may mean news of jobs.
const EVENTS: [&str; 2] = ["Job Hook", "Pipeline Hook"];

/// How a source's webhooks prove who sent them; the kind of the source alone decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookProof {
    /// A signature over the raw body.
    Signature,
    /// The secret itself, in a header: who reads one webhook can send others. GitLab offers no
    /// better.
    Token,
}

/// What a source's webhooks are verified with.
#[derive(Debug, Clone)]
pub struct HookSecret {
    pub proof: HookProof,
    pub secret: SecretString,
}

/// The result of a verified webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// The source may have news, and is polled.
    News,
    /// The delivery was received before, or is older than the deliveries that are remembered.
    Again,
    /// The event says nothing of jobs, or only tests the connection.
    Aside,
}

/// Why a webhook is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unheard {
    /// No source of this name accepts webhooks.
    Unknown,
    /// The signature or secret is missing or wrong.
    Unsigned,
    /// There were too many webhooks; the next one is accepted after this time.
    TooMany(Duration),
}

/// Called with the body of each webhook that is news.
type Hint = Box<dyn Fn(&SourceId, &[u8]) + Send + Sync>;

/// When a webhook arrived, by both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Came {
    /// By the monotonic clock.
    pub at: Instant,
    /// By the wall clock.
    pub wall: Timestamp,
}

impl Came {
    /// Now.
    pub fn now() -> Self {
        Self { at: Instant::now(), wall: Timestamp::now() }
    }
}

/// The sources that send webhooks, and the deliveries that were received.
#[derive(Default)]
pub struct Hooks {
    hint: Option<Hint>,
    secrets: RwLock<BTreeMap<SourceId, HookSecret>>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The oldest first.
    deliveries: VecDeque<(Instant, SourceId, String)>,
    counts: BTreeMap<SourceId, (Instant, u32)>,
}

impl Hooks {
    /// Calls `hint` with each webhook that is news, before its source is polled.
    pub fn hinting(hint: impl Fn(&SourceId, &[u8]) + Send + Sync + 'static) -> Self {
        Self { hint: Some(Box::new(hint)), ..Self::default() }
    }

    /// Replaces all secrets, after a reload of the configuration.
    pub fn replace(&self, secrets: BTreeMap<SourceId, HookSecret>) {
        *self.secrets.write() = secrets;
    }

    /// Refuses by the headers alone what no body can make valid: an unknown source, a missing or
    /// malformed signature, a wrong secret, too many webhooks.
    pub fn promising<'a>(
        &self,
        source: &SourceId,
        header: impl Fn(&str) -> Option<&'a str>,
        now: Instant,
    ) -> Result<(), Unheard> {
        let HookSecret { proof, secret } = self.secret(source)?;
        match proof {
            HookProof::Signature => drop(signature(&header).ok_or(Unheard::Unsigned)?),
            HookProof::Token => by_secret(&secret, &header)?,
        }
        self.known.lock().has_room(source, now)
    }

    fn secret(&self, source: &SourceId) -> Result<HookSecret, Unheard> {
        let secrets = self.secrets.read();
        secrets.get(source).cloned().ok_or(Unheard::Unknown)
    }

    /// Verifies a webhook by its headers and its raw body.
    pub fn hear<'a>(
        &self,
        source: &SourceId,
        header: impl Fn(&str) -> Option<&'a str>,
        body: &[u8],
        came: Came,
    ) -> Result<Heard, Unheard> {
        let now = came.at;
        let HookSecret { proof, secret } = self.secret(source)?;
        let delivery = match proof {
            HookProof::Signature => {
                let signature = signature(&header).ok_or(Unheard::Unsigned)?;
                if !is_signed(&secret, body, &signature) {
                    return Err(Unheard::Unsigned);
                }
                if EVENT.iter().find_map(|name| header(name)) == Some("ping") {
                    return Ok(Heard::Aside);
                }
                DELIVERY.iter().find_map(|name| header(name))
            }
            HookProof::Token => {
                by_secret(&secret, &header)?;
                if header(EVENT_OF_TOKENS).is_some_and(|event| !EVENTS.contains(&event)) {
                    return Ok(Heard::Aside);
                }
                DELIVERY_OF_TOKENS.iter().find_map(|name| header(name))
            }
        };
        let mut known = self.known.lock();
        known.admits(source, now)?;
        let mut heard = known.take(source, delivery, now);
        // The signature covers the body and not the delivery's name, so a copy under another name
        // is
        // recognised by the digest of its body.
        if let Some(job) = Job::of(body) {
            let margin = SignedDuration::try_from(REMEMBERED).unwrap_or_default();
            let old = job.dated.is_some_and(|dated| dated + margin < came.wall);
            if old || known.take(source, Some(&digest_of(body)), now) == Heard::Again {
                heard = Heard::Again;
            }
        }
        drop(known);
        if let (Heard::News, Some(hint)) = (heard, &self.hint) {
            hint(source, body);
        }
        Ok(heard)
    }
}

/// When a webhook about a job was sent, by its body.
struct Job {
    /// None for a job that waits: GitHub may have delayed it for days before it sent the webhook.
    dated: Option<Timestamp>,
}

impl Job {
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
    if name.len() <= NAME {
        return Cow::Borrowed(name);
    }
    Cow::Owned(format!("sha256:{}", digest_of(name.as_bytes())))
}

fn digest_of(body: &[u8]) -> String {
    Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Known {
    fn admits(&mut self, source: &SourceId, now: Instant) -> Result<(), Unheard> {
        let (since, count) = self.counts.entry(source.clone()).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= WINDOW {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        let left = WINDOW.saturating_sub(now.saturating_duration_since(*since));
        if *count > HOOKS { Err(Unheard::TooMany(left)) } else { Ok(()) }
    }

    /// Whether one more webhook of this source would be accepted; does not count it.
    fn has_room(&self, source: &SourceId, now: Instant) -> Result<(), Unheard> {
        let Some((since, count)) = self.counts.get(source) else { return Ok(()) };
        let left = WINDOW.saturating_sub(now.saturating_duration_since(*since));
        if *count < HOOKS || left.is_zero() { Ok(()) } else { Err(Unheard::TooMany(left)) }
    }

    fn take(&mut self, source: &SourceId, delivery: Option<&str>, now: Instant) -> Heard {
        let old = |at: &Instant| now.saturating_duration_since(*at) >= REMEMBERED;
        while self.deliveries.front().is_some_and(|(at, ..)| old(at)) {
            self.deliveries.pop_front();
        }
        // A webhook without a name may be any one, and one poll too many does no harm.
        let Some(delivery) = delivery.map(|name| short(name).into_owned()) else {
            return Heard::News;
        };
        let same =
            |(_, of, known): &(Instant, SourceId, String)| of == source && *known == delivery;
        if self.deliveries.iter().any(same) {
            return Heard::Again;
        }
        if self.deliveries.len() >= DELIVERIES {
            self.deliveries.pop_front();
        }
        self.deliveries.push_back((now, source.clone(), delivery));
        Heard::News
    }
}

/// The signature that a webhook claims.
fn signature<'a>(header: &impl Fn(&str) -> Option<&'a str>) -> Option<Vec<u8>> {
    SIGNATURES.iter().find_map(|(name, before)| {
        let digits = header(name)?.strip_prefix(before)?;
        bytes_of(digits)
    })
}

/// Verifies the secret of a webhook, in constant time.
fn by_secret<'a>(
    secret: &SecretString,
    header: &impl Fn(&str) -> Option<&'a str>,
) -> Result<(), Unheard> {
    let given = header(TOKEN).ok_or(Unheard::Unsigned)?;
    let right = given.as_bytes().ct_eq(secret.expose_secret().as_bytes());
    if bool::from(right) { Ok(()) } else { Err(Unheard::Unsigned) }
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
        let secret = |proof| HookSecret { proof, secret: "key".to_owned().into() };
        let lab = (SourceId::new("lab"), secret(HookProof::Token));
        hooks.replace([(SourceId::new("git"), secret(HookProof::Signature)), lab].into());
        hooks
    }

    fn signature(key: &str, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
        mac.update(body);
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn hear(hooks: &Hooks, source: &str, headers: &[(&str, String)]) -> Result<Heard, Unheard> {
        let header = |name: &str| {
            headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
        };
        hooks.hear(&SourceId::new(source), header, b"body", Came::now())
    }

    // Invariant: a webhook is accepted only from a sender that knows the secret.

    #[test]
    fn a_hook_is_heard_by_its_signature_alone() {
        let (hooks, good) = (hooks(), signature("key", b"body"));
        let hub = |digits: &str| [("x-hub-signature-256", format!("sha256={digits}"))];
        assert_eq!(hear(&hooks, "git", &hub(&good)), Ok(Heard::News));
        assert_eq!(hear(&hooks, "git", &[("x-gitea-signature", good.clone())]), Ok(Heard::News));
        for wrong in [&signature("other", b"body"), &signature("key", b"bodY"), "", "é"] {
            assert_eq!(hear(&hooks, "git", &hub(wrong)), Err(Unheard::Unsigned), "{wrong}");
        }
        assert_eq!(hear(&hooks, "git", &[]), Err(Unheard::Unsigned));
        assert_eq!(hear(&hooks, "hub", &hub(&good)), Err(Unheard::Unknown));
    }

    #[test]
    fn which_proof_is_taken_is_by_the_source_and_by_nothing_in_the_hook() {
        let (hooks, good) = (hooks(), signature("key", b"body"));
        let token = |text: &str| ("x-gitlab-token", text.to_owned());
        let signed = ("x-gitea-signature", good);
        assert_eq!(hear(&hooks, "lab", &[token("key")]), Ok(Heard::News));
        assert_eq!(hear(&hooks, "git", &[token("key")]), Err(Unheard::Unsigned));
        assert_eq!(hear(&hooks, "lab", std::slice::from_ref(&signed)), Err(Unheard::Unsigned));
        for wrong in ["", "ke", "keys", "KEY"] {
            assert_eq!(hear(&hooks, "lab", &[token(wrong)]), Err(Unheard::Unsigned), "{wrong}");
        }
        let both = [signed, token("wrong")];
        assert_eq!(hear(&hooks, "lab", &both), Err(Unheard::Unsigned));
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
        assert_eq!(hear("Push Hook", Some("a"), "u"), Ok(Heard::Aside));
        assert_eq!(hear("Job Hook", Some("a"), "u"), Ok(Heard::News));
        assert_eq!(hear("Job Hook", Some("a"), "u"), Ok(Heard::Again), "sent again");
        assert_eq!(hear("Job Hook", Some("b"), "u"), Ok(Heard::News), "one led to the other");
        assert_eq!(hear("Job Hook", None, "v"), Ok(Heard::News));
        assert_eq!(hear("Job Hook", None, "v"), Ok(Heard::Again));
    }

    // Invariant: a delivery counts once, and the number of webhooks is bounded.

    #[test]
    fn a_delivery_that_comes_again_is_no_news() {
        let (hooks, good) = (hooks(), signature("key", b"body"));
        let named =
            |id: &str| [("x-gitea-signature", good.clone()), ("x-gitea-delivery", id.to_owned())];
        let heard: Vec<_> = ["a", "a", "b", "a"].map(|id| hear(&hooks, "git", &named(id))).into();
        let (news, again) = (Ok(Heard::News), Ok(Heard::Again));
        assert_eq!(heard, [news, again, news, again]);
    }

    #[test]
    fn a_delivery_counts_once_however_long_its_name_is() {
        let mut known = Known::default();
        let (source, now) = (SourceId::new("git"), Instant::now());
        for length in [127, 128, 129, 5_000] {
            let name = "é".repeat(length);
            let other = format!("{name}2");
            assert_eq!(known.take(&source, Some(&name), now), Heard::News, "{length}");
            assert_eq!(known.take(&source, Some(&name), now), Heard::Again, "{length}");
            assert_eq!(known.take(&source, Some(&other), now), Heard::News, "{length}");
        }
        assert!(known.deliveries.iter().all(|(.., name)| name.len() <= NAME));
    }

    #[test]
    fn a_job_of_hours_ago_is_no_news_and_neither_is_a_copy_under_another_name() {
        let wall: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let hinted = std::sync::Arc::new(Mutex::new(0));
        let count = std::sync::Arc::clone(&hinted);
        let hooks = Hooks::hinting(move |_, _| *count.lock() += 1);
        let secret = HookSecret { proof: HookProof::Signature, secret: "key".to_owned().into() };
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
            let came = Came { at: Instant::now(), wall };
            hooks.hear(&SourceId::new("git"), header, body.as_bytes(), came).unwrap()
        };
        assert_eq!(hear("completed", 10, "a", "workflow_job"), Heard::Again, "it is old");
        assert_eq!(hear("completed", 11, "b", "workflow_job"), Heard::News);
        assert_eq!(hear("completed", 11, "c", "workflow_job"), Heard::Again, "a copy");
        assert_eq!(hear("in_progress", 10, "d", "workflow_job"), Heard::Again);
        assert_eq!(hear("queued", 10, "e", "workflow_job"), Heard::News, "held back until now");
        assert_eq!(hear("queued", 11, "f", "ping"), Heard::Aside);
        assert_eq!(hear("queued", 11, "f", "workflow_job"), Heard::News, "a ping is no delivery");
        assert_eq!(*hinted.lock(), 3);
    }

    #[test]
    fn deliveries_are_forgotten_in_the_end_and_hooks_are_counted() {
        let mut known = Known::default();
        let (source, start) = (SourceId::new("git"), Instant::now());
        for n in 0..DELIVERIES + 5 {
            known.take(&source, Some(&n.to_string()), start);
        }
        assert_eq!(known.deliveries.len(), DELIVERIES);
        assert_eq!(known.take(&source, Some("9999"), start), Heard::Again);
        assert_eq!(known.take(&source, Some("9999"), start + REMEMBERED), Heard::News);
        assert!((0..HOOKS).all(|_| known.admits(&source, start).is_ok()));
        let later = Duration::from_millis(3_400);
        let left = WINDOW - later;
        assert_eq!(known.admits(&source, start + later), Err(Unheard::TooMany(left)));
        assert_eq!(known.admits(&source, start + WINDOW), Ok(()));
    }
}
