//! Handlers of the guest agent's calls (`agent/*`).
//!
//! Each call first makes Proxmox's own checks: the agent is enabled, the VM runs, and the agent
//! answers a ping. Then the command goes to the guest host. The waits and error texts are those of
//! Proxmox (book: proxmox, section 17).

use std::net::Ipv4Addr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::AgentHealth;
use super::conf;
use super::context::{CallContext, failed};
use crate::call::{Answer, ApiError, Outcome};
use crate::guest::{AgentCall, AgentError};

/// The timeout of the ping that precedes each command.
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// The timeout of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// The most characters that one write to a file can carry (book: proxmox, section 17).
const MAX_WRITE_CHARS: usize = 61_440;

/// Serves `agent/{command}`, and `agent` with the command as a parameter.
pub(crate) async fn serve(ctx: &CallContext, rest: &str) -> Outcome {
    let command = match rest.strip_prefix("agent/") {
        Some(command) => command.to_owned(),
        None => ctx.text("command").unwrap_or_default(),
    };
    ensure_agent_ready(ctx).await?;
    match command.as_str() {
        // `ensure_agent_ready` has just pinged the agent.
        "ping" => Ok(result(json!({}))),
        "exec" => exec(ctx).await,
        "exec-status" => exec_status(ctx).await,
        "file-read" => file_read(ctx).await,
        "file-write" => file_write(ctx).await,
        "info" => send_wrapped(ctx, "guest-info", AgentCall::Info).await,
        "network-get-interfaces" => interfaces(ctx).await,
        "shutdown" => {
            ctx.cluster.guest_host.shutdown(ctx.vmid).await;
            Ok(result(json!({})))
        }
        "set-user-password" => set_password(ctx).await,
        "fsfreeze-status" => Ok(result("thawed".into())),
        "fsfreeze-freeze" | "fsfreeze-thaw" => Ok(result(1.into())),
        "fstrim" => Ok(result(json!({ "paths": [{ "path": "/", "minimum": 0, "trimmed": 0 }] }))),
        get if get.starts_with("get-") => {
            send_wrapped(ctx, &format!("guest-{get}"), AgentCall::Get(get.to_owned())).await
        }
        _ => Err(ApiError::failed(format!(
            "drover sim does not implement the agent command '{command}'"
        ))),
    }
}

/// Sets a password as the real agent does: it runs a program in the guest and waits for its end.
async fn set_password(ctx: &CallContext) -> Outcome {
    let text = |name: &str| ctx.text(name).unwrap_or_default();
    let input = format!("{}:{}\n", text("username"), text("password")).into_bytes();
    let command = vec!["chpasswd".to_owned()];
    let started_at = Instant::now();
    let started = send(ctx, "guest-exec", AgentCall::Exec { command, input: Some(input) }).await;
    let pid = match started {
        Ok(answer) => answer["pid"].as_i64().unwrap_or(0),
        Err(CommandError::Agent { desc, .. }) if desc.contains("No such file") => {
            return Err(failed("Agent error: cannot find 'passwd' program in PATH".into()));
        }
        Err(error) => return Err(error.into()),
    };
    while started_at.elapsed() < COMMAND_TIMEOUT {
        let end = send_or_fail(ctx, "guest-exec-status", AgentCall::ExecStatus { pid }).await?;
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
        format!("VM {} qga command 'guest-set-user-password' failed - got timeout", ctx.vmid);
    Err(failed(text))
}

fn result(value: Value) -> Answer {
    Answer::new(json!({ "result": value }))
}

/// Checks that the agent is configured, that the VM runs and that the agent answers, in Proxmox's
/// order.
async fn ensure_agent_ready(ctx: &CallContext) -> Result<(), ApiError> {
    {
        let mut state = ctx.cluster.state();
        ctx.cluster.refresh_vm(&mut state, ctx.vmid);
        let guest = state.vm(&ctx.node, ctx.vmid).map_err(failed)?;
        if !conf::agent_enabled(&guest.config) {
            return Err(failed("No QEMU guest agent configured".into()));
        }
        if guest.process.is_none() {
            return Err(failed(format!("VM {} is not running", ctx.vmid)));
        }
    }
    let started = Instant::now();
    if ctx.cluster.agent_answers(ctx.vmid).await {
        return Ok(());
    }
    // The ping waits in the guest's channel until the agent starts and reads it.
    if let Some(wait) =
        ctx.cluster.guest_host.agent_ready_in(ctx.vmid).filter(|wait| *wait <= PING_TIMEOUT)
    {
        tokio::time::sleep(wait).await;
        if ctx.cluster.agent_answers(ctx.vmid).await {
            return Ok(());
        }
    }
    tokio::time::sleep(PING_TIMEOUT.saturating_sub(started.elapsed())).await;
    Err(failed("QEMU guest agent is not running".into()))
}

/// Why a command returned no value.
enum CommandError {
    Api(ApiError),
    Agent { class: String, desc: String },
}

impl From<CommandError> for ApiError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Api(error) => error,
            CommandError::Agent { desc, .. } => Self::failed(format!("Agent error: {desc}")),
        }
    }
}

/// Sends a command; a refusal by the agent is an error.
async fn send_or_fail(ctx: &CallContext, name: &str, call: AgentCall) -> Result<Value, ApiError> {
    send(ctx, name, call).await.map_err(ApiError::from)
}

