//! The port itself: clouds by id, each with its client and its cluster's watcher, and the calls
//! of `Hypervisor` on them.

mod identity;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use drover_limits::lanes::{LaneEnd, Width};
use drover_limits::traffic::{Kind, Level};
use drover_model::addresses::AddressSource;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{CloudId, ClusterId, NodeName, Upid, VmId};
use drover_model::marks::Marks;
use drover_model::os::Os;
use drover_model::placement::Fleet;
use drover_model::ports::{
    AddressSight, Ask, CloneCall, ClusterSight, ConfigureCall, Configured, Hypervisor, IdSight,
    ImageSight, Snapped, SnapshotCall, Survey, TaskEnd, VmRef, VmSight,
};
use drover_model::spec::{CloneStrategy, CloudSpec, WIDTH};
use drover_model::template_image::{Found, Sought};
use parking_lot::{Mutex, MutexGuard};
use proxmox_client::Params;
use proxmox_client::PveError;
use proxmox_client::connection::Connection;
use proxmox_client::transport::Dialer;
use proxmox_client::upid::{task_guest, task_kind};
use proxmox_client::wire::WireDialer;
use secrecy::SecretString;
use tokio::runtime::Handle;

use crate::call_in::CallInKey;
use crate::calls::{Calls, Queue, as_kind};
use crate::client::Failure;
use crate::client::{Client, fault, task};
use crate::configure::{self, RETIRING, split_tags};
use crate::continued::Continued;
use crate::disc::Sent;
use crate::gate::{Gate, Line};
use crate::list::Lists;
use crate::watcher::Watcher;
use crate::{disc, fleet, guest, sight, snapshot, source};

/// The shortest time between two looks at the tasks of a cluster.
pub const TICK: Duration = Duration::from_millis(250);

/// What holds for a cloud of which nothing was said.
const UNSAID: Width = Width { per_storage: WIDTH, per_node: WIDTH, adapts: true };

/// How long the removal of one volume is waited for.
const FREE_LIMIT: Duration = Duration::from_secs(60);

/// Every cloud's Proxmox.
pub struct Proxmox {
    runtime: Option<Handle>,
    dialer: Arc<dyn Dialer>,
    tick: Duration,
    clouds: Mutex<BTreeMap<CloudId, Arc<Cloud>>>,
    widths: Mutex<BTreeMap<CloudId, Width>>,
    clusters: Arc<Mutex<BTreeMap<ClusterId, Arc<Cluster>>>>,
    continued: Continued,
    /// What guests that call are given a secret by.
    call_ins: Option<Arc<CallInKey>>,
}

/// What all clouds share that lead to one cluster.
struct Cluster {
    watcher: Watcher,
    gate: Gate,
    /// By login: what a list shows is what its login may see.
    lists: Mutex<BTreeMap<String, Arc<Lists>>>,
    calls: Arc<Calls>,
}

pub(super) struct Cloud {
    pub(super) client: Arc<Client>,
    /// Used until the cluster is known.
    own: Arc<Cluster>,
    /// The cluster's, shared with other clouds that lead there; known once the cloud said so.
    shared: OnceLock<(ClusterId, Arc<Cluster>)>,
    /// Where the connection led that this one replaces.
    before: Option<ClusterId>,
    clusters: Arc<Mutex<BTreeMap<ClusterId, Arc<Cluster>>>>,
    continued: Continued,
    /// Storages that were found to take disc images from this login.
    pub(super) discs: Mutex<BTreeSet<String>>,
}

impl Proxmox {
    /// Builds the port with no clouds. Calls run on `runtime`, or where they are polled when
    /// there is none; `tick` is the time between two looks at running tasks.
    pub fn new(runtime: Option<Handle>, dialer: Arc<dyn Dialer>, tick: Duration) -> Self {
        let (clouds, widths, clusters) = (Mutex::default(), Mutex::default(), Arc::default());
        let continued = Continued::default();
        Self { runtime, dialer, tick, clouds, widths, clusters, continued, call_ins: None }
    }

