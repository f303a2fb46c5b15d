//! One running QEMU: its sockets, its address on this computer, and its end.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;

use super::agent::{self, Agent};
use super::qmp::Qmp;
use crate::guest::{AgentCall, AgentError};
use crate::guests::address::AddressPool;
use crate::guests::spawner::Spawner;

/// The SSH port on every guest's address.
pub(super) const SSH_PORT: u16 = 2222;
/// The address that QEMU's own DHCP gives to every guest, in a network of the guest's own.
const DHCP_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// A QEMU that has not answered within this time has failed to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const START_LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// A QEMU that has not quit within this time is killed.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);
/// A start fails after this many addresses in use.
const ADDRESSES_TRIED_MAX: u32 = 1000;

/// What a start needs.
pub(super) struct Launch {
    pub vmid: u32,
    /// The folder of its sockets, its discs and its console; removed at its end.
    pub folder: TempDir,
    pub arguments: Vec<OsString>,
    pub has_agent: bool,
    pub mac: Option<String>,
    /// An address that cloud-init sets; none for DHCP.
    pub static_address: Option<IpAddr>,
}

/// A QEMU that runs, or has just ended.
pub(super) struct Machine {
    pub qmp: Qmp,
    agent: Option<Agent>,
    mac: String,
    address: Ipv4Addr,
    kill: watch::Sender<bool>,
    ended: watch::Receiver<bool>,
}

/// The paths in a machine's folder.
pub(super) fn qmp_socket(folder: &Path) -> PathBuf {
    folder.join("qmp")
}
pub(super) fn agent_socket(folder: &Path) -> PathBuf {
    folder.join("agent")
}
pub(super) fn console(folder: &Path) -> PathBuf {
    folder.join("console")
}

impl Machine {
    /// Starts QEMU and forwards the SSH port of an address of this computer to the guest.
    ///
    /// # Errors
    /// The text after `start failed: `.
    pub(super) async fn start(
        launch: Launch,
        spawner: &Spawner,
        addresses: &Mutex<AddressPool>,
    ) -> Result<Self, String> {
        let folder = launch.folder.path();
        let mut child = spawn(&launch, spawner).await?;
        let qmp = Qmp::new(launch.vmid, &qmp_socket(folder));
        let ready = async {
            wait_for_qmp(&mut child, folder, &qmp).await?;
            forward_ssh(&qmp, &launch, addresses).await
        };
        let ready = timeout(START_TIMEOUT, ready).await;
        let address = match ready.unwrap_or_else(|_| Err("QEMU did not answer in time".into())) {
            Ok(address) => address,
            Err(reason) => {
                let _ended = child.kill().await;
                return Err(reason);
            }
        };
        let agent = launch.has_agent.then(|| Agent::new(&agent_socket(folder)));
        let (kill, mut killed) = watch::channel(false);
        let (end, ended) = watch::channel(false);
        let folder = launch.folder;
        tokio::spawn(async move {
            tokio::select! {
                _ = child.wait() => {}
                // The host has gone, too, when the sender has.
                _ = killed.wait_for(|kill| *kill) => {}
            }
            let _ended = child.kill().await;
            drop(folder);
            end.send_replace(true);
        });
        Ok(Self { qmp, agent, mac: launch.mac.unwrap_or_default(), address, kill, ended })
    }

    pub(super) fn is_running(&self) -> bool {
        !*self.ended.borrow()
    }

    pub(super) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Ends QEMU at once, and returns at once.
    pub(super) fn kill(&self) {
        self.kill.send_replace(true);
    }

    /// Ends QEMU, which writes its disks to the end.
    pub(super) async fn stop(&self) {
        // It may end before it answers.
        let _sent = timeout(QUIT_TIMEOUT, self.qmp.execute("quit", json!({}))).await;
        let mut ended = self.ended.clone();
        if timeout(QUIT_TIMEOUT, ended.wait_for(|ended| *ended)).await.is_err() {
            self.kill();
            let _ended = ended.wait_for(|ended| *ended).await;
        }
    }

