//! Whether any node could run an agent of each template, and which nodes cannot.

use std::collections::{BTreeMap, BTreeSet};

use drover_actors::placement::{Claim, Crowds, Scene};
use drover_actors::source::{Ground, survey};
use drover_ci::{Remedy, Severity};
use drover_hypervisor::template_sizes;
use drover_model::id::NodeName;
use drover_model::placement::{
    Fleet, NodeFigures, NodeObservation, PlacementSpec, Refusal, Sizes, StorageObservation,
};
use drover_model::spec::TemplateSpec;
use drover_model::template_image::Found;

use super::{CloudCheck, Cluster, Line, Templates};

/// The same nodes and storages with nothing on them.
fn emptied(fleet: &Fleet) -> Fleet {
    let nodes = fleet.nodes().iter().map(|(name, node)| {
        let figures = node.figures.map(|one| NodeFigures { busy: 0, used: 0, ..one });
        (name.clone(), NodeObservation { figures, ..*node })
    });
    let storages = fleet.nodes().keys().flat_map(|node| fleet.storages(node));
    let storages = storages.map(|one| StorageObservation { space: None, ..one.clone() });
    let emptied = Fleet::new(nodes.collect(), storages.collect(), BTreeMap::new());
    emptied.with_devices_of(fleet)
}

/// A placement where nothing temporary is in the way and nothing is reserved.
struct NothingReserved;

impl Ground for NothingReserved {
    fn node_closed(&self, _: &NodeName) -> Option<String> {
        None
    }

    fn storage_closed(&self, _: &str, _: Option<&NodeName>) -> Option<String> {
        None
    }

    fn claims(&self) -> &[Claim] {
        &[]
    }
}

/// Why a template's agents cannot run on each node that the template may use, as long as nobody
/// changes anything; none for a node where they can.
fn blocked_nodes(spec: &TemplateSpec, found: &Found) -> Vec<(NodeName, Option<String>)> {
    let emptied = Found {
        candidates: found.candidates.clone(),
        fleet: emptied(&found.fleet).into(),
        whole: found.whole,
    };
    // Labels are intended, and other guests come and go.
    let placement = PlacementSpec {
        selector: BTreeSet::new(),
        affinity: Vec::new(),
        anti_affinity: Vec::new(),
        max_guests: None,
        ..spec.placement.clone()
    };
    let calm = TemplateSpec { placement, ..spec.clone() };
    let carries = |node: &NodeName| {
        let own = spec.placement.labels.get(node);
        let mut wanted = spec.placement.selector.iter();
        wanted.all(|label| own.is_some_and(|own| own.contains(label)))
    };
    // Offline nodes and nodes in maintenance are reported elsewhere.
    let up = |node: &NodeName| {
        found
            .fleet
            .nodes()
            .get(node)
            .is_some_and(|observation| !observation.offline && !observation.maintenance)
    };
    let all = survey(&calm, &emptied, &NothingReserved).into_iter();
    all.filter(|(node, _)| up(node) && carries(node)).collect()
}

impl CloudCheck<'_> {
    /// Reports templates whose agents would fit on no node even if it were empty.
    pub(super) fn room(&mut self, cluster: &Cluster, templates: &Templates) {
        let emptied = emptied(&cluster.fleet);
        let scene = Scene::new(&emptied, &[]);
        let (mut hopeless, mut too_large) = (Vec::new(), Vec::new());
        for spec in self.specs() {
            let seen = templates.get(&spec.id).map(|seen| seen.sources.as_slice());
            let mut read = seen.unwrap_or_default().iter();
            let read = read.find_map(|(source, config)| Some((source, config.as_ref()?)));
            let Some((source, config)) = read else { continue };
            let guest = cluster.fleet.guests().get(&source.vmid);
            let own = template_sizes(guest, Some(config));
            let nodes = self.nodes_of(spec, cluster);
            // Why no node holds an agent of these sizes; none where one does.
            let refused = |wanted: Sizes| {
                let refused = nodes.iter().filter_map(|node| {
                    let refusal = scene.refusal(spec, &Crowds::default(), wanted, node)?;
                    never_passes(&refusal).then_some((node, refusal))
                });
                let refused: Vec<(&NodeName, Refusal)> = refused.collect();
                (!nodes.is_empty() && refused.len() == nodes.len()).then_some(refused)
            };
            let largest = spec.sized(spec.size_labels.largest());
            if let Some(refused) = refused(own.cloned(spec)) {
                hopeless.push((spec.id.name.clone(), each(&refused), fitting(&refused)));
            } else if let Some(refused) = refused(own.cloned(&largest)) {
                too_large.push((spec.id.name.clone(), each(&refused)));
            }
        }
        for (name, refused, remedy) in hopeless {
            let text = format!("an agent would not fit even on an empty node: {refused}");
            self.report.fail(format!("room for {name}"), text, [remedy]);
        }
        for (name, refused) in too_large {
            let text = format!("its largest agents would not fit even on an empty node: {refused}");
            let remedy = Remedy::yaml("sizeLabels: {memory: {max: MiB}, cpu: {max: CORES}}");
            let remedy = remedy.noting("as much as a node has");
            self.report.warn(format!("sizes of {name}"), text, [remedy]);
        }
    }
}

