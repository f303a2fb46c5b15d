//! HTTP to a running service, over its Unix socket or TCP, with errors that say what to do.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use causes::{causes, chain};
use reqwest::{Method, Response};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{CallError, CliError};
use super::global::{DEFAULT_SOCKET, Global};
use super::privacy::note_open;
use super::term::Term;
use drover_api::{Problem, WhoAmIOut};
use drover_config::{Environment, LoadError, SOCKET_PATH_MAX, Socket};
use serde_json::{Value, json};

/// How long a call may take, unless it waits on purpose.
pub const CALL_LIMIT: Duration = Duration::from_secs(30);
/// How long no member of a store may lead before a call is given up.
const NO_LEADER_LIMIT: Duration = Duration::from_secs(20);
const NO_LEADER_PAUSE: Duration = Duration::from_millis(250);
/// How long a reload or a full reconciliation may take.
pub(super) const LONG_LIMIT: Duration = Duration::from_secs(180);

/// A running service.
pub struct Client {
    http: reqwest::Client,
    base: String,
    place: String,
    token: Option<SecretString>,
    /// A configuration that has faults and names no socket: whether the service runs by it is to be
    /// proven.
    doubt: Option<Doubt>,
    /// How commands that ask the same service begin, such as `drover --config lab`.
    program: String,
    /// How long no member of a store may lead before a call is given up.
    no_leader_limit: Duration,
}

/// Why another service may listen at the usual socket.
struct Doubt {
    /// The configuration that somebody named.
    config: PathBuf,
    fault: LoadError,
}

impl Doubt {
    fn refusal(&self) -> CliError {
        unknown_socket(&self.config, &self.fault)
    }
}

impl Client {
    /// Prepares calls to the service that the options name; does not connect yet.
    pub fn new(global: &Global) -> Result<Self, CliError> {
        // A second installation is refused and harmless: it is the same provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = reqwest::Client::builder().no_proxy().connect_timeout(CALL_LIMIT);
        let (builder, base, place, token, doubt) = match &global.url {
            Some(url) => {
                if !url.starts_with("http://") && !url.starts_with("https://") {
                    let fault =
                        format!("`{url}` is no URL; it must begin with https:// or http://");
                    return Err(CliError::Usage(fault));
                }
                let host = url.split('/').nth(2).unwrap_or_default();
                if host.contains('@') {
                    let fault = "--url takes no login in front of the host: give a token's file with \
                                 --token-file";
                    return Err(CliError::Usage(fault.into()));
                }
                let base = url.trim_end_matches('/').to_owned();
                if let Some(shorter) = base.strip_suffix("/v1") {
                    let fault = format!(
                        "give the address without /v1, which every call has of its own: `{shorter}`"
                    );
                    return Err(CliError::Usage(fault));
                }
                (builder, base.clone(), base, Some(read_token(global)?), None)
            }
            None => {
                let (path, doubt) = socket(global)?;
                fits(&path)?;
                let place = path.display().to_string();
                (builder.unix_socket(path), "http://drover".to_owned(), place, None, doubt)
            }
        };
        let http = builder.build().map_err(|fault| CliError::Failed(chain(&fault)))?;
        let program = global.program(std::env::var_os("DROVER_CONFIG").as_deref());
        let no_leader_limit = NO_LEADER_LIMIT;
        Ok(Self { http, base, place, token, doubt, program, no_leader_limit })
    }

    /// Prepares calls to the service that the options name, and makes sure that it is the one.
    ///
    /// Where a configuration is named that has faults and names no socket, a service at the usual one
    /// must run by that configuration; one note says so. Another one says where others can read the token.
    ///
    /// # Errors
    /// The options name no service, or it is not known whether this is the one that they mean.
    pub async fn proven(
        global: &Global,
        json: bool,
        term: &mut Term<'_>,
    ) -> Result<Self, CliError> {
        let client = Self::new(global)?;
        if let (Some(_), Some(path)) = (&global.url, &global.token_file) {
            note_open("token", path, json, term)?;
        }
        if let Some(doubt) = &client.doubt {
            client.settle(doubt, json, term).await?;
        }
        match &global.config {
            Some(config)
                if global.socket.is_none() && global.url.is_none() && client.is_certain() =>
            {
                client.or_elsewhere(config, global, json, term).await
            }
            Some(_) | None => Ok(client),
        }
    }

    /// The same calls, which do not wait where no member of a store leads: for who asks again anyway.
    pub(super) fn at_once(self) -> Self {
        Self { no_leader_limit: Duration::ZERO, ..self }
    }

