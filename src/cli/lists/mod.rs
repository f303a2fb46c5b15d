//! Every list that is printed, one file a noun.
//!
//! A noun says its columns, its rows and what else there is to say of each ([`Listed`]). [`show`] prints
//! a list in the form that was asked for; [`page`] draws one as a part of something larger, such as
//! `drover status`. The style is that of `table/`.

mod agents;
mod alarms;
mod audit;
mod breakers;
mod clouds;
mod images;
mod jobs;
mod leases;
mod machines;
mod members;
mod nodes;
mod pools;
mod snapshots;
mod sources;
mod status;
mod templates;
mod usage;

#[cfg(test)]
mod tests;

pub(super) use agents::gone;
pub(super) use audit::trouble;
pub(super) use images::{build_line, described, missing};
pub(super) use machines::{differs, machine_state};
pub(super) use members::last_leader;
pub(super) use nodes::storages;
pub(super) use snapshots::Snapshot;
pub(super) use status::status;
pub(super) use usage::used;

use std::time::Duration;

use drover_api::UnreadOut;
use serde::Serialize;

use super::error::CliError;
use super::list_options::{ListOptions, ViewOptions};
use super::options::{
    AuditOptions, BlackBoxOptions, Command, ImageAction, LeasesOptions, MachineAction, Noun,
    SnapshotAction, UsageOptions,
};
use super::screen::Output;
use super::sentences;
use super::table::{Cell, Column, Order, Page, Table, Unknown, View};
use super::term::Term;

/// Something that is listed.
pub(super) trait Listed {
    const COLUMNS: &'static [Column];

    /// The columns for these; the ranks may depend on what there is.
    fn columns(_all: &[Self]) -> Vec<Column>
    where
        Self: Sized,
    {
        Self::COLUMNS.to_vec()
    }

    /// The states that one may have; none where the column has other texts too.
    fn states() -> Vec<String>
    where
        Self: Sized,
    {
        Vec::new()
    }

    /// What is printed where there is none.
    const EMPTY: &'static str = "none";

    /// What `--output name` prints, and other commands take.
    fn name(&self) -> String;

    /// A cell for each column.
    fn row(&self, view: &View) -> Vec<Cell>;

    /// What else there is to say of it, below the table.
    fn aside(&self, _page: &mut Page) {}
}

/// The options of a command that lists something.
pub(super) fn options(command: &Command) -> Option<&ListOptions> {
    match command {
        Command::Templates { list, action: None }
        | Command::Clouds { list, action: None }
        | Command::Sources(list)
        | Command::Alarms(list)
        | Command::Images(list)
        | Command::Machines(list)
        | Command::Nodes(list)
        | Command::Jobs(list)
        | Command::AddressPools(list)
        | Command::Members { list, action: None }
        | Command::Audit { options: AuditOptions { list, .. }, action: None }
        | Command::Usage(UsageOptions { list, csv: false, .. })
        | Command::Agents { list, action: None, .. }
        | Command::Breakers { list, action: None }
        | Command::Leases(LeasesOptions { list, end: false, .. })
        | Command::Image(ImageAction::List(list))
        | Command::Machine(
            MachineAction::List(list) | MachineAction::Snapshot(SnapshotAction::List { list, .. }),
        ) => Some(list),
        Command::Run(_)
        | Command::Demo(_)
        | Command::Sim(_)
        | Command::Check(_)
        | Command::Simulate(_)
        | Command::Doctor(_)
        | Command::Setup { .. }
        | Command::Schema
        | Command::Status(_)
        | Command::Agents { .. }
        | Command::Template { .. }
        | Command::Breakers { .. }
        | Command::Cluster { .. }
        | Command::Node { .. }
        | Command::Why { .. }
        | Command::Image(_)
        | Command::Members { .. }
        | Command::TransferLeadership { .. }
        | Command::Provision { .. }
        | Command::Lease { .. }
        | Command::Get { .. }
        | Command::Show { .. }
        | Command::Config(_)
        | Command::Journal(_)
        | Command::ShardConfig(_)
        | Command::CreateShardConfig(_)
        | Command::Cordon(_)
        | Command::Drain(_)
        | Command::Uncordon(_)
        | Command::Ssh(_)
        | Command::Cp(_)
        | Command::Logs(_)
        | Command::Completions { .. }
        | Command::Man { .. }
        | Command::Init(_)
        | Command::Leases(_)
        | Command::Release { .. }
        | Command::Retire { .. }
        | Command::Hold(_)
        | Command::HoldNext(_)
        | Command::ReleaseHold { .. }
        | Command::Machine(_)
        | Command::Reap { .. }
        | Command::Resync { .. }
        | Command::Reload
        | Command::Plan(_)
        | Command::Sync(_)
        | Command::Notify(_)
        | Command::Templates { .. }
        | Command::Clouds { .. }
        | Command::Audit { .. }
        | Command::Blackbox(_)
        | Command::Usage(_)
        | Command::Trace(_)
        | Command::Events(_)
        | Command::Top(_) => None,
    }
}

