//! Why demand waits, in numbers: whose turn it is, which templates serve it, and when that may be.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_model::demand::report::{Account, Estimate, Kind, Serving, Subject};
use drover_model::id::{CloudId, SourceId, TemplateId};
use drover_model::outside::{outside, outside_expression, outsides};
use drover_model::record::Want;
use drover_model::spec::TemplateSpec;
use drover_model::status::Standing;
use drover_model::time::WallTime;

use super::book::Stand;
use super::forecast::{self, Foreseen};
use super::refusal::other_sizes;
use super::specs::{Servers, SpecId};
use super::state::{Scheduler, TemplateView};
use super::uses::{Asker, Use, Uses};
use super::waiting::Ground;
use super::{Source, describe};
use crate::message::Refusal;

/// Until when something is not served that somebody must change something for.
pub const CAUSE_GONE: &str = "the cause below is gone";

/// A kind of demand with the moment of the use that is asked about.
struct Asked<'a> {
    source: &'a Source,
    want: &'a Want,
    /// The use; none for the first of its kind.
    asker: Option<Asker>,
    /// How many of those with the same moment are before it.
    nth: usize,
}

impl Scheduler {
    /// Accounts for what is asked about.
    ///
    /// # Errors
    /// Unknown: no such source or lease. Conflict: a lease that does not wait.
    pub fn account(
        &self,
        subject: &Subject,
        ground: &Ground<'_>,
        now: WallTime,
    ) -> Result<Account, Refusal> {
        let uses = self.uses(now);
        let (source, kinds) = match subject {
            Subject::Source(id) => {
                let source = id.clone().map_or(Source::Leases, Source::Named);
                let wants = self.wants_of(id.as_ref())?;
                let each =
                    wants.iter().map(|want| Asked { source: &source, want, asker: None, nth: 0 });
                let kinds = each.map(|asked| self.kind(&asked, &uses, ground, now)).collect();
                (id.clone(), kinds)
            }
            Subject::Job(id, want, since, nth) => {
                self.wants_of(Some(id))?;
                let source = Source::Named(id.clone());
                let asker = Some(Asker::Job(*since));
                let asked = Asked { source: &source, want, asker, nth: *nth };
                (Some(id.clone()), vec![self.kind(&asked, &uses, ground, now)])
            }
            Subject::Lease(lease) => {
                let unknown = || Refusal::Unknown(format!("no lease `{lease}` is known"));
                let entry = self.book.get(lease).ok_or_else(unknown)?;
                if entry.stand != Stand::Waiting {
                    return Err(Refusal::Conflict(format!("lease `{lease}` does not wait")));
                }
                let asker = Some(Asker::Lease(lease.clone()));
                let want = &entry.ask.want;
                let asked = Asked { source: &Source::Leases, want, asker, nth: 0 };
                (None, vec![self.kind(&asked, &uses, ground, now)])
            }
        };
        let of_named = source.as_ref().and_then(|id| self.sources.get(id));
        let share = of_named.map_or(self.asked, |view| view.spec.share);
        let all = u32::try_from(self.book.placed().count()).unwrap_or(u32::MAX);
        let weights = self.weights(source.as_ref(), &uses);
        Ok(Account { has: self.has(source.as_ref()), source, share, all, weights, kinds })
    }

    /// The kinds that a source wants.
    fn wants_of(&self, source: Option<&SourceId>) -> Result<Vec<Want>, Refusal> {
        let Some(id) = source else {
            let mut wants: Vec<Want> = Vec::new();
            for ask in self.book.waiting() {
                if !wants.contains(&ask.want) {
                    wants.push(ask.want.clone());
                }
            }
            return Ok(wants);
        };
        let unknown = || Refusal::Unknown(format!("no source `{id}` is configured"));
        let view = self.sources.get(id).ok_or_else(unknown)?;
        Ok(view.levels.iter().map(|level| level.want.clone()).collect())
    }

    /// The weights of all that have or want uses, with that of the one asked about.
    fn weights(&self, source: Option<&SourceId>, uses: &Uses) -> u32 {
        let wants =
            |of: &Source| uses.levels.iter().any(|level| level.source == *of && level.count > 0);
        let counts = |id: Option<&SourceId>| {
            let of = id.cloned().map_or(Source::Leases, Source::Named);
            id == source || wants(&of) || self.has(id) > 0
        };
        let named = self.sources.iter().filter(|(id, _)| counts(Some(id)));
        let named: u32 = named.map(|(_, view)| view.spec.share.weight).sum();
        named + if counts(None) { self.asked.weight } else { 0 }
    }

