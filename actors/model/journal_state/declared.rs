//! Declared machines in the journal.

use serde::{Deserialize, Serialize};

use super::JournalState;
use crate::declared::DeclaredSpec;
use crate::id::NodeName;
use crate::marks::Marks;
use crate::record::Body;
use crate::time::WallTime;

/// A declared machine, as the journal knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredEntry {
    /// The marks that its guest was given.
    pub marks: Marks,
    /// The node it was made on.
    pub node: NodeName,
    /// How it was declared last.
    pub spec: DeclaredSpec,
    /// Whether its guest is configured and was started.
    #[serde(default)]
    pub made: bool,
    /// Whether its guest is to be destroyed.
    #[serde(default)]
    pub removing: bool,
}

impl JournalState {
    /// Folds a record of declared machines in.
    pub(super) fn of_declared(&mut self, body: &Body, seq: u64, at: WallTime) {
        if let Body::DeclaredIntended { marks, node, spec, adopted } = body {
            let mut marks = (**marks).clone();
            if marks.seq == 0 {
                marks.seq = seq;
            }
            let (node, spec) = (node.clone(), (**spec).clone());
            let id = marks.agent.clone();
            let entry = DeclaredEntry { marks, node, spec, made: *adopted, removing: false };
            self.declared.insert(id, entry);
        } else if let Body::DeclaredMade { machine, node } = body {
            if let Some(entry) = self.declared.get_mut(machine) {
                entry.made = true;
                entry.node.clone_from(node);
            }
        } else if let Body::DeclaredChanged { machine, spec } = body {
            if let Some(entry) = self.declared.get_mut(machine) {
                entry.spec = (**spec).clone();
                // It is declared: what was to be destroyed is kept.
                entry.removing = false;
            }
        } else if let Body::DeclaredRemoving { machine } = body {
            if let Some(entry) = self.declared.get_mut(machine) {
                entry.removing = true;
            }
        } else if let Body::DeclaredGone { machine, burned } = body
            && let Some(entry) = self.declared.remove(machine)
        {
            let ids = if *burned { &mut self.burned } else { &mut self.resting };
            ids.entry(entry.marks.cluster).or_default().insert(entry.marks.vmid, at);
        }
    }
}
