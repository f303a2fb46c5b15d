//! The table of the agent machine, read back: every transition by its state and what brings it
//! about.

use drover_model::phase::AgentPhase;
/// The table as the minds' own tests draw it.
const TABLE: &str = include_str!("../../../../actors/src/agent/transitions.txt");

/// What brings a transition about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// A command, or the state's deadline.
    Reported(String),
    /// The answer of a call.
    Answered {
        call: String,
        /// The last other call before it in a life without faults.
        after: Option<String>,
        /// Its place among equal calls in a row, from 1.
        nth: usize,
        /// What it came back with.
        answer: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The state it begins in.
    pub state: AgentPhase,
    /// What brings it about.
    pub cause: Cause,
    /// What follows, as the table says it.
    pub outcome: String,
}

impl Transition {
    /// The state it leads to.
    pub fn target(&self) -> AgentPhase {
        if self.stays() { self.state } else { self.outcome.parse().expect("a phase") }
    }

    /// Whether it leads to no other state.
    pub fn stays(&self) -> bool {
        self.outcome.starts_with("stay")
    }

    /// Whether only agents go through it that are reset.
    pub fn is_of_resets(&self) -> bool {
        let snapshot = match &self.cause {
            Cause::Reported(_) => false,
            Cause::Answered { call, .. } => call == "Snapshot",
        };
        snapshot || self.state == AgentPhase::Resetting
    }

    /// Where the tests of this transition are, as a path of modules.
    pub fn path(&self) -> String {
        let state = snake(self.state.name());
        match &self.cause {
            Cause::Reported(what) => format!("{state}::{}", snake(what)),
            Cause::Answered { call, after, nth, answer } => {
                let place = match (after, nth) {
                    (Some(after), 1) if call == "Await" => format!("_of_{}", snake(after)),
                    (Some(after), 1) if after == "Upload" => "_after_upload".to_owned(),
                    (Some(_) | None, 1) => String::new(),
                    (Some(_) | None, nth) => format!("_{nth}"),
                };
                format!("{state}::{}{place}_{}", snake(call), snake(answer))
            }
        }
    }
}

/// `HostKeys` and `a stranger's` as parts of a path.
pub fn snake(text: &str) -> String {
    let mut out = String::new();
    for (place, letter) in text.char_indices() {
        if letter.is_ascii_uppercase() && place > 0 {
            out.push('_');
        }
        match letter {
            'A'..='Z' | 'a'..='z' | '0'..='9' => out.push(letter.to_ascii_lowercase()),
            ' ' => out.push('_'),
            _ => {}
        }
    }
    out
}

/// Every transition, in the table's order.
pub fn transitions() -> Vec<Transition> {
    let mut all = Vec::new();
    // The calls of a life, each of the table's groups of rows once.
    let mut calls: Vec<(AgentPhase, String)> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.trim().is_empty()) {
        let (left, outcome) = line.split_once(" -> ").expect("an arrow");
        let (state, causes) = left.split_once(' ').expect("a state");
        let state: AgentPhase = state.parse().expect("a phase");
        for cause in causes.trim().split(" | ") {
            let cause = match cause.split_once(": ") {
                None => Cause::Reported(cause.to_owned()),
                Some((call, answer)) => {
                    // Each group of rows begins with its fair answer.
                    if answer == "ok" {
                        calls.push((state, call.to_owned()));
                    }
                    answered(&calls, call, answer)
                }
            };
            all.push(Transition { state, cause, outcome: outcome.to_owned() });
        }
    }
    all
}

fn answered(calls: &[(AgentPhase, String)], call: &str, answer: &str) -> Cause {
    if call == "Report" {
        // A life without faults has none: it is the next after a step that fails.
        return Cause::Answered {
            call: call.to_owned(),
            after: None,
            nth: 1,
            answer: answer.to_owned(),
        };
    }
    // What is beside the straight way has no part in what comes before a call on it.
    let beside = |(state, call): &(AgentPhase, String)| {
        [AgentPhase::InDoubt, AgentPhase::Resetting, AgentPhase::Held, AgentPhase::Stranded]
            .contains(state)
            || ["Snapshot", "Report"].contains(&call.as_str())
    };
    let here = calls.last().filter(|last| beside(last)).map(|(state, _)| state);
    let counts = |one: &&(AgentPhase, String)| match here {
        Some(state) => one.0 == *state,
        None => !beside(one),
    };
    let before: Vec<&String> = calls.iter().filter(counts).map(|(_, call)| call).collect();
    let nth = before.iter().rev().take_while(|other| **other == call).count().max(1);
    let after = before.iter().rev().find(|other| **other != call);
    let after = after.map(|other| (*other).clone());
    Cause::Answered { call: call.to_owned(), after, nth, answer: answer.to_owned() }
}
