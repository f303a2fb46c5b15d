//! What of a source's jobs is let in: anyone who may push a workflow may queue any set of labels, and
//! each kind costs something at every decision.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_model::demand::report::Unoffered;
use drover_model::demand::spec::SourceSpec;
use drover_model::id::TemplateId;
use drover_model::record::Want;
use drover_model::spec::TemplateSpec;
use drover_model::time::WallTime;

use super::state::Scheduler;
use crate::demand::Level;

/// Kinds of jobs of one source that are served at a time.
pub const KINDS: usize = 500;

/// Why no runner of a source can be given a job that wants this.
fn barred(source: &SourceSpec, want: &Want) -> Option<String> {
    match want {
        Want::Labels(labels) => labels.iter().find_map(|label| source.bars(label)),
        Want::Template(_) | Want::Expression(_) | Want::Sized(..) => None,
    }
}

impl Scheduler {
    /// The kinds of a source's jobs that decisions look at, and why others wait, in the order of
    /// what is wanted: no template serves them, no runner can have their labels, or there are too
    /// many.
    ///
    /// Of too many, those come in that waited longest, in turn by what serves them: many kinds that
    /// wait for one full template keep out none for another.
    pub fn admit(
        &self,
        source: Option<&SourceSpec>,
        levels: Vec<Level>,
        configured: &BTreeMap<TemplateId, Arc<TemplateSpec>>,
    ) -> (Vec<Level>, Vec<Unoffered>) {
        // A template that was not heard of yet may serve them soon.
        let unheard: Vec<&Arc<TemplateSpec>> = configured
            .iter()
            .filter(|(id, _)| !self.templates.contains_key(*id))
            .map(|(_, spec)| spec)
            .collect();
        let labels = self.labels();
        let mut outside = Vec::new();
        let mut served: BTreeMap<usize, Vec<(WallTime, Level)>> = BTreeMap::new();
        for level in levels {
            if let Some(why) = source.and_then(|source| barred(source, &level.want)) {
                let lacks =
                    format!("{why}; rename the label, or give the source a `runnerCommand`");
                outside.push(Unoffered { want: level.want, lacks });
                continue;
            }
            let servers = self.servers(&level.want);
            let soon = unheard.iter().any(|spec| self.routing.serves(spec, &level.want));
            let is_offered = |id: &TemplateId| configured.contains_key(id);
            let mut own = servers.kinds().filter_map(|(spec, _)| self.specs.get(spec));
            if !soon && !own.any(|spec| is_offered(&spec.id)) {
                let lacks = self.shortage(&level.want, configured.values(), &labels);
                outside.push(Unoffered { want: level.want.clone(), lacks });
            }
            if let Some(oldest) = level.since.first().copied()
                && (soon || !servers.all.is_empty())
            {
                served.entry(servers.class).or_default().push((oldest, level));
            }
        }
        let mut inside: Vec<(usize, WallTime, Level)> = Vec::new();
        for mut alike in served.into_values() {
            alike.sort_by(|one, other| (one.0, &one.1.want).cmp(&(other.0, &other.1.want)));
            let alike = alike.into_iter().enumerate();
            inside.extend(alike.map(|(turn, (oldest, level))| (turn, oldest, level)));
        }
        inside.sort_by(|one, other| {
            (one.0, one.1, &one.2.want).cmp(&(other.0, other.1, &other.2.want))
        });
        let left = inside.split_off(inside.len().min(KINDS));
        outside.extend(left.into_iter().map(|(.., level)| Unoffered {
            want: level.want,
            lacks: format!("held back: drover serves {KINDS} kinds of jobs of a source at a time"),
        }));
        outside.sort_by(|one, other| one.want.cmp(&other.want));
        outside.dedup_by(|one, other| one.want == other.want);
        (inside.into_iter().map(|(.., level)| level).collect(), outside)
    }
}
