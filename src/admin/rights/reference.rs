//! Privileges that other provisioners of Proxmox VE guests ask for, and whether drover needs each.

/// Whether drover needs a privilege that others ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relevance {
    /// It is in the table.
    Needed,
    /// drover does not need it, for this reason.
    NotNeeded(&'static str),
}

/// A privilege in the tables of nstance, VirtRigaud or the Jenkins Proxmox Cloud plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    pub privilege: &'static str,
    /// What they need it for.
    pub theirs: &'static str,
    pub relevance: Relevance,
}

const fn needed(privilege: &'static str, theirs: &'static str) -> Reference {
    Reference { privilege, theirs, relevance: Relevance::Needed }
}

const fn without(privilege: &'static str, theirs: &'static str, reason: &'static str) -> Reference {
    Reference { privilege, theirs, relevance: Relevance::NotNeeded(reason) }
}

/// All such privileges.
pub static REFERENCES: &[Reference] = &[
    needed("Sys.Audit", "nodes, cluster, status of tasks"),
    needed("VM.Allocate", "nextid, clone's target, destroy"),
    needed("VM.Audit", "status, config, search for templates"),
    needed("VM.Clone", "clone"),
    needed("VM.PowerMgmt", "start, stop, shutdown"),
    needed("VM.Config.CPU", "cores"),
    needed("VM.Config.Memory", "memory"),
    needed("VM.Config.Network", "net0"),
    needed("VM.Config.Disk", "resize, boot order"),
    needed("VM.Config.CDROM", "a cloud-init image in ide2"),
    needed("VM.Config.Options", "tags, description, onboot"),
    needed("VM.Config.Cloudinit", "cloud-init keys"),
    needed("VM.Config.HWType", "any hardware key (VM.Config.*)"),
    needed("VM.Monitor", "address by guest agent on 8"),
    needed("VM.GuestAgent.Audit", "address by guest agent on 9"),
    needed("VM.Snapshot", "snapshots"),
    needed("Datastore.Audit", "storages and their contents"),
    needed("Datastore.Allocate", "removing volumes"),
    needed("Datastore.AllocateSpace", "disks of clones"),
    needed("Datastore.AllocateTemplate", "upload of cloud-init images"),
    needed("SDN.Use", "bridges"),
    without(
        "Pool.Allocate",
        "use of pools",
        "it makes and changes pools; a clone joins one by VM.Allocate on it",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rights::TABLE;

    fn is_needed(privilege: &str) -> bool {
        TABLE.iter().any(|row| row.eight.contains(&privilege) || row.nine.contains(&privilege))
    }

    // Invariant: each privilege that others ask for is either in the table or explained, and drover
    // asks for none beyond the table.

    #[test]
    fn every_privilege_of_the_references_is_mapped_or_explained() {
        for one in REFERENCES {
            let mapped = one.relevance == Relevance::Needed;
            assert_eq!(is_needed(one.privilege), mapped, "{}", one.privilege);
        }
        let names: BTreeSet<_> = REFERENCES.iter().map(|one| one.privilege).collect();
        assert_eq!(names.len(), REFERENCES.len());
        // As their documents list them.
        let nstance = "Sys.Audit VM.Allocate VM.Audit VM.Clone VM.PowerMgmt VM.Config.CPU \
            VM.Config.Memory VM.Config.Network VM.Config.Disk VM.Config.CDROM VM.Config.Options \
            Datastore.Audit Datastore.Allocate Datastore.AllocateSpace Datastore.AllocateTemplate \
            SDN.Use";
        let virtrigaud = "VM.Allocate VM.Audit VM.Config.CPU VM.Config.Memory VM.Config.Disk \
            VM.Config.Network VM.Config.Options VM.Monitor VM.PowerMgmt VM.Snapshot VM.Clone \
            Datastore.Allocate Datastore.AllocateSpace Pool.Allocate";
        let jenkins = "VM.Allocate VM.Clone VM.Audit VM.Config.Disk VM.Config.CPU VM.Config.Memory \
            VM.Config.Network VM.Config.Options VM.Config.Cloudinit VM.PowerMgmt \
            VM.GuestAgent.Audit VM.Monitor Datastore.AllocateSpace Datastore.Audit SDN.Use";
        for name in [nstance, virtrigaud, jenkins].iter().flat_map(|all| all.split_whitespace()) {
            assert!(names.contains(name), "{name}");
        }
    }
}
