//! Why no template can ever serve an ask: the answer names what can be asked for instead.

use std::sync::Arc;

use drover_model::record::Want;
use drover_model::spec::TemplateSpec;

use super::describe;
use super::routing::Routing;
use crate::message::Refusal;

/// Templates of which it is said which sizes they give.
const SHOWN: usize = 5;

/// Why no configured template can ever serve a want; none when one can.
pub(super) fn refusal(
    want: &Want,
    configured: &[Arc<TemplateSpec>],
    routing: &Routing,
) -> Option<Refusal> {
    let able: Vec<&Arc<TemplateSpec>> =
        configured.iter().filter(|spec| routing.serves(spec, want)).collect();
    let names = |specs: &mut dyn Iterator<Item = &Arc<TemplateSpec>>| {
        specs.map(|spec| format!("`{}`", spec.id)).collect::<Vec<_>>().join(", ")
    };
    if let (Want::Template(name), [_, _, ..]) = (want.plain(), able.as_slice()) {
        let which = names(&mut able.iter().copied());
        return Some(Refusal::Conflict(format!(
            "template `{name}` is on several clouds: name one of {which}, or ask by labels"
        )));
    }
    if !able.is_empty() {
        return None;
    }
    if let Some(sizes) = other_sizes(configured.iter(), want, routing) {
        return Some(Refusal::Unknown(format!("no template serves {}: {sizes}", describe(want))));
    }
    let known = match want.plain() {
        Want::Template(_) => format!("known templates: {}", names(&mut configured.iter())),
        Want::Labels(labels) if labels.is_empty() => {
            "all templates are in mode EXCLUSIVE: ask by labels or by template".into()
        }
        Want::Labels(_) | Want::Expression(_) | Want::Sized(..) => {
            let each = configured.iter().map(|spec| {
                let labels: Vec<&str> = spec.labels.iter().map(String::as_str).collect();
                format!("`{}` has `{}`", spec.id, labels.join(" "))
            });
            format!("known: {}", each.collect::<Vec<_>>().join(", "))
        }
    };
    let known = if configured.is_empty() { "no template is configured".into() } else { known };
    Some(Refusal::Unknown(format!("no template serves {}; {known}", describe(want))))
}

/// Which sizes templates give that would serve a want in another size; none where it has none.
pub(super) fn other_sizes<'a>(
    configured: impl Iterator<Item = &'a Arc<TemplateSpec>>,
    want: &Want,
    routing: &Routing,
) -> Option<String> {
    let faults = configured.filter_map(|spec| {
        let fault = routing.size_fault(spec, want)?;
        Some(format!("template `{}` {fault}", spec.id))
    });
    let faults: Vec<String> = faults.take(SHOWN).collect();
    (!faults.is_empty()).then(|| faults.join("; "))
}
