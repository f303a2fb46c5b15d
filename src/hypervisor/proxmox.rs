//! [`Proxmox`]: the clouds by id, each with its client and its cluster, and the calls of
//! `Hypervisor` on them.
//!
//! A call runs on the port's runtime, so dropping its answer does not cancel it. Each cloud starts
//! with a [`Cluster`] of its own; once it is known which cluster it leads to, it joins the clouds
//! that lead to the same one (`identity.rs`). Replacing a connection keeps the queue of calls and
//! what it learned.

mod fence;
mod figures;
mod identity;
mod leftovers;
mod machine;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use drover_limits::call_queue::CallPurpose;
use drover_limits::concurrency::{MaxConcurrent, OperationEnd};
use drover_model::addresses::AddressSource;
use drover_model::container::{GuestType, OsTemplate};
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::hardware::Devices;
use drover_model::id::{AgentId, CloudId, ClusterId, Installation, NodeName, Upid, VmId};
use drover_model::image::ImageVersion;
use drover_model::marks::Marks;
use drover_model::order::MachineView;
use drover_model::os::Os;
use drover_model::placement::Fleet;
use drover_model::ports::{
    AddressObservation, Ask, Carried, CloneCall, ClusterObservation, ConfigureCall, Configured,
    CreateCall, EjectCall, FinishCall, Hypervisor, IdStatus, ImageObservation, OrderCall, PullCall,
    SealCall, Snapped, SnapshotCall, Survey, TaskEnd, VmObservation, VmRef,
};
use drover_model::spec::{CloudSpec, WIDTH};
use drover_model::template_image::{Found, Sought};
use parking_lot::{Mutex, MutexGuard};
use proxmox_client::connection::Connection;
use proxmox_client::transport::Dialer;
use proxmox_client::upid::{task_guest, task_kind};
use secrecy::SecretString;
use tokio::runtime::Handle;

use crate::call_in::CallInKey;
use crate::calls::{ClusterCallLimiter, ClusterCalls, as_making, as_purpose};
use crate::client::{Client, Failure, guest_id, task};
use crate::cluster_aliases::ClusterAliases;
use crate::configure;
use crate::disc::ImageUpload;
use crate::download::Downloads;
use crate::figures::Figures;
use crate::list::Lists;
use crate::os_template::ArchiveDownloads;
use crate::task_queue::{QueuedTask, TaskQueue};
use crate::watcher::Watcher;
use crate::{
    describe, devices, disc, fleet, guest, image, making, observe, snapshot, template_image,
};

/// The shortest time between two reads of a cluster's tasks.
pub const TASK_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The limits of a cloud before its own are set.
const DEFAULT_MAX_CONCURRENT: MaxConcurrent =
    MaxConcurrent { per_storage: WIDTH, per_node: WIDTH, adapts: true };

pub struct Proxmox {
    runtime: Option<Handle>,
    dialer: Arc<dyn Dialer>,
    tick: Duration,
    clouds: Mutex<BTreeMap<CloudId, Arc<Cloud>>>,
    limits: Mutex<BTreeMap<CloudId, MaxConcurrent>>,
    clusters: Arc<Mutex<BTreeMap<ClusterId, Arc<Cluster>>>>,
    aliases: ClusterAliases,
    figures: Arc<Figures>,
    /// The key of the tokens for guests that call in.
    call_in_key: Option<Arc<CallInKey>>,
    /// Where sources of images are downloaded to that nodes cannot download.
    pub(super) downloads: Option<Arc<Downloads>>,
}

/// What all clouds share that lead to one cluster.
struct Cluster {
    watcher: Watcher,
    tasks: TaskQueue,
    /// Container templates on their way.
    archives: ArchiveDownloads,
    /// By login, because a list shows what its login may see.
    lists: Mutex<BTreeMap<String, Arc<Lists>>>,
    calls: Arc<ClusterCalls>,
}

