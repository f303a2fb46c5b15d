//! A cluster whose root authority was made again: its fingerprint distinguishes clusters, so that all
//! agents there are out of reach. An operator says that it is the same cluster, and the guests'
//! marks prove it: they name this installation, their agents, and the cluster by its former id.

use std::collections::BTreeMap;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::fault::Fault;
use drover_model::id::{AgentId, CloudId, ClusterId, VmId};
use drover_model::marks::{Kind, Reading};
use drover_model::ports::{IdStatus, VmObservation, VmRef};
use drover_model::record::Body;
use drover_runtime::reply::Reply;
use futures_util::StreamExt as _;

use super::Herd;
use super::leases::unavailable;
use crate::cloud::CloudCommand;
use crate::message::{ClusterConfirmed, Refusal};

/// Guests looked at for a proof; more would prove nothing more.
const MOST: usize = 64;
/// Looks at once.
const AT_ONCE: usize = 4;

pub(super) type ConfirmReply = Reply<Result<ClusterConfirmed, Refusal>>;

/// What the guests of a cluster's agents say of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Proof {
    /// Guests that carry exactly the marks the journal knows.
    matching: usize,
    /// Ids that are free.
    missing: usize,
    /// Guests that could not be read.
    unread: usize,
    /// What contradicts it.
    against: Vec<String>,
}

impl Proof {
    /// Takes in what a look at an agent's guest brought.
    fn take(&mut self, expected: &Expected<'_>, observation: Result<VmObservation, Fault>) {
        let vmid = expected.vmid;
        let Ok(observation) = observation else {
            self.unread += 1;
            return;
        };
        match (observation.id, observation.marks) {
            (IdStatus::Free, _) => self.missing += 1,
            // While Proxmox copies or destroys it, a configuration says nothing else.
            (_, None) => self.unread += 1,
            (_, Some(Reading::Unmarked)) if observation.lock.is_some() => self.unread += 1,
            (_, Some(Reading::Marked(marks))) => {
                let same = marks.installation == *expected.installation
                    && marks.agent == *expected.agent
                    && marks.vmid == vmid
                    && marks.cluster == *expected.cluster
                    && marks.kind == Kind::Agent;
                if same {
                    self.matching += 1;
                } else {
                    self.against.push(format!("guest {vmid} is another agent's"));
                }
            }
            (_, Some(Reading::Unmarked)) => {
                self.against.push(format!("guest {vmid} carries no marks"));
            }
            (_, Some(Reading::Damaged(why))) => {
                self.against.push(format!("the marks of guest {vmid} are damaged: {why}"));
            }
        }
    }

    /// Why it is none; none when it is one: all that could be read match, at least one does, and
    /// more do than are missing.
    fn lacks(&self, cloud: &CloudId, former: &ClusterId) -> Option<String> {
        let Self { matching, missing, unread, against } = self;
        if *matching > *missing && against.is_empty() {
            return None;
        }
        let mut counts = format!(
            "{matching} carry the marks of cluster `{former}`, {missing} are not there, {unread} \
             could not be read"
        );
        if let Some(first) = against.first() {
            counts += &format!(", {} speak against it ({first})", against.len());
        }
        Some(format!(
            "of drover's guests there, seen through cloud `{cloud}`, {counts}: this does not show \
             that it is the same cluster; restore the cloud's endpoint, or give the new cluster a \
             cloud key of its own"
        ))
    }
}

/// What a guest's marks must say.
struct Expected<'a> {
    installation: &'a drover_model::id::Installation,
    agent: &'a AgentId,
    vmid: VmId,
    cluster: &'a ClusterId,
}

impl Herd {
    /// Confirms that a cloud leads to the same cluster as before under another fingerprint.
    pub(super) fn confirm_cluster(
        &mut self,
        cloud: CloudId,
        no_guests: bool,
        reply: ConfirmReply,
        ctx: &mut Context<Self>,
    ) {
        let (now, former) = match self.moved(&cloud) {
            Ok(both) => both,
            Err(refusal) => {
                reply.send(Err(refusal));
                return;
            }
        };
        let there = self.common.roster.select(|living| {
            living.status.phase.has_guest()
                && living.place.as_ref().is_some_and(|place| place.cluster == former)
        });
        let guests: Vec<(AgentId, VmRef)> = there
            .into_iter()
            .filter_map(|(agent, living)| {
                let place = living.place?;
                let guest = living.spec.guest();
                let (node, vmid) = (place.node, place.vmid);
                Some((agent, VmRef { cloud: cloud.clone(), node, vmid, guest }))
            })
            .take(MOST)
            .collect();
        if guests.is_empty() != no_guests {
            let text = if no_guests {
                let count = guests.len();
                format!(
                    "drover knows {count} guests of cluster `{former}`, which must prove it: leave \
                     `--no-guests` out"
                )
            } else {
                format!(
                    "drover knows no guest of cluster `{former}` that could prove it; if cloud \
                     `{cloud}` leads to the same cluster, run `drover cluster confirm {cloud} \
                     --no-guests`"
                )
            };
            reply.send(Err(Refusal::Conflict(text)));
            return;
        }
        let hypervisor = self.common.ports.hypervisor.clone();
        let looks = guests.into_iter().map(move |(agent, vm)| {
            let look = hypervisor.look(&vm);
            async move { (agent, vm.vmid, look.await) }
        });
        let looks = futures_util::stream::iter(looks).buffered(AT_ONCE).collect::<Vec<_>>();
        ctx.spawn(looks.into_actor(self).map(move |seen, herd, ctx| {
            let mut proof = Proof::default();
            let installation = &herd.common.run.installation;
            for (agent, vmid, observation) in seen {
                let expected = Expected { installation, agent: &agent, vmid, cluster: &former };
                proof.take(&expected, observation);
            }
            if let Some(text) = proof.lacks(&cloud, &former).filter(|_| !no_guests) {
                tracing::warn!(cloud = %cloud, why = text, "cluster is not confirmed");
                reply.send(Err(Refusal::Conflict(text)));
                return;
            }
            herd.continue_cluster(cloud, (now, former), proof.matching, reply, ctx);
        }));
    }

