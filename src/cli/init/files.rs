//! The files of a first configuration: where they are, what is there already, and writing them.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use drover_admin::init::{Files, Proposal, Trust, is_blank, yaml};
use drover_admin::setup::machine::FileToWrite;
use drover_admin::setup::{service_group, write_secret};
use drover_config::{Environment, SOCKET_PATH_MAX};
use drover_ssh::PrivateKey;
use rand::TryRng;
use rand::rngs::SysRng;
use secrecy::{ExposeSecret as _, SecretString};

use super::super::config::{DEFAULT_CONFIG, config_path, replace};
use super::super::error::{CliError, failed};
use super::super::global::Global;
use super::super::setup::SetupOutput;
use super::InitOptions;

/// The file of the cluster's own authority.
pub(super) const AUTHORITY: &str = "pve-root-ca.pem";
/// The YAML, where only its folder is named.
const YAML: &str = "drover.yaml";
/// The folder of secrets, from which the unit loads them.
const CREDENTIALS: &str = "credentials";
/// The key for guests.
const KEY: &str = "agent-ssh-key";
/// The secret of drover's token.
const TOKEN: &str = "proxmox-token";
/// Journal and socket of a drover that its unit does not run.
const STATE: &str = "state";
const SOCKET: &str = "drover.sock";

/// Where the configuration is.
pub(super) struct Place {
    folder: PathBuf,
    file: PathBuf,
    /// What `--config` names: the folder, or the file.
    config: PathBuf,
}

fn unwritten(path: &Path, error: &io::Error) -> CliError {
    let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
    let help = if is_denied { "; run it as root, or name another folder with --dir" } else { "" };
    failed(format!("{} cannot be written: {error}{help}", path.display()))
}

impl Place {
    /// Of the options.
    pub(super) fn of(global: &Global, options: &InitOptions) -> Self {
        let config = options.dir.clone().unwrap_or_else(|| config_path(global));
        let is_file = config.extension().is_some_and(|end| end == "yaml" || end == "yml");
        match is_file && !config.is_dir() {
            true => {
                let folder = config.parent().unwrap_or(Path::new("")).to_owned();
                Self { folder, file: config.clone(), config }
            }
            false => Self { folder: config.clone(), file: config.join(YAML), config },
        }
    }

    pub(super) fn config(&self) -> PathBuf {
        self.config.clone()
    }

    /// Whether it is where the unit reads it.
    pub(super) fn is_usual(&self) -> bool {
        self.file == Path::new(DEFAULT_CONFIG).join(YAML)
    }

    /// The file that has, or gets, a token's secret.
    pub(super) fn secret(&self, token: &str) -> PathBuf {
        let named = drover_config::token_place(&self.config, &Environment::of_process(), token);
        let named = named.ok().and_then(|place| place.secret_file);
        named.unwrap_or_else(|| self.beside(CREDENTIALS).join(TOKEN))
    }

    /// The text of the YAML. Another place than the unit's has a state directory and a socket of its own,
    /// so that what runs there shares nothing with the unit's drover.
    pub(super) fn yaml(&self, plan: &Proposal) -> io::Result<String> {
        let folder = std::path::absolute(match self.folder.as_os_str().is_empty() {
            true => Path::new("."),
            false => &self.folder,
        })?;
        let (state, socket) = (folder.join(STATE), folder.join(SOCKET));
        let socket = Some(socket.as_path()).filter(|one| one.as_os_str().len() <= SOCKET_PATH_MAX);
        let service = (!self.is_usual()).then_some((state.as_path(), socket));
        Ok(yaml(plan, Files { authority: AUTHORITY, service }))
    }

