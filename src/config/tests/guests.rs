//! Network cards of templates, and their texts for cloud-init.

use drover_model::addresses::AddressSource;
use drover_model::id::CloudId;

use super::*;

fn spec(text: &str) -> TemplateSpec {
    template(&Scene::new().good(text), "a").clone()
}

fn networks(cards: &[&str]) -> String {
    format!("networks:\n  - {}", cards.join("\n  - "))
}

/// Bridges, VLANs and addresses of a template's cards.
fn cards(spec: &TemplateSpec) -> Vec<String> {
    let one = |nic: &drover_model::seed::NicSpec| {
        let vlan = nic.vlan.map(|vlan| format!(".{vlan}")).unwrap_or_default();
        format!("{}{vlan} {}", nic.bridge, nic.ip_config.as_deref().unwrap_or("-"))
    };
    spec.nics.iter().map(one).collect()
}

// Invariant: a network's name stands for the bridge that the reference has for it, unless the cloud
// says another.

#[test]
fn names_of_networks_are_those_of_the_reference_and_can_be_others() {
    let names = ["lan", "default", "dmz", "mgmt", "management", "vmbr7", "vmbr7.100"];
    let all = names.map(|name| format!("{{name: {name}}}"));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let plain = spec(&with_agent(&networks(&all)));
    let dhcp = |bridge: &str| format!("{bridge} ip=dhcp");
    let bridges = ["vmbr0", "vmbr0", "vmbr1", "vmbr2", "vmbr2", "vmbr7", "vmbr7.100"];
    assert_eq!(cards(&plain), bridges.map(dhcp));
    let own = with_agent(&networks(&["{name: lan}", "{name: lab}", "{name: dmz, vlan: 9}"]))
        .replace("c: {name: C,", "c: {name: C, networkNames: {lan: vmbr5, lab: vmbr0.30},");
    assert_eq!(cards(&spec(&own)), ["vmbr5 ip=dhcp", "vmbr0.30 ip=dhcp", "vmbr1.9 ip=dhcp"]);
}

#[test]
fn a_card_has_the_addresses_that_are_said() {
    let text = with_agent(&format!(
        "instanceCap: 1\n{}",
        networks(&[
            "{bridge: vmbr0, ip: 10.0.0.5/24, gateway: 10.0.0.1, ip6: auto}",
            "{bridge: vmbr1, ip6: \"fd00::5/64\", gateway6: \"fd00::1\"}",
            "{bridge: vmbr2, ip: none}",
        ])
    ));
    let spec = spec(&text);
    let wanted = [
        "vmbr0 ip=10.0.0.5/24,gw=10.0.0.1,ip6=auto",
        "vmbr1 ip6=fd00::5/64,gw6=fd00::1",
        "vmbr2 -",
    ];
    assert_eq!(cards(&spec), wanted);
    assert_eq!(spec.cloud_init.ip_config.as_deref(), Some("ip=10.0.0.5/24,gw=10.0.0.1,ip6=auto"));
    assert_eq!(spec.address, AddressSource::Fixed("10.0.0.5".parse().unwrap()));
    assert_eq!(spec.cloud_init.seed, None, "Proxmox's own keys say it all");
}

// Invariant: Proxmox's own keys have the servers that all cards share; an ISO image has others.

#[test]
fn an_image_is_made_only_where_servers_differ() {
    let same = spec(&with_agent(&networks(&[
        "{name: lan, dns: [10.0.0.2, 10.0.0.3], searchDomain: example.com}",
        "{name: dmz, dns: [10.0.0.2, 10.0.0.3]}",
        "{name: mgmt}",
    ])));
    assert_eq!(same.cloud_init.seed, None);
    assert_eq!(same.cloud_init.nameserver.as_deref(), Some("10.0.0.2 10.0.0.3"));
    assert_eq!(same.cloud_init.search_domain.as_deref(), Some("example.com"));
    let other = with_agent(&format!(
        "nameserver: 10.0.0.9\n{}",
        networks(&["{name: lan}", "{name: dmz, dns: [10.0.0.2]}"])
    ));
    let other = spec(&other);
    assert_eq!(other.cloud_init.seed.map(|seed| seed.storage).as_deref(), Some("local"));
    assert_eq!(other.cloud_init.nameserver.as_deref(), Some("10.0.0.9"));
    assert_eq!(other.nics[1].dns, ["10.0.0.2"]);
}

// Invariant: networks of one layer take the place of older keys below, and the other way round.

