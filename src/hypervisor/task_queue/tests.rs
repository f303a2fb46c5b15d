use futures_util::future::join_all;
use serde_json::json;

use super::*;
use crate::testing::{Clients as _, Script, Step, token};

const SECOND: Duration = Duration::from_secs(1);
const MAX: MaxConcurrent = MaxConcurrent { per_storage: 4, per_node: 2, adapts: false };

/// A cluster whose nodes each have a storage `local` and share `nfs`.
fn script() -> Script {
    Script::new(|asked| match asked {
        "GET /cluster/resources type=storage" => Step::Data(json!([
            {"type": "storage", "storage": "local", "node": "pve1", "shared": 0},
            {"type": "storage", "storage": "local", "node": "pve2", "shared": 0},
            {"type": "storage", "storage": "nfs", "node": "pve1", "shared": 1},
        ])),
        _ => Step::Refuse(500, "not asked for"),
    })
}

struct Place {
    queue: TaskQueue,
    client: Arc<Client>,
}

impl Place {
    fn new(script: &Script) -> Self {
        Self { queue: TaskQueue::measured(Arc::default()), client: script.client(&["a"], token()) }
    }

    /// Whether a guest with a volume on this storage is admitted within this time.
    async fn enters(&self, vmid: u32, storage: &str, node: &str, within: Duration) -> bool {
        let (vmid, node) = (VmId(vmid), NodeName::new(node));
        let volumes = [format!("{storage}:vm-{vmid}-disk-0"), format!("{storage}:vm-{vmid}-ci")];
        self.queue.note_volumes(vmid, &volumes);
        tokio::time::timeout(within, self.queue.enter_destroy(&self.client, &node, vmid, MAX))
            .await
            .is_ok()
    }

    async fn fill(&self, storage: &str, node: &str) {
        for vmid in 101..=104 {
            assert!(self.enters(vmid, storage, node, SECOND).await, "{vmid}");
        }
    }
}

// Invariant: no more guests are destroyed at once under one storage's lock than get the lock in
// time.

#[tokio::test(start_paused = true)]
async fn a_nodes_own_storage_takes_four_and_another_nodes_is_another() {
    let script = script();
    let place = Place::new(&script);
    place.fill("local", "pve1").await;
    assert!(!place.enters(105, "local", "pve1", SECOND).await);
    assert!(place.enters(106, "local", "pve2", SECOND).await);
    place.queue.leave(QueuedTask::Destroy, VmId(102), OperationEnd::Done);
    assert!(place.enters(105, "local", "pve1", SECOND).await);
    assert_eq!(script.seen().len(), 1, "storages are listed once");
}

