//! One handler a page: it takes what the API answers, and shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, web};
use drover_api::{AccountOut, GoneOut, Role, is_let_go};
use drover_model::id::{AgentId, LeaseId, NodeName};
use drover_model::phase::{AgentPhase, LeasePhase, NodeOrder};
use drover_model::placement::report::{self, NodeKeptOut, NodesKnown};
use drover_model::status::AgentStatus;
use drover_page::{
    AgentFilter, AgentPage, AgentWords, AgentsPage, AuditPage, Clusters, ConfigurationPage,
    DocsPage, DocsTopic, EventsPage, Frame, GonePage, HeldAgent, HerdAsides, HerdPage, JobPage,
    JobsPage, KeptOutNode, LeaseCounts, LeasePage, LeasesPage, NodeDown, NodeOffline, NodesPage,
    PlanPage, Tab, TemplatePage, TerminalEntry, TerminalPage, UsagePage, ValuesShown,
};
use serde::Deserialize;

use super::attention::Attention;
use super::happened;
use crate::answers::{Answer, Asked, html};
use crate::auth::Caller;
use crate::history::{self, UsageOf};
use crate::house::now;
use crate::problem::{Rejection, printable};
use crate::query::Keys;
use crate::shapes::{self, Shown, rfc3339};
use crate::state::State;
use crate::{
    audit as of_audit, black_box, control, demand, drift, nodes as of_nodes, status,
    terminal_calls, values,
};

type ByCaller = web::ReqData<Caller>;
type Data = web::Data<State>;

/// Agents and leases that need a look, as many of each as are shown.
const LOOKS: usize = 8;

/// Records of the audit log that are looked through.
const RECORDS: usize = 200;

/// What a list is filtered by.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Filtered {
    #[serde(default)]
    q: String,
}

impl Keys for Filtered {
    const TAKEN: &'static str = "`q`, a filter, is taken";
}

/// What is asked about.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct About {
    of: String,
}

impl Keys for About {
    const TAKEN: &'static str = "`of` is taken";
}

/// What is known of nodes, as it was within a second.
async fn known(state: &State) -> NodesKnown {
    let ask = async { Ok(of_nodes::known(state).await) };
    state.looks.known.look("", ask).await.unwrap_or_default()
}

async fn frame(state: &State, request: &HttpRequest, caller: &Caller, tab: Tab) -> Frame {
    let seen = Attention::of(&state.doors.view, &known(state).await, now());
    framed(state, request, caller, tab, &seen).await
}

async fn framed(
    state: &State,
    request: &HttpRequest,
    caller: &Caller,
    tab: Tab,
    seen: &Attention,
) -> Frame {
    let csrf = state.sessions.csrf(request.headers());
    let mut clusters = Clusters::new();
    for cloud in state.doors.view.clouds() {
        if let Some(cluster) = cloud.cluster {
            clusters.entry(cluster.to_string()).or_default().push(cloud.cloud.to_string());
        }
    }
    Frame {
        tab,
        principal: caller.principal.clone(),
        role: caller.role,
        has_session: csrf.is_some(),
        csrf: csrf.unwrap_or_default(),
        looks: seen.count(),
        clusters,
        version: env!("CARGO_PKG_VERSION"),
        hints: state.hints.of(caller.role, &state.doors.values, &state.doors.book).await,
    }
}

fn gone(state: &State) -> Vec<GoneOut> {
    state.doors.view.gone_agents().iter().map(Shown::shown).collect()
}

/// What waits and why, as it was within a second.
async fn waits(state: &Data) -> Vec<AccountOut> {
    let ask = async { Ok(demand::waits(state).await) };
    state.looks.waits.look("", ask).await.unwrap_or_default()
}

