// Invariant: what a call sets is read back in the types of the schema, and what it deletes is a key
// that the section can lack.

use serde_json::{Value, json};

use super::Play;
use super::fakes::refusal;
use crate::spec::PveVersion;
use crate::world::WorldOptions;

const ZONES: &str = "/cluster/sdn/zones";
const ZONE: &str = "/cluster/sdn/zones/{zone}";
const VNETS: &str = "/cluster/sdn/vnets";
const VNET: &str = "/cluster/sdn/vnets/{vnet}";
const SUBNETS: &str = "/cluster/sdn/vnets/{vnet}/subnets";
const SUBNET: &str = "/cluster/sdn/vnets/{vnet}/subnets/{subnet}";
const LOCK: &str = "/cluster/sdn/lock";
const RANGE: &str = "start-address=10.9.0.50,end-address=10.9.0.99";

async fn with_vnet(play: &Play) {
    let zone = json!({ "zone": "ci", "type": "simple", "dhcp": "dnsmasq", "ipam": "pve" });
    play.call("POST", ZONES, zone).await.unwrap();
    play.call("POST", VNETS, json!({ "vnet": "ci0", "zone": "ci" })).await.unwrap();
}

fn subnet(ranges: &[&str]) -> Value {
    json!({ "vnet": "ci0", "subnet": "10.9.0.0/24", "type": "subnet", "dhcp-range": ranges })
}

fn named(more: Value) -> Value {
    let mut with = json!({ "vnet": "ci0", "subnet": "ci-10.9.0.0-24" });
    for (key, value) in more.as_object().unwrap() {
        with[key] = value.clone();
    }
    with
}

// The list is of objects, and empty where there is none (pve-network,
// API2/Network/SDN/Subnets.pm:32).
#[tokio::test(start_paused = true)]
async fn a_subnets_ranges_are_read_back_as_objects_and_go_when_they_are_deleted() {
    let play = Play::at_once();
    with_vnet(&play).await;
    play.call("POST", SUBNETS, subnet(&[RANGE])).await.unwrap();
    let one = play.get(SUBNET, named(json!({}))).await;
    let range = json!({ "start-address": "10.9.0.50", "end-address": "10.9.0.99" });
    assert_eq!((&one["dhcp-range"], &one["id"]), (&json!([range]), &json!("ci-10.9.0.0-24")));
    let pending = play.get(SUBNETS, json!({ "vnet": "ci0", "pending": true })).await;
    assert_eq!(pending[0]["dhcp-range"], json!([]));
    assert_eq!(pending[0]["pending"]["dhcp-range"], json!([RANGE]));
    let more = "start-address=10.9.0.10,end-address=10.9.0.19";
    play.call("PUT", SUBNET, named(json!({ "dhcp-range": [RANGE, more] }))).await.unwrap();
    let list = play.get(SUBNETS, json!({ "vnet": "ci0" })).await;
    assert_eq!(list[0]["dhcp-range"][0], range);
    assert_eq!(list[0]["dhcp-range"][1]["end-address"], "10.9.0.19");
    play.call("PUT", SUBNET, named(json!({ "delete": "dhcp-range" }))).await.unwrap();
    assert_eq!(play.get(SUBNET, named(json!({}))).await["dhcp-range"], json!([]));
}

// The texts are of pve-network, Network/SDN/SubnetPlugin.pm:87, inside those of the lock.
#[tokio::test(start_paused = true)]
async fn ranges_that_do_not_fit_their_subnet_or_each_other_are_refused() {
    let play = Play::at_once();
    with_vnet(&play).await;
    let outside = "start-address=10.9.0.50,end-address=10.9.1.5";
    let backwards = "start-address=10.9.0.9,end-address=10.9.0.5";
    let cases: [(&[&str], &str); 3] = [
        (&[outside], "end-address 10.9.1.5 is not in subnet 10.9.0.0/24"),
        (&[backwards], "start-address 10.9.0.9 must be smaller than end-address 10.9.0.5"),
        (&[RANGE, RANGE], "dhcp ranges must not overlap"),
    ];
    for (ranges, text) in cases {
        let refused = refusal(play.call("POST", SUBNETS, subnet(ranges)).await);
        let start =
            "create sdn subnet object failed: 400 Parameter verification failed.\ndhcp-range";
        assert_eq!(refused, format!("{start}: {text}"));
    }
    assert_eq!(play.get(SUBNETS, json!({ "vnet": "ci0" })).await, json!([]));
}

