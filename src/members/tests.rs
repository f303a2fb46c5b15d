//! Members in virtual time: each has a clock of its own, and a register between them that answers late, loses
//! answers, or does not answer.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::VecDeque;
use std::time::Duration;

use drover_model::ambient::Dice;
use drover_model::time::{Moment, Now, WallTime};
use drover_vault::{MemoryRegister, Register as _, Version};

use super::lease::NAME;
use super::{Effect, Leader, LeaderLease, Mind, Settings, Step};

const HOLD: Duration = Duration::from_secs(5);

fn settings(name: &str) -> Settings {
    let me = Leader {
        name: name.to_owned(),
        process: format!("{name}-1"),
        url: format!("http://{name}:8080"),
    };
    Settings {
        me,
        hold: HOLD,
        config: "c1".to_owned(),
        held: Vec::new(),
        replaces: None,
        unfit: None,
    }
}

/// What became of a call to the register.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Luck {
    Answered,
    /// It was done at once, and its answer takes its time.
    Late,
    /// It was done, and no answer came.
    Lost,
    /// It was not done.
    Refused,
}

/// A call that is under way.
struct Call {
    /// When it ends, by the world's clock.
    ends: u64,
    step: Step,
    sent: Now,
    luck: Luck,
    /// What a write came to that was done at once.
    written: Option<Option<Version>>,
}

/// A member and its clocks, in milliseconds of the world.
struct Member {
    mind: Mind,
    /// How far its monotonic clock is, at the world's zero.
    mono: u64,
    wall: i64,
    /// How fast its clocks run, in thousandths.
    speed: u64,
    /// Until when it is paused, by the world's clock.
    paused: u64,
    calling: Option<Call>,
    /// What becomes of its next writes, and how long they take.
    plans: VecDeque<(Luck, u64)>,
    send_by: Option<Now>,
    term: Option<u64>,
}

impl Member {
    fn new(name: &str, mono: u64, wall: i64, speed: u64) -> Self {
        let mind = Mind::new(settings(name));
        let (paused, calling, plans) = (0, None, VecDeque::new());
        Self { mind, mono, wall, speed, paused, calling, plans, send_by: None, term: None }
    }

    fn now(&self, world: u64) -> Now {
        let run = world * self.speed / 1000;
        Now {
            mono: Moment(self.mono + run),
            wall: WallTime(self.wall + i64::try_from(run).unwrap()),
        }
    }

    /// Whether it would send at this moment: it is not paused, and its gate is open.
    fn sends(&self, world: u64) -> bool {
        let now = self.now(world);
        let open = self.send_by.is_some_and(|until| now.mono < until.mono && now.wall < until.wall);
        self.paused <= world && open && self.term.is_some()
    }

    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Leads { term, .. } => self.term = Some(term),
                Effect::Extends(until) => self.send_by = Some(until),
                Effect::Stops => self.send_by = None,
                Effect::Ends(_) => (self.term, self.send_by) = (None, None),
            }
        }
    }
}

/// A world of members on one register.
struct World {
    now: u64,
    members: Vec<Member>,
    register: MemoryRegister,
    seed: u64,
    dice: Dice,
    /// Whether the register can be reached.
    up: bool,
    /// How many of a hundred calls go wrong.
    faults: u64,
}

impl World {
    fn new(seed: u64, members: Vec<Member>) -> Self {
        let register = MemoryRegister::default();
        let dice = Dice::from_number(seed);
        Self { now: 0, members, register, seed, dice, up: true, faults: 0 }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.dice.draw() % below
    }

    fn luck(&mut self) -> Luck {
        match (self.up, self.draw(100) < self.faults, self.draw(3)) {
            (false, _, _) | (true, true, 0) => Luck::Refused,
            (true, true, 1) => Luck::Late,
            (true, true, _) => Luck::Lost,
            (true, false, _) => Luck::Answered,
        }
    }

