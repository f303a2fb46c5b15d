//! A plan: everything a storm does, as plain data that is printed, shrunk, and read back.

use drover_model::order::Work;
use drover_model::phase::NodeOrder;
use drover_model::stop::StopPolicy;
use pve_sim::world::{AgentHealth, Faults};
use serde::{Deserialize, Serialize};

pub use super::kinds::{Bait, Found, Lie, QuirkName, ResetName, Speed, Stranger};
use super::sizes::Asked;
use crate::world::ci::Lists;
use crate::world::ci::rows::RowDeed;

/// Keys of clouds, by number.
pub const CLOUDS: [&str; 3] = ["rack", "edge", "attic"];
/// Keys of CI systems, by number.
pub const SOURCES: [&str; 5] = ["git", "hub", "forge", "lab", "oak"];
/// Keys of templates, by number; each is its template's label too.
pub const TEMPLATES: [&str; 3] = ["linux", "tools", "heavy"];

/// A storm, start to end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Where it is played.
    pub stage: Stage,
    /// What happens, in the order of time.
    pub events: Vec<Event>,
}

/// The cluster and the YAML a storm begins with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Fixes all other chance.
    pub seed: u64,
    /// Nodes of each cluster, one to three; each has a template.
    pub nodes: usize,
    /// The cluster that each cloud leads to, by number.
    #[serde(default)]
    pub leads: [usize; 3],
    /// GiB of memory of each node; 0 for plenty.
    #[serde(default)]
    pub memory: u64,
    /// The part of it that must stay free, in hundredths.
    #[serde(default)]
    pub headroom: u64,
    /// Whether Proxmox VE is 9.2 rather than 8.4.
    pub new_version: bool,
    /// How fast the cluster is.
    pub speed: Speed,
    /// The most leases that wait; 0 for what is usual.
    #[serde(default)]
    pub waiting: u32,
    /// How many seconds a lease waits; 0 for what is usual.
    #[serde(default)]
    pub wait: u32,
    /// Addresses of the pool that all templates share; 0 for none.
    #[serde(default)]
    pub addresses: u32,
    /// Each cloud of [`CLOUDS`], where it is configured.
    pub clouds: [Option<CloudConf>; 3],
    /// Each template of [`TEMPLATES`], where it is configured.
    pub templates: [Option<TemplateConf>; 3],
    /// CI systems, the first of [`SOURCES`].
    #[serde(default)]
    pub sources: Vec<SourceConf>,
}

/// What is configured of a CI system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceConf {
    /// Its share's weight.
    pub weight: u32,
    pub priority: u32,
    /// Its cap; 0 for none.
    pub cap: u32,
    /// Whether its runners are nodes, which take agents whole and job after job.
    #[serde(default)]
    pub nodes: bool,
    /// How its list of runners comes.
    #[serde(default)]
    pub lists: Lists,
    /// Whether it guesses which runners are idle.
    #[serde(default)]
    pub guesses: bool,
}

/// What is configured of a cloud.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CloudConf {
    /// Its cap; 0 for none.
    pub cap: u32,
    /// Whether orphans are destroyed.
    pub cleanup: bool,
}

/// What is configured of a template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TemplateConf {
    /// Clouds it is on, by number.
    pub clouds: Vec<usize>,
    /// The node whose template is cloned, by number.
    pub source: usize,
    /// How that is found.
    #[serde(default)]
    pub found: Found,
    /// Its cap; 0 for none.
    pub cap: u32,
    /// Agents it keeps, in use or not.
    pub min: u32,
    /// Idle agents it keeps.
    #[serde(default)]
    pub idle_min: u32,
    /// Uses at once on one agent.
    pub executors: u32,
    /// Uses in all; 0 for no limit.
    pub uses: u32,
    /// Minutes before an idle agent goes.
    pub idle: u32,
    /// Full clones rather than linked ones.
    pub full: bool,
    /// The storage of full clones, by number, before any other.
    #[serde(default)]
    pub target: Option<usize>,
    /// Whether agents have a disc image of their own.
    #[serde(default)]
    pub image: bool,
    /// One more idle agent is kept in every second part of so many minutes; 0 for never.
    #[serde(default)]
    pub window: u32,
    /// The most minutes an agent lives; 0 for no limit.
    #[serde(default)]
    pub life: u32,
    /// How used agents are made clean again.
    #[serde(default)]
    pub reset: ResetName,
    /// The most cores that labels ask for; 0 where they ask for no size.
    #[serde(default)]
    pub cores: u32,
    /// Whether agents are containers.
    #[serde(default)]
    pub container: bool,
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in milliseconds from the beginning; later where the service was down meanwhile.
    pub at: u64,
    #[serde(rename = "do")]
    pub deed: Deed,
}

