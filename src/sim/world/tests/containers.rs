// Invariant: behaviour section 18, where containers differ from virtual machines.

use serde_json::{Value, json};

use super::Play;
use super::fakes::{refusal, seconds};
use crate::sim::call::{Caller, Outcome};
use crate::sim::spec::PveVersion;
use crate::sim::world::WorldOptions;

const CREATE: &str = "/nodes/{node}/lxc";
const TEMPLATE: &str = "local:vztmpl/debian-12-standard_12.12-1_amd64.tar.zst";

/// A call below a container on `pve1`.
async fn on(play: &Play, vmid: u32, method: &'static str, rest: &str, with: Value) -> Outcome {
    let mut with = with;
    with["vmid"] = vmid.into();
    let route = Box::leak(format!("/nodes/{{node}}/lxc/{{vmid}}{rest}").into_boxed_str());
    play.call(method, route, with).await
}

async fn end(play: &Play, outcome: Outcome) -> String {
    let upid = outcome.unwrap().data.as_str().unwrap().to_owned();
    play.end_of(&upid).await
}

fn wishes(vmid: u32) -> Value {
    json!({
        "vmid": vmid, "ostemplate": TEMPLATE, "rootfs": "local-lvm:8", "hostname": "box",
        "net0": "name=eth0,bridge=vmbr0,ip=dhcp", "features": "nesting=1", "pool": "ci",
        "ssh-public-keys": "ssh-ed25519 AAAA me", "tags": "B;a", "onboot": true,
    })
}

