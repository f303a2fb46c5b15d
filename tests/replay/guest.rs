//! The guests of the recorded installation: VM 900 ran a tiny system with the agent, the others
//! had nothing on their disks.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::{BoxFuture, FutureExt, ready};
use pve_sim::guest::{AgentCall, AgentError, GuestAddress, GuestBoot, GuestHost};
use serde_json::{Value, json};
use tokio::time::Instant;

/// The guest with the agent.
const TINY: u32 = 900;
/// From the start to the agent's first answer, and from the request to stop to the end.
const BOOT: Duration = Duration::from_secs(2);
const SHUTDOWN: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct RecordedGuests(Mutex<State>);

#[derive(Default)]
struct State {
    running: BTreeMap<u32, Guest>,
    files: BTreeMap<String, Vec<u8>>,
    processes: BTreeMap<i64, Value>,
    next_pid: i64,
}

struct Guest {
    booted: Instant,
    mac: Option<String>,
    ends: Option<Instant>,
}

impl Guest {
    fn runs(&self) -> bool {
        self.ends.is_none_or(|end| Instant::now() < end)
    }
}

impl RecordedGuests {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn answer(&self, vmid: u32, call: AgentCall) -> Result<Value, AgentError> {
        let mut state = self.state();
        let guest = state.running.get(&vmid).filter(|guest| guest.runs());
        let guest = guest.ok_or(AgentError::NotRunning)?;
        if vmid != TINY || guest.booted.elapsed() < BOOT {
            return Err(AgentError::NotRunning);
        }
        match call {
            AgentCall::Ping => Ok(json!({})),
            AgentCall::Info => {
                let one = json!({"enabled": true, "name": "guest-ping", "success-response": true});
                Ok(json!({"version": "7.2.22", "supported_commands": [one]}))
            }
            AgentCall::NetworkInterfaces => Ok(interfaces(guest.mac.as_deref())),
            AgentCall::Get(name) => Ok(get(&name)),
            AgentCall::Exec { command, input } => {
                let end = run(&command, input.as_deref())?;
                state.next_pid += 2;
                let pid = 128 + state.next_pid;
                // The recording lost the first look at the end of `true`.
                if command != ["true"] {
                    state.processes.insert(pid, end);
                }
                Ok(json!({"pid": pid}))
            }
            AgentCall::ExecStatus { pid } => {
                let known = state.processes.get(&pid).cloned();
                let end = known.ok_or_else(|| refused("Invalid parameter 'pid'"))?;
                if end["exited"] == true {
                    state.processes.remove(&pid);
                }
                Ok(end)
            }
            AgentCall::FileRead { path } => {
                let content = state.files.get(&path).ok_or_else(|| cannot_open(&path, "r"))?;
                let encoded = STANDARD.encode(content);
                Ok(json!({"bytes-read": content.len(), "content": encoded}))
            }
            AgentCall::FileWrite { path, content: _ } if path.starts_with("/nodir/") => {
                Err(cannot_open(&path, "wb"))
            }
            AgentCall::FileWrite { path, content } => {
                state.files.insert(path, content);
                Ok(Value::Null)
            }
        }
    }
}

fn refused(desc: &str) -> AgentError {
    AgentError::Refused { class: "GenericError".into(), desc: desc.into() }
}

fn cannot_open(path: &str, mode: &str) -> AgentError {
    let why = "No such file or directory";
    refused(&format!("failed to open file '{path}' (mode: '{mode}'): {why}"))
}

fn get(name: &str) -> Value {
    match name {
        "get-osinfo" => json!({
            "id": "tiny", "pretty-name": "tiny guest", "version-id": "1", "kernel-release": "6.1.0", "kernel-version": "#1 SMP",
            "machine": "x86_64",
        }),
        "get-host-name" => json!({"host-name": "(none)"}),
        "get-users" => json!([]),
        "get-vcpus" => json!([{"logical-id": 0, "online": true, "can-offline": false}]),
        "get-timezone" => json!({"offset": 0, "zone": "UTC"}),
        "get-memory-blocks" => json!([{"phys-index": 0, "online": true, "can-offline": true}]),
        "get-fsinfo" => json!([{
            "name": "vda", "mountpoint": "/", "type": "ext4", "total-bytes": 1, "used-bytes": 1,
            "disk": [{
                "bus": 0, "bus-type": "virtio", "dev": "/dev/vda", "target": 0, "unit": 0,
                "pci-controller": {"bus": 0, "domain": 0, "function": 0, "slot": 10},
            }],
        }]),
        "fsfreeze-status" => json!("thawed"),
        "fstrim" => json!({"paths": [{"path": "/", "minimum": 0, "trimmed": 1}]}),
        _ => Value::Null,
    }
}

