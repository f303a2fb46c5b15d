//! How a call comes to end as the table says: by what happens on the cluster where Proxmox can be
//! brought to it, else at the tap.

use std::time::Duration;

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::phase::AgentPhase;
use drover_model::ports::{AddressObservation, IdStatus, Ran, Snapped, TaskEnd, VmObservation};
use pve_sim::world::{Faults, TaskFault};

use super::script::{Deed, Turn};
use crate::world::tap::{Alteration, Hit};

/// A way to an answer.
pub struct Way {
    /// On the way to the state: the first such call.
    pub prelude: Option<(&'static str, Turn)>,
    /// What goes wrong on the cluster from the start.
    pub faults: Faults,
    /// What becomes of the call itself.
    pub turn: Turn,
}

/// The port's method of a call of the table.
pub fn method(call: &str) -> Option<&'static str> {
    Some(match call {
        "Clone" => "clone_vm",
        "Await" => "await_task",
        "Look" | "Confirm" => "look",
        "Configure" => "configure",
        "Start" => "start",
        "Address" => "address",
        "HostKeys" => "host_keys",
        "Snapshot" => "snapshot",
        "Rollback" => "rollback",
        "Greet" => "greet",
        "Run" | "Report" => "run",
        "Upload" => "upload",
        "Admit" | "Unlock" => "admit",
        "Expel" => "expel",
        "Shutdown" => "shutdown",
        "Fence" => "fence",
        "Stop" => "stop",
        "Destroy" => "destroy",
        "IdTaken" => "id_taken",
        "Leftovers" => "leftovers",
        _ => return None,
    })
}

/// How long nobody answers before a call's outcome is unknown.
pub const SILENCE: Duration = Duration::from_secs(30);

/// A way to this answer of this call in this state, where one is known.
pub fn way(state: AgentPhase, call: &str, after: Option<&str>, answer: &str) -> Option<Way> {
    let prelude = match state {
        // A guest is asked once a step failed in it.
        _ if call == "Report" => Some(("run", Turn::blow(failed()))),
        AgentPhase::InDoubt => {
            let made = !["free", "a stranger's"].contains(&answer);
            Some(("clone_vm", Turn::blow(Hit::Lose { done: made, after: SILENCE })))
        }
        AgentPhase::Stranded => {
            Some(("fence", Turn { deed: Deed::Deface, ..Turn::blow(Hit::Pass) }))
        }
        _ => None,
    };
    let (deed, hit) = reported(state, call, answer)?;
    let faults = match (call, after, answer) {
        ("Await", Some(after), "failed") => task(after, Some("got timeout")),
        ("Await", Some(after), "unknown end") => task(after, None),
        _ => Faults::default(),
    };
    Some(Way { prelude, faults, turn: Turn { deed, hit, answers: true } })
}

/// The next task of this call's kind fails with this, or dies.
fn task(call: &str, error: Option<&str>) -> Faults {
    let kind = format!("qm{}", call.to_lowercase());
    let error = error.map(str::to_owned);
    let rule =
        TaskFault { kind: Some(kind), times: Some(1), error, after: 0.05, ..TaskFault::default() };
    Faults { tasks: vec![rule], ..Faults::default() }
}

