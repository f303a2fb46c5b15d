//! Breakers that an operator resets.

use std::collections::BTreeSet;

use drover_model::id::ClusterId;
use drover_model::scope::Scope;
use drover_runtime::reply::Reply;

use super::Herd;
use crate::cloud::CloudCommand;
use crate::message::Refusal;

/// Where the name of the breaker goes that was reset.
pub type ResetReply = Reply<Result<String, Refusal>>;

impl Herd {
    /// Lets a breaker flow: of a template by its name, else of a node, a storage or a cloud.
    pub(super) fn reset_breaker(&self, name: &str, reply: ResetReply) {
        let template = self.template_named(name);
        let mut named = self.common.board.named(name);
        if named.is_empty() && matches!(template, Err(Refusal::Unknown(_))) {
            named = self.places().into_iter().filter(|scope| scope.answers_to(name)).collect();
        }
        let answer = match (&named[..], template) {
            ([scope], _) => {
                self.let_flow(scope);
                Ok(scope.to_string())
            }
            ([_, ..], _) => {
                let which: Vec<String> = named.iter().map(|one| format!("`{one}`")).collect();
                let which = which.join(", ");
                Err(Refusal::Conflict(format!(
                    "`{name}` is the name of several: say one of {which}"
                )))
            }
            ([], Ok(template)) => {
                if let Some(cloud) = self.clouds.get(&template.cloud) {
                    cloud.do_send(CloudCommand::ResetBreaker(template.clone()));
                }
                Ok(template.to_string())
            }
            (
                [],
                Err(
                    refusal @ (Refusal::Conflict(_)
                    | Refusal::Unavailable(_)
                    | Refusal::TooMany(_)
                    | Refusal::Forbidden(_)),
                ),
            ) => Err(refusal),
            ([], Err(Refusal::Unknown(_))) => {
                let text = format!(
                    "no template is called `{name}`, and no node, storage or cloud that is known"
                );
                Err(Refusal::Unknown(text))
            }
        };
        reply.send(answer);
    }

    /// Every node, storage and cloud that the configuration names or an agent makes use of.
    fn places(&self) -> BTreeSet<Scope> {
        let mut all: BTreeSet<Scope> = self.spec.clouds.keys().cloned().map(Scope::Cloud).collect();
        for living in self.common.roster.select(|_| true).into_values() {
            let cloud = &living.template.cloud;
            all.extend(living.place.iter().flat_map(|place| Scope::used(place, cloud)));
        }
        // A storage that nodes have for themselves has a breaker for each of them, and none of all.
        let charged = self.common.board.all();
        let apart: BTreeSet<(ClusterId, String)> =
            all.iter().chain(&charged).filter_map(node_storage).collect();
        for spec in self.spec.templates.values() {
            let Some(cluster) = self.leads.get(&spec.id.cloud) else { continue };
            let nodes = spec.nodes().into_iter().map(|node| Scope::Node(cluster.clone(), node));
            let storages = spec.target_storage.iter().chain(&spec.storages);
            let storages = storages
                .map(|name| (cluster.clone(), name.clone()))
                .filter(|storage| !apart.contains(storage))
                .map(|(cluster, name)| Scope::Storage(cluster, None, name));
            all.extend(nodes.chain(storages));
        }
        all
    }

    fn let_flow(&self, scope: &Scope) {
        tracing::warn!(scope = %scope, "operator reset the breaker");
        let now = self.common.ports.ambient.now();
        if !self.common.board.reset(scope) {
            return;
        }
        self.common.show_breaker(scope);
        if let Some(body) = self.common.board.record(scope, now) {
            self.common.records.write(body);
        }
    }
}

/// The storage that this is, where it is one of a single node.
fn node_storage(scope: &Scope) -> Option<(ClusterId, String)> {
    match scope {
        Scope::Storage(cluster, Some(_), name) => Some((cluster.clone(), name.clone())),
        Scope::Storage(_, None, _) | Scope::Node(..) | Scope::Cloud(_) => None,
    }
}
