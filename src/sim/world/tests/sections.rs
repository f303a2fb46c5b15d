// Invariant: a section returns what a call has set, in the types of the schema; a call deletes only
// optional keys.

use serde_json::{Value, json};

use super::TestCluster;
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

async fn with_vnet(cluster: &TestCluster) {
    let zone = json!({ "zone": "ci", "type": "simple", "dhcp": "dnsmasq", "ipam": "pve" });
    cluster.call("POST", ZONES, zone).await.unwrap();
    cluster.call("POST", VNETS, json!({ "vnet": "ci0", "zone": "ci" })).await.unwrap();
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

// A list of objects, empty if there are none (pve-network, API2/Network/SDN/Subnets.pm:32).
#[tokio::test(start_paused = true)]
async fn a_subnets_ranges_are_read_back_as_objects_and_go_when_they_are_deleted() {
    let cluster = TestCluster::instant();
    with_vnet(&cluster).await;
    cluster.call("POST", SUBNETS, subnet(&[RANGE])).await.unwrap();
    let one = cluster.get(SUBNET, named(json!({}))).await;
    let range = json!({ "start-address": "10.9.0.50", "end-address": "10.9.0.99" });
    assert_eq!((&one["dhcp-range"], &one["id"]), (&json!([range]), &json!("ci-10.9.0.0-24")));
    let pending = cluster.get(SUBNETS, json!({ "vnet": "ci0", "pending": true })).await;
    assert_eq!(pending[0]["dhcp-range"], json!([]));
    assert_eq!(pending[0]["pending"]["dhcp-range"], json!([RANGE]));
    let more = "start-address=10.9.0.10,end-address=10.9.0.19";
    cluster.call("PUT", SUBNET, named(json!({ "dhcp-range": [RANGE, more] }))).await.unwrap();
    let list = cluster.get(SUBNETS, json!({ "vnet": "ci0" })).await;
    assert_eq!(list[0]["dhcp-range"][0], range);
    assert_eq!(list[0]["dhcp-range"][1]["end-address"], "10.9.0.19");
    cluster.call("PUT", SUBNET, named(json!({ "delete": "dhcp-range" }))).await.unwrap();
    assert_eq!(cluster.get(SUBNET, named(json!({}))).await["dhcp-range"], json!([]));
}

// The texts come from pve-network, Network/SDN/SubnetPlugin.pm:87, with the prefix of the lock.
#[tokio::test(start_paused = true)]
async fn ranges_that_do_not_fit_their_subnet_or_each_other_are_refused() {
    let cluster = TestCluster::instant();
    with_vnet(&cluster).await;
    let outside = "start-address=10.9.0.50,end-address=10.9.1.5";
    let backwards = "start-address=10.9.0.9,end-address=10.9.0.5";
    let cases: [(&[&str], &str); 3] = [
        (&[outside], "end-address 10.9.1.5 is not in subnet 10.9.0.0/24"),
        (&[backwards], "start-address 10.9.0.9 must be smaller than end-address 10.9.0.5"),
        (&[RANGE, RANGE], "dhcp ranges must not overlap"),
    ];
    for (ranges, text) in cases {
        let refused = refusal(cluster.call("POST", SUBNETS, subnet(ranges)).await);
        let start =
            "create sdn subnet object failed: 400 Parameter verification failed.\ndhcp-range";
        assert_eq!(refused, format!("{start}: {text}"));
    }
    assert_eq!(cluster.get(SUBNETS, json!({ "vnet": "ci0" })).await, json!([]));
}

// Source: pve-network, Network/SDN.pm:278 and API2/Network/SDN.pm:120.
#[tokio::test(start_paused = true)]
async fn while_the_lock_is_held_only_its_token_changes_networks() {
    let cluster =
        TestCluster::with(WorldOptions { version: PveVersion::V9_2, ..WorldOptions::default() });
    let token = cluster.call("POST", LOCK, json!({})).await.unwrap().data;
    let invalid = "invalid lock token provided! at /usr/share/perl5/PVE/Network/SDN.pm line 291.";
    let duplicate = refusal(cluster.call("POST", LOCK, json!({})).await);
    assert_eq!(duplicate, format!("could not acquire lock for SDN config: {invalid}"));
    let zone = json!({ "zone": "lab", "type": "simple" });
    let without = refusal(cluster.call("POST", ZONES, zone.clone()).await);
    assert_eq!(without, format!("create sdn zone object failed: {invalid}"));
    let mut with = zone;
    with["lock-token"] = token.clone();
    cluster.call("POST", ZONES, with).await.unwrap();
    assert_eq!(cluster.get(ZONE, json!({ "zone": "lab" })).await.get("lock-token"), None);
    let other = json!({ "lock-token": "other" });
    let other = refusal(cluster.call("PUT", "/cluster/sdn", other).await);
    assert_eq!(other, format!("could not commit SDN config: {invalid}"));
    // The token alone does not release the lock: nothing fills in the default of the schema.
    let kept = json!({ "lock-token": token });
    cluster.call("PUT", "/cluster/sdn", kept).await.unwrap();
    let held = refusal(cluster.call("POST", LOCK, json!({})).await);
    assert_eq!(held, format!("could not acquire lock for SDN config: {invalid}"));
    let back = json!({ "lock-token": token, "release-lock": true });
    let upid = cluster.call("PUT", "/cluster/sdn", back).await.unwrap();
    // The call has released the lock, and what is applied is no longer pending.
    let token = cluster.call("POST", LOCK, json!({})).await.unwrap().data;
    assert_eq!(cluster.task_end(upid.data.as_str().unwrap()).await, "OK");
    let missing = json!({ "zone": "lab", "lock-token": token });
    cluster.call("DELETE", ZONE, missing).await.unwrap();
    let back = json!({ "lock-token": token, "release-lock": true });
    cluster.call("POST", "/cluster/sdn/rollback", back).await.unwrap();
    assert_eq!(cluster.get(ZONE, json!({ "zone": "lab" })).await["type"], "simple");
    cluster.call("PUT", ZONE, json!({ "zone": "lab", "mtu": 1400 })).await.unwrap();
    let pending = refusal(cluster.call("POST", LOCK, json!({})).await);
    assert!(pending.contains("configuration has pending changes"), "{pending}");
    cluster.call("POST", LOCK, json!({ "allow-pending": true })).await.unwrap();
    let release = refusal(cluster.call("DELETE", LOCK, json!({})).await);
    assert_eq!(release, format!("could not release lock: {invalid}"));
    cluster.call("DELETE", LOCK, json!({ "force": true })).await.unwrap();
    cluster.call("DELETE", ZONE, json!({ "zone": "lab" })).await.unwrap();
}

// The texts come from pve-common, SectionConfig.pm:1853, and pve-ha-manager, HA/Config.pm:139, each
// with the prefix of its lock.
#[tokio::test(start_paused = true)]
async fn a_key_that_a_section_has_no_place_for_or_needs_is_not_deleted() {
    let cluster = TestCluster::instant();
    with_vnet(&cluster).await;
    cluster.call("POST", SUBNETS, subnet(&[])).await.unwrap();
    cluster.clone_to(101).await;
    cluster.call("POST", "/cluster/ha/resources", json!({ "sid": "vm:101" })).await.unwrap();
    let group = json!({ "group": "near", "nodes": "pve1" });
    cluster.call("POST", "/cluster/ha/groups", group).await.unwrap();
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
        let refused = refusal(cluster.call("PUT", route, with).await);
        let (lock, said) = refused.split_once(" failed: ").unwrap();
        assert_eq!((lock.starts_with("update "), said), (true, text), "{route}: {refused}");
    }
    let zone = cluster.get(ZONE, json!({ "zone": "ci" })).await;
    assert_eq!((&zone["dhcp"], zone.get("mtu")), (&json!("dnsmasq"), None));
}

