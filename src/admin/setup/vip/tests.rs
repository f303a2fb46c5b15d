#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;

fn wanted() -> VipSpec {
    VipSpec {
        address: "10.0.0.9".parse().unwrap(),
        prefix: None,
        interface: None,
        router: 51,
        priority: 100,
        peers: Vec::new(),
        password: None,
        ready: "http://127.0.0.1:8080/readyz".into(),
    }
}

fn said(parts: &[(&str, &str)]) -> BTreeMap<String, String> {
    let addresses = "1: lo    inet 127.0.0.1/8 scope host lo\n\
                     3: vmbr0    inet 192.168.1.2/24 scope global vmbr0\n\
                     4: vmbr0.10@vmbr0    inet 10.0.0.2/24 scope global vmbr0.10\n";
    let all = [("addresses", addresses)];
    let all = all.iter().chain(parts);
    all.map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

// Invariant: the address is on the interface of its own network, held by a member that is ready.

#[test]
fn the_interface_is_that_of_the_addresss_network() {
    let interface_address = wanted().check(&said(&[])).unwrap();
    assert_eq!(
        (interface_address.name.as_str(), VipSpec::network(&interface_address).as_str()),
        ("vmbr0.10", "10.0.0.0/24")
    );
    let [config, check] = wanted().files(&interface_address, false);
    insta::assert_snapshot!(format!(
        "{}:\n{}\n{}:\n{}",
        config.path, config.text, check.path, check.text
    ));
    let more = VipSpec {
        peers: vec!["10.0.0.2".parse().unwrap(), "10.0.0.3".parse().unwrap()],
        password: Some("s3cret".into()),
        prefix: Some(32),
        ..wanted()
    };
    let [config, _] = more.files(&interface_address, false);
    insta::assert_snapshot!(config.text);
    assert_eq!(config.mode, 0o600);
    assert!(!format!("{more:?}").contains("s3cret"));
}

#[test]
fn what_does_not_fit_is_refused_with_what_is_there() {
    let refused = |wanted: VipSpec, parts: &[(&str, &str)]| wanted.check(&said(parts)).unwrap_err();
    let twice =
        said(&[])["addresses"].clone() + "5: vmbr5    inet 10.0.0.5/24 scope global vmbr5\n";
    let all = [
        refused(VipSpec { address: "10.7.0.9".parse().unwrap(), ..wanted() }, &[]),
        refused(VipSpec { interface: Some("vmbr0".into()), ..wanted() }, &[]),
        refused(VipSpec { peers: vec!["10.7.0.9".parse().unwrap()], ..wanted() }, &[]),
        refused(VipSpec { peers: vec!["10.0.0.3".parse().unwrap()], ..wanted() }, &[]),
        refused(wanted(), &[("holder", "ready\n")]),
        refused(wanted(), &[("addresses", &twice)]),
        refused(wanted(), &[("config", "vrrp_instance other {}\n")]),
        address("10.0.0").unwrap_err(),
        address("10.0.0.9/40").unwrap_err(),
    ];
    insta::assert_snapshot!(all.join("\n"));
    // The machine that holds the address has it on the interface, too.
    let held = said(&[])["addresses"].clone() + "4: vmbr0.10    inet 10.0.0.9/24 scope global\n";
    let own = said(&[("addresses", &held), ("holder", "ready\n")]);
    assert_eq!(wanted().check(&own).unwrap().name, "vmbr0.10");
    // Members of a store elect a leader, which alone holds the address.
    let third = VipSpec { peers: vec!["10.0.0.3".parse().unwrap()], ..wanted() };
    for leads in
        [r#"{"status":"leader","alone":false}"#, r#"{"type":"urn:drover:problem:standby"}"#]
    {
        let member = said(&[("leads", leads), ("holder", "ready\n")]);
        let face = third.check(&member).unwrap();
        let [_, check] = third.files(&face, VipSpec::is_member(&member));
        assert!(check.text.ends_with("http://127.0.0.1:8080/leaderz\n"), "{}", check.text);
    }
    let lone = said(&[("leads", r#"{"status":"leader","alone":true}"#)]);
    assert!(third.check(&lone).is_err());
    let alone = VipSpec { peers: vec!["10.0.0.2".parse().unwrap()], ..wanted() };
    assert_eq!(alone.check(&said(&[])).unwrap().name, "vmbr0.10");
    assert_eq!(address("10.0.0.9/24").unwrap().1, Some(24));
}

// Invariant: the rule is made once, and only where the firewall is on.

#[test]
fn the_firewalls_rule_is_made_where_it_is_wanted() {
    let network = "10.0.0.0/24";
    let step = rule(network, true, &[]).unwrap();
    insta::assert_snapshot!(step.to_string(), @"pvesh create /cluster/firewall/rules --type in --action ACCEPT --source 10.0.0.0/24 --proto vrrp --enable 1 --comment 'made by drover setup vip'");
    assert_eq!(rule(network, false, &[]), None);
    let made: BTreeMap<String, String> = step.params.iter().cloned().collect();
    assert_eq!(rule(network, true, std::slice::from_ref(&made)), None);
    for (key, value) in [("enable", "0"), ("action", "DROP"), ("source", "10.1.0.0/24")] {
        let other = made.iter().map(|(k, v)| (k.clone(), v.clone()));
        let mut other: BTreeMap<String, String> = other.collect();
        other.insert(key.into(), value.into());
        assert!(rule(network, true, &[other]).is_some(), "{key}");
    }
}
