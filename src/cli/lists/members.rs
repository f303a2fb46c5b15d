//! Members of a store, and what each of them does.

use drover_api::{MemberOut, MembersOut};

use super::Listed;
use crate::cli::table::{Cell, Column, Kind, Page, Tone, View, column};

/// Who led last, where that is all that is known.
pub(in crate::cli) fn last_leader(members: &MembersOut, page: &mut Page) {
    if let Some(last) = &members.last_leader {
        page.line(&format!(
            "No member leads. Last led by {}, silent since {}",
            last.name, last.silent_since
        ));
    }
}

impl Listed for MemberOut {
    const COLUMNS: &'static [Column] = &[
        column("NAME", Kind::Name, 0),
        column("ROLE", Kind::State, 0),
        column("DROVER", Kind::Name, 1),
        column("CONFIGURATION", Kind::Id, 1),
        column("URL", Kind::Text, 2),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        let tone = match self.role.as_str() {
            "leader" | "standby" => Tone::Good,
            _ => Tone::Bad,
        };
        vec![
            Cell::of(&self.name),
            Cell::State(self.role.clone(), tone),
            Cell::of(&self.drover),
            Cell::of(&self.configuration),
            Cell::of(&self.url),
        ]
    }

    fn aside(&self, page: &mut Page) {
        if let Some(why) = &self.detail {
            page.line(&format!("{} does not lead: {why}", self.name));
        }
        if let Some(why) = &self.refused {
            page.line(&format!("{} cannot use its newest configuration: {why}", self.name));
        }
        if let Some(seconds) = self.silent_seconds {
            page.line(&format!("{} has been silent for {seconds} s", self.name));
        }
    }
}
