//! What the help of some commands ends with.

use super::super::topics;

/// Where each shell looks for completions.
pub(super) const INSTALL: &str = "\
Install them for yourself:
  bash  drover completions bash > ~/.local/share/bash-completion/completions/drover
  zsh   drover completions zsh > DIR/_drover, where DIR is in $fpath
  fish  drover completions fish > ~/.config/fish/completions/drover.fish
Ids of agents and leases and names of templates, nodes, clouds, sources and jobs come from the running
service, within 2 s; where it does not answer, they are not completed.";

/// Whose key lets in.
pub(super) const KEYS: &str = "\
The key is that of your lease on the agent, which `drover lease` keeps on this machine until the lease
ends. Without such a lease `--hold` holds the agent: nobody else gets it, and drover destroys it at the
end of the hold.";

/// What the exit codes of all commands mean.
const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   failed
  2   wrong arguments, or a configuration with faults
  69  no drover answers
  75  waited too long, or the lease was lost, expired or released: run it again
`drover lease -- CMD` and `drover ssh` end with the code of the command.";

/// What the help of drover itself ends with.
pub(super) fn ending() -> String {
    format!("{EXIT_CODES}\n\n{}", topics::list())
}
