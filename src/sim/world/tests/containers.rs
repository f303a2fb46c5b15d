// Invariant (book: proxmox, section 18): the differences between containers and VMs.

use serde_json::{Value, json};

use super::TestCluster;
use super::fakes::{refusal, seconds};
use crate::call::{Caller, Outcome};
use crate::spec::PveVersion;
use crate::world::WorldOptions;

const CREATE: &str = "/nodes/{node}/lxc";
const TEMPLATE: &str = "local:vztmpl/debian-12-standard_12.12-1_amd64.tar.zst";

/// Makes a call below a container on `pve1`.
async fn container_call(
    cluster: &TestCluster,
    vmid: u32,
    method: &'static str,
    rest: &str,
    with: Value,
) -> Outcome {
    let mut with = with;
    with["vmid"] = vmid.into();
    let route = Box::leak(format!("/nodes/{{node}}/lxc/{{vmid}}{rest}").into_boxed_str());
    cluster.call(method, route, with).await
}

async fn end(cluster: &TestCluster, outcome: Outcome) -> String {
    let upid = outcome.unwrap().data.as_str().unwrap().to_owned();
    cluster.task_end(&upid).await
}

fn create_parameters(vmid: u32) -> Value {
    json!({
        "vmid": vmid, "ostemplate": TEMPLATE, "rootfs": "local-lvm:8", "hostname": "box",
        "net0": "name=eth0,bridge=vmbr0,ip=dhcp", "features": "nesting=1", "pool": "ci",
        "ssh-public-keys": "ssh-ed25519 AAAA me", "tags": "B;a", "onboot": true,
    })
}

/// A cluster with a downloaded container template and container 101.
async fn with_container(cluster: &TestCluster) {
    let with = json!({ "storage": "local", "template": TEMPLATE.rsplit('/').next() });
    assert_eq!(end(cluster, cluster.call("POST", "/nodes/{node}/aplinfo", with).await).await, "OK");
    assert_eq!(
        end(cluster, cluster.call("POST", CREATE, create_parameters(101)).await).await,
        "OK"
    );
}

#[tokio::test(start_paused = true)]
async fn a_container_is_made_from_a_template_that_was_fetched() {
    let cluster = TestCluster::instant();
    let early = cluster.call("POST", CREATE, create_parameters(101)).await;
    let reason = end(&cluster, early).await;
    assert_eq!(reason, format!("unable to create CT 101 - volume '{TEMPLATE}' does not exist"));
    with_container(&cluster).await;
    let config = container_call(&cluster, 101, "GET", "/config", json!({})).await.unwrap().data;
    assert_eq!(config["rootfs"], "local-lvm:vm-101-disk-0,size=8G");
    assert_eq!((&config["unprivileged"], &config["onboot"]), (&json!(1), &json!(1)));
    assert_eq!((&config["ostype"], &config["tags"]), (&json!("debian"), &json!("a;b")));
    assert!(config["net0"].as_str().unwrap().contains("hwaddr=BC:24:11:"));
    assert_eq!(config.get("ssh-public-keys"), None);
    let line = cluster.inventory_entry(101).await.unwrap();
    assert_eq!((&line["id"], &line["status"]), (&json!("lxc/101"), &json!("unknown")));
    assert_eq!(line["pool"], "ci");
    seconds(11).await;
    assert_eq!(cluster.inventory_entry(101).await.unwrap()["name"], "box");
}

#[tokio::test(start_paused = true)]
async fn ids_are_one_space_with_virtual_machines() {
    let cluster = TestCluster::instant();
    with_container(&cluster).await;
    let taken = refusal(cluster.call("POST", CREATE, create_parameters(101)).await);
    assert_eq!(taken, "unable to create CT 101 - CT 101 already exists on node 'pve1'");
    let vm = refusal(cluster.call("POST", CREATE, create_parameters(9000)).await);
    assert_eq!(vm, "unable to create CT 9000 - VM 9000 already exists on node 'pve1'");
    let create = cluster.call("POST", "/nodes/{node}/qemu", json!({ "vmid": 101 })).await;
    assert_eq!(refusal(create), "unable to create VM 101 - CT 101 already exists on node 'pve1'");
    // A clone looks only into its own directory, so the file system refuses its task.
    let clone = cluster.run_task(9000, "POST", "clone", json!({ "newid": 101 })).await;
    assert!(clone.ends_with("failed: File exists"), "{clone}");
    assert_eq!(cluster.get("/cluster/nextid", json!({})).await, "100");
}

