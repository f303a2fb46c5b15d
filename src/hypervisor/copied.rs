//! The machine of an agent that another agent is to be a copy of.

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{AgentId, NodeName, VmId};
use drover_model::marks::{Kind, Reading};
use drover_model::placement::Fleet;
use drover_model::ports::Listed;
use drover_model::template_image::Candidate;

use proxmox_client::types::VmConfig;

use crate::client::{Client, Failure};
use crate::configure::{reading, unlocked};
use crate::template_image::shown;

/// Finds the machine of an agent: the guest with this VMID whose marks name the agent.
///
/// The list may not know it yet, or know another node of it (book: proxmox, section 8): then each node is
/// asked. The caller checks the installation, which the guest's name shows.
///
/// # Errors
/// The machine is gone, is another agent's by now, or Proxmox has locked it.
pub(crate) async fn find(
    client: &Client,
    (agent, vmid): (&AgentId, VmId),
    guests: &[Listed],
    fleet: &Fleet,
) -> Result<Candidate, Failure> {
    let listed = guests.iter().find(|one| one.vmid == vmid && !one.container);
    let listed = listed.map(|one| &one.node);
    let others = fleet.nodes().keys().filter(|node| Some(*node) != listed);
    let nodes = listed.into_iter().chain(others).filter(|node| !fleet.is_offline(node));
    for node in nodes {
        if let Some(config) = config_on(client, node, vmid).await? {
            let Reading::Marked(marks) = reading(&config) else { break };
            if marks.kind != Kind::Agent || marks.agent != *agent || marks.vmid != vmid {
                break;
            }
            // Proxmox refuses to clone a locked guest, whatever the lock is (book: proxmox, section 9).
            unlocked(&config, vmid)?;
            return Ok(shown((vmid, node), &config, fleet));
        }
    }
    let text = format!("guest `{vmid}` is not the machine of agent `{agent}` any more");
    Err(Fault::new(FaultKind::Gone, Culprit::Guest, text).into())
}

/// The configuration of a guest; none where the node does not have it.
async fn config_on(
    client: &Client,
    node: &NodeName,
    vmid: VmId,
) -> Result<Option<VmConfig>, Failure> {
    match client.config(node.as_str(), vmid.0).await {
        Ok(config) => Ok(Some(config)),
        Err(error) if client.fault(&error).kind == FaultKind::Gone => Ok(None),
        Err(error) => Err(error.into()),
    }
}
