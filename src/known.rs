//! drover's own commands as hosts of simulated guests know them.

use std::sync::Arc;

use drover_shell::own_commands;
use pve_sim::guests::KnownCommands;

/// What a host of simulated guests is told of drover.
pub fn commands() -> KnownCommands {
    KnownCommands {
        may_run: Arc::new(own_commands::is_housekeeping),
        in_folder: Arc::new(own_commands::in_folder),
        script: Arc::new(own_commands::script),
    }
}
