//! Storages: for disks, for cloud-init images, and for snippets.
//!
//! Each storage is checked on each node that an agent may run on. A storage that some template
//! cannot do without fails; one of several that a template may use only warns.

use std::collections::{BTreeMap, BTreeSet};

use drover_ci::{Remedy, Severity};
use drover_model::container::GuestType;
use drover_model::id::NodeName;
use drover_model::placement::{Fleet, NEARLY_FULL_PERCENT};
use drover_model::spec::CloneStrategy;
use proxmox_client::admin::NodeStorage;

use super::token::LoginFacts;
use super::{CloudCheck, Cluster};
use crate::rights::storages;

/// The privilege that lists snippets, and the role of Proxmox that holds it. A grant on a storage
/// replaces those inherited from above, and this role has every privilege on storages.
const SNIPPET_PRIVILEGE: &str = "Datastore.Allocate";
const SNIPPET_ROLE: &str = "PVEDatastoreAdmin";

/// Whether storages of this type cannot hold linked clones (book: proxmox, section 9).
fn never_links(kind: &str, guest: GuestType) -> bool {
    match guest {
        GuestType::Vm => matches!(kind, "lvm" | "iscsi" | "iscsidirect"),
        // Only what is raw or a subvolume can be linked (book: proxmox, section 18).
        GuestType::Container => !matches!(kind, "zfspool" | "lvmthin" | "rbd" | "btrfs"),
    }
}

/// Proxmox's content type of the disks of such guests.
fn content(guest: GuestType) -> &'static str {
    match guest {
        GuestType::Vm => "images",
        GuestType::Container => "rootdir",
    }
}

/// Whether storages of this type can hold files, such as ISO images.
fn holds_files(kind: &str) -> bool {
    matches!(kind, "dir" | "nfs" | "cifs" | "cephfs" | "glusterfs" | "btrfs")
}

/// What a storage on a node is needed for.
#[derive(Debug, Clone, Copy, Default)]
struct Use {
    links: bool,
    /// Whether some template has no other storage there.
    alone: bool,
    guest: GuestType,
}

/// A problem with a storage, and what to do about it.
pub(super) type Problem = (String, Vec<Remedy>);

/// The problem of a storage that a node does not have.
///
/// Of an image, the storage of its disks has another key than that of a template.
fn missing(name: &str, node: &NodeName, (content, image): (&str, bool), fleet: &Fleet) -> Problem {
    let others = fleet.nodes().keys().filter(|other| fleet.storage(name, other).is_some());
    let others: Vec<String> = others.map(ToString::to_string).collect();
    if !others.is_empty() {
        let on = others.join(",");
        let text = format!("exists on {} only", others.join(", "));
        return (text, vec![Remedy::on_any_node(format!("pvesm set {name} --nodes {on},{node}"))]);
    }
    let key = match content {
        "iso" => "cloudInitIsoStorage",
        "import" => "importStorage",
        _ if image => "storage",
        _ => "targetStorage",
    };
    let fit = fleet.storages(node).filter(|one| match content {
        "images" => one.images,
        "rootdir" => one.containers,
        _ => true,
    });
    let there = fit.map(|one| Remedy::yaml(format!("{key}: {}", one.name)));
    let there: Vec<Remedy> = there.map(|one| one.noting("one that exists")).collect();
    let text = "is on no node, or drover may not see it".to_owned();
    if there.is_empty() {
        let one = Remedy::yaml(format!("{key}: STORAGE")).noting("one of these");
        return (text, vec![Remedy::on_node(node, "pvesm status"), one]);
    }
    (text, there)
}

/// Why a node cannot store this kind of content on a storage.
pub(super) fn problem(
    name: &str,
    node: &NodeName,
    found: Option<&NodeStorage>,
    content: &str,
    fleet: &Fleet,
) -> Result<(), Problem> {
    problem_of(name, node, found, (content, false), fleet)
}

