//! Process guests from boot to end, with the real SSH client.
//!
//! Each test uses its own VMIDs, and so its own addresses.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent;
mod host;
mod life;
mod scripts;
mod sftp;
mod terminals;
mod windows;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drover_ssh::{
    Backoff, ExecResult, HostKeyPolicy, Keep, Limits, PrivateKey, Session, Target, connect_until,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::Instant;

use drover_shell::own_commands;

use super::*;

pub(super) const SOON: Duration = Duration::from_secs(30);
pub(super) const HOST_KEY_FILE: &str = "/etc/ssh/ssh_host_ed25519_key.pub";

pub(super) fn key(n: u8) -> PrivateKey {
    PrivateKey::from_seed(&[n; 32], "test")
}

pub(super) fn limits() -> Limits {
    Limits { time: SOON, output_bytes_max: 1 << 20, keep: Keep::First }
}

pub(super) fn known() -> KnownCommands {
    KnownCommands {
        may_run: Arc::new(own_commands::is_housekeeping),
        in_folder: Arc::new(own_commands::in_folder),
        script: Arc::new(own_commands::script),
    }
}

/// A host of guests with its own folder.
pub(super) struct Rig {
    pub guests: ProcessGuests,
    pub dir: tempfile::TempDir,
}

impl Rig {
    /// None where no namespace can be created; prints the reason.
    pub(super) fn isolated() -> Option<Self> {
        match Self::new(Isolation::Required, |_| false) {
            Ok(rig) => Some(rig),
            Err(reason) => {
                let said = format!("skipped: {reason}\n");
                std::io::Write::write_all(&mut std::io::stderr(), said.as_bytes()).unwrap();
                None
            }
        }
    }

    pub(super) fn new(
        isolation: Isolation,
        allowed: fn(&str) -> bool,
    ) -> Result<Self, IsolationError> {
        let dir = tempfile::tempdir().unwrap();
        let options = ProcessOptions {
            isolation,
            boot: Duration::ZERO..Duration::ZERO,
            known_commands: KnownCommands {
                may_run: Arc::new(move |line| own_commands::is_housekeeping(line) || allowed(line)),
                ..known()
            },
            ..ProcessOptions::new(dir.path().join("guests"))
        };
        Ok(Self { guests: ProcessGuests::new(options)?, dir })
    }

    /// A host as on a computer without bubblewrap.
    pub(super) fn without_bubblewrap(allow_all: bool, allowed: fn(&str) -> bool) -> Self {
        let isolation = Isolation::Unisolated;
        let mut rig = Self::new(isolation, allowed).unwrap();
        let inner = Arc::get_mut(&mut rig.guests.inner).unwrap();
        Arc::get_mut(&mut inner.host.sandbox).unwrap().set_allow_all(allow_all);
        rig
    }

    pub(super) fn machine(&self, vmid: u32) -> Arc<Machine> {
        self.guests.inner.machine(vmid).unwrap()
    }

    /// Boots a guest and waits until it is up.
    pub(super) async fn up(&self, vmid: u32, boot: u32) {
        self.guests.boot(guest(vmid, boot)).await.unwrap();
        self.machine(vmid).wait_until_up_or_off().await;
    }

    pub(super) async fn ask(&self, vmid: u32, call: AgentCall) -> Result<Value, AgentError> {
        self.guests.agent(vmid, call).await
    }

    pub(super) async fn read(&self, vmid: u32, path: &str) -> Result<String, AgentError> {
        let answer = self.ask(vmid, AgentCall::FileRead { path: path.to_owned() }).await?;
        let bytes = STANDARD.decode(answer["content"].as_str().unwrap()).unwrap();
        Ok(String::from_utf8(bytes).unwrap())
    }

    /// Logs in with the host key that the agent reports.
    pub(super) async fn log_in(&self, vmid: u32) -> Session {
        let pin = self.read(vmid, HOST_KEY_FILE).await.unwrap();
        let policy = HostKeyPolicy::Pinned(vec![pin]);
        self.log_in_as(vmid, &key(1), &policy).await.unwrap()
    }

    pub(super) async fn log_in_as(
        &self,
        vmid: u32,
        key: &PrivateKey,
        policy: &HostKeyPolicy,
    ) -> Result<Session, drover_ssh::ConnectError> {
        let address = self.guests.address(vmid).unwrap();
        let target = Target { host: address.ip, port: address.port, user: "ci".to_owned() };
        let deadline = Instant::now() + SOON;
        connect_until(deadline, &target, key, policy, Backoff::default(), |_| {}).await
    }
}

pub(super) fn guest(vmid: u32, boot: u32) -> GuestBoot {
    let keys = format!("{}\n", key(1).public_line("drover test"));
    let encoded = utf8_percent_encode(&keys, NON_ALPHANUMERIC).to_string();
    let config = [("ciuser", "ci".to_owned()), ("sshkeys", encoded)];
    GuestBoot {
        vmid,
        node: "pve1".to_owned(),
        hostname: format!("agent-{vmid}"),
        config: config.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        mac: Some("BC:24:11:AA:BB:CC".to_owned()),
        boot,
        resumed: false,
        config_from_disc: false,
        discs: Vec::new(),
    }
}

pub(super) async fn run(session: &Session, command: &str) -> ExecResult {
    session.exec(command, None, limits(), None).await.unwrap()
}

pub(super) async fn says(session: &Session, command: &str) -> String {
    let result = run(session, command).await;
    assert_eq!(result.exit, Some(0), "{command}: {}", String::from_utf8_lossy(&result.stderr));
    String::from_utf8(result.stdout).unwrap().trim_end().to_owned()
}
