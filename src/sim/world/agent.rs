//! The guest agent's calls: Proxmox's own refusals and waits, then the guest's answer.

use std::net::Ipv4Addr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::AgentHealth;
use super::ask::{Ask, failed};
use super::conf;
use crate::call::{Answer, ApiError, Outcome};
use crate::guest::{AgentCall, AgentError};

/// How long a ping before each command is waited for.
const PING: Duration = Duration::from_secs(3);
/// How long a command is waited for.
const COMMAND: Duration = Duration::from_secs(5);
/// A file's largest content in one write (behaviour section 17).
const FILE: usize = 61_440;

/// Serves `agent/{command}`, and `agent` with the command as a parameter.
pub async fn serve(ask: &Ask, rest: &str) -> Outcome {
    let command = match rest.strip_prefix("agent/") {
        Some(command) => command.to_owned(),
        None => ask.text("command").unwrap_or_default(),
    };
    ready(ask).await?;
    match command.as_str() {
        // The ping has just been answered.
        "ping" => Ok(result(json!({}))),
        "exec" => exec(ask).await,
        "exec-status" => exec_status(ask).await,
        "file-read" => file_read(ask).await,
        "file-write" => file_write(ask).await,
        "info" => simple(ask, "guest-info", AgentCall::Info).await,
        "network-get-interfaces" => interfaces(ask).await,
        "shutdown" => {
            ask.cluster.guests.shutdown(ask.vmid).await;
            Ok(result(json!({})))
        }
        "set-user-password" => set_password(ask).await,
        "fsfreeze-status" => Ok(result("thawed".into())),
        "fsfreeze-freeze" | "fsfreeze-thaw" => Ok(result(1.into())),
        "fstrim" => Ok(result(json!({ "paths": [{ "path": "/", "minimum": 0, "trimmed": 0 }] }))),
        get if get.starts_with("get-") => {
            simple(ask, &format!("guest-{get}"), AgentCall::Get(get.to_owned())).await
        }
        _ => Err(ApiError::failed(format!("agent command '{command}' is not simulated"))),
    }
}

/// The agent has a program of the guest do it, and waits for that.
async fn set_password(ask: &Ask) -> Outcome {
    let text = |name: &str| ask.text(name).unwrap_or_default();
    let input = format!("{}:{}\n", text("username"), text("password")).into_bytes();
    let command = vec!["chpasswd".to_owned()];
    let begun = Instant::now();
    let started = send(ask, "guest-exec", AgentCall::Exec { command, input: Some(input) }).await;
    let pid = match started {
        Ok(answer) => answer["pid"].as_i64().unwrap_or(0),
        Err(Refusal::Agent { desc, .. }) if desc.contains("No such file") => {
            return Err(failed("Agent error: cannot find 'passwd' program in PATH".into()));
        }
        Err(refusal) => return Err(refusal.into()),
    };
    while begun.elapsed() < COMMAND {
        let end = demand(ask, "guest-exec-status", AgentCall::ExecStatus { pid }).await?;
        if end["exited"] == true {
            return match end["exitcode"].as_i64() {
                Some(0) => Ok(result(json!({}))),
                _ => {
                    let text = "Agent error: child process has failed to set user password";
                    Err(failed(text.into()))
                }
            };
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let text =
        format!("VM {} qga command 'guest-set-user-password' failed - got timeout", ask.vmid);
    Err(failed(text))
}

fn result(value: Value) -> Answer {
    Answer::new(json!({ "result": value }))
}

/// The three ways in which an agent is not there, in Proxmox's order.
async fn ready(ask: &Ask) -> Result<(), ApiError> {
    {
        let mut state = ask.cluster.state();
        ask.cluster.refresh(&mut state, ask.vmid);
        let guest = state.guest(&ask.node, ask.vmid).map_err(failed)?;
        if !conf::agent_enabled(&guest.config) {
            return Err(failed("No QEMU guest agent configured".into()));
        }
        if guest.run.is_none() {
            return Err(failed(format!("VM {} is not running", ask.vmid)));
        }
    }
    let begun = Instant::now();
    if ask.cluster.agent_answers(ask.vmid).await {
        return Ok(());
    }
    // The ping waits in the guest's channel until the agent comes up and reads it.
    if let Some(wait) = ask.cluster.guests.agent_ready_in(ask.vmid).filter(|wait| *wait <= PING) {
        tokio::time::sleep(wait).await;
        if ask.cluster.agent_answers(ask.vmid).await {
            return Ok(());
        }
    }
    tokio::time::sleep(PING.saturating_sub(begun.elapsed())).await;
    Err(failed("QEMU guest agent is not running".into()))
}

/// Why a command gave nothing.
enum Refusal {
    Answer(ApiError),
    Agent { class: String, desc: String },
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Answer(error) => error,
            Refusal::Agent { desc, .. } => Self::failed(format!("Agent error: {desc}")),
        }
    }
}

/// Sends a command whose refusal is an error.
async fn demand(ask: &Ask, name: &str, call: AgentCall) -> Result<Value, ApiError> {
    send(ask, name, call).await.map_err(ApiError::from)
}

async fn send(ask: &Ask, name: &str, call: AgentCall) -> Result<Value, Refusal> {
    let begun = Instant::now();
    let health = ask.cluster.state().guests.get(&ask.vmid).map(|guest| guest.agent);
    let answer = match health {
        Some(AgentHealth::Stuck) => Err(AgentError::Timeout),
        Some(AgentHealth::Posing) => ask.cluster.guests.agent(model(ask), call).await,
        _ => ask.cluster.guests.agent(ask.vmid, call).await,
    };
    match answer {
        Ok(value) => Ok(value),
        Err(AgentError::Refused { class, desc }) => Err(Refusal::Agent { class, desc }),
        Err(AgentError::NotRunning) => {
            let text = "QEMU guest agent is not running";
            Err(Refusal::Answer(ApiError::failed(text)))
        }
        Err(AgentError::Timeout) => {
            tokio::time::sleep(COMMAND.saturating_sub(begun.elapsed())).await;
            let text = format!("VM {} qga command '{name}' failed - got timeout", ask.vmid);
            Err(Refusal::Answer(ApiError::failed(text)))
        }
    }
}

