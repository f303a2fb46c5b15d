//! The scheduler: who gets what, and how much is started for it.
#![expect(clippy::unwrap_used, reason = "a test may panic")]
mod accounts;
mod growth;
mod leases;
mod owners;
mod sizes;
mod sources;
mod table;

use drover_model::labels::LabelExpression;
use drover_model::record::Owner;
use drover_model::size::Size;
use drover_model::spec::LabelMapping;
use drover_model::status::{AgentStatus, Standing};
use proptest::prelude::*;

use super::*;
use crate::template::{AgentLevel, TemplateNews};
use crate::testing::{agent_status, ask, at, entry, labels, news, template, template_id};

/// A scheduler over templates with this much room, on clouds without a cap.
fn scheduler(templates: &[(&str, &[&str], u32)]) -> (Scheduler, Vec<Arc<TemplateSpec>>) {
    let mut scheduler = Scheduler::default();
    let mut specs = Vec::new();
    for (name, labels, room) in templates {
        let spec = Arc::new(template(name, labels));
        scheduler.cloud(&spec.id.cloud, u32::MAX);
        scheduler.news(&news(&spec, *room), at(0).wall);
        specs.push(spec);
    }
    (scheduler, specs)
}

impl Scheduler {
    /// Asks for a lease, and enters it where it is new.
    fn ask(&mut self, ask: &LeaseAsk, configured: &[Arc<TemplateSpec>]) -> Asked {
        self.book.prune(ask.asked);
        let answer = self.admission(ask, configured);
        if answer == Asked::New {
            self.stepped(Event::Asked(Box::new(ask.clone())));
        }
        answer
    }

    /// Ends a lease; gives what follows, and whether it is over already.
    fn release_by(&mut self, lease: &LeaseId, by: &By) -> Result<(Vec<Effect>, bool), Refusal> {
        let over = self.releasable(lease, by)?;
        Ok((self.stepped(Event::Release(lease.clone())), over))
    }

    fn holds(&mut self, held: BTreeMap<AgentId, HoldOwner>) {
        self.stepped(Event::Held(held));
    }

    fn restrain(&mut self, agents: BTreeSet<AgentId>) {
        self.stepped(Event::Restrained(agents));
    }

    fn stepped(&mut self, event: Event) -> Vec<Effect> {
        self.effects_of(event, at(1), 0)
    }

    /// What it decides a second after the start, with ids of leases that count up.
    fn decided(&mut self) -> Vec<Effect> {
        let mut minted = 0;
        self.decide(at(1).wall, &mut || {
            minted += 1;
            LeaseId::new(format!("use{minted}"))
        })
    }
}

fn level(spec: &Arc<TemplateSpec>, agent: &str, standing: Standing, on: &[&str]) -> AgentLevel {
    let leases = on.iter().map(LeaseId::new).collect();
    let status = agent_status(agent, &spec.id, drover_model::phase::AgentPhase::Ready, standing);
    let (status, spec) = (Arc::new(AgentStatus { leases, ..status }), spec.clone());
    let (queued, refused, over) = (standing == Standing::Coming, Vec::new(), Vec::new());
    AgentLevel { status, spec, queued, refused, over, going: false }
}

const IDLE: Standing = Standing::Free { executors: 1, idle: true };

fn report(
    scheduler: &mut Scheduler,
    spec: &Arc<TemplateSpec>,
    agent: &str,
    standing: Standing,
    on: &[&str],
) -> Vec<Effect> {
    let room = scheduler.templates.get(&spec.id).map_or(u32::MAX, |view| view.room);
    let mut news = news(spec, room);
    news.agents = vec![level(spec, agent, standing, on)];
    scheduler.news(&news, at(1).wall)
}

fn wait(
    scheduler: &mut Scheduler,
    specs: &[Arc<TemplateSpec>],
    lease: &str,
    want: Want,
    asked: u64,
) {
    assert_eq!(scheduler.ask(&ask(lease, want, asked), specs), Asked::New);
    scheduler.recorded(&LeaseId::new(lease), true);
}

