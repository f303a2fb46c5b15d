//! drover's own commands as hosts of simulated guests know them.

use std::sync::Arc;

use drover_shell::known;
use pve_sim::guests::KnownCommands;

/// What a host of simulated guests is told of drover.
pub fn commands() -> KnownCommands {
    KnownCommands {
        may_run: Arc::new(known::is_housekeeping),
        in_folder: Arc::new(known::in_folder),
        script: Arc::new(known::script),
    }
}
