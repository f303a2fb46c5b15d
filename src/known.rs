//! drover's own commands, for hosts of simulated guests.

use std::sync::Arc;

use drover_shell::known;
use pve_sim::guests::KnownCommands;

/// The commands that a host of simulated guests must know.
pub fn commands() -> KnownCommands {
    KnownCommands {
        may_run: Arc::new(known::is_housekeeping),
        in_folder: Arc::new(known::in_folder),
        script: Arc::new(known::script),
    }
}
