//! What is seen of a herd, and what must hold at every single fact and record: no guest of ours
//! without a record, no cap exceeded, no agent with two guests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use drover_history::{Fold, Kept, Line as Record};
use drover_model::fact::{Fact, What};
use drover_model::id::{AgentId, CloudId, TemplateId};
use drover_model::marks::parse_name;
use drover_model::noted::Noted;
use drover_model::phase::AgentPhase;
use drover_model::ports::{Journal, JournalFault, Observer};
use drover_model::record::Body;
use drover_model::spec::HerdSpec;
use drover_model::time::WallTime;
use drover_server::view::View;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending};
use pve_sim::world::WorldControl;
use tokio::sync::Notify;

use super::addresses::Addresses;
use super::eye::Socket;
use super::store::{Line, no_answer};
use super::tally::Tally;

/// Facts a failure shows.
const TAIL: usize = 25;

type Trap = Box<dyn Fn(&Body) -> bool + Send>;

#[derive(Default)]
struct Seen {
    facts: Vec<Fact>,
    /// The history, where one is kept.
    history: Option<Fold>,
    spec: HerdSpec,
    /// Agents that hold a slot.
    living: BTreeMap<AgentId, TemplateId>,
    most: BTreeMap<TemplateId, usize>,
    /// Agents with a durable intent, ever.
    intended: BTreeSet<AgentId>,
    /// Builds of images with a durable intent, and versions that were proved, ever. A version may have
    /// a guest on each node.
    images: BTreeSet<AgentId>,
    /// Every VMID an agent's guest was seen with.
    vmids: BTreeMap<AgentId, BTreeSet<u32>>,
    /// Guests that tests planted under drover's own marks.
    planted: BTreeSet<u32>,
    /// Whether others have guests of their own here that look alike.
    neighbours: bool,
    /// The guests of the last look, by name.
    names: Vec<(u32, String)>,
    slack: bool,
    addresses: Addresses,
    wrongs: Vec<String>,
    trap: Option<Trap>,
}

impl Seen {
    fn note(&mut self, mut wrongs: Vec<String>) {
        wrongs.retain(|wrong| !self.wrongs.contains(wrong));
        self.wrongs.extend(wrongs);
    }
}

/// The notebook of one world; it outlives crashes.
#[derive(Clone)]
pub struct Notes {
    seen: Arc<Mutex<Seen>>,
    side: WorldControl,
    /// Called at every fact.
    pub pulse: Arc<Notify>,
    /// An eye that judges instead of the notebook.
    pub socket: Socket,
}

