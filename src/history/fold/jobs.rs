//! Jobs of sources, by what each poll shows.
//!
//! A poll shows which jobs wait, and those that run on drover's runners where the source says so. One poll
//! may miss a job: lists come in pages. So a job is over once two polls in a row do not show it, since the
//! first of them. One that was never shown to run ended unseen: somebody took it back, it ran elsewhere,
//! or it was over between two polls.

use std::collections::BTreeSet;

use drover_model::id::{AgentId, SourceId};
use drover_model::noted::JobsSeen;
use drover_model::ports::JobObservation;
use drover_model::time::WallTime;

use super::{Fold, Kept, Key, OPEN_MAX, OpenDemand};
use crate::{Demand, DemandKind, How, Line};

impl Fold {
    pub(super) fn jobs_seen(&mut self, at: WallTime, seen: &JobsSeen) {
        let JobsSeen { source, priority, waiting, running } = seen;
        let mut shown: BTreeSet<&str> = BTreeSet::new();
        for job in waiting {
            shown.insert(&job.id);
            self.job(at, (source, *priority), &job.id, Some(job));
        }
        for job in running {
            shown.insert(&job.id);
            self.job(at, (source, *priority), &job.id, job.waited.as_ref());
            self.job_runs(at, &Key::job(source, &job.id), &job.agent);
        }
        let open = self.jobs.get(source).into_iter().flatten();
        let missing: Vec<String> =
            open.filter(|id| !shown.contains(id.as_str())).cloned().collect();
        for id in missing {
            let key = Key::job(source, &id);
            let since = self.demands.get_mut(&key).and_then(|open| open.missing.replace(at));
            if let Some(since) = since {
                self.job_over(source, &key, since, None);
            }
        }
    }

    /// A job is there: it is new, or shown again.
    fn job(
        &mut self,
        at: WallTime,
        (source, priority): (&SourceId, i32),
        id: &str,
        waited: Option<&JobObservation>,
    ) {
        let key = Key::job(source, id);
        if let Some(open) = self.demands.get_mut(&key) {
            (open.seen, open.missing) = (true, None);
            return;
        }
        if self.demands.len() >= OPEN_MAX {
            return;
        }
        let record = Demand {
            name: waited.map(|job| job.name.clone()),
            wants: waited.map(|job| job.want.clone()),
            priority,
            ..Demand::new(
                DemandKind::Job,
                key.source.clone(),
                &key.id,
                waited.map_or(at, |job| job.since.min(at)),
            )
        };
        self.out.push(Kept::Open(Line::Demand(Box::new(record.clone()))));
        self.jobs.entry(source.clone()).or_default().insert(key.id.clone());
        self.demands.insert(key, OpenDemand::of(record, true));
    }

    fn job_runs(&mut self, at: WallTime, key: &Key, agent: &AgentId) {
        let on = self.agents.get(agent).map(|open| &open.record);
        let on = on.map(|one| (one.template.clone(), one.cores, one.memory_mib));
        let Some(open) = self.demands.get_mut(key) else { return };
        let record = &mut open.record;
        if record.served.is_some() {
            return;
        }
        record.served = Some(at.max(record.arrived));
        record.agent = Some(agent.to_string());
        if let Some((template, cores, memory_mib)) = on {
            record.template = Some(template);
            (record.cores, record.memory_mib) = (cores, memory_mib);
        }
        self.out.push(Kept::Open(Line::Demand(Box::new(record.clone()))));
    }

    fn job_over(&mut self, source: &SourceId, key: &Key, at: WallTime, how: Option<How>) {
        if let Some(open) = self.jobs.get_mut(source) {
            open.remove(&key.id);
            if open.is_empty() {
                self.jobs.remove(source);
            }
        }
        let served = self.demands.get(key).is_some_and(|open| open.record.served.is_some());
        let own = if served { How::Done } else { How::Unseen };
        self.end(key, at, how.unwrap_or(own));
    }

    /// A job was lost with its machine.
    pub(super) fn job_lost(&mut self, at: WallTime, source: &SourceId, id: &str) {
        self.job_over(source, &Key::job(source, id), at, Some(How::Lost));
    }

    /// Nobody shows the jobs of a source that an earlier start saw.
    pub(super) fn jobs_unseen(&mut self, source: &SourceId) {
        let (open, last) = (self.jobs.get(source).into_iter().flatten(), self.last);
        let keys: Vec<Key> = open.map(|id| Key::job(source, id)).collect();
        let is_unseen = |key: &&Key| self.demands.get(key).is_some_and(|open| !open.seen);
        let unseen: Vec<Key> = keys.iter().filter(is_unseen).cloned().collect();
        for key in unseen {
            self.job_over(source, &key, last, Some(How::Unseen));
        }
    }

    /// A source is gone: nobody shows its jobs any more.
    pub(super) fn source_gone(&mut self, at: WallTime, source: &SourceId) {
        let open: Vec<String> = self.jobs.get(source).into_iter().flatten().cloned().collect();
        for id in open {
            self.job_over(source, &Key::job(source, &id), at, None);
        }
    }
}
