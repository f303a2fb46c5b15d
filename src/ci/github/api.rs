//! Calls of GitHub's REST API: login, rate limit, answers that are kept for when nothing changed.

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
use super::app::{self, AppSpec, Minted};
use super::pace::{Pace, Purpose, Told};
use super::settings::{Login, Scope};
use super::token::Token;

/// Rows a page; GitHub's own most.
pub const PAGE: usize = 100;
/// Pages read of one list at most.
const PAGES_MAX: usize = 20;
/// Answers that are kept; the ones used longest ago go first.
const KEPT: usize = 4_000;
const VERSION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-github-api-version"), HeaderValue::from_static("2022-11-28"));

/// GitHub, logged in.
pub struct Api {
    http: Http,
    scope: Scope,
    login: Login,
    token: Token,
    state: Mutex<State>,
}

struct State {
    pace: Pace,
    kept: BTreeMap<String, Kept>,
    /// Lists that were longer than is read of them.
    cut: BTreeSet<String>,
    /// Counts uses of what is kept.
    uses: u64,
}

/// An answer, for when GitHub says that it has not changed.
struct Kept {
    etag: HeaderValue,
    /// The part that is of interest, as JSON.
    text: String,
    used: u64,
}

/// A page of a list.
pub trait Page: DeserializeOwned + Serialize {
    /// One of its rows.
    type Row;
    /// How many rows all pages have, where that is told, and those of this page.
    fn rows(self) -> (Option<usize>, Vec<Self::Row>);
    /// What a row is told from others by.
    fn id(row: &Self::Row) -> u64;
}

#[derive(Deserialize)]
struct Installation {
    id: u64,
}

impl Api {
    /// Calls nothing yet.
    pub fn new(http: Http, scope: Scope, login: Login) -> Self {
        let (pace, kept, cut) = (Pace::new(), BTreeMap::new(), BTreeSet::new());
        let state = State { pace, kept, cut, uses: 0 };
        Self { http, scope, login, token: Token::default(), state: Mutex::new(state) }
    }

    /// The client without a login, for services beside the API.
    pub fn plain(&self) -> &Http {
        &self.http
    }

    /// Whether an App logs in.
    pub fn is_app(&self) -> bool {
        matches!(self.login, Login::App(_))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// A look begins.
    pub fn begin(&self) {
        self.state().pace.begin(Instant::now());
    }

    /// Whether the limit leaves room for what can wait.
    pub fn affords(&self) -> bool {
        self.state().pace.affords()
    }

    /// One call; `path` is relative to the API.
    pub async fn send(
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
            let mut headers = vec![bearer(&token)?, VERSION];
            headers.extend(etag.clone().map(|etag| (IF_NONE_MATCH, etag)));
            let answer = self.http.call(method.clone(), path, body, &headers).await?;
            self.heard(&answer)?;
            // A token may be taken back before its end.
            if answer.status == 401 && std::mem::take(&mut again) {
                self.token.refuse(&token).await;
                continue;
            }
            return Ok(answer);
        }
    }

