//! One event of a plan carried out, and what administrators do.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use drover_actors::message::HerdCommand;
use drover_model::id::{AgentId, CloudId, NodeName, SourceId};
use drover_model::overridden::TemplateChange;
use drover_model::overrides::{Change, OverrideChange};
use drover_model::phase::{AgentPhase, NodeOrder};
use drover_model::record::Reason;
use drover_model::tenant::By;
use drover_runtime::reply::Reply;
use pve_sim::guests::Quirk;
use pve_sim::spec::GuestSpec;
use pve_sim::world::Faults;

use super::plan::{CLOUDS, Deed, Lie, QuirkName, SOURCES, Stranger, TEMPLATES};
use super::run::{Failure, Play};
use super::seen::Live;
use super::sizes::Asked;
use super::stage;
use crate::world::World;
use crate::world::ci::Habit;
use crate::world::clusters::floor;

/// Where copies are put, above the ids of agents of the clusters before theirs.
const COPIES: u32 = 500;

impl Play {
    /// Carries an event out.
    pub(super) async fn act(&mut self, deed: Deed) -> Result<(), Failure> {
        let seconds = Duration::from_secs;
        match deed {
            Deed::Ask { who, template, label, ttl, size } => {
                self.askers.want(who, (template, label, size), ttl);
            }
            Deed::Release { who, patient } => self.askers.end(who, patient),
            Deed::Renew { who, ttl } => self.askers.renew(who, ttl, &self.world),
            Deed::Order { who, work } => self.askers.order(who, work, &self.world),
            Deed::Weather(faults) => self.weather(*faults),
            Deed::Quirk(name) => self.world.guests.quirk_next_boot(quirk(name)),
            Deed::NodeDown(number) => {
                let (cluster, node) = stage::node(&self.world.setup.cluster, number);
                self.watch.node_down(cluster, &node);
                self.world.sides.at(cluster).node_down(&node).await;
            }
            Deed::NodeUp(number) => {
                let (cluster, node) = stage::node(&self.world.setup.cluster, number);
                self.world.sides.at(cluster).node_up(&node);
            }
            Deed::Stale(number, stale) => {
                let (cluster, node) = stage::node(&self.world.setup.cluster, number);
                self.world.sides.at(cluster).set_stale(&node, stale);
            }
            Deed::Apart(cluster, apart) => {
                let side = self.world.sides.at(cluster);
                for number in 0..self.plan.stage.nodes {
                    side.set_partitioned(&format!("pve{}", number + 1), apart);
                }
            }
            Deed::HoldStorage(number, time) => self.stall(number, 0, seconds(time)),
            Deed::Stall(number, storage, time) => self.stall(number, storage, seconds(time)),
            Deed::Offline(cluster, storage, offline) => {
                let side = self.world.sides.at(cluster);
                side.set_storage_reachable(stage::STORAGES[storage], !offline);
            }
            Deed::Cut(cluster, cut) => self.world.ways.cut(cluster, cut),
            Deed::Afar(cluster, faults) => self.world.sides.at(cluster).set_faults(*faults),
            Deed::OrderNode(number, order) => self.order_node(number, order),
            Deed::HoldGuest { pick, seconds: time } => {
                if let Some((agent, vmid)) = self.guest(pick, false) {
                    let node = self.world.view().agent(&agent).and_then(|seen| seen.node.clone());
                    let node = node.map(|node| node.to_string()).unwrap_or_default();
                    self.world.sides.side(vmid).hold_guest(&node, vmid, seconds(time));
                }
            }
            Deed::Health { pick, health } => {
                if let Some((_, vmid)) = self.guest(pick, false) {
                    self.world.sides.side(vmid).set_agent(vmid, health);
                }
            }
            Deed::Plant { sort, pick } => self.plant(sort, pick),
            Deed::Alter(pick) => {
                if let Some((_, vmid)) = self.guest(pick, true) {
                    self.watch.stranger(vmid);
                    self.world.sides.side(vmid).set_config(
                        vmid,
                        "description",
                        Some("mine from here on"),
                    );
                }
            }
            Deed::Jam(pick) => {
                if let Some((_, vmid)) = self.guest(pick, false) {
                    self.jam(vmid);
                }
            }
            Deed::LockOut { pick, seconds: time } => {
                let held = self.watch.held();
                if let Some(vmid) = held.get(pick % held.len().max(1)) {
                    self.world.shell.shut(*vmid, seconds(time));
                }
            }
            Deed::Hang { pick, seconds: time } => {
                if let Some((_, vmid)) = self.guest(pick, false) {
                    self.world.shell.hang(vmid, seconds(time));
                }
            }
            Deed::Clock(seconds) => self.world.set_clock(seconds * 1000),
            Deed::Kill(pick) => {
                if let Some((_, vmid)) = self.guest(pick, false) {
                    self.world.sides.side(vmid).kill_guest(vmid).await;
                }
            }
            Deed::PowerOff(pick) => {
                if let Some((_, vmid)) = self.guest(pick, false) {
                    self.world.guests.power_off(vmid);
                }
            }
            Deed::Perish { pick, hang, after, who } => {
                let Some(template) = self.rested(pick) else { return Ok(()) };
                for vmid in self.idle(template) {
                    if hang > 0 {
                        self.world.shell.hang(vmid, seconds(hang));
                    } else {
                        self.world.sides.side(vmid).kill_guest(vmid).await;
                    }
                }
                self.run_to(self.world.elapsed() + Duration::from_millis(after)).await?;
                for who in [who, who + 1] {
                    self.askers.want(who, (template, true, Asked::default()), 60);
                }
            }
            Deed::Remove(pick) => {
                if let Some((_, vmid)) = self.guest(pick, false) {
                    self.world.administer(vmid);
                }
            }
            Deed::Swap(pick) => {
                if let Some((_, vmid)) = self.guest(pick, true) {
                    self.world.administer(vmid);
                    self.settle(&stage::plain_guest(vmid));
                }
            }
            // A YAML without any cloud is refused.
            Deed::Cloud(number, None)
                if (0..self.clouds.len()).all(|at| at == number || self.clouds[at].is_none()) => {}
            Deed::Cloud(number, conf) => {
                self.clouds[number] = conf;
                self.reload();
            }
            Deed::Template(number, conf) => {
                self.templates[number] = conf;
                self.reload();
            }
            Deed::Commit(number, conf) => self.branch.commit(number, conf),
            Deed::ForceMove(by) => self.branch.move_back(by),
            Deed::Sync => {
                self.templates = self.branch.sync();
                self.applied();
            }
            Deed::RollBack(before) => {
                self.templates = self.branch.roll_back(before);
                self.applied();
            }
            Deed::Touch(saved) => self.touch(saved).await,
            Deed::Retire(pick) => {
                let (reply, _) = Reply::channel();
                if let Some((agent, _)) = self.guest(pick, false) {
                    let (reason, by) = (Reason::Asked, By::admin("test"));
                    self.world.send(HerdCommand::Retire { agent, reason, by, reply });
                }
            }
            Deed::Limit { pick, idle, uses } => self.limit(pick, idle, uses),
            Deed::Set { template, cap, minimum, paused } => {
                self.set(template, cap, minimum, paused);
            }
            Deed::Undo => self.undo(),
            Deed::Hold { pick, seconds: span } => {
                let (reply, _) = Reply::channel();
                if let Some((agent, _)) = self.guest(pick, false) {
                    let hold = Some(Box::new(World::a_hold(seconds(span))));
                    self.world.send(HerdCommand::Hold {
                        agent,
                        hold,
                        by: By::admin("test"),
                        reply,
                    });
                }
            }
            Deed::Unhold(pick) => {
                let held = self.world.view().agents();
                let held: Vec<_> = held.iter().filter(|agent| agent.held_until.is_some()).collect();
                if let Some(agent) = held.get(pick % held.len().max(1)) {
                    let (agent, (reply, _)) = (agent.agent.clone(), Reply::channel());
                    self.world.send(HerdCommand::Hold {
                        agent,
                        hold: None,
                        by: By::admin("test"),
                        reply,
                    });
                }
            }
            Deed::Provision { template, count } => {
                let (reply, _) = Reply::channel();
                let template = TEMPLATES[template].to_owned();
                self.world.send(HerdCommand::Provision { template, count, trial: false, reply });
            }
            Deed::Reap { all } => {
                if all {
                    self.watch.reap_all();
                }
                let (reply, _) = Reply::channel();
                self.world.send(HerdCommand::Reap { all, reply });
            }
            Deed::HoldNext { template, off } => {
                let (reply, _) = Reply::channel();
                let hold = (!off).then(|| Box::new(World::a_hold(seconds(60))));
                let template = TEMPLATES[template].to_owned();
                let by = By::admin("test");
                self.world.send(HerdCommand::HoldNext { template, hold, by, reply });
            }
            Deed::Jobs { source, count, template, seconds: time, size } => {
                let sizes = size.labels();
                let mut labels = vec![TEMPLATES[template]];
                labels.extend(sizes.iter().map(String::as_str));
                self.world.ci.push(SOURCES[source], count, &labels, seconds(time));
            }
            Deed::CallOff(source) => self.world.ci.cancel(SOURCES[source]),
            Deed::Mute(source, mute) => self.world.ci.silence(SOURCES[source], mute),
            Deed::Forbid(source, forbid) => self.world.ci.refuse(SOURCES[source], forbid),
            Deed::Lie(source, lie) => {
                let habit = match lie {
                    Lie::Deaf => Habit::Deaf,
                    Lie::Idle => Habit::Idle,
                };
                self.world.ci.habits(SOURCES[source], &[habit]);
            }
            Deed::Unlist { source, pick } => self.world.ci.unlist(SOURCES[source], pick),
            Deed::Rows(source, deed) => self.world.ci.happen_to(SOURCES[source], deed),
            Deed::Hook(source) => {
                let (reply, _) = Reply::channel();
                let source = SourceId::new(SOURCES[source]);
                self.world.send(HerdCommand::Wake { source, reply });
            }
            Deed::Source(number, conf) => {
                self.sources[number] = conf;
                self.reload();
            }
            Deed::Resync => {
                let (reply, _) = Reply::channel();
                self.world.send(HerdCommand::Resync { reply });
            }
            Deed::Stop { policy, away } => self.stop(policy, seconds(away)).await?,
            Deed::Crash { away } => self.crash(seconds(away)).await?,
            Deed::Trap { of, nth, after, linger, away } => {
                self.lay((of, nth), after, Duration::from_millis(linger), seconds(away));
            }
        }
        Ok(())
    }