    /// Gives guests that are to call the tokens of this key.
    pub fn with_call_ins(mut self, key: Arc<CallInKey>) -> Self {
        self.call_ins = Some(key);
        self
    }

    /// The serial number of a guest that is to call; none for others.
    fn serial(&self, call: &ConfigureCall) -> Result<Option<SecretString>, Fault> {
        if call.spec.address != AddressSource::Call {
            return Ok(None);
        }
        let key = self.call_ins.as_ref().ok_or_else(|| {
            let text = "guests can not call: this service has no key for that";
            Fault::new(FaultKind::Broken, Culprit::Template, text)
        })?;
        Ok(Some(key.token(&call.marks.agent)))
    }

    /// Sets or replaces the way into a cloud; calls under way keep the old one, but for those that
    /// await a task's end.
    pub fn set_cloud(&self, id: CloudId, connection: &Connection) -> Result<(), Failure> {
        let client = Arc::new(Client::new(id.clone(), connection, self.dialer.as_ref())?);
        let mut clouds = self.clouds.lock();
        // What was learned of the way before holds for this one too, and calls under way count.
        let calls = clouds.get(&id).map(|old| Arc::clone(&old.cluster().calls)).unwrap_or_default();
        client.take_turns(Arc::new(Queue(Arc::clone(&calls))));
        let (watcher, gate) = (Watcher::new(self.tick), Gate::default());
        let own = Cluster { watcher, gate, calls, lists: Mutex::default() };
        let cloud = Cloud {
            client: client.clone(),
            own: Arc::new(own),
            shared: OnceLock::new(),
            before: clouds.get(&id).and_then(|old| old.led_to()),
            clusters: self.clusters.clone(),
            continued: self.continued.clone(),
            discs: Mutex::default(),
        };
        if let Some(old) = clouds.insert(id, Arc::new(cloud)) {
            old.client.replace_by(client);
        }
        Ok(())
    }

    /// How many guests may be started and destroyed at once through a cloud.
    pub fn set_width(&self, spec: &CloudSpec) {
        let width = Width::of(spec);
        self.widths().insert(spec.id.clone(), width);
    }

    fn width(&self, id: &CloudId) -> Width {
        self.widths().get(id).copied().unwrap_or(UNSAID)
    }

    fn widths(&self) -> MutexGuard<'_, BTreeMap<CloudId, Width>> {
        self.widths.lock()
    }

    /// How many calls run and wait, by a cloud of each cluster.
    pub fn levels(&self) -> Vec<(CloudId, Vec<Level>)> {
        let clouds = self.clouds.lock();
        let mut seen = BTreeSet::new();
        let first = clouds
            .iter()
            .filter(|(_, cloud)| seen.insert(Arc::as_ptr(&cloud.cluster().calls) as usize));
        first.map(|(id, cloud)| (id.clone(), cloud.cluster().calls.levels())).collect()
    }

    /// Forgets a cloud; calls under way go on.
    pub fn drop_cloud(&self, id: &CloudId) {
        self.clouds.lock().remove(id);
        self.widths().remove(id);
    }

    fn cloud(&self, id: &CloudId) -> Result<Arc<Cloud>, Fault> {
        let clouds = self.clouds.lock();
        clouds.get(id).cloned().ok_or_else(|| {
            let text = format!("cloud `{id}` is not configured, or its connection is at fault");
            Fault::new(FaultKind::Unreachable, Culprit::Cloud(id.clone()), text)
        })
    }

    /// Runs a call on the port's runtime, so that dropping the answer does not take it back.
    fn ask<T, W, F>(&self, id: &CloudId, work: W) -> Ask<T>
    where
        T: Send + 'static,
        W: FnOnce(Arc<Cloud>) -> F + Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let cloud = match self.cloud(id) {
            Ok(cloud) => cloud,
            Err(fault) => return Box::pin(async move { Err(fault) }),
        };
        let id = id.clone();
        let call = async move {
            let client = cloud.client.clone();
            work(cloud).await.map_err(|error| client.fault(&error))
        };
        let Some(runtime) = &self.runtime else { return Box::pin(call) };
        let running = runtime.spawn(call);
        Box::pin(async move {
            running.await.unwrap_or_else(|error| {
                let text = format!("a call to cloud `{id}` was cut off: {error}");
                Err(Fault::new(FaultKind::UnknownOutcome, Culprit::Cloud(id), text))
            })
        })
    }
}

