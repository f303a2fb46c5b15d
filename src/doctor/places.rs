//! Storages, bridges, pools and free ids.

use std::collections::{BTreeMap, BTreeSet};

use drover_actors::id::NodeName;
use drover_actors::spec::{CloneStrategy, TemplateSpec};

use super::{Cluster, Patient};
use crate::pve::admin::NodeStorage;
use crate::rights::Source;

/// Storages with less of them free are told, in per cent.
const SPACE_LEFT: u64 = 10;

/// Storages by whose plug-in a linked clone can not be made (behaviour section 9).
fn never_links(kind: &str) -> bool {
    matches!(kind, "lvm" | "iscsi" | "iscsidirect")
}

/// The nodes that a template's agents may be on.
fn nodes_of(spec: &TemplateSpec, cluster: &Cluster) -> Vec<NodeName> {
    let named = spec.nodes();
    if named.is_empty() { cluster.online.clone() } else { named }
}

/// Storages that the disks of a template's clones lie on, and whether they are its own.
fn storages_of(spec: &TemplateSpec, sources: &[Source]) -> BTreeSet<String> {
    let mut targets: BTreeSet<String> = spec.storages.iter().cloned().collect();
    targets.extend(spec.target_storage.clone());
    if spec.clone == CloneStrategy::Full && !targets.is_empty() {
        return targets;
    }
    sources.iter().flat_map(|one| one.storages.iter().cloned()).collect()
}

