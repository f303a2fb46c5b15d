//! Templates by their names, and agents started because an operator says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_model::id::TemplateId;
use drover_model::record::{LeaseAsk, Want};
use drover_model::spec::TemplateSpec;

use super::Herd;
use crate::cloud::CloudCommand;
use crate::message::{ProvisionReply, Purpose, Refusal};

/// The templates that answer to a name: by their keys, or where none does, by their display names.
fn called<'a>(
    templates: &'a BTreeMap<TemplateId, Arc<TemplateSpec>>,
    name: &str,
) -> Vec<&'a TemplateId> {
    let keys: Vec<&TemplateId> = templates.keys().filter(|id| id.answers_to(name)).collect();
    if !keys.is_empty() {
        return keys;
    }
    templates.values().filter(|spec| spec.is_called(name)).map(|spec| &spec.id).collect()
}

fn several(name: &str, which: &[&TemplateId]) -> Refusal {
    let which: Vec<String> = which.iter().map(|id| format!("`{id}`")).collect();
    let which = which.join(", ");
    Refusal::Conflict(format!("several templates are called `{name}`: name one of {which}"))
}

/// Refuses user data for a template whose guests cannot have any; where labels are wanted it is known
/// by the guest alone.
fn no_user_data(
    templates: &BTreeMap<TemplateId, Arc<TemplateSpec>>,
    want: &Want,
) -> Option<Refusal> {
    let Want::Template(name) = want.plain() else { return None };
    let named = called(templates, name);
    let windows = |id: &&TemplateId| templates.get(*id).is_some_and(|spec| spec.os.is_windows());
    let all = !named.is_empty() && named.iter().all(windows);
    all.then(|| {
        Refusal::Conflict(format!(
            "template `{name}` is of Windows, whose guests take no user data: leave it out, or name a \
             template of Linux"
        ))
    })
}

impl Herd {
    /// What a lease wants, unless it brings what its template cannot take.
    pub(super) fn brings(&self, ask: &LeaseAsk, want: Want) -> Result<Want, Refusal> {
        match no_user_data(&self.spec.templates, &want).filter(|_| ask.user_data) {
            Some(refusal) => Err(refusal),
            None => Ok(want),
        }
    }

    /// The configured template that answers to a name.
    pub(super) fn template_named(&self, name: &str) -> Result<TemplateId, Refusal> {
        let named = called(&self.spec.templates, name);
        match named[..] {
            [id] => Ok(id.clone()),
            [] => Err(Refusal::Unknown(format!("no template is called `{name}`"))),
            [_, ..] => Err(several(name, &named)),
        }
    }

    /// What a lease wants, by the key of the template where it names one by its display name. What is
    /// called so may change while it waits, and its template does not.
    pub(super) fn by_key(&self, want: &Want) -> Result<Want, Refusal> {
        if let Want::Sized(want, size) = want {
            return Ok(self.by_key(want)?.of_size(*size));
        }
        let Want::Template(name) = want else { return Ok(want.clone()) };
        let named = called(&self.spec.templates, name);
        match named[..] {
            [id] if !id.answers_to(name) => Ok(Want::Template(id.to_string())),
            [one, _, ..] if !one.answers_to(name) => Err(several(name, &named)),
            _ => Ok(want.clone()),
        }
    }

    pub(super) fn provision(
        &mut self,
        name: &str,
        (count, trial): (u32, bool),
        reply: ProvisionReply,
    ) {
        let refusal = match self.template_named(name) {
            Err(refusal) => refusal,
            Ok(_) if self.scheduler.stopping() => {
                Refusal::Unavailable("the service is stopping".into())
            }
            Ok(template) => match self.clouds.get(&template.cloud) {
                Some(cloud) => {
                    tracing::info!(template = %template, count, "agents are started as asked");
                    let purpose = if trial { Purpose::Trial } else { Purpose::Use };
                    return cloud.do_send(CloudCommand::Begin { template, count, purpose, reply });
                }
                None => Refusal::Unavailable(format!("cloud `{}` does not run", template.cloud)),
            },
        };
        reply.send(Err(refusal));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::template;
    use drover_model::os::{LoginShell, Os};

    // Invariant: user data is refused where no guest could take it, and not where one could.

    #[test]
    fn user_data_is_refused_for_a_template_of_windows() {
        let windows = TemplateSpec { os: Os::Windows(LoginShell::Auto), ..template("c/w", &[]) };
        let all = [windows, template("d/w", &[]), template("d/t", &[])];
        let all: BTreeMap<TemplateId, Arc<TemplateSpec>> =
            all.map(|spec| (spec.id.clone(), Arc::new(spec))).into();
        let refused = |want: &Want| no_user_data(&all, want).is_some();
        assert!(refused(&Want::Template("c/w".into())));
        for taken in ["w", "d/w", "t", "nosuch"] {
            assert!(!refused(&Want::Template(taken.into())), "{taken}");
        }
        assert!(!refused(&Want::Labels(["linux".to_owned()].into())));
    }

    // Invariant: a name leads to one template, and a key before any display name.

    #[test]
    fn a_template_answers_to_its_key_and_else_to_its_display_name() {
        let of = |id: &str, name: &str| {
            let spec = TemplateSpec { name: name.into(), ..template(id, &[]) };
            (spec.id.clone(), Arc::new(spec))
        };
        let all =
            [of("c/t", "Linux builder"), of("d/t", "Other"), of("d/u", "t"), of("d/v", "Other")];
        let all: BTreeMap<TemplateId, Arc<TemplateSpec>> = all.into();
        let called = |name: &str| {
            called(&all, name).into_iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(called("c/t"), ["c/t"]);
        assert_eq!(called("Linux builder"), ["c/t"]);
        assert_eq!(called("c/Linux builder"), ["c/t"]);
        assert_eq!(called("t"), ["c/t", "d/t"], "the keys go before the name of `d/u`");
        assert_eq!(called("Other"), ["d/t", "d/v"]);
        for none in ["Linux", "d/Linux builder", "c/x", ""] {
            assert_eq!(called(none), Vec::<String>::new(), "{none}");
        }
    }
}
