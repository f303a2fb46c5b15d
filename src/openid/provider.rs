//! The calls to a provider: its document, its keys, its tokens.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use causes::chain;
use jiff::Timestamp;
use proxmox_client::tls::{Advice, client_config_with};
use reqwest::header::{ACCEPT, CONTENT_TYPE, DATE};
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout};

use crate::discovery::{self, Discovery, bounded};
use crate::fault::{Fault, TokenFault};
use crate::keys::Keys;
use crate::token::{self, Claims, Expected};
use crate::{AFTER_LOGOUT, Attempt, CALLBACK, Person, Settings, person};

/// How long one call may take.
pub const CALL_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// The largest answer that is read.
pub const ANSWER_BYTES_MAX: usize = 512 * 1024;
/// Calls that run at once.
pub const CALLS_MAX: usize = 8;
/// How long a call waits for its turn.
const TURN_LIMIT: Duration = Duration::from_secs(5);
/// How long a document and keys are kept.
const KEPT_FOR: Duration = Duration::from_secs(60 * 60);
/// Keys are read again for an unknown one after this time at the soonest.
pub const KEYS_PAUSE: Duration = Duration::from_secs(30);
/// A provider that did not answer is asked for its document again after this time.
const FAULT_KEPT_FOR: Duration = Duration::from_secs(5);

const UNTRUSTED: &str = "name the file with the authority that signed the provider's certificate as \
                         `service.openId.caFile`, and the issuer by a name that its certificate has";
/// What the certificate of a provider asks for that is refused.
const FOR_A_PROVIDER: Advice = Advice { unpinned: UNTRUSTED, untrusted: UNTRUSTED };

/// A provider, with what it said lately.
pub struct Provider {
    settings: Settings,
    client: OnceLock<Result<Client, String>>,
    calls: Semaphore,
    /// The lock is held during a look, so that many logins ask once.
    document: Mutex<Kept<Discovery>>,
    keys: Mutex<Kept<Keys>>,
}

/// What was read lately, and when.
type Kept<T> = Option<(Instant, Result<Arc<T>, Fault>)>;

/// An answer of the provider.
pub(crate) struct Answer {
    pub(crate) call: String,
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
    /// The provider's clock.
    pub(crate) date: Option<Timestamp>,
}

/// What the provider gives for a code.
#[derive(Deserialize)]
struct Tokens {
    id_token: String,
    access_token: Option<String>,
}

/// An error of OAuth 2.0.
#[derive(Deserialize)]
pub(crate) struct Refusal {
    pub(crate) error: String,
    error_description: Option<String>,
}

impl Refusal {
    pub(crate) fn fault(&self) -> Fault {
        refused(&self.error, self.error_description.as_deref())
    }
}

fn refused(error: &str, description: Option<&str>) -> Fault {
    let more = description.map(|text| format!(": {}", bounded(text))).unwrap_or_default();
    Fault::Refused { error: bounded(error), more }
}

impl Provider {
    /// Calls nobody yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            client: OnceLock::new(),
            calls: Semaphore::new(CALLS_MAX),
            document: Mutex::new(None),
            keys: Mutex::new(None),
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The address at which a person logs in.
    ///
    /// # Errors
    /// [`Fault`], where the provider does not say where that is.
    pub async fn begin(&self, attempt: &Attempt) -> Result<Url, Fault> {
        let mut url = self.document().await?.authorization.clone();
        let scopes = self.settings.scopes.iter().map(String::as_str);
        let scopes = std::iter::once("openid").chain(scopes.filter(|scope| *scope != "openid"));
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", &self.settings.redirect)
            .append_pair("scope", &scopes.collect::<Vec<_>>().join(" "))
            .append_pair("state", &attempt.state)
            .append_pair("nonce", &attempt.nonce)
            .append_pair("code_challenge", &attempt.challenge())
            .append_pair("code_challenge_method", "S256");
        Ok(url)
    }

    /// The address at which a person ends the provider's own session, which sends them to drover's login
    /// afterwards; none where the provider has no such address.
    ///
    /// # Errors
    /// [`Fault`], where the provider does not say where that is.
    pub async fn end(&self) -> Result<Option<Url>, Fault> {
        let Some(mut url) = self.document().await?.end_session.clone() else { return Ok(None) };
        let back = self.settings.redirect.strip_suffix(CALLBACK).unwrap_or_default();
        url.query_pairs_mut()
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("post_logout_redirect_uri", &format!("{back}{AFTER_LOGOUT}"));
        Ok(Some(url))
    }

