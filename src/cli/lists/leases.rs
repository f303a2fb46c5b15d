//! Leases: what they want, whose they are, why they wait.

use drover_api::LeaseOut;
use drover_model::phase::LeasePhase;

use super::Listed;
use crate::cli::table::{Cell, Column, Kind, Tone, View, column};

/// Who asked for a lease.
const PRINCIPAL: &str = "PRINCIPAL";

impl Listed for LeaseOut {
    const COLUMNS: &'static [Column] = &[
        column("ID", Kind::Id, 0),
        column("STATE", Kind::State, 0),
        column("WANTS", Kind::Text, 3),
        column("AGENT", Kind::Id, 1),
        column(PRINCIPAL, Kind::Name, 5),
        column("OWNER", Kind::Name, 2),
        column("ASKED", Kind::Time, 4),
        column("EXPIRES", Kind::Time, 1),
        column("DETAIL", Kind::Text, 1),
    ];

    fn columns(leases: &[Self]) -> Vec<Column> {
        let mut columns = Self::COLUMNS.to_vec();
        // For whom the leases of others are is hidden; then their principals say whose they are.
        if leases.iter().any(|lease| lease.owner.is_empty()) {
            let principal = columns.iter_mut().filter(|column| column.name == PRINCIPAL);
            principal.for_each(|column| column.rank = 1);
        }
        columns
    }

    fn states() -> Vec<String> {
        LeasePhase::ALL.iter().map(ToString::to_string).collect()
    }

    fn name(&self) -> String {
        self.id.clone()
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        let tone = match self.state {
            LeasePhase::Ready => Tone::Good,
            LeasePhase::Waiting | LeasePhase::Granted => Tone::Busy,
            LeasePhase::Ended => Tone::Gone,
        };
        vec![
            Cell::of(&self.id),
            Cell::State(self.state.to_string(), tone),
            Cell::of(&self.wants),
            Cell::maybe(self.agent.as_ref()),
            Cell::of(&self.principal),
            Cell::of(&self.owner),
            Cell::time(self.asked_at.as_ref()),
            // One that has ended does not run out any more.
            Cell::time(self.expires_at.as_ref().filter(|_| self.state != LeasePhase::Ended)),
            Cell::of(&self.detail),
        ]
    }
}
