//! What `drover doctor` tests of a Jenkins without changing anything there.

use drover_model::ports::SourceObservation;

use super::queue::{Computer, NODES_PATH, Nodes, QUEUE_PATH, Queue, QueueMemory};
use super::{
    CREATE_RIGHT, FIRST_WITH_URL_OPTION, FIRST_WITH_URL_OPTION_TEXT, FIRST_WITH_XML_TEXT, Jenkins,
    LABELS_NODE, Launch, is_before, is_older,
};
use crate::error::DemandError;
use crate::finding::{Finding, Remedy};

/// Rights that only a change would show.
const UNTESTED_RIGHTS: &str = "removing nodes, reading their secrets and taking them offline is not tested by \
                       doctor; it needs Agent/Delete, Agent/Connect and Agent/Disconnect";

impl Jenkins {
    pub(super) async fn run_checks(&self, found: &mut Vec<Finding>) -> Result<(), DemandError> {
        let nodes: Nodes = self.client.read(NODES_PATH).await?;
        found.push(version(self.client.version().as_deref(), &self.launch));
        found.push(Finding::ok("login", "is accepted"));
        let about = "making nodes";
        found.push(match self.may_make().await? {
            Some(true) => Finding::ok(about, "the login may"),
            Some(false) => Finding::fail(
                about,
                format!("the login may not: it lacks {CREATE_RIGHT}"),
                format!("give the user of `credentialsId` {CREATE_RIGHT}"),
            ),
            None => Finding::warn(
                about,
                "whether the login may is unknown; only making a node would show it",
                format!("make sure that the user of `credentialsId` has {CREATE_RIGHT}"),
            ),
        });
        found.push(Finding::ok("rights", UNTESTED_RIGHTS));
        let queue: Queue = self.client.read(QUEUE_PATH).await?;
        let waiting = QueueMemory::default().read(queue, &nodes);
        if waiting.names_no_label {
            let text = format!(
                "cannot be read while Jenkins has no node; drover then makes `{LABELS_NODE}`"
            );
            found.push(Finding::ok("labels", text));
        }
        let rows = nodes.computer.iter().filter_map(Computer::row).collect();
        let observation =
            SourceObservation { rows, jobs: waiting.jobs, ..SourceObservation::default() };
        found.push(Finding::listed(&observation));
        Ok(())
    }
}

/// Reports what this version of Jenkins can do.
pub(super) fn version(reported: Option<&str>, launch: &Launch) -> Finding {
    let about = "version";
    let connects = match launch {
        Launch::WebSocket | Launch::InboundTcp => true,
        Launch::Ssh(_) => false,
    };
    match reported {
        Some(reported) if connects && is_before(reported, FIRST_WITH_URL_OPTION) => Finding::fail(
            about,
            format!(
                "the agent of Jenkins {reported} does not know the option `-url`, which drover uses"
            ),
            format!("update it to {FIRST_WITH_URL_OPTION_TEXT} or later, or set `launch: ssh`"),
        ),
        Some(reported) if is_older(reported) => Finding::warn(
            about,
            format!("Jenkins {reported} cannot make nodes from XML; drover sends a form instead"),
            format!("update it to {FIRST_WITH_XML_TEXT} or later"),
        ),
        Some(reported) => Finding::ok(about, format!("Jenkins {reported}")),
        None => Finding::warn(
            about,
            "the answer has no version (X-Jenkins)",
            Remedy::at("in the YAML, as the source has it", "url, kind"),
        ),
    }
}
