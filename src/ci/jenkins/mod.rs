//! Jenkins: a node for each agent, made over REST, and builds read from Jenkins' queue.
//!
//! In: [`Settings`] and the calls of [`Connector`]. Out: nodes as rows, builds as jobs, and the
//! files for a guest. An agent is launched in one of two ways: inbound, where the guest receives
//! Jenkins' `agent.jar` and the secret of its node, or by Jenkins' own SSH launcher, which pins the
//! host key that drover knows. A node takes one build after another until it is cordoned; drover
//! does that as soon as it sees the node's last build.
//!
//! While Jenkins has no node at all, it does not say which labels builds wait for. drover then
//! makes one node that never connects (`LABELS_NODE`), and removes it with the last source of
//! that Jenkins.
//!
//! Failure paths: an HTML page in place of data means that Jenkins is not ready; a lost answer is
//! settled by reading the node again; a Jenkins that is too old is named with the version it needs.
//!
//! Written from Jenkins' source and documentation (2.579). A real Hudson 3.3.2, from which Jenkins
//! was forked, accepts the form of a node and all calls of its life, and builds on it; a Jenkins is
//! untried.
//!
//! Beside this file: `client` (HTTP with crumbs), `node` (what Jenkins is asked to create), `queue`
//! (nodes and queue), `why` (the label that a build waits for), `checks` (what doctor tests).

mod checks;
mod client;
mod node;
mod queue;
#[cfg(test)]
mod tests;
mod why;

use std::collections::BTreeSet;

use base64::Engine as _;
use bytes::Bytes;
use causes::chain;
use drover_model::id::RunnerName;
use drover_model::os::{LoginShell, Os};
use drover_model::ports::{Known, RowObservation, SourceObservation};
use drover_model::spec::Mode;
use drover_scripts::windows::{CMD_IN_POWERSHELL, batch_word};
use drover_ssh::quote;
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::connector::{Connector, ConnectorFuture, RegisterRequest, RunnerBundle, RunnerFile};
use super::error::DemandError;
use super::finding::Finding;
use super::http::{Answer, Http};
use super::rows::{Listing, PolledRunners, RowIds, RowLookup};
use client::{Client, is_page, not_ready};
use node::{AgentLink, Node};
use queue::{CORDON_REASON, Computer, NODE_FIELDS, NODES_PATH, Nodes, QUEUE_PATH, QueueMemory};

/// The node that never connects: without any node, Jenkins does not say which labels builds wait
/// for.
const LABELS_NODE: &str = "drover-labels";
/// How often a node is toggled offline at most; its state is read before each time, because the
/// call toggles.
const TOGGLES_MAX: usize = 2;
/// The first Jenkins that makes nodes from XML (jenkinsci/jenkins 110014cf69), and the same for
/// people: the LTS line has it since another version.
const FIRST_WITH_XML: (u32, u32) = (2, 539);
const FIRST_WITH_XML_TEXT: &str = "2.539 or LTS 2.541.1";
/// The first Jenkins whose `agent.jar` knows `-url` and `-webSocket` (remoting 3176, `Launcher`),
/// and the same for people.
const FIRST_WITH_URL_OPTION: (u32, u32) = (2, 429);
const FIRST_WITH_URL_OPTION_TEXT: &str = "2.429 or LTS 2.440.1";
/// The right that a login needs for making nodes.
const CREATE_RIGHT: &str = "Agent/Create";

/// How an agent and Jenkins connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launch {
    /// The agent connects by WebSocket, through Jenkins' own port.
    WebSocket,
    /// The agent connects to Jenkins' TCP port for agents.
    InboundTcp,
    /// Jenkins connects to the guest by SSH, with the credential of this id in Jenkins.
    Ssh(String),
}

/// The settings of a Jenkins source.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The user that drover logs in as.
    pub username: String,
    /// The user's API token or password.
    pub secret: SecretString,
    /// How agents and Jenkins connect.
    pub launch: Launch,
}

