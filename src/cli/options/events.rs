//! Options of `drover events`.

use std::time::Duration;

use clap::Args;
use drover_server::view::EventId;

use super::read_span;

/// Options of `events`.
#[derive(Debug, Clone, Default, Args)]
pub struct EventsOptions {
    /// Go on after this event; 0: from the oldest that is kept
    #[arg(long, value_name = "ID", value_parser = read_event_id)]
    pub after: Option<String>,
    /// Begin with the events of this time, as far as they are kept, and follow; `--no-follow` ends there
    #[arg(long, value_name = "TIME", value_parser = read_span, conflicts_with = "after")]
    pub since: Option<Duration>,
    /// Print the events that are kept, or those of `--since`, and end
    #[arg(long)]
    pub no_follow: bool,
}

/// Checks the id of an event.
fn read_event_id(text: &str) -> Result<String, String> {
    let wrong = |_| "write the id of an event, such as 3-17, or 0 for all that are kept".to_owned();
    text.parse::<EventId>().map(|_| text.to_owned()).map_err(wrong)
}