    /// The service that runs by the configuration: here, or still where it said at its start. Another one
    /// that listens here meanwhile is not asked.
    async fn or_elsewhere(
        self,
        config: &Path,
        global: &Global,
        json: bool,
        term: &mut Term<'_>,
    ) -> Result<Self, CliError> {
        let found = self.configuration().await;
        let other = match found {
            Ok(Some(path)) if is_same(&path, config) => return Ok(self),
            Ok(Some(path)) => Some(path),
            Err(CallError::NoService { .. }) => None,
            // The call that follows says what is wrong.
            Ok(None) | Err(_) => return Ok(self),
        };
        for socket in drover_config::elsewhere(config, &Environment::of_process()) {
            let there = Global { socket: Some(socket.clone()), ..global.clone() };
            let other = Self { program: self.program.clone(), ..Self::new(&there)? };
            if socket == Path::new(&self.place) || !other.reads(config).await {
                continue;
            }
            let text = format!(
                "note: a restart applies `service.socket: {}`; until then drover on `{}` runs by the \
                 configuration `{}`, and is asked",
                self.place,
                other.place,
                config.display()
            );
            let socket = socket.display().to_string();
            term.progress(json, &text, json!({ "socket": socket }))?;
            return Ok(other);
        }
        let Some(path) = other else { return Ok(self) };
        Err(CliError::Usage(format!(
            "drover on `{}` runs by the configuration `{}`, and not by `{}`: a service that runs by that one \
             listens elsewhere until its next start, or does not run; name a socket with `--socket PATH`",
            self.place,
            path.display(),
            config.display()
        )))
    }

    /// The configuration that the service reads; none where it does not say.
    async fn configuration(&self) -> Result<Option<PathBuf>, CallError> {
        let who: WhoAmIOut = self.get("/v1/whoami", CALL_LIMIT).await?;
        Ok(who.configuration)
    }

    /// Whether the service reads this configuration.
    async fn reads(&self, config: &Path) -> bool {
        let path = self.configuration().await.ok().flatten();
        path.is_some_and(|path| is_same(&path, config))
    }

    /// Asks the service which configuration it reads, and notes that this is the one that is meant.
    async fn settle(&self, doubt: &Doubt, json: bool, term: &mut Term<'_>) -> Result<(), CliError> {
        if !self.reads(&doubt.config).await {
            return Err(doubt.refusal());
        }
        let config = doubt.config.display().to_string();
        let text = format!(
            "note: the configuration `{config}` has faults and names no socket; drover on `{}` runs by \
             it, and is asked (`drover check` shows the faults)",
            self.place
        );
        Ok(term.progress(json, &text, json!({ "config": config }))?)
    }

    /// How commands that ask the same service begin, such as `drover --config lab`.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// A command as it asks the same service: one of drover's own names what the options name.
    pub fn spelled(&self, command: &str) -> String {
        match command.strip_prefix("drover ") {
            Some(rest) => format!("{} {rest}", self.program),
            None => command.to_owned(),
        }
    }

    /// A text of the service, whose commands in it ask the same service, too.
    pub fn worded(&self, text: &str) -> String {
        text.replace("`drover ", &format!("`{} ", self.program))
    }

    /// Words all texts of an answer so.
    fn word(&self, value: &mut Value) {
        match value {
            Value::String(text) if text.contains("`drover ") => *text = self.worded(text),
            Value::Array(all) => all.iter_mut().for_each(|one| self.word(one)),
            Value::Object(all) => all.values_mut().for_each(|one| self.word(one)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Whether the service is the one that the options mean.
    pub fn is_certain(&self) -> bool {
        self.doubt.is_none()
    }

    /// Where the service is, for people.
    pub fn place(&self) -> &str {
        &self.place
    }

    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        limit: Duration,
    ) -> Result<T, CallError> {
        self.answer(self.send(Method::GET, path, None::<&()>, limit).await?).await
    }

    /// Sends a command, and reads what came of it.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        limit: Duration,
    ) -> Result<T, CallError> {
        self.answer(self.send(Method::POST, path, Some(body), limit).await?).await
    }

    /// Changes, and reads what holds then.
    pub async fn change<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        limit: Duration,
    ) -> Result<T, CallError> {
        self.answer(self.send(Method::PATCH, path, Some(body), limit).await?).await
    }

    /// Removes something, and reads what came of it.
    pub async fn remove<T: DeserializeOwned>(
        &self,
        path: &str,
        limit: Duration,
    ) -> Result<T, CallError> {
        self.answer(self.send(Method::DELETE, path, None::<&()>, limit).await?).await
    }

    /// Sends a command whose answer has no body.
    pub async fn report(&self, method: Method, path: &str) -> Result<(), CallError> {
        self.send(method, path, None::<&()>, CALL_LIMIT).await.map(|_| ())
    }

    /// Sends a command with a body whose answer has none.
    pub async fn command(&self, path: &str, body: &impl Serialize) -> Result<(), CallError> {
        self.send(Method::POST, path, Some(body), CALL_LIMIT).await.map(|_| ())
    }

