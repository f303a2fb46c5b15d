//! `drover plan`: what a configuration would do.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use drover_api::{
    CloudPlanOut, NumberOut, PlanIn, PlanOut, PlanPart, RollOut, TemplatePlanOut, UnservedOut,
    WhatChangesOut,
};
use drover_config::yaml_in;

use super::client::{Client, LONG_LIMIT};
use super::error::{CallError, CliError};
use super::options::PlanOptions;
use super::sentences::{clean, count};
use super::sync::changed;
use super::term::{Term, print};

/// The exit code where the configuration changes something.
const CHANGES: u8 = 3;
/// Of those who wait for the same thing and would get nothing, so many are named.
const WAITING_SHOWN: usize = 5;
/// Rounds in which files that the configuration names are sent along.
const ROUNDS: usize = 3;
/// The largest file that is sent, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Plans, and says whether anything would change.
pub(super) async fn plan(
    client: &Client,
    options: &PlanOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let part = if options.local { PlanPart::Local } else { PlanPart::Git };
    let mut files = match &options.file {
        Some(path) => read(path)?,
        None => BTreeMap::new(),
    };
    let step = term.live.step("drover plans the way to the configuration");
    let mut rounds = 0;
    let out = loop {
        let asked = PlanIn { part, files: files.clone() };
        let out: PlanOut = client.post("/v1/plan", &asked, LONG_LIMIT).await.map_err(faulty)?;
        rounds += 1;
        let Some(path) = options.file.as_ref().filter(|_| !out.lacks.is_empty()) else { break out };
        if rounds == ROUNDS {
            return Err(CliError::Failed(format!(
                "the configuration names files that are not beside it: {}",
                out.lacks.join(", ")
            )));
        }
        let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
        for name in &out.lacks {
            files.insert(name.clone(), text(&folder.join(name))?);
        }
    };
    drop(step);
    print(term, json, &out, shown)?;
    Ok(if out.changes { CHANGES } else { 0 })
}

/// A configuration with faults ends with 1 here: scripts see by that that no option was wrong.
fn faulty(error: CallError) -> CliError {
    if let CallError::Refused(problem) = &error
        && problem.is_of_configuration()
    {
        return CliError::Failed(problem.detail.clone());
    }
    error.into()
}

/// The texts of a file, or of the YAML files of a directory, by their names.
fn read(path: &Path) -> Result<BTreeMap<String, String>, CliError> {
    let named = |path: &Path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok::<_, CliError>((name.unwrap_or_default(), text(path)?))
    };
    if !path.is_dir() {
        return Ok([named(path)?].into());
    }
    let paths = yaml_in(path).map_err(|error| unreadable(path, &error))?;
    paths.iter().map(|path| named(path)).collect()
}

