//! One member: a process, its place in the election, and its service while it leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drover_forecast::clock::VirtualAmbient;
use drover_journal::LogError;
use drover_members::{Leader, Participant, SendBy, Settings};
use drover_model::gate::Gate;
use drover_model::time::WallTime;
use drover_vault::MemoryRegister;
use tokio::time::Instant;

use super::way::{Clock, Way};
use crate::world::World;
use crate::world::member::{Member, Writes};

/// The leader lease.
pub const HOLD: Duration = Duration::from_secs(5);

pub struct Peer {
    pub name: &'static str,
    pub world: World,
    pub participant: Option<Participant>,
    clock: Clock,
    /// The term in which its service runs.
    pub term: Option<u64>,
    /// When its service starts that does not run yet.
    starts: Option<Instant>,
    /// The term of the service that runs, and until when that one may send.
    serves: Option<(u64, SendBy)>,
    /// Until when a service goes on although its term ended.
    pub lingers: Option<Instant>,
    /// Since when it waits for a store that takes its time; until when, where the answers alone do.
    waits: Option<Instant>,
    /// Whether its calls to a slow store arrive at once, and their answers are slow.
    early: bool,
    /// Until when it takes no part in the election because it gave up.
    rests: Option<Instant>,
    pub loses: Arc<AtomicBool>,
    pub paused: Option<Instant>,
    /// Processes of this member so far.
    pub processes: u64,
    /// Why its last process ended by itself.
    pub unreadable: Option<LogError>,
    /// Whether it left for good.
    pub gone: bool,
    /// Whether it is alone from now on, and its gate stays open.
    pub alone: Arc<AtomicBool>,
}

/// A gate that is open for good at the end.
fn until_the_end(gate: Gate, alone: &Arc<AtomicBool>) -> Gate {
    let alone = Arc::clone(alone);
    Gate::new(Arc::new(move || {
        if alone.load(Ordering::Acquire) { Gate::default().ask()() } else { gate.ask()() }
    }))
}

impl Peer {
    pub fn new(name: &'static str, world: World, clock: i64) -> Self {
        world.set_clock(clock);
        let ambient = VirtualAmbient::new(WallTime(1_000_000_000 + clock), 0);
        Self {
            name,
            world,
            participant: None,
            clock: Clock::new(Arc::new(ambient)),
            term: None,
            starts: None,
            serves: None,
            lingers: None,
            waits: None,
            rests: None,
            early: false,
            loses: Arc::default(),
            paused: None,
            processes: 0,
            unreadable: None,
            gone: false,
            alone: Arc::default(),
        }
    }

    /// A new process of this member.
    pub fn launch(&mut self, register: &MemoryRegister) {
        self.processes += 1;
        let way = Way {
            register: register.clone(),
            store: self.world.store.clone(),
            loses: Arc::clone(&self.loses),
            clock: self.clock.clone(),
        };
        let process = format!("{}-{}", self.name, self.processes);
        let me = Leader { name: self.name.to_owned(), process, url: String::new() };
        let settings = Settings {
            me,
            hold: HOLD,
            config: "same".to_owned(),
            held: Vec::new(),
            replaces: None,
            unfit: None,
        };
        let clock = Arc::new(self.clock.clone());
        self.participant = Some(Participant::new(settings, Arc::new(way), clock));
    }

    pub fn kill(&mut self) {
        if self.world.runs() {
            self.world.kill();
        }
        (self.participant, self.term, self.paused) = (None, None, None);
        (self.starts, self.waits, self.rests) = (None, None, None);
        (self.serves, self.lingers) = (None, None);
    }

    /// Leaves the others in order and for good.
    pub fn leave(&mut self) {
        self.give_up(None);
        for _ in 0..3 {
            self.participant.iter_mut().for_each(|one| _ = one.step());
        }
        self.kill();
        self.gone = true;
    }

    /// Leads no more, for the member that is named, and takes part again a while after.
    pub fn give_up(&mut self, next: Option<String>) {
        if let Some(participant) = &mut self.participant {
            participant.give_up(next);
            self.rests = Some(Instant::now() + HOLD);
        }
    }

    /// Whether a process runs, and is not paused.
    pub fn is_awake(&self) -> bool {
        self.participant.is_some() && self.paused.is_none_or(|until| until <= Instant::now())
    }

