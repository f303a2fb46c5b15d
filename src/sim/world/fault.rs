//! What goes wrong on purpose: rules of `--faults FILE`, and how often each has struck.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::dice::Dice;

/// All faults of a world.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct Faults {
    /// Calls that go wrong.
    pub calls: Vec<CallFault>,
    /// Tasks that fail or die.
    pub tasks: Vec<TaskFault>,
    /// Volumes that a destroy leaves behind.
    pub frees: Vec<FreeFault>,
    /// Locks that somebody else holds for a while.
    pub holds: Vec<HoldFault>,
    /// Nodes that go down, come back, hang or are slow.
    pub nodes: Vec<NodeFault>,
    /// Guests whose agent does not do its duty.
    pub agents: Vec<AgentFault>,
    /// Workers of each daemon of a node; 0 for as many as the cluster's description says.
    pub workers_per_node: usize,
}

fn always() -> f64 {
    1.0
}

/// A call that goes wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CallFault {
    /// Only this method.
    #[serde(default)]
    pub method: Option<String>,
    /// Only routes whose template contains this, such as `/clone`.
    #[serde(default)]
    pub route: Option<String>,
    /// Only calls of this node.
    #[serde(default)]
    pub node: Option<String>,
    /// How likely it strikes.
    #[serde(default = "always")]
    pub chance: f64,
    /// Calls that are spared first.
    #[serde(default)]
    pub skip: u32,
    /// How often it strikes at most.
    #[serde(default)]
    pub times: Option<u32>,
    /// Answers with this status (500, 595, 596, 599 …).
    #[serde(default)]
    pub status: Option<u16>,
    /// The message of that answer.
    #[serde(default)]
    pub message: String,
    /// Resets the connection.
    #[serde(default)]
    pub reset: bool,
    /// Waits this many seconds first.
    #[serde(default)]
    pub delay: f64,
    /// Whether the call has its effect all the same.
    #[serde(default)]
    pub done: bool,
    /// Waits this many seconds between that effect and its answer.
    #[serde(default)]
    pub late: f64,
}

impl Default for CallFault {
    fn default() -> Self {
        Self {
            method: None,
            route: None,
            node: None,
            chance: 1.0,
            skip: 0,
            times: None,
            status: None,
            message: String::new(),
            reset: false,
            delay: 0.0,
            done: false,
            late: 0.0,
        }
    }
}

/// A task that fails or dies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct TaskFault {
    /// Only tasks of this type, such as `qmclone`.
    #[serde(default)]
    pub kind: Option<String>,
    /// Only tasks on this node.
    #[serde(default)]
    pub node: Option<String>,
    /// How likely it strikes.
    #[serde(default = "always")]
    pub chance: f64,
    /// Tasks that are spared first.
    #[serde(default)]
    pub skip: u32,
    /// How often it strikes at most.
    #[serde(default)]
    pub times: Option<u32>,
    /// The task fails at once with this error.
    #[serde(default)]
    pub error: Option<String>,
    /// Without an error: its worker is killed after this many seconds.
    #[serde(default)]
    pub after: f64,
}

impl Default for TaskFault {
    fn default() -> Self {
        Self { kind: None, node: None, chance: 1.0, skip: 0, times: None, error: None, after: 0.0 }
    }
}

/// A volume that a destroy leaves behind, as where its storage is out of reach or locked: the task
/// warns and goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct FreeFault {
    /// Only volumes on this storage.
    #[serde(default)]
    pub storage: Option<String>,
    /// How likely it strikes.
    #[serde(default = "always")]
    pub chance: f64,
    /// Volumes that are spared first.
    #[serde(default)]
    pub skip: u32,
    /// How often it strikes at most.
    #[serde(default)]
    pub times: Option<u32>,
    /// Why it can not be freed, as the task's log says it.
    pub error: String,
}

/// A lock that somebody else holds for a while.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct HoldFault {
    /// The node, for locks of one node.
    pub node: String,
    /// The storage that is locked.
    pub storage: Option<String>,
    /// Or the guest whose configuration is.
    pub vmid: Option<u32>,
    /// When it begins, in seconds.
    pub at: f64,
    /// How long it lasts, in seconds.
    pub seconds: f64,
    /// The seconds from one time to the next; 0 for once.
    pub every: f64,
}

