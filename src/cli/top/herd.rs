//! The herd at a glance: what needs somebody, then each cloud with its templates, then who waits.

use drover_api::{CloudOut, Counts, StatusOut, TemplateOut};
use drover_model::phase::{BreakerPhase, CloudHealth, LeasePhase};
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

/// Those that are on their way out, or stuck.
pub(super) fn going(counts: Counts) -> u32 {
    counts.leaving + counts.stranded
}

/// Those that are on their way, those that are there for somebody, and those that somebody has.
fn cells(counts: Counts) -> [Cell; 3] {
    [Cell::of(counts.coming), Cell::of(counts.ready), Cell::of(counts.busy)]
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
        rows.extend(
            status.templates.iter().filter(of_it).map(|one| of_template(one, status, &view)),
        );
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
            counts += Counts::of_template(template, status);
        }
    }
    let [coming, ready, busy] = cells(counts);
    let cells = vec![
        Cell::of(format!("cloud {}", cloud.id)),
        Cell::State(standing(cloud).to_owned(), tone),
        Cell::of(match of_cap(cloud.agents, cloud.cap) {
            // Those on a node that is offline count against no cap.
            of_cap if counts.all() > cloud.agents => format!("{} ({of_cap})", counts.all()),
            of_cap => of_cap,
        }),
        coming,
        ready,
        busy,
        Cell::of(going(counts)),
        Cell::None,
        Cell::None,
        Cell::of(&cloud.detail),
    ];
    (entry(TopNoun::Clouds, &cloud.id, json!(cloud)), cells)
}

fn of_template(template: &TemplateOut, status: &StatusOut, view: &View) -> Row {
    let state = match (template.breaker, &template.paused) {
        (BreakerPhase::Closed, Some(_)) => Cell::State("paused".to_owned(), Tone::Busy),
        (BreakerPhase::Closed, None) => Cell::State(template.breaker.to_string(), Tone::Good),
        (BreakerPhase::HalfOpen, _) => Cell::State(template.breaker.to_string(), Tone::Busy),
        (BreakerPhase::Open, _) => Cell::State(template.breaker.to_string(), Tone::Bad),
    };
    let counts = Counts::of_template(template, status);
    let warm = match (template.minimum, template.idle_minimum) {
        (0, 0) => Cell::None,
        (_, _) => Cell::of(format!("{}/{}", counts.ready, counts.kept_idle(template))),
    };
    let retry = template.retry_at.as_ref().map(|at| format!("next try {}", view.when(at)));
    let detail = [retry, template.cause.clone(), template.lack.clone(), template.paused.clone()];
    let detail: Vec<String> = detail.into_iter().flatten().collect();
    let [coming, ready, busy] = cells(counts);
    let cells = vec![
        Cell::of(format!("  {}", template.id)),
        state,
        Cell::of(of_cap(counts.all(), template.cap)),
        coming,
        ready,
        busy,
        Cell::of(going(counts)),
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
