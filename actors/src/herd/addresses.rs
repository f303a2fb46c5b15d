//! Pools of addresses: what the journal knows of them, and what is shown.

use std::sync::Arc;
use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::fact::What;
use drover_model::journal_state::JournalState;
use drover_model::spec::HerdSpec;
use drover_model::status::AddressPoolStatus;

use super::Herd;
use crate::addresses::Book;

/// How often a change is reported: with many agents there are many.
const RETELL: Duration = Duration::from_secs(1);

/// What was reported of the pools.
#[derive(Debug, Default)]
pub(super) struct ShownPools {
    reported: Vec<AddressPoolStatus>,
    /// Whether a change is awaited, or about to be reported.
    awaited: bool,
}

impl Herd {
    /// Takes up whose each address was, before anybody can be given one. Agents that live and have
    /// none yet are given theirs before new ones are.
    pub(super) fn open_addresses(&self, journal_state: &JournalState, spec: &Arc<HerdSpec>) {
        let addresses = &self.common.addresses;
        let now = self.common.ports.ambient.now();
        addresses.open(Book::restore(journal_state, now));
        addresses.configure(&spec.pools);
        for (agent, entry) in
            journal_state.agents.iter().filter(|(_, entry)| entry.retiring.is_none())
        {
            addresses.take(agent, &entry.spec.id, &entry.spec.address, now);
        }
    }

    /// Reports what the pools have, once for many changes.
    pub(super) fn show_pools(&mut self, ctx: &mut Context<Self>) {
        let now = self.common.ports.ambient.now();
        let (pools, next) = self.common.addresses.statuses(now);
        if pools != self.pools.reported {
            self.pools.reported.clone_from(&pools);
            self.observe(What::AddressPools { pools });
        }
        if self.pools.awaited || self.pools.reported.is_empty() {
            return;
        }
        self.pools.awaited = true;
        let change = self.common.addresses.change();
        let rested = next.map(|next| next - now.mono);
        let wait = async move {
            match rested {
                // A change or a rest that ends: either way it is looked again.
                Some(rested) => {
                    let _ = tokio::time::timeout(rested, change).await;
                }
                None => change.await,
            }
            tokio::time::sleep(RETELL).await;
        };
        ctx.spawn(wait.into_actor(self).map(|(), actor, ctx| {
            actor.pools.awaited = false;
            actor.show_pools(ctx);
        }));
    }
}
