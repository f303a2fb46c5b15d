//! The privileges and built-in roles of both simulated versions (book: proxmox, sections 4 and 21).

use std::collections::{BTreeMap, BTreeSet};

use crate::spec::PveVersion;

/// A group of privileges, from which Proxmox derives its roles.
struct Group {
    name: &'static str,
    root: &'static [&'static str],
    admin: &'static [&'static str],
    user: &'static [&'static str],
    audit: &'static [&'static str],
}

const GROUPS: [Group; 7] = [
    Group {
        name: "VM",
        root: &[],
        admin: &[
            "VM.Config.Disk",
            "VM.Config.CPU",
            "VM.Config.Memory",
            "VM.Config.Network",
            "VM.Config.HWType",
            "VM.Config.Options",
            "VM.Allocate",
            "VM.Clone",
            "VM.Migrate",
            "VM.Snapshot",
            "VM.Snapshot.Rollback",
        ],
        user: &[
            "VM.Config.CDROM",
            "VM.Config.Cloudinit",
            "VM.Console",
            "VM.Backup",
            "VM.PowerMgmt",
        ],
        audit: &["VM.Audit"],
    },
    Group {
        name: "Sys",
        root: &["Sys.PowerMgmt", "Sys.Modify", "Sys.Incoming", "Sys.AccessNetwork"],
        admin: &["Sys.Console", "Sys.Syslog"],
        user: &[],
        audit: &["Sys.Audit"],
    },
    Group {
        name: "Datastore",
        root: &[],
        admin: &["Datastore.Allocate", "Datastore.AllocateTemplate"],
        user: &["Datastore.AllocateSpace"],
        audit: &["Datastore.Audit"],
    },
    Group {
        name: "SDN",
        root: &[],
        admin: &["SDN.Allocate"],
        user: &["SDN.Use"],
        audit: &["SDN.Audit"],
    },
    Group {
        name: "User",
        root: &["Realm.Allocate"],
        admin: &["User.Modify", "Group.Allocate", "Realm.AllocateUser"],
        user: &[],
        audit: &[],
    },
    // pve-access-control, AccessControl.pm:1140: users have the privilege of auditors.
    Group {
        name: "Pool",
        root: &[],
        admin: &["Pool.Allocate"],
        user: &["Pool.Audit"],
        audit: &["Pool.Audit"],
    },
    Group {
        name: "Mapping",
        root: &[],
        admin: &["Mapping.Modify"],
        user: &["Mapping.Use"],
        audit: &["Mapping.Audit"],
    },
];

/// Further privileges of 8.4, for administrators.
const ADMIN_8: &[&str] = &["VM.Monitor"];
/// Further privileges of 9, for administrators.
const ADMIN_9: &[&str] = &[
    "VM.GuestAgent.FileRead",
    "VM.GuestAgent.FileSystemMgmt",
    "VM.GuestAgent.FileWrite",
    "VM.GuestAgent.Unrestricted",
    "VM.Replicate",
];
const AUDIT_9: &[&str] = &["VM.GuestAgent.Audit"];

fn version_extras(version: PveVersion) -> (&'static [&'static str], &'static [&'static str]) {
    match version {
        PveVersion::V7_4 | PveVersion::V8_4 => (ADMIN_8, &[]),
        PveVersion::V9_2 => (ADMIN_9, AUDIT_9),
    }
}

pub fn is_privilege(name: &str, version: PveVersion) -> bool {
    all(version).contains(name)
}

pub fn all(version: PveVersion) -> BTreeSet<String> {
    let (admin, audit) = version_extras(version);
    GROUPS
        .iter()
        .flat_map(|group| [group.root, group.admin, group.user, group.audit].concat())
        .chain(admin.iter().chain(audit).copied())
        .chain(["Permissions.Modify"])
        .map(str::to_owned)
        .collect()
}

/// The built-in roles of a version.
pub(crate) fn built_in(version: PveVersion) -> BTreeMap<String, BTreeSet<String>> {
    let (admin_extra, audit_extra) = version_extras(version);
    let mut roles: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for group in &GROUPS {
        let (mut admin, mut audit) = (group.admin.to_vec(), group.audit.to_vec());
        if group.name == "VM" {
            admin.extend(admin_extra);
            audit.extend(audit_extra);
        }
        let mut grant = |role: String, sets: &[&[&str]]| {
            let names = sets.iter().flat_map(|set| set.iter()).map(|name| (*name).to_owned());
            roles.entry(role).or_default().extend(names);
        };
        grant(format!("PVE{}Admin", group.name), &[&admin, group.user, &audit]);
        grant("PVEAdmin".into(), &[&admin, group.user, &audit]);
        if !group.user.is_empty() {
            grant(format!("PVE{}User", group.name), &[group.user, &audit]);
        }
        grant("PVEAuditor".into(), &[&audit]);
    }
    if let Some(role) = roles.get_mut("PVEAdmin") {
        role.remove("Mapping.Modify");
    }
    let template = ["VM.Audit", "VM.Clone"].map(str::to_owned);
    roles.insert("PVETemplateUser".into(), template.into());
    roles.insert("NoAccess".into(), BTreeSet::new());
    roles.insert("Administrator".into(), all(version));
    roles
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: the privileges differ by version (book: proxmox, section 23, item 12).
    #[test]
    fn the_monitor_privilege_is_only_in_8_and_the_guest_agent_ones_only_in_9() {
        assert!(is_privilege("VM.Monitor", PveVersion::V8_4));
        assert!(!is_privilege("VM.Monitor", PveVersion::V9_2));
        assert!(!is_privilege("VM.GuestAgent.Audit", PveVersion::V8_4));
        assert!(built_in(PveVersion::V9_2)["PVEAuditor"].contains("VM.GuestAgent.Audit"));
        assert!(!built_in(PveVersion::V9_2)["PVEVMUser"].contains("VM.GuestAgent.Unrestricted"));
    }

    #[test]
    fn users_of_a_group_hold_its_audit_right_too() {
        let roles = built_in(PveVersion::V8_4);
        let expected = ["Datastore.AllocateSpace", "Datastore.Audit"].map(str::to_owned);
        assert_eq!(roles["PVEDatastoreUser"], expected.into());
        assert_eq!(roles["Administrator"].len(), 42);
        assert_eq!(roles["PVEPoolUser"], BTreeSet::from(["Pool.Audit".to_owned()]));
    }
}
