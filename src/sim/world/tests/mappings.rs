// Invariant: mappings and servers of metrics are kept, shown and checked as pve-manager,
// API2/Cluster/Mapping/*.pm and API2/Cluster/MetricServer.pm, does.

use serde_json::{Value, json};

use super::Play;
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
    let play = Play::at_once();
    play.call("POST", PCI, card()).await.unwrap();
    let twice = refusal(play.call("POST", PCI, card()).await);
    assert_eq!(twice, "create hardware mapping failed: pci ID 'card' already defined");
    let one = play.get(PCI_ONE, json!({ "id": "card" })).await;
    assert_eq!((&one["map"], &one["mdev"]), (&json!([HERE]), &json!(1)));
    assert_eq!((&one["type"], one.get("id")), (&json!("pci"), None));
    assert_eq!(one["digest"].as_str().unwrap().len(), 40);
    let list = play.get(PCI, json!({})).await;
    assert_eq!((&list[0]["id"], list[0].get("checks")), (&json!("card"), None));
    assert_eq!(play.get(USB, json!({})).await, json!([]));
    let nobody = Caller { userid: "none@pve".into(), token: None };
    let seen = play.call_as(&nobody, "GET", PCI, json!({})).await.unwrap();
    assert_eq!(seen.value(), json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_mapping_says_the_whole_map_and_works_on_what_is_there() {
    let play = Play::at_once();
    play.call("POST", PCI, card()).await.unwrap();
    let one = play.get(PCI_ONE, json!({ "id": "card" })).await;
    for (with, text) in [
        (json!({ "id": "card", "mdev": false }), "missing value for required option 'map'"),
        (json!({ "id": "card", "map": [HERE], "delete": "nope" }), "no such option 'nope'"),
        (
            json!({ "id": "card", "map": [HERE], "delete": "map" }),
            "unable to delete required option 'map'",
        ),
        (json!({ "id": "none", "map": [HERE] }), "pci ID 'none' does not exist"),
    ] {
        let told = refusal(play.call("PUT", PCI_ONE, with).await);
        assert_eq!(told, format!("update hardware mapping failed: {text}"));
    }
    let mut with = json!({ "id": "card", "map": [HERE], "delete": "mdev" });
    with["digest"] = one["digest"].clone();
    play.call("PUT", PCI_ONE, with.clone()).await.unwrap();
    let stale = refusal(play.call("PUT", PCI_ONE, with).await);
    assert!(stale.contains("detected modified configuration"), "{stale}");
    assert_eq!(play.get(PCI_ONE, json!({ "id": "card" })).await.get("mdev"), None);
    for _ in 0..2 {
        play.call("DELETE", PCI_ONE, json!({ "id": "card" })).await.unwrap();
    }
    let gone = refusal(play.call("GET", PCI_ONE, json!({ "id": "card" })).await);
    assert_eq!(gone, "mapping 'card' not found");
}

#[tokio::test(start_paused = true)]
async fn a_check_finds_the_devices_that_a_node_lists_and_no_others() {
    let play = Play::at_once();
    let maps = [HERE, "node=pve1,path=0000:09:00,id=10de:1", "node=pve1,path=0000:00:02.0,id=a:b"];
    let with = json!({ "id": "card", "map": maps });
    play.call("POST", PCI, with).await.unwrap();
    let list = play.get(PCI, json!({ "check-node": "pve1" })).await;
    let line = |text: &str| {
        let text = format!("Invalid configuration: {text}\n");
        json!({ "severity": "error", "message": text })
    };
    let expected = [
        line("pci device '0000:09:00.0' not found"),
        line("'id' does not match for 'card' (1af4:1041 != a:b)"),
    ];
    assert_eq!(list[0]["checks"], json!(expected));
    let elsewhere = play.get(PCI, json!({ "check-node": "pve2" })).await;
    let none = json!([{ "severity": "warning", "message": "No mapping for node pve2." }]);
    assert_eq!(elsewhere[0]["checks"], none);
    let nowhere = refusal(play.call("GET", PCI, json!({ "check-node": "pve9" })).await);
    assert!(nowhere.starts_with("hostname lookup 'pve9' failed"), "{nowhere}");
    let stick = json!({ "id": "stick", "map": ["node=pve1,id=0781:5567"] });
    play.call("POST", USB, stick).await.unwrap();
    let usb = play.get(USB, json!({ "check-node": "localhost" })).await;
    assert_eq!(usb[0]["errors"], json!([line("usb device '0781:5567' not found")]));
}

#[tokio::test(start_paused = true)]
async fn a_node_has_a_directory_once() {
    let play = Play::at_once();
    let maps = json!(["node=pve1,path=/srv/a", "node=pve1,path=/srv/b"]);
    let told = refusal(play.call("POST", DIR, json!({ "id": "share", "map": maps })).await);
    assert_eq!(told, "Node 'pve1' is specified 2 times.");
    let maps = json!(["node=pve1,path=/srv/a", "node=pve2,path=/srv/b"]);
    play.call("POST", DIR, json!({ "id": "share", "map": maps })).await.unwrap();
    assert_eq!(play.get(DIR, json!({ "check-node": "pve1" })).await[0]["checks"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_server_of_metrics_is_kept_without_its_token() {
    let play = Play::at_once();
    let with = json!({
        "id": "db", "type": "influxdb", "server": "10.0.0.9", "port": 8086, "token": "secret",
        "influxdbproto": "https", "verify-certificate": false, "bucket": "ci",
    });
    play.call("POST", SERVER, with.clone()).await.unwrap();
    let twice = refusal(play.call("POST", SERVER, with).await);
    assert_eq!(twice, "Metric server 'db' already exists");
    let shown = json!({
        "type": "influxdb", "server": "10.0.0.9", "port": 8086, "influxdbproto": "https",
        "verify-certificate": 0, "bucket": "ci",
    });
    assert_eq!(play.get(SERVER, json!({ "id": "db" })).await, shown);
    let with = json!({ "id": "db", "disable": true, "delete": "bucket,token" });
    play.call("PUT", SERVER, with).await.unwrap();
    let line = json!({
        "id": "db", "type": "influxdb", "server": "10.0.0.9", "port": 8086, "disable": 1,
    });
    assert_eq!(play.get(SERVERS, json!({})).await, json!([line]));
    assert_eq!(play.get(SERVER, json!({ "id": "db" })).await.get("bucket"), None);
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
        assert_eq!(refusal(play.call(method, SERVER, with).await), text);
    }
    play.call("DELETE", SERVER, json!({ "id": "db" })).await.unwrap();
    assert_eq!(play.get(SERVERS, json!({})).await, json!([]));
}

#[tokio::test(start_paused = true)]
async fn the_newest_type_of_server_is_of_9() {
    let with =
        json!({ "id": "o", "type": "opentelemetry", "server": "10.0.0.9", "otel-timeout": 5 });
    let eight = refusal(Play::at_once().call("POST", SERVER, with.clone()).await);
    assert_eq!(eight, "unknown section type 'opentelemetry'");
    let nine = Play::with(WorldOptions { version: PveVersion::V9_2, ..WorldOptions::default() });
    nine.call("POST", SERVER, with).await.unwrap();
    let one = nine.get(SERVER, json!({ "id": "o" })).await;
    assert_eq!((&one["otel-timeout"], one.get("port")), (&json!(5), None));
    assert_eq!(nine.get(SERVERS, json!({})).await[0]["port"], Value::Null);
}
