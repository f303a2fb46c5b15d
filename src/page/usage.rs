//! What was used in a range of time.

use askama::Template;
use drover_api::{UsageOut, UsageRowOut};

use crate::frame::Frame;
use crate::show;

/// What rows may be of.
const BY: [&str; 4] = ["template", "source", "owner", "cloud"];

/// A report of usage. Its address has its range, so that it can be kept.
#[derive(Template)]
#[template(path = "usage.html")]
pub struct UsagePage {
    frame: Frame,
    from: String,
    to: String,
    by: Vec<(&'static str, bool)>,
    csv: String,
    currency: String,
    has_price: bool,
    rows: Vec<Row>,
    total: Row,
    notes: Vec<String>,
}

/// A row in words.
struct Row {
    out: UsageRowOut,
    /// The address of what the row is about, where that has a page.
    address: Option<String>,
    p50: String,
    p95: String,
    price: String,
}

impl UsagePage {
    /// A report, of which `query` is the query of its address, without `?`.
    pub fn new(frame: Frame, out: UsageOut, query: &str) -> Self {
        let UsageOut { from, to, by, currency, rows, total, notes } = out;
        let more = if query.is_empty() { "" } else { "&" };
        Self {
            frame,
            csv: format!("/usage?{query}{more}format=csv"),
            by: BY.map(|known| (known, known == by)).into(),
            currency: currency.unwrap_or_default(),
            has_price: total.price.is_some(),
            rows: rows.into_iter().map(|row| Row::new(row, &by)).collect(),
            total: Row::new(total, ""),
            from,
            to,
            notes,
        }
    }
}

impl Row {
    fn new(out: UsageRowOut, by: &str) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a wait is positive and far below 2^52 ms"
        )]
        let wait = |seconds: Option<f64>| {
            seconds.map_or_else(|| "–".to_owned(), |it| show::length((it * 1000.0) as u64))
        };
        let is_template = by == "template" && !out.name.starts_with('(');
        Self {
            address: is_template.then(|| format!("/templates/{}", out.name)),
            p50: wait(out.wait_p50_seconds),
            p95: wait(out.wait_p95_seconds),
            price: out.price.map(|price| format!("{price:.2}")).unwrap_or_default(),
            out,
        }
    }
}

/// Hours to a tenth.
fn hours(hours: &f64) -> String {
    format!("{hours:.1}")
}
