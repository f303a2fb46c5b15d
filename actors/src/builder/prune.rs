//! Which versions of images may go: all but the newest and the few that are kept, and none that
//! somebody uses. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use drover_model::id::{AgentId, CloudId, ClusterId, Installation, NodeName, TemplateId, VmId};
use drover_model::image::{ImageVersion, PlannedPrune, PrunePlan};

/// How an image is kept: its cloud and name, and the versions beside the newest.
pub type Kept = BTreeMap<TemplateId, u32>;

/// What is used of a cluster, and by whom.
#[derive(Debug, Clone, Default)]
pub struct Uses {
    /// Templates that agents were cloned from, or are about to be.
    pub cloned: BTreeSet<VmId>,
    /// Templates that the configuration names by their VMID.
    pub named: BTreeSet<VmId>,
    /// By image the templates with `canary`, each with the versions that it has proven.
    pub proven: BTreeMap<TemplateId, Vec<(TemplateId, Vec<AgentId>)>>,
    /// Volumes of other guests that share a template's disks; one that was not asked about has none.
    pub linked: BTreeMap<VmId, Vec<String>>,
}

/// Images of this installation that the configuration does not have any more.
#[derive(Debug, Clone)]
pub struct Unconfigured {
    /// The cloud that leads to their cluster.
    pub cloud: CloudId,
    /// The names of all configured images, on whatever cloud: none of them is meant.
    pub configured: BTreeSet<String>,
    /// Whether their versions go.
    pub go: bool,
}

/// Why a version of an image that left the configuration stays.
const UNCONFIGURED: &str = "its image is not in the YAML any more; `drover image prune --unconfigured` \
                            removes it";

/// The most volumes that a reason names.
const VOLUMES_SHOWN: usize = 3;

/// What becomes of each version of these images on one cluster.
///
/// Each node has versions of its own; those that every node reaches count together. Where
/// `unconfigured` is none, versions of other images are not looked at.
pub fn plan(
    versions: &[ImageVersion],
    (installation, cluster): (&Installation, &ClusterId),
    kept: &Kept,
    unconfigured: Option<&Unconfigured>,
    uses: &Uses,
) -> PrunePlan {
    let mut groups: BTreeMap<(&TemplateId, Option<&NodeName>), Vec<&ImageVersion>> =
        BTreeMap::new();
    let mut plan = Vec::new();
    for version in versions {
        let marks = &version.marks;
        if marks.installation != *installation || marks.cluster != *cluster {
            continue;
        }
        let image = kept.keys().find(|image| *image.name == *marks.template);
        if let Some(image) = image {
            let place = (!version.shared).then_some(&version.node);
            groups.entry((image, place)).or_default().push(version);
        } else if let Some(others) =
            unconfigured.filter(|others| !others.configured.contains(&marks.template))
        {
            let image = TemplateId::new(others.cloud.clone(), &marks.template);
            let kept = match others.go {
                true => used(version.vmid, uses),
                false => Some(UNCONFIGURED.to_owned()),
            };
            let (cluster, version) = (cluster.clone(), version.clone());
            plan.push(PlannedPrune { image, cluster, version, kept });
        }
    }
    for ((image, _), mut group) in groups {
        group.sort_by_key(|one| Reverse((one.created, one.vmid)));
        let keep = usize::try_from(kept.get(image).copied().unwrap_or_default()).unwrap_or(0);
        let last = last_proven(image, &group, uses);
        for (at, version) in group.into_iter().enumerate() {
            let kept = match at {
                0 => Some("it is the newest".to_owned()),
                at if at <= keep => Some(format!("`keep` is {keep}")),
                at => last.get(&at).cloned().or_else(|| used(version.vmid, uses)),
            };
            let (image, cluster) = (image.clone(), cluster.clone());
            plan.push(PlannedPrune { image, cluster, version: version.clone(), kept });
        }
    }
    plan.sort_by_key(|one| (one.image.clone(), one.version.node.clone(), one.version.vmid));
    plan
}

