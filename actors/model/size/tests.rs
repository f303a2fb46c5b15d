#![expect(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::labels::LabelExpression;
use crate::testing::template;

fn label(label: &str, min: u32, max: u32) -> Option<SizeLabel> {
    Some(SizeLabel { label: label.into(), min, max })
}

fn sizes() -> SizeLabels {
    SizeLabels {
        cores: label("cpu", 1, 16),
        memory: label("memory", 1024, 65_536),
        disk: label("disk", 1, 200),
    }
}

/// Two cores, 4 GiB of memory and 20 GiB of disk, which labels may change.
fn spec() -> TemplateSpec {
    let mut spec = template("c/t", &["linux", "docker"]);
    (spec.cores, spec.memory_mb, spec.disk_gb) = (Some(2), Some(4096), Some(20));
    spec.size_labels = sizes();
    spec
}

fn set(labels: &str) -> BTreeSet<String> {
    labels.split_whitespace().map(str::to_owned).collect()
}

fn labels(text: &str) -> Want {
    Want::Labels(set(text))
}

fn expression(text: &str) -> Want {
    Want::Expression(LabelExpression::parse(text).unwrap())
}

/// The size that an agent of a spec is started with for a want; none where it is not for it at all.
fn started(spec: &TemplateSpec, want: &Want) -> Option<Result<Size, String>> {
    let met = spec.size_labels.met(&spec.labels, want, (|name: &str| name == "t", false));
    let each = met.into_iter().map(|asked| {
        asked.and_then(|asked| spec.size_for(asked)).map_err(|fault| fault.to_string())
    });
    each.reduce(Result::or)
}

fn size(cores: u32, memory_mb: u32, disk_gb: u32) -> Size {
    let some = |number: u32| Some(number).filter(|number| *number > 0);
    Size { cores: some(cores), memory_mb: some(memory_mb), disk_gb: some(disk_gb) }
}

// Invariant: a size is read as people write it, and anything else is no size.

#[test]
fn a_size_is_a_number_with_or_without_a_unit() {
    for (part, text, read) in [
        (Part::Cores, "8", 8),
        (Part::Memory, "16g", 16_384),
        (Part::Memory, "16G", 16_384),
        (Part::Memory, "16GiB", 16_384),
        (Part::Memory, "16gb", 16_384),
        (Part::Memory, "16Gi", 16_384),
        (Part::Memory, "16384m", 16_384),
        (Part::Memory, "16384", 16_384),
        (Part::Memory, "1t", 1 << 20),
        (Part::Disk, "100g", 100),
        (Part::Disk, "100", 100),
        (Part::Disk, "51200M", 50),
        (Part::Disk, "1T", 1024),
    ] {
        assert_eq!(part.parse(text), Some(read), "{part:?} {text}");
    }
    for (part, text) in [
        (Part::Cores, ""),
        (Part::Cores, "0"),
        (Part::Cores, "8g"),
        (Part::Cores, "-1"),
        (Part::Cores, "+8"),
        (Part::Cores, "1.5"),
        (Part::Cores, "many"),
        (Part::Cores, "99999999999"),
        (Part::Memory, "16 g"),
        (Part::Memory, "g"),
        (Part::Memory, "16k"),
        (Part::Memory, "4096t"),
        (Part::Memory, "99999999999999999999g"),
        (Part::Memory, "18446744073709551615t"),
        (Part::Disk, "500m"),
        (Part::Disk, "0g"),
    ] {
        assert_eq!(part.parse(text), None, "{part:?} {text}");
    }
}

// Invariant: what is asked for is given within the limits, what the template has anyway is no other
// size, and the text says what would do.

#[test]
fn labels_of_size_are_read_beside_the_labels_of_the_template() {
    let spec = spec();
    let of = |text: &str| started(&spec, &labels(text));
    assert_eq!(of("linux cpu=8 memory=16g"), Some(Ok(size(8, 16_384, 0))));
    assert_eq!(of("linux docker disk=100g"), Some(Ok(size(0, 0, 100))));
    assert_eq!(of("linux"), Some(Ok(Size::NONE)));
    assert_eq!(of("linux cpu=2 memory=4g"), Some(Ok(Size::NONE)), "it has these anyway");
    assert_eq!(of("linux memory=16g memory=16384m"), Some(Ok(size(0, 16_384, 0))));
    assert_eq!(of("arm cpu=8"), None);
    assert_eq!(of("cpu=8"), None, "a size alone is no label of a template");
    assert_eq!(of("linux gpu=2"), None, "no label of size");
}

