//! Fault injection: the rules of `--faults FILE`, and how often each rule has fired.
//!
//! A rule selects calls, tasks, volumes, agents, locks or nodes. Rules for calls, tasks, volumes
//! and agents fire by `chance`, after `skip` matches, at most `times` times; `FaultInjector` counts
//! this. Rules for locks and nodes have a time; `world_control` sets timers for them. All chance
//! comes from the world's seed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::random::Random;

/// All fault rules of a world; the format of `--faults FILE`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct Faults {
    /// Calls that fail or take long.
    pub calls: Vec<CallFault>,
    /// Tasks that fail or are killed.
    pub tasks: Vec<TaskFault>,
    /// Volumes that a destroy cannot free.
    pub frees: Vec<FreeFault>,
    /// Locks that another process holds for a while.
    pub holds: Vec<LockFault>,
    /// Nodes that go down, come back, hang or are slow.
    pub nodes: Vec<NodeFault>,
    /// Guests whose agent misbehaves.
    pub agents: Vec<AgentFault>,
    /// The number of workers of each daemon on a node; 0 for the number in the cluster's
    /// description.
    pub workers_per_node: usize,
}

fn always() -> f64 {
    1.0
}

/// A rule that makes calls fail or take long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CallFault {
    /// Matches only this method.
    #[serde(default)]
    pub method: Option<String>,
    /// Matches only routes whose template contains this, such as `/clone`.
    #[serde(default)]
    pub route: Option<String>,
    /// Matches only calls on this node.
    #[serde(default)]
    pub node: Option<String>,
    /// The probability that a match fires.
    #[serde(default = "always")]
    pub chance: f64,
    /// The number of matches that do not fire at first.
    #[serde(default)]
    pub skip: u32,
    /// The most times the rule fires.
    #[serde(default)]
    pub times: Option<u32>,
    /// The status of the answer (500, 595, 596, 599 …).
    #[serde(default)]
    pub status: Option<u16>,
    /// The message of that answer.
    #[serde(default)]
    pub message: String,
    /// Whether the connection is reset.
    #[serde(default)]
    pub reset: bool,
    /// Seconds to wait before the call.
    #[serde(default)]
    pub delay: f64,
    /// Whether the call still takes effect.
    #[serde(default)]
    pub done: bool,
    /// Seconds to wait between that effect and the answer.
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

/// A rule that makes tasks fail or kills them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct TaskFault {
    /// Matches only tasks of this type, such as `qmclone`.
    #[serde(default)]
    pub kind: Option<String>,
    /// Matches only tasks on this node.
    #[serde(default)]
    pub node: Option<String>,
    /// The probability that a match fires.
    #[serde(default = "always")]
    pub chance: f64,
    /// The number of matches that do not fire at first.
    #[serde(default)]
    pub skip: u32,
    /// The most times the rule fires.
    #[serde(default)]
    pub times: Option<u32>,
    /// The error with which the task fails at once.
    #[serde(default)]
    pub error: Option<String>,
    /// Without an error: the seconds after which the worker is killed.
    #[serde(default)]
    pub after: f64,
}

impl Default for TaskFault {
    fn default() -> Self {
        Self { kind: None, node: None, chance: 1.0, skip: 0, times: None, error: None, after: 0.0 }
    }
}

/// A rule for volumes that a destroy cannot free, for example because their storage is locked or
/// unreachable. The task warns and continues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct FreeFault {
    /// Matches only volumes on this storage.
    #[serde(default)]
    pub storage: Option<String>,
    /// The probability that a match fires.
    #[serde(default = "always")]
    pub chance: f64,
    /// The number of matches that do not fire at first.
    #[serde(default)]
    pub skip: u32,
    /// The most times the rule fires.
    #[serde(default)]
    pub times: Option<u32>,
    /// The error in the log of the task.
    pub error: String,
}

/// A rule for a lock that another process holds for a while.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct LockFault {
    /// The node, for locks of one node.
    pub node: String,
    /// The storage to lock.
    pub storage: Option<String>,
    /// The VM whose configuration to lock.
    pub vmid: Option<u32>,
    /// When the lock is first taken, in seconds.
    pub at: f64,
    /// How long it is held, in seconds.
    pub seconds: f64,
    /// Seconds from one time to the next; 0 for once.
    pub every: f64,
}