#[tokio::test(start_paused = true)]
async fn power_that_makes_no_sense_is_refused_in_the_request() {
    let cluster = TestCluster::instant();
    with_container(&cluster).await;
    for rest in ["/status/stop", "/status/shutdown", "/status/reboot"] {
        let outcome = container_call(&cluster, 101, "POST", rest, json!({})).await;
        assert_eq!(refusal(outcome), "CT 101 not running", "{rest}");
    }
    assert_eq!(
        end(&cluster, container_call(&cluster, 101, "POST", "/status/start", json!({})).await)
            .await,
        "OK"
    );
    let again = container_call(&cluster, 101, "POST", "/status/start", json!({})).await;
    assert_eq!(refusal(again), "CT 101 already running");
    let missing = container_call(&cluster, 101, "DELETE", "", json!({})).await;
    assert_eq!(refusal(missing), "unable to destroy CT 101 - container is running");
    assert_eq!(
        end(&cluster, container_call(&cluster, 101, "DELETE", "", json!({ "force": true })).await)
            .await,
        "OK"
    );
    assert_eq!(
        refusal(container_call(&cluster, 101, "GET", "/config", json!({})).await),
        "Configuration file 'nodes/pve1/lxc/101.conf' does not exist"
    );
    assert!(
        cluster.control.volumes("pve1", "local-lvm").iter().all(|volid| !volid.contains("-101-"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_container_reports_addresses_without_an_agent_and_null_while_it_is_stopped() {
    let cluster = TestCluster::instant();
    with_container(&cluster).await;
    assert_eq!(
        container_call(&cluster, 101, "GET", "/interfaces", json!({})).await.unwrap().data,
        Value::Null
    );
    assert_eq!(
        end(&cluster, container_call(&cluster, 101, "POST", "/status/start", json!({})).await)
            .await,
        "OK"
    );
    let faces = container_call(&cluster, 101, "GET", "/interfaces", json!({})).await.unwrap().data;
    assert_eq!((&faces[0]["name"], &faces[1]["name"]), (&json!("lo"), &json!("eth0")));
    assert_eq!(faces[1]["inet"], "10.0.0.5/24");
    assert_eq!(faces[1]["ip-addresses"][0]["ip-address-type"], "inet");
    // The container gets the SSH keys of its create.
    let boots = cluster.guests.boots.lock().unwrap();
    let boot = boots.last().unwrap();
    assert_eq!((boot.hostname.as_str(), boot.config["ciuser"].as_str()), ("box", "root"));
    assert_eq!(boot.config["sshkeys"], "ssh%2Ded25519%20AAAA%20me");
}

#[tokio::test(start_paused = true)]
async fn clones_of_one_container_come_one_after_another() {
    let cluster = TestCluster::with_fixed_latency();
    with_container(&cluster).await;
    let first =
        container_call(&cluster, 101, "POST", "/clone", json!({ "newid": 201, "hostname": "one" }))
            .await;
    let second = container_call(&cluster, 101, "POST", "/clone", json!({ "newid": 202 })).await;
    assert_eq!(refusal(second), "CT is locked (disk)");
    assert!(cluster.control.guests().iter().all(|vmid| *vmid != 202));
    assert_eq!(end(&cluster, first).await, "OK");
    let second = container_call(&cluster, 101, "POST", "/clone", json!({ "newid": 202 })).await;
    assert_eq!(end(&cluster, second).await, "OK");
    let config = container_call(&cluster, 201, "GET", "/config", json!({})).await.unwrap().data;
    let old = container_call(&cluster, 101, "GET", "/config", json!({})).await.unwrap().data;
    assert_eq!((&config["hostname"], config.get("lock")), (&json!("one"), None));
    assert_ne!(config["net0"], old["net0"]);
    assert_eq!(config["rootfs"], "local-lvm:vm-201-disk-0,size=8G");
}

#[tokio::test(start_paused = true)]
async fn a_template_is_linked_where_the_result_is_no_file() {
    let cluster = TestCluster::instant();
    with_container(&cluster).await;
    container_call(&cluster, 101, "POST", "/template", json!({})).await.unwrap();
    let linked = container_call(&cluster, 101, "POST", "/clone", json!({ "newid": 201 })).await;
    assert_eq!(end(&cluster, linked).await, "OK");
    let start = container_call(&cluster, 101, "POST", "/status/start", json!({})).await;
    assert_eq!(end(&cluster, start).await, "you can't start a CT if it's a template");
}

#[tokio::test(start_paused = true)]
async fn disks_grow_and_snapshots_go_back() {
    let cluster = TestCluster::instant();
    with_container(&cluster).await;
    let with = json!({ "disk": "rootfs", "size": "+2G" });
    assert_eq!(
        end(&cluster, container_call(&cluster, 101, "PUT", "/resize", with).await).await,
        "OK"
    );
    let with = json!({ "disk": "rootfs", "size": "1G" });
    let shrunk = end(&cluster, container_call(&cluster, 101, "PUT", "/resize", with).await).await;
    assert_eq!(shrunk, "unable to shrink disk size");
    let with = json!({ "snapname": "before" });
    assert_eq!(
        end(&cluster, container_call(&cluster, 101, "POST", "/snapshot", with.clone()).await).await,
        "OK"
    );
    container_call(&cluster, 101, "PUT", "/config", json!({ "hostname": "other", "memory": 1024 }))
        .await
        .unwrap();
    let back =
        container_call(&cluster, 101, "POST", "/snapshot/{snapname}/rollback", with.clone()).await;
    assert_eq!(end(&cluster, back).await, "OK");
    let config = container_call(&cluster, 101, "GET", "/config", json!({})).await.unwrap().data;
    assert_eq!((&config["hostname"], &config["memory"]), (&json!("box"), &json!(512)));
    assert_eq!((&config["parent"], &config["digest"].is_string()), (&json!("before"), &true));
    let missing = container_call(&cluster, 101, "DELETE", "/snapshot/{snapname}", with).await;
    assert_eq!(end(&cluster, missing).await, "OK");
    let list = container_call(&cluster, 101, "GET", "/snapshot", json!({})).await.unwrap().data;
    assert_eq!(list.as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_roots_and_what_needs_more_on_9_is_refused() {
    let caller = Caller { userid: "ci@pve".into(), token: None };
    let options = WorldOptions { version: PveVersion::V9_2, ..WorldOptions::default() };
    let cluster = TestCluster::with(options);
    let mut with = create_parameters(101);
    with["features"] = "fuse=1".into();
    let fuse = refusal(cluster.call_as(&caller, "POST", CREATE, with).await);
    assert!(fuse.contains("(except nesting) is only allowed for root@pam"), "{fuse}");
    let mut with = create_parameters(101);
    with["mp0"] = "/srv,mp=/srv".into();
    let bind = cluster.call_as(&caller, "POST", CREATE, with).await;
    assert!(bind.is_ok() || refusal(bind).contains("root@pam"));
    let stranger = Caller { userid: "none@pve".into(), token: None };
    let denied = refusal(cluster.call_as(&stranger, "POST", CREATE, create_parameters(102)).await);
    assert_eq!(denied, "Permission check failed");
}

#[tokio::test(start_paused = true)]
async fn a_container_of_a_node_that_dies_stops_and_comes_back_with_it() {
    let cluster = TestCluster::instant();
    with_container(&cluster).await;
    assert_eq!(
        end(&cluster, container_call(&cluster, 101, "POST", "/status/start", json!({})).await)
            .await,
        "OK"
    );
    cluster.control.node_down("pve1").await;
    seconds(1).await;
    cluster.control.node_up("pve1");
    seconds(1).await;
    let status =
        container_call(&cluster, 101, "GET", "/status/current", json!({})).await.unwrap().data;
    assert_eq!((&status["status"], &status["type"]), (&json!("running"), &json!("lxc")));
}

#[tokio::test(start_paused = true)]
async fn a_volume_with_its_key_is_allocated_like_one_without() {
    let cluster = TestCluster::instant();
    with_container(&cluster).await;
    let with = json!({ "mp0": "volume=local-lvm:2,mp=/data,", "cpuunits": 200 });
    container_call(&cluster, 101, "PUT", "/config", with).await.unwrap();
    let config = container_call(&cluster, 101, "GET", "/config", json!({})).await.unwrap().data;
    assert_eq!(config["mp0"], "local-lvm:vm-101-disk-1,mp=/data,size=2G");
    assert_eq!(config["cpuunits"], 200);
    assert_eq!(
        end(&cluster, container_call(&cluster, 101, "POST", "/status/start", json!({})).await)
            .await,
        "OK"
    );
    let mut more = create_parameters(102);
    more["rootfs"] = "volume=local-lvm:3".into();
    assert_eq!(end(&cluster, cluster.call("POST", CREATE, more).await).await, "OK");
    let config = container_call(&cluster, 102, "GET", "/config", json!({})).await.unwrap().data;
    assert_eq!(config["rootfs"], "local-lvm:vm-102-disk-0,size=3G");
}

// Source: pve-container, LXC.pm:2666.
#[tokio::test(start_paused = true)]
async fn a_mount_point_that_is_no_volume_is_written_without_its_key_too() {
    let cluster = TestCluster::instant();
    with_container(&cluster).await;
    let root = Caller { userid: "root@pam".into(), token: None };
    let with = json!({ "vmid": 101, "mp1": "volume=/var/log,ro=1,mp=/host/log," });
    cluster.call_as(&root, "PUT", "/nodes/{node}/lxc/{vmid}/config", with).await.unwrap();
    let config = container_call(&cluster, 101, "GET", "/config", json!({})).await.unwrap().data;
    assert_eq!(config["mp1"], "/var/log,mp=/host/log,ro=1");
    let mut more = create_parameters(102);
    more["mp0"] = "volume=/srv,mp=/srv".into();
    assert_eq!(end(&cluster, cluster.call_as(&root, "POST", CREATE, more).await).await, "OK");
    let config = container_call(&cluster, 102, "GET", "/config", json!({})).await.unwrap().data;
    assert_eq!(config["mp0"], "/srv,mp=/srv");
}

#[tokio::test(start_paused = true)]
async fn a_console_of_a_container_gives_a_ticket_too() {
    let cluster = TestCluster::instant();
    with_container(&cluster).await;
    let data = container_call(&cluster, 101, "POST", "/vncproxy", json!({})).await.unwrap().data;
    assert!(data["ticket"].as_str().unwrap().starts_with("PVEVNC:"), "{data}");
    assert_eq!(cluster.task_end(data["upid"].as_str().unwrap()).await, "connection timed out");
    let missing = refusal(container_call(&cluster, 777, "POST", "/vncproxy", json!({})).await);
    assert_eq!(missing, "Configuration file 'nodes/pve1/lxc/777.conf' does not exist");
}

#[tokio::test(start_paused = true)]
async fn a_removed_mount_point_stays_as_unused_until_that_is_deleted() {
    let cluster = TestCluster::instant();
    with_container(&cluster).await;
    container_call(&cluster, 101, "PUT", "/config", json!({ "mp0": "local-lvm:2,mp=/data" }))
        .await
        .unwrap();
    container_call(&cluster, 101, "PUT", "/config", json!({ "delete": "mp0" })).await.unwrap();
    let config = container_call(&cluster, 101, "GET", "/config", json!({})).await.unwrap().data;
    assert_eq!(config["unused0"], "local-lvm:vm-101-disk-1");
    container_call(&cluster, 101, "PUT", "/config", json!({ "delete": "unused0" })).await.unwrap();
    assert_eq!(cluster.control.volumes_of(101), ["local-lvm:vm-101-disk-0"]);
    let unknown = container_call(&cluster, 101, "PUT", "/config", json!({ "delete": "nope" }))
        .await
        .unwrap_err();
    assert_eq!((unknown.status, &*unknown.errors["delete"]), (400, "unknown option 'nope'"));
}

#[tokio::test(start_paused = true)]
async fn each_line_of_a_containers_description_ends() {
    let cluster = TestCluster::instant();
    with_container(&cluster).await;
    let with = json!({ "description": "one\ntwo" });
    container_call(&cluster, 101, "PUT", "/config", with).await.unwrap();
    let config = container_call(&cluster, 101, "GET", "/config", json!({})).await.unwrap().data;
    assert_eq!(config["description"], "one\ntwo\n");
    container_call(&cluster, 101, "PUT", "/config", json!({ "description": "" })).await.unwrap();
    let config = container_call(&cluster, 101, "GET", "/config", json!({})).await.unwrap().data;
    assert_eq!(config.get("description"), None);
}

#[tokio::test(start_paused = true)]
async fn a_container_moves_while_it_stands_still() {
    let cluster = TestCluster::instant();
    with_container(&cluster).await;
    let to = |with: Value| {
        let mut with = with;
        with["target"] = "pve2".into();
        with
    };
    assert_eq!(
        end(&cluster, container_call(&cluster, 101, "POST", "/status/start", json!({})).await)
            .await,
        "OK"
    );
    let running = container_call(&cluster, 101, "POST", "/migrate", to(json!({}))).await;
    let text = "can't migrate running container without --online or --restart";
    assert_eq!(refusal(running), text);
    let online =
        container_call(&cluster, 101, "POST", "/migrate", to(json!({ "online": true }))).await;
    assert_eq!(end(&cluster, online).await, "lxc live migration is currently not implemented");
    let moved =
        container_call(&cluster, 101, "POST", "/migrate", to(json!({ "restart": true }))).await;
    assert_eq!(end(&cluster, moved).await, "OK");
    let there = json!({ "node": "pve2" });
    let status = container_call(&cluster, 101, "GET", "/status/current", there).await.unwrap().data;
    assert_eq!(status["status"], "running");
    assert_eq!(cluster.control.volumes("pve2", "local-lvm").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_volume_moves_to_another_storage() {
    let cluster = TestCluster::instant();
    with_container(&cluster).await;
    let with = json!({ "volume": "rootfs", "storage": "shared", "delete": true });
    let moved = container_call(&cluster, 101, "POST", "/move_volume", with).await;
    assert_eq!(end(&cluster, moved).await, "OK");
    let config = container_call(&cluster, 101, "GET", "/config", json!({})).await.unwrap().data;
    assert_eq!(config["rootfs"], "shared:101/vm-101-disk-0.raw,size=8G");
    assert_eq!(config.get("lock"), None);
    assert_eq!(cluster.control.volumes_of(101), ["shared:101/vm-101-disk-0.raw"]);
    let with = json!({ "volume": "rootfs", "target-vmid": 102 });
    let unsupported_parameter =
        container_call(&cluster, 101, "POST", "/move_volume", with).await.unwrap_err();
    assert_eq!(unsupported_parameter.status, 501);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_container_stands_still_until_it_resumes() {
    let cluster = TestCluster::instant();
    with_container(&cluster).await;
    let idle = container_call(&cluster, 101, "POST", "/status/suspend", json!({})).await;
    assert_eq!(refusal(idle), "CT 101 not running");
    for (rest, status) in [
        ("/status/start", "running"),
        ("/status/suspend", "stopped"),
        ("/status/resume", "running"),
    ] {
        assert_eq!(
            end(&cluster, container_call(&cluster, 101, "POST", rest, json!({})).await).await,
            "OK"
        );
        let now =
            container_call(&cluster, 101, "GET", "/status/current", json!({})).await.unwrap().data;
        assert_eq!(now["status"], status, "{rest}");
    }
    let running = container_call(&cluster, 101, "POST", "/status/resume", json!({})).await;
    assert_eq!(refusal(running), "CT 101 already running");
}

#[tokio::test(start_paused = true)]
async fn a_container_comes_back_from_its_backup() {
    let cluster = TestCluster::instant();
    with_container(&cluster).await;
    let with = json!({ "vmid": "101", "storage": "local" });
    let dumped = cluster.call("POST", "/nodes/{node}/vzdump", with).await;
    assert_eq!(end(&cluster, dumped).await, "OK");
    let volumes = cluster.control.volumes("pve1", "local");
    let backup = volumes.iter().find(|volid| volid.contains("vzdump-lxc-101-")).unwrap();
    let with = json!({ "vmid": 102, "ostemplate": backup, "restore": true, "hostname": "new" });
    assert_eq!(end(&cluster, cluster.call("POST", CREATE, with).await).await, "OK");
    let config = container_call(&cluster, 102, "GET", "/config", json!({})).await.unwrap().data;
    assert_eq!(config["rootfs"], "local-lvm:vm-102-disk-0,size=8G");
    assert_eq!((&config["hostname"], &config["ostype"]), (&json!("new"), &json!("debian")));
    assert_eq!(
        end(&cluster, container_call(&cluster, 102, "POST", "/status/start", json!({})).await)
            .await,
        "OK"
    );
}