/// A world with a container template fetched, and container 101 made.
async fn with_container(play: &Play) {
    let with = json!({ "storage": "local", "template": TEMPLATE.rsplit('/').next() });
    assert_eq!(end(play, play.call("POST", "/nodes/{node}/aplinfo", with).await).await, "OK");
    assert_eq!(end(play, play.call("POST", CREATE, wishes(101)).await).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn a_container_is_made_from_a_template_that_was_fetched() {
    let play = Play::at_once();
    let early = play.call("POST", CREATE, wishes(101)).await;
    let reason = end(&play, early).await;
    assert_eq!(reason, format!("unable to create CT 101 - volume '{TEMPLATE}' does not exist"));
    with_container(&play).await;
    let config = on(&play, 101, "GET", "/config", json!({})).await.unwrap().data;
    assert_eq!(config["rootfs"], "local-lvm:vm-101-disk-0,size=8G");
    assert_eq!((&config["unprivileged"], &config["onboot"]), (&json!(1), &json!(1)));
    assert_eq!((&config["ostype"], &config["tags"]), (&json!("debian"), &json!("a;b")));
    assert!(config["net0"].as_str().unwrap().contains("hwaddr=BC:24:11:"));
    assert_eq!(config.get("ssh-public-keys"), None);
    let line = play.line(101).await.unwrap();
    assert_eq!((&line["id"], &line["status"]), (&json!("lxc/101"), &json!("unknown")));
    assert_eq!(line["pool"], "ci");
    seconds(11).await;
    assert_eq!(play.line(101).await.unwrap()["name"], "box");
}

#[tokio::test(start_paused = true)]
async fn ids_are_one_space_with_virtual_machines() {
    let play = Play::at_once();
    with_container(&play).await;
    let taken = refusal(play.call("POST", CREATE, wishes(101)).await);
    assert_eq!(taken, "unable to create CT 101 - CT 101 already exists on node 'pve1'");
    let vm = refusal(play.call("POST", CREATE, wishes(9000)).await);
    assert_eq!(vm, "unable to create CT 9000 - VM 9000 already exists on node 'pve1'");
    let create = play.call("POST", "/nodes/{node}/qemu", json!({ "vmid": 101 })).await;
    assert_eq!(refusal(create), "unable to create VM 101 - CT 101 already exists on node 'pve1'");
    // A clone only looks into its own directory: the file system refuses its task.
    let clone = play.run(9000, "POST", "clone", json!({ "newid": 101 })).await;
    assert!(clone.ends_with("failed: File exists"), "{clone}");
    assert_eq!(play.get("/cluster/nextid", json!({})).await, "100");
}

#[tokio::test(start_paused = true)]
async fn power_that_makes_no_sense_is_refused_in_the_request() {
    let play = Play::at_once();
    with_container(&play).await;
    for rest in ["/status/stop", "/status/shutdown", "/status/reboot"] {
        let outcome = on(&play, 101, "POST", rest, json!({})).await;
        assert_eq!(refusal(outcome), "CT 101 not running", "{rest}");
    }
    assert_eq!(end(&play, on(&play, 101, "POST", "/status/start", json!({})).await).await, "OK");
    let again = on(&play, 101, "POST", "/status/start", json!({})).await;
    assert_eq!(refusal(again), "CT 101 already running");
    let gone = on(&play, 101, "DELETE", "", json!({})).await;
    assert_eq!(refusal(gone), "unable to destroy CT 101 - container is running");
    assert_eq!(
        end(&play, on(&play, 101, "DELETE", "", json!({ "force": true })).await).await,
        "OK"
    );
    assert_eq!(
        refusal(on(&play, 101, "GET", "/config", json!({})).await),
        "Configuration file 'nodes/pve1/lxc/101.conf' does not exist"
    );
    assert!(play.side.volumes("pve1", "local-lvm").iter().all(|volid| !volid.contains("-101-")));
}

#[tokio::test(start_paused = true)]
async fn addresses_are_told_without_an_agent_and_null_while_it_is_stopped() {
    let play = Play::at_once();
    with_container(&play).await;
    assert_eq!(on(&play, 101, "GET", "/interfaces", json!({})).await.unwrap().data, Value::Null);
    assert_eq!(end(&play, on(&play, 101, "POST", "/status/start", json!({})).await).await, "OK");
    let faces = on(&play, 101, "GET", "/interfaces", json!({})).await.unwrap().data;
    assert_eq!((&faces[0]["name"], &faces[1]["name"]), (&json!("lo"), &json!("eth0")));
    assert_eq!(faces[1]["inet"], "10.0.0.5/24");
    assert_eq!(faces[1]["ip-addresses"][0]["ip-address-type"], "inet");
    // Its inside hears the keys that were given when it was made.
    let boots = play.guests.boots.lock().unwrap();
    let boot = boots.last().unwrap();
    assert_eq!((boot.hostname.as_str(), boot.config["ciuser"].as_str()), ("box", "root"));
    assert_eq!(boot.config["sshkeys"], "ssh%2Ded25519%20AAAA%20me");
}

#[tokio::test(start_paused = true)]
async fn clones_of_one_container_come_one_after_another() {
    let play = Play::steady();
    with_container(&play).await;
    let first = on(&play, 101, "POST", "/clone", json!({ "newid": 201, "hostname": "one" })).await;
    let second = on(&play, 101, "POST", "/clone", json!({ "newid": 202 })).await;
    assert_eq!(refusal(second), "CT is locked (disk)");
    assert!(play.side.guests().iter().all(|vmid| *vmid != 202));
    assert_eq!(end(&play, first).await, "OK");
    let second = on(&play, 101, "POST", "/clone", json!({ "newid": 202 })).await;
    assert_eq!(end(&play, second).await, "OK");
    let config = on(&play, 201, "GET", "/config", json!({})).await.unwrap().data;
    let old = on(&play, 101, "GET", "/config", json!({})).await.unwrap().data;
    assert_eq!((&config["hostname"], config.get("lock")), (&json!("one"), None));
    assert_ne!(config["net0"], old["net0"]);
    assert_eq!(config["rootfs"], "local-lvm:vm-201-disk-0,size=8G");
}

#[tokio::test(start_paused = true)]
async fn a_template_is_linked_where_the_result_is_no_file() {
    let play = Play::at_once();
    with_container(&play).await;
    on(&play, 101, "POST", "/template", json!({})).await.unwrap();
    let linked = on(&play, 101, "POST", "/clone", json!({ "newid": 201 })).await;
    assert_eq!(end(&play, linked).await, "OK");
    let start = on(&play, 101, "POST", "/status/start", json!({})).await;
    assert_eq!(end(&play, start).await, "you can't start a CT if it's a template");
}

#[tokio::test(start_paused = true)]
async fn disks_grow_and_snapshots_go_back() {
    let play = Play::at_once();
    with_container(&play).await;
    let with = json!({ "disk": "rootfs", "size": "+2G" });
    assert_eq!(end(&play, on(&play, 101, "PUT", "/resize", with).await).await, "OK");
    let with = json!({ "disk": "rootfs", "size": "1G" });
    let shrunk = end(&play, on(&play, 101, "PUT", "/resize", with).await).await;
    assert_eq!(shrunk, "unable to shrink disk size");
    let with = json!({ "snapname": "before" });
    assert_eq!(end(&play, on(&play, 101, "POST", "/snapshot", with.clone()).await).await, "OK");
    on(&play, 101, "PUT", "/config", json!({ "hostname": "other", "memory": 1024 })).await.unwrap();
    let back = on(&play, 101, "POST", "/snapshot/{snapname}/rollback", with.clone()).await;
    assert_eq!(end(&play, back).await, "OK");
    let config = on(&play, 101, "GET", "/config", json!({})).await.unwrap().data;
    assert_eq!((&config["hostname"], &config["memory"]), (&json!("box"), &json!(512)));
    assert_eq!((&config["parent"], &config["digest"].is_string()), (&json!("before"), &true));
    let gone = on(&play, 101, "DELETE", "/snapshot/{snapname}", with).await;
    assert_eq!(end(&play, gone).await, "OK");
    let list = on(&play, 101, "GET", "/snapshot", json!({})).await.unwrap().data;
    assert_eq!(list.as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_roots_and_what_needs_more_on_9_is_refused() {
    let caller = Caller { userid: "ci@pve".into(), token: None };
    let options = WorldOptions { version: PveVersion::V9_2, ..WorldOptions::default() };
    let play = Play::with(options);
    let mut with = wishes(101);
    with["features"] = "fuse=1".into();
    let fuse = refusal(play.call_as(&caller, "POST", CREATE, with).await);
    assert!(fuse.contains("(except nesting) is only allowed for root@pam"), "{fuse}");
    let mut with = wishes(101);
    with["mp0"] = "/srv,mp=/srv".into();
    let bind = play.call_as(&caller, "POST", CREATE, with).await;
    assert!(bind.is_ok() || refusal(bind).contains("root@pam"));
    let nobody = Caller { userid: "none@pve".into(), token: None };
    let denied = refusal(play.call_as(&nobody, "POST", CREATE, wishes(102)).await);
    assert_eq!(denied, "Permission check failed");
}

#[tokio::test(start_paused = true)]
async fn a_container_of_a_node_that_dies_stops_and_comes_back_with_it() {
    let play = Play::at_once();
    with_container(&play).await;
    assert_eq!(end(&play, on(&play, 101, "POST", "/status/start", json!({})).await).await, "OK");
    play.side.node_down("pve1").await;
    seconds(1).await;
    play.side.node_up("pve1");
    seconds(1).await;
    let status = on(&play, 101, "GET", "/status/current", json!({})).await.unwrap().data;
    assert_eq!((&status["status"], &status["type"]), (&json!("running"), &json!("lxc")));
}