fn interfaces(mac: Option<&str>) -> Value {
    let counters = json!({
        "rx-bytes": 0, "rx-dropped": 0, "rx-errs": 0, "rx-packets": 0,
        "tx-bytes": 0, "tx-dropped": 0, "tx-errs": 0, "tx-packets": 0,
    });
    let one = |name: &str, mac: &str, ip: &str, prefix: u8| {
        json!({
            "name": name, "hardware-address": mac, "statistics": counters,
            "ip-addresses": [
                {"ip-address": ip, "ip-address-type": "ipv4", "prefix": prefix},
            ],
        })
    };
    let mac = mac.unwrap_or("00:00:00:00:00:01").to_lowercase();
    json!([one("lo", "00:00:00:00:00:00", "127.0.0.1", 8), one("eth0", &mac, "10.9.8.7", 24)])
}

/// What the recorded commands did.
fn run(command: &[String], input: Option<&[u8]>) -> Result<Value, AgentError> {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let ended = |code: i32, out: &[u8], err: &[u8]| {
        let mut end = json!({"exited": true, "exitcode": code});
        for (key, bytes) in [("out", out), ("err", err)] {
            if !bytes.is_empty() {
                end[format!("{key}-data")] = STANDARD.encode(bytes).into();
                end[format!("{key}-truncated")] = false.into();
            }
        }
        end
    };
    match words.as_slice() {
        ["true"] => Ok(ended(0, b"", b"")),
        ["cat"] => Ok(ended(0, input.unwrap_or_default(), b"")),
        ["sh", "-c", script] if script.starts_with("echo out") => Ok(ended(3, b"out\n", b"err\n")),
        ["sh", "-c", script] if script.starts_with("kill") => {
            Ok(json!({"exited": true, "signal": 9}))
        }
        ["sh", "-c", script] if script.starts_with("printf") => {
            Ok(ended(0, b"a\xffb\0c \xc3\xbc", b""))
        }
        ["sh", "-c", "echo json"] => Ok(ended(0, b"json\n", b"")),
        // Neither ended while it was asked about.
        ["sh", "-c", script] if script.starts_with("head") => Ok(json!({"exited": false})),
        ["sleep", _] => Ok(json!({"exited": false})),
        [program, ..] => Err(refused(&format!(
            "Failed to execute child process \u{201c}{program}\u{201d} (No such file or directory)"
        ))),
        [] => Err(refused("Invalid parameter 'path'")),
    }
}

impl GuestHost for RecordedGuests {
    fn boot(&self, boot: GuestBoot) -> BoxFuture<'static, Result<(), String>> {
        let guest = Guest { booted: Instant::now(), mac: boot.mac, ends: None };
        self.state().running.insert(boot.vmid, guest);
        ready(Ok(())).boxed()
    }

    fn stop(&self, vmid: u32) -> BoxFuture<'static, ()> {
        self.state().running.remove(&vmid);
        ready(()).boxed()
    }

    fn shutdown(&self, vmid: u32) -> BoxFuture<'static, ()> {
        if let (TINY, Some(guest)) = (vmid, self.state().running.get_mut(&vmid)) {
            guest.ends = Some(Instant::now() + SHUTDOWN);
        }
        ready(()).boxed()
    }

    fn running(&self, vmid: u32) -> bool {
        self.state().running.get(&vmid).is_some_and(Guest::runs)
    }

    fn agent(&self, vmid: u32, call: AgentCall) -> BoxFuture<'static, Result<Value, AgentError>> {
        ready(self.answer(vmid, call)).boxed()
    }

    fn address(&self, _vmid: u32) -> Option<GuestAddress> {
        None
    }

    fn forget(&self, _vmid: u32) {}
}
