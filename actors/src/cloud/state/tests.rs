//! The cloud's mind: its cap and its health.
use drover_model::fault::{Culprit, Fault, FaultKind};
use proptest::prelude::*;

use super::*;
use crate::effort;
use crate::template::TemplateNews;
use crate::testing::{self, CLUSTER, at, cloud, observation, template_id, unreachable};

mod table;

fn well(cap: Option<u32>) -> CloudMind {
    let mut mind = CloudMind::new(CloudId::new("c"), None, Some(ClusterId::new(CLUSTER)));
    mind.applied(Some(Arc::new(cloud("c", cap))));
    mind.identified(Ok(observation(CLUSTER)), at(0).wall);
    mind
}

fn news(template: &str, live: u32, released: u32) -> TemplateNews {
    let spec = Arc::new(testing::template(template, &[]));
    TemplateNews { live, empty: live == 0, released, ..testing::news(&spec, u32::MAX) }
}

/// Steps of the mind as the tests speak of them.
impl CloudMind {
    /// Whether it is asked at once.
    pub(super) fn applied(&mut self, spec: Option<Arc<CloudSpec>>) -> bool {
        self.effects_of(Event::Applied(spec), at(0), 0).contains(&Effect::Ask)
    }

    pub(super) fn identified(
        &mut self,
        observation: Result<ClusterObservation, Fault>,
        wall: WallTime,
    ) -> Vec<Effect> {
        let event = Event::Identified { stamp: self.stamp(), observation };
        self.effects_of(event, Now { wall, ..at(0) }, 0)
    }

    fn pin_written(
        &mut self,
        cluster: ClusterId,
        written: Result<(), String>,
        wall: WallTime,
    ) -> Vec<Effect> {
        let event = Event::PinWritten { stamp: self.stamp(), cluster, written };
        self.effects_of(event, Now { wall, ..at(0) }, 0)
    }

    pub(super) fn stop(&mut self) {
        self.effects_of(Event::Stopped, at(0), 0);
    }

    fn news(&mut self, news: &TemplateNews) {
        let (template, live, released) = (news.template.clone(), news.live, news.released);
        let over = news.empty && !news.configured;
        self.effects_of(Event::News { template, live, released, over }, at(0), 0);
    }

    fn warm_need(&mut self, template: &TemplateId, count: u32) {
        let template = template.clone();
        self.effects_of(Event::WarmNeed { template, count }, at(0), 0);
    }

    fn warm_grants(&mut self) -> Vec<(TemplateId, u32)> {
        let effects = self.effects_of(Event::Settle, at(0), 0);
        let grant = |effect| {
            let Effect::Begin { template, reserved, asked: None } = effect else {
                panic!("no warm pool: {effect:?}");
            };
            (template, reserved)
        };
        effects.into_iter().map(grant).collect()
    }

    fn adds_up(&self) -> bool {
        [&self.live, &self.reserved, &self.warm].into_iter().all(Counts::adds_up)
    }
}

/// What it costs to provision ten agents of each of so many templates with warm pools.
fn cost_of(templates: u32) -> u64 {
    let names: Vec<String> = (0..templates).map(|n| format!("c/t{n:05}")).collect();
    let mut mind = well(Some(templates * 10));
    effort::of(|| {
        for name in &names {
            mind.warm_need(&template_id(name), 10);
            mind.warm_grants();
        }
        for live in 1..=10 {
            for name in &names {
                mind.news(&news(name, live, 1));
                mind.warm_grants();
                mind.room();
                mind.status(None);
            }
        }
        assert_eq!((mind.live(), mind.room()), (templates * 10, 0));
    })
}

// Invariant: what a cloud costs grows as its agents do.

#[test]
fn ten_times_the_templates_cost_ten_times_the_looks() {
    let (few, many) = (cost_of(10), cost_of(100));
    assert!(few > 0 && many <= 12 * few, "{few} looks for 100 agents, {many} for 1,000");
}

// Invariant: nothing is started on a cloud that is not known to be well.

