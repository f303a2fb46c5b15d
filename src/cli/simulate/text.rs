//! What `drover simulate` prints for people. Pure.

use std::fmt::Write as _;

use drover_forecast::figures::{Figures, Report};
use drover_forecast::suggest::{Pool, Pools, SizeAdvice};

use super::super::sentences::clean;
use super::SimulateOut;

const HEADS: [&str; 11] = [
    "DEMANDS",
    "SERVED",
    "WAITING",
    "P50 WAIT",
    "P95 WAIT",
    "LONGEST",
    "POOL HITS",
    "CAP HITS",
    "AGENTS",
    "FAILED",
    "VM-HOURS",
];
/// What stands above the numbers of the trace itself.
const AS_IT_WAS: &str = "as it was";

pub(super) fn text(out: &SimulateOut) -> String {
    let mut text = String::new();
    let trace = &out.trace;
    let _ = writeln!(
        text,
        "Trace {}: {} demands and {} agents from {} to {}; seed {}",
        clean(&trace.file),
        trace.demands,
        trace.agents,
        trace.from,
        trace.to,
        out.seed
    );
    text.push('\n');
    table(out, &mut text);
    if let Some(pools) = &out.pools {
        write_pools(out, pools, &mut text);
    }
    if !out.sizes.is_empty() {
        text.push_str("\nMachines by their measured peaks\n");
        out.sizes.iter().for_each(|advice| write_size(advice, &mut text));
    }
    write_notes(out, &mut text);
    text
}

/// One table of all configurations, all templates of each below its sum.
fn table(out: &SimulateOut, text: &mut String) {
    let mut rows: Vec<(String, Option<&Figures>)> = Vec::new();
    let played = out.configurations.iter().map(|one| (one.file.as_str(), &one.report));
    for (name, report) in [(AS_IT_WAS, &out.as_it_was)].into_iter().chain(played) {
        rows.push((clean(name), None));
        rows.push(("  all".to_owned(), Some(&report.all)));
        let templates = report.templates.iter();
        rows.extend(templates.map(|(name, one)| (format!("  {}", clean(name)), Some(one))));
    }
    let first = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let cells: Vec<(String, Vec<String>)> = rows
        .into_iter()
        .map(|(name, figures)| (name, figures.map(row).unwrap_or_default()))
        .collect();
    let widths = HEADS.iter().enumerate().map(|(at, head)| {
        let widest = cells.iter().filter_map(|(_, row)| row.get(at)).map(String::len).max();
        widest.unwrap_or(0).max(head.len())
    });
    let widths: Vec<usize> = widths.collect();
    let heads = HEADS.map(str::to_owned).to_vec();
    for (name, row) in [(String::new(), heads)].iter().chain(&cells) {
        let mut line = format!("{name:<first$}");
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "  {cell:>width$}");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

fn row(figures: &Figures) -> Vec<String> {
    let wait = &figures.wait;
    let mut cells: Vec<String> =
        [figures.demands, figures.served, figures.waiting].map(|count| count.to_string()).to_vec();
    cells.extend([wait.p50_ms, wait.p95_ms, wait.longest_ms].map(seconds));
    cells.push(figures.pool_hits.to_string());
    cells.push(figures.cap_hits.map_or_else(|| "-".to_owned(), |hits| hits.to_string()));
    cells.extend([figures.agents, figures.failed].map(|count| count.to_string()));
    cells.push(format!("{:.1}", figures.machine_hours()));
    cells
}

/// A time in seconds, with a tenth.
fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}

fn write_pools(out: &SimulateOut, pools: &Pools, text: &mut String) {
    let _ = writeln!(text, "\nWarm pools for a p95 wait of {}", seconds(pools.aim_ms));
    for Pool { template, now, suggested, p95_ms, tried } in &pools.pools {
        let (template, p95) = (clean(template), seconds(*p95_ms));
        let _ = match suggested {
            Some(idle) if idle == now => {
                writeln!(text, "  {template}: idleMin {idle} as it is: p95 wait {p95}")
            }
            Some(idle) => {
                writeln!(text, "  {template}: idleMin {idle} instead of {now}: p95 wait {p95}")
            }
            None => writeln!(
                text,
                "  {template}: no idleMin up to {tried} is enough: p95 wait {p95}; look at its caps"
            ),
        };
    }
    let hours = |report: &Report| format!("{:.1} VM-hours", report.all.machine_hours());
    let before = out.configurations.first().map(|one| hours(&one.report)).unwrap_or_default();
    let _ = writeln!(
        text,
        "  all of it together: p95 wait {}, {} instead of {before}",
        seconds(pools.together.all.wait.p95_ms),
        hours(&pools.together)
    );
}

/// Memory and cores of a template: what it has, what was used, what is enough.
fn write_size(advice: &SizeAdvice, text: &mut String) {
    let mut parts = Vec::new();
    if let (Some(peak), Some(enough)) = (advice.peak_memory_mib, advice.suggested_memory_mib) {
        let has =
            advice.memory_mib.map_or_else(|| "unknown".to_owned(), |mib| format!("{mib} MiB"));
        parts.push(format!("memory {has}, used at most {peak} MiB, {enough} MiB are enough"));
    }
    if let (Some(milli), Some(enough)) = (advice.peak_cpu_milli, advice.suggested_cores) {
        let has = advice.cores.map_or_else(|| "unknown".to_owned(), |cores| cores.to_string());
        let (whole, tenth) = (milli / 1000, milli % 1000 / 100);
        let advised = match advice.cores.map(u64::from) {
            Some(cores) if enough >= cores => "more may be faster".to_owned(),
            Some(_) | None => format!("{enough} are enough"),
        };
        parts.push(format!("cores {has}, 95 of 100 used at most {whole}.{tenth}, {advised}"));
    }
    let (template, agents) = (clean(&advice.template), advice.agents);
    let _ = writeln!(text, "  {template}: {} (agents measured: {agents})", parts.join("; "));
}

fn write_notes(out: &SimulateOut, text: &mut String) {
    let mut notes: Vec<String> = Vec::new();
    if let Some(cut) = &out.trace.cut {
        notes.push(format!("the trace lacks records: {cut}"));
    }
    notes.extend(out.trace.left_out.iter().map(|one| format!("not in the trace: {one}")));
    for one in &out.configurations {
        let all = &one.report.all;
        let counts = [
            (one.breaker_trips, "circuit breakers of templates opened, times"),
            (all.refused, "demands that no template serves, or that a limit refuses"),
            (all.called_off, "demands that ended before they were served, as in the trace"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let counts = counts.map(|(count, what)| format!("{what}: {count}"));
        for note in counts.chain(one.notes.iter().cloned()) {
            notes.push(match out.configurations.len() {
                1 => note,
                _ => format!("{}: {note}", one.file),
            });
        }
    }
    if !notes.is_empty() {
        text.push_str("\nNotes\n");
        notes.iter().for_each(|note| _ = writeln!(text, "  {}", clean(note)));
    }
}

#[cfg(test)]
mod tests;
