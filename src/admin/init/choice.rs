//! Choices among what a cluster has: a node, a storage, a bridge, VMIDs, a template.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::cluster::{ClusterSeen, NodeSeen, StorageSeen, TemplateSeen};

/// The answer that stands for a template image that drover builds.
pub const TEMPLATE_MAKE: &str = "make";

/// Where suggested VMIDs begin: most people number their own guests from 100.
const FIRST_VMID: u32 = 10_000;
/// How many VMIDs are suggested.
const VMIDS: u32 = 1_000;
/// Fewer VMIDs are refused: a VMID rests for an hour after its guest is gone.
pub(super) const VMIDS_MIN: u32 = 100;
/// The lowest and the highest VMID of Proxmox.
const VMID_LIMITS: (u32, u32) = (100, 999_999_999);
/// Types of storages that linked clones work on.
const LINKING: [&str; 8] = ["lvmthin", "zfspool", "rbd", "btrfs", "dir", "nfs", "cifs", "cephfs"];

/// A range of VMIDs, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmidRange {
    pub first: u32,
    pub last: u32,
}

impl VmidRange {
    fn holds(&self, vmid: u32) -> bool {
        (self.first..=self.last).contains(&vmid)
    }
}

impl fmt::Display for VmidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for VmidRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (lowest, highest) = VMID_LIMITS;
        let read = text.split_once('-').and_then(|(first, last)| {
            Some(Self { first: first.trim().parse().ok()?, last: last.trim().parse().ok()? })
        });
        let sound = |range: &Self| {
            lowest <= range.first && range.first <= range.last && range.last <= highest
        };
        let refusal = || format!("`{text}` is no range of VMIDs: write 10000-10999");
        let range = read.filter(sound).ok_or_else(refusal)?;
        if range.last - range.first + 1 < VMIDS_MIN {
            return Err(format!(
                "`{text}` are fewer than {VMIDS_MIN} VMIDs, and each rests for an hour"
            ));
        }
        Ok(range)
    }
}

/// A range above all guests, which begins at a round number. It leaves room for as many other drovers,
/// which may have no guest yet.
pub(super) fn free_range(vmids: &BTreeSet<u32>, others: u32) -> VmidRange {
    let above = vmids.last().map_or(0, |last| last.saturating_add(1)).max(FIRST_VMID);
    let first = above.div_ceil(VMIDS).saturating_add(others).saturating_mul(VMIDS);
    let range = |first: u32| VmidRange { first, last: first.saturating_add(VMIDS - 1) };
    if range(first).last <= VMID_LIMITS.1 {
        return range(first);
    }
    // Somebody uses the last ones: the first thousand without a guest.
    let taken = |first: &u32| vmids.range(*first..first + VMIDS).next().is_some();
    let free = (FIRST_VMID..VMID_LIMITS.1 - VMIDS).step_by(VMIDS as usize).find(|one| !taken(one));
    range(free.unwrap_or(FIRST_VMID))
}

/// Why a range does not serve: guests that are in it.
pub(super) fn range_problem(
    range: VmidRange,
    vmids: &BTreeSet<u32>,
    others: u32,
) -> Option<String> {
    let inside: Vec<String> =
        vmids.iter().filter(|vmid| range.holds(**vmid)).take(4).map(u32::to_string).collect();
    (!inside.is_empty()).then(|| {
        let free = free_range(vmids, others);
        format!(
            "VMIDs {range} have guests in them ({}): --vmids {free} are free",
            inside.join(", ")
        )
    })
}

/// The online node with the most free memory.
pub(super) fn best_node(seen: &ClusterSeen) -> Option<&NodeSeen> {
    // Of equal ones the first by name.
    seen.online().max_by(|one, other| {
        one.free_memory.cmp(&other.free_memory).then(other.name.cmp(&one.name))
    })
}

/// Whether linked clones work on a storage.
pub(super) fn links(seen: &ClusterSeen, storage: &str) -> bool {
    let kind = seen.storages.iter().find(|one| one.name == storage).map(|one| one.kind.as_str());
    kind.is_some_and(|kind| LINKING.contains(&kind))
}

impl StorageSeen {
    pub(super) fn takes(&self, content: &str) -> bool {
        self.content.contains(content)
    }

    /// Whether all online nodes reach it.
    pub(super) fn is_everywhere(&self, seen: &ClusterSeen) -> bool {
        seen.online().all(|node| self.free.contains_key(&node.name))
    }

    /// Whether all online nodes see the same contents.
    pub(super) fn is_common(&self, seen: &ClusterSeen) -> bool {
        self.shared && self.is_everywhere(seen)
    }
}

/// The storage for disks on a node, and why it is this one.
pub(super) fn best_storage<'a>(
    seen: &'a ClusterSeen,
    node: &str,
) -> Option<(&'a StorageSeen, &'static str)> {
    let all = seen.storages.iter().filter(|one| one.takes("images") && one.free.contains_key(node));
    let rank = |one: &StorageSeen| {
        (one.is_common(seen), one.is_everywhere(seen), one.free.get(node).copied())
    };
    // Of equal ones the first by name.
    let best =
        all.max_by(|one, other| rank(one).cmp(&rank(other)).then(other.name.cmp(&one.name)))?;
    let single = seen.online().count() == 1;
    let why = match (single, best.is_common(seen), best.is_everywhere(seen)) {
        (true, ..) => "it has the most room for disks",
        (false, true, _) => "all nodes see the same one, so agents run on any node",
        (false, false, true) => "every node has one of this name",
        (false, false, false) => "it has the most room for disks on that node",
    };
    Some((best, why))
}