pub(super) async fn herd(state: Data, caller: ByCaller, request: HttpRequest) -> Answer {
    let view = &state.doors.view;
    let nodes = known(&state).await;
    let (at, by) = (now(), caller.by());
    let seen = Attention::of(view, &nodes, at);
    let frame = framed(&state, &request, &caller, Tab::Herd, &seen).await;
    let granted = view.count_leases(LeasePhase::Granted) + view.count_leases(LeasePhase::Ready);
    let leases = LeaseCounts { waiting: view.count_leases(LeasePhase::Waiting), granted };
    let waits = waits(&state).await;
    let agent = |one: &Arc<AgentStatus>| shapes::agent(view, one, &by);
    let down = seen.down.iter().take(LOOKS).map(|(one, agents)| NodeDown {
        at: offline(one),
        agents: agents.iter().take(LOOKS).map(agent).collect(),
        count: agents.len(),
    });
    let over = |all: usize| all.saturating_sub(LOOKS);
    let more_looks = over(seen.stuck.len()) + over(seen.lost.len()) + over(seen.down.len());
    let held = view.agents_where(|one| one.phase == AgentPhase::Held);
    let held = held.iter().take(LOOKS).map(|one| HeldAgent {
        agent: agent(one),
        // Who holds an agent is shown to those who may end that.
        by: one
            .hold_owner
            .as_ref()
            .filter(|owner| by.may_change_hold(Some(owner)))
            .map(|owner| owner.principal.clone()),
    });
    let mut let_go = BTreeMap::new();
    for one in view.agents_where(|one| is_let_go(one.phase, !one.leases.is_empty())) {
        *let_go.entry(one.template.to_string()).or_default() += 1;
    }
    let untried = nodes
        .untried
        .iter()
        .map(|(template, nodes)| (template.to_string(), nodes.iter().map(Shown::shown).collect()));
    let asides = HerdAsides {
        leases,
        waits,
        kept_out: nodes.kept_out.iter().map(kept_out).collect(),
        offline: nodes.offline.iter().map(offline).collect(),
        stuck: seen.stuck.iter().take(LOOKS).map(agent).collect(),
        lost_leases: seen
            .lost
            .iter()
            .take(LOOKS)
            .map(|one| shapes::lease(view, one, &by))
            .collect(),
        down: down.collect(),
        more_looks,
        held: held.collect(),
        let_go,
        untried: untried.collect(),
        alarms: seen.alarms,
    };
    Ok(html(&HerdPage::new(frame, status::glance(view), asides, gone(&state))))
}

fn offline(one: &report::NodeOffline) -> NodeOffline {
    NodeOffline {
        cluster: one.cluster.to_string(),
        node: one.node.to_string(),
        since: rfc3339(one.since),
    }
}

fn kept_out(one: &NodeKeptOut) -> KeptOutNode {
    KeptOutNode {
        cluster: one.cluster.to_string(),
        node: one.node.to_string(),
        is_drained: one.order == NodeOrder::Drain,
        by: one.by.as_ref().map(Shown::shown),
    }
}

pub(super) async fn agents(
    state: Data,
    caller: ByCaller,
    request: HttpRequest,
    Asked(Filtered { q }): Asked<Filtered>,
) -> Answer {
    let frame = frame(&state, &request, &caller, Tab::Agents).await;
    let (view, by) = (&state.doors.view, caller.by());
    let filter = AgentFilter::new(&q);
    let mut agents = view.agents();
    let all = agents.len();
    agents.retain(|one| {
        filter.has(AgentWords {
            id: one.agent.as_str(),
            state: one.phase.name(),
            template: &one.template.to_string(),
            node: one.node.as_ref().map(NodeName::as_str).unwrap_or_default(),
            vmid: &one.vmid.map(|vmid| vmid.0.to_string()).unwrap_or_default(),
            detail: &one.detail,
        })
    });
    let found = agents.len();
    let shown = agents.iter().take(AgentFilter::MOST);
    let shown = shown.map(|one| shapes::agent(view, one, &by)).collect();
    Ok(html(&AgentsPage::new(frame, &filter, shown, (found, all), gone(&state))))
}