pub(super) struct Cloud {
    pub(super) client: Arc<Client>,
    /// Used until the cluster is known.
    own: Arc<Cluster>,
    /// The cluster that is shared with other clouds, once this cloud has identified it.
    shared: OnceLock<(ClusterId, Arc<Cluster>)>,
    /// The cluster of the connection that this one replaced.
    previous: Option<ClusterId>,
    clusters: Arc<Mutex<BTreeMap<ClusterId, Arc<Cluster>>>>,
    aliases: ClusterAliases,
    /// Storages on which the login may upload and remove disc images, as far as checked.
    pub(super) image_storages: Mutex<BTreeSet<String>>,
}

impl Proxmox {
    /// A port without clouds. Calls run on `runtime`, or, without one, where their answer is
    /// polled. `tick` is the time between two reads of running tasks.
    pub fn new(runtime: Option<Handle>, dialer: Arc<dyn Dialer>, tick: Duration) -> Self {
        let (clouds, limits, clusters) = (Mutex::default(), Mutex::default(), Arc::default());
        let aliases = ClusterAliases::default();
        let (call_in_key, downloads, figures) = (None, None, Arc::default());
        Self {
            runtime,
            dialer,
            tick,
            clouds,
            limits,
            clusters,
            aliases,
            figures,
            call_in_key,
            downloads,
        }
    }

    /// Makes guests that call in get tokens of this key.
    pub fn with_call_ins(mut self, key: Arc<CallInKey>) -> Self {
        self.call_in_key = Some(key);
        self
    }

    /// The serial number with the token of a guest that calls in; none for other guests.
    fn serial_number(&self, call: &ConfigureCall) -> Result<Option<SecretString>, Fault> {
        if call.spec.address != AddressSource::Call {
            return Ok(None);
        }
        let key = self.call_in_key.as_ref().ok_or_else(|| {
            let text = "this service takes no calls from guests: it has no call-in key";
            Fault::new(FaultKind::Broken, Culprit::Template, text)
        })?;
        Ok(Some(key.token(&call.marks.agent)))
    }

    /// Sets or replaces a cloud's connection. Running calls keep the old one, except those that
    /// await the end of a task.
    pub fn set_cloud(&self, id: CloudId, connection: &Connection) -> Result<(), Failure> {
        let client = Client::new(id.clone(), connection, self.dialer.as_ref())?;
        let client = Arc::new(client.measured(Arc::clone(&self.figures)));
        let mut clouds = self.clouds.lock();
        // The calls on the old connection still run, and what was learned on it stays valid.
        let calls = clouds.get(&id).map(|old| Arc::clone(&old.cluster().calls));
        let measured = || Arc::new(ClusterCalls::measured(Arc::clone(&self.figures)));
        let calls = calls.unwrap_or_else(measured);
        client.set_limiter(Arc::new(ClusterCallLimiter(Arc::clone(&calls))));
        let (watcher, tasks) =
            (Watcher::new(self.tick), TaskQueue::measured(Arc::clone(&self.figures)));
        let archives = ArchiveDownloads::default();
        let own = Cluster { watcher, tasks, archives, calls, lists: Mutex::default() };
        let cloud = Cloud {
            client: client.clone(),
            own: Arc::new(own),
            shared: OnceLock::new(),
            previous: clouds.get(&id).and_then(|old| old.last_cluster()),
            clusters: self.clusters.clone(),
            aliases: self.aliases.clone(),
            image_storages: Mutex::default(),
        };
        if let Some(old) = clouds.insert(id, Arc::new(cloud)) {
            old.client.replace_by(client);
        }
        Ok(())
    }

    /// Sets how many guests may be started and destroyed at once through a cloud.
    pub fn set_max_concurrent(&self, spec: &CloudSpec) {
        let max = MaxConcurrent::of(spec);
        self.limits().insert(spec.id.clone(), max);
    }

    fn max_concurrent(&self, id: &CloudId) -> MaxConcurrent {
        self.limits().get(id).copied().unwrap_or(DEFAULT_MAX_CONCURRENT)
    }