#[test]
fn a_refusal_says_the_limits() {
    let spec = spec();
    let of = |text: &str| started(&spec, &labels(text)).unwrap().unwrap_err();
    assert_eq!(of("linux cpu=64"), "gives 1 to 16 cores (`sizeLabels`), not 64");
    assert_eq!(of("linux memory=512"), "gives 1024 to 65536 MiB of memory (`sizeLabels`), not 512");
    assert_eq!(of("linux cpu=many"), "cannot read `cpu=many`: write it such as `cpu=8`");
    assert_eq!(of("linux cpu=4 cpu=8"), "cannot give both `cpu=4` and `cpu=8`");
    assert_eq!(of("linux disk=10"), "has 20 GiB of disk, and disks only grow: not 10");
    let sized = Want::Template("t".into()).of_size(size(64, 0, 0));
    let refused = started(&spec, &sized).unwrap();
    assert_eq!(refused, Err("gives 1 to 16 cores (`sizeLabels`), not 64".to_owned()));
    let fixed = TemplateSpec { size_labels: SizeLabels::default(), ..spec };
    let refused = started(&fixed, &sized).unwrap().unwrap_err();
    assert_eq!(refused, "gives no other number of cores: its `sizeLabels` has no `cpu`");
}

#[test]
fn a_request_by_name_or_by_labels_may_bring_a_size_of_its_own() {
    let spec = spec();
    let named = Want::Template("t".into()).of_size(size(8, 0, 50));
    assert_eq!(started(&spec, &named), Some(Ok(size(8, 0, 50))));
    let both = labels("linux cpu=4 memory=8g").of_size(size(8, 0, 0));
    assert_eq!(started(&spec, &both), Some(Ok(size(8, 8192, 0))), "its own goes before labels");
    assert_eq!(started(&spec, &Want::Template("u".into()).of_size(size(8, 0, 0))), None);
}

#[test]
fn an_expression_gets_the_least_that_it_holds_for() {
    let spec = spec();
    let of = |text: &str| started(&spec, &expression(text));
    assert_eq!(of("linux && cpu=8"), Some(Ok(size(8, 0, 0))));
    assert_eq!(of("linux && (cpu=8 || cpu=4)"), Some(Ok(size(4, 0, 0))));
    assert_eq!(of("linux && (cpu=8 || docker)"), Some(Ok(Size::NONE)));
    assert_eq!(of("linux && !cpu=8"), Some(Ok(Size::NONE)));
    assert_eq!(of("cpu=8 && memory=8g && docker"), Some(Ok(size(8, 8192, 0))));
    assert_eq!(of("linux && (cpu=64 || cpu=4)"), Some(Ok(size(4, 0, 0))));
    assert_eq!(
        of("linux && cpu=64"),
        Some(Err("gives 1 to 16 cores (`sizeLabels`), not 64".to_owned()))
    );
    assert_eq!(of("arm && cpu=8"), None);
}

// Invariant: an agent of a size serves those alone who ask for that size.

#[test]
fn an_agent_serves_its_own_size_and_no_other() {
    let spec = spec();
    let large = spec.sized(size(8, 16_384, 0));
    assert_eq!((large.cores, large.memory_mb, large.disk_gb), (Some(8), Some(16_384), Some(20)));
    let serves = |spec: &TemplateSpec, text: &str| {
        started(spec, &labels(text)).is_some_and(|size| size == Ok(Size::NONE))
    };
    assert!(serves(&large, "linux cpu=8 memory=16g"));
    assert!(serves(&large, "linux cpu=8 memory=16g disk=20"));
    for other in
        ["linux", "linux cpu=8", "linux cpu=4 memory=16g", "linux cpu=8 memory=16g disk=50"]
    {
        assert!(!serves(&large, other), "{other}");
    }
    assert!(serves(&spec, "linux") && serves(&spec, "linux cpu=2"));
    assert!(!serves(&spec, "linux cpu=8"));
    let named = Want::Template("t".into());
    assert_eq!(started(&large, &named), Some(Err("has another size".to_owned())));
    assert_eq!(started(&large, &named.of_size(size(8, 16_384, 0))), Some(Ok(Size::NONE)));
}

// Invariant: journals from before sizes read as they were.

#[test]
fn a_spec_without_sizes_reads_and_is_written_without_them() {
    let bare = template("c/t", &["linux"]);
    let text = serde_json::to_string(&bare).unwrap();
    assert!(!text.contains("size"), "{text}");
    assert_eq!(serde_json::from_str::<TemplateSpec>(&text).unwrap(), bare);
    let large = spec().sized(size(8, 0, 0));
    let text = serde_json::to_string(&large).unwrap();
    assert_eq!(serde_json::from_str::<TemplateSpec>(&text).unwrap(), large);
}

#[test]
fn limits_of_size_make_no_other_version_of_a_template() {
    let limited = spec();
    let open = TemplateSpec { size_labels: SizeLabels::default(), ..limited.clone() };
    assert_eq!(limited.version(), open.version());
}