/// Why each of these nodes refuses, in one line.
fn each(refused: &[(&NodeName, Refusal)]) -> String {
    let each = refused.iter().map(|(node, refusal)| format!("{node}: {refusal}"));
    each.collect::<Vec<_>>().join("; ")
}

/// What makes an agent fit: as much memory as one of the nodes has.
fn fitting(refused: &[(&NodeName, Refusal)]) -> Remedy {
    let memory = refused.iter().filter_map(|(_, refusal)| refusal.most_memory());
    match memory.max().filter(|most| *most > 0) {
        Some(most) => Remedy::yaml(format!("memoryMb: {most}")).noting("at most"),
        None => Remedy::yaml("nodes: [NODE]").noting("others, or less `headroom`"),
    }
}

impl CloudCheck<'_> {
    /// Reports nodes that a template may use but where none of its agents can run. Where that is
    /// all nodes, the findings from `before` on may have reported it already.
    pub(super) fn usable(&mut self, cluster: &Cluster, templates: &Templates, before: usize) {
        let failed = |line: &Line| line.severity == Severity::Fail;
        let reported = self.report.lines.iter().skip(before).any(failed);
        let mut found = Vec::new();
        for spec in self.specs() {
            let Some(seen) = templates.get(&spec.id) else { continue };
            if cluster.fleet.nodes().is_empty() || seen.sources.iter().all(|(_, one)| one.is_none())
            {
                continue;
            }
            let homes: BTreeSet<&str> =
                seen.sources.iter().map(|(one, _)| one.node.as_str()).collect();
            let homes = homes.into_iter().collect::<Vec<_>>().join(", ");
            found.push((spec.id.name.clone(), homes, blocked_nodes(spec, &seen.found)));
        }
        for (template, homes, nodes) in found {
            let none = nodes.iter().all(|(_, why)| why.is_some());
            if none && reported {
                continue;
            }
            let open = nodes.iter().filter(|(_, why)| why.is_none());
            let open: Vec<&str> = open.map(|(node, _)| node.as_str()).collect();
            let (mark, better) = match none {
                true => (Severity::Fail, homes),
                false => (Severity::Warn, open.join(", ")),
            };
            let better = Remedy::yaml(format!("nodes: [{better}]"));
            for (node, why) in nodes {
                let Some(why) = why else { continue };
                let about = format!("template {template} on {node}");
                let text = format!("cannot be used there: {why}");
                self.report.add(mark, about, text, vec![better.clone()]);
            }
        }
    }
}

/// Whether a refusal lasts even on an empty node.
fn never_passes(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Label(_)
        | Refusal::Small { .. }
        | Refusal::Memory { .. }
        | Refusal::Processors { .. }
        | Refusal::NoDevice { .. } => true,
        // These depend on people or on other guests.
        Refusal::Unknown
        | Refusal::Offline
        | Refusal::Maintenance(_)
        | Refusal::Closed(_)
        | Refusal::Guests { .. }
        | Refusal::DevicesTaken { .. }
        | Refusal::Alone(_)
        | Refusal::Crowded(_) => false,
    }
}