/// A rule that takes a node down, hangs its status daemon or slows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct NodeFault {
    pub node: String,
    /// When the node goes down, in seconds; absent for never.
    pub down_at: Option<f64>,
    /// When the node comes back, in seconds.
    pub up_at: Option<f64>,
    /// When the status daemon hangs, in seconds; lists keep old values from then on.
    pub stale_from: Option<f64>,
    /// When the status daemon continues, in seconds.
    pub stale_until: Option<f64>,
    /// The factor by which everything on the node takes longer; 0 and 1 change nothing.
    pub slow: f64,
}

/// The condition of a guest's agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentHealth {
    /// The agent works.
    #[default]
    Well,
    /// It never answers.
    Dead,
    /// It reports addresses that are not the guest's.
    Lying,
    /// It answers for another running guest, with the addresses and host keys of that guest.
    Posing,
    /// It answers pings but no command.
    Stuck,
}

/// A rule for guests whose agent misbehaves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AgentFault {
    pub health: AgentHealth,
    /// Matches only this guest.
    #[serde(default)]
    pub vmid: Option<u32>,
    /// The probability that a match fires.
    #[serde(default = "always")]
    pub chance: f64,
    /// The number of boots that do not fire at first.
    #[serde(default)]
    pub skip: u32,
    /// The most times the rule fires.
    #[serde(default)]
    pub times: Option<u32>,
}

/// A reset that the transport plays on a call, before or instead of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionFault {
    /// The connection is reset and the call never arrives.
    ResetBefore,
    /// The call takes effect, and the connection is reset before the answer.
    ResetAfter,
}

/// The fault of one call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct InjectedCallFault {
    /// The wait before the call.
    pub(crate) delay: Duration,
    /// An answer instead of the real one.
    pub(crate) answer: Option<(u16, String)>,
    /// Whether the call still takes effect.
    pub(crate) done: bool,
    /// The wait between the effect and that answer.
    pub(crate) late: Duration,
}

/// The fault of one task.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct InjectedTaskFault {
    /// The error with which it fails.
    pub(crate) error: Option<String>,
    /// The time after which it is killed.
    pub(crate) killed_after: Option<Duration>,
}

/// The fault rules, and how often each has matched and fired.
#[derive(Debug, Default)]
pub(crate) struct FaultInjector {
    pub(crate) rules: Faults,
    /// Counts the replacements of the rules; timers of replaced rules compare it and do nothing.
    pub(crate) generation: u64,
    counts: BTreeMap<(RuleKind, usize), RuleCount>,
}

/// The list that a rule is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RuleKind {
    Call,
    Task,
    Agent,
    Free,
}

#[derive(Debug, Clone, Copy, Default)]
struct RuleCount {
    matched: u32,
    fired: u32,
}

impl FaultInjector {
    pub(crate) fn new(rules: Faults) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Replaces the rules and resets the counts.
    pub(crate) fn replace(&mut self, rules: Faults) {
        *self = Self { generation: self.generation + 1, ..Self::new(rules) };
    }

    /// The reset of a call's connection, if a rule fires.
    pub(crate) fn connection_fault(
        &mut self,
        method: &str,
        route: &str,
        node: Option<&str>,
        random: &mut Random,
    ) -> Option<ConnectionFault> {
        for index in 0..self.rules.calls.len() {
            let rule = &self.rules.calls[index];
            if rule.reset && matches_call(rule, method, route, node) {
                let done = rule.done;
                let (chance, skip, times) = (rule.chance, rule.skip, rule.times);
                if self.fires((RuleKind::Call, index), chance, skip, times, random) {
                    return Some(if done {
                        ConnectionFault::ResetAfter
                    } else {
                        ConnectionFault::ResetBefore
                    });
                }
            }
        }
        None
    }

