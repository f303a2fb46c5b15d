//! Three members of one store on one cluster: killed, paused, cut off, started again, with clocks apart. What
//! must hold of one drover holds of the three together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drover::clock::VirtualAmbient;
use drover_actors::message::Refusal;
use drover_members::{Leader, Participant, Settings};
use drover_model::ambient::Dice;
use drover_model::gate::Gate;
use drover_model::id::LeaseId;
use drover_model::phase::LeasePhase;
use drover_model::ports::Ambient;
use drover_model::time::WallTime;
use drover_vault::{Entry, MemoryRegister, Register, StoreError, Version};
use futures_util::future::{join, join_all};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::world::World;
use super::world::member::{Member, Writes};
use super::world::setup::Setup;

/// The leader lease.
const HOLD: Duration = Duration::from_secs(5);
/// The grain of the world's time: what a member does between two looks at the leader lease.
const TICK: Duration = Duration::from_millis(100);
const CLEANING: &str = "cleanupOrphanedAgents: true, orphanCleanupPeriodSeconds: 30, orphanCleanupGracePeriodSeconds: 60";
/// How long what was promised may take once everybody is well.
const WAIT_LIMIT: Duration = Duration::from_secs(1800);
/// Steps in one plan.
const STEPS: usize = 60;

/// A way to the register that may be cut, or lose answers.
struct Way {
    register: MemoryRegister,
    cut: Arc<AtomicBool>,
    loses: Arc<AtomicBool>,
}

impl Way {
    fn refused(name: &str, doing: &'static str) -> StoreError {
        StoreError::refused(name, doing, "the store does not answer")
    }
}

impl Register for Way {
    fn place(&self) -> String {
        "store".to_owned()
    }

    fn read(&self, name: &str) -> Result<Option<Entry>, StoreError> {
        if self.cut.load(Ordering::Acquire) {
            return Err(Self::refused(name, "read"));
        }
        self.register.read(name)
    }

    fn write(
        &self,
        name: &str,
        before: Option<&Version>,
        bytes: &[u8],
    ) -> Result<Option<Version>, StoreError> {
        if self.cut.load(Ordering::Acquire) {
            return Err(Self::refused(name, "written"));
        }
        let written = self.register.write(name, before, bytes);
        if self.loses.load(Ordering::Acquire) {
            let source = "no answer came".into();
            return Err(StoreError::Unknown { name: name.to_owned(), doing: "written", source });
        }
        written
    }
}

/// One member: a process, its place in the election, and its service while it leads.
struct Peer {
    name: &'static str,
    world: World,
    participant: Option<Participant>,
    ambient: Arc<dyn Ambient>,
    /// The term in which its service runs.
    term: Option<u64>,
    cut: Arc<AtomicBool>,
    loses: Arc<AtomicBool>,
    paused: Option<Instant>,
    processes: u64,
    /// Whether nobody stands beside it any more.
    ends: Arc<AtomicBool>,
}

/// A gate that is open for good at the end.
fn until_the_end(gate: Gate, ends: &Arc<AtomicBool>) -> Gate {
    let ends = Arc::clone(ends);
    Gate::new(Arc::new(move || {
        if ends.load(Ordering::Acquire) { Gate::default().ask()() } else { gate.ask()() }
    }))
}

impl Peer {
    fn new(name: &'static str, world: World, clock: i64) -> Self {
        world.set_clock(clock);
        let ambient = Arc::new(VirtualAmbient::new(WallTime(1_000_000_000 + clock), 0));
        let (cut, loses) = (Arc::clone(&world.away), Arc::default());
        Self {
            name,
            world,
            participant: None,
            ambient,
            term: None,
            cut,
            loses,
            paused: None,
            processes: 0,
            ends: Arc::default(),
        }
    }

    /// A new process of this member.
    fn launch(&mut self, register: &MemoryRegister) {
        self.processes += 1;
        let (cut, loses) = (Arc::clone(&self.cut), Arc::clone(&self.loses));
        let way = Way { register: register.clone(), cut, loses };
        let process = format!("{}-{}", self.name, self.processes);
        let me = Leader { name: self.name.to_owned(), process, url: String::new() };
        let settings = Settings { me, hold: HOLD, config: "same".to_owned(), unfit: None };
        self.participant =
            Some(Participant::new(settings, Arc::new(way), Arc::clone(&self.ambient)));
    }

    fn kill(&mut self) {
        if self.world.runs() {
            self.world.kill();
        }
        (self.participant, self.term, self.paused) = (None, None, None);
    }

    fn is_awake(&self) -> bool {
        self.participant.is_some() && self.paused.is_none_or(|until| until <= Instant::now())
    }

    /// Whether it goes on after a pause at this moment.
    fn resumes(&mut self) -> bool {
        self.paused.take_if(|until| *until <= Instant::now()).is_some()
    }

