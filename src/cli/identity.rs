//! The key pair of a lease: one for this lease alone, or the user's own.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rand::TryRng;
use rand::rngs::SysRng;
use secrecy::{ExposeSecret, SecretString};

use super::{CliError, LeaseOptions};
use crate::causes::chain;
use crate::ssh::{PrivateKey, quote};
use crate::web::check_public_key;
use crate::web::shapes::{LeaseOut, SshOut};

/// What to do besides when a key of the user's own cannot be used.
const WITHOUT: &str = "or leave out -i to have a key made for this lease";

/// What stands in files of private keys.
const PRIVATE_MARKS: [&str; 2] = ["PRIVATE KEY", "PuTTY-User-Key-File"];

/// A key pair to log in with.
pub(super) struct Identity {
    /// The private key.
    pub key: PrivateKey,
    /// The file it came from; none for one made for this lease.
    pub file: Option<PathBuf>,
}

impl Identity {
    /// Reads the user's key, or makes one in memory.
    pub(super) fn of(options: &LeaseOptions) -> Result<Self, CliError> {
        let key = match &options.identity {
            Some(path) => read(path, options.passphrase_file.as_deref())?,
            None => make()?,
        };
        Ok(Self { key, file: options.identity.clone() })
    }
}

fn make() -> Result<PrivateKey, CliError> {
    let mut seed = [0; 32];
    SysRng
        .try_fill_bytes(&mut seed)
        .map_err(|fault| CliError::Failed(format!("no randomness for a key: {fault}")))?;
    Ok(PrivateKey::from_seed(&seed, "drover-lease"))
}

fn read(path: &Path, passphrase_file: Option<&Path>) -> Result<PrivateKey, CliError> {
    let passphrase = passphrase_file.map(passphrase).transpose()?;
    PrivateKey::load(path, passphrase.as_ref()).map_err(|fault| {
        let remedy = fault.remedy("DROVER_KEY_PASSPHRASE_FILE");
        CliError::Usage(format!("{}; {remedy}, {WITHOUT}", chain(&fault)))
    })
}

/// Reads the one public key line of a file; a private key is never let out of here.
pub(super) fn public_line(path: &Path) -> Result<String, CliError> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map_err(|fault| CliError::Usage(format!("cannot read the key file `{shown}`: {fault}")))?;
    if PRIVATE_MARKS.iter().any(|mark| text.contains(mark)) {
        return Err(CliError::Usage(format!(
            "`{shown}` holds a private key, which is never sent; give the public one, the line in \
             the `.pub` file beside it"
        )));
    }
    let no_key = |why: &str| {
        CliError::Usage(format!(
            "`{shown}` must hold one public key line, such as a `.pub` file: {why}"
        ))
    };
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.next().ok_or_else(|| no_key("it is empty"))?;
    if lines.next().is_some() {
        return Err(no_key("it has several lines"));
    }
    // What stands there is not repeated: it may be any secret.
    if !["ssh-", "ecdsa-", "sk-"].iter().any(|kind| line.starts_with(kind)) {
        return Err(no_key("it begins with no type of key"));
    }
    check_public_key(line).map_err(|why| no_key(&format!("it {why}")))?;
    Ok(line.to_owned())
}

fn passphrase(path: &Path) -> Result<SecretString, CliError> {
    let text = fs::read_to_string(path).map_err(|fault| {
        let shown = path.display();
        CliError::Usage(format!("cannot read the passphrase file `{shown}`: {fault}"))
    })?;
    Ok(SecretString::from(text.trim_end_matches(['\r', '\n'])))
}

/// Where keys of leases that are kept go: the user's own run-time directory, else the system's
/// for temporary files.
pub(super) fn key_dir() -> PathBuf {
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, Into::into)
}

/// The files of a lease that is kept: key and host keys.
fn kept_files(directory: &Path, lease: &str) -> Option<(PathBuf, PathBuf)> {
    // Names come from the service; none may lead out of the directory.
    if lease.is_empty() || !lease.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return None;
    }
    let file = |end: &str| directory.join(format!("drover-{lease}.{end}"));
    Some((file("key"), file("hosts")))
}

/// Keeps what is needed to log in to a lease later, and gives the command for it.
pub(super) fn keep(
    directory: &Path,
    lease: &LeaseOut,
    ssh: &SshOut,
    identity: &Identity,
) -> Result<String, CliError> {
    let (key_file, hosts_file) = kept_files(directory, &lease.id)
        .ok_or_else(|| CliError::Failed(format!("`{}` is no lease id", lease.id)))?;
    let mut command = vec!["ssh".to_owned()];
    let key_path = match &identity.file {
        Some(path) => path.clone(),
        None => {
            let text = identity.key.to_openssh();
            let text = text.map_err(|fault| CliError::Failed(chain(&fault)))?;
            write_private(&key_file, text.expose_secret())?;
            key_file
        }
    };
    command.extend(["-i".to_owned(), quote(&key_path.display().to_string())]);
    if !ssh.host_keys.is_empty() {
        let name =
            if ssh.port == 22 { ssh.host.clone() } else { format!("[{}]:{}", ssh.host, ssh.port) };
        let lines: String = ssh.host_keys.iter().map(|key| format!("{name} {key}\n")).collect();
        write_private(&hosts_file, &lines)?;
        let hosts = quote(&hosts_file.display().to_string());
        command.push(format!("-o UserKnownHostsFile={hosts} -o StrictHostKeyChecking=yes"));
    }
    command.push(format!("-p {} {}@{}", ssh.port, ssh.user, ssh.host));
    Ok(command.join(" "))
}

/// Removes what [`keep`] wrote.
pub(super) fn forget(directory: &Path, lease: &str) {
    if let Some((key, hosts)) = kept_files(directory, lease) {
        for file in [key, hosts] {
            // Most leases have none.
            let _ = fs::remove_file(file);
        }
    }
}

fn write_private(path: &Path, text: &str) -> Result<(), CliError> {
    let mut options = fs::OpenOptions::new();
    // Created anew and never followed, so that nobody else's file is written or read.
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|fault| CliError::Failed(format!("cannot write `{}`: {fault}", path.display())))
}
