//! The context of one check: what it reads from outside the YAML, and what it finds.
//!
//! In: names of files, variables and systemd credentials as the YAML has them. Out: texts and
//! secrets, the faults and warnings, and the list of files that the watch follows, found or not. A
//! file with a secret must be readable for its owner alone; root's for one group besides.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::{fmt, fs, io};

use bytes::Bytes;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use super::encrypted::Identities;
use super::environment::Environment;
use super::fault::{Fault, Place};
use super::file;
use super::layer::Layer;
use super::source::Sources;
use super::top::Half;

/// The directory beside the YAML from which the unit loads credentials.
pub(super) const UNIT_CREDENTIALS: &str = "credentials";
/// The largest secret, in bytes.
const MAX_SECRET_BYTES: u64 = 64 * 1024;
/// The largest other file, such as a system's bundle of CA certificates.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The largest upload: drover keeps it in memory and sends it at every preparation.
const MAX_UPLOAD_BYTES: u64 = 4 << 20;
/// All uploads together, each content once.
const MAX_UPLOADS_BYTES: usize = 64 << 20;

/// What a check reads, and what it finds.
pub(super) struct Context<'a> {
    pub environment: &'a Environment,
    pub faults: Vec<Fault>,
    pub warnings: Vec<Fault>,
    /// Files read, found or not, so that the watch notices changes of them.
    pub inputs: Vec<PathBuf>,
    pub uploads: UploadStore,
    /// What encrypted secrets are read with; none where nothing is configured.
    pub identities: Option<Identities>,
    bases: Bases,
}

/// Where relative paths lead from, by the file that names them.
#[derive(Default)]
pub(super) struct Bases {
    /// The directories of the configuration's files.
    directories: Vec<PathBuf>,
    /// How many files are this machine's own; git manages those after them.
    own: usize,
}

impl Bases {
    pub fn of(sources: &Sources) -> Self {
        let directories = sources.files().iter().map(|file| file.path.parent());
        let directories = directories.map(|base| base.map(Path::to_owned).unwrap_or_default());
        Self { directories: directories.collect(), own: sources.own() }
    }
}

/// Why a secret's file cannot be used.
#[derive(Clone, Copy)]
enum Trouble {
    Absent,
    Denied,
    Open,
}

impl<'a> Context<'a> {
    pub fn new(environment: &'a Environment, bases: Bases) -> Self {
        let (faults, warnings, inputs) = (Vec::new(), Vec::new(), Vec::new());
        let (uploads, identities) = (UploadStore::default(), None);
        Self { environment, faults, warnings, inputs, uploads, identities, bases }
    }

    /// Which half of the configuration a place is in.
    pub fn half(&self, place: Place) -> Half {
        if place.file < self.bases.own { Half::Local } else { Half::Managed }
    }

    /// Which half of the configuration a mapping is in; one without a place is this machine's.
    pub fn half_of(&self, layer: &Layer) -> Half {
        layer.place.map_or(Half::Local, |place| self.half(place))
    }

    /// Whether git manages the place where a key is written.
    fn is_managed(&self, layer: &Layer, key: &str) -> bool {
        layer.place_of(key).is_some_and(|place| self.half(place) == Half::Managed)
    }

    /// An absolute path, or one relative to the file that names it; `~/` is the home directory.
    pub fn path(&self, place: Option<Place>, name: &str) -> PathBuf {
        let base = place.and_then(|place| self.bases.directories.get(place.file));
        resolve(self.environment, base.map(PathBuf::as_path), name)
    }

    /// The file of a key. Git names files in the repository alone: those who may write there must not
    /// read the files of drover's machine.
    fn input(&mut self, layer: &Layer, key: &str, name: &str) -> Result<PathBuf, Fault> {
        if self.is_managed(layer, key) && !is_inside(name) {
            let fault = layer.fault(key, format!("`{name}` is no file of the repository"));
            return Err(fault.help("give a path that is relative to this file, without `..`"));
        }
        if self.environment.is_for_stored() && !name.starts_with(['/', '~']) {
            let text = format!("`{name}` is relative, and the configuration lies in the store");
            let fault = layer.fault(key, text);
            return Err(fault.help("give an absolute path: each member reads its own file there"));
        }
        let path = self.path(layer.place_of(key), name);
        self.inputs.push(path.clone());
        Ok(path)
    }