/// The newest version that each template has proven, by its place among these, and why it stays.
fn last_proven(
    image: &TemplateId,
    group: &[&ImageVersion],
    uses: &Uses,
) -> BTreeMap<usize, String> {
    let templates = uses.proven.get(image).into_iter().flatten();
    let last = templates.filter_map(|(template, proven)| {
        let at = group.iter().position(|version| proven.contains(&version.marks.agent))?;
        Some((at, format!("no newer version is proven for template `{template}` (canary)")))
    });
    last.collect()
}

/// Why a version must stay although it is old.
fn used(vmid: VmId, uses: &Uses) -> Option<String> {
    if uses.cloned.contains(&vmid) {
        return Some("agents were cloned from it".to_owned());
    }
    if uses.named.contains(&vmid) {
        return Some("a template names its VMID (templateVmId)".to_owned());
    }
    let linked = uses.linked.get(&vmid).filter(|volumes| !volumes.is_empty())?;
    let shown: Vec<&str> = linked.iter().take(VOLUMES_SHOWN).map(String::as_str).collect();
    let more = if linked.len() > VOLUMES_SHOWN { ", …" } else { "" };
    Some(format!("linked clones share its disks: {}{more}", shown.join(", ")))
}

#[cfg(test)]
mod tests {
    use drover_model::marks::{Kind, Marks};
    use drover_model::testing::{CLUSTER, marks, template_id};

    use super::*;

    fn version(vmid: u32, node: &str, created: u64) -> ImageVersion {
        let marks = Marks {
            kind: Kind::Image,
            agent: AgentId::new(format!("{vmid:016}")),
            template: "debian".into(),
            ..marks("4f8z1c3px9t2vkab", vmid)
        };
        ImageVersion {
            node: NodeName::new(node),
            vmid: VmId(vmid),
            marks,
            created: Some(created),
            storages: ["thin".to_owned()].into(),
            shared: false,
        }
    }

    fn planned(versions: &[ImageVersion], keep: u32, uses: &Uses) -> Vec<String> {
        let kept = [(template_id("c/debian"), keep)].into();
        let (installation, cluster) = (Installation::new("7k2m9qxw"), ClusterId::new(CLUSTER));
        let plan = plan(versions, (&installation, &cluster), &kept, None, uses);
        plan.iter()
            .map(|one| format!("{} {}", one.version.vmid, one.kept.as_deref().unwrap_or("goes")))
            .collect()
    }

    // Invariant: the newest stays, so do as many others as `keep` says, on each node.

    #[test]
    fn the_newest_and_those_that_are_kept_stay_on_each_node() {
        let all = [
            version(9000, "pve1", 10),
            version(9001, "pve1", 30),
            version(9002, "pve1", 20),
            version(9003, "pve2", 5),
        ];
        let none = Uses::default();
        let newest = "it is the newest";
        assert_eq!(
            planned(&all, 1, &none),
            [
                "9000 goes".to_owned(),
                format!("9001 {newest}"),
                "9002 `keep` is 1".into(),
                format!("9003 {newest}")
            ]
        );
        assert_eq!(planned(&all, 0, &none)[2], "9002 goes");
        let shared: Vec<_> =
            all.iter().map(|one| ImageVersion { shared: true, ..one.clone() }).collect();
        assert_eq!(planned(&shared, 0, &none)[3], "9003 goes", "they count together");
    }

    // Invariant: none goes that somebody uses, or that is somebody else's.