/// A node in trouble.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct NodeFault {
    /// The node.
    pub node: String,
    /// When it goes down, in seconds; absent for never.
    pub down_at: Option<f64>,
    /// When it comes back.
    pub up_at: Option<f64>,
    /// When its status daemon hangs, so that lists grow stale.
    pub stale_from: Option<f64>,
    /// When that daemon goes on.
    pub stale_until: Option<f64>,
    /// How many times as long everything takes on it; 0 and 1 for as usual.
    pub slow: f64,
}

/// What is wrong with a guest's agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentHealth {
    /// Nothing.
    #[default]
    Well,
    /// It never answers.
    Dead,
    /// It reports addresses that are not the guest's.
    Lying,
    /// It tells everything of another guest that runs: its addresses and its host keys.
    Posing,
    /// It answers pings and takes no command to its end.
    Stuck,
}

/// Guests whose agent does not do its duty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AgentFault {
    /// What is wrong.
    pub health: AgentHealth,
    /// Only this guest.
    #[serde(default)]
    pub vmid: Option<u32>,
    /// How likely a boot has it.
    #[serde(default = "always")]
    pub chance: f64,
    /// Boots that are spared first.
    #[serde(default)]
    pub skip: u32,
    /// How often it strikes at most.
    #[serde(default)]
    pub times: Option<u32>,
}

/// What the transport does to a call before or in place of the door's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireFault {
    /// The connection is reset and the call never arrives.
    ResetBefore,
    /// The call has its effect, and the connection is reset before the answer.
    ResetAfter,
}

/// What happens to one call inside the world.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallFate {
    /// Waiting before it.
    pub delay: Duration,
    /// An answer in place of the real one.
    pub answer: Option<(u16, String)>,
    /// Whether the call is made nevertheless.
    pub done: bool,
    /// Waiting between the call and that answer.
    pub late: Duration,
}

/// What happens to one task.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fate {
    /// It fails with this.
    pub error: Option<String>,
    /// It is killed then.
    pub killed_after: Option<Duration>,
}

/// Faults and how often each has been met and has struck.
#[derive(Debug, Default)]
pub struct FaultBook {
    /// The rules.
    pub rules: Faults,
    /// Counts the replacements of the rules, so that timers of old ones know themselves.
    pub edition: u64,
    met: std::collections::BTreeMap<(u8, usize), (u32, u32)>,
}

const CALL: u8 = 0;
const TASK: u8 = 1;
const AGENT: u8 = 2;
const FREE: u8 = 3;

impl FaultBook {
    /// Rules that have met nothing yet.
    pub fn new(rules: Faults) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Replaces the rules; counts begin anew.
    pub fn replace(&mut self, rules: Faults) {
        *self = Self { edition: self.edition + 1, ..Self::new(rules) };
    }

    /// The reset that the transport plays on a call, if any.
    pub fn wire(
        &mut self,
        method: &str,
        route: &str,
        node: Option<&str>,
        dice: &mut Dice,
    ) -> Option<WireFault> {
        for index in 0..self.rules.calls.len() {
            let rule = &self.rules.calls[index];
            if rule.reset && aims(rule, method, route, node) {
                let done = rule.done;
                let (chance, skip, times) = (rule.chance, rule.skip, rule.times);
                if self.strikes((CALL, index), chance, skip, times, dice) {
                    return Some(if done { WireFault::ResetAfter } else { WireFault::ResetBefore });
                }
            }
        }
        None
    }

    /// What happens to a call in the world.
    pub fn call(
        &mut self,
        method: &str,
        route: &str,
        node: Option<&str>,
        dice: &mut Dice,
    ) -> CallFate {
        let mut fate = CallFate { done: true, ..CallFate::default() };
        for index in 0..self.rules.calls.len() {
            let rule = &self.rules.calls[index];
            if rule.reset || !aims(rule, method, route, node) {
                continue;
            }
            let answer = rule.status.map(|status| (status, rule.message.clone()));
            let (delay, done, late) = (rule.delay, rule.done, rule.late);
            let (chance, skip, times) = (rule.chance, rule.skip, rule.times);
            if !self.strikes((CALL, index), chance, skip, times, dice) {
                continue;
            }
            fate.delay += Duration::try_from_secs_f64(delay).unwrap_or_default();
            if answer.is_some() {
                let late = Duration::try_from_secs_f64(late).unwrap_or_default();
                return CallFate { answer, done, late, ..fate };
            }
        }
        fate
    }

