//! Options of `drover trace` and `drover usage`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use super::read::read_span;
use crate::cli::list_options::ListOptions;

/// A range of time.
#[derive(Debug, Clone, Default, Args)]
pub struct RangeOptions {
    /// The first moment: a time such as 2026-11-28T17:00:00Z, a date such as 2026-11-28 (its midnight
    /// here), or how long ago, such as 7d
    #[arg(long, value_name = "TIME", value_parser = read_moment)]
    pub from: Option<Timestamp>,
    /// The first moment after the range, spelled likewise [default: now]
    #[arg(long, value_name = "TIME", value_parser = read_moment)]
    pub to: Option<Timestamp>,
}

/// What is exported.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "The page of the book: `drover help history`")]
pub struct TraceOptions {
    #[command(flatten)]
    pub range: RangeOptions,
    /// Leave names of owners, groups and jobs as they are [default: hashed]
    #[arg(long)]
    pub names: bool,
    /// Write it to this file [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// By what rows of usage are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum UsageBy {
    #[default]
    Template,
    Source,
    Owner,
    Cloud,
}

impl UsageBy {
    /// The word for it in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Template => "template",
            Self::Source => "source",
            Self::Owner => "owner",
            Self::Cloud => "cloud",
        }
    }
}

/// Which usage is shown.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "The page of the book: `drover help usage.md`")]
pub struct UsageOptions {
    #[command(flatten)]
    pub range: RangeOptions,
    /// By what the rows are
    #[arg(long, value_enum, default_value_t)]
    pub by: UsageBy,
    /// Print CSV, for spreadsheets
    #[arg(long)]
    pub csv: bool,
    #[command(flatten)]
    pub list: ListOptions,
}

/// Reads a moment.
fn read_moment(text: &str) -> Result<Timestamp, String> {
    moment(text, &Zoned::now())
}

/// A moment as it is spelled now and here.
fn moment(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    if let Ok(date) = text.parse::<Date>() {
        return midnight(date, now.time_zone());
    }
    let ago = read_span(text).ok().and_then(|span| now.timestamp().checked_sub(span).ok());
    ago.ok_or_else(|| {
        format!(
            "`{text}` is no moment; write it as 2026-11-28T17:00:00Z, as 2026-11-28, or as how long \
             ago, such as 7d"
        )
    })
}

fn midnight(date: Date, zone: &TimeZone) -> Result<Timestamp, String> {
    let start = date.to_zoned(zone.clone()).and_then(|day| day.start_of_day());
    start.map(|start| start.timestamp()).map_err(|_| format!("`{date}` is out of range"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    // Invariant: a date is its midnight where the caller is, and a time says where it is.

    #[test]
    fn a_moment_is_a_time_a_date_here_or_a_span_ago() {
        let now: Zoned = "2026-11-28T12:00:00+01:00[Europe/Berlin]".parse().unwrap();
        for (text, expected) in [
            ("2026-11-28T17:00:00Z", "2026-11-28T17:00:00Z"),
            ("2026-11-28T17:00:00+01:00", "2026-11-28T16:00:00Z"),
            ("2026-11-28", "2026-11-27T23:00:00Z"),
            // Summer time ends here on the day before.
            ("2026-10-26", "2026-10-25T23:00:00Z"),
            ("2026-10-25", "2026-10-24T22:00:00Z"),
            ("2h", "2026-11-28T09:00:00Z"),
        ] {
            assert_eq!(moment(text, &now).unwrap().to_string(), expected, "of {text}");
        }
        for text in ["yesterday", "2026-13-01", "", "7"] {
            assert!(moment(text, &now).unwrap_err().contains("is no moment"), "of {text}");
        }
    }
}
