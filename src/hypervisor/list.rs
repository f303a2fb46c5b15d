//! The list of a whole cluster (`/cluster/resources`): read once for everybody who needs it at about
//! the same time.
//!
//! The list grows with the cluster, and one worker of the node that answers builds it. Every reader
//! goes through here: the watch over running agents, reconciliation, placement, the search for a
//! guest that moved. So a cluster answers it at most once in [`SHARED`], however many ask.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use drover_limits::traffic::Kind;
use drover_model::fault::Fault;
use drover_model::id::VmId;
use proxmox_client::types::Resource;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::calls::as_kind;
use crate::client::Client;

/// How long a list serves readers that do not insist on a newer one.
pub const SHARED: Duration = Duration::from_secs(10);
/// How long a destroyed guest is remembered: longer than any list is used or on its way.
const REMEMBERED: Duration = Duration::from_secs(120);

/// One answer.
#[derive(Debug)]
pub struct List {
    /// Its rows: guests, nodes, storages and pools that the login may see.
    pub rows: Vec<Resource>,
    /// The endpoint that answered.
    pub endpoint: String,
    /// When it was asked for: the answer shows nothing that happened later.
    pub asked: Instant,
}

/// The last answer that a login got from a cluster.
#[derive(Default)]
pub struct Lists {
    last: Mutex<Last>,
    failures: AtomicU64,
    /// Guests that were destroyed, and when that was known.
    destroyed: parking_lot::Mutex<BTreeMap<VmId, Instant>>,
}

impl Lists {
    /// A guest was destroyed, by the word of its task: lists from before that show it no more, so that
    /// its room is not taken for somebody else's until the next one.
    pub fn destroyed(&self, vmid: VmId) {
        let now = Instant::now();
        let mut destroyed = self.destroyed.lock();
        destroyed.retain(|_, at| now - *at < REMEMBERED);
        destroyed.insert(vmid, now);
    }

    /// The same list without the guests that were destroyed since it was asked for, where it has some.
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
        // What they used their nodes have again.
        for guest in gone {
            let node = rows.iter_mut().find(|row| row.kind == "node" && row.node == guest.node);
            if let Some(node) = node {
                let less = |all: Option<f64>, part: Option<f64>| {
                    all.map(|all| (all - part.unwrap_or_default()).max(0.0))
                };
                // A share of the guest's processors, and of the node's.
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
struct Last {
    list: Option<Arc<List>>,
    fault: Option<Fault>,
}

/// Where a client finds its lists: its own ones until its cluster is known.
#[derive(Default)]
pub struct Share {
    own: Arc<Lists>,
    shared: OnceLock<Arc<Lists>>,
}

impl Share {
    /// The lists in use.
    pub fn lists(&self) -> &Arc<Lists> {
        self.shared.get().unwrap_or(&self.own)
    }

    /// Uses the lists of another client with the same login and the same cluster from now on.
    pub fn join(&self, lists: Arc<Lists>) {
        // Only the first is told: a cloud does not change its cluster with the same connection.
        let _ = self.shared.set(lists);
    }
}

impl Client {
    /// A list that was asked for at most `within` ago. Callers that come while one is being read
    /// get that one, or the fault it ended with.
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
            return Ok(Arc::clone(list));
        }
        if let Some(fault) =
            last.fault.as_ref().filter(|_| lists.failures.load(Ordering::Acquire) != failures)
        {
            return Err(fault.clone());
        }
        let asked = Instant::now();
        match as_kind(Kind::Vital, self.resources(false)).await {
            Ok((endpoint, rows)) => {
                let endpoint = self.endpoint(endpoint);
                let list = List { rows, endpoint, asked };
                let list = Arc::new(lists.without_destroyed(&list).unwrap_or(list));
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
