//! What Jenkins' nodes and queue report, and what that means to drover.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::demand::report::UnreadJob;
use drover_model::id::RunnerName;
use drover_model::ports::{Idle, JobObservation, JobOrigin, NodeObservation, RowObservation, Shut};
use drover_model::record::Want;
use drover_model::time::WallTime;
use serde::Deserialize;

use super::super::origin;
use super::super::rows::Row;
use super::node;
use super::why::{self, Waits};

/// The fields that are read of one node.
pub(super) const NODE_FIELDS: &str = "displayName,description,offline,temporarilyOffline,offlineCauseReason,\
    offlineCause[description],assignedLabels[name],executors[idle,currentExecutable[number,url]]";
/// The path that reads all nodes.
pub(super) const NODES_PATH: &str = "computer/api/json?tree=computer[displayName,description,offline,\
    temporarilyOffline,offlineCauseReason,offlineCause[description],assignedLabels[name],\
    executors[idle,currentExecutable[number,url]]]";
/// The path that reads the queue.
pub(super) const QUEUE_PATH: &str = "queue/api/json?tree=items[id,why,buildable,pending,stuck,inQueueSince,\
    buildableStartMilliseconds,task[name,fullDisplayName,url,labelExpression]]";
/// The reason that drover gives when it cordons a node; drover recognises its own cordon by it.
pub(super) const CORDON_REASON: &str = "drover: takes no further build";

/// How many characters of a reason are kept.
const REASON_MAX_CHARS: usize = 200;

/// The answer with all nodes.
#[derive(Debug, Deserialize)]
pub(super) struct Nodes {
    /// All nodes, the controller's own among them.
    pub computer: Vec<Computer>,
}

/// A node with its state and its executors, as Jenkins reports it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Computer {
    #[serde(rename = "_class", default)]
    class: String,
    #[serde(default)]
    display_name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    offline: bool,
    #[serde(default)]
    temporarily_offline: bool,
    #[serde(default)]
    offline_cause_reason: Option<String>,
    #[serde(default)]
    offline_cause: Option<Cause>,
    #[serde(default)]
    assigned_labels: Vec<Label>,
    #[serde(default)]
    executors: Vec<Executor>,
}

