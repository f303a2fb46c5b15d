//! The five lines at the end of the story: what happened in this run, and what to try next. Pure.

use super::jobs::Job;
use super::refusal;
use super::state::{DemoState, JobRow};
use super::story::Story;
use crate::waterfall::seconds;

/// The five lines, each at most 80 columns wide for figures of a usual batch; `stays` says whether
/// the demo goes on.
pub fn five_lines(state: &DemoState, story: &Story, stays: bool) -> [String; 5] {
    let next = if stays { "the commands below" } else { "drover demo without --once" };
    [
        format!("jobs     {}", jobs(state)),
        format!("edit     {}", edit(story)),
        format!("kill -9  {}", kill(story)),
        format!("lost VM  {}", lost(state)),
        format!("next     try {next}; on your own cluster: drover init"),
    ]
}

fn jobs(state: &DemoState) -> String {
    let count = |is: fn(&Job) -> bool| state.jobs.iter().filter(|row| is(&row.job)).count();
    let good = state.jobs.iter().filter(|row| row.as_expected).count();
    format!(
        "{good} of {} as expected; on purpose, {} failed and {} lost its VM",
        state.jobs.len(),
        count(Job::fails_on_purpose),
        count(Job::loses_its_vm),
    )
}

fn edit(story: &Story) -> String {
    let stayed = "the old configuration stayed in force";
    match story.refusal.as_deref().map(refusal::line) {
        Some(Some(line)) => format!("refused with its line, {line}; {stayed}"),
        Some(None) => format!("refused; {stayed}"),
        None => "no wrong value was written".to_owned(),
    }
}

fn kill(story: &Story) -> String {
    match &story.adoption {
        Some(adoption) => format!(
            "back after {}; {} of {} agents adopted, same VMIDs; {} jobs ran on",
            seconds(adoption.outage_ms),
            adoption.vmids.len(),
            adoption.before,
            adoption.jobs
        ),
        None => "the service was not killed".to_owned(),
    }
}

fn lost(state: &DemoState) -> String {
    let mut rows = state.jobs.iter().filter(|row| row.job.loses_its_vm());
    let Some(row) = rows.next() else { return "the batch has no job that loses its VM".to_owned() };
    let exit = row.exit.map_or("no exit status".to_owned(), |exit| format!("exit {exit}"));
    let vmid = row.vmid.map_or_else(|| "its VM".to_owned(), |vmid| format!("VM {vmid}"));
    format!(
        "{vmid} died under {}; its lease ended after {} ({exit})",
        row.job.name,
        after(state, row)
    )
}

/// The time from the death of a job's VM to the end of its command.
fn after(state: &DemoState, row: &JobRow) -> String {
    let agents = state.agents.rows().iter().rev();
    let killed = agents.filter(|agent| agent.vmid == row.vmid).find_map(|agent| agent.killed_at_ms);
    let time = killed.zip(row.ended_at_ms).map(|(from, to)| to.saturating_sub(from));
    time.map_or_else(|| "a time that was not seen".to_owned(), seconds)
}