/// The same, for a template, or for an image where that is said.
pub(super) fn problem_of(
    name: &str,
    node: &NodeName,
    found: Option<&NodeStorage>,
    (content, image): (&str, bool),
    fleet: &Fleet,
) -> Result<(), Problem> {
    let Some(found) = found else { return Err(missing(name, node, (content, image), fleet)) };
    if found.enabled == Some(false) {
        let remedy = Remedy::on_any_node(format!("pvesm set {name} --disable 0"));
        return Err(("is disabled".into(), vec![remedy]));
    }
    if found.active == Some(false) {
        let remedy = Remedy::on_node(node, format!("pvesm status --storage {name}"));
        return Err(("is not active: the node cannot reach it".into(), vec![remedy]));
    }
    if !found.content.split(',').any(|one| one == content) {
        let what = match content {
            "images" => "disk images",
            "rootdir" => "volumes of containers",
            "iso" => "ISO images",
            "import" => "disk images to import",
            other => other,
        };
        let text = format!("takes no {what}, only {}", found.content);
        // Only storages of files can hold what is no volume of a guest.
        if matches!(content, "iso" | "import") && !holds_files(&found.kind) {
            let key = if content == "iso" { "cloudInitIsoStorage" } else { "importStorage" };
            let one = Remedy::yaml(format!("{key}: STORAGE"));
            let one = one.noting("a storage of files: dir, nfs, cifs, cephfs, glusterfs or btrfs");
            return Err((text, vec![one]));
        }
        let set = format!("pvesm set {name} --content {},{content}", found.content);
        return Err((text, vec![Remedy::on_any_node(set)]));
    }
    Ok(())
}

