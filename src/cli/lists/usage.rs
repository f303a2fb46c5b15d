//! Usage of a range of time.

use drover_api::{UsageOut, UsageRowOut};

use super::Listed;
use crate::cli::sentences::clean;
use crate::cli::table::{Cell, Column, Kind, Page, View, column};

/// What all rows add up to, the range, and what is missing.
pub(in crate::cli) fn used(out: &UsageOut, page: &mut Page) {
    let UsageOut { from, to, total, notes, currency, .. } = out;
    let price = total.price.map(|price| {
        let currency = currency.as_deref().map(|name| format!(" {}", clean(name)));
        format!(", {price:.2}{}", currency.unwrap_or_default())
    });
    page.line(&format!(
        "total from {from} to {to}: {:.1} VM-hours, {:.1} core-hours, {:.1} GiB-hours{}; {} leases, \
         {} jobs, {} failures",
        total.vm_hours,
        total.core_hours,
        total.gib_hours,
        price.unwrap_or_default(),
        total.leases,
        total.jobs,
        total.failures,
    ));
    notes.iter().for_each(|note| page.line(&format!("note: {}", clean(note))));
}

impl Listed for UsageRowOut {
    const COLUMNS: &'static [Column] = &[
        column("NAME", Kind::Name, 0),
        column("AGENTS", Kind::Number, 3),
        column("VM-HOURS", Kind::Number, 0),
        column("CORE-HOURS", Kind::Number, 1),
        column("GIB-HOURS", Kind::Number, 1),
        column("LEASES", Kind::Number, 0),
        column("JOBS", Kind::Number, 0),
        column("WAIT-P50", Kind::Number, 2),
        column("WAIT-P95", Kind::Number, 0),
        column("FAILURES", Kind::Number, 0),
        column("PRICE", Kind::Number, 0),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        let hours = |hours: f64| Cell::of(format!("{hours:.1}"));
        let seconds = |wait: Option<f64>| Cell::maybe(wait.map(|wait| format!("{wait:.1}s")));
        vec![
            Cell::of(&self.name),
            Cell::of(self.agents),
            hours(self.vm_hours),
            hours(self.core_hours),
            hours(self.gib_hours),
            Cell::of(self.leases),
            Cell::of(self.jobs),
            seconds(self.wait_p50_seconds),
            seconds(self.wait_p95_seconds),
            Cell::of(self.failures),
            Cell::maybe(self.price.map(|price| format!("{price:.2}"))),
        ]
    }
}
