//! Crash points made from the tables: every transition of the agent machine, and every call it ever
//! makes, hit in every way a call or a record can be hit.
//!
//! A row of the table that nobody knows how to bring about fails, so that a new transition asks for
//! its driver.

mod aftermath;
mod answers;
mod call;
mod reported;
mod script;
mod substeps;
mod table;

use drover_model::id::LeaseId;
use libtest_mimic::{Failed, Trial};

use crate::on_paused_clock;
use crate::world::World;
use crate::world::setup::Setup;
use table::{Cause, Transition};

/// How a transition is hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// Not at all: the transition itself.
    None,
    /// The power goes before the call leaves, or the record is written.
    NotSent,
    /// The call leaves, does nothing, and nobody answers.
    SentAndLost,
    /// As before, and the power goes while it is waited for.
    SentAndLostAndCut,
    /// The call does what it should, and nobody answers.
    DoneAndAnswerLost,
    /// As before, and the power goes while it is waited for.
    DoneAndAnswerLostAndCut,
    /// The answer is there, and the power goes before the next record is durable.
    DoneAndNotJournalled,
    /// The call is carried out twice.
    RunTwice,
}

impl Blow {
    const ALL: [Self; 8] = [
        Self::None,
        Self::NotSent,
        Self::SentAndLost,
        Self::SentAndLostAndCut,
        Self::DoneAndAnswerLost,
        Self::DoneAndAnswerLostAndCut,
        Self::DoneAndNotJournalled,
        Self::RunTwice,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::None => "happens",
            Self::NotSent => "not_sent",
            Self::SentAndLost => "sent_and_lost",
            Self::SentAndLostAndCut => "sent_and_lost_and_cut",
            Self::DoneAndAnswerLost => "done_and_answer_lost",
            Self::DoneAndAnswerLostAndCut => "done_and_answer_lost_and_cut",
            Self::DoneAndNotJournalled => "done_and_not_journalled",
            Self::RunTwice => "run_twice",
        }
    }

    /// Whether the power goes.
    fn cuts(self) -> bool {
        match self {
            Self::None | Self::SentAndLost | Self::DoneAndAnswerLost | Self::RunTwice => false,
            Self::NotSent
            | Self::SentAndLostAndCut
            | Self::DoneAndAnswerLostAndCut
            | Self::DoneAndNotJournalled => true,
        }
    }
}

/// A herd whose lives make exactly the calls of the table, and the lease that waits for one.
struct Stage {
    world: World,
    lease: LeaseId,
}

/// A step that puts a file into the guest, and a command to be ready.
const PREPARE: &str = concat!(
    "prepare: [{upload: {from: \"",
    env!("CARGO_MANIFEST_DIR"),
    "/../../../LICENSE\", to: LICENSE}}], readyCommand: \"true\""
);

/// A herd whose lives make exactly the calls of the table: stopped at once, with steps of its own, and
/// reset only where the table says so.
fn setup(transition: &Transition) -> Setup {
    let keys = "instanceCap: 3, idleTerminationMinutes: 30, shutdownTimeoutSec: 0";
    let reset = if transition.is_of_resets() { "reset: DISK" } else { "reset: NONE" };
    Setup::linux(&format!("{keys}, {reset}, {PREPARE}"))
}

async fn play(transition: Transition, blow: Blow) -> Result<(), String> {
    match &transition.cause {
        Cause::Answered { .. } => call::play(&transition, blow).await,
        Cause::Reported(_) => reported::play(&transition, blow).await,
    }
}

/// One trial for each transition and blow.
pub fn trials() -> Vec<Trial> {
    let mut all = Vec::new();
    for transition in table::transitions() {
        for blow in Blow::ALL {
            // Where nothing follows there is nothing to hit but the moment after it.
            let idle =
                matches!(transition.cause, Cause::Reported(_)) && reported::is_idle(&transition);
            if idle && blow != Blow::NotSent {
                continue;
            }
            let what = if idle { "cut_at_once" } else { blow.name() };
            let name = format!("points::{}::{what}", transition.path());
            let transition = transition.clone();
            all.push(Trial::test(name, move || {
                on_paused_clock(play(transition, blow)).map_err(Failed::from)
            }));
        }
    }
    all.extend(substeps::trials());
    all
}