/// What happens. A `pick` chooses among what fits at that moment, by number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// Somebody asks for a lease.
    Ask {
        /// The number of the asker.
        who: u32,
        /// The template's number.
        template: usize,
        /// Whether it is asked for by label rather than by the template's name.
        label: bool,
        /// For how many seconds.
        ttl: u64,
        #[serde(default)]
        size: Asked,
    },
    /// An asker ends the lease; a patient one waits until it was served.
    Release {
        /// The number of the asker.
        who: u32,
        /// Whether the asker waits.
        patient: bool,
    },
    /// An asker wants it for longer, in seconds from then.
    Renew {
        /// The number of the asker.
        who: u32,
        /// For how many seconds.
        ttl: u64,
    },
    /// An asker gives its machine an order, or tries to.
    Order {
        /// The number of the asker.
        who: u32,
        work: Work,
    },
    /// Other things go wrong on the cluster from here on, or none.
    Weather(Box<Faults>),
    /// The next guest that boots misbehaves.
    Quirk(QuirkName),
    /// A node loses its power; ten times its cluster's number stands before its own.
    NodeDown(usize),
    /// A node comes back.
    NodeUp(usize),
    /// A node's status daemon hangs, or goes on.
    Stale(usize, bool),
    /// Every node of a cluster loses the others and so the quorum, or finds them again.
    Apart(usize, bool),
    /// Somebody holds a storage's lock on a node for some seconds.
    HoldStorage(usize, u64),
    /// Somebody holds the lock of a storage, of this number, on a node for some seconds.
    Stall(usize, usize, u64),
    /// A cluster does not reach a storage of this number from here on, or reaches it again.
    Offline(usize, usize, bool),
    /// A cluster cannot be reached from here on, or it can again.
    Cut(usize, bool),
    /// Other things go wrong on a further cluster, or none.
    Afar(usize, Box<Faults>),
    /// An operator cordons or drains a node, or lets it be used again.
    OrderNode(usize, NodeOrder),
    /// Somebody holds the lock of an agent's guest for some seconds.
    HoldGuest {
        pick: usize,
        /// For how long.
        seconds: u64,
    },
    /// The guest agent of a living guest changes its health.
    Health { pick: usize, health: AgentHealth },
    /// Somebody makes a guest of their own.
    Plant {
        /// Of what sort.
        sort: Stranger,
        /// Made after which agent, living or gone.
        pick: usize,
    },
    /// Somebody alters the marks of an agent's guest.
    Alter(usize),
    /// A volume of an agent's guest cannot be freed from here on.
    Jam(usize),
    /// Anyone who holds an agent's guest locks drover out of it for some seconds.
    LockOut {
        /// Which agent that somebody holds.
        pick: usize,
        /// For how long.
        seconds: u64,
    },
    /// SSH of an agent's guest says nothing for some seconds.
    Hang { pick: usize, seconds: u64 },
    /// Somebody sets the wall clock of the service's machine by so many seconds.
    Clock(i64),
    /// An agent's guest dies.
    Kill(usize),
    /// An agent's guest powers itself off.
    PowerOff(usize),
    /// All idle agents of a template die at once, and a while later somebody wants two of them.
    Perish {
        /// Which template that has any.
        pick: usize,
        /// For how many seconds their SSH hangs while their machines run; 0 where these are switched off.
        hang: u64,
        /// Milliseconds until they are wanted; everything else waits for that.
        after: u64,
        /// The number of the first of two askers.
        who: u32,
    },
    /// Somebody removes an agent's guest with its disks.
    Remove(usize),
    /// Somebody removes an agent's guest and makes another under its id.
    Swap(usize),
    /// The YAML changes: a cloud is another one, or not there.
    Cloud(usize, Option<CloudConf>),
    /// The YAML changes: a template is another one, or not there.
    Template(usize, Option<TemplateConf>),
    /// A commit on the branch: a template is another one, or not there.
    Commit(usize, Option<TemplateConf>),
    /// Somebody moves the branch back by so many commits.
    ForceMove(usize),
    /// A sync with the branch.
    Sync,
    /// A return to what was applied so many times before the last.
    RollBack(usize),
    /// The YAML is saved again as it was; or, to compare with that, it is not.
    Touch(bool),
    /// An operator retires an agent.
    Retire(usize),
    /// An operator sets values of a template against the configuration.
    Set {
        /// The template's number.
        template: usize,
        cap: Option<u32>,
        minimum: Option<u32>,
        /// Whether its roll-out pauses from then on, where that changes.
        paused: Option<bool>,
    },
    /// A sync with git undoes what operators set.
    Undo,
    /// An operator sets an agent's limits against its template's.
    Limit {
        pick: usize,
        /// The minutes it may be idle, where they change.
        idle: Option<u32>,
        /// The most uses, where they change.
        uses: Option<u32>,
    },
    /// An operator holds an agent for debugging.
    Hold {
        pick: usize,
        /// For how many seconds.
        seconds: u64,
    },
    /// An operator ends an agent's hold.
    Unhold(usize),
    /// An operator wants agents without demand.
    Provision {
        /// The template's number.
        template: usize,
        count: u32,
    },
    /// An operator reaps.
    Reap {
        /// Whether the warm minimum goes too.
        all: bool,
    },
    /// An operator has the next failure of a template held for a minute, or none.
    HoldNext {
        /// The template's number.
        template: usize,
        /// Whether it is taken back.
        off: bool,
    },
    /// An operator resyncs.
    Resync,
    /// Jobs come in at a CI system.
    Jobs {
        /// The system's number.
        source: usize,
        count: usize,
        /// The template whose label they want.
        template: usize,
        /// How long each takes.
        seconds: u64,
        #[serde(default)]
        size: Asked,
    },
    /// A job that waits at a CI system is called off.
    CallOff(usize),
    /// A CI system answers nobody from here on, or again.
    Mute(usize, bool),
    /// A CI system makes no runners from here on, or again.
    Forbid(usize, bool),
    /// The guest with the next runner of a CI system misbehaves.
    Lie(usize, Lie),
    /// Somebody removes a runner at its CI system.
    Unlist {
        /// The system's number.
        source: usize,
        pick: usize,
    },
    /// Something happens to rows of a CI system.
    Rows(usize, RowDeed),
    /// A webhook of a CI system comes in.
    Hook(usize),
    /// The YAML changes: a CI system is another one, or not there.
    Source(usize, Option<SourceConf>),
    /// The service stops in order, and starts again after some seconds.
    Stop {
        /// What becomes of the agents.
        policy: StopPolicy,
        /// Seconds until it starts again.
        away: u64,
    },
    /// The power goes, and comes back after some seconds.
    Crash {
        /// Seconds until it starts again.
        away: u64,
    },
    /// The power goes at the n-th such call from here on.
    Trap {
        /// Which calls count.
        of: Bait,
        /// How many pass.
        nth: u32,
        /// Whether that call has its effect before.
        after: bool,
        /// Milliseconds for which everybody else goes on without its answer.
        linger: u64,
        /// Seconds until it starts again.
        away: u64,
    },
}

