//! How agents come to the tests' Jenkins: they connect, or it logs in to them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};

use super::door::{self, Request};
use super::fake::Shared;

const DUMB: &str = "hudson.slaves.DumbSlave$DescriptorImpl";
const ALWAYS: &str = "hudson.slaves.RetentionStrategy$Always";
const INBOUND: &str = "hudson.slaves.JNLPLauncher";
const SSH: &str = "hudson.plugins.sshslaves.SSHLauncher";
const MANUAL: &str = "hudson.plugins.sshslaves.verifiers.ManuallyProvidedKeyVerificationStrategy";
/// The keys of a node's form.
const FORM: [&str; 10] = [
    "name",
    "nodeDescription",
    "numExecutors",
    "remoteFS",
    "labelString",
    "mode",
    "type",
    "retentionStrategy",
    "nodeProperties",
    "launcher",
];
/// The keys of the SSH launcher in it.
const SSH_FORM: [&str; 7] = [
    "stapler-class",
    "host",
    "port",
    "credentialsId",
    "jvmOptions",
    "javaPath",
    "sshHostKeyVerificationStrategy",
];
/// What the launcher may have beside them, both or none.
const WRAP: [&str; 2] = ["prefixStartSlaveCmd", "suffixStartSlaveCmd"];

/// The connection of an agent, which ends with the node.
struct Link(TcpStream);

