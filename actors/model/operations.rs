//! Every call of the ports that actors make: its method, its answer, and how long it is waited for.
//!
//! Each table below is a port. A row starts with `read` or `change`; a change that is given up may
//! have had its effect, and may still have it. The first argument says who is to blame when no
//! answer comes. `layer.rs` makes the traits of these tables, and what all calls have in common.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::container::OsTemplate;
use crate::demand::words::Words;
use crate::hardware::Devices;
use crate::id::{
    AgentId, CloudId, ClusterId, Installation, NodeName, RunnerName, SourceId, Upid, VmId,
};
use crate::image::ImageVersion;
use crate::layer::{Layer, Layered, PortCall, Subject, port};
use crate::marks::Marks;
use crate::order::MachineView;
use crate::os::Os;
use crate::placement::Fleet;
use crate::ports::{
    AddressObservation, Ask, Carried, CloneCall, ClusterObservation, ConfigureCall, Configured,
    CreateCall, EjectCall, FinishCall, Greeting, Holder, IdStatus, ImageObservation, Known,
    OrderCall, PullCall, Ran, SealCall, Sessions, ShellTarget, Snapped, SnapshotCall,
    SourceObservation, StartRunnerCall, Survey, TaskEnd, VmObservation, VmRef,
};
use crate::spec::UploadSpec;
use crate::template_image::{Found, Sought};

// The longest waits. The ports have limits of their own, which are shorter. To Proxmox a request
// waits at most 30 s for its turn (120 s for a request to a guest agent) before it is sent. The
// client gives the request up after `callTimeoutSec` (60 s) at an endpoint.

/// The cluster's identity, its lists, the place of a template image. An actor waits for the answer
/// and asks again.
const LIST: Duration = Duration::from_secs(60);
/// A guest or an id: a few reads.
const LOOK: Duration = Duration::from_secs(90);
/// A question to a guest agent: it waits for earlier questions on its node.
const AGENT: Duration = Duration::from_secs(180);
/// One change: it may wait for its turn and for locks.
const CHANGE: Duration = Duration::from_secs(180);
/// A start or a destroy: it also waits for a place in the concurrency limits of its node or storage.
const LANE: Duration = Duration::from_secs(10 * 60);
/// Volumes and images: storages list slowly, and several are asked.
const VOLUMES: Duration = Duration::from_secs(5 * 60);
/// A CI system: its lists come page by page.
const SOURCE: Duration = Duration::from_secs(5 * 60);
/// The wait beyond a limit that the call itself has.
const BEYOND: Duration = Duration::from_secs(60);