    /// Who logged in, where the provider sent them back with this code. `issuer` is whose answer it is, where
    /// the provider says it (RFC 9207); `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`Fault`].
    pub async fn finish(
        &self,
        attempt: &Attempt,
        (code, issuer): (&str, Option<&str>),
        now: i64,
    ) -> Result<Person, Fault> {
        let document = self.document().await?;
        match issuer {
            Some(issuer) if issuer == document.issuer => {}
            Some(issuer) => return Err(TokenFault::Issuer(bounded(issuer)).into()),
            None if document.names_issuer => return Err(TokenFault::Missing("iss").into()),
            None => {}
        }
        let tokens = self.tokens(&document, attempt, code).await?;
        let expected = Expected {
            issuer: &document.issuer,
            client: &self.settings.client_id,
            nonce: &attempt.nonce,
            now,
        };
        let keys = self.keys(&document, KEPT_FOR).await?;
        let claims = match token::check(&tokens.id_token, &keys, expected) {
            // It changed its keys.
            Err(TokenFault::UnknownKey(_)) => {
                let keys = self.keys(&document, KEYS_PAUSE).await?;
                token::check(&tokens.id_token, &keys, expected)
            }
            checked => checked,
        }?;
        self.person(claims, &document, tokens.access_token.as_deref()).await
    }

    /// Name and groups: of the token, and of `userinfo` where the token has not both.
    async fn person(
        &self,
        mut claims: Claims,
        document: &Discovery,
        access: Option<&str>,
    ) -> Result<Person, Fault> {
        let Settings { user_claim, groups_claim, .. } = &self.settings;
        // A claim without a value says nothing, and hides nothing.
        claims.retain(|_, value| !value.is_null());
        let lacks = [user_claim, groups_claim]
            .into_iter()
            .any(|path| person::claim(&claims, path).is_none());
        if let (true, Some(url), Some(access)) = (lacks, &document.userinfo, access) {
            let more = self.userinfo(url, access).await?;
            if more.get("sub") != claims.get("sub") {
                return Err(TokenFault::Person.into());
            }
            for (name, value) in more {
                // What is signed counts first.
                claims.entry(name).or_insert(value);
            }
        }
        let name = person::name(&claims, user_claim)?;
        Ok(Person { name, groups: person::groups(&claims, groups_claim)? })
    }

    async fn userinfo(&self, url: &Url, access: &str) -> Result<Claims, Fault> {
        let answer = self.call(self.client()?.get(url.clone()).bearer_auth(access), url).await?;
        answer.ok()?.json()
    }

    /// Asks for the tokens of a code, which counts once.
    async fn tokens(
        &self,
        document: &Discovery,
        attempt: &Attempt,
        code: &str,
    ) -> Result<Tokens, Fault> {
        let answer = self.exchange(document, &attempt.verifier, code).await?;
        if !answer.status.is_success()
            && let Ok(refusal) = serde_json::from_slice::<Refusal>(&answer.body)
        {
            return Err(refusal.fault());
        }
        answer.ok()?.json()
    }

    pub(crate) async fn exchange(
        &self,
        document: &Discovery,
        verifier: &str,
        code: &str,
    ) -> Result<Answer, Fault> {
        let Settings { client_id, client_secret, redirect, .. } = &self.settings;
        let secret = client_secret.expose_secret();
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", redirect)
            .append_pair("code_verifier", verifier);
        let mut request = self.client()?.post(document.token.clone());
        if document.secret_in_body {
            form.append_pair("client_id", client_id).append_pair("client_secret", secret);
        } else {
            // Both are spelled as in a form (RFC 6749, 2.3.1).
            let spelled =
                |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            request = request.basic_auth(spelled(client_id), Some(spelled(secret)));
        }
        let kind = "application/x-www-form-urlencoded";
        let request = request.header(CONTENT_TYPE, kind).body(form.finish());
        self.call(request, &document.token).await
    }

    /// What the provider says of itself.
    pub(crate) async fn document(&self) -> Result<Arc<Discovery>, Fault> {
        let mut kept = self.document.lock().await;
        if let Some((at, read)) = &*kept {
            let limit = if read.is_ok() { KEPT_FOR } else { FAULT_KEPT_FOR };
            if at.elapsed() < limit {
                return read.clone();
            }
        }
        let read = self.read_document().await.map(|(document, _)| Arc::new(document));
        *kept = Some((Instant::now(), read.clone()));
        read
    }

