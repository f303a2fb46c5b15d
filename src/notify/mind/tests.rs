#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::super::words;
use super::*;

const START: i64 = 1_795_248_000_000;
const GROUP: i64 = 30;
const RECOVERY: i64 = 60;
const REPEAT: i64 = 4 * 3600;

fn settings() -> Settings {
    Settings {
        group: Duration::from_secs(GROUP.unsigned_abs()),
        recovery: Duration::from_secs(RECOVERY.unsigned_abs()),
        repeat: Some(Duration::from_secs(REPEAT.unsigned_abs())),
        page: Some("https://drover.lan".to_owned()),
        channels: Vec::new(),
    }
}

fn at(second: i64) -> WallTime {
    WallTime(START + second * 1000)
}

fn trouble(kind: Kind, name: &str) -> Trouble {
    Trouble {
        key: format!("{}/{name}", kind.word()),
        kind,
        about: format!("{} {name}", kind.word()),
        text: "login refused: check the token `drover@pve!ci`".to_owned(),
        command: format!("drover doctor --cloud {name}"),
        since: None,
        path: "/configuration".to_owned(),
    }
}

fn cloud(name: &str) -> Trouble {
    trouble(Kind::Cloud, name)
}

/// A channel, and what happened on it.
struct Scene {
    mind: Mind,
    kept: State,
    sent: Vec<(i64, Message)>,
    trouble: Option<String>,
}

impl Scene {
    fn new() -> Self {
        Self::of(State::default(), Wanted::default())
    }

    fn of(state: State, wanted: Wanted) -> Self {
        let mind = Mind::new(&settings(), ("ops", &wanted), "ops1", state.clone());
        Self { mind, kept: state, sent: Vec::new(), trouble: None }
    }

    /// Does what the mind wants; the other side answers so.
    fn carry(&mut self, second: i64, effects: Vec<Effect>, answer: &Result<(), Failure>) {
        let mut effects = effects;
        while !effects.is_empty() {
            let mut next = Vec::new();
            for effect in effects {
                match effect {
                    Effect::Keep => self.kept = self.mind.kept(),
                    Effect::Trouble(text) => self.trouble = text,
                    Effect::Send(message) => {
                        self.sent.push((second, *message));
                        let event = match answer {
                            Ok(()) => Event::Sent,
                            Err(failure) => Event::Failed(failure),
                        };
                        next = self.mind.step(&event, at(second));
                    }
                }
            }
            effects = next;
        }
    }

    fn look(&mut self, second: i64, all: &[Trouble]) {
        self.look_with(second, all, &Ok(()));
    }

    fn look_with(&mut self, second: i64, all: &[Trouble], answer: &Result<(), Failure>) {
        let effects = self.mind.step(&Event::Stands(all), at(second));
        self.carry(second, effects, answer);
    }

    /// Looks each second of a span.
    fn stands(&mut self, seconds: std::ops::Range<i64>, all: &[Trouble]) {
        seconds.for_each(|second| self.look(second, all));
    }

    /// The second and subject of each message.
    fn said(&self) -> Vec<(i64, String)> {
        self.sent.iter().map(|(second, message)| (*second, words::subject(message))).collect()
    }

    fn seconds(&self) -> Vec<i64> {
        self.sent.iter().map(|(second, _)| *second).collect()
    }

    /// Dies and starts again with what was kept.
    fn restarted(self) -> Self {
        let state = serde_json::from_slice(&serde_json::to_vec(&self.kept).unwrap()).unwrap();
        Self::of(state, Wanted::default())
    }
}

fn down(is_final: bool) -> Result<(), Failure> {
    Err(Failure { text: "the server answered 503".into(), retry_after: None, is_final })
}

// Invariant: what goes wrong within some seconds is one message, and so is its end.

