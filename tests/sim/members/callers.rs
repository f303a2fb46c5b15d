//! Callers of the members: they ask, look and release through any member, and write down what they saw.
//!
//! ```text
//! caller ──> member that leads ──────────────> its service
//! caller ──> member that stands by ──forwards──> the member that it knows as the leader
//! ```
//!
//! A member that stands by forwards to the leader that it knows, and says that nothing was done where it
//! knows none, or reaches none. A call whose answer is lost on the way back has an unknown outcome.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_actors::message::Refusal;
use drover_model::ambient::Dice;
use drover_model::id::LeaseId;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::Instant;

use super::history::{Answer, Ask, By, History};
use super::peer::Peer;

/// How long a caller waits for an answer.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// How many leases callers have at once.
const HELD_MAX: usize = 3;

/// What somebody wants: a lease, under a key.
pub struct Want {
    key: u32,
    pub lease: Option<LeaseId>,
    /// Whether a call to end it began.
    pub released: bool,
    /// Whether its end was answered.
    over: bool,
}

enum Waits {
    Create(oneshot::Receiver<Result<LeaseId, Refusal>>),
    Release(oneshot::Receiver<Result<(), Refusal>>),
    Read(LeaseId),
}

/// A call that is on its way.
struct Open {
    call: usize,
    want: usize,
    waits: Waits,
    since: Instant,
    /// The member that was called, and the one that serves, each with its process.
    through: (usize, u64),
    server: (usize, u64),
    term: Option<u64>,
}

pub struct Callers {
    pub history: History,
    pub wants: Vec<Want>,
    open: Vec<Open>,
    /// Pairs of members that do not reach one another, the lower first.
    pub cuts: BTreeSet<(usize, usize)>,
    started: Instant,
}

impl Callers {
    pub fn new() -> Self {
        Self {
            history: History::default(),
            wants: Vec::new(),
            open: Vec::new(),
            cuts: BTreeSet::new(),
            started: Instant::now(),
        }
    }

    fn are_cut(&self, one: usize, other: usize) -> bool {
        self.cuts.contains(&(one.min(other), one.max(other)))
    }

    fn is_busy(&self, want: usize) -> bool {
        let asks = |open: &Open| open.want == want && !matches!(open.waits, Waits::Read(_));
        self.open.iter().any(asks)
    }

    /// Asks for a lease through a member: for one more, or again for one whose ask was not answered.
    pub fn ask(&mut self, peers: &[Peer], through: usize) -> Option<String> {
        let unanswered =
            (0..self.wants.len()).find(|at| self.wants[*at].lease.is_none() && !self.is_busy(*at));
        let held = self.wants.iter().filter(|want| !want.released).count();
        let want = match unanswered {
            Some(at) => at,
            None if held >= HELD_MAX => return None,
            None => {
                let key = u32::try_from(self.wants.len()).unwrap();
                self.wants.push(Want { key, lease: None, released: false, over: false });
                self.wants.len() - 1
            }
        };
        let key = self.wants[want].key;
        self.begin(peers, through, want, Ask::Create(key));
        Some(format!("ask {key} through {}", peers[through].name))
    }

    /// Ends a lease through a member: the oldest one, or again one whose end was not answered.
    pub fn release(&mut self, peers: &[Peer], through: usize) -> Option<String> {
        let want = (0..self.wants.len()).find(|at| {
            let want = &self.wants[*at];
            want.lease.is_some() && !want.over && !self.is_busy(*at)
        })?;
        let lease = self.wants[want].lease.clone()?;
        self.wants[want].released = true;
        let step = format!("release {lease} through {}", peers[through].name);
        self.begin(peers, through, want, Ask::Release(lease));
        Some(step)
    }

    /// Looks at a lease through a member: at one of the last that were answered.
    pub fn look(&mut self, peers: &[Peer], through: usize, dice: &mut Dice) {
        let known: Vec<usize> =
            (0..self.wants.len()).filter(|at| self.wants[*at].lease.is_some()).collect();
        let recent = &known[known.len().saturating_sub(2 * HELD_MAX)..];
        let Some(want) = recent.get(usize::try_from(dice.below(recent.len() as u64)).unwrap())
        else {
            return;
        };
        let lease = self.wants[*want].lease.clone().unwrap();
        self.begin(peers, through, *want, Ask::Read(lease));
    }

    /// Asks and releases again what was not answered, and looks at every lease.
    pub fn finish(&mut self, peers: &[Peer], through: usize) {
        for at in 0..self.wants.len() {
            let Want { key, lease, released, over } = &self.wants[at];
            let (busy, lease) = (self.is_busy(at), lease.clone());
            match (lease, *released && !*over) {
                (None, _) if !busy => {
                    let key = *key;
                    self.begin(peers, through, at, Ask::Create(key));
                }
                (Some(lease), true) if !busy => self.begin(peers, through, at, Ask::Release(lease)),
                (Some(lease), false) => self.begin(peers, through, at, Ask::Read(lease)),
                (None, _) | (Some(_), true) => {}
            }
        }
    }

