//! How a template asks what it can be cloned from, and what its agents prove of nodes, storages and
//! clouds.

use std::sync::Arc;
use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::canary::MadeAs;
use drover_model::fault::{Fault, FaultKind};
use drover_model::id::AgentId;
use drover_model::scope::Scope;
use drover_model::spec::TemplateSpec;
use drover_model::template_image::Found;

use super::Template;
use super::event::Event;
use super::pace::LONGEST_LOOK;
use crate::placement::Claim;
use crate::source::Standing;
use crate::source::choose;

/// How often it asks while it waits for something else to clone.
const AGAIN: Duration = Duration::from_secs(30);
/// After this time Proxmox's list of guests has one that just came (book: proxmox, section 8).
const LISTED: Duration = Duration::from_secs(12);

impl Template {
    /// Asks what can be cloned, at once and again after a while for as long as that is wanted.
    pub(super) fn seek(&mut self, ctx: &mut Context<Self>) {
        if self.seeking.is_none() {
            let pause = if self.mind.lacks_place() { LONGEST_LOOK } else { AGAIN };
            self.seek_now(pause, ctx);
        }
    }

    /// Looks again for a version that was just built, where it waits for one.
    pub(super) fn seek_at_once(&mut self, ctx: &mut Context<Self>) {
        if self.seeking.is_some() {
            self.seek_now(LISTED, ctx);
        }
    }

    /// Looks again where anything is known or sought: what is said of it may hold no longer.
    pub(super) fn look_again(&mut self, ctx: &mut Context<Self>) {
        if self.seeking.is_some() || self.mind.knows_source() {
            self.seek_now(LISTED, ctx);
        }
    }

    /// Asks, and again after a pause. A look that runs already or was to come next is forgotten.
    fn seek_now(&mut self, pause: Duration, ctx: &mut Context<Self>) {
        self.looks += 1;
        let number = self.looks;
        self.seeking = Some(number);
        let spec = Arc::clone(self.mind.spec());
        let answer = self.common.ports.hypervisor.locate(&spec.id.cloud, &spec.sought(), None);
        ctx.spawn(answer.into_actor(self).map(move |found, actor, ctx| {
            if actor.seeking != Some(number) {
                return;
            }
            if Arc::ptr_eq(actor.mind.spec(), &spec) {
                actor.found(&spec, found, ctx);
            }
            ctx.run_later(pause, move |actor, ctx| {
                if actor.seeking == Some(number) {
                    actor.seeking = None;
                    if actor.mind.wants_source() {
                        actor.seek(ctx);
                    }
                }
            });
        }));
    }

    fn found(&mut self, spec: &TemplateSpec, found: Result<Found, Fault>, ctx: &mut Context<Self>) {
        let Some(cluster) = self.lanes.as_ref().map(|lanes| lanes.cluster.clone()) else { return };
        let now = self.common.ports.ambient.now();
        let claims = Claim::of_roster(&self.common.roster, &cluster);
        let standing = Standing {
            board: &self.common.board,
            doubts: None,
            sites: &self.common.sites,
            cluster: &cluster,
            now: now.mono,
            claims: &claims,
        };
        let (source, version) = match found {
            Ok(found) => {
                self.common.canaries.saw(spec, &found);
                let (usable, _) = self.common.canaries.usable(spec, &found);
                let source = choose(spec, &usable, &standing).map(|choice| choice.origin.why);
                (source, found.version())
            }
            // By VMID it is the breaker's matter that there is none: nobody else may bring it.
            Err(fault) if fault.kind == FaultKind::Broken && spec.search.is_some() => {
                (Err(fault.text), None)
            }
            Err(fault) => {
                tracing::debug!(template = %spec.id, error = %fault, "templates cannot be read");
                return;
            }
        };
        self.act(Event::Located { source, version }, ctx);
    }

    /// Charges a node, a storage or a cloud with what became of an agent.
    pub(super) fn charge(&self, agent: &AgentId, fault: &Fault) {
        let left = || self.left.clone().filter(|(gone, _)| gone == agent).map(|(_, place)| place);
        let place = self.common.roster.get(agent).and_then(|living| living.place).or_else(left);
        // One that has no place yet was to be in its template's cluster.
        let lanes = || self.lanes.as_ref().map(|lanes| lanes.cluster.clone());
        let cluster = place.as_ref().map(|place| place.cluster.clone()).or_else(lanes);
        let scope = cluster.and_then(|at| Scope::charged(fault, &at, place.as_ref()));
        let Some(scope) = scope else { return };
        let (spec, now) = (Arc::clone(self.mind.spec()), self.common.ports.ambient.now());
        let board = &self.common.board;
        if board.failed(&scope, (&spec.id, agent), &fault.text, &spec.breaker, now) {
            tracing::warn!(scope = %scope, agent = %agent, error = %fault, "breaker is charged");
            self.report_breakers(&[scope]);
        }
    }

    /// An agent got ready: what it made use of works.
    pub(super) fn proven(&self, agent: &AgentId) {
        let place = self.common.roster.get(agent).and_then(|living| living.place);
        let Some(place) = place else { return };
        let scopes = Scope::used(&place, &self.mind.spec().id.cloud);
        let moved = self.common.board.succeeded(&scopes);
        self.report_breakers(&moved);
        let (own, made) = (self.mind.spec(), self.mind.spec_of(agent));
        let image = place.origin.and_then(|origin| origin.version);
        if let Some(image) = image
            && self.common.canaries.succeeded(own, &made, agent, &image)
        {
            tracing::info!(template = %own.id, image = %image, agent = %agent, "version is proven");
            self.write_canary();
        }
    }

    /// The agent that tries a version failed before it was ready.
    pub(super) fn canary_failed(&self, agent: &AgentId, made: Option<&MadeAs>, cause: &str) {
        let id = &self.mind.spec().id;
        let failed = self.common.canaries.failed(id, agent, made, cause);
        if let Some((version, given_up)) = failed {
            tracing::warn!(
                template = %id, version = %version, agent = %agent, error = cause, given_up,
                "agent of a new version failed"
            );
            self.write_canary();
        }
    }

    /// Writes down what is known of its versions.
    pub(super) fn write_canary(&self) {
        let record = self.common.canaries.record(&self.mind.spec().id);
        self.common.records.write(record);
    }

    fn report_breakers(&self, moved: &[Scope]) {
        let now = self.common.ports.ambient.now();
        for scope in moved {
            if let Some(body) = self.common.board.record(scope, now) {
                self.common.records.write(body);
            }
            self.common.show_breaker(scope);
        }
    }
}
