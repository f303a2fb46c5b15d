//! What happens to what is around agents, drawn by dice of its own for a part of the seeds: nodes that
//! are cordoned, drained, down, slow or small, storages that stall, clusters beside the first that are lost
//! for a while. All else of a plan is as it was drawn before.

use drover_model::ambient::Dice;
use drover_model::phase::NodeOrder;
use pve_sim::world::{CallFault, Faults, NodeFault, TaskFault};

use super::draw::{index, one_of};
use super::plan::{Deed, Event, Found, Plan, TemplateConf};
use super::sizes::Asked;
use super::stage::{STORAGES, STRATEGIES};

/// GiB of an agent, by its template on the cluster.
const AGENT: u64 = 2;
/// GiB that a node needs for itself.
const OWN: u64 = 1;

struct Around<'a> {
    dice: Dice,
    plan: &'a mut Plan,
    /// The next who asks.
    who: u32,
}

/// Changes a plan in some of the seeds.
pub fn lay(seed: u64, plan: &mut Plan) {
    let mut dice = Dice::from_number(seed).fork("around");
    if dice.below(5) > 1 {
        return;
    }
    let mut around = Around { dice, plan, who: 200 };
    if around.dice.below(2) == 0 {
        around.clusters();
    }
    around.templates();
    if around.dice.below(2) == 0 {
        around.small();
    }
    for _ in 0..2 + around.dice.below(4) {
        around.trouble();
    }
    plan.events.sort_by_key(|event| event.at);
}

