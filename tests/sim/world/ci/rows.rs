//! What happens to rows of runners while their guests run: they are renamed, lose their connection, or
//! are guessed to be idle.

use serde::{Deserialize, Serialize};

use super::{Ci, System};

/// What happens to rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowDeed {
    /// Somebody renames one, by number.
    Rename(usize),
    /// None is connected from here on, or again; jobs on them go on.
    Off(bool),
}

impl System {
    /// Whether a row of this number is shown with its job: where idleness is guessed, now and then it is
    /// not.
    pub(super) fn shows_job(&mut self) -> bool {
        !self.guesses || self.draw(3) > 0
    }
}

impl Ci {
    /// Whether a runner has a job is guessed from when it was heard of last.
    pub fn guesses(&self, source: &str) {
        self.with(source, |system| system.guesses = true);
    }

    /// Something happens to rows.
    pub fn happen_to(&self, source: &str, deed: RowDeed) {
        self.advance();
        self.with(source, |system| match deed {
            RowDeed::Rename(pick) => {
                let many = system.board.rows.len().max(1);
                if let Some(row) = system.board.rows.values_mut().nth(pick % many) {
                    row.more.renamed = !system.board.nodes;
                }
            }
            RowDeed::Off(off) => system.off = off,
        });
    }
}
