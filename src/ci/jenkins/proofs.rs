//! What `drover doctor` tests of a Jenkins without changing anything there.

use drover_model::ports::SourceSight;

use super::sight::{Computer, Memory, NODES, Nodes, QUEUE, Queue};
use super::{CREATE, Jenkins, LEAST, LEAST_WITH_URL, Launch, SIGN, WITH_URL, is_before, is_older};
use crate::error::DemandError;
use crate::proof::Proof;

/// Rights that only a change would show.
const UNTRIED: &str = "removing nodes, reading their secrets and taking them offline is not tested by \
                       doctor; it needs Agent/Delete, Agent/Connect and Agent/Disconnect";

impl Jenkins {
    pub(super) async fn proofs(&self, found: &mut Vec<Proof>) -> Result<(), DemandError> {
        let nodes: Nodes = self.client.read(NODES).await?;
        found.push(version(self.client.version().as_deref(), &self.launch));
        found.push(Proof::ok("login", "is accepted"));
        let about = "making nodes";
        found.push(match self.may_make().await? {
            Some(true) => Proof::ok(about, "the login may"),
            Some(false) => Proof::fail(
                about,
                format!("the login may not: it lacks {CREATE}"),
                format!("give the user of `credentialsId` {CREATE} in Jenkins"),
            ),
            None => Proof::warn(
                about,
                "cannot tell whether the login may; only making a node would show it",
                format!("make sure that the user of `credentialsId` has {CREATE} in Jenkins"),
            ),
        });
        found.push(Proof::ok("rights", UNTRIED));
        let queue: Queue = self.client.read(QUEUE).await?;
        let waiting = Memory::default().read(queue, &nodes);
        if waiting.nameless {
            let text =
                format!("cannot be read while Jenkins has no node; drover then makes `{SIGN}`");
            found.push(Proof::ok("labels", text));
        }
        let rows = nodes.computer.iter().filter_map(Computer::row).collect();
        let sight = SourceSight { rows, jobs: waiting.jobs, ..SourceSight::default() };
        found.push(Proof::seen(&sight));
        Ok(())
    }
}

/// Reports what this version of Jenkins can do.
pub(super) fn version(told: Option<&str>, launch: &Launch) -> Proof {
    let about = "version";
    let connects = match launch {
        Launch::WebSocket | Launch::InboundTcp => true,
        Launch::Ssh(_) => false,
    };
    match told {
        Some(told) if connects && is_before(told, WITH_URL) => Proof::fail(
            about,
            format!(
                "the agent of Jenkins {told} does not know the option `-url`, which drover uses"
            ),
            format!("update Jenkins to {LEAST_WITH_URL} or later, or set `launch: ssh`"),
        ),
        Some(told) if is_older(told) => Proof::warn(
            about,
            format!("Jenkins {told} cannot make nodes from XML; drover sends a form instead"),
            format!("update it to {LEAST} or later"),
        ),
        Some(told) => Proof::ok(about, format!("Jenkins {told}")),
        None => Proof::warn(
            about,
            "the answer has no version (X-Jenkins)",
            "check that `url` and `kind` are right",
        ),
    }
}
