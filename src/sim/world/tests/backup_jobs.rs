// Invariant: backup jobs are stored, shown, changed and deleted as in pve-manager, API2/Backup.pm;
// none runs.

use serde_json::{Value, json};

use super::TestCluster;
use super::fakes::refusal;
use crate::call::Caller;

const JOBS: &str = "/cluster/backup";
const JOB: &str = "/cluster/backup/{id}";
const MISSED: &str = "/cluster/backup-info/not-backed-up";

fn job(id: &str) -> Value {
    json!({
        "id": id, "schedule": "sun 01:00", "storage": "local", "vmid": "9000,101", "mode": "stop",
        "prune-backups": "keep-last=3,keep-all=0", "fleecing": "1,storage=local",
        "exclude-path": ["/tmp", "/var/cache"], "zstd": 2, "repeat-missed": true,
    })
}

async fn one(cluster: &TestCluster, id: &str) -> Value {
    cluster.get(JOB, json!({ "id": id })).await
}

#[tokio::test(start_paused = true)]
async fn a_job_is_read_back_in_the_types_of_the_schema() {
    let cluster = TestCluster::instant();
    cluster.call("POST", JOBS, job("nightly")).await.unwrap();
    let again = refusal(cluster.call("POST", JOBS, job("nightly")).await);
    assert_eq!(again, "Job 'nightly' already exists");
    let shown = json!({
        "id": "nightly", "type": "vzdump", "schedule": "sun 01:00", "storage": "local",
        "vmid": "9000,101", "mode": "stop", "enabled": 1, "zstd": 2, "repeat-missed": 1,
        "prune-backups": { "keep-last": "3", "keep-all": 0 },
        "fleecing": { "enabled": 1, "storage": "local" },
        "exclude-path": ["/tmp", "/var/cache"],
    });
    assert_eq!(one(&cluster, "nightly").await, shown);
    assert_eq!(cluster.get(JOBS, json!({})).await, json!([shown]));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_jobs_guests_takes_the_place_of_what_named_them() {
    let cluster = TestCluster::instant();
    cluster.call("POST", JOBS, job("nightly")).await.unwrap();
    let with = json!({ "id": "nightly", "all": true, "delete": "mode,fleecing", "enabled": false });
    cluster.call("PUT", JOB, with).await.unwrap();
    let changed = one(&cluster, "nightly").await;
    assert_eq!((&changed["all"], &changed["enabled"]), (&json!(1), &json!(0)));
    for key in ["vmid", "mode", "fleecing", "delete"] {
        assert_eq!(changed.get(key), None, "{key}");
    }
    cluster.call("PUT", JOB, json!({ "id": "nightly", "vmid": "101" })).await.unwrap();
    let changed = one(&cluster, "nightly").await;
    assert_eq!((&changed["vmid"], changed.get("all")), (&json!("101"), None));
    let unknown = json!({ "id": "nightly", "delete": "schedule" });
    assert_eq!(
        refusal(cluster.call("PUT", JOB, unknown).await),
        "400 Parameter verification failed.\ndelete: unknown option 'schedule'"
    );
    cluster.call("DELETE", JOB, json!({ "id": "nightly" })).await.unwrap();
    assert_eq!(cluster.get(JOBS, json!({})).await, json!([]));
    let missing = cluster.call("GET", JOB, json!({ "id": "nightly" })).await.unwrap_err();
    assert_eq!((missing.status, &*missing.errors["id"]), (400, "No such job 'nightly'"));
    let missing = refusal(cluster.call("PUT", JOB, json!({ "id": "nightly", "all": true })).await);
    assert_eq!(missing, "no such vzdump job");
}

#[tokio::test(start_paused = true)]
async fn a_job_without_a_time_or_with_no_guests_or_twice_the_guests_is_refused() {
    let cluster = TestCluster::instant();
    let timeless = cluster.call("POST", JOBS, json!({ "all": true })).await.unwrap_err();
    let text = "neither 'starttime' nor 'schedule' were set";
    assert_eq!((timeless.status, &*timeless.errors["schedule"]), (400, text));
    for (more, text) in [
        (json!({}), "vmid: property is missing"),
        (json!({ "all": true, "vmid": "101" }), "all: option conflicts with option 'vmid'"),
        (json!({ "pool": "ci", "vmid": "101" }), "pool: option conflicts with option 'vmid'"),
    ] {
        let mut with = json!({ "schedule": "02:00" });
        for (key, value) in more.as_object().unwrap() {
            with[key] = value.clone();
        }
        let refused = refusal(cluster.call("POST", JOBS, with).await);
        assert_eq!(refused, format!("400 Parameter verification failed.\n{text}"));
    }
    let root = json!({ "schedule": "02:00", "all": true, "script": "/bin/true" });
    let refused = cluster.call("POST", JOBS, root).await.unwrap_err();
    assert_eq!(refused.errors["script"], "Only root may set this option.");
    let stranger = Caller { userid: "none@pve".into(), token: None };
    let denied = json!({ "schedule": "02:00", "all": true, "storage": "local" });
    let denied = refusal(cluster.call_as(&stranger, "POST", JOBS, denied).await);
    assert!(denied.contains("/storage/local, Datastore.Allocate"), "{denied}");
}

#[tokio::test(start_paused = true)]
async fn the_older_form_of_a_time_becomes_a_schedule_and_a_job_gets_an_id() {
    let cluster = TestCluster::instant();
    let with = json!({ "starttime": "02:30", "dow": "mon;fri", "exclude": "101" });
    cluster.call("POST", JOBS, with).await.unwrap();
    let job = cluster.get(JOBS, json!({})).await[0].clone();
    assert_eq!((&job["schedule"], &job["all"]), (&json!("mon,fri 02:30"), &json!(1)));
    assert_eq!(job["id"].as_str().unwrap().len(), 36);
    assert_eq!((job.get("starttime"), job.get("dow")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_guest_of_any_job_is_not_listed_as_left_out() {
    let cluster = TestCluster::instant();
    let missed = async || {
        let lines = cluster.get(MISSED, json!({})).await;
        let ids = lines.as_array().unwrap().iter().map(|line| line["vmid"].as_u64().unwrap());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(missed().await, [9000, 9001, 9002]);
    let with = json!({ "id": "one", "schedule": "02:00", "vmid": "9001", "enabled": false });
    cluster.call("POST", JOBS, with).await.unwrap();
    assert_eq!(missed().await, [9000, 9002]);
    let with = json!({ "id": "rest", "schedule": "03:00", "all": true, "exclude": "9002" });
    cluster.call("POST", JOBS, with).await.unwrap();
    assert_eq!(missed().await, [9002]);
}

// Source: pve-manager, VZDump.pm, get_included_guests.
#[tokio::test(start_paused = true)]
async fn a_job_of_one_node_backs_up_no_guest_of_another() {
    let cluster = TestCluster::instant();
    let with = json!({ "id": "far", "schedule": "02:00", "all": true, "node": "pve3" });
    cluster.call("POST", JOBS, with).await.unwrap();
    let missed = cluster.get(MISSED, json!({})).await;
    let missed = missed.as_array().unwrap();
    assert!(missed.iter().any(|line| line["vmid"] == 9000), "{missed:?}");
    let with = json!({ "id": "far", "delete": "node" });
    cluster.call("PUT", JOB, with).await.unwrap();
    assert_eq!(cluster.get(MISSED, json!({})).await, json!([]));
}

// Source: pve-manager, API2/Backup.pm:36, assert_param_permission_update.
#[tokio::test(start_paused = true)]
async fn only_root_deletes_the_options_that_only_root_sets() {
    let cluster = TestCluster::instant();
    let root = Caller { userid: "root@pam".into(), token: None };
    let with = json!({
        "id": "own", "schedule": "02:00", "all": true, "dumpdir": "/srv", "script": "/bin/true",
    });
    cluster.call_as(&root, "POST", JOBS, with).await.unwrap();
    let out = json!({ "id": "own", "delete": "script" });
    let refused = cluster.call("PUT", JOB, out.clone()).await.unwrap_err();
    assert_eq!(refused.errors["script"], "Only root may set this option.");
    let other = json!({ "id": "own", "comment": "x" });
    let reported = refusal(cluster.call("PUT", JOB, other).await);
    assert_eq!(reported, "only root@pam may edit jobs with a 'dumpdir' option.");
    cluster.call_as(&root, "PUT", JOB, out).await.unwrap();
    assert_eq!(one(&cluster, "own").await.get("script"), None);
    let stranger = Caller { userid: "none@pve".into(), token: None };
    let with = json!({ "schedule": "02:00", "all": true, "fleecing": "1,storage=fast" });
    let reported = refusal(cluster.call_as(&stranger, "POST", JOBS, with).await);
    assert!(reported.contains("/storage/fast, Datastore.AllocateSpace"), "{reported}");
}