fn text(effects: &[Effect]) -> Vec<String> {
    effects
        .iter()
        .map(|effect| match effect {
            Effect::HandOut { agent, ask } => format!("{} on {agent}", ask.lease),
            Effect::Start { template, size, count } if size.is_none() => {
                format!("start {count} {template}")
            }
            Effect::Start { template, size, count } => {
                format!("start {count} {template} with {size}")
            }
            Effect::Withdraw { agent } => format!("withdraw {agent}"),
            Effect::Evict { agent } => format!("evict {agent}"),
            Effect::End { agent, lease, .. } => format!("end {lease} on {agent}"),
            Effect::Cancel { lease, why } => format!("{why} {lease}"),
            Effect::Again { lease } => format!("again {lease}"),
            Effect::NotServed { source, lease } => format!("{lease} of {source} is not served"),
            Effect::Over { lease } => format!("over {lease}"),
        })
        .collect()
}

fn named(name: &str) -> Want {
    Want::Template(name.into())
}

// Invariant: as many are started as are needed, and no more.

#[test]
fn one_start_for_one_ask_however_often_it_is_decided() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &["linux"], 9)]);
    wait(&mut scheduler, &specs, "l1", labels(&["linux"]), 0);
    assert_eq!(text(&scheduler.decided()), ["start 1 c/t"]);
    assert!(scheduler.decided().is_empty());
    let mut started = news(&specs[0], 8);
    started.answered = [(Size::NONE, 1)].into();
    started.agents = vec![level(&specs[0], "a1", Standing::Coming, &[])];
    scheduler.news(&started, at(1).wall);
    assert!(scheduler.decided().is_empty());
}

#[test]
fn a_start_that_came_to_nothing_is_asked_for_again() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 9)]);
    wait(&mut scheduler, &specs, "l1", named("t"), 0);
    scheduler.decided();
    scheduler.not_started(&specs[0].id, Size::NONE, 1);
    assert_eq!(text(&scheduler.decided()), ["start 1 c/t"]);
}

#[test]
fn an_agent_that_dies_on_its_way_is_replaced() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 9)]);
    report(&mut scheduler, &specs[0], "a1", Standing::Coming, &[]);
    wait(&mut scheduler, &specs, "l1", named("t"), 0);
    assert!(scheduler.decided().is_empty());
    report(&mut scheduler, &specs[0], "a1", Standing::Leaving, &[]);
    assert_eq!(text(&scheduler.decided()), ["start 1 c/t"]);
}

#[test]
fn an_agent_of_four_executors_serves_four_asks() {
    let (mut scheduler, _) = scheduler(&[]);
    let mut spec = template("c/t", &[]);
    spec.executors = 4;
    let specs = vec![Arc::new(spec)];
    scheduler.cloud(&specs[0].id.cloud, u32::MAX);
    scheduler.news(&news(&specs[0], u32::MAX), at(0).wall);
    for n in 0..5 {
        wait(&mut scheduler, &specs, &format!("l{n}"), named("t"), n);
    }
    assert_eq!(text(&scheduler.decided()), ["start 2 c/t"]);
}

#[test]
fn nothing_is_started_beyond_the_room_of_template_and_cloud() {
    let (mut scheduler, specs) = scheduler(&[("c/a", &["x"], 1), ("c/b", &["x"], 9)]);
    scheduler.cloud(&specs[0].id.cloud, 3);
    for n in 0..9 {
        wait(&mut scheduler, &specs, &format!("l{n}"), labels(&["x"]), n);
    }
    assert_eq!(text(&scheduler.decided()), ["start 1 c/a", "start 2 c/b"]);
}

#[test]
fn starts_go_where_the_most_room_is_then_by_name() {
    let (mut scheduler, specs) =
        scheduler(&[("a/t", &["x"], 3), ("b/t", &["x"], 4), ("c/t", &["x"], 1)]);
    for n in 0..5 {
        wait(&mut scheduler, &specs, &format!("l{n}"), labels(&["x"]), n);
    }
    assert_eq!(text(&scheduler.decided()), ["start 2 a/t", "start 3 b/t"]);
}

