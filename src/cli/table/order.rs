//! Filters and sorting, by the names of columns.

use std::cmp::Ordering;

use jiff::Timestamp;

use super::draw::Table;
use super::{Cell, Column, Kind};

/// Which rows are shown, and in which order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::cli) struct Order {
    /// Pairs of a column and what it must hold; all of them must hold.
    pub filters: Vec<(String, String)>,
    pub sort: Option<String>,
    pub is_reversed: bool,
}

/// A column that a list does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Unknown {
    pub key: String,
    pub known: Vec<String>,
}

/// The name of a column as options spell it.
pub(in crate::cli) fn key(column: &Column) -> String {
    column.name.to_lowercase().replace(' ', "-")
}

impl Table {
    /// The rows that are wanted, in the order that is wanted.
    pub(in crate::cli) fn order(&self, order: &Order) -> Result<Vec<usize>, Unknown> {
        let filters = order
            .filters
            .iter()
            .map(|(key, value)| Ok((self.at(key)?, value.to_lowercase())))
            .collect::<Result<Vec<_>, Unknown>>()?;
        let fits = |row: &Vec<Cell>| {
            filters.iter().all(|(at, value)| {
                row.get(*at).is_some_and(|cell| holds(cell, self.columns[*at].kind, value))
            })
        };
        let rows = self.rows.iter().enumerate();
        let mut shown: Vec<usize> = rows.filter(|(_, row)| fits(row)).map(|(at, _)| at).collect();
        if let Some(key) = &order.sort {
            let at = self.at(key)?;
            let cell = |row: &usize| self.rows[*row].get(at).unwrap_or(&Cell::None);
            shown.sort_by(|one, other| {
                let kind = self.columns[at].kind;
                compare(cell(one), cell(other), kind, order.is_reversed)
            });
        }
        Ok(shown)
    }

    /// Whether any cell of a row holds this text, in any case.
    pub(in crate::cli) fn mentions(&self, row: usize, word: &str) -> bool {
        let word = word.to_lowercase();
        let cells = self.rows.get(row).into_iter().flatten();
        cells.filter_map(text).any(|cell| cell.contains(&word))
    }

    /// The column of this name, in the singular or the plural.
    fn at(&self, name: &str) -> Result<usize, Unknown> {
        let name = name.to_lowercase();
        let is_meant = |known: &String| {
            *known == name
                || known.strip_suffix('s') == Some(&name)
                || name.strip_suffix('s') == Some(known)
        };
        let known: Vec<String> = self.columns.iter().map(key).collect();
        match known.iter().position(is_meant) {
            Some(at) => Ok(at),
            None => Err(Unknown { key: name, known }),
        }
    }
}

/// Whether a cell holds what a filter wants: one of a list, the beginning of an id, a name with or
/// without its cloud, a part of a text.
fn holds(cell: &Cell, kind: Kind, value: &str) -> bool {
    let is = |text: &str| {
        let text = text.to_lowercase();
        match kind {
            Kind::Id => text.starts_with(value),
            Kind::Text | Kind::Prose => text.contains(value),
            Kind::Name => {
                text == value || text.rsplit_once('/').is_some_and(|(_, name)| name == value)
            }
            Kind::State | Kind::Time | Kind::Number => text == value,
        }
    };
    match cell {
        Cell::None => value == "-" || value.is_empty(),
        Cell::Text(text) | Cell::State(text, _) | Cell::Time(text) => is(text),
        // A count stands before a word, such as `2 Ready`.
        Cell::List(all) => all.iter().any(|one| {
            let last = one.rsplit_once(' ').map(|(_, word)| word.to_lowercase());
            one.to_lowercase() == value
                || last.as_deref() == Some(value)
                || kind == Kind::Id && is(one)
        }),
    }
}

/// Compares two cells of a column; rows without anything there come last.
fn compare(one: &Cell, other: &Cell, kind: Kind, is_reversed: bool) -> Ordering {
    let (one, other) = match (text(one), text(other)) {
        (None, None) => return Ordering::Equal,
        (None, Some(_)) => return Ordering::Greater,
        (Some(_), None) => return Ordering::Less,
        (Some(one), Some(other)) => (one, other),
    };
    let order = match kind {
        Kind::Time => one.parse::<Timestamp>().ok().cmp(&other.parse::<Timestamp>().ok()),
        Kind::Number => number(&one).total_cmp(&number(&other)),
        Kind::Id | Kind::Name | Kind::State | Kind::Text | Kind::Prose => one.cmp(&other),
    };
    if is_reversed { order.reverse() } else { order }
}

fn text(cell: &Cell) -> Option<String> {
    match cell {
        Cell::None => None,
        Cell::Text(text) | Cell::State(text, _) | Cell::Time(text) => Some(text.to_lowercase()),
        Cell::List(all) => Some(all.join(",").to_lowercase()),
    }
}

/// The number that a text begins with, such as that of `8192 MiB`.
fn number(text: &str) -> f64 {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-');
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    text[..end].parse().unwrap_or(f64::NAN)
}
