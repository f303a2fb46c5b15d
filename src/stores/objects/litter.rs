//! What no entry needs any more, and how it goes.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::gateway::{CallError, Gateway};
use super::layout::{LOG, PARTS, Position, term_of_part};
use super::probe::PROBES;
use super::{Known, SEAL_DAYS};

/// After this many hours nobody waits for what a probe left.
const PROBE_HOURS: i64 = 1;

/// Objects that are deleted when this is dropped: it takes time.
pub(super) struct Litter {
    gateway: Arc<Gateway>,
    names: Vec<String>,
}

impl Litter {
    pub(super) fn new(gateway: Arc<Gateway>, names: Vec<String>) -> Self {
        Self { gateway, names }
    }
}

impl Drop for Litter {
    fn drop(&mut self) {
        if let Err(error) = self.gateway.delete(&self.names) {
            tracing::debug!(%error, "old objects of the journal stay");
        }
    }
}

/// Deletes what earlier writers left, after an entry that began a term.
pub(super) fn clean(gateway: &Gateway, known: &Known) {
    let cleaned = left(gateway, known).and_then(|names| gateway.delete(&names));
    if let Err(error) = cleaned {
        tracing::warn!(%error, "old objects of the journal stay");
    }
}

/// The objects that neither this entry nor a later one can name.
fn left(gateway: &Gateway, known: &Known) -> Result<Vec<String>, CallError> {
    let Some(at) = known.at else { return Ok(Vec::new()) };
    let head = &known.entry.head;
    let mut named: HashSet<String> = head.chunks.iter().map(|chunk| chunk.name.clone()).collect();
    named.extend(head.snapshot.iter().flat_map(super::SnapshotMark::names));
    let entries = gateway.list(LOG, None)?;
    let now = entries.iter().map(|(_, meta)| meta.last_modified).max();
    let mut left = Vec::new();
    // The last entry of each term is the one that ended it.
    let mut seals = BTreeMap::new();
    for (name, meta) in entries {
        let Some(position) = Position::of(&name).filter(|position| *position < at) else {
            continue;
        };
        if let Some((before, _)) = seals.insert(position.term, (name, meta.last_modified)) {
            left.push(before);
        }
    }
    for (term, (name, modified)) in seals {
        let age = now.map_or(0, |now| (now - modified).num_days());
        if term == at.term || age > SEAL_DAYS {
            left.push(name);
        }
    }
    let parts = gateway.list(PARTS, None)?.into_iter().map(|(name, _)| name);
    left.extend(parts.filter(|name| term_of_part(name).is_some_and(|term| term <= at.term)));
    left.retain(|name| !named.contains(name));
    for (name, meta) in gateway.list(PROBES, None)? {
        let hours = now.map_or(0, |now| (now - meta.last_modified).num_hours());
        if hours >= PROBE_HOURS {
            left.push(name);
        }
    }
    Ok(left)
}