    /// Reads JSON, from what is kept where GitHub says that nothing changed.
    pub async fn read<T: DeserializeOwned + Serialize>(
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

    /// The pages of a list, as far as they are read; `path` may carry a query.
    pub async fn pages<T: Page>(
        &self,
        purpose: Purpose,
        path: &str,
    ) -> Result<Listing<T::Row>, DemandError> {
        let mut reading = Reading::new();
        let mark = if path.contains('?') { '&' } else { '?' };
        for page in 1..=PAGES_MAX {
            let part = format!("{path}{mark}per_page={PAGE}&page={page}");
            let (total, rows) = self.read::<T>(purpose, &part).await?.rows();
            let last = rows.len() < PAGE;
            reading.page(rows.into_iter().map(|row| (T::id(&row), row)), total);
            if last {
                return Ok(reading.end(true));
            }
        }
        let read = reading.len();
        if self.state().cut.insert(path.to_owned()) {
            tracing::warn!(list = path, rows = read, "list is longer than is read of it");
        }
        Ok(reading.end(false))
    }

    fn keep(&self, path: &str, etag: HeaderValue, text: String) {
        let mut state = self.state();
        let used = state.uses;
        state.kept.insert(path.to_owned(), Kept { etag, text, used });
        if state.kept.len() > KEPT {
            let oldest = state.kept.iter().min_by_key(|(_, kept)| kept.used);
            let oldest = oldest.map(|(path, _)| path.clone());
            oldest.map(|path| state.kept.remove(&path));
        }
    }

    /// Nothing is asked while nothing may be.
    fn admit(&self, purpose: Purpose) -> Result<(), DemandError> {
        let closed = self.state().pace.closed(purpose, Instant::now());
        closed.map_or(Ok(()), |pause| Err(paused(pause)))
    }

    /// Takes up what an answer says of the limit; a refusal for it is no answer.
    fn heard(&self, answer: &Answer) -> Result<(), DemandError> {
        let (told, now) = (told(&answer.headers), Instant::now());
        let limited = answer.status == 429
            || answer.status == 403
                && (answer.headers.contains_key(RETRY_AFTER)
                    || told.is_some_and(|told| told.remaining == 0)
                    || String::from_utf8_lossy(&answer.body).contains("rate limit"));
        if limited {
            let after = answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let after = after.and_then(|text| text.parse().ok()).map(Duration::from_secs);
            let pause = self.state().pace.refused(told, after, now);
            tracing::warn!(seconds = pause.as_secs(), "GitHub's rate limit: nothing is asked");
            return Err(paused(pause));
        }
        self.state().pace.answered(told, answer.status == 304, now);
        Ok(())
    }

    /// What drover logs in with.
    async fn token(&self) -> Result<SecretString, DemandError> {
        match &self.login {
            Login::Token(token) => Ok(token.clone()),
            Login::App(spec) => self.token.get(Timestamp::now(), self.mint(spec)).await,
        }
    }

    async fn mint(&self, spec: &AppSpec) -> Result<Minted, DemandError> {
        let says = bearer(&app::statement(spec, Timestamp::now())?)?;
        let headers = [says, VERSION];
        let installation = match spec.installation {
            Some(id) => id,
            None => {
                let path = format!("{}/installation", self.scope.path());
                let answer = self.http.call(Method::GET, &path, None, &headers).await?;
                if answer.status == 404 {
                    let text = format!("the App is not installed for {}", self.scope);
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

/// The header of a token.
///
/// # Errors
/// [`DemandError::Setup`] where it can not stand in a header.
pub fn bearer(token: &SecretString) -> Result<(HeaderName, HeaderValue), DemandError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
        .map_err(|_| DemandError::Setup("the login is no text of a header".into()))?;
    value.set_sensitive(true);
    Ok((AUTHORIZATION, value))
}

fn paused(pause: Duration) -> DemandError {
    let until = Timestamp::now() + pause;
    let until = until.strftime("%H:%M:%SZ");
    DemandError::Paused(format!(
        "the rate limit of its login is used up: nothing is asked before {until}"
    ))
}

/// What an answer says of the limit.
fn told(headers: &HeaderMap) -> Option<Told> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().ok());
    let reset = i64::try_from(number("x-ratelimit-reset")?).ok()?;
    // By the server's own clock where it tells it.
    let date = text(DATE.as_str()).and_then(|text| jiff::fmt::rfc2822::parse(text).ok());
    let now = date.map_or_else(Timestamp::now, |date| date.timestamp()).as_second();
    Some(Told {
        limit: number("x-ratelimit-limit")?,
        remaining: number("x-ratelimit-remaining")?,
        reset: Duration::from_secs(u64::try_from(reset - now).unwrap_or_default()),
    })
}
