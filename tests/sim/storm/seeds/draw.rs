//! Plans drawn by dice from a seed.

use drover_model::ambient::Dice;
use drover_model::stop::StopPolicy;
use pve_sim::world::{AgentFault, AgentHealth, CallFault, Faults, FreeFault, LockFault, TaskFault};

use super::plan::{
    Bait, CloudConf, Deed, Event, Found, Plan, QuirkName, ResetName, Speed, Stage, Stranger,
    TemplateConf,
};
use super::sizes::{self, Asked};
use super::{around, branch, clocks, containers, deaths, lockouts, orders, systems, waits};

/// The kinds of storm; a seed's number chooses one in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Demand and crashes alone: compared with the same without crashes.
    Strict,
    Full,
}

struct Draw {
    dice: Dice,
    stage: Stage,
    events: Vec<Event>,
}

/// The plan of a seed.
pub fn plan(seed: u64) -> Plan {
    let mut dice = Dice::from_number(seed).fork("plan");
    let kind = if dice.below(3) == 0 { Kind::Strict } else { Kind::Full };
    let stage = stage(seed, kind, &mut dice);
    let mut draw = Draw { dice, stage, events: Vec::new() };
    draw.demand(kind);
    draw.cuts();
    match kind {
        Kind::Strict => {}
        Kind::Full => draw.trouble(),
    }
    draw.events.sort_by_key(|event| event.at);
    let mut plan = Plan { stage: draw.stage, events: draw.events };
    lockouts::lay(seed, &mut plan);
    if kind == Kind::Full {
        around::lay(seed, &mut plan);
        systems::lay(seed, &mut plan);
        deaths::lay(seed, &mut plan);
        clocks::lay(seed, &mut plan);
        waits::lay(seed, &mut plan);
        orders::lay(seed, &mut plan);
    }
    sizes::lay(seed, &mut plan);
    containers::lay(seed, &mut plan);
    if kind == Kind::Full {
        branch::lay(seed, &mut plan);
    }
    plan
}

pub(super) fn one_of<T: Copy>(dice: &mut Dice, of: &[T]) -> T {
    of[usize::try_from(dice.below(of.len() as u64)).unwrap()]
}

pub(super) fn index(dice: &mut Dice, below: usize) -> usize {
    usize::try_from(dice.below(below as u64)).unwrap()
}

fn stage(seed: u64, kind: Kind, dice: &mut Dice) -> Stage {
    let nodes = one_of(dice, &[1, 2, 3, 3]);
    let two = dice.below(4) == 0;
    let cloud = |dice: &mut Dice| CloudConf {
        cap: one_of(dice, &[0, 0, 5, 6, 8]),
        cleanup: dice.below(2) == 0,
    };
    let clouds = [Some(cloud(dice)), two.then(|| cloud(dice)), None];
    let count = one_of(dice, &[1, 1, 2, 2, 3]);
    let mut templates = [None, None, None];
    // What is kept warm must fit under a cloud's cap with one to spare.
    for place in templates.iter_mut().take(count) {
        let conf = template(dice, nodes, two, count);
        // What is there at the end would hang on when the end is.
        let timed = if kind == Kind::Full { timed(dice) } else { (0, 0) };
        *place = Some(TemplateConf { window: timed.0, life: timed.1, ..conf });
    }
    // Dice of their own: all else is as it was before there were pools.
    let mut pools = Dice::from_number(seed).fork("pools");
    Stage {
        addresses: one_of(&mut pools, &[0, 0, 12, 20]),
        seed,
        nodes,
        leads: [0; 3],
        memory: 0,
        headroom: 0,
        waiting: 0,
        wait: 0,
        new_version: dice.below(2) == 0,
        speed: one_of(dice, &[Speed::Swift, Speed::Usual, Speed::Usual, Speed::Slow]),
        clouds,
        templates,
        sources: Vec::new(),
    }
}

