//! Pools of addresses with what they have.

use drover_api::AddressPoolOut;

use super::Listed;
use crate::cli::table::{Cell, Column, Kind, View, column};

impl Listed for AddressPoolOut {
    const COLUMNS: &'static [Column] = &[
        column("POOL", Kind::Name, 0),
        column("SIZE", Kind::Number, 0),
        column("USED", Kind::Number, 0),
        column("RESTING", Kind::Number, 0),
        column("FREE", Kind::Number, 0),
        column("NEXT FREE", Kind::Time, 1),
        column("ADDRESSES", Kind::Text, 2),
    ];

    fn name(&self) -> String {
        self.id.clone()
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        vec![
            Cell::of(&self.id),
            Cell::of(self.size),
            Cell::of(self.used),
            Cell::of(self.resting),
            Cell::of(self.free),
            Cell::time(self.next_free_at.as_ref()),
            Cell::of(self.ranges.join(", ")),
        ]
    }
}