#[test]
fn templates_without_caps_share_the_starts() {
    let (mut scheduler, specs) = scheduler(&[("a/t", &["x"], u32::MAX), ("b/t", &["x"], u32::MAX)]);
    for n in 0..4 {
        wait(&mut scheduler, &specs, &format!("l{n}"), labels(&["x"]), n);
    }
    assert_eq!(text(&scheduler.decided()), ["start 2 a/t", "start 2 b/t"]);
}

#[test]
fn a_flowing_template_is_preferred_to_a_trial() {
    let (mut scheduler, specs) = scheduler(&[("a/t", &["x"], 1), ("b/t", &["x"], 1)]);
    let mut probing = news(&specs[0], 1);
    probing.flowing = false;
    scheduler.news(&probing, at(0).wall);
    wait(&mut scheduler, &specs, "l1", labels(&["x"]), 0);
    assert_eq!(text(&scheduler.decided()), ["start 1 b/t"]);
}

#[test]
fn what_comes_is_shared_so_that_the_choosy_ask_needs_no_start() {
    let (mut scheduler, specs) = scheduler(&[("c/a", &["x"], 9), ("c/b", &["x"], 9)]);
    report(&mut scheduler, &specs[0], "a1", Standing::Coming, &[]);
    report(&mut scheduler, &specs[1], "b1", Standing::Coming, &[]);
    wait(&mut scheduler, &specs, "l1", labels(&["x"]), 0);
    wait(&mut scheduler, &specs, "l2", named("a"), 1);
    assert!(scheduler.decided().is_empty());
}

// Invariant: who asked first is served first.

#[test]
fn the_oldest_ask_gets_the_only_agent() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &["x"], 0)]);
    wait(&mut scheduler, &specs, "young", named("t"), 20);
    wait(&mut scheduler, &specs, "old", labels(&["x"]), 10);
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    assert_eq!(text(&scheduler.decided()), ["old on a1"]);
}

#[test]
fn an_easy_older_ask_leaves_the_only_fitting_agent_to_a_choosy_one() {
    let (mut scheduler, specs) = scheduler(&[("c/a", &["x"], 0), ("c/b", &["x"], 0)]);
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    report(&mut scheduler, &specs[1], "b1", IDLE, &[]);
    wait(&mut scheduler, &specs, "l1", labels(&["x"]), 0);
    wait(&mut scheduler, &specs, "l2", named("a"), 1);
    assert_eq!(text(&scheduler.decided()), ["l1 on b1", "l2 on a1"]);
}

#[test]
fn an_agent_in_use_is_filled_before_an_idle_one_and_the_longest_ready_comes_first() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
    report(&mut scheduler, &specs[0], "z", IDLE, &[]);
    report(&mut scheduler, &specs[0], "a", IDLE, &[]);
    let partly = Standing::Free { executors: 1, idle: false };
    report(&mut scheduler, &specs[0], "m", partly, &[]);
    for n in 0..3 {
        wait(&mut scheduler, &specs, &format!("l{n}"), named("t"), n);
    }
    assert_eq!(text(&scheduler.decided()), ["l0 on m", "l1 on z", "l2 on a"]);
}

#[test]
fn an_executor_is_not_handed_out_twice_before_the_agent_confirms() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    wait(&mut scheduler, &specs, "l1", named("t"), 0);
    wait(&mut scheduler, &specs, "l2", named("t"), 1);
    assert_eq!(text(&scheduler.decided()), ["l1 on a1"]);
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    assert!(scheduler.decided().is_empty());
    report(&mut scheduler, &specs[0], "a1", Standing::Busy, &["l1"]);
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    assert_eq!(text(&scheduler.decided()), ["l2 on a1"]);
}

#[test]
fn nothing_is_handed_out_on_an_agent_that_was_asked_to_go() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
    let mut news = news(&specs[0], 0);
    news.agents = vec![AgentLevel { going: true, ..level(&specs[0], "a1", IDLE, &[]) }];
    scheduler.news(&news, at(0).wall);
    wait(&mut scheduler, &specs, "l1", named("t"), 0);
    assert!(scheduler.decided().is_empty());
}