    fn kind(&self, asked: &Asked<'_>, uses: &Uses, ground: &Ground<'_>, now: WallTime) -> Kind {
        let (waits, open) = self.waits(asked);
        let own = |one: &&Use| {
            let level = &uses.levels[one.level];
            level.source == *asked.source && level.want == *asked.want
        };
        let is_it = |one: &Use| asked.asker.as_ref().is_none_or(|asker| one.asker == *asker);
        // The oldest have runners already, and are in nobody's turn.
        let first = match &asked.asker {
            Some(Asker::Job(since)) => waits.iter().position(|one| one == since).unwrap_or(0),
            Some(Asker::Lease(_)) | None => 0,
        };
        let place = (first + asked.nth).min(waits.len().saturating_sub(1));
        let has_runner = !waits.is_empty() && place < open;
        let serves = |spec: &TemplateSpec| self.serves(spec, asked.want);
        let ahead = if has_runner {
            Some(0)
        } else {
            let turns = uses.turns.iter().enumerate();
            let mut its = turns.filter(|(_, one)| own(one) && is_it(one)).map(|(turn, _)| turn);
            its.nth(place - first.max(open).min(place)).map(|turn| {
                let before = uses.turns.iter().take(turn);
                before
                    .filter(|one| self.share_templates(&uses.levels[one.level].want, asked))
                    .count()
            })
        };
        let servers = self.servers(asked.want);
        let fits = self.templates.iter().filter(|(_, view)| serves(&view.spec));
        let serve = fits.map(|(id, view)| self.serving((id, view), &servers, ground));
        let serve: Vec<Serving> = serve.collect();
        let others = ground.templates.iter().filter(|(_, spec)| !serves(spec));
        let others = others.map(|(id, spec)| (id.clone(), self.lacks(spec, asked.want)));
        let why = if has_runner {
            "a runner is there for it, or on its way".to_owned()
        } else if waits.is_empty() {
            "nothing of the kind waits".to_owned()
        } else if serve.is_empty() {
            format!("no configured template serves {}", describe(asked.want))
        } else if ahead.is_none() {
            "its source has as many agents as its `instanceCap`".to_owned()
        } else {
            self.why(asked.want, ground)
        };
        let since = waits.get(place).copied();
        Kind {
            want: asked.want.clone(),
            count: waits.len(),
            since,
            open: open.min(waits.len()),
            ahead,
            others: others.collect(),
            why,
            estimate: if waits.is_empty() {
                Estimate::Unknown("nothing of the kind waits".into())
            } else {
                let ahead = ahead.ok_or((asked.source, since));
                let of_source = matches!(asked.source, Source::Named(_));
                let fit = servers.specs().collect();
                self.estimate((&serve, &fit), ahead, has_runner, ground, (of_source, now))
            },
            serve,
        }
    }

    /// Since when uses of a kind wait, the oldest first, and for how many runners are there.
    fn waits(&self, asked: &Asked<'_>) -> (Vec<WallTime>, usize) {
        match asked.source {
            Source::Leases => {
                let same = self.book.waiting().filter(|ask| match &asked.asker {
                    Some(Asker::Lease(lease)) => ask.lease == *lease,
                    Some(Asker::Job(_)) | None => ask.want == *asked.want,
                });
                (same.map(|ask| ask.asked).collect(), 0)
            }
            Source::Named(id) => {
                let levels = self.sources.get(id).into_iter().flat_map(|view| &view.levels);
                let mut each = levels.zip(self.covered(id));
                let level = each.find(|(level, _)| level.want == *asked.want);
                level.map(|(level, covered)| (level.since.clone(), covered)).unwrap_or_default()
            }
        }
    }

    /// Whether some template serves both.
    fn share_templates(&self, want: &Want, asked: &Asked<'_>) -> bool {
        let both = |view: &TemplateView| {
            self.serves(&view.spec, want) && self.serves(&view.spec, asked.want)
        };
        want == asked.want || self.templates.values().any(both)
    }

