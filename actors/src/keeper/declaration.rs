//! What the configuration says of a machine: it is declared, declared otherwise, or no longer; and the
//! command that lets go of it.

use std::sync::Arc;

use drover_model::declared::{DeclaredSpec, OnRemoval};
use drover_model::id::NodeName;
use drover_model::marks::Marks;
use drover_model::record::Body;
use drover_model::time::Now;

use super::event::Effect;
use super::make::NO_TEMPLATE;
use super::mind::{Guest, Mind, Out};
use super::remove::REMOVAL_GRACE;
use super::state::{Check, Create, Remove, Standing, State, Watch};

impl Mind {
    /// The configuration has it so.
    pub(super) fn declare(&mut self, spec: Arc<DeclaredSpec>, now: Now, out: Out<'_>) {
        let before = self.phase();
        self.birth.declared = Some(Arc::clone(&spec));
        (self.left_at, self.lacks_image) = (None, false);
        // Without a guest the next try takes what is declared then.
        let removing = self.state.removal();
        if removing.is_some_and(Remove::is_late) {
            // The guest is kept where the destroy comes to nothing; otherwise the next keeper makes
            // another one.
            return;
        }
        let removing = removing.is_some() || self.state == State::Leaving;
        let same = !removing && self.recorded(&self.spec).is_same(&self.recorded(&spec));
        if let Some(Guest { marks, .. }) = self.guest.as_ref().filter(|_| !same) {
            let machine = marks.agent.clone();
            let spec = self.recorded(&spec);
            out.push(Effect::Record(Body::DeclaredChanged { machine, spec }));
        }
        self.spec = spec;
        if self.phase() != before {
            self.since = now.wall;
        }
        if removing {
            self.keep_after_all(now, out);
        } else if let State::Resting(standing, Watch::Pause) = self.state
            && !same
        {
            self.corrections.clear();
            self.enter(State::Resting(standing, Watch::Describe), now, out);
        } else if matches!(self.state, State::Waiting | State::Blocked) && !same {
            self.failures = 0;
            self.enter(State::Checking(Check::Cluster), now, out);
        }
    }

    /// The configuration has it no longer.
    pub(super) fn undeclared(&mut self, now: Now, out: Out<'_>) {
        let before = self.phase();
        self.birth.declared = None;
        if self.phase() != before {
            self.since = now.wall;
        }
        if matches!(self.state, State::Leaving | State::Removing(_) | State::Removed) {
            return;
        }
        if self.guest.is_none() {
            return self.enter(State::Removed, now, out);
        }
        match self.spec.on_removal {
            OnRemoval::Delete => self.delete_in_time(now, out),
            OnRemoval::Keep => {}
            OnRemoval::Stop => {
                self.left_at = Some(now.mono);
                if let State::Resting(standing, Watch::Pause) = self.state {
                    self.enter(State::Resting(standing, Watch::Describe), now, out);
                }
            }
        }
    }

    /// It left the configuration, and its last declaration wants its guest destroyed.
    fn delete_in_time(&mut self, now: Now, out: Out<'_>) {
        self.drift.clear();
        self.enter(State::Leaving, now, out);
        self.detail = format!(
            "it left the configuration: drover destroys its guest in {} s; declare it again to keep it",
            REMOVAL_GRACE.as_secs()
        );
    }

    /// It is declared again while its guest is to be destroyed: the guest stays, unless the destroy was
    /// asked for.
    fn keep_after_all(&mut self, now: Now, out: Out<'_>) {
        let Some(Guest { configured, .. }) = self.guest else { return };
        let state = match configured {
            true => State::Resting(Standing::Kept, Watch::Describe),
            false => State::Creating(Create::Look),
        };
        self.asked.get_or_insert(now.mono);
        self.enter(state, now, out);
    }

    /// Whether it was declared again while the destroy was under way, which came to nothing: the guest
    /// is kept.
    pub(super) fn was_declared_again(&mut self, now: Now, out: Out<'_>) -> bool {
        let Some(spec) = self.birth.declared.clone() else { return false };
        self.declare(spec, now, out);
        true
    }

    /// An operator has it adopt a guest whose marks are written. Only a machine without a guest, or whose
    /// guest is lost, takes one; the guest is left as it is, and its differences are shown.
    pub(super) fn take_over(&mut self, marks: Marks, node: NodeName, now: Now, out: Out<'_>) {
        let may = match &self.state {
            State::Waiting | State::Blocked | State::Checking(_) => self.guest.is_none(),
            State::Resting(Standing::Missing | Standing::Foreign, _) => true,
            State::Resting(Standing::Kept, _)
            | State::Creating(_)
            | State::Configuring
            | State::Starting
            | State::Correcting(_)
            | State::Leaving
            | State::Removing(_)
            | State::Removed => false,
        };
        if !may || !self.is_declared() {
            return;
        }
        self.let_go(true, out);
        self.cluster = Some(marks.cluster.clone());
        self.guest = Some(Guest {
            marks: marks.clone(),
            node: node.clone(),
            source: NO_TEMPLATE,
            made: true,
            configured: true,
        });
        let spec = self.recorded(&self.spec);
        let marks = Box::new(marks);
        out.push(Effect::Record(Body::DeclaredIntended { marks, node, spec, adopted: true }));
        self.failures = 0;
        self.enter(State::Resting(Standing::Kept, Watch::Describe), now, out);
    }

    /// An operator wants it forgotten. Its guest may be there: the id is used again only when it is
    /// free. A removal that cannot go on ends so too.
    pub(super) fn forget(&mut self, now: Now, out: Out<'_>) {
        self.let_go(true, out);
        self.enter(State::Removed, now, out);
    }
}
