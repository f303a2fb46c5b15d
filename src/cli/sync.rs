//! `drover sync`: what git manages of the configuration.

use std::fmt::Write as _;

use drover_api::{
    AppliedOut, Nothing, SyncDoneOut, SyncIn, SyncOut, SyncResult, SyncTestOut, ValueChangeOut,
    faults_in_one_line,
};

use super::client::{CALL_LIMIT, Client, LONG_LIMIT};
use super::error::CliError;
use super::options::SyncOptions;
use super::report::FAILED;
use super::sentences::{clean, count, short};
use super::term::{Term, print};

/// Commits to return to that are shown.
const SHOWN: usize = 10;

/// Syncs, returns to a commit, tests the connection, or shows the state.
pub(super) async fn sync(
    client: &Client,
    options: SyncOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    if options.status {
        let out: SyncOut = client.get("/v1/sync", CALL_LIMIT).await?;
        print(term, json, &out, state)?;
        return Ok(0);
    }
    if options.test {
        let step = term.live.step("drover tests the connection to git");
        let out: SyncTestOut = client.post("/v1/sync/test", &Nothing {}, LONG_LIMIT).await?;
        drop(step);
        print(term, json, &out, tested)?;
        let well = out.checks.iter().all(|check| check.ok == Some(true));
        return Ok(if well { 0 } else { FAILED });
    }
    let asked = SyncIn { to: options.to, back: options.back };
    let step = term.live.step("drover reads the configuration from git");
    let out: SyncDoneOut = client.post("/v1/sync", &asked, LONG_LIMIT).await?;
    drop(step);
    print(term, json, &out, done)?;
    Ok(0)
}

fn named(of: &AppliedOut) -> String {
    let (short, author) = (clean(short(&of.commit)), clean(&of.author));
    format!("{short} \"{}\" by {author}, {}", clean(&of.subject), clean(&of.committed_at))
}

/// What a sync did.
pub(super) fn done(out: &SyncDoneOut) -> String {
    let of = named(&out.in_force);
    let mut text = match out.result {
        SyncResult::Applied => format!("applied commit {of}\n"),
        SyncResult::Unchanged => format!("nothing new: commit {of} is in force\n"),
        SyncResult::Pinned => {
            format!("commit {of} stays in force: `drover sync` returns to the branch\n")
        }
        SyncResult::Refused | SyncResult::Failed => format!("commit {of} stays in force\n"),
    };
    if let Some(generation) = out.generation {
        let _ = writeln!(text, "generation {generation} in force");
    }
    if out.undone > 0 {
        let _ = writeln!(text, "{} undone", count(out.undone, "manual change"));
    }
    for id in &out.drained {
        let what = if id.contains('/') { "template" } else { "cloud" };
        let _ = writeln!(text, "{what} {} left the configuration and is drained", clean(id));
    }
    text
}

/// What a test of the connection found.
pub(super) fn tested(out: &SyncTestOut) -> String {
    let line = |check: &drover_api::SyncCheckOut| {
        let word = match check.ok {
            Some(true) => "ok",
            Some(false) => "FAIL",
            None => "-",
        };
        let text = match check.ok {
            Some(true) | None => clean(&check.text),
            Some(false) => {
                let lines: Vec<String> = check.text.trim_end().lines().map(clean).collect();
                lines.join("\n")
            }
        };
        format!("{word:<5} {:<14} {text}\n", check.part)
    };
    out.checks.iter().map(line).collect()
}

/// A change as one line.
pub(super) fn changed(change: &ValueChangeOut) -> String {
    let path = clean(&change.path);
    match (&change.before, &change.after) {
        (None, Some(_)) if change.entry => format!("{path}: added"),
        (Some(_), None) if change.entry => format!("{path}: removed"),
        (before, after) => {
            let shown = |value: &Option<String>| match value {
                Some(value) => clean(value),
                None => "unset".to_owned(),
            };
            format!("{path}: {} -> {}", shown(before), shown(after))
        }
    }
}

/// The state of the sync.
pub(super) fn state(out: &SyncOut) -> String {
    let mut text = format!(
        "repository  {}\nbranch      {}\npath        {}\n",
        clean(&out.repository),
        clean(&out.branch),
        clean(&out.path)
    );
    let schedule = match (&out.schedule, &out.next_at) {
        (Some(schedule), Some(next)) => format!("{schedule}, next {next}"),
        (Some(schedule), None) => schedule.clone(),
        (None, _) => "none: only `drover sync`".to_owned(),
    };
    let _ = writeln!(text, "schedule    {}", clean(&schedule));
    let in_force = match &out.in_force {
        Some(of) => format!("{}, applied {}", named(of), clean(&of.applied_at)),
        None => "no commit yet".to_owned(),
    };
    let _ = writeln!(text, "in force    {in_force}");
    if out.pinned {
        text += "stays       at this commit: `drover sync` returns to the branch\n";
    }
    if let Some(last) = &out.last_attempt {
        let what = match (&last.result, &last.commit) {
            (SyncResult::Applied, _) => "applied".to_owned(),
            (SyncResult::Unchanged, _) => "nothing new".to_owned(),
            (SyncResult::Pinned, Some(commit)) => {
                format!("the branch is at {}", clean(short(commit)))
            }
            (SyncResult::Pinned, None) => "stays".to_owned(),
            (SyncResult::Refused, _) => "REFUSED".to_owned(),
            (SyncResult::Failed, _) => "FAILED".to_owned(),
        };
        let fault =
            last.fault.as_ref().map(|fault| format!(": {}", clean(&faults_in_one_line(fault))));
        let _ =
            writeln!(text, "last        {what}, {}{}", clean(&last.at), fault.unwrap_or_default());
    }
    if out.running {
        text += "now         a sync is under way\n";
    }
    let clouds = if out.clouds.is_empty() { "none".to_owned() } else { out.clouds.join(", ") };
    let _ = writeln!(text, "clouds      {}", clean(&clouds));
    let allowed =
        if out.allow_manual_changes { "allowed, undone by the next sync" } else { "refused" };
    let _ = writeln!(text, "changes     {allowed}");
    for change in &out.manual_changes {
        let _ = writeln!(text, "  {}", changed(change));
    }
    if !out.history.is_empty() {
        text += "applied\n";
    }
    for of in out.history.iter().take(SHOWN) {
        let _ = writeln!(text, "  {}  {}", clean(&of.applied_at), named(of));
    }
    if let Some(more) = out.history.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        let _ = writeln!(text, "  and {more} more: `drover sync --status --json` has all");
    }
    text
}
