//! What a configuration needs on one cloud: lines of the table, each on its paths.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::declared::{DeclaredSpec, Installer};
use drover_model::id::{CloudId, NodeName, TemplateId, VmId};
use drover_model::image::{Downloader, ImageLimits, ImageSource, ImageSpec, IsoImage};
use drover_model::placement::Thickness;
use drover_model::spec::{CloneStrategy, HerdSpec, TemplateSpec};
use drover_model::template_image::Sought;

use super::table::{At, Feature, Release, Row, TABLE};

/// A guest that a template is cloned from, with the facts that decide which rights are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateGuest {
    pub vmid: VmId,
    /// The node that holds it.
    pub node: NodeName,
    pub pool: Option<String>,
    /// The storages of its disks.
    pub storages: BTreeSet<String>,
    /// The bridges of its network cards, with their VLAN tags.
    pub bridges: BTreeSet<(String, Option<u16>)>,
}

/// The facts about a cluster that decide which rights are needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The guests that each template is cloned from now; none where the cluster was not asked.
    pub sources: BTreeMap<TemplateId, Vec<TemplateGuest>>,
    /// The guests that each image copies now; none for images from a URL.
    pub copied: BTreeMap<TemplateId, Vec<TemplateGuest>>,
    /// The zone of each VNet; all other bridges are in `localnetwork`.
    pub zones: BTreeMap<String, String>,
    /// The storages that take disks, and whether their volumes are thin or thick; empty where the
    /// cluster was not asked.
    pub storages: BTreeMap<String, Thickness>,
    /// Why a template or image has no guest to clone, or none that can be cloned.
    pub missing: BTreeMap<TemplateId, String>,
}

/// One privilege that is needed on one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    pub row: &'static Row,
    /// The privileges of which any one is enough.
    pub any_of: &'static [&'static str],
    /// The path of the grant.
    pub path: String,
    /// The paths where the privilege is looked for; holding it on any of them is enough.
    pub asked: Vec<String>,
    /// The templates and images that need it; empty where the cloud itself does.
    pub templates: BTreeSet<TemplateId>,
}

/// Everything that is needed on one cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// In the order of the table, then of paths.
    pub all: Vec<Need>,
    /// Templates whose needs depend on the cluster, which was not asked.
    pub unknown: Vec<String>,
}

impl Facts {
    /// The pools of templates that are found by a search instead of a VMID: the next image that
    /// matches joins that pool, and has another VMID.
    pub fn template_pools(&self, herd: &HerdSpec) -> BTreeMap<String, String> {
        let searches = herd.cloned().filter(|spec| spec.search.is_some());
        let searches: BTreeSet<&TemplateId> = searches.map(|spec| &spec.id).collect();
        let sought = |id| searches.contains(id);
        let sources = self.sources.iter().filter(|(id, _)| sought(*id)).flat_map(|(_, all)| all);
        let pooled =
            sources.filter_map(|one| Some((format!("/vms/{}", one.vmid), one.pool.clone()?)));
        pooled.collect()
    }

    /// The same, with what versions of images will be where there are none yet.
    fn with_expected(&self, herd: &HerdSpec) -> Self {
        let mut facts = self.clone();
        for spec in herd.cloned() {
            let known = facts.sources.entry(spec.id.clone()).or_default();
            if let (true, Some(image)) = (known.is_empty(), image_of(spec, herd)) {
                known.push(TemplateGuest {
                    vmid: image.vmid_floor,
                    node: image.nodes.first().cloned().unwrap_or_else(|| NodeName::new("")),
                    pool: image.machine.target_pool.clone(),
                    storages: [image.storage.clone()].into(),
                    bridges: bridges_of(image, self),
                });
            }
        }
        facts
    }
}

/// The image that a template names.
fn image_of<'h>(spec: &TemplateSpec, herd: &'h HerdSpec) -> Option<&'h ImageSpec> {
    herd.images.get(&spec.image()?).map(AsRef::as_ref)
}

/// The image that needs the rights of a machine that an installer makes.
fn as_image(machine: &DeclaredSpec) -> Option<ImageSpec> {
    let Installer { iso, storage, disk_gb, hardware } = machine.installer.clone()?;
    let clone = machine.template.limits.clone;
    let import_storage = iso.split(':').next().unwrap_or_default().to_owned();
    Some(ImageSpec {
        id: machine.template.id.clone(),
        source: Some(ImageSource::Iso { iso: IsoImage::Volume(iso), disk_gb }),
        hardware,
        machine: TemplateSpec { target_storage: Some(storage.clone()), ..machine.template.clone() },
        variables: BTreeMap::new(),
        clean: String::new(),
        nodes: machine.template.node.iter().cloned().collect(),
        storage,
        import_storage,
        downloader: Downloader::Node,
        vmid_floor: VmId(100),
        keep: 0,
        rebuild_days: None,
        build_missing: false,
        limits: ImageLimits { pull: clone, lock: clone, build: clone },
    })
}