    fn limit(&self, pick: usize, idle: Option<u32>, uses: Option<u32>) {
        let Some((agent, _)) = self.guest(pick, false) else { return };
        let set = |limit: Option<u32>| limit.map_or(Change::Keep, Change::Set);
        let change = OverrideChange { idle_minutes: set(idle), max_uses: set(uses) };
        let (reply, _) = Reply::channel();
        self.world.send(HerdCommand::Override { agent, change, reply });
    }

    fn set(&self, template: usize, cap: Option<u32>, minimum: Option<u32>, paused: Option<bool>) {
        let value = |value: Option<u32>| value.map_or(Change::Keep, Change::Set);
        let change = TemplateChange {
            cap: value(cap),
            minimum: value(minimum),
            rollout_paused: paused,
            ..TemplateChange::default()
        };
        for cloud in CLOUDS {
            let (reply, _) = Reply::channel();
            let template = format!("{cloud}/{}", TEMPLATES[template]);
            self.world.send(HerdCommand::OverrideTemplate { template, change, reply });
        }
    }

    /// What a commit has comes into force, in the order of a real sync.
    fn applied(&mut self) {
        self.reload();
        self.undo();
    }

    /// What operators set of templates is undone, as a sync with git does.
    fn undo(&self) {
        let (reply, _) = Reply::channel();
        let clouds = CLOUDS.iter().copied().map(CloudId::new).collect();
        self.world.send(HerdCommand::UndoOverrides { clouds, reply });
    }

