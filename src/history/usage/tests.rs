#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use drover_model::time::WallTime;

use super::*;
use crate::{MadeFor, Peaks};

const HOUR: i64 = 3_600_000;

fn agent(template: &str, from: i64, to: Option<i64>) -> Agent {
    Agent {
        id: format!("{template}{from}"),
        template: template.into(),
        cloud: template.split('/').next().unwrap().into(),
        node: None,
        cores: Some(2),
        memory_mib: Some(4096),
        made_for: MadeFor::Demand,
        made: WallTime(from),
        machine: Some(WallTime(from)),
        ready: None,
        boot: vec![],
        after: vec![],
        gone: to.map(WallTime),
        reason: None,
        failed_in: None,
        fault: None,
        uses: 0,
        peaks: Peaks::default(),
    }
}

fn demand(kind: DemandKind, arrived: i64, served: i64, ended: i64) -> Demand {
    Demand {
        id: "d".into(),
        kind,
        source: (kind != DemandKind::Lease).then(|| "git".into()),
        owner: (kind == DemandKind::Lease).then(|| "anna".into()),
        group: None,
        name: None,
        wants: None,
        priority: 0,
        whole: false,
        arrived: WallTime(arrived),
        served: Some(WallTime(served)),
        agent: None,
        template: Some("lab/linux".into()),
        cores: Some(2),
        memory_mib: Some(4096),
        ended: Some(WallTime(ended)),
        how: Some(How::Done),
        granted: (kind != DemandKind::Job).then_some(WallTime(served)),
        used_ms: (kind != DemandKind::Job).then(|| u64::try_from(ended - served).unwrap()),
    }
}

fn report(by: By, (from, to): (i64, i64), lines: &[Line]) -> (Vec<Row>, Row) {
    let all = Prices { core_hour: 20_000, gib_hour: 5_000 };
    priced(by, (from, to), lines, PriceList { all, ..PriceList::default() })
}

fn priced(by: By, (from, to): (i64, i64), lines: &[Line], prices: PriceList) -> (Vec<Row>, Row) {
    let range = Range { from: WallTime(from), to: WallTime(to) };
    let mut tally = Tally::new(range, by, Some(prices));
    lines.iter().for_each(|line| tally.take(line));
    tally.finish()
}

// Invariant: nobody reads for whom others' leases are.

#[test]
fn leases_of_others_are_one_row_to_who_may_not_know_their_owners() {
    let of = |owner: &str, group: Option<&str>| {
        let (owner, group) = (Some(owner.to_owned()), group.map(str::to_owned));
        let lease = demand(DemandKind::Lease, 0, 0, HOUR);
        Line::Demand(Box::new(Demand { owner, group, ..lease }))
    };
    let lines = [
        of("token:ci", None),
        of("anna (token:ci)", None),
        of("bert (token:other)", Some("lab")),
        of("eve (token:ci) (token:eve)", None),
        of("carl (token:third)", Some("far")),
    ];
    let read = |who: &str, group: Option<&str>, all| {
        let range = Range { from: WallTime(0), to: WallTime(HOUR) };
        let (principal, group) = (who.to_owned(), group.map(str::to_owned));
        let who = tenant::By { principal, group, all };
        let mut tally = Tally::new(range, By::Owner, None).seen_by(who);
        lines.iter().for_each(|line| tally.take(line));
        let (rows, _) = tally.finish();
        rows.into_iter().map(|row| (row.name, row.leases)).collect::<Vec<_>>()
    };
    let mut own = read("token:ci", Some("lab"), false);
    own.sort();
    let named = |name: &str, count| (name.to_owned(), count);
    assert_eq!(
        own,
        [
            named("(leases of others)", 2),
            named("anna (token:ci)", 1),
            named("bert (token:other)", 1),
            named("token:ci", 1)
        ]
    );
    assert_eq!(read("token:root", None, true).len(), 5);
}

