//! Clones that are held back: their cloud does not work, or the outcome of another clone is unknown.

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::id::{AgentId, ClusterId, NodeName};

use super::{Ask, Cluster, Footprint, OperationEnd, Stage};
use crate::doubts::Path;

impl Ask {
    /// The node its clone is made on.
    fn home(&self) -> Option<NodeName> {
        let spec = self.chosen.as_ref().unwrap_or(&self.spec);
        self.node.as_ref().map(|node| spec.home(node))
    }

    /// Where its clone is made, and through which cloud.
    pub(super) fn path<'a>(&'a self, cluster: &'a ClusterId) -> Path<'a> {
        let spec = self.chosen.as_ref().unwrap_or(&self.spec);
        let home = spec.origin.as_ref().map(|origin| &origin.home);
        Path { cluster, cloud: &spec.id.cloud, nodes: [home, self.node.as_ref()] }
    }
}

impl Cluster {
    /// Whether an agent that was let in must wait after all.
    pub(super) fn is_held(&self, agent: &AgentId) -> bool {
        let now = self.common.ports.ambient.now().mono;
        let Some(ask) = self.asks.get(agent) else { return false };
        self.common.doubts.closed(ask.path(&self.id), Some(agent), now).is_some()
    }

    /// Gives its lane back and lines it up again.
    pub(super) fn back_in_line(&mut self, agent: &AgentId) {
        let now = self.common.ports.ambient.now().mono;
        self.common.doubts.left(agent);
        self.lanes.release(agent, OperationEnd::Inconclusive, now);
        let Some(ask) = self.asks.get_mut(agent) else { return };
        let Some(home) = ask.home() else { return };
        ask.stage = Stage::Waiting;
        let spec = ask.chosen.as_ref().unwrap_or(&ask.spec);
        self.lanes.enqueue(agent.clone(), Footprint::of(spec, home));
    }

    /// Sees to it that it hears when what keeps clones back changes, or a pause is over.
    pub(super) fn follow(&mut self, ctx: &mut Context<Self>) {
        if !self.following {
            self.following = true;
            let change = self.common.doubts.change();
            ctx.spawn(change.into_actor(self).map(|(), actor, ctx| {
                actor.following = false;
                actor.go_on(ctx);
            }));
        }
        let now = self.common.ports.ambient.now().mono;
        let due = self.common.doubts.due(now).filter(|_| !self.asks.is_empty());
        if due == self.timer {
            return;
        }
        self.timer = due;
        if let Some(at) = due {
            ctx.run_later(at - now, move |actor, ctx| {
                if actor.timer == Some(at) {
                    actor.timer = None;
                    actor.go_on(ctx);
                }
            });
        }
    }

    /// Something that kept clones back has changed: agents that waited for it go on.
    fn go_on(&mut self, ctx: &mut Context<Self>) {
        let held = self.asks.iter().filter(|(_, ask)| ask.stage == Stage::Held);
        let held: Vec<AgentId> = held.map(|(agent, _)| agent.clone()).collect();
        for agent in &held {
            self.set_stage(agent, Stage::Locating);
            self.locate(agent, ctx);
        }
        self.advance(ctx);
    }
}