    fn serving(
        &self,
        (id, view): (&TemplateId, &TemplateView),
        servers: &Servers,
        ground: &Ground<'_>,
    ) -> Serving {
        let of_it = self.agents.values().filter(|agent| agent.spec.id == *id && !agent.going);
        // Agents of another size come and are free for others.
        let fit: BTreeSet<SpecId> = servers.specs().collect();
        let size = servers.kinds().find(|(spec, _)| *spec == view.kind).map(|(_, size)| size);
        let starts = size.and_then(|size| view.starts.get(&size));
        let obstacle = self.obstacle(id, ground).or_else(|| self.no_place(id, size?));
        let mut serving = Serving {
            template: id.clone(),
            live: view.live,
            cap: view.spec.cap,
            coming: starts.copied().unwrap_or(0),
            free: 0,
            busy: 0,
            room: if obstacle.is_none() { view.room } else { 0 },
            obstacle,
            until_ready: self.start_backoff.until_ready(id),
            of_uses: self.start_backoff.of_uses(id),
        };
        for agent in of_it {
            let fits = fit.contains(&agent.kind);
            match agent.status.standing {
                Standing::Coming if fits => serving.coming += 1,
                Standing::Free { executors, .. } if fits => serving.free += executors,
                Standing::Busy => serving.busy += 1,
                Standing::Coming
                | Standing::Free { .. }
                | Standing::Leaving
                | Standing::Parked
                | Standing::Gone => {}
            }
        }
        serving
    }

    /// Why a template does not serve a want.
    fn lacks(&self, spec: &TemplateSpec, want: &Want) -> String {
        let own: Vec<&str> = spec.labels.iter().map(String::as_str).collect();
        if let Some(fault) = self.routing.size_fault(spec, want) {
            return fault.to_string();
        }
        match want.plain() {
            _ if self.routing.is_mapped(want) => {
                "a label mapping sends this to other templates".to_owned()
            }
            Want::Template(_) => "the request names another template".to_owned(),
            Want::Labels(labels) if labels.is_empty() => {
                "its mode is EXCLUSIVE, and no label is asked for".to_owned()
            }
            Want::Labels(labels) => {
                let missing = labels.difference(&spec.labels).map(String::as_str);
                let missing = missing.filter(|label| !spec.size_labels.has(label));
                format!("lacks {}", outsides(missing))
            }
            Want::Expression(expression) => {
                format!(
                    "{} does not hold for `{}`",
                    outside_expression(&expression.to_string()),
                    own.join(" ")
                )
            }
            // None is behind `plain`.
            Want::Sized(..) => String::new(),
        }
    }

    fn estimate(
        &self,
        (serve, fit): (&[Serving], &BTreeSet<SpecId>),
        ahead: Result<usize, (&Source, Option<WallTime>)>,
        has_runner: bool,
        ground: &Ground<'_>,
        (of_source, now): (bool, WallTime),
    ) -> Estimate {
        let unknown = |text: &str| Estimate::Unknown(text.to_owned());
        if has_runner {
            return unknown("its runner takes it as soon as it is connected");
        }
        if serve.is_empty() {
            return Estimate::Never("a template that serves it is configured".into());
        }
        // What stands in its way ends when somebody repairs it, which nobody foresees.
        let able: Vec<&Serving> = serve.iter().filter(|one| self.works(one, ground)).collect();
        let ahead = match ahead {
            Ok(ahead) => ahead,
            Err((source, since)) => return self.held_by_cap(source, since, &able, now),
        };
        let free: usize = serve.iter().map(|one| one.free as usize).sum();
        if ahead < free {
            return Estimate::In(Duration::ZERO, "an agent is ready".into());
        }
        if able.is_empty() {
            return self.stuck(serve, ground, of_source);
        }
        let ready = able.iter().filter_map(|one| one.until_ready).min();
        let lasts = able.iter().filter_map(|one| one.of_uses).min();
        let sum = |of: fn(&Serving) -> u32| able.iter().map(|one| of(one) as usize).sum::<usize>();
        let (coming, busy, room) =
            (sum(|one| one.coming), sum(|one| one.busy), sum(|one| one.room));
        let is_stuck = |one: &&Serving| self.is_stuck(&one.template, ground);
        let are_stuck = coming == 0 && able.iter().all(is_stuck);
        let reuses = |one: &&Serving| self.reuses(one, of_source).is_some();
        if are_stuck && (busy == 0 || !able.iter().any(reuses)) {
            return self.paused(&able).unwrap_or(Estimate::Never(CAUSE_GONE.into()));
        }
        if coming + busy + room == 0 {
            return self.at_rest(&able, ground);
        }
        let Some(ready) = ready else {
            return unknown("no agent of these templates was ready yet since the service started");
        };
        let foreseen = self.foresee((&able, fit), ahead, of_source, now);
        if let (Foreseen::In(span), true) = (foreseen, ahead < free + coming + room) {
            let text = format!("agents take {} to be ready", seconds(ready));
            return Estimate::In(span, text);
        }
        let behind = (ahead + 1).saturating_sub(free + coming + room);
        let (Some(lasts), Foreseen::In(span), true) = (lasts, foreseen, busy > 0) else {
            if are_stuck {
                let text = format!("{CAUSE_GONE}, or a busy agent is free");
                return self.paused(&able).unwrap_or(Estimate::Never(text));
            }
            if let Foreseen::Outlasted(lasts) = foreseen {
                return Estimate::Unknown(outlasted(lasts));
            }
            return unknown("a busy agent must come free, and none has since the service started");
        };
        let text = format!(
            "{busy} agents are busy, uses last {} and {behind} of them must end first; agents take \
             {} to be ready",
            seconds(lasts),
            seconds(ready)
        );
        Estimate::In(span, text)
    }