    /// Opens the event stream.
    pub async fn events(&self, after: Option<&str>) -> Result<Response, CallError> {
        let mut request = self.request(Method::GET, "/v1/events");
        if let Some(after) = after {
            request = request.header("Last-Event-ID", after);
        }
        self.led(request).await
    }

    /// Opens an answer that is read piece by piece, for as long as it comes.
    pub(super) async fn open(&self, path: &str) -> Result<Response, CallError> {
        self.led(self.request(Method::GET, path)).await
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request,
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        limit: Duration,
    ) -> Result<Response, CallError> {
        let mut request = self.request(method, path).timeout(limit);
        if let Some(body) = body {
            request = request.json(body);
        }
        self.led(request).await
    }

    /// Sends a request, again for some seconds while no member of a store leads: nothing was done then.
    async fn led(&self, request: reqwest::RequestBuilder) -> Result<Response, CallError> {
        let end = Instant::now() + self.no_leader_limit;
        loop {
            // Bodies are texts, which can be sent again.
            let Some(again) = request.try_clone() else {
                return self.check(request.send().await).await;
            };
            match self.check(again.send().await).await {
                Err(fault) if fault.lacks_leader() && Instant::now() < end => {
                    tokio::time::sleep(NO_LEADER_PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn check(&self, sent: reqwest::Result<Response>) -> Result<Response, CallError> {
        let place = self.place.clone();
        let response = match sent {
            Ok(response) => response,
            Err(cause) if cause.is_connect() => {
                return Err(match os_error(&cause) {
                    Some(io::ErrorKind::PermissionDenied) => CallError::NotAllowed { place },
                    Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                        CallError::NoService { place }
                    }
                    Some(_) | None if speaks_plain_http(&cause) => CallError::PlainHttp {
                        instead: place.replacen("https://", "http://", 1),
                        place,
                    },
                    Some(_) | None => CallError::Broken { place, cause },
                });
            }
            Err(cause) => return Err(CallError::Broken { place, cause }),
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let status = status.as_u16();
        match self.read::<Problem>(response).await {
            Ok(Some(problem)) => Err(CallError::Refused(problem)),
            Ok(None) | Err(_) => Err(CallError::NotDrover { place, status }),
        }
    }

    async fn answer<T: DeserializeOwned>(&self, response: Response) -> Result<T, CallError> {
        let place = self.place.clone();
        let status = response.status().as_u16();
        match self.read(response).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(CallError::NotDrover { place, status }),
            Err(cause) => Err(CallError::Broken { place, cause }),
        }
    }

    /// Reads an answer, worded for the caller; none where it is no answer of drover's.
    async fn read<T: DeserializeOwned>(&self, response: Response) -> reqwest::Result<Option<T>> {
        let body = response.bytes().await?;
        if self.program == "drover" {
            return Ok(serde_json::from_slice(&body).ok());
        }
        let Ok(mut value) = serde_json::from_slice(&body) else { return Ok(None) };
        self.word(&mut value);
        Ok(serde_json::from_value(value).ok())
    }
}

/// Whether two paths name one configuration: the same file or directory, or a directory and a file in it.
fn is_same(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    let (Some(one), Some(other)) = (whole(one), whole(other)) else { return false };
    one == other || one.parent() == Some(&other) || other.parent() == Some(&one)
}

/// A path with a name in it that may hold anything.
pub(super) fn path(kind: &str, name: &str, rest: &str) -> String {
    let name = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
    format!("/v1/{kind}/{name}{rest}")
}

/// The socket of the service: as named, else that of the configuration named, else the usual one.
fn socket(global: &Global) -> Result<(PathBuf, Option<Doubt>), CliError> {
    if let Some(path) = &global.socket {
        return Ok((path.clone(), None));
    }
    let Some(config) = &global.config else { return Ok((PathBuf::from(DEFAULT_SOCKET), None)) };
    match drover_config::socket(config, &Environment::of_process()) {
        Ok(Socket { path, doubt }) => {
            Ok((path, doubt.map(|fault| Doubt { config: config.clone(), fault })))
        }
        Err(fault) => Err(unknown_socket(config, &fault)),
    }
}

fn unknown_socket(config: &Path, fault: &LoadError) -> CliError {
    CliError::Usage(format!(
        "the service's socket is not known: the configuration `{}` has faults and names none. \
         Repair it, or name the socket with `--socket PATH` or DROVER_SOCKET; where no \
         configuration names another it is {DEFAULT_SOCKET}\n{}",
        config.display(),
        fault.render().trim_end()
    ))
}

/// Refuses the path of a socket that the system could not take.
pub(super) fn fits(path: &Path) -> Result<(), CliError> {
    let (length, shown) = (path.as_os_str().len(), path.display());
    if length <= SOCKET_PATH_MAX {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "`{shown}` has {length} bytes, and the path of a Unix socket at most {SOCKET_PATH_MAX}: name a \
         shorter one with `--socket PATH` or `service.socket`"
    )))
}

/// The token for a service elsewhere.
///
/// Address and file may each be an option or a variable, so that the parser cannot ask for the pair.
fn read_token(global: &Global) -> Result<SecretString, CliError> {
    let Some(path) = &global.token_file else {
        return Err(CliError::Usage(
            "a service elsewhere (--url or DROVER_URL) wants a token: name the file that holds it with \
             --token-file or DROVER_TOKEN_FILE"
                .into(),
        ));
    };
    let text = std::fs::read_to_string(path).map_err(|fault| {
        CliError::Usage(format!("cannot read the token file `{}`: {fault}", path.display()))
    })?;
    let token = text.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        let path = path.display();
        return Err(CliError::Usage(format!("`{path}` must hold one token and nothing else")));
    }
    Ok(SecretString::from(token))
}

/// Whether a server answered the greeting of TLS with something that is none.
fn speaks_plain_http(error: &(dyn std::error::Error + 'static)) -> bool {
    // The error of TLS lies inside one of the system's kind, and is to be seen in its text alone.
    chain(error).contains("InvalidContentType")
}

/// The system's error under an error of the client.
fn os_error(error: &(dyn std::error::Error + 'static)) -> Option<io::ErrorKind> {
    causes(error)
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .find(|found| found.raw_os_error().is_some())
        .map(io::Error::kind)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::sync::Arc;

    use drover_api::AgentsOut;
    use drover_model::fact::What;
    use drover_model::phase::AgentPhase;
    use drover_server::testing::Served;

    use super::*;

    // Invariant: where a broken configuration names no socket, no service is asked that runs by another.

    #[tokio::test]
    async fn a_service_at_the_usual_socket_is_asked_only_where_it_runs_by_the_configuration_named()
    {
        let served = Served::default();
        let directory = tempfile::tempdir().unwrap();
        let broken = directory.path().join("drover.yaml");
        std::fs::write(&broken, "cloudConfigurations: [\n").unwrap();
        let said = async |config: &Path, socket: &Path| {
            let global = Global { socket: Some(socket.to_owned()), ..Global::default() };
            let client = Client::new(&global).ok().unwrap();
            let fault = drover_config::socket(&broken, &Environment::default());
            let fault = fault.unwrap().doubt.unwrap();
            let doubt = Doubt { config: config.to_owned(), fault };
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut term = Term::new(&mut out, &mut err);
            let settled = client.settle(&doubt, false, &mut term).await;
            let text = String::from_utf8(err).unwrap();
            let text = text.replace(&socket.display().to_string(), "SOCKET");
            settled.map(|()| text).map_err(|fault| (fault.exit_code(), fault.to_string()))
        };
        let own = said(Path::new("/etc/drover/drover.yaml"), &served.socket).await;
        assert_eq!(
            own.unwrap(),
            "note: the configuration `/etc/drover/drover.yaml` has faults and names no socket; drover on \
             `SOCKET` runs by it, and is asked (`drover check` shows the faults)\n"
        );
        let gone = directory.path().join("gone.sock");
        for socket in [&served.socket, &gone] {
            let (code, text) = said(&broken, socket).await.unwrap_err();
            assert!(code == 2 && text.contains("the service's socket is not known"), "{text}");
        }
        served.stop().await;
    }

    // Invariant: a command that the service names asks the same service, in whatever text it stands.

    #[tokio::test]
    async fn commands_in_answers_name_the_configuration_that_the_caller_named() {
        let served = Served::default();
        let mut agent = drover_server::testing::agent("a1", AgentPhase::Ready);
        agent.detail = "cordoned: `drover uncordon pve1` lets it be used".to_owned();
        drover_server::testing::reported(&served.view, What::Agent(Arc::new(agent)));
        let global = Global { socket: Some(served.socket.clone()), ..Global::default() };
        let plain = Client::new(&global).ok().unwrap();
        let named =
            Client { program: "drover --config lab".into(), ..Client::new(&global).ok().unwrap() };
        for (client, program) in [(plain, "drover"), (named, "drover --config lab")] {
            let out: AgentsOut = client.get("/v1/agents", CALL_LIMIT).await.ok().unwrap();
            let detail = format!("cordoned: `{program} uncordon pve1` lets it be used");
            assert_eq!(out.agents[0].detail, detail);
            assert_eq!(client.spelled("drover check"), format!("{program} check"));
            assert_eq!(client.spelled("pvesh get /version"), "pvesh get /version");
        }
        served.stop().await;
    }
}