    /// The secret of a mapping, by the one key that gives it.
    pub fn secret(&mut self, layer: &Layer) -> Option<SecretString> {
        let key = layer.chosen().map_err(|fault| self.faults.push(fault)).ok()?;
        let text = layer.text(key)?.to_owned();
        if key != "secretAge" && self.is_managed(layer, key) {
            self.faults.push(secret_in_git(layer, key));
            return None;
        }
        let found = match key {
            "secretAge" => self.decrypted(layer, key, &text),
            "secretEnv" => self.environment.get(&text).map(str::to_owned).ok_or_else(|| {
                let fault = layer.fault(key, format!("variable `{text}` is not set"));
                fault.help("set it in drover's environment, for example by `EnvironmentFile=`")
            }),
            "systemdCredential" => self.systemd_credential(layer, &text),
            "secret" => {
                let fault = layer.fault(key, "the configuration itself contains a secret");
                self.warnings.push(fault.help("use secretFile, secretEnv or systemdCredential"));
                Ok(text.clone())
            }
            _ => self.private_file(layer, key, &text),
        };
        let found = found.and_then(|secret| match secret.trim() {
            "" => Err(self.empty_secret(layer, key, &text)),
            _ => Ok(SecretString::from(secret.trim_end_matches(['\r', '\n']))),
        });
        found.map_err(|fault| self.faults.push(fault)).ok()
    }

    /// The secret in a text that is encrypted for drover.
    fn decrypted(&self, layer: &Layer, key: &str, armored: &str) -> Result<String, Fault> {
        let Some(identities) = &self.identities else {
            let fault = layer.fault(key, "nothing can read an encrypted secret");
            return Err(fault.help(
                "make an identity with `drover config age-key`, and name it by `ageIdentity` in \
                 `service` of drover's machine",
            ));
        };
        let secret = identities.decrypt(armored).map_err(|why| {
            let recipients = identities.recipients().join(" or ");
            let help = format!("encrypt it again for {recipients}, with `drover config encrypt`");
            layer.fault(key, why).help(help)
        })?;
        Ok(secret.expose_secret().to_owned())
    }

    /// The shipped unit hands over an empty credential where its file is missing.
    fn empty_secret(&self, layer: &Layer, key: &str, name: &str) -> Fault {
        let by_systemd = self.environment.get("CREDENTIALS_DIRECTORY").is_some();
        if key != "systemdCredential" || !by_systemd {
            return layer.fault(key, "the secret is empty");
        }
        let file = self.path(layer.place_of(key), UNIT_CREDENTIALS).join(name);
        let shown = file.display();
        let message = format!("credential `{name}` is empty: `{shown}` is missing or empty");
        layer.fault(key, message).help(
            "put the secret there, with mode 0600 (`drover setup rights` makes the one of a token), then run \
             `systemctl restart drover`",
        )
    }

    fn systemd_credential(&mut self, layer: &Layer, name: &str) -> Result<String, Fault> {
        let key = "systemdCredential";
        let (path, by_systemd) = self.credential_file(layer, name)?;
        self.inputs.push(path.clone());
        let shown = path.display();
        if by_systemd {
            return file::read_text(&path, MAX_SECRET_BYTES).map_err(|error| {
                let message = format!("credential `{name}` cannot be read: {error}");
                let help = format!("add `LoadCredential={name}:/path` to the unit");
                layer.fault(key, message).help(help)
            });
        }
        self.private_text(&path).map_err(|(text, trouble)| {
            let message = format!("credential `{name}`: systemd did not start drover, and {text}");
            layer.fault(key, message).help(match trouble {
                Trouble::Absent if self.environment.is_for_stored() => format!(
                    "let the unit of each member have it: `LoadCredential={name}:/etc/drover/credentials/{name}`, \
                     and the secret in that file, mode 0600"
                ),
                Trouble::Absent => format!(
                    "put the secret there, mode 0600, and `LoadCredential={name}:{shown}` into the unit"
                ),
                Trouble::Denied => format!(
                    "run the command as root, or let drover's group read the file: \
                     `chgrp drover {shown} && chmod 640 {shown}`"
                ),
                Trouble::Open => format!("run `chmod 600 {shown}`"),
            })
        })
    }