#[tokio::test(start_paused = true)]
async fn a_shared_storage_takes_four_on_all_nodes_together() {
    let place = Place::new(&script());
    place.fill("nfs", "pve1").await;
    assert!(!place.enters(105, "nfs", "pve2", SECOND).await);
    drop(place.queue.guard(QueuedTask::Destroy, VmId(103)));
    assert!(place.enters(105, "nfs", "pve2", SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn a_storage_that_is_not_reported_counts_as_shared() {
    let place = Place::new(&Script::new(|_| Step::Refuse(403, "Permission check failed")));
    place.fill("local", "pve1").await;
    assert!(!place.enters(105, "local", "pve2", SECOND).await);
}

// Invariant: no more guests are started at once on a node than its limit.

#[tokio::test(start_paused = true)]
async fn a_node_starts_two_at_once_and_another_node_is_another() {
    let queue = TaskQueue::measured(Arc::default());
    let enters = |vmid: u32, node: &'static str| {
        let (queue, node) = (&queue, NodeName::new(node));
        async move {
            let entered = queue.enter_start(&node, VmId(vmid), MAX);
            tokio::time::timeout(SECOND, entered).await.is_ok()
        }
    };
    assert!(enters(101, "pve1").await && enters(102, "pve1").await);
    assert!(!enters(103, "pve1").await && enters(104, "pve2").await);
    let mut leaving = queue.guard(QueuedTask::Start, VmId(101));
    leaving.ended(&TaskEnd::Done { warnings: Vec::new() });
    drop(leaving);
    assert!(enters(103, "pve1").await);
}

#[tokio::test(start_paused = true)]
async fn anyone_who_gives_up_waiting_leaves_the_line() {
    let place = Place::new(&script());
    place.fill("local", "pve1").await;
    assert!(!place.enters(105, "local", "pve1", SECOND).await);
    place.queue.leave(QueuedTask::Destroy, VmId(101), OperationEnd::Done);
    assert!(place.enters(106, "local", "pve1", SECOND).await);
}

// Invariant: a volume that was left behind because of its lock lowers the limit.

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_waited_for_in_vain_is_heard_of_by_its_warning() {
    let place = Place::new(&script());
    let wide = MaxConcurrent { per_storage: 16, per_node: 16, adapts: true };
    let (node, volumes) = (NodeName::new("pve1"), |vmid| [format!("nfs:vm-{vmid}-disk-0")]);
    for vmid in [101, 102] {
        place.queue.note_volumes(VmId(vmid), &volumes(vmid));
        place.queue.enter_destroy(&place.client, &node, VmId(vmid), wide).await;
    }
    let text = "Could not remove disk 'nfs:vm-101-disk-0', check manually: cfs-lock 'storage-nfs' \
                error: got lock request timeout";
    let mut leaving = place.queue.guard(QueuedTask::Destroy, VmId(101));
    leaving.ended(&TaskEnd::Done { warnings: vec![text.to_owned()] });
    drop(leaving);
    place.queue.note_volumes(VmId(103), &volumes(103));
    let enters = place.queue.enter_destroy(&place.client, &node, VmId(103), wide);
    assert!(tokio::time::timeout(SECOND, enters).await.is_err(), "one at once after two failed");
}

// Invariant: every task is admitted at some time.

#[tokio::test(start_paused = true)]
async fn a_guest_that_tries_again_gives_its_old_place_up() {
    let place = Place::new(&script());
    place.fill("local", "pve1").await;
    assert!(place.enters(104, "local", "pve1", SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn places_that_are_never_left_hold_nobody_up_for_long() {
    let place = Place::new(&script());
    place.fill("local", "pve1").await;
    assert!(place.enters(105, "local", "pve1", FORGOTTEN_AFTER + SECOND).await);
    assert!(place.enters(106, "local", "pve1", SECOND).await, "the lost places are free");
}

#[tokio::test(start_paused = true)]
async fn a_long_line_stays_in_line() {
    let place = Place::new(&script());
    place.fill("local", "pve1").await;
    let ahead = (109..=112).map(|vmid| place.enters(vmid, "local", "pve1", FORGOTTEN_AFTER));
    let last = place.enters(105, "local", "pve1", FORGOTTEN_AFTER + SECOND);
    let leave = async {
        tokio::time::sleep(FORGOTTEN_AFTER / 2).await;
        (101..=104).for_each(|vmid| {
            place.queue.leave(QueuedTask::Destroy, VmId(vmid), OperationEnd::Done)
        });
    };
    let (ahead, last, ()) = tokio::join!(join_all(ahead), last, leave);
    assert_eq!((ahead, last), (vec![true; 4], false));
}

#[tokio::test(start_paused = true)]
async fn a_guest_without_known_volumes_waits_for_nobody() {
    let place = Place::new(&script());
    place.fill("local", "pve1").await;
    let node = NodeName::new("pve1");
    let entered = place.queue.enter_destroy(&place.client, &node, VmId(105), MAX);
    assert!(tokio::time::timeout(SECOND, entered).await.is_ok());
}

// Invariant: the wait for a place is measured once, when the place is there.

#[tokio::test(start_paused = true)]
async fn a_destroy_is_measured_with_the_time_that_it_waited() {
    let figures = Arc::new(Figures::default());
    let waits = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&waits);
    let measure = move |task, took: Duration| heard.lock().push((task, took.as_secs()));
    assert!(figures.waits.set(Box::new(measure)).is_ok());
    let place = Place { queue: TaskQueue::measured(figures), ..Place::new(&script()) };
    place.fill("nfs", "pve1").await;
    let freed = async {
        tokio::time::sleep(7 * SECOND).await;
        place.queue.leave(QueuedTask::Destroy, VmId(102), OperationEnd::Done);
    };
    let (entered, ()) = tokio::join!(place.enters(105, "nfs", "pve1", 60 * SECOND), freed);
    assert!(entered);
    let expected = [0, 0, 0, 0, 7].map(|seconds| ("destroy", seconds));
    assert_eq!(*waits.lock(), expected);
}