impl Around<'_> {
    fn push(&mut self, at: u64, deed: Deed) {
        self.plan.events.push(Event { at, deed });
    }

    fn within(&mut self, from: u64, span: u64) -> u64 {
        from + self.dice.below(span)
    }

    /// Changes each template of the stage, and of reloads.
    fn each(&mut self, change: impl Fn(usize, &mut TemplateConf)) {
        for (number, conf) in self.plan.stage.templates.iter_mut().enumerate() {
            conf.iter_mut().for_each(|conf| change(number, conf));
        }
        for event in &mut self.plan.events {
            if let Deed::Template(number, Some(conf)) = &mut event.deed {
                change(*number, conf);
            }
        }
    }

    /// The second cloud leads to a cluster of its own, and a third one to that or to another.
    fn clusters(&mut self) {
        let stage = &mut self.plan.stage;
        let first = stage.clouds[0].clone();
        let second = stage.clouds[1].get_or_insert_with(|| first.clone().unwrap()).clone();
        stage.leads[1] = 1;
        if self.dice.below(2) == 0 {
            stage.clouds[2] = Some(second);
            stage.leads[2] = one_of(&mut self.dice, &[1, 2]);
        }
        let third = self.plan.stage.clouds[2].is_some();
        let all: &[&[usize]] = if third {
            &[&[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]]
        } else {
            &[&[1], &[0, 1], &[0, 1]]
        };
        let drawn: Vec<Vec<usize>> = (0..3).map(|_| one_of(&mut self.dice, all).to_vec()).collect();
        self.each(|number, conf| conf.clouds.clone_from(&drawn[number]));
        for event in &mut self.plan.events {
            // A name that is on several clouds is not guessed.
            if let Deed::Ask { template, label, .. } = &mut event.deed {
                *label |= drawn[*template].len() > 1;
            }
        }
    }

    fn templates(&mut self) {
        for at in 0..3 {
            let found = (self.dice.below(3) > 0).then(|| index(&mut self.dice, STRATEGIES.len()));
            let target = (self.dice.below(2) == 0).then(|| index(&mut self.dice, STORAGES.len()));
            let image = self.dice.below(3) == 0;
            self.each(|number, conf| {
                if number == at {
                    conf.found = found.map_or(conf.found, Found::Any);
                    (conf.target, conf.image) = (target, image);
                }
            });
        }
    }

    /// Nodes have room for what is kept warm, wherever it is, and for little more.
    fn small(&mut self) {
        let stage = &mut self.plan.stage;
        let kept = stage.templates.iter().flatten().map(|conf| {
            let most = conf.min.max(conf.idle_min) + u32::from(conf.window > 0);
            u64::from(most) * conf.clouds.len() as u64
        });
        let room = kept.sum::<u64>() + one_of(&mut self.dice, &[1, 2, 4]);
        stage.headroom = one_of(&mut self.dice, &[0, 0, 25]);
        let memory = room * AGENT + OWN;
        // What stays free comes on top of it.
        stage.memory = if stage.headroom == 0 { memory } else { memory.div_ceil(3) * 4 };
    }

    /// Any node of any cluster.
    fn node(&mut self) -> usize {
        let clusters = self.plan.stage.clusters();
        10 * index(&mut self.dice, clusters) + index(&mut self.dice, self.plan.stage.nodes)
    }

    /// Some want agents about this time.
    fn crowd(&mut self, at: u64) {
        let count = self.plan.stage.templates.iter().flatten().count();
        for _ in 0..1 + self.dice.below(4) {
            let template = index(&mut self.dice, count);
            let who = self.who;
            self.who += 1;
            let asked = self.within(at.saturating_sub(5_000), 15_000);
            let ttl = one_of(&mut self.dice, &[30, 60, 300]);
            self.push(asked, Deed::Ask { who, template, label: true, ttl, size: Asked::default() });
        }
    }

    fn trouble(&mut self) {
        let at = self.within(200, 240_000);
        self.crowd(at);
        match self.dice.below(12) {
            0..4 => self.close_node(at),
            4 | 5 => self.outage(at),
            6..8 => self.stall(at),
            8 => self.offline(at),
            9 => self.slow(at),
            _ => self.lost(at),
        }
        if self.dice.below(4) == 0 {
            let (at, away) = (self.within(at, 20_000), one_of(&mut self.dice, &[0, 5, 60]));
            self.push(at, Deed::Crash { away });
        }
    }

    /// A node is cordoned or drained, perhaps twice, and used again, perhaps at once or never.
    fn close_node(&mut self, at: u64) {
        let node = self.node();
        let (first, then) = (self.closing(), self.closing());
        self.push(at, Deed::OrderNode(node, first));
        if self.dice.below(3) == 0 {
            // Right behind it the power goes.
            let cut = at + one_of(&mut self.dice, &[0, 1, 5, 50]);
            self.push(cut, Deed::Crash { away: 5 });
        }
        if self.dice.below(3) == 0 {
            let again = self.within(at, 20_000);
            self.push(again, Deed::OrderNode(node, then));
        }
        let span = one_of(&mut self.dice, &[0, 1_000, 30_000, 180_000, 400_000]);
        if self.dice.below(5) > 0 {
            self.push(at + span, Deed::OrderNode(node, NodeOrder::Use));
        }
    }

    fn closing(&mut self) -> NodeOrder {
        one_of(&mut self.dice, &[NodeOrder::Drain, NodeOrder::Drain, NodeOrder::Cordon])
    }

    /// A node goes down, and comes back unless it does so at the end alone.
    fn outage(&mut self, at: u64) {
        let node = self.node();
        self.push(at, Deed::NodeDown(node));
        let span = one_of(&mut self.dice, &[3_000, 20_000, 150_000, 400_000, 900_000]);
        if self.dice.below(4) > 0 {
            self.push(at + span, Deed::NodeUp(node));
        }
        if self.dice.below(3) == 0 {
            let closed = self.within(at, 60_000);
            let order = self.closing();
            self.push(closed, Deed::OrderNode(node, order));
            self.push(closed + span, Deed::OrderNode(node, NodeOrder::Use));
        }
    }

    /// Somebody holds a storage's lock, on one node or on all of them.
    fn stall(&mut self, at: u64) {
        let storage = index(&mut self.dice, STORAGES.len());
        let seconds = one_of(&mut self.dice, &[8, 15, 60, 200, 400]);
        let node = self.node();
        let all = self.dice.below(2) == 0;
        for other in 0..self.plan.stage.nodes {
            if all || other == node % 10 {
                self.push(at, Deed::Stall(node / 10 * 10 + other, storage, seconds));
            }
        }
    }

    /// A storage is out of reach, while agents go.
    fn offline(&mut self, at: u64) {
        let storage = index(&mut self.dice, STORAGES.len());
        let cluster = self.node() / 10;
        let span = one_of(&mut self.dice, &[5_000, 40_000, 200_000]);
        self.push(at, Deed::Offline(cluster, storage, true));
        let pick = index(&mut self.dice, 5);
        self.push(at + 1_000, Deed::Retire(pick));
        self.push(at + span, Deed::Offline(cluster, storage, false));
    }

    /// Everything takes minutes on a node.
    fn slow(&mut self, at: u64) {
        let (place, slow) = (self.node(), one_of(&mut self.dice, &[8.0, 40.0, 150.0]));
        let span = one_of(&mut self.dice, &[20_000, 120_000]);
        let node = format!("pve{}", place % 10 + 1);
        let faults = Faults {
            nodes: vec![NodeFault { node, slow, ..NodeFault::default() }],
            ..Faults::default()
        };
        self.push(at, Deed::Afar(place / 10, Box::new(faults)));
        self.push(at + span, Deed::Afar(place / 10, Box::default()));
    }

    /// A whole cluster cannot be reached, or nothing goes well there.
    fn lost(&mut self, at: u64) {
        let cluster = self.node() / 10;
        let span = one_of(&mut self.dice, &[2_000, 30_000, 200_000, 700_000]);
        if self.dice.below(3) > 0 {
            self.push(at, Deed::Cut(cluster, true));
            return self.push(at + span, Deed::Cut(cluster, false));
        }
        let task = TaskFault {
            kind: Some("qmclone".into()),
            error: Some("clone failed: no such logical volume".into()),
            times: Some(6),
            ..TaskFault::default()
        };
        let call = CallFault { status: Some(596), chance: 0.2, done: true, ..CallFault::default() };
        let faults = Faults { tasks: vec![task], calls: vec![call], ..Faults::default() };
        self.push(at, Deed::Afar(cluster, Box::new(faults)));
        self.push(at + span, Deed::Afar(cluster, Box::default()));
    }
}