    /// The file of a credential, and whether systemd provides it. In a shell it is the file that
    /// the unit loads, in [`UNIT_CREDENTIALS`] beside the YAML.
    fn credential_file(&self, layer: &Layer, name: &str) -> Result<(PathBuf, bool), Fault> {
        let key = "systemdCredential";
        if name.contains('/') || name.starts_with('.') {
            let fault = layer.fault(key, format!("`{name}` is not the name of a credential"));
            return Err(fault);
        }
        Ok(match self.environment.get("CREDENTIALS_DIRECTORY") {
            Some(directory) => (Path::new(directory).join(name), true),
            None => (self.path(layer.place_of(key), UNIT_CREDENTIALS).join(name), false),
        })
    }

    /// The text of a file that only its owner can read.
    pub fn private_file(&mut self, layer: &Layer, key: &str, name: &str) -> Result<String, Fault> {
        if self.is_managed(layer, key) {
            return Err(secret_in_git(layer, key));
        }
        let path = self.input(layer, key, name)?;
        self.private_text(&path).map_err(|(text, trouble)| {
            layer.fault(key, text).help(match trouble {
                Trouble::Open if path.is_dir() => "name a file in it".to_owned(),
                Trouble::Open => format!("run `chmod 600 {}`", path.display()),
                Trouble::Denied => {
                    "make drover's user the owner, or give it to root and drover's group with mode \
                     0640"
                        .to_owned()
                }
                Trouble::Absent if layer.has("tokenId") => {
                    "put the token's secret there, mode 0600, owned by drover's user; \
                     `drover setup rights` makes token and file"
                        .to_owned()
                }
                Trouble::Absent => "put it there, mode 0600, owned by drover's user".to_owned(),
            })
        })
    }

    /// The text of a secret's file, or what is wrong with it.
    fn private_text(&self, path: &Path) -> Result<String, (String, Trouble)> {
        let shown = path.display();
        let unreadable = |error: io::Error| {
            let absent = error.kind() == io::ErrorKind::NotFound;
            let trouble = if absent { Trouble::Absent } else { Trouble::Denied };
            (format!("`{shown}` cannot be read: {error}"), trouble)
        };
        let known = fs::metadata(path).map_err(unreadable)?;
        let mode = known.permissions().mode() & 0o7777;
        if !is_private(mode, known.uid()) {
            let text = format!("others can read `{shown}` (mode {mode:04o})");
            return Err((text, Trouble::Open));
        }
        file::read_text(path, MAX_SECRET_BYTES).map_err(unreadable)
    }

    /// The secret of a file that a variable names.
    pub fn secret_of_variable(&mut self, variable: &str) -> Option<SecretString> {
        let path = PathBuf::from(self.environment.get(variable)?);
        self.inputs.push(path.clone());
        let read = self.private_text(&path).map_err(|(text, _)| {
            let help = "put the key there, mode 0600, owned by drover's user";
            self.faults.push(Fault::nowhere(variable, text).help(help));
        });
        read.ok().map(|text| SecretString::from(text.trim()))
    }

    /// The text of a file that is not a secret.
    pub fn open_file(&mut self, layer: &Layer, key: &str, name: &str) -> Option<String> {
        let path = self.input(layer, key, name).map_err(|fault| self.faults.push(fault)).ok()?;
        let read = file::read_text(&path, MAX_FILE_BYTES).map_err(|error| {
            let fault = layer.fault(key, format!("`{}` cannot be read: {error}", path.display()));
            self.faults.push(fault.help("check that the file exists and drover may read it"));
        });
        read.ok()
    }