    fn limits(&self) -> MutexGuard<'_, BTreeMap<CloudId, MaxConcurrent>> {
        self.limits.lock()
    }

    /// Forgets a cloud; running calls go on.
    pub fn drop_cloud(&self, id: &CloudId) {
        self.clouds.lock().remove(id);
        self.limits().remove(id);
    }

    pub(crate) fn cloud(&self, id: &CloudId) -> Result<Arc<Cloud>, Fault> {
        let clouds = self.clouds.lock();
        clouds.get(id).cloned().ok_or_else(|| {
            let text =
                format!("cloud `{id}` is not configured, or its connection could not be set up");
            Fault::new(FaultKind::Unreachable, Culprit::Cloud(id.clone()), text)
        })
    }

    /// Runs a call on the port's runtime, so that dropping the answer does not cancel it.
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
                let text = format!("a call to cloud `{id}` ended early: {error}");
                Err(Fault::new(FaultKind::UnknownOutcome, Culprit::Cloud(id), text))
            })
        })
    }
}

impl Cloud {
    fn cluster(&self) -> &Arc<Cluster> {
        self.shared.get().map_or(&self.own, |(_, cluster)| cluster)
    }

    pub(super) fn archives(&self) -> &ArchiveDownloads {
        &self.cluster().archives
    }

    /// The cluster that this cloud leads to, or led to before its connection was replaced; none
    /// when that was never known.
    fn last_cluster(&self) -> Option<ClusterId> {
        self.shared.get().map(|(id, _)| id.clone()).or_else(|| self.previous.clone())
    }

    pub(super) async fn await_task(&self, upid: &Upid, limit: Duration) -> TaskEnd {
        let cluster = self.cluster();
        let task =
            QueuedTask::of_task(task_kind(upid.as_str())).zip(task_guest(upid.as_str()).map(VmId));
        let guard = task.map(|(task, vmid)| cluster.tasks.guard(task, vmid));
        let wait = cluster.watcher.wait(self.client.clone(), upid, limit);
        let end = as_purpose(CallPurpose::Vital, wait).await;
        if let Some(mut guard) = guard {
            guard.ended(&end);
        }
        if let (TaskEnd::Done { .. }, "qmdestroy" | "vzdestroy", Some(vmid)) =
            (&end, task_kind(upid.as_str()), task_guest(upid.as_str()))
        {
            self.client.share.lists().destroyed(VmId(vmid));
        }
        end
    }

    /// Destroys a guest as soon as its storages have room for that.
    async fn destroy(&self, vm: &VmRef, max: MaxConcurrent) -> Result<Upid, Failure> {
        let tasks = &self.cluster().tasks;
        tasks.enter_destroy(&self.client, &vm.node, vm.vmid, max).await;
        let started = self.client.destroy(vm.node.as_str(), guest_id(vm)).await;
        if started.is_err() {
            tasks.leave(QueuedTask::Destroy, vm.vmid, OperationEnd::Inconclusive);
        }
        Ok(task(started?))
    }

    /// Starts a guest as soon as its node has room for that.
    async fn start(&self, vm: &VmRef, max: MaxConcurrent) -> Result<Upid, Failure> {
        let tasks = &self.cluster().tasks;
        tasks.enter_start(&vm.node, vm.vmid, max).await;
        let started = self.client.start(vm.node.as_str(), guest_id(vm)).await;
        if started.is_err() {
            tasks.leave(QueuedTask::Start, vm.vmid, OperationEnd::Inconclusive);
        }
        Ok(task(started?))
    }