port! {
    /// Proxmox.
    ///
    /// Faults are classified; calls that write are never repeated by the port itself.
    trait Hypervisor, fake FakeHypervisor {
        /// Asks who the cloud's cluster is.
        read fn identify(cloud: &CloudId) -> ClusterObservation, within LIST;
        /// Lists every guest of the cloud's cluster: one list call, or none where a list that
        /// another caller asked for at most `max_age` ago is there.
        read fn survey(cloud: &CloudId, max_age: Duration) -> Survey, within LIST;
        /// Finds the templates that may be cloned, and reads their configurations. By VMID it is a
        /// fault when there is none; agents never count.
        ///
        /// With `near` a template by VMID is not read that is on the only one of these nodes, or on
        /// any where none is named: its node is all that must be known.
        read fn locate(cloud: &CloudId, sought: &Sought, near: Option<&[NodeName]>) -> Found,
            within LIST, about sought.vmid();
        /// Finds which of these nodes (all where none is named) have an OS template, and starts its
        /// download where it is missing. Repeatable: one download of it runs at a time. `Contention`
        /// while no node has it yet.
        change fn provide(cloud: &CloudId, template: &OsTemplate, nodes: &[NodeName]) -> Found,
            within LOOK;
        /// Reads what the list of the cloud's cluster says of nodes, storages and guests (at most
        /// one call: a list of the last ten seconds does).
        read fn fleet(cloud: &CloudId) -> Fleet, within LIST;
        /// Reads the devices behind the resource mappings that the login may see (two calls).
        read fn devices(cloud: &CloudId) -> Devices, within LIST;
        /// Looks at one id and its guest: `nextid?vmid`, then its config and status where it has
        /// one.
        read fn look(vm: &VmRef) -> VmObservation, within LOOK;
        /// Whether a guest that these marks were read from before still runs, by the cluster's list
        /// (one call for all who ask together) where that has it under this very name and VMID on
        /// this node and running. A list proves nothing else: any other guest is looked at.
        read fn confirm(vm: &VmRef, marks: &Marks, name: &str) -> VmObservation, within LOOK;
        /// Whether the id is taken (one call).
        read fn id_taken(cloud: &CloudId, vmid: VmId) -> IdStatus, within LOOK, about Some(vmid);
        /// Asks for a clone that carries its marks in name and description.
        change fn clone_vm(call: CloneCall) -> Upid, within CHANGE;
        /// Waits for a task's end by the cluster's shared watcher, at most `limit`.
        read fn await_task(cloud: &CloudId, upid: &Upid, limit: Duration) -> TaskEnd,
            within limit + BEYOND;
        /// Verifies the marks, uploads the disc image where one is wanted, sets cloud-init,
        /// network cards, sizes and tags, resizes the disk and awaits that.
        change fn configure(call: ConfigureCall) -> Configured,
            within call.spec.limits.operation + CHANGE;
        /// Verifies the marks and takes the snapshot, unless it is there already; awaits that.
        change fn snapshot(call: SnapshotCall) -> Snapped, within call.limit + CHANGE;
        /// Verifies the marks, goes back to the snapshot and lets the guest run; awaits that.
        change fn rollback(call: SnapshotCall) -> (), within call.limit + CHANGE;
        /// Starts the guest.
        change fn start(vm: &VmRef) -> Upid, within LANE;
        /// Asks the guest agent once for an address that fits.
        read fn address(vm: &VmRef, mac: Option<&str>, networks: &[String]) -> AddressObservation,
            within AGENT;
        /// Reads the SSH host keys through the guest agent; empty when it has none to give.
        read fn host_keys(vm: &VmRef, os: Os) -> Vec<String>, within AGENT;
        /// Reads the guest's marks and, when they are exactly these, tags it as being retired (with
        /// digest). Answers what was read; `Foreign` when the marks are not these.
        change fn fence(vm: &VmRef, marks: &Marks) -> VmObservation, within CHANGE;
        /// Asks for a graceful shutdown that turns into a stop after `limit`.
        change fn shutdown(vm: &VmRef, limit: Duration) -> Upid, within CHANGE;
        /// Stops the guest hard, past a running shutdown.
        change fn stop(vm: &VmRef) -> Upid, within CHANGE;
        /// Destroys the stopped guest and its listed disks.
        change fn destroy(vm: &VmRef) -> Upid, within LANE;
        /// Verifies the marks, carries an order to the guest out to its end, and reads whether the guest
        /// runs then.
        change fn carry_out(call: OrderCall) -> Carried, within call.limit + CHANGE;
        /// Reads what a guest of this agent is at this moment: its state, load, addresses, hardware
        /// and snapshots. `Foreign` where its marks name another agent or installation.
        read fn describe(vm: &VmRef, installation: &Installation, agent: &AgentId) -> MachineView,
            within AGENT;
        /// Lists volumes that still carry the id on any storage. Those of `ours` are removed first,
        /// and only while a quorate cluster says that the id is free; one that cannot be removed is
        /// listed. So are disc images among `ours`, which carry no id. One of `ours` without a storage
        /// means the memory of a snapshot on any of them. With `only` no other
        /// storages are asked.
        change fn leftovers(vm: &VmRef, ours: &[String], only: Option<&BTreeSet<String>>)
            -> Vec<String>, within VOLUMES;
        /// Lists the files on these storages that are called as disc images of drover's, on each
        /// node that is online; where one cannot be read, none of it.
        read fn images(cloud: &CloudId, storages: &BTreeSet<String>) -> Vec<ImageObservation>,
            within VOLUMES;
        /// Removes a disc image and awaits that; one that is gone already is fine.
        change fn remove_image(cloud: &CloudId, image: &ImageObservation) -> (), within VOLUMES;
        /// Brings an image's source to a storage of a node, which checks its checksum. Repeatable:
        /// a file that is there with that checksum stays. Gives the task that makes it; none where
        /// drover sees that it is there.
        change fn pull(call: PullCall) -> Option<Upid>, within call.limit + CHANGE;
        /// Makes a guest that carries its marks in name and description, its disk a copy of a
        /// volume that `pull` brought.
        change fn create(call: CreateCall) -> Upid, within CHANGE;
        /// Verifies the marks, takes all discs out of the stopped guest, so that it boots from its
        /// disk alone, and removes drover's own disc image. Repeatable.
        change fn eject(call: EjectCall) -> (), within VOLUMES;
        /// Verifies the marks, gives the stopped guest the drives and values that its clones begin
        /// with, and makes it a template. None where it is one already.
        change fn finish(call: FinishCall) -> Option<Upid>, within CHANGE;
        /// What keeps a template from being cloned and booted; empty where nothing does.
        read fn shortcomings(vm: &VmRef) -> Vec<String>, within LOOK;
        /// Verifies that a template carries the first marks, or none where there are none, and
        /// gives it the others. Repeatable. A guest that a machine adopts may carry what is left of the
        /// machine's marks, and keeps what people wrote in its description.
        change fn seal(call: SealCall) -> (), within CHANGE;
        /// Reads the templates that carry the marks of images, of whichever installation. The list of
        /// guests is seconds behind: `fresh` are guests that it may not have yet.
        read fn image_versions(cloud: &CloudId, fresh: &[(NodeName, VmId)]) -> Vec<ImageVersion>,
            within VOLUMES;
        /// Volumes of other guests that share a template's disks, on its storages.
        read fn linked_volumes(vm: &VmRef) -> Vec<String>, within VOLUMES;
    }
    notes {
        /// Says that a cluster goes on under another fingerprint: from then on `identify` answers
        /// `former` for a cloud that leads to `now`.
        fn continues(now: &ClusterId, former: &ClusterId);
    }
}

