//! One storm: several members, their callers, and what must hold at every moment and at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use drover_model::ambient::Dice;
use drover_model::phase::LeasePhase;
use drover_vault::MemoryRegister;
use futures_util::future::{join, join_all};
use tokio::time::{Instant, sleep};

use super::callers::Callers;
use super::peer::Peer;
use crate::world::World;
use crate::world::member::Writes;
use crate::world::setup::Setup;

/// The grain of the world's time: what a member does between two looks at the leader lease.
const TICK: Duration = Duration::from_millis(100);
const CLEANING: &str = "cleanupOrphanedAgents: true, orphanCleanupPeriodSeconds: 30, orphanCleanupGracePeriodSeconds: 60";
/// How long what was promised may take once everybody is well.
const WAIT_LIMIT: Duration = Duration::from_secs(1800);
/// The names of members, in the order in which they join.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Members at the start.
const MEMBERS: usize = 3;
/// In so many ticks one look of a caller at a lease.
const TICKS_A_LOOK: u64 = 4;

pub struct Storm {
    pub seed: u64,
    pub dice: Dice,
    pub peers: Vec<Peer>,
    pub register: MemoryRegister,
    pub callers: Callers,
    writes: Writes,
    /// In which guest each lease's key was.
    holders: BTreeMap<String, BTreeSet<u32>>,
    pub steps: Vec<String>,
    /// Terms in which a member led.
    pub terms: BTreeSet<u64>,
    /// Processes that ended because they could not read the journal.
    pub unreadable: usize,
}

fn setup(seed: u64, number: usize) -> Setup {
    let seed = seed * 10 + number as u64;
    Setup::linux("instanceCap: 12, maxTotalUses: 1").rack(CLEANING).seed(seed)
}

impl Storm {
    pub fn new(seed: u64) -> Self {
        let mut storm = Self {
            seed,
            peers: Vec::new(),
            dice: Dice::from_number(seed),
            register: MemoryRegister::default(),
            callers: Callers::new(),
            writes: Writes::default(),
            holders: BTreeMap::new(),
            steps: Vec::new(),
            terms: BTreeSet::new(),
            unreadable: 0,
        };
        (0..MEMBERS).for_each(|_| _ = storm.join());
        storm
    }

    /// One member more; none where all names are taken.
    pub fn join(&mut self) -> Option<usize> {
        let at = self.peers.len();
        let name = NAMES.get(at)?;
        let setup = setup(self.seed, at + 1);
        let world = match self.peers.first() {
            Some(first) => first.world.member_beside(setup),
            None => World::new(setup),
        };
        let clock = i64::try_from(self.below(240_000)).unwrap() - 120_000;
        let mut peer = Peer::new(name, world, clock);
        peer.launch(&self.register);
        self.peers.push(peer);
        Some(at)
    }

    pub fn below(&mut self, most: u64) -> u64 {
        self.dice.below(most)
    }

    /// A member that did not leave, by chance.
    pub fn any(&mut self) -> usize {
        let all: Vec<usize> = (0..self.peers.len()).filter(|at| !self.peers[*at].gone).collect();
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }

    /// The leader or any member, by chance.
    pub fn any_or_leader(&mut self) -> usize {
        let any = self.any();
        let leader = self.leader().filter(|_| self.below(2) == 0);
        leader.unwrap_or(any)
    }

