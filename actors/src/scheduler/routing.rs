//! Which templates serve a want, in which order and by agents of which size: by their own labels, or by
//! the label mapping that wins for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_model::id::TemplateId;
use drover_model::record::Want;
use drover_model::size::{Size, SizeFault, SizeLabels};
use drover_model::spec::{LabelMapping, Mode, TemplateSpec};

/// Templates that stand in for others come behind as many as a mapping may list.
const BEHIND: usize = 1_000_000;

/// The label mappings in force, the winning ones first.
#[derive(Debug, Clone, Default)]
pub struct Routing {
    mappings: Vec<Mapping>,
    /// Templates that others stand in for.
    led: Vec<Arc<TemplateSpec>>,
}

/// A label mapping, with the labels of size that its templates read.
#[derive(Debug, Clone)]
struct Mapping {
    spec: Arc<LabelMapping>,
    sizes: Vec<SizeLabels>,
}

/// How a template serves a want.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// How early it is tried, from zero.
    pub rank: usize,
    /// The size that is asked for.
    asked: Size,
    /// What its agents must have beside the size that they have anyway; where that is nothing, an agent
    /// of this very spec serves.
    pub size: Size,
}

impl Routing {
    /// Orders mappings by priority, those of the same priority as they were written.
    pub fn new(mappings: &[Arc<LabelMapping>]) -> Self {
        let each = mappings.iter().cloned().map(|spec| Mapping { spec, sizes: Vec::new() });
        let mut mappings: Vec<Mapping> = each.collect();
        mappings.sort_by_key(|mapping| std::cmp::Reverse(mapping.spec.priority));
        Self { mappings, led: Vec::new() }
    }

    /// With the templates of a configuration, for those that others stand in for and for their labels
    /// of size.
    pub fn with<'a>(mut self, templates: impl Iterator<Item = &'a Arc<TemplateSpec>>) -> Self {
        for spec in templates {
            if !spec.fallbacks.is_empty() {
                self.led.push(Arc::clone(spec));
            }
            let lists = |mapping: &&mut Mapping| mapping.spec.templates.contains(&spec.id);
            for mapping in self.mappings.iter_mut().filter(lists) {
                if !spec.size_labels.is_none() && !mapping.sizes.contains(&spec.size_labels) {
                    mapping.sizes.push(spec.size_labels.clone());
                }
            }
        }
        self
    }

    /// How a template serves a want while it stands in for others: after all that serve it
    /// themselves, and only for those of which `fails` holds.
    pub fn fallback(
        &self,
        spec: &TemplateSpec,
        want: &Want,
        fails: impl Fn(&TemplateId) -> bool,
    ) -> Option<Fit> {
        let led = self.led.iter().filter(|led| !spec.trial && fails(&led.id));
        let fits = led.filter_map(|led| {
            let place = led.fallbacks.iter().position(|id| *id == spec.id)?;
            let asked = self.fit(led, want)?.asked;
            Some(Fit { rank: BEHIND + place, asked, size: spec.size_for(asked).ok()? })
        });
        fits.min_by_key(|fit| fit.rank)
    }

    /// How a template serves a want; none when it does not, as an agent on trial serves nobody.
    ///
    /// A want by labels goes to the templates of the first mapping that carries them, in the order
    /// written there, and to no others; without such a mapping all that serve it are equal.
    pub fn fit(&self, spec: &TemplateSpec, want: &Want) -> Option<Fit> {
        let (rank, asked) = self.asked(spec, want)?;
        asked.into_iter().find_map(|asked| {
            let asked = asked.ok()?;
            Some(Fit { rank, asked, size: spec.size_for(asked).ok()? })
        })
    }

    /// Why a template does not serve a want that it would serve in another size.
    pub fn size_fault(&self, spec: &TemplateSpec, want: &Want) -> Option<SizeFault> {
        let (_, asked) = self.asked(spec, want)?;
        let sizes: Vec<_> = asked.into_iter().map(|asked| spec.size_for(asked?)).collect();
        // Of several, the fault of the least that was asked for.
        let served = sizes.iter().any(Result::is_ok);
        sizes.into_iter().find_map(Result::err).filter(|_| !served)
    }

    /// How early a template is tried for a want, and the sizes that it asks of it; none where the
    /// template is not for this want, of whatever size.
    fn asked(
        &self,
        spec: &TemplateSpec,
        want: &Want,
    ) -> Option<(usize, Vec<Result<Size, SizeFault>>)> {
        let by = |own: &BTreeSet<String>, named: bool| {
            let names = |name: &str| named && spec.id.answers_to(name);
            spec.size_labels.met(own, want, (names, named && spec.mode == Mode::Normal))
        };
        match self.mapping(want) {
            _ if spec.trial => None,
            Some(mapping) => {
                let rank = mapping.spec.templates.iter().position(|id| *id == spec.id)?;
                Some((rank, by(&mapping.spec.labels, false)))
            }
            None => Some((0, by(&spec.labels, true))),
        }
    }

    /// Whether a label mapping decides who serves a want.
    pub fn is_mapped(&self, want: &Want) -> bool {
        self.mapped(want).is_some()
    }

    fn mapping(&self, want: &Want) -> Option<&Mapping> {
        self.mappings.iter().find(|mapping| mapping.carries(want))
    }

    /// The templates of the label mapping that decides who serves a want, if one does.
    pub(super) fn mapped(&self, want: &Want) -> Option<&[TemplateId]> {
        self.mapping(want).map(|mapping| mapping.spec.templates.as_slice())
    }

    /// The templates that stand in for others which fail.
    pub(super) fn stand_ins<'a>(
        &'a self,
        want: &'a Want,
        fails: impl Fn(&TemplateId) -> bool + 'a,
    ) -> impl Iterator<Item = &'a TemplateId> {
        let led = self.led.iter().filter(move |led| fails(&led.id) && self.serves(led, want));
        led.flat_map(|led| &led.fallbacks)
    }

    /// Whether a template serves a want.
    pub fn serves(&self, spec: &TemplateSpec, want: &Want) -> bool {
        self.fit(spec, want).is_some()
    }
}

