//! Jobs and leases that ask for agents of another size than their template's.

use drover_model::demand::spec::ShareSpec;
use drover_model::id::SourceId;
use drover_model::size::{SizeLabel, SizeLabels};
use drover_model::tenant::{Quota, Whose};

use super::sources::source;
use super::*;
use crate::demand::Level;

fn cores(cores: u32) -> Size {
    Size { cores: Some(cores), ..Size::NONE }
}

/// A template of two cores that gives up to 16, with this cap.
fn sizable(id: &str, cap: u32) -> Arc<TemplateSpec> {
    let mut spec = template(id, &["linux"]);
    (spec.cores, spec.cap) = (Some(2), Some(cap));
    let cpu = SizeLabel { label: "cpu".into(), min: 1, max: 16 };
    spec.size_labels = SizeLabels { cores: Some(cpu), ..SizeLabels::default() };
    Arc::new(spec)
}

fn one(spec: &Arc<TemplateSpec>, room: u32) -> (Scheduler, Vec<Arc<TemplateSpec>>) {
    let mut scheduler = Scheduler::default();
    scheduler.cloud(&spec.id.cloud, u32::MAX);
    scheduler.news(&news(spec, room), at(0).wall);
    (scheduler, vec![spec.clone()])
}

fn sized(spec: &Arc<TemplateSpec>, cores_of: u32) -> Arc<TemplateSpec> {
    Arc::new(spec.sized(cores(cores_of)))
}

// Invariant: who asks for a size gets an agent of that size, and nobody else does.

#[test]
fn agents_of_each_size_are_started_for_those_who_ask_for_it() {
    let (mut scheduler, specs) = one(&sizable("c/t", 9), 9);
    wait(&mut scheduler, &specs, "l1", labels(&["linux", "cpu=8"]), 0);
    wait(&mut scheduler, &specs, "l2", labels(&["linux"]), 1);
    wait(&mut scheduler, &specs, "l3", named("t").of_size(cores(8)), 2);
    wait(&mut scheduler, &specs, "l4", labels(&["linux", "cpu=2"]), 3);
    assert_eq!(text(&scheduler.decided()), ["start 2 c/t", "start 2 c/t with 8 cores"]);
    assert!(scheduler.decided().is_empty(), "they are on their way");
    scheduler.not_started(&specs[0].id, cores(8), 1);
    assert_eq!(text(&scheduler.decided()), ["start 1 c/t with 8 cores"]);
    let mut there = news(&specs[0], 5);
    there.answered = [(cores(8), 2), (Size::NONE, 2)].into();
    there.agents = vec![
        level(&sized(&specs[0], 8), "a1", Standing::Coming, &[]),
        level(&sized(&specs[0], 8), "a2", IDLE, &[]),
        level(&specs[0], "a3", Standing::Coming, &[]),
        level(&specs[0], "a4", IDLE, &[]),
    ];
    scheduler.news(&there, at(1).wall);
    assert_eq!(text(&scheduler.decided()), ["l1 on a2", "l2 on a4"]);
    report(&mut scheduler, &sized(&specs[0], 8), "a2", Standing::Busy, &["l1"]);
    report(&mut scheduler, &specs[0], "a4", Standing::Busy, &["l2"]);
    report(&mut scheduler, &sized(&specs[0], 8), "a1", IDLE, &[]);
    report(&mut scheduler, &specs[0], "a3", IDLE, &[]);
    assert_eq!(text(&scheduler.decided()), ["l3 on a1", "l4 on a3"]);
}

#[test]
fn the_agent_of_a_lease_that_was_given_up_is_taken_back_by_its_size() {
    let (mut scheduler, specs) = one(&sizable("c/t", 9), 9);
    wait(&mut scheduler, &specs, "l1", labels(&["linux", "cpu=8"]), 0);
    wait(&mut scheduler, &specs, "l2", labels(&["linux"]), 0);
    scheduler.decided();
    let mut there = news(&specs[0], 7);
    there.answered = [(cores(8), 1), (Size::NONE, 1)].into();
    there.agents = vec![
        level(&sized(&specs[0], 8), "a1", Standing::Coming, &[]),
        level(&specs[0], "a2", Standing::Coming, &[]),
    ];
    scheduler.news(&there, at(1).wall);
    scheduler.stepped(Event::Release(LeaseId::new("l1")));
    scheduler.stepped(Event::Cancelled(LeaseId::new("l1"), true));
    assert_eq!(text(&scheduler.decided()), ["withdraw a1"]);
}

