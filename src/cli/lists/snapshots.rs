//! Snapshots of one machine, each behind the one that it comes from.

use drover_api::SnapshotOut;

use super::Listed;
use crate::cli::table::{Cell, Column, Kind, View, column};

/// A snapshot, and how many come before it.
pub(in crate::cli) struct Snapshot {
    pub out: SnapshotOut,
    pub depth: usize,
}

impl Snapshot {
    /// All snapshots of a machine, with their depths.
    pub(in crate::cli) fn all(snapshots: Vec<SnapshotOut>) -> Vec<Self> {
        let depths: Vec<usize> = snapshots.iter().map(|one| depth(one, &snapshots)).collect();
        let each = snapshots.into_iter().zip(depths);
        each.map(|(out, depth)| Self { out, depth }).collect()
    }
}

fn depth(one: &SnapshotOut, all: &[SnapshotOut]) -> usize {
    let parent =
        |one: &SnapshotOut| all.iter().find(|other| Some(&other.name) == one.parent.as_ref());
    let (mut depth, mut at) = (0, parent(one));
    while let Some(before) = at.filter(|_| depth < all.len()) {
        depth += 1;
        at = parent(before);
    }
    depth
}

impl Listed for Snapshot {
    const COLUMNS: &'static [Column] = &[
        column("SNAPSHOT", Kind::Name, 0),
        column("TAKEN", Kind::Time, 0),
        column("RAM", Kind::State, 2),
        column("STATE", Kind::Name, 1),
        column("DESCRIPTION", Kind::Text, 1),
    ];

    fn name(&self) -> String {
        self.out.name.clone()
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        let one = &self.out;
        let marks = [
            one.current.then_some("current"),
            one.own.then_some("drover's own"),
            one.unfinished.as_deref(),
        ];
        vec![
            Cell::of(format!("{}{}", "  ".repeat(self.depth), one.name)),
            Cell::time(one.taken_at.as_ref()),
            Cell::of(if one.memory { "yes" } else { "no" }),
            Cell::of(marks.into_iter().flatten().collect::<Vec<_>>().join(", ")),
            Cell::of(one.description.replace('\n', " ")),
        ]
    }
}
