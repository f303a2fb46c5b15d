//! The arguments of every list: which rows, in which order, and how they are shown.

use std::time::Duration;

use clap::Args;

const HEADING: &str = "List options";

/// How something is shown to people.
#[derive(Debug, Clone, Default, Args)]
pub struct ViewOptions {
    /// Show all columns, and ids in full (as `--output wide`)
    #[arg(long, help_heading = HEADING)]
    pub wide: bool,
    /// Cut no text and no id, however wide the terminal is
    #[arg(long, help_heading = HEADING)]
    pub no_trunc: bool,
    /// Print times as RFC 3339 in UTC, in place of `2m ago`
    #[arg(long, help_heading = HEADING)]
    pub utc: bool,
    /// Show it again every so many seconds, until Ctrl-C
    #[arg(
        long,
        help_heading = HEADING,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = clap::value_parser!(u32).range(1..=86_400)
    )]
    pub watch: Option<u32>,
}

impl ViewOptions {
    /// The pause before it is shown again; none where once is enough.
    pub(in crate::cli) fn pause(&self) -> Option<Duration> {
        self.watch.map(|seconds| Duration::from_secs(seconds.into()))
    }
}

/// Options of every list.
#[derive(Debug, Clone, Default, Args)]
pub struct ListOptions {
    #[command(flatten)]
    pub view: ViewOptions,
    /// Only rows whose column holds this, such as state=Ready; several must all hold
    #[arg(long = "filter", help_heading = HEADING, value_name = "COLUMN=VALUE", value_parser = read_filter)]
    pub filters: Vec<(String, String)>,
    /// Sort by this column; `-COLUMN` the other way round
    #[arg(long, help_heading = HEADING, value_name = "COLUMN", allow_hyphen_values = true)]
    pub sort: Option<String>,
}

fn read_filter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        Some(_) | None => Err("write it as COLUMN=VALUE, such as state=Ready".to_owned()),
    }
}
