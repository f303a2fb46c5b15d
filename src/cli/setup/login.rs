//! Who logs in to the cluster that is set up: the cloud, its address, an administrator's password.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use drover_hypervisor::Client;
use drover_model::id::CloudId;
use proxmox_client::{Endpoint, Login, WireDialer};
use secrecy::SecretString;

use super::super::config::config_path;
use super::super::error::{CliError, failed, usage};
use super::super::global::Global;
use super::super::prompt::hidden;
use drover_config::{Checked, Environment};

/// The administrator's password, for scripts.
const PASSWORD: &str = "DROVER_ADMIN_PASSWORD";

/// Who logs in to the cluster.
#[derive(Debug, Clone, Default, Args)]
pub struct LoginOptions {
    /// The cloud of the configuration; may be left out where there is one
    #[arg(long, value_name = "CLOUD")]
    pub cloud: Option<String>,
    /// A node's address [default: the cloud's own]
    #[arg(long, value_name = "URL")]
    pub api_url: Option<Endpoint>,
    /// An administrator, root@pam, or a token, root@pam!setup [default: the cloud's own login; for
    /// setup rights none: it then only prints, with --dry-run]
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// File with the password or the token's secret [default: $DROVER_ADMIN_PASSWORD, else it is
    /// asked for]
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
}

impl LoginOptions {
    /// The way into the cluster, as an administrator where one was named.
    pub(super) fn client(
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

/// The cloud that was named, or the only one.
pub(super) fn one_cloud(checked: &Checked, wanted: Option<&str>) -> Result<CloudId, CliError> {
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
pub(super) fn read(
    global: &Global,
    environment: &Environment,
) -> Result<(PathBuf, Checked), CliError> {
    let path = config_path(global);
    let checked = drover_config::load(&path, environment)
        .map_err(|error| CliError::Config(Box::new(error)))?;
    Ok((path, checked))
}

/// The password of an administrator: of a file, the environment, or the terminal.
pub(in super::super) fn password(
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
    let instead = format!("give --password-file, or set {PASSWORD}");
    if !io::stdin().is_terminal() {
        return Err(usage(format!("no password: {instead}")));
    }
    let what = if username.contains('!') { "secret" } else { "password" };
    hidden(&format!("{what} of {username}: "), &instead)
}

/// Whether [`password`] asks somebody on the terminal.
pub(in super::super) fn asks_password(environment: &Environment, file: Option<&Path>) -> bool {
    file.is_none() && environment.get(PASSWORD).is_none() && io::stdin().is_terminal()
}