    pub(crate) async fn read_document(&self) -> Result<(Discovery, Option<Timestamp>), Fault> {
        let url = discovery::place(&self.settings.issuer)?;
        let answer = self.get(&url).await?.ok()?;
        Ok((Discovery::read(&answer.body, &self.settings.issuer)?, answer.date))
    }

    /// The provider's keys, not older than `limit`.
    pub(crate) async fn keys(
        &self,
        document: &Discovery,
        limit: Duration,
    ) -> Result<Arc<Keys>, Fault> {
        let mut kept = self.keys.lock().await;
        if let Some((at, read)) = &*kept {
            let limit = if read.is_ok() { limit } else { FAULT_KEPT_FOR };
            if at.elapsed() < limit {
                return read.clone();
            }
        }
        let read = self.read_keys(&document.keys).await.map(Arc::new);
        *kept = Some((Instant::now(), read.clone()));
        read
    }

    async fn read_keys(&self, url: &Url) -> Result<Keys, Fault> {
        let answer = self.get(url).await?.ok()?;
        let read = Keys::read(&answer.body);
        read.map_err(|why| {
            let what = format!("no set of keys: {}", bounded(&why));
            Fault::Answer { call: answer.call, what }
        })
    }

    pub(crate) async fn get(&self, url: &Url) -> Result<Answer, Fault> {
        self.call(self.client()?.get(url.clone()), url).await
    }

    /// The client, made at the first call: most drovers of a store never need it.
    pub(crate) fn client(&self) -> Result<&Client, Fault> {
        let made = self.client.get_or_init(|| make_client(&self.settings));
        made.as_ref().map_err(|why| Fault::Setup(why.clone()))
    }

    /// One call, which is read to its end.
    pub(crate) async fn call(&self, request: RequestBuilder, url: &Url) -> Result<Answer, Fault> {
        // Without its query, which may hold what is nobody's business.
        let mut shown = url.clone();
        shown.set_query(None);
        let call = shown.to_string();
        let Ok(Ok(_turn)) = timeout(TURN_LIMIT, self.calls.acquire()).await else {
            return Err(Fault::Busy);
        };
        let request = request.header(ACCEPT, "application/json");
        match timeout(CALL_LIMIT, read(request, &call)).await {
            Ok(answer) => answer,
            Err(_) => {
                let why = format!("no whole answer came within {} s", CALL_LIMIT.as_secs());
                Err(Fault::Away { call, why })
            }
        }
    }
}

fn make_client(settings: &Settings) -> Result<Client, String> {
    let tls = client_config_with(&settings.tls, FOR_A_PROVIDER).map_err(|error| chain(&error))?;
    Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_LIMIT)
        // Threads of the web with runtimes of their own share it.
        .pool_max_idle_per_host(0)
        .user_agent(concat!("drover/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| chain(&error))
}

async fn read(request: RequestBuilder, call: &str) -> Result<Answer, Fault> {
    let away = |error: reqwest::Error| {
        let why = bounded(&chain(&error.without_url()));
        Fault::Away { call: call.to_owned(), why }
    };
    let mut answer = request.send().await.map_err(away)?;
    let date = answer.headers().get(DATE).and_then(|value| value.to_str().ok());
    let date = date.and_then(|text| jiff::fmt::rfc2822::parse(text).ok());
    let (status, date) = (answer.status(), date.map(|date| date.timestamp()));
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(away)? {
        if body.len() + piece.len() > ANSWER_BYTES_MAX {
            let what = format!("more than {ANSWER_BYTES_MAX} bytes");
            return Err(Fault::Answer { call: call.to_owned(), what });
        }
        body.extend_from_slice(&piece);
    }
    Ok(Answer { call: call.to_owned(), status, body, date })
}

impl Answer {
    /// The answer, where its status is 200.
    pub(crate) fn ok(self) -> Result<Self, Fault> {
        if self.status == StatusCode::OK {
            return Ok(self);
        }
        Err(Fault::Answer { call: self.call, what: format!("status {}", self.status.as_u16()) })
    }

    fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, Fault> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let what = format!("something else than was asked: {}", bounded(&error.to_string()));
            Fault::Answer { call: self.call.clone(), what }
        })
    }
}

/// What the provider says to a person whom it sends back without a code.
pub fn refusal(error: &str, description: Option<&str>) -> Fault {
    refused(error, description)
}