#[test]
fn jobs_of_a_source_get_their_sizes_by_labels() {
    let (mut scheduler, specs) = one(&sizable("c/t", 9), 9);
    scheduler.shares(ShareSpec::default(), std::iter::once(source("git", ShareSpec::default())));
    let level_of = |want: &[&str]| Level { want: labels(want), since: vec![at(0).wall] };
    let levels = vec![level_of(&["linux", "cpu=4"]), level_of(&["linux", "cpu=64"])];
    let configured = specs.iter().map(|spec| (spec.id.clone(), spec.clone())).collect();
    let (inside, outside) = scheduler.admit(None, levels, &configured);
    assert_eq!((inside.len(), outside.len()), (1, 1));
    assert_eq!(outside[0].lacks, "template `c/t` gives 1 to 16 cores (`sizeLabels`), not 64");
    let git = SourceId::new("git");
    scheduler.demanded(&git, inside, std::iter::empty());
    assert_eq!(text(&scheduler.decided()), ["start 1 c/t with 4 cores"]);
    let mut there = news(&specs[0], 8);
    there.answered = [(cores(4), 1)].into();
    there.agents = vec![level(&sized(&specs[0], 4), "a1", IDLE, &[])];
    scheduler.news(&there, at(1).wall);
    assert_eq!(text(&scheduler.decided()), ["use1 on a1"]);
    report(&mut scheduler, &sized(&specs[0], 4), "a1", Standing::Busy, &["use1"]);
    assert!(scheduler.decided().is_empty(), "its runner covers the job");
}

#[test]
fn a_mapping_and_a_fallback_give_the_sizes_of_their_templates() {
    let (t, u) = (sizable("c/t", 9), Arc::new(template("c/u", &["linux"])));
    let mut led = (*sizable("c/led", 9)).clone();
    (led.labels, led.fallbacks) = (["own".to_owned()].into(), vec![t.id.clone(), u.id.clone()]);
    let led = Arc::new(led);
    let specs = [t.clone(), u.clone(), led.clone()];
    let mapping = LabelMapping {
        labels: ["gpu".to_owned()].into(),
        priority: 0,
        templates: vec![u.id.clone(), t.id.clone()],
    };
    let routing = Routing::new(&[Arc::new(mapping)]).with(specs.iter());
    let fit = |spec: &TemplateSpec, want: &[&str]| {
        routing.fit(spec, &labels(want)).map(|fit| (fit.rank, fit.size))
    };
    assert_eq!(fit(&t, &["gpu", "cpu=8"]), Some((1, cores(8))));
    assert_eq!(fit(&u, &["gpu", "cpu=8"]), None, "its size is what it is");
    assert_eq!(fit(&u, &["gpu"]), Some((0, Size::NONE)));
    let stand_in = |spec: &TemplateSpec, want: &[&str]| {
        let fit = routing.fallback(spec, &labels(want), |id| *id == led.id);
        fit.map(|fit| fit.size)
    };
    assert_eq!(stand_in(&t, &["own", "cpu=8"]), Some(cores(8)));
    assert_eq!(stand_in(&t, &["own"]), Some(Size::NONE));
    assert_eq!(stand_in(&u, &["own"]), Some(Size::NONE));
    assert_eq!(stand_in(&u, &["own", "cpu=8"]), None);
    assert_eq!(stand_in(&sized(&t, 8), &["own"]), None, "an agent of another size does not");
}

// Invariant: a size beyond the limits is refused with what would do, and quotas count the real size.

#[test]
fn a_size_beyond_the_limits_is_refused_with_the_limits() {
    let (mut scheduler, specs) = one(&sizable("c/t", 9), 9);
    for (want, text) in [
        (
            labels(&["linux", "cpu=64"]),
            "no template serves labels `cpu=64`, `linux`: template `c/t` gives 1 to 16 cores \
             (`sizeLabels`), not 64",
        ),
        (
            named("t").of_size(cores(64)),
            "no template serves template `t` with 64 cores: template `c/t` gives 1 to 16 cores \
             (`sizeLabels`), not 64",
        ),
        (
            labels(&["linux", "cpu=lots"]),
            "no template serves labels `cpu=lots`, `linux`: template `c/t` cannot read `cpu=lots`: \
             write it such as `cpu=8`",
        ),
    ] {
        let refused = Asked::Refused(Refusal::Unknown(text.into()));
        assert_eq!(scheduler.ask(&ask("l1", want, 0), &specs), refused);
    }
}

#[test]
fn a_quota_counts_the_size_that_is_asked_for() {
    let (mut scheduler, specs) = one(&sizable("c/t", 9), 9);
    let whose = Whose::Principal(ask("l", named("t"), 0).principal);
    let (leases, waiting, memory_mb, disk_gb) = (None, None, None, None);
    let quota = Quota { whose, leases, waiting, cores: Some(4), memory_mb, disk_gb };
    scheduler.limit(LeaseLimits { quotas: vec![quota], ..LeaseLimits::default() });
    let asked = scheduler.ask(&ask("l1", labels(&["linux", "cpu=8"]), 0), &specs);
    let Asked::Refused(Refusal::Forbidden(text)) = asked else { panic!("{asked:?}") };
    assert!(text.contains("has 8 cores, and `maxCores`"), "{text}");
    assert_eq!(scheduler.ask(&ask("l2", labels(&["linux", "cpu=4"]), 0), &specs), Asked::New);
}

