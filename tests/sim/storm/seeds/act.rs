//! One event of a plan carried out, and what administrators do.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use drover::sim::guests::Quirk;
use drover::sim::spec::GuestSpec;
use drover::sim::world::Faults;
use drover_actors::id::AgentId;
use drover_actors::message::HerdCommand;
use drover_actors::overrides::{Change, OverrideChange};
use drover_actors::record::Reason;
use tokio::sync::oneshot;

use super::plan::{Deed, QuirkName, Stranger, TEMPLATES};
use super::run::{Failure, Play};
use super::stage;
use crate::world::World;

/// Where copies are put.
const COPIES: u32 = 500;

impl Play {
    /// Carries an event out.
    pub(super) async fn act(&mut self, deed: Deed) -> Result<(), Failure> {
        let seconds = Duration::from_secs;
        match deed {
            Deed::Ask { who, template, label, ttl } => self.askers.want(who, template, label, ttl),
            Deed::Release { who, patient } => self.askers.end(who, patient),
            Deed::Renew { who, ttl } => self.askers.renew(who, ttl, &self.world),
            Deed::Weather(faults) => self.weather(*faults),
            Deed::Quirk(name) => self.world.guests.quirk_next_boot(quirk(name)),
            Deed::NodeDown(number) => {
                let node = stage::node(&self.world.setup.cluster, number);
                self.watch.node_down(&node);
                self.world.side.node_down(&node).await;
            }
            Deed::NodeUp(number) => {
                self.world.side.node_up(&stage::node(&self.world.setup.cluster, number));
            }
            Deed::Stale(number, stale) => {
                let node = stage::node(&self.world.setup.cluster, number);
                self.world.side.set_stale(&node, stale);
            }
            Deed::HoldStorage(number, time) => {
                let node = stage::node(&self.world.setup.cluster, number);
                self.world.side.hold_storage(&node, "local-lvm", seconds(time));
            }
            Deed::HoldGuest { pick, seconds: time } => {
                if let Some((agent, vmid)) = self.guest(pick, false) {
                    let node = self.world.view().agent(&agent).and_then(|seen| seen.node);
                    let node = node.map(|node| node.to_string()).unwrap_or_default();
                    self.world.side.hold_guest(&node, vmid, seconds(time));
                }
            }
            Deed::Health { pick, health } => {
                if let Some((_, vmid)) = self.guest(pick, false) {
                    self.world.side.set_agent(vmid, health);
                }
            }
            Deed::Plant { sort, pick } => self.plant(sort, pick),
            Deed::Alter(pick) => {
                if let Some((_, vmid)) = self.guest(pick, true) {
                    self.watch.stranger(vmid);
                    self.world.side.set_config(vmid, "description", Some("mine from here on"));
                }
            }
            Deed::Jam(pick) => {
                if let Some((_, vmid)) = self.guest(pick, false) {
                    self.jam(vmid);
                }
            }
            Deed::Kill(pick) => {
                if let Some((_, vmid)) = self.guest(pick, false) {
                    self.world.side.kill_guest(vmid).await;
                }
            }
            Deed::PowerOff(pick) => {
                if let Some((_, vmid)) = self.guest(pick, false) {
                    self.world.guests.power_off(vmid);
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
            Deed::Cloud(number, None) if self.clouds[1 - number].is_none() => {}
            Deed::Cloud(number, conf) => {
                self.clouds[number] = conf;
                self.reload();
            }
            Deed::Template(number, conf) => {
                self.templates[number] = conf;
                self.reload();
            }
            Deed::Touch(saved) => self.touch(saved).await,
            Deed::Retire(pick) => {
                let (reply, _) = oneshot::channel();
                if let Some((agent, _)) = self.guest(pick, false) {
                    self.world.send(HerdCommand::Retire { agent, reason: Reason::Asked, reply });
                }
            }
            Deed::Limit { pick, idle, uses } => self.limit(pick, idle, uses),
            Deed::Hold { pick, seconds: span } => {
                let (reply, _) = oneshot::channel();
                if let Some((agent, _)) = self.guest(pick, false) {
                    let hold = Some(Box::new(World::a_hold(seconds(span))));
                    self.world.send(HerdCommand::Hold { agent, hold, reply });
                }
            }
            Deed::Unhold(pick) => {
                let held = self.world.view().agents();
                let held: Vec<_> = held.iter().filter(|agent| agent.held_until.is_some()).collect();
                if let Some(agent) = held.get(pick % held.len().max(1)) {
                    let (agent, (reply, _)) = (agent.agent.clone(), oneshot::channel());
                    self.world.send(HerdCommand::Hold { agent, hold: None, reply });
                }
            }
            Deed::Provision { template, count } => {
                let (reply, _) = oneshot::channel();
                let template = TEMPLATES[template].to_owned();
                self.world.send(HerdCommand::Provision { template, count, reply });
            }
            Deed::Reap { all } => {
                if all {
                    self.watch.reap_all();
                }
                let (reply, _) = oneshot::channel();
                self.world.send(HerdCommand::Reap { all, reply });
            }
            Deed::HoldNext { template, off } => {
                let (reply, _) = oneshot::channel();
                let hold = (!off).then(|| Box::new(World::a_hold(seconds(60))));
                let template = TEMPLATES[template].to_owned();
                self.world.send(HerdCommand::HoldNext { template, hold, reply });
            }
            Deed::Resync => {
                let (reply, _) = oneshot::channel();
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
        let (reply, _) = oneshot::channel();
        self.world.send(HerdCommand::Override { agent, change, reply });
    }

    /// Whatever operators wanted of single agents is over.
    pub(super) fn unlimit(&self) {
        let change = OverrideChange { idle_minutes: Change::TakeBack, max_uses: Change::TakeBack };
        for agent in self.world.view().agents() {
            let (agent, (reply, _)) = (agent.agent, oneshot::channel());
            self.world.send(HerdCommand::Override { agent, change, reply });
        }
    }

    fn weather(&self, faults: Faults) {
        let whole = |call: &drover::sim::world::CallFault| {
            call.chance >= 1.0 && call.times.is_none() && call.skip == 0
        };
        self.watch.outage(faults.calls.iter().any(whole));
        self.world.faults(faults);
    }

    /// One of the agents whose guest is there; only one that nobody works on, when `quiet`.
    fn guest(&self, pick: usize, quiet: bool) -> Option<(AgentId, u32)> {
        let live = self.watch.live();
        let fits: Vec<(AgentId, u32)> = live
            .into_iter()
            .filter(|(_, live)| !quiet || matches!(&*live.state, "Ready" | "Leased"))
            .filter_map(|(agent, live)| Some((agent, live.vmid.filter(|_| live.recorded)?)))
            .filter(|(_, vmid)| !self.watch.is_stranger(*vmid))
            .filter(|(agent, vmid)| {
                let config = self.world.side.config(*vmid);
                config.is_some_and(|config| {
                    config.get("name").is_some_and(|name| name.ends_with(agent.as_str()))
                })
            })
            .collect();
        fits.get(pick % fits.len().max(1)).cloned()
    }

    fn jam(&self, vmid: u32) {
        let volume = format!("local-lvm:vm-{vmid}-cloudinit");
        for node in &self.world.setup.cluster.nodes {
            self.world.side.jam_volume(&node.name, &volume, "it is busy");
        }
    }

    fn plant(&mut self, sort: Stranger, pick: usize) {
        let taken = |vmid: &u32| {
            self.world.side.config(*vmid).is_some()
                || self.watch.live().values().any(|live| live.vmid == Some(*vmid))
        };
        if sort == Stranger::Plain {
            let vmid = (10_000..).find(|vmid| !taken(vmid)).unwrap();
            return self.settle(&stage::plain_guest(vmid));
        }
        let live = self.watch.live();
        let past = self.watch.past().into_iter();
        let fits: Vec<_> = past
            .filter(|(agent, (vmid, _))| match sort {
                Stranger::Copy => live.contains_key(agent),
                Stranger::Orphan | Stranger::Foreign => !live.contains_key(agent) && !taken(vmid),
                Stranger::Plain => false,
            })
            .collect();
        let Some((_, (like, config))) = fits.get(pick % fits.len().max(1)).cloned() else {
            return;
        };
        let copies = COPIES + u32::try_from(self.orphans.len()).unwrap();
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
        let config: BTreeMap<String, String> =
            config.into_iter().map(|(key, value)| (key, change(value))).collect();
        let node = "pve1".to_owned();
        let spec = GuestSpec { vmid, node, template: false, running: false, pool: None, config };
        if sort == Stranger::Orphan {
            self.watch.orphan(vmid);
            self.orphans.insert(vmid);
            self.world.side.plant_guest(&spec);
        } else {
            self.settle(&spec);
        }
    }

    /// Somebody's own guest comes to stay.
    fn settle(&mut self, spec: &GuestSpec) {
        self.orphans.remove(&spec.vmid);
        self.watch.stranger(spec.vmid);
        self.world.side.plant_guest(spec);
        self.world.keep_planted(spec.vmid);
    }

    /// What alarms ask for is done; machines of somebody else under an agent's id move away.
    pub(super) fn administer(&mut self) {
        let alarms = self.world.view().alarms();
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
            if self.world.side.config(vmid).is_some() {
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
