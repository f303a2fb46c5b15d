//! The key pair of a lease: one for this lease alone, or the user's own.

use std::fs;
use std::path::{Path, PathBuf};

use causes::chain;
use drover_ssh::PrivateKey;
use rand::TryRng;
use rand::rngs::SysRng;
use secrecy::SecretString;

use super::error::CliError;
use super::options::LeaseOptions;
use drover_server::check_public_key;

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

impl Identity {
    /// Makes a key for one hold.
    pub(super) fn fresh() -> Result<Self, CliError> {
        Ok(Self { key: make()?, file: None })
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