/// How a command shows what it shows; none for one that does something.
fn view(command: &Command) -> Option<&ViewOptions> {
    if let Command::Status(view)
    | Command::Why { view, .. }
    | Command::Blackbox(BlackBoxOptions { view, .. })
    | Command::Machine(MachineAction::Show { view, .. }) = command
    {
        return Some(view);
    }
    options(command).map(|list| &list.view)
}

/// How often a command shows what it shows; none where once is enough.
pub(super) fn pause(command: &Command) -> Option<Duration> {
    view(command)?.pause()
}

/// Whether a command prints the id of one thing where names are asked for.
fn is_one(command: &Command) -> bool {
    if let Command::Lease { options, action: None } = command {
        return options.command.is_empty();
    }
    matches!(command, Command::Show { noun: Noun::Agent | Noun::Lease, .. })
}

/// Refuses a form of output that means nothing for a command.
pub(super) fn check(output: Output, command: &Command) -> Result<(), CliError> {
    let (form, rest) = match output {
        Output::Name
            if matches!(command, Command::Lease { action: None, .. }) && !is_one(command) =>
        {
            return Err(CliError::Usage(
                "`--output name` prints the id of a lease that is kept, and with a command none is: leave \
                 out the command, or `--output name`"
                    .into(),
            ));
        }
        Output::Name if options(command).is_none() && !is_one(command) => {
            ("name", "lists something with names")
        }
        Output::Wide if view(command).is_none() => ("wide", "has columns"),
        Output::Yaml
            if matches!(command, Command::Run(_) | Command::Demo(_) | Command::Events(_)) =>
        {
            ("yaml", "prints one answer")
        }
        Output::Table | Output::Wide | Output::Json | Output::Yaml | Output::Name => return Ok(()),
    };
    Err(CliError::Usage(format!(
        "`--output {form}` is for a command that {rest}, such as `drover agents`; this one prints \
         text, and JSON with `--output json`"
    )))
}

/// Draws a list, all of it and as it comes.
pub(super) fn page<T: Listed>(items: &[T], page: &mut Page) {
    let all: Vec<usize> = (0..items.len()).collect();
    page.table(&table(items, &page.view()), &all, T::EMPTY);
    page.below(|page| items.iter().for_each(|one| one.aside(page)));
}

/// Prints a list: those that were asked for, in the order and the form that were asked for.
///
/// `whole` makes the answer of the service again from those that are shown, for JSON; `rest` says below
/// the table what else the answer holds.
pub(super) fn show<T: Listed, W: Serialize>(
    term: &mut Term<'_>,
    json: bool,
    options: &ListOptions,
    items: Vec<T>,
    whole: impl FnOnce(Vec<T>) -> W,
    rest: impl FnOnce(&W, &mut Page),
) -> Result<(), CliError> {
    let view = term.screen.view(&options.view);
    let table = table(&items, &view);
    let order = order(options);
    known_states(&order, &T::states())?;
    let order = table.order(&order).map_err(unknown)?;
    let mut slots: Vec<Option<T>> = items.into_iter().map(Some).collect();
    let shown: Vec<T> = order.iter().filter_map(|at| slots[*at].take()).collect();
    if term.screen.output == Output::Name {
        let mut page = Page::new(&View { width: None, ..view });
        shown.iter().for_each(|one| page.line(&one.name()));
        return term.page(page);
    }
    if json {
        return term.structured(&whole(shown));
    }
    let mut page = Page::new(&view);
    page.table(&table, &order, T::EMPTY);
    page.below(|page| {
        shown.iter().for_each(|one| one.aside(page));
        rest(&whole(shown), page);
    });
    term.page(page)
}

fn table<T: Listed>(items: &[T], view: &View) -> Table {
    Table::new(&T::columns(items), items.iter().map(|one| one.row(view)).collect())
}

/// The order that options ask for.
fn order(options: &ListOptions) -> Order {
    let sort = options.sort.as_deref();
    Order {
        filters: options.filters.clone(),
        sort: sort.map(|key| key.trim_start_matches('-').to_owned()),
        is_reversed: sort.is_some_and(|key| key.starts_with('-')),
    }
}

/// Refuses a filter by a state that nothing listed is ever in.
fn known_states(order: &Order, known: &[String]) -> Result<(), CliError> {
    let is_state = |key: &str| matches!(&*key.to_lowercase(), "state" | "states");
    let is_known = |value: &str| known.iter().any(|state| state.eq_ignore_ascii_case(value));
    let mut wrong = order.filters.iter().filter(|(key, value)| is_state(key) && !is_known(value));
    let Some((_, value)) = wrong.next().filter(|_| !known.is_empty()) else { return Ok(()) };
    let near = sentences::did_you_mean(value, known.iter().map(String::as_str));
    Err(CliError::Usage(format!(
        "no state is called `{}`;{near} there are {}",
        sentences::clean(value),
        known.join(", ")
    )))
}

fn unknown(unknown: Unknown) -> CliError {
    let known = unknown.known.iter().map(String::as_str);
    let near = sentences::did_you_mean(&unknown.key, known);
    CliError::Usage(format!(
        "this list has no column `{}`;{near} it has {}",
        unknown.key,
        unknown.known.join(", ")
    ))
}

/// Clusters that could not be read, each with why.
pub(super) fn unread(clusters: &[UnreadOut], page: &mut Page) {
    page.sentences(&sentences::unread(clusters));
}