fn text(path: &Path) -> Result<String, CliError> {
    let known = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if !known.is_file() || known.len() > MAX_FILE_BYTES {
        let what = format!("`{}` is no plain file of at most 4 MiB", path.display());
        return Err(CliError::Usage(what));
    }
    fs::read_to_string(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &std::io::Error) -> CliError {
    CliError::Usage(format!("`{}` cannot be read: {error}", path.display()))
}

/// A plan as people read it.
pub(super) fn shown(out: &PlanOut) -> String {
    let mut text = String::new();
    if let Some(commit) = &out.commit {
        let _ = writeln!(text, "commit {}", clean(commit));
    }
    if !out.warnings.is_empty() {
        let _ = writeln!(text, "{}", out.warnings.trim_end());
    }
    for one in &out.clouds {
        text += &cloud(one);
    }
    for one in &out.templates {
        text += &template(one);
    }
    text += &unserved(out);
    if !out.values.is_empty() {
        text += "values\n";
    }
    for one in &out.values {
        let _ = writeln!(text, "  {}", changed(one));
    }
    text += if out.changes { "nothing was changed: this is a plan\n" } else { "nothing to do\n" };
    text
}

fn cloud(one: &CloudPlanOut) -> String {
    let name = clean(&one.cloud);
    let mut text = match one.what {
        WhatChangesOut::Added => format!("+ cloud {name}: added\n"),
        WhatChangesOut::Drained => {
            format!("- cloud {name}: drained{}\n", going(one.going_now, one.going_after_leases))
        }
        WhatChangesOut::Changed => format!("~ cloud {name}: changed\n"),
    };
    if one.reconnects {
        text += "    drover connects to it again: endpoints, credentials or trust change\n";
    }
    text += &line("the most agents", one.cap, one.what);
    text
}

/// What nothing would serve any more; of many who wait for the same, the first few.
fn unserved(out: &PlanOut) -> String {
    let mut by_wants: BTreeMap<&str, Vec<&UnservedOut>> = BTreeMap::new();
    for one in &out.unserved {
        by_wants.entry(&one.wants).or_default().push(one);
    }
    let mut text = String::new();
    for (wants, all) in by_wants {
        let wants = clean(wants);
        for one in all.iter().take(WAITING_SHOWN) {
            let times = match one.count {
                1 => String::new(),
                count => format!(" ({count} times)"),
            };
            let whose = clean(&one.whose);
            let _ = writeln!(text, "! nothing would serve {wants}, which {whose} waits for{times}");
        }
        if let Some(more) = all.len().checked_sub(WAITING_SHOWN).filter(|more| *more > 0) {
            let _ =
                writeln!(text, "! nor would anything serve {more} others that wait for {wants}");
        }
    }
    text
}

fn template(one: &TemplatePlanOut) -> String {
    let name = clean(&one.template);
    let mut text = match (one.what, &one.roll) {
        (WhatChangesOut::Added, _) => format!("+ template {name}: added\n"),
        (WhatChangesOut::Drained, _) => {
            format!("- template {name}: drained{}\n", going(one.going_now, one.going_after_leases))
        }
        (WhatChangesOut::Changed, None) => {
            format!("~ template {name}: changed, agents stay as they are\n")
        }
        (WhatChangesOut::Changed, Some(_)) => format!("~ template {name}: rolls out\n"),
    };
    if let Some(roll) = &one.roll {
        let kept = [&one.minimum, &one.idle_minimum].iter().any(|kept| kept.after > Some(0));
        text += &rolls(roll, kept);
    }
    text += &line("the most agents", one.cap, one.what);
    text += &line("agents kept", one.minimum, one.what);
    text += &line("idle agents kept", one.idle_minimum, one.what);
    if one.starting > 0 {
        let _ = writeln!(text, "    {} for the warm pool", starts(one.starting));
    }
    text
}

fn starts(number: u32) -> String {
    let verb = if number == 1 { "starts" } else { "start" };
    format!("{} {verb}", count(number as usize, "agent"))
}

fn going(now: u32, after_leases: u32) -> String {
    let go = |number: u32| if number == 1 { "agent goes" } else { "agents go" };
    let now = (now > 0).then(|| format!("{now} {} at once", go(now)));
    let later = (after_leases > 0)
        .then(|| format!("{after_leases} {} after the last lease", go(after_leases)));
    let all: Vec<String> = now.into_iter().chain(later).collect();
    if all.is_empty() { ", it has no agents".to_owned() } else { format!(", {}", all.join(", ")) }
}

/// How a template rolls, and whether it keeps agents without demand.
fn rolls(roll: &RollOut, kept: bool) -> String {
    if roll.at_once == 0 {
        return "    agents of the old version stay until they go by themselves\n".to_owned();
    }
    let mut text = String::new();
    if roll.canary {
        text += "    one agent proves the new version first";
        text += if kept { "\n" } else { ", when a job or lease next needs one\n" };
    }
    if roll.idle > 0 {
        let _ = writeln!(
            text,
            "    {} replaced, at most {} at once",
            count(roll.idle as usize, "idle agent"),
            roll.at_once
        );
    }
    if roll.busy > 0 {
        let _ = writeln!(
            text,
            "    {} in use, untouched until idle",
            count(roll.busy as usize, "agent")
        );
    }
    text
}

/// A number that changes; nothing where it does not.
fn line(of: &str, number: NumberOut, what: WhatChangesOut) -> String {
    let shown = |value: Option<u32>| value.map_or_else(|| "no limit".to_owned(), |n| n.to_string());
    match what {
        WhatChangesOut::Changed if number.before != number.after => {
            format!("    {of}: {} -> {}\n", shown(number.before), shown(number.after))
        }
        WhatChangesOut::Added => match number.after {
            Some(after) if after > 0 => format!("    {of}: {after}\n"),
            Some(_) | None => String::new(),
        },
        WhatChangesOut::Changed | WhatChangesOut::Drained => String::new(),
    }
}
