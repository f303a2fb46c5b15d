//! Which templates serve a want, and in which order: by their own labels, or by the label mapping
//! that wins for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_model::id::TemplateId;
use drover_model::record::Want;
use drover_model::spec::{LabelMapping, Mode, TemplateSpec};

/// Templates that stand in for others come behind as many as a mapping may list.
const BEHIND: usize = 1_000_000;

/// The label mappings in force, the winning ones first.
#[derive(Debug, Clone, Default)]
pub struct Routing {
    mappings: Vec<Arc<LabelMapping>>,
    /// Templates that others stand in for.
    led: Vec<Arc<TemplateSpec>>,
}

impl Routing {
    /// Orders mappings by priority, those of the same priority as they were written.
    pub fn new(mappings: &[Arc<LabelMapping>]) -> Self {
        let mut mappings = mappings.to_vec();
        mappings.sort_by_key(|mapping| std::cmp::Reverse(mapping.priority));
        Self { mappings, led: Vec::new() }
    }

    /// With the templates of a configuration, for those that others stand in for.
    pub fn with<'a>(mut self, templates: impl Iterator<Item = &'a Arc<TemplateSpec>>) -> Self {
        self.led = templates.filter(|spec| !spec.fallbacks.is_empty()).cloned().collect();
        self
    }

    /// How early a template is tried for a want while it stands in for others: after all that serve
    /// it themselves, and only for those of which `fails` holds.
    pub fn fallback(
        &self,
        spec: &TemplateSpec,
        want: &Want,
        fails: impl Fn(&TemplateId) -> bool,
    ) -> Option<usize> {
        let led =
            self.led.iter().filter(|led| !spec.trial && fails(&led.id) && self.serves(led, want));
        let places = led.filter_map(|led| led.fallbacks.iter().position(|id| *id == spec.id));
        places.min().map(|place| BEHIND + place)
    }

    /// How early a template is tried for a want, from zero; none when it does not serve it, as an agent
    /// on trial serves nobody.
    ///
    /// A want by labels goes to the templates of the first mapping that carries them, in the order
    /// written there, and to no others; without such a mapping all that serve it are equal.
    pub fn rank(&self, spec: &TemplateSpec, want: &Want) -> Option<usize> {
        match self.mappings.iter().find(|mapping| carries(mapping, want)) {
            _ if spec.trial => None,
            Some(mapping) => mapping.templates.iter().position(|id| *id == spec.id),
            None => serves(spec, want).then_some(0),
        }
    }

    /// Whether a label mapping decides who serves a want.
    pub fn is_mapped(&self, want: &Want) -> bool {
        self.mapped(want).is_some()
    }

    /// The templates of the label mapping that decides who serves a want, if one does.
    pub(super) fn mapped(&self, want: &Want) -> Option<&[TemplateId]> {
        let mapping = self.mappings.iter().find(|mapping| carries(mapping, want));
        mapping.map(|mapping| mapping.templates.as_slice())
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
        self.rank(spec, want).is_some()
    }
}

fn carries(mapping: &LabelMapping, want: &Want) -> bool {
    match want {
        Want::Template(_) => false,
        Want::Labels(labels) => !labels.is_empty() && labels.is_subset(&mapping.labels),
        Want::Expression(expression) => expression.matches(&mapping.labels),
    }
}

/// The labels of a runner that was started for some: those, and what its template has beside them.
pub(super) fn has(spec: &TemplateSpec, started_for: &Want) -> Option<BTreeSet<String>> {
    let Want::Labels(own) = started_for else { return None };
    let beside = spec.labels.iter().filter(|label| !contradicts(own, label));
    Some(own.iter().chain(beside).cloned().collect())
}

/// Whether a runner with these labels, or with those of its template alone, can be given a job that
/// wants this. What a label mapping lends other templates it does not have.
pub(super) fn offers(spec: &TemplateSpec, labels: Option<&BTreeSet<String>>, want: &Want) -> bool {
    let Some(own) = labels else { return serves(spec, want) };
    match want {
        Want::Labels(labels) if !labels.is_empty() => labels.is_subset(own),
        Want::Expression(expression) => expression.matches(own),
        Want::Labels(_) | Want::Template(_) => serves(spec, want),
    }
}

/// Whether a label `key=value` has another value where the key is named too: an agent of Woodpecker
/// has one value of each.
fn contradicts(own: &BTreeSet<String>, label: &str) -> bool {
    let key = |label: &str| label.split_once('=').map(|(key, _)| key.to_owned());
    key(label).is_some_and(|wanted| own.iter().any(|one| key(one).as_ref() == Some(&wanted)))
}

/// A named template serves anyone who names it, labels must all be there, an expression must hold, and
/// unlabelled demand goes to `NORMAL` templates only.
fn serves(spec: &TemplateSpec, want: &Want) -> bool {
    match want {
        Want::Template(name) => spec.id.answers_to(name),
        Want::Labels(labels) if labels.is_empty() => spec.mode == Mode::Normal,
        Want::Labels(labels) => labels.is_subset(&spec.labels),
        Want::Expression(expression) => expression.matches(&spec.labels),
    }
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
        assert_eq!(ranks, [Some(BEHIND), Some(BEHIND + 1)]);
        assert_eq!(routing.rank(&u, &linux), None);
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
            let ranks = [&fast, &slow, &late].map(|spec| routing.rank(spec, &want));
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