/// The bridge that all online nodes have, else one of the node; `vmbr0` where there are several.
pub(super) fn best_bridge(seen: &ClusterSeen, node: &str) -> Option<String> {
    let own = &seen.nodes.iter().find(|one| one.name == node)?.bridges;
    let everywhere = |name: &&String| seen.online().all(|one| one.bridges.contains(*name));
    let common: BTreeSet<&String> = own.iter().filter(everywhere).collect();
    let from = if common.is_empty() { own.iter().collect() } else { common };
    from.iter().find(|name| **name == "vmbr0").or(from.first()).map(|name| (*name).clone())
}

impl TemplateSeen {
    /// Why agents cannot be cloned from it, with the command that helps.
    pub fn problem(&self) -> Option<String> {
        let Self { vmid, node, .. } = self;
        let on_node = |option: &str| format!("on {node}: qm set {vmid} {option}");
        if self.is_windows {
            let text = "it is Windows, which needs keys of its own: `drover help configuration`";
            return Some(text.to_owned());
        }
        if self.storage.is_none() {
            return Some(format!("it has no disk to boot from; {}", on_node("--boot order=scsi0")));
        }
        if !self.has_cloud_init {
            let drive = on_node("--ide2 STORAGE:cloudinit");
            return Some(format!("it has no cloud-init drive; {drive}"));
        }
        (!self.has_agent).then(|| {
            let option = on_node("--agent 1");
            format!("its guest agent is off; install qemu-guest-agent in it, and {option}")
        })
    }
}

/// The template that fits and whose node has the most free memory: among those on the node that was
/// named, where there are any, and of those with a name, where one was given.
pub(super) fn best_template<'a>(
    seen: &'a ClusterSeen,
    name: Option<&str>,
    node: Option<&str>,
) -> Option<&'a TemplateSeen> {
    let free = |one: &TemplateSeen| {
        seen.online().find(|node| node.name == one.node).map(|node| node.free_memory)
    };
    let meant = |one: &&TemplateSeen| name.is_none_or(|name| one.name == name);
    let fitting = seen.templates.iter().filter(|one| one.problem().is_none()).filter(meant);
    let near = |one: &TemplateSeen| node.is_some_and(|node| one.node == node);
    fitting.max_by(|one, other| {
        let by_room = free(one).cmp(&free(other)).then(other.vmid.cmp(&one.vmid));
        near(one).cmp(&near(other)).then(by_room)
    })
}

/// The templates that serve together by the name of one of them, in the order of their nodes: it, and
/// those of other nodes that fit and can be cloned in the same way. `storage` and `bridge` are what an
/// administrator named in place of the templates' own.
pub(super) fn namesakes<'a>(
    seen: &'a ClusterSeen,
    found: &'a TemplateSeen,
    (storage, bridge): (Option<&str>, Option<&str>),
) -> Vec<&'a TemplateSeen> {
    // drover refuses a node with several templates of one name.
    let is_alone = |one: &TemplateSeen| namesakes_on(seen, one) == 1;
    if found.name.is_empty() || !is_alone(found) {
        return vec![found];
    }
    let linked = |one: &TemplateSeen| one.storage.as_ref().is_some_and(|name| links(seen, name));
    let has_storage = |one: &TemplateSeen| {
        let wanted = storage.or(one.storage.as_deref());
        let there = seen.storages.iter().find(|seen| Some(seen.name.as_str()) == wanted);
        there.is_some_and(|there| there.takes("images") && there.free.contains_key(&one.node))
    };
    let has_bridge = |one: &TemplateSeen| {
        let Some(wanted) = bridge.or(one.bridge.as_deref()) else { return false };
        seen.online().any(|node| node.name == one.node && node.bridges.contains(wanted))
    };
    let serves = |one: &TemplateSeen| {
        one.name == found.name
            && is_alone(one)
            && one.problem().is_none()
            && linked(one) == linked(found)
            && has_storage(one)
            && has_bridge(one)
    };
    let all = seen.templates.iter().filter(|one| one.vmid == found.vmid || serves(one));
    let mut all: Vec<&TemplateSeen> = all.collect();
    all.sort_by(|one, other| one.node.cmp(&other.node));
    all
}

/// How many templates of a template's node have its name.
pub(super) fn namesakes_on(seen: &ClusterSeen, found: &TemplateSeen) -> usize {
    let same = |one: &&TemplateSeen| one.name == found.name && one.node == found.node;
    seen.templates.iter().filter(same).count()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    fn range(text: &str) -> Result<VmidRange, String> {
        text.parse()
    }

    // Invariant: no suggested VMID is a guest's, and a range with guests is refused with a free one.

    #[test]
    fn vmids_are_suggested_above_all_guests() {
        let suggested = |vmids: &[u32]| free_range(&vmids.iter().copied().collect(), 0).to_string();
        assert_eq!(suggested(&[]), "10000-10999");
        assert_eq!(suggested(&[100, 9000]), "10000-10999");
        assert_eq!(suggested(&[10_000]), "11000-11999");
        assert_eq!(suggested(&[100, 123_456]), "124000-124999");
        assert_eq!(suggested(&[10_500, 999_999_999]), "11000-11999");
    }

    #[test]
    fn a_range_with_guests_or_too_few_vmids_is_refused() {
        let vmids = BTreeSet::from([100, 10_007]);
        let found = range_problem(range("10000-10099").unwrap(), &vmids, 0).unwrap();
        assert_eq!(
            found,
            "VMIDs 10000-10099 have guests in them (10007): --vmids 11000-11999 are free"
        );
        assert_eq!(range_problem(range("20000-20099").unwrap(), &vmids, 0), None);
        for wrong in ["10000-10098", "1-500", "300-200", "many", "100-1000000000"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