impl Settings {
    /// All settings, secrets included, for the fingerprint of the source.
    pub(crate) fn parts(&self) -> Vec<String> {
        let shown = format!("{} {:?}", self.username, self.launch);
        vec![shown, self.secret.expose_secret().to_owned()]
    }
}

/// The connector for a Jenkins controller.
pub(crate) struct Jenkins {
    client: Client,
    launch: Launch,
    memory: Mutex<QueueMemory>,
    /// Jenkins' `agent.jar`, with the version of Jenkins that it came from.
    jar: Mutex<Option<(String, Bytes)>>,
    ids: RowIds,
    /// Whether this source was removed, so that a poll in progress makes no [`LABELS_NODE`] again.
    /// Locked while that node is made or removed.
    removed: tokio::sync::Mutex<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeState {
    #[serde(default)]
    temporarily_offline: bool,
}

impl Jenkins {
    /// Makes a connector; calls nothing yet.
    pub(crate) fn new(http: Http, settings: &Settings) -> Self {
        let Settings { username, secret, launch } = settings;
        let login = format!("{username}:{}", secret.expose_secret());
        let login = base64::engine::general_purpose::STANDARD.encode(login);
        let client = Client::new(http.with_authorization(format!("Basic {login}").into()));
        let (launch, memory, jar) = (launch.clone(), Mutex::default(), Mutex::default());
        let (ids, removed) = (RowIds::default(), tokio::sync::Mutex::default());
        Self { client, launch, memory, jar, ids, removed }
    }

    async fn poll_all(&self, known: &Known) -> Result<SourceObservation, DemandError> {
        let nodes: Nodes = self.client.read(NODES_PATH).await?;
        let queue = self.client.read(QUEUE_PATH).await?;
        let waiting = {
            let mut memory = self.memory.lock();
            memory.read(queue, &nodes)
        };
        let obstacle = match self.too_old_for_agents() {
            Some(text) => Some(text),
            None if waiting.names_no_label => self.ensure_labels_node().await,
            None => None,
        };
        let find = |name: RunnerName| async move {
            let path = format!("computer/{name}/api/json?tree={NODE_FIELDS}");
            let node = self.client.find::<Computer>(&path).await?;
            Ok(node.map_or(RowLookup::Gone, |node| RowLookup::Rows(vec![node])))
        };
        let list = Listing { rows: nodes.computer, whole: true };
        let PolledRunners { rows, gone, whole, .. } = self.ids.seen(list, known, find).await?;
        let rows: Vec<RowObservation> = rows.iter().filter_map(Computer::row).collect();
        let (jobs, unread) = (waiting.jobs, waiting.unread);
        Ok(SourceObservation {
            rows,
            gone,
            whole,
            jobs,
            unread,
            obstacle,
            ..SourceObservation::default()
        })
    }

    /// Makes Jenkins name labels, unless this source was removed; returns what prevents that.
    async fn ensure_labels_node(&self) -> Option<String> {
        let removed = self.removed.lock().await;
        if *removed {
            return None;
        }
        let error = self.make_labels_node().await.err()?;
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
            tracing::warn!(
                error = chain(&error),
                "cannot make node `{LABELS_NODE}` yet; drover tries again"
            );
            return None;
        }
        Some(format!(
            "cannot make node `{LABELS_NODE}`, without which Jenkins does not say which labels builds \
             wait for: {}",
            chain(&error)
        ))
    }

    /// Makes the node that makes Jenkins name labels.
    async fn make_labels_node(&self) -> Result<(), DemandError> {
        let text = "never connected; while it exists, Jenkins says which labels builds wait for";
        let ensure_labels_node = Node {
            name: LABELS_NODE,
            description: format!("made by drover; {text}"),
            executors: 1,
            folder: "/nonexistent",
            labels: BTreeSet::new(),
            mode: Mode::Exclusive,
            java: "java",
            options: "",
            link: AgentLink::Inbound { websocket: true },
        };
        self.make(&ensure_labels_node).await?;
        tracing::info!("made node `{LABELS_NODE}`: {text}");
        Ok(())
    }

