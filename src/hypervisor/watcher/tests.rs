#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::*;
use crate::testing::{Clients as _, Script, Step, token};

const TICK: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(3600);

fn upid(node: &str, n: u32, kind: &str) -> Upid {
    Upid::new(format!("UPID:{node}:{n:08X}:00000001:6B015BC1:{kind}:100:ci@pve!drover:"))
}

fn row(upid: &Upid, exit: Option<&str>) -> Value {
    match exit {
        Some(exit) => json!({"upid": upid.as_str(), "endtime": "1795250990", "status": exit}),
        None => json!({"upid": upid.as_str()}),
    }
}

fn done() -> TaskEnd {
    TaskEnd::Done { warnings: Vec::new() }
}

/// Waits for one task, with a script that answers.
async fn wait(script: &Script, upid: &Upid, limit: Duration) -> TaskEnd {
    Watcher::new(TICK).wait(script.client(&["a"], token()), upid, limit).await
}

// Invariant: one list call per tick, however many tasks are awaited; none when no task is.

#[tokio::test(start_paused = true)]
async fn a_hundred_tasks_cost_one_call_a_tick() {
    let upids: Vec<_> = (0..100).map(|n| upid("pve1", n, "qmclone")).collect();
    let listed = upids.clone();
    let mut looks = 0;
    let script = Script::new(move |asked| {
        assert_eq!(asked, "GET /cluster/tasks");
        looks += 1;
        let exit = (looks == 5).then_some("OK");
        Step::Data(listed.iter().map(|upid| row(upid, exit)).collect())
    });
    let client = script.client(&["a"], token());
    let watcher = Watcher::new(TICK);
    let start = Instant::now();
    let ends = join_all(upids.iter().map(|upid| watcher.wait(client.clone(), upid, LONG))).await;
    assert!(ends.iter().all(|end| *end == done()));
    assert_eq!(start.elapsed(), 5 * TICK);
    tokio::time::sleep(LONG).await;
    assert_eq!(script.seen().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_end_is_seen_late_by_a_twentieth_of_the_task_at_most() {
    let task = upid("pve1", 1, "qmclone");
    for (length, late) in [(10, 1), (60, 3), (600, 8)] {
        let (listed, start) = (task.clone(), Instant::now());
        let ended = move || start.elapsed() >= Duration::from_secs(length);
        let script =
            Script::new(move |_| Step::Data(json!([row(&listed, ended().then_some("OK"))])));
        assert_eq!(wait(&script, &task, LONG).await, done());
        let most = Duration::from_secs(length + late);
        assert!(start.elapsed() <= most, "{length} s: seen after {:?}", start.elapsed());
        let fewest = length / late;
        let looks = script.seen().len() as u64;
        assert!(looks >= fewest && (length <= 20 || looks < length), "{length} s: {looks} looks");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_goes_leaves_the_tick_to_others() {
    let (first, second) = (upid("pve1", 1, "qmclone"), upid("pve1", 2, "qmclone"));
    let listed = [first.clone(), second.clone()];
    let mut looks = 0;
    let script = Script::new(move |_| {
        looks += 1;
        let exit = (looks == 4).then_some("OK");
        Step::Data(listed.iter().map(|upid| row(upid, exit)).collect())
    });
    let client = script.client(&["a"], token());
    let watcher = Watcher::new(TICK);
    let (short, long) = tokio::join!(
        watcher.wait(client.clone(), &first, Duration::from_millis(1500)),
        watcher.wait(client.clone(), &second, LONG),
    );
    assert!(matches!(short, TaskEnd::Unknown(text) if text.contains("did not end within 1 s")));
    assert_eq!(long, done());
    assert!(watcher.waiting.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn two_waiters_for_one_task_both_hear() {
    let task = upid("pve1", 1, "qmstart");
    let listed = task.clone();
    let script = Script::new(move |_| Step::Data(json!([row(&listed, Some("OK"))])));
    let client = script.client(&["a"], token());
    let watcher = Watcher::new(TICK);
    let (one, two) = tokio::join!(
        watcher.wait(client.clone(), &task, LONG),
        watcher.wait(client.clone(), &task, LONG),
    );
    assert_eq!((one, two), (done(), done()));
}

// Invariant: a connection that no longer works does not delay callers that have another one.

/// A cluster that no longer answers one cloud's client.
fn gone() -> Script {
    Script::new(|_| Step::NoRoute)
}

#[tokio::test(start_paused = true)]
async fn a_task_awaited_through_a_replaced_way_in_is_read_through_the_new_one() {
    let task = upid("pve1", 1, "qmclone");
    let listed = task.clone();
    let (old, new) = (gone(), Script::new(move |_| Step::Data(json!([row(&listed, Some("OK"))]))));
    let (watcher, client) = (Watcher::new(TICK), old.client(&["a"], token()));
    let replaced = async {
        tokio::time::sleep(10 * TICK).await;
        client.replace_by(new.client(&["a"], token()));
    };
    let start = Instant::now();
    let (end, ()) = tokio::join!(watcher.wait(client.clone(), &task, LONG), replaced);
    assert_eq!(end, done());
    assert!(start.elapsed() < FAILURE_PAUSE_MAX + 10 * TICK, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn of_two_clouds_of_a_cluster_the_one_that_answers_mentions_both() {
    let (first, second) = (upid("pve1", 1, "qmclone"), upid("pve1", 2, "qmclone"));
    let listed = [first.clone(), second.clone()];
    let answers =
        Script::new(move |_| Step::Data(listed.iter().map(|upid| row(upid, Some("OK"))).collect()));
    let (shut, open) = (gone().client_of("east"), answers.client_of("west"));
    let watcher = Watcher::new(TICK);
    let ends = tokio::join!(watcher.wait(shut, &first, LONG), watcher.wait(open, &second, LONG));
    assert_eq!(ends, (done(), done()));
}

// Invariant: every form of exit status has the meaning in book: proxmox, section 5.

#[tokio::test(start_paused = true)]
async fn warnings_are_success_with_their_lines() {
    let task = upid("pve1", 1, "qmdestroy");
    let listed = task.clone();
    let script = Script::new(move |asked| {
        if asked.contains("/log") {
            return Step::Data(json!([
                {"n": 1, "t": "destroy VM"},
                {"n": 2, "t": "Could not remove disk 'store:101/x', check manually: busy"},
                {"n": 3, "t": "WARN: something else"},
                {"n": 4, "t": "TASK WARNINGS: 2"},
            ]));
        }
        Step::Data(json!([row(&listed, Some("WARNINGS: 2"))]))
    });
    let TaskEnd::Done { warnings } = wait(&script, &task, LONG).await else { panic!("not done") };
    assert_eq!(
        warnings,
        ["Could not remove disk 'store:101/x', check manually: busy", "WARN: something else"]
    );
}

#[tokio::test(start_paused = true)]
async fn exit_statuses_are_kept_apart() {
    let cases = [
        ("qmclone", "unexpected status", "unknown"),
        ("qmclone", "unable to create VM 101: config file already exists", "id-taken"),
        (
            "qmclone",
            "clone failed: cfs-lock 'storage-ceph' error: got lock request timeout",
            "contention",
        ),
        ("qmstart", "VM 101 already running", "done"),
        ("qmstart", "start failed: QEMU exited with code 1", "broken"),
    ];
    for (kind, exit, wanted) in cases {
        let task = upid("pve1", 1, kind);
        let listed = task.clone();
        let script = Script::new(move |_| Step::Data(json!([row(&listed, Some(exit))])));
        let got = match wait(&script, &task, LONG).await {
            TaskEnd::Done { .. } => "done",
            TaskEnd::Failed(fault) => fault.kind.label(),
            TaskEnd::Unknown(_) => "unknown",
        };
        assert_eq!(got, wanted, "{exit}");
    }
}

// Invariant: tasks missing from the cluster's list cost one call per node and tick, however many
// they are; a task is read by its name when its node does not list it either.

#[tokio::test(start_paused = true)]
async fn a_hundred_tasks_that_fell_off_the_list_cost_one_call() {
    let upids: Vec<_> = (0..100).map(|n| upid("pve1", n, "qmclone")).collect();
    let listed = upids.clone();
    let mut looks = 0;
    let script = Script::new(move |asked| {
        if asked == "GET /cluster/tasks" {
            looks += 1;
            let running = listed.iter().filter(|_| looks < 3);
            return Step::Data(running.map(|upid| row(upid, None)).collect());
        }
        Step::Data(listed.iter().map(|upid| row(upid, Some("OK"))).collect())
    });
    let client = script.client(&["a"], token());
    let watcher = Watcher::new(TICK);
    let ends = join_all(upids.iter().map(|upid| watcher.wait(client.clone(), upid, LONG))).await;
    assert!(ends.iter().all(|end| *end == done()));
    let since = "GET /nodes/pve1/tasks source=all since=1795251137 limit=4000";
    assert_eq!(script.seen()[3..], [format!("a {since}")]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fell_off_every_list_is_read_directly() {
    let task = upid("pve1", 1, "qmclone");
    let script = Script::new(|asked| {
        if !asked.ends_with("/status") {
            return Step::Data(json!([]));
        }
        Step::Data(json!({"status": "stopped", "exitstatus": "OK"}))
    });
    assert_eq!(wait(&script, &task, LONG).await, done());
    assert_eq!(
        script.seen()[2],
        "a GET /nodes/pve1/tasks/UPID%3Apve1%3A00000001%3A00000001%3A6B015BC1%3Aqmclone%3A100%3Aci%40pve%21drover%3A/status"
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_is_read_directly_where_the_nodes_list_is_refused() {
    let script = Script::new(|asked| match asked {
        "GET /cluster/tasks" => Step::Data(json!([])),
        _ if asked.ends_with("/status") => {
            Step::Data(json!({"status": "stopped", "exitstatus": "OK"}))
        }
        _ => Step::Refuse(403, "Permission check failed (/nodes/pve1, Sys.Audit)"),
    });
    assert_eq!(wait(&script, &upid("pve1", 1, "qmclone"), LONG).await, done());
}

#[tokio::test(start_paused = true)]
async fn a_task_nobody_knows_is_unknown() {
    let script = Script::new(|asked| match asked.ends_with("/status") {
        false => Step::Data(json!([])),
        true => Step::Errors(json!({"upid": "no such task"})),
    });
    let end = wait(&script, &upid("pve1", 1, "qmclone"), LONG).await;
    assert!(matches!(end, TaskEnd::Unknown(text) if text.contains("no such task")));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_sees_no_cluster_tasks_is_served_node_by_node() {
    let upids =
        [upid("pve1", 1, "qmclone"), upid("pve1", 2, "qmclone"), upid("pve2", 3, "qmclone")];
    let listed = upids.clone();
    let mut looks = 0;
    let script = Script::new(move |asked| {
        if asked == "GET /cluster/tasks" {
            return Step::Data(json!([]));
        }
        let active = asked.contains("source=active");
        looks += u32::from(active);
        let node = asked.split('/').nth(2).unwrap();
        let ended = looks > 6;
        let here = listed.iter().filter(|upid| task_node(upid.as_str()) == node);
        let here = here.filter(|_| !(active && ended));
        Step::Data(here.map(|upid| row(upid, ended.then_some("OK"))).collect())
    });
    let client = script.client(&["a"], token());
    let watcher = Watcher::new(TICK);
    let ends = join_all(upids.iter().map(|upid| watcher.wait(client.clone(), upid, LONG))).await;
    assert!(ends.iter().all(|end| *end == done()));
    let count = |part: &str| script.seen().iter().filter(|asked| asked.contains(part)).count();
    assert_eq!(count("/cluster/tasks"), MISSES_UNTIL_NODE_BY_NODE as usize);
    assert_eq!(count("/status"), 0);
    for node in ["pve1", "pve2"] {
        assert_eq!(count(&format!("GET /nodes/{node}/tasks source=active")), 4);
        let ended = count(&format!("GET /nodes/{node}/tasks source=all"));
        assert_eq!(ended, MISSES_UNTIL_NODE_BY_NODE as usize + 1);
    }
}

// Invariant: a cluster that does not answer is asked less often, and the time limit holds.

#[tokio::test(start_paused = true)]
async fn looks_back_off_while_nothing_answers_and_come_back() {
    let task = upid("pve1", 1, "qmclone");
    let listed = task.clone();
    let mut looks = 0;
    let script = Script::new(move |_| {
        looks += 1;
        match looks {
            1..=8 => Step::Refuse(596, "Connection timed out"),
            _ => Step::Data(json!([row(&listed, (looks > 10).then_some("OK"))])),
        }
    });
    let start = Instant::now();
    assert_eq!(wait(&script, &task, LONG).await, done());
    // 1 s, then 2, 4, 8, 16 and four times 30, then twice a twentieth of the task's age by then.
    let silent = Duration::from_secs(1 + 2 + 4 + 8 + 16 + 4 * 30);
    assert_eq!((start.elapsed() - silent).as_secs(), 15);
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_holds_up_nobody_elses_tasks() {
    let (dead, live) = (upid("pve1", 1, "qmclone"), upid("pve2", 2, "qmclone"));
    let listed = live.clone();
    let mut looks = 0;
    let script = Script::new(move |asked| {
        if asked.contains("/nodes/pve1/") {
            return Step::Silence;
        }
        looks += 1;
        Step::Data(json!([row(&listed, (looks == 5).then_some("OK"))]))
    });
    let client = script.client(&["a"], token());
    let watcher = Watcher::new(TICK);
    let start = Instant::now();
    let live = async {
        let end = watcher.wait(client.clone(), &live, LONG).await;
        (end, start.elapsed())
    };
    let (lost, (end, took)) =
        tokio::join!(watcher.wait(client.clone(), &dead, Duration::from_secs(60)), live);
    assert_eq!(end, done());
    assert_eq!(took, 5 * TICK + NODE_READ_LIMIT);
    assert!(matches!(lost, TaskEnd::Unknown(_)));
}

#[tokio::test(start_paused = true)]
async fn the_limit_ends_the_wait_even_under_a_silent_node() {
    let script = Script::new(|_| Step::Silence);
    let start = Instant::now();
    let end = wait(&script, &upid("pve1", 1, "qmclone"), Duration::from_secs(20)).await;
    assert!(matches!(end, TaskEnd::Unknown(_)));
    assert_eq!(start.elapsed(), Duration::from_secs(20));
}