    /// The fault of a call.
    pub(crate) fn inject_call_fault(
        &mut self,
        method: &str,
        route: &str,
        node: Option<&str>,
        random: &mut Random,
    ) -> InjectedCallFault {
        let mut injected = InjectedCallFault { done: true, ..InjectedCallFault::default() };
        for index in 0..self.rules.calls.len() {
            let rule = &self.rules.calls[index];
            if rule.reset || !matches_call(rule, method, route, node) {
                continue;
            }
            let answer = rule.status.map(|status| (status, rule.message.clone()));
            let (delay, done, late) = (rule.delay, rule.done, rule.late);
            let (chance, skip, times) = (rule.chance, rule.skip, rule.times);
            if !self.fires((RuleKind::Call, index), chance, skip, times, random) {
                continue;
            }
            injected.delay += Duration::try_from_secs_f64(delay).unwrap_or_default();
            if answer.is_some() {
                let late = Duration::try_from_secs_f64(late).unwrap_or_default();
                return InjectedCallFault { answer, done, late, ..injected };
            }
        }
        injected
    }

    /// The fault of a task.
    pub(crate) fn inject_task_fault(
        &mut self,
        node: &str,
        kind: &str,
        random: &mut Random,
    ) -> InjectedTaskFault {
        for index in 0..self.rules.tasks.len() {
            let rule = self.rules.tasks[index].clone();
            let matches = rule.kind.as_deref().is_none_or(|wanted| wanted == kind)
                && rule.node.as_deref().is_none_or(|wanted| wanted == node);
            if matches
                && self.fires((RuleKind::Task, index), rule.chance, rule.skip, rule.times, random)
            {
                let killed_after = match rule.error {
                    Some(_) => None,
                    None => Some(Duration::try_from_secs_f64(rule.after).unwrap_or_default()),
                };
                return InjectedTaskFault { error: rule.error, killed_after };
            }
        }
        InjectedTaskFault::default()
    }

    /// The error of freeing a volume on this storage, if a rule fires.
    pub(crate) fn inject_free_fault(
        &mut self,
        storage: &str,
        random: &mut Random,
    ) -> Option<String> {
        for index in 0..self.rules.frees.len() {
            let rule = self.rules.frees[index].clone();
            if rule.storage.as_deref().is_none_or(|wanted| wanted == storage)
                && self.fires((RuleKind::Free, index), rule.chance, rule.skip, rule.times, random)
            {
                return Some(rule.error);
            }
        }
        None
    }

    /// The condition of a guest's agent after a boot.
    pub(crate) fn inject_agent_health(&mut self, vmid: u32, random: &mut Random) -> AgentHealth {
        for index in 0..self.rules.agents.len() {
            let rule = self.rules.agents[index].clone();
            if rule.vmid.is_none_or(|wanted| wanted == vmid)
                && self.fires((RuleKind::Agent, index), rule.chance, rule.skip, rule.times, random)
            {
                return rule.health;
            }
        }
        AgentHealth::Well
    }

    /// The factor by which everything on a node takes longer.
    pub(crate) fn slowness(&self, node: &str) -> f64 {
        let rule = self.rules.nodes.iter().find(|rule| rule.node == node && rule.slow > 0.0);
        rule.map_or(1.0, |rule| rule.slow)
    }

    fn fires(
        &mut self,
        rule: (RuleKind, usize),
        chance: f64,
        skip: u32,
        times: Option<u32>,
        random: &mut Random,
    ) -> bool {
        let count = self.counts.entry(rule).or_default();
        count.matched += 1;
        let is_used_up = times.is_some_and(|times| count.fired >= times);
        if count.matched <= skip || is_used_up || !random.chance(chance) {
            return false;
        }
        count.fired += 1;
        true
    }
}

fn matches_call(rule: &CallFault, method: &str, route: &str, node: Option<&str>) -> bool {
    rule.method.as_deref().is_none_or(|wanted| wanted == method)
        && rule.route.as_deref().is_none_or(|wanted| route.contains(wanted))
        && rule.node.as_deref().is_none_or(|wanted| Some(wanted) == node)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_rule_spares_and_hits_as_often_as_it_says() {
        let rule = CallFault {
            route: Some("/clone".into()),
            skip: 1,
            times: Some(2),
            status: Some(596),
            ..CallFault::default()
        };
        let mut injector = FaultInjector::new(Faults { calls: vec![rule], ..Faults::default() });
        let mut random = Random::seeded(1);
        let mut fires = || {
            let route = "/nodes/{node}/qemu/{vmid}/clone";
            injector.inject_call_fault("POST", route, Some("pve1"), &mut random).answer.is_some()
        };
        assert_eq!([fires(), fires(), fires(), fires()], [false, true, true, false]);
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
