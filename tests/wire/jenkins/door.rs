//! The HTTP of the tests' Jenkins: who may do what, and its answers, pages among them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;

use base64::Engine as _;
use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use sha2::Sha256;

use super::fake::{Node, PATH, Shared, State};
use super::{launch, tree, xml};

pub const TOKEN: &str = "11aa22bb33cc";
pub const PASSWORD: &str = "a password";
const CRUMB: &str = "5c2c7f";
const SESSION: &str = "JSESSIONID.1=node01abc";
const HTML: &str = "text/html;charset=utf-8";

/// What is asked.
pub struct Request {
    method: String,
    /// Beneath the controller's own path.
    path: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: String,
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

fn pairs(text: &str) -> BTreeMap<String, String> {
    let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let each = text.split('&').filter_map(|pair| pair.split_once('='));
    each.map(|(name, value)| (plain(name), plain(value))).collect()
}

impl Request {
    fn read(link: &mut impl BufRead) -> Option<Self> {
        let mut line = String::new();
        link.read_line(&mut line).ok()?;
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_owned(), words.next()?);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = path.strip_prefix(PATH).unwrap_or("nowhere").to_owned();
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            link.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim().split_once(':') else { break };
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
        let length = headers.get("content-length").and_then(|length| length.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        link.read_exact(&mut body).ok()?;
        let body = String::from_utf8_lossy(&body).into_owned();
        Some(Self { method, path, query: pairs(query), headers, body })
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    fn password(&self) -> Option<String> {
        let login = self.header("authorization").strip_prefix("Basic ")?;
        let login = base64::engine::general_purpose::STANDARD.decode(login).ok()?;
        String::from_utf8(login).ok()?.strip_prefix("drover:").map(str::to_owned)
    }
}

impl Answer {
    fn new(status: u16, of_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("Content-Type", of_type.to_owned())];
        Self { status, headers, body: body.into() }
    }

    fn page(status: u16, text: &str) -> Self {
        Self::new(status, HTML, format!("<!DOCTYPE html><html><body>{text}</body></html>"))
    }