#[test]
fn what_opens_within_the_group_time_is_one_message_and_what_ends_is_another() {
    let mut scene = Scene::new();
    scene.stands(0..10, &[cloud("lab")]);
    scene.stands(10..300, &[cloud("lab"), trouble(Kind::Breaker, "lab/linux"), cloud("office")]);
    scene.stands(300..320, &[cloud("office")]);
    scene.stands(320..500, &[]);
    insta::assert_debug_snapshot!(scene.said(), @r#"
    [
        (
            30,
            "[drover ops1] 3 problems: cloud lab, cloud office, breaker lab/linux",
        ),
        (
            360,
            "[drover ops1] 2 problems recovered: cloud lab, breaker lab/linux",
        ),
        (
            390,
            "[drover ops1] recovered: cloud office after 5 min",
        ),
    ]
    "#);
    assert_eq!(scene.sent.last().unwrap().1.standing, 0);
    assert_eq!(scene.kept, State { recent: scene.kept.recent.clone(), ..State::default() });
}

#[test]
fn a_storm_is_one_message_with_the_most_urgent_and_a_count() {
    let mut scene = Scene::new();
    let mut all: Vec<Trouble> = (0..500).map(|n| trouble(Kind::Agent, &n.to_string())).collect();
    all.push(cloud("lab"));
    (0..3000).step_by(15).for_each(|second| scene.look(second, &all));
    let [(_, message)] = &scene.sent[..] else { panic!("{:?}", scene.seconds()) };
    assert_eq!((message.opened.len(), message.opened_more, message.standing), (20, 481, 501));
    assert_eq!(message.opened[0].about, "cloud lab");
    assert!(words::body(message).len() < 8000);
    (3000..3200).step_by(15).for_each(|second| scene.look(second, &[]));
    assert_eq!(scene.sent.len(), 2);
    assert_eq!((scene.sent[1].1.recovered.len(), scene.sent[1].1.recovered_more), (20, 481));
}

#[test]
fn what_is_kept_of_a_storm_has_a_bound_and_its_rest_does_not_come_and_go() {
    let mut scene = Scene::new();
    let agent =
        |n: usize| Trouble { text: "x".repeat(1000), ..trouble(Kind::Agent, &n.to_string()) };
    let all: Vec<Trouble> = (0..2000).map(agent).collect();
    (0..300).step_by(30).for_each(|second| scene.look(second, &all));
    let shuffled: Vec<Trouble> = all.into_iter().rev().collect();
    (300..600).step_by(30).for_each(|second| scene.look(second, &shuffled));
    assert_eq!((scene.sent.len(), scene.sent[0].1.standing), (1, KEPT_MAX));
    assert!(serde_json::to_vec(&scene.kept).unwrap().len() < 600 << 10);
}

// Invariant: nobody is woken for what comes and goes.

#[test]
fn what_is_over_before_the_group_time_is_never_sent() {
    let mut scene = Scene::new();
    scene.stands(0..GROUP - 1, &[cloud("lab")]);
    scene.stands(GROUP - 1..1000, &[]);
    assert!(scene.sent.is_empty());
    assert_eq!(scene.kept, State::default());
}

#[test]
fn what_flaps_faster_than_the_recovery_time_is_sent_once_and_its_end_once() {
    let mut scene = Scene::new();
    for flap in 0..50 {
        scene.stands(flap * 50..flap * 50 + 10, &[cloud("lab")]);
        scene.stands(flap * 50 + 10..flap * 50 + 50, &[]);
    }
    scene.stands(2500..3000, &[]);
    // Each of its lives is shorter than the group time: only one that stands is sent.
    assert!(scene.sent.is_empty());
    let mut scene = Scene::new();
    scene.stands(0..100, &[cloud("lab")]);
    for flap in 2..50 {
        scene.stands(flap * 50..flap * 50 + 10, &[cloud("lab")]);
        scene.stands(flap * 50 + 10..flap * 50 + 50, &[]);
    }
    scene.stands(2500..3000, &[]);
    assert_eq!(scene.seconds(), [GROUP, 49 * 50 + 10 + RECOVERY]);
}

#[test]
fn what_flaps_slowly_is_held_back_by_the_rate() {
    let mut scene = Scene::new();
    for flap in 0..60 {
        scene.stands(flap * 180..flap * 180 + 60, &[cloud("lab")]);
        scene.stands(flap * 180 + 60..flap * 180 + 180, &[]);
    }
    let in_first_hour = scene.seconds().into_iter().filter(|second| *second < 3600).count();
    assert_eq!(in_first_hour, RATE);
    assert!(scene.sent.len() <= 3 * RATE, "{}", scene.sent.len());
}

// Invariant: what stands is sent again now and then, all of it at once.

#[test]
fn what_stands_is_repeated_in_one_message() {
    let mut scene = Scene::new();
    scene.stands(0..100, &[cloud("lab")]);
    (100..REPEAT * 2).step_by(5).for_each(|second| {
        scene.look(second, &[cloud("lab"), cloud("office")]);
    });
    assert_eq!(scene.seconds(), [GROUP, 130, GROUP + REPEAT]);
    assert_eq!(scene.sent[2].1.still.len(), 2);
    let mut scene = Scene::new();
    scene.mind.repeat = None;
    (0..REPEAT * 3).step_by(5).for_each(|second| scene.look(second, &[cloud("lab")]));
    assert_eq!(scene.sent.len(), 1);
}

// Invariant: a restart or another leader repeats nothing that is known to be sent.

#[test]
fn a_restart_and_a_takeover_repeat_nothing_and_send_the_recovery() {
    let mut scene = Scene::new();
    scene.stands(0..100, &[cloud("lab")]);
    assert_eq!(scene.seconds(), [GROUP]);
    let mut scene = scene.restarted();
    scene.stands(100..1000, &[cloud("lab")]);
    assert!(scene.sent.is_empty());
    // A view that fills up again: nothing is known to be wrong yet.
    let mut scene = scene.restarted();
    scene.stands(1000..1000 + RECOVERY, &[]);
    scene.stands(1000 + RECOVERY..1200, &[cloud("lab")]);
    assert!(scene.sent.is_empty());
    let mut scene = scene.restarted();
    scene.stands(1200..1400, &[]);
    assert_eq!(
        scene.said(),
        [(1320 + RECOVERY, "[drover ops1] recovered: cloud lab after 22 min".to_owned())]
    );
}

#[test]
fn a_death_between_answer_and_write_repeats_the_same_message_with_the_same_id() {
    let mut scene = Scene::new();
    scene.stands(0..GROUP, &[cloud("lab")]);
    let effects = scene.mind.step(&Event::Stands(&[cloud("lab")]), at(GROUP));
    let [Effect::Keep, Effect::Send(first)] = &effects[..] else { panic!("{effects:?}") };
    // It arrived, and drover died before it could note that.
    scene.kept = scene.mind.kept();
    let mut again = scene.restarted();
    again.look(200, &[cloud("lab")]);
    assert_eq!(again.sent[0].1.id, first.id);
    assert_eq!(again.sent[0].1.opened[0].since, first.opened[0].since);
    let mut again = again.restarted();
    again.stands(200..1000, &[cloud("lab")]);
    assert!(again.sent.is_empty());
}

#[test]
fn what_was_about_to_be_sent_before_a_death_is_sent_only_where_it_stands() {
    let mut scene = Scene::new();
    scene.stands(0..GROUP, &[cloud("lab")]);
    let effects = scene.mind.step(&Event::Stands(&[cloud("lab")]), at(GROUP));
    assert_eq!(effects.len(), 2);
    scene.kept = scene.mind.kept();
    let mut again = scene.restarted();
    again.stands(100..600, &[]);
    let [(second, message)] = &again.sent[..] else { panic!("{:?}", again.seconds()) };
    assert_eq!((*second, message.opened.len(), message.recovered.len()), (280, 0, 1));
}

#[test]
fn the_end_of_what_may_have_been_sent_is_sent() {
    let mut scene = Scene::new();
    scene.stands(0..GROUP, &[cloud("lab")]);
    scene.look_with(GROUP, &[cloud("lab")], &down(false));
    scene.stands(GROUP + 1..GROUP + 200, &[]);
    let kinds: Vec<(usize, usize)> =
        scene.sent.iter().map(|(_, one)| (one.opened.len(), one.recovered.len())).collect();
    assert_eq!(kinds, [(1, 0), (0, 1)]);
}

// Invariant: an end is sent of what is over, and not of what the service does not know yet or nobody wants.

#[test]
fn a_kind_that_a_channel_wants_no_more_does_not_recover_by_that() {
    let mut scene = Scene::new();
    let all = [cloud("lab"), trouble(Kind::Breaker, "lab/linux")];
    scene.stands(0..100, &all);
    let quiet = Wanted { quiet: [Kind::Cloud].into(), ..Wanted::default() };
    let mut scene = Scene::of(scene.kept, quiet);
    scene.stands(100..600, &all);
    assert!(scene.sent.is_empty(), "{:?}", scene.said());
    scene.stands(600..800, &[]);
    assert_eq!(scene.sent[0].1.recovered.len(), 1);
}

#[test]
fn what_was_going_before_a_restart_counts_as_standing_until_the_service_knows() {
    let mut scene = Scene::new();
    scene.stands(0..100, &[cloud("lab"), trouble(Kind::Breaker, "lab/linux")]);
    scene.stands(100..150, &[trouble(Kind::Breaker, "lab/linux")]);
    // As a message has it kept that goes out while the cloud is going.
    scene.kept = scene.mind.kept();
    let mut scene = scene.restarted();
    let second = 1000;
    scene.stands(second..second + 100, &[]);
    assert!(scene.sent.is_empty(), "{:?}", scene.said());
    scene.stands(second + 100..second + 400, &[cloud("lab")]);
    assert_eq!(scene.sent.len(), 1);
    assert_eq!(scene.sent[0].1.recovered[0].about, "breaker lab/linux");
}

#[test]
fn a_channel_that_fails_for_long_owes_ends_up_to_a_bound() {
    let mut scene = Scene::new();
    for batch in 0..30 {
        let name = |n: i64| (batch * 100 + n).to_string();
        let all: Vec<Trouble> = (0..100).map(|n| trouble(Kind::Agent, &name(n))).collect();
        for second in [batch * 1000, batch * 1000 + GROUP] {
            scene.look_with(second, &all, &down(false));
        }
    }
    assert!(scene.sent.len() >= 20, "{}", scene.sent.len());
    assert!(scene.kept.known.len() <= KEPT_MAX + 100, "{}", scene.kept.known.len());
    let failed = scene.sent.len();
    scene.stands(40_000..40_200, &[]);
    let taken = scene.sent.iter().skip(failed);
    let ends = taken.map(|(_, one)| one.recovered.len() + one.recovered_more);
    assert_eq!((ends.sum::<usize>(), scene.kept.known.len()), (KEPT_MAX, 0));
}

#[test]
fn a_message_that_may_not_go_out_any_more_is_no_failure_and_goes_out_later() {
    let mut scene = Scene::new();
    scene.stands(0..GROUP, &[cloud("lab")]);
    let effects = scene.mind.step(&Event::Stands(&[cloud("lab")]), at(GROUP));
    assert_eq!(effects.len(), 2);
    assert_eq!(scene.mind.step(&Event::Unsent, at(GROUP)), []);
    scene.look(GROUP + 1, &[cloud("lab")]);
    assert_eq!((scene.seconds(), scene.trouble), (vec![GROUP + 1], None));
}

// Invariant: a channel that fails waits longer each time, loses nothing that stands, and says so elsewhere.

#[test]
fn a_channel_that_fails_waits_longer_each_time_and_sends_what_stands_then() {
    let mut scene = Scene::new();
    for second in 0..2000 {
        scene.look_with(second, &[cloud("lab")], &down(false));
        assert_eq!(scene.trouble.is_some(), second >= GROUP + 20, "{second}");
    }
    assert_eq!(scene.seconds(), [30, 35, 50, 110, 290, 590, 1490]);
    let ids: Vec<&str> = scene.sent.iter().map(|(_, one)| one.id.as_str()).collect();
    assert!(ids.iter().all(|id| id == &ids[0]), "{ids:?}");
    scene.stands(2000..2600, &[cloud("lab"), cloud("office")]);
    assert_eq!((scene.sent.len(), scene.sent[7].1.opened.len()), (8, 2));
    assert_eq!(scene.trouble, None);
}

#[test]
fn a_refusal_that_stays_is_a_trouble_at_once_and_a_wait_that_is_asked_for_is_kept() {
    let mut scene = Scene::new();
    scene.stands(0..GROUP, &[cloud("lab")]);
    scene.look_with(GROUP, &[cloud("lab")], &down(true));
    assert_eq!(scene.trouble.as_deref(), Some("the server answered 503"));
    let mut scene = Scene::new();
    scene.stands(0..GROUP, &[cloud("lab")]);
    let retry_after = Some(Duration::from_secs(120));
    let busy = Failure { retry_after, ..down(false).unwrap_err() };
    scene.look_with(GROUP, &[cloud("lab")], &Err(busy));
    scene.stands(GROUP + 1..500, &[cloud("lab")]);
    assert_eq!((scene.seconds(), scene.trouble), (vec![GROUP, GROUP + 120], None));
}

#[test]
fn a_channel_does_not_send_its_own_trouble() {
    let mut scene = Scene::new();
    let (own, other) = (trouble(Kind::Channel, "ops"), trouble(Kind::Channel, "mail"));
    scene.stands(0..100, &[own, other]);
    assert_eq!(scene.sent[0].1.opened.len(), 1);
    assert_eq!(scene.sent[0].1.opened[0].about, "channel mail");
}

#[test]
fn a_channel_sends_the_kinds_that_it_wants_and_not_the_quiet_ones() {
    let all = [cloud("lab"), trouble(Kind::Image, "debian"), trouble(Kind::Git, "x")];
    for (kinds, quiet, count) in [
        (vec![], vec![], 3),
        (vec![Kind::Cloud], vec![], 1),
        (vec![], vec![Kind::Git], 2),
        (vec![Kind::Cloud, Kind::Git], vec![Kind::Git], 1),
    ] {
        let wanted =
            Wanted { kinds: kinds.into_iter().collect(), quiet: quiet.into_iter().collect() };
        let mut scene = Scene::of(State::default(), wanted);
        scene.stands(0..100, &all);
        assert_eq!(scene.sent[0].1.opened.len(), count);
    }
}

// Invariant: a clock that is set back or forward delays no message for long and repeats none.

#[test]
fn a_clock_that_is_set_back_by_a_day_delays_nothing() {
    let day = 86_400;
    let mut scene = Scene::new();
    scene.stands(0..100, &[cloud("lab")]);
    scene.stands(-day..-day + 200, &[cloud("lab"), cloud("office")]);
    assert_eq!(scene.seconds(), [GROUP, -day + GROUP]);
    scene.stands(-day + 200..-day + 300, &[]);
    assert_eq!(scene.seconds(), [GROUP, -day + GROUP, -day + 200 + RECOVERY]);
    // Set back while it waits after a failure: it waits so long again at most.
    let mut scene = Scene::new();
    scene.stands(0..GROUP, &[cloud("lab")]);
    scene.look_with(GROUP, &[cloud("lab")], &down(false));
    (0..100).for_each(|second| scene.look(second - day, &[cloud("lab")]));
    assert_eq!(scene.seconds(), [GROUP, GROUP - day]);
}

// Invariant: messages read well, and hold what their schema says.

#[test]
fn texts_say_what_since_when_what_to_do_and_where_to_look() {
    let mut scene = Scene::new();
    let since = Some(at(-7500));
    let office = Trouble { since, text: "no route\nto host\u{1b}[31m".into(), ..cloud("office") };
    scene.stands(0..100, &[cloud("lab"), office.clone()]);
    scene
        .stands(100..200, &[office, Trouble { command: String::new(), ..trouble(Kind::Git, "x") }]);
    let all: Vec<String> = scene
        .sent
        .iter()
        .map(|(_, one)| format!("{}\n\n{}", words::subject(one), words::body(one)))
        .collect();
    insta::assert_snapshot!(all.join("=====\n"), @r#"
    [drover ops1] 2 problems: cloud office, cloud lab

    NEW: 2

    cloud office (cloud, critical)
      no route to host [31m
      since 2026-11-21 05:55 UTC: 2 h 5 min
      run: drover doctor --cloud office
      see: https://drover.lan/configuration

    cloud lab (cloud, critical)
      login refused: check the token `drover@pve!ci`
      since 2026-11-21 08:00 UTC: 30 s
      run: drover doctor --cloud lab
      see: https://drover.lan/configuration

    2 problems stand now: `drover status` shows them.
    https://drover.lan/
    drover on ops1, 2026-11-21 08:00 UTC. Channel ops, message 54e4a9632ea7b624.
    =====
    [drover ops1] git x: login refused: check the token `drover@pve!ci`

    NEW: 1

    git x (git, warning)
      login refused: check the token `drover@pve!ci`
      since 2026-11-21 08:01 UTC: 30 s
      see: https://drover.lan/configuration

    2 problems stand now: `drover status` shows them.
    https://drover.lan/
    drover on ops1, 2026-11-21 08:02 UTC. Channel ops, message 517a2b07667cf7ff.
    =====
    [drover ops1] recovered: cloud lab after 1 min

    RECOVERED: 1

    cloud lab (cloud, critical)
      was: login refused: check the token `drover@pve!ci`
      from 2026-11-21 08:00 UTC to 2026-11-21 08:01 UTC: 1 min

    2 problems stand now: `drover status` shows them.
    https://drover.lan/
    drover on ops1, 2026-11-21 08:02 UTC. Channel ops, message d0d96e7d56354dae.
    "#);
    insta::assert_snapshot!(serde_json::to_string_pretty(&scene.sent[1].1.json()).unwrap(), @r#"
    {
      "at": "2026-11-21T08:02:10Z",
      "channel": "ops",
      "from": "ops1",
      "id": "517a2b07667cf7ff",
      "opened": [
        {
          "about": "git x",
          "command": "",
          "kind": "git",
          "link": "https://drover.lan/configuration",
          "severity": "warning",
          "since": "2026-11-21T08:01:40Z",
          "text": "login refused: check the token `drover@pve!ci`",
          "until": null
        }
      ],
      "openedMore": 0,
      "page": "https://drover.lan",
      "recovered": [],
      "recoveredMore": 0,
      "severity": "warning",
      "standing": 2,
      "stillStanding": [],
      "stillStandingMore": 0,
      "subject": "[drover ops1] git x: login refused: check the token `drover@pve!ci`",
      "test": false,
      "text": "NEW: 1\n\ngit x (git, warning)\n  login refused: check the token `drover@pve!ci`\n  since 2026-11-21 08:01 UTC: 30 s\n  see: https://drover.lan/configuration\n\n2 problems stand now: `drover status` shows them.\nhttps://drover.lan/\ndrover on ops1, 2026-11-21 08:02 UTC. Channel ops, message 517a2b07667cf7ff.\n",
      "version": 1
    }
    "#);
    let test = test_message(&settings(), "ops", "ops1", at(0));
    insta::assert_snapshot!(format!("{}\n\n{}", words::subject(&test), words::body(&test)), @r#"
    [drover ops1] a test of channel ops

    This is a test. Nothing is wrong: somebody ran `drover notify test`.

    https://drover.lan/
    drover on ops1, 2026-11-21 08:00 UTC. Channel ops, message 77e24e518e537e6e.
    "#);
}