    /// Whatever operators set of templates is over, and no roll-out pauses any more.
    pub(super) fn unset(&self) {
        self.undo();
        for template in 0..TEMPLATES.len() {
            self.set(template, None, None, Some(false));
        }
    }

    /// Whatever operators wanted of single agents is over.
    pub(super) fn unlimit(&self) {
        let change = OverrideChange { idle_minutes: Change::TakeBack, max_uses: Change::TakeBack };
        for agent in self.world.view().agents() {
            let (agent, (reply, _)) = (agent.agent.clone(), Reply::channel());
            self.world.send(HerdCommand::Override { agent, change, reply });
        }
    }

    fn weather(&self, faults: Faults) {
        let whole = |call: &pve_sim::world::CallFault| {
            call.chance >= 1.0 && call.times.is_none() && call.skip == 0
        };
        self.watch.outage(faults.calls.iter().any(whole));
        self.world.faults(faults);
    }

    /// One of the agents whose guest is there; only one that nobody works on, when `quiet`.
    fn guest(&self, pick: usize, quiet: bool) -> Option<(AgentId, u32)> {
        let works = |live: &Live| live.state.takes_leases();
        let fits = self.guests(|live| !quiet || works(live));
        fits.get(pick % fits.len().max(1)).cloned()
    }

