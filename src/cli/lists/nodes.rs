//! Nodes: what is free, and what is started on none of them.

use std::collections::BTreeSet;

use drover_api::NodeOut;

use super::Listed;
use crate::cli::table::{Cell, Column, Kind, Page, Tone, View, column};

impl Listed for NodeOut {
    const COLUMNS: &'static [Column] = &[
        column("NODE", Kind::Name, 0),
        column("STATE", Kind::State, 0),
        column("AGENTS", Kind::Number, 0),
        column("GUESTS", Kind::Number, 3),
        column("MEMORY", Kind::Number, 4),
        column("OTHERS", Kind::Number, 6),
        column("RESERVED", Kind::Number, 5),
        column("FREE", Kind::Number, 0),
        column("CPUS", Kind::Number, 4),
        column("FREE CPUS", Kind::Number, 0),
        column("CLUSTER", Kind::Id, 7),
        column("DETAIL", Kind::Text, 1),
    ];

    fn name(&self) -> String {
        self.node.clone()
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        let room = self.room.as_ref();
        let mib = |figure: Option<i64>| Cell::maybe(figure.map(|figure| format!("{figure} MiB")));
        let whole = |figure: Option<u64>| mib(figure.and_then(|figure| figure.try_into().ok()));
        let kept_out = self.kept_out_by.as_ref();
        let kept_out = kept_out.map(|one| format!("by {} since {}", one.by, one.at));
        // The service puts why a node is barred in the place of its state.
        let (state, tone, detail) = match self.state.as_str() {
            "online" => ("online", Tone::Good, ""),
            "offline" => ("offline", Tone::Bad, ""),
            "maintenance" => ("maintenance", Tone::Busy, ""),
            "cordoned" => ("cordoned", Tone::Busy, ""),
            "drained" => ("drained", Tone::Busy, ""),
            why => ("barred", Tone::Bad, why),
        };
        vec![
            Cell::of(&self.node),
            Cell::State(state.to_owned(), tone),
            Cell::of(self.agents),
            Cell::of(self.guests),
            whole(room.map(|room| room.memory_mb)),
            whole(room.map(|room| room.others_mb)),
            whole(room.map(|room| room.reserved_mb)),
            mib(room.map(|room| room.free_mb)),
            Cell::maybe(room.map(|room| format!("{:.0}", room.cpus))),
            Cell::maybe(room.map(|room| format!("{:.1}", room.free_cpus))),
            Cell::of(&self.cluster),
            Cell::of(kept_out.as_deref().unwrap_or(detail)),
        ]
    }

    fn aside(&self, page: &mut Page) {
        for one in &self.refuses {
            page.line(&format!("{} takes none of {}: {}", self.node, one.template, one.why));
        }
    }
}

/// Storages that are nearly full or cannot be reached, a shared one once for its cluster.
pub(in crate::cli) fn storages(nodes: &[NodeOut], page: &mut Page) {
    let mut shared = BTreeSet::new();
    for (node, one) in
        nodes.iter().flat_map(|node| node.storages.iter().map(move |one| (node, one)))
    {
        let (storage, name) = (&one.storage, &node.node);
        match one.space {
            _ if !one.reached => {
                page.line(&format!("storage {storage} cannot be reached from {name}"));
            }
            Some(space) if space.is_nearly_full() => {
                let place = if one.shared { String::new() } else { format!(" on {name}") };
                if one.shared && !shared.insert((&node.cluster, storage)) {
                    continue;
                }
                page.line(&format!(
                    "storage {storage}{place} is {} % full: {} MiB are free",
                    space.percent(),
                    space.free_mb()
                ));
            }
            Some(_) | None => {}
        }
    }
}