    /// Whether it goes on after a pause at this moment.
    pub fn resumes(&mut self) -> bool {
        self.paused.take_if(|until| *until <= Instant::now()).is_some()
    }

    /// Whether its service may change something now.
    pub fn may_act(&self) -> bool {
        self.serves.as_ref().is_some_and(|(_, send_by)| send_by.is_open())
    }

    /// The term of its service that runs.
    pub fn serves_in(&self) -> Option<u64> {
        self.serves.as_ref().map(|(term, _)| *term)
    }

    /// The member that leads, as far as this one knows.
    pub fn known_leader(&self) -> Option<String> {
        let role = self.participant.as_ref()?.role();
        let lease = role.borrow().lease.clone();
        lease?.leader.map(|leader| leader.name)
    }

    /// Takes part in the election, and starts or ends its service as that says.
    pub async fn elect(&mut self, writes: &Writes) {
        self.step();
        let Some(participant) = &mut self.participant else { return };
        if self.rests.take_if(|until| *until <= Instant::now()).is_some() {
            participant.take_part();
        }
        // A service whose journal another process took over ends. It starts again where its member still leads
        // a while after.
        let (term, send_by) = (participant.role().borrow().term, participant.send_by());
        self.lingers.take_if(|until| *until <= Instant::now());
        let lingers = self.lingers.is_some();
        if !lingers && self.world.store.was_fenced() && self.world.runs() {
            self.end_service();
            self.starts = Some(Instant::now() + HOLD / 5);
        }
        if term != self.term {
            self.term = term;
            // It reads the journal first.
            self.starts = term.map(|_| Instant::now() + self.world.store.takes());
        }
        if self.world.runs() && self.serves_in() != term && !lingers {
            self.end_service();
        }
        let runs = self.world.runs();
        let due = self.starts.take_if(|at| *at <= Instant::now() && !runs).is_some();
        let Some(term) = self.term.filter(|_| due) else { return };
        // A process that cannot read the journal ends.
        self.unreadable = self.world.unreadable();
        if let Some(why) = &self.unreadable {
            let newer = matches!(why, LogError::Newer { .. } | LogError::Unknown { .. });
            assert!(newer, "{why}");
            self.kill();
            return;
        }
        let send_by = send_by.for_next_service();
        let gate = until_the_end(send_by.gate(), &self.alone);
        self.serves = Some((term, send_by));
        self.world.tap.pass(gate.clone());
        self.world.member = Some(Member { term, gate, writes: Arc::clone(writes) });
        self.world.start().await;
    }

    fn end_service(&mut self) {
        self.world.kill();
        (self.serves, self.lingers) = (None, None);
        // That was the journal of the service that ended.
        self.world.store.was_fenced();
    }

    /// Does what is due of the election.
    fn step(&mut self) {
        let Some(participant) = &mut self.participant else { return };
        let (now, takes) = (Instant::now(), self.world.store.takes());
        if takes.is_zero() && self.waits.is_none() {
            // A read, and what follows from it.
            for _ in 0..3 {
                if !participant.step().is_zero() {
                    break;
                }
            }
            return;
        }
        if self.early {
            return self.step_early(now, takes);
        }
        // What it sent when it began to wait arrives and comes back now.
        let since = *self.waits.get_or_insert(now);
        if now < since + takes {
            return;
        }
        self.clock.look_back(now - since);
        let rest = participant.step();
        self.clock.look_up();
        let next = if rest.is_zero() { now } else { since + rest };
        self.waits = (!takes.is_zero()).then_some(next);
    }

    /// Does what is due of the election: it arrives at once, and its answer takes its time.
    fn step_early(&mut self, now: Instant, takes: Duration) {
        if self.waits.is_some_and(|until| now < until) {
            return;
        }
        let Some(participant) = &mut self.participant else { return };
        self.clock.look_ahead(takes);
        let rest = participant.step();
        self.clock.look_up();
        self.waits = rest.is_zero().then(|| now + takes);
    }

    /// Each call to the store takes so long from here on: until it arrives, or until its answer comes.
    pub fn slow_down(&mut self, takes: Duration, early: bool) {
        self.world.store.delay(takes);
        (self.early, self.waits) = (early, None);
    }
}