    /// One of the templates that have idle agents.
    fn rested(&self, pick: usize) -> Option<usize> {
        let has = |number: &usize| !self.idle(*number).is_empty();
        let fits: Vec<usize> = (0..TEMPLATES.len()).filter(has).collect();
        fits.get(pick % fits.len().max(1)).copied()
    }

    /// The guests of a template's idle agents, on whatever cloud.
    fn idle(&self, template: usize) -> Vec<u32> {
        let own = |live: &Live| &*live.template.name == TEMPLATES[template];
        let idle = self.guests(|live| live.state == AgentPhase::Ready && own(live));
        idle.into_iter().map(|(_, vmid)| vmid).collect()
    }

    /// The agents whose guest is there, as far as they are such ones.
    fn guests(&self, such: impl Fn(&Live) -> bool) -> Vec<(AgentId, u32)> {
        let live = self.watch.live();
        live.into_iter()
            .filter(|(_, live)| such(live))
            .filter_map(|(agent, live)| Some((agent, live.vmid.filter(|_| live.recorded)?)))
            .filter(|(_, vmid)| !self.watch.is_stranger(*vmid))
            .filter(|(agent, vmid)| {
                let config = self.world.sides.config(*vmid);
                config.is_some_and(|config| {
                    let name = config.get("name").or_else(|| config.get("hostname"));
                    name.is_some_and(|name| name.ends_with(agent.as_str()))
                })
            })
            .collect()
    }

    /// How many clusters there are.
    fn clusters(&self) -> usize {
        self.world.sides.all().count()
    }

    fn stall(&self, number: usize, storage: usize, time: Duration) {
        let (cluster, node) = stage::node(&self.world.setup.cluster, number);
        self.world.sides.at(cluster).hold_storage(&node, stage::STORAGES[storage], time);
    }

    /// An operator cordons or drains a node of a cluster that some cloud leads to, or lets it be used
    /// again.
    pub(super) fn order_node(&mut self, number: usize, order: NodeOrder) {
        let (cluster, node) = stage::node(&self.world.setup.cluster, number);
        let leads = self.plan.stage.leads.iter().zip(&self.clouds).zip(CLOUDS);
        let mut there = leads.filter(|((at, conf), _)| **at == cluster && conf.is_some());
        let Some((_, cloud)) = there.next() else { return };
        let (reply, answer) = Reply::channel();
        let (cloud, name) = (Some(CloudId::new(cloud)), NodeName::new(&node));
        let by = "token:ops".to_owned();
        if order != NodeOrder::Use {
            self.closed_nodes.insert(number);
        }
        self.watch.orders_node(cluster, &node, order);
        self.world.send(HerdCommand::OrderNode { node: name, cloud, order, by, reply });
        let watch = Arc::clone(&self.watch);
        tokio::spawn(async move {
            if let Ok(Ok(done)) = answer.await {
                watch.node_ordered(cluster, &done);
            }
        });
    }

    fn jam(&self, vmid: u32) {
        let volume = format!("local-lvm:vm-{vmid}-cloudinit");
        for node in &self.world.setup.cluster.nodes {
            self.world.sides.side(vmid).block_volume_removal(&node.name, &volume, "it is busy");
        }
    }