fn template(dice: &mut Dice, nodes: usize, two: bool, count: usize) -> TemplateConf {
    let clouds: &[&[usize]] = if two { &[&[0], &[1], &[0, 1]] } else { &[&[0]] };
    let clouds = one_of(dice, clouds).to_vec();
    let source = index(dice, nodes);
    let cap = one_of(dice, &[0, 2, 3, 4]);
    let kept = if count > 2 { one_of(dice, &[0, 1]) } else { one_of(dice, &[0, 0, 1, 2]) };
    // One of the two, or both of them together.
    let (min, idle_min) = one_of(dice, &[(kept, 0), (0, kept), (kept, kept.min(1))]);
    TemplateConf {
        clouds,
        source,
        cap,
        min,
        idle_min,
        executors: one_of(dice, &[1, 1, 2, 3]),
        uses: one_of(dice, &[0, 1, 1, 2, 3]),
        idle: one_of(dice, &[1, 2, 4]),
        full: dice.below(4) == 0,
        found: one_of(dice, &[Found::Id, Found::Id, Found::Name, Found::Tag]),
        reset: one_of(
            dice,
            &[ResetName::None, ResetName::None, ResetName::Disk, ResetName::Memory],
        ),
        window: 0,
        life: 0,
        target: None,
        image: false,
        cores: 0,
        container: false,
    }
}

/// Minutes of windows, and of the life of agents.
fn timed(dice: &mut Dice) -> (u32, u32) {
    (one_of(dice, &[0, 0, 0, 4, 10]), one_of(dice, &[0, 0, 0, 15, 60]))
}

impl Draw {
    fn push(&mut self, at: u64, deed: Deed) {
        self.events.push(Event { at, deed });
    }

    fn within(&mut self, from: u64, span: u64) -> u64 {
        from + self.dice.below(span)
    }

    fn demand(&mut self, kind: Kind) {
        let askers = 4 + u32::try_from(self.dice.below(6)).unwrap();
        let span = one_of(&mut self.dice, &[20_000, 120_000, 300_000]);
        let count = self.stage.templates.iter().flatten().count();
        for who in 0..askers {
            let at = self.within(100, span);
            let template = index(&mut self.dice, count);
            let several = self.stage.templates[template].as_ref().unwrap().clouds.len() > 1;
            let label = several || self.dice.below(2) == 0;
            let releases = self.dice.below(5) > 0;
            let short = one_of(&mut self.dice, &[60, 300, 3600, 3600]);
            // Whether a lease is released or runs out must not hang on when it was served.
            let ttl = if releases && kind == Kind::Strict { 3600 } else { short };
            self.push(at, Deed::Ask { who, template, label, ttl, size: Asked::default() });
            if self.dice.below(8) == 0 {
                let at = self.within(at, 90_000);
                let ttl = one_of(&mut self.dice, &[30, 600]);
                // A renewal may come before or after a crash has served the lease.
                if kind == Kind::Full {
                    self.push(at, Deed::Renew { who, ttl });
                }
            }
            if releases {
                let at = self.within(at + 500, 150_000);
                let patient = kind == Kind::Strict || self.dice.below(4) > 0;
                self.push(at, Deed::Release { who, patient });
            }
        }
    }

    fn cuts(&mut self) {
        for _ in 0..one_of(&mut self.dice, &[0, 1, 2, 3, 4]) {
            let at = self.within(50, 200_000);
            let away = one_of(&mut self.dice, &[0, 1, 5, 30, 120]);
            let deed = match self.dice.below(8) {
                0 => {
                    let policies = [StopPolicy::Keep, StopPolicy::RetireIdle];
                    Deed::Stop { policy: one_of(&mut self.dice, &policies), away }
                }
                1 => Deed::Crash { away },
                part => {
                    let (of, reach) = match part {
                        2 | 3 => (Bait::Append, 25),
                        4 | 5 => (Bait::Key, 6),
                        _ => (Bait::Effect, 60),
                    };
                    Deed::Trap {
                        of,
                        nth: u32::try_from(self.dice.below(reach)).unwrap(),
                        after: self.dice.below(2) == 0,
                        linger: one_of(&mut self.dice, &[0, 0, 400, 3_000]),
                        away,
                    }
                }
            };
            self.push(at, deed);
        }
    }

    fn trouble(&mut self) {
        for _ in 0..2 + self.dice.below(6) {
            let at = self.within(200, 240_000);
            match self.dice.below(15) {
                0..4 => self.weather(at),
                4 => self.node(at),
                5 | 6 => self.guest(at),
                7 => self.stranger(at),
                8 | 9 => self.reload(at),
                10 => self.operator(at),
                11..14 => self.command(at),
                _ => self.quirk(at),
            }
        }
    }