// Invariant: idle agents of one size keep nobody from another size, those of the warm pool neither.

#[test]
fn an_idle_agent_of_another_size_makes_room_in_a_full_template() {
    let (mut scheduler, specs) = one(&sizable("c/t", 2), 0);
    let mut full = news(&specs[0], 0);
    full.live = 2;
    full.agents =
        vec![level(&specs[0], "a1", IDLE, &[]), level(&sized(&specs[0], 8), "a2", IDLE, &[])];
    scheduler.news(&full, at(0).wall);
    wait(&mut scheduler, &specs, "l1", labels(&["linux", "cpu=4"]), 0);
    assert_eq!(text(&scheduler.decided()), ["evict a2"], "that of the pool goes last");
    assert!(scheduler.decided().is_empty(), "one goes for one");
    wait(&mut scheduler, &specs, "l2", labels(&["linux", "cpu=4"]), 0);
    assert_eq!(text(&scheduler.decided()), ["evict a1"]);
}

#[test]
fn the_warm_pool_makes_room_where_it_fills_its_template_and_goes_last() {
    let mut spec = (*sizable("c/t", 2)).clone();
    (spec.minimum, spec.idle_minimum) = (2, 1);
    let (mut scheduler, specs) = one(&Arc::new(spec), 0);
    let mut full = news(&specs[0], 0);
    full.live = 2;
    full.agents =
        vec![level(&specs[0], "a1", IDLE, &[]), level(&sized(&specs[0], 8), "a2", IDLE, &[])];
    scheduler.news(&full, at(0).wall);
    wait(&mut scheduler, &specs, "l1", labels(&["linux", "cpu=4"]), 0);
    assert_eq!(text(&scheduler.decided()), ["evict a2"]);
    wait(&mut scheduler, &specs, "l2", labels(&["linux", "cpu=4"]), 0);
    assert_eq!(text(&scheduler.decided()), ["evict a1"], "somebody is there, the pool waits");
    assert!(scheduler.decided().is_empty(), "one goes for one");
}

// Invariant: a size that has no place stands in nobody's way.

#[test]
fn a_size_without_a_place_waits_alone_and_says_why() {
    let (mut scheduler, specs) = one(&sizable("c/t", 9), 9);
    let mut paused = news(&specs[0], 9);
    paused.unplaced = [(cores(16), "node pve1: no room".to_owned())].into();
    scheduler.news(&paused, at(0).wall);
    wait(&mut scheduler, &specs, "l1", labels(&["linux", "cpu=16"]), 0);
    wait(&mut scheduler, &specs, "l2", labels(&["linux", "cpu=8"]), 1);
    assert_eq!(text(&scheduler.decided()), ["start 1 c/t with 8 cores"]);
    let templates = specs.iter().map(|spec| (spec.id.clone(), spec.clone())).collect();
    let (clouds, trouble) = (BTreeMap::new(), BTreeMap::new());
    let ground = crate::scheduler::waiting::Ground {
        templates: &templates,
        clouds: &clouds,
        trouble: &trouble,
        images: BTreeMap::new(),
    };
    assert_eq!(
        scheduler.why(&labels(&["linux", "cpu=16"]), &ground),
        "c/t has no place for an agent with 16 cores, and drover tries again: node pve1: no room"
    );
    scheduler.news(&news(&specs[0], 8), at(1).wall);
    assert_eq!(text(&scheduler.decided()), ["start 1 c/t with 16 cores"]);
}

// Invariant: after a reload a template gives what it says then, and its agents are what they are.

#[test]
fn a_reload_back_to_a_known_spec_gives_sizes_again() {
    let old = sizable("c/t", 9);
    let (mut scheduler, specs) = one(&old, 9);
    report(&mut scheduler, &old, "a1", Standing::Busy, &[]);
    let bare = Arc::new(TemplateSpec { size_labels: SizeLabels::default(), ..(*old).clone() });
    wait(&mut scheduler, &specs, "l1", labels(&["linux", "cpu=8"]), 0);
    scheduler.news(&news(&bare, 9), at(0).wall);
    assert!(scheduler.decided().is_empty(), "it gives no size any more");
    scheduler.news(&news(&old, 9), at(0).wall);
    assert_eq!(text(&scheduler.decided()), ["start 1 c/t with 8 cores"]);
}