    fn plant(&mut self, sort: Stranger, pick: usize) {
        let taken = |vmid: &u32| {
            self.world.sides.config(*vmid).is_some()
                || self.watch.live().values().any(|live| live.vmid == Some(*vmid))
        };
        if sort == Stranger::Plain {
            let vmid = (floor(pick % self.clusters())..).find(|vmid| !taken(vmid)).unwrap();
            return self.settle(&stage::plain_guest(vmid));
        }
        let live = self.watch.live();
        let past = self.watch.past().into_iter();
        let fits: Vec<_> = past
            // Copies are made of machines.
            .filter(|(_, (_, config))| config.contains_key("name"))
            .filter(|(agent, (vmid, _))| match sort {
                Stranger::Copy => live.contains_key(agent),
                Stranger::Orphan | Stranger::Foreign => !live.contains_key(agent) && !taken(vmid),
                Stranger::Plain => false,
            })
            .collect();
        let Some((_, (like, config))) = fits.get(pick % fits.len().max(1)).cloned() else {
            return;
        };
        let above = match self.world.sides.number(like) {
            0 => 0,
            number => floor(number),
        };
        let copies = above + COPIES + u32::try_from(self.orphans.len()).unwrap();
        let vmid = match sort {
            Stranger::Copy => (copies..).find(|vmid| !taken(vmid)).unwrap(),
            Stranger::Plain | Stranger::Orphan | Stranger::Foreign => like,
        };
        let name = config.get("name").cloned().unwrap_or_default();
        let ours = name.rsplit('-').nth(1).unwrap_or_default().to_owned();
        let change = |value: String| {
            let value = value.replace(&format!("vm-{like}-"), &format!("vm-{vmid}-"));
            if sort == Stranger::Foreign { value.replace(&ours, "0123abcd") } else { value }
        };
        // A disc image under an agent's name is that agent's, whichever other guest has it in a drive.
        let own = |value: &str| sort == Stranger::Orphan || !value.contains("iso/drover-");
        let config = config.into_iter().filter(|(_, value)| own(value));
        let config: BTreeMap<String, String> =
            config.map(|(key, value)| (key, change(value))).collect();
        let node = "pve1".to_owned();
        let spec = GuestSpec { vmid, node, template: false, running: false, pool: None, config };
        if sort == Stranger::Orphan {
            let number = self.world.sides.number(vmid);
            self.watch.orphan(vmid);
            self.orphans.insert(vmid);
            self.world.sides.at(number).add_guest(&spec);
        } else {
            self.settle(&spec);
        }
    }

    /// Somebody's own guest comes to stay.
    fn settle(&mut self, spec: &GuestSpec) {
        self.orphans.remove(&spec.vmid);
        self.watch.stranger(spec.vmid);
        self.world.sides.side(spec.vmid).add_guest(spec);
        self.world.keep_planted(spec.vmid);
    }

    /// What alarms ask for is done; machines of somebody else under an agent's id move away.
    pub(super) fn administer(&mut self) {
        let alarms = self.world.view().alarms();
        // A clock that was set back makes the journal look like an old copy.
        let twin =
            |agent: &Arc<drover_model::status::AgentStatus>| agent.detail.contains("--confirm-");
        if self.world.runs() && self.world.view().agents().iter().any(twin) {
            self.world.send(HerdCommand::ConfirmOlderJournal);
        }
        let called = |agent: &AgentId| alarms.iter().any(|alarm| alarm.agent == *agent);
        for agent in self.world.view().agents() {
            let Some(vmid) = agent.vmid.map(|vmid| vmid.0).filter(|_| called(&agent.agent)) else {
                continue;
            };
            if self.world.is_ground(vmid) {
                self.world.drop_planted(vmid);
            }
            self.watch.no_stranger(vmid);
            self.world.administer(vmid);
        }
    }

    /// Orphans that nobody cleans up are taken away.
    pub(super) fn sweep_orphans(&mut self) {
        for vmid in std::mem::take(&mut self.orphans) {
            if self.world.sides.config(vmid).is_some() {
                self.world.administer(vmid);
            }
        }
    }
}

fn quirk(name: QuirkName) -> Quirk {
    match name {
        QuirkName::NeverBoots => Quirk::NeverBoots,
        QuirkName::Hangs => Quirk::Hangs,
        QuirkName::IgnoresShutdown => Quirk::IgnoresShutdown,
        QuirkName::NoAddress => Quirk::NoAddress,
        QuirkName::WrongMac => Quirk::WrongMac,
        QuirkName::WrongAddress => Quirk::WrongAddress(IpAddr::V4(Ipv4Addr::new(10, 99, 0, 1))),
        QuirkName::PowersOff => Quirk::PowersOff(Duration::from_secs(60)),
    }
}