    #[test]
    fn a_version_in_use_stays() {
        let all = [version(9000, "pve1", 10), version(9001, "pve1", 30)];
        let cloned = Uses { cloned: [VmId(9000)].into(), ..Uses::default() };
        assert_eq!(planned(&all, 0, &cloned)[0], "9000 agents were cloned from it");
        let named = Uses { named: [VmId(9000)].into(), ..Uses::default() };
        assert!(planned(&all, 0, &named)[0].contains("templateVmId"));
        let volumes = vec!["nfs:9000/base-9000-disk-0.raw/120/vm-120-disk-0.qcow2".to_owned()];
        let linked = Uses { linked: [(VmId(9000), volumes)].into(), ..Uses::default() };
        assert!(
            planned(&all, 0, &linked)[0].starts_with("9000 linked clones share its disks: nfs:")
        );
    }

    #[test]
    fn the_newest_version_that_a_template_has_proven_stays_on_each_node() {
        let all = [
            version(9000, "pve1", 10),
            version(9001, "pve1", 20),
            version(9002, "pve1", 30),
            version(9003, "pve1", 40),
        ];
        let proven = |vmids: &[u32]| {
            let versions = vmids.iter().map(|vmid| AgentId::new(format!("{vmid:016}"))).collect();
            let of = vec![(template_id("c/linux"), versions)];
            Uses { proven: [(template_id("c/debian"), of)].into(), ..Uses::default() }
        };
        let goes = |uses: &Uses| {
            let plan = planned(&all, 0, uses).into_iter();
            plan.filter(|text| text.ends_with(" goes")).collect::<Vec<_>>()
        };
        assert_eq!(goes(&proven(&[9000, 9001])), ["9000 goes", "9002 goes"]);
        assert_eq!(goes(&proven(&[9003, 9001])), ["9000 goes", "9001 goes", "9002 goes"]);
        assert_eq!(
            planned(&all, 0, &proven(&[9001]))[1],
            "9001 no newer version is proven for template `c/linux` (canary)"
        );
    }

    #[test]
    fn a_version_of_an_image_that_left_the_configuration_goes_only_when_that_is_asked_for() {
        let of = |vmid, name: &str| {
            let mut version = version(vmid, "pve1", 1);
            version.marks.template = name.into();
            version
        };
        let all = [of(9000, "old"), of(9001, "old"), of(9002, "elsewhere"), of(9003, "debian")];
        let uses = Uses { cloned: [VmId(9001)].into(), ..Uses::default() };
        let (installation, cluster) = (Installation::new("7k2m9qxw"), ClusterId::new(CLUSTER));
        let planned = |go| {
            let cloud = CloudId::new("c");
            let configured = ["debian", "elsewhere"].map(str::to_owned).into();
            let others = Unconfigured { cloud, configured, go };
            let kept = [(template_id("c/debian"), 0)].into();
            let plan = plan(&all, (&installation, &cluster), &kept, Some(&others), &uses);
            let shown = plan.into_iter().map(|one| {
                let kept = one.kept.unwrap_or_else(|| "goes".into());
                format!("{} {} {kept}", one.image, one.version.vmid)
            });
            shown.collect::<Vec<_>>()
        };
        let newest = "c/debian 9003 it is the newest".to_owned();
        assert_eq!(
            planned(false),
            [
                newest.clone(),
                format!("c/old 9000 {UNCONFIGURED}"),
                format!("c/old 9001 {UNCONFIGURED}")
            ]
        );
        assert_eq!(
            planned(true),
            [newest, "c/old 9000 goes".into(), "c/old 9001 agents were cloned from it".into()]
        );
    }

    #[test]
    fn versions_of_other_installations_images_and_clusters_are_not_looked_at() {
        let change = |change: fn(&mut Marks)| {
            let mut other = version(9000, "pve1", 1);
            change(&mut other.marks);
            other
        };
        let all = [
            change(|marks| marks.installation = Installation::new("7k2m9qxx")),
            change(|marks| marks.cluster = ClusterId::new("0000000000000000")),
            change(|marks| marks.template = "ubuntu".into()),
        ];
        assert_eq!(planned(&all, 0, &Uses::default()), Vec::<String>::new());
    }
}