    async fn configure(
        &self,
        call: ConfigureCall,
        serial: Option<SecretString>,
    ) -> Result<Configured, Failure> {
        let config = configure::read(&self.client, &call).await?;
        let upload = match call.marks.guest {
            GuestType::Vm => self.disc(&call, &config).await?,
            // A container reads no disc.
            GuestType::Container => ImageUpload::Stored(None),
        };
        let disc = match upload {
            ImageUpload::Stored(disc) => disc,
            ImageUpload::Refused(fault) => {
                let (volumes, mac, tags_refused) = (Vec::new(), None, None);
                let image_refused = Some(fault);
                return Ok(Configured { volumes, mac, tags_refused, image_refused });
            }
        };
        let client = &self.client;
        let started =
            configure::start(client, &call, &config, disc.as_ref(), serial.as_ref()).await?;
        if let Some(upid) = &started.resize {
            match self.await_task(upid, call.spec.limits.operation).await {
                TaskEnd::Done { .. } => {}
                TaskEnd::Failed(fault) => return Err(fault.into()),
                TaskEnd::Unknown(text) => {
                    let fault = Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text);
                    return Err(fault.into());
                }
            }
        }
        Ok(started.configured)
    }

    /// Takes the snapshot before the first use, unless it exists.
    async fn snapshot(&self, call: SnapshotCall) -> Result<Snapped, Failure> {
        let faulty = |error: Failure| snapshot::or_impossible(self.client.fault(&error));
        match snapshot::start(&self.client, &call).await {
            Ok(None) => Ok(Snapped::Taken),
            Ok(Some(upid)) => {
                let end = snapshot::into_result(self.await_task(&upid, call.limit).await);
                Ok(end.map(|()| Snapped::Taken).or_else(snapshot::or_impossible)?)
            }
            Err(error) => Ok(faulty(error)?),
        }
    }

    async fn rollback(&self, call: SnapshotCall) -> Result<(), Failure> {
        let upid = snapshot::roll_back(&self.client, &call).await?;
        Ok(snapshot::into_result(self.await_task(&upid, call.limit).await)?)
    }
}

impl Hypervisor for Proxmox {
    fn continues(&self, now: &ClusterId, former: &ClusterId) {
        self.aliases.add(now, former);
    }

    fn identify(&self, cloud: &CloudId) -> Ask<ClusterObservation> {
        self.ask(cloud, |cloud| async move {
            let observed = as_purpose(CallPurpose::Vital, observe::identify(&cloud.client)).await?;
            let cluster = cloud.aliases.resolve(observed.cluster);
            cloud.join(&cluster);
            Ok(ClusterObservation { cluster, ..observed })
        })
    }

    fn survey(&self, cloud: &CloudId, within: Duration) -> Ask<Survey> {
        self.ask(cloud, move |cloud| async move {
            as_purpose(CallPurpose::Vital, observe::survey(&cloud.client, within)).await
        })
    }

    fn locate(&self, cloud: &CloudId, sought: &Sought, near: Option<&[NodeName]>) -> Ask<Found> {
        let (sought, near) = (sought.clone(), near.map(<[NodeName]>::to_vec));
        self.ask(cloud, move |cloud| async move {
            template_image::locate(&cloud.client, &sought, near.as_deref()).await
        })
    }

    fn provide(&self, cloud: &CloudId, template: &OsTemplate, nodes: &[NodeName]) -> Ask<Found> {
        let (template, nodes) = (template.clone(), nodes.to_vec());
        self.ask(cloud, move |cloud| async move { cloud.provide(&template, &nodes).await })
    }

    fn fleet(&self, cloud: &CloudId) -> Ask<Fleet> {
        self.ask(cloud, |cloud| async move {
            as_purpose(CallPurpose::Vital, fleet::read_fleet(&cloud.client)).await
        })
    }

    fn devices(&self, cloud: &CloudId) -> Ask<Devices> {
        self.ask(cloud, |cloud| async move {
            as_purpose(CallPurpose::Vital, devices::read(&cloud.client)).await
        })
    }

    fn look(&self, vm: &VmRef) -> Ask<VmObservation> {
        let vm = vm.clone();
        self.ask(&vm.cloud.clone(), |cloud| async move {
            Ok(cloud.checked_cluster(observe::inspect(&cloud.client, &vm).await?).await)
        })
    }

