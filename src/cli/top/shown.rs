//! The list that is shown: its rows, those that the filter leaves, and the cursor.

use jiff::Timestamp;

use super::super::options::TopNoun;
use super::listing::{Entry, Listing};

/// The list that is shown.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub noun: TopNoun,
    /// None before the first answer.
    pub listing: Option<Listing>,
    /// When its answer came.
    pub fetched: Option<Timestamp>,
    pub filter: String,
    /// The number of a column, and whether its order is reversed.
    pub sort: Option<(usize, bool)>,
    /// The rows that the filter leaves, in order.
    pub order: Vec<usize>,
    /// What is wrong with the filter.
    pub fault: Option<String>,
    /// The place of the cursor in `order`, and the first place on the screen.
    pub cursor: usize,
    pub first: usize,
    /// The row that the cursor follows; none where it stays at the top.
    pub follows: Option<String>,
}

impl Shown {
    /// Filters and sorts the rows again; the cursor follows its row.
    pub(super) fn arrange(&mut self) {
        let Some(listing) = &self.listing else {
            self.order.clear();
            return;
        };
        match listing.order(&self.filter, self.sort) {
            Ok(order) => {
                self.order = order;
                self.fault = None;
            }
            Err(fault) => self.fault = Some(fault),
        }
        if let Some(key) = &self.follows {
            let at = self.order.iter().position(|row| listing.key(*row) == Some(key));
            self.cursor = at.unwrap_or(self.cursor);
        } else {
            self.cursor = 0;
        }
    }

    /// Moves the cursor to a place of the list.
    pub(super) fn move_to(&mut self, place: usize) {
        let place = place.min(self.order.len().saturating_sub(1));
        self.cursor = place;
        let row = self.order.get(place);
        let key = row.and_then(|row| self.listing.as_ref()?.key(*row));
        self.follows = key.filter(|_| place > 0).map(str::to_owned);
    }

    /// The thing under the cursor.
    pub(super) fn chosen(&self) -> Option<&Entry> {
        self.listing.as_ref()?.entries.get(*self.order.get(self.cursor)?)
    }

    /// Brings the cursor and the scrolling to where a list of so many rows on the screen can be drawn.
    pub(super) fn settle(&mut self, rows: usize) {
        let most = self.order.len().saturating_sub(1);
        self.cursor = self.cursor.min(most);
        let least = (self.cursor + 1).saturating_sub(rows);
        let first = self.first.clamp(least, self.cursor.max(least));
        self.first = first.min((most + 1).saturating_sub(rows));
    }
}
