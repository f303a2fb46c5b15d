//! The herd at a glance: what needs somebody, then each cloud with its templates, then who waits.

use std::collections::BTreeMap;

use drover_api::{CloudOut, Part, StatusOut, TemplateOut, part};
use drover_model::phase::{AgentPhase, BreakerPhase, CloudHealth, LeasePhase};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::options::TopNoun;
use super::super::table::{Cell, Column, Kind, Tone, View, column};
use super::listing::{Entry, Listing};
use drover_api::standing;

/// Alarms that stand here; `:alarms` has all of them.
const ALARMS_SHOWN: usize = 5;

const COLUMNS: &[Column] = &[
    column("NAME", Kind::Name, 0),
    column("STATE", Kind::State, 0),
    column("AGENTS", Kind::Number, 0),
    column("COMING", Kind::Number, 1),
    column("READY", Kind::Number, 0),
    column("BUSY", Kind::Number, 0),
    column("GOING", Kind::Number, 4),
    column("WARM", Kind::Number, 2),
    column("WAIT", Kind::Number, 0),
    column("DETAIL", Kind::Text, 0),
];

/// Agents of a template by what they are good for at the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// On their way to be ready.
    pub coming: u32,
    pub ready: u32,
    pub busy: u32,
    /// On their way out, or stuck.
    pub going: u32,
}

impl Counts {
    pub(super) fn of(states: &BTreeMap<AgentPhase, u32>) -> Self {
        let mut counts = Self::default();
        for (phase, count) in states {
            counts.add(*phase, *count);
        }
        counts
    }

    pub(super) fn add(&mut self, phase: AgentPhase, count: u32) {
        if phase == AgentPhase::Gone {
            return;
        }
        *match part(phase) {
            Part::Coming => &mut self.coming,
            Part::Ready => &mut self.ready,
            Part::Busy => &mut self.busy,
            Part::Leaving | Part::Stranded => &mut self.going,
        } += count;
    }

    fn cells(self) -> [Cell; 3] {
        [Cell::of(self.coming), Cell::of(self.ready), Cell::of(self.busy)]
    }
}

/// The rows of the herd.
pub(super) fn listing(status: &StatusOut, now: Timestamp) -> Listing {
    let view = View { utc: false, ..View::complete(now) };
    let mut rows = alarms(status);
    for cloud in &status.clouds {
        rows.push(of_cloud(cloud, status));
        let of_it = |template: &&TemplateOut| {
            template.id.strip_prefix(&cloud.id).is_some_and(|rest| rest.starts_with('/'))
        };
        rows.extend(status.templates.iter().filter(of_it).map(|one| of_template(one, &view)));
    }
    for source in &status.sources {
        let state = match source.silent_since {
            Some(_) => Cell::State("unreachable".to_owned(), Tone::Bad),
            None => Cell::State("polled".to_owned(), Tone::Good),
        };
        let detail = source.detail.clone().or_else(|| source.lacks.first().cloned());
        let cells = vec![
            Cell::of(format!("source {}", source.id)),
            state,
            Cell::None,
            Cell::None,
            Cell::None,
            Cell::of(source.running),
            Cell::None,
            Cell::None,
            Cell::of(source.waiting),
            Cell::maybe(detail),
        ];
        rows.push((entry(TopNoun::Sources, &source.id, json!(source)), cells));
    }
    rows.push(of_leases(status));
    Listing::new(COLUMNS, rows)
}

type Row = (Entry, Vec<Cell>);

fn entry(noun: TopNoun, name: &str, thing: Value) -> Entry {
    Entry { noun, name: name.to_owned(), thing }
}

fn alarms(status: &StatusOut) -> Vec<Row> {
    let shown = status.alarms.iter().take(ALARMS_SHOWN).map(|alarm| {
        let mut cells = vec![Cell::None; COLUMNS.len()];
        cells[0] = Cell::of(&alarm.about);
        cells[1] = Cell::State("ALARM".to_owned(), Tone::Bad);
        cells[COLUMNS.len() - 1] = Cell::of(&alarm.text);
        (entry(TopNoun::Alarms, &alarm.about, json!(alarm)), cells)
    });
    shown.collect()
}

fn of_cloud(cloud: &CloudOut, status: &StatusOut) -> Row {
    let tone = match cloud.health {
        CloudHealth::Connecting => Tone::Busy,
        CloudHealth::Well => Tone::Good,
        CloudHealth::Degraded => Tone::Bad,
    };
    let mut counts = Counts::default();
    for template in &status.templates {
        if template.id.split_once('/').is_some_and(|(of, _)| of == cloud.id) {
            let own = Counts::of(&template.states);
            counts.coming += own.coming;
            counts.ready += own.ready;
            counts.busy += own.busy;
            counts.going += own.going;
        }
    }
    let [coming, ready, busy] = counts.cells();
    let cells = vec![
        Cell::of(format!("cloud {}", cloud.id)),
        Cell::State(standing(cloud).to_owned(), tone),
        Cell::of(of_cap(cloud.agents, cloud.cap)),
        coming,
        ready,
        busy,
        Cell::of(counts.going),
        Cell::None,
        Cell::None,
        Cell::of(&cloud.detail),
    ];
    (entry(TopNoun::Clouds, &cloud.id, json!(cloud)), cells)
}

fn of_template(template: &TemplateOut, view: &View) -> Row {
    let state = match (template.breaker, &template.paused) {
        (BreakerPhase::Closed, Some(_)) => Cell::State("paused".to_owned(), Tone::Busy),
        (BreakerPhase::Closed, None) => Cell::State(template.breaker.to_string(), Tone::Good),
        (BreakerPhase::HalfOpen, _) => Cell::State(template.breaker.to_string(), Tone::Busy),
        (BreakerPhase::Open, _) => Cell::State(template.breaker.to_string(), Tone::Bad),
    };
    let counts = Counts::of(&template.states);
    let all: u32 = template.states.values().sum();
    let warm = match (template.minimum, template.idle_minimum) {
        (0, 0) => Cell::None,
        (least, 0) => Cell::of(format!("{all}/{least}")),
        (_, idle) => Cell::of(format!("{}/{idle}", counts.ready)),
    };
    let retry = template.retry_at.as_ref().map(|at| format!("next try {}", view.when(at)));
    let detail = [retry, template.cause.clone(), template.lack.clone(), template.paused.clone()];
    let detail: Vec<String> = detail.into_iter().flatten().collect();
    let [coming, ready, busy] = counts.cells();
    let cells = vec![
        Cell::of(format!("  {}", template.id)),
        state,
        Cell::of(of_cap(all, template.cap)),
        coming,
        ready,
        busy,
        Cell::of(counts.going),
        warm,
        Cell::None,
        Cell::of(detail.join("; ")),
    ];
    (entry(TopNoun::Templates, &template.id, json!(template)), cells)
}

fn of_leases(status: &StatusOut) -> Row {
    let count = |phase| status.leases.iter().filter(|lease| lease.state == phase).count();
    let cells = vec![
        Cell::of("leases"),
        Cell::None,
        Cell::None,
        Cell::of(count(LeasePhase::Granted)),
        Cell::None,
        Cell::of(count(LeasePhase::Ready)),
        Cell::None,
        Cell::None,
        Cell::of(count(LeasePhase::Waiting)),
        Cell::None,
    ];
    (entry(TopNoun::Herd, "leases", Value::Null), cells)
}

fn of_cap(agents: u32, cap: Option<u32>) -> String {
    cap.map_or_else(|| agents.to_string(), |cap| format!("{agents}/{cap}"))
}