    /// The member whose service runs and may send.
    pub fn leader(&self) -> Option<usize> {
        let leads = |peer: &Peer| peer.is_awake() && peer.world.runs() && peer.may_act();
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
                self.terms.extend(self.peers[at].term);
                if let Some(why) = self.peers[at].unreadable.take() {
                    self.unreadable += 1;
                    self.steps.push(format!("{} ended: {why}", self.peers[at].name));
                }
            }
        }
        self.leader();
        if self.below(TICKS_A_LOOK) == 0 {
            let through = self.any();
            self.callers.look(&self.peers, through, &mut self.dice);
        }
        let running = self.peers.iter().filter(|peer| peer.is_awake() && peer.world.runs());
        join(join_all(running.map(|peer| peer.world.pass(TICK))), sleep(TICK)).await;
        self.callers.settle(&self.peers);
        self.check();
    }

    /// No write of a former leader arrives behind one of a later one; no lease has two guests, and no guest
    /// two leases.
    fn check(&mut self) {
        let writes = self.writes.lock().unwrap();
        assert!(writes.is_sorted(), "{}: late writes: {writes:?}: {:#?}", self.seed, self.steps);
        drop(writes);
        let world = &self.peers[0].world;
        for vmid in 10_000..10_060 {
            let admitted = world.shell.admitted(vmid);
            assert!(admitted.len() <= 1, "{}: {vmid} is of {admitted:?}", self.seed);
            for lease in admitted {
                self.holders.entry(lease).or_default().insert(vmid);
            }
        }
        for (lease, guests) in &self.holders {
            let one = guests.len() == 1;
            assert!(one, "{}: {lease} was in {guests:?}: {:#?}", self.seed, self.steps);
        }
    }

    /// Callers saw nothing that must not be.
    fn check_history(&self) {
        let (history, seed) = (&self.callers.history, self.seed);
        let faults = history.faults();
        assert!(faults.is_empty(), "{seed}: {faults:#?}\n{:#?}\n{history}", self.steps);
    }

    /// No older drover wrote behind a newer one.
    pub fn check_versions(&self) {
        let versions = self.peers[0].world.record_versions();
        assert!(versions.is_sorted(), "{}: {versions:?}: {:#?}", self.seed, self.steps);
    }

    pub async fn pass(&mut self, span: Duration) {
        let end = Instant::now() + span;
        while Instant::now() < end {
            self.tick().await;
        }
    }

    /// The leases that were answered, and that nobody ended, as far as they are not ready.
    fn unserved(&self, at: usize) -> Vec<String> {
        let view = self.peers[at].world.view();
        let held = self.callers.wants.iter().filter(|want| !want.released);
        let states = held.filter_map(|want| {
            let lease = want.lease.as_ref()?;
            let found = view.lease(lease);
            let ready = found.as_ref().is_some_and(|found| found.state == LeasePhase::Ready);
            (!ready).then(|| format!("{lease}: {found:?}"))
        });
        states.collect()
    }

    /// Everybody who did not leave is well again, and has the newest drover.
    fn recover(&mut self) {
        self.callers.cuts.clear();
        let newer = self.peers.iter().any(|peer| peer.world.store.is_newer());
        for peer in self.peers.iter_mut().filter(|peer| !peer.gone) {
            peer.world.store.away.store(false, Ordering::Release);
            peer.slow_down(Duration::ZERO, false);
            peer.world.cut_from_clusters(false);
            peer.loses.store(false, Ordering::Release);
            peer.paused = None;
            peer.lingers = None;
            if newer && !peer.world.store.is_newer() {
                peer.kill();
                peer.world.store.upgrade();
            }
            if peer.participant.is_none() {
                peer.launch(&self.register);
            }
        }
    }

    /// Everybody is well again: what was promised is kept, callers saw nothing that must not be, and nothing is
    /// left.
    pub async fn end(mut self) {
        self.recover();
        // A lease that was answered is there, unless somebody ended it. What waits for a rest, such as a
        // breaker's, may take some minutes.
        let deadline = Instant::now() + WAIT_LIMIT;
        let at = loop {
            self.pass(Duration::from_secs(10)).await;
            if let Some(at) = self.leader() {
                self.callers.finish(&self.peers, at);
                self.tick().await;
            }
            self.check_history();
            match self.leader() {
                Some(at) if self.callers.is_settled() && self.unserved(at).is_empty() => break at,
                leader => assert!(
                    Instant::now() < deadline,
                    "{}: {:?}: {:#?}\n{}",
                    self.seed,
                    leader.map(|at| self.unserved(at)),
                    self.steps,
                    self.callers.history
                ),
            }
        };
        let agents = self.peers[at].world.view().agents().len();
        assert!(agents <= 12, "{}: {agents} agents, above the cap", self.seed);
        let Peer { world, alone, .. } = self.peers.remove(at);
        for mut other in self.peers {
            other.kill();
            other.world.judged = true;
        }
        // Drains with all leases, and compares the cluster with what was there at the start.
        alone.store(true, Ordering::Release);
        world.end().await;
    }
}