    fn weather(&mut self, at: u64) {
        let span = one_of(&mut self.dice, &[10_000, 45_000, 180_000]);
        let faults = match self.dice.below(10) {
            0 => self.mixed(),
            8 | 9 => self.broken(at, span),
            7 => self.leak(at, span),
            1 => outage(&mut self.dice),
            2 => Faults { tasks: vec![self.task()], ..Faults::default() },
            3 => Faults { holds: vec![self.hold()], ..Faults::default() },
            4 => Faults { agents: vec![self.agent()], ..Faults::default() },
            _ => {
                let calls = (0..1 + self.dice.below(3)).map(|_| self.call()).collect();
                Faults { calls, ..Faults::default() }
            }
        };
        self.push(at, Deed::Weather(Box::new(faults)));
        self.push(at + span, Deed::Weather(Box::default()));
    }

    /// One sort of call that goes wrong a few times.
    fn call(&mut self) -> CallFault {
        let routes = [
            ("POST", "/clone"),
            ("PUT", "/config"),
            ("POST", "/status/start"),
            ("POST", "/status/shutdown"),
            ("POST", "/status/stop"),
            ("POST", "/snapshot"),
            ("POST", "/rollback"),
            ("DELETE", "/qemu/{vmid}"),
            ("GET", "/config"),
            ("GET", "/status"),
            ("GET", "/nextid"),
            ("GET", "/cluster/tasks"),
            ("GET", "/cluster/resources"),
            ("GET", "/tasks/{upid}"),
            ("GET", "/agent"),
            ("GET", "/content"),
        ];
        let (method, route) = one_of(&mut self.dice, &routes);
        let status = one_of(&mut self.dice, &[None, Some(500), Some(595), Some(596), Some(599)]);
        CallFault {
            method: Some(method.into()),
            route: Some(route.into()),
            skip: u32::try_from(self.dice.below(4)).unwrap(),
            times: Some(1 + u32::try_from(self.dice.below(4)).unwrap()),
            reset: status.is_none(),
            status,
            message: one_of(&mut self.dice, &["", "got timeout", "can't lock file"]).into(),
            done: self.dice.below(2) == 0,
            delay: one_of(&mut self.dice, &[0.0, 0.0, 3.0, 40.0]),
            ..CallFault::default()
        }
    }

    /// A little of everything.
    fn mixed(&mut self) -> Faults {
        let status = |status, done| CallFault {
            chance: 0.02,
            status: Some(status),
            done,
            ..CallFault::default()
        };
        let reset = |done| CallFault { chance: 0.01, reset: true, done, ..CallFault::default() };
        let mut task = self.task();
        (task.chance, task.times, task.kind) = (0.05, None, None);
        let calls = vec![
            status(595, false),
            status(596, true),
            status(599, false),
            status(500, false),
            reset(false),
            reset(true),
        ];
        Faults { calls, tasks: vec![task], holds: vec![self.hold()], ..Faults::default() }
    }

    /// Destroys that leave volumes behind, some of which nobody hears the end of.
    fn leak(&mut self, at: u64, span: u64) -> Faults {
        for _ in 0..2 {
            let at = self.within(at, span);
            let pick = index(&mut self.dice, 5);
            self.push(at, Deed::Retire(pick));
        }
        let errors = [
            "storage 'local-lvm' is not online",
            "cfs-lock 'storage-local-lvm' error: got lock request timeout",
        ];
        let free = FreeFault {
            storage: None,
            chance: one_of(&mut self.dice, &[0.5, 1.0]),
            skip: 0,
            times: Some(1 + u32::try_from(self.dice.below(3)).unwrap()),
            error: one_of(&mut self.dice, &errors).into(),
        };
        let destroy = CallFault {
            method: Some("DELETE".into()),
            route: Some("/qemu/{vmid}".into()),
            chance: one_of(&mut self.dice, &[0.3, 1.0]),
            times: Some(2),
            status: Some(596),
            message: "Connection timed out".into(),
            done: true,
            late: one_of(&mut self.dice, &[0.0, 8.0, 25.0]),
            ..CallFault::default()
        };
        Faults { frees: vec![free], calls: vec![destroy], ..Faults::default() }
    }

