//! Bridges, VNets, nodes, pools and free VMIDs.

use std::collections::{BTreeMap, BTreeSet};

use drover_ci::Remedy;
use drover_model::id::NodeName;
use drover_ssh::quote;
use proxmox_client::admin::NodeInterface;

use super::{CloudCheck, Cluster};

/// How many VMIDs more are suggested where too few are free, and the last that Proxmox has.
const MORE_IDS: u32 = 10_000;
const LAST_ID: u32 = 999_999_999;

impl CloudCheck<'_> {
    pub(super) async fn bridges(&mut self, cluster: &Cluster) {
        let mut wanted: BTreeMap<NodeName, BTreeSet<String>> = BTreeMap::new();
        for spec in self.specs() {
            let mut names: BTreeSet<String> =
                spec.nics.iter().map(|one| one.bridge.clone()).collect();
            if names.is_empty() {
                let sources = cluster.facts.sources.get(&spec.id).into_iter().flatten();
                names.extend(
                    sources.flat_map(|one| one.bridges.iter().map(|(name, _)| name.clone())),
                );
                names.extend(spec.network.bridge.clone());
            }
            for node in self.nodes_of(spec, cluster) {
                wanted.entry(node).or_default().extend(names.clone());
            }
        }
        for (node, names) in wanted {
            match self.client.bridges_of(node.as_str()).await {
                Ok(seen) => {
                    for name in names {
                        self.bridge(&name, &node, &seen, cluster);
                    }
                }
                Err(error) => {
                    let text = self.error_text(&error);
                    self.report.fail(format!("bridges of {node}"), text, []);
                }
            }
        }
    }

    fn bridge(&mut self, name: &str, node: &NodeName, all: &[NodeInterface], cluster: &Cluster) {
        let about = format!("bridge {name} on {node}");
        let seen = all.iter().find(|one| one.iface == name);
        match (seen, cluster.facts.zones.get(name)) {
            (Some(_), Some(zone)) => self.report.ok(about, format!("a VNet of zone {zone}")),
            (None, Some(zone)) => {
                let text = format!(
                    "a VNet of zone {zone} that is not active there: it was not applied, or the \
                     zone does not include this node"
                );
                let look = format!("pvesh get /cluster/sdn/zones/{zone}");
                let remedy =
                    [Remedy::on_any_node("pvesh set /cluster/sdn"), Remedy::on_any_node(look)];
                self.report.fail(about, text, remedy);
            }
            (Some(one), None) if one.active => self.report.ok(about, one.kind.clone()),
            (Some(one), None) => {
                let remedy = [Remedy::on_node(node, format!("ifup {name}"))];
                self.report.warn(about, format!("{}, not active", one.kind), remedy);
            }
            (None, None) => {
                let there = all.iter().map(|one| Remedy::yaml(format!("bridge: {}", one.iface)));
                let text = "is neither a bridge nor a VNet there, or drover may not see it";
                let mut remedies: Vec<Remedy> =
                    there.map(|one| one.noting("one that exists")).collect();
                if remedies.is_empty() {
                    remedies = self.setup("");
                }
                let net = format!("/nodes/{node}/network");
                let make = format!(
                    "pvesh create {net} --iface {} --type bridge --bridge_ports CARD --autostart 1 \
                     && pvesh set {net}",
                    quote(name)
                );
                let make = Remedy::on_node(node, make).noting("with its network card as CARD");
                remedies.push(make.or());
                self.report.fail(about, text, remedies);
            }
        }
    }

    /// Reports nodes that templates name or prefer and that the cluster does not have.
    pub(super) fn nodes(&mut self, cluster: &Cluster) {
        let known: Vec<String> = cluster.fleet.nodes().keys().map(ToString::to_string).collect();
        if known.is_empty() {
            return;
        }
        let (mut unknown, mut missed) = (Vec::new(), Vec::new());
        for spec in self.specs() {
            let missing = |node: &NodeName| !cluster.fleet.nodes().contains_key(node);
            let of = |node: NodeName| format!("node {node} of {}", spec.id.name);
            unknown.extend(spec.nodes().into_iter().filter(missing).map(of));
            let preferred = spec.placement.preferred.iter().filter(|node| missing(node));
            missed.extend(preferred.map(|node| format!("preferred {}", of(node.clone()))));
        }
        let known = known.join(", ");
        let text = format!("the cluster has no node of that name, only {known}");
        for about in unknown {
            let remedy = Remedy::yaml(format!("nodes: [{known}]")).noting("one or more of these");
            self.report.fail(about, text.clone(), [remedy]);
        }
        for about in missed {
            let remedy = Remedy::yaml(format!("preferredNodes: [{known}]"));
            let remedy = remedy.noting("or in PVE_NODE_SELECTOR, one or more of these");
            self.report.warn(about, text.clone(), [remedy]);
        }
    }

    pub(super) async fn pools(&mut self) {
        let wanted: BTreeSet<String> =
            self.specs().iter().filter_map(|spec| spec.target_pool.clone()).collect();
        if wanted.is_empty() {
            return;
        }
        let there = match self.client.pools().await {
            Ok(there) => there,
            Err(error) => {
                let text = self.error_text(&error);
                return self.report.fail("pools", text, []);
            }
        };
        for pool in wanted {
            let about = format!("pool {pool}");
            if there.contains(&pool) {
                self.report.ok(about, "exists");
                continue;
            }
            // A pool that drover may not see is reported among the privileges.
            let path = format!("/pool/{pool}");
            let held = self.client.privileges(&path, None).await.unwrap_or_default();
            if held.contains_key("Pool.Audit") {
                let remedy = Remedy::on_any_node(format!("pveum pool add {pool}"));
                self.report.fail(about, "does not exist", [remedy]);
            }
        }
    }

    /// Warns about templates without a pool: rights on their agents are rights on every guest.
    pub(super) fn poolless(&mut self) {
        let all = self.specs();
        let without = all.iter().filter(|spec| spec.target_pool.is_none());
        let names: Vec<_> = without.map(|spec| format!("`{}`", spec.id.name)).collect();
        if names.is_empty() {
            return;
        }
        let text = format!("is not set for {}: drover may change every guest", names.join(", "));
        let mut remedies = vec![Remedy::yaml("targetPool: ci")];
        remedies.extend(self.setup(""));
        self.report.warn("targetPool", text, remedies);
    }

    /// Reports how many VMIDs of the cloud's range are free, as far as drover may see guests.
    pub(super) async fn ids(&mut self) {
        let (floor, ceiling) = (self.cloud.vmid_floor.0, self.cloud.vmid_ceiling.0);
        let Ok((_, rows)) = self.client.resources(true).await else { return };
        let range = u64::from(floor)..u64::from(ceiling);
        let taken = rows.iter().filter_map(|row| row.vmid).filter(|vmid| range.contains(vmid));
        let size = u64::from(ceiling.saturating_sub(floor));
        let free = size.saturating_sub(taken.count() as u64);
        let about = format!("ids {floor} to {}", ceiling.saturating_sub(1));
        let wanted = u64::from(self.cloud.cap.unwrap_or(1));
        let larger = ceiling.saturating_add(MORE_IDS - 1).min(LAST_ID);
        let larger = [Remedy::yaml(format!("endVmId: {larger}")).noting("a larger range")];
        if free == 0 {
            self.report.fail(about, "no VMID is free", larger);
        } else if free < 2 * wanted {
            // A VMID stays reserved for an hour after its guest is gone.
            let text = format!(
                "{free} of {size} are free, for up to {wanted} agents; a VMID is used again after an hour"
            );
            self.report.warn(about, text, larger);
        } else {
            self.report.ok(about, format!("{free} of {size} are free"));
        }
    }
}