impl Stage {
    /// How many clusters there are: those that clouds lead to.
    pub fn clusters(&self) -> usize {
        let led = self.leads.iter().zip(&self.clouds).filter(|(_, cloud)| cloud.is_some());
        led.map(|(cluster, _)| cluster + 1).max().unwrap_or(1)
    }
}

impl Deed {
    /// Whether the cluster it is about is there.
    fn is_on(&self, stage: &Stage) -> bool {
        match self {
            Self::NodeDown(number)
            | Self::NodeUp(number)
            | Self::Stall(number, ..)
            | Self::OrderNode(number, _) => number / 10 < stage.clusters(),
            Self::Offline(cluster, ..) | Self::Cut(cluster, _) | Self::Afar(cluster, _) => {
                *cluster < stage.clusters()
            }
            _ => true,
        }
    }

    /// Whether the service is cut down by it.
    pub fn cuts(&self) -> bool {
        matches!(self, Self::Crash { .. } | Self::Trap { .. })
    }

    /// Whether it may cost somebody a lease, or an agent its life, by no fault of drover.
    pub fn harms(&self) -> bool {
        match self {
            Self::Ask { .. }
            | Self::Release { .. }
            | Self::Renew { .. }
            | Self::Order { .. }
            | Self::Stale(..)
            | Self::Apart(..)
            | Self::Cloud(..)
            | Self::Template(..)
            | Self::Commit(..)
            | Self::ForceMove(_)
            | Self::Sync
            | Self::RollBack(_)
            | Self::Touch(_)
            | Self::OrderNode(..)
            | Self::Retire(_)
            | Self::Limit { .. }
            | Self::Set { .. }
            | Self::Undo
            | Self::Hold { .. }
            | Self::Unhold(_)
            | Self::Provision { .. }
            | Self::Reap { .. }
            | Self::HoldNext { .. }
            | Self::Resync
            | Self::Jobs { .. }
            | Self::CallOff(_)
            | Self::Mute(..)
            | Self::Forbid(..)
            | Self::Lie(..)
            | Self::Unlist { .. }
            | Self::Rows(..)
            | Self::Hook(_)
            | Self::Source(..)
            | Self::Clock(_)
            | Self::LockOut { .. }
            | Self::Crash { .. }
            | Self::Trap { .. } => false,
            Self::Plant { sort, .. } => *sort == Stranger::Orphan,
            Self::Stop { policy, .. } => *policy == StopPolicy::RetireAll,
            Self::Weather(_)
            | Self::Stall(..)
            | Self::Offline(..)
            | Self::Cut(..)
            | Self::Afar(..)
            | Self::Quirk(_)
            | Self::NodeDown(_)
            | Self::NodeUp(_)
            | Self::HoldStorage(..)
            | Self::HoldGuest { .. }
            | Self::Health { .. }
            | Self::Alter(_)
            | Self::Jam(_)
            | Self::Hang { .. }
            | Self::Kill(_)
            | Self::PowerOff(_)
            | Self::Perish { .. }
            | Self::Remove(_)
            | Self::Swap(_) => true,
        }
    }
}