/// A command whose refusal by the agent comes as a 200 with the error inside.
async fn simple(ask: &Ask, name: &str, call: AgentCall) -> Outcome {
    match send(ask, name, call).await {
        Ok(value) => Ok(result(value)),
        Err(Refusal::Agent { class, desc }) => {
            Ok(result(json!({ "error": { "class": class, "desc": desc } })))
        }
        Err(Refusal::Answer(error)) => Err(error),
    }
}

async fn interfaces(ask: &Ask) -> Outcome {
    let mut answer =
        simple(ask, "guest-network-get-interfaces", AgentCall::NetworkInterfaces).await?;
    let health = ask.cluster.state().guests.get(&ask.vmid).map(|guest| guest.agent);
    if health == Some(AgentHealth::Lying) {
        misreport(&mut answer.data);
    }
    Ok(answer)
}

/// The guest that one poses as: the next below it that has an address, else the next above.
fn model(ask: &Ask) -> u32 {
    let all: Vec<u32> = ask.cluster.state().guests.keys().copied().collect();
    let runs = |vmid: &&u32| **vmid != ask.vmid && ask.cluster.guests.address(**vmid).is_some();
    let below = all.iter().filter(runs).filter(|vmid| **vmid < ask.vmid).max();
    below.or_else(|| all.iter().find(runs)).copied().unwrap_or(ask.vmid)
}

/// Puts addresses nobody listens on in place of the real ones.
fn misreport(data: &mut Value) {
    let Some(interfaces) = data["result"].as_array_mut() else { return };
    let addresses = interfaces
        .iter_mut()
        .filter_map(|interface| interface.get_mut("ip-addresses")?.as_array_mut())
        .flatten();
    for (address, last) in addresses.zip(1u8..) {
        let v4 = address["ip-address-type"] == "ipv4";
        let loopback = address["ip-address"] == "127.0.0.1";
        if v4 && !loopback {
            address["ip-address"] = Ipv4Addr::new(198, 51, 100, last).to_string().into();
        }
    }
}

async fn exec(ask: &Ask) -> Outcome {
    let command = match ask.params().0.get("command") {
        Some(Value::Array(words)) => {
            words.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect()
        }
        Some(Value::String(word)) => vec![word.clone()],
        _ => Vec::new(),
    };
    let input = ask.text("input-data").map(String::into_bytes);
    let call = AgentCall::Exec { command, input };
    let done = demand(ask, "guest-exec", call).await?;
    let pid = if done.is_number() { done } else { done["pid"].clone() };
    Ok(Answer::new(json!({ "pid": pid })))
}

async fn exec_status(ask: &Ask) -> Outcome {
    let pid = ask.params().int("pid").unwrap_or(0);
    let call = AgentCall::ExecStatus { pid };
    let mut status = demand(ask, "guest-exec-status", call).await?;
    if let Some(fields) = status.as_object_mut() {
        for value in fields.values_mut() {
            if let Some(flag) = value.as_bool() {
                *value = u8::from(flag).into();
            }
        }
        for key in ["out-data", "err-data"] {
            if let Some(data) = fields.get(key).and_then(Value::as_str).map(latin) {
                let truncated = format!("{}-truncated", &key[..3]);
                fields.insert(key.into(), data.into());
                fields.entry(truncated).or_insert(0.into());
            }
        }
    }
    Ok(Answer::new(status))
}

/// Decoded bytes as Proxmox answers them: a character for each.
fn latin(base64: &str) -> String {
    let bytes = STANDARD.decode(base64).unwrap_or_default();
    bytes.into_iter().map(char::from).collect()
}

async fn file_read(ask: &Ask) -> Outcome {
    let call = AgentCall::FileRead { path: ask.text("file").unwrap_or_default() };
    let read = demand(ask, "guest-file-read", call).await?;
    let base64 = read["content"].as_str().unwrap_or_default();
    let plain = !ask.params().0.contains_key("decode") || ask.flag("decode");
    let content = if plain { latin(base64) } else { base64.to_owned() };
    let mut answer = json!({ "content": content, "bytes-read": read["bytes-read"] });
    if read.get("truncated").is_some_and(|truncated| truncated.as_bool() == Some(true)) {
        answer["truncated"] = 1.into();
    }
    Ok(Answer::new(answer))
}

async fn file_write(ask: &Ask) -> Outcome {
    let path = ask.text("file").unwrap_or_default();
    let text = ask.text("content").unwrap_or_default();
    if text.chars().count() > FILE {
        let text = format!("value may only be {FILE} characters long");
        return Err(ApiError::parameter("content", text));
    }
    let plain = !ask.params().0.contains_key("encode") || ask.flag("encode");
    let content = if plain {
        let bytes: Result<Vec<u8>, _> = text.chars().map(u8::try_from).collect();
        bytes.map_err(|_| ApiError::failed("Wide character in subroutine entry"))?
    } else {
        let decoded = STANDARD.decode(text.as_bytes());
        decoded.map_err(|error| ApiError::failed(format!("Agent error: {error}")))?
    };
    let call = AgentCall::FileWrite { path, content };
    demand(ask, "guest-file-write", call).await?;
    Ok(Answer::null())
}
