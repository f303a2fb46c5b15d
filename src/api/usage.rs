//! Usage of a range of time, and its form for spreadsheets.

use serde::{Deserialize, Serialize};

/// What was used in a range of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct UsageOut {
    /// The first moment of the range.
    pub from: String,
    /// The first moment after the range.
    pub to: String,
    /// By what the rows are: `template`, `source`, `owner` or `cloud`.
    pub by: String,
    /// The name of the currency; null where none is configured.
    pub currency: Option<String>,
    pub rows: Vec<UsageRowOut>,
    /// What all rows add up to.
    pub total: UsageRowOut,
    /// What is missing, each a sentence for people.
    pub notes: Vec<String>,
}

/// One row of a report of usage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct UsageRowOut {
    /// The template, source, owner or cloud. Names in brackets are none: `(unused)`, `(leases)`,
    /// `(not served)`, `(others)`.
    pub name: String,
    /// Agents that had a machine in the range; 0 in the rows of a report by source or owner.
    pub agents: u64,
    /// Hours of machines.
    pub vm_hours: f64,
    /// Hours of processor cores.
    pub core_hours: f64,
    /// Hours of GiB of memory.
    pub gib_hours: f64,
    /// Leases that were served.
    pub leases: u64,
    /// Jobs that were seen to start.
    pub jobs: u64,
    /// The median of the time that these leases and jobs waited, in seconds; null without any.
    pub wait_p50_seconds: Option<f64>,
    /// The time that 95 of 100 of them did not exceed.
    pub wait_p95_seconds: Option<f64>,
    /// Agents that failed, and leases and jobs that were lost or waited too long.
    pub failures: u64,
    /// Hours of machines whose size is not known: core-hours and GiB-hours lack them.
    pub unsized_hours: f64,
    /// What it costs; null without configured prices.
    pub price: Option<f64>,
}

/// A column of the form for spreadsheets: its name, and what a row has there.
type Column = (&'static str, fn(&UsageRowOut) -> String);

/// The columns behind the name.
const COLUMNS: [Column; 11] = [
    ("agents", |row| row.agents.to_string()),
    ("vm_hours", |row| row.vm_hours.to_string()),
    ("core_hours", |row| row.core_hours.to_string()),
    ("gib_hours", |row| row.gib_hours.to_string()),
    ("leases", |row| row.leases.to_string()),
    ("jobs", |row| row.jobs.to_string()),
    ("wait_p50_seconds", |row| known(row.wait_p50_seconds)),
    ("wait_p95_seconds", |row| known(row.wait_p95_seconds)),
    ("failures", |row| row.failures.to_string()),
    ("unsized_hours", |row| row.unsized_hours.to_string()),
    ("price", |row| known(row.price)),
];

impl UsageOut {
    /// The rows as CSV (RFC 4180), without their total.
    pub fn csv(&self) -> String {
        let line = |first: String, cells: &mut dyn Iterator<Item = String>| {
            let cells = std::iter::once(first).chain(cells);
            cells.collect::<Vec<_>>().join(",") + "\r\n"
        };
        let names = &mut COLUMNS.iter().map(|(name, _)| (*name).to_owned());
        let mut text = line(self.by.clone(), names);
        for row in &self.rows {
            text += &line(cell(&row.name), &mut COLUMNS.iter().map(|(_, figure)| figure(row)));
        }
        text
    }
}

/// A figure; a blank cell where it is not known.
fn known(figure: Option<f64>) -> String {
    figure.map(|it| it.to_string()).unwrap_or_default()
}

/// A text as a cell. Owners are texts of callers: one that a spreadsheet would take for a formula gets a
/// `'` in front.
fn cell(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    let needs_quotes = text.contains([',', '"', '\r', '\n']);
    if needs_quotes { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a cell is one cell, whatever callers call themselves, and no formula.

    #[test]
    fn names_stay_one_cell_and_are_no_formula() {
        for (name, expected) in [
            ("lab/linux", "lab/linux"),
            ("a, b", "\"a, b\""),
            ("the \"best\"", "\"the \"\"best\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
            ("-1,2", "\"'-1,2\""),
        ] {
            assert_eq!(cell(name), expected);
        }
    }

    #[test]
    fn rows_are_lines_with_a_head_and_a_blank_cell_where_nothing_is_known() {
        let row = UsageRowOut { name: "lab/linux".into(), vm_hours: 1.5, ..UsageRowOut::default() };
        let usage = UsageOut {
            from: String::new(),
            to: String::new(),
            by: "template".into(),
            currency: None,
            rows: vec![UsageRowOut { wait_p50_seconds: Some(2.25), ..row }],
            total: UsageRowOut::default(),
            notes: Vec::new(),
        };
        assert_eq!(
            usage.csv(),
            "template,agents,vm_hours,core_hours,gib_hours,leases,jobs,wait_p50_seconds,\
             wait_p95_seconds,failures,unsized_hours,price\r\n\
             lab/linux,0,1.5,0,0,0,0,2.25,,0,0,\r\n"
        );
    }
}