    /// Takes part in the election, and starts or ends its service as that says.
    async fn elect(&mut self, writes: &Writes) {
        let Some(participant) = &mut self.participant else { return };
        // A read, and what follows from it.
        for _ in 0..3 {
            if !participant.step().is_zero() {
                break;
            }
        }
        let (term, send_by) = (participant.role().borrow().term, participant.send_by());
        if term == self.term {
            return;
        }
        if self.world.runs() {
            self.world.kill();
        }
        self.term = term;
        if let Some(term) = term {
            let (gate, writes) = (until_the_end(send_by.gate(), &self.ends), Arc::clone(writes));
            self.world.tap.pass(gate.clone());
            self.world.member = Some(Member { term, gate, writes });
            self.world.start().await;
        }
    }
}

/// What somebody asked for.
struct Asked {
    at: usize,
    answer: Option<oneshot::Receiver<Result<LeaseId, Refusal>>>,
    lease: Option<LeaseId>,
    released: bool,
}

struct Storm {
    seed: u64,
    dice: Dice,
    peers: Vec<Peer>,
    register: MemoryRegister,
    writes: Writes,
    asked: Vec<Asked>,
    /// In which guest each lease's key was.
    holders: BTreeMap<String, BTreeSet<u32>>,
    steps: Vec<String>,
    leaders: BTreeSet<u64>,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let setup = |number| {
            Setup::linux("instanceCap: 12, maxTotalUses: 1").rack(CLEANING).seed(seed * 10 + number)
        };
        let first = World::new(setup(1));
        let others = [first.member_beside(setup(2)), first.member_beside(setup(3))];
        let mut dice = Dice::from_number(seed);
        let worlds = std::iter::once(first).chain(others);
        let peers = worlds.zip(["a", "b", "c"]).map(|(world, name)| {
            let clock = i64::try_from(dice.below(240_000)).unwrap() - 120_000;
            Peer::new(name, world, clock)
        });
        let mut storm = Self {
            seed,
            peers: peers.collect(),
            dice,
            register: MemoryRegister::default(),
            writes: Writes::default(),
            asked: Vec::new(),
            holders: BTreeMap::new(),
            steps: Vec::new(),
            leaders: BTreeSet::new(),
        };
        let register = storm.register.clone();
        storm.peers.iter_mut().for_each(|peer| peer.launch(&register));
        storm
    }

    fn below(&mut self, most: u64) -> u64 {
        self.dice.below(most)
    }

    /// The member whose service runs and may send.
    fn leader(&self) -> Option<usize> {
        let leads = |peer: &Peer| {
            let open = peer.participant.as_ref().is_some_and(|one| one.send_by().is_open());
            peer.is_awake() && peer.world.runs() && open
        };
        let all: Vec<usize> = (0..self.peers.len()).filter(|at| leads(&self.peers[*at])).collect();
        assert!(all.len() <= 1, "{}: {all:?} lead at once: {:#?}", self.seed, self.steps);
        all.first().copied()
    }

    async fn tick(&mut self) {
        for at in 0..self.peers.len() {
            // One that goes on after a pause works before it looks who leads.
            let resumes = self.peers[at].resumes();
            if self.peers[at].is_awake() && !resumes {
                self.peers[at].elect(&self.writes).await;
                self.leaders.extend(self.peers[at].term);
            }
        }
        self.leader();
        let running = self.peers.iter().filter(|peer| peer.is_awake() && peer.world.runs());
        join(join_all(running.map(|peer| peer.world.pass(TICK))), sleep(TICK)).await;
        self.take_answers();
        self.check();
    }

    fn take_answers(&mut self) {
        for asked in &mut self.asked {
            let Some(answer) = &mut asked.answer else { continue };
            match answer.try_recv() {
                Ok(Ok(lease)) => (asked.lease, asked.answer) = (Some(lease), None),
                Ok(Err(_)) | Err(oneshot::error::TryRecvError::Closed) => asked.answer = None,
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
        }
    }

    /// No write of a former leader arrives behind one of a later one; no lease has two guests, and no guest
    /// two leases.
    fn check(&mut self) {
        let writes = self.writes.lock().unwrap().clone();
        assert!(writes.is_sorted(), "{}: late writes: {writes:?}: {:#?}", self.seed, self.steps);
        let world = &self.peers[0].world;
        for vmid in 10_000..10_060 {
            let admitted = world.shell.admitted(vmid);
            assert!(admitted.len() <= 1, "{}: {vmid} is of {admitted:?}", self.seed);
            for lease in admitted {
                self.holders.entry(lease).or_default().insert(vmid);
            }
        }
        for (lease, guests) in &self.holders {
            assert_eq!(
                guests.len(),
                1,
                "{}: {lease} was in {guests:?}: {:#?}",
                self.seed,
                self.steps
            );
        }
    }

    async fn pass(&mut self, span: Duration) {
        let end = Instant::now() + span;
        while Instant::now() < end {
            self.tick().await;
        }
    }

    async fn step(&mut self) {
        let at = usize::try_from(self.below(3)).unwrap();
        let millis = Duration::from_millis(self.below(14_000));
        let name = self.peers[at].name;
        match self.below(14) {
            0 => {
                self.steps.push(format!("kill {name}"));
                self.peers[at].kill();
            }
            1 | 2 => {
                self.steps.push(format!("pause {name} for {millis:?}"));
                self.peers[at].paused = Some(Instant::now() + millis);
            }
            3 => {
                let cut = !self.peers[at].cut.load(Ordering::Acquire);
                self.steps.push(format!("cut {name}: {cut}"));
                self.peers[at].cut.store(cut, Ordering::Release);
            }
            4 => {
                let loses = !self.peers[at].loses.load(Ordering::Acquire);
                self.steps.push(format!("lose answers of {name}: {loses}"));
                self.peers[at].loses.store(loses, Ordering::Release);
            }
            5 => {
                self.steps.push(format!("{name} gives up"));
                if let Some(participant) = &mut self.peers[at].participant {
                    participant.give_up(None);
                    participant.take_part();
                }
            }
            6..10 => self.ask(),
            _ => self.release(),
        }
        if self.peers[at].participant.is_none() && self.below(2) == 0 {
            self.steps.push(format!("start {name}"));
            let register = self.register.clone();
            self.peers[at].launch(&register);
        }
        let span = Duration::from_millis(self.below(6_000));
        self.pass(span).await;
    }

    fn ask(&mut self) {
        let Some(at) = self.leader() else { return };
        let held = self.asked.iter().filter(|asked| !asked.released).count();
        if held >= 3 {
            return;
        }
        self.steps.push(format!("ask {}", self.peers[at].name));
        let answer = Some(self.peers[at].world.ask("linux"));
        self.asked.push(Asked { at, answer, lease: None, released: false });
    }

    fn release(&mut self) {
        let Some(at) = self.leader() else { return };
        let Some(asked) = self.asked.iter_mut().find(|one| one.lease.is_some() && !one.released)
        else {
            return;
        };
        let lease = asked.lease.clone().unwrap();
        self.steps.push(format!("release {lease} of {}", self.peers[asked.at].name));
        asked.released = true;
        drop(self.peers[at].world.begin_release(&lease));
    }

    /// The leases that were answered, and that nobody ended, as far as they are not ready.
    fn unserved(&self, at: usize) -> Vec<String> {
        let view = self.peers[at].world.view();
        let held = self.asked.iter().filter(|asked| !asked.released);
        let states = held.filter_map(|asked| {
            let lease = asked.lease.as_ref()?;
            let found = view.lease(lease);
            let ready = found.as_ref().is_some_and(|found| found.state == LeasePhase::Ready);
            (!ready).then(|| format!("{lease}: {found:?}"))
        });
        states.collect()
    }

    /// Everybody is well again: what was promised is kept, and nothing is left.
    async fn end(mut self) {
        let register = self.register.clone();
        for peer in &mut self.peers {
            peer.cut.store(false, Ordering::Release);
            peer.loses.store(false, Ordering::Release);
            peer.paused = None;
            if peer.participant.is_none() {
                peer.launch(&register);
            }
        }
        // A lease that was answered is there, unless somebody ended it. What waits for a rest, such as a
        // breaker's, may take some minutes.
        let deadline = Instant::now() + WAIT_LIMIT;
        let at = loop {
            self.pass(Duration::from_secs(10)).await;
            match self.leader() {
                Some(at) if self.unserved(at).is_empty() => break at,
                leader => assert!(
                    Instant::now() < deadline,
                    "{}: {:?}: {:#?}",
                    self.seed,
                    leader.map(|at| self.unserved(at)),
                    self.steps
                ),
            }
        };
        let view = self.peers[at].world.view();
        let agents = view.agents().len();
        assert!(agents <= 12, "{}: {agents} agents, above the cap", self.seed);
        let Peer { world, ends, .. } = self.peers.remove(at);
        for mut other in self.peers {
            other.kill();
            other.world.judged = true;
        }
        // Drains with all leases, and compares the cluster with what was there at the start.
        ends.store(true, Ordering::Release);
        world.end().await;
    }
}

// Invariant: of several members one acts at a time, and what one promised the next one keeps.

#[tokio::test(start_paused = true)]
async fn storms_of_members_lose_no_lease_and_leave_nothing() {
    let mut terms = 0;
    for seed in 1..=40 {
        let mut storm = Storm::new(seed);
        storm.pass(Duration::from_secs(8)).await;
        for _ in 0..STEPS {
            storm.step().await;
        }
        terms += storm.leaders.len();
        storm.end().await;
    }
    assert!(terms > 100, "{terms} terms are too few to say anything");
}
