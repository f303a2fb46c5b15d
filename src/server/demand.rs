//! Jobs of sources, and why what somebody wants waits, in numbers.

use std::collections::{BTreeMap, BTreeSet};

use actix_web::web;
use drover_actors::message::{HerdCommand, Refusal};
use drover_actors::scheduler::{CAUSE_GONE, describe};
use drover_api::{
    AccountOut, JobOut, JobsOut, KindOut, OtherOut, Problem, ServingOut, SilentOut, WhyOut,
    WhySubjectOut, nearest,
};
use drover_model::demand::report::{Account, Estimate, Kind, Serving, SourceJobs, Subject};
use drover_model::id::{AgentId, LeaseId, SourceId};
use drover_model::outside::outside;
use drover_model::phase::{JobPhase, LeasePhase};
use drover_model::ports::JobObservation;
use drover_model::status::SourceStatus;
use drover_model::time::WallTime;
use serde::Deserialize;

use super::nodes;
use super::problem::Rejection;
use super::problem::printable;
use super::query::{Keys, Query};
use super::shapes::{Shown, rfc3339};
use super::state::State;
use super::{subjects, unread};
use crate::view::View;

/// How the leases are called as a source.
const LEASES: &str = "leases";
/// Templates whose nodes are looked at for one answer.
const LOOKED_AT: usize = 10;

/// What is asked about.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct About {
    of: String,
}

impl Keys for About {
    const TAKEN: &'static str = "`of` is taken";
}

fn waiting_job(source: &SourceId, job: &JobObservation, state: JobPhase) -> JobOut {
    JobOut {
        source: source.to_string(),
        id: job.id.clone(),
        name: Some(job.name.clone()),
        state,
        wants: Some(describe(&job.want)),
        since: Some(rfc3339(job.since)),
        agent: None,
        lacks: None,
    }
}

impl Shown<AccountOut> for Account {
    fn shown(&self) -> AccountOut {
        let one = self;
        let source = one.source.as_ref().map_or_else(|| LEASES.to_owned(), ToString::to_string);
        AccountOut {
            source,
            weight: one.share.weight,
            weights: one.weights,
            priority: one.share.priority,
            cap: one.share.cap,
            has: one.has,
            all: one.all,
            kinds: one.kinds.iter().map(Shown::shown).collect(),
        }
    }
}

impl Shown<KindOut> for Kind {
    fn shown(&self) -> KindOut {
        let one = self;
        let (estimate_seconds, estimate) = match &one.estimate {
            Estimate::In(span, text) => (Some(span.as_secs_f64().ceil() as u64), text.clone()),
            Estimate::Never(until) => (None, format!("once {until}")),
            Estimate::Unknown(text) => (None, format!("not known: {text}")),
        };
        let others = one.others.iter();
        let others =
            others.map(|(id, why)| OtherOut { template: id.to_string(), why: why.clone() });
        KindOut {
            wants: describe(&one.want),
            count: one.count,
            since: one.since.map(rfc3339),
            open: one.open,
            ahead: one.ahead,
            serve: one.serve.iter().map(Shown::shown).collect(),
            others: others.collect(),
            why: one.why.clone(),
            estimate_seconds,
            estimate,
        }
    }
}

impl Shown<ServingOut> for Serving {
    fn shown(&self) -> ServingOut {
        let one = self;
        ServingOut {
            template: one.template.to_string(),
            live: one.live,
            cap: one.cap,
            coming: one.coming,
            free: one.free,
            busy: one.busy,
            room: one.room,
            obstacle: one.obstacle.clone(),
            ready_seconds: one.until_ready.map(|span| span.as_secs()),
            use_seconds: one.of_uses.map(|span| span.as_secs()),
        }
    }
}

