//! Where a journal is, as it is named on the command line: a file, a state directory, a text file, or
//! a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use causes::chain;
use drover_journal::{Contents, Inspection, Log as _, RedbLog, inspect, inspect_log};
use drover_stores::{EtcdAddress, EtcdLog, ObjectAddress, ObjectLog, StoreAddress};
use drover_vault::{FolderVault, Vault};

use crate::app::JOURNAL;

/// How the name of a text file ends.
const TEXT_ENDING: &str = "jsonl";

/// Where a journal is.
#[derive(Debug)]
pub(super) enum Place {
    /// The embedded journal.
    File(PathBuf),
    /// Its text, one JSON value a line.
    Text(PathBuf),
    Etcd(Box<EtcdAddress>),
    Objects(Box<ObjectAddress>),
}

impl Place {
    /// Reads a name; a folder is a state directory.
    ///
    /// # Errors
    /// What is wrong with an address.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        if EtcdAddress::is_meant(name) {
            let address = name.parse::<EtcdAddress>().map_err(|error| chain(&error))?;
            return Ok(Self::Etcd(Box::new(address)));
        }
        if ObjectAddress::is_meant(name) {
            let address = name.parse::<ObjectAddress>().map_err(|error| chain(&error))?;
            return Ok(Self::Objects(Box::new(address)));
        }
        let path = PathBuf::from(name);
        if path.is_dir() {
            return Ok(Self::File(path.join(JOURNAL)));
        }
        let is_text = path.extension().is_some_and(|ending| ending == TEXT_ENDING);
        Ok(if is_text { Self::Text(path) } else { Self::File(path) })
    }

    /// How people name it.
    pub(super) fn text(&self) -> String {
        match self {
            Self::File(path) | Self::Text(path) => path.display().to_string(),
            Self::Etcd(address) => address.to_string(),
            Self::Objects(address) => address.to_string(),
        }
    }

    /// Reads the whole journal, as strictly as a start.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn inspect(&self) -> Result<Inspection, String> {
        match self {
            Self::File(path) => inspect(path).map_err(|error| chain(&error)),
            Self::Text(path) => {
                let text = Contents::read_text(path).map_err(|error| chain(&error))?;
                let size = std::fs::metadata(path).map_or(0, |found| found.len());
                let found = text.inspect(self.text()).map_err(|error| chain(&error))?;
                Ok(Inspection { size, ..found })
            }
            Self::Etcd(address) => {
                let log = EtcdLog::look(address).map_err(|error| chain(&error))?;
                inspect_log(&log).map_err(|error| chain(&error))
            }
            Self::Objects(address) => {
                let log = ObjectLog::look(address).map_err(|error| chain(&error))?;
                inspect_log(&log).map_err(|error| chain(&error))
            }
        }
    }

    /// Whether several machines can reach it.
    pub(super) fn is_store(&self) -> bool {
        matches!(self, Self::Etcd(_) | Self::Objects(_))
    }

    /// What lies beside it, in a store encrypted; none for a file that is in no state directory.
    ///
    /// # Errors
    /// When calls to the store cannot be prepared.
    pub(super) fn vault(&self) -> Result<Option<Arc<dyn Vault>>, String> {
        let address = match self {
            Self::File(path) if path.ends_with(JOURNAL) => {
                let folder = path.parent().unwrap_or(Path::new("."));
                return Ok(Some(Arc::new(FolderVault::new(folder))));
            }
            Self::File(_) | Self::Text(_) => return Ok(None),
            Self::Etcd(address) => StoreAddress::Etcd((**address).clone()),
            Self::Objects(address) => StoreAddress::Objects(address.clone()),
        };
        address.vault().map(Some).map_err(|error| chain(&error))
    }

    /// Whether no journal is there yet.
    ///
    /// # Errors
    /// Why it cannot be looked at.
    pub(super) fn is_free(&self) -> Result<bool, String> {
        let last = match self {
            Self::File(path) | Self::Text(path) => return Ok(!path.exists()),
            Self::Etcd(address) => EtcdLog::open(address).and_then(|log| log.last()),
            Self::Objects(address) => ObjectLog::open(address).and_then(|log| log.last()),
        };
        last.map(|last| last == 0).map_err(|error| chain(&error))
    }

    /// Everything that it holds.
    ///
    /// # Errors
    /// As [`Place::inspect`].
    pub(super) fn contents(&self) -> Result<Contents, String> {
        match self {
            Self::File(path) => RedbLog::look(path)
                .and_then(|log| Contents::of(&log))
                .map_err(|error| chain(&error)),
            Self::Text(path) => Contents::read_text(path).map_err(|error| chain(&error)),
            Self::Etcd(address) => EtcdLog::look(address)
                .and_then(|log| Contents::of(&log))
                .map_err(|error| chain(&error)),
            Self::Objects(address) => ObjectLog::look(address)
                .and_then(|log| Contents::of(&log))
                .map_err(|error| chain(&error)),
        }
    }

    /// Fills it, where nothing is yet.
    ///
    /// # Errors
    /// Why nothing was written.
    pub(super) fn fill(&self, contents: &Contents) -> Result<(), String> {
        match self {
            Self::File(path) => {
                let is_new = !path.exists();
                let written = RedbLog::open(path)
                    .map_err(Into::into)
                    .and_then(|mut log| contents.put_into(&mut log));
                if written.is_err() && is_new {
                    // An empty journal would pass for that of a first start.
                    let _ = std::fs::remove_file(path);
                }
                written
            }
            Self::Text(path) => contents.write_text(path),
            Self::Etcd(address) => EtcdLog::open(address)
                .map_err(Into::into)
                .and_then(|mut log| contents.put_into(&mut log)),
            Self::Objects(address) => ObjectLog::open(address)
                .map_err(Into::into)
                .and_then(|mut log| contents.put_into(&mut log)),
        }
        .map_err(|error| chain(&error))
    }
}
