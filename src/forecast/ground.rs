//! What a replay stands on: the clusters behind the clouds of a configuration, their nodes, and the
//! template images there. Neither a trace nor a configuration says all of that; what is assumed is said.

use std::collections::{BTreeMap, BTreeSet};

use drover_history::{NodeSize, Trace};
use drover_model::ambient::fnv1a;
use drover_model::hardware::Devices;
use drover_model::id::{CloudId, ClusterId, Installation, NodeName, VmId};
use drover_model::placement::Sizes;
use drover_model::spec::{HerdSpec, TemplateSpec};
use drover_model::template_image::Sought;

/// The size of an agent that neither configuration nor trace names.
const SIZES: Sizes = Sizes { cores: 2, memory_mb: 2048, disk_gb: 10 };
/// The only node of a cluster of which none is named.
const NODE: &str = "node1";

/// The storage of all template images, which every node reaches.
pub(crate) const REPLAY_STORAGE: &str = "replay";

/// What a node has; none for room for every agent that the limits of the configuration allow.
pub type Hardware = Option<NodeHardware>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeHardware {
    /// Threads of processors, not cores or sockets.
    pub cpus: u32,
    pub memory_mib: u64,
}

/// What is known of nodes.
struct Known {
    /// What somebody says of all of them.
    of_all: Hardware,
    /// What the trace says of each.
    of_each: BTreeMap<(CloudId, NodeName), NodeHardware>,
}

impl Known {
    fn of(&self, cloud: &CloudId, node: &NodeName) -> Hardware {
        self.of_all.or_else(|| self.of_each.get(&(cloud.clone(), node.clone())).copied())
    }
}

fn sizes_of(trace: &Trace) -> BTreeMap<(CloudId, NodeName), NodeHardware> {
    let sizes = trace.header.nodes.iter().map(|NodeSize { cloud, node, cores, memory_mib }| {
        let hardware = NodeHardware { cpus: *cores, memory_mib: *memory_mib };
        ((CloudId::new(cloud), NodeName::new(node)), hardware)
    });
    sizes.collect()
}

/// A template image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) vmid: VmId,
    pub(crate) name: String,
    pub(crate) nodes: Vec<NodeName>,
    pub(crate) sizes: Sizes,
}

#[derive(Debug, Clone, Default)]
pub struct Ground {
    pub(crate) clusters: BTreeMap<CloudId, ClusterId>,
    pub(crate) nodes: BTreeMap<ClusterId, BTreeMap<NodeName, Hardware>>,
    pub(crate) storages: BTreeSet<String>,
    pub(crate) images: BTreeMap<(CloudId, Sought), Image>,
    /// Devices that templates want: each node has as many as are wanted.
    pub(crate) devices: Devices,
    /// What neither the trace nor the configuration says, in sentences.
    pub assumed: Vec<String>,
}

impl Ground {
    /// The ground under a configuration. Clouds with equal names in `same` lead to one cluster.
    pub(crate) fn new(
        spec: &HerdSpec,
        trace: &Trace,
        same: &BTreeMap<CloudId, String>,
        hardware: Hardware,
        installation: &Installation,
    ) -> Self {
        let mut ground = Self::default();
        let known = Known { of_all: hardware, of_each: sizes_of(trace) };
        for cloud in spec.clouds.keys() {
            let name = same.get(cloud).map_or(cloud.as_str(), String::as_str);
            let cluster = ClusterId::new(format!("{:016x}", fnv1a(name)));
            ground.nodes.entry(cluster.clone()).or_default();
            ground.clusters.insert(cloud.clone(), cluster);
        }
        for agent in &trace.agents {
            if let Some(node) = &agent.node {
                ground.add_node(&CloudId::new(&agent.cloud), NodeName::new(node), &known);
            }
        }
        for (cloud, node) in known.of_each.keys() {
            ground.add_node(cloud, node.clone(), &known);
        }
        for template in spec.templates.values() {
            for node in template.nodes().into_iter().chain(template.placement.preferred.clone()) {
                ground.add_node(&template.id.cloud, node, &known);
            }
            let storages = template.storages.iter().chain(&template.target_storage).cloned();
            ground.storages.extend(storages);
            let devices = template.hardware.devices();
            ground.devices.extend(devices.into_keys().map(|device| (device, None)));
        }
        ground.storages.insert(REPLAY_STORAGE.to_owned());
        ground.complete(&known);
        for template in spec.templates.values() {
            ground.add_image(template, trace, installation);
        }
        ground
    }