    /// Makes a node; an existing node of that name counts as made.
    ///
    /// From XML since [`FIRST_WITH_XML`]. Before, `ComputerSet.doCreateItem` expects to copy a node
    /// or to show the form, and answers 400 "No mode given": such a Jenkins takes the form alone.
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
            Ok(answer) => answer.into_error(),
            Err(error) => error,
        };
        // The answer may say that there is a node of that name, or the answer was lost.
        if self.node_state(node.name).await.is_ok_and(|it| it.is_some()) {
            Ok(())
        } else {
            Err(self.explained(doubt, by_form))
        }
    }

    /// Adds to an error what to do so that nodes can be made.
    fn explained(&self, error: DemandError, by_form: bool) -> DemandError {
        if let DemandError::Status { call, status: status @ 403, text } = error {
            let text = format!("{text}: the login needs `{CREATE_RIGHT}`");
            return DemandError::Status { call, status, text };
        }
        let is_answer = matches!(error, DemandError::Status { .. } | DemandError::NotReady { .. });
        match self.client.version().filter(|version| is_answer && by_form && is_older(version)) {
            Some(version) => DemandError::Refused(format!(
                "{error}: this is Jenkins {version}, which cannot make nodes from XML and did not \
                 accept the form either; update it to {FIRST_WITH_XML_TEXT} or later"
            )),
            None => error,
        }
    }

    /// Whether the login may make nodes: only such a login is shown the page for a new node
    /// (`hudson/model/ComputerSet/new.jelly` of 2.578 has `Computer.CREATE` as its permission).
    /// None where the answer does not say. Unverified against a server.
    async fn may_make(&self) -> Result<Option<bool>, DemandError> {
        let answer = self.client.get("computer/new").await?;
        Ok(match answer.status {
            200 => Some(true),
            403 => Some(false),
            _ => None,
        })
    }

    async fn node_state(&self, name: &str) -> Result<Option<NodeState>, DemandError> {
        let path = format!("computer/{name}/api/json?tree=displayName,temporarilyOffline");
        self.client.find(&path).await
    }

    /// The secret of a node. Jenkins derives it from the node's name alone, so anyone who had it keeps
    /// it for ever; therefore drover never uses a name twice.
    async fn secret(&self, name: &str) -> Result<String, DemandError> {
        let mut answer = self.client.get(&format!("computer/{name}/jenkins-agent.jnlp")).await?;
        if answer.status == 404 {
            // The name of the file before 2.3xx.
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
        let what = "it has no secret; the login may lack Agent/Connect".into();
        Err(DemandError::Shape { call: answer.call, what })
    }

    /// Jenkins' `agent.jar`, downloaded once for each version of Jenkins.
    async fn jar(&self) -> Result<Bytes, DemandError> {
        let version = self.client.version();
        let kept = self.jar.lock().clone();
        if let Some((of, jar)) = kept
            && version.as_ref() == Some(&of)
        {
            return Ok(jar);
        }
        let Answer { body, call, .. } = self.client.get("jnlpJars/agent.jar").await?.ok()?;
        if !body.starts_with(b"PK") {
            return Err(DemandError::Shape { call, what: "it is not a Java archive".into() });
        }
        let jar = Bytes::from(body);
        *self.jar.lock() = self.client.version().map(|version| (version, jar.clone()));
        Ok(jar)
    }

    /// Why agents cannot connect to this version of Jenkins; none where no reason is known.
    fn too_old_for_agents(&self) -> Option<String> {
        let connects = match self.launch {
            Launch::WebSocket | Launch::InboundTcp => true,
            Launch::Ssh(_) => false,
        };
        let version =
            self.client.version().filter(|it| connects && is_before(it, FIRST_WITH_URL_OPTION))?;
        Some(format!(
            "the agent of Jenkins {version} does not know the option `-url`, which drover uses; \
             update Jenkins to {FIRST_WITH_URL_OPTION_TEXT} or later, or set `launch: ssh`"
        ))
    }

    async fn register_node(
        &self,
        request: RegisterRequest<'_>,
    ) -> Result<RunnerBundle, DemandError> {
        if let Some(text) = self.too_old_for_agents() {
            return Err(DemandError::Refused(text));
        }
        // Removes a node that an earlier attempt made and whose state is unknown.
        self.delete_node(request.runner.as_str()).await?;
        let address = request.target.address.to_string();
        let node = self.node(request, &address)?;
        self.make(&node).await?;
        match self.launch {
            Launch::WebSocket | Launch::InboundTcp => {
                let secret = self.secret(node.name).await?;
                let jar = self.jar().await?;
                Ok(self.inbound(request.target.os, &node, secret, jar))
            }
            // Jenkins starts the agent; the guest needs Java alone.
            Launch::Ssh(_) => Ok(RunnerBundle {
                files: Vec::new(),
                programs: vec![node.java.to_owned()],
                command: match request.target.os {
                    Os::Linux => "rm -f pid".into(),
                    Os::Windows(_) => "exit /b 0".into(),
                },
                may_detach: true,
                secrets: Vec::new(),
            }),
        }
    }

    fn node<'a>(
        &'a self,
        request: RegisterRequest<'a>,
        address: &'a str,
    ) -> Result<Node<'a>, DemandError> {
        Ok(Node {
            name: request.runner.as_str(),
            description: node::description(request.want),
            executors: request.spec.places(),
            folder: &request.spec.remote_fs,
            labels: request.labels(),
            mode: request.spec.mode,
            java: node::java(request.spec),
            options: &request.spec.java.options,
            link: self.link(request, address)?,
        })
    }

    fn link<'a>(
        &'a self,
        request: RegisterRequest<'a>,
        address: &'a str,
    ) -> Result<AgentLink<'a>, DemandError> {
        let credential = match &self.launch {
            Launch::WebSocket => return Ok(AgentLink::Inbound { websocket: true }),
            Launch::InboundTcp => return Ok(AgentLink::Inbound { websocket: false }),
            Launch::Ssh(credential) => credential,
        };
        let mut keys = request.target.host_keys.iter().map(|line| {
            let mut fields = line.split_whitespace();
            fields.next().zip(fields.next())
        });
        let Some(host_key) = keys.find_map(|key| key) else {
            let text = "the guest's host key is unknown, so Jenkins could not verify the guest";
            return Err(DemandError::Setup(text.into()));
        };
        let around = match request.target.os {
            Os::Windows(LoginShell::Powershell) => CMD_IN_POWERSHELL,
            Os::Linux | Os::Windows(LoginShell::Auto | LoginShell::Cmd) => ("", ""),
        };
        let port = request.target.ssh.port;
        Ok(AgentLink::Ssh { host: address, port, credential, host_key, around })
    }

    fn inbound(&self, os: Os, node: &Node<'_>, secret: String, jar: Bytes) -> RunnerBundle {
        let (exec, quote): (&str, fn(&str) -> String) = match os {
            Os::Linux => ("exec ", quote),
            Os::Windows(_) => ("", batch_word),
        };
        let link = if self.launch == Launch::WebSocket { " -webSocket" } else { "" };
        let options = node.options.trim();
        let options = if options.is_empty() { String::new() } else { format!(" {options}") };
        let command = format!(
            "{exec}{}{options} -jar agent.jar -url {} -secret @secret -name {}{link} -noReconnect \
             -workDir {}",
            quote(node.java),
            quote(self.client.base()),
            quote(node.name),
            quote(node.folder),
        );
        let secrets = vec![secret.clone().into()];
        let files = vec![
            RunnerFile { name: "agent.jar", content: jar },
            RunnerFile { name: "secret", content: Bytes::from(secret) },
        ];
        RunnerBundle {
            files,
            programs: vec![node.java.to_owned()],
            command,
            may_detach: false,
            secrets,
        }
    }

    /// Lets a node take no further build; a running build continues.
    async fn cordon_node(&self, runner: &RunnerName) -> Result<(), DemandError> {
        let message = utf8_percent_encode(CORDON_REASON, NON_ALPHANUMERIC);
        let path = format!("computer/{runner}/toggleOffline?offlineMessage={message}");
        for _ in 0..TOGGLES_MAX {
            match self.node_state(runner.as_str()).await? {
                None | Some(NodeState { temporarily_offline: true }) => return Ok(()),
                Some(NodeState { temporarily_offline: false }) => {}
            }
            let answer = self.client.post(&path, None).await?;
            if answer.status >= 400 && answer.status != 404 {
                return Err(answer.into_error());
            }
        }
        match self.node_state(runner.as_str()).await? {
            None | Some(NodeState { temporarily_offline: true }) => Ok(()),
            Some(NodeState { temporarily_offline: false }) => {
                let what = "the node still takes builds".into();
                Err(DemandError::Shape { call: format!("POST {runner}/toggleOffline"), what })
            }
        }
    }

    async fn delete_node(&self, node: &str) -> Result<(), DemandError> {
        let answer = self.client.post(&format!("computer/{node}/doDelete"), None).await?;
        match answer.status {
            404 | 410 => Ok(()),
            // The call redirects to the list of nodes, and a login page looks alike.
            200..400 if self.node_state(node).await?.is_none() => Ok(()),
            200..400 => {
                let what = "the node still exists".into();
                Err(DemandError::Shape { call: answer.call, what })
            }
            _ => Err(answer.into_error()),
        }
    }
}

