//! One style for every list: columns with a kind and a rank, rows of cells, and a [`View`] that says for
//! which terminal they are drawn.
//!
//! Everything here is pure: (columns, rows, view) -> text. The time is part of the view.
//!
//! - `view.rs`: width, time, colour, and what was asked for. A pipe gets every column, nothing cut, times
//!   in RFC 3339; a terminal gets what fits into its width, and times such as `2m ago`.
//! - `fit.rs`: which columns are shown, and how wide each is.
//! - `ids.rs`: the shortest ids that are still unique among those listed.
//! - `order.rs`: filters and sorting, by the names of columns.
//! - `draw.rs`: a table as text.
//! - `page.rs`: tables, headings and sentences, none of which can move the cursor.

mod draw;
mod fit;
mod ids;
mod order;
mod page;
mod view;

#[cfg(test)]
mod tests;

pub(super) use draw::{Piece, Table};
pub(super) use fit::GAP;
pub(super) use order::{Order, Unknown, key};
pub(super) use page::{Page, clean};
pub(super) use view::View;

/// What a column holds, which says how it is aligned and cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Shortened to what is unique among those listed.
    Id,
    /// Cut only where leaving out other columns is not enough.
    Name,
    /// One word, coloured.
    State,
    Time,
    /// Aligned to the right.
    Number,
    /// Cut to the room that is left.
    Text,
    /// Never cut: what has no room goes on below, in the same column.
    Prose,
}

/// A column of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub name: &'static str,
    pub kind: Kind,
    /// The higher, the sooner a narrow terminal goes without it; 0 stays.
    pub rank: u8,
}

/// A column, in one line.
pub(super) const fn column(name: &'static str, kind: Kind, rank: u8) -> Column {
    Column { name, kind, rank }
}

/// What a state means for who reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// As it should be.
    Good,
    /// Under way, or waiting.
    Busy,
    /// It needs somebody.
    Bad,
    /// It has ended, and needs nobody.
    Gone,
    Plain,
}

/// One value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cell {
    /// Nothing is known, or nothing is to say.
    None,
    Text(String),
    List(Vec<String>),
    State(String, Tone),
    /// A time in RFC 3339.
    Time(String),
}

impl Cell {
    pub(super) fn of(text: impl ToString) -> Self {
        match text.to_string() {
            text if text.is_empty() => Self::None,
            text => Self::Text(text),
        }
    }

    pub(super) fn maybe(text: Option<impl ToString>) -> Self {
        text.map_or(Self::None, Self::of)
    }

    pub(super) fn time(at: Option<&String>) -> Self {
        at.map_or(Self::None, |at| Self::Time(at.clone()))
    }

    pub(super) fn list(all: &[String]) -> Self {
        if all.is_empty() { Self::None } else { Self::List(all.to_vec()) }
    }
}
