//! The storage types: their options (pve-storage, `options` of Storage/*Plugin.pm) and default
//! content.

use super::super::sections::Keys;

#[derive(Debug, Clone, Copy)]
pub(crate) struct StorageType {
    pub(crate) name: &'static str,
    pub(crate) keys: Keys,
    /// The default of `content`.
    pub(crate) content: &'static str,
    /// Whether all nodes see the same volumes.
    pub(crate) shared: bool,
    /// Whether the storage is mounted below `/mnt/pve` if the call names no path.
    pub(crate) mounted: bool,
}

/// The type of this name.
pub(crate) fn find(name: &str) -> Option<&'static StorageType> {
    STORAGE_TYPES.iter().find(|own| own.name == name)
}

/// Options that every type has.
const COMMON_KEYS: &[&str] = &["bwlimit", "content", "disable", "nodes"];

const fn keys(
    required: &'static [&'static str],
    more: &'static [&'static str],
    fixed: &'static [&'static str],
) -> Keys {
    Keys { required, optional: COMMON_KEYS, more, fixed }
}

const fn local(name: &'static str, keys: Keys, content: &'static str) -> StorageType {
    StorageType { name, keys, content, shared: false, mounted: false }
}

const fn shared(name: &'static str, keys: Keys, content: &'static str) -> StorageType {
    StorageType { name, keys, content, shared: true, mounted: false }
}

const fn mounted(name: &'static str, keys: Keys, content: &'static str) -> StorageType {
    StorageType { name, keys, content, shared: true, mounted: true }
}

const STORAGE_TYPES: &[StorageType] = &[
    local(
        "btrfs",
        keys(
            &["path"],
            &[
                "create-base-path",
                "create-subdirs",
                "format",
                "is_mountpoint",
                "max-protected-backups",
                "mkdir",
                "nocow",
                "preallocation",
                "prune-backups",
                "shared",
            ],
            &["path"],
        ),
        "images,rootdir",
    ),
    mounted(
        "cephfs",
        keys(
            &["path"],
            &[
                "content-dirs",
                "create-base-path",
                "create-subdirs",
                "format",
                "fs-name",
                "fuse",
                "keyring",
                "max-protected-backups",
                "mkdir",
                "monhost",
                "options",
                "prune-backups",
                "subdir",
                "username",
            ],
            &["path"],
        ),
        "backup",
    ),
    mounted(
        "cifs",
        keys(
            &["path", "server", "share"],
            &[
                "content-dirs",
                "create-base-path",
                "create-subdirs",
                "domain",
                "format",
                "max-protected-backups",
                "mkdir",
                "options",
                "password",
                "preallocation",
                "prune-backups",
                "smbversion",
                "snapshot-as-volume-chain",
                "subdir",
                "username",
            ],
            &["path", "server", "share", "snapshot-as-volume-chain"],
        ),
        "images",
    ),
    local(
        "dir",
        keys(
            &["path"],
            &[
                "content-dirs",
                "create-base-path",
                "create-subdirs",
                "format",
                "is_mountpoint",
                "max-protected-backups",
                "mkdir",
                "preallocation",
                "prune-backups",
                "shared",
                "snapshot-as-volume-chain",
            ],
            &["path", "snapshot-as-volume-chain"],
        ),
        "images,rootdir",
    ),
    shared(
        "esxi",
        keys(
            &["server", "username"],
            &["password", "port", "shared", "skip-cert-verification"],
            &[],
        ),
        "import",
    ),
    shared("iscsi", keys(&["portal", "target"], &[], &["portal", "target"]), "images"),
    shared("iscsidirect", keys(&["portal", "target"], &[], &["portal", "target"]), "images"),
    local(
        "lvm",
        keys(
            &["vgname"],
            &[
                "base",
                "saferemove",
                "saferemove-stepsize",
                "saferemove_throughput",
                "shared",
                "snapshot-as-volume-chain",
                "tagged_only",
            ],
            &["base", "vgname"],
        ),
        "images",
    ),
    local("lvmthin", keys(&["thinpool", "vgname"], &[], &["thinpool", "vgname"]), "images,rootdir"),
    mounted(
        "nfs",
        keys(
            &["export", "path", "server"],
            &[
                "content-dirs",
                "create-base-path",
                "create-subdirs",
                "format",
                "max-protected-backups",
                "mkdir",
                "options",
                "preallocation",
                "prune-backups",
                "snapshot-as-volume-chain",
            ],
            &["export", "path", "server", "snapshot-as-volume-chain"],
        ),
        "images",
    ),
    shared(
        "pbs",
        keys(
            &["datastore", "server"],
            &[
                "encryption-key",
                "fingerprint",
                "master-pubkey",
                "max-protected-backups",
                "namespace",
                "password",
                "port",
                "prune-backups",
                "username",
            ],
            &["datastore", "server"],
        ),
        "backup",
    ),
    shared(
        "rbd",
        keys(
            &[],
            &["data-pool", "keyring", "krbd", "monhost", "namespace", "pool", "username"],
            &[],
        ),
        "images",
    ),
    shared(
        "zfs",
        keys(
            &["blocksize", "iscsiprovider", "pool", "portal", "target"],
            &["comstar_hg", "comstar_tg", "lio_tpg", "nowritecache", "sparse", "zfs-base-path"],
            &["blocksize", "iscsiprovider", "pool", "portal", "target"],
        ),
        "images",
    ),
    local(
        "zfspool",
        keys(&["pool"], &["blocksize", "mountpoint", "sparse"], &["pool"]),
        "images,rootdir",
    ),
];
