//! The node that Jenkins is asked to create: as XML, and for older controllers as a form.

use std::collections::BTreeSet;

use drover_model::record::Want;
use drover_model::spec::{JavaDistribution, Mode, TemplateSpec};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::why;

/// How the description of a node begins; the demand that it was made for follows.
const DESCRIPTION_PREFIX: &str = "made by drover for builds that want ";
/// The demand of builds without a label.
const ANY_DEMAND: &str = "anything";

/// How the agent of a node and Jenkins connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentLink<'a> {
    /// The agent connects to Jenkins.
    Inbound {
        /// By WebSocket through Jenkins' own port, or else by its TCP port for agents.
        websocket: bool,
    },
    /// Jenkins connects to the guest.
    Ssh {
        host: &'a str,
        port: u16,
        /// The id of the credential in Jenkins.
        credential: &'a str,
        /// The guest's host key: algorithm and base64.
        host_key: (&'a str, &'a str),
        /// The text before and after the command that starts the agent; empty for none.
        around: (&'a str, &'a str),
    },
}

/// A node to be made.
#[derive(Debug, Clone)]
pub(super) struct Node<'a> {
    pub name: &'a str,
    /// Text for people; it also stores the demand that the node was made for.
    pub description: String,
    /// How many builds run at once.
    pub executors: u32,
    /// The working directory of builds.
    pub folder: &'a str,
    pub labels: BTreeSet<String>,
    /// Which builds may use the node.
    pub mode: Mode,
    /// The path of the java binary.
    pub java: &'a str,
    pub options: &'a str,
    pub link: AgentLink<'a>,
}

/// The java binary that agents of a template use.
pub(super) fn java(spec: &TemplateSpec) -> &str {
    match spec.java.distribution {
        JavaDistribution::None => &spec.java.path,
        // The installed Java is on PATH.
        JavaDistribution::Openjdk | JavaDistribution::Corretto => "java",
    }
}

/// The description of a node made for this demand.
pub(super) fn description(want: &Want) -> String {
    let label = |label: &String| word(label);
    match want {
        // Jobs ask for sizes by labels alone.
        Want::Sized(want, _) => description(want),
        Want::Labels(labels) if labels.is_empty() => format!("{DESCRIPTION_PREFIX}{ANY_DEMAND}"),
        Want::Labels(labels) => {
            let labels: Vec<String> = labels.iter().map(label).collect();
            format!("{DESCRIPTION_PREFIX}label {}", labels.join(" && "))
        }
        Want::Expression(expression) => format!("{DESCRIPTION_PREFIX}label {expression}"),
        Want::Template(name) => format!("{DESCRIPTION_PREFIX}template {name}"),
    }
}

/// The demand that a node was made for, by its description.
pub(super) fn made_for(description: &str) -> Option<Want> {
    let text = description.strip_prefix(DESCRIPTION_PREFIX)?;
    if text == ANY_DEMAND {
        return Some(Want::Labels(BTreeSet::new()));
    }
    why::want(text.strip_prefix("label ")?)
}

/// A label as lists and expressions spell it.
fn word(label: &str) -> String {
    let special = |c: char| c.is_whitespace() || "&|!()<>'".contains(c);
    if label.contains(special) { format!("\"{label}\"") } else { label.to_owned() }
}

/// Text within XML; characters that XML cannot carry are left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for ch in text.chars() {
        match ch {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\t' | '\n' => out.push(ch),
            ch if ch.is_control() || matches!(ch, '\u{fffe}' | '\u{ffff}') => {}
            ch => out.push(ch),
        }
    }
    out
}

/// The texts around the command that starts an agent, as XML.
fn wrapped((before, behind): (&str, &str)) -> String {
    if before.is_empty() {
        return String::new();
    }
    format!(
        "<prefixStartSlaveCmd>{}</prefixStartSlaveCmd><suffixStartSlaveCmd>{}</suffixStartSlaveCmd>",
        escaped(before),
        escaped(behind),
    )
}

