//! Leases, those of runners with them, and whose part of an agent is whose.

use drover_model::id::AgentId;
use drover_model::phase::LeasePhase;
use drover_model::status::{LeaseEnd, LeaseStatus};
use drover_model::time::WallTime;

use super::{Fold, Kept, Key, OPEN_MAX, OpenDemand};
use crate::{Demand, DemandKind, How, Line};

impl OpenDemand {
    pub(super) fn of(record: Demand, seen: bool) -> Self {
        let used_us = record.used_ms.unwrap_or(0).saturating_mul(1000);
        Self { record, seen, used_us, missing: None }
    }

    /// Its record, with its part of its agent so far.
    pub(super) fn shown(&self) -> Demand {
        let used_ms = self.record.granted.map(|_| self.used_us / 1000);
        Demand { used_ms, ..self.record.clone() }
    }

    /// Its last time so far.
    pub(super) fn latest(&self) -> WallTime {
        let record = &self.record;
        record.served.or(record.granted).unwrap_or(record.arrived).max(record.arrived)
    }
}

impl Fold {
    pub(super) fn restore_demand(&mut self, record: Demand) {
        let key = Key::of(&record);
        if let (DemandKind::Job, Some(source)) = (key.kind, &key.source) {
            let source = drover_model::id::SourceId::new(source);
            self.jobs.entry(source).or_default().insert(key.id.clone());
        }
        self.demands.insert(key, OpenDemand::of(record, false));
    }

    /// Puts restored leases on their restored agents.
    pub(super) fn share_restored(&mut self) {
        let on = self.demands.iter().filter(|(key, _)| key.kind != DemandKind::Job);
        for (key, open) in on.filter(|(_, open)| open.record.granted.is_some()) {
            let Some(agent) = &open.record.agent else { continue };
            if let Some(agent) = self.agents.get_mut(&AgentId::new(agent)) {
                agent.on.insert(key.clone());
                // Until then each has its part already.
                let since = open.record.granted.unwrap_or(open.record.arrived);
                let counted = WallTime(since.0.saturating_add_unsigned(open.used_us / 1000));
                let is_first = agent.on.len() == 1;
                agent.counted = if is_first { counted } else { agent.counted.max(counted) };
            }
        }
    }

    /// Gives each lease on an agent its part of the time since that was done last.
    pub(super) fn count(&mut self, agent: &AgentId, now: WallTime) {
        let Some(open) = self.agents.get_mut(agent) else { return };
        let span = now.0.saturating_sub(open.counted.0);
        let span_us = u64::try_from(span).unwrap_or(0).saturating_mul(1000);
        open.counted = open.counted.max(now);
        let many = u64::try_from(open.on.len()).unwrap_or(u64::MAX).max(1);
        for key in &open.on {
            if let Some(demand) = self.demands.get_mut(key) {
                demand.used_us = demand.used_us.saturating_add(span_us / many);
            }
        }
    }

    pub(super) fn count_all(&mut self, now: WallTime) {
        let used = self.agents.iter().filter(|(_, open)| !open.on.is_empty());
        let used: Vec<AgentId> = used.map(|(id, _)| id.clone()).collect();
        used.iter().for_each(|agent| self.count(agent, now));
    }

    pub(super) fn lease(&mut self, at: WallTime, status: &LeaseStatus) {
        let source = status.source().map(str::to_owned);
        let kind = if source.is_some() { DemandKind::Runner } else { DemandKind::Lease };
        let key = Key { kind, source, id: status.lease.to_string() };
        // The journal shows the leases again that ended before this start.
        let is_old = status.state == LeasePhase::Ended && at < self.started;
        let is_new = !self.demands.contains_key(&key);
        if is_new {
            if is_old || self.demands.len() >= OPEN_MAX {
                return;
            }
            let record = self.asked(at, &key, status);
            self.demands.insert(key.clone(), OpenDemand::of(record, true));
        }
        let before = self.demands.get_mut(&key).map(|open| {
            open.seen = true;
            let record = &open.record;
            (record.granted, record.served, record.agent.clone(), record.wants.is_some())
        });
        match status.state {
            LeasePhase::Waiting => self.waits(at, &key, status),
            LeasePhase::Granted | LeasePhase::Ready => self.granted(at, &key, status),
            LeasePhase::Ended => {
                return self.end(&key, at, how(status));
            }
        }
        let Some(open) = self.demands.get(&key) else { return };
        let record = &open.record;
        let after = (record.granted, record.served, record.agent.clone(), record.wants.is_some());
        // Why a lease waits changes again and again, which is not kept.
        if is_new || before != Some(after) {
            let line = Line::Demand(Box::new(open.shown()));
            self.out.push(Kept::Open(line));
        }
    }