#[test]
fn an_agent_that_leaves_without_taking_its_lease_gives_it_back_to_the_queue() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    wait(&mut scheduler, &specs, "l1", named("t"), 0);
    scheduler.decided();
    report(&mut scheduler, &specs[0], "a1", Standing::Leaving, &[]);
    report(&mut scheduler, &specs[0], "a2", IDLE, &[]);
    assert_eq!(text(&scheduler.decided()), ["l1 on a2"]);
}

#[test]
fn a_lease_that_an_agent_could_not_take_waits_again() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    wait(&mut scheduler, &specs, "l1", named("t"), 0);
    scheduler.decided();
    let mut reported = news(&specs[0], 0);
    let refused = vec![LeaseId::new("l1")];
    reported.agents = vec![AgentLevel { refused, ..level(&specs[0], "a1", Standing::Parked, &[]) }];
    scheduler.news(&reported, at(1).wall);
    report(&mut scheduler, &specs[0], "a2", IDLE, &[]);
    assert_eq!(text(&scheduler.decided()), ["l1 on a2"]);
}

#[test]
fn a_lease_that_was_reported_and_then_refused_was_never_granted_and_waits_again() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    wait(&mut scheduler, &specs, "l1", named("t"), 0);
    scheduler.decided();
    report(&mut scheduler, &specs[0], "a1", Standing::Busy, &["l1"]);
    let mut reported = news(&specs[0], 0);
    let refused = vec![LeaseId::new("l1")];
    reported.agents = vec![AgentLevel { refused, ..level(&specs[0], "a1", Standing::Coming, &[]) }];
    assert_eq!(text(&scheduler.news(&reported, at(1).wall)), ["again l1"]);
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    assert_eq!(text(&scheduler.decided()), ["l1 on a1"]);
}

// Invariant: what was started for a lease that is given up goes too, if nothing was sent for it yet
// and nobody else needs it.

/// A scheduler with waiting leases and as many agents on their way, queued or past that.
fn started(
    queued: &[bool],
    change: impl FnOnce(&mut TemplateSpec),
) -> (Scheduler, Arc<TemplateSpec>) {
    let mut scheduler = Scheduler::default();
    let mut spec = template("c/t", &[]);
    change(&mut spec);
    let spec = Arc::new(spec);
    let mut news = news(&spec, 0);
    for (n, queued) in queued.iter().enumerate() {
        let agent = level(&spec, &format!("a{n}"), Standing::Coming, &[]);
        news.agents.push(AgentLevel { queued: *queued, ..agent });
        wait(&mut scheduler, std::slice::from_ref(&spec), &format!("l{n}"), named("t"), 0);
    }
    scheduler.news(&news, at(0).wall);
    (scheduler, spec)
}

fn give_up(scheduler: &mut Scheduler, lease: &str) -> Vec<String> {
    scheduler.release_by(&LeaseId::new(lease), &By::admin("root")).unwrap();
    scheduler.cancelled(&LeaseId::new(lease), true, at(1).wall);
    text(&scheduler.decided())
}

#[test]
fn each_lease_given_up_takes_one_queued_agent_along_and_none_past_that() {
    let (mut scheduler, _) = started(&[false, true, true], |_| ());
    assert_eq!(give_up(&mut scheduler, "l0"), ["withdraw a2"]);
    assert!(scheduler.decided().is_empty());
    assert_eq!(give_up(&mut scheduler, "l1"), ["withdraw a1"]);
    assert!(give_up(&mut scheduler, "l2").is_empty());
}

#[test]
fn an_agent_that_others_or_the_warm_minimum_need_is_not_withdrawn() {
    for minimums in [(2, 0), (0, 2)] {
        let change = |spec: &mut TemplateSpec| (spec.minimum, spec.idle_minimum) = minimums;
        let (mut scheduler, _) = started(&[true, true], change);
        assert!(give_up(&mut scheduler, "l0").is_empty());
    }
    let (mut scheduler, _) = started(&[true, true, true], |spec| spec.executors = 2);
    assert_eq!(give_up(&mut scheduler, "l0"), ["withdraw a2"]);
    assert_eq!(give_up(&mut scheduler, "l1"), ["withdraw a1"]);
    let (mut scheduler, spec) = started(&[true], |_| ());
    wait(&mut scheduler, &[spec], "l9", named("t"), 0);
    assert!(give_up(&mut scheduler, "l0").is_empty());
}