#[test]
fn a_new_cloud_is_pinned_before_it_is_used() {
    let mut mind = CloudMind::new(CloudId::new("c"), None, None);
    assert!(mind.applied(Some(Arc::new(cloud("c", None)))));
    let cluster = ClusterId::new(CLUSTER);
    assert_eq!(
        mind.identified(Ok(observation(CLUSTER)), at(0).wall),
        [Effect::Pin(cluster.clone())]
    );
    assert_eq!(mind.room(), 0);
    let effects = mind.pin_written(cluster.clone(), Ok(()), at(0).wall);
    assert_eq!(effects.first(), Some(&Effect::Leads(cluster)));
    assert_eq!((mind.room(), mind.state()), (u32::MAX, Ok("8.4.21".into())));
}

#[test]
fn another_cluster_behind_the_same_key_is_an_alarm_and_nothing_is_done() {
    let mut mind = well(None);
    let effects = mind.identified(Ok(observation("0000000000000000")), at(0).wall);
    let elsewhere = Effect::Elsewhere(ClusterId::new("0000000000000000"));
    assert_eq!(effects, [Effect::AskAgain(Duration::from_secs(1)), elsewhere]);
    assert_eq!(mind.room(), 0);
    let why = mind.state().err().unwrap_or_default();
    assert!(why.contains("`0000000000000000` now, and led to `9f31c0aa52e7d410` before"), "{why}");
}

/// The pauses after so many answers like this one, in seconds.
fn pauses(mind: &mut CloudMind, fault: &Fault) -> Vec<u64> {
    let all = (0..7).flat_map(|second| mind.identified(Err(fault.clone()), at(second).wall));
    let pause = |effect| match effect {
        Effect::AskAgain(pause) => Some(pause.as_secs()),
        Effect::Pin(_)
        | Effect::Leads(_)
        | Effect::Elsewhere(_)
        | Effect::Ask
        | Effect::AskIn(_)
        | Effect::Begin { .. }
        | Effect::Provision { .. }
        | Effect::Refuse => None,
    };
    all.filter_map(pause).collect()
}

#[test]
fn a_silent_cloud_is_asked_again_every_few_seconds_and_a_refused_login_less_often() {
    let mut mind = well(None);
    assert_eq!(pauses(&mut mind, &unreachable("c")), [1, 2, 4, 4, 4, 4, 4]);
    let since = at(0).wall.rfc3339();
    let reported = format!("nothing has been started since {since}: no endpoint answers");
    assert_eq!(mind.state(), Err(reported), "it says since when, and not when it was asked last");
    let denied = FaultKind::Denied { privilege: None, path: None };
    let refused = Fault::new(denied, Culprit::Cloud(CloudId::new("c")), "no login");
    assert_eq!(pauses(&mut well(None), &refused), [1, 2, 4, 8, 15, 15, 15]);
}

#[test]
fn a_cloud_is_degraded_since_before_a_start_until_it_is_well() {
    let mut mind = CloudMind::new(CloudId::new("c"), None, Some(ClusterId::new(CLUSTER)));
    mind = mind.degraded_from(Some(at(5).wall));
    mind.applied(Some(Arc::new(cloud("c", None))));
    assert_eq!(mind.degraded_since(), Some(at(5).wall), "nothing is known yet");
    let reported = |mind: &CloudMind| mind.state().err().unwrap_or_default();
    mind.identified(Err(unreachable("c")), at(100).wall);
    let since = format!("since {}", at(5).wall.rfc3339());
    assert!(reported(&mind).contains(&since), "{}", reported(&mind));
    assert_eq!(mind.fresh().degraded_since(), Some(at(5).wall));
    mind.identified(Ok(observation(CLUSTER)), at(200).wall);
    assert_eq!(mind.degraded_since(), None);
    mind.identified(Err(unreachable("c")), at(300).wall);
    assert_eq!(mind.degraded_since(), Some(at(300).wall));
    mind.applied(None);
    assert_eq!(mind.degraded_since(), None, "it is not configured any more");
}