    /// Whether everything that was asked for was answered.
    pub fn is_settled(&self) -> bool {
        let settled = |want: &Want| want.lease.is_some() && want.released == want.over;
        self.open.is_empty() && self.wants.iter().all(settled)
    }

    /// The member that serves a call, or what the one that was called answers by itself.
    fn server(&self, peers: &[Peer], through: usize) -> Result<usize, Answer> {
        let called = &peers[through];
        if called.participant.is_none() {
            return Err(Answer::Nothing);
        }
        if called.world.runs() {
            return Ok(through);
        }
        if !called.is_awake() {
            return Err(Answer::Unknown);
        }
        let leader = called.known_leader().filter(|name| *name != called.name);
        let leader = leader.and_then(|name| peers.iter().position(|peer| peer.name == name));
        let reached = leader.filter(|at| !self.are_cut(through, *at) && peers[*at].world.runs());
        reached.ok_or(Answer::Nothing)
    }

    fn begin(&mut self, peers: &[Peer], through: usize, want: usize, ask: Ask) {
        let call = self.history.begin(self.started.elapsed(), ask.clone());
        let server = match self.server(peers, through) {
            Ok(server) => server,
            Err(answer) => return self.history.end(call, answer, None),
        };
        let Peer { world, .. } = &peers[server];
        let waits = match ask {
            Ask::Create(key) => Waits::Create(world.ask_with_key("linux", &key.to_string())),
            Ask::Release(lease) => Waits::Release(world.begin_release(&lease)),
            Ask::Read(lease) => Waits::Read(lease),
        };
        let process = |at: usize| (at, peers[at].processes);
        let term = peers[server].serves_in();
        let (through, server) = (process(through), process(server));
        let since = Instant::now();
        self.open.push(Open { call, want, waits, since, through, server, term });
    }

    /// Takes the answers that came.
    pub fn settle(&mut self, peers: &[Peer]) {
        for mut open in std::mem::take(&mut self.open) {
            match self.answer(peers, &mut open) {
                None => self.open.push(open),
                Some(answer) => self.note(peers, &open, answer),
            }
        }
    }

    /// What a caller has of a call by now; none while it waits.
    fn answer(&self, peers: &[Peer], open: &mut Open) -> Option<Answer> {
        let ((through, _), (server, _)) = (open.through, open.server);
        let lives = |(at, process): (usize, u64)| {
            peers[at].participant.is_some() && peers[at].processes == process
        };
        let lost = !lives(open.through) || !lives(open.server) || self.are_cut(through, server);
        let ended = peers[server].serves_in() != open.term || !peers[server].world.runs();
        let ways = [through, server];
        if lost || ended || open.since.elapsed() > CALL_LIMIT {
            return Some(Answer::Unknown);
        }
        if !ways.iter().all(|at| peers[*at].is_awake()) {
            return None;
        }
        // The API refuses what the member cannot know (`server/leases.rs`).
        let knows = peers[server].may_act();
        Some(match &mut open.waits {
            Waits::Read(_) if !knows => Answer::Nothing,
            Waits::Read(lease) => match peers[server].world.view().lease(lease) {
                Some(seen) => Answer::Seen(seen.state, seen.agent),
                None => Answer::NotFound,
            },
            Waits::Create(answer) => match answer.try_recv() {
                Ok(Ok(lease)) => Answer::Created(lease),
                Ok(Err(Refusal::Unavailable(_))) | Err(TryRecvError::Closed) => Answer::Unknown,
                Ok(Err(_)) => Answer::Nothing,
                Err(TryRecvError::Empty) => return None,
            },
            Waits::Release(answer) => match answer.try_recv() {
                Ok(Ok(())) => Answer::Released,
                Ok(Err(_)) if !knows => Answer::Unknown,
                Ok(Err(Refusal::Unknown(_))) => Answer::NotFound,
                Ok(Err(Refusal::Unavailable(_))) | Err(TryRecvError::Closed) => Answer::Unknown,
                Ok(Err(_)) => Answer::Nothing,
                Err(TryRecvError::Empty) => return None,
            },
        })
    }

    fn note(&mut self, peers: &[Peer], open: &Open, answer: Answer) {
        let want = &mut self.wants[open.want];
        match &answer {
            Answer::Created(lease) => want.lease = Some(lease.clone()),
            Answer::Released => want.over = true,
            Answer::NotFound => want.over |= matches!(open.waits, Waits::Release(_)),
            Answer::Seen(..) | Answer::Nothing | Answer::Unknown => {}
        }
        let server = &peers[open.server.0];
        let by = open.term.filter(|_| !matches!(answer, Answer::Unknown | Answer::Nothing));
        let by = by.map(|term| By { member: server.name, term });
        self.history.end(open.call, answer, by);
    }
}
