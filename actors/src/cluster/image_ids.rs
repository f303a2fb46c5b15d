//! VMIDs for builds of images: out of the ids of the cluster, from a floor of their own.

use actix::{ActorFutureExt, AsyncContext, Context, Handler, Message, WrapFuture};
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{CloudId, VmId};
use drover_model::ports::IdStatus;
use drover_runtime::reply::Reply;
use drover_runtime::supervise::count_message;

use super::Cluster;
use super::allocator::{Effect, Event};

/// The first VMID above all of Proxmox's own.
const CEILING: VmId = VmId(1_000_000_000);

/// To a cluster, from the herd: asks for a VMID for a build.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ImageIdAsk {
    /// The cloud to go through.
    pub cloud: CloudId,
    /// The lowest one.
    pub floor: VmId,
    /// One that proved to be somebody else's.
    pub taken: Option<VmId>,
    pub reply: Reply<Result<VmId, Fault>>,
}

/// To a cluster, from the herd: a version of an image came or goes.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct VersionsChanged;

impl Handler<VersionsChanged> for Cluster {
    type Result = ();

    fn handle(&mut self, _: VersionsChanged, ctx: &mut Context<Self>) {
        count_message(ctx);
        self.forget_versions();
    }
}

impl Cluster {
    fn propose_image_id(&self, ask: ImageIdAsk, ctx: &mut Context<Self>) {
        let proposal = self.act(Event::Wanted { floor: ask.floor, ceiling: CEILING });
        let Some(Effect::Propose { vmid, .. }) = proposal else {
            let text = format!("no VMID from {} on is free", ask.floor);
            let fault = Fault::new(FaultKind::Capacity, Culprit::Cloud(ask.cloud.clone()), text);
            return ask.reply.send(Err(fault));
        };
        // A create takes the id in the request itself, and is refused where somebody has it; asked
        // all the same, since most ids from the floor on are templates.
        let answer = self.common.ports.hypervisor.id_taken(&ask.cloud, vmid);
        ctx.spawn(answer.into_actor(self).map(move |observed, actor, ctx| match observed {
            Ok(IdStatus::Taken) => {
                actor.act(Event::Taken(vmid));
                actor.propose_image_id(ask, ctx);
            }
            Ok(IdStatus::Free | IdStatus::Unknown) | Err(_) => ask.reply.send(Ok(vmid)),
        }));
    }
}

impl Handler<ImageIdAsk> for Cluster {
    type Result = ();

    fn handle(&mut self, ask: ImageIdAsk, ctx: &mut Context<Self>) {
        count_message(ctx);
        if let Some(vmid) = ask.taken {
            self.act(Event::Taken(vmid));
        }
        self.propose_image_id(ask, ctx);
    }
}
