//! Address pools and where templates have their addresses from: what they come to, and what is
//! wrong with them.

use drover_model::addresses::AddressSource;
use drover_model::id::AddressPoolId;

use super::*;

/// An agent with these lines, beside pools with these.
fn with_pools(pools: &str, lines: &str) -> String {
    let pools = pools.replace('\n', "\n  ");
    format!("{}addressPools:\n  {pools}\n", with_agent(lines))
}

fn source(text: &str) -> AddressSource {
    template(&Scene::new().good(text), "a").address.clone()
}

// Invariant: a pool gives the addresses of its ranges, and none that is no guest's.

#[test]
fn ranges_single_addresses_and_networks_become_what_can_be_given() {
    let checked = Scene::new().good(&with_pools(
        "lab: {ranges: [10.20.0.50-10.20.0.59, 10.20.0.7], prefix: 24, gateway: 10.20.0.1, \
         nameserver: 10.20.0.2, cooldownSeconds: 60}\n\
         net: {ranges: [10.30.0.0/29], prefix: 29}\nhalf: {ranges: [10.40.0.128/25], prefix: 24}\n\
         pair: {ranges: [10.50.0.0/31], prefix: 31}\nsix: {ranges: [\"fd00::/120\"], prefix: 120}",
        "cores: 1",
    ));
    let shown = checked.herd.pools.iter().map(|(id, pool)| {
        let ranges: Vec<String> = pool.ranges.iter().map(ToString::to_string).collect();
        format!("{id}: {} of {} /{}", ranges.join(" "), pool.size(), pool.prefix)
    });
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            "half: 10.40.0.128-10.40.0.254 of 127 /24",
            "lab: 10.20.0.50-10.20.0.59 10.20.0.7 of 11 /24",
            "net: 10.30.0.1-10.30.0.6 of 6 /29",
            "pair: 10.50.0.0-10.50.0.1 of 2 /31",
            "six: fd00::1-fd00::ff of 255 /120",
        ]
    );
    let lab = &checked.herd.pools[&AddressPoolId::new("lab")];
    assert_eq!((lab.cooldown.as_secs(), lab.nameserver.as_deref()), (60, Some("10.20.0.2")));
}

// Invariant: impossible values are faults with their place and a help.

#[test]
fn what_is_wrong_with_pools_is_shown() {
    insta::assert_snapshot!(Scene::new().faults(&with_pools(
        "nothing: {}\n\
         empty: {ranges: [], prefix: 24}\n\
         words: {ranges: [a, 10.0.0.9-10.0.0.1, 10.0.0.0/33], prefix: 200, gateway: gw, nameserver: ns}\n\
         wide: {ranges: [10.1.0.1-10.1.0.9], prefix: 64}\n\
         ends: {ranges: [10.2.0.0-10.2.0.9, 10.2.0.200-10.2.0.255], prefix: 24}\n\
         gate: {ranges: [10.3.0.1-10.3.0.9], prefix: 24, gateway: 10.3.0.1}\n\
         cidr: {ranges: [10.4.0.0/24], prefix: 24, gateway: 10.4.0.1}\n\
         away: {ranges: [10.5.0.9, 10.5.1.9, \"fd00::9\"], prefix: 24, gateway: 10.5.0.1}\n\
         twice: {ranges: [10.6.0.5-10.6.0.9, 10.6.0.9], prefix: 24}",
        "cores: 1",
    )));
}

#[test]
fn pools_that_overlap_are_shown() {
    insta::assert_snapshot!(Scene::new().faults(&with_pools(
        "lab: {ranges: [10.0.0.10-10.0.0.19], prefix: 24}\n\
         rig: {ranges: [10.0.0.20, 10.0.0.15-10.0.0.18], prefix: 24}",
        "cores: 1",
    )));
}

#[test]
fn what_is_wrong_with_a_templates_addresses_is_shown() {
    let scene = Scene::new();
    let pools = "lab: {ranges: [10.0.0.10], prefix: 24}\nsix: {ranges: [\"fd00::9\"], prefix: 64}";
    let all: Vec<String> = [
        "addressPool: lap",
        "addressPool: lab\nipConfig: ip=10.0.0.10/24\naddressFrom: call",
        "addressPool6: six",
        "addressPool: six\naddressPool6: lab",
        "addressFrom: static",
        "addressFrom: call",
    ]
    .into_iter()
    .map(|lines| scene.faults(&with_pools(pools, lines)))
    .collect();
    insta::assert_snapshot!(all.join("\n"));
}

// Invariant: without a word about it a template's address is the one it names, else the guest
// agent's.

#[test]
fn an_address_in_ip_config_is_the_agents_unless_the_guest_agent_is_to_be_asked() {
    let fixed = |text: &str| AddressSource::Fixed(text.parse().unwrap());
    for (lines, wanted) in [
        ("cores: 1", AddressSource::GuestAgent),
        ("ipConfig: \"\"", AddressSource::GuestAgent),
        ("ipConfig: 'ip=10.0.0.50/24,gw=10.0.0.1'", fixed("10.0.0.50")),
        ("ipConfig: 'ip6=fd00::5/64,ip=10.0.0.50/24'", fixed("10.0.0.50")),
        ("ipConfig: 'ip6=fd00::5/64'", fixed("fd00::5")),
        ("ipConfig: 'ip=dhcp,ip6=fd00::5/64'", AddressSource::GuestAgent),
        ("ipConfig: 'ip=10.0.0.50/24'\naddressFrom: static", fixed("10.0.0.50")),
        ("ipConfig: 'ip=10.0.0.50/24'\naddressFrom: guestAgent", AddressSource::GuestAgent),
    ] {
        assert_eq!(source(&with_agent(lines)), wanted, "{lines}");
    }
}

#[test]
fn what_a_templates_addresses_cannot_do_is_warned_about() {
    let scene = Scene::new();
    let fixed = with_agent("ipConfig: 'ip=10.0.0.50/24,gw=10.0.0.1'");
    let few = with_pools(
        "lab: {ranges: [10.0.0.10-10.0.0.12], prefix: 24}",
        "addressPool: lab\nidleMin: 4",
    );
    let shown = [fixed, few].map(|text| scene.good(&text).rendered_warnings());
    insta::assert_snapshot!(shown.join("\n"));
    let alone = with_agent("ipConfig: 'ip=10.0.0.50/24'\ninstanceCap: 1");
    assert_eq!(scene.good(&alone).rendered_warnings(), "");
}
