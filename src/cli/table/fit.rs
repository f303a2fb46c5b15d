//! Which columns a terminal has room for, and how wide each is.
//!
//! Long texts give way first, down to [`TEXT_LEAST`]. Then columns are left out, empty ones first, then
//! those of the highest rank. Names are cut last. With `--wide` no column is left out, and none is cut.

use super::Kind;

/// The spaces between two columns.
pub(in crate::cli) const GAP: usize = 2;

/// The width down to which long texts give way before a column is left out.
const TEXT_LEAST: usize = 20;

/// The width down to which names and texts are cut where leaving out columns is not enough.
const LEAST: usize = 8;

/// A column as the fitting sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Want {
    pub kind: Kind,
    pub rank: u8,
    /// The width of its widest cell.
    pub natural: usize,
    /// Whether no row has anything there.
    pub is_empty: bool,
}

impl Want {
    fn first_least(&self) -> usize {
        if matches!(self.kind, Kind::Text | Kind::Prose) {
            self.natural.min(TEXT_LEAST)
        } else {
            self.natural
        }
    }

    fn is_cuttable(&self) -> bool {
        matches!(self.kind, Kind::Text | Kind::Prose | Kind::Name)
    }
}

/// The width of each column; none for those that are left out.
pub(super) fn fit(wants: &[Want], room: Option<usize>, keeps_all: bool) -> Vec<Option<usize>> {
    let mut widths: Vec<Option<usize>> = wants.iter().map(|one| Some(one.natural)).collect();
    let room = room.filter(|room| !keeps_all && total(&widths) > *room);
    let Some(room) = room else { return widths };
    for (width, want) in widths.iter_mut().zip(wants) {
        *width = Some(want.first_least());
    }
    while total(&widths) > room {
        let droppable = |at: &usize| widths[*at].is_some() && wants[*at].rank > 0;
        let victim = (0..wants.len())
            .filter(droppable)
            .max_by_key(|at| (wants[*at].is_empty, wants[*at].rank));
        let Some(victim) = victim else { break };
        widths[victim] = None;
    }
    while total(&widths) > room {
        let cuttable = |at: &usize| wants[*at].is_cuttable() && widths[*at] > Some(LEAST);
        let widest = (0..wants.len()).filter(cuttable).max_by_key(|at| widths[*at]);
        let Some(widest) = widest else { break };
        widths[widest] = widths[widest].map(|width| width - 1);
    }
    while total(&widths) > room {
        let Some(last) = (1..wants.len()).rev().find(|at| widths[*at].is_some()) else { break };
        widths[last] = None;
    }
    for _ in total(&widths)..room {
        let growing = |at: &usize| widths[*at].is_some_and(|width| width < wants[*at].natural);
        let narrowest = (0..wants.len()).filter(growing).min_by_key(|at| widths[*at]);
        let Some(narrowest) = narrowest else { break };
        widths[narrowest] = widths[narrowest].map(|width| width + 1);
    }
    widths
}

fn total(widths: &[Option<usize>]) -> usize {
    let shown = widths.iter().flatten();
    shown.clone().sum::<usize>() + GAP * shown.count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTS: [Want; 5] = [
        Want { kind: Kind::Id, rank: 0, natural: 6, is_empty: false },
        Want { kind: Kind::Name, rank: 0, natural: 30, is_empty: false },
        Want { kind: Kind::State, rank: 2, natural: 10, is_empty: false },
        Want { kind: Kind::Name, rank: 3, natural: 6, is_empty: true },
        Want { kind: Kind::Text, rank: 1, natural: 90, is_empty: false },
    ];

    // Invariant: no line is longer than the terminal is wide, unless all columns were asked for.

    #[test]
    fn texts_give_way_first_then_columns_and_names_last() {
        let shown = |room| fit(&WANTS, room, false);
        assert_eq!(shown(None), [Some(6), Some(30), Some(10), Some(6), Some(90)]);
        assert_eq!(shown(Some(200)), [Some(6), Some(30), Some(10), Some(6), Some(90)]);
        assert_eq!(shown(Some(100)), [Some(6), Some(30), Some(10), Some(6), Some(40)]);
        assert_eq!(shown(Some(76)), [Some(6), Some(30), Some(10), None, Some(24)]);
        assert_eq!(shown(Some(64)), [Some(6), Some(30), None, None, Some(24)]);
        assert_eq!(shown(Some(40)), [Some(6), Some(30), None, None, None]);
        assert_eq!(shown(Some(30)), [Some(6), Some(22), None, None, None]);
        assert_eq!(shown(Some(12)), [Some(6), None, None, None, None]);
        for room in 8..220 {
            assert!(total(&shown(Some(room))) <= room, "{room}");
        }
    }

    #[test]
    fn every_column_stays_whole_where_all_are_asked_for() {
        for room in [Some(200), Some(76), Some(20)] {
            assert_eq!(fit(&WANTS, room, true), fit(&WANTS, None, false));
        }
    }
}