    fn confirm(&self, vm: &VmRef, marks: &Marks, name: &str) -> Ask<VmObservation> {
        let (vm, marks, name) = (vm.clone(), marks.clone(), name.to_owned());
        self.ask(&vm.cloud.clone(), |cloud| async move {
            if let Some(observed) = observe::confirm(&cloud.client, &vm, (&marks, &name)).await {
                return Ok(observed);
            }
            Ok(cloud.checked_cluster(observe::inspect(&cloud.client, &vm).await?).await)
        })
    }

    fn id_taken(&self, cloud: &CloudId, vmid: VmId) -> Ask<IdStatus> {
        self.ask(cloud, move |cloud| async move {
            Ok(cloud.trusted_id_status(observe::id_taken(&cloud.client, vmid).await?))
        })
    }

    fn clone_vm(&self, call: CloneCall) -> Ask<Upid> {
        self.ask(&call.cloud.clone(), |cloud| async move {
            as_making(call.marks.vmid, making::start(&cloud.client, &call)).await
        })
    }

    fn await_task(&self, cloud: &CloudId, upid: &Upid, limit: Duration) -> Ask<TaskEnd> {
        let upid = upid.clone();
        self.ask(cloud, move |cloud| async move { Ok(cloud.await_task(&upid, limit).await) })
    }

    fn configure(&self, call: ConfigureCall) -> Ask<Configured> {
        let serial = match self.serial_number(&call) {
            Ok(serial) => serial,
            Err(fault) => return Box::pin(async move { Err(fault) }),
        };
        self.ask(&call.vm.cloud.clone(), |cloud| async move {
            as_purpose(CallPurpose::Change, cloud.configure(call, serial)).await
        })
    }

    fn snapshot(&self, call: SnapshotCall) -> Ask<Snapped> {
        self.ask(&call.vm.cloud.clone(), |cloud| async move { cloud.snapshot(call).await })
    }

    fn rollback(&self, call: SnapshotCall) -> Ask<()> {
        self.ask(&call.vm.cloud.clone(), |cloud| async move { cloud.rollback(call).await })
    }

    fn start(&self, vm: &VmRef) -> Ask<Upid> {
        let vm = vm.clone();
        let max = self.max_concurrent(&vm.cloud);
        self.ask(&vm.cloud.clone(), move |cloud| async move { cloud.start(&vm, max).await })
    }

    fn address(
        &self,
        vm: &VmRef,
        mac: Option<&str>,
        networks: &[String],
    ) -> Ask<AddressObservation> {
        let vm = vm.clone();
        let (mac, networks) = (mac.map(str::to_owned), networks.to_vec());
        self.ask(&vm.cloud.clone(), move |cloud| async move {
            let (client, mac) = (&cloud.client, mac.as_deref());
            Ok(match vm.guest {
                GuestType::Vm => guest::address(client, &vm.node, vm.vmid, mac, &networks).await?,
                GuestType::Container => {
                    guest::container_address(client, &vm, mac, &networks).await?
                }
            })
        })
    }

    fn host_keys(&self, vm: &VmRef, os: Os) -> Ask<Vec<String>> {
        if vm.guest.is_container() {
            // Nothing but the container itself has them: the first connection learns its key.
            return Box::pin(async { Ok(Vec::new()) });
        }
        let VmRef { cloud, node, vmid, .. } = vm.clone();
        self.ask(&cloud, move |cloud| async move {
            Ok(guest::host_keys(&cloud.client, &node, vmid, os).await?)
        })
    }

    fn fence(&self, vm: &VmRef, marks: &Marks) -> Ask<VmObservation> {
        let (vm, marks) = (vm.clone(), marks.clone());
        self.ask(&vm.cloud.clone(), |cloud| async move {
            as_purpose(CallPurpose::Change, cloud.fence(&vm, &marks)).await
        })
    }