/// Jobs of all sources.
#[utoipa::path(get, path = "/v1/jobs", responses((status = 200, body = JobsOut)))]
pub(super) async fn list(state: web::Data<State>) -> Result<web::Json<JobsOut>, Rejection> {
    let all = state.ask(state.limits.reply, |reply| HerdCommand::Jobs { reply }).await?;
    let silent = all.iter().filter_map(|one| {
        let outage = one.outage.as_ref()?;
        let (source, since) = (one.source.to_string(), rfc3339(outage.since));
        Some(SilentOut { source, since, detail: outage.text.clone() })
    });
    let silent = silent.collect();
    Ok(web::Json(JobsOut { jobs: all.iter().flat_map(jobs_of).collect(), silent }))
}

fn jobs_of(one: &SourceJobs) -> Vec<JobOut> {
    let mut waiting: Vec<&JobObservation> = one.waiting.iter().collect();
    waiting.sort_by_key(|job| job.since);
    let lacks = |job: &JobObservation| lacks(one, job).map(str::to_owned);
    let (waiting, unserved): (Vec<_>, Vec<_>) =
        waiting.into_iter().partition(|job| lacks(job).is_none());
    let waiting = waiting.into_iter().map(|job| waiting_job(&one.source, job, JobPhase::Waiting));
    let unserved = unserved.into_iter().map(|job| JobOut {
        lacks: lacks(job),
        ..waiting_job(&one.source, job, JobPhase::Unserved)
    });
    let ignored = one.ignored.iter().map(|job| waiting_job(&one.source, job, JobPhase::Ignored));
    waiting.chain(running_of(one)).chain(unserved).chain(unread::jobs(one)).chain(ignored).collect()
}

/// What templates are short of for a job; none where one serves it.
fn lacks<'a>(one: &'a SourceJobs, job: &JobObservation) -> Option<&'a str> {
    let found = one.unoffered.iter().find(|unoffered| unoffered.want == job.want);
    found.map(|unoffered| unoffered.lacks.as_str())
}

/// Jobs of a source that run.
fn running_of(one: &SourceJobs) -> impl Iterator<Item = JobOut> {
    one.running.iter().map(|job| JobOut {
        source: one.source.to_string(),
        id: job.id.clone(),
        name: job.waited.as_ref().map(|job| job.name.clone()),
        state: JobPhase::Running,
        wants: job.waited.as_ref().map(|job| describe(&job.want)),
        since: job.waited.as_ref().map(|job| rfc3339(job.since)),
        agent: Some(job.agent.to_string()),
        lacks: None,
    })
}

/// Why a job, a source, a lease or a template waits, and how an agent or a node stands.
#[utoipa::path(
    get, path = "/v1/why",
    params(("of" = String, Query, description = "a template, a source (or `leases`), a lease, an agent, a node, a job's id or name, or `source/job`")),
    responses(
        (status = 200, body = WhySubjectOut),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "several jobs or templates are called that"),
    )
)]
pub(super) async fn why(
    state: web::Data<State>,
    Query(About { of }): Query<About>,
) -> Result<web::Json<WhySubjectOut>, Rejection> {
    why_of(&state, &of).await.map(web::Json)
}

