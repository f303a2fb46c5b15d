//! How the work of decisions grows, in things looked at.

use drover_model::demand::spec::{ShareSpec, SourceSpec};
use drover_model::id::SourceId;

use super::sources::source;
use super::*;
use crate::demand::Level;
use crate::effort;

/// Ten times as much may cost a little more than ten times the looks: sets are sorted.
const AT_MOST: u64 = 12;

fn grows(what: &str, cost: impl Fn(usize) -> u64, few: usize) {
    let (one, ten) = (cost(few), cost(few * 10));
    assert!(
        one > 0 && ten <= AT_MOST * one,
        "{what}: {one} looks for {few}, {ten} for ten times that"
    );
}

/// The labels of the n-th set: some of sixteen that a template has.
fn set(n: usize) -> Want {
    let some = (0..16).filter(|bit| n >> bit & 1 == 1);
    Want::Labels(some.map(|bit| format!("l{bit}")).chain(["linux".to_owned()]).collect())
}

/// A scheduler with full templates, each with ten agents of which one is ready and none is free.
fn full(templates: usize, alike: bool) -> (Scheduler, Vec<Arc<TemplateSpec>>) {
    let mut scheduler = Scheduler::default();
    let mut specs = Vec::new();
    let all: Vec<String> = (0..16).map(|bit| format!("l{bit}")).collect();
    for n in 0..templates {
        let own = format!("own{n}");
        let mut labels: Vec<&str> = all.iter().map(String::as_str).chain(["linux"]).collect();
        if !alike {
            labels = vec![&own];
        }
        let spec = Arc::new(template(&format!("c/t{n}"), &labels));
        scheduler.cloud(&spec.id.cloud, 0);
        let mut reported = news(&spec, 0);
        for agent in 0..10 {
            reported.agents.push(level(&spec, &format!("a{n}-{agent}"), Standing::Busy, &[]));
        }
        scheduler.news(&reported, at(0).wall);
        specs.push(spec);
    }
    scheduler.shares(ShareSpec::default(), std::iter::once(source("git", ShareSpec::default())));
    (scheduler, specs)
}

fn demand(
    scheduler: &mut Scheduler,
    specs: &[Arc<TemplateSpec>],
    wants: impl Iterator<Item = Want>,
) {
    let known = specs.iter().map(|spec| (spec.id.clone(), spec.clone())).collect();
    let levels = wants.map(|want| Level { want, since: vec![at(0).wall] }).collect();
    let (levels, _) = scheduler.admit(None, levels, &known);
    scheduler.demanded(&SourceId::new("git"), levels, std::iter::empty());
}

// Invariant: what a decision costs grows as what there is to decide.

#[test]
fn ten_times_the_wants_cost_ten_times_the_looks() {
    for templates in [1, 100] {
        let cost = |wants: usize| {
            let (mut scheduler, specs) = full(templates, true);
            for n in 0..wants {
                wait(&mut scheduler, &specs, &format!("l{n}"), set(n), 0);
            }
            effort::of(|| assert!(scheduler.decided().is_empty()))
        };
        grows("leases that a full template serves", cost, 200);
    }
    let cost = |wants: usize| {
        let (mut scheduler, specs) = full(10, true);
        effort::of(|| {
            demand(&mut scheduler, &specs, (0..wants).map(set));
            assert!(scheduler.decided().is_empty());
        })
    };
    grows("jobs that a full template serves", cost, 50);
}

#[test]
fn ten_times_the_wants_of_which_half_are_on_their_way_cost_ten_times_the_looks() {
    let cost = |wants: usize| {
        let (mut scheduler, specs) = full(1, true);
        for n in 0..wants / 2 {
            report(&mut scheduler, &specs[0], &format!("c{n}"), Standing::Coming, &[]);
        }
        for n in 0..wants {
            wait(&mut scheduler, &specs, &format!("l{n}"), set(n), 0);
        }
        effort::of(|| assert!(scheduler.decided().is_empty()))
    };
    grows("leases that agents on their way serve", cost, 200);
}