impl Notes {
    /// An empty one.
    pub fn new(side: WorldControl, pulse: Arc<Notify>) -> Self {
        Self { seen: Arc::default(), side, pulse, socket: Socket::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// The caps that hold from here on.
    pub fn apply(&self, spec: &HerdSpec) {
        self.seen().spec = spec.clone();
    }

    /// Caps are not looked at any more: agents on a dead node left them.
    pub fn allow_slack(&self) {
        self.seen().slack = true;
    }

    /// Another service has guests here too: only those with a record of this one are looked at.
    pub fn allow_neighbours(&self) {
        self.seen().neighbours = true;
    }

    /// A guest that looks like drover's and is not.
    pub fn planted(&self, vmid: u32) {
        self.seen().planted.insert(vmid);
    }

    /// Everything that was reported, as lines to compare.
    pub fn log(&self) -> Vec<String> {
        let seen = self.seen();
        seen.facts.iter().map(|fact| format!("{fact:?}")).collect()
    }

    /// The history is kept from here on.
    pub fn keep_history(&self, now: WallTime) {
        self.seen().history = Some(Fold::restored("test", now, [], now));
    }

    /// The records of the history: those that are over, then those that are open.
    pub fn history(&self, now: WallTime) -> Vec<Record> {
        let mut seen = self.seen();
        let fold = seen.history.as_mut().expect("a history is kept");
        let over = fold.take().into_iter().filter_map(|kept| match kept {
            Kept::Closed(line) => Some(line),
            Kept::Open(_) | Kept::Head { .. } | Kept::Alive(_) => None,
        });
        let over: Vec<Record> = over.collect();
        let open = fold.open(now).into_iter().filter_map(Kept::line);
        over.into_iter().chain(open).collect()
    }

    /// The facts that `wanted` takes.
    pub fn facts<T>(&self, wanted: impl Fn(&What) -> Option<T>) -> Vec<T> {
        self.seen().facts.iter().filter_map(|fact| wanted(&fact.what)).collect()
    }

    /// The most agents a template had at one time.
    pub fn most(&self, template: &str) -> usize {
        let seen = self.seen();
        let all = seen.most.iter().filter(|(id, _)| &*id.name == template);
        all.map(|(_, most)| *most).max().unwrap_or(0)
    }

    /// Agents whose intent to clone was ever durable.
    pub fn intended(&self) -> usize {
        self.seen().intended.len()
    }

    /// Holds the next append that has such a record for ever, once it is durable.
    pub fn hold(&self, trap: impl Fn(&Body) -> bool + Send + 'static) {
        self.seen().trap = Some(Box::new(trap));
    }

    /// A crash: nobody reports that the living live until they are taken over.
    pub fn crash(&self) {
        let mut seen = self.seen();
        seen.living.clear();
        seen.trap = None;
    }

    /// What was wrong at any fact.
    pub fn wrongs(&self) -> Vec<String> {
        self.seen().wrongs.clone()
    }

    /// The last facts, for a failure; `STORM_TAIL` in the environment says how many.
    pub fn tail(&self) -> String {
        // What the reconcilers say again and again says nothing here.
        let reported = |fact: &&Fact| !matches!(fact.what, What::Reconciled { .. });
        let seen = self.seen();
        let log: Vec<String> =
            seen.facts.iter().filter(reported).map(|fact| format!("{fact:?}")).collect();
        let wanted = std::env::var("STORM_TAIL").ok().and_then(|text| text.parse().ok());
        log[log.len().saturating_sub(wanted.unwrap_or(TAIL))..].join("\n")
    }

    fn look(&self) {
        self.look_at_guests();
        self.look_at_caps();
    }

    /// Looks at the guests: whose they are, and whether that was ever intended.
    fn look_at_guests(&self) {
        let names = self.side.names();
        let mut wrongs = Vec::new();
        let mut seen = self.seen();
        if names == seen.names {
            return;
        }
        for (vmid, name) in &names {
            let Some((_, agent)) = parse_name(name) else { continue };
            let vmid = *vmid;
            if seen.planted.contains(&vmid) || seen.images.contains(&agent) {
                continue;
            }
            if seen.neighbours && !seen.intended.contains(&agent) {
                continue;
            }
            if !seen.intended.contains(&agent) {
                wrongs.push(format!("guest {vmid} of agent {agent} has no record"));
            }
            let known = seen.vmids.entry(agent.clone()).or_default();
            known.insert(vmid);
            if known.len() > 1 {
                wrongs.push(format!("agent {agent} has guests {known:?}"));
            }
        }
        seen.names = names;
        seen.note(wrongs);
    }

    /// Looks at the caps of the living.
    fn look_at_caps(&self) {
        let mut wrongs = Vec::new();
        let mut seen = self.seen();
        let Seen { living, spec, most, slack, .. } = &mut *seen;
        let mut clouds: BTreeMap<&CloudId, usize> = BTreeMap::new();
        let mut templates: BTreeMap<&TemplateId, usize> = BTreeMap::new();
        for template in living.values() {
            *clouds.entry(&template.cloud).or_default() += 1;
            *templates.entry(template).or_default() += 1;
        }
        for (id, count) in templates {
            let cap = spec.templates.get(id).and_then(|spec| spec.cap);
            if !*slack && cap.is_some_and(|cap| count > cap as usize) {
                wrongs.push(format!("{count} agents of {id}, whose cap is {cap:?}"));
            }
            if most.get(id).is_none_or(|most| *most < count) {
                most.insert(id.clone(), count);
            }
        }
        for (id, count) in clouds {
            let cap = spec.clouds.get(id).and_then(|spec| spec.cap);
            if !*slack && cap.is_some_and(|cap| count > cap as usize) {
                wrongs.push(format!("{count} agents on {id}, whose cap is {cap:?}"));
            }
        }
        seen.note(wrongs);
    }
}

/// One start's read side: the notebook, and the view behind it.
pub struct Listener {
    pub notes: Notes,
    pub view: Arc<View>,
}

impl Observer for Listener {
    fn observe(&self, fact: Fact) {
        {
            let mut seen = self.notes.seen();
            match &fact.what {
                What::Agent(status) if status.phase != AgentPhase::Gone => {
                    seen.living.insert(status.agent.clone(), status.template.clone());
                }
                What::AgentGone { agent, .. } => {
                    seen.living.remove(agent);
                }
                _ => {}
            }
            if let Some(history) = &mut seen.history {
                history.observe(&fact);
            }
            seen.facts.push(fact.clone());
        }
        match self.notes.socket.eye() {
            Some(eye) => eye.fact(&fact),
            None => self.notes.look(),
        }
        self.view.observe(fact);
        self.notes.pulse.notify_one();
    }

    fn note(&self, at: WallTime, noted: Noted) {
        if let Some(history) = &mut self.notes.seen().history {
            history.note(at, &noted);
        }
    }
}

/// The journal, which notes what becomes durable.
pub struct Recorder {
    /// The way to the real one.
    pub line: Line,
    pub notes: Notes,
    /// Who hears of a held append.
    pub tally: Tally,
}

impl Journal for Recorder {
    fn append(&self, bodies: Vec<Body>) -> BoxFuture<'static, Result<u64, JournalFault>> {
        if self.line.is_away() {
            return async { Err(no_answer()) }.boxed();
        }
        let held = {
            let mut seen = self.notes.seen();
            for body in &bodies {
                match body {
                    Body::CloneIntended { marks, .. } => {
                        seen.intended.insert(marks.agent.clone());
                    }
                    Body::ImageIntended { marks, .. }
                    | Body::ImageSealed { marks, .. }
                    | Body::DeclaredIntended { marks, .. } => {
                        seen.images.insert(marks.agent.clone());
                    }
                    _ => {}
                }
                let wrong = seen.addresses.record(body);
                seen.note(wrong.into_iter().collect());
            }
            let held = seen.trap.as_ref().is_some_and(|trap| bodies.iter().any(trap));
            if held {
                seen.trap = None;
            }
            held
        };
        let eye = self.notes.socket.eye();
        let reported = if eye.is_some() { bodies.clone() } else { Vec::new() };
        // The writer commits within the call: what it was given is in the log from here on.
        let done = self.line.append(bodies);
        reported.iter().for_each(|body| eye.iter().for_each(|eye| eye.record(body)));
        if !held {
            return done;
        }
        self.tally.spring();
        pending().boxed()
    }

    fn last_seq(&self) -> u64 {
        self.line.last_seq()
    }
}