/// Whether a version makes nodes by the form alone.
fn is_older(version: &str) -> bool {
    is_before(version, FIRST_WITH_XML)
}

/// Whether a version is before another; a text that is no version is before none.
fn is_before(version: &str, first: (u32, u32)) -> bool {
    let mut numbers = version.split(['.', '-']).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return false };
    (major, minor) < first
}

impl Connector for Jenkins {
    fn poll<'a>(&'a self, known: &'a Known) -> ConnectorFuture<'a, SourceObservation> {
        Box::pin(self.poll_all(known))
    }

    fn register<'a>(&'a self, request: RegisterRequest<'a>) -> ConnectorFuture<'a, RunnerBundle> {
        Box::pin(self.register_node(request))
    }

    fn cordon<'a>(&'a self, runner: &'a RunnerName) -> ConnectorFuture<'a, ()> {
        Box::pin(self.cordon_node(runner))
    }

    fn place(&self) -> Option<&str> {
        Some(self.client.base())
    }

    fn clean_up(&self) -> ConnectorFuture<'_, ()> {
        Box::pin(async move {
            let mut removed = self.removed.lock().await;
            *removed = true;
            self.delete_node(LABELS_NODE).await
        })
    }

    fn check<'a>(&'a self, found: &'a mut Vec<Finding>) -> ConnectorFuture<'a, ()> {
        Box::pin(self.run_checks(found))
    }

    fn obstacle(&self) -> ConnectorFuture<'_, Option<String>> {
        Box::pin(async move {
            let lacks = || format!("the login may not make nodes; it needs `{CREATE_RIGHT}`");
            match self.may_make().await? {
                Some(true) => Ok(self.too_old_for_agents()),
                Some(false) => Ok(Some(lacks())),
                None => Err(DemandError::Refused(
                    "Jenkins does not say whether the login may make nodes".into(),
                )),
            }
        })
    }

    fn deregister<'a>(&'a self, runner: &'a RunnerName) -> ConnectorFuture<'a, ()> {
        Box::pin(self.delete_node(runner.as_str()))
    }
}