#[test]
fn a_cluster_without_quorum_is_not_used() {
    let mut mind = well(None);
    let mut lone = observation(CLUSTER);
    lone.quorate = false;
    mind.identified(Ok(lone), at(7).wall);
    assert_eq!(mind.room(), 0);
    let since = at(7).wall.rfc3339();
    let reported = format!(
        "cluster `{CLUSTER}` has no quorum since {since}: nothing is started (`pvecm status` on a node says who is missing)"
    );
    assert_eq!(mind.state(), Err(reported));
}

#[test]
fn only_a_changed_connection_makes_it_ask_again() {
    let mut mind = well(Some(3));
    assert!(!mind.applied(Some(Arc::new(cloud("c", Some(9))))));
    assert_eq!(mind.room(), 9);
    let mut other = cloud("c", Some(9));
    other.connection = 2;
    assert!(mind.applied(Some(Arc::new(other))));
    assert_eq!(mind.room(), 0);
}

// Invariant: reservations keep the cap until the template's news settles them.

#[test]
fn two_templates_share_the_cap() {
    let mut mind = well(Some(3));
    assert_eq!(mind.reserve(&template_id("c/a"), 2), 2);
    assert_eq!(mind.reserve(&template_id("c/b"), 2), 1);
    mind.news(&news("c/a", 1, 2));
    assert_eq!(mind.room(), 1);
}

#[test]
fn whatever_keeps_a_cloud_from_taking_more_is_named() {
    let mut full = well(Some(3));
    full.news(&news("c/t", 2, 0));
    assert_eq!(full.reserve(&template_id("c/t"), 5), 1);
    assert_eq!(full.shortage(), "cloud c is full: 3 of 3");
    let mut silent = well(None);
    silent.identified(Err(unreachable("c")), at(0).wall);
    let since = at(0).wall.rfc3339();
    let reported = format!("cloud c: nothing has been started since {since}: no endpoint answers");
    assert_eq!(silent.shortage(), reported);
    silent.applied(None);
    assert_eq!(silent.shortage(), "cloud c is not configured any more");
    full.stop();
    assert_eq!(full.shortage(), "the service is stopping");
}

#[test]
fn warm_pools_are_served_as_room_appears() {
    let mut mind = well(Some(2));
    mind.news(&news("c/a", 2, 0));
    mind.warm_need(&template_id("c/b"), 2);
    assert!(mind.warm_grants().is_empty());
    mind.news(&news("c/a", 1, 0));
    assert_eq!(mind.warm_grants(), [(template_id("c/b"), 1)]);
    assert!(mind.warm_grants().is_empty());
}

proptest! {
    /// Each template begins at most what was reserved for it, at any later time; the cap holds.
    #[test]
    fn the_cap_is_never_exceeded_under_any_interleaving(
        steps in prop::collection::vec((0u8..5, 0usize..3, 0u32..5), 1..200)
    ) {
        let mut mind = well(Some(6));
        let names = ["c/a", "c/b", "c/d"];
        let mut inbox: [Vec<u32>; 3] = Default::default();
        let mut outbox: [Vec<TemplateNews>; 3] = Default::default();
        let mut live = [0u32; 3];
        for (what, which, count) in steps {
            match what {
                0 => {
                    let granted = mind.reserve(&template_id(names[which]), count);
                    if granted > 0 {
                        inbox[which].push(granted);
                    }
                }
                1 if !inbox[which].is_empty() => {
                    let reserved = inbox[which].remove(0);
                    live[which] += reserved.min(count);
                    outbox[which].push(news(names[which], live[which], reserved));
                }
                2 if live[which] > 0 => {
                    live[which] -= 1;
                    outbox[which].push(news(names[which], live[which], 0));
                }
                4 => {
                    mind.warm_need(&template_id(names[which]), count);
                    for (template, granted) in mind.warm_grants() {
                        let which = names.iter().position(|name| template_id(name) == template);
                        inbox[which.unwrap_or(0)].push(granted);
                    }
                }
                _ if !outbox[which].is_empty() => {
                    let news = outbox[which].remove(0);
                    mind.news(&news);
                }
                _ => {}
            }
            prop_assert!(live.iter().sum::<u32>() <= 6, "{live:?}");
            prop_assert!(mind.adds_up(), "{mind:?}");
        }
    }
}
