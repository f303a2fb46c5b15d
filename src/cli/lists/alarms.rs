//! What needs an administrator.

use drover_api::AlarmOut;

use super::Listed;
use crate::cli::table::{Cell, Column, Kind, View, column};

impl Listed for AlarmOut {
    const COLUMNS: &'static [Column] = &[
        column("ABOUT", Kind::Text, 0),
        column("RAISED", Kind::Time, 1),
        column("ALARM", Kind::Prose, 0),
        column("RUN", Kind::Prose, 0),
    ];

    fn name(&self) -> String {
        if self.about.is_empty() { self.agent.clone() } else { self.about.clone() }
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        vec![
            Cell::of(self.name()),
            Cell::time(self.since.as_ref()),
            Cell::of(&self.text),
            Cell::of(&self.command),
        ]
    }
}
