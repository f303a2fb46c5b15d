//! Marks: written, read back, and refused when they do not add up.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;

fn marks() -> Marks {
    Marks {
        installation: Installation::new("7k2m9qxw"),
        agent: AgentId::new("4f8z1c3px9t2vkab"),
        vmid: VmId(10417),
        cluster: ClusterId::new("9f31c0aa52e7d410"),
        kind: Kind::Agent,
        guest: GuestType::Vm,
        seq: 48213,
        cloud: "primary".into(),
        template: "linux-builder".into(),
        born: "2026-11-21T08:11:02Z".into(),
    }
}

// Invariant: what is written is read back, and only that is ours.

#[test]
fn the_name_is_slug_installation_agent() {
    assert_eq!(marks().name(""), "linux-builder-7k2m9qxw-4f8z1c3px9t2vkab");
}

#[test]
fn a_long_or_odd_name_stays_a_host_name_of_at_most_62_characters() {
    let mut odd = marks();
    odd.template = "Ünïcode .. and -- a very long template name that goes on and on".into();
    let name = odd.name("CI_");
    assert!(name.len() <= 62, "{name}");
    assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
    assert!(!name.starts_with('-') && parse_name(&name).is_some());
}

#[test]
fn marks_written_around_peoples_text_are_read_back() {
    let text = marks().describe("Ask the build team.\n\nThanks.");
    assert_eq!(read(&marks().name(""), &text), Reading::Marked(Box::new(marks())));
    assert!(text.starts_with("Ask the build team.\n\nThanks.\n\n```drover-1\n"), "{text}");
}

#[test]
fn a_guest_with_neither_name_nor_block_is_unmarked() {
    assert_eq!(read("web-1", "hello"), Reading::Unmarked);
}

// Invariant: missing, doubled or altered marks are damaged, never ours.

#[test]
fn a_copied_guest_under_another_name_is_damaged() {
    assert!(matches!(read("Copy-of-VM-x", &marks().describe("")), Reading::Damaged(_)));
}

#[test]
fn a_doubled_block_is_damaged() {
    let text = marks().describe("");
    let doubled = format!("{text}\n{text}");
    assert!(matches!(read(&marks().name(""), &doubled), Reading::Damaged(_)));
}

#[test]
fn a_twin_at_another_vmid_is_not_ours() {
    let reading = read(&marks().name(""), &marks().describe(""));
    assert!(is_ours(&reading, &marks(), VmId(10417)));
    assert!(!is_ours(&reading, &marks(), VmId(10418)));
}

#[test]
fn another_installation_with_a_longer_name_is_not_ours() {
    let mut other = marks();
    other.installation = Installation::new("7k2m9qxx");
    let reading = read(&other.name(""), &other.describe(""));
    assert!(!is_ours(&reading, &marks(), VmId(10417)));
}

#[test]
fn a_container_is_marked_as_one_and_a_machine_as_before() {
    let container = Marks { guest: GuestType::Container, ..marks() };
    let text = container.describe("");
    assert_eq!(read(&marks().name(""), &text), Reading::Marked(Box::new(container.clone())));
    assert!(!marks().describe("").contains("guest"), "older versions read the same");
    let of_container = Reading::Marked(Box::new(container));
    assert!(!is_ours(&of_container, &marks(), VmId(10417)), "the type is part of it");
    let other = text.replace("guest container", "guest jail");
    assert!(matches!(read(&marks().name(""), &other), Reading::Damaged(_)));
    let json = serde_json::to_string(&marks()).unwrap();
    assert!(!json.contains("guest"), "{json}");
    assert_eq!(serde_json::from_str::<Marks>(&json).unwrap(), marks(), "of an older journal");
}
