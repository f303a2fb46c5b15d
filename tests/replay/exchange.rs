//! Recorded exchanges, reduced to facts, and how a request is made of one.

use std::collections::BTreeMap;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use pve_sim::api::http::Request;
use serde::Deserialize;
use serde_json::Value;

/// One exchange with the real Proxmox VE 8.4, as far as it is compared.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    pub n: u32,
    #[serde(rename = "as")]
    pub credential: String,
    pub method: String,
    pub path: String,
    #[serde(default)]
    pub form: BTreeMap<String, Value>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    #[serde(default)]
    pub body: Option<String>,
    /// The form of an upload.
    #[serde(default)]
    pub upload: Option<Upload>,
    pub status: u16,
    pub reason: String,
    #[serde(default)]
    pub errors: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub message: Option<String>,
    /// The shape of `data`: `"s"` for any scalar.
    #[serde(default)]
    pub shape: Option<Value>,
    /// The body of an answer that was no JSON.
    #[serde(default)]
    pub plain: Option<String>,
    /// The task that was started.
    #[serde(default)]
    pub upid: Option<String>,
    /// The process that was started in the guest.
    #[serde(default)]
    pub pid: Option<u64>,
    /// The digest of a configuration that a later request quotes.
    #[serde(default)]
    pub digest: Option<String>,
    /// The status of the task asked about.
    #[serde(default)]
    pub task: Option<String>,
    /// Its exit status.
    #[serde(default)]
    pub exit: Option<String>,
    /// `success` and `status` of the `extjs` formatter.
    #[serde(default)]
    pub success: Option<u8>,
    #[serde(default)]
    pub inner: Option<u16>,
    #[serde(default)]
    pub note: Option<String>,
    /// What was done on the host beforehand.
    #[serde(default)]
    pub host: Vec<HostAct>,
}

/// The multipart form of an upload. What was in the recorded files is not known: here it is the
/// letter `x` again and again, and recorded checksums are those of that.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upload {
    fields: Vec<(String, String)>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    size: usize,
}

impl Upload {
    const KIND: &str = "multipart/form-data; boundary=b0undary";

    fn body(&self) -> String {
        let mut body = String::new();
        let head = "--b0undary\r\nContent-Disposition: form-data; name=";
        for (name, value) in &self.fields {
            body.push_str(&format!("{head}\"{name}\"\r\n\r\n{value}\r\n"));
        }
        if let Some(name) = &self.name {
            let kind = "Content-Type: application/octet-stream";
            let file = "x".repeat(self.size);
            body.push_str(&format!(
                "{head}\"filename\"; filename=\"{name}\"\r\n{kind}\r\n\r\n{file}\r\n"
            ));
        }
        body + "--b0undary--\r\n"
    }
}

/// Something done on the host between two exchanges, without a trace in the recording.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostAct {
    /// A key of a guest's configuration set, or removed.
    Set { vmid: u32, key: String, value: Option<String> },
    /// What a command of the host did, as the call that does the same.
    Call { method: String, path: String, form: BTreeMap<String, String> },
    /// A volume that came by a call which is not served.
    Plant { volid: String, size: u64 },
    /// Seconds that went by.
    Wait(u64),
}

/// What answers so far have given that later requests refer to.
#[derive(Default)]
pub struct Seen {
    pub upids: BTreeMap<String, String>,
    pub pids: BTreeMap<u64, u64>,
    pub digests: BTreeMap<String, String>,
    pub ticket: String,
    pub csrf: String,
}

/// All exchanges, in order.
pub fn load() -> Vec<Exchange> {
    let lines = include_str!("exchanges.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

impl Exchange {
    /// A call of root's that is not compared.
    pub fn unrecorded(method: &str, path: &str, form: &BTreeMap<String, String>) -> Self {
        let form: BTreeMap<&String, &String> = form.iter().collect();
        let parts = serde_json::json!({
            "n": 0, "as": "root", "method": method, "path": path, "form": form,
            "status": 200, "reason": "OK", "exit": "OK",
        });
        serde_json::from_value(parts).unwrap()
    }

    /// Whether the recorder sent it together with its neighbours of the same note.
    pub fn at_once(&self) -> bool {
        self.note
            .as_ref()
            .is_some_and(|note| note.ends_with("at once") || note.contains("at once,"))
    }

    /// The request, with UPIDs, processes and tickets of this run.
    pub fn request(&self, seen: &Seen, token: Option<&str>) -> Request {
        let writes = self.method == "PUT" || self.method == "POST";
        let mut target = self.path.split('/').map(|part| own_upid(part, seen)).collect::<Vec<_>>();
        let form = self.form(seen);
        if !writes && !form.is_empty() {
            let last = target.pop().unwrap();
            target.push(format!("{last}?{form}"));
        }
        let mut headers = BTreeMap::new();
        for (name, value) in &self.headers {
            let encoded = utf8_percent_encode(&seen.ticket, NON_ALPHANUMERIC).to_string();
            let value = value.replace("{ticket}", &encoded).replace("{csrf}", &seen.csrf);
            headers.insert(name.to_ascii_lowercase(), value);
        }
        if let Some(token) = token {
            headers.entry("authorization".into()).or_insert_with(|| format!("PVEAPIToken={token}"));
        }
        let body = match (&self.body, &self.upload) {
            (Some(body), _) => body.clone(),
            (None, Some(upload)) => {
                headers.insert("content-type".into(), Upload::KIND.into());
                upload.body()
            }
            (None, None) if writes => form,
            (None, None) => String::new(),
        };
        if writes && self.body.is_none() && !body.is_empty() {
            let kind = "application/x-www-form-urlencoded";
            headers.entry("content-type".into()).or_insert_with(|| kind.into());
        }
        Request {
            method: self.method.clone(),
            target: target.join("/"),
            headers: headers.into_iter().collect(),
            body: body.into_bytes().into(),
            node: "pve1".into(),
        }
    }

    fn form(&self, seen: &Seen) -> String {
        let mut pairs = Vec::new();
        for (name, value) in &self.form {
            let single = std::slice::from_ref(value);
            let items = value.as_array().map_or(single, Vec::as_slice);
            for item in items {
                let text = item.as_str().map_or_else(|| item.to_string(), str::to_owned);
                let mut text = full_length(text);
                let known = text.parse().ok().and_then(|pid: u64| seen.pids.get(&pid));
                if let (true, Some(pid)) = (name == "pid", known) {
                    text = pid.to_string();
                }
                if let ("digest", Some(own)) = (name.as_str(), seen.digests.get(&text)) {
                    text.clone_from(own);
                }
                let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
                pairs.push(format!("{}={}", encode(name), encode(&text)));
            }
        }
        pairs.join("&")
    }
}

/// Long runs of one character are written short: `yyyy…(61440 characters)`.
fn full_length(text: String) -> String {
    let short = text.strip_suffix(" characters)").and_then(|text| text.split_once("…("));
    match short.and_then(|(run, count)| Some((&run[..1], count.parse::<usize>().ok()?))) {
        Some((letter, count)) => letter.repeat(count),
        None => text,
    }
}

fn own_upid(part: &str, seen: &Seen) -> String {
    let decoded = percent_decode_str(part).decode_utf8_lossy();
    match seen.upids.get(decoded.as_ref()) {
        Some(own) if part.contains('%') => utf8_percent_encode(own, NON_ALPHANUMERIC).to_string(),
        Some(own) => own.clone(),
        None => part.to_owned(),
    }
}
