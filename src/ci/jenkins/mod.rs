//! Jenkins: a node for each agent, made over REST, and builds read from its queue.
//!
//! Both ways to launch an agent are there: inbound, where the guest is given Jenkins' own agent and
//! that node's secret, and Jenkins' own SSH launcher, which pins the host key that drover knows. A
//! node takes build after build until it is taken off, which is what drover does as soon as it was
//! seen with its last.
//!
//! Written from Jenkins' source and documentation (2.579). A real Hudson 3.3.2, from which Jenkins was
//! forked, takes the form of a node and all calls of its life, and builds on it; a Jenkins is untried.

mod client;
mod node;
mod proofs;
mod sight;
#[cfg(test)]
mod tests;
mod why;

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use bytes::Bytes;
use causes::chain;
use drover_model::id::RunnerName;
use drover_model::os::{LoginShell, Os};
use drover_model::ports::{Known, RowSight, SourceSight};
use drover_model::spec::Mode;
use drover_scripts::windows::{CMD_IN_POWERSHELL, batch_word};
use drover_ssh::quote;
use futures_util::future::BoxFuture;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::connector::{Connector, Enlist, Kit, KitFile};
use super::error::DemandError;
use super::http::{Answer, Http};
use super::proof::Proof;
use super::rows::{Found, Ids, Listing, Seen};
use client::{Client, is_page, not_ready};
use node::{Node, Way};
use sight::{Computer, Memory, NODE, NODES, Nodes, QUEUE, QUIET};

/// A node that is never connected: without any, Jenkins does not say which labels builds wait for.
const SIGN: &str = "drover-labels";
/// How often a node is told to take no further build, each time after a look: the call toggles.
const TOGGLES: usize = 2;
/// The first Jenkins that makes nodes from XML (jenkinsci/jenkins 110014cf69), and what people are told of
/// it: the LTS line has it since another version.
const FROM_XML: (u32, u32) = (2, 539);
const LEAST: &str = "2.539 or LTS 2.541.1";
/// The first Jenkins whose `agent.jar` knows `-url` and `-webSocket` (remoting 3176, `Launcher`), and what
/// people are told of it.
const WITH_URL: (u32, u32) = (2, 429);
const LEAST_WITH_URL: &str = "2.429 or LTS 2.440.1";
/// What a login must be allowed for making nodes.
const CREATE: &str = "Agent/Create";

/// How an agent comes to Jenkins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launch {
    /// The agent connects by WebSocket, through Jenkins' own port.
    WebSocket,
    /// The agent connects to Jenkins' TCP port for agents.
    InboundTcp,
    /// Jenkins connects to the guest by SSH, with this credential of its own.
    Ssh(String),
}

/// What is configured of it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Who logs in.
    pub username: String,
    /// With this API token or password.
    pub secret: SecretString,
    /// How agents come to it.
    pub launch: Launch,
}

impl Settings {
    /// Everything of it, secrets included, for its fingerprint.
    pub fn parts(&self) -> Vec<String> {
        let shown = format!("{} {:?}", self.username, self.launch);
        vec![shown, self.secret.expose_secret().to_owned()]
    }
}

/// A Jenkins controller.
pub struct Jenkins {
    client: Client,
    launch: Launch,
    memory: Mutex<Memory>,
    /// Jenkins' agent, with the version of Jenkins that it came with.
    jar: Mutex<Option<(String, Bytes)>>,
    ids: Ids,
    /// Whether this source has left: a look that is under way meanwhile makes no sign again. Held while
    /// the sign is made or removed.
    left: tokio::sync::Mutex<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Standing {
    #[serde(default)]
    temporarily_offline: bool,
}

impl Jenkins {
    /// A connector; calls nothing yet.
    pub fn new(http: Http, settings: &Settings) -> Self {
        let Settings { username, secret, launch } = settings;
        let login = format!("{username}:{}", secret.expose_secret());
        let login = base64::engine::general_purpose::STANDARD.encode(login);
        let client = Client::new(http.with_authorization(format!("Basic {login}").into()));
        let (launch, memory, jar) = (launch.clone(), Mutex::default(), Mutex::default());
        let (ids, left) = (Ids::default(), tokio::sync::Mutex::default());
        Self { client, launch, memory, jar, ids, left }
    }

    async fn see(&self, known: &Known) -> Result<SourceSight, DemandError> {
        let nodes: Nodes = self.client.read(NODES).await?;
        let queue = self.client.read(QUEUE).await?;
        let waiting = {
            let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            memory.read(queue, &nodes)
        };
        let obstacle = match self.outdated() {
            Some(text) => Some(text),
            None if waiting.nameless => self.sign().await,
            None => None,
        };
        let find = |name: RunnerName| async move {
            let path = format!("computer/{name}/api/json?tree={NODE}");
            let node = self.client.find::<Computer>(&path).await?;
            Ok(node.map_or(Found::Gone, |node| Found::Rows(vec![node])))
        };
        let list = Listing { rows: nodes.computer, whole: true };
        let Seen { rows, gone, whole, .. } = self.ids.seen(list, known, find).await?;
        let rows: Vec<RowSight> = rows.iter().filter_map(Computer::row).collect();
        let (jobs, unread) = (waiting.jobs, waiting.unread);
        Ok(SourceSight { rows, gone, whole, jobs, unread, obstacle, ..SourceSight::default() })
    }

