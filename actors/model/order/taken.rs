//! The snapshots that orders took of a machine in its present use.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::id::OrderId;

/// Snapshots that orders took and did not delete, each with the time that Proxmox lists for it.
///
/// An order that takes a snapshot alters the machine, which serves nobody after its present use: so these
/// are of that use, and any other is not. Names come back: somebody may delete a snapshot in Proxmox and
/// take another of its name. The time is what they differ in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct TakenSnapshots(BTreeMap<String, Option<u64>>);

/// As journals hold it; one of an earlier release has the names alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Times(BTreeMap<String, Option<u64>>),
    Names(BTreeSet<String>),
}

impl From<Stored> for TakenSnapshots {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Times(times) => Self(times),
            Stored::Names(names) => Self(names.into_iter().map(|name| (name, None)).collect()),
        }
    }
}

/// What a listed snapshot is to the orders of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The one that an order took.
    Same,
    /// An order took one of this name at this time, in Unix seconds; the listed one is another.
    Namesake(u64),
    /// An order took one of this name, and drover does not know when.
    Untimed,
    /// No order took one of this name.
    No,
}

impl TakenSnapshots {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// An order took this one; `taken` in Unix seconds, as Proxmox lists it.
    pub fn insert(&mut self, name: &str, taken: Option<u64>) {
        self.0.insert(name.to_owned(), taken);
    }

    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// What a snapshot is that Proxmox lists with this name and this time.
    pub fn is(&self, name: &str, listed: Option<u64>) -> Taken {
        match self.0.get(name) {
            None => Taken::No,
            Some(None) => Taken::Untimed,
            Some(Some(taken)) if listed == Some(*taken) => Taken::Same,
            Some(Some(taken)) => Taken::Namesake(*taken),
        }
    }
}

/// The line that ends the description of a snapshot which this order took.
///
/// By it drover knows the order's own snapshot from any other before its time is durable.
pub fn order_mark(order: &OrderId) -> String {
    format!("{MARK}{order}")
}

const MARK: &str = "drover order ";

/// The description of a snapshot that an order takes.
pub fn marked_description(text: &str, order: &OrderId) -> String {
    let mark = order_mark(order);
    if text.is_empty() { mark } else { format!("{text}\n{mark}") }
}

/// The description without the line that drover ended it with.
pub fn unmarked_description(text: &str) -> &str {
    let text = text.trim_end();
    let (before, last) = text.rsplit_once('\n').unwrap_or(("", text));
    if last.starts_with(MARK) { before.trim_end() } else { text }
}

/// Whether the description ends with the line of this order.
pub fn is_marked(text: &str, order: &OrderId) -> bool {
    text.trim_end().lines().last() == Some(order_mark(order).as_str())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    // Invariant: a snapshot is an order's by its name and its time together.

    #[test]
    fn a_namesake_is_known_by_its_time_and_an_earlier_journal_has_no_times() {
        let mut taken = TakenSnapshots::default();
        taken.insert("mine", Some(7));
        assert_eq!(taken.is("mine", Some(7)), Taken::Same);
        assert_eq!(taken.is("mine", Some(8)), Taken::Namesake(7));
        assert_eq!(taken.is("mine", None), Taken::Namesake(7));
        assert_eq!(taken.is("other", Some(7)), Taken::No);
        let text = serde_json::to_string(&taken).unwrap();
        assert_eq!(serde_json::from_str::<TakenSnapshots>(&text).unwrap(), taken);
        let before: TakenSnapshots = serde_json::from_str(r#"["mine"]"#).unwrap();
        assert_eq!(before.is("mine", Some(7)), Taken::Untimed);
    }

    // Invariant: the description alone says which order took a snapshot, and people see their own text.

    #[test]
    fn the_description_ends_with_the_line_of_its_order() {
        let (one, two) = (OrderId::new("order-1"), OrderId::new("order-11"));
        for text in ["", "two\nlines"] {
            let marked = marked_description(text, &one);
            assert!(
                is_marked(&format!("{marked}\n"), &one) && !is_marked(&marked, &two),
                "{marked}"
            );
            assert_eq!(unmarked_description(&marked), text);
        }
        assert_eq!(unmarked_description("by hand\n"), "by hand");
    }
}
