//! The machine of an agent that another agent is to be a copy of.

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{AgentId, VmId};
use drover_model::marks::{Kind, Reading};
use drover_model::placement::Fleet;
use drover_model::ports::Listed;
use drover_model::template_image::Candidate;

use crate::client::{Client, Failure};
use crate::configure::{reading, unlocked};
use crate::template_image::shown;

/// Finds the machine of an agent: the guest with this VMID whose marks name the agent.
///
/// The caller checks the installation, which the guest's name shows.
///
/// # Errors
/// The machine is gone, is another agent's by now, or Proxmox has locked it.
pub(crate) async fn find(
    client: &Client,
    (agent, vmid): (&AgentId, VmId),
    guests: &[Listed],
    fleet: &Fleet,
) -> Result<Candidate, Failure> {
    let gone = || {
        let text = format!("guest `{vmid}` is not the machine of agent `{agent}` any more");
        Fault::new(FaultKind::Gone, Culprit::Guest, text)
    };
    let Some(guest) = guests.iter().find(|one| one.vmid == vmid && !one.container) else {
        return Err(gone().into());
    };
    let config = client.config(guest.node.as_str(), vmid.0).await?;
    let Reading::Marked(marks) = reading(&config) else { return Err(gone().into()) };
    if marks.kind != Kind::Agent || marks.agent != *agent || marks.vmid != vmid {
        return Err(gone().into());
    }
    // Proxmox refuses to clone a locked guest, whatever the lock is (book: proxmox, section 9).
    unlocked(&config, vmid)?;
    Ok(shown(guest, &config, fleet))
}