    /// Has Jenkins name labels, unless this source has left; gives what keeps it from that.
    async fn sign(&self) -> Option<String> {
        let left = self.left.lock().await;
        if *left {
            return None;
        }
        let error = self.put_sign().await.err()?;
        let is_refusal = match &error {
            DemandError::Status { status, .. } => (400..500).contains(status),
            DemandError::Refused(_) => true,
            DemandError::Setup(_)
            | DemandError::Unreachable { .. }
            | DemandError::Shape { .. }
            | DemandError::NotReady { .. }
            | DemandError::Moved { .. }
            | DemandError::Paused(_)
            | DemandError::Guest(_) => false,
        };
        if !is_refusal {
            tracing::warn!(error = chain(&error), "node `{SIGN}` was not made, and is tried again");
            return None;
        }
        Some(format!(
            "node `{SIGN}` cannot be made, and without it Jenkins does not say which labels builds wait \
             for: {}",
            chain(&error)
        ))
    }

    /// Makes the node that has Jenkins name labels.
    async fn put_sign(&self) -> Result<(), DemandError> {
        let text = "never connected: with it Jenkins says which labels builds wait for";
        let sign = Node {
            name: SIGN,
            description: format!("made by drover; {text}"),
            executors: 1,
            folder: "/nonexistent",
            labels: BTreeSet::new(),
            mode: Mode::Exclusive,
            java: "java",
            options: "",
            way: Way::Inbound { websocket: true },
        };
        self.make(&sign).await?;
        tracing::info!("node `{SIGN}` is made: {text}");
        Ok(())
    }

    /// Makes a node; one of that name that is there already is taken for it.
    ///
    /// From XML since [`FROM_XML`]. Before, `ComputerSet.doCreateItem` wants to be told to copy a node or
    /// to show the form, and answers 400 "No mode given": those have the form alone.
    async fn make(&self, node: &Node<'_>) -> Result<(), DemandError> {
        let path = format!("computer/createItem?name={}", node.name);
        let body = ("application/xml", node.xml());
        let mut made = self.client.post(&path, Some(body)).await;
        let by_form = made.as_ref().is_ok_and(|answer| matches!(answer.status, 400 | 404 | 405));
        if by_form {
            let body = ("application/x-www-form-urlencoded", node.form());
            made = self.client.post("computer/doCreateItem", Some(body)).await;
        }
        let doubt = match made {
            Ok(answer) if answer.status == 200 && !is_page(&answer) => return Ok(()),
            Ok(answer) if answer.status < 400 => not_ready(answer),
            Ok(answer) => answer.refused(),
            Err(error) => error,
        };
        // It may say that there is one of that name, or the answer was lost.
        if self.standing(node.name).await.is_ok_and(|it| it.is_some()) {
            Ok(())
        } else {
            Err(self.unmade(doubt, by_form))
        }
    }

    /// Why a node is not made, with what mends it.
    fn unmade(&self, error: DemandError, by_form: bool) -> DemandError {
        if let DemandError::Status { call, status: status @ 403, text } = error {
            let text = format!("{text}: the login needs `{CREATE}`");
            return DemandError::Status { call, status, text };
        }
        let is_answer = matches!(error, DemandError::Status { .. } | DemandError::NotReady { .. });
        match self.client.version().filter(|version| is_answer && by_form && is_older(version)) {
            Some(version) => DemandError::Refused(format!(
                "{error}: this is Jenkins {version}, which does not make nodes from XML, and it did not \
                 take its form either: update it to {LEAST} or later"
            )),
            None => error,
        }
    }

    /// Whether the login may make nodes: only such a login is shown the page that asks for a new one
    /// (`hudson/model/ComputerSet/new.jelly` of 2.578 has `Computer.CREATE` as its permission). None where
    /// that is not told. Unverified against a server.
    async fn may_make(&self) -> Result<Option<bool>, DemandError> {
        let answer = self.client.get("computer/new").await?;
        Ok(match answer.status {
            200 => Some(true),
            403 => Some(false),
            _ => None,
        })
    }

    async fn standing(&self, name: &str) -> Result<Option<Standing>, DemandError> {
        let path = format!("computer/{name}/api/json?tree=displayName,temporarilyOffline");
        self.client.find(&path).await
    }