#[test]
fn an_agent_that_was_being_started_is_withdrawn_when_it_is_there() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 9)]);
    wait(&mut scheduler, &specs, "l1", named("t"), 0);
    assert_eq!(text(&scheduler.decided()), ["start 1 c/t"]);
    assert!(give_up(&mut scheduler, "l1").is_empty());
    let mut there = news(&specs[0], 8);
    there.answered = [(Size::NONE, 1)].into();
    there.agents = vec![level(&specs[0], "a1", Standing::Coming, &[])];
    scheduler.news(&there, at(1).wall);
    assert_eq!(text(&scheduler.decided()), ["withdraw a1"]);
}

// Invariant: anyone who is asked for serves, and nobody else.

#[test]
fn the_templates_of_a_mapping_are_tried_in_order_and_full_ones_skipped() {
    let (mut scheduler, configured) = scheduler(&[
        ("c/first", &[], 2),
        ("c/full", &[], 0),
        ("c/last", &[], 9),
        ("c/other", &["l"], 9),
    ]);
    scheduler.route(Routing::new(&[Arc::new(LabelMapping {
        labels: ["l".to_owned()].into(),
        priority: 0,
        templates: ["c/first", "c/full", "c/last"].map(template_id).into(),
    })]));
    for n in 0..5 {
        let asked = ask(&format!("l{n}"), labels(&["l"]), n);
        assert_eq!(scheduler.ask(&asked, &configured), Asked::New);
        scheduler.recorded(&asked.lease, true);
    }
    assert_eq!(text(&scheduler.decided()), ["start 2 c/first", "start 3 c/last"]);
}

#[test]
fn of_free_agents_the_mappings_first_is_handed_out() {
    let (mut scheduler, configured) = scheduler(&[("c/a", &["l"], 0), ("c/z", &["l"], 0)]);
    scheduler.route(Routing::new(&[Arc::new(LabelMapping {
        labels: ["l".to_owned()].into(),
        priority: 0,
        templates: ["c/z", "c/a"].map(template_id).into(),
    })]));
    for (spec, agent) in configured.iter().zip(["a1", "z1"]) {
        let mut there = news(spec, 0);
        there.agents = vec![level(spec, agent, Standing::Free { executors: 1, idle: true }, &[])];
        scheduler.news(&there, at(1).wall);
    }
    let asked = ask("l1", labels(&["l"]), 2);
    assert_eq!(scheduler.ask(&asked, &configured), Asked::New);
    scheduler.recorded(&asked.lease, true);
    assert_eq!(text(&scheduler.decided()), ["l1 on z1"]);
}

#[test]
fn an_expression_is_served_by_whatever_labels_it_holds_for() {
    let own: [(&str, &[&str], u32); 2] =
        [("c/arm", &["linux", "arm"], 8), ("c/x64", &["linux", "x64"], 8)];
    let (mut scheduler, configured) = scheduler(&own);
    let want = |text: &str| Want::Expression(LabelExpression::parse(text).unwrap());
    let unable = ask("l0", want("linux && windows"), 0);
    let Asked::Refused(refusal) = scheduler.ask(&unable, &configured) else { panic!() };
    assert_eq!(
        refusal.to_string(),
        "no template serves label expression `linux && windows`; known: `c/arm` has `arm linux`, \
         `c/x64` has `linux x64`"
    );
    let asked = ask("l1", want("linux && !arm"), 0);
    assert_eq!(scheduler.ask(&asked, &configured), Asked::New);
    scheduler.recorded(&asked.lease, true);
    assert_eq!(text(&scheduler.decided()), ["start 1 c/x64"]);
}

