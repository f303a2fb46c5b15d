// Invariant: a network is refused where Proxmox refuses it, by its zone and because of other
// networks (pve-network, API2/Network/SDN/*.pm and Network/SDN/**/*Plugin.pm).

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
const WRONG: &str = "400 Parameter verification failed.\n";

async fn make(cluster: &TestCluster, route: &'static str, with: Value) {
    cluster.call("POST", route, with).await.unwrap();
}

async fn refused(
    cluster: &TestCluster,
    method: &'static str,
    route: &'static str,
    with: Value,
) -> String {
    refusal(cluster.call(method, route, with).await)
}

#[tokio::test(start_paused = true)]
async fn a_zone_has_the_keys_of_its_type_and_names_what_is_there() {
    let cluster = TestCluster::instant();
    for (with, text) in [
        (json!({ "zone": "a", "type": "vlan" }), "missing value for required option 'bridge'"),
        (
            json!({ "zone": "a", "type": "simple", "bridge": "vmbr0" }),
            "unexpected property 'bridge'",
        ),
        (
            json!({ "zone": "a", "type": "simple", "ipam": "netbox1" }),
            "create sdn zone object failed: 400 Parameter verification failed.\n\
             ipam: netbox1 not existing",
        ),
        (
            json!({ "zone": "a", "type": "simple", "dns": "pdns" }),
            "create sdn zone object failed: 400 Parameter verification failed.\n\
             dns: pdns don't exist",
        ),
        (
            json!({ "zone": "a", "type": "evpn", "controller": "c", "vrf-vxlan": 9 }),
            "create sdn zone object failed: controller c don't exist",
        ),
    ] {
        assert_eq!(refused(&cluster, "POST", ZONES, with).await, text);
    }
    assert_eq!(cluster.get(ZONES, json!({})).await, json!([]));
    make(&cluster, ZONES, json!({ "zone": "a", "type": "simple" })).await;
    let bridge = json!({ "zone": "a", "delete": "bridge" });
    let text = "update sdn zone object failed: no such option 'bridge'";
    assert_eq!(refused(&cluster, "PUT", ZONE, bridge).await, text);
    let missing = refused(&cluster, "DELETE", ZONE, json!({ "zone": "b" })).await;
    assert_eq!(missing, "delete sdn zone object failed: sdn 'b' does not exist");
}

#[tokio::test(start_paused = true)]
async fn a_zone_of_tunnels_has_peers_in_8_and_may_have_a_fabric_instead_in_9() {
    let eight = TestCluster::instant();
    let bare = json!({ "zone": "a", "type": "vxlan" });
    let text = "missing value for required option 'peers'";
    assert_eq!(refused(&eight, "POST", ZONES, bare.clone()).await, text);
    let nine =
        TestCluster::with(WorldOptions { version: PveVersion::V9_2, ..WorldOptions::default() });
    let text = "must have exactly one of peers / fabric defined";
    let both = format!("{WRONG}peers: {text}\nfabric: {text}");
    let reported = refused(&nine, "POST", ZONES, bare).await;
    assert_eq!(reported, format!("create sdn zone object failed: {both}"));
    make(&nine, ZONES, json!({ "zone": "a", "type": "vxlan", "fabric": "f1" })).await;
}

#[tokio::test(start_paused = true)]
async fn the_tag_of_a_vnet_fits_its_zone_and_is_unique() {
    let cluster = TestCluster::instant();
    make(&cluster, ZONES, json!({ "zone": "flat", "type": "simple" })).await;
    make(&cluster, ZONES, json!({ "zone": "lan", "type": "vlan", "bridge": "vmbr0" })).await;
    let qinq = json!({ "zone": "qq", "type": "qinq", "bridge": "vmbr0", "tag": 7 });
    make(&cluster, ZONES, qinq).await;
    make(&cluster, ZONES, json!({ "zone": "vx", "type": "vxlan", "peers": "10.0.0.1" })).await;
    for (vnet, zone, tag) in [("l5", "lan", Some(5)), ("q0", "qq", None), ("x9", "vx", Some(9))] {
        make(&cluster, VNETS, json!({ "vnet": vnet, "zone": zone, "tag": tag })).await;
    }
    for (zone, tag, text) in [
        ("flat", Some(5), "vlan tag is not allowed on simple zone"),
        ("lan", None, "missing vlan tag"),
        ("lan", Some(4097), "vlan tag max value is 4096"),
        ("lan", Some(5), "tag 5 already exist in vnet l5"),
        ("qq", None, "tag-less vnet already exists in zone qq vnet q0"),
        ("vx", None, "missing vxlan tag"),
        ("vx", Some(9), "vxlan tag 9 already exist in vnet x9 in zone vx "),
    ] {
        let mut with = json!({ "vnet": "Two", "zone": zone });
        if let Some(tag) = tag {
            with["tag"] = tag.into();
        }
        let reported = refused(&cluster, "POST", VNETS, with).await;
        assert_eq!(reported, format!("create sdn vnet object failed: {WRONG}tag: {text}"));
    }
    make(&cluster, VNETS, json!({ "vnet": "Two", "zone": "lan", "tag": 6 })).await;
    let taken = json!({ "vnet": "Two", "tag": 5 });
    let reported = refused(&cluster, "PUT", VNET, taken).await;
    let text = "tag: tag 5 already exist in vnet l5";
    assert_eq!(reported, format!("update sdn vnet object failed: {WRONG}{text}"));
    assert_eq!(cluster.get(VNET, json!({ "vnet": "Two" })).await["tag"], 6);
    let duplicate = refused(&cluster, "POST", VNETS, json!({ "vnet": "l5", "zone": "lan" })).await;
    let text = "sdn vnet object ID 'l5' already defined";
    assert_eq!(duplicate, format!("create sdn vnet object failed: {text}"));
}

