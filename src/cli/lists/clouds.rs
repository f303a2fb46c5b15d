//! Clouds, and whether drover can work with each.

use drover_api::CloudOut;
use drover_model::phase::CloudHealth;

use super::Listed;
use crate::cli::sentences::short;
use crate::cli::table::{Cell, Column, Kind, Page, Tone, View, column};
use drover_api::standing;

impl Listed for CloudOut {
    const COLUMNS: &'static [Column] = &[
        column("NAME", Kind::Name, 0),
        column("HEALTH", Kind::State, 0),
        column("VERSION", Kind::Name, 2),
        column("AGENTS", Kind::Number, 0),
        column("CLUSTER", Kind::Id, 3),
        column("DETAIL", Kind::Text, 1),
    ];

    fn name(&self) -> String {
        self.id.clone()
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        let tone = match self.health {
            CloudHealth::Connecting => Tone::Busy,
            CloudHealth::Well => Tone::Good,
            CloudHealth::Degraded => Tone::Bad,
        };
        let cap = self.cap.map_or_else(|| "-".to_owned(), |cap| cap.to_string());
        vec![
            Cell::of(&self.id),
            Cell::State(standing(self).to_owned(), tone),
            Cell::maybe(self.version.as_ref()),
            Cell::of(format!("{}/{cap}", self.agents)),
            Cell::maybe(self.cluster.as_ref()),
            Cell::of(&self.detail),
        ]
    }

    fn aside(&self, page: &mut Page) {
        if let Some(commit) = &self.managed_by {
            page.line(&format!("{}: git manages it, commit {}", self.id, short(commit)));
        }
        if let Some(cap) = self.overrides.and_then(|own| own.instance_cap) {
            page.line(&format!("{}: set against the configuration: instanceCap {cap}", self.id));
        }
    }
}