impl Patient<'_> {
    pub(super) async fn storages(&mut self, cluster: &Cluster) {
        let mut wanted: BTreeMap<String, (BTreeSet<NodeName>, bool)> = BTreeMap::new();
        for spec in self.specs() {
            let sources =
                cluster.facts.sources.get(&spec.id).map(Vec::as_slice).unwrap_or_default();
            for storage in storages_of(spec, sources) {
                let (nodes, links) = wanted.entry(storage).or_default();
                nodes.extend(nodes_of(spec, cluster));
                *links |= spec.clone == CloneStrategy::Linked;
            }
        }
        let mut on: BTreeMap<NodeName, Vec<NodeStorage>> = BTreeMap::new();
        let used = wanted.values().flat_map(|(nodes, _)| nodes.iter().cloned());
        for node in used.collect::<BTreeSet<_>>() {
            if !cluster.online.is_empty() && !cluster.online.contains(&node) {
                continue;
            }
            match self.client.storages_of(&node).await {
                Ok(all) => drop(on.insert(node, all)),
                Err(error) => {
                    let text = self.told(&error);
                    self.report.fail(format!("storages of {node}"), text, []);
                }
            }
        }
        for (name, (nodes, links)) in wanted {
            for node in &nodes {
                let Some(all) = on.get(node) else { continue };
                let found = all.iter().find(|one| one.storage == name);
                self.storage(&name, node, found, links);
            }
        }
    }

    fn storage(&mut self, name: &str, node: &NodeName, found: Option<&NodeStorage>, links: bool) {
        let about = format!("storage {name} on {node}");
        let Some(found) = found else {
            let mend = format!("pvesm status --storage {name}; pvesm set {name} --nodes …,{node}");
            let text = "is not there, or may not be seen";
            return self.report.fail(about, text, [mend.as_str()]);
        };
        if found.enabled == Some(false) {
            let mend = format!("pvesm set {name} --disable 0");
            return self.report.fail(about, "is disabled", [mend.as_str()]);
        }
        if found.active == Some(false) {
            let mend = format!("ssh {node} pvesm status --storage {name}");
            return self.report.fail(
                about,
                "is not active: the node does not reach it",
                [mend.as_str()],
            );
        }
        if !found.content.split(',').any(|content| content == "images") {
            let mend = format!("pvesm set {name} --content {},images", found.content);
            let text = format!("takes no disk images, only {}", found.content);
            return self.report.fail(about, text, [mend.as_str()]);
        }
        if links && never_links(&found.kind) {
            let text = format!("of type {} makes no linked clones", found.kind);
            let mend = "in the YAML: cloneStrategy: FULL";
            return self.report.fail(about, text, [mend]);
        }
        match (found.avail, found.total.filter(|total| *total > 0)) {
            (Some(avail), Some(total)) => {
                let (gib, share) = (avail >> 30, avail.saturating_mul(100) / total);
                let text = format!("{}, {gib} GiB free ({share} %)", found.kind);
                if share < SPACE_LEFT {
                    let mend = [format!("pvesm list {name}")];
                    self.report.warn(about, text, mend);
                } else {
                    self.report.ok(about, text);
                }
            }
            _ => self.report.ok(about, found.kind.clone()),
        }
    }

    pub(super) async fn bridges(&mut self, cluster: &Cluster) {
        let mut wanted: BTreeMap<NodeName, BTreeSet<String>> = BTreeMap::new();
        for spec in self.specs() {
            let sources =
                cluster.facts.sources.get(&spec.id).map(Vec::as_slice).unwrap_or_default();
            let mut names: BTreeSet<String> = sources
                .iter()
                .flat_map(|one| one.bridges.iter().map(|(name, _)| name.clone()))
                .collect();
            names.extend(spec.network.bridge.clone());
            for node in nodes_of(spec, cluster) {
                wanted.entry(node).or_default().extend(names.clone());
            }
        }
        for (node, names) in wanted {
            if !cluster.online.is_empty() && !cluster.online.contains(&node) {
                continue;
            }
            let seen = match self.client.interfaces_of(&node).await {
                Ok(seen) => seen,
                Err(error) => {
                    let text = self.told(&error);
                    self.report.fail(format!("bridges of {node}"), text, []);
                    continue;
                }
            };
            for name in names {
                let about = format!("bridge {name} on {node}");
                if let Some(zone) = cluster.facts.zones.get(&name) {
                    self.report.ok(about, format!("a VNet of zone {zone}"));
                    continue;
                }
                match seen.iter().find(|one| one.iface == name) {
                    Some(one) if one.active => self.report.ok(about, one.kind.clone()),
                    Some(one) => {
                        let mend = [format!("ssh {node} ifup {name}")];
                        self.report.warn(about, format!("{}, not active", one.kind), mend);
                    }
                    None => {
                        let mend = format!("ssh {node} ip -br link show type bridge");
                        let text = "is not there, or may not be seen";
                        self.report.fail(about, text, [mend.as_str()]);
                    }
                }
            }
        }
    }

    pub(super) async fn pools(&mut self) {
        let wanted: BTreeSet<String> =
            self.specs().iter().filter_map(|spec| spec.target_pool.clone()).collect();
        if wanted.is_empty() {
            return;
        }
        let there = self.client.pools().await.unwrap_or_default();
        for pool in wanted {
            let about = format!("pool {pool}");
            if there.contains(&pool) {
                self.report.ok(about, "is there");
            } else {
                let mend = format!("pveum pool add {pool}");
                self.report.fail(about, "is not there, or may not be seen", [mend.as_str()]);
            }
        }
    }

    /// How many ids of the cloud's range are free, as far as guests may be seen.
    pub(super) async fn ids(&mut self) {
        let (floor, ceiling) = (self.cloud.vmid_floor.0, self.cloud.vmid_ceiling.0);
        let Ok(rows) = self.client.resources(true).await else { return };
        let range = u64::from(floor)..u64::from(ceiling);
        let taken = rows.iter().filter_map(|row| row.vmid).filter(|vmid| range.contains(vmid));
        let size = u64::from(ceiling.saturating_sub(floor));
        let free = size.saturating_sub(taken.count() as u64);
        let about = format!("ids {floor} to {}", ceiling.saturating_sub(1));
        let wanted = u64::from(self.cloud.cap.unwrap_or(1));
        if free == 0 {
            let mend = "in the YAML: another startVmId or endVmId";
            self.report.fail(about, "none is free", [mend]);
        } else if free < 2 * wanted {
            // An id rests an hour after its guest is gone.
            let text = format!(
                "{free} of {size} are free, for up to {wanted} agents whose ids rest an hour"
            );
            self.report.warn(about, text, ["in the YAML: a lower startVmId or a higher endVmId"]);
        } else {
            self.report.ok(about, format!("{free} of {size} are free"));
        }
    }
}