#[tokio::test(start_paused = true)]
async fn a_vnet_with_subnets_keeps_its_zone_and_carries_no_vlans_and_stays() {
    let cluster = TestCluster::instant();
    make(&cluster, ZONES, json!({ "zone": "a", "type": "simple" })).await;
    make(&cluster, ZONES, json!({ "zone": "b", "type": "simple" })).await;
    make(&cluster, VNETS, json!({ "vnet": "a0", "zone": "a" })).await;
    make(&cluster, VNETS, json!({ "vnet": "a1", "zone": "a", "vlanaware": true })).await;
    let net = |vnet: &str, gateway: &str| {
        let subnet = "10.9.0.0/24";
        json!({ "vnet": vnet, "subnet": subnet, "type": "subnet", "gateway": gateway })
    };
    for (with, text) in [
        (net("a0", "10.8.0.1"), "gateway: 10.8.0.1 is not in subnet 10.9.0.0/24"),
        (net("a1", "10.9.0.1"), "vnet: you can't add a subnet on a vlanaware vnet"),
    ] {
        let reported = refused(&cluster, "POST", SUBNETS, with).await;
        assert_eq!(reported, format!("create sdn subnet object failed: {WRONG}{text}"));
    }
    make(&cluster, SUBNETS, net("a0", "10.9.0.1")).await;
    for (method, with, text) in [
        ("PUT", json!({ "vnet": "a0", "zone": "b" }), "zone: can't change zone if subnets exist"),
        (
            "PUT",
            json!({ "vnet": "a0", "vlanaware": true }),
            "vlanaware: vlanaware vnet is not compatible with subnets",
        ),
        ("DELETE", json!({ "vnet": "a0" }), "vnet: Can't delete vnet if subnets exists"),
    ] {
        let reported = refused(&cluster, method, VNET, with).await;
        assert!(
            reported.ends_with(&format!(" sdn vnet object failed: {WRONG}{text}")),
            "{reported}"
        );
    }
    let ipam = refused(&cluster, "PUT", ZONE, json!({ "zone": "a", "ipam": "pve" })).await;
    let text = "ipam: can't change ipam if a subnet is already defined in this zone";
    assert_eq!(ipam, format!("update sdn zone object failed: {WRONG}{text}"));
    let away = json!({ "vnet": "a0", "subnet": "a-10.9.0.0-24", "gateway": "10.8.0.1" });
    let away = refused(&cluster, "PUT", SUBNET, away).await;
    assert!(away.contains("gateway: 10.8.0.1 is not in subnet"), "{away}");
    let own = json!({ "vnet": "a0", "subnet": "a-10.9.0.0-24" });
    assert_eq!(cluster.get(SUBNET, own.clone()).await["gateway"], "10.9.0.1");
    cluster.call("DELETE", SUBNET, own.clone()).await.unwrap();
    // Deleting a missing subnet is no error.
    cluster.call("DELETE", SUBNET, own).await.unwrap();
    cluster.call("DELETE", VNET, json!({ "vnet": "a0" })).await.unwrap();
    for (route, with) in [(VNET, json!({ "vnet": "a0" })), (SUBNETS, json!({ "vnet": "a0" }))] {
        assert_eq!(refused(&cluster, "GET", route, with).await, "sdn vnet 'a0' does not exist");
    }
}
