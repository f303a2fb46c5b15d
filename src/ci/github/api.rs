//! Calls to GitHub's REST API: the login, the rate limit, and answers that are reused while GitHub
//! says that nothing changed (HTTP 304), which costs nothing of the limit.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use reqwest::Method;
use reqwest::header::{
    AUTHORIZATION, DATE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, RETRY_AFTER,
};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::error::DemandError;
use super::super::http::{Answer, Http};
use super::super::rows::{Listing, Reading};
use super::app::{self, AppSpec, InstallationToken};
use super::rate_limit::{LimitReport, Purpose, RateLimit};
use super::settings::{Login, Scope};
use super::token::Token;

/// Rows on a page; GitHub's maximum.
pub(super) const PAGE_ROWS: usize = 100;
/// The most pages that are read of one list.
const PAGES_MAX: usize = 20;
/// The most answers that are stored for reuse; the least recently used go first.
const ANSWERS_STORED_MAX: usize = 4_000;
const API_VERSION_HEADER: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-github-api-version"), HeaderValue::from_static("2022-11-28"));

/// A GitHub API with drover's login.
pub(super) struct Api {
    http: Http,
    scope: Scope,
    login: Login,
    token: Token,
    state: Mutex<State>,
}

struct State {
    rate_limit: RateLimit,
    kept: BTreeMap<String, StoredAnswer>,
    /// Lists that have more rows than drover reads, and were logged.
    cut: BTreeSet<String>,
    /// Counts uses of stored answers, to find the least recently used.
    uses: u64,
}

/// An answer, for when GitHub says that it has not changed.
struct StoredAnswer {
    etag: HeaderValue,
    /// The fields that drover reads, as JSON.
    text: String,
    used: u64,
}

/// A page of a list.
pub(super) trait Page: DeserializeOwned + Serialize {
    type Row;
    /// The total of all pages where GitHub reports it, and the rows of this page.
    fn rows(self) -> (Option<usize>, Vec<Self::Row>);
    /// The number that identifies a row.
    fn id(row: &Self::Row) -> u64;
}

#[derive(Deserialize)]
struct Installation {
    id: u64,
}

impl Api {
    /// Makes a client; calls nothing yet.
    pub(super) fn new(http: Http, scope: Scope, login: Login) -> Self {
        let (rate_limit, kept, cut) = (RateLimit::new(), BTreeMap::new(), BTreeSet::new());
        let state = State { rate_limit, kept, cut, uses: 0 };
        Self { http, scope, login, token: Token::default(), state: Mutex::new(state) }
    }

    /// The client without a login, for services beside the REST API.
    pub(super) fn plain(&self) -> &Http {
        &self.http
    }

