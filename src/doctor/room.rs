//! Whether any node could ever take an agent of each template.

use std::collections::BTreeMap;

use drover_actors::placement::{Crowds, Fleet, NodeFigures, NodeSight, Refusal, Scene};

use super::{Cluster, Found, Patient};
use crate::pve::fleet::sizes;

/// The same nodes with nothing on them.
fn bare(fleet: &Fleet) -> Fleet {
    let nodes = fleet.nodes().iter().map(|(name, node)| {
        let figures = node.figures.map(|one| NodeFigures { busy: 0, used: 0, ..one });
        (name.clone(), NodeSight { figures, ..*node })
    });
    Fleet::new(nodes.collect(), Vec::new(), BTreeMap::new())
}

impl Patient<'_> {
    /// Tells of templates whose agents no node could take if nothing else were on it.
    pub(super) fn room(&mut self, cluster: &Cluster, found: &Found) {
        let bare = bare(&cluster.fleet);
        let scene = Scene::new(&bare, &[]);
        let mut hopeless = Vec::new();
        for spec in self.specs() {
            let Some((source, config)) = found.get(&spec.id).and_then(|all| all.first()) else {
                continue;
            };
            let guest = cluster.fleet.guests().get(&source.vmid);
            let wanted = sizes(guest, Some(config)).cloned(spec);
            let nodes = self.nodes_of(spec, cluster);
            let refused = nodes.iter().filter_map(|node| {
                let refusal = scene.refusal(spec, &Crowds::default(), wanted, node)?;
                never_passes(&refusal).then(|| format!("{node}: {refusal}"))
            });
            let refused: Vec<String> = refused.collect();
            if !nodes.is_empty() && refused.len() == nodes.len() {
                hopeless.push((spec.id.name.clone(), refused.join("; ")));
            }
        }
        for (name, refused) in hopeless {
            let text = format!("no node could take an agent if it were empty: {refused}");
            let mend = "in the YAML: less memoryMb or headroom, or other nodes";
            self.report.fail(format!("room for {name}"), text, [mend]);
        }
    }
}

/// Whether a refusal stands for good, on a node that is empty.
fn never_passes(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Label(_) | Refusal::Memory { .. } | Refusal::Processors { .. } => true,
        // What is done by people, or hangs on other guests.
        Refusal::Unknown
        | Refusal::Offline
        | Refusal::Maintenance
        | Refusal::Closed(_)
        | Refusal::Guests { .. }
        | Refusal::Alone(_)
        | Refusal::Crowded(_) => false,
    }
}
