//! Keys of the mappings that say where agents run and how big they are.

use drover_model::placement::Operator;

use super::{Key, Kind, Raw, Table, choice, key, mapping, text, texts, value, whole, zero_or};

/// The largest amount of memory that a key can name, in MiB.
pub(super) const MOST_MEMORY: u64 = 67_108_864;

table! {
    /// Keys of `placementWeights`.
    WEIGHTS => RawWeights {
        "memory" => memory: u32, whole(0..=1000).or(60), "weight of free memory";
        "cpu" => cpu: u32, whole(0..=1000).or(40), "weight of free processors";
    }
}

table! {
    /// Keys of each item of `affinity` and `antiAffinity`.
    TERM => RawTerm {
        "key" => key: String, text().required().check(value::filled).eg(r#""vm.type""#),
            "a label, or its part before `:`, `=` or `.`";
        "operator" => operator: Operator, choice(&["In", "NotIn", "Exists"]).or_text("In"),
            "In and NotIn compare the part behind the key, Exists does not";
        "values" => values: Vec<String>, texts().or_empty().eg(r#"["database"]"#),
            "the values to compare with; none for Exists";
    }
}

table! {
    /// Keys of each entry of `sizes`.
    SIZES => Size {
        "cpu" => cpu: u32, whole(0..=8192).or(0), "processor cores; 0: those of the template";
        "memory" => memory: u32, zero_or(16..=MOST_MEMORY).or(0),
            "memory in MiB; 0: that of the template";
        "disk" => disk: u32, whole(0..=131_072).or(0),
            "size of the boot disk in GiB; 0: that of the template";
    }
}

table! {
    /// Keys of `sizeLabels`.
    SIZE_LABELS {
        "cpu", mapping(&CORES_LABEL).eg("{max: 16}"), "label and limits of processor cores";
        "memory", mapping(&MEMORY_LABEL).eg("{max: 64Gi}"), "label and limits of memory";
        "disk", mapping(&DISK_LABEL).eg("{max: 200}"), "label and limits of the boot disk";
    }
}

table! {
    /// Keys of `cpu` in `sizeLabels`.
    CORES_LABEL => RawCoresLabel {
        "label" => label: String, text().or_text("cpu").check(value::size_label),
            "label before `=`, as in cpu=8";
        "min" => min: u32, whole(1..=8192).or(1).at_most("max"), "minimum number of cores";
        "max" => max: u32, whole(1..=8192).required().eg("16"), "maximum number of cores";
    }
}

table! {
    /// Keys of `memory` in `sizeLabels`.
    MEMORY_LABEL => RawMemoryLabel {
        "label" => label: String, text().or_text("memory").check(value::size_label),
            "label before `=`, as in memory=16g or memory=16384";
        "min" => min: u32, key(Kind::Memory(16, MOST_MEMORY)).or(16).at_most("max"),
            "minimum memory: MiB, or with a unit such as 2Gi";
        "max" => max: u32, key(Kind::Memory(16, MOST_MEMORY)).required().eg("64Gi"),
            "maximum memory: MiB, or with a unit such as 64Gi";
    }
}

table! {
    /// Keys of `disk` in `sizeLabels`.
    DISK_LABEL => RawDiskLabel {
        "label" => label: String, text().or_text("disk").check(value::size_label),
            "label before `=`, as in disk=100g or disk=100";
        "min" => min: u32, whole(1..=131_072).or(1).at_most("max"),
            "minimum size of the boot disk in GiB";
        "max" => max: u32, whole(1..=131_072).required().eg("200"),
            "maximum size of the boot disk in GiB";
    }
}

table! {
    /// Keys of `headroom`.
    HEADROOM => RawHeadroom {
        "memoryMb" => memory_mb: u64, whole(0..=MOST_MEMORY).or(0), "memory of each node in MiB";
        "memoryPercent" => memory_percent: u64, whole(0..=99).or(0),
            "memory of each node in percent";
        "cpuPercent" => cpu_percent: u64, whole(0..=99).or(0),
            "processors of each node in percent; 0: processors are not counted";
        "diskGb" => disk_gb: u64, whole(0..=1_048_576).or(0), "space of each storage in GiB";
        "diskPercent" => disk_percent: u64, whole(0..=99).or(0), "space of each storage in percent";
    }
}