impl Cloud {
    fn cluster(&self) -> &Arc<Cluster> {
        self.shared.get().map_or(&self.own, |(_, cluster)| cluster)
    }

    /// Where it leads, or led before its connection was replaced; none when that was never known.
    fn led_to(&self) -> Option<ClusterId> {
        self.shared.get().map(|(id, _)| id.clone()).or_else(|| self.before.clone())
    }

    pub(super) async fn await_task(&self, upid: &Upid, limit: Duration) -> TaskEnd {
        let cluster = self.cluster();
        let line = Line::of_task(task_kind(upid.as_str())).zip(task_guest(upid.as_str()).map(VmId));
        let leaving = line.map(|(line, vmid)| cluster.gate.leaving(line, vmid));
        let wait = cluster.watcher.wait(self.client.clone(), upid, limit);
        let end = as_kind(Kind::Vital, wait).await;
        if let Some(mut leaving) = leaving {
            leaving.tell(&end);
        }
        if let (TaskEnd::Done { .. }, "qmdestroy" | "vzdestroy", Some(vmid)) =
            (&end, task_kind(upid.as_str()), task_guest(upid.as_str()))
        {
            self.client.share.lists().destroyed(VmId(vmid));
        }
        end
    }

    /// Volumes that still carry an id, once those that are ours were removed, and disc images of ours.
    async fn leftovers(
        &self,
        vm: &VmRef,
        ours: &[String],
        only: Option<&BTreeSet<String>>,
    ) -> Result<Vec<String>, Failure> {
        let mut left = self.remove_images(vm, ours).await?;
        left.extend(self.volumes_left(vm, ours, only).await?);
        Ok(left)
    }

    async fn volumes_left(
        &self,
        vm: &VmRef,
        ours: &[String],
        only: Option<&BTreeSet<String>>,
    ) -> Result<Vec<String>, Failure> {
        let found = sight::leftovers(&self.client, vm, only).await?;
        let is_ours = |volume: &&String| ours.iter().any(|one| is_same_volume(one, volume));
        let mine: Vec<&String> = found.iter().filter(is_ours).collect();
        // Whoever takes the id up makes volumes of these very names.
        if mine.is_empty() || sight::id_taken(&self.client, vm.vmid).await? != IdSight::Free {
            return Ok(found);
        }
        for volume in mine {
            match self.client.free_volume(vm.node.as_str(), volume).await {
                Ok(upid) => {
                    let end = self.await_task(&task(upid), FREE_LIMIT).await;
                    tracing::info!(vmid = vm.vmid.0, volume, end = ?end, "volume left behind");
                }
                Err(error) => {
                    let fault = self.client.fault(&error);
                    tracing::warn!(vmid = vm.vmid.0, volume, error = %fault, "volume stays behind");
                }
            }
        }
        sight::leftovers(&self.client, vm, only).await
    }

    /// Destroys a guest as soon as its storages have room for that.
    async fn destroy(&self, node: &NodeName, vmid: VmId, width: Width) -> Result<Upid, Failure> {
        let gate = &self.cluster().gate;
        gate.enter_destroy(&self.client, node, vmid, width).await;
        let begun = self.client.destroy(node.as_str(), vmid.0).await;
        if begun.is_err() {
            gate.leave(Line::Destroy, vmid, LaneEnd::Void);
        }
        Ok(task(begun?))
    }

    /// Starts a guest as soon as its node has room for that.
    async fn start(&self, node: &NodeName, vmid: VmId, width: Width) -> Result<Upid, Failure> {
        let gate = &self.cluster().gate;
        gate.enter_start(node, vmid, width).await;
        let begun = self.client.start(node.as_str(), vmid.0).await;
        if begun.is_err() {
            gate.leave(Line::Start, vmid, LaneEnd::Void);
        }
        Ok(task(begun?))
    }