    /// What becomes of a call by chance, and how long it takes: some milliseconds, and seconds where no answer
    /// comes or a late one.
    fn chance(&mut self) -> (Luck, u64) {
        let luck = self.luck();
        let most = match luck {
            Luck::Answered => 20,
            Luck::Late => 8000,
            Luck::Lost | Luck::Refused => 1500,
        };
        (luck, self.draw(most))
    }

    /// Lets a millisecond pass.
    fn tick(&mut self) {
        for at in 0..self.members.len() {
            self.step(at);
        }
        let senders: Vec<_> =
            self.members.iter().filter(|member| member.sends(self.now)).map(name).collect();
        let (seed, now) = (self.seed, self.now);
        assert!(senders.len() <= 1, "seed {seed}, {now} ms: all of these send: {senders:?}");
        self.now += 1;
    }

    fn step(&mut self, at: usize) {
        let world = self.now;
        if self.members[at].paused > world {
            return;
        }
        if self.members[at].calling.as_ref().is_some_and(|call| call.ends > world) {
            return;
        }
        if let Some(call) = self.members[at].calling.take() {
            self.answer(at, call);
        }
        let now = self.members[at].now(world);
        match self.members[at].mind.next(now) {
            Step::Rest(_) => {}
            step @ (Step::Read | Step::Write(..)) => {
                let planned = match step {
                    Step::Write(..) => self.members[at].plans.pop_front(),
                    Step::Read | Step::Rest(_) => None,
                };
                let (luck, takes) = planned.unwrap_or_else(|| self.chance());
                let written = (luck == Luck::Late).then(|| self.write(&step)).flatten();
                let ends = world + 1 + takes;
                self.members[at].calling = Some(Call { ends, step, sent: now, luck, written });
            }
        }
    }

    /// The call is done at its end: a late write meets what others wrote meanwhile.
    fn answer(&mut self, at: usize, Call { step, sent, luck, written, .. }: Call) {
        let now = self.members[at].now(self.now);
        let written = written.or_else(|| match luck {
            Luck::Answered | Luck::Lost => self.write(&step),
            Luck::Late | Luck::Refused => None,
        });
        let effects = match step {
            Step::Rest(_) => Vec::new(),
            Step::Read => {
                let answered = matches!(luck, Luck::Answered | Luck::Late);
                let read = answered.then(|| self.lease());
                self.members[at].mind.read(read.ok_or(()), now)
            }
            Step::Write(_, lease) => {
                let outcome = written.filter(|_| luck != Luck::Lost).ok_or(());
                self.members[at].mind.wrote(lease, outcome, sent, now)
            }
        };
        self.members[at].take(effects);
    }

    /// Does what a step writes; none where it writes nothing.
    fn write(&self, step: &Step) -> Option<Option<Version>> {
        let Step::Write(before, lease) = step else { return None };
        let bytes = serde_json::to_vec(lease).unwrap();
        Some(self.register.write(NAME, before.as_ref(), &bytes).unwrap())
    }

    fn lease(&self) -> Option<(LeaderLease, Version)> {
        let entry = self.register.read(NAME).unwrap()?;
        Some((serde_json::from_slice(&entry.bytes).unwrap(), entry.version))
    }

    fn run(&mut self, millis: u64) {
        (0..millis).for_each(|_| self.tick());
    }

    /// The member that leads and may send.
    fn leader(&self) -> Option<usize> {
        self.members.iter().position(|member| member.sends(self.now))
    }

    /// How long nobody may send from now on.
    fn gap(&mut self) -> u64 {
        let from = self.now;
        while self.leader().is_none() {
            self.tick();
            assert!(self.now - from < 60_000, "nobody leads for a minute");
        }
        self.now - from
    }
}

fn name(member: &Member) -> String {
    member.mind.settings().me.name.clone()
}

fn three(seed: u64) -> World {
    World::new(
        seed,
        vec![
            Member::new("a", 7, 1_000_000, 1000),
            Member::new("b", 90_000, -400_000, 1000),
            Member::new("c", 4_000_000, 88_000_000, 1000),
        ],
    )
}

// Invariant: one member leads, and another takes over when it is silent for the whole time, and no later.

