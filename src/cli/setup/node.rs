//! The machine that is set up: this one, or another over SSH.

use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use clap::Args;
use drover_ssh::{PrivateKey, Target};

use super::super::error::{CliError, failed, usage};
use super::output::SetupOutput;
use drover_admin::setup::machine::Machine;

/// The machine that is set up.
#[derive(Debug, Clone, Default, Args)]
pub struct NodeOptions {
    /// Do it there over SSH, as root@pve1 or root@10.0.0.2:22 [default: on this machine]
    #[arg(long, value_name = "USER@HOST")]
    pub node_ssh: Option<String>,
    /// The private key for it
    #[arg(long, value_name = "FILE", requires = "node_ssh")]
    pub ssh_key: Option<PathBuf>,
    /// Its host key, a line as in ssh_host_ed25519_key.pub [default: whichever it shows, which is
    /// reported]
    #[arg(long, value_name = "LINE", requires = "node_ssh")]
    pub host_key: Option<String>,
}

impl NodeOptions {
    /// Reaches the machine.
    pub(super) async fn machine(&self, out: &mut SetupOutput<'_>) -> Result<Machine, CliError> {
        let Some(text) = &self.node_ssh else { return Ok(Machine::Local) };
        let target = target(text)?;
        let Some(file) = &self.ssh_key else {
            return Err(usage("name the private key for it with --ssh-key"));
        };
        let key = PrivateKey::load(file, None)
            .map_err(|error| failed(format!("{}: {}", file.display(), causes::chain(&error))))?;
        let reached = Machine::reach(&target, &key, self.host_key.as_deref()).await;
        let (machine, seen) = reached.map_err(failed)?;
        if let Some(seen) = seen {
            out.remark(format!("{text} has the host key {seen}, taken as it is"))?;
        }
        Ok(machine)
    }
}

fn target(text: &str) -> Result<Target, CliError> {
    let fault = || usage(format!("`{text}` is no machine: write root@pve1 or root@10.0.0.2:22"));
    let (user, rest) = text.split_once('@').ok_or_else(fault)?;
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => (host, port.parse().map_err(|_| fault())?),
        Some(_) | None => (rest, 22),
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let host = match bare.parse::<IpAddr>() {
        Ok(address) => address,
        Err(_) => {
            let found = (bare, port).to_socket_addrs().ok().and_then(|mut all| all.next());
            found.ok_or_else(|| failed(format!("`{bare}` has no address")))?.ip()
        }
    };
    Ok(Target { host, port, user: user.to_owned() })
}

/// Refuses to write on a machine as anybody but root.
pub(super) fn as_root(said: &BTreeMap<String, String>) -> Result<(), CliError> {
    match said.get("user").map(|text| text.trim()) {
        Some("0") => Ok(()),
        Some(_) | None => Err(failed("this writes below /etc: run it as root")),
    }
}