    async fn configure(
        &self,
        call: ConfigureCall,
        serial: Option<SecretString>,
    ) -> Result<Configured, Failure> {
        let config = configure::read(&self.client, &call).await?;
        let disc = match self.disc(&call, &config).await? {
            Sent::Stored(disc) => disc,
            Sent::Refused(fault) => {
                let (volumes, mac, tags_refused) = (Vec::new(), None, None);
                let image_refused = Some(fault);
                return Ok(Configured { volumes, mac, tags_refused, image_refused });
            }
        };
        let client = &self.client;
        let begun =
            configure::begin(client, &call, &config, disc.as_ref(), serial.as_ref()).await?;
        if let Some(upid) = &begun.resize {
            match self.await_task(upid, call.spec.limits.operation).await {
                TaskEnd::Done { .. } => {}
                TaskEnd::Failed(fault) => return Err(fault.into()),
                TaskEnd::Unknown(text) => {
                    let fault = Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text);
                    return Err(fault.into());
                }
            }
        }
        Ok(begun.configured)
    }

    /// Takes the snapshot from before the first use, unless it is there already.
    async fn snapshot(&self, call: SnapshotCall) -> Result<Snapped, Failure> {
        let faulty = |error: Failure| snapshot::taken(self.client.fault(&error));
        match snapshot::take(&self.client, &call).await {
            Ok(None) => Ok(Snapped::Taken),
            Ok(Some(upid)) => {
                let end = snapshot::ended(self.await_task(&upid, call.limit).await);
                Ok(end.map(|()| Snapped::Taken).or_else(snapshot::taken)?)
            }
            Err(error) => Ok(faulty(error)?),
        }
    }

    async fn rollback(&self, call: SnapshotCall) -> Result<(), Failure> {
        let upid = snapshot::go_back(&self.client, &call).await?;
        Ok(snapshot::ended(self.await_task(&upid, call.limit).await)?)
    }

    /// Verifies the marks and tags the guest as retiring; under a lock of Proxmox's own nothing
    /// is written. Whether it runs is not asked: shutdown and stop take a stopped guest too.
    async fn fence(&self, vm: &VmRef, marks: &Marks) -> Result<VmSight, Failure> {
        let client = &self.client;
        let config = client.config(vm.node.as_str(), vm.vmid.0).await?;
        configure::verify(&config, marks, vm.vmid)?;
        configure::unlocked(&config, vm.vmid)?;
        self.cluster().gate.note(vm.vmid, &configure::volumes(&config, vm.vmid));
        let mut seen =
            VmSight { id: IdSight::Taken, node: None, marks: None, lock: None, running: None };
        sight::describe(&mut seen, &vm.node, &config);
        let mut tags = split_tags(config.get("tags").unwrap_or_default());
        if !tags.insert(RETIRING.to_owned()) {
            return Ok(seen);
        }
        let tags = tags.into_iter().collect::<Vec<_>>().join(";");
        let mut changes: Params = vec![("tags".to_owned(), tags)];
        let digest = config.get("digest").map(|digest| ("digest".to_owned(), digest.to_owned()));
        changes.extend(digest);
        if let Err(error) = client.set_config(vm.node.as_str(), vm.vmid.0, changes).await {
            let refused = configure::tag_refusal(client, &error).ok_or(error)?;
            tracing::warn!(vmid = %vm.vmid, refusal = refused, "the guest goes without its tag");
        }
        Ok(seen)
    }
}

