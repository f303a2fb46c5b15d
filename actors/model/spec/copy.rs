//! The spec of an agent that is a copy of another agent's machine.

use super::{CloneStrategy, JavaDistribution, JavaSpec, TemplateSpec};
use crate::id::{AgentId, VmId};
use crate::placement::PlacementSpec;
use crate::size::Size;
use crate::template_image::Sought;

impl TemplateSpec {
    /// The same for an agent that is a copy of the machine of `agent`, which was born with this spec.
    ///
    /// - The copy is a full one, beside the machine on its storage: a linked clone needs a template, or
    ///   a snapshot that few storages can clone from (book: proxmox, section 9).
    /// - It serves nobody by itself, as an agent on trial.
    /// - Nothing that prepares an agent runs again: it would undo what somebody did on the machine.
    /// - It has the sizes that the machine was given since.
    #[must_use]
    pub fn copy_of(&self, agent: &AgentId, vmid: VmId, given: Size) -> Self {
        Self {
            source: vmid,
            search: Some(Sought::Agent { agent: agent.clone(), vmid }),
            // It proves no version of its template's image.
            canary: false,
            made_as: None,
            origin: None,
            node: None,
            nodes: Vec::new(),
            placement: PlacementSpec {
                preferred: Vec::new(),
                anywhere: false,
                thickness: None,
                ..self.placement.clone()
            },
            fallbacks: Vec::new(),
            clone: CloneStrategy::Full,
            target_storage: None,
            storages: Vec::new(),
            cores: given.cores.or(self.cores),
            memory_mb: given.memory_mb.or(self.memory_mb),
            disk_gb: given.disk_gb.or(self.disk_gb),
            java: JavaSpec { distribution: JavaDistribution::None, ..self.java.clone() },
            steps: Vec::new(),
            ready_command: None,
            reset: None,
            trial: true,
            ..self.clone()
        }
    }

    /// Whether this is the spec of a copy of another agent's machine. What becomes of a copy says
    /// nothing of its template.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        matches!(self.search, Some(Sought::Agent { .. }))
    }
}
