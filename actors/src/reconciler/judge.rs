//! What a look at one guest proves: whether it is an orphan of this installation, and whether its
//! time has come. A guest goes by its marks alone; tags and names only propose looks.

use std::time::Duration;

use drover_model::id::VmId;
use drover_model::marks::{Kind, Marks, Reading};
use drover_model::ports::{IdStatus, VmObservation};
use drover_model::time::Moment;

use super::plan::{Config, Known, Memory};
use drover_model::finding::{Does, Finding};

/// What a look at a candidate showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Ours by its marks, and nobody's record.
    Orphan(Box<Marks>),
    /// Somebody else's, or a copy: never touched.
    Stranger(String),
    /// A version of an image, or a build that runs: never touched, and nothing to report.
    Image,
    /// Marks that do not add up: never touched.
    Damaged(String),
    Absent,
    /// Nothing could read it: the next list proposes another look.
    Unread(String),
}

/// The marks of a guest that was made since the journal's last record before this start. They are
/// those of an agent that another drover made, unless it lived in this start.
pub(crate) fn young<'a>(
    vmid: VmId,
    observation: &'a Result<VmObservation, String>,
    known: &Known,
) -> Option<&'a Marks> {
    let Verdict::Orphan(_) = verdict(vmid, observation, false, known) else { return None };
    let Ok(VmObservation { marks: Some(Reading::Marked(marks)), .. }) = observation else {
        return None;
    };
    (marks.born > known.since.rfc3339()).then_some(&**marks)
}

/// What follows from one look.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Judged {
    /// None when there is nothing to report.
    pub finding: Option<Finding>,
    /// The guest is a true orphan whose time has come: these are its marks.
    pub destroy: Option<Box<Marks>>,
}

/// Judges a candidate by what a look at it showed.
pub(crate) fn judge(
    vmid: VmId,
    observation: &Result<VmObservation, String>,
    template: bool,
    known: &Known,
    config: Config,
    memory: &mut Memory,
    now: Moment,
) -> Judged {
    let verdict = verdict(vmid, observation, template, known);
    let Some(candidate) = memory.candidates.get_mut(&vmid) else { return Judged::default() };
    candidate.verdict = Some(verdict.clone());
    let waited = now - candidate.first_seen;
    let finding = describe(vmid, &verdict, config, waited, memory.ahead);
    let due = config.cleanup_orphans && waited >= config.orphan_grace && memory.ahead.is_none();
    let lock = observation.as_ref().ok().and_then(|observation| observation.lock.as_deref());
    let lock = lock.filter(|lock| matches!(*lock, "backup" | "migrate"));
    match verdict {
        Verdict::Orphan(marks) if due => match lock {
            None => Judged { finding, destroy: Some(marks) },
            Some(lock) => {
                let text = format!(
                    "{vmid} is an orphan of agent `{}`: left alone while it is locked ({lock})",
                    marks.agent
                );
                Judged { finding: Some(Finding::of(Does::Leave, vmid, text)), destroy: None }
            }
        },
        Verdict::Orphan(_)
        | Verdict::Stranger(_)
        | Verdict::Image
        | Verdict::Damaged(_)
        | Verdict::Absent
        | Verdict::Unread(_) => Judged { finding, destroy: None },
    }
}

pub(super) fn verdict(
    vmid: VmId,
    observation: &Result<VmObservation, String>,
    template: bool,
    known: &Known,
) -> Verdict {
    let observation = match observation {
        Ok(observation) => observation,
        Err(why) => return Verdict::Unread(why.clone()),
    };
    let marks = match (&observation.marks, observation.id) {
        (_, IdStatus::Free) => return Verdict::Absent,
        (None, IdStatus::Taken | IdStatus::Unknown) => {
            return Verdict::Unread("its config could not be read".into());
        }
        (Some(Reading::Damaged(why)), _) => return Verdict::Damaged(why.clone()),
        (Some(Reading::Unmarked), _) => {
            return Verdict::Stranger("it carries no marks".into());
        }
        (Some(Reading::Marked(marks)), _) => marks,
    };
    if marks.installation != known.installation {
        return Verdict::Stranger(format!("it is of installation `{}`", marks.installation));
    }
    if marks.vmid != vmid {
        return Verdict::Stranger(format!("it is a copy: its marks name {}", marks.vmid));
    }
    if marks.cluster != known.cluster {
        return Verdict::Stranger(format!("its marks name cluster `{}`", marks.cluster));
    }
    if known.agents.contains_key(&marks.agent) {
        return Verdict::Stranger(format!("agent `{}` lives elsewhere", marks.agent));
    }
    match marks.kind {
        Kind::Image => Verdict::Image,
        Kind::Builder | Kind::Machine if known.builds.contains(&marks.agent) => Verdict::Image,
        // Somebody may use it: only a command with its name destroys it.
        Kind::Machine => Verdict::Stranger(format!(
            "drover made it for the declared machine `{machine}`, and the journal has no record of it, as \
             after `drover machine forget`; declare the machine and run `drover machine adopt {machine}`, \
             or remove the guest in Proxmox",
            machine = marks.template
        )),
        Kind::Agent if template => Verdict::Damaged("an agent's marks on a template".into()),
        Kind::Agent | Kind::Builder => Verdict::Orphan(marks.clone()),
    }
}

pub(super) fn describe(
    vmid: VmId,
    verdict: &Verdict,
    config: Config,
    waited: Duration,
    ahead: Option<(VmId, u64)>,
) -> Option<Finding> {
    let (does, text) = match verdict {
        Verdict::Absent | Verdict::Image => return None,
        Verdict::Unread(why) => (Does::Report, format!("{vmid} could not be read: {why}")),
        Verdict::Stranger(why) => {
            (Does::Report, format!("{vmid} is a stranger, not touched: {why}"))
        }
        Verdict::Damaged(why) => {
            (Does::Report, format!("{vmid} has damaged marks, not touched: {why}"))
        }
        Verdict::Orphan(marks) => {
            let (does, what) = match ahead {
                Some((at, seq)) => {
                    let text = format!(
                        "not destroyed before an operator confirms that the journal is older than \
                         the world, as the marks of {at} (seq {seq}) say"
                    );
                    (Does::Leave, text)
                }
                None if !config.cleanup_orphans => {
                    (Does::Leave, "only reported: cleaning is off".into())
                }
                None if waited < config.orphan_grace => {
                    let left = (config.orphan_grace - waited).as_secs();
                    (Does::Leave, format!("left alone for {left} s more"))
                }
                None => (Does::Destroy, "is retired".into()),
            };
            (does, format!("{vmid} is an orphan of agent `{}`: {what}", marks.agent))
        }
    };
    Some(Finding::of(does, vmid, text))
}
