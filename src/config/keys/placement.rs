//! The keys that say where agents are put, and how big they are.

use super::{Key, Kind, Preset, Shape, key, text, whole};
use crate::value;

/// The most memory a key may name, in MiB.
const MOST_MEMORY: u64 = 67_108_864;

pub(super) const PLACEMENT: Key = key(
    "placement",
    Kind::Choice(&["TOPSIS", "SPREAD", "PACK", "FIXED"]),
    Preset::Text("TOPSIS"),
    "which of several nodes that have room: the one with most free, fewest agents, fullest, or first",
);

pub(super) const PREFERRED: Key = key(
    "preferredNodes",
    Kind::Texts,
    Preset::Empty,
    "nodes that are taken first while they have room; others are taken after them",
)
.checked(value::filled);

pub(super) const WEIGHTS: Key = key(
    "placementWeights",
    Kind::Mapping(&WEIGHT_KEYS),
    Preset::Unset,
    "what free memory and free processors count for TOPSIS; unset: 60 and 40",
);

pub(super) const SELECTOR: Key = key(
    "nodeSelector",
    Kind::Texts,
    Preset::Empty,
    "labels of nodeLabels that a node must carry; any such node where no node is named",
)
.checked(value::filled);

pub(super) const AFFINITY: Key = key(
    "affinity",
    Kind::Mappings(&TERM),
    Preset::Empty,
    "for each term an agent, or a guest by its tags, that matches it must be on the node",
);

pub(super) const ANTI_AFFINITY: Key = key(
    "antiAffinity",
    Kind::Mappings(&TERM),
    Preset::Empty,
    "no agent and no guest that matches any term may be on the node",
);

pub(super) const MAX_VMS: Key = whole(
    "maxVmsPerNode",
    0,
    1_000_000,
    0,
    "most guests on a node, running ones of others included; 0: unlimited",
);

pub(super) const MIN_FREE: Key = key(
    "minFreeMemoryMb",
    Kind::Memory(0, MOST_MEMORY),
    Preset::Whole(0),
    "memory that must stay free on a node, beside headroom's: MiB, or such as 4Gi; 0: none",
)
.also("minFreeMemory");

pub(super) const STORAGE_CLASS: Key = text(
    "storageClass",
    Preset::Text(""),
    "thin, thick, or one of the cloud's storageClasses; of its storages the one with most free space",
);

pub(super) const SIZE: Key = text(
    "size",
    Preset::Text(""),
    "one of sizes, or such as cpu:4,memory:8192,disk:50; for what cores, memoryMb and diskSizeGb leave",
);

/// Keys of `placementWeights`.
pub(crate) static WEIGHT_KEYS: Shape = Shape {
    one_of: &[],
    keys: &[
        whole("memory", 0, 1000, 60, "of free memory"),
        whole("cpu", 0, 1000, 40, "of free processors"),
    ],
};

/// Keys of each entry of `affinity` and `antiAffinity`.
pub(crate) static TERM: Shape = Shape {
    one_of: &[],
    keys: &[
        text("key", Preset::Required, "a label, or what stands in it before `:`, `=` or `.`")
            .checked(value::filled),
        key(
            "operator",
            Kind::Choice(&["In", "NotIn", "Exists"]),
            Preset::Text("In"),
            "In and NotIn look at what stands behind, Exists does not",
        ),
        key("values", Kind::Texts, Preset::Empty, "what may stand behind; none for Exists"),
    ],
};

/// Keys of each entry of `sizes`.
pub(crate) static SIZES: &[Key] = &[
    whole("cpu", 0, 8192, 0, "processor cores; 0: the template's"),
    key(
        "memory",
        Kind::ZeroOr(16, MOST_MEMORY),
        Preset::Whole(0),
        "memory in MiB; 0: the template's",
    ),
    whole("disk", 0, 131_072, 0, "size of the disk it boots from in GB; 0: the template's"),
];

pub(super) const REGION: Key =
    text("region", Preset::Text(""), "its templates carry the label region:<this>; blank: none")
        .checked(value::place);

pub(super) const ZONE: Key =
    text("zone", Preset::Text(""), "its templates carry the label zone:<this>; blank: none")
        .checked(value::place);

pub(super) const NODE_LABELS: Key =
    key("nodeLabels", Kind::Lists, Preset::Unset, "labels of each node, for nodeSelector")
        .checked(value::label);

pub(super) const STORAGE_CLASSES: Key =
    key("storageClasses", Kind::Lists, Preset::Unset, "storages of each class, for storageClass")
        .checked(value::storage);

pub(super) const OVERCOMMIT: Key = whole(
    "memoryOvercommitPercent",
    100,
    1000,
    100,
    "memory that may be promised on a node, of a hundred parts of what it has",
);

pub(super) const HEADROOM: Key = key(
    "headroom",
    Kind::Mapping(&HEADROOM_KEYS),
    Preset::Unset,
    "what must stay free on every node and storage; unset: nothing",
);

/// Keys of `headroom`.
pub(crate) static HEADROOM_KEYS: Shape = Shape {
    one_of: &[],
    keys: &[
        whole("memoryMb", 0, MOST_MEMORY, 0, "memory of each node in MiB"),
        whole("memoryPercent", 0, 99, 0, "of a hundred parts of each node's memory"),
        whole(
            "cpuPercent",
            0,
            99,
            0,
            "of a hundred parts of each node's processors; 0: they are not counted",
        ),
        whole("diskGb", 0, 1_048_576, 0, "space of each storage in GiB"),
        whole("diskPercent", 0, 99, 0, "of a hundred parts of each storage"),
    ],
};
