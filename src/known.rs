//! drover's own commands, for hosts of simulated guests.

use std::sync::Arc;

use drover_shell::own_commands;
use pve_sim::guests::KnownCommands;

/// The commands that a host of simulated guests must know.
pub fn commands() -> KnownCommands {
    KnownCommands {
        may_run: Arc::new(own_commands::is_housekeeping),
        in_folder: Arc::new(own_commands::in_folder),
        script: Arc::new(own_commands::script),
    }
}