#[test]
fn one_of_three_leads_at_once_and_goes_on() {
    let mut world = three(1);
    assert!(world.gap() < 100);
    let first = world.leader();
    for _ in 0..60 {
        world.run(1000);
        assert_eq!(world.leader(), first);
    }
    assert_eq!(world.lease().unwrap().0.term, 1);
}

#[test]
fn another_leads_within_the_time_and_a_tenth_after_the_leader_was_killed() {
    for seed in 0..30 {
        let mut world = three(seed);
        world.gap();
        world.run(2000 + seed * 37);
        let killed = world.leader().unwrap();
        world.members[killed].paused = u64::MAX;
        let gap = world.gap();
        assert!((4000..=5600).contains(&gap), "{gap} ms");
        assert_ne!(world.leader(), Some(killed));
        assert_eq!(world.lease().unwrap().0.term, 2);
    }
}

#[test]
fn a_leader_that_gives_up_is_followed_at_once_by_the_one_it_names() {
    for named in [0, 1, 2] {
        let mut world = three(3);
        world.gap();
        let leader = world.leader().unwrap();
        if named == leader {
            continue;
        }
        let now = world.members[leader].now(world.now);
        let next = name(&world.members[named]);
        let effects = world.members[leader].mind.give_up(Some(next), now);
        world.members[leader].take(effects);
        world.run(50);
        assert_eq!(world.members[leader].term, None);
        assert!(world.gap() < 700);
        assert_eq!(world.leader(), Some(named));
    }
}

#[test]
fn one_that_is_named_and_not_there_holds_up_the_others_for_the_time_and_no_longer() {
    let mut world = three(4);
    world.gap();
    let leader = world.leader().unwrap();
    let now = world.members[leader].now(world.now);
    let effects = world.members[leader].mind.give_up(Some("d".to_owned()), now);
    world.members[leader].take(effects);
    world.run(50);
    assert!((4000..=5600).contains(&world.gap()));
    assert_ne!(world.leader(), Some(leader), "it takes no part");
}

#[test]
fn a_member_that_is_unfit_never_leads() {
    let mut world = three(5);
    for at in [0, 2] {
        let unfit = Some("its configuration differs".to_owned());
        let other = Settings { unfit, ..world.members[at].mind.settings().clone() };
        world.members[at].mind.configure(other);
    }
    world.gap();
    assert_eq!(world.leader(), Some(1));
    world.members[1].paused = u64::MAX;
    world.run(60_000);
    assert_eq!(world.leader(), None);
}

/// Members with these files; some of them have had another configuration before.
fn with_configs(seed: u64, configs: [(&str, &[&str]); 3]) -> World {
    let mut world = three(seed);
    for (member, (own, held)) in world.members.iter_mut().zip(configs) {
        let held = held.iter().map(|one| (*one).to_owned()).collect();
        let settings = member.mind.settings().clone();
        member.mind.configure(Settings { config: own.to_owned(), held, ..settings });
    }
    world
}

// Invariant: a member leads with the configuration in force where it has that, whatever its files say by now.
// One that never had it leads only where it may replace it.

#[test]
fn an_edit_under_way_holds_up_no_change_of_leader_and_is_not_in_force_by_it() {
    for seed in 0..10 {
        let mut world = with_configs(seed, [("c1", &[]), ("c1", &[]), ("c1", &[])]);
        world.gap();
        world.run(1000);
        let killed = world.leader().unwrap();
        world.members[killed].paused = u64::MAX;
        // The others have other files each, and the dead one has none of them.
        for (at, own) in [(0, "c2"), (1, "c3"), (2, "c4")] {
            let mind = &mut world.members[at].mind;
            let held = vec!["c1".to_owned()];
            mind.configure(Settings { config: own.to_owned(), held, ..mind.settings().clone() });
        }
        let gap = world.gap();
        assert!((3000..=5600).contains(&gap), "{gap} ms");
        world.run(3000);
        assert_eq!(world.lease().unwrap().0.config, "c1");
    }
}