/// Spells a clone's parameters: its marks are in the call itself (design rule 2).
fn clone_params(call: &CloneCall) -> Params {
    let spec = &call.spec;
    let full = spec.clone == CloneStrategy::Full;
    let mut params: Vec<(&str, String)> = vec![
        ("newid", call.marks.vmid.to_string()),
        ("name", call.marks.name(&spec.name_prefix)),
        ("description", call.marks.describe(&spec.description)),
        ("full", u8::from(full).to_string()),
    ];
    if let Some(storage) = spec.target_storage.as_ref().filter(|_| full) {
        params.push(("storage", storage.clone()));
    }
    if let Some(target) = &call.target {
        params.push(("target", target.to_string()));
    }
    if let Some(pool) = &spec.target_pool {
        params.push(("pool", pool.clone()));
    }
    params.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

impl Hypervisor for Proxmox {
    fn continues(&self, now: &ClusterId, former: &ClusterId) {
        self.continued.add(now, former);
    }

    fn identify(&self, cloud: &CloudId) -> Ask<ClusterSight> {
        self.ask(cloud, |cloud| async move {
            let sight = as_kind(Kind::Vital, sight::identify(&cloud.client)).await?;
            let cluster = cloud.continued.known(sight.cluster);
            cloud.join(&cluster);
            Ok(ClusterSight { cluster, ..sight })
        })
    }

    fn survey(&self, cloud: &CloudId, within: Duration) -> Ask<Survey> {
        self.ask(cloud, move |cloud| async move {
            as_kind(Kind::Vital, sight::survey(&cloud.client, within)).await
        })
    }

    fn locate(&self, cloud: &CloudId, sought: &Sought, near: Option<&[NodeName]>) -> Ask<Found> {
        let (sought, near) = (sought.clone(), near.map(<[NodeName]>::to_vec));
        self.ask(cloud, move |cloud| async move {
            source::locate(&cloud.client, &sought, near.as_deref()).await
        })
    }

    fn fleet(&self, cloud: &CloudId) -> Ask<Fleet> {
        self.ask(
            cloud,
            |cloud| async move { as_kind(Kind::Vital, fleet::fleet(&cloud.client)).await },
        )
    }

    fn look(&self, vm: &VmRef) -> Ask<VmSight> {
        let vm = vm.clone();
        self.ask(&vm.cloud.clone(), |cloud| async move {
            Ok(cloud.proven(sight::look(&cloud.client, &vm).await?).await)
        })
    }

    fn confirm(&self, vm: &VmRef, marks: &Marks, name: &str) -> Ask<VmSight> {
        let (vm, marks, name) = (vm.clone(), marks.clone(), name.to_owned());
        self.ask(&vm.cloud.clone(), |cloud| async move {
            if let Some(sight) = sight::confirm(&cloud.client, &vm, (&marks, &name)).await {
                return Ok(sight);
            }
            Ok(cloud.proven(sight::look(&cloud.client, &vm).await?).await)
        })
    }

    fn id_taken(&self, cloud: &CloudId, vmid: VmId) -> Ask<IdSight> {
        self.ask(cloud, move |cloud| async move {
            Ok(cloud.believed(sight::id_taken(&cloud.client, vmid).await?))
        })
    }

    fn clone_vm(&self, call: CloneCall) -> Ask<Upid> {
        self.ask(&call.cloud.clone(), |cloud| async move {
            let params = clone_params(&call);
            let (node, source) = (call.node.as_str(), call.spec.source.0);
            Ok(task(cloud.client.clone_guest(node, source, params).await?))
        })
    }

    fn await_task(&self, cloud: &CloudId, upid: &Upid, limit: Duration) -> Ask<TaskEnd> {
        let upid = upid.clone();
        self.ask(cloud, move |cloud| async move { Ok(cloud.await_task(&upid, limit).await) })
    }

    fn configure(&self, call: ConfigureCall) -> Ask<Configured> {
        let serial = match self.serial(&call) {
            Ok(serial) => serial,
            Err(fault) => return Box::pin(async move { Err(fault) }),
        };
        self.ask(&call.vm.cloud.clone(), |cloud| async move {
            as_kind(Kind::Change, cloud.configure(call, serial)).await
        })
    }

    fn snapshot(&self, call: SnapshotCall) -> Ask<Snapped> {
        self.ask(&call.vm.cloud.clone(), |cloud| async move { cloud.snapshot(call).await })
    }

    fn rollback(&self, call: SnapshotCall) -> Ask<()> {
        self.ask(&call.vm.cloud.clone(), |cloud| async move { cloud.rollback(call).await })
    }

    fn start(&self, vm: &VmRef) -> Ask<Upid> {
        let VmRef { cloud, node, vmid } = vm.clone();
        let width = self.width(&cloud);
        self.ask(&cloud, move |cloud| async move { cloud.start(&node, vmid, width).await })
    }

    fn address(&self, vm: &VmRef, mac: Option<&str>, networks: &[String]) -> Ask<AddressSight> {
        let VmRef { cloud, node, vmid } = vm.clone();
        let (mac, networks) = (mac.map(str::to_owned), networks.to_vec());
        self.ask(&cloud, move |cloud| async move {
            Ok(guest::address(&cloud.client, &node, vmid, mac.as_deref(), &networks).await?)
        })
    }

    fn host_keys(&self, vm: &VmRef, os: Os) -> Ask<Vec<String>> {
        let VmRef { cloud, node, vmid } = vm.clone();
        self.ask(&cloud, move |cloud| async move {
            Ok(guest::host_keys(&cloud.client, &node, vmid, os).await?)
        })
    }

    fn fence(&self, vm: &VmRef, marks: &Marks) -> Ask<VmSight> {
        let (vm, marks) = (vm.clone(), marks.clone());
        self.ask(&vm.cloud.clone(), |cloud| async move {
            as_kind(Kind::Change, cloud.fence(&vm, &marks)).await
        })
    }

    fn shutdown(&self, vm: &VmRef, limit: Duration) -> Ask<Upid> {
        let VmRef { cloud, node, vmid } = vm.clone();
        self.ask(&cloud, move |cloud| async move {
            Ok(task(cloud.client.shutdown(node.as_str(), vmid.0, limit).await?))
        })
    }

    fn stop(&self, vm: &VmRef) -> Ask<Upid> {
        let VmRef { cloud, node, vmid } = vm.clone();
        self.ask(&cloud, move |cloud| async move {
            Ok(task(cloud.client.stop(node.as_str(), vmid.0).await?))
        })
    }

    fn destroy(&self, vm: &VmRef) -> Ask<Upid> {
        let VmRef { cloud, node, vmid } = vm.clone();
        let width = self.width(&cloud);
        self.ask(&cloud, move |cloud| async move { cloud.destroy(&node, vmid, width).await })
    }

    fn images(&self, cloud: &CloudId, storages: &BTreeSet<String>) -> Ask<Vec<ImageSight>> {
        let storages = storages.clone();
        self.ask(cloud, move |cloud| async move { disc::list(&cloud.client, &storages).await })
    }

    fn remove_image(&self, cloud: &CloudId, image: &ImageSight) -> Ask<()> {
        let image = image.clone();
        self.ask(cloud, move |cloud| async move { cloud.remove_image(&image).await })
    }

    fn leftovers(
        &self,
        vm: &VmRef,
        ours: &[String],
        only: Option<&BTreeSet<String>>,
    ) -> Ask<Vec<String>> {
        let (vm, ours, only) = (vm.clone(), ours.to_vec(), only.cloned());
        self.ask(&vm.cloud.clone(), |cloud| async move {
            cloud.leftovers(&vm, &ours, only.as_ref()).await
        })
    }
}

/// Whether two names mean one volume: that of a linked clone may go before its own with its base's.
fn is_same_volume(one: &str, other: &str) -> bool {
    let parts = |volume: &str| {
        let (storage, path) = volume.split_once(':')?;
        Some((storage.to_owned(), path.rsplit('/').next()?.to_owned()))
    };
    parts(one).is_some_and(|one| parts(other) == Some(one))
}

/// Tries a connection over the wire and gives Proxmox's version, for checks before anything runs.
pub async fn probe(cloud: &CloudId, connection: &Connection) -> Result<String, Fault> {
    let to_fault = |error: PveError| fault(&error, cloud, connection.login.name());
    let client = Client::new(cloud.clone(), connection, &WireDialer).map_err(to_fault)?;
    client.version().await.map(|version| version.version).map_err(|error| client.fault(&error))
}

#[cfg(test)]
mod tests;
