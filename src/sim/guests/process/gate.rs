//! Which commands run where nothing isolates them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// What a command that may not run answers.
pub(super) const REFUSAL: &str = "this command may not run outside a sandbox: install bubblewrap \
    or pass --unisolated\n";

/// Whether a command may run.
pub type MayRun = Arc<dyn Fn(&str) -> bool + Send + Sync>;
/// Another command for one that works in a home, with that home and the folder that stands for it.
pub type InFolder = Arc<dyn Fn(&str, &str, &Path) -> Option<String> + Send + Sync>;
/// The words that a decoded command is.
pub type ScriptOf = Arc<dyn Fn(&str) -> Option<Vec<String>> + Send + Sync>;

/// Commands of the program that works in the guests, as far as their host must know them.
#[derive(Clone)]
pub struct KnownCommands {
    /// Whether a command may run where nothing isolates it.
    pub may_run: MayRun,
    /// A command that works in a guest's home (the second), as it is run in the folder that stands for
    /// this home; none for one that is run as it is.
    pub in_folder: InFolder,
    /// The name and the arguments of the script for Windows PowerShell that a decoded command is. A
    /// stand-in does what the scripts of these names would.
    pub script: ScriptOf,
}

impl fmt::Debug for KnownCommands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KnownCommands")
    }
}

impl Default for KnownCommands {
    /// None is known.
    fn default() -> Self {
        Self {
            may_run: Arc::new(|_| false),
            in_folder: Arc::new(|_, _, _| None),
            script: Arc::new(|_| None),
        }
    }
}
