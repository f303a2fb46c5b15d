//! The list of a whole cluster (`/cluster/resources`), read once for all readers that need it at
//! about the same time.
//!
//! The list grows with the cluster, and one worker of the node that answers builds it. Every reader
//! goes through here: the watch over running agents, reconciliation, placement, and the search for
//! a guest that moved. So a cluster answers it at most once in [`LIST_SHARED_FOR`], however many
//! ask.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use drover_limits::call_queue::CallPurpose;
use drover_model::fault::Fault;
use drover_model::id::VmId;
use proxmox_client::types::Resource;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::calls::as_purpose;
use crate::client::Client;

/// How long a list serves readers that do not need a newer one.
pub(crate) const LIST_SHARED_FOR: Duration = Duration::from_secs(10);
/// How far Proxmox's own list may be behind, with much more to spare.
const LIST_BEHIND: Duration = Duration::from_secs(60);
/// How long a destroyed guest is remembered: longer than any list is used or being read.
const DESTROYED_REMEMBERED_FOR: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub struct List {
    /// Guests, nodes, storages and pools that the login may see.
    pub rows: Vec<Resource>,
    /// The endpoint that answered.
    pub endpoint: String,
    /// When the list was requested: it shows nothing that happened later.
    pub asked: Instant,
}

/// The last list that a login got from a cluster.
#[derive(Default)]
pub(crate) struct Lists {
    last: Mutex<LastAnswer>,
    failures: AtomicU64,
    /// Destroyed guests, and when drover learned of it.
    destroyed: parking_lot::Mutex<BTreeMap<VmId, Instant>>,
    /// Templates that drover named, each with its name and when that was.
    named: parking_lot::Mutex<BTreeMap<VmId, (String, Instant)>>,
}

impl Lists {
    /// Notes that a task destroyed a guest. Older lists no longer show it, so that its memory and
    /// space count as free before the next list.
    pub(crate) fn destroyed(&self, vmid: VmId) {
        let now = Instant::now();
        let mut destroyed = self.destroyed.lock();
        destroyed.retain(|_, at| now - *at < DESTROYED_REMEMBERED_FOR);
        destroyed.insert(vmid, now);
    }

    /// Notes that a guest is a template of this name from now on. Proxmox's list, which is up to ten
    /// seconds behind, may show neither yet (book: proxmox, section 8).
    pub(crate) fn named(&self, vmid: VmId, name: String) {
        let now = Instant::now();
        let mut named = self.named.lock();
        named.retain(|_, (_, at)| now - *at < DESTROYED_REMEMBERED_FOR);
        named.insert(vmid, (name, now));
    }

    fn has_named_since(&self, asked: Instant) -> bool {
        self.named.lock().values().any(|(_, at)| *at >= asked)
    }

    /// Shows the templates of `named` as what they are. A list that was requested later than they
    /// can be missing in it has them by itself.
    fn show_named(&self, list: &mut List) {
        let named = self.named.lock();
        let behind = |at: Instant| list.asked < at + LIST_BEHIND;
        for row in list.rows.iter_mut().filter(|row| row.kind == "qemu") {
            let vmid = row.vmid.and_then(|vmid| u32::try_from(vmid).ok());
            let fresh = vmid.and_then(|vmid| named.get(&VmId(vmid)));
            if let Some((name, _)) = fresh.filter(|(_, at)| behind(*at)) {
                (row.name, row.template) = (Some(name.clone()), true);
            }
        }
    }

    /// The list without the guests that were destroyed after it was requested; none if it has no
    /// such guest.
    fn without_destroyed(&self, list: &List) -> Option<List> {
        let destroyed = self.destroyed.lock();
        let went = |row: &Resource| {
            let vmid = row.vmid.and_then(|vmid| u32::try_from(vmid).ok());
            vmid.and_then(|vmid| destroyed.get(&VmId(vmid))).is_some_and(|at| *at >= list.asked)
        };
        if destroyed.is_empty() || !list.rows.iter().any(&went) {
            return None;
        }
        let (gone, mut rows): (Vec<Resource>, Vec<Resource>) =
            list.rows.iter().cloned().partition(&went);
        // The nodes get back what these guests used.
        for guest in gone {
            let node = rows.iter_mut().find(|row| row.kind == "node" && row.node == guest.node);
            if let Some(node) = node {
                let less = |all: Option<f64>, part: Option<f64>| {
                    all.map(|all| (all - part.unwrap_or_default()).max(0.0))
                };
                // From a share of the guest's processors to a share of the node's.
                let cores = guest.cpu.zip(guest.max_cpu).map(|(share, cores)| share * cores);
                let busy = cores.zip(node.max_cpu).map(|(cores, all)| cores / all.max(1.0));
                node.mem = less(node.mem, guest.mem);
                node.cpu = less(node.cpu, busy);
            }
        }
        Some(List { rows, endpoint: list.endpoint.clone(), asked: list.asked })
    }
}

#[derive(Default)]
struct LastAnswer {
    list: Option<Arc<List>>,
    fault: Option<Fault>,
}

/// The lists that a client uses: its own until its cluster is known.
#[derive(Default)]
pub(crate) struct SharedLists {
    own: Arc<Lists>,
    shared: OnceLock<Arc<Lists>>,
}

impl SharedLists {
    /// The lists in use.
    pub(crate) fn lists(&self) -> &Arc<Lists> {
        self.shared.get().unwrap_or(&self.own)
    }

    /// From now on uses the lists of another client with the same login and cluster.
    pub(crate) fn join(&self, lists: Arc<Lists>) {
        // Only the first call counts: a cloud does not change its cluster with the same connection.
        let _ = self.shared.set(lists);
    }
}

impl Client {
    /// A list that was requested at most `within` ago. Callers that come while one is being read
    /// get that one, or the fault that it ends with.
    pub async fn list(&self, within: Duration) -> Result<Arc<List>, Fault> {
        let lists = Arc::clone(self.share.lists());
        let came = Instant::now();
        let failures = lists.failures.load(Ordering::Acquire);
        let mut last = lists.last.lock().await;
        let serves = |list: &Arc<List>| list.asked >= came || list.asked.elapsed() < within;
        if let Some(list) = last.list.as_mut().filter(|list| serves(list)) {
            if let Some(shorter) = lists.without_destroyed(list) {
                *list = Arc::new(shorter);
            }
            if lists.has_named_since(list.asked) {
                let (rows, endpoint) = (list.rows.clone(), list.endpoint.clone());
                let mut newer = List { rows, endpoint, asked: list.asked };
                lists.show_named(&mut newer);
                *list = Arc::new(newer);
            }
            return Ok(Arc::clone(list));
        }
        if let Some(fault) =
            last.fault.as_ref().filter(|_| lists.failures.load(Ordering::Acquire) != failures)
        {
            return Err(fault.clone());
        }
        let asked = Instant::now();
        match as_purpose(CallPurpose::Vital, self.resources(false)).await {
            Ok((endpoint, rows)) => {
                self.figures.show_guests(self.cloud(), &rows);
                let endpoint = self.endpoint(endpoint);
                let list = List { rows, endpoint, asked };
                let mut list = lists.without_destroyed(&list).unwrap_or(list);
                lists.show_named(&mut list);
                let list = Arc::new(list);
                last.list = Some(Arc::clone(&list));
                Ok(list)
            }
            Err(error) => {
                let fault = self.fault(&error);
                last.fault = Some(fault.clone());
                lists.failures.fetch_add(1, Ordering::AcqRel);
                Err(fault)
            }
        }
    }
}