    /// The hash of an upload, whose content goes to the store.
    pub fn upload(&mut self, layer: &Layer, key: &str, name: &str) -> Option<String> {
        let path = self.input(layer, key, name).map_err(|fault| self.faults.push(fault)).ok()?;
        let hash = self.uploads.take(&path).map_err(|message| {
            let fault = layer.fault(key, message);
            self.faults.push(fault.help("name a plain file of at most 4 MiB that drover may read"));
        });
        hash.ok()
    }

    /// The file of a secret that is still to be made, for commands that work without secrets; none
    /// where it exists, or must.
    pub fn missing_secret(&self, layer: &Layer, keys: &[&str]) -> Option<PathBuf> {
        if !self.environment.is_secretless() {
            return None;
        }
        let named = keys.iter().find_map(|key| Some((*key, layer.text(key)?)));
        let path = match named {
            Some((key, name)) => self.path(layer.place_of(key), name),
            None => self.credential_file(layer, layer.text("systemdCredential")?).ok()?.0,
        };
        path.try_exists().is_ok_and(|there| !there).then_some(path)
    }
}

/// A secret of a file that git manages, which is not encrypted.
fn secret_in_git(layer: &Layer, key: &str) -> Fault {
    let what = match key {
        "secret" => "git holds a plain secret",
        _ => "git names a secret of drover's machine",
    };
    layer.fault(key, what).help(
        "give it as secretAge (`drover config encrypt`), or move the credential to the configuration \
         of drover's machine and name it by credentialsId",
    )
}

/// Whether a name stays in the directory that it is relative to.
fn is_inside(name: &str) -> bool {
    let parts = || Path::new(name).components();
    !name.starts_with('~')
        && parts().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// A path as a file in the directory `base` names it.
pub(super) fn resolve(environment: &Environment, base: Option<&Path>, name: &str) -> PathBuf {
    if let (Some(rest), Some(home)) = (name.strip_prefix("~/"), environment.get("HOME")) {
        return Path::new(home).join(rest);
    }
    base.map_or_else(|| PathBuf::from(name), |base| base.join(name))
}

/// Whether a secret's file is for drover alone. Root may let a group read its file, as PostgreSQL
/// does for the key of its server (`ssl_key_file`).
pub fn is_private(mode: u32, owner: u32) -> bool {
    let open = if owner == 0 { 0o037 } else { 0o077 };
    mode & open == 0
}

/// The contents of the files that drover copies into guests, by their SHA-256 in hexadecimal
/// digits.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Uploads(BTreeMap<String, Bytes>);

impl Uploads {
    /// Each hash and its content.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.0.iter().map(|(sha256, content)| (sha256.as_str(), content))
    }
}

/// Prints the hashes alone: the contents are private.
impl fmt::Debug for Uploads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The uploads read so far: a file that many templates name is read once.
#[derive(Default)]
pub(super) struct UploadStore {
    read: BTreeMap<PathBuf, Result<String, String>>,
    pub contents: Uploads,
}

impl UploadStore {
    /// The hash of a file's content, or why it cannot be read.
    fn take(&mut self, path: &Path) -> Result<String, String> {
        if let Some(known) = self.read.get(path) {
            return known.clone();
        }
        let result = self.fetch(path);
        self.read.insert(path.to_owned(), result.clone());
        result
    }

    fn fetch(&mut self, path: &Path) -> Result<String, String> {
        let (bytes, _trace) = file::read(path, MAX_UPLOAD_BYTES).map_err(|error| {
            let why = if error.kind() == io::ErrorKind::FileTooLarge {
                "it is larger than 4 MiB".to_owned()
            } else {
                error.to_string()
            };
            format!("`{}` cannot be read: {why}", path.display())
        })?;
        let digest = Sha256::digest(&bytes);
        let sha256: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let contents = &mut self.contents.0;
        let sum: usize = contents.values().map(Bytes::len).sum();
        if !contents.contains_key(&sha256) && sum + bytes.len() > MAX_UPLOADS_BYTES {
            return Err(format!("with `{}`, all uploads together exceed 64 MiB", path.display()));
        }
        contents.insert(sha256.clone(), bytes.into());
        Ok(sha256)
    }
}
