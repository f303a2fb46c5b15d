//! A Jenkins of the tests' own, over real HTTP on loopback: its queue with the words of Jenkins' own
//! source, nodes, crumbs, pages while it starts, and both ways to launch agents.
//!
//! What it knows of Jenkins is from its source (2.579 at ff9430ee1dc6) and documentation, and of the form of older ones
//! from a real Hudson 3.3.2 (`crate::hudson`), from which Jenkins was forked.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use drover_model::labels::LabelExpression;
use serde_json::{Value, json};

use super::{door, launch};
use crate::harness::WAIT_LIMIT;

/// Where it is on its server.
pub const PATH: &str = "/jenkins/";

/// A build that waits.
#[derive(Debug, Clone)]
pub struct Item {
    id: u64,
    name: String,
    label: Option<LabelExpression>,
    pipeline: bool,
    run: String,
}

/// A build that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    pub name: String,
    pub node: String,
    /// Its exit status, once it is over; none for one that lost its node.
    pub exit: Option<Option<i64>>,
    pub said: String,
}

/// Where words for an agent go.
pub type Channel = Box<dyn Write + Send>;

#[derive(Default)]
pub struct Node {
    pub xml: String,
    pub labels: BTreeSet<String>,
    pub executors: usize,
    pub exclusive: bool,
    pub channel: Option<Channel>,
    /// Who took it off, in Jenkins' words.
    pub off: Option<String>,
    /// Builds on it, by their numbers.
    pub builds: BTreeSet<usize>,
}

/// Everything there is.
#[derive(Default)]
pub struct State {
    pub nodes: BTreeMap<String, Node>,
    queue: Vec<Item>,
    pub builds: Vec<Build>,
    /// Every node that was made, in order.
    pub made: Vec<String>,
    /// What agents were started with, by their nodes.
    pub hellos: BTreeMap<String, Value>,
    /// Requests so far, as `METHOD path`.
    pub calls: Vec<String>,
    items: u64,
    /// Whether it is just starting.
    pub starts: bool,
    /// Whether nodes can be made by form alone, as on older controllers.
    pub old: bool,
    /// Whether it is so old that its agent does not know how drover has it connect.
    pub ancient: bool,
    /// Whether it refuses its form, too, as one does that is older still.
    pub formless: bool,
    /// Whether the login may make no nodes.
    pub denies: bool,
    /// How many answers to a node's making get lost, after it was made.
    pub loses: u32,
    /// Whether the next answer to a node's making is held back, after it was made.
    pub holds: bool,
    pub stops: bool,
}

/// A running one; it ends when dropped.
pub struct Fake {
    pub url: String,
    shared: Arc<Shared>,
}

impl Node {
    fn is_offline(&self) -> bool {
        self.channel.is_none() || self.off.is_some()
    }

    fn has(&self, name: &str, label: &LabelExpression) -> bool {
        let mut labels = self.labels.clone();
        labels.insert(name.to_owned());
        label.matches(&labels)
    }

    fn takes(&self, name: &str, item: &Item) -> bool {
        let fits = match &item.label {
            Some(label) => self.has(name, label),
            None => !self.exclusive,
        };
        fits && !self.is_offline() && self.builds.len() < self.executors
    }

    fn shown(&self, name: &str) -> String {
        let Self { labels, builds, off, .. } = self;
        format!("{name} {labels:?} builds {builds:?} off {off:?} {}", self.channel.is_some())
    }
}

/// What its threads share.
pub struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// For logins to guests: the file of the private key.
    pub key: Mutex<Option<std::path::PathBuf>>,
}

impl Shared {
    /// Also after a test failed with it in its hand: the end of its `Fake` must not hide why.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something holds.
    pub fn until(&self, holds: impl Fn(&State) -> bool) {
        let waited =
            self.changed.wait_timeout_while(self.state(), WAIT_LIMIT, |state| !holds(state));
        drop(waited);
    }

    /// Changes something, lets builds begin that now can, and wakes who waits.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        state.schedule();
        self.changed.notify_all();
        result
    }
}