impl CloudCheck<'_> {
    pub(super) async fn storages(&mut self, cluster: &Cluster, login: Option<&LoginFacts>) {
        let on = self.storages_on(cluster).await;
        self.disks(cluster, &on);
        self.discs(cluster, &on);
        self.snippets(cluster, login).await;
    }

    /// The storages of every node that agents may run on.
    async fn storages_on(&mut self, cluster: &Cluster) -> BTreeMap<NodeName, Vec<NodeStorage>> {
        let specs = self.specs();
        let nodes: BTreeSet<NodeName> =
            specs.iter().flat_map(|spec| self.nodes_of(spec, cluster)).collect();
        let mut on = BTreeMap::new();
        for node in nodes {
            match self.client.storages_of(node.as_str()).await {
                Ok(all) => drop(on.insert(node, all)),
                Err(error) => {
                    let text = self.error_text(&error);
                    self.report.fail(format!("storages of {node}"), text, []);
                }
            }
        }
        on
    }

    fn disks(&mut self, cluster: &Cluster, on: &BTreeMap<NodeName, Vec<NodeStorage>>) {
        let mut wanted: BTreeMap<(String, NodeName, GuestType), Use> = BTreeMap::new();
        let mut nowhere: BTreeSet<(String, NodeName, GuestType)> = BTreeSet::new();
        for spec in self.specs() {
            let several = storages(spec, &cluster.facts);
            let of_class = spec.placement.thickness.is_some();
            let chosen = spec.clone == CloneStrategy::Full && (of_class || several.len() > 1);
            for node in self.nodes_of(spec, cluster) {
                let Some(all) = on.get(&node) else { continue };
                let found = |name: &str| all.iter().find(|one| one.storage == name);
                let fit = |name: &String| {
                    problem(name, &node, found(name), content(spec.guest()), &cluster.fleet).is_ok()
                };
                if chosen && !several.iter().any(fit) {
                    nowhere.insert((spec.id.name.to_string(), node.clone(), spec.guest()));
                }
                for name in &several {
                    // A storage class covers all storages of its kind, and none must be everywhere.
                    if of_class && found(name).is_none() {
                        continue;
                    }
                    let key = (name.clone(), node.clone(), spec.guest());
                    let wanted = wanted.entry(key).or_default();
                    wanted.guest = spec.guest();
                    wanted.links |= spec.clone == CloneStrategy::Linked;
                    wanted.alone |= !chosen;
                }
            }
        }
        for ((name, node, _), wanted) in wanted {
            let found = on.get(&node).and_then(|all| all.iter().find(|one| one.storage == name));
            self.disk((&name, &node), found, wanted, &cluster.fleet);
        }
        for (template, node, guest) in nowhere {
            let about = format!("storages of {template} on {node}");
            let text = "none of them can hold its disks there";
            let fit = cluster.fleet.for_guests(&node, guest).map(|one| one.name.as_str());
            let line = format!("targetStorages: [{}]", fit.collect::<Vec<_>>().join(", "));
            let remedy = Remedy::yaml(line).noting("without `storageClass`");
            self.report.fail(about, text, [remedy]);
        }
    }

    fn disk(
        &mut self,
        (name, node): (&str, &NodeName),
        found: Option<&NodeStorage>,
        wanted: Use,
        fleet: &Fleet,
    ) {
        let about = format!("storage {name} on {node}");
        // Agents use another storage where there is one.
        let mark = if wanted.alone { Severity::Fail } else { Severity::Warn };
        if let Err((text, remedies)) = problem(name, node, found, content(wanted.guest), fleet) {
            return self.report.add(mark, about, text, remedies);
        }
        let Some(found) = found else { return };
        if wanted.links && never_links(&found.kind, wanted.guest) {
            let text = format!("of type {} cannot hold linked clones", found.kind);
            return self.report.fail(about, text, [Remedy::yaml("cloneStrategy: FULL")]);
        }
        match (found.avail, found.total.filter(|total| *total > 0)) {
            (Some(avail), Some(total)) => {
                let (gib, share) = (avail >> 30, avail.saturating_mul(100) / total);
                let text = format!("{}, {gib} GiB free ({share} %)", found.kind);
                if share < NEARLY_FULL_PERCENT {
                    let remedy = Remedy::on_node(node, format!("pvesm list {name}"));
                    self.report.warn(about, text, [remedy]);
                } else {
                    self.report.ok(about, text);
                }
            }
            _ => self.report.ok(about, found.kind.clone()),
        }
    }

    /// Checks the storages of cloud-init images.
    fn discs(&mut self, cluster: &Cluster, on: &BTreeMap<NodeName, Vec<NodeStorage>>) {
        let mut wanted: BTreeSet<(String, NodeName)> = BTreeSet::new();
        for spec in self.specs() {
            let Some(seed) = &spec.cloud_init.seed else { continue };
            let nodes = self.nodes_of(spec, cluster).into_iter();
            wanted.extend(nodes.map(|node| (seed.storage.clone(), node)));
        }
        for (name, node) in wanted {
            let Some(all) = on.get(&node) else { continue };
            let found = all.iter().find(|one| one.storage == name);
            let about = format!("ISO storage {name} on {node}");
            match problem(&name, &node, found, "iso", &cluster.fleet) {
                Ok(()) => self.report.ok(about, "takes ISO images"),
                Err((text, mut remedies)) => {
                    if let Some(found) = found {
                        if !holds_files(&found.kind) {
                            remedies.clear();
                        }
                        let other = Remedy::yaml("cloudInitIsoStorage: STORAGE");
                        let other = other.noting("another one");
                        remedies.push(if remedies.is_empty() { other } else { other.or() });
                    }
                    self.report.add(Severity::Fail, about, text, remedies);
                }
            }
        }
    }

    /// Checks the snippets that are named; only a login with every privilege on their storage sees
    /// them.
    async fn snippets(&mut self, cluster: &Cluster, login: Option<&LoginFacts>) {
        let mut wanted: BTreeSet<(String, NodeName)> = BTreeSet::new();
        for spec in self.specs() {
            let named = spec.cloud_init.custom.iter().flat_map(|text| text.split(','));
            let volumes: Vec<&str> =
                named.filter_map(|part| Some(part.split_once('=')?.1)).collect();
            for node in self.nodes_of(spec, cluster) {
                wanted.extend(volumes.iter().map(|one| ((*one).to_owned(), node.clone())));
            }
        }
        for (volume, node) in wanted {
            let about = format!("snippet {volume} on {node}");
            let storage = volume.split(':').next().unwrap_or_default().to_owned();
            let path = format!("/storage/{storage}");
            let found = self.client.snippets(node.as_str(), &storage).await;
            if found.as_ref().is_ok_and(|found| found.contains(&volume)) {
                self.report.ok(about, "exists");
                continue;
            }
            let held = self.client.privileges(&path, None).await.unwrap_or_default();
            if !held.contains_key(SNIPPET_PRIVILEGE) {
                let text = format!("cannot be seen without {SNIPPET_PRIVILEGE} on {path}");
                let to = match login {
                    Some(login) => {
                        self.subjects(&[SNIPPET_PRIVILEGE], std::slice::from_ref(&path), login)
                            .await
                    }
                    None => format!(" --users {}", self.client.login()),
                };
                let command = format!("pveum acl modify {path}{to} --roles {SNIPPET_ROLE}");
                self.report.warn(about, text, [Remedy::on_any_node(command)]);
            } else if let Err(error) = found {
                let text = self.error_text(&error);
                let remedy = Remedy::on_node(&node, format!("pvesm status --storage {storage}"));
                self.report.warn(about, text, [remedy]);
            } else {
                let copy = format!("scp FILE {node}:$(ssh {node} pvesm path {volume})");
                let remedy = Remedy::here(copy).noting("with the snippet as FILE");
                let text = "does not exist, and the API cannot upload it";
                self.report.fail(about, text, [remedy]);
            }
        }
    }
}