// As pve-network, Network/SDN.pm:278 and API2/Network/SDN.pm:120, have it.
#[tokio::test(start_paused = true)]
async fn networks_change_with_the_token_of_the_lock_alone_while_it_is_held() {
    let play = Play::with(WorldOptions { version: PveVersion::V9_2, ..WorldOptions::default() });
    let token = play.call("POST", LOCK, json!({})).await.unwrap().data;
    let invalid = "invalid lock token provided! at /usr/share/perl5/PVE/Network/SDN.pm line 291.";
    let twice = refusal(play.call("POST", LOCK, json!({})).await);
    assert_eq!(twice, format!("could not acquire lock for SDN config: {invalid}"));
    let zone = json!({ "zone": "lab", "type": "simple" });
    let without = refusal(play.call("POST", ZONES, zone.clone()).await);
    assert_eq!(without, format!("create sdn zone object failed: {invalid}"));
    let mut with = zone;
    with["lock-token"] = token.clone();
    play.call("POST", ZONES, with).await.unwrap();
    assert_eq!(play.get(ZONE, json!({ "zone": "lab" })).await.get("lock-token"), None);
    let other = json!({ "lock-token": "other" });
    let other = refusal(play.call("PUT", "/cluster/sdn", other).await);
    assert_eq!(other, format!("could not commit SDN config: {invalid}"));
    // The token alone does not give the lock back: nothing fills in the schema's default.
    let kept = json!({ "lock-token": token });
    play.call("PUT", "/cluster/sdn", kept).await.unwrap();
    let held = refusal(play.call("POST", LOCK, json!({})).await);
    assert_eq!(held, format!("could not acquire lock for SDN config: {invalid}"));
    let back = json!({ "lock-token": token, "release-lock": true });
    let upid = play.call("PUT", "/cluster/sdn", back).await.unwrap();
    // It was given back with the call, and what is applied is not pending any more.
    let token = play.call("POST", LOCK, json!({})).await.unwrap().data;
    assert_eq!(play.end_of(upid.data.as_str().unwrap()).await, "OK");
    let gone = json!({ "zone": "lab", "lock-token": token });
    play.call("DELETE", ZONE, gone).await.unwrap();
    let back = json!({ "lock-token": token, "release-lock": true });
    play.call("POST", "/cluster/sdn/rollback", back).await.unwrap();
    assert_eq!(play.get(ZONE, json!({ "zone": "lab" })).await["type"], "simple");
    play.call("PUT", ZONE, json!({ "zone": "lab", "mtu": 1400 })).await.unwrap();
    let pending = refusal(play.call("POST", LOCK, json!({})).await);
    assert!(pending.contains("configuration has pending changes"), "{pending}");
    play.call("POST", LOCK, json!({ "allow-pending": true })).await.unwrap();
    let release = refusal(play.call("DELETE", LOCK, json!({})).await);
    assert_eq!(release, format!("could not release lock: {invalid}"));
    play.call("DELETE", LOCK, json!({ "force": true })).await.unwrap();
    play.call("DELETE", ZONE, json!({ "zone": "lab" })).await.unwrap();
}