impl Write for Link {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// The text of an element of a node's XML.
pub fn part(xml: &str, name: &str) -> String {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let inner = xml.split_once(&open).and_then(|(_, rest)| rest.split_once(&close));
    let text = inner.map_or("", |(inner, _)| inner);
    let plain = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
    plain.replace("&apos;", "'").replace("&amp;", "&")
}

/// Text within XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Whether an object has these keys and no other.
fn has(object: &Value, keys: &[&str]) -> bool {
    object
        .as_object()
        .is_some_and(|all| all.len() == keys.len() && keys.iter().all(|key| all.contains_key(*key)))
}

/// The XML of a node that is made by form; none for a form that is answered with 500.
///
/// Keys, types and classes are those that a Hudson 3.3.2 takes (`crate::hudson`); a key that nobody would
/// read is refused as well. Of the SSH launcher they are those of the constructors of ssh-slaves 3.
pub fn xml_of(form: &BTreeMap<String, String>) -> Option<String> {
    let settings: Value = serde_json::from_str(form.get("json")?).ok()?;
    let executors: u32 = settings["numExecutors"].as_str()?.parse().ok()?;
    let is_sound = has(&settings, &FORM)
        && form.get("type").map(String::as_str) == Some(DUMB)
        && settings["type"] == DUMB
        && form.get("name").map(String::as_str) == settings["name"].as_str()
        && executors > 0
        && matches!(settings["mode"].as_str(), Some("NORMAL" | "EXCLUSIVE"))
        && settings["retentionStrategy"] == json!({ "stapler-class": ALWAYS })
        && settings["nodeProperties"] == json!({ "stapler-class-bag": "true" });
    if !is_sound {
        return None;
    }
    let text = |key: &str| settings[key].as_str().map(escaped);
    Some(format!(
        "<slave><name>{}</name><description>{}</description><remoteFS>{}</remoteFS>\
         <numExecutors>{executors}</numExecutors><mode>{}</mode>{}<label>{}</label></slave>",
        text("name")?,
        text("nodeDescription")?,
        text("remoteFS")?,
        text("mode")?,
        launcher_of(&settings["launcher"])?,
        text("labelString")?,
    ))
}

/// The XML of a launcher that is known.
fn launcher_of(launcher: &Value) -> Option<String> {
    let class = launcher["stapler-class"].as_str()?;
    if class == INBOUND && has(launcher, &["stapler-class", "webSocket"]) {
        let by_socket = launcher["webSocket"].as_bool()?;
        return Some(format!(
            "<launcher class=\"{INBOUND}\"><webSocket>{by_socket}</webSocket></launcher>"
        ));
    }
    let strategy = &launcher["sshHostKeyVerificationStrategy"];
    let is_wrapped = has(launcher, &[&SSH_FORM[..], &WRAP[..]].concat());
    let is_known = class == SSH
        && (is_wrapped || has(launcher, &SSH_FORM))
        && has(strategy, &["stapler-class", "key"])
        && strategy["stapler-class"] == MANUAL;
    if !is_known {
        return None;
    }
    let text = |key: &str| launcher[key].as_str().map(escaped);
    let (algorithm, key) = strategy["key"].as_str()?.split_once(' ')?;
    let mut around = String::new();
    for name in WRAP.iter().filter(|_| is_wrapped) {
        around += &format!("<{name}>{}</{name}>", text(name)?);
    }
    Some(format!(
        "<launcher class=\"{SSH}\"><host>{}</host><port>{}</port>\
         <credentialsId>{}</credentialsId><jvmOptions>{}</jvmOptions><javaPath>{}</javaPath>\
         <sshHostKeyVerificationStrategy class=\"{MANUAL}\"><key><algorithm>{algorithm}</algorithm>\
         <key>{key}</key></key></sshHostKeyVerificationStrategy>{around}</launcher>",
        text("host")?,
        launcher["port"].as_u64()?,
        text("credentialsId")?,
        text("jvmOptions")?,
        text("javaPath")?,
    ))
}

/// Anyone who says a node's name and secret is its agent.
pub fn inbound(
    shared: &Arc<Shared>,
    request: &Request,
    mut link: TcpStream,
    reader: BufReader<TcpStream>,
) {
    let name = request.header("node-name").to_owned();
    let known = shared.state().nodes.contains_key(&name);
    let refusal = match (known, request.header("secret-key") == door::secret(&name)) {
        (true, true) => None,
        (true, false) => Some("403 Forbidden"),
        (false, _) => Some("400 no such agent"),
    };
    if let Some(refusal) = refusal {
        // Nobody may listen any more.
        let _ = write!(link, "HTTP/1.1 {refusal}\r\nContent-Length: 0\r\n\r\n");
        return;
    }
    let head = "HTTP/1.1 101 Switching Protocols\r\nX-Remoting-Minimum-Version: 3176\r\n\r\n";
    if link.write_all(head.as_bytes()).is_ok() {
        shared.change(|state| state.connected(&name, Box::new(Link(link))));
        listen(shared, &name, reader);
    }
}

/// Takes in what an agent says until it is gone.
fn listen(shared: &Arc<Shared>, name: &str, said: impl Read) {
    for line in BufReader::new(said).lines().map_while(Result::ok) {
        if let Ok(word) = serde_json::from_str::<Value>(&line) {
            shared.change(|state| state.said(name, &word));
        }
    }
    shared.change(|state| state.lost(name));
}

/// Logs in as Jenkins' SSH launcher does, to that host key alone, and starts the agent there.
pub fn ssh(shared: &Arc<Shared>, name: &str, xml: &str) {
    let Some(key) = shared.key.lock().unwrap().clone() else { return };
    assert_eq!(part(xml, "credentialsId"), "agents-of-drover");
    let (host, port) = (part(xml, "host"), part(xml, "port"));
    let verifier = xml.split_once("<sshHostKeyVerificationStrategy").unwrap().1;
    let verifier = verifier.split_once("<key>").unwrap().1;
    let (algorithm, host_key) = (part(verifier, "algorithm"), part(verifier, "key"));
    let hosts = key.with_file_name(format!("hosts-{name}"));
    std::fs::write(&hosts, format!("[{host}]:{port} {algorithm} {host_key}\n")).unwrap();
    let folder = part(xml, "remoteFS");
    let start = format!(
        "cd \"{folder}\" && {} {} -jar remoting.jar -workDir {folder}",
        part(xml, "javaPath"),
        part(xml, "jvmOptions"),
    );
    let mut ssh = Command::new("ssh");
    let known = format!("UserKnownHostsFile={}", hosts.display());
    for option in ["StrictHostKeyChecking=yes", known.as_str(), "BatchMode=yes"] {
        ssh.args(["-o", option]);
    }
    ssh.arg("-i").arg(key).args(["-p", &port, &format!("debian@{host}"), &start]);
    let mut child = ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let stdin: ChildStdin = child.stdin.take().unwrap();
    let stdout = child.stdout.take().unwrap();
    let (shared, name) = (Arc::clone(shared), name.to_owned());
    shared.clone().change(|state| state.connected(&name, Box::new(stdin)));
    std::thread::spawn(move || {
        listen(&shared, &name, stdout);
        let _ = child.wait(); // its end is known by its output's
    });
}