    /// A template, a storage or a node that cannot be cloned for a while, the power gone meanwhile, and demand for more
    /// than the one agent that tries it again.
    fn broken(&mut self, at: u64, span: u64) -> Faults {
        let count = self.stage.templates.iter().flatten().count();
        let template = index(&mut self.dice, count);
        let first = 100 + u32::try_from(self.events.len()).unwrap();
        for who in first..first + 4 {
            let asked = self.within(at, 60_000);
            self.push(
                asked,
                Deed::Ask { who, template, label: true, ttl: 60, size: Asked::default() },
            );
        }
        let away = one_of(&mut self.dice, &[0, 5, 60]);
        let cut = self.within(at + 5_000, span);
        self.push(cut, Deed::Crash { away });
        let times = Some(3 + u32::try_from(self.dice.below(6)).unwrap());
        let errors = [
            Some("clone failed: no such logical volume"),
            Some("storage 'local-lvm' is not online"),
            None,
        ];
        let Some(error) = one_of(&mut self.dice, &errors) else {
            let silent = CallFault {
                method: Some("POST".into()),
                route: Some("/clone".into()),
                node: Some(one_of(&mut self.dice, &["pve1", "pve2"]).into()),
                status: Some(595),
                message: "No route to host".into(),
                times,
                ..CallFault::default()
            };
            return Faults { calls: vec![silent], ..Faults::default() };
        };
        let (kind, error) = (Some("qmclone".into()), Some(error.into()));
        let task = TaskFault { kind, error, times, ..TaskFault::default() };
        Faults { tasks: vec![task], ..Faults::default() }
    }

    fn task(&mut self) -> TaskFault {
        let kinds =
            ["qmclone", "qmstart", "qmshutdown", "qmstop", "qmdestroy", "qmsnapshot", "qmrollback"];
        let errors = [
            Some("can't lock file '/var/lock/qemu-server/lock-10000.conf' - got timeout"),
            Some("clone failed: no such logical volume"),
            None,
            None,
        ];
        TaskFault {
            kind: Some(one_of(&mut self.dice, &kinds).into()),
            times: Some(1 + u32::try_from(self.dice.below(3)).unwrap()),
            error: one_of(&mut self.dice, &errors).map(str::to_owned),
            after: one_of(&mut self.dice, &[0.05, 0.3, 2.0]),
            ..TaskFault::default()
        }
    }

    fn hold(&mut self) -> LockFault {
        LockFault {
            node: self.node_name(),
            storage: Some("local-lvm".into()),
            at: 1.0,
            seconds: one_of(&mut self.dice, &[5.0, 12.0, 70.0]),
            every: one_of(&mut self.dice, &[0.0, 45.0]),
            ..LockFault::default()
        }
    }

    fn agent(&mut self) -> AgentFault {
        let sick = [AgentHealth::Dead, AgentHealth::Lying, AgentHealth::Posing, AgentHealth::Stuck];
        AgentFault {
            health: one_of(&mut self.dice, &sick),
            vmid: None,
            chance: 0.7,
            skip: 0,
            times: Some(2),
        }
    }

    fn node_name(&mut self) -> String {
        format!("pve{}", 1 + index(&mut self.dice, self.stage.nodes))
    }

    fn node(&mut self, at: u64) {
        let node = index(&mut self.dice, self.stage.nodes);
        let span = one_of(&mut self.dice, &[5_000, 40_000, 200_000, 500_000]);
        match self.dice.below(6) {
            0 | 1 => {
                self.push(at, Deed::Stale(node, true));
                self.push(at + span, Deed::Stale(node, false));
            }
            2 => {
                self.push(at, Deed::Apart(0, true));
                self.push(at + span, Deed::Apart(0, false));
            }
            _ => {
                self.push(at, Deed::NodeDown(node));
                self.push(at + span, Deed::NodeUp(node));
            }
        }
    }

    fn guest(&mut self, at: u64) {
        let pick = index(&mut self.dice, 5);
        let sick = [AgentHealth::Dead, AgentHealth::Lying, AgentHealth::Posing, AgentHealth::Stuck];
        let deed = match self.dice.below(8) {
            6 => Deed::Jam(pick),
            0 => Deed::Kill(pick),
            1 => Deed::PowerOff(pick),
            2 => Deed::Remove(pick),
            3 => Deed::Swap(pick),
            4 => Deed::Alter(pick),
            5 => Deed::HoldGuest { pick, seconds: one_of(&mut self.dice, &[5, 20, 90]) },
            _ => Deed::Health { pick, health: one_of(&mut self.dice, &sick) },
        };
        self.push(at, deed);
    }

    fn stranger(&mut self, at: u64) {
        let sorts = [Stranger::Plain, Stranger::Copy, Stranger::Orphan, Stranger::Foreign];
        let pick = index(&mut self.dice, 5);
        let sort = one_of(&mut self.dice, &sorts);
        self.push(at, Deed::Plant { sort, pick });
        if sort == Stranger::Plain {
            self.push(at + 50, Deed::Plant { sort, pick: pick + 1 });
        }
    }

