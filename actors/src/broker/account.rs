//! Why demand waits, in numbers: whose turn it is, which templates serve it, and when that may be.

use std::collections::BTreeSet;
use std::time::Duration;

use super::book::Stand;
use super::state::{Broker, TemplateView};
use super::uses::{Asker, Use, Uses};
use super::waiting::Ground;
use super::{Source, describe};
use crate::demand::report::{Account, Estimate, Kind, Serving, Subject};
use crate::id::{SourceId, TemplateId};
use crate::message::{Refusal, Standing};
use crate::record::Want;
use crate::spec::TemplateSpec;
use crate::time::WallTime;

/// A kind of demand with the moment of the use that is asked about.
struct Asked<'a> {
    source: &'a Source,
    want: &'a Want,
    /// The use; none for the first of its kind.
    asker: Option<Asker>,
}

impl Broker {
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
                let each = wants.iter().map(|want| Asked { source: &source, want, asker: None });
                let kinds = each.map(|asked| self.kind(&asked, &uses, ground)).collect();
                (id.clone(), kinds)
            }
            Subject::Job(id, want, since) => {
                self.wants_of(Some(id))?;
                let source = Source::Named(id.clone());
                let asked = Asked { source: &source, want, asker: Some(Asker::Job(*since)) };
                (Some(id.clone()), vec![self.kind(&asked, &uses, ground)])
            }
            Subject::Lease(lease) => {
                let unknown = || Refusal::Unknown(format!("no lease `{lease}` is known"));
                let entry = self.book.get(lease).ok_or_else(unknown)?;
                if entry.stand != Stand::Waiting {
                    return Err(Refusal::Conflict(format!("lease `{lease}` does not wait")));
                }
                let asker = Some(Asker::Lease(lease.clone()));
                let asked = Asked { source: &Source::Leases, want: &entry.ask.want, asker };
                (None, vec![self.kind(&asked, &uses, ground)])
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

    fn kind(&self, asked: &Asked<'_>, uses: &Uses, ground: &Ground<'_>) -> Kind {
        let (waits, open) = self.waits(asked);
        let own = |one: &&Use| {
            let level = &uses.levels[one.level];
            level.source == *asked.source && level.want == *asked.want
        };
        let is_it = |one: &Use| asked.asker.as_ref().is_none_or(|asker| one.asker == *asker);
        // The oldest have runners already, and are in nobody's turn.
        let place = match &asked.asker {
            Some(Asker::Job(since)) => waits.iter().position(|one| one == since).unwrap_or(0),
            Some(Asker::Lease(_)) | None => 0,
        };
        let has_runner = !waits.is_empty() && place < open;
        let serves = |spec: &TemplateSpec| self.serves(spec, asked.want);
        let ahead = if has_runner {
            Some(0)
        } else {
            let turn = uses.turns.iter().position(|one| own(&one) && is_it(one));
            turn.map(|turn| {
                let before = uses.turns.iter().take(turn);
                before
                    .filter(|one| self.share_templates(&uses.levels[one.level].want, asked))
                    .count()
            })
        };
        let fits = self.templates.iter().filter(|(_, view)| serves(&view.spec));
        let serve: Vec<Serving> = fits.map(|(id, view)| self.serving(id, view, ground)).collect();
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
                self.estimate(&serve, ahead, has_runner, ground)
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

    fn serving(&self, id: &TemplateId, view: &TemplateView, ground: &Ground<'_>) -> Serving {
        let of_it = self.agents.values().filter(|agent| agent.spec.id == *id && !agent.going);
        let obstacle = self.obstacle(id, ground).map(|obstacle| obstacle.to_string());
        let mut serving = Serving {
            template: id.clone(),
            live: view.live,
            cap: view.spec.cap,
            coming: view.pending,
            free: 0,
            busy: 0,
            room: if obstacle.is_none() { view.room } else { 0 },
            obstacle,
            until_ready: self.tempo.until_ready(id),
            of_uses: self.tempo.of_uses(id),
        };
        for agent in of_it {
            match agent.standing {
                Standing::Coming => serving.coming += 1,
                Standing::Free { executors, .. } => serving.free += executors,
                Standing::Busy => serving.busy += 1,
                Standing::Leaving | Standing::Parked | Standing::Gone => {}
            }
        }
        serving
    }

    /// Why a template does not serve a want.
    fn lacks(&self, spec: &TemplateSpec, want: &Want) -> String {
        let own: Vec<&str> = spec.labels.iter().map(String::as_str).collect();
        match want {
            _ if self.routing.is_mapped(want) => {
                "a label mapping sends this to other templates".to_owned()
            }
            Want::Template(_) => "another template is asked for".to_owned(),
            Want::Labels(labels) if labels.is_empty() => {
                "its mode is EXCLUSIVE, and no label is asked for".to_owned()
            }
            Want::Labels(labels) => {
                let missing = labels.difference(&spec.labels).map(String::as_str);
                format!("lacks `{}`", missing.collect::<Vec<_>>().join(" "))
            }
            Want::Expression(expression) => {
                format!("`{expression}` does not hold for `{}`", own.join(" "))
            }
        }
    }

    fn estimate(
        &self,
        serve: &[Serving],
        ahead: Result<usize, (&Source, Option<WallTime>)>,
        has_runner: bool,
        ground: &Ground<'_>,
    ) -> Estimate {
        let unknown = |text: &str| Estimate::Unknown(text.to_owned());
        if has_runner {
            return unknown("its runner takes it as soon as it is connected");
        }
        if serve.is_empty() {
            return Estimate::Never("a template that serves it is configured".into());
        }
        // What stands in its way ends when somebody mends it, which nobody foresees.
        let able: Vec<&Serving> = serve.iter().filter(|one| self.works(one, ground)).collect();
        let ahead = match ahead {
            Ok(ahead) => ahead,
            Err((source, since)) => return self.held_by_cap(source, since, &able),
        };
        let free: usize = serve.iter().map(|one| one.free as usize).sum();
        if ahead < free {
            return Estimate::In(Duration::ZERO, "an agent is ready".into());
        }
        if able.is_empty() {
            return self.stuck(serve, ground);
        }
        let ready = able.iter().filter_map(|one| one.until_ready).min();
        let lasts = able.iter().filter_map(|one| one.of_uses).min();
        let sum = |of: fn(&Serving) -> u32| able.iter().map(|one| of(one) as usize).sum::<usize>();
        let (coming, busy, room) =
            (sum(|one| one.coming), sum(|one| one.busy), sum(|one| one.room));
        if coming + busy + room == 0 {
            let obstacles = obstacles(able.iter().copied());
            return Estimate::Unknown(match obstacles.is_empty() {
                true => "nothing of it is begun or busy".to_owned(),
                false => format!("nothing is begun: {obstacles}"),
            });
        }
        let Some(ready) = ready else {
            return unknown("no agent of these templates was ready yet since the service started");
        };
        if ahead < free + coming + room {
            let text = format!("agents take {} to be ready", seconds(ready));
            return Estimate::In(ready, text);
        }
        let behind = ahead + 1 - free - coming - room;
        let (Some(lasts), true) = (lasts, busy > 0) else {
            let obstacles = obstacles(able.iter().copied());
            let why = if obstacles.is_empty() { String::new() } else { format!(": {obstacles}") };
            return Estimate::Unknown(format!(
                "it waits for an agent to end, and none that serves it has ended yet{why}"
            ));
        };
        let rounds = u32::try_from(behind.div_ceil(busy)).unwrap_or(u32::MAX);
        let text = format!(
            "{busy} agents are busy, uses last {} and {behind} of them must end first; agents take \
             {} to be ready",
            seconds(lasts),
            seconds(ready)
        );
        Estimate::In(lasts.saturating_mul(rounds).saturating_add(ready), text)
    }

    /// Whether agents of a template are begun and get ready, as far as anybody knows.
    fn works(&self, one: &Serving, ground: &Ground<'_>) -> bool {
        let view = self.templates.get(&one.template);
        view.is_some_and(|view| view.flowing && view.tripped.is_none())
            && !ground.trouble.contains_key(&one.template.cloud)
    }

    /// When something is served of whose templates none begins agents that get ready.
    fn stuck(&self, serve: &[Serving], ground: &Ground<'_>) -> Estimate {
        let tried = serve.iter().filter(|one| !ground.trouble.contains_key(&one.template.cloud));
        let tried: Vec<&Serving> = tried.collect();
        if tried.is_empty() {
            return Estimate::Never(format!("this is mended: {}", obstacles(serve.iter())));
        }
        let opens =
            tried.iter().filter_map(|one| self.templates.get(&one.template)?.tripped.as_ref());
        Estimate::Unknown(match opens.min_by_key(|(until, _)| *until) {
            Some((until, cause)) => {
                let until = until.rfc3339();
                format!("its agents failed, and a single one is tried at {until}: {cause}")
            }
            None => "its agents failed, and a single one is tried now".to_owned(),
        })
    }

    /// When a use is served that its source's cap holds: as soon as enough of the source's own have
    /// ended. Other sources may be quicker to take what serves it, which is not foreseen.
    fn held_by_cap(&self, source: &Source, since: Option<WallTime>, able: &[&Serving]) -> Estimate {
        let id = match source {
            Source::Leases => None,
            Source::Named(id) => Some(id),
        };
        let own = self.book.placed().filter(|(_, entry)| entry.ask.source.as_ref() == id);
        let lasts =
            own.filter_map(|(agent, _)| self.tempo.of_uses(&self.agents.get(agent)?.spec.id));
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
        let rounds = u32::try_from(must_end.div_ceil(cap)).unwrap_or(u32::MAX);
        let is_free = able.iter().any(|one| one.free > 0);
        let ready = able.iter().filter_map(|one| one.until_ready).min().filter(|_| !is_free);
        let mut text = format!(
            "its source has {has} of {cap}, its uses last {} and {must_end} of them must end first",
            seconds(lasts)
        );
        if let Some(ready) = ready {
            text += &format!("; agents take {} to be ready", seconds(ready));
        }
        Estimate::In(lasts.saturating_mul(rounds).saturating_add(ready.unwrap_or_default()), text)
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
    pub(super) fn shortage(&self, want: &Want, known: &BTreeSet<&String>) -> String {
        match want {
            _ if self.routing.is_mapped(want) => {
                "the label mapping it goes by names no template for it".to_owned()
            }
            Want::Template(name) => format!("no template is called `{name}`"),
            Want::Labels(labels) if labels.is_empty() => {
                "no template takes jobs without labels".to_owned()
            }
            Want::Labels(labels) => {
                let missing = labels.iter().filter(|label| !known.contains(label));
                let missing: Vec<&str> = missing.map(String::as_str).collect();
                if missing.is_empty() {
                    let all: Vec<&str> = labels.iter().map(String::as_str).collect();
                    format!("no template has all of `{}`", all.join(" "))
                } else {
                    format!("no template has `{}`", missing.join(" "))
                }
            }
            Want::Expression(expression) => format!("`{expression}` holds for no template"),
        }
    }
}

/// What keeps templates from beginning agents, each once.
fn obstacles<'a>(serve: impl Iterator<Item = &'a Serving>) -> String {
    let each: BTreeSet<&str> = serve.filter_map(|one| one.obstacle.as_deref()).collect();
    each.into_iter().collect::<Vec<_>>().join("; ")
}

fn seconds(span: Duration) -> String {
    format!("{} s", span.as_secs_f64().ceil())
}