    /// The cluster a cloud leads to now, and the one it is known to lead to.
    fn moved(&self, cloud: &CloudId) -> Result<(ClusterId, ClusterId), Refusal> {
        if !self.spec.clouds.contains_key(cloud) {
            let text = format!("no cloud `{cloud}` is configured; `drover status` lists them");
            return Err(Refusal::Unknown(text));
        }
        let both = self.elsewhere.get(cloud).cloned().zip(self.leads.get(cloud).cloned());
        both.ok_or_else(|| {
            let text = format!(
                "cloud `{cloud}` is not known to lead to another cluster than before: there is \
                 nothing to confirm"
            );
            Refusal::Conflict(text)
        })
    }

    fn continue_cluster(
        &mut self,
        cloud: CloudId,
        (now, former): (ClusterId, ClusterId),
        guests: usize,
        reply: ConfirmReply,
        ctx: &mut Context<Self>,
    ) {
        let body = Body::ClusterContinued { cluster: former.clone(), now: now.clone() };
        self.append(body, ctx, move |herd, done, _| {
            if let Err(fault) = done {
                reply.send(Err(unavailable(&fault)));
                return;
            }
            tracing::warn!(cloud = %cloud, cluster = %former, %now, guests, "cluster is confirmed");
            herd.common.ports.hypervisor.continues(&now, &former);
            let again: Vec<CloudId> = herd
                .elsewhere
                .iter()
                .filter(|(_, at)| **at == now)
                .map(|(id, _)| id.clone())
                .collect();
            for id in again {
                if let Some(address) = herd.clouds.get(&id) {
                    address.do_send(CloudCommand::AskAgain);
                }
            }
            let confirmed = ClusterConfirmed { cloud, cluster: former, now, guests };
            reply.send(Ok(confirmed));
        });
    }

    /// Says which clusters go on under another fingerprint, as the journal knows.
    pub(super) fn continue_known(&self, continued: &BTreeMap<ClusterId, ClusterId>) {
        for (now, former) in continued {
            self.common.ports.hypervisor.continues(now, former);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::CLUSTER;
    use drover_model::container::GuestType;
    use drover_model::id::Installation;
    use drover_model::marks::Marks;

    fn marks(agent: &str, vmid: u32) -> Marks {
        Marks {
            installation: Installation::new("7k2m9qxw"),
            agent: AgentId::new(agent),
            vmid: VmId(vmid),
            cluster: ClusterId::new(CLUSTER),
            kind: Kind::Agent,
            guest: GuestType::Vm,
            seq: 3,
            cloud: "c".into(),
            template: "t".into(),
            born: "2026-11-21T08:11:02Z".into(),
        }
    }

    fn observation(id: IdStatus, marks: Option<Reading>) -> Result<VmObservation, Fault> {
        Ok(VmObservation { id, node: None, marks, lock: None, running: None })
    }

    fn proof(observations: Vec<Result<VmObservation, Fault>>) -> Proof {
        let (installation, agent) = (Installation::new("7k2m9qxw"), AgentId::new("a1"));
        let cluster = ClusterId::new(CLUSTER);
        let mut proof = Proof::default();
        for observation in observations {
            let (installation, cluster) = (&installation, &cluster);
            let expected = Expected { installation, agent: &agent, vmid: VmId(10_000), cluster };
            proof.take(&expected, observation);
        }
        proof
    }

    fn holds(observations: Vec<Result<VmObservation, Fault>>) -> bool {
        proof(observations).lacks(&CloudId::new("c"), &ClusterId::new(CLUSTER)).is_none()
    }

    // Invariant: a cluster is the same only where its guests say so and none says otherwise.

    #[test]
    fn guests_with_exactly_the_known_marks_prove_it_and_any_other_does_not() {
        let taken = |marks| observation(IdStatus::Taken, Some(Reading::Marked(Box::new(marks))));
        let ours = || taken(marks("a1", 10_000));
        assert!(holds(vec![ours()]));
        assert!(holds(vec![ours(), ours(), observation(IdStatus::Free, None)]));
        assert!(holds(vec![ours(), observation(IdStatus::Unknown, None)]));
        assert!(!holds(Vec::new()), "nothing proves nothing");
        assert!(!holds(vec![observation(IdStatus::Taken, None)]), "nothing could be read");
        assert!(!holds(vec![ours(), observation(IdStatus::Free, None)]), "as many are missing");
        let others = [
            taken(marks("a2", 10_000)),
            taken(marks("a1", 10_001)),
            taken(Marks { cluster: ClusterId::new("0000000000000000"), ..marks("a1", 10_000) }),
            taken(Marks { installation: Installation::new("00000000"), ..marks("a1", 10_000) }),
            taken(Marks { kind: Kind::Image, ..marks("a1", 10_000) }),
            observation(IdStatus::Taken, Some(Reading::Unmarked)),
            observation(IdStatus::Taken, Some(Reading::Damaged("twice".into()))),
        ];
        for other in others {
            assert!(!holds(vec![ours(), ours(), ours(), other.clone()]), "{other:?}");
        }
    }
}
