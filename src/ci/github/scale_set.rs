//! Scale sets: GitHub assigns jobs to a set by its name and reports over a long poll how many there
//! are. drover needs no open port for that, and lists of jobs cost nothing of the rate limit.
//!
//! A background task holds one *session* of the set, reads its messages and acknowledges each. When
//! the session ends, the task closes it and opens another after a pause; meanwhile a poll fails
//! with the reason. The state file names the open session, so that a restarted drover can close it
//! at once.
//!
//! Written from GitHub's public client of that service, which is not documented; unverified against
//! GitHub itself. The statistics in a message count all jobs, so a message that is lost or repeated
//! changes nothing for long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use causes::chain;
use drover_model::ambient::jittered;
use drover_model::id::RunnerName;
use drover_model::ports::JobObservation;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use reqwest::Method;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::super::connector::{StopSignal, Wake};
use super::super::error::DemandError;
use super::super::http::{Answer, Http};
use super::super::state_file::StateFile;
use super::api::bearer;
use super::rate_limit::Purpose;
use super::settings::{ScaleSetSpec, plain};
use super::tally::{Counts, Message, Tally};
use super::{GitHub, Part};

const VERSION: &str = "api-version=6.0-preview";
/// The `Accept` header of a long poll (actions/scaleset `session_client.go`, ARC `client.go`).
const ACCEPT_VALUE: HeaderValue =
    HeaderValue::from_static("application/json; api-version=6.0-preview");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const CAPACITY_HEADER: HeaderName = HeaderName::from_static("x-scalesetmaxcapacity");
/// The limit of a long poll; the server answers earlier.
const POLL_LIMIT: Duration = Duration::from_secs(90);
/// How long a poll waits for the first session.
const FIRST_SESSION_WAIT: Duration = Duration::from_secs(20);
/// How often a session call without an answer is repeated before the session is given up, and the
/// pause before the first repetition, which doubles (as GitHub's own client does).
const CALL_RETRIES: u32 = 4;
const CALL_RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The pause between two attempts to open a session; it doubles up to [`SESSION_PAUSE_LONGEST`].
const SESSION_PAUSE: Duration = Duration::from_secs(2);
const SESSION_PAUSE_LONGEST: Duration = Duration::from_secs(120);

/// Whether a session is open; `Off` says why not.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SessionState {
    Starting,
    On,
    Off(String),
}

/// A scale set and what drover knows of it.
pub(super) struct ScaleSet {
    spec: ScaleSetSpec,
    http: Http,
    session_state: watch::Sender<SessionState>,
    state: Mutex<SetState>,
}

#[derive(Default)]
struct SetState {
    service: Option<Service>,
    tally: Tally,
}

/// The service behind the API, with its own login.
#[derive(Clone)]
struct Service {
    url: String,
    token: SecretString,
    /// The number of the set.
    set: u64,
    /// The settings to send where the set has other labels.
    stale: Option<Value>,
}

#[derive(Deserialize)]
struct Registered {
    url: String,
    token: SecretString,
}

#[derive(Deserialize)]
struct Sets {
    #[serde(default)]
    value: Vec<Set>,
}

#[derive(Deserialize)]
struct Set {
    id: u64,
    #[serde(default)]
    labels: Vec<Label>,
}