#[test]
fn the_upper_layer_says_what_the_cards_are() {
    let defaults = |keys: &str, own: &str| {
        spec(&with_agent(own).replace("agentDefaults:\n", &format!("agentDefaults:\n  {keys}\n")))
    };
    let new = defaults("bridge: vmbr9", "networks: [{name: lan}]");
    assert_eq!((new.network.bridge, new.nics.len()), (None, 1));
    let old = defaults("networks: [{name: lan}]", "bridge: vmbr9");
    assert_eq!((old.network.bridge.as_deref(), old.nics.len()), (Some("vmbr9"), 0));
    let texts = defaults("userDataFile: gone.yaml", "userData: \"#!\"");
    assert_eq!(texts.cloud_init.seed.unwrap().user_data.as_deref(), Some("#!"));
}

// Invariant: impossible values are faults with their place and a help.

#[test]
fn what_is_wrong_with_networks_is_shown() {
    let cards = [
        "{vlan: 5}",
        "{name: lam}",
        "{name: office}",
        "{bridge: vmbr0.100, vlan: 7}",
        "{bridge: vmbr0, mac: \"BC:24:11:00:00:01\"}",
        "{bridge: vmbr0, ip: 10.0.0.5/24}",
        "{bridge: vmbr0, gateway: 10.0.0.1}",
        "{bridge: vmbr0, ip: dhcp, gateway6: \"fd00::1\"}",
        "{bridge: vmbr0, brigde: vmbr1}",
        "lan",
    ];
    let text = with_agent(&format!("bridge: vmbr1\nipConfigs: [ip=dhcp]\n{}", networks(&cards)));
    let pool = with_agent("addressPool: lab\nnetworks: [{name: lan, ip: dhcp}]");
    let pool = format!("{pool}addressPools: {{lab: {{ranges: [10.0.0.10], prefix: 24}}}}\n");
    let twice = with_agent(
        "instanceCap: 1\nnetworks: [{name: lan, mac: \"BC:24:11:00:00:01\"}, \
         {name: lan, mac: \"bc:24:11:00:00:01\"}]",
    );
    let scene = Scene::new();
    let all = [text, pool, twice].map(|text| scene.faults(&text));
    insta::assert_snapshot!(all.join("\n"));
    let many = with_agent(&format!("networks: [{}]", "{name: lan}, ".repeat(33)));
    assert!(scene.faults(&many).contains("33 network cards exceed the maximum of 32"));
}

#[test]
fn what_is_wrong_with_user_data_is_shown() {
    let scene = Scene::new();
    scene.put("large.yaml", 0o644, &format!("#cloud-config\n#{}\n", "x".repeat(64 << 10)));
    let all = [
        "userData: \"#cloud-config\\nhostname: ${hostnane}\\n\"",
        "userData: \"#!/bin/sh\\necho ${HOME}\\n\"",
        "userData: \"#!/bin/sh\\necho ${1:-x}\\n\"",
        "userData: \"#cloud-config\\na: [\\n\"",
        "userData: \" \"",
        "userDataFile: gone.yaml",
        "userDataFile: large.yaml",
        "userData: \"#!\"\nuserDataFile: large.yaml",
        "metaData: \"- a\"",
        "userData: \"#!\"\nuserDataValues: {vmid: x, a-b: x, registration_token: x, c: \"${d}\"}",
        "userData: \"#!\"\ncloudInitCustom: {user: \"local:snippets/a.yaml\"}",
        "cloudInitCustom: {}",
        "cloudInitCustom: {user: user-data.yaml}",
    ]
    .map(|lines| scene.faults(&with_agent(lines)));
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn what_user_data_cannot_do_is_warned_about() {
    let scene = Scene::new();
    let warned = |lines: &str| scene.good(&with_agent(lines)).rendered_warnings();
    assert_eq!(warned("userData: \"#cloud-config\\n\""), "");
    assert!(
        warned("userData: \"hostname x\"")
            .contains("cloud-init does not know this kind of user data")
    );
    let fixed = "instanceCap: 1\nuserData: \"#!\"\nnetworks: [{name: lan, ip: 10.0.0.5/24}]";
    assert!(warned(fixed).contains("the guest has no DNS server"));
    assert_eq!(warned(&format!("{fixed}\nnameserver: 10.0.0.2")), "");
}

// Invariant: a secret's name is taken only without the secret.

#[test]
fn a_template_of_a_runner_loads_with_its_token_left_blank() {
    let scene = Scene::new();
    let text = "#cloud-config\nruncmd:\n  - ./config.sh --url ${repo_url} --token \"${registration_token}\"\n";
    scene.put("runner.pkrtpl", 0o644, text);
    let checked = scene.good(&with_agent(
        "userDataFile: runner.pkrtpl\n\
         userDataValues: {repo_url: \"https://example.com\", registration_token: \"\"}",
    ));
    let spec = template(&checked, "a");
    let seed = spec.cloud_init.seed.as_ref().unwrap();
    assert_eq!(seed.user_data.as_deref(), Some(text));
    assert!(checked.herd.clouds[&CloudId::new("c")].image_storages.contains("local"));
}