    /// The secret of a node. It is drawn from the node's name alone: whoever had it has it for ever,
    /// so no name is ever another guest's.
    async fn secret(&self, name: &str) -> Result<String, DemandError> {
        let mut answer = self.client.get(&format!("computer/{name}/jenkins-agent.jnlp")).await?;
        if answer.status == 404 {
            // Its name before 2.3xx.
            answer = self.client.get(&format!("computer/{name}/slave-agent.jnlp")).await?;
        }
        let answer = answer.ok()?;
        let text = String::from_utf8_lossy(&answer.body);
        let first = text.split_once("<argument>").and_then(|(_, rest)| rest.split_once('<'));
        let secret = first.map(|(secret, _)| secret.trim()).unwrap_or_default();
        let is_secret = secret.len() >= 32 && secret.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_secret {
            return Ok(secret.to_owned());
        }
        if !text.contains("<jnlp") {
            return Err(not_ready(answer));
        }
        let what = "it holds no secret: the login may lack Agent/Connect".into();
        Err(DemandError::Shape { call: answer.call, what })
    }

    /// Jenkins' agent, fetched once for each version of Jenkins.
    async fn jar(&self) -> Result<Bytes, DemandError> {
        let version = self.client.version();
        let kept = self.jar.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((of, jar)) = kept
            && version.as_ref() == Some(&of)
        {
            return Ok(jar);
        }
        let Answer { body, call, .. } = self.client.get("jnlpJars/agent.jar").await?.ok()?;
        if !body.starts_with(b"PK") {
            return Err(DemandError::Shape { call, what: "it is no archive of Java".into() });
        }
        let jar = Bytes::from(body);
        *self.jar.lock().unwrap_or_else(PoisonError::into_inner) =
            self.client.version().map(|version| (version, jar.clone()));
        Ok(jar)
    }

    /// What keeps agents from connecting, by the version of Jenkins; none where nothing is known of it.
    fn outdated(&self) -> Option<String> {
        let connects = match self.launch {
            Launch::WebSocket | Launch::InboundTcp => true,
            Launch::Ssh(_) => false,
        };
        let version = self.client.version().filter(|it| connects && is_before(it, WITH_URL))?;
        Some(format!(
            "the agent of Jenkins {version} does not know drover's options (`-url`): update Jenkins to \
             {LEAST_WITH_URL} or later, or set `launch: ssh`"
        ))
    }

    async fn take_on(&self, wish: Enlist<'_>) -> Result<Kit, DemandError> {
        if let Some(text) = self.outdated() {
            return Err(DemandError::Refused(text));
        }
        // One that was left, of which nobody knows how it stands.
        self.take_off(wish.runner.as_str()).await?;
        let address = wish.target.address.to_string();
        let node = self.node(wish, &address)?;
        self.make(&node).await?;
        match self.launch {
            Launch::WebSocket | Launch::InboundTcp => {
                let secret = self.secret(node.name).await?;
                let jar = self.jar().await?;
                Ok(self.inbound(wish.target.os, &node, secret, jar))
            }
            // Jenkins starts it; the guest needs Java.
            Launch::Ssh(_) => Ok(Kit {
                files: Vec::new(),
                programs: vec![node.java.to_owned()],
                command: match wish.target.os {
                    Os::Linux => "rm -f pid".into(),
                    Os::Windows(_) => "exit /b 0".into(),
                },
                leaves: true,
                secrets: Vec::new(),
            }),
        }
    }