impl Mapping {
    /// Whether its labels are those of a want, but for labels of size.
    fn carries(&self, want: &Want) -> bool {
        let own = &self.spec.labels;
        let carries =
            |sizes: &SizeLabels| !sizes.met(own, want, (|_: &str| false, false)).is_empty();
        carries(&SizeLabels::default()) || self.sizes.iter().any(carries)
    }
}

/// The labels of a runner that was started for some: those, and what its template has beside them.
pub(super) fn has(spec: &TemplateSpec, started_for: &Want) -> Option<BTreeSet<String>> {
    let Want::Labels(own) = started_for.plain() else { return None };
    let beside = spec.labels.iter().filter(|label| !contradicts(own, label));
    Some(own.iter().chain(beside).cloned().collect())
}

/// Whether a runner with these labels, or with those of its template alone, can be given a job that
/// wants this. What a label mapping lends other templates it does not have, and of sizes a source knows
/// nothing but the labels.
pub(super) fn offers(spec: &TemplateSpec, labels: Option<&BTreeSet<String>>, want: &Want) -> bool {
    match (want.plain(), labels) {
        (Want::Labels(labels), Some(own)) if !labels.is_empty() => labels.is_subset(own),
        (Want::Expression(expression), Some(own)) => expression.matches(own),
        (Want::Template(name), _) => spec.id.answers_to(name),
        (Want::Labels(labels), _) if labels.is_empty() => spec.mode == Mode::Normal,
        (Want::Labels(labels), _) => labels.is_subset(&spec.labels),
        (Want::Expression(expression), None) => expression.matches(&spec.labels),
        // None is behind `plain`.
        (Want::Sized(..), _) => false,
    }
}

