//! Circuit breakers that are not closed.

use drover_api::BreakerOut;
use drover_model::phase::BreakerPhase;

use super::Listed;
use crate::cli::table::{Cell, Column, Kind, Tone, View, column};

impl Listed for BreakerOut {
    const COLUMNS: &'static [Column] = &[
        column("NAME", Kind::Name, 0),
        column("STATE", Kind::State, 0),
        column("NEXT TRY", Kind::Time, 0),
        column("CAUSE", Kind::Text, 0),
    ];

    const EMPTY: &'static str = "all closed";

    fn name(&self) -> String {
        self.id.clone()
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        vec![
            Cell::of(&self.id),
            state(self.state),
            Cell::time(self.retry_at.as_ref()),
            Cell::maybe(self.cause.as_ref()),
        ]
    }
}

/// A breaker in the words of the field.
pub(super) fn state(phase: BreakerPhase) -> Cell {
    let (word, tone) = match phase {
        BreakerPhase::Closed => ("closed", Tone::Good),
        BreakerPhase::Open => ("open", Tone::Bad),
        BreakerPhase::HalfOpen => ("half-open", Tone::Busy),
    };
    Cell::State(word.to_owned(), tone)
}
