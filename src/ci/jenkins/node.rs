//! What Jenkins is told to make: a node, as XML, and for older controllers as a form.

use std::collections::BTreeSet;

use drover_model::record::Want;
use drover_model::spec::{JavaDistribution, Mode, TemplateSpec};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::why;

/// Before what a node was made for, in its description.
const MADE_FOR: &str = "made by drover for builds that want ";
/// What stands there for builds without a label.
const ANYTHING: &str = "anything";

/// The way Jenkins comes to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way<'a> {
    /// The agent connects to Jenkins.
    Inbound {
        /// By WebSocket, through Jenkins' own port; else by its TCP port for agents.
        websocket: bool,
    },
    /// Jenkins connects to the guest.
    Ssh {
        /// The guest's address.
        host: &'a str,
        /// Its port.
        port: u16,
        /// The credential in Jenkins.
        credential: &'a str,
        /// The guest's host key, as algorithm and base64.
        host_key: (&'a str, &'a str),
        /// What stands before and behind the command that starts the agent; blank for nothing.
        around: (&'a str, &'a str),
    },
}

/// A node to be made.
#[derive(Debug, Clone)]
pub struct Node<'a> {
    /// Its name.
    pub name: &'a str,
    /// Text for people, and for what it was made.
    pub description: String,
    /// Builds at once.
    pub executors: u32,
    /// Where builds work.
    pub folder: &'a str,
    /// Its labels.
    pub labels: BTreeSet<String>,
    /// Who may use it.
    pub mode: Mode,
    /// The java binary.
    pub java: &'a str,
    /// Options of the JVM.
    pub options: &'a str,
    /// How it is reached.
    pub way: Way<'a>,
}

/// The java binary of a template's agents.
pub fn java(spec: &TemplateSpec) -> &str {
    match spec.java.distribution {
        JavaDistribution::None => &spec.java.path,
        // Whatever was installed is on PATH.
        JavaDistribution::Openjdk | JavaDistribution::Corretto => "java",
    }
}

/// What a node made for this says of itself.
pub fn description(want: &Want) -> String {
    let label = |label: &String| word(label);
    match want {
        Want::Labels(labels) if labels.is_empty() => format!("{MADE_FOR}{ANYTHING}"),
        Want::Labels(labels) => {
            let labels: Vec<String> = labels.iter().map(label).collect();
            format!("{MADE_FOR}label {}", labels.join(" && "))
        }
        Want::Expression(expression) => format!("{MADE_FOR}label {expression}"),
        Want::Template(name) => format!("{MADE_FOR}template {name}"),
    }
}

/// What a node was made for, by its description.
pub fn made_for(description: &str) -> Option<Want> {
    let text = description.strip_prefix(MADE_FOR)?;
    if text == ANYTHING {
        return Some(Want::Labels(BTreeSet::new()));
    }
    why::want(text.strip_prefix("label ")?)
}

/// A label as it is written in lists and expressions.
fn word(label: &str) -> String {
    let special = |c: char| c.is_whitespace() || "&|!()<>'".contains(c);
    if label.contains(special) { format!("\"{label}\"") } else { label.to_owned() }
}

/// Text within XML; characters that XML can not carry are left out.
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

/// What Jenkins puts around the command that starts an agent, as XML.
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

    /// For `POST /computer/createItem`. The SSH launcher's part is from the plugin's source;
    /// unverified against a server.
    pub fn xml(&self) -> String {
        let launcher = match self.way {
            Way::Inbound { websocket } => format!(
                "<launcher class=\"hudson.slaves.JNLPLauncher\"><webSocket>{websocket}</webSocket>\
                 </launcher>"
            ),
            Way::Ssh { host, port, credential, host_key: (algorithm, key), around } => format!(
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
            ),
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

    /// For `POST /computer/doCreateItem`, which controllers know that do not know the other.
    pub fn form(&self) -> String {
        const DUMB: &str = "hudson.slaves.DumbSlave$DescriptorImpl";
        let mut launcher = match self.way {
            Way::Inbound { websocket } => {
                json!({ "stapler-class": "hudson.slaves.JNLPLauncher", "webSocket": websocket })
            }
            Way::Ssh { host, port, credential, host_key: (algorithm, key), .. } => json!({
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
        if let Way::Ssh { around: (before, behind), .. } = self.way
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