#[test]
fn a_want_nobody_can_serve_is_refused_with_what_is_known() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &["linux"], 9), ("d/t", &["arm"], 9)]);
    let mut refuse = |want: Want| match scheduler.ask(&ask("l1", want, 0), &specs) {
        Asked::Refused(refusal) => refusal.to_string(),
        answer @ (Asked::New | Asked::Known { .. }) => panic!("{answer:?}"),
    };
    assert_eq!(
        refuse(labels(&["windows"])),
        "no template serves labels `windows`; known: `c/t` has `linux`, `d/t` has `arm`"
    );
    assert_eq!(
        refuse(named("u")),
        "no template serves template `u`; known templates: `c/t`, `d/t`"
    );
    assert_eq!(
        refuse(named("t")),
        "template `t` is on several clouds: name one of `c/t`, `d/t`, or ask by labels"
    );
}

/// A template as it would behave, with its mailbox to and from the scheduler.
struct Model {
    spec: Arc<TemplateSpec>,
    asked: Vec<u32>,
    coming: Vec<String>,
}

proptest! {
    /// Agents on their way and starts asked for never outnumber what waits, however messages
    /// cross, as long as nobody gives up; and every ask is served in the end.
    #[test]
    fn never_more_starts_than_demand_under_any_interleaving(
        steps in prop::collection::vec((0u8..5, 0usize..2), 1..120)
    ) {
        let (mut scheduler, specs) = scheduler(&[("c/a", &["x", "a"], u32::MAX), ("c/b", &["x"], u32::MAX)]);
        let mut models: Vec<Model> = specs
            .iter()
            .map(|spec| Model { spec: spec.clone(), asked: Vec::new(), coming: Vec::new() })
            .collect();
        let (mut wanted, mut started, mut granted, mut serial) = (0, 0, 0, 0);
        let wants = [labels(&["x"]), labels(&["a"])];
        // At the end everything that is under way is let come in.
        let settle = [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1)].into_iter().cycle().take(2_000);
        for (what, which) in steps.into_iter().chain(settle) {
            let model = &mut models[which];
            match what {
                0 | 4 => {
                    wanted += 1;
                    let want = wants[which].clone();
                    wait(&mut scheduler, &specs, &format!("l{wanted}"), want, wanted);
                }
                1 if !model.asked.is_empty() => {
                    let count = model.asked.remove(0);
                    let mut reported = news(&model.spec, u32::MAX);
                    reported.answered = [(Size::NONE, count)].into();
                    for _ in 0..count {
                        serial += 1;
                        let agent = format!("a{serial}");
                        reported.agents.push(level(&model.spec, &agent, Standing::Coming, &[]));
                        model.coming.push(agent);
                    }
                    scheduler.news(&reported, at(1).wall);
                }
                2 if !model.coming.is_empty() => {
                    let agent = model.coming.remove(0);
                    let spec = model.spec.clone();
                    report(&mut scheduler, &spec, &agent, IDLE, &[]);
                }
                _ => {}
            }
            for effect in scheduler.decided() {
                match effect {
                    Effect::Start { template, size: _, count } => {
                        started += u64::from(count);
                        let of = models.iter_mut().find(|model| model.spec.id == template);
                        of.unwrap().asked.push(count);
                    }
                    Effect::HandOut { agent, ask } => {
                        granted += 1;
                        let spec = scheduler.agents.get(&agent).unwrap().spec.clone();
                        prop_assert!(Routing::default().serves(&spec, &ask.want));
                        let lease = ask.lease.to_string();
                        report(&mut scheduler, &spec, agent.as_str(), Standing::Busy, &[&lease]);
                    }
                    Effect::End { .. }
                    | Effect::Withdraw { .. }
                    | Effect::Evict { .. }
                    | Effect::Cancel { .. }
                    | Effect::Again { .. }
                    | Effect::NotServed { .. }
                    | Effect::Over { .. } => {}
                }
            }
            prop_assert!(started <= wanted, "{started} started for {wanted}");
            prop_assert!(scheduler.agents.adds_up(), "{:?}", scheduler.agents);
        }
        prop_assert_eq!(granted, wanted);
    }
}