    /// Asks the guest to power off: its agent where that answers, else by the power button.
    pub(super) async fn shut_down(&self) {
        if let Some(agent) = &self.agent
            && self.agent_has_opened().await
            && agent.shut_down().await.is_ok()
        {
            return;
        }
        if let Err(error) = self.qmp.execute("system_powerdown", json!({})).await {
            tracing::debug!(%error, "the power button is not pressed");
        }
    }

    /// Makes a call to the guest agent.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub(super) async fn agent(&self, call: AgentCall) -> Result<Value, AgentError> {
        let agent = self.agent.as_ref().ok_or(AgentError::NotRunning)?;
        // What is written to a closed port would be answered when nobody waits for it any more.
        if !self.agent_has_opened().await {
            return Err(AgentError::NotRunning);
        }
        let shows_addresses = call == AgentCall::NetworkInterfaces;
        let mut answer = agent.call(call).await?;
        if shows_addresses {
            agent::show_reachable_address(&mut answer, &self.mac, self.address);
        }
        Ok(answer)
    }

    /// Freezes the guest's file systems, or thaws them, where its agent can.
    pub(super) async fn freeze(&self, frozen: bool) {
        if let Some(agent) = &self.agent
            && self.agent_has_opened().await
            && let Err(error) = agent.freeze(frozen).await
        {
            tracing::debug!(%error, frozen, "the guest's file systems cannot be frozen or thawed");
        }
    }

    /// Whether a program in the guest has the agent's port open.
    pub(super) async fn agent_has_opened(&self) -> bool {
        let ports = self.qmp.execute("query-chardev", json!({})).await.unwrap_or_default();
        let mut ports = ports.as_array().into_iter().flatten();
        ports.any(|port| port["label"] == "agent" && port["frontend-open"] == true)
    }
}

async fn spawn(launch: &Launch, spawner: &Spawner) -> Result<Child, String> {
    let output = std::fs::File::create(log(launch.folder.path()));
    let output = output.map_err(|error| format!("cannot write to the guest's folder: {error}"))?;
    // It ends with the thread that started it, however this program ends.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "qemu-system-x86_64"]).args(&launch.arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).kill_on_drop(true);
    let child = spawner.spawn(command).await;
    child.map_err(|error| format!("cannot start QEMU by setpriv: {error}"))
}

/// What QEMU itself says.
fn log(folder: &Path) -> PathBuf {
    folder.join("log")
}

/// Waits until QEMU has made the machine. It greets on its socket then; before, it takes no connection,
/// or keeps it waiting.
async fn wait_for_qmp(child: &mut Child, folder: &Path, qmp: &Qmp) -> Result<(), String> {
    while qmp.execute("query-status", json!({})).await.is_err() {
        match child.try_wait() {
            Ok(Some(status)) => return Err(failure(status, folder)),
            Ok(None) => tokio::time::sleep(START_LOOK_INTERVAL).await,
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// What Proxmox says, and what QEMU says.
fn failure(status: std::process::ExitStatus, folder: &Path) -> String {
    let said = std::fs::read_to_string(log(folder)).unwrap_or_default();
    format!("QEMU exited with code {}\n{}", status.code().unwrap_or(-1), said.trim())
}

/// Forwards the SSH port of the guest's own loopback address, or of another one where a program
/// outside uses that.
async fn forward_ssh(
    qmp: &Qmp,
    launch: &Launch,
    addresses: &Mutex<AddressPool>,
) -> Result<Ipv4Addr, String> {
    if launch.mac.is_none() {
        return Ok(Ipv4Addr::LOCALHOST);
    }
    let guest = match launch.static_address {
        Some(IpAddr::V4(address)) => address,
        Some(IpAddr::V6(_)) | None => DHCP_ADDRESS,
    };
    let mut address = addresses.lock().assign(launch.vmid);
    for _ in 0..ADDRESSES_TRIED_MAX {
        let Some(own) = address else { break };
        let line = format!("hostfwd_add net0 tcp:{own}:{SSH_PORT}-{guest}:22");
        match qmp.monitor(&line).await {
            Ok(said) if said.is_empty() => return Ok(own),
            Ok(_) => address = addresses.lock().reassign(launch.vmid),
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(format!("no address 127.77.x.y has a free port {SSH_PORT}"))
}