/// The same of a name.
pub(super) async fn why_of(state: &State, of: &str) -> Result<WhySubjectOut, Rejection> {
    let view = &state.doors.view;
    if view.templates().iter().any(|one| one.template.answers_to(of)) {
        return Ok(of_template(nodes::why_of(state, of).await?));
    }
    let source = SourceId::new(of);
    let silent = view.sources().into_iter().find(|one| one.source == source);
    if let Some(one) = silent.as_ref().filter(|one| !one.configured) {
        return left(state, one).await;
    }
    if of == LEASES || silent.is_some() {
        let stands = silent.and_then(|one| match &one.outage {
            Some((since, text)) => Some(blind(*since, text)),
            None => unserved(view, &one.source, one.unserved),
        });
        let subject = Subject::Source(Some(source).filter(|_| of != LEASES));
        return reported(state, format!("source {of}"), stands, subject).await;
    }
    let lease = LeaseId::new(of);
    if let Some(one) = view.lease(&lease) {
        let subject = format!("lease {of}");
        if one.state == LeasePhase::Waiting {
            // Its account has the cause.
            let stands = Some(one.state.to_string());
            return reported(state, subject, stands, Subject::Lease(lease)).await;
        }
        let stands = match one.detail.as_str() {
            "" => one.state.to_string(),
            detail => format!("{}: {detail}", one.state),
        };
        return Ok(WhySubjectOut::of(subject, Some(stands)));
    }
    if let Some(one) = subjects::agent(state, of).await? {
        return Ok(one);
    }
    match of_job(state, of).await {
        // The herd knows templates by their display names, too, and clusters are read for what is
        // nothing else.
        Err(problem) if problem.document.status == 404 => match nodes::why_of(state, of).await {
            Ok(one) => Ok(of_template(one)),
            Err(_) => subjects::node(state, of).await?.ok_or(problem),
        },
        found => found,
    }
}

/// What waits, of leases and of each source, and why: without a look at any cluster.
pub(super) async fn waits(state: &State) -> Vec<AccountOut> {
    let view = &state.doors.view;
    let leases = (view.count_leases(LeasePhase::Waiting) > 0).then_some(Subject::Source(None));
    let sources = view.sources().into_iter().filter(|one| one.configured && one.waiting > 0);
    let sources = sources.map(|one| Subject::Source(Some(one.source)));
    let mut all = Vec::new();
    for subject in leases.into_iter().chain(sources) {
        let command = |reply| HerdCommand::Account { subject, reply };
        let mut account: AccountOut = match state.ask(state.limits.glance(), command).await {
            Ok(Ok(account)) => account.shown(),
            // It left the configuration meanwhile.
            Ok(Err(_)) => continue,
            // A page shows what else it has while the herd does not answer.
            Err(_) => break,
        };
        for kind in &mut account.kinds {
            // It stands beside the cause.
            kind.estimate = kind.estimate.replace(CAUSE_GONE, "the cause is gone");
        }
        all.push(account);
    }
    all
}

fn of_template(one: WhyOut) -> WhySubjectOut {
    let subject = format!("template {}", one.template);
    WhySubjectOut { templates: vec![one], ..WhySubjectOut::of(subject, None) }
}

/// Since when a source cannot be polled, and why.
fn blind(since: WallTime, text: &str) -> String {
    format!("cannot be polled since {}, and no new job of it is seen since: {text}", rfc3339(since))
}

/// A source that left the configuration, with what it still has.
async fn left(state: &State, one: &SourceStatus) -> Result<WhySubjectOut, Rejection> {
    let all = state.ask(state.limits.reply, |reply| HerdCommand::Jobs { reply }).await?;
    let its = all.iter().find(|jobs| jobs.source == one.source);
    let stands = format!(
        "is not configured any more, and nothing is started for it; jobs that still run: {}, runners \
         that are left there: {}",
        one.running, one.runners
    );
    let stands = match &one.outage {
        Some((since, text)) => format!("{stands}; it {}", blind(*since, text)),
        None => stands,
    };
    let shown = WhySubjectOut::of(format!("source {}", one.source), Some(stands));
    Ok(WhySubjectOut { jobs: its.into_iter().flat_map(running_of).collect(), ..shown })
}

