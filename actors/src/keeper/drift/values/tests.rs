#![expect(clippy::unwrap_used, reason = "a test may panic")]

use drover_model::phase::Power;

use super::*;
use crate::keeper::tests::{gitea, view};

fn row(key: &str, value: &str) -> ConfigValue {
    ConfigValue { key: key.into(), value: Some(value.into()), pending: None, deleted: false }
}

fn nic(bridge: &str, vlan: Option<u16>) -> NicSpec {
    NicSpec {
        bridge: bridge.into(),
        vlan,
        mac: None,
        model: None,
        firewall: None,
        ip_config: None,
        dns: Vec::new(),
        search: Vec::new(),
    }
}

fn lines(all: impl IntoIterator<Item = Drift>) -> Vec<String> {
    let line = |one: Drift| {
        format!(
            "{} {}: {} is {} ({})",
            one.kind,
            one.what,
            one.declared,
            one.found,
            one.stays.unwrap()
        )
    };
    all.into_iter().map(line).collect()
}

// Invariant: what the declaration says of a card is compared and nothing else; drover never rewires one.

#[test]
fn cards_that_are_rewired_in_proxmox_are_shown_and_never_corrected() {
    let mut spec = gitea();
    let mut view = view(Power::Running);
    view.config.push(row("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1"));
    assert_eq!(lines(networks(&spec, &view)), Vec::<String>::new(), "nothing is declared");
    spec.template.network = NetworkSpec { bridge: Some("vmbr1".into()), vlan: Some(5) };
    let never = "(drover never corrects it: change it in Proxmox, or the declaration)";
    assert_eq!(
        lines(networks(&spec, &view)),
        [format!("NETWORK net0: bridge vmbr1, VLAN 5 is bridge vmbr0, VLAN none {never}")]
    );
    view.config.last_mut().unwrap().pending = Some("virtio=AA,bridge=vmbr1,tag=5".into());
    let waits = "bridge vmbr0, VLAN none, bridge vmbr1, VLAN 5 after a restart (it waits for the next \
                 restart of the machine)";
    assert_eq!(
        lines(networks(&spec, &view)),
        [format!("NETWORK net0: bridge vmbr1, VLAN 5 is {waits}")]
    );
}

#[test]
fn each_card_of_networks_is_compared_and_a_further_one_is_shown() {
    let mut spec = gitea();
    let mac = Some("02:00:00:00:00:01".to_owned());
    let second = NicSpec { mac, model: Some("e1000".into()), ..nic("vmbr1", None) };
    spec.template.nics = vec![nic("vmbr0", Some(7)), second];
    let mut view = view(Power::Running);
    view.config.push(row("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=7"));
    view.config.push(row("net1", "e1000=02:00:00:00:00:01,bridge=vmbr1"));
    assert_eq!(lines(networks(&spec, &view)), Vec::<String>::new());
    view.config.pop();
    view.config.push(row("net1", "virtio=02:00:00:00:00:02,bridge=vmbr1"));
    view.config.push(row("net2", "virtio=02:00:00:00:00:03,bridge=vmbr9"));
    let shown = lines(networks(&spec, &view));
    assert!(shown[0].contains("model virtio, MAC 02:00:00:00:00:02"), "{shown:?}");
    assert!(shown[1].starts_with("NETWORK net2: none is bridge vmbr9"), "{shown:?}");
}

// Invariant: cloud-init values and tags are compared as far as they are declared.

#[test]
fn cloud_init_values_and_tags_that_differ_are_shown() {
    let mut spec = gitea();
    spec.template.cloud_init.user = Some("ops".into());
    spec.template.cloud_init.ip_config = Some("ip=dhcp".into());
    spec.template.ssh.public_key = "ssh-ed25519 AAAA ops".into();
    spec.template.tags = ["Infra".to_owned()].into();
    let mut view = view(Power::Running);
    view.given = vec![
        row("ciuser", "ops"),
        row("ipconfig0", "ip=dhcp"),
        row("sshkeys", "ssh-ed25519 AAAA ops\n"),
        row("nameserver", "10.0.0.1"),
        row("tags", "drover;extra;infra"),
    ];
    assert_eq!(lines(cloud_init(&spec, &view)), Vec::<String>::new());
    assert_eq!(lines(tags(&spec, &view)), Vec::<String>::new());
    view.given = vec![row("ciuser", "eve"), row("sshkeys", "ssh-ed25519 BBBB eve")];
    let shown = lines(cloud_init(&spec, &view));
    assert_eq!(shown.len(), 3, "{shown:?}");
    assert!(shown[0].starts_with("CLOUD_INIT ciuser: ops is eve (drover never"), "{shown:?}");
    assert!(shown[1].starts_with("CLOUD_INIT ipconfig0: ip=dhcp is none"), "{shown:?}");
    assert!(shown[2].contains("the key of `credentialsId` is other keys"), "{shown:?}");
    assert!(lines(tags(&spec, &view))[0].starts_with("TAGS tags: infra is none"));
}
