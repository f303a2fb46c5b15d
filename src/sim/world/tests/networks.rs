// Invariant: interfaces and storages are planned, activated and removed as on a node.

use serde_json::{Value, json};

use super::TestCluster;
use super::fakes::refusal;

const NETWORK: &str = "/nodes/{node}/network";
const IFACE: &str = "/nodes/{node}/network/{iface}";

async fn names(cluster: &TestCluster, kind: &str) -> Vec<String> {
    let list = cluster.get(NETWORK, json!({ "type": kind })).await;
    let names = list.as_array().unwrap().iter();
    names.map(|line| line["iface"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_bridge_carries_guests_once_the_network_was_reloaded() {
    let cluster = TestCluster::instant();
    let bridge = json!({
        "iface": "vmbr7", "type": "bridge", "cidr": "10.7.0.1/24", "autostart": true,
        "comments": "lab",
    });
    cluster.call("POST", NETWORK, bridge.clone()).await.unwrap();
    let duplicate = cluster.call("POST", NETWORK, bridge).await.unwrap_err();
    assert_eq!(duplicate.errors["iface"], "interface already exists");
    let planned = cluster.get(IFACE, json!({ "iface": "vmbr7" })).await;
    assert_eq!((&planned["address"], &planned["netmask"]), (&json!("10.7.0.1"), &json!("24")));
    assert_eq!((&planned["method"], &planned["comments"]), (&json!("static"), &json!("lab\n")));
    assert_eq!(planned.get("active"), None);
    assert_eq!(names(&cluster, "bridge").await, ["vmbr0", "vmbr7"]);
    cluster.clone_to(101).await;
    cluster.vm_call(101, "PUT", "config", json!({ "net0": "virtio,bridge=vmbr7," })).await.unwrap();
    let early = cluster.run_task(101, "POST", "status/start", json!({})).await;
    assert_eq!(early, "start failed: QEMU exited with code 1");
    let upid = cluster.call("PUT", NETWORK, json!({})).await.unwrap().data;
    assert_eq!(cluster.task_end(upid.as_str().unwrap()).await, "OK");
    assert_eq!(cluster.get(IFACE, json!({ "iface": "vmbr7" })).await["active"], 1);
    assert_eq!(cluster.run_task(101, "POST", "status/start", json!({})).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_dropped_by_a_revert() {
    let cluster = TestCluster::instant();
    cluster.call("DELETE", IFACE, json!({ "iface": "vmbr0" })).await.unwrap();
    assert_eq!(names(&cluster, "bridge").await, Vec::<String>::new());
    cluster.call("DELETE", NETWORK, json!({})).await.unwrap();
    assert_eq!(names(&cluster, "bridge").await, ["vmbr0"]);
    let with = json!({ "iface": "vmbr1", "type": "bridge", "bridge_ports": "eth0" });
    let used = cluster.call("POST", NETWORK, with).await.unwrap_err();
    assert_eq!(used.errors["bridge_ports"], "eth0 is already used on interface 'vmbr0'.");
    let missing = cluster.call("GET", IFACE, json!({ "iface": "nope0" })).await.unwrap_err();
    assert_eq!(missing.errors["iface"], "interface does not exist");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_an_interface_keeps_what_it_does_not_name() {
    let cluster = TestCluster::instant();
    let with = json!({ "iface": "vmbr1", "type": "bridge", "cidr": "10.1.0.1/24", "mtu": 1400 });
    cluster.call("POST", NETWORK, with).await.unwrap();
    let with = json!({ "iface": "vmbr1", "type": "bridge", "delete": "cidr", "comments": "x" });
    cluster.call("PUT", IFACE, with).await.unwrap();
    let one = cluster.get(IFACE, json!({ "iface": "vmbr1" })).await;
    assert_eq!((one.get("address"), &one["method"]), (None, &json!("manual")));
    assert_eq!((&one["mtu"], &one["families"]), (&json!("1400"), &json!(["inet"])));
}

// Source: pve-common, Network/Interfaces.pm:401.
#[tokio::test(start_paused = true)]
async fn a_vlan_shows_the_device_and_the_number_in_its_name() {
    let cluster = TestCluster::instant();
    for with in [
        json!({ "iface": "eth0.99", "type": "vlan" }),
        json!({ "iface": "vlan7", "type": "vlan", "vlan-raw-device": "vmbr0" }),
        json!({ "iface": "lab", "type": "vlan", "vlan-raw-device": "eth0", "vlan-id": 12 }),
    ] {
        cluster.call("POST", NETWORK, with).await.unwrap();
    }
    for (iface, device, id, exists) in [
        ("eth0.99", "eth0", "99", json!(1)),
        ("vlan7", "vmbr0", "7", Value::Null),
        ("lab", "eth0", "12", json!(1)),
    ] {
        let one = cluster.get(IFACE, json!({ "iface": iface })).await;
        assert_eq!((&one["vlan-raw-device"], &one["vlan-id"]), (&json!(device), &json!(id)));
        assert_eq!(one.get("exists"), Some(&exists), "{iface}");
    }
    assert_eq!(names(&cluster, "vlan").await, ["eth0.99", "lab", "vlan7"]);
    let nowhere = json!({ "iface": "eth9.5", "type": "vlan" });
    let nowhere = refusal(cluster.call("POST", NETWORK, nowhere).await);
    assert_eq!(nowhere, "vlan 'eth9.5' - unable to find parent 'eth9'");
    let under = refusal(cluster.call("DELETE", IFACE, json!({ "iface": "vmbr0" })).await);
    assert_eq!(under, "vlan 'vlan7' - unable to find parent 'vmbr0'");
    let away = json!({ "iface": "lab", "type": "vlan", "vlan-raw-device": "eth9" });
    let away = refusal(cluster.call("PUT", IFACE, away).await);
    assert_eq!(away, "vlan 'lab' - unable to find parent 'eth9'");
    assert_eq!(names(&cluster, "bridge").await, ["vmbr0"]);
}

#[tokio::test(start_paused = true)]
async fn a_storage_is_defined_used_changed_and_removed() {
    let cluster = TestCluster::instant();
    let unfinished = refusal(
        cluster.call("POST", "/storage", json!({ "storage": "more", "type": "dir" })).await,
    );
    assert_eq!(unfinished, "missing value for required option 'path'");
    let with = json!({
        "storage": "more", "type": "dir", "path": "/mnt/more", "content": "images,iso",
        "nodes": "pve1",
    });
    let made = cluster.call("POST", "/storage", with.clone()).await.unwrap().data;
    assert_eq!(made, json!({ "storage": "more", "type": "dir" }));
    let duplicate = refusal(cluster.call("POST", "/storage", with).await);
    assert_eq!(duplicate, "create storage failed: storage ID 'more' already defined");
    let one = cluster.get("/storage/{storage}", json!({ "storage": "more" })).await;
    assert_eq!((&one["path"], &one["nodes"]), (&json!("/mnt/more"), &json!("pve1")));
    cluster.clone_to(101).await;
    cluster.vm_call(101, "PUT", "config", json!({ "scsi1": "more:1" })).await.unwrap();
    assert_eq!(cluster.config(101).await["scsi1"], "more:101/vm-101-disk-0.raw,size=1G");
    let with = json!({ "storage": "more", "delete": "nodes", "disable": true });
    cluster.call("PUT", "/storage/{storage}", with).await.unwrap();
    let one = cluster.get("/storage/{storage}", json!({ "storage": "more" })).await;
    assert_eq!((one.get("nodes"), &one["disable"]), (None, &json!(1)));
    cluster.call("DELETE", "/storage/{storage}", json!({ "storage": "more" })).await.unwrap();
    let missing = cluster.call("PUT", "/storage/{storage}", json!({ "storage": "more" })).await;
    assert_eq!(refusal(missing), "update storage failed: storage 'more' does not exist");
}

// Source: pve-storage, API2/Storage/Config.pm, and the options of Storage/*Plugin.pm.
#[tokio::test(start_paused = true)]
async fn a_storage_has_the_options_of_its_type_and_some_for_good() {
    let cluster = TestCluster::instant();
    let one = "/storage/{storage}";
    for (with, text) in [
        (
            json!({ "storage": "a", "type": "dir", "path": "/a", "pool": "x" }),
            "unexpected property 'pool'",
        ),
        (
            json!({ "storage": "a", "type": "dir", "path": "/a b" }),
            "illegal path for directory storage: /a b",
        ),
        (
            json!({ "storage": "a", "type": "cifs", "server": "nas" }),
            "missing value for required option 'share'",
        ),
    ] {
        assert_eq!(refusal(cluster.call("POST", "/storage", with).await), text);
    }
    let with = json!({
        "storage": "nas", "type": "nfs", "server": "10.0.0.9", "export": "/ci", "content": "iso",
    });
    cluster.call("POST", "/storage", with).await.unwrap();
    let made = cluster.get(one, json!({ "storage": "nas" })).await;
    assert_eq!((&made["path"], &made["server"]), (&json!("/mnt/pve/nas"), &json!("10.0.0.9")));
    for (with, text) in [
        (
            json!({ "storage": "nas", "server": "10.0.0.8" }),
            "can't change value of fixed parameter 'server'",
        ),
        (json!({ "storage": "nas", "krbd": true }), "unexpected property 'krbd'"),
        (json!({ "storage": "nas", "delete": "vgname" }), "no such option 'vgname'"),
    ] {
        let reported = refusal(cluster.call("PUT", one, with).await);
        assert_eq!(reported, format!("update storage failed: {text}"));
    }
    let with = json!({ "storage": "nas", "content": "backup", "digest": made["digest"] });
    cluster.call("PUT", one, with.clone()).await.unwrap();
    let stale = refusal(cluster.call("PUT", one, with).await);
    assert!(stale.contains("detected modified configuration"), "{stale}");
}

// Source: pve-storage, Storage/Plugin.pm, list_volumes.
#[tokio::test(start_paused = true)]
async fn a_list_of_one_guests_volumes_also_shows_volumes_without_an_owner() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster.clone_to(102).await;
    cluster.control.add_volume("pve1", "local:iso/a.iso", 4096);
    let volumes = async |storage: &str| {
        let with = json!({ "storage": storage, "vmid": 101 });
        let list = cluster.get("/nodes/{node}/storage/{storage}/content", with).await;
        let volids = list.as_array().unwrap().iter().map(|line| line["volid"].to_string());
        volids.collect::<Vec<_>>()
    };
    let own = volumes("local-lvm").await;
    assert!(!own.is_empty() && own.iter().all(|volid| volid.contains("-101-")), "{own:?}");
    assert_eq!(volumes("local").await, ["\"local:iso/a.iso\""]);
}

#[tokio::test(start_paused = true)]
async fn services_processors_and_machines_are_listed() {
    let cluster = TestCluster::instant();
    let find = |list: &Value, key: &str, name: &str| {
        list.as_array().unwrap().iter().find(|line| line[key] == name).cloned()
    };
    let services = cluster.get("/nodes/{node}/services", json!({})).await;
    assert_eq!(find(&services, "name", "pveproxy").unwrap()["state"], "running");
    let state = "/nodes/{node}/services/{service}/state";
    let one = cluster.get(state, json!({ "service": "corosync" })).await;
    assert_eq!((&one["state"], &one["active-state"]), (&json!("running"), &json!("active")));
    let models = cluster.get("/nodes/{node}/capabilities/qemu/cpu", json!({})).await;
    assert_eq!(find(&models, "name", "EPYC").unwrap()["vendor"], "AuthenticAMD");
    let machines = cluster.get("/nodes/{node}/capabilities/qemu/machines", json!({})).await;
    assert_eq!(machines[1], json!({ "id": "pc-q35-9.2", "type": "q35", "version": "9.2" }));
    assert_eq!(cluster.get("/nodes/{node}/replication", json!({})).await, json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_console_gives_a_ticket_and_its_task_waits_in_vain() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    let with = json!({ "generate-password": true });
    let data = cluster.vm_call(101, "POST", "vncproxy", with).await.unwrap().data;
    assert!(data["ticket"].as_str().unwrap().starts_with("PVEVNC:"), "{data}");
    assert_eq!((&data["port"], &data["user"]), (&json!("5900"), &json!("root@pam!drover")));
    assert_eq!(data["password"].as_str().unwrap().len(), 8);
    let upid = data["upid"].as_str().unwrap();
    assert_eq!(cluster.task_end(upid).await, "connection timed out");
    let missing = refusal(cluster.vm_call(777, "POST", "vncproxy", json!({})).await);
    assert_eq!(missing, "Configuration file 'nodes/pve1/qemu-server/777.conf' does not exist");
}