#[derive(Deserialize)]
struct Label {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Session {
    session_id: String,
    message_queue_url: String,
    message_queue_access_token: SecretString,
    #[serde(default)]
    statistics: Option<Counts>,
}

/// An open session, as the state file stores it.
#[derive(Serialize, Deserialize)]
struct StoredSession {
    /// The URL of its set.
    set: String,
    session: String,
    /// The digest of the machine that opened it: a copied state directory is no reason to close it.
    machine: Option<String>,
}

#[derive(Deserialize)]
struct JitAnswer {
    #[serde(rename = "encodedJITConfig")]
    configuration: SecretString,
}

impl ScaleSet {
    /// Makes a set; calls nothing yet.
    pub(super) fn new(spec: ScaleSetSpec, http: &Http) -> Self {
        let http = http.clone().with_limit(POLL_LIMIT);
        let (session_state, _) = watch::channel(SessionState::Starting);
        Self { spec, http, session_state, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, SetState> {
        self.state.lock()
    }

    async fn call(
        &self,
        (method, url): (Method, &str),
        login: (HeaderName, HeaderValue),
        body: Option<&Value>,
    ) -> Result<Answer, DemandError> {
        let mut headers = vec![login];
        if body.is_none() {
            // GitHub's own client sends this header with every call (actions/scaleset `client.go`).
            headers.push((CONTENT_TYPE, JSON));
        }
        self.http.call(method, url, body, &headers).await
    }

    /// Runners whose job was not reported as started; their rows are read after this call.
    pub(super) fn made(&self) -> BTreeSet<String> {
        self.state().tally.made().cloned().collect()
    }

    /// How the jobs of drover's runners ended that were reported as completed since the last poll.
    pub(super) fn ended(&self) -> Vec<(RunnerName, &'static str)> {
        let ended = self.state().tally.ended().into_iter();
        let own = ended.filter(|(name, _)| RunnerName::parse(name).is_some());
        own.map(|(name, how)| (RunnerName::new(name), how)).collect()
    }

    /// Notes that a runner was removed, so that its missing row means nothing.
    pub(super) fn forget(&self, runner: &str) {
        self.state().tally.remove_runner(runner);
    }

    /// Jobs that wait for a runner. `rows` says of each runner whether it has a job; it is newer
    /// than the messages, as far as it concerns runners `made` before the rows were read.
    pub(super) async fn jobs(
        &self,
        labels: &[String],
        made: &BTreeSet<String>,
        rows: &BTreeMap<String, bool>,
    ) -> Result<Vec<JobObservation>, DemandError> {
        let mut session_state = self.session_state.subscribe();
        let started =
            session_state.wait_for(|session_state| *session_state != SessionState::Starting);
        let session_state = match tokio::time::timeout(FIRST_SESSION_WAIT, started).await {
            Ok(Ok(session_state)) => session_state.clone(),
            Ok(Err(_)) | Err(_) => SessionState::Off("drover has no session of the set yet".into()),
        };
        match session_state {
            SessionState::On => {
                let mut state = self.state();
                let taken = state.tally.taken(made, rows, Instant::now());
                Ok(state.tally.jobs(labels, taken))
            }
            SessionState::Starting => {
                Err(DemandError::Paused("drover has no session of the scale set yet".into()))
            }
            SessionState::Off(text) => {
                Err(DemandError::Paused(format!("scale set `{}`: {text}", self.spec.name)))
            }
        }
    }
}

impl GitHub {
    /// The labels of the set: those that jobs may demand, or else its name.
    pub(super) fn set_labels(&self, set: &ScaleSet) -> Vec<String> {
        let labels = self.settings.labels.as_ref().filter(|labels| !labels.is_empty());
        labels.map_or_else(|| vec![set.spec.name.clone()], |all| all.iter().cloned().collect())
    }

    /// Logs in to the service behind the API, and finds or makes the set there.
    async fn service(&self, set: &ScaleSet) -> Result<Service, DemandError> {
        let token = self.registration_token(Purpose::Change).await;
        let token = token.map_err(|error| self.lacking(Part::Runners, error))?;
        let mut says = HeaderValue::from_str(&format!("RemoteAuth {}", token.expose_secret()))
            .map_err(|_| {
                DemandError::Setup(
                    "the token has characters that an HTTP header cannot carry".into(),
                )
            })?;
        says.set_sensitive(true);
        let page = self.settings.scope.page(self.api.plain().base());
        let body = json!({ "url": page, "runner_event": "register" });
        let path = (Method::POST, "actions/runner-registration");
        let answer = set.call(path, (AUTHORIZATION, says), Some(&body)).await?;
        let Registered { url, token } = answer.ok()?.json()?;
        let url = url.trim_end_matches('/').to_owned();
        let group = self.group().await?;
        let all = format!("{url}/_apis/runtime/runnerscalesets");
        let name = plain(&set.spec.name);
        let find = format!("{all}?runnerGroupId={group}&name={name}&{VERSION}");
        let found = set.call((Method::GET, &find), bearer(&token)?, None).await?;
        let wanted: BTreeSet<String> = self.set_labels(set).into_iter().collect();
        let labels: Vec<Value> =
            wanted.iter().map(|name| json!({ "name": name, "type": "System" })).collect();
        let body = json!({
            "name": set.spec.name, "runnerGroupId": group, "labels": labels,
            "RunnerSetting": { "ephemeral": true, "disableUpdate": true },
        });
        if let Some(found) = found.ok()?.json::<Sets>()?.value.into_iter().next() {
            let lower = |name: &String| name.to_lowercase();
            let has: BTreeSet<String> = found.labels.iter().map(|it| lower(&it.name)).collect();
            let stale = (has != wanted.iter().map(lower).collect()).then_some(body);
            return Ok(Service { url, token, set: found.id, stale });
        }
        let make = (Method::POST, format!("{all}?{VERSION}"));
        let made = set.call((make.0, &make.1), bearer(&token)?, Some(&body)).await?;
        Ok(Service { url, token, set: made.ok()?.json::<Set>()?.id, stale: None })
    }

    /// Makes a runner of the set; returns the configuration with which its guest becomes the
    /// runner.
    pub(super) async fn generate_jit_in(
        &self,
        set: &ScaleSet,
        name: &str,
    ) -> Result<SecretString, DemandError> {
        let mut again = true;
        loop {
            let state = set.state().service.clone();
            let service = match state {
                Some(service) => service,
                None => self.service(set).await?,
            };
            let body = json!({ "name": name, "workFolder": "_work" });
            let url = service.of(&format!("generatejitconfig?{VERSION}"));
            let login = bearer(&service.token)?;
            let answer = set.call((Method::POST, &url), login, Some(&body)).await?;
            // The login ends before the session does.
            if answer.status == 401 && std::mem::take(&mut again) {
                set.state().service = None;
                continue;
            }
            let made: JitAnswer = answer.ok()?.json()?;
            let mut state = set.state();
            state.service.get_or_insert(service);
            state.tally.add_runner(name);
            return Ok(made.configuration);
        }
    }

    /// Holds a session and handles its messages, until `ended`.
    pub(super) async fn listen(
        &self,
        set: &ScaleSet,
        wake: Wake,
        mut ended: StopSignal,
        kept: &StateFile,
    ) {
        let mut pause = SESSION_PAUSE;
        loop {
            let outcome = tokio::select! {
                _ = &mut ended => return,
                outcome = self.open(set, kept) => outcome,
            };
            let why = match outcome {
                Ok((service, session)) => {
                    set.session_state.send_replace(SessionState::On);
                    wake();
                    let mut session = session;
                    let why = tokio::select! {
                        _ = &mut ended => None,
                        (error, heard) = self.handle_messages(set, &mut session, &wake) => {
                            // A session without any answer does not shorten the pause.
                            pause = if heard { SESSION_PAUSE } else { pause };
                            Some(error)
                        }
                    };
                    match self.close(set, &service, &session.session_id).await {
                        Ok(()) => forget(kept, &session),
                        Err(error) => {
                            tracing::warn!(
                                error = chain(&error),
                                "cannot close the session of the scale set"
                            );
                        }
                    }
                    let Some(why) = why else { return };
                    why
                }
                Err(error) => error,
            };
            let text = chain(&why);
            tracing::warn!(
                set = set.spec.name,
                error = text,
                "the scale set has no session; drover tries again"
            );
            let off = SessionState::Off(text);
            if set.session_state.send_replace(off.clone()) != off {
                wake();
            }
            let draw = Timestamp::now().as_nanosecond().unsigned_abs();
            let wait = jittered(pause, u64::try_from(draw & u128::from(u64::MAX)).unwrap_or(0));
            tokio::select! {
                _ = &mut ended => return,
                () = tokio::time::sleep(wait) => {}
            }
            pause = (pause * 2).min(SESSION_PAUSE_LONGEST);
        }
    }

    async fn open(
        &self,
        set: &ScaleSet,
        kept: &StateFile,
    ) -> Result<(Service, Session), DemandError> {
        let service = self.service(set).await?;
        // GitHub opens no second session until it ends one that was cut off.
        let (of, machine) = (service.of(""), kept.machine().map(str::to_owned));
        let is_ours = |cut: &StoredSession| cut.set == of && cut.machine == machine;
        if let Some(cut) = kept.read::<StoredSession>().filter(is_ours) {
            match self.close(set, &service, &cut.session).await {
                Ok(()) => kept.clear(),
                Err(error) => {
                    tracing::warn!(
                        error = chain(&error),
                        "cannot close the session of the previous run"
                    );
                }
            }
        }
        let body = json!({ "ownerName": "drover" });
        let url = service.of(&format!("sessions?{VERSION}"));
        let answer = set.call((Method::POST, &url), bearer(&service.token)?, Some(&body)).await?;
        if answer.status == 409 {
            let text = "another process holds the session of the scale set: give each drover a \
                        scale set of its own; GitHub ends the session of a killed drover after a while";
            return Err(DemandError::Refused(text.into()));
        }
        let session: Session = answer.ok()?.json()?;
        kept.write(&StoredSession { set: of, session: session.session_id.clone(), machine });
        self.relabel(set, &service).await;
        let mut state = set.state();
        state.service = Some(service.clone());
        state.tally = Tally::of(session.statistics.unwrap_or_default());
        drop(state);
        Ok((service, session))
    }

    /// Updates the labels of the set, which belongs to this drover while it holds the session.
    async fn relabel(&self, set: &ScaleSet, service: &Service) {
        let Some(body) = &service.stale else { return };
        let url =
            format!("{}/_apis/runtime/runnerscalesets/{}?{VERSION}", service.url, service.set);
        let change = async {
            let login = bearer(&service.token)?;
            set.call((Method::PATCH, &url), login, Some(body)).await?.ok().map(drop)
        };
        match change.await {
            Ok(()) => tracing::info!(set = set.spec.name, "set the labels of the scale set"),
            Err(error) => tracing::warn!(
                set = set.spec.name,
                error = chain(&error),
                "cannot set the labels of the scale set"
            ),
        }
    }

    /// Handles messages until a failure that does not pass; also returns whether any poll was
    /// answered.
    async fn handle_messages(
        &self,
        set: &ScaleSet,
        session: &mut Session,
        wake: &Wake,
    ) -> (DemandError, bool) {
        let (mut last, mut heard, mut failed) = (0, false, 0);
        loop {
            match self.handle_message(set, session, last).await {
                Ok(Some(id)) => {
                    last = id;
                    wake();
                }
                Ok(None) => {}
                Err(error) if is_transient(&error) && failed < CALL_RETRIES => {
                    tokio::time::sleep(CALL_RETRY_PAUSE * (1 << failed)).await;
                    failed += 1;
                    continue;
                }
                Err(error) => return (error, heard),
            }
            (heard, failed) = (true, 0);
        }
    }

    async fn handle_message(
        &self,
        set: &ScaleSet,
        session: &mut Session,
        last: i64,
    ) -> Result<Option<i64>, DemandError> {
        let mut url = session.queue("")?;
        if last > 0 {
            url.query_pairs_mut().append_pair("lastMessageId", &last.to_string());
        }
        let headers = [
            (ACCEPT, ACCEPT_VALUE),
            bearer(&session.message_queue_access_token)?,
            (CAPACITY_HEADER, HeaderValue::from(set.spec.capacity)),
        ];
        let answer = set.http.call(Method::GET, url.as_str(), None, &headers).await?;
        if answer.status == 202 {
            return Ok(None);
        }
        if answer.status == 401 {
            self.refresh(set, session).await?;
            return Ok(None);
        }
        let message: Message = answer.ok()?.json()?;
        let available = set.state().tally.apply(&message);
        let Some(service) = set.state().service.clone() else {
            return Err(DemandError::Paused(
                "drover logs in to the scale set service again".into(),
            ));
        };
        if !available.is_empty() {
            let url = service.of(&format!("acquirejobs?{VERSION}"));
            let (body, login) = (json!(available), bearer(&session.message_queue_access_token)?);
            let acquired = set.call((Method::POST, &url), login, Some(&body)).await?;
            if acquired.status == 401 {
                // GitHub repeats the message.
                self.refresh(set, session).await?;
                return Ok(None);
            }
            acquired.ok()?;
        }
        self.acknowledge(set, session, message.id()).await?;
        Ok(Some(message.id()))
    }

    /// Acknowledges a message; GitHub repeats it until then.
    async fn acknowledge(
        &self,
        set: &ScaleSet,
        session: &mut Session,
        message: i64,
    ) -> Result<(), DemandError> {
        let mut again = true;
        loop {
            let url = session.queue(&format!("/{message}"))?;
            let login = bearer(&session.message_queue_access_token)?;
            let answer = set.call((Method::DELETE, url.as_str()), login, None).await?;
            if answer.status != 401 || !std::mem::take(&mut again) {
                return answer.ok().map(drop);
            }
            self.refresh(set, session).await?;
        }
    }

    /// Closes a session, so that the next one can be opened at once.
    async fn close(
        &self,
        set: &ScaleSet,
        opened: &Service,
        session: &str,
    ) -> Result<(), DemandError> {
        // The login may be a new one meanwhile, or have ended.
        let mut service = set.state().service.clone().unwrap_or_else(|| opened.clone());
        let mut again = true;
        loop {
            let url = service.of(&format!("sessions/{session}?{VERSION}"));
            let answer = set.call((Method::DELETE, &url), bearer(&service.token)?, None).await?;
            match answer.status {
                404 => return Ok(()),
                401 if std::mem::take(&mut again) => service = self.service(set).await?,
                _ => return answer.ok().map(drop),
            }
        }
    }

    /// Renews the logins of a session, which outlives them.
    async fn refresh(&self, set: &ScaleSet, session: &mut Session) -> Result<(), DemandError> {
        let service = self.service(set).await?;
        let url = service.of(&format!("sessions/{}?{VERSION}", session.session_id));
        let answer = set.call((Method::PATCH, &url), bearer(&service.token)?, None).await?;
        *session = answer.ok()?.json()?;
        let mut state = set.state();
        state.service = Some(service);
        if let Some(counts) = session.statistics {
            state.tally.count(counts);
        }
        Ok(())
    }
}

/// Removes a closed session from the state file, unless another one was opened meanwhile.
fn forget(kept: &StateFile, session: &Session) {
    let state = kept.read::<StoredSession>();
    if state.is_some_and(|state| state.session == session.session_id) {
        kept.clear();
    }
}

/// Whether a repeated call may succeed a moment later.
fn is_transient(error: &DemandError) -> bool {
    match error {
        // A call that took the whole time limit had no answer at all.
        DemandError::Unreachable { source, .. } => !source.is_timeout(),
        DemandError::Status { status, .. } => *status == 429 || *status >= 500,
        DemandError::Setup(_)
        | DemandError::Shape { .. }
        | DemandError::NotReady { .. }
        | DemandError::Moved { .. }
        | DemandError::Paused(_)
        | DemandError::Refused(_)
        | DemandError::Guest(_) => false,
    }
}

impl Service {
    /// A URL below the set.
    fn of(&self, rest: &str) -> String {
        format!("{}/_apis/runtime/runnerscalesets/{}/{rest}", self.url, self.set)
    }
}

impl Session {
    /// The URL of the session's messages, with more path.
    fn queue(&self, more: &str) -> Result<reqwest::Url, DemandError> {
        let mut url: reqwest::Url = self.message_queue_url.parse().map_err(|_| {
            DemandError::Refused(
                "GitHub's answer names no valid URL for the session's messages".into(),
            )
        })?;
        let path = format!("{}{more}", url.path());
        url.set_path(&path);
        Ok(url)
    }
}
