//! Jenkins over HTTP: answers in English, crumbs where Jenkins wants them, and HTML pages that mean
//! that Jenkins is not ready.

use parking_lot::Mutex;
use reqwest::Method;
use reqwest::header::{
    ACCEPT_LANGUAGE, COOKIE, HeaderMap, HeaderName, HeaderValue, LOCATION, SET_COOKIE,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::DemandError;
use crate::http::{Answer, Http};

/// The token against forged requests that Jenkins expects with a change; bound to a session's
/// cookies.
#[derive(Debug, Clone)]
struct Crumb {
    field: HeaderName,
    value: HeaderValue,
    cookies: Option<HeaderValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Issued {
    crumb: String,
    crumb_request_field: String,
}

/// The client of one Jenkins controller.
pub(super) struct Client {
    http: Http,
    crumb: Mutex<Option<Crumb>>,
    version: Mutex<Option<String>>,
}

impl Client {
    /// Makes a client; calls nothing yet.
    pub(super) fn new(http: Http) -> Self {
        Self { http, crumb: Mutex::default(), version: Mutex::default() }
    }

    /// The controller's URL, which ends in a slash.
    pub(super) fn base(&self) -> &str {
        self.http.base().as_str()
    }

    /// The version in the last answer.
    pub(super) fn version(&self) -> Option<String> {
        self.version.lock().clone()
    }

    fn noted(&self, answer: Answer) -> Result<Answer, DemandError> {
        let version = answer.headers.get("x-jenkins").and_then(|value| value.to_str().ok());
        if let Some(version) = version {
            let version = Some(version.to_owned());
            *self.version.lock() = version;
        }
        if answer.status == 503 { Err(not_ready(answer)) } else { Ok(answer) }
    }

    /// Gets a path. Jenkins writes its texts in the language of the request.
    pub(super) async fn get(&self, path: &str) -> Result<Answer, DemandError> {
        let english = (ACCEPT_LANGUAGE, HeaderValue::from_static("en"));
        let answer = self.http.send(Method::GET, path, None, &[english]).await?;
        self.noted(answer)
    }

    /// Reads JSON; none where the path does not exist. An HTML page is an error.
    pub(super) async fn find<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Option<T>, DemandError> {
        let answer = self.get(path).await?;
        match answer.status {
            404 | 410 => Ok(None),
            300..400 if !answer.headers.contains_key(LOCATION) => Err(not_ready(answer)),
            200..300 if is_page(&answer) => Err(not_ready(answer)),
            _ => answer.ok()?.json().map(Some),
        }
    }

    /// Reads JSON that must exist.
    pub(super) async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, DemandError> {
        let gone = || {
            let call = format!("GET {}", path.split('?').next().unwrap_or(path));
            DemandError::Status {
                call,
                status: 404,
                text: ": check that `url` is the URL of Jenkins".into(),
            }
        };
        self.find(path).await?.ok_or_else(gone)
    }

    /// Posts. A crumb is sent once Jenkins wanted one, which it does where drover logs in with a
    /// password.
    pub(super) async fn post(
        &self,
        path: &str,
        body: Option<(&'static str, String)>,
    ) -> Result<Answer, DemandError> {
        let known = self.crumb.lock().clone();
        let answer = self.post_with(path, body.clone(), known.as_ref()).await?;
        if answer.status != 403 {
            return Ok(answer);
        }
        let Some(fresh) = self.issue().await? else { return Ok(answer) };
        let again = self.post_with(path, body, Some(&fresh)).await?;
        let kept = (again.status != 403).then_some(fresh);
        *self.crumb.lock() = kept;
        Ok(again)
    }

    async fn post_with(
        &self,
        path: &str,
        body: Option<(&'static str, String)>,
        crumb: Option<&Crumb>,
    ) -> Result<Answer, DemandError> {
        let mut more = Vec::new();
        if let Some(crumb) = crumb {
            more.push((crumb.field.clone(), crumb.value.clone()));
            more.extend(crumb.cookies.clone().map(|cookies| (COOKIE, cookies)));
        }
        let answer = self.http.send(Method::POST, path, body, &more).await?;
        self.noted(answer)
    }

    /// Requests a crumb; none where Jenkins uses none.
    async fn issue(&self) -> Result<Option<Crumb>, DemandError> {
        let answer = self.get("crumbIssuer/api/json").await?;
        if answer.status != 200 || is_page(&answer) {
            return Ok(None);
        }
        let issued: Issued = answer.json()?;
        let odd = |_| DemandError::Shape {
            call: answer.call.clone(),
            what: "the crumb has characters that an HTTP header cannot carry".into(),
        };
        let field = HeaderName::from_bytes(issued.crumb_request_field.as_bytes());
        let field = field.map_err(|_| odd(()))?;
        let mut value = HeaderValue::from_str(&issued.crumb).map_err(|_| odd(()))?;
        value.set_sensitive(true);
        Ok(Some(Crumb { field, value, cookies: cookies(&answer.headers) }))
    }
}

/// The cookies that an answer sets, to be sent with the crumb of their session.
fn cookies(headers: &HeaderMap) -> Option<HeaderValue> {
    let set = headers.get_all(SET_COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs: Vec<&str> =
        set.filter_map(|cookie| cookie.split(';').next()).map(str::trim).collect();
    let mut value = HeaderValue::from_str(&pairs.join("; ")).ok()?;
    value.set_sensitive(true);
    (!pairs.is_empty()).then_some(value)
}

/// Whether an answer is an HTML page.
pub(super) fn is_page(answer: &Answer) -> bool {
    let kind = answer.headers.get("content-type").and_then(|value| value.to_str().ok());
    let start = answer.body.iter().find(|byte| !byte.is_ascii_whitespace());
    kind.is_some_and(|kind| kind.starts_with("text/html")) || start == Some(&b'<')
}

/// The error for an answer that is an HTML page.
pub(super) fn not_ready(answer: Answer) -> DemandError {
    DemandError::NotReady { call: answer.call, status: answer.status }
}