    /// The template, where its agents serve one use after another.
    fn reuses(&self, one: &Serving, of_source: bool) -> Option<&TemplateView> {
        let view = self.templates.get(&one.template)?;
        (!forecast::goes_after_one(&view.spec, of_source)).then_some(view)
    }

    /// Whether agents of a template are started and get ready, as far as anybody knows.
    fn works(&self, one: &Serving, ground: &Ground<'_>) -> bool {
        let view = self.templates.get(&one.template);
        view.is_some_and(|view| view.flowing && view.tripped.is_none())
            && !ground.trouble.contains_key(&one.template.cloud)
    }

    /// When something is served of whose templates one tries again by itself; none where none does.
    fn paused(&self, able: &[&Serving]) -> Option<Estimate> {
        let retries =
            able.iter().filter_map(|one| self.templates.get(&one.template)?.paused.as_ref()?.retry);
        let at = retries.min()?.rfc3339();
        Some(Estimate::Unknown(format!("drover tries again by itself at {at}")))
    }

    /// When something is served of whose templates no agent is starting or busy, and none can start.
    fn at_rest(&self, able: &[&Serving], ground: &Ground<'_>) -> Estimate {
        let mut full: Vec<String> = Vec::new();
        for one in able {
            let cloud = &one.template.cloud;
            if self.full_cloud(cloud, ground).is_none() || !self.holders(cloud).1 {
                return Estimate::Unknown("no agent is starting, and none has room".into());
            }
            full.push(format!("`instanceCap` of cloud {cloud} is raised"));
        }
        full.dedup();
        Estimate::Never(format!("{}, or the minimum that fills it is lowered", full.join(", ")))
    }

    /// When something is served of whose templates none begins agents that get ready.
    fn stuck(&self, serve: &[Serving], ground: &Ground<'_>, of_source: bool) -> Estimate {
        let tried = serve.iter().filter(|one| !ground.trouble.contains_key(&one.template.cloud));
        let tried: Vec<&Serving> = tried.collect();
        if tried.is_empty() {
            let clouds: BTreeSet<&CloudId> = serve.iter().map(|one| &one.template.cloud).collect();
            let clouds: Vec<String> = clouds.into_iter().map(|id| format!("cloud {id}")).collect();
            // What is reset first waits for its cloud, too.
            let comes_free = serve.iter().any(|one| {
                let view = self.reuses(one, of_source);
                one.busy > 0 && view.is_some_and(|view| view.spec.reset.is_none())
            });
            let or_free = if comes_free { ", or a busy agent is free" } else { "" };
            let clouds = clouds.join(" or ");
            return Estimate::Never(format!("{clouds} is usable again{or_free}"));
        }
        let opens =
            tried.iter().filter_map(|one| self.templates.get(&one.template)?.tripped.as_ref());
        Estimate::Unknown(match opens.min_by_key(|(until, _)| *until) {
            Some((until, _)) => {
                format!("its agents failed; drover tries one at {}", until.rfc3339())
            }
            None => "its agents failed; drover tries one now".to_owned(),
        })
    }