impl Fake {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}{PATH}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            key: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for link in listener.incoming().map_while(Result::ok) {
                if serving.state().stops {
                    break;
                }
                let shared = Arc::clone(&serving);
                std::thread::spawn(move || door::serve(&shared, link));
            }
        });
        Self { url, shared }
    }

    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        self.shared.change(change)
    }

    /// A build waits from now on for this label or expression; none for any node.
    pub fn queue(&self, name: &str, label: &str, run: &str) {
        self.put(name, label, run, false);
    }

    /// A `node` step of a Pipeline waits.
    pub fn pipeline(&self, name: &str, label: &str, run: &str) {
        self.put(name, label, run, true);
    }

    fn put(&self, name: &str, label: &str, run: &str, pipeline: bool) {
        let label = LabelExpression::parse(label).ok();
        self.change(|state| {
            state.items += 1;
            let (id, name, run) = (state.items, name.to_owned(), run.to_owned());
            state.queue.push(Item { id, name, label, pipeline, run });
        });
    }

    /// Lets a build end that runs `wait`.
    pub fn go(&self, name: &str) {
        self.change(|state| {
            let place = |build: &Build| build.name == name && build.exit.is_none();
            let number = state.builds.iter().position(place).unwrap();
            let node = state.nodes.get_mut(&state.builds[number].node).unwrap();
            let channel = node.channel.as_mut().unwrap();
            writeln!(channel, "{}", json!({ "go": number })).unwrap();
            channel.flush().unwrap();
        });
    }

    /// Waits until a build of this name runs, and gives its node.
    pub fn running(&self, name: &str) -> String {
        self.wait("the begin of a build", |state| {
            let runs = |build: &&Build| build.name == name && build.exit.is_none();
            state.builds.iter().find(runs).map(|build| build.node.clone())
        })
    }

    /// Waits until nodes were looked at once more from begin to end.
    pub fn looked(&self) {
        let looks = |state: &State| {
            let look = |call: &&String| *call == "GET computer/api/json";
            state.calls.iter().filter(look).count()
        };
        let before = looks(&self.shared.state());
        self.wait("another look", |state| (looks(state) >= before + 2).then_some(()));
    }

    /// Waits until it is as it should be, and gives what is read of it then.
    pub fn wait<T>(&self, what: &str, read: impl Fn(&State) -> Option<T>) -> T {
        let end = Instant::now() + WAIT_LIMIT;
        let mut state = self.shared.state();
        loop {
            if let Some(found) = read(&state) {
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what} did not come: {}", state.shown());
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// Waits until so many builds are over, and gives all.
    pub fn over(&self, count: usize) -> Vec<Build> {
        let over = |state: &State| state.builds.iter().filter(|it| it.exit.is_some()).count();
        self.wait("the end of builds", |state| (over(state) >= count).then(|| state.builds.clone()))
    }

    /// Names of drover's nodes for agents.
    pub fn nodes(&self) -> Vec<String> {
        let state = self.shared.state();
        state.nodes.keys().filter(|name| *name != "drover-labels").cloned().collect()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.shared.change(|state| {
            state.stops = true;
            state.nodes.clear();
        });
        let address = self.url.trim_start_matches("http://").trim_end_matches(PATH);
        // Wakes who accepts; when that fails nobody does.
        let _ = TcpStream::connect(address);
    }
}

impl State {
    pub fn version(&self) -> &'static str {
        match (self.ancient, self.old) {
            (true, _) => "2.426.3",
            (false, true) => "2.528.3",
            (false, false) => "2.579",
        }
    }

    fn shown(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(|(name, node)| node.shown(name)).collect();
        let last = &self.calls[self.calls.len().saturating_sub(20)..];
        let (queue, builds) = (&self.queue, &self.builds);
        format!("nodes {nodes:?}, queue {queue:?}, builds {builds:?}, last calls {last:?}")
    }

    /// Begins what can begin.
    fn schedule(&mut self) {
        let mut at = 0;
        while let Some(item) = self.queue.get(at) {
            let free = self.nodes.iter().find(|(name, node)| node.takes(name, item));
            let Some(name) = free.map(|(name, _)| name.clone()) else {
                at += 1;
                continue;
            };
            let item = self.queue.remove(at);
            let number = self.builds.len();
            let node = name.clone();
            self.builds.push(Build { name: item.name, node, exit: None, said: String::new() });
            if let Some(node) = self.nodes.get_mut(&name) {
                node.builds.insert(number);
                let word = json!({ "build": number, "run": item.run });
                if let Some(channel) = &mut node.channel {
                    // One that is not there any more is noticed by its reader.
                    let _ = writeln!(channel, "{word}").and_then(|()| channel.flush());
                }
            }
        }
    }

    /// An agent is connected.
    pub fn connected(&mut self, name: &str, channel: Channel) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.channel = Some(channel);
        }
    }

    /// An agent says something.
    pub fn said(&mut self, name: &str, word: &Value) {
        if word["hello"].is_array() {
            self.hellos.insert(name.to_owned(), word["hello"].clone());
        }
        let Some(number) = word["build"].as_u64().and_then(|n| usize::try_from(n).ok()) else {
            return;
        };
        if let Some(node) = self.nodes.get_mut(name) {
            node.builds.remove(&number);
        }
        let build = &mut self.builds[number];
        build.exit = Some(word["exit"].as_i64());
        word["said"].as_str().unwrap_or_default().clone_into(&mut build.said);
    }

    /// An agent's connection ended: its builds with it.
    pub fn lost(&mut self, name: &str) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        node.channel = None;
        for number in std::mem::take(&mut node.builds) {
            self.builds[number].exit = Some(None);
        }
    }

    pub fn remove(&mut self, name: &str) -> bool {
        self.lost(name);
        self.nodes.remove(name).is_some()
    }

    /// Why a build waits, as Jenkins' `Queue.BuildableItem` says it.
    fn why(&self, item: &Item) -> String {
        let Some(label) = item.label.as_ref().filter(|_| !self.nodes.is_empty()) else {
            // Without any node it does not speak of labels.
            return "Waiting for next available executor".into();
        };
        let of_it: Vec<(&String, &Node)> =
            self.nodes.iter().filter(|(name, node)| node.has(name, label)).collect();
        let offline = of_it.iter().all(|(_, node)| node.is_offline());
        let text = label.as_str().replace(' ', "");
        match (of_it.as_slice(), offline) {
            ([], _) => format!("There are no nodes with the label ‘{text}’"),
            ([(name, _)], true) => format!("‘{name}’ is offline"),
            (_, true) => format!("All nodes of label ‘{text}’ are offline"),
            ([(name, _)], false) => format!("Waiting for next available executor on ‘{name}’"),
            (_, false) => format!("Waiting for next available executor on ‘{text}’"),
        }
    }

    pub fn queue_json(&self, english: bool) -> Value {
        let items = self.queue.iter().map(|item| {
            let class = if item.pipeline {
                "org.jenkinsci.plugins.workflow.support.steps.ExecutorStepExecution$PlaceholderTask"
            } else {
                "hudson.model.FreeStyleProject"
            };
            let why = if english { self.why(item) } else { "Warten auf einen Knoten".into() };
            json!({
                "_class": "hudson.model.Queue$BuildableItem", "id": item.id, "why": why,
                "blocked": false, "buildable": true, "pending": false, "stuck": false,
                "inQueueSince": 1_700_000_000_000_i64, "buildableStartMilliseconds": 1_700_000_000_000_i64,
                "task": {"_class": class, "name": item.name, "url": format!("job/{}/", item.name)},
            })
        });
        json!({ "items": items.collect::<Vec<_>>() })
    }

    pub fn nodes_json(&self) -> Value {
        let own = json!({
            "_class": "hudson.model.Hudson$MasterComputer", "displayName": "Built-In Node",
            "offline": false, "temporarilyOffline": false, "executors": [], "assignedLabels": [],
            "description": "the Jenkins controller's built-in node",
        });
        let each = self.nodes.iter().map(|(name, node)| self.node_json(name, node));
        json!({ "computer": std::iter::once(own).chain(each).collect::<Vec<_>>() })
    }

    pub fn node_json(&self, name: &str, node: &Node) -> Value {
        let running = node.builds.iter().map(|number| {
            let url = format!("job/{}/{number}/", self.builds[*number].name);
            json!({"idle": false, "currentExecutable": {"number": number, "url": url}})
        });
        let idle =
            std::iter::repeat_n(json!({"idle": true, "currentExecutable": null}), node.executors);
        let executors: Vec<Value> = running.chain(idle).take(node.executors).collect();
        let names = node.labels.iter().map(String::as_str).chain([name]);
        let labels: Vec<Value> = names.map(|label| json!({ "name": label })).collect();
        json!({
            "_class": "hudson.slaves.SlaveComputer", "displayName": name,
            "description": launch::part(&node.xml, "description"),
            "offline": node.is_offline(), "temporarilyOffline": node.off.is_some(),
            "offlineCauseReason": node.off.clone().unwrap_or_default(),
            "offlineCause": node.off.as_ref().map(|_| json!({
                "_class": "hudson.slaves.OfflineCause$UserCause"})),
            "idle": node.builds.is_empty(), "assignedLabels": labels, "executors": executors,
        })
    }
}