    fn carry_out(&self, call: OrderCall) -> Ask<Carried> {
        let max = self.max_concurrent(&call.vm.cloud);
        self.ask(&call.vm.cloud.clone(), move |cloud| async move {
            Ok(as_purpose(CallPurpose::Change, cloud.carry_out(&call, max)).await)
        })
    }

    fn describe(&self, vm: &VmRef, home: &Installation, agent: &AgentId) -> Ask<MachineView> {
        let (vm, home, agent) = (vm.clone(), home.clone(), agent.clone());
        self.ask(&vm.cloud.clone(), |cloud| async move {
            describe::describe(&cloud.client, &vm, (&home, &agent)).await
        })
    }

    fn shutdown(&self, vm: &VmRef, limit: Duration) -> Ask<Upid> {
        let vm = vm.clone();
        self.ask(&vm.cloud.clone(), move |cloud| async move {
            Ok(task(cloud.client.shutdown(vm.node.as_str(), guest_id(&vm), limit).await?))
        })
    }

    fn stop(&self, vm: &VmRef) -> Ask<Upid> {
        let vm = vm.clone();
        self.ask(&vm.cloud.clone(), move |cloud| async move {
            Ok(task(cloud.client.stop(vm.node.as_str(), guest_id(&vm)).await?))
        })
    }

    fn destroy(&self, vm: &VmRef) -> Ask<Upid> {
        let vm = vm.clone();
        let max = self.max_concurrent(&vm.cloud);
        self.ask(&vm.cloud.clone(), move |cloud| async move { cloud.destroy(&vm, max).await })
    }

    fn images(&self, cloud: &CloudId, storages: &BTreeSet<String>) -> Ask<Vec<ImageObservation>> {
        let storages = storages.clone();
        self.ask(
            cloud,
            move |cloud| async move { disc::list_images(&cloud.client, &storages).await },
        )
    }

    fn remove_image(&self, cloud: &CloudId, image: &ImageObservation) -> Ask<()> {
        let image = image.clone();
        self.ask(cloud, move |cloud| async move { cloud.remove_image(&image).await })
    }

    fn pull(&self, call: PullCall) -> Ask<Option<Upid>> {
        let downloads = self.downloads.clone();
        self.ask(&call.cloud.clone(), |cloud| async move {
            image::pull(&cloud.client, &call, downloads.as_deref()).await
        })
    }

    fn create(&self, call: CreateCall) -> Ask<Upid> {
        self.ask(
            &call.cloud.clone(),
            |cloud| async move { image::create(&cloud.client, &call).await },
        )
    }

    fn eject(&self, call: EjectCall) -> Ask<()> {
        self.ask(&call.vm.cloud.clone(), |cloud| async move { cloud.eject(&call).await })
    }

    fn finish(&self, call: FinishCall) -> Ask<Option<Upid>> {
        self.ask(&call.vm.cloud.clone(), |cloud| async move { cloud.finish(&call).await })
    }

    fn shortcomings(&self, vm: &VmRef) -> Ask<Vec<String>> {
        let vm = vm.clone();
        self.ask(
            &vm.cloud.clone(),
            |cloud| async move { image::shortcomings(&cloud.client, &vm).await },
        )
    }

    fn seal(&self, call: SealCall) -> Ask<()> {
        self.ask(&call.vm.cloud.clone(), |cloud| async move { cloud.seal(&call).await })
    }

    fn image_versions(
        &self,
        cloud: &CloudId,
        fresh: &[(NodeName, VmId)],
    ) -> Ask<Vec<ImageVersion>> {
        let fresh = fresh.to_vec();
        self.ask(cloud, |cloud| async move { image::versions(&cloud.client, &fresh).await })
    }

    fn linked_volumes(&self, vm: &VmRef) -> Ask<Vec<String>> {
        let vm = vm.clone();
        self.ask(&vm.cloud.clone(), |cloud| async move {
            image::linked_volumes(&cloud.client, &vm).await
        })
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

#[cfg(test)]
mod tests;