#[test]
fn ten_times_the_wants_that_agents_run_for_cost_ten_times_the_looks() {
    let cost = |wants: usize| {
        let (mut scheduler, specs) = scheduler(&[("c/t", &["linux"], 0)]);
        scheduler
            .shares(ShareSpec::default(), std::iter::once(source("git", ShareSpec::default())));
        let mut own = template("c/u", &[]);
        own.labels = (0..1000).map(|n| format!("w{n}")).collect();
        let own = Arc::new(own);
        scheduler.news(&news(&own, 0), at(0).wall);
        let agents: Vec<String> = (0..wants).map(|n| format!("a{n:04}")).collect();
        for agent in &agents {
            report(&mut scheduler, &own, agent, IDLE, &[]);
        }
        let wants = |all: usize| (0..all).map(|n| labels(&[&format!("w{n}")]));
        let specs = [specs[0].clone(), own.clone()];
        demand(&mut scheduler, &specs, wants(agents.len()));
        let effects = scheduler.decided();
        assert_eq!(effects.len(), agents.len());
        effort::of(|| {
            demand(&mut scheduler, &specs, wants(agents.len()));
            scheduler.decided();
        })
    };
    grows("jobs with runners", cost, 40);
}

#[test]
fn ten_times_the_templates_cost_ten_times_the_looks() {
    let cost = |templates: usize| {
        let (mut scheduler, specs) = full(templates, false);
        let own = (0..templates).map(|n| labels(&[&format!("own{n}")]));
        for (n, want) in own.enumerate() {
            wait(&mut scheduler, &specs, &format!("l{n}"), want, 0);
        }
        for spec in &specs {
            scheduler.news(&news(spec, 5), at(0).wall);
        }
        scheduler.cloud(&specs[0].id.cloud, u32::MAX);
        effort::of(|| assert_eq!(scheduler.decided().len(), templates))
    };
    grows("a template for each want", cost, 20);
}

#[test]
fn ten_times_the_agents_that_nobody_waits_for_cost_ten_times_the_looks() {
    let cost = |agents: usize| {
        let (mut scheduler, specs) = full(agents / 10, false);
        effort::of(|| {
            for standing in [Standing::Coming, IDLE, Standing::Leaving] {
                for (n, spec) in specs.iter().enumerate() {
                    for agent in 0..10 {
                        report(&mut scheduler, spec, &format!("a{n}-{agent}"), standing, &[]);
                        scheduler.decided();
                    }
                }
            }
        })
    };
    grows("agents on their way", cost, 100);
}

#[test]
fn ten_times_the_uses_given_up_cost_ten_times_the_looks() {
    let cost = |uses: usize| {
        let (mut scheduler, specs) = scheduler(&[("c/t", &["linux"], u32::MAX)]);
        scheduler
            .shares(ShareSpec::default(), std::iter::once(source("git", ShareSpec::default())));
        let mut reported = news(&specs[0], u32::MAX);
        for n in 0..uses {
            reported.agents.push(level(&specs[0], &format!("a{n}"), Standing::Coming, &[]));
        }
        scheduler.news(&reported, at(0).wall);
        let level =
            |count| vec![Level { want: labels(&["linux"]), since: vec![at(0).wall; count] }];
        scheduler.demanded(&SourceId::new("git"), level(uses), std::iter::empty());
        assert!(scheduler.decided().is_empty());
        effort::of(|| {
            scheduler.demanded(&SourceId::new("git"), level(0), std::iter::empty());
            assert_eq!(scheduler.decided().len(), uses);
        })
    };
    grows("jobs that went away", cost, 100);
}

// Invariant: what nobody serves, and what is too much, is said and costs decisions nothing.

#[test]
fn jobs_that_no_template_serves_are_not_let_in() {
    let (mut scheduler, specs) = full(1, true);
    let known: BTreeMap<_, _> = specs.iter().map(|spec| (spec.id.clone(), spec.clone())).collect();
    let odd = |n| Level { want: labels(&[&format!("odd{n}")]), since: vec![at(0).wall] };
    let (inside, outside) = scheduler.admit(None, (0..2000).map(odd).collect(), &known);
    assert!(inside.is_empty());
    assert_eq!((outside.len(), &*outside[0].lacks), (2000, "no template has `odd0`"));
    scheduler.demanded(&SourceId::new("git"), inside, std::iter::empty());
    assert!(effort::of(|| drop(scheduler.decided())) < 10);
}

#[test]
fn jobs_whose_labels_no_runner_of_their_source_can_have_are_not_let_in() {
    let (scheduler, specs) = scheduler(&[("c/t", &["linux", "python:3"], 1)]);
    let known = BTreeMap::from([(specs[0].id.clone(), specs[0].clone())]);
    let git = source("git", ShareSpec::default());
    let plain = SourceSpec { ends_of_labels: &[':', '?'], ..(*git).clone() };
    let wants = [&["linux"][..], &["linux", "python:3"]].map(labels);
    let levels = wants.map(|want| Level { want, since: vec![at(0).wall] });
    let (inside, outside) = scheduler.admit(Some(&plain), levels.to_vec(), &known);
    assert_eq!((inside, outside.len()), (levels[..1].to_vec(), 1));
    let lacks = "no runner of source `git` can have the label `python:3`: its program reads `:` \
                 and `?` as the end of a name; rename the label, or give the source a \
                 `runnerCommand`";
    assert_eq!((&outside[0].want, &*outside[0].lacks), (&levels[1].want, lacks));
    let (inside, outside) = scheduler.admit(Some(&git), levels.to_vec(), &known);
    assert_eq!((inside.len(), outside), (2, Vec::new()));
}