/// Why a job waits, or how else it stands.
async fn of_job(state: &State, of: &str) -> Result<WhySubjectOut, Rejection> {
    let all = state.ask(state.limits.reply, |reply| HerdCommand::Jobs { reply }).await?;
    let is_it = |source: &SourceId, id: &str, name: Option<&str>| {
        let whole = of.split_once('/').is_some_and(|(of, job)| of == source.as_str() && job == id);
        id == of || name == Some(of) || whole
    };
    let mut found: BTreeMap<(String, String), (WhySubjectOut, Option<Subject>)> = BTreeMap::new();
    for one in &all {
        let source = &one.source;
        let mut enter = |id: &str, stands: String, subject: Option<Subject>| {
            let shown = WhySubjectOut::of(format!("job {source}/{id}"), Some(stands));
            found.insert((source.to_string(), id.to_owned()), (shown, subject));
        };
        for job in one.waiting.iter().filter(|job| is_it(source, &job.id, Some(&job.name))) {
            let mut stands = format!("{} waits since {}", outside(&job.name), rfc3339(job.since));
            if let Some(text) = lacks(one, job) {
                stands += &format!("; it is unserved: {text}");
            }
            if let Some(outage) = &one.outage {
                stands += &format!("; its source {}", blind(outage.since, &outage.text));
            }
            if let Some(text) = unserved(&state.doors.view, source, one.unserved) {
                stands += &format!("; {text}");
            }
            let same =
                one.waiting.iter().filter(|one| (&one.want, one.since) == (&job.want, job.since));
            let nth = same.take_while(|one| one.id != job.id).count();
            let subject = Subject::Job(source.clone(), job.want.clone(), job.since, nth);
            enter(&job.id, stands, Some(subject));
        }
        for job in one.ignored.iter().filter(|job| is_it(source, &job.id, Some(&job.name))) {
            let wants = describe(&job.want);
            let stands = format!(
                "{} is left alone: it wants {wants}, and `labels` of {source} do not have all of that",
                outside(&job.name)
            );
            enter(&job.id, stands, None);
        }
        for job in one.unread.iter().filter(|job| is_it(source, &job.id, Some(&job.name))) {
            enter(&job.id, unread::stands(one, job), None);
        }
        for job in &one.running {
            let name = job.waited.as_ref().map(|job| job.name.as_str());
            if is_it(source, &job.id, name) {
                enter(&job.id, format!("runs on agent {}", job.agent), None);
            }
        }
    }
    if found.len() > 1 {
        let which: Vec<String> = found.keys().map(|(one, job)| format!("{one}/{job}")).collect();
        let text = format!(
            "several jobs are called `{}`: name one of {}",
            printable(of),
            which.join(", ")
        );
        return Err(Rejection::refused(Refusal::Conflict(text)));
    }
    match found.pop_first() {
        Some((_, (shown, Some(subject)))) => {
            reported(state, shown.subject, shown.state, subject).await
        }
        Some((_, (shown, None))) => Ok(shown),
        None => Err(unknown(state, of)),
    }
}

/// That runners of a source cannot be started, with what it said against them, or the last agent that
/// failed for it.
fn unserved(view: &View, source: &SourceId, count: u32) -> Option<String> {
    let all = view.sources();
    let refused = all.iter().find(|one| one.source == *source).and_then(|one| one.refused.as_ref());
    if let Some((since, text)) = refused {
        return Some(format!("may not register runners since {}: {text}", rfc3339(*since)));
    }
    if count == 0 {
        return None;
    }
    let named = format!("source `{source}`");
    let owner = format!("source:{source}");
    let leases = view.leases().into_iter().filter(|lease| lease.principal == owner);
    let its: BTreeSet<AgentId> = leases.filter_map(|lease| lease.agent).collect();
    let gone = view.gone_agents();
    // Others went as they should.
    let failed =
        gone.iter().rev().filter(|agent| matches!(agent.reason.label(), "failed" | "too-slow"));
    let mut reasons = failed.map(|agent| (&agent.agent, agent.reason.to_string()));
    let why = reasons.find(|(agent, reason)| its.contains(*agent) || reason.contains(&named));
    let why = why.map(|(_, reason)| reason);
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let runners = if count == 1 { "runner" } else { "runners" };
    Some(format!(
        "{count} {runners} in a row could not be started, and none is wanted for a while, ever longer{why}"
    ))
}