#[test]
fn a_member_that_never_had_what_is_in_force_leads_where_all_live_ones_have_its_files_alone() {
    let mut world = with_configs(8, [("c1", &[]), ("c2", &[]), ("c2", &[])]);
    world.members[1].paused = 2000;
    world.members[2].paused = 2000;
    world.gap();
    assert_eq!(world.leader(), Some(0));
    world.members[0].paused = u64::MAX;
    world.run(30_000);
    assert_eq!(world.leader(), None);
    let mind = &mut world.members[2].mind;
    let replaces = Some("c1".to_owned());
    mind.configure(Settings { replaces, ..mind.settings().clone() });
    world.gap();
    assert_eq!(world.leader(), Some(2));
    assert_eq!(world.lease().unwrap().0.config, "c2");
}

#[test]
fn what_a_leader_puts_in_force_is_in_its_lease_at_once_and_another_one_keeps_it() {
    let mut world = with_configs(9, [("c1", &["c2"]), ("c1", &["c2"]), ("c1", &["c2"])]);
    world.gap();
    let leader = world.leader().unwrap();
    let now = world.members[leader].now(world.now);
    world.members[leader].mind.put_in_force("c2".to_owned(), now);
    world.run(50);
    assert_eq!(world.lease().unwrap().0.config, "c2");
    let now = world.members[leader].now(world.now);
    let effects = world.members[leader].mind.give_up(None, now);
    world.members[leader].take(effects);
    world.run(50);
    world.gap();
    assert_ne!(world.leader(), Some(leader));
    assert_eq!(world.lease().unwrap().0.config, "c2", "its files have another one");
}

// Invariant: two never send at once, whatever is slow, lost, paused or apart.

#[test]
fn a_leader_that_was_paused_sends_nothing_when_it_goes_on() {
    for seed in 0..30 {
        let mut world = three(seed);
        world.gap();
        world.run(3000);
        let paused = world.leader().unwrap();
        world.members[paused].paused = world.now + 4500 + seed * 100;
        let resumes = world.members[paused].paused;
        while world.now <= resumes + 3000 {
            world.tick();
            let late = world.now > resumes && world.members[paused].sends(world.now);
            // A short pause costs nobody the lead: it sends again after its next renewal.
            assert!(!late || world.lease().unwrap().0.term == 1, "at {} ms", world.now);
        }
    }
}

#[test]
fn a_store_that_is_away_closes_the_gate_and_opens_it_again_for_the_same_leader() {
    let mut world = three(6);
    world.gap();
    world.run(1000);
    let leader = world.leader();
    world.up = false;
    world.run(20_000);
    assert_eq!(world.leader(), None);
    world.up = true;
    // The others have seen the same version for longer than the leader lease: the first one leads.
    assert!(world.gap() < 2500);
    let after = world.leader();
    let term = world.lease().unwrap().0.term;
    assert_eq!(term == 1, after == leader);
}

#[test]
fn a_leader_sends_by_when_its_renewal_was_sent_and_not_by_when_the_answer_came() {
    for seed in 0..30 {
        let mut world = three(seed);
        world.gap();
        world.run(2000);
        let leader = world.leader().unwrap();
        // The next renewal is there at once, and its answer comes when the gate is closed already. The one
        // after it arrives too late.
        world.members[leader].plans = VecDeque::from([(Luck::Late, 4000), (Luck::Answered, 4000)]);
        world.run(8000);
        assert_ne!(world.leader(), Some(leader), "another one took over");
        assert_eq!(world.lease().unwrap().0.term, 2);
    }
}