#[test]
fn a_template_that_was_not_heard_of_yet_keeps_no_job_outside() {
    let spec = Arc::new(template("c/t", &["linux"]));
    let known = BTreeMap::from([(spec.id.clone(), spec.clone())]);
    let level = Level { want: labels(&["linux"]), since: vec![at(0).wall] };
    let (inside, outside) = Scheduler::default().admit(None, vec![level.clone()], &known);
    assert_eq!((inside, outside), (vec![level], Vec::new()));
}

#[test]
fn of_too_many_kinds_those_of_every_template_are_let_in_and_the_rest_is_reported() {
    let (mut scheduler, mut specs) = full(1, true);
    let other = Arc::new(template("c/other", &["arm"]));
    scheduler.news(&news(&other, 5), at(0).wall);
    specs.push(other);
    let known: BTreeMap<_, _> = specs.iter().map(|spec| (spec.id.clone(), spec.clone())).collect();
    let old = (0..2000).map(|n| Level { want: set(n), since: vec![at(0).wall] });
    let young = Level { want: labels(&["arm"]), since: vec![at(9).wall] };
    let (inside, outside) = scheduler.admit(None, old.chain([young.clone()]).collect(), &known);
    assert_eq!((inside.len(), outside.len()), (500, 1501));
    assert!(inside.contains(&young), "what waits for one full template keeps out no other");
    assert!(outside[0].lacks.starts_with("held back: drover serves 500 kinds"), "{outside:?}");
}

proptest! {
    // Invariant: what decisions have at hand is what a look at everything gives.

    #[test]
    fn the_same_specs_serve_a_want_as_by_a_look_at_all(
        all in prop::collection::vec((0u16..16, any::<bool>(), any::<bool>()), 1..6),
        mapped in prop::option::of((0u16..16, 0usize..6)),
        wants in prop::collection::vec((0u8..4, 0u16..16), 1..8),
    ) {
        let names = |bits: u16| (0..4).filter(move |bit| bits >> bit & 1 == 1).map(|bit| format!("l{bit}"));
        let mut scheduler = Scheduler::default();
        let mut specs = Vec::new();
        for (n, (bits, normal, flows)) in all.iter().enumerate() {
            let mut spec = template(&format!("c/t{n}"), &[]);
            spec.labels = names(*bits).collect();
            spec.mode = if *normal { drover_model::spec::Mode::Normal } else { drover_model::spec::Mode::Exclusive };
            spec.fallbacks = vec![template_id(&format!("c/t{}", (n + 1) % all.len()))];
            let spec = Arc::new(spec);
            scheduler.news(&TemplateNews { flowing: *flows, ..news(&spec, 1) }, at(0).wall);
            specs.push(spec);
        }
        let mapping = mapped.map(|(bits, to)| LabelMapping {
            labels: names(bits).collect(),
            priority: 0,
            templates: vec![template_id(&format!("c/t{to}"))],
        });
        let mappings: Vec<Arc<LabelMapping>> = mapping.into_iter().map(Arc::new).collect();
        scheduler.route(Routing::new(&mappings).with(specs.iter()));
        for (what, bits) in wants {
            let text = names(bits).collect::<Vec<_>>();
            let want = match what {
                0 => named(&format!("t{bits}")),
                1 => Want::Labels(text.into_iter().collect()),
                2 if !text.is_empty() => Want::Expression(LabelExpression::parse(&text.join(" && ")).unwrap()),
                _ => Want::Expression(LabelExpression::parse("l0 || !l1").unwrap()),
            };
            let found: BTreeMap<TemplateId, usize> = scheduler.servers(&want).all.iter()
                .map(|(rank, kind)| (scheduler.specs.get(kind.0).unwrap().id.clone(), *rank)).collect();
            let looked: BTreeMap<TemplateId, usize> = specs.iter()
                .filter_map(|spec| Some((spec.id.clone(), scheduler.fit(spec, &want)?.rank))).collect();
            prop_assert_eq!(found, looked, "{:?}", want);
        }
    }
}
