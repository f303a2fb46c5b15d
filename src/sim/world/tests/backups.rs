// Invariant: a backup is a volume from which guests are restored with their drives; parameters that
// the simulator does not implement are refused; a reassigned disk moves completely.

use serde_json::{Value, json};

use super::TestCluster;
use super::fakes::{FakeGuestBehaviour, refusal, seconds};
use crate::call::{Caller, Outcome};

const DUMP: &str = "/nodes/{node}/vzdump";
const CREATE: &str = "/nodes/{node}/qemu";

async fn end(cluster: &TestCluster, outcome: Outcome) -> String {
    let upid = outcome.unwrap().data.as_str().unwrap().to_owned();
    cluster.task_end(&upid).await
}

async fn backups(cluster: &TestCluster) -> Vec<Value> {
    let with = json!({ "storage": "local", "content": "backup" });
    let list = cluster.get("/nodes/{node}/storage/{storage}/content", with).await;
    list.as_array().unwrap().clone()
}

/// Creates VM 101 with two disks, and a backup of it.
async fn with_backup(cluster: &TestCluster) -> String {
    cluster.clone_to(101).await;
    let with = json!({ "scsi1": "local-lvm:4", "name": "box" });
    cluster.vm_call(101, "PUT", "config", with).await.unwrap();
    let with = json!({
        "vmid": "101", "storage": "local", "compress": "zstd", "notes-template": "{{guestname}}!",
    });
    assert_eq!(end(cluster, cluster.call("POST", DUMP, with).await).await, "OK");
    backups(cluster).await[0]["volid"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_backup_is_a_volume_with_the_guests_number_and_notes() {
    let cluster = TestCluster::instant();
    let volid = with_backup(&cluster).await;
    assert!(volid.starts_with("local:backup/vzdump-qemu-101-20"), "{volid}");
    let line = &backups(&cluster).await[0];
    assert_eq!((&line["vmid"], &line["subtype"]), (&json!(101), &json!("qemu")));
    assert_eq!((&line["format"], &line["notes"]), (&json!("vma.zst"), &json!("box!")));
    assert_eq!(cluster.config(101).await.get("lock"), None);
    let text = cluster.get("/nodes/{node}/vzdump/extractconfig", json!({ "volume": volid })).await;
    assert!(text.as_str().unwrap().contains("name: box\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_guest_is_locked_while_it_is_backed_up_and_a_locked_one_fails_the_job() {
    let cluster = TestCluster::with_fixed_latency();
    cluster.clone_to(101).await;
    let with = json!({ "vmid": "101" });
    let upid = cluster.call("POST", DUMP, with.clone()).await.unwrap().data;
    seconds(1).await;
    assert_eq!(cluster.config(101).await["lock"], "backup");
    assert_eq!(cluster.task_end(upid.as_str().unwrap()).await, "OK");
    cluster.control.set_config(101, "lock", Some("clone"));
    let upid = cluster.call("POST", DUMP, with).await.unwrap().data;
    assert_eq!(cluster.task_end(upid.as_str().unwrap()).await, "job errors");
    let log = cluster.log(upid.as_str().unwrap()).await;
    let line = "ERROR: Backup of VM 101 failed - VM is locked (clone)".to_owned();
    assert!(log.contains(&line), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_job_leaves_no_volume_and_no_lock() {
    let cluster = TestCluster::with_fixed_latency();
    cluster.clone_to(101).await;
    let upid = cluster.call("POST", DUMP, json!({ "vmid": "101" })).await.unwrap().data;
    seconds(1).await;
    let stop = "/nodes/{node}/tasks/{upid}";
    cluster.call("DELETE", stop, json!({ "upid": upid })).await.unwrap();
    assert_eq!(cluster.task_end(upid.as_str().unwrap()).await, "interrupted by signal");
    assert_eq!(backups(&cluster).await, Vec::<Value>::new());
    assert_eq!(cluster.config(101).await.get("lock"), None);
}

#[tokio::test(start_paused = true)]
async fn a_restore_makes_the_guest_with_its_drives_again() {
    let cluster = TestCluster::instant();
    let volid = with_backup(&cluster).await;
    let with = json!({
        "vmid": 102, "archive": volid, "storage": "shared", "unique": true, "memory": "1024",
    });
    assert_eq!(end(&cluster, cluster.call("POST", CREATE, with).await).await, "OK");
    let (old, new) = (cluster.config(101).await, cluster.config(102).await);
    assert_eq!(new["scsi0"], "shared:102/vm-102-disk-0.raw,size=10G");
    assert_eq!(new["scsi1"], "shared:102/vm-102-disk-1.raw,size=4G");
    assert!(new["ide2"].as_str().unwrap().contains("vm-102-cloudinit"), "{new}");
    assert_eq!((&new["name"], &new["memory"]), (&json!("box"), &json!("1024")));
    assert_ne!(new["net0"], old["net0"]);
    assert_ne!(new["vmgenid"], old["vmgenid"]);
    assert_eq!(new.get("lock"), None);
    assert_eq!(cluster.run_task(102, "POST", "status/start", json!({})).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn a_restore_over_a_guest_needs_force_and_a_guest_at_rest() {
    let cluster = TestCluster::instant();
    let volid = with_backup(&cluster).await;
    let with = json!({ "vmid": 101, "archive": volid });
    let taken = refusal(cluster.call("POST", CREATE, with).await);
    assert_eq!(taken, "unable to restore VM 101 - VM 101 already exists on node 'pve1'");
    let over = json!({ "vmid": 101, "archive": volid, "force": true });
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    let running = end(&cluster, cluster.call("POST", CREATE, over.clone()).await).await;
    assert_eq!(running, "unable to restore VM 101 - vm is running");
    cluster.run_task(101, "POST", "status/stop", json!({})).await;
    cluster.vm_call(101, "PUT", "config", json!({ "name": "other" })).await.unwrap();
    assert_eq!(end(&cluster, cluster.call("POST", CREATE, over).await).await, "OK");
    assert_eq!(cluster.config(101).await["name"], "box");
    let own = cluster.control.volumes_of(101);
    assert_eq!(own.len(), 3, "{own:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_restore_cannot_do_is_refused() {
    let cluster = TestCluster::instant();
    let volid = with_backup(&cluster).await;
    let create = async |with: Value| cluster.call("POST", CREATE, with).await.unwrap_err();
    let disk = create(json!({ "vmid": 102, "archive": volid, "scsi0": "local-lvm:1" })).await;
    assert_eq!(disk.errors["scsi0"], "option conflicts with option 'archive'");
    let live = create(json!({ "vmid": 102, "archive": volid, "live-restore": true })).await;
    assert_eq!(live.status, 501);
    let missing = "local:backup/vzdump-qemu-1-2026_01_01-00_00_00.vma";
    let gone_too = create(json!({ "vmid": 102, "archive": missing })).await;
    assert_eq!(gone_too.message, format!("volume '{missing}' does not exist"));
    let iso = create(json!({ "vmid": 102, "archive": "local:iso/x.iso" })).await.message;
    let text = "unable to use volume local:iso/x.iso - content type needs to be 'backup'";
    assert_eq!(iso, text);
    assert!(cluster.control.guests().iter().all(|vmid| *vmid != 102));
}

#[tokio::test(start_paused = true)]
async fn a_backup_asks_for_its_right_and_its_storage() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    let stranger = Caller { userid: "none@pve".into(), token: None };
    let with = json!({ "vmid": "101", "storage": "local" });
    let denied = refusal(cluster.call_as(&stranger, "POST", DUMP, with).await);
    assert!(denied.contains("/storage/local, Datastore.AllocateSpace"), "{denied}");
    let wrong = cluster.call("POST", DUMP, json!({ "vmid": "101", "storage": "shared" })).await;
    let text = "could not get storage information for 'shared': can't use storage 'shared' for \
                backups - wrong content type";
    assert_eq!(end(&cluster, wrong).await, text);
    let unsupported_parameter =
        cluster.call("POST", DUMP, json!({ "vmid": "101", "prune-backups": "keep-last=1" })).await;
    let text = "drover sim does not serve 'prune-backups' of POST /nodes/{node}/vzdump";
    assert_eq!(refusal(unsupported_parameter), text);
    let other = cluster.call("POST", DUMP, json!({ "vmid": "9001" })).await.unwrap();
    assert_eq!(other.data, "OK");
}

// Source: pve-manager, VZDump.pm:1527, verify_vzdump_parameters.
#[tokio::test(start_paused = true)]
async fn exclude_backs_up_all_other_guests_and_a_backup_without_guests_is_refused() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster.clone_to(102).await;
    let with = json!({ "exclude": "102,9000", "storage": "local" });
    assert_eq!(end(&cluster, cluster.call("POST", DUMP, with).await).await, "OK");
    let made = backups(&cluster).await;
    assert_eq!((made.len(), &made[0]["vmid"]), (1, &json!(101)));
    for (with, key, text) in [
        (json!({ "storage": "local" }), "vmid", "property is missing"),
        (json!({ "vmid": "101", "all": true }), "all", "option conflicts with option 'vmid'"),
    ] {
        let refused = cluster.call("POST", DUMP, with).await.unwrap_err();
        assert_eq!((refused.status, &*refused.errors[key]), (400, text));
    }
    let stranger = Caller { userid: "none@pve".into(), token: None };
    let with = json!({ "vmid": "101", "bwlimit": 100 });
    let denied = refusal(cluster.call_as(&stranger, "POST", DUMP, with).await);
    assert!(denied.contains("(/, Sys.Modify"), "{denied}");
}

#[tokio::test(start_paused = true)]
async fn a_backup_in_stop_mode_brings_the_guest_up_again() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster
        .guests
        .set_behaviour(FakeGuestBehaviour { shutdown: None, agent: std::time::Duration::ZERO });
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    let with = json!({ "vmid": "101", "mode": "stop" });
    assert_eq!(end(&cluster, cluster.call("POST", DUMP, with).await).await, "OK");
    let status = cluster.vm_call(101, "GET", "status/current", json!({})).await.unwrap().data;
    assert_eq!(status["status"], "running");
    assert_eq!(cluster.guests.boots.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_backup_in_stop_mode_leaves_a_locked_guest_running() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster.run_task(101, "POST", "status/start", json!({})).await;
    cluster.control.set_config(101, "lock", Some("migrate"));
    let with = json!({ "vmid": "101", "mode": "stop" });
    assert_eq!(end(&cluster, cluster.call("POST", DUMP, with).await).await, "job errors");
    let status = cluster.vm_call(101, "GET", "status/current", json!({})).await.unwrap().data;
    assert_eq!(status["status"], "running");
}

#[tokio::test(start_paused = true)]
async fn guests_that_no_job_backs_up_are_listed() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    let lines = cluster.get("/cluster/backup-info/not-backed-up", json!({})).await;
    let lines = lines.as_array().unwrap();
    assert_eq!(lines.len(), 4);
    assert!(lines.contains(&json!({ "vmid": 9000, "type": "qemu", "name": "debian-12" })));
}

#[tokio::test(start_paused = true)]
async fn a_disk_goes_to_another_guest_under_that_guests_name() {
    let cluster = TestCluster::instant();
    cluster.clone_to(101).await;
    cluster.clone_to(102).await;
    cluster.vm_call(101, "PUT", "config", json!({ "scsi1": "local-lvm:4" })).await.unwrap();
    let moved = json!({ "disk": "scsi1", "target-vmid": 102, "target-disk": "scsi3" });
    assert_eq!(cluster.run_task(101, "POST", "move_disk", moved.clone()).await, "OK");
    assert_eq!(cluster.config(101).await.get("scsi1"), None);
    assert_eq!(cluster.config(102).await["scsi3"], "local-lvm:vm-102-disk-1,size=4G");
    let again = refusal(cluster.vm_call(101, "POST", "move_disk", moved).await);
    assert_eq!(again, "Disk 'scsi1' for VM '101' does not exist");
    let taken = json!({ "disk": "scsi0", "target-vmid": 102 });
    let text = "Target disk key 'scsi0' is already in use for VM '102'";
    assert_eq!(refusal(cluster.vm_call(101, "POST", "move_disk", taken).await), text);
    let both = json!({ "disk": "scsi0", "target-vmid": 102, "storage": "shared" });
    let both = cluster.vm_call(101, "POST", "move_disk", both).await.unwrap_err();
    assert_eq!(both.errors["target-vmid"], "either set 'storage' or 'target-vmid', but not both");
    let none =
        cluster.vm_call(101, "POST", "move_disk", json!({ "disk": "scsi0" })).await.unwrap_err();
    assert_eq!((none.status, none.errors.len()), (400, 2));
}
