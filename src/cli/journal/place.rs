//! Where a journal is, as it is named on the command line: a file, a state directory, a text file, or
//! a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use causes::chain;
use drover_journal::{Contents, Inspection, LogError, RedbLog, inspect, inspect_log};
use drover_stores::{StoreAddress, StoreAddressError};
use drover_vault::{FolderVault, Register, Vault};

use crate::app::JOURNAL;

/// How the name of a file of the embedded journal ends.
const FILE_ENDING: &str = "redb";
/// How the name of a text file ends.
const TEXT_ENDING: &str = "jsonl";

/// Where a journal is.
#[derive(Debug)]
pub(super) enum Place {
    /// The embedded journal.
    File(PathBuf),
    /// Its text, one JSON value a line.
    Text(PathBuf),
    Store(StoreAddress),
}

impl Place {
    /// Reads a name; a folder is a state directory.
    ///
    /// # Errors
    /// What is wrong with an address.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        if name.contains("://") {
            return match name.parse::<StoreAddress>() {
                Ok(address) => Ok(Self::Store(address)),
                Err(error @ StoreAddressError::Kind(_)) => {
                    Err(format!("{error}; a file, a state directory or a text file has no `://`"))
                }
                Err(error) => Err(chain(&error)),
            };
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
            Self::Store(address) => address.to_string(),
        }
    }

    /// Reads the whole journal, as strictly as a start.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn inspect(&self) -> Result<Inspection, String> {
        match self {
            Self::File(path) => inspect(path).map_err(|error| of_a_file(path, &error)),
            Self::Text(path) => {
                let text = Contents::read_text(path).map_err(|error| chain(&error))?;
                let size = std::fs::metadata(path).map_or(0, |found| found.len());
                let found = text.inspect(self.text()).map_err(|error| chain(&error))?;
                Ok(Inspection { size, ..found })
            }
            Self::Store(address) => {
                let log = address.look().map_err(|error| chain(&error))?;
                inspect_log(&*log).map_err(|error| chain(&error))
            }
        }
    }

    /// Whether several machines can reach it.
    pub(super) fn is_store(&self) -> bool {
        matches!(self, Self::Store(_))
    }

    /// What lies beside it, in a store encrypted; none for a file that is in no state directory.
    ///
    /// # Errors
    /// When calls to the store cannot be prepared.
    pub(super) fn vault(&self) -> Result<Option<Arc<dyn Vault>>, String> {
        match self {
            Self::File(path) if path.ends_with(JOURNAL) => {
                let folder = path.parent().unwrap_or(Path::new("."));
                Ok(Some(Arc::new(FolderVault::new(folder))))
            }
            Self::File(_) | Self::Text(_) => Ok(None),
            Self::Store(address) => address.vault().map(Some).map_err(|error| chain(&error)),
        }
    }

    /// Whether no journal is there yet.
    ///
    /// # Errors
    /// Why it cannot be looked at.
    pub(super) fn is_free(&self) -> Result<bool, String> {
        match self {
            Self::File(path) | Self::Text(path) => Ok(!path.exists()),
            Self::Store(address) => {
                let last = address.log().and_then(|log| log.last());
                last.map(|last| last == 0).map_err(|error| chain(&error))
            }
        }
    }

    /// Whether a copy may go there.
    ///
    /// # Errors
    /// A folder that is not there yet looks like a file of that name.
    pub(super) fn is_clear(&self) -> Result<(), String> {
        match self {
            Self::File(path)
                if !path.exists()
                    && path.extension().is_none_or(|ending| ending != FILE_ENDING) =>
            {
                let shown = path.display();
                Err(format!(
                    "`{shown}` is not there: make the state directory first (`mkdir -m 700 {shown}`), or name a \
                     file that ends with .{FILE_ENDING} or .{TEXT_ENDING}"
                ))
            }
            Self::File(_) | Self::Text(_) | Self::Store(_) => Ok(()),
        }
    }

    /// Everything that it holds.
    ///
    /// # Errors
    /// As [`Place::inspect`].
    pub(super) fn contents(&self) -> Result<Contents, String> {
        match self {
            Self::File(path) => RedbLog::look(path)
                .and_then(|log| Contents::of(&log))
                .map_err(|error| of_a_file(path, &error)),
            Self::Text(path) => Contents::read_text(path).map_err(|error| chain(&error)),
            Self::Store(address) => {
                address.look().and_then(|log| Contents::of(&*log)).map_err(|error| chain(&error))
            }
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
            Self::Store(address) => {
                address.log().map_err(Into::into).and_then(|mut log| contents.put_into(&mut *log))
            }
        }
        .map_err(|error| chain(&error))
    }

    /// Where it says who leads; none for a file, which locks out others by itself.
    ///
    /// # Errors
    /// When calls cannot be prepared.
    pub(super) fn register(&self) -> Result<Option<Arc<dyn Register>>, String> {
        match self {
            Self::File(_) | Self::Text(_) => Ok(None),
            Self::Store(address) => {
                address.patient_register(false).map(Some).map_err(|error| chain(&error))
            }
        }
    }
}

/// Why a file cannot be read. One that has not the name of a journal may never have been one.
fn of_a_file(path: &Path, error: &LogError) -> String {
    let has_its_name = path.file_name().is_some_and(|name| name == JOURNAL);
    match error {
        LogError::Corrupt { source, .. } if !has_its_name => format!(
            "the file `{}` is no journal, or a damaged one, and drover has not changed it: {}",
            path.display(),
            chain(&**source)
        ),
        LogError::Corrupt { .. }
        | LogError::Fenced { .. }
        | LogError::Busy { .. }
        | LogError::Newer { .. }
        | LogError::Unknown { .. }
        | LogError::Io { .. } => chain(error),
    }
}
