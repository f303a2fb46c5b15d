//! Sources of demand, and why one cannot be polled.

use drover_api::SourceOut;

use super::Listed;
use crate::cli::sentences::count;
use crate::cli::table::{Cell, Column, Kind, Page, View, column};

impl Listed for SourceOut {
    const COLUMNS: &'static [Column] = &[
        column("SOURCE", Kind::Name, 0),
        column("KIND", Kind::Name, 4),
        column("WAITING", Kind::Number, 0),
        column("OLDEST", Kind::Time, 1),
        column("RUNNING", Kind::Number, 0),
        column("RUNNERS", Kind::Number, 3),
        column("UNSERVED", Kind::Number, 1),
        column("IGNORED", Kind::Number, 3),
        column("UNREACHABLE", Kind::Time, 2),
    ];

    fn name(&self) -> String {
        self.id.clone()
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        vec![
            Cell::of(&self.id),
            Cell::of(&self.kind),
            Cell::of(self.waiting),
            Cell::time(self.oldest.as_ref()),
            Cell::of(self.running),
            Cell::of(self.runners),
            Cell::of(self.unoffered),
            Cell::of(self.ignored),
            Cell::time(self.silent_since.as_ref()),
        ]
    }

    fn aside(&self, page: &mut Page) {
        let id = &self.id;
        if !self.configured {
            page.line(&format!(
                "{id}: is not configured any more; `drover why {id}` shows what still runs"
            ));
        }
        for lacks in &self.lacks {
            page.line(&format!("{id}: unserved: {lacks}"));
        }
        if let (Some(since), Some(refusal)) = (&self.refused_since, &self.refusal) {
            let since = page.view().since(since);
            page.line(&format!("{id}: may not register runners {since}: {refusal}"));
        } else if self.unserved > 0 {
            page.line(&format!(
                "{id}: {} could not be started in a row; `drover why` and its log say why",
                count(self.unserved as usize, "runner"),
            ));
        }
        if let Some(detail) = &self.detail {
            page.line(&format!("{id}: {detail}"));
        }
    }
}
