//! Steps at a cluster, with their rights checked first.

use std::sync::Arc;

use drover_hypervisor::Client;

use super::super::error::{CliError, failed};
use super::output::SetupOutput;
use drover_admin::setup::step::{Needed, Step, check_privileges};

/// Prints steps, or does them once the login is known to hold what they need.
pub(super) async fn carry_out(
    client: &Arc<Client>,
    (steps, needed): (&[Step], &Needed),
    dry_run: bool,
    out: &mut SetupOutput<'_>,
) -> Result<(), CliError> {
    if steps.is_empty() {
        return Ok(());
    }
    let live = out.live();
    let looking = live.step("looking at the rights of the login");
    check_privileges(client, needed).await.map_err(failed)?;
    drop(looking);
    for step in steps {
        if dry_run {
            out.plan(step)?;
            continue;
        }
        let _step = live.step(&step.to_string());
        step.run(client).await.map_err(|text| failed(format!("{step}: {text}")))?;
        out.did(step)?;
    }
    Ok(())
}
