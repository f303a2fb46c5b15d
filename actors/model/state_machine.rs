//! The one shape of all decisions: a mind takes an event, and says what it wants done.
//!
//! ```text
//! actor (body) ── event, now, draw ──▶ step ──▶ Turn { effects } ──▶ the actor carries them out
//! ```
//!
//! A mind does no I/O, reads no clock and draws no random number: both come in. Each mind has a
//! table of its transitions, which `table` draws from the code and a test compares with a file
//! beside it; the book has a drawing of each.

use crate::time::Now;

/// A decision maker: state, and the one function that changes it.
pub trait StateMachine {
    /// What can happen to it.
    type Event;
    /// What it can want done.
    type Effect;

    /// Takes one event in, and pushes what follows in the order in which it is to happen.
    fn step(&mut self, event: Self::Event, now: Now, turn: &mut Turn<Self::Effect>);

    /// One step on its own: the effects of `event` at `now`, with the random bits `draw`.
    fn effects_of(&mut self, event: Self::Event, now: Now, draw: u64) -> Vec<Self::Effect> {
        let mut turn = Turn::new(draw);
        self.step(event, now, &mut turn);
        turn.effects
    }

    /// One step by a clock, which is read only for an event that needs the time.
    ///
    /// A port is where an actor may panic. An actor that asks for no time that it does not need keeps
    /// what a message says, where it keeps that before it asks.
    fn effects_by(
        &mut self,
        event: Self::Event,
        clock: impl FnOnce() -> Now,
        draw: u64,
    ) -> Vec<Self::Effect>
    where
        Self::Event: Timed,
    {
        let now = if event.needs_time() { clock() } else { Now::UNREAD };
        self.effects_of(event, now, draw)
    }
}

/// An event that says whether a mind needs the time to take it in.
pub trait Timed {
    fn needs_time(&self) -> bool;
}

/// What one step has beside its event: random bits, and room for what it wants done.
#[derive(Debug)]
pub struct Turn<E> {
    /// 64 random bits for this step.
    pub draw: u64,
    /// What the step wants done, in order.
    pub effects: Vec<E>,
}

impl<E> Turn<E> {
    pub fn new(draw: u64) -> Self {
        Self { draw, effects: Vec::new() }
    }

    pub fn push(&mut self, effect: E) {
        self.effects.push(effect);
    }
}

/// Rows of a table: one state before, one event, the state after, the effects in words.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub before: String,
    pub event: String,
    pub after: String,
    pub effects: Vec<String>,
}

/// The golden text of a mind: a line for each outcome that differs, the events that lead to it
/// joined by `|`, a blank line between states.
///
/// The order of states and events is the order of the rows.
#[cfg(any(test, feature = "testing"))]
pub fn table(rows: &[Row]) -> String {
    let mut states: Vec<&str> = Vec::new();
    for row in rows {
        if !states.contains(&row.before.as_str()) {
            states.push(&row.before);
        }
    }
    let width = states.iter().map(|state| state.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (n, state) in states.iter().enumerate() {
        if n > 0 {
            text.push('\n');
        }
        let mut outcomes: Vec<(String, Vec<&str>)> = Vec::new();
        for row in rows.iter().filter(|row| row.before == **state) {
            let after = if row.after == row.before { "stay" } else { &row.after };
            let outcome = match row.effects.as_slice() {
                [] => after.to_owned(),
                effects => format!("{after}, then {}", effects.join(", ")),
            };
            match outcomes.iter_mut().find(|(known, _)| *known == outcome) {
                Some((_, events)) => events.push(&row.event),
                None => outcomes.push((outcome, vec![&row.event])),
            }
        }
        for (outcome, events) in outcomes {
            text.push_str(&format!("{state:width$}  {} -> {outcome}\n", events.join(" | ")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(before: &str, event: &str, after: &str, effects: &[&str]) -> Row {
        let effects = effects.iter().map(|effect| (*effect).to_owned()).collect();
        Row { before: before.into(), event: event.into(), after: after.into(), effects }
    }

    #[test]
    fn events_of_one_outcome_share_a_line_and_states_stand_apart() {
        let rows = [
            row("closed", "success", "closed", &[]),
            row("closed", "failure", "open", &["Wake"]),
            row("closed", "tick", "closed", &[]),
            row("open", "tick", "half-open", &[]),
        ];
        let wanted = "closed  success | tick -> stay\n\
                      closed  failure -> open, then Wake\n\
                      \n\
                      open    tick -> half-open\n";
        assert_eq!(table(&rows), wanted);
    }
}