fn reported(state: AgentPhase, call: &str, answer: &str) -> Option<(Deed, Hit)> {
    let stranded = state == AgentPhase::Stranded;
    let pass = |deed| Some((deed, Hit::Pass));
    // It is a look that a list may answer.
    let call = if call == "Confirm" { "Look" } else { call };
    match (call, answer) {
        ("Look", "ok" | "ours, stopped") => {
            let running = answer == "ok";
            let seen = Alteration::of(move |observation: Result<VmObservation, Fault>| {
                observation
                    .map(|observation| VmObservation { running: Some(running), ..observation })
            });
            let deed = if stranded { Deed::Restore } else { Deed::Nothing };
            Some((deed, Hit::Alter(seen)))
        }
        ("Look", "free") => pass(if stranded { Deed::Remove } else { Deed::Nothing }),
        ("Look", "a stranger's") => pass(Deed::Replace),
        ("Look", "damaged") => pass(if stranded { Deed::Nothing } else { Deed::Deface }),
        ("Look", "no evidence") => {
            let seen = Alteration::of(|_: Result<VmObservation, Fault>| {
                let id = IdStatus::Unknown;
                Ok(VmObservation { id, node: None, marks: None, lock: None, running: None })
            });
            Some((Deed::Nothing, Hit::Alter(seen)))
        }
        ("Clone", "IdTaken") => pass(Deed::Replace),
        ("Configure" | "Snapshot" | "Rollback" | "Fence", "Foreign") => pass(Deed::Deface),
        (
            "Configure" | "Snapshot" | "Rollback" | "Start" | "Address" | "Fence" | "Stop"
            | "Destroy",
            "Gone",
        ) => Some((Deed::Remove, Hit::Fail(fault(answer)?))),
        ("Await", "failed" | "unknown end") => pass(Deed::Nothing),
        ("Await", "warnings") => {
            let warned = |end: Result<TaskEnd, Fault>| match end {
                Ok(TaskEnd::Done { .. }) => {
                    Ok(TaskEnd::Done { warnings: vec!["Could not remove disk".into()] })
                }
                end => end,
            };
            Some((Deed::Nothing, Hit::Alter(Alteration::of(warned))))
        }
        ("Address", "not yet") => {
            let silent = |_: Result<AddressObservation, Fault>| {
                Ok(AddressObservation::NotYet("no agent".into()))
            };
            Some((Deed::Nothing, Hit::Alter(Alteration::of(silent))))
        }
        ("Snapshot", "impossible") => {
            let none = |_: Result<Snapped, Fault>| Ok(Snapped::Impossible("none here".into()));
            Some((Deed::Nothing, Hit::Alter(Alteration::of(none))))
        }
        ("HostKeys", "none") => {
            let none = |_: Result<Vec<String>, Fault>| Ok(Vec::new());
            Some((Deed::Nothing, Hit::Alter(Alteration::of(none))))
        }
        ("Run" | "Report" | "Upload", "exit 1") => Some((Deed::Nothing, failed())),
        (_, "ok") => pass(Deed::Nothing),
        (_, "UnknownOutcome") => Some((Deed::Nothing, Hit::Lose { done: true, after: SILENCE })),
        (_, kind) => Some((Deed::Nothing, Hit::Fail(fault(kind)?))),
    }
}

/// A step ends with exit status 1.
fn failed() -> Hit {
    Hit::Alter(Alteration::of(|_: Result<Ran, Fault>| Ok(Ran { exit: Some(1), tail: "no".into() })))
}

/// A fault of a kind, charged to whom it usually is.
pub fn fault(kind: &str) -> Option<Fault> {
    let (kind, culprit) = match kind {
        "Contention" => (FaultKind::Contention, Culprit::Guest),
        "Locked" => (FaultKind::Locked { lock: "backup".into() }, Culprit::Guest),
        "Unreachable" => (FaultKind::Unreachable, Culprit::Guest),
        "Denied" => (FaultKind::Denied { privilege: None, path: None }, Culprit::Template),
        "Gone" => (FaultKind::Gone, Culprit::Guest),
        "IdTaken" => (FaultKind::IdTaken, Culprit::Guest),
        "Capacity" => (FaultKind::Capacity, Culprit::Template),
        "Foreign" => (FaultKind::Foreign, Culprit::Guest),
        "KeyRejected" => (FaultKind::KeyRejected, Culprit::Template),
        "Impostor" => (FaultKind::Impostor, Culprit::Guest),
        "Broken" => (FaultKind::Broken, Culprit::Template),
        _ => return None,
    };
    Some(Fault::new(kind, culprit, "as planned"))
}