/// The bridges of an image's network cards, while it is built and later.
fn bridges_of(image: &ImageSpec, facts: &Facts) -> BTreeSet<(String, Option<u16>)> {
    let copied = facts.copied.get(&image.id).into_iter().flatten();
    let own = (image.hardware.bridge.clone(), image.hardware.vlan);
    copied.flat_map(|one| one.bridges.iter().cloned()).chain([own]).collect()
}

/// Whether a path is a placeholder for one that is not known.
pub fn is_placeholder(path: &str) -> bool {
    path.contains('<')
}

impl Needs {
    /// Works out what the templates of a cloud need on a release of Proxmox VE.
    pub fn of(herd: &HerdSpec, cloud: &CloudId, release: Release, facts: &Facts) -> Self {
        let mut needs = Self::default();
        let facts = &facts.with_expected(herd);
        let templates: Vec<&TemplateSpec> =
            herd.cloned().filter(|spec| spec.id.cloud == *cloud).collect();
        let installed: Vec<ImageSpec> =
            herd.declared.values().filter_map(|machine| as_image(machine)).collect();
        let images = herd.images.values().map(AsRef::as_ref).chain(&installed);
        let images: Vec<&ImageSpec> = images.filter(|image| image.id.cloud == *cloud).collect();
        let builds = |feature: Feature| images.iter().filter(move |image| feature.builds(image));
        let floor = herd.clouds.get(cloud).map_or(VmId(100), |cloud| cloud.vmid_floor);
        for row in TABLE {
            match row.at {
                At::Root => needs.add(row, release, "/", None),
                At::Access => needs.add(row, release, "/access", None),
                At::Nodes if row.feature == Feature::OsTemplateUrls => {
                    for spec in templates.iter().filter(|spec| row.feature.used(spec)) {
                        needs.add(row, release, "/nodes", Some(&spec.id));
                    }
                }
                At::Nodes if row.feature != Feature::Downloads => {
                    needs.add(row, release, "/nodes", None);
                }
                At::Nodes => {
                    for image in builds(row.feature) {
                        needs.add(row, release, "/nodes", Some(&image.id));
                    }
                }
                At::AllGuests => needs.add(row, release, "/vms", None),
                At::Guests
                | At::Template
                | At::Storage
                | At::DiscStorage
                | At::ImportStorage
                | At::Mapping
                | At::OsTemplateStorage
                | At::Bridge => {
                    for spec in templates.iter().filter(|spec| row.feature.used(spec)) {
                        for path in paths(row.at, spec, image_of(spec, herd), facts) {
                            needs.add(row, release, &path, Some(&spec.id));
                        }
                    }
                    for image in builds(row.feature) {
                        for path in image_paths(row.at, image, facts) {
                            needs.add(row, release, &path, Some(&image.id));
                        }
                    }
                }
            }
        }
        for need in &mut needs.all {
            if need.row.at == At::Guests {
                need.asked.push(format!("/vms/{floor}"));
                need.asked.dedup();
            }
        }
        needs.unknown = templates
            .iter()
            .filter(|spec| spec.create().is_none())
            .filter(|spec| facts.sources.get(&spec.id).is_none_or(Vec::is_empty))
            .map(|spec| spec.id.to_string())
            .collect();
        needs
    }

    fn add(&mut self, row: &'static Row, release: Release, path: &str, by: Option<&TemplateId>) {
        let same = |need: &&mut Need| need.row == row && need.path == path;
        if let Some(need) = self.all.iter_mut().find(same) {
            need.templates.extend(by.cloned());
            return;
        }
        self.all.push(Need {
            row,
            any_of: row.any_of(release),
            path: path.to_owned(),
            asked: vec![path.to_owned()],
            templates: by.cloned().into_iter().collect(),
        });
    }

    /// All needs without those that are granted on request only.
    pub fn usual(&self) -> impl Iterator<Item = &Need> {
        self.all.iter().filter(|need| !need.row.feature.is_optional())
    }
}

/// The paths on which a template, perhaps of an image, needs a privilege of this kind.
fn paths(at: At, spec: &TemplateSpec, image: Option<&ImageSpec>, facts: &Facts) -> Vec<String> {
    let known = facts.sources.get(&spec.id).map(Vec::as_slice).unwrap_or_default();
    match at {
        At::Root | At::Access | At::Nodes | At::AllGuests | At::ImportStorage => Vec::new(),
        At::Guests => vec![guests_path(spec)],
        // A new container is no copy of a guest.
        At::Template if spec.create().is_some() => Vec::new(),
        At::OsTemplateStorage => {
            let create = spec.create().into_iter();
            create.map(|create| format!("/storage/{}", create.template.storage)).collect()
        }
        At::Template => match image {
            // The next version has another VMID.
            Some(image) => vec![guests_path(&image.machine)],
            None => template_paths(spec, known),
        },
        At::Mapping => {
            let mappings = spec.hardware.devices().into_keys();
            mappings.map(|mapping| format!("/mapping/{mapping}")).collect()
        }
        At::Storage => match storages_of(spec, facts) {
            all if all.is_empty() => vec![format!("/storage/<storages of {}>", spec.id.name)],
            all => all.iter().map(|name| format!("/storage/{name}")).collect(),
        },
        At::DiscStorage => {
            let seed = spec.cloud_init.seed.iter();
            seed.map(|seed| format!("/storage/{}", seed.storage)).collect()
        }
        At::Bridge => bridges(spec, known, &facts.zones),
    }
}