// Source: pve-firewall, API2/Firewall/Cluster.pm:146, and Firewall.pm:1648.
#[tokio::test(start_paused = true)]
async fn an_option_or_a_property_that_no_firewall_has_is_not_deleted() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    let rules = "/cluster/firewall/rules";
    cluster.call("POST", rules, json!({ "type": "in", "action": "DROP" })).await.unwrap();
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
        let refused = cluster.call("PUT", route, with).await.unwrap_err();
        assert_eq!((refused.status, &*refused.errors["delete"]), (400, text), "{route}");
    }
}

// Source: pve-manager, API2/Network.pm:754.
#[tokio::test(start_paused = true)]
async fn an_interface_passes_over_the_name_of_a_key_that_it_has_not() {
    let cluster = TestCluster::instant();
    let with = json!({ "iface": "vmbr0", "type": "bridge", "delete": "nope" });
    cluster.call("PUT", "/nodes/{node}/network/{iface}", with).await.unwrap();
}

// Source: pve-common, SectionConfig.pm:1209.
#[tokio::test(start_paused = true)]
async fn what_the_schema_of_storages_calls_a_number_is_one_in_answers() {
    let cluster = TestCluster::instant();
    let with = json!({
        "storage": "more", "type": "dir", "path": "/mnt/more", "preallocation": "off",
        "snapshot-as-volume-chain": true, "max-protected-backups": 3, "create-subdirs": false,
    });
    cluster.call("POST", "/storage", with).await.unwrap();
    let one = cluster.get("/storage/{storage}", json!({ "storage": "more" })).await;
    for (key, value) in [
        ("snapshot-as-volume-chain", json!(1)),
        ("max-protected-backups", json!(3)),
        ("create-subdirs", json!(0)),
        ("preallocation", json!("off")),
    ] {
        assert_eq!(one[key], value, "{key}");
    }
}
