//! Jobs of CI systems.

use drover_api::JobOut;
use drover_model::phase::JobPhase;

use super::Listed;
use crate::cli::table::{Cell, Column, Kind, Tone, View, column};

impl Listed for JobOut {
    const COLUMNS: &'static [Column] = &[
        column("SOURCE", Kind::Name, 1),
        column("JOB", Kind::Name, 0),
        column("NAME", Kind::Name, 0),
        column("STATE", Kind::State, 0),
        column("WANTS", Kind::Text, 4),
        column("QUEUED", Kind::Time, 3),
        column("AGENT", Kind::Id, 2),
        column("DETAIL", Kind::Text, 1),
    ];

    fn states() -> Vec<String> {
        JobPhase::ALL.iter().map(ToString::to_string).collect()
    }

    fn name(&self) -> String {
        format!("{}/{}", self.source, self.id)
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        let tone = match self.state {
            JobPhase::Running => Tone::Good,
            JobPhase::Waiting => Tone::Busy,
            JobPhase::Unserved | JobPhase::Unread => Tone::Bad,
            JobPhase::Ignored => Tone::Gone,
        };
        vec![
            Cell::of(&self.source),
            Cell::of(&self.id),
            Cell::maybe(self.name.as_ref()),
            Cell::State(self.state.to_string(), tone),
            Cell::maybe(self.wants.as_ref()),
            Cell::time(self.since.as_ref()),
            Cell::maybe(self.agent.as_ref()),
            Cell::maybe(self.lacks.as_ref()),
        ]
    }
}
