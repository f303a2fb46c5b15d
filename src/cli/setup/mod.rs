//! `drover setup`: what has to be done is decided by [`drover_admin::setup`]; here an administrator is asked
//! for a password, and what is done is printed.

mod dhcp;
mod output;
mod rights;
mod rotate;
mod service;
mod vip;

use std::io::{self, IsTerminal as _, Write as _};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::{Command as Program, ExitCode, Stdio};
use std::sync::Arc;

use clap::{Args, Subcommand};
use drover_hypervisor::Client;
use drover_model::id::CloudId;
use drover_ssh::{PrivateKey, Target};
use proxmox_client::{Endpoint, Login, WireDialer};
use secrecy::SecretString;

use super::service::{config_path, runtime};
use super::{CliError, Global, report};
use drover_admin::setup::machine::Machine;
use drover_admin::setup::step::{Needed, Step, check_privileges};
use drover_config::{Checked, Environment};

pub use dhcp::DhcpOptions;
use output::SetupOutput;
pub use rights::RightsOptions;
pub use service::ServiceOptions;
pub use vip::VipOptions;

/// The administrator's password, for scripts.
const PASSWORD: &str = "DROVER_ADMIN_PASSWORD";

/// What to set up.
#[derive(Debug, Clone, Subcommand)]
pub enum SetupAction {
    /// Make user, token, pool, roles and access entries: the least that the configuration needs
    Rights(RightsOptions),
    /// Make the container or virtual machine that drover runs in, and install it there
    Service(Box<ServiceOptions>),
    /// Set up a DHCP server for a bridge on one node, or for a zone of Proxmox's SDN
    Dhcp(Box<DhcpOptions>),
    /// Set up keepalived, which gives a virtual IP address to a machine whose drover is ready
    Vip(Box<VipOptions>),
}

/// Who logs in to the cluster.
#[derive(Debug, Clone, Default, Args)]
pub struct LoginOptions {
    /// The cloud of the configuration; may be left out where there is one
    #[arg(long, value_name = "CLOUD")]
    pub cloud: Option<String>,
    /// A node's address [default: the cloud's own]
    #[arg(long, value_name = "URL")]
    pub api_url: Option<Endpoint>,
    /// An administrator, root@pam, or a token, root@pam!setup [default: the cloud's own login]
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// File with the password or the token's secret [default: $DROVER_ADMIN_PASSWORD, else it is
    /// asked for]
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
}

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

pub(super) fn run(global: &Global, action: &SetupAction) -> ExitCode {
    let json = global.json;
    let mut stdout = io::stdout();
    let done = runtime(json).and_then(|runtime| {
        let mut out = SetupOutput::new(&mut stdout, json);
        let work = async {
            match action {
                SetupAction::Rights(options) => rights::run(global, options, &mut out).await,
                SetupAction::Service(options) => service::run(global, options, &mut out).await,
                SetupAction::Dhcp(options) => dhcp::run(global, options, &mut out).await,
                SetupAction::Vip(options) => vip::run(global, options, &mut out).await,
            }
        };
        let done = runtime.block_on(work);
        let done = out.end(done);
        done.map_err(|error| report::fail_by(json, &error, &format!("drover: {error}\n")))
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(code) => code,
    }
}

fn failed(text: impl Into<String>) -> CliError {
    CliError::Failed(text.into())
}

fn usage(text: impl Into<String>) -> CliError {
    CliError::Usage(text.into())
}

/// The cloud that was named, or the only one.
fn one_cloud(checked: &Checked, wanted: Option<&str>) -> Result<CloudId, CliError> {
    let mut clouds: Vec<&CloudId> = checked.connections.keys().collect();
    let known = clouds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if let Some(wanted) = wanted {
        clouds.retain(|cloud| cloud.as_str() == wanted);
    }
    let [cloud] = clouds[..] else {
        return Err(usage(format!("name one cloud with --cloud; known are {known}")));
    };
    Ok(cloud.clone())
}

/// The configuration that the options are about.
fn read(global: &Global, environment: &Environment) -> Result<(PathBuf, Checked), CliError> {
    let path = config_path(global);
    let checked = drover_config::load(&path, environment)
        .map_err(|error| CliError::Config(Box::new(error)))?;
    Ok((path, checked))
}

impl LoginOptions {
    /// The way into the cluster, as an administrator where one was named.
    fn client(
        &self,
        checked: &Checked,
        environment: &Environment,
    ) -> Result<Arc<Client>, CliError> {
        let cloud = one_cloud(checked, self.cloud.as_deref())?;
        let mut connection = checked.connections[&cloud].clone();
        if let Some(user) = self.user.clone() {
            let secret = password(environment, self.password_file.as_deref(), &user)?;
            connection.login = if user.contains('!') {
                Login::Token { id: user, secret }
            } else {
                Login::Password { username: user, secret }
            };
        }
        if let Some(endpoint) = &self.api_url {
            connection.endpoints = vec![endpoint.clone()];
        }
        let client = Client::new(cloud, &connection, &WireDialer);
        client.map(Arc::new).map_err(|error| failed(error.chain()))
    }
}

/// Prints steps, or does them once the login is known to hold what they need.
async fn carry_out(
    client: &Arc<Client>,
    (steps, needed): (&[Step], &Needed),
    dry_run: bool,
    out: &mut SetupOutput<'_>,
) -> Result<(), CliError> {
    if steps.is_empty() {
        return Ok(());
    }
    check_privileges(client, needed).await.map_err(failed)?;
    for step in steps {
        if dry_run {
            out.plan(step)?;
            continue;
        }
        step.run(client).await.map_err(|text| failed(format!("{step}: {text}")))?;
        out.did(step)?;
    }
    Ok(())
}

impl NodeOptions {
    async fn machine(&self, out: &mut SetupOutput<'_>) -> Result<Machine, CliError> {
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
fn as_root(said: &std::collections::BTreeMap<String, String>) -> Result<(), CliError> {
    match said.get("user").map(|text| text.trim()) {
        Some("0") => Ok(()),
        Some(_) | None => Err(failed("this writes below /etc: run it as root")),
    }
}

fn password(
    environment: &Environment,
    file: Option<&Path>,
    username: &str,
) -> Result<SecretString, CliError> {
    if let Some(file) = file {
        let text = std::fs::read_to_string(file)
            .map_err(|error| failed(format!("{} cannot be read: {error}", file.display())))?;
        return Ok(text.trim_end_matches(['\r', '\n']).into());
    }
    if let Some(secret) = environment.get(PASSWORD) {
        return Ok(secret.into());
    }
    if !io::stdin().is_terminal() {
        return Err(usage(format!("no password: give --password-file, or set {PASSWORD}")));
    }
    ask(&format!("password of {username}: "))
}

/// Asks on the terminal, without showing what is typed.
fn ask(what: &str) -> Result<SecretString, CliError> {
    let echo = |on: bool| {
        let word = if on { "echo" } else { "-echo" };
        let set = Program::new("stty").arg(word).stdin(Stdio::inherit()).status();
        set.is_ok_and(|status| status.success())
    };
    write!(io::stderr(), "{what}")?;
    io::stderr().flush()?;
    if !echo(false) {
        let text =
            format!("the terminal cannot hide a password: give --password-file, or set {PASSWORD}");
        return Err(failed(text));
    }
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line);
    echo(true);
    writeln!(io::stderr())?;
    read?;
    Ok(line.trim_end_matches(['\r', '\n']).into())
}
