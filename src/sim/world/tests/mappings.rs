// Invariant: mappings and metric servers are stored, shown and checked as in pve-manager,
// API2/Cluster/Mapping/*.pm and API2/Cluster/MetricServer.pm.

use serde_json::{Value, json};

use super::TestCluster;
use super::fakes::refusal;
use crate::call::Caller;
use crate::spec::PveVersion;
use crate::world::WorldOptions;

const PCI: &str = "/cluster/mapping/pci";
const PCI_ONE: &str = "/cluster/mapping/pci/{id}";
const USB: &str = "/cluster/mapping/usb";
const DIR: &str = "/cluster/mapping/dir";
const SERVERS: &str = "/cluster/metrics/server";
const SERVER: &str = "/cluster/metrics/server/{id}";
const HERE: &str = "node=pve1,path=0000:00:01.0,id=1af4:1042";

fn card() -> Value {
    json!({ "id": "card", "map": [HERE], "mdev": true, "description": "of a rack" })
}

#[tokio::test(start_paused = true)]
async fn a_mapping_is_read_back_in_the_types_of_the_schema() {
    let cluster = TestCluster::instant();
    cluster.call("POST", PCI, card()).await.unwrap();
    let duplicate = refusal(cluster.call("POST", PCI, card()).await);
    assert_eq!(duplicate, "create hardware mapping failed: pci ID 'card' already defined");
    let one = cluster.get(PCI_ONE, json!({ "id": "card" })).await;
    assert_eq!((&one["map"], &one["mdev"]), (&json!([HERE]), &json!(1)));
    assert_eq!((&one["type"], one.get("id")), (&json!("pci"), None));
    assert_eq!(one["digest"].as_str().unwrap().len(), 40);
    let list = cluster.get(PCI, json!({})).await;
    assert_eq!((&list[0]["id"], list[0].get("checks")), (&json!("card"), None));
    assert_eq!(cluster.get(USB, json!({})).await, json!([]));
    let stranger = Caller { userid: "none@pve".into(), token: None };
    let visible = cluster.call_as(&stranger, "GET", PCI, json!({})).await.unwrap();
    assert_eq!(visible.value(), json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_mapping_sends_the_whole_map_and_needs_an_existing_mapping() {
    let cluster = TestCluster::instant();
    cluster.call("POST", PCI, card()).await.unwrap();
    let one = cluster.get(PCI_ONE, json!({ "id": "card" })).await;
    for (with, text) in [
        (json!({ "id": "card", "mdev": false }), "missing value for required option 'map'"),
        (json!({ "id": "card", "map": [HERE], "delete": "nope" }), "no such option 'nope'"),
        (
            json!({ "id": "card", "map": [HERE], "delete": "map" }),
            "unable to delete required option 'map'",
        ),
        (json!({ "id": "none", "map": [HERE] }), "pci ID 'none' does not exist"),
    ] {
        let reported = refusal(cluster.call("PUT", PCI_ONE, with).await);
        assert_eq!(reported, format!("update hardware mapping failed: {text}"));
    }
    let mut with = json!({ "id": "card", "map": [HERE], "delete": "mdev" });
    with["digest"] = one["digest"].clone();
    cluster.call("PUT", PCI_ONE, with.clone()).await.unwrap();
    let stale = refusal(cluster.call("PUT", PCI_ONE, with).await);
    assert!(stale.contains("detected modified configuration"), "{stale}");
    assert_eq!(cluster.get(PCI_ONE, json!({ "id": "card" })).await.get("mdev"), None);
    for _ in 0..2 {
        cluster.call("DELETE", PCI_ONE, json!({ "id": "card" })).await.unwrap();
    }
    let missing = refusal(cluster.call("GET", PCI_ONE, json!({ "id": "card" })).await);
    assert_eq!(missing, "mapping 'card' not found");
}

#[tokio::test(start_paused = true)]
async fn a_check_finds_the_devices_that_a_node_lists_and_no_others() {
    let cluster = TestCluster::instant();
    let maps = [HERE, "node=pve1,path=0000:09:00,id=10de:1", "node=pve1,path=0000:00:02.0,id=a:b"];
    let with = json!({ "id": "card", "map": maps });
    cluster.call("POST", PCI, with).await.unwrap();
    let list = cluster.get(PCI, json!({ "check-node": "pve1" })).await;
    let line = |text: &str| {
        let text = format!("Invalid configuration: {text}\n");
        json!({ "severity": "error", "message": text })
    };
    let expected = [
        line("pci device '0000:09:00.0' not found"),
        line("'id' does not match for 'card' (1af4:1041 != a:b)"),
    ];
    assert_eq!(list[0]["checks"], json!(expected));
    let elsewhere = cluster.get(PCI, json!({ "check-node": "pve2" })).await;
    let none = json!([{ "severity": "warning", "message": "No mapping for node pve2." }]);
    assert_eq!(elsewhere[0]["checks"], none);
    let nowhere = refusal(cluster.call("GET", PCI, json!({ "check-node": "pve9" })).await);
    assert!(nowhere.starts_with("hostname lookup 'pve9' failed"), "{nowhere}");
    let stick = json!({ "id": "stick", "map": ["node=pve1,id=0781:5567"] });
    cluster.call("POST", USB, stick).await.unwrap();
    let usb = cluster.get(USB, json!({ "check-node": "localhost" })).await;
    assert_eq!(usb[0]["errors"], json!([line("usb device '0781:5567' not found")]));
}

#[tokio::test(start_paused = true)]
async fn a_node_has_a_directory_once() {
    let cluster = TestCluster::instant();
    let maps = json!(["node=pve1,path=/srv/a", "node=pve1,path=/srv/b"]);
    let reported = refusal(cluster.call("POST", DIR, json!({ "id": "share", "map": maps })).await);
    assert_eq!(reported, "Node 'pve1' is specified 2 times.");
    let maps = json!(["node=pve1,path=/srv/a", "node=pve2,path=/srv/b"]);
    cluster.call("POST", DIR, json!({ "id": "share", "map": maps })).await.unwrap();
    assert_eq!(cluster.get(DIR, json!({ "check-node": "pve1" })).await[0]["checks"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_server_of_metrics_is_kept_without_its_token() {
    let cluster = TestCluster::instant();
    let with = json!({
        "id": "db", "type": "influxdb", "server": "10.0.0.9", "port": 8086, "token": "secret",
        "influxdbproto": "https", "verify-certificate": false, "bucket": "ci",
    });
    cluster.call("POST", SERVER, with.clone()).await.unwrap();
    let duplicate = refusal(cluster.call("POST", SERVER, with).await);
    assert_eq!(duplicate, "Metric server 'db' already exists");
    let shown = json!({
        "type": "influxdb", "server": "10.0.0.9", "port": 8086, "influxdbproto": "https",
        "verify-certificate": 0, "bucket": "ci",
    });
    assert_eq!(cluster.get(SERVER, json!({ "id": "db" })).await, shown);
    let with = json!({ "id": "db", "disable": true, "delete": "bucket,token" });
    cluster.call("PUT", SERVER, with).await.unwrap();
    let line = json!({
        "id": "db", "type": "influxdb", "server": "10.0.0.9", "port": 8086, "disable": 1,
    });
    assert_eq!(cluster.get(SERVERS, json!({})).await, json!([line]));
    assert_eq!(cluster.get(SERVER, json!({ "id": "db" })).await.get("bucket"), None);
    for (method, with, text) in [
        ("PUT", json!({ "id": "db", "delete": "port" }), "unable to delete required option 'port'"),
        ("PUT", json!({ "id": "db", "proto": "tcp" }), "unexpected property 'proto'"),
        ("PUT", json!({ "id": "no", "disable": true }), "no such server 'no'"),
        ("GET", json!({ "id": "no" }), "status server entry 'no' does not exist"),
        (
            "POST",
            json!({ "id": "g", "type": "graphite" }),
            "missing value for required option 'server'",
        ),
    ] {
        assert_eq!(refusal(cluster.call(method, SERVER, with).await), text);
    }
    cluster.call("DELETE", SERVER, json!({ "id": "db" })).await.unwrap();
    assert_eq!(cluster.get(SERVERS, json!({})).await, json!([]));
}

#[tokio::test(start_paused = true)]
async fn the_newest_type_of_server_is_of_9() {
    let with =
        json!({ "id": "o", "type": "opentelemetry", "server": "10.0.0.9", "otel-timeout": 5 });
    let eight = refusal(TestCluster::instant().call("POST", SERVER, with.clone()).await);
    assert_eq!(eight, "unknown section type 'opentelemetry'");
    let nine =
        TestCluster::with(WorldOptions { version: PveVersion::V9_2, ..WorldOptions::default() });
    nine.call("POST", SERVER, with).await.unwrap();
    let one = nine.get(SERVER, json!({ "id": "o" })).await;
    assert_eq!((&one["otel-timeout"], one.get("port")), (&json!(5), None));
    assert_eq!(nine.get(SERVERS, json!({})).await[0]["port"], Value::Null);
}

// Invariant: a VM takes a free device of its mapping when it starts, or does not start.

#[tokio::test(start_paused = true)]
async fn a_device_of_a_mapping_serves_one_running_vm_at_a_time() {
    let cluster = TestCluster::instant();
    let second = "node=pve1,path=0000:00:02.0,id=1af4:1041";
    cluster.call("POST", PCI, json!({ "id": "cards", "map": [HERE, second] })).await.unwrap();
    for vmid in [101, 102, 103] {
        cluster.clone_to(vmid).await;
        let device = json!({ "hostpci0": "mapping=cards" });
        cluster.vm_call(vmid, "PUT", "config", device).await.unwrap();
    }
    let start = async |vmid: u32| {
        let task = cluster.vm_call(vmid, "POST", "status/start", json!({})).await.unwrap();
        cluster.task_end(task.data.as_str().unwrap()).await
    };
    assert_eq!((start(101).await.as_str(), start(102).await.as_str()), ("OK", "OK"));
    assert_eq!(start(103).await, "could not find a free device for 'hostpci0'");
    cluster.run_task(101, "POST", "status/stop", json!({})).await;
    assert_eq!(start(103).await, "OK");

    cluster.call("POST", PCI, json!({ "id": "card", "map": [HERE] })).await.unwrap();
    let one = json!({ "hostpci0": "mapping=card" });
    cluster.vm_call(101, "PUT", "config", one).await.unwrap();
    assert_eq!(start(101).await, "PCI device '0000:00:01.0' already in use by VMID '103'");
    let none = json!({ "hostpci0": "mapping=nope" });
    cluster.vm_call(101, "PUT", "config", none).await.unwrap();
    assert_eq!(start(101).await, "PCI device mapping not found for 'nope'");
}