impl Plan {
    /// The plan as text, a line for the stage and one for each event; read back by [`Plan::parse`].
    pub fn text(&self) -> String {
        let mut text = serde_json::to_string(&self.stage).unwrap();
        for event in &self.events {
            text.push('\n');
            text.push_str(&serde_json::to_string(event).unwrap());
        }
        text
    }

    /// Reads what [`Plan::text`] wrote; lines that do not begin with `{` are left out.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let mut lines = text.lines().map(str::trim).filter(|line| line.starts_with('{'));
        let stage = serde_json::from_str(lines.next().unwrap_or_default())?;
        let events = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(Self { stage, events })
    }

    /// The same without crashes.
    pub fn uncut(&self) -> Self {
        let events = self.events.iter().filter(|event| !event.deed.cuts()).cloned().collect();
        Self { stage: self.stage.clone(), events }
    }
}

impl Plan {
    /// The same without those reloads that change nothing.
    pub fn untouched(&self) -> Self {
        let mut plan = self.clone();
        for event in &mut plan.events {
            if let Deed::Touch(saved) = &mut event.deed {
                *saved = false;
            }
        }
        plan
    }
}

impl Plan {
    /// Whether it is of demand, orderly stops and crashes alone, so that crashes change nothing.
    pub fn is_strict(&self) -> bool {
        self.events.iter().all(|event| match &event.deed {
            Deed::Ask { .. } | Deed::Crash { .. } | Deed::Trap { .. } => true,
            Deed::Release { patient, .. } => *patient,
            Deed::Stop { policy, .. } => *policy != StopPolicy::RetireAll,
            _ => false,
        })
    }
}

impl Plan {
    /// Whether everything it names is there.
    pub fn fits(&self) -> bool {
        let stage = &self.stage;
        let templates = stage.templates.iter().flatten();
        let placed = templates.clone().all(|conf| {
            let there = conf.clouds.iter().all(|cloud| stage.clouds[*cloud].is_some());
            there && conf.source < stage.nodes
        });
        let named = self.events.iter().all(|event| match &event.deed {
            Deed::Ask { template, .. }
            | Deed::Provision { template, .. }
            | Deed::HoldNext { template, .. }
            | Deed::Set { template, .. } => stage.templates[*template].is_some(),
            Deed::Jobs { source, template, .. } => {
                *source < stage.sources.len() && stage.templates[*template].is_some()
            }
            Deed::CallOff(source)
            | Deed::Mute(source, _)
            | Deed::Forbid(source, _)
            | Deed::Lie(source, _)
            | Deed::Unlist { source, .. }
            | Deed::Hook(source)
            | Deed::Rows(source, _)
            | Deed::Source(source, _) => *source < stage.sources.len(),
            Deed::Template(number, _) | Deed::Commit(number, _) => {
                stage.templates[*number].is_some()
            }
            Deed::Cloud(number, _) => stage.clouds[*number].is_some(),
            _ => true,
        });
        let led = stage.leads.iter().all(|cluster| *cluster < stage.clusters());
        placed && named && led && (self.events.iter()).all(|event| event.deed.is_on(stage))
    }
}
