//! Turns a call of the mind into a call of a port.

use std::time::Duration;

use drover_model::id::CloudId;
use drover_model::ports::{
    CloneCall, ConfigureCall, Holder, OrderCall, Ports, ShellTarget, SnapshotCall, StartRunnerCall,
    VmRef,
};
use drover_model::spec::ResetKind;
use drover_scripts::guest;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use crate::agent::event::{Answer, Call, Guest};
use crate::agent::mind::Mind;
use drover_model::journal_state::Pass;

/// The limit of installing or removing a key and user data.
const KEY_LIMIT: Duration = Duration::from_secs(30);

/// The limit of starting or ending a runner. Its program may have to be downloaded from its source.
const RUNNER_LIMIT: Duration = Duration::from_secs(120);

/// The limit of asking a guest about its runner.
const WORDS_LIMIT: Duration = Duration::from_secs(15);

/// The future of a call's answer through this cloud. `None` for an agent without a guest.
pub(super) fn make(
    call: Call,
    mind: &Mind,
    cloud: CloudId,
    ports: &Ports,
) -> Option<LocalBoxFuture<'static, Answer>> {
    let guest = mind.guest()?;
    let spec = mind.spec();
    let vm = VmRef {
        cloud: cloud.clone(),
        node: guest.node.clone(),
        vmid: guest.marks.vmid,
        guest: guest.marks.guest,
    };
    let pve = &ports.hypervisor;
    let target = |address| target(mind, guest, address);
    Some(match call {
        Call::Clone { node } => {
            let marks = guest.marks.clone();
            let target = Some(guest.node.clone()).filter(|target| *target != node);
            let call = CloneCall { cloud, node, target, marks, spec: (**spec).clone() };
            pve.clone_vm(call).map(Answer::Cloned).boxed_local()
        }
        Call::Await(upid, limit) => {
            pve.await_task(&cloud, &upid, limit).map(Answer::TaskEnded).boxed_local()
        }
        Call::Look => pve.look(&vm).map(Answer::Looked).boxed_local(),
        Call::Confirm => {
            let name = guest.marks.name(&spec.name_prefix);
            pve.confirm(&vm, &guest.marks, &name).map(Answer::Looked).boxed_local()
        }
        Call::IdTaken => pve.id_taken(&cloud, vm.vmid).map(Answer::IdSeen).boxed_local(),
        Call::Configure => {
            let mut spec = (**spec).clone();
            drover_model::addresses::report(&mut spec.cloud_init, mind.addresses());
            let call = ConfigureCall { vm, marks: guest.marks.clone(), spec };
            pve.configure(call).map(Answer::Configured).boxed_local()
        }
        Call::Start => pve.start(&vm).map(Answer::Accepted).boxed_local(),
        Call::Address => pve
            .address(&vm, guest.mac.as_deref(), &spec.guest_networks)
            .map(Answer::Addressed)
            .boxed_local(),
        Call::HostKeys => pve.host_keys(&vm, spec.os).map(Answer::HostKeys).boxed_local(),
        Call::Snapshot => {
            let call = snapshot_call(mind, guest, vm, spec.limits.prepare);
            pve.snapshot(call).map(Answer::Snapped).boxed_local()
        }
        Call::Rollback => {
            let call = snapshot_call(mind, guest, vm, spec.limits.reset);
            pve.rollback(call).map(Answer::RolledBack).boxed_local()
        }
        Call::Order { work, repeated, shutdown, limit } => {
            let marks = guest.marks.clone();
            let snapshots = mind.machine.orders.snapshots.clone();
            let order = mind.machine.orders.running.as_ref().map(|order| order.id.clone());
            let call = OrderCall { vm, marks, work, order, snapshots, repeated, shutdown, limit };
            pve.carry_out(call).map(Answer::Ordered).boxed_local()
        }
        Call::Greet(address, limit) => {
            ports.shell.greet(target(address), limit).map(Answer::Greeted).boxed_local()
        }
        Call::Probe(address, limit) => {
            ports.shell.probe(target(address), limit).map(Answer::Probed).boxed_local()
        }
        Call::Run(address, command, limit) => {
            ports.shell.run(target(address), command, limit).map(Answer::Ran).boxed_local()
        }
        Call::Upload(address, upload, limit) => {
            ports.shell.upload(target(address), upload, limit).map(Answer::Ran).boxed_local()
        }
        Call::Admit(address, lease, pass) => {
            let answer = match pass {
                Pass::Holder(holder) => {
                    ports.shell.admit(target(address), lease.as_str(), &holder, KEY_LIMIT)
                }
                Pass::Runner(source, runner, want) => {
                    let (target, spec) = (target(address), spec.clone());
                    ports.demand.start_runner(
                        StartRunnerCall { source, runner, target, spec, want },
                        RUNNER_LIMIT,
                    )
                }
            };
            answer.map(|result| Answer::Admitted(lease, result)).boxed_local()
        }
        Call::Expel(address, lease, pass, sessions) => {
            let answer = match pass {
                Pass::Holder(_) => {
                    ports.shell.expel(target(address), lease.as_str(), sessions, KEY_LIMIT)
                }
                Pass::Runner(source, runner, want) => {
                    let (target, spec) = (target(address), spec.clone());
                    ports.demand.stop_runner(
                        StartRunnerCall { source, runner, target, spec, want },
                        RUNNER_LIMIT,
                    )
                }
            };
            answer.map(|result| Answer::Expelled(lease, result)).boxed_local()
        }
        Call::Words(address, lease, pass) => {
            let Pass::Runner(source, runner, want) = pass else { return None };
            let (target, spec) = (target(address), spec.clone());
            let call = StartRunnerCall { source, runner, target, spec, want };
            let words = ports.demand.words(call, WORDS_LIMIT);
            words.map(|result| Answer::Words(lease, result)).boxed_local()
        }
        Call::Unlock(address, key) => ports
            .shell
            .admit(target(address), guest::HOLD, &Holder::of_key(key), KEY_LIMIT)
            .map(Answer::Unlocked)
            .boxed_local(),
        Call::Fence => pve.fence(&vm, &guest.marks).map(Answer::Fenced).boxed_local(),
        Call::Shutdown(limit) => pve.shutdown(&vm, limit).map(Answer::Accepted).boxed_local(),
        Call::Stop => pve.stop(&vm).map(Answer::Accepted).boxed_local(),
        Call::Destroy => pve.destroy(&vm).map(Answer::Accepted).boxed_local(),
        Call::Leftovers => {
            let left = pve.leftovers(&vm, &mind.volumes(), mind.clone_storages());
            left.map(Answer::Leftovers).boxed_local()
        }
    })
}

fn snapshot_call(mind: &Mind, guest: &Guest, vm: VmRef, limit: Duration) -> SnapshotCall {
    let memory = mind.spec().reset == Some(ResetKind::Memory);
    SnapshotCall { vm, marks: guest.marks.clone(), memory, limit }
}

fn target(mind: &Mind, guest: &Guest, address: std::net::IpAddr) -> ShellTarget {
    let (spec, host_keys) = (mind.spec(), guest.host_keys.clone());
    ShellTarget { address, ssh: spec.ssh.clone(), os: spec.os, host_keys }
}
