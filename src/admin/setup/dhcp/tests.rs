#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;

fn wanted() -> DhcpSpec {
    DhcpSpec {
        bridge: "vmbr1".into(),
        range: range("10.0.0.50-10.0.0.99").unwrap(),
        gateway: None,
        dns: Vec::new(),
        lease: "12h".into(),
    }
}

fn said(parts: &[(&str, &str)]) -> BTreeMap<String, String> {
    let address = "1: lo    inet 127.0.0.1/8 scope host lo\n\
                   4: vmbr1    inet 10.0.0.1/24 brd 10.0.0.255 scope global vmbr1\\ valid_lft forever\n\
                   5: vmbr2    inet 10.2.0.1/24 scope global vmbr2\n";
    let usual = [("addresses", address), ("links", "lo vmbr1 vmbr2 vmbr3")];
    let all = usual.iter().chain(parts);
    all.map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

// Invariant: the files contain what a bridge needs and no more.

#[test]
fn dnsmasq_gives_out_addresses_on_one_bridge_alone() {
    let interface_address = wanted().check(&said(&[])).unwrap();
    let [config, unit] = wanted().files(&interface_address, "/usr/sbin/dnsmasq");
    insta::assert_snapshot!(format!(
        "{}:\n{}\n{}:\n{}",
        config.path, config.text, unit.path, unit.text
    ));
    let other = DhcpSpec {
        gateway: "10.0.0.254".parse().ok(),
        dns: vec!["1.1.1.1".parse().unwrap(), "9.9.9.9".parse().unwrap()],
        ..wanted()
    };
    let [config, _] = other.files(&interface_address, "/usr/sbin/dnsmasq");
    assert!(config.text.contains("option:router,10.0.0.254\n"), "{}", config.text);
    assert!(config.text.contains("option:dns-server,1.1.1.1,9.9.9.9\n"), "{}", config.text);
}

// Invariant: nothing is set up where it could not work, or where a server exists already.

#[test]
fn what_does_not_fit_is_refused_with_what_is_there() {
    let refused =
        |wanted: DhcpSpec, parts: &[(&str, &str)]| wanted.check(&said(parts)).unwrap_err();
    let on = |bridge: &str| DhcpSpec { bridge: bridge.into(), ..wanted() };
    let listens =
        |at: &str| format!("UNCONN 0 0 {at} 0.0.0.0:* users:((\"kea-dhcp4\",pid=7,fd=3))");
    let anywhere = listens("0.0.0.0:67");
    let all = [
        refused(on("vmbr9"), &[]),
        refused(on("vmbr3"), &[]),
        refused(on("vmbr2"), &[]),
        refused(DhcpSpec { range: range("10.0.0.1-10.0.0.9").unwrap(), ..wanted() }, &[]),
        refused(DhcpSpec { gateway: "10.1.0.1".parse().ok(), ..wanted() }, &[]),
        refused(wanted(), &[("servers", &anywhere)]),
        refused(wanted(), &[("config", "interface=vmbr1\n")]),
        wanted()
            .check_probe(&wanted().check(&said(&[])).unwrap(), "offer 10.0.0.7\nasked\n")
            .unwrap_err(),
        range("10.0.0.9-10.0.0.1").unwrap_err(),
        lease("soon").unwrap_err(),
    ];
    insta::assert_snapshot!(all.join("\n"));
    for fine in [listens("0.0.0.0%vmbr2:67"), listens("10.2.0.1:67"), String::new()] {
        wanted().check(&said(&[("servers", &fine)])).unwrap();
    }
    // drover's own server is no obstacle.
    let own = [("servers", anywhere.as_str()), ("state", "active")];
    let interface_address = wanted().check(&said(&own)).unwrap();
    wanted().check_probe(&interface_address, "offer 10.0.0.1\nasked\n").unwrap();
    assert_eq!(lease("45m").unwrap(), "45m");
}

// Invariant: a zone is made once, and what exists and fits stays as it is.

#[test]
fn a_zone_with_dhcp_is_made_by_as_many_calls_as_it_needs() {
    let zone = Zone {
        zone: "ci".into(),
        vnet: "ci0".into(),
        subnet: ("10.9.0.0".parse().unwrap(), 24),
        gateway: "10.9.0.1".parse().unwrap(),
        range: range("10.9.0.50-10.9.0.99").unwrap(),
        dns: "1.1.1.1".parse().ok(),
        snat: true,
    };
    let lines = |now: &Sdn| {
        let (steps, _) = zone.plan(now).unwrap();
        steps.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(lines(&Sdn::default()), @r"
    pvesh create /cluster/sdn/zones --zone ci --type simple --ipam pve --dhcp dnsmasq
    pvesh create /cluster/sdn/vnets --vnet ci0 --zone ci
    pvesh create /cluster/sdn/vnets/ci0/subnets --subnet 10.9.0.0/24 --type subnet --gateway 10.9.0.1 --dhcp-range start-address=10.9.0.50,end-address=10.9.0.99 --dhcp-dns-server 1.1.1.1 --snat 1
    pvesh set /cluster/sdn
    ");
    let map = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let mut now = Sdn {
        zone: Some(map(&[("type", "simple"), ("dhcp", "dnsmasq")])),
        vnet: Some(map(&[("zone", "ci")])),
        subnets: vec![map(&[("cidr", "10.9.0.0/24")])],
        waiting: false,
    };
    assert_eq!(lines(&now), "");
    now.waiting = true;
    assert_eq!(lines(&now), "pvesh set /cluster/sdn");
    now.vnet = Some(map(&[("zone", "other")]));
    assert_eq!(
        zone.plan(&now).unwrap_err(),
        "VNet ci0 is in another zone; give the new VNet another name"
    );
    now.zone = Some(map(&[("type", "vlan")]));
    let refused = zone.plan(&now).unwrap_err();
    assert_eq!(refused, "zone ci is not a simple zone; only simple zones have DHCP");
    let outside = Zone { gateway: "10.8.0.1".parse().unwrap(), ..zone.clone() };
    assert_eq!(outside.plan(&now).unwrap_err(), "10.8.0.1 is not in 10.9.0.0/24");
}