fn guests_path(spec: &TemplateSpec) -> String {
    spec.target_pool.as_ref().map_or_else(|| "/vms".to_owned(), |pool| format!("/pool/{pool}"))
}

/// The paths on which an image needs a privilege of this kind.
fn image_paths(at: At, image: &ImageSpec, facts: &Facts) -> Vec<String> {
    match at {
        At::Root | At::Access | At::Nodes | At::AllGuests | At::OsTemplateStorage => Vec::new(),
        At::Guests | At::Storage | At::DiscStorage | At::Mapping => {
            paths(at, &image.machine, None, facts)
        }
        At::ImportStorage => vec![format!("/storage/{}", image.import_storage)],
        At::Template => match &image.source {
            Some(ImageSource::Template(Sought::Id(vmid))) => vec![format!("/vms/{vmid}")],
            Some(ImageSource::Template(_)) => {
                let known = facts.copied.get(&image.id).map(Vec::as_slice).unwrap_or_default();
                match known {
                    [] => vec![format!("/vms/<source of {}>", image.id.name)],
                    known => known.iter().map(|source| format!("/vms/{}", source.vmid)).collect(),
                }
            }
            Some(ImageSource::Url { .. } | ImageSource::Iso { .. }) | None => Vec::new(),
        },
        At::Bridge => {
            let all = bridges_of(image, facts);
            all.iter().map(|(bridge, tag)| bridge_path(bridge, *tag, &facts.zones)).collect()
        }
    }
}

/// The storages of a template's clones, those of their further disks included; empty where the
/// first depend on the cluster, which was not asked.
fn storages_of(spec: &TemplateSpec, facts: &Facts) -> BTreeSet<String> {
    let mut all = storages(spec, facts);
    if !all.is_empty() {
        all.extend(spec.hardware.disks.iter().map(|disk| disk.storage.clone()));
    }
    all
}

fn template_paths(spec: &TemplateSpec, known: &[TemplateGuest]) -> Vec<String> {
    if spec.search.is_none() {
        return vec![format!("/vms/{}", spec.source)];
    }
    if known.is_empty() {
        return vec![format!("/vms/<{}>", search_label(spec))];
    }
    known.iter().map(|source| format!("/vms/{}", source.vmid)).collect()
}

fn search_label(spec: &TemplateSpec) -> String {
    format!("templates of {}", spec.id.name)
}

/// The storages that may hold the disks of a template's clones; empty where that depends on the
/// cluster, which was not asked.
pub fn storages(spec: &TemplateSpec, facts: &Facts) -> BTreeSet<String> {
    let of_template = || {
        let known = facts.sources.get(&spec.id).into_iter().flatten();
        known.flat_map(|one| one.storages.iter().cloned()).collect()
    };
    // A linked clone stays on the storage of its template, whatever else is configured.
    if spec.clone == CloneStrategy::Linked {
        return of_template();
    }
    let named: BTreeSet<String> =
        spec.storages.iter().chain(&spec.target_storage).cloned().collect();
    match spec.placement.thickness {
        _ if !named.is_empty() => named,
        Some(kind) => {
            let of_kind = facts.storages.iter().filter(|(_, one)| **one == kind);
            of_kind.map(|(name, _)| name.clone()).collect()
        }
        None => of_template(),
    }
}

fn bridge_path(bridge: &str, tag: Option<u16>, zones: &BTreeMap<String, String>) -> String {
    let zone = zones.get(bridge).map_or("localnetwork", String::as_str);
    let tag = tag.map(|tag| format!("/{tag}")).unwrap_or_default();
    format!("/sdn/zones/{zone}/{bridge}{tag}")
}

/// The bridges of the template, because Proxmox checks the clone with them, and those of the clone.
fn bridges(
    spec: &TemplateSpec,
    known: &[TemplateGuest],
    zones: &BTreeMap<String, String>,
) -> Vec<String> {
    let path = |bridge: &str, tag| bridge_path(bridge, tag, zones);
    let cards = known.iter().flat_map(|one| &one.bridges);
    let mut all: BTreeSet<String> = cards.clone().map(|(name, tag)| path(name, *tag)).collect();
    let wanted = &spec.network;
    match (&wanted.bridge, wanted.vlan) {
        (Some(bridge), vlan) => {
            let own = vlan.or_else(|| cards.clone().next().and_then(|(_, tag)| *tag));
            all.insert(path(bridge, own));
        }
        (None, Some(vlan)) => {
            all.extend(cards.take(1).map(|(name, _)| path(name, Some(vlan))));
        }
        (None, None) => {}
    }
    let given = spec.nics.iter();
    all.extend(given.map(|card| path(&card.bridge, card.vlan)));
    if known.is_empty() && spec.create().is_none() {
        all.insert(format!("/sdn/zones/localnetwork/<bridges of {}>", spec.id.name));
    }
    all.into_iter().collect()
}