    /// When a use is served that its source's cap holds: as soon as enough of the source's own have
    /// ended. Other sources may be quicker to take what serves it, which is not foreseen.
    fn held_by_cap(
        &self,
        source: &Source,
        since: Option<WallTime>,
        able: &[&Serving],
        now: WallTime,
    ) -> Estimate {
        let id = match source {
            Source::Leases => None,
            Source::Named(id) => Some(id),
        };
        let own = self.book.placed().filter(|(_, entry)| entry.ask.source.as_ref() == id);
        let lasts = own
            .filter_map(|(agent, _)| self.start_backoff.of_uses(&self.agents.get(agent)?.spec.id));
        let lasts = lasts.min().or_else(|| able.iter().filter_map(|one| one.of_uses).min());
        let Some(lasts) = lasts else {
            return Estimate::Unknown(
                "one of its source's own uses must end first, and none has ended since the service \
                 started"
                    .into(),
            );
        };
        let share =
            id.and_then(|id| self.sources.get(id)).map_or(self.asked, |view| view.spec.share);
        let has = self.has(id) as usize;
        let cap = share.cap.map_or(has, |cap| cap as usize).max(1);
        let must_end = (self.older(id, since) + 1 + has).saturating_sub(cap).max(1);
        let is_free = able.iter().any(|one| one.free > 0);
        let ready = able.iter().filter_map(|one| one.until_ready).min().filter(|_| !is_free);
        let again = lasts + ready.unwrap_or_default();
        let span = match self.own_turn(id, must_end - 1, (lasts, again), now) {
            Foreseen::In(span) => span,
            Foreseen::Outlasted(lasts) => {
                let text = format!("its source has {has} of {cap}, and {}", outlasted(lasts));
                return Estimate::Unknown(text);
            }
            Foreseen::Unknown => lasts,
        };
        let mut text = format!(
            "its source has {has} of {cap}, its uses last {} and {must_end} of them must end first",
            seconds(lasts)
        );
        if let Some(ready) = ready {
            text += &format!("; agents take {} to be ready", seconds(ready));
        }
        Estimate::In(span.saturating_add(ready.unwrap_or_default()), text)
    }

    /// How many uses of a source wait for an agent since before this moment.
    fn older(&self, source: Option<&SourceId>, since: Option<WallTime>) -> usize {
        let Some(since) = since else { return 0 };
        let Some(id) = source else {
            return self.book.waiting().filter(|ask| ask.asked < since).count();
        };
        let levels = self.sources.get(id).into_iter().flat_map(|view| &view.levels);
        let each = levels.zip(self.covered(id)).filter(|(level, _)| self.is_served(&level.want));
        let each = each.map(|(level, covered)| {
            level.since.iter().skip(covered).filter(|one| **one < since).count()
        });
        each.sum()
    }

    /// Labels that some template has.
    pub(super) fn labels(&self) -> BTreeSet<&String> {
        let all = self.templates.values().filter(|view| view.configured);
        all.flat_map(|view| &view.spec.labels).collect()
    }

    /// What the templates are short of for a want that none serves, of all labels that they have.
    pub(super) fn shortage<'a>(
        &self,
        want: &Want,
        configured: impl Iterator<Item = &'a Arc<TemplateSpec>> + Clone,
        known: &BTreeSet<&String>,
    ) -> String {
        if let Some(sizes) = other_sizes(configured.clone(), want, &self.routing) {
            return sizes;
        }
        match want.plain() {
            _ if self.routing.is_mapped(want) => {
                "the label mapping it goes by names no template for it".to_owned()
            }
            Want::Template(name) => format!("no template is called {}", outside(name)),
            Want::Labels(labels) if labels.is_empty() => {
                "no template takes jobs without labels: one with `mode: NORMAL` does".to_owned()
            }
            Want::Labels(labels) => {
                let is_size =
                    |label: &str| configured.clone().any(|spec| spec.size_labels.has(label));
                let missing = labels.iter();
                let missing = missing.filter(|label| !known.contains(label) && !is_size(label));
                let missing: Vec<&str> = missing.map(String::as_str).collect();
                if missing.is_empty() {
                    let all: Vec<&str> = labels.iter().map(String::as_str).collect();
                    format!("no template has all of {}", outsides(all))
                } else {
                    format!("no template has {}", outsides(missing))
                }
            }
            Want::Expression(expression) => {
                format!("{} holds for no template", outside_expression(&expression.to_string()))
            }
            // None is behind `plain`.
            Want::Sized(..) => String::new(),
        }
    }
}

/// Why nothing is foreseen of uses that last for much longer than others did.
fn outlasted(lasts: Duration) -> String {
    format!(
        "busy agents are used for longer than uses lasted so far ({}): nobody knows when such a \
         use ends; it ends at the latest when its lease expires, and `drover leases` shows when \
         that is",
        seconds(lasts)
    )
}

fn seconds(span: Duration) -> String {
    format!("{} s", span.as_secs_f64().ceil())
}
