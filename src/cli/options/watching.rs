//! Options of `drover events`, of `drover leases` and of `drover top`.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use drover_model::phase::LeasePhase;

use super::ListOptions;
use super::read::{read_event_id, read_span};

/// Options of `leases`.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "The page of the book: `drover help leases.md`")]
pub struct LeasesOptions {
    /// Those in this state alone: waiting, granted, ready or ended [default: all that have not ended]
    #[arg(long, value_parser = lease_phases())]
    pub state: Option<LeasePhase>,
    /// Those of this principal alone, such as token:ci or uid:1000; `ci` is token:ci
    #[arg(long)]
    pub principal: Option<String>,
    /// Those of the caller alone: of the token, or of the user on the socket
    #[arg(long, conflicts_with = "principal")]
    pub mine: bool,
    /// End them all, instead of listing them; needs --state, --principal or --mine
    #[arg(long)]
    pub end: bool,
    #[command(flatten)]
    pub list: ListOptions,
}

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

/// Options of `top`.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "The page of the book: `drover help top.md`")]
pub struct TopOptions {
    /// What is shown first, such as agents, leases or alarms
    #[arg(value_enum, default_value_t)]
    pub noun: TopNoun,
    /// Refuse every action: a key that would change something says so
    #[arg(long)]
    pub readonly: bool,
}

/// What `top` shows, each with the word that stands behind `:` there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum TopNoun {
    #[default]
    #[value(alias = "status")]
    Herd,
    Agents,
    Gone,
    Leases,
    Jobs,
    Nodes,
    Templates,
    Clouds,
    Sources,
    Images,
    Machines,
    Breakers,
    AddressPools,
    Members,
    Alarms,
    Events,
}

/// The states that leases can be listed by.
fn lease_phases() -> impl TypedValueParser<Value = LeasePhase> {
    PossibleValuesParser::new(LeasePhase::ALL.map(LeasePhase::name)).try_map(|word| word.parse())
}