fn lines() -> Vec<Line> {
    vec![
        Line::Agent(Box::new(agent("lab/linux", 0, Some(4 * HOUR)))),
        Line::Agent(Box::new(agent("lab/mac", 2 * HOUR, None))),
        Line::Demand(Box::new(demand(DemandKind::Lease, HOUR - 1000, HOUR, 2 * HOUR))),
        Line::Demand(Box::new(demand(DemandKind::Runner, 2 * HOUR, 2 * HOUR, 3 * HOUR))),
        Line::Demand(Box::new(demand(DemandKind::Job, 2 * HOUR, 2 * HOUR + 9000, 3 * HOUR))),
    ]
}

fn about(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-6
}

// Invariant: an agent counts with its part of the range, and with its size.

#[test]
fn an_agent_that_spans_the_range_counts_its_part_alone() {
    let (rows, total) = report(By::Template, (HOUR, 3 * HOUR), &lines());
    let hours: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.vm_hours)).collect();
    assert_eq!(hours, [("lab/linux", 2.0), ("lab/mac", 1.0)]);
    assert!(about(total.core_hours, 6.0) && about(total.gib_hours, 12.0), "{total:?}");
    assert!(about(total.price.unwrap(), 6.0 * 0.02 + 12.0 * 0.005), "{total:?}");
}

#[test]
fn ranges_that_touch_add_up() {
    let parts = [(0, HOUR + 1), (HOUR + 1, 3 * HOUR), (3 * HOUR, 6 * HOUR)];
    let totals = parts.map(|range| report(By::Owner, range, &lines()).1);
    let whole = report(By::Owner, (0, 6 * HOUR), &lines()).1;
    let sum: f64 = totals.iter().map(|total| total.vm_hours).sum();
    assert!(about(sum, whole.vm_hours), "{sum} and {whole:?}");
    assert_eq!(totals.iter().map(|total| total.jobs + total.leases).sum::<u64>(), 2);
}

// Invariant: what nobody used is shown, so that the rows of owners and sources add up to the total.

#[test]
fn time_belongs_to_whose_lease_or_runner_it_was_and_the_rest_is_unused() {
    for (by, first, second) in [(By::Owner, "anna", "git"), (By::Source, LEASES, "git")] {
        let (rows, total) = report(by, (0, 4 * HOUR), &lines());
        let of = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
        assert!(about(of(first).vm_hours, 1.0), "{rows:?}");
        assert!(about(of(second).vm_hours, 1.0), "{rows:?}");
        assert!(about(of(UNUSED).vm_hours, 4.0), "{rows:?}");
        assert_eq!((of(first).leases, of(second).jobs), (1, 1));
        let sum: f64 = rows.iter().map(|row| row.core_hours).sum();
        assert!(about(sum, total.core_hours), "{rows:?} {total:?}");
        assert!(about(rows.iter().map(|row| row.price.unwrap()).sum(), total.price.unwrap()));
    }
}

#[test]
fn a_shared_agent_counts_once_for_all_who_shared_it() {
    let half = |granted: i64| {
        let whole = demand(DemandKind::Lease, granted, granted, granted + 2 * HOUR);
        Line::Demand(Box::new(Demand { used_ms: Some(3_600_000), ..whole }))
    };
    let lines = [Line::Agent(Box::new(agent("lab/linux", 0, Some(2 * HOUR)))), half(0), half(0)];
    let (rows, _) = report(By::Owner, (0, HOUR), &lines);
    let of = |name: &str| rows.iter().find(|row| row.name == name).map(|row| row.vm_hours);
    assert_eq!((of("anna"), of(UNUSED)), (Some(1.0), None), "{rows:?}");
}