    fn node<'a>(&'a self, wish: Enlist<'a>, address: &'a str) -> Result<Node<'a>, DemandError> {
        Ok(Node {
            name: wish.runner.as_str(),
            description: node::description(wish.want),
            executors: wish.spec.places(),
            folder: &wish.spec.remote_fs,
            labels: wish.labels(),
            mode: wish.spec.mode,
            java: node::java(wish.spec),
            options: &wish.spec.java.options,
            way: self.way(wish, address)?,
        })
    }

    fn way<'a>(&'a self, wish: Enlist<'a>, address: &'a str) -> Result<Way<'a>, DemandError> {
        let credential = match &self.launch {
            Launch::WebSocket => return Ok(Way::Inbound { websocket: true }),
            Launch::InboundTcp => return Ok(Way::Inbound { websocket: false }),
            Launch::Ssh(credential) => credential,
        };
        let mut keys = wish.target.host_keys.iter().map(|line| {
            let mut fields = line.split_whitespace();
            fields.next().zip(fields.next())
        });
        let Some(host_key) = keys.find_map(|key| key) else {
            let text = "the guest's host key is not known: Jenkins could not tell it from another";
            return Err(DemandError::Setup(text.into()));
        };
        let around = match wish.target.os {
            Os::Windows(LoginShell::Powershell) => CMD_IN_POWERSHELL,
            Os::Linux | Os::Windows(LoginShell::Auto | LoginShell::Cmd) => ("", ""),
        };
        let port = wish.target.ssh.port;
        Ok(Way::Ssh { host: address, port, credential, host_key, around })
    }

    fn inbound(&self, os: Os, node: &Node<'_>, secret: String, jar: Bytes) -> Kit {
        let (exec, quote): (&str, fn(&str) -> String) = match os {
            Os::Linux => ("exec ", quote),
            Os::Windows(_) => ("", batch_word),
        };
        let way = if self.launch == Launch::WebSocket { " -webSocket" } else { "" };
        let options = node.options.trim();
        let options = if options.is_empty() { String::new() } else { format!(" {options}") };
        let command = format!(
            "{exec}{}{options} -jar agent.jar -url {} -secret @secret -name {}{way} -noReconnect \
             -workDir {}",
            quote(node.java),
            quote(self.client.base()),
            quote(node.name),
            quote(node.folder),
        );
        let secrets = vec![secret.clone().into()];
        let files = vec![
            KitFile { name: "agent.jar", content: jar },
            KitFile { name: "secret", content: Bytes::from(secret) },
        ];
        Kit { files, programs: vec![node.java.to_owned()], command, leaves: false, secrets }
    }

    /// Lets a node take no further build; what it runs goes on.
    async fn shut(&self, runner: &RunnerName) -> Result<(), DemandError> {
        let message = utf8_percent_encode(QUIET, NON_ALPHANUMERIC);
        let path = format!("computer/{runner}/toggleOffline?offlineMessage={message}");
        for _ in 0..TOGGLES {
            match self.standing(runner.as_str()).await? {
                None | Some(Standing { temporarily_offline: true }) => return Ok(()),
                Some(Standing { temporarily_offline: false }) => {}
            }
            let answer = self.client.post(&path, None).await?;
            if answer.status >= 400 && answer.status != 404 {
                return Err(answer.refused());
            }
        }
        match self.standing(runner.as_str()).await? {
            None | Some(Standing { temporarily_offline: true }) => Ok(()),
            Some(Standing { temporarily_offline: false }) => {
                let what = "the node takes builds all the same".into();
                Err(DemandError::Shape { call: format!("POST {runner}/toggleOffline"), what })
            }
        }
    }

    async fn take_off(&self, node: &str) -> Result<(), DemandError> {
        let answer = self.client.post(&format!("computer/{node}/doDelete"), None).await?;
        match answer.status {
            404 | 410 => Ok(()),
            // It sends back to the list, and a login page looks alike.
            200..400 if self.standing(node).await?.is_none() => Ok(()),
            200..400 => {
                let what = "the node is there all the same".into();
                Err(DemandError::Shape { call: answer.call, what })
            }
            _ => Err(answer.refused()),
        }
    }
}

/// Whether a version makes nodes by its form alone.
fn is_older(version: &str) -> bool {
    is_before(version, FROM_XML)
}

/// Whether a version is before another; one that is no version is before none.
fn is_before(version: &str, first: (u32, u32)) -> bool {
    let mut numbers = version.split(['.', '-']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return false };
    (major, minor) < first
}

impl Connector for Jenkins {
    fn look<'a>(&'a self, known: &'a Known) -> BoxFuture<'a, Result<SourceSight, DemandError>> {
        Box::pin(self.see(known))
    }

    fn enlist<'a>(&'a self, wish: Enlist<'a>) -> BoxFuture<'a, Result<Kit, DemandError>> {
        Box::pin(self.take_on(wish))
    }

    fn quiet<'a>(&'a self, runner: &'a RunnerName) -> BoxFuture<'a, Result<(), DemandError>> {
        Box::pin(self.shut(runner))
    }

    fn place(&self) -> Option<&str> {
        Some(self.client.base())
    }

    fn part(&self) -> BoxFuture<'_, Result<(), DemandError>> {
        Box::pin(async move {
            let mut left = self.left.lock().await;
            *left = true;
            self.take_off(SIGN).await
        })
    }

    fn prove<'a>(&'a self, found: &'a mut Vec<Proof>) -> BoxFuture<'a, Result<(), DemandError>> {
        Box::pin(self.proofs(found))
    }

    fn obstacle(&self) -> BoxFuture<'_, Result<Option<String>, DemandError>> {
        Box::pin(async move {
            let lacks = || format!("the login may make no nodes: it needs `{CREATE}`");
            match self.may_make().await? {
                Some(true) => Ok(self.outdated()),
                Some(false) => Ok(Some(lacks())),
                None => {
                    Err(DemandError::Refused("whether the login may make nodes is not told".into()))
                }
            }
        })
    }

    fn strike<'a>(&'a self, runner: &'a RunnerName) -> BoxFuture<'a, Result<(), DemandError>> {
        Box::pin(self.take_off(runner.as_str()))
    }
}