pub(super) async fn agent(
    state: Data,
    caller: ByCaller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Answer {
    let (view, by) = (&state.doors.view, caller.by());
    let id = AgentId::new(&*id);
    let frame = frame(&state, &request, &caller, Tab::Agents).await;
    let events = happened::rows(view, &by, Some(&id));
    if let Some(agent) = view.agent(&id) {
        let in_state = now().0.saturating_sub(agent.since.0);
        let in_state_ms = u64::try_from(in_state).unwrap_or_default();
        let out = shapes::agent(view, &agent, &by);
        let entry = terminal_calls::entry(&state, &caller, &agent);
        let has_terminal = !matches!(entry, TerminalEntry::Refused(_));
        return Ok(html(&AgentPage::new(frame, out, has_terminal, events, in_state_ms)));
    }
    let gone = view.gone_agents().into_iter().rev().find(|gone| gone.agent == id);
    let gone = gone.ok_or_else(|| {
        Rejection::not_found(format!("no agent `{}` is known", printable(id.as_str())))
    })?;
    let kept = match caller.role >= Role::Operator {
        // The agent itself is shown where this cannot be read.
        true => black_box::kept(&state, id.as_str()).await.unwrap_or_default(),
        false => None,
    };
    Ok(html(&GonePage::new(frame, gone.shown(), events, kept)))
}

pub(super) async fn terminal(
    state: Data,
    caller: ByCaller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Answer {
    let (view, by) = (&state.doors.view, caller.by());
    let agent = view.agent(&AgentId::new(&*id)).ok_or_else(|| {
        Rejection::not_found(format!("no agent `{}` lives, so it has no terminal", printable(&id)))
    })?;
    let entry = terminal_calls::entry(&state, &caller, &agent);
    let frame = frame(&state, &request, &caller, Tab::Agents).await;
    Ok(html(&TerminalPage::new(frame, shapes::agent(view, &agent, &by), entry)))
}

pub(super) async fn leases(
    state: Data,
    caller: ByCaller,
    request: HttpRequest,
    Asked(Filtered { q }): Asked<Filtered>,
) -> Answer {
    let (view, by) = (&state.doors.view, caller.by());
    let leases = view.leases().iter().map(|lease| shapes::lease(view, lease, &by)).collect();
    let frame = frame(&state, &request, &caller, Tab::Leases).await;
    Ok(html(&LeasesPage::new(frame, leases, &q)))
}

pub(super) async fn lease(
    state: Data,
    caller: ByCaller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Answer {
    let (view, by) = (&state.doors.view, caller.by());
    let lease = view
        .lease(&LeaseId::new(&*id))
        .ok_or_else(|| Rejection::not_found(format!("no lease `{}` is known", printable(&id))))?;
    let may_ask = caller.role >= Role::Operator && lease.state == LeasePhase::Waiting;
    let why = match may_ask {
        // The lease itself is shown where this cannot be answered.
        true => asked(&state, id.to_string()).await.ok(),
        false => None,
    };
    let frame = frame(&state, &request, &caller, Tab::Leases).await;
    Ok(html(&LeasePage::new(frame, shapes::lease(view, &lease, &by), why)))
}

pub(super) async fn jobs(
    state: Data,
    caller: ByCaller,
    request: HttpRequest,
    Asked(Filtered { q }): Asked<Filtered>,
) -> Answer {
    let frame = frame(&state, &request, &caller, Tab::Jobs).await;
    let out = demand::list(state.clone()).await?.into_inner();
    Ok(html(&JobsPage::new(frame, out, &q, &waits(&state).await)))
}

/// Why something waits, as it was answered within some seconds.
async fn asked(state: &Data, of: String) -> Result<drover_api::WhySubjectOut, Rejection> {
    state.looks.why.look(&of, demand::why_of(state, &of)).await
}

pub(super) async fn why(
    state: Data,
    caller: ByCaller,
    request: HttpRequest,
    Asked(About { of }): Asked<About>,
) -> Answer {
    let frame = frame(&state, &request, &caller, Tab::Jobs).await;
    Ok(html(&JobPage::new(frame, asked(&state, of).await?)))
}

pub(super) async fn nodes(state: Data, caller: ByCaller, request: HttpRequest) -> Answer {
    let (view, by) = (&state.doors.view, caller.by());
    let frame = frame(&state, &request, &caller, Tab::Nodes).await;
    let ask = async { Ok(of_nodes::list(state.clone()).await?.into_inner()) };
    let out = state.looks.nodes.look("", ask).await?;
    let agents: Vec<_> = view.agents().iter().map(|one| shapes::agent(view, one, &by)).collect();
    Ok(html(&NodesPage::new(frame, out, &agents, &shapes::clouds(view))))
}

pub(super) async fn plan(state: Data, caller: ByCaller, request: HttpRequest) -> Answer {
    let frame = frame(&state, &request, &caller, Tab::Herd).await;
    let out = control::plan_resync(state).await?.into_inner();
    Ok(html(&PlanPage::new(frame, out)))
}

pub(super) async fn template(
    state: Data,
    caller: ByCaller,
    request: HttpRequest,
    id: web::Path<String>,
) -> Answer {
    let (view, by) = (&state.doors.view, caller.by());
    let template = shapes::templates(view).into_iter().find(|one| one.id == *id);
    let template = template.ok_or_else(|| {
        Rejection::not_found(format!("no template `{}` is configured", printable(&id)))
    })?;
    let agents = view.agents();
    let agents = agents.iter().filter(|one| one.template.to_string() == template.id);
    let agents = agents.map(|one| shapes::agent(view, one, &by)).collect();
    let why = match caller.role >= Role::Operator {
        // The template itself is shown where its clusters cannot be asked.
        true => state.looks.templates.look(&id, of_nodes::why_of(&state, &id)).await.ok(),
        false => None,
    };
    let frame = frame(&state, &request, &caller, Tab::Other).await;
    let clouds = shapes::clouds(view);
    let cloud = clouds.iter().find(|one| template.id.split('/').next() == Some(one.id.as_str()));
    Ok(html(&TemplatePage::new(frame, template, cloud, agents, why)))
}

pub(super) async fn configuration(
    state: Data,
    caller: ByCaller,
    request: HttpRequest,
    Asked(Filtered { q }): Asked<Filtered>,
) -> Answer {
    let view = &state.doors.view;
    let mut config: drover_api::ConfigOut = view.config().shown();
    config.path = Some(state.doors.configuration.clone());
    let members = (state.doors.members)();
    let frame = frame(&state, &request, &caller, Tab::Configuration).await;
    let shown = match caller.role >= Role::Operator {
        true => Some(ValuesShown::of(&values::in_force(&state).await?, &q)),
        false => None,
    };
    Ok(html(&ConfigurationPage::new(frame, config, drift::sync(view), members, shown)))
}

pub(super) async fn events(
    state: Data,
    caller: ByCaller,
    request: HttpRequest,
    Asked(Filtered { q }): Asked<Filtered>,
) -> Answer {
    let rows = happened::rows(&state.doors.view, &caller.by(), None);
    let frame = frame(&state, &request, &caller, Tab::Events).await;
    Ok(html(&EventsPage::new(frame, rows, &q)))
}

pub(super) async fn audit(
    state: Data,
    caller: ByCaller,
    request: HttpRequest,
    Asked(Filtered { q }): Asked<Filtered>,
) -> Answer {
    let out = of_audit::newest(&state, RECORDS).await?;
    let frame = frame(&state, &request, &caller, Tab::Audit).await;
    Ok(html(&AuditPage::new(frame, out, &q)))
}

pub(super) async fn usage(
    state: Data,
    caller: ByCaller,
    request: HttpRequest,
    Asked(of): Asked<UsageOf>,
) -> Answer {
    let is_csv = of.is_csv(None)?;
    let out = history::usage_of(&state, &of, &caller).await?;
    if is_csv {
        return Ok(history::csv(&out));
    }
    let frame = frame(&state, &request, &caller, Tab::Usage).await;
    Ok(html(&UsagePage::new(frame, out, request.query_string())))
}

pub(super) async fn book(state: Data, caller: ByCaller, request: HttpRequest) -> Answer {
    shown(&state, &caller, &request, None).await
}

pub(super) async fn docs(
    state: Data,
    caller: ByCaller,
    request: HttpRequest,
    topic: web::Path<String>,
) -> Answer {
    shown(&state, &caller, &request, Some(&topic)).await
}

/// A page of the book: the first where none is named.
async fn shown(
    state: &State,
    caller: &Caller,
    request: &HttpRequest,
    topic: Option<&str>,
) -> Answer {
    let book = &state.doors.book;
    let found = match topic {
        Some(topic) => {
            let index = format!("{topic}/index");
            book.iter().find(|(name, _)| *name == topic || *name == index)
        }
        None => book.first(),
    };
    let (name, text) = found.ok_or_else(|| {
        let topic = printable(topic.unwrap_or_default());
        Rejection::not_found(format!("the book has no page `{topic}`; see /docs"))
    })?;
    if name.ends_with(".svg") {
        return Ok(HttpResponse::Ok().content_type("image/svg+xml").body(text.clone()));
    }
    let pages = book.iter().filter(|(name, _)| !name.ends_with(".svg"));
    let topics = pages.map(|(topic, text)| DocsTopic::new(topic, text)).collect();
    let frame = frame(state, request, caller, Tab::Docs).await;
    Ok(html(&DocsPage::new(frame, topics, name, text)))
}
