//! The answers of the guest agent that are the same for all kinds of guests.
//!
//! They have the form of `qemu-ga` (base64 output, booleans). The world converts them as Proxmox
//! does.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::guest::AgentError;

/// The longest output of `guest-exec`, and the longest file read: 16 MiB, as in `qemu-ga`.
pub(super) const OUTPUT_BYTES_MAX: usize = 16 << 20;

/// The file of the public host key in every guest.
pub(super) const HOST_KEY_FILE: &str = "/etc/ssh/ssh_host_ed25519_key.pub";

/// The commands that the agent lists.
const COMMANDS: [&str; 18] = [
    "guest-exec",
    "guest-exec-status",
    "guest-file-close",
    "guest-file-open",
    "guest-file-read",
    "guest-file-write",
    "guest-get-fsinfo",
    "guest-get-host-name",
    "guest-get-memory-blocks",
    "guest-get-osinfo",
    "guest-get-time",
    "guest-get-timezone",
    "guest-get-users",
    "guest-get-vcpus",
    "guest-info",
    "guest-network-get-interfaces",
    "guest-ping",
    "guest-shutdown",
];

pub(super) fn info() -> Value {
    let commands: Vec<Value> = COMMANDS
        .iter()
        .map(|name| json!({"enabled": true, "name": name, "success-response": true}))
        .collect();
    json!({"version": "7.2.22", "supported_commands": commands})
}

/// `lo`, and `eth0` with the machine's MAC address; the addresses once the guest has them.
pub(super) fn interfaces(mac: Option<&str>, address: Option<(IpAddr, u8)>) -> Value {
    let of = |ip: IpAddr, prefix: u8| {
        let kind = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
        json!({"ip-address": ip.to_string(), "ip-address-type": kind, "prefix": prefix})
    };
    let counters = json!({
        "rx-bytes": 0, "rx-dropped": 0, "rx-errs": 0, "rx-packets": 0,
        "tx-bytes": 0, "tx-dropped": 0, "tx-errs": 0, "tx-packets": 0,
    });
    let mut list = vec![json!({
        "name": "lo",
        "hardware-address": "00:00:00:00:00:00",
        "ip-addresses": [
            of(IpAddr::from([127, 0, 0, 1]), 8),
            of(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]), 128),
        ],
        "statistics": counters,
    })];
    if let Some(mac) = mac {
        let mut eth0 = json!({
            "name": "eth0",
            "hardware-address": mac.to_lowercase(),
            "statistics": counters,
        });
        // An interface without addresses lacks the key.
        if let Some((ip, prefix)) = address {
            eth0["ip-addresses"] = json!([of(ip, prefix)]);
        }
        list.push(eth0);
    }
    Value::Array(list)
}

/// The answers to `get-…`; `seconds` is the guest's clock in Unix seconds.
pub(super) fn get(name: &str, hostname: &str, seconds: u64) -> Result<Value, AgentError> {
    let answer = match name {
        "get-osinfo" => json!({
            "id": "debian",
            "name": "Debian GNU/Linux",
            "pretty-name": "Debian GNU/Linux 12 (bookworm)",
            "version": "12 (bookworm)",
            "version-id": "12",
            "kernel-release": "6.1.0-28-cloud-amd64",
            "kernel-version": "#1 SMP PREEMPT_DYNAMIC Debian 6.1.119-1",
            "machine": "x86_64",
        }),
        "get-host-name" => json!({"host-name": hostname}),
        "get-users" | "get-memory-blocks" => json!([]),
        "get-memory-block-info" => json!({"size": 134_217_728}),
        "get-vcpus" => json!([{"logical-id": 0, "online": true, "can-offline": false}]),
        "get-timezone" => json!({"offset": 0, "zone": "UTC"}),
        "get-time" => json!(seconds.saturating_mul(1_000_000_000)),
        "get-fsinfo" => json!([{
            "name": "sda1", "mountpoint": "/", "type": "ext4",
            "total-bytes": 10_000_000_000_u64, "used-bytes": 1_200_000_000_u64, "disk": [],
        }]),
        name => return Err(refused("CommandNotFound", &unknown_command(name))),
    };
    Ok(answer)
}

fn unknown_command(name: &str) -> String {
    format!("The command guest-{name} has not been found")
}

pub(super) fn refused(class: &str, desc: &str) -> AgentError {
    AgentError::Refused { class: class.to_owned(), desc: desc.to_owned() }
}

/// The refusal for an unknown process, or one whose end was reported.
pub(super) fn unknown_pid() -> AgentError {
    refused("GenericError", "Invalid parameter 'pid'")
}

/// GLib uses typographic quotes, which Proxmox cannot pass on.
pub(super) fn no_such_program(program: &str) -> AgentError {
    let desc = format!(
        "Failed to execute child process \u{201c}{program}\u{201d} (No such file or directory)"
    );
    refused("GenericError", &desc)
}

pub(super) fn cannot_open(path: &str, mode: &str, reason: &str) -> AgentError {
    refused("GenericError", &format!("failed to open file '{path}' (mode: '{mode}'): {reason}"))
}

pub(super) fn file(content: &[u8], truncated: bool) -> Value {
    let mut answer = json!({
        "bytes-read": content.len(),
        "content": STANDARD.encode(content),
    });
    if truncated {
        answer["truncated"] = json!(true);
    }
    answer
}

/// How a process ended, and its output.
#[derive(Debug, Clone, Default)]
pub(super) struct ProcessExit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
}

/// The answer to `guest-exec-status`; `exited` is none while the process runs.
pub(super) fn exec_status(exited: Option<&ProcessExit>) -> Value {
    let Some(exited) = exited else {
        return json!({"exited": false});
    };
    let mut answer = json!({"exited": true});
    if let Some(code) = exited.code {
        answer["exitcode"] = json!(code);
    }
    if let Some(signal) = exited.signal {
        answer["signal"] = json!(signal);
    }
    let streams = [
        ("out", &exited.stdout, exited.stdout_truncated),
        ("err", &exited.stderr, exited.stderr_truncated),
    ];
    for (name, bytes, truncated) in streams {
        if !bytes.is_empty() {
            answer[format!("{name}-data")] = json!(STANDARD.encode(bytes));
            answer[format!("{name}-truncated")] = json!(truncated);
        }
    }
    answer
}