    /// A file beside the YAML.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The YAML that is there.
    pub(super) fn read(&self) -> Result<Option<String>, CliError> {
        match fs::read_to_string(&self.file) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(format!("{} cannot be read: {error}", self.file.display()))),
        }
    }

    /// Refuses where somebody's configuration is in the way.
    pub(super) fn refuse_others(
        &self,
        there: Option<&str>,
        text: &str,
        replaces: bool,
    ) -> Result<(), CliError> {
        if there == Some(text) {
            return Ok(());
        }
        if let Some(there) = there.filter(|there| !is_blank(there) && !replaces) {
            let differs = |(one, other): &(&str, &str)| one != other;
            let first = there.lines().zip(text.lines()).enumerate().find(|(_, pair)| differs(pair));
            let shown = match first {
                Some((at, (is, would))) => {
                    format!("line {} is `{}` and would be `{}`", at + 1, is.trim(), would.trim())
                }
                None => "one of them has more lines".to_owned(),
            };
            return Err(failed(format!(
                "{} exists and differs ({shown}); nothing was written. --replace writes the new one, and \
                 keeps the old one as {}.old. --dir names another folder. `drover setup rights` makes \
                 what the old one needs",
                self.file.display(),
                self.file.display()
            )));
        }
        if self.config != self.file && there.is_none_or(is_blank) {
            let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
            let is_other = |path: &PathBuf| {
                let ends = path.extension().is_some_and(|end| end == "yaml" || end == "yml");
                ends && *path != self.file
            };
            if let Some(other) = entries.map(|entry| entry.path()).find(is_other) {
                return Err(failed(format!(
                    "{} has a configuration already: {}; nothing was written. --dir names another \
                     folder. `drover setup rights` makes what that configuration needs",
                    self.folder.display(),
                    other.display()
                )));
            }
        }
        Ok(())
    }

    /// Shows the files that would be written.
    pub(super) fn show(&self, text: &str, out: &mut SetupOutput<'_>) -> io::Result<()> {
        let path = self.file.display().to_string();
        let file = FileToWrite { path, text: text.to_owned(), mode: 0o644 };
        out.file(&file, text)
    }

    /// Writes what is missing: the authority, the key, the YAML.
    pub(super) fn write(
        &self,
        plan: &Proposal,
        text: &str,
        there: Option<&str>,
        out: &mut SetupOutput<'_>,
    ) -> Result<(), CliError> {
        self.folders(out)?;
        if let Trust::Authority(pem) = &plan.trust {
            self.plain(&self.beside(AUTHORITY), pem, out)?;
        }
        self.key(out)?;
        if let Some(old) = there.filter(|old| *old != text) {
            let named = |end: String| PathBuf::from(format!("{}.old{end}", self.file.display()));
            let further = (2..).map(|number| named(format!(".{number}")));
            // An earlier one stays: the first of them may be what somebody wrote by hand.
            let mut all = std::iter::once(named(String::new())).chain(further);
            if let Some(kept) = all.find(|kept| !kept.exists()) {
                self.plain(&kept, old, out)?;
            }
        }
        self.plain(&self.file, text, out)
    }

    fn folders(&self, out: &mut SetupOutput<'_>) -> Result<(), CliError> {
        let is_root = rustix::process::geteuid().is_root();
        let group = service_group().filter(|_| is_root);
        if !is_root {
            out.note("you are not root: the files are yours, and drover must run as you")?;
        } else if group.is_none() {
            let text = "there is no group `drover`: secrets are for root alone (0600), and the unit \
                        hands them over";
            out.note(text)?;
        }
        let secrets = self.beside(CREDENTIALS);
        for (folder, mode) in [(&self.folder, 0o755), (&secrets, 0o750)] {
            if folder.is_dir() || folder.as_os_str().is_empty() {
                continue;
            }
            let made = fs::create_dir_all(folder).and_then(|()| {
                let shared = if mode == 0o750 { group } else { None };
                if shared.is_some() {
                    chown(folder, None, shared)?;
                }
                let mode = if mode == 0o750 && shared.is_none() { 0o700 } else { mode };
                fs::set_permissions(folder, Permissions::from_mode(mode))
            });
            made.map_err(|error| unwritten(folder, &error))?;
            out.did(format!("made the folder {}", folder.display()))?;
        }
        Ok(())
    }

    /// A file that everybody may read.
    fn plain(&self, path: &Path, text: &str, out: &mut SetupOutput<'_>) -> Result<(), CliError> {
        if fs::read_to_string(path).is_ok_and(|there| there == text) {
            out.already(path.display())?;
            return Ok(());
        }
        replace(path, text, Some(0o644)).map_err(|error| unwritten(path, &error))?;
        out.did(format!("wrote {}", path.display()))?;
        Ok(())
    }

    /// The private key for guests.
    fn key(&self, out: &mut SetupOutput<'_>) -> Result<(), CliError> {
        let path = self.beside(CREDENTIALS).join(KEY);
        let shown = path.display();
        if path.exists() {
            let fault = |error| failed(format!("{shown}: {}", causes::chain(&error)));
            PrivateKey::load(&path, None).map_err(fault)?;
            out.already(shown)?;
            return Ok(());
        }
        let mut seed = [0; 32];
        SysRng.try_fill_bytes(&mut seed).map_err(|error| failed(error.to_string()))?;
        let key = PrivateKey::from_seed(&seed, "drover");
        let text = key.to_openssh().map_err(|error| failed(causes::chain(&error)))?;
        let text: SecretString = text.expose_secret().trim_end().to_owned().into();
        write_secret(&path, &text).map_err(|error| unwritten(&path, &error))?;
        out.did(format!("made the SSH key {shown}"))?;
        Ok(())
    }
}

/// A configuration in a folder of its own, which is checked before anything is written.
pub(super) fn stage(plan: &Proposal, text: &str) -> Result<tempfile::TempDir, CliError> {
    let folder = tempfile::tempdir()?;
    if let Trust::Authority(pem) = &plan.trust {
        fs::write(folder.path().join(AUTHORITY), pem)?;
    }
    fs::write(folder.path().join(YAML), text)?;
    let environment = Environment::of_process().without_secrets();
    drover_config::load(folder.path(), &environment)
        .map_err(|error| CliError::Config(Box::new(error)))?;
    Ok(folder)
}