#[derive(Debug, Deserialize)]
struct Cause {
    #[serde(rename = "_class", default)]
    class: String,
    #[serde(default)]
    description: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Label {
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Executor {
    #[serde(default)]
    idle: bool,
    #[serde(default)]
    current_executable: Option<Executable>,
}

#[derive(Debug, Deserialize)]
struct Executable {
    #[serde(default)]
    number: Option<u64>,
    #[serde(default)]
    url: Option<String>,
}

/// The answer with the queue.
#[derive(Debug, Deserialize)]
pub(super) struct Queue {
    items: Vec<Item>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    id: u64,
    #[serde(default)]
    why: Option<String>,
    #[serde(default)]
    buildable: bool,
    #[serde(default)]
    pending: bool,
    #[serde(default)]
    stuck: bool,
    #[serde(default)]
    in_queue_since: i64,
    #[serde(default)]
    buildable_start_milliseconds: Option<i64>,
    #[serde(default)]
    task: Task,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Task {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    full_display_name: Option<String>,
    #[serde(default)]
    url: Option<String>,
    /// Reported for freestyle jobs alone; unverified against a server.
    #[serde(default)]
    label_expression: Option<String>,
}

impl Computer {
    fn is_controllers(&self) -> bool {
        self.class.ends_with("MasterComputer")
            || matches!(self.display_name.as_str(), "Built-In Node" | "master")
    }

    fn jobs(&self) -> usize {
        self.executors.iter().filter(|executor| !executor.idle).count()
    }

    fn shut(&self, reason: Option<&String>) -> Shut {
        if !self.temporarily_offline {
            return Shut::Open;
        }
        let reason = reason.cloned().unwrap_or_default();
        // A node monitor is no person: it takes a node offline for a full disk or a wrong clock.
        let monitor = self.offline_cause.as_ref().is_some_and(|it| it.class.contains("monitor"));
        match (reason.contains(CORDON_REASON), monitor) {
            (true, _) => Shut::Quiet,
            (false, true) => Shut::Unfit(reason),
            (false, false) => Shut::Person,
        }
    }

    /// The row as the actors see it; none for nodes that are not drover's.
    pub(super) fn row(&self) -> Option<RowObservation> {
        RunnerName::parse(&self.display_name)?;
        let executables =
            self.executors.iter().filter_map(|executor| executor.current_executable.as_ref());
        let running = executables.filter_map(|it| {
            let url = it.url.as_deref().filter(|url| !url.is_empty())?;
            Some(it.number.map_or_else(|| url.to_owned(), |number| format!("{url}#{number}")))
        });
        let running: BTreeSet<String> = running.collect();
        let jobs = self.jobs().max(running.len());
        let first =
            self.executors.iter().find_map(|it| it.current_executable.as_ref()?.url.clone());
        let reason = self.offline_cause_reason.as_ref().filter(|reason| !reason.trim().is_empty());
        // Hudson has the reason in the cause alone.
        let cause = || self.offline_cause.as_ref()?.description.as_ref();
        let reason = reason.or_else(cause).map(|reason| plain(reason));
        let shut = self.shut(reason.as_ref());
        Some(RowObservation {
            runner: RunnerName::new(&self.display_name),
            // A node that is temporarily offline does not say whether it is connected.
            online: !self.offline || self.temporarily_offline,
            jobs: u32::try_from(jobs).unwrap_or(u32::MAX),
            job: first,
            idle: Idle::Known,
            node: NodeObservation { running, shut, reason: reason.filter(|_| self.offline) },
        })
    }

    /// The demand of a build that waits for exactly this node of drover's: the demand that the node
    /// was made for, or, where the node is taken, another node like it.
    fn demand_of_waiting(&self) -> Option<Want> {
        let made_for = self.description.as_deref().and_then(node::made_for);
        let taken = self.jobs() > 0 || self.temporarily_offline;
        let all = || {
            let labels = self.assigned_labels.iter().map(|label| label.name.clone());
            Want::Labels(labels.filter(|label| *label != self.display_name).collect())
        };
        if taken { Some(all()) } else { made_for }
    }
}

/// Jenkins knows a node by its name alone.
impl Row for Computer {
    fn number(&self) -> Option<u64> {
        None
    }

    fn name(&self) -> &str {
        &self.display_name
    }

    fn rename(&mut self, _: &RunnerName) {}
}

/// A text of Jenkins, bounded and on one line.
fn plain(text: &str) -> String {
    text.chars().map(|ch| if ch.is_control() { ' ' } else { ch }).take(REASON_MAX_CHARS).collect()
}

/// The demand of each waiting build, as it was first read. As soon as a node has the label that a
/// build waits for, Jenkins names that node instead of the label; but the demand must not change
/// meanwhile.
#[derive(Debug, Default)]
pub(super) struct QueueMemory(BTreeMap<u64, Want>);

/// What was read from the queue.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Builds that wait for a node and nothing else.
    pub jobs: Vec<JobObservation>,
    /// Waiting builds whose demand Jenkins does not report.
    pub unread: Vec<UnreadJob>,
    /// Whether Jenkins names no label because it has no node.
    pub names_no_label: bool,
}

impl QueueMemory {
    /// Reads the queue with the help of the nodes, which were read just before it.
    pub(super) fn read(&mut self, queue: Queue, nodes: &Nodes) -> Waiting {
        let known: BTreeMap<&str, &Computer> =
            nodes.computer.iter().map(|it| (it.display_name.as_str(), it)).collect();
        let no_nodes = nodes.computer.iter().all(Computer::is_controllers);
        let mut waiting = Waiting::default();
        let mut kept = BTreeMap::new();
        for item in queue.items {
            let want = self.0.remove(&item.id);
            // A blocked build, one in its quiet period and one on its way to a node need no node.
            if !(item.buildable || item.stuck) || item.pending {
                kept.extend(want.map(|want| (item.id, want)));
                continue;
            }
            let said = item.why.as_deref().map_or(Waits::Unknown, why::read);
            let want = want.or_else(|| item.want(said, &known, no_nodes));
            waiting.names_no_label |= want.is_none() && said == Waits::Anywhere && no_nodes;
            match want {
                Some(want) => {
                    kept.insert(item.id, want.clone());
                    waiting.jobs.push(item.observation(want));
                }
                None => waiting.unread.push(item.shown()),
            }
        }
        self.0 = kept;
        waiting
    }
}

impl Item {
    fn want(
        &self,
        said: Waits<'_>,
        known: &BTreeMap<&str, &Computer>,
        no_nodes: bool,
    ) -> Option<Want> {
        let reported = || {
            let label = self.task.label_expression.as_deref()?;
            Some(label).filter(|label| !label.trim().is_empty()).and_then(why::want)
        };
        let waits_for = |node: &Computer| {
            let own = RunnerName::parse(&node.display_name).is_some();
            reported().or_else(|| if own { node.demand_of_waiting() } else { None })
        };
        match said {
            Waits::Label(label) => why::want(label),
            Waits::Place(place) => match known.get(place) {
                Some(node) => waits_for(node),
                None => why::want(place),
            },
            Waits::Node(name) => match known.get(name) {
                Some(node) => waits_for(node),
                None => reported(),
            },
            Waits::Anywhere if no_nodes => reported(),
            Waits::Anywhere => reported().or(Some(Want::Labels(BTreeSet::new()))),
            Waits::Unknown => reported(),
        }
    }

    fn observation(self, want: Want) -> JobObservation {
        let pipeline = self.task.full_display_name.clone().or_else(|| self.task.name.clone());
        let origin = origin::known(JobOrigin { pipeline, ..JobOrigin::default() });
        let UnreadJob { id, name, since } = self.shown();
        JobObservation { id, name, want, since, origin }
    }

    /// What is reported of the build, whatever it demands.
    fn shown(self) -> UnreadJob {
        let Task { name, full_display_name, url, .. } = self.task;
        let name = full_display_name.or(name).or(url).filter(|name| !name.is_empty());
        let since = self.buildable_start_milliseconds.filter(|since| *since > 0);
        UnreadJob {
            id: self.id.to_string(),
            name: name.map_or_else(|| format!("item {}", self.id), |name| plain(&name)),
            since: WallTime(since.unwrap_or(self.in_queue_since)),
        }
    }
}
