//! The life of a declared machine, and the kinds of drift.

use super::words;

words! {
    /// Where a declared machine is in its life.
    ///
    /// ```text
    /// Waiting → Creating → Configuring → Starting → Kept ⇄ Correcting
    /// ```
    ///
    /// A guest that is there leads to Kept, Foreign or Missing. Without its declaration a machine is Left,
    /// or goes by Removing to Removed.
    DeclaredPhase, "machine state" {
        /// It is not made yet: something is waited for.
        Waiting = "waiting",
        /// It is not made: a guest of its name is there that drover did not make for it.
        Blocked = "blocked",
        /// Its guest is cloned.
        Creating = "creating",
        /// Cloud-init, sizes and tags are being set.
        Configuring = "configuring",
        /// It is started for the first time.
        Starting = "starting",
        /// It is there, and drover looks at it now and then.
        Kept = "kept",
        /// A difference is put right.
        Correcting = "correcting",
        /// Its guest is gone from the cluster.
        Missing = "missing",
        /// A guest with its VMID is there that has other marks: drover leaves it alone.
        Foreign = "foreign",
        /// It left the configuration, and its guest stays.
        Left = "left",
        /// Its guest is destroyed.
        Removing = "removing",
        /// Nothing of it is left, or drover has forgotten it.
        Removed = "removed",
    }
}

words! {
    /// In what a machine differs from its declaration, as `correct` names it.
    DriftKind, "kind of drift" {
        /// It is gone, and is to be made again.
        Create = "CREATE",
        /// It runs and should not, or the other way round.
        Power = "POWER",
        /// Processor cores, memory, or the size of its boot disk.
        Size = "SIZE",
        /// It is on another node or cluster. drover never moves a machine.
        Place = "PLACE",
        /// Bridge, VLAN, model or MAC address of a network card, or the number of cards. drover shows it
        /// only.
        Network = "NETWORK",
        /// A user, key, address or DNS setting of cloud-init. drover shows it only.
        CloudInit = "CLOUD_INIT",
        /// Tags that the declaration names. drover shows them only.
        Tags = "TAGS",
    }
}