    fn json(value: &Value) -> Self {
        Self::new(200, "application/json;charset=utf-8", value.to_string())
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut text = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", self.status);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("Content-Length: {}\r\n\r\n", self.body.len()));
        [text.as_bytes(), &self.body].concat()
    }
}

/// A node's secret: the same name has the same for ever.
pub fn secret(name: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(b"the controller's key").unwrap();
    mac.update(name.as_bytes());
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Serves one connection: one request, or an agent for as long as it stays.
pub fn serve(shared: &Arc<Shared>, link: TcpStream) {
    let mut reader = BufReader::new(link.try_clone().unwrap());
    let Some(request) = Request::read(&mut reader) else { return };
    shared.change(|state| state.calls.push(format!("{} {}", request.method, request.path)));
    if request.path == "wsagents/" {
        return launch::inbound(shared, &request, link, reader);
    }
    if let Some(answer) = answer(shared, &request) {
        // Anyone who asked may be gone.
        let version = shared.state().version();
        let _ = (&link).write_all(&answer.with("X-Jenkins", version).bytes());
    }
}

fn answer(shared: &Arc<Shared>, request: &Request) -> Option<Answer> {
    if shared.state().starts {
        return Some(Answer::page(503, "Please wait while Jenkins is getting ready to work"));
    }
    if request.path == "jnlpJars/agent.jar" {
        return Some(Answer::new(200, "application/java-archive", "PK\u{3}\u{4}an agent"));
    }
    let known = match request.password().as_deref() {
        Some(TOKEN) => true,
        Some(PASSWORD) => {
            let crumb = request.header("jenkins-crumb") == CRUMB;
            let session = request.header("cookie").contains(SESSION);
            if request.method == "POST" && !(crumb && session) {
                return Some(Answer::page(403, "No valid crumb was included in the request"));
            }
            true
        }
        _ => false,
    };
    if !known {
        return Some(Answer::page(403, "Authentication required"));
    }
    let (denies, formless) = {
        let state = shared.state();
        (state.denies, state.formless)
    };
    let english = request.header("accept-language").starts_with("en");
    let parts: Vec<&str> = request.path.split('/').collect();
    match (request.method.as_str(), parts.as_slice()) {
        ("GET", ["crumbIssuer", "api", "json"]) => {
            let crumb = json!({ "crumb": CRUMB, "crumbRequestField": "Jenkins-Crumb" });
            let session = format!("{SESSION}; Path=/jenkins; Secure; HttpOnly");
            Some(Answer::json(&crumb).with("Set-Cookie", &session))
        }
        ("GET", ["computer", "api", "json"]) => {
            Some(reported(request, shared.state().nodes_json()))
        }
        ("GET", ["queue", "api", "json"]) => {
            Some(reported(request, shared.state().queue_json(english)))
        }
        ("GET", ["computer", name, "api", "json"]) => {
            let node = shared.state().node_named(name);
            Some(
                node.map_or_else(|| Answer::page(404, "Not Found"), |node| reported(request, node)),
            )
        }
        ("GET", ["computer", name, "jenkins-agent.jnlp"]) => {
            let state = shared.state();
            let old = state.old || !state.nodes.contains_key(*name);
            Some(if old { Answer::page(404, "Not Found") } else { jnlp(name) })
        }
        ("GET", ["computer", name, "slave-agent.jnlp"]) => Some(jnlp(name)),
        // `ComputerSet/new.jelly` has `Computer.CREATE` as its permission, as both of these check it.
        ("GET", ["computer", "new"]) if !denies => Some(Answer::page(200, "New node")),
        ("GET", ["computer", "new"]) | ("POST", ["computer", "createItem" | "doCreateItem"])
            if denies =>
        {
            Some(Answer::page(403, "drover is missing the Agent/Create permission"))
        }
        ("POST", ["computer", "createItem"]) => {
            let old = shared.state().old;
            let known = request.header("content-type").starts_with("application/xml");
            let name = request.query.get("name")?;
            if old {
                // `ComputerSet.doCreateItem` before 2.539 throws a `Failure`, whose page is
                // `AbstractModelObject/error.jelly`.
                return Some(Answer::page(400, "Error: No mode given"));
            }
            if !known {
                return Some(Answer::page(404, "Not Found"));
            }
            let faults = xml::faults(&request.body);
            if !faults.is_empty() {
                return Some(Answer::page(500, &faults.join("; ")));
            }
            create(shared, name, &request.body)
        }
        ("POST", ["computer", "doCreateItem"]) if formless => {
            Some(Answer::page(400, "Error: No such type"))
        }
        ("POST", ["computer", "doCreateItem"]) => {
            let form = pairs(&request.body);
            let is_form = request.header("content-type") == "application/x-www-form-urlencoded";
            let Some(xml) = launch::xml_of(&form).filter(|_| is_form) else {
                let text = "Failed to instantiate class hudson.slaves.DumbSlave";
                return Some(Answer::page(500, text));
            };
            let made = create(shared, form.get("name")?, &xml)?;
            let done = made.status == 200;
            Some(if done { Answer::page(302, "").with("Location", "../") } else { made })
        }
        ("POST", ["computer", name, "toggleOffline"]) => {
            let message = request.query.get("offlineMessage").cloned().unwrap_or_default();
            shared.change(|state| {
                let Some(node) = state.nodes.get_mut(*name) else {
                    return Some(Answer::page(404, "Not Found"));
                };
                let off = node.off.is_none();
                node.off = off.then(|| format!("Disconnected by drover : {message}"));
                Some(Answer::page(302, "").with("Location", "."))
            })
        }
        ("POST", ["computer", name, "doDelete"]) => {
            let there = shared.change(|state| state.remove(name));
            let found = Answer::page(302, "").with("Location", "../");
            Some(if there { found } else { Answer::page(404, "Not Found") })
        }
        _ => Some(Answer::page(404, "Not Found")),
    }
}

fn jnlp(name: &str) -> Answer {
    let secret = secret(name);
    let text = format!(
        "<jnlp><application-desc main-class=\"hudson.remoting.jnlp.Main\"><argument>{secret}\
         </argument><argument>{name}</argument><argument>-webSocket</argument></application-desc>\
         </jnlp>"
    );
    Answer::new(200, "application/x-java-jnlp-file", text)
}

/// Makes a node; none where its answer gets lost.
fn create(shared: &Arc<Shared>, name: &str, xml: &str) -> Option<Answer> {
    let made = shared.change(|state| {
        if state.nodes.contains_key(name) {
            return Err(Answer::page(400, &format!("Error: Node '{name}' already exists")));
        }
        assert_eq!(launch::part(xml, "name"), name);
        let labels = launch::part(xml, "label");
        let node = Node {
            labels: labels.split_whitespace().map(str::to_owned).collect(),
            executors: launch::part(xml, "numExecutors").parse().unwrap(),
            exclusive: launch::part(xml, "mode") == "EXCLUSIVE",
            xml: xml.to_owned(),
            ..Node::default()
        };
        state.nodes.insert(name.to_owned(), node);
        state.made.push(name.to_owned());
        let loses = state.loses > 0;
        state.loses = state.loses.saturating_sub(1);
        Ok(loses)
    });
    let loses = match made {
        Ok(loses) => loses,
        Err(refusal) => return Some(refusal),
    };
    if xml.contains("SSHLauncher") {
        launch::ssh(shared, name, xml);
    }
    if loses {
        return None;
    }
    shared.until(|state| !state.holds || state.stops);
    Some(Answer::new(200, "text/plain", ""))
}

/// What is asked for of an answer.
fn reported(request: &Request, value: Value) -> Answer {
    let asked = request.query.get("tree").map_or("", String::as_str);
    let reported = tree::pruned(value, asked);
    reported.map_or_else(|| Answer::page(400, "Error: tree"), |reported| Answer::json(&reported))
}

impl State {
    fn node_named(&self, name: &str) -> Option<Value> {
        self.nodes.get(name).map(|node| self.node_json(name, node))
    }
}
