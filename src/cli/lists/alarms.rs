//! What needs an administrator.

use drover_api::AlarmOut;

use super::Listed;
use crate::cli::table::{Cell, Column, Kind, View, column};

impl Listed for AlarmOut {
    const COLUMNS: &'static [Column] = &[
        column("AGENT", Kind::Id, 0),
        column("RAISED", Kind::Time, 1),
        column("ALARM", Kind::Text, 0),
        column("RUN", Kind::Text, 2),
    ];

    fn name(&self) -> String {
        self.agent.clone()
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        vec![
            Cell::of(&self.agent),
            Cell::Time(self.since.clone()),
            Cell::of(&self.text),
            Cell::of(&self.command),
        ]
    }
}