/// Whether a label `key=value` has another value where the key is named too: an agent of Woodpecker
/// has one value of each.
fn contradicts(own: &BTreeSet<String>, label: &str) -> bool {
    let key = |label: &str| label.split_once('=').map(|(key, _)| key.to_owned());
    key(label).is_some_and(|wanted| own.iter().any(|one| key(one).as_ref() == Some(&wanted)))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::testing::{labels, template, template_id};
    use drover_model::labels::LabelExpression;

    fn mapping(text: &str, priority: i64, templates: &[&str]) -> Arc<LabelMapping> {
        let labels = text.split_whitespace().map(str::to_owned).collect();
        let templates = templates.iter().map(|id| template_id(id)).collect();
        Arc::new(LabelMapping { labels, priority, templates })
    }

    fn expression(text: &str) -> Want {
        Want::Expression(LabelExpression::parse(text).unwrap())
    }

    // Invariant: labels must all be there; unlabelled demand goes to NORMAL templates only.

    #[test]
    fn exclusive_templates_serve_only_labels_and_names() {
        let routing = Routing::default();
        let named = |name: &str| Want::Template(name.into());
        let mut spec = template("c/t", &["linux", "big"]);
        spec.mode = Mode::Exclusive;
        for want in [labels(&["big"]), labels(&["big", "linux"]), named("t"), named("c/t")] {
            assert!(routing.serves(&spec, &want), "{want:?}");
        }
        for want in [labels(&[]), labels(&["big", "arm"]), named("d/t"), expression("!big")] {
            assert!(!routing.serves(&spec, &want), "{want:?}");
        }
        spec.mode = Mode::Normal;
        assert!(routing.serves(&spec, &labels(&[])));
    }

    // Invariant: who stands in does so for what fails, behind all that serve a want themselves.

    #[test]
    fn a_fallback_serves_what_its_template_cannot_and_nothing_else() {
        let mut led = template("c/t", &["linux"]);
        led.fallbacks = vec![template_id("c/u"), template_id("c/v")];
        let [u, v] = ["c/u", "c/v"].map(|id| template(id, &["own"]));
        let routing = Routing::default().with([Arc::new(led)].iter());
        let linux = labels(&["linux"]);
        let ranks = [&u, &v].map(|spec| routing.fallback(spec, &linux, |id| *id.name == *"t"));
        let ranks = ranks.map(|fit| fit.map(|fit| fit.rank));
        assert_eq!(ranks, [Some(BEHIND), Some(BEHIND + 1)]);
        assert_eq!(routing.fit(&u, &linux), None);
        assert_eq!(routing.fallback(&u, &linux, |_| false), None);
        assert_eq!(routing.fallback(&u, &labels(&["windows"]), |_| true), None);
        assert!(routing.fallback(&u, &Want::Template("t".into()), |_| true).is_some());
    }

    // Invariant: of the mappings that carry the labels the one of the highest priority decides, and
    // it alone.

    #[test]
    fn the_highest_priority_decides_who_serves_and_in_which_order() {
        let routing = Routing::new(&[
            mapping("linux", 0, &["c/slow"]),
            mapping("linux docker", 5, &["c/fast", "c/slow"]),
            mapping("linux docker", 5, &["c/late"]),
        ]);
        let [fast, slow, late] =
            ["c/fast", "c/slow", "c/late"].map(|id| template(id, &["linux", "docker", "own"]));
        for want in [labels(&["linux"]), labels(&["linux", "docker"]), expression("linux && !arm")]
        {
            let ranks =
                [&fast, &slow, &late].map(|spec| routing.fit(spec, &want).map(|fit| fit.rank));
            assert_eq!(ranks, [Some(0), Some(1), None], "{want:?}");
        }
    }

    #[test]
    fn a_mapping_lends_its_labels_and_touches_no_other_demand() {
        let routing = Routing::new(&[mapping("gpu", 0, &["c/t"])]);
        let [t, u] = ["c/t", "c/u"].map(|id| template(id, &["linux"]));
        assert!(routing.serves(&t, &labels(&["gpu"])) && !routing.serves(&u, &labels(&["gpu"])));
        for want in [labels(&["linux"]), labels(&[]), Want::Template("u".into())] {
            assert!(routing.serves(&u, &want), "{want:?}");
        }
        assert!(!routing.serves(&t, &labels(&["gpu", "linux"])), "no mapping carries both");
    }
}
