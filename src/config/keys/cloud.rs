//! The keys that clouds know.

use drover_model::spec::WIDTH;

use super::{Key, Kind, LAST_VMID, LONG, Preset, key, placement, text, whole};
use crate::value;

/// Keys of `cloudDefaults` and each entry of `cloudConfigurations`.
pub(crate) static CLOUD: &[Key] = &[
    text("name", Preset::Required, "display name; only in cloudConfigurations"),
    text("apiUrl", Preset::Text("https://localhost:8006"), "endpoint, bare or with /api2/json")
        .checked(value::endpoint),
    key("apiUrls", Kind::Texts, Preset::Unset, "several endpoints, tried in turn, for apiUrl")
        .checked(value::endpoint),
    text("credentialsId", Preset::Unset, "a proxmoxToken or proxmoxPassword; unset: environment"),
    text("caFile", Preset::Unset, "PEM bundle to trust; with no TLS key at all: system roots"),
    text("caPem", Preset::Unset, "the bundle's text, for caFile"),
    key(
        "pinSha256",
        Kind::Texts,
        Preset::Unset,
        "certificate fingerprints, any of them, for caFile",
    )
    .checked(value::pin),
    key("ignoreSslErrors", Kind::Flag, Preset::Flag(false), "true: no verification; warned about"),
    whole("connectTimeoutSec", 1, 300, 10, "seconds to connect"),
    whole(
        "callTimeoutSec",
        5,
        3600,
        60,
        "seconds for one call in all; Proxmox's proxy gives up at 30",
    ),
    whole("instanceCap", 0, 1_000_000, 0, "most agents over all templates; 0: unlimited"),
    whole("operationTimeoutSec", 1, LONG, 300, "seconds for one Proxmox operation"),
    whole("startVmId", 100, LAST_VMID, 100, "lowest VMID of an agent"),
    whole("endVmId", 100, LAST_VMID, 999_999, "highest VMID of an agent"),
    key(
        "cleanupOrphanedAgents",
        Kind::Flag,
        Preset::Flag(false),
        "false: orphans are only reported",
    ),
    whole("orphanCleanupPeriodSeconds", 30, LONG, 600, "seconds between two reconciliations"),
    whole(
        "orphanCleanupGracePeriodSeconds",
        0,
        LONG,
        300,
        "seconds an orphan is left alone; 0: none",
    ),
    whole(
        "nodeGracePeriodSeconds",
        0,
        LONG,
        300,
        "seconds before an offline node's agents are parked; 0: none",
    ),
    text(
        "cloudInitIsoStorage",
        Preset::Text("local"),
        "storage of ISO images for cloud-init, of templates with user data of their own",
    )
    .checked(value::storage),
    key(
        "networkNames",
        Kind::Names,
        Preset::Empty,
        "bridges by names, beside lan, default, dmz, mgmt and management; also `vmbr0.100`",
    )
    .checked(value::network),
    whole(
        "clonesPerStorage",
        1,
        1000,
        WIDTH as u64,
        "most clones, and most destroys, at once on one storage",
    ),
    whole(
        "operationsPerNode",
        1,
        1000,
        WIDTH as u64,
        "most clones, and most starts, at once on one node",
    ),
    key(
        "adaptLanes",
        Kind::Flag,
        Preset::Flag(true),
        "fewer at once where more would only wait or fail; false: always as many as that",
    ),
    placement::REGION,
    placement::ZONE,
    placement::NODE_LABELS,
    placement::STORAGE_CLASSES,
    placement::OVERCOMMIT,
    placement::HEADROOM,
];