    /// Whether drover logs in as a GitHub App.
    pub(super) fn is_app(&self) -> bool {
        matches!(self.login, Login::App(_))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Notes that a poll begins, which grants new credit for calls that can wait.
    pub(super) fn begin(&self) {
        self.state().rate_limit.begin(Instant::now());
    }

    /// Whether the rate limit leaves room for calls that can wait.
    pub(super) fn affords(&self) -> bool {
        self.state().rate_limit.affords()
    }

    /// One call; `path` is relative to the API.
    pub(super) async fn send(
        &self,
        purpose: Purpose,
        method: Method,
        path: &str,
        body: Option<&Value>,
        etag: Option<HeaderValue>,
    ) -> Result<Answer, DemandError> {
        let mut again = self.is_app();
        loop {
            self.admit(purpose)?;
            let token = self.token().await?;
            let mut headers = vec![bearer(&token)?, API_VERSION_HEADER];
            headers.extend(etag.clone().map(|etag| (IF_NONE_MATCH, etag)));
            let answer = self.http.call(method.clone(), path, body, &headers).await?;
            self.note_limit(&answer)?;
            // GitHub may revoke a token of an App before its end.
            if answer.status == 401 && std::mem::take(&mut again) {
                self.token.refuse(&token).await;
                continue;
            }
            return Ok(answer);
        }
    }

    /// Reads JSON, from a stored answer where GitHub says that nothing changed.
    pub(super) async fn read<T: DeserializeOwned + Serialize>(
        &self,
        purpose: Purpose,
        path: &str,
    ) -> Result<T, DemandError> {
        let (etag, text) = {
            let mut state = self.state();
            state.uses += 1;
            let uses = state.uses;
            let kept = state.kept.get_mut(path);
            kept.map_or((None, None), |kept| {
                kept.used = uses;
                (Some(kept.etag.clone()), Some(kept.text.clone()))
            })
        };
        let answer = self.send(purpose, Method::GET, path, None, etag).await?;
        if let (304, Some(text)) = (answer.status, text) {
            return serde_json::from_str(&text).map_err(|error| DemandError::Shape {
                call: answer.call,
                what: error.to_string(),
            });
        }
        let etag = answer.headers.get(ETAG).cloned();
        let answer = answer.ok()?;
        let read: T = answer.json()?;
        match (etag, serde_json::to_string(&read)) {
            (Some(etag), Ok(text)) => self.keep(path, etag, text),
            _ => drop(self.state().kept.remove(path)),
        }
        Ok(read)
    }

    /// Reads the pages of a list, at most [`PAGES_MAX`]; `path` may carry a query.
    pub(super) async fn pages<T: Page>(
        &self,
        purpose: Purpose,
        path: &str,
    ) -> Result<Listing<T::Row>, DemandError> {
        let mut reading = Reading::new();
        let mark = if path.contains('?') { '&' } else { '?' };
        for page in 1..=PAGES_MAX {
            let part = format!("{path}{mark}per_page={PAGE_ROWS}&page={page}");
            let (total, rows) = self.read::<T>(purpose, &part).await?.rows();
            let last = rows.len() < PAGE_ROWS;
            reading.page(rows.into_iter().map(|row| (T::id(&row), row)), total);
            if last {
                return Ok(reading.end(true));
            }
        }
        let read = reading.len();
        if self.state().cut.insert(path.to_owned()) {
            tracing::warn!(list = path, rows = read, "list has more rows than drover reads");
        }
        Ok(reading.end(false))
    }

    fn keep(&self, path: &str, etag: HeaderValue, text: String) {
        let mut state = self.state();
        let used = state.uses;
        state.kept.insert(path.to_owned(), StoredAnswer { etag, text, used });
        if state.kept.len() > ANSWERS_STORED_MAX {
            let oldest = state.kept.iter().min_by_key(|(_, kept)| kept.used);
            let oldest = oldest.map(|(path, _)| path.clone());
            oldest.map(|path| state.kept.remove(&path));
        }
    }

    /// Refuses a call while the rate limit allows none.
    fn admit(&self, purpose: Purpose) -> Result<(), DemandError> {
        let blocked = self.state().rate_limit.blocked(purpose, Instant::now());
        blocked.map_or(Ok(()), |pause| Err(paused(pause)))
    }

    /// Notes what an answer says of the rate limit; fails where the limit refused the call.
    fn note_limit(&self, answer: &Answer) -> Result<(), DemandError> {
        let (report, now) = (report(&answer.headers), Instant::now());
        let limited = answer.status == 429
            || answer.status == 403
                && (answer.headers.contains_key(RETRY_AFTER)
                    || report.is_some_and(|report| report.remaining == 0)
                    || String::from_utf8_lossy(&answer.body).contains("rate limit"));
        if limited {
            let after = answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let after = after.and_then(|text| text.parse().ok()).map(Duration::from_secs);
            let pause = self.state().rate_limit.refused(report, after, now);
            tracing::warn!(
                seconds = pause.as_secs(),
                "GitHub's rate limit is used up; drover sends no requests"
            );
            return Err(paused(pause));
        }
        self.state().rate_limit.answered(report, answer.status == 304, now);
        Ok(())
    }

    /// The token of a call: the configured one, or the App's current one.
    async fn token(&self) -> Result<SecretString, DemandError> {
        match &self.login {
            Login::Token(token) => Ok(token.clone()),
            Login::App(spec) => self.token.get(Timestamp::now(), self.mint(spec)).await,
        }
    }

    async fn mint(&self, spec: &AppSpec) -> Result<InstallationToken, DemandError> {
        let says = bearer(&app::statement(spec, Timestamp::now())?)?;
        let headers = [says, API_VERSION_HEADER];
        let installation = match spec.installation {
            Some(id) => id,
            None => {
                let path = format!("{}/installation", self.scope.path());
                let answer = self.http.call(Method::GET, &path, None, &headers).await?;
                if answer.status == 404 {
                    let text = format!(
                        "the GitHub App is not installed for {}; install it there",
                        self.scope
                    );
                    return Err(DemandError::Refused(text));
                }
                answer.ok()?.json::<Installation>()?.id
            }
        };
        let path = format!("app/installations/{installation}/access_tokens");
        let answer = self.http.call(Method::POST, &path, Some(&json!({})), &headers).await?;
        answer.ok()?.json()
    }
}

/// The `Authorization` header for a token.
///
/// # Errors
/// [`DemandError::Setup`] where a header cannot carry the token.
pub(super) fn bearer(token: &SecretString) -> Result<(HeaderName, HeaderValue), DemandError> {
    let mut value =
        HeaderValue::from_str(&format!("Bearer {}", token.expose_secret())).map_err(|_| {
            DemandError::Setup("the login has characters that an HTTP header cannot carry".into())
        })?;
    value.set_sensitive(true);
    Ok((AUTHORIZATION, value))
}

fn paused(pause: Duration) -> DemandError {
    let until = Timestamp::now() + pause;
    let until = until.strftime("%H:%M:%SZ");
    DemandError::Paused(format!(
        "the rate limit of the login is used up; drover sends no requests before {until}"
    ))
}

/// The rate limit as the headers of an answer report it.
fn report(headers: &HeaderMap) -> Option<LimitReport> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().ok());
    let reset = i64::try_from(number("x-ratelimit-reset")?).ok()?;
    // By the server's own clock where the answer has it.
    let date = text(DATE.as_str()).and_then(|text| jiff::fmt::rfc2822::parse(text).ok());
    let now = date.map_or_else(Timestamp::now, |date| date.timestamp()).as_second();
    Some(LimitReport {
        limit: number("x-ratelimit-limit")?,
        remaining: number("x-ratelimit-remaining")?,
        reset: Duration::from_secs(u64::try_from(reset - now).unwrap_or_default()),
    })
}
