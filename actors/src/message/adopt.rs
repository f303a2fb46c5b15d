//! The adoption of a guest by a declared machine.

use drover_model::declared::OnRemoval;
use drover_model::id::{DeclaredName, NodeName, VmId};
use drover_runtime::reply::Reply;

use super::Refusal;

/// A guest that a declared machine is to adopt.
#[derive(Debug)]
pub struct AdoptAsk {
    /// Its key in `machines`.
    pub name: String,
    /// The guest; none for the one whose marks prove it.
    pub vmid: Option<VmId>,
    /// Whether an operator says that the guest is the machine, which its marks do not prove.
    pub confirmed: bool,
    /// Looks, and changes nothing.
    pub dry_run: bool,
    /// Receives what is adopted, or a refusal.
    pub reply: Reply<Result<MachineAdopted, Refusal>>,
}

/// A guest that a declared machine adopts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineAdopted {
    pub machine: DeclaredName,
    pub vmid: VmId,
    pub node: NodeName,
    /// Its name at the moment.
    pub called: String,
    /// Its name from now on.
    pub name: String,
    /// Whether its marks prove that drover made it for the machine; without, drover writes them.
    pub proven: bool,
    pub on_removal: OnRemoval,
}