    fn reload(&mut self, at: u64) {
        let count = self.stage.templates.iter().flatten().count();
        let two = self.stage.clouds[1].is_some();
        match self.dice.below(6) {
            5 => {
                for _ in 0..2 {
                    let at = self.within(at, 60_000);
                    self.push(at, Deed::Touch(true));
                }
            }
            0 => {
                let which = index(&mut self.dice, if two { 2 } else { 1 });
                let back = self.within(at + 1_000, 120_000);
                self.push(at, Deed::Cloud(which, None));
                self.push(back, Deed::Cloud(which, self.stage.clouds[which].clone()));
            }
            1 => {
                let conf = CloudConf {
                    cap: one_of(&mut self.dice, &[0, 5, 6]),
                    cleanup: self.dice.below(2) == 0,
                };
                self.push(at, Deed::Cloud(0, Some(conf)));
            }
            2 => {
                let which = index(&mut self.dice, count);
                let back = self.within(at + 1_000, 120_000);
                self.push(at, Deed::Template(which, None));
                self.push(back, Deed::Template(which, self.stage.templates[which].clone()));
            }
            _ => {
                let which = index(&mut self.dice, count);
                let before = self.stage.templates[which].clone().unwrap();
                let conf = template(&mut self.dice, self.stage.nodes, two, count);
                let (window, life) = timed(&mut self.dice);
                let conf = TemplateConf { clouds: before.clouds, window, life, ..conf };
                self.push(at, Deed::Template(which, Some(conf)));
            }
        }
    }

    fn operator(&mut self, at: u64) {
        let pick = index(&mut self.dice, 5);
        let deed = match self.dice.below(9) {
            7 => Deed::Undo,
            8 => {
                let count = self.stage.templates.iter().flatten().count();
                Deed::Set {
                    template: index(&mut self.dice, count),
                    cap: one_of(&mut self.dice, &[None, Some(0), Some(1), Some(4)]),
                    minimum: one_of(&mut self.dice, &[None, Some(0), Some(2)]),
                    paused: one_of(&mut self.dice, &[None, Some(true), Some(false)]),
                }
            }
            5 | 6 => {
                let count = self.stage.templates.iter().flatten().count();
                let template = index(&mut self.dice, count);
                Deed::HoldNext { template, off: self.dice.below(4) == 0 }
            }
            0 => Deed::Retire(pick),
            1 => Deed::Reap { all: true },
            2 => Deed::Reap { all: false },
            3 => Deed::Stop { policy: StopPolicy::RetireAll, away: 10 },
            _ => Deed::Resync,
        };
        self.push(at, deed);
    }

    /// What operators want of agents.
    fn command(&mut self, at: u64) {
        let pick = index(&mut self.dice, 5);
        let deed = match self.dice.below(4) {
            0 => {
                let seconds = one_of(&mut self.dice, &[60, 240, 900]);
                let over = self.within(at + 1_000, 120_000);
                if self.dice.below(2) == 0 {
                    self.push(over, Deed::Unhold(pick));
                }
                Deed::Hold { pick, seconds }
            }
            1 => {
                let count = self.stage.templates.iter().flatten().count();
                let template = index(&mut self.dice, count);
                Deed::Provision { template, count: one_of(&mut self.dice, &[1, 2, 5]) }
            }
            _ => Deed::Limit {
                pick,
                idle: one_of(&mut self.dice, &[None, Some(0), Some(1), Some(30)]),
                uses: one_of(&mut self.dice, &[None, Some(0), Some(1), Some(2)]),
            },
        };
        self.push(at, deed);
    }

    fn quirk(&mut self, at: u64) {
        let quirks = [
            QuirkName::NeverBoots,
            QuirkName::Hangs,
            QuirkName::IgnoresShutdown,
            QuirkName::NoAddress,
            QuirkName::WrongMac,
            QuirkName::WrongAddress,
            QuirkName::PowersOff,
        ];
        let quirk = one_of(&mut self.dice, &quirks);
        self.push(at, Deed::Quirk(quirk));
    }
}

/// Every call fails, or every call of one sort.
fn outage(dice: &mut Dice) -> Faults {
    let call = match dice.below(4) {
        0 => CallFault { status: Some(595), ..CallFault::default() },
        1 => CallFault { reset: true, ..CallFault::default() },
        2 => CallFault {
            method: Some("POST".into()),
            route: Some("/clone".into()),
            status: Some(500),
            ..CallFault::default()
        },
        _ => CallFault { status: Some(599), delay: 30.0, ..CallFault::default() },
    };
    Faults { calls: vec![call], ..Faults::default() }
}