#[test]
fn failures_and_waits_count_in_the_range_in_which_they_came() {
    let mut failed = agent("lab/linux", 0, Some(HOUR));
    failed.failed_in = Some("Booting".into());
    let mut late = demand(DemandKind::Lease, 0, HOUR, HOUR);
    (late.served, late.template, late.how) = (None, None, Some(How::WaitedTooLong));
    let lines = [Line::Agent(Box::new(failed)), Line::Demand(Box::new(late))];
    let (rows, total) = report(By::Template, (0, 2 * HOUR), &lines);
    assert_eq!(total.failures, 2);
    assert_eq!(rows[0].name, NOT_SERVED);
    assert_eq!(report(By::Template, (2 * HOUR, 3 * HOUR), &lines).1.failures, 0);
}

#[test]
fn a_machine_of_unknown_size_counts_its_hours_alone() {
    let one = Agent { cores: None, ..agent("lab/linux", 0, Some(HOUR)) };
    let (_, total) = report(By::Cloud, (0, HOUR), &[Line::Agent(Box::new(one))]);
    assert_eq!((total.vm_hours, total.unsized_hours, total.core_hours), (1.0, 1.0, 0.0));
}

#[test]
fn an_agent_without_a_machine_costs_nothing() {
    let one = Agent { machine: None, ..agent("lab/linux", 0, Some(HOUR)) };
    let (rows, total) = report(By::Template, (0, HOUR), &[Line::Agent(Box::new(one))]);
    assert_eq!((rows.len(), total.agents), (0, 0));
}

// Invariant: percentiles are those of the nearest rank, to within 2.2 %.

#[test]
fn percentiles_of_waits_are_close_to_the_true_ones() {
    let mut waits = Waits::default();
    assert_eq!(waits.percentile(50), None);
    (1..=1000).for_each(|second| waits.add(second * 1000));
    for (percent, expected) in [(50, 500_000.0), (95, 950_000.0), (100, 1_000_000.0)] {
        let found = waits.percentile(percent).unwrap() as f64;
        assert!((found / expected - 1.0).abs() < 0.022, "{percent}: {found}");
    }
    let mut none = Waits::default();
    none.add(0);
    assert_eq!(none.percentile(95), Some(0));
}

// Invariant: a report has so many rows at most, and loses nothing by it.

#[test]
fn rows_beyond_the_bound_are_one_row() {
    let many = (0..ROWS_MAX + 5).map(|n| {
        let owner = Some(format!("owner-{n}"));
        let one = demand(DemandKind::Lease, 0, 1000, 2000);
        Line::Demand(Box::new(Demand { owner, ..one }))
    });
    let (rows, total) = report(By::Owner, (0, HOUR), &many.collect::<Vec<_>>());
    assert!(rows.len() <= ROWS_MAX + 2);
    let others = rows.iter().find(|row| row.name == OTHERS).unwrap();
    assert_eq!((others.leases, total.leases), (5, 1005));
}

// Invariant: a machine costs what its template does, else what its cloud does, and rows add up by whatever.

#[test]
fn a_template_has_its_own_price_or_its_clouds_or_that_of_all() {
    let cents = |core_hour: u64| Prices { core_hour: core_hour * 10_000, gib_hour: 0 };
    let of = [("lab".to_owned(), cents(2)), ("lab/linux".to_owned(), cents(3))];
    let prices = PriceList { all: cents(1), of: of.into() };
    for (template, price) in [("lab/linux", 0.06), ("lab/mac", 0.04), ("far/linux", 0.02)] {
        let lines = [Line::Agent(Box::new(agent(template, 0, Some(HOUR))))];
        let (rows, total) = priced(By::Template, (0, HOUR), &lines, prices.clone());
        assert!(about(rows[0].price.unwrap(), price), "{template}: {:?}", rows[0]);
        assert!(about(total.price.unwrap(), price), "{template}");
    }
    for by in By::ALL {
        let (rows, total) = priced(by, (0, 4 * HOUR), &lines(), prices.clone());
        let sum: f64 = rows.iter().filter_map(|row| row.price).sum();
        // Four hours of two cores for 3 cents, and two hours for 2.
        assert!(about(total.price.unwrap(), 0.32) && about(sum, 0.32), "{by:?}: {rows:?}");
    }
}
