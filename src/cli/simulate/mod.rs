//! `drover simulate`: replays a trace on configurations, and says what would come of it. It asks no
//! service and no cluster.

mod text;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use causes::chain;
use drover_config::Checked;
use drover_config::calendar::Almanac;
use drover_forecast::NodeHardware;
use drover_forecast::figures::{Counted, Report};
use drover_forecast::play::{Options, play};
use drover_forecast::suggest::{Pools, SizeAdvice, pools, sizes};
use drover_history::{Limits, Trace};
use drover_model::id::CloudId;
use serde::Serialize;

use super::config::{config_path, load};
use super::global::Global;
use super::options::SimulateOptions;
use super::progress::Live;
use super::report::{self, FAILED, USAGE};
use super::stdout::{put, put_value};

/// Configurations beside the first.
const COMPARED_MAX: usize = 8;
/// The largest trace in bytes: it is held in memory as a whole.
const TRACE_BYTES_MAX: u64 = 1 << 30;

/// What `simulate --json` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SimulateOut {
    trace: TraceOut,
    seed: u64,
    /// The numbers of the trace itself.
    as_it_was: Report,
    configurations: Vec<ConfigurationOut>,
    /// With `--wait`: warm pools for the first configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pools: Option<Pools>,
    sizes: Vec<SizeAdvice>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TraceOut {
    file: String,
    from: String,
    to: String,
    demands: usize,
    agents: usize,
    /// Why records are missing, where some are.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut: Option<String>,
    /// What its writer left out.
    left_out: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConfigurationOut {
    file: String,
    report: Report,
    breaker_trips: u64,
    /// What was assumed, and what could not be replayed.
    notes: Vec<String>,
}

/// Why nothing is printed: its exit code, and a line for people.
type Ended = (u8, String);

/// Replays, and prints what came of it.
pub(super) fn simulate(global: &Global, options: &SimulateOptions) -> ExitCode {
    let json = global.json;
    let fail = |(code, text): Ended| report::fail(json, code, &text, &format!("drover: {text}\n"));
    if options.compare.len() > COMPARED_MAX {
        let text = format!("--compare takes at most {COMPARED_MAX} configurations");
        return fail((USAGE, text));
    }
    let trace = match read_trace(&options.trace) {
        Ok(trace) => trace,
        Err(ended) => return fail(ended),
    };
    let mut configurations = Vec::new();
    for path in [&config_path(global)].into_iter().chain(&options.compare) {
        match load(path, json) {
            Ok(checked) => configurations.push((path.display().to_string(), checked)),
            Err(code) => return code,
        }
    }
    let live = Live::of_process(global.output());
    match replay(&trace, &configurations, options, &live) {
        Ok(out) if json => put_value(global.output(), &out, ExitCode::SUCCESS),
        Ok(out) => put(false, &text::text(&out), ExitCode::SUCCESS),
        Err(ended) => fail(ended),
    }
}

fn read_trace(path: &Path) -> Result<Trace, Ended> {
    let shown = path.display();
    let from: Box<dyn io::Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        let opened = File::open(path);
        let opened = opened.map_err(|error| (USAGE, format!("cannot read `{shown}`: {error}")))?;
        Box::new(opened)
    };
    let mut from = from.take(TRACE_BYTES_MAX);
    let read = Trace::read(BufReader::new(&mut from), Limits::default());
    if read.is_err() && from.limit() == 0 {
        let gib = TRACE_BYTES_MAX >> 30;
        return Err((USAGE, format!("`{shown}` is larger than {gib} GiB; export a shorter range")));
    }
    read.map_err(|error| (USAGE, format!("`{shown}`, {}", chain(&error))))
}

fn replay(
    trace: &Trace,
    configurations: &[(String, Checked)],
    options: &SimulateOptions,
    live: &Live,
) -> Result<SimulateOut, Ended> {
    let fail = |error| (FAILED, chain(&error));
    let mut out = SimulateOut {
        trace: trace_out(trace, options),
        seed: options.seed,
        as_it_was: Counted::of(trace, &[]).report(None),
        configurations: Vec::new(),
        pools: None,
        sizes: sizes(trace),
    };
    let step = live.step("drover replays the trace");
    for (file, checked) in configurations {
        let mut shown = 0;
        let mut progress = |part: f64| {
            let hundredths = hundredths(part);
            if hundredths != shown {
                shown = hundredths;
                step.say(&format!("drover replays the trace on {file}: {hundredths} %"));
            }
        };
        let played = play(trace, &checked.herd, &with(checked, options), &mut progress);
        let played = played.map_err(fail)?;
        out.configurations.push(ConfigurationOut {
            file: file.clone(),
            report: played.report(&checked.herd),
            breaker_trips: played.breaker_trips,
            notes: played.notes,
        });
    }
    let first = configurations.first().zip(out.configurations.first());
    if let (Some(wait), Some(((_, checked), before))) = (options.wait, first) {
        let aim = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let mut progress = |template: &str, idle: u32| {
            let what = match template {
                "all" => "all warm pools together".to_owned(),
                template => format!("a warm pool of {idle} of {template}"),
            };
            step.say(&format!("drover tries {what}"));
        };
        let made = with(checked, options);
        let found = pools(trace, &checked.herd, &made, (&before.report, aim), &mut progress);
        out.pools = Some(found.map_err(fail)?);
    }
    Ok(out)
}

fn trace_out(trace: &Trace, options: &SimulateOptions) -> TraceOut {
    TraceOut {
        file: options.trace.display().to_string(),
        from: trace.header.from.rfc3339(),
        to: trace.header.to.rfc3339(),
        demands: trace.demands.len(),
        agents: trace.agents.len(),
        cut: trace.cut.clone(),
        left_out: trace.header.left_out.clone(),
    }
}

/// With what a configuration is replayed: clouds that reach a common endpoint lead to one cluster.
fn with(checked: &Checked, options: &SimulateOptions) -> Options {
    let mut clusters: BTreeMap<CloudId, String> = BTreeMap::new();
    let mut by_endpoint: BTreeMap<String, String> = BTreeMap::new();
    for (cloud, connection) in &checked.connections {
        let endpoints: Vec<String> = connection
            .endpoints
            .iter()
            .map(|endpoint| format!("{}:{}", endpoint.host(), endpoint.port()))
            .collect();
        let known = endpoints.iter().find_map(|endpoint| by_endpoint.get(endpoint)).cloned();
        let name = known.unwrap_or_else(|| cloud.to_string());
        by_endpoint.extend(endpoints.into_iter().map(|endpoint| (endpoint, name.clone())));
        clusters.insert(cloud.clone(), name);
    }
    let hardware = options.node_cores.zip(options.node_memory);
    let hardware =
        hardware.map(|(cpus, gib)| NodeHardware { cpus, memory_mib: u64::from(gib) * 1024 });
    Options { seed: options.seed, calendar: Arc::new(Almanac), clusters, hardware }
}

/// A part of 1 in hundredths.
fn hundredths(part: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is between 0 and 100"
    )]
    let hundredths = (part.clamp(0.0, 1.0) * 100.0) as u32;
    hundredths
}
