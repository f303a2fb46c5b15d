//! Answers of the API as rows.

use std::collections::BTreeMap;

use drover_api::{
    AddressPoolOut, AgentOut, AlarmOut, BreakerOut, CloudOut, DeclaredMachineOut, GoneOut,
    ImageVersionOut, JobOut, LeaseOut, MemberOut, NodeOut, SourceOut, TemplateOut,
};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::lists::Listed;
use super::super::options::TopNoun;
use super::super::table::{Cell, Column, Order, Table, View};
use super::{ROWS_MAX, herd};

/// The thing of one row.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// What it is.
    pub noun: TopNoun,
    /// What commands and `show` call it.
    pub name: String,
    /// As the service describes it.
    pub thing: Value,
}

impl Entry {
    /// Whether another entry is of the same thing, perhaps of an earlier answer. Nodes of two clusters may have
    /// one name, and jobs of two sources one id.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let place = match self.noun {
            TopNoun::Nodes => Some("cluster"),
            TopNoun::Jobs => Some("source"),
            TopNoun::Herd
            | TopNoun::Agents
            | TopNoun::Gone
            | TopNoun::Leases
            | TopNoun::Templates
            | TopNoun::Clouds
            | TopNoun::Sources
            | TopNoun::Images
            | TopNoun::Machines
            | TopNoun::Breakers
            | TopNoun::AddressPools
            | TopNoun::Members
            | TopNoun::Alarms
            | TopNoun::Events => None,
        };
        let is_there = place.is_none_or(|place| self.thing[place] == other.thing[place]);
        self.noun == other.noun && self.name == other.name && is_there
    }
}

/// Rows, and the thing of each.
#[derive(Debug)]
pub(super) struct Listing {
    pub table: Table,
    /// One for each row.
    pub entries: Vec<Entry>,
    /// Keys of the rows, each of its own: the name, and its number where several have the name.
    keys: Vec<String>,
    /// How many there are beyond those that are kept.
    pub left_off: usize,
}

impl Listing {
    pub(super) fn new(columns: &[Column], rows: Vec<(Entry, Vec<Cell>)>) -> Self {
        let left_off = rows.len().saturating_sub(ROWS_MAX);
        let (entries, rows): (Vec<Entry>, Vec<Vec<Cell>>) = rows.into_iter().take(ROWS_MAX).unzip();
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let keys = entries.iter().map(|entry| {
            let name = format!("{} {}", entry.noun.word(), entry.name);
            let number = seen.entry(name.clone()).or_default();
            *number += 1;
            format!("{name} {number}")
        });
        let keys = keys.collect();
        Self { table: Table::new(columns, rows), entries, keys, left_off }
    }

    /// The rows of an answer that are of this noun; none where it is no answer of drover's.
    pub(super) fn of(noun: TopNoun, answer: &Value, now: Timestamp) -> Option<Self> {
        match noun {
            TopNoun::Herd => {
                Some(herd::listing(&serde_json::from_value(answer.clone()).ok()?, now))
            }
            TopNoun::Agents => list::<AgentOut>(noun, &answer["agents"], now),
            TopNoun::Gone => list::<GoneOut>(noun, &answer["gone"], now),
            TopNoun::Leases => list::<LeaseOut>(noun, &answer["leases"], now),
            TopNoun::Jobs => list::<JobOut>(noun, &answer["jobs"], now),
            TopNoun::Nodes => list::<NodeOut>(noun, &answer["nodes"], now),
            TopNoun::Templates => list::<TemplateOut>(noun, &answer["templates"], now),
            TopNoun::Clouds => list::<CloudOut>(noun, &answer["clouds"], now),
            TopNoun::Sources => list::<SourceOut>(noun, &answer["sources"], now),
            TopNoun::Images => list::<ImageVersionOut>(noun, &answer["versions"], now),
            TopNoun::Machines => list::<DeclaredMachineOut>(noun, &answer["machines"], now),
            TopNoun::Breakers => list::<BreakerOut>(noun, &answer["breakers"], now),
            TopNoun::AddressPools => list::<AddressPoolOut>(noun, &answer["addressPools"], now),
            TopNoun::Members => list::<MemberOut>(noun, &answer["members"], now),
            TopNoun::Alarms => list::<AlarmOut>(noun, &answer["alarms"], now),
            TopNoun::Events => None,
        }
    }

    /// The key of a row; it is the same in the next answer.
    pub(super) fn key(&self, row: usize) -> Option<&str> {
        self.keys.get(row).map(String::as_str)
    }

    /// The rows that hold every word of a filter, in the order of a column.
    ///
    /// A word `column=value` is about that column, as `--filter` of the lists is; `!word` leaves out the rows
    /// that hold the word.
    ///
    /// # Errors
    /// The list has no such column.
    pub(super) fn order(
        &self,
        filter: &str,
        sort: Option<(usize, bool)>,
    ) -> Result<Vec<usize>, String> {
        let (of_columns, words): (Vec<&str>, Vec<&str>) =
            filter.split_whitespace().partition(|word| word.contains('='));
        let pair =
            |word: &&str| word.split_once('=').map(|(key, value)| (key.into(), value.into()));
        let name = |at: usize| self.table.columns().get(at).map(super::super::table::key);
        let order = Order {
            filters: of_columns.iter().filter_map(pair).collect(),
            sort: sort.and_then(|(at, _)| name(at)),
            is_reversed: sort.is_some_and(|(_, is_reversed)| is_reversed),
        };
        let unknown = |unknown: super::super::table::Unknown| {
            format!(
                "this list has no column `{}`; it has {}",
                unknown.key,
                unknown.known.join(", ")
            )
        };
        let mut rows = self.table.order(&order).map_err(unknown)?;
        rows.retain(|row| {
            words.iter().all(|word| match word.strip_prefix('!') {
                Some(word) => word.is_empty() || !self.table.mentions(*row, word),
                None => self.table.mentions(*row, word),
            })
        });
        Ok(rows)
    }
}

fn list<T: Listed + DeserializeOwned>(
    noun: TopNoun,
    answer: &Value,
    now: Timestamp,
) -> Option<Listing> {
    let view = View { utc: false, ..View::complete(now) };
    let things = answer.as_array()?;
    let read = things.iter().map(|thing| (serde_json::from_value::<T>(thing.clone()).ok(), thing));
    let all: Vec<(T, &Value)> = read.filter_map(|(one, thing)| Some((one?, thing))).collect();
    let rows = all.iter().map(|(one, thing)| {
        let entry = Entry { noun, name: one.name(), thing: (*thing).clone() };
        (entry, one.row(&view))
    });
    let rows = rows.collect();
    let all: Vec<T> = all.into_iter().map(|(one, _)| one).collect();
    Some(Listing::new(&T::columns(&all), rows))
}
