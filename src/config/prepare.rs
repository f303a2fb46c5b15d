//! A template's own steps of preparing: the items of `prepare`, and the files they put into guests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use drover_model::spec::{StepSpec, StepWork, UploadSpec};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::credential::Vault;
use super::file;
use super::keys::{STEP, STEP_KEYS, UPLOAD};
use super::layer::Layer;

/// The largest file that is put into a guest: it is kept in memory, and sent at every provision.
const LARGEST: u64 = 4 << 20;
/// All of them together, each content once.
const LARGEST_SUM: usize = 64 << 20;
/// More steps than any template has; each is a login of its own.
const MOST: usize = 40;

/// The contents of the files that are put into guests, by their SHA-256 in hexadecimal digits.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Uploads(BTreeMap<String, Bytes>);

impl Uploads {
    /// Each hash and its content.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.0.iter().map(|(sha256, content)| (sha256.as_str(), content))
    }
}

/// The hashes alone: what is in the files is nobody's business in a log.
impl fmt::Debug for Uploads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The files read so far: one that many templates name is read once.
#[derive(Default)]
pub(super) struct Shelf {
    read: BTreeMap<PathBuf, Result<String, String>>,
    pub contents: Uploads,
}

impl Shelf {
    /// The hash of a file's content, or why it can not be had.
    fn take(&mut self, path: &Path) -> Result<String, String> {
        if let Some(known) = self.read.get(path) {
            return known.clone();
        }
        let result = self.fetch(path);
        self.read.insert(path.to_owned(), result.clone());
        result
    }

    fn fetch(&mut self, path: &Path) -> Result<String, String> {
        let (bytes, _trace) = file::read(path, LARGEST).map_err(|error| {
            let why = if error.kind() == io::ErrorKind::FileTooLarge {
                "it is larger than 4 MiB".to_owned()
            } else {
                error.to_string()
            };
            format!("`{}` can not be read: {why}", path.display())
        })?;
        let digest = Sha256::digest(&bytes);
        let sha256: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let contents = &mut self.contents.0;
        let sum: usize = contents.values().map(Bytes::len).sum();
        if !contents.contains_key(&sha256) && sum + bytes.len() > LARGEST_SUM {
            return Err(format!("with `{}` all uploads are larger than 64 MiB", path.display()));
        }
        contents.insert(sha256.clone(), bytes.into());
        Ok(sha256)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawStep {
    name: Option<String>,
    run: Option<String>,
    packages: Option<Vec<String>>,
    timeout_sec: u64,
}

#[derive(Deserialize)]
struct RawUpload {
    from: String,
    to: String,
    mode: String,
}

/// Makes the steps of a template's layer, which has `limit` seconds for all of preparing.
pub(super) fn steps(layer: &Layer, limit: u64, vault: &mut Vault<'_>) -> Vec<StepSpec> {
    let all = layer.nested("prepare");
    if all.len() > MOST {
        let message = format!("{} steps are more than {MOST}", all.len());
        vault.faults.push(layer.fault("prepare", message).help("make one script of some of them"));
        return Vec::new();
    }
    let mut steps: Vec<StepSpec> = Vec::new();
    for (at, one) in all.iter().enumerate() {
        let Some(step) = step(at, one, vault) else { continue };
        if steps.iter().any(|other| other.name == step.name) {
            let message = format!("another step is called `{}`", step.name);
            vault.faults.push(one.fault("name", message).help("give each step its own name"));
        }
        if one.has("timeoutSec") && step.timeout.as_secs() > limit {
            let message = format!("prepareTimeoutSec, {limit}, is shorter");
            let fault = one.fault("timeoutSec", message);
            vault.warnings.push(fault.help("the step never has so long; raise prepareTimeoutSec"));
        }
        steps.push(step);
    }
    steps
}

fn step(at: usize, layer: &Layer, vault: &mut Vault<'_>) -> Option<StepSpec> {
    let given: Vec<&str> = STEP_KEYS.into_iter().filter(|key| layer.has(key)).collect();
    let what = match given.as_slice() {
        [what] => *what,
        [] => {
            let message = format!("none of {} is given", STEP_KEYS.join(", "));
            let mut fault = layer.fault("", message);
            fault.path.clone_from(&layer.path);
            vault.faults.push(fault.help("add one of them"));
            return None;
        }
        [_, second, ..] => {
            let fault = layer.fault(second, format!("{} contradict", given.join(" and ")));
            vault.faults.push(fault.help("make a step of each"));
            return None;
        }
    };
    let raw: RawStep = layer.typed(STEP.keys, vault.faults)?;
    let work = match what {
        "run" => {
            StepWork::Run(told(raw.run.filter(|run| !run.trim().is_empty()), what, layer, vault)?)
        }
        "packages" => {
            let names = raw.packages.filter(|names| !names.is_empty());
            StepWork::Packages(told(names, what, layer, vault)?)
        }
        _ => StepWork::Upload(upload(layer.nested("upload").first()?, vault)?),
    };
    let name = raw.name.unwrap_or_else(|| format!("step {} ({what})", at + 1));
    Some(StepSpec { name, work, timeout: Duration::from_secs(raw.timeout_sec) })
}

/// What is given, unless there is nothing in it.
fn told<T>(given: Option<T>, key: &str, layer: &Layer, vault: &mut Vault<'_>) -> Option<T> {
    if given.is_none() && !layer.is_faulty(key) {
        vault.faults.push(layer.fault(key, "there is nothing in it").help("take the step out"));
    }
    given
}

fn upload(layer: &Layer, vault: &mut Vault<'_>) -> Option<UploadSpec> {
    let before = vault.faults.len();
    let raw: RawUpload = layer.typed(UPLOAD.keys, vault.faults)?;
    if vault.faults.len() > before || ["from", "to", "mode"].iter().any(|key| layer.is_faulty(key))
    {
        return None;
    }
    let mode = u32::from_str_radix(&raw.mode, 8).ok()?;
    let sha256 = vault.upload(layer, "from", &raw.from)?;
    Some(UploadSpec { from: raw.from, to: raw.to, mode, sha256 })
}

impl Vault<'_> {
    /// The hash of a file for guests, whose content is put on the shelf.
    fn upload(&mut self, layer: &Layer, key: &str, name: &str) -> Option<String> {
        let path = self.path(layer.fault(key, "").place, name);
        self.inputs.push(path.clone());
        match self.shelf.take(&path) {
            Ok(sha256) => Some(sha256),
            Err(message) => {
                let fault = layer.fault(key, message);
                self.faults.push(fault.help("name a plain file of at most 4 MiB drover may read"));
                None
            }
        }
    }
}