    fn add_node(&mut self, cloud: &CloudId, node: NodeName, known: &Known) {
        let cluster = self.clusters.get(cloud);
        if let Some(nodes) = cluster.and_then(|cluster| self.nodes.get_mut(cluster)) {
            let hardware = known.of(cloud, &node);
            // Another cloud of its cluster may be the one that the trace names.
            let place = nodes.entry(node).or_default();
            *place = hardware.or(*place);
        }
    }

    /// Gives each cluster a node, and says what is assumed of nodes.
    fn complete(&mut self, known: &Known) {
        for (cloud, cluster) in &self.clusters {
            let Some(nodes) = self.nodes.get_mut(cluster).filter(|nodes| nodes.is_empty()) else {
                continue;
            };
            nodes.insert(NodeName::new(NODE), known.of_all);
            let text = format!("cloud `{cloud}` has one node: the trace names none of its nodes");
            self.assumed.push(text);
        }
        let all = || self.nodes.values().flat_map(BTreeMap::values);
        let unknown = all().filter(|hardware| hardware.is_none()).count();
        let text = match known.of_all {
            Some(NodeHardware { cpus, memory_mib }) => {
                format!("each node has {cpus} cores and {memory_mib} MiB of memory for agents")
            }
            None if unknown == 0 && all().next().is_some() => {
                "nodes have the cores and the memory for agents that they had when the trace was written"
                    .to_owned()
            }
            None if unknown < all().count() => format!(
                "{unknown} nodes have room for each agent that the configuration allows: the trace does not say \
                 their memory and cores"
            ),
            None => "every node has room for each agent that the configuration allows \
                     (`--node-memory` and `--node-cores` bound it)"
                .to_owned(),
        };
        self.assumed.push(text);
    }

    fn add_image(&mut self, template: &TemplateSpec, trace: &Trace, installation: &Installation) {
        let Some(cluster) = self.clusters.get(&template.id.cloud) else { return };
        let all: Vec<NodeName> =
            self.nodes.get(cluster).into_iter().flat_map(|nodes| nodes.keys().cloned()).collect();
        let name = template.id.to_string();
        let lives: Vec<_> = trace.agents.iter().filter(|one| one.template == name).collect();
        let mut used: BTreeMap<&str, usize> = BTreeMap::new();
        for node in lives.iter().filter_map(|agent| agent.node.as_deref()) {
            *used.entry(node).or_default() += 1;
        }
        let most = used.into_iter().max_by_key(|(_, count)| *count);
        let most = most.map(|(node, _)| NodeName::new(node)).filter(|node| all.contains(node));
        let sought = template.sought();
        let named = template.nodes();
        let nodes = match (sought.by(), most) {
            // One guest has the VMID.
            (Sought::Id(_), Some(node)) => vec![node],
            (Sought::Id(_), None) => named.first().or(all.first()).cloned().into_iter().collect(),
            _ if named.is_empty() => all,
            _ => named,
        };
        let seen = lives.iter().rev().find_map(|agent| Some((agent.cores?, agent.memory_mib?)));
        let sizes = match seen {
            Some((cores, memory)) => Sizes { cores, memory_mb: memory.into(), ..SIZES },
            None => SIZES,
        };
        if seen.is_none() && (template.cores.is_none() || template.memory_mb.is_none()) {
            self.assumed.push(format!(
                "an agent of `{name}` has {} cores and {} MiB where the configuration does not say",
                sizes.cores, sizes.memory_mb
            ));
        }
        let vmid = match sought.by() {
            Sought::Id(vmid) | Sought::Agent { vmid, .. } => *vmid,
            Sought::Os(_) => VmId(0),
            Sought::Name(_)
            | Sought::Pattern(_)
            | Sought::Tag(_)
            | Sought::Image(_)
            | Sought::Container(_) => VmId(100),
        };
        // A version of an image carries this installation in its name.
        let called = format!("{}-{installation}-0000000000000001", template.id.name);
        let image = Image { vmid, name: called, nodes, sizes };
        self.images.insert((template.id.cloud.clone(), sought), image);
    }
}
