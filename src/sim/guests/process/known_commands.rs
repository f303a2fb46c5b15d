//! What a host of guests knows about the commands that run in them: which ones can run without
//! isolation, and how.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The output of a command that is refused.
pub(super) const REFUSAL: &str = "this command must not run outside a sandbox: install bubblewrap \
    or pass --unisolated\n";

/// Whether a command line can run without isolation.
pub type MayRun = Arc<dyn Fn(&str) -> bool + Send + Sync>;
/// A command line, the guest's home, and the folder in its place: the command line for that folder.
pub type InFolder = Arc<dyn Fn(&str, &str, &Path) -> Option<String> + Send + Sync>;
/// The name and arguments of the script in a decoded command.
pub type ScriptOf = Arc<dyn Fn(&str) -> Option<Vec<String>> + Send + Sync>;

/// The commands of the program that works in the guests.
#[derive(Clone)]
pub struct KnownCommands {
    /// Whether a command can run where nothing isolates it.
    pub may_run: MayRun,
    /// A command that works in the guest's home, rewritten for the folder that stands in for this
    /// home. None for a command that runs unchanged.
    pub in_folder: InFolder,
    /// The name and arguments of the Windows PowerShell script that a decoded command contains. A
    /// stand-in does what the scripts of these names do.
    pub script: ScriptOf,
}

impl fmt::Debug for KnownCommands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KnownCommands")
    }
}

impl Default for KnownCommands {
    fn default() -> Self {
        Self {
            may_run: Arc::new(|_| false),
            in_folder: Arc::new(|_, _, _| None),
            script: Arc::new(|_| None),
        }
    }
}
