//! Templates by their names, and agents begun because an operator says so.

use super::Herd;
use crate::cloud::CloudCommand;
use crate::id::TemplateId;
use crate::message::{ProvisionReply, Refusal};

impl Herd {
    /// The configured template that answers to a name.
    pub(super) fn template_named(&self, name: &str) -> Result<TemplateId, Refusal> {
        let named = self.spec.templates.values().filter(|spec| spec.answers_to(name));
        let named: Vec<&TemplateId> = named.map(|spec| &spec.id).collect();
        match named[..] {
            [id] => Ok(id.clone()),
            [] => Err(Refusal::Unknown(format!("no template is called `{name}`"))),
            [_, ..] => {
                let which: Vec<String> = named.iter().map(|id| format!("`{id}`")).collect();
                let which = which.join(", ");
                let text = format!("template `{name}` is on several clouds: name one of {which}");
                Err(Refusal::Conflict(text))
            }
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
            Ok(_) if self.broker.stopping() => {
                Refusal::Unavailable("the service is stopping".into())
            }
            Ok(template) => match self.clouds.get(&template.cloud) {
                Some(cloud) => {
                    tracing::info!(template = %template, count, "agents are begun as asked");
                    return cloud.do_send(CloudCommand::Begin { template, count, trial, reply });
                }
                None => Refusal::Unavailable(format!("cloud `{}` does not run", template.cloud)),
            },
        };
        reply.send(Err(refusal)).ok(); // an error: nobody waits any more
    }
}
