//! Breakers that an operator resets.

use actix::Context;
use tokio::sync::oneshot;

use super::Herd;
use crate::board::Scope;
use crate::cloud::CloudCommand;
use crate::message::Refusal;

/// Where the name of the breaker goes that was reset.
pub type ResetReply = oneshot::Sender<Result<String, Refusal>>;

impl Herd {
    /// Lets a breaker flow: of a template by its name, else of a node, a storage or a cloud.
    pub(super) fn reset_breaker(&mut self, name: &str, reply: ResetReply, ctx: &mut Context<Self>) {
        let template = self.template_named(name);
        let named = self.common.board.named(name);
        let answer = match (&named[..], template) {
            ([scope], _) => {
                self.let_flow(scope, ctx);
                Ok(scope.to_string())
            }
            ([_, ..], _) => {
                let which: Vec<String> = named.iter().map(|one| format!("`{one}`")).collect();
                let which = which.join(", ");
                Err(Refusal::Conflict(format!(
                    "`{name}` is in several clusters: name one of {which}"
                )))
            }
            ([], Ok(template)) => {
                if let Some(cloud) = self.clouds.get(&template.cloud) {
                    cloud.do_send(CloudCommand::ResetBreaker(template.clone()));
                }
                Ok(template.to_string())
            }
            ([], Err(refusal @ (Refusal::Conflict(_) | Refusal::Unavailable(_)))) => Err(refusal),
            ([], Err(Refusal::Unknown(_))) => {
                let text = format!(
                    "no template is called `{name}`, and no breaker of a node, storage or cloud"
                );
                Err(Refusal::Unknown(text))
            }
        };
        reply.send(answer).ok(); // an error: nobody waits any more
    }

    fn let_flow(&mut self, scope: &Scope, ctx: &mut Context<Self>) {
        tracing::warn!(scope = %scope, "operator reset the breaker");
        let now = self.common.ports.ambient.now();
        if self.common.board.succeeded(std::slice::from_ref(scope)).is_empty() {
            return;
        }
        self.common.show_breaker(scope);
        if let Some(body) = self.common.board.record(scope, now) {
            self.append(body, ctx, |_, _, _| ());
        }
    }
}
