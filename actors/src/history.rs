//! What the agents of one template have shown: how long its guests boot, and whether their resets
//! are worth it. The template keeps it, and its agents write it: what one agent has shown counts for
//! the next step of every other.

use std::cell::RefCell;

use drover_model::status::ResetStatus;

use crate::boot_times::{Booted, Boots};
use crate::reset_stats::{Figures, ResetStats};
use crate::shared::{Shared, role};

#[derive(Debug, Default)]
pub struct History {
    boots: RefCell<Boots>,
    resets: RefCell<Figures>,
}

impl History {
    /// How soon the next guest may be up.
    pub fn early(&self) -> Option<Booted> {
        self.boots.borrow().early()
    }

    /// Whether the next used agent is reset.
    pub fn resets_are_worth_it(&self) -> bool {
        self.resets.borrow().worth()
    }

    /// The status of resets, for people.
    pub fn resets(&self) -> ResetStatus {
        self.resets.borrow().status()
    }
}

impl Shared<History, role::Agent> {
    pub fn booted(&self, booted: Booted) {
        self.boots.borrow_mut().note(booted);
    }

    /// Updates the figures of resets. Returns the refusal where it is a new one.
    pub fn learnt(&self, reset_stats: ResetStats) -> Option<String> {
        self.resets.borrow_mut().note(reset_stats)
    }
}