fn unknown(state: &State, of: &str) -> Rejection {
    let view = &state.doors.view;
    let templates = view.templates().into_iter().map(|one| one.template);
    let templates = templates.flat_map(|id| [id.name.to_string(), id.to_string()]);
    let sources = view.sources().into_iter().map(|one| one.source.to_string());
    let known: Vec<String> = templates.chain(sources).collect();
    let near = match nearest(of, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            "name a template, a source, a lease, an agent, a node, or a job (`drover jobs` lists \
             jobs)"
                .to_owned()
        }
    };
    Rejection::not_found(format!("nothing is called `{}`; {near}", printable(of)))
}

/// The numbers, and what keeps the templates that serve it from their nodes.
async fn reported(
    state: &State,
    shown: String,
    stands: Option<String>,
    subject: Subject,
) -> Result<WhySubjectOut, Rejection> {
    let first = subject.clone();
    let command = |reply| HerdCommand::Account { subject: first, reply };
    let account = state.ask(state.limits.reply, command).await?.map_err(Rejection::refused)?;
    let mut serve: Vec<String> = Vec::new();
    for one in account.kinds.iter().flat_map(|kind| &kind.serve) {
        let id = one.template.to_string();
        if !serve.contains(&id) && serve.len() < LOOKED_AT {
            serve.push(id);
        }
    }
    let mut templates = Vec::new();
    for id in serve {
        // One that left the configuration meanwhile is not missed.
        if let Ok(one) = nodes::why_of(state, &id).await {
            templates.push(one);
        }
    }
    // To read the nodes may have shown that a cluster is out of reach.
    let command = |reply| HerdCommand::Account { subject, reply };
    let account = state.ask(state.limits.reply, command).await?.map_err(Rejection::refused)?;
    let mut account: AccountOut = account.shown();
    for kind in &mut account.kinds {
        overrule(&state.doors.view, kind, &templates);
        name_keys(kind, &templates);
    }
    let account = Some(account);
    Ok(WhySubjectOut { account, templates, ..WhySubjectOut::of(shown, stands) })
}

/// Names the keys of the configuration in place of a cause that lasts until somebody changes them.
fn name_keys(kind: &mut KindOut, templates: &[WhyOut]) {
    let serves = |template: &str| kind.serve.iter().any(|one| one.template == template);
    let mut its = templates.iter().filter(|one| serves(&one.template));
    let keys = its.clone().flat_map(|one| &one.keys).map(|key| format!("`{key}`"));
    let keys: BTreeSet<String> = keys.collect();
    if !keys.is_empty() && its.all(|one| !one.keys.is_empty()) {
        let keys = keys.into_iter().collect::<Vec<_>>().join(" or ");
        let changed = format!("{keys} is changed (the cause is below)");
        kind.estimate = kind.estimate.replace(CAUSE_GONE, &changed);
    }
}

/// Promises nothing where no node takes an agent: the herd hears of that when it tries to start one.
fn overrule(view: &View, kind: &mut KindOut, templates: &[WhyOut]) {
    let serves = |template: &str| kind.serve.iter().any(|one| one.template == template);
    let has_free = kind.serve.iter().any(|one| one.free > 0);
    let comes = view
        .agents()
        .iter()
        .any(|agent| agent.phase.is_starting() && serves(&agent.template.to_string()));
    let mut read = templates.iter().filter(|one| serves(&one.template)).peekable();
    // A busy agent that comes free needs no node.
    let places: u32 = kind.serve.iter().map(|one| one.coming + one.room).sum();
    let needs_node = kind.ahead.is_some_and(|ahead| ahead < places as usize);
    if !needs_node
        || has_free
        || comes
        || read.peek().is_none()
        || read.any(|one| one.next.is_some())
    {
        return;
    }
    if kind.estimate_seconds.take().is_some() {
        kind.estimate = "not known: no node takes an agent at this moment".to_owned();
    }
}

#[cfg(test)]
mod tests;
