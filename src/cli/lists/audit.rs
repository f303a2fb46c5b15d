//! Records of the audit log.

use drover_api::{AuditOut, AuditRecordOut};

use super::Listed;
use crate::cli::table::{Cell, Column, Kind, Page, Tone, View, column};

/// Digits of a hash by which people know a record; JSON has all of them.
const HASH_SHOWN: usize = 12;

/// Why no record can be written, where that is so.
pub(in crate::cli) fn trouble(out: &AuditOut, page: &mut Page) {
    if let Some(why) = &out.trouble {
        page.line(&format!("The audit log cannot be written: {why}"));
    }
}

impl Listed for AuditRecordOut {
    const COLUMNS: &'static [Column] = &[
        column("RECORD", Kind::Name, 0),
        column("MADE", Kind::Time, 0),
        column("BY", Kind::Name, 0),
        column("ROLE", Kind::Text, 3),
        column("FROM", Kind::Text, 3),
        column("CALL", Kind::Text, 0),
        column("ABOUT", Kind::Text, 0),
        column("STATUS", Kind::State, 0),
        column("FORWARDED-BY", Kind::Name, 5),
        column("REQUEST", Kind::Text, 5),
        column("HASH", Kind::Text, 6),
        // Last, so that no other row is as wide as the longest of them.
        column("DETAIL", Kind::Prose, 1),
    ];

    fn name(&self) -> String {
        self.seq.to_string()
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        let call = self.method.as_ref().map(|method| {
            let route = self.route.as_deref().unwrap_or("(no route)");
            format!("{method} {route}")
        });
        let status = match (&self.method, self.status) {
            (None, _) => Cell::None,
            (Some(_), None) => Cell::State("unanswered".to_owned(), Tone::Bad),
            (Some(_), Some(status @ 200..=299)) => Cell::State(status.to_string(), Tone::Good),
            (Some(_), Some(status)) => Cell::State(status.to_string(), Tone::Bad),
        };
        vec![
            Cell::of(self.seq),
            Cell::Time(self.at.clone()),
            Cell::maybe(self.principal.as_ref()),
            Cell::maybe(self.role.as_ref()),
            Cell::maybe(self.peer.as_ref()),
            Cell::of(call.unwrap_or_else(|| self.kind.clone())),
            Cell::maybe(self.object.as_ref()),
            status,
            Cell::maybe(self.member.as_ref()),
            Cell::maybe(self.request.as_ref()),
            Cell::of(self.hash.get(..HASH_SHOWN).unwrap_or(&self.hash)),
            Cell::maybe(self.detail.as_ref()),
        ]
    }
}