    fn asked(&self, at: WallTime, key: &Key, status: &LeaseStatus) -> Demand {
        Demand {
            owner: Some(owner(status)),
            group: status.group.clone(),
            wants: status.want.clone(),
            priority: if key.kind == DemandKind::Lease { self.lease_priority } else { 0 },
            whole: status.whole,
            ..Demand::new(key.kind, key.source.clone(), &key.id, status.asked.unwrap_or(at).min(at))
        }
    }

    /// It waits, perhaps again: its agent was lost before it was ready.
    fn waits(&mut self, at: WallTime, key: &Key, status: &LeaseStatus) {
        self.leave(key, at);
        let Some(open) = self.demands.get_mut(key) else { return };
        let record = &mut open.record;
        record.wants = status.want.clone().or(record.wants.take());
        (record.granted, record.served, record.agent, record.template) = (None, None, None, None);
        open.used_us = 0;
    }

    fn granted(&mut self, at: WallTime, key: &Key, status: &LeaseStatus) {
        let Some(agent) = &status.agent else { return };
        let is_on = self.agents.get(agent).is_some_and(|open| open.on.contains(key));
        if !is_on {
            self.leave(key, at);
            self.count(agent, at);
            if let Some(open) = self.agents.get_mut(agent) {
                open.on.insert(key.clone());
                open.counted = open.counted.max(at);
            }
        }
        let on = self.agents.get(agent).map(|open| &open.record);
        let on = on.map(|one| (one.template.clone(), one.cores, one.memory_mib));
        let Some(open) = self.demands.get_mut(key) else { return };
        let record = &mut open.record;
        record.wants = status.want.clone().or(record.wants.take());
        record.agent = Some(agent.to_string());
        if let Some((template, cores, memory_mib)) = on {
            record.template = Some(template);
            (record.cores, record.memory_mib) = (cores, memory_mib);
        }
        let at = at.max(record.arrived);
        record.granted.get_or_insert(at);
        if status.state == LeasePhase::Ready {
            let granted = record.granted.unwrap_or(at);
            record.served.get_or_insert(at.max(granted));
        }
    }

    /// Takes a lease off its agent, after it has its part of it.
    fn leave(&mut self, key: &Key, at: WallTime) {
        let agent = self.demands.get(key).and_then(|open| open.record.agent.clone());
        let Some(agent) = agent.map(AgentId::new) else { return };
        if self.agents.get(&agent).is_some_and(|open| open.on.contains(key)) {
            self.count(&agent, at);
            if let Some(open) = self.agents.get_mut(&agent) {
                open.on.remove(key);
            }
        }
    }

    /// It is over: its record is closed.
    pub(super) fn end(&mut self, key: &Key, at: WallTime, how: How) {
        self.leave(key, at);
        // The list of its cluster may have shown its agent's size meanwhile.
        let agent = self.demands.get(key).and_then(|open| open.record.agent.clone());
        let size = agent.and_then(|agent| self.agents.get(&AgentId::new(agent)));
        let size = size.map(|open| (open.record.cores, open.record.memory_mib));
        let Some(mut open) = self.demands.remove(key) else { return };
        open.record.ended = Some(at.max(open.latest()));
        open.record.how = Some(how);
        let mut record = open.shown();
        if let Some((cores, memory_mib)) = size {
            record.cores = cores.or(record.cores);
            record.memory_mib = memory_mib.or(record.memory_mib);
        }
        self.out.push(Kept::Closed(Line::Demand(Box::new(record))));
    }

    pub(super) fn demand_unseen(&mut self, key: &Key) {
        let last = self.last;
        self.end(key, last, How::Unseen);
    }
}

/// For whom a lease is: who asked, and for whom they said where that is another.
fn owner(status: &LeaseStatus) -> String {
    let (principal, owner) = (&status.principal, &status.owner);
    if owner.is_empty() || owner == principal {
        principal.clone()
    } else {
        format!("{owner} ({principal})")
    }
}

fn how(status: &LeaseStatus) -> How {
    match LeaseEnd::of(&status.detail) {
        LeaseEnd::Done => How::Done,
        LeaseEnd::Expired => How::Expired,
        LeaseEnd::Lost | LeaseEnd::NotServed => How::Lost,
        LeaseEnd::Waited => How::WaitedTooLong,
        LeaseEnd::Cancelled => How::Withdrawn,
        LeaseEnd::Idle => How::Idle,
    }
}