// The texts are of pve-common, SectionConfig.pm:1853, and pve-ha-manager, HA/Config.pm:139, each
// after that of its lock.
#[tokio::test(start_paused = true)]
async fn a_key_that_a_section_has_no_place_for_or_needs_is_not_deleted() {
    let play = Play::at_once();
    with_vnet(&play).await;
    play.call("POST", SUBNETS, subnet(&[])).await.unwrap();
    play.clone_to(101).await;
    play.call("POST", "/cluster/ha/resources", json!({ "sid": "vm:101" })).await.unwrap();
    let group = json!({ "group": "near", "nodes": "pve1" });
    play.call("POST", "/cluster/ha/groups", group).await.unwrap();
    let storage = "/storage/{storage}";
    let (resource, group) = ("/cluster/ha/resources/{sid}", "/cluster/ha/groups/{group}");
    let cases = [
        (storage, json!({ "storage": "local", "delete": "nope" }), "no such option 'nope'"),
        (storage, json!({ "storage": "local", "delete": "digest" }), "no such option 'digest'"),
        (
            storage,
            json!({ "storage": "local", "delete": "path" }),
            "unable to delete required option 'path'",
        ),
        (ZONE, json!({ "zone": "ci", "delete": "mtu,nope" }), "no such option 'nope'"),
        (
            ZONE,
            json!({ "zone": "ci", "delete": "mtu", "mtu": 1400 }),
            "cannot set and delete property 'mtu' at the same time!",
        ),
        (
            VNET,
            json!({ "vnet": "ci0", "delete": "zone" }),
            "unable to delete required option 'zone'",
        ),
        (SUBNET, named(json!({ "delete": "nope" })), "no such option 'nope'"),
        (resource, json!({ "sid": "vm:101", "delete": "nope" }), "no such option 'nope'"),
        (
            group,
            json!({ "group": "near", "delete": "nodes" }),
            "unable to delete required option 'nodes'",
        ),
    ];
    for (route, with, text) in cases {
        let refused = refusal(play.call("PUT", route, with).await);
        let (lock, said) = refused.split_once(" failed: ").unwrap();
        assert_eq!((lock.starts_with("update "), said), (true, text), "{route}: {refused}");
    }
    let zone = play.get(ZONE, json!({ "zone": "ci" })).await;
    assert_eq!((&zone["dhcp"], zone.get("mtu")), (&json!("dnsmasq"), None));
}

// As pve-firewall, API2/Firewall/Cluster.pm:146, and Firewall.pm:1648, have it.
#[tokio::test(start_paused = true)]
async fn an_option_or_a_property_that_no_firewall_has_is_not_deleted() {
    let play = Play::at_once();
    play.clone_to(101).await;
    let rules = "/cluster/firewall/rules";
    play.call("POST", rules, json!({ "type": "in", "action": "DROP" })).await.unwrap();
    let vm = "/nodes/{node}/qemu/{vmid}/firewall/options";
    let rule = "/cluster/firewall/rules/{pos}";
    for (route, with, text) in [
        ("/cluster/firewall/options", json!({ "delete": "nope" }), "no such option 'nope'"),
        ("/nodes/{node}/firewall/options", json!({ "delete": "nope" }), "no such option 'nope'"),
        (vm, json!({ "vmid": 101, "delete": "digest" }), "no such option 'digest'"),
        (rule, json!({ "pos": 0, "delete": "comment,nope" }), "no such property ('nope')"),
        (
            rule,
            json!({ "pos": 0, "delete": "action" }),
            "unable to delete required property 'action'",
        ),
    ] {
        let refused = play.call("PUT", route, with).await.unwrap_err();
        assert_eq!((refused.status, &*refused.errors["delete"]), (400, text), "{route}");
    }
}

// As pve-manager, API2/Network.pm:754, has it.
#[tokio::test(start_paused = true)]
async fn an_interface_passes_over_the_name_of_a_key_that_it_has_not() {
    let play = Play::at_once();
    let with = json!({ "iface": "vmbr0", "type": "bridge", "delete": "nope" });
    play.call("PUT", "/nodes/{node}/network/{iface}", with).await.unwrap();
}

// As pve-common, SectionConfig.pm:1209, has it.
#[tokio::test(start_paused = true)]
async fn what_the_schema_of_storages_calls_a_number_is_one_in_answers() {
    let play = Play::at_once();
    let with = json!({
        "storage": "more", "type": "dir", "path": "/mnt/more", "preallocation": "off",
        "snapshot-as-volume-chain": true, "max-protected-backups": 3, "create-subdirs": false,
    });
    play.call("POST", "/storage", with).await.unwrap();
    let one = play.get("/storage/{storage}", json!({ "storage": "more" })).await;
    for (key, value) in [
        ("snapshot-as-volume-chain", json!(1)),
        ("max-protected-backups", json!(3)),
        ("create-subdirs", json!(0)),
        ("preallocation", json!("off")),
    ] {
        assert_eq!(one[key], value, "{key}");
    }
}