    /// What happens to a task.
    pub fn task(&mut self, node: &str, kind: &str, dice: &mut Dice) -> Fate {
        for index in 0..self.rules.tasks.len() {
            let rule = self.rules.tasks[index].clone();
            let aimed = rule.kind.as_deref().is_none_or(|wanted| wanted == kind)
                && rule.node.as_deref().is_none_or(|wanted| wanted == node);
            if aimed && self.strikes((TASK, index), rule.chance, rule.skip, rule.times, dice) {
                let killed_after = match rule.error {
                    Some(_) => None,
                    None => Some(Duration::try_from_secs_f64(rule.after).unwrap_or_default()),
                };
                return Fate { error: rule.error, killed_after };
            }
        }
        Fate::default()
    }

    /// Why a destroy can not free a volume of this storage, if so.
    pub fn free(&mut self, storage: &str, dice: &mut Dice) -> Option<String> {
        for index in 0..self.rules.frees.len() {
            let rule = self.rules.frees[index].clone();
            if rule.storage.as_deref().is_none_or(|wanted| wanted == storage)
                && self.strikes((FREE, index), rule.chance, rule.skip, rule.times, dice)
            {
                return Some(rule.error);
            }
        }
        None
    }

    /// The state of a guest's agent after a boot.
    pub fn agent(&mut self, vmid: u32, dice: &mut Dice) -> AgentHealth {
        for index in 0..self.rules.agents.len() {
            let rule = self.rules.agents[index].clone();
            if rule.vmid.is_none_or(|wanted| wanted == vmid)
                && self.strikes((AGENT, index), rule.chance, rule.skip, rule.times, dice)
            {
                return rule.health;
            }
        }
        AgentHealth::Well
    }

    /// How many times as long things take on a node.
    pub fn slowness(&self, node: &str) -> f64 {
        let rule = self.rules.nodes.iter().find(|rule| rule.node == node && rule.slow > 0.0);
        rule.map_or(1.0, |rule| rule.slow)
    }

    fn strikes(
        &mut self,
        rule: (u8, usize),
        chance: f64,
        skip: u32,
        times: Option<u32>,
        dice: &mut Dice,
    ) -> bool {
        let (met, struck) = self.met.entry(rule).or_default();
        *met += 1;
        if *met <= skip || times.is_some_and(|times| *struck >= times) || !dice.chance(chance) {
            return false;
        }
        *struck += 1;
        true
    }
}

fn aims(rule: &CallFault, method: &str, route: &str, node: Option<&str>) -> bool {
    rule.method.as_deref().is_none_or(|wanted| wanted == method)
        && rule.route.as_deref().is_none_or(|wanted| route.contains(wanted))
        && rule.node.as_deref().is_none_or(|wanted| Some(wanted) == node)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_rule_spares_and_strikes_as_often_as_it_says() {
        let rule = CallFault {
            route: Some("/clone".into()),
            skip: 1,
            times: Some(2),
            status: Some(596),
            ..CallFault::default()
        };
        let mut book = FaultBook::new(Faults { calls: vec![rule], ..Faults::default() });
        let mut dice = Dice::seeded(1);
        let mut strike = || {
            let route = "/nodes/{node}/qemu/{vmid}/clone";
            book.call("POST", route, Some("pve1"), &mut dice).answer.is_some()
        };
        assert_eq!([strike(), strike(), strike(), strike()], [false, true, true, false]);
    }

    #[test]
    fn a_fault_file_is_read_with_everything_left_out() {
        let text =
            "calls: [{route: /clone, reset: true, done: true}]\nnodes: [{node: pve2, downAt: 5}]";
        let faults: Faults = serde_yaml::from_str(text).unwrap();
        assert!(faults.calls[0].reset && faults.calls[0].chance >= 1.0);
        assert_eq!(faults.nodes[0].down_at, Some(5.0));
    }

    #[test]
    fn an_unknown_key_in_a_fault_file_is_refused() {
        assert!(serde_yaml::from_str::<Faults>("call: []").is_err());
    }
}