#[test]
fn storms_of_pauses_faults_and_clocks_never_let_two_send_at_once() {
    for seed in 0..60 {
        let speeds = [950 + seed % 7 * 15, 1000, 1060 - seed % 5 * 20];
        let mut world = World::new(
            seed,
            vec![
                Member::new("a", 7, 1_000_000, speeds[0]),
                Member::new("b", 90_000, -400_000, speeds[1]),
                Member::new("c", 4_000_000, 88_000_000, speeds[2]),
            ],
        );
        world.faults = seed % 4 * 15;
        for _ in 0..60 {
            let at = usize::try_from(world.draw(3)).unwrap();
            let pause = world.draw(12_000);
            match world.draw(6) {
                0 | 1 => world.members[at].paused = world.now + pause,
                2 => world.up = !world.up,
                3 => {
                    let now = world.members[at].now(world.now);
                    let next = pause.is_multiple_of(2).then(|| name(&world.members[0]));
                    let effects = world.members[at].mind.give_up(next, now);
                    world.members[at].take(effects);
                }
                4 => world.members.iter_mut().for_each(|member| member.mind.take_part()),
                // A process that ends and begins again has another clock and no memory.
                _ => {
                    let name = name(&world.members[at]);
                    let (mono, speed) = (world.draw(1000), world.members[at].speed);
                    let mut settings = settings(&name);
                    settings.me.process = format!("{name}-{}", world.now);
                    let mut fresh = Member::new(&name, mono, 0, speed);
                    fresh.mind = Mind::new(settings);
                    world.members[at] = fresh;
                }
            }
            let span = world.draw(4000);
            world.run(span);
        }
        world.up = true;
        world.faults = 0;
        world.members.iter_mut().for_each(|member| member.mind.take_part());
        world.run(12_000);
        assert!(world.gap() < 7000, "seed {seed}");
    }
}

// Invariant: where the store was away, somebody leads again as soon as it can be known that nobody else does.

/// A world in which a standby's claim is done, nobody answers it, and the store is away for a while then; with
/// that member.
fn world_of_a_lost_claim(seed: u64, away: u64) -> (World, usize) {
    let mut world = three(seed);
    world.gap();
    world.run(1000);
    let killed = world.leader().unwrap();
    world.members[killed].paused = u64::MAX;
    for member in &mut world.members {
        member.plans.push_back((Luck::Lost, 800));
    }
    while world.lease().unwrap().0.term == 1 {
        world.tick();
        assert!(world.now < 10_000, "nobody claims the lead");
    }
    let claimed = world.lease().unwrap().0.leader.unwrap();
    world.up = false;
    world.run(away);
    world.up = true;
    let at = world.members.iter().position(|member| name(member) == claimed.name).unwrap();
    world.members[at].plans.clear();
    (world, at)
}

#[test]
fn a_member_whose_claim_was_not_answered_leads_as_soon_as_the_store_is_back() {
    for (seed, away) in (0..30).flat_map(|seed| [200, 2000, 9000].map(|away| (seed, away))) {
        let (mut world, claimed) = world_of_a_lost_claim(seed, away);
        let gap = world.gap();
        // A call that waits for an answer, a pause, and two calls.
        assert!(gap < 1900, "seed {seed}, away for {away} ms: {gap} ms");
        // One that saw the claim, and then nothing for the whole time, may be first.
        let first = away >= 5000 || world.leader() == Some(claimed);
        assert!(first, "seed {seed}, away for {away} ms");
    }
}

#[test]
fn a_store_that_is_away_is_asked_a_few_times_a_second() {
    let mut mind = Mind::new(settings("a"));
    let other = LeaderLease { leader: Some(settings("b").me), ..first_claim(&mind) };
    let version = Version("1".to_owned());
    mind.read(Ok(Some((other, version))), at(0));
    let mut calls = 0;
    for millis in 1..=20_000 {
        match mind.next(at(millis)) {
            Step::Rest(_) => continue,
            Step::Read => mind.read(Err(()), at(millis)),
            Step::Write(_, lease) => mind.wrote(lease, Err(()), at(millis), at(millis)),
        };
        calls += 1;
    }
    assert!((60..=90).contains(&calls), "{calls} calls in 20 s");
}

fn at(millis: u64) -> Now {
    Now { mono: Moment(millis), wall: WallTime(i64::try_from(millis).unwrap()) }
}

fn first_claim(mind: &Mind) -> LeaderLease {
    let mut mind = mind.clone();
    mind.read(Ok(None), at(0));
    match mind.next(at(0)) {
        Step::Write(None, lease) => lease,
        step @ (Step::Read | Step::Rest(_) | Step::Write(..)) => panic!("{step:?}"),
    }
}
