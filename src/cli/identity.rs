//! The key pair of a lease: one for this lease alone, or the user's own.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rand::SeedableRng;
use rand::rngs::{StdRng, SysRng};
use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};
use secrecy::{ExposeSecret, SecretString};

use super::CliError;
use crate::web::shapes::{LeaseOut, SshOut};

/// A key pair to log in with.
pub(super) struct Identity {
    /// The private key in OpenSSH's format.
    pub private: SecretString,
    /// The public key line.
    pub public: String,
    /// The file it came from; none for one made for this lease.
    pub file: Option<PathBuf>,
}

impl Identity {
    /// Reads the user's key, or makes one in memory.
    pub(super) fn of(file: Option<&Path>) -> Result<Self, CliError> {
        let key = match file {
            Some(path) => read(path)?,
            None => make()?,
        };
        let text = key.to_openssh(LineEnding::LF).map_err(unusable)?;
        let public = key.public_key().to_openssh().map_err(unusable)?;
        let private = SecretString::from(text.as_str());
        Ok(Self { private, public, file: file.map(Path::to_owned) })
    }
}

fn unusable(fault: russh::keys::ssh_key::Error) -> CliError {
    CliError::Failed(format!("the key cannot be used: {fault}"))
}

fn make() -> Result<PrivateKey, CliError> {
    let mut dice = StdRng::try_from_rng(&mut SysRng)
        .map_err(|fault| CliError::Failed(format!("no randomness for a key: {fault}")))?;
    let mut key = PrivateKey::random(&mut dice, Algorithm::Ed25519).map_err(unusable)?;
    key.set_comment("drover-lease");
    Ok(key)
}

fn read(path: &Path) -> Result<PrivateKey, CliError> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map_err(|fault| CliError::Usage(format!("cannot read the key file `{shown}`: {fault}")))?;
    let key = PrivateKey::from_openssh(text.as_bytes()).map_err(|fault| {
        CliError::Usage(format!(
            "`{shown}` is no private key in OpenSSH's format ({fault}); give the file without \
             .pub, or leave out -i to have one made"
        ))
    })?;
    if key.is_encrypted() {
        return Err(CliError::Usage(format!(
            "`{shown}` has a passphrase, which cannot be asked for here; leave out -i to have a \
             key made for this lease"
        )));
    }
    Ok(key)
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
            write_private(&key_file, identity.private.expose_secret())?;
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

/// Quotes a word for a shell.
pub(super) fn quote(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