async fn send(ctx: &CallContext, name: &str, call: AgentCall) -> Result<Value, CommandError> {
    let started = Instant::now();
    let health = ctx.cluster.state().vms.get(&ctx.vmid).map(|guest| guest.agent_health);
    let answer = match health {
        Some(AgentHealth::Stuck) => Err(AgentError::Timeout),
        Some(AgentHealth::Posing) => {
            ctx.cluster.guest_host.agent(impersonated_guest(ctx), call).await
        }
        _ => ctx.cluster.guest_host.agent(ctx.vmid, call).await,
    };
    match answer {
        Ok(value) => Ok(value),
        Err(AgentError::Refused { class, desc }) => Err(CommandError::Agent { class, desc }),
        Err(AgentError::NotRunning) => {
            let text = "QEMU guest agent is not running";
            Err(CommandError::Api(ApiError::failed(text)))
        }
        Err(AgentError::Timeout) => {
            tokio::time::sleep(COMMAND_TIMEOUT.saturating_sub(started.elapsed())).await;
            let text = format!("VM {} qga command '{name}' failed - got timeout", ctx.vmid);
            Err(CommandError::Api(ApiError::failed(text)))
        }
    }
}

/// Sends a command; a refusal by the agent is a 200 with the error inside.
async fn send_wrapped(ctx: &CallContext, name: &str, call: AgentCall) -> Outcome {
    match send(ctx, name, call).await {
        Ok(value) => Ok(result(value)),
        Err(CommandError::Agent { class, desc }) => {
            Ok(result(json!({ "error": { "class": class, "desc": desc } })))
        }
        Err(CommandError::Api(error)) => Err(error),
    }
}

async fn interfaces(ctx: &CallContext) -> Outcome {
    let mut answer =
        send_wrapped(ctx, "guest-network-get-interfaces", AgentCall::NetworkInterfaces).await?;
    let health = ctx.cluster.state().vms.get(&ctx.vmid).map(|guest| guest.agent_health);
    if health == Some(AgentHealth::Lying) {
        falsify_addresses(&mut answer.data);
    }
    Ok(answer)
}

/// The VM whose answers a posing agent gives: the next lower VMID with an address, else the next
/// higher one.
fn impersonated_guest(ctx: &CallContext) -> u32 {
    let all: Vec<u32> = ctx.cluster.state().vms.keys().copied().collect();
    let runs = |vmid: &&u32| **vmid != ctx.vmid && ctx.cluster.guest_host.address(**vmid).is_some();
    let below = all.iter().filter(runs).filter(|vmid| **vmid < ctx.vmid).max();
    below.or_else(|| all.iter().find(runs)).copied().unwrap_or(ctx.vmid)
}

/// Replaces the real IPv4 addresses by addresses on which nothing listens.
fn falsify_addresses(data: &mut Value) {
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

async fn exec(ctx: &CallContext) -> Outcome {
    let command = match ctx.params().0.get("command") {
        Some(Value::Array(words)) => {
            words.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect()
        }
        Some(Value::String(word)) => vec![word.clone()],
        _ => Vec::new(),
    };
    let input = ctx.text("input-data").map(String::into_bytes);
    let call = AgentCall::Exec { command, input };
    let done = send_or_fail(ctx, "guest-exec", call).await?;
    let pid = if done.is_number() { done } else { done["pid"].clone() };
    Ok(Answer::new(json!({ "pid": pid })))
}

async fn exec_status(ctx: &CallContext) -> Outcome {
    let pid = ctx.params().int("pid").unwrap_or(0);
    let call = AgentCall::ExecStatus { pid };
    let mut status = send_or_fail(ctx, "guest-exec-status", call).await?;
    if let Some(fields) = status.as_object_mut() {
        for value in fields.values_mut() {
            if let Some(flag) = value.as_bool() {
                *value = u8::from(flag).into();
            }
        }
        for key in ["out-data", "err-data"] {
            if let Some(data) = fields.get(key).and_then(Value::as_str).map(bytes_as_chars) {
                let truncated = format!("{}-truncated", &key[..3]);
                fields.insert(key.into(), data.into());
                fields.entry(truncated).or_insert(0.into());
            }
        }
    }
    Ok(Answer::new(status))
}

/// Decodes base64 as Proxmox does: each byte becomes one character.
fn bytes_as_chars(base64: &str) -> String {
    let bytes = STANDARD.decode(base64).unwrap_or_default();
    bytes.into_iter().map(char::from).collect()
}

async fn file_read(ctx: &CallContext) -> Outcome {
    let call = AgentCall::FileRead { path: ctx.text("file").unwrap_or_default() };
    let read = send_or_fail(ctx, "guest-file-read", call).await?;
    let base64 = read["content"].as_str().unwrap_or_default();
    let plain = !ctx.params().0.contains_key("decode") || ctx.flag("decode");
    let content = if plain { bytes_as_chars(base64) } else { base64.to_owned() };
    let mut answer = json!({ "content": content, "bytes-read": read["bytes-read"] });
    if read.get("truncated").is_some_and(|truncated| truncated.as_bool() == Some(true)) {
        answer["truncated"] = 1.into();
    }
    Ok(Answer::new(answer))
}

async fn file_write(ctx: &CallContext) -> Outcome {
    let path = ctx.text("file").unwrap_or_default();
    let text = ctx.text("content").unwrap_or_default();
    if text.chars().count() > MAX_WRITE_CHARS {
        let text = format!("value may only be {MAX_WRITE_CHARS} characters long");
        return Err(ApiError::parameter("content", text));
    }
    let plain = !ctx.params().0.contains_key("encode") || ctx.flag("encode");
    let content = if plain {
        let bytes: Result<Vec<u8>, _> = text.chars().map(u8::try_from).collect();
        bytes.map_err(|_| ApiError::failed("Wide character in subroutine entry"))?
    } else {
        let decoded = STANDARD.decode(text.as_bytes());
        decoded.map_err(|error| ApiError::failed(format!("Agent error: {error}")))?
    };
    let call = AgentCall::FileWrite { path, content };
    send_or_fail(ctx, "guest-file-write", call).await?;
    Ok(Answer::null())
}