impl Node<'_> {
    fn mode(&self) -> &'static str {
        match self.mode {
            Mode::Normal => "NORMAL",
            Mode::Exclusive => "EXCLUSIVE",
        }
    }

    fn label_string(&self) -> String {
        self.labels.iter().map(|label| word(label)).collect::<Vec<_>>().join(" ")
    }

    /// The body of `POST /computer/createItem`. The part of the SSH launcher follows the source of
    /// its plugin, and is unverified against a server.
    pub(super) fn xml(&self) -> String {
        let launcher = match self.link {
            AgentLink::Inbound { websocket } => format!(
                "<launcher class=\"hudson.slaves.JNLPLauncher\"><webSocket>{websocket}</webSocket>\
                 </launcher>"
            ),
            AgentLink::Ssh { host, port, credential, host_key: (algorithm, key), around } => {
                format!(
                    "<launcher class=\"hudson.plugins.sshslaves.SSHLauncher\"><host>{}</host>\
                 <port>{port}</port><credentialsId>{}</credentialsId><jvmOptions>{}</jvmOptions>\
                 <javaPath>{}</javaPath><launchTimeoutSeconds>60</launchTimeoutSeconds>\
                 <maxNumRetries>5</maxNumRetries><retryWaitTime>5</retryWaitTime>\
                 <sshHostKeyVerificationStrategy class=\"hudson.plugins.sshslaves.verifiers.\
                 ManuallyProvidedKeyVerificationStrategy\"><key><algorithm>{}</algorithm>\
                 <key>{}</key></key></sshHostKeyVerificationStrategy><tcpNoDelay>true</tcpNoDelay>\
                 {}</launcher>",
                    escaped(host),
                    escaped(credential),
                    escaped(self.options),
                    escaped(self.java),
                    escaped(algorithm),
                    escaped(key),
                    wrapped(around),
                )
            }
        };
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><slave><name>{}</name>\
             <description>{}</description><remoteFS>{}</remoteFS>\
             <numExecutors>{}</numExecutors><mode>{}</mode>\
             <retentionStrategy class=\"hudson.slaves.RetentionStrategy$Always\"/>{launcher}\
             <label>{}</label><nodeProperties/></slave>",
            escaped(self.name),
            escaped(&self.description),
            escaped(self.folder),
            self.executors,
            self.mode(),
            escaped(&self.label_string()),
        )
    }

    /// The body of `POST /computer/doCreateItem`, for controllers that do not take XML.
    pub(super) fn form(&self) -> String {
        const DUMB: &str = "hudson.slaves.DumbSlave$DescriptorImpl";
        let mut launcher = match self.link {
            AgentLink::Inbound { websocket } => {
                json!({ "stapler-class": "hudson.slaves.JNLPLauncher", "webSocket": websocket })
            }
            AgentLink::Ssh { host, port, credential, host_key: (algorithm, key), .. } => json!({
                "stapler-class": "hudson.plugins.sshslaves.SSHLauncher",
                "host": host,
                "port": port,
                "credentialsId": credential,
                "jvmOptions": self.options,
                "javaPath": self.java,
                "sshHostKeyVerificationStrategy": {
                    "stapler-class":
                        "hudson.plugins.sshslaves.verifiers.ManuallyProvidedKeyVerificationStrategy",
                    "key": format!("{algorithm} {key}"),
                },
            }),
        };
        if let AgentLink::Ssh { around: (before, behind), .. } = self.link
            && !before.is_empty()
        {
            launcher["prefixStartSlaveCmd"] = before.into();
            launcher["suffixStartSlaveCmd"] = behind.into();
        }
        let settings = json!({
            "name": self.name,
            "nodeDescription": self.description,
            "numExecutors": self.executors.to_string(),
            "remoteFS": self.folder,
            "labelString": self.label_string(),
            "mode": self.mode(),
            "type": DUMB,
            "retentionStrategy": {"stapler-class": "hudson.slaves.RetentionStrategy$Always"},
            "nodeProperties": {"stapler-class-bag": "true"},
            "launcher": launcher,
        });
        let plain = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let settings = plain(&settings.to_string());
        format!("name={}&type={}&json={settings}", plain(self.name), plain(DUMB))
    }
}