port! {
    /// SSH into guests.
    trait Shell, fake FakeShell {
        /// Logs in once, changes nothing, and gives what the machine shows of itself.
        ///
        /// `KeyRejected` and `Impostor` are final, `Unreachable` may be tried again.
        read fn greet(target: ShellTarget, limit: Duration) -> Greeting, within limit + BEYOND;
        /// Whether an SSH server is there: a connection and its first line, without a login.
        ///
        /// `Unreachable` when none answers within the limit; any other fault says nothing of the
        /// guest.
        read fn probe(target: ShellTarget, limit: Duration) -> (), within limit + BEYOND;
        /// Runs a command to its end or the limit.
        change fn run(target: ShellTarget, command: String, limit: Duration) -> Ran,
            within limit + BEYOND;
        /// Puts a file at its place, replacing what stood there; repeatable. `Broken` when its
        /// content is not known any more.
        change fn upload(target: ShellTarget, upload: UploadSpec, limit: Duration) -> Ran,
            within limit + BEYOND;
        /// Puts into the guest what a lease's holder needs there; repeatable. `Gone` when its user
        /// data is not known any more.
        change fn admit(target: ShellTarget, lease: &str, holder: &Holder, limit: Duration) -> (),
            within limit + BEYOND;
        /// Removes what `admit` added for the lease, and ends the guest's other sessions where that
        /// is asked and nobody was admitted meanwhile; repeatable.
        change fn expel(target: ShellTarget, lease: &str, sessions: Sessions, limit: Duration) -> (),
            within limit + BEYOND;
    }
}

port! {
    /// Sources of demand. A fault of theirs is charged to [`crate::fault::Culprit::Source`].
    trait Demand {
        /// Reads runners and waiting jobs. Each of the `known` runners that the lists do not show is
        /// asked for by itself, as far as the source can be asked so; of the others nothing is said
        /// then.
        read fn look_at_jobs(source: &SourceId, known: &Known) -> SourceObservation, within SOURCE;
        /// Makes the runner at its source and starts it in the guest, which is given what serves
        /// this one runner and nothing else; repeatable: one that was started is left alone.
        change fn start_runner(call: StartRunnerCall, limit: Duration) -> (), within limit + BEYOND;
        /// Ends the runner in the guest and removes what it was given; repeatable.
        change fn stop_runner(call: StartRunnerCall, limit: Duration) -> (), within limit + BEYOND;
        /// What the guest says of a runner that was started there; changes nothing.
        read fn words(call: StartRunnerCall, limit: Duration) -> Words, within limit + BEYOND;
        /// What keeps drover from making runners at its source, as far as that can be said without
        /// making one; none where nothing is known against it.
        read fn obstacle(source: &SourceId) -> Option<String>, within SOURCE;
        /// Lets the runner take no further job, where its source knows such a thing.
        change fn quiet(source: &SourceId, runner: &RunnerName) -> (), within SOURCE;
        /// Removes the runner from its source; one that is not there is fine. `Locked` while a job
        /// of it runs, where the source says so.
        change fn deregister(source: &SourceId, runner: &RunnerName) -> (), within SOURCE;
    }
}
