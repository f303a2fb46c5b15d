//! What an operator may change: warm pools by replays, sizes of machines by measured peaks.

use std::sync::Arc;

use drover_history::Trace;
use drover_model::id::TemplateId;
use drover_model::spec::HerdSpec;
use serde::Serialize;

use crate::figures::{Report, percentile};
use crate::play::{Options, PlayFault, play};

/// The largest warm pool that is tried where no cap is lower.
const POOL_MAX: u32 = 64;
/// Agents with fewer looks than this say nothing of their peaks.
const LOOKS_MIN: u32 = 3;
/// Memory that is suggested beyond the highest peak, in hundredths of it.
const MEMORY_SPARE: u64 = 25;
/// Memory is suggested in steps of so many MiB.
const MEMORY_STEP: u64 = 256;

/// The warm pool of a template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    pub template: String,
    /// `idleMin` as it is configured.
    pub now: u32,
    /// The smallest that reaches the aim; none where none does.
    pub suggested: Option<u32>,
    /// The p95 wait with what is suggested, or with the largest that was tried.
    pub p95_ms: u64,
    /// The largest that was tried, where no pool reaches the aim.
    pub tried: u32,
}

/// Warm pools for an aim, and what comes of all of them together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pools {
    pub aim_ms: u64,
    pub pools: Vec<Pool>,
    pub together: Report,
}

/// A configuration with another warm pool.
fn with_pool(spec: &HerdSpec, template: &TemplateId, idle: u32) -> HerdSpec {
    let mut spec = spec.clone();
    if let Some(template) = spec.templates.get_mut(template) {
        Arc::make_mut(template).idle_minimum = idle;
    }
    spec
}

/// The largest pool that is worth trying.
fn most(spec: &HerdSpec, template: &TemplateId) -> u32 {
    let own = spec.templates.get(template).and_then(|one| one.cap);
    let cloud = spec.clouds.get(&template.cloud).and_then(|one| one.cap);
    [own, cloud].into_iter().flatten().min().unwrap_or(POOL_MAX).min(POOL_MAX)
}

/// Searches the smallest warm pool of each template whose p95 wait is within an aim. `before` is the
/// report of the configuration as it is; `progress` hears before each replay what is tried.
///
/// # Errors
/// When a replay fails.
pub fn pools(
    trace: &Trace,
    spec: &HerdSpec,
    options: &Options,
    (before, aim_ms): (&Report, u64),
    progress: &mut dyn FnMut(&str, u32),
) -> Result<Pools, PlayFault> {
    let (mut pools, mut together) = (Vec::new(), spec.clone());
    for (name, figures) in before.templates.iter().filter(|(_, one)| one.demands > 0) {
        let found = spec.templates.keys().find(|id| id.to_string() == *name);
        let (Some(id), Some(template)) = (found, found.and_then(|id| spec.templates.get(id)))
        else {
            continue;
        };
        let now = template.idle_minimum;
        let mut wait = |idle: u32| -> Result<u64, PlayFault> {
            if idle == now {
                return Ok(figures.wait.p95_ms);
            }
            progress(name, idle);
            let changed = with_pool(spec, id, idle);
            let report = play(trace, &changed, options, &mut |_| {})?.report(&changed);
            Ok(report.templates.get(name).map_or(u64::MAX, |figures| figures.wait.p95_ms))
        };
        let pool = smallest(name, (now, most(spec, id)), aim_ms, &mut wait)?;
        if let Some(idle) = pool.suggested {
            together = with_pool(&together, id, idle);
        }
        pools.push(pool);
    }
    progress("all", 0);
    let together = play(trace, &together, options, &mut |_| {})?.report(&together);
    Ok(Pools { aim_ms, pools, together })
}

/// The smallest pool that reaches an aim, where larger ones wait no longer.
fn smallest(
    name: &str,
    (now, most): (u32, u32),
    aim_ms: u64,
    wait: &mut dyn FnMut(u32) -> Result<u64, PlayFault>,
) -> Result<Pool, PlayFault> {
    let pool = |suggested, p95_ms, tried| Pool {
        template: name.to_owned(),
        now,
        suggested,
        p95_ms,
        tried,
    };
    let none = wait(0)?;
    if none <= aim_ms {
        return Ok(pool(Some(0), none, 0));
    }
    // The first power of two that reaches it, then halves of what is between.
    let (mut short, mut tried) = (0, 1.min(most));
    let mut reached = wait(tried)?;
    while reached > aim_ms && tried < most {
        short = tried;
        tried = tried.saturating_mul(2).min(most);
        reached = wait(tried)?;
    }
    if reached > aim_ms {
        return Ok(pool(None, reached, tried));
    }
    let (mut enough, mut best) = (tried, reached);
    while enough - short > 1 {
        let middle = short + (enough - short) / 2;
        let waited = wait(middle)?;
        if waited <= aim_ms {
            (enough, best) = (middle, waited);
        } else {
            short = middle;
        }
    }
    Ok(pool(Some(enough), best, enough))
}

/// The size of a template's machines beside what was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SizeAdvice {
    pub template: String,
    /// Agents that were looked at often enough.
    pub agents: u64,
    /// What the last of them had.
    pub cores: Option<u32>,
    pub memory_mib: Option<u32>,
    /// The highest peak.
    pub peak_memory_mib: Option<u64>,
    /// The peak of busy cores that 95 of 100 agents do not exceed, in thousandths.
    pub peak_cpu_milli: Option<u64>,
    pub suggested_cores: Option<u64>,
    pub suggested_memory_mib: Option<u64>,
}

/// Sizes by the peaks that a trace measured.
pub fn sizes(trace: &Trace) -> Vec<SizeAdvice> {
    let names: std::collections::BTreeSet<&str> =
        trace.agents.iter().map(|agent| agent.template.as_str()).collect();
    let advice = names.into_iter().filter_map(|name| {
        let seen: Vec<_> = trace
            .agents
            .iter()
            .filter(|agent| agent.template == name && agent.peaks.looks >= LOOKS_MIN)
            .collect();
        let last = seen.last()?;
        let sorted = |peak: fn(&drover_history::Peaks) -> Option<u32>| {
            let mut all: Vec<u64> =
                seen.iter().filter_map(|agent| peak(&agent.peaks).map(u64::from)).collect();
            all.sort_unstable();
            all
        };
        let memory = sorted(|peaks| peaks.memory_mib).last().copied();
        let cpu = sorted(|peaks| peaks.cpu_milli);
        let cpu = (!cpu.is_empty()).then(|| percentile(&cpu, 95));
        let spare = |peak: u64| peak + (peak * MEMORY_SPARE).div_ceil(100);
        Some(SizeAdvice {
            template: name.to_owned(),
            agents: u64::try_from(seen.len()).unwrap_or(u64::MAX),
            cores: last.cores,
            memory_mib: last.memory_mib,
            peak_memory_mib: memory,
            peak_cpu_milli: cpu,
            suggested_cores: cpu.map(|milli| milli.div_ceil(1000).max(1)),
            suggested_memory_mib: memory
                .map(|peak| spare(peak).div_ceil(MEMORY_STEP).max(1) * MEMORY_STEP),
        })
    });
    advice.collect()
}
