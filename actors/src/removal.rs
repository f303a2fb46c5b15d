//! The steps by which a build or a declared machine destroys its own guest (book: safety, rule 5).
//!
//! ```text
//! Look ─▶ Fence ─▶ Stop ─▶ StopAwait ─▶ Destroy ─▶ DestroyAwait ─▶ Confirm ─▶ Leftovers ─▶ Gone
//!           └ stopped already ───────────▲        any fault ── pause ──▶ Look
//! ```
//!
//! What a look shows is for the mind to judge: it knows the marks. What is destroyed was looked at in
//! the same try.

use std::time::Duration;

use drover_model::fault::Fault;
use drover_model::id::Upid;
use drover_model::ports::{IdStatus, TaskEnd};

/// How long a call to make a guest may still have its effect: Proxmox's own proxy gives up after 30 s, and
/// drover's client after `callTimeoutSec`. Until then a free id proves nothing.
pub(crate) const HORIZON: Duration = Duration::from_secs(180);

/// Where a removal is. Every new try begins at the look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remove {
    Look,
    /// Whether the guest is stopped already.
    Fence {
        stopped: bool,
    },
    Stop,
    StopAwait(Upid),
    Destroy,
    DestroyAwait(Upid),
    Confirm,
    Leftovers,
}

/// The call that a step begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ask {
    Look,
    Fence,
    Stop,
    Destroy,
    Await(Upid),
    IdTaken,
    Leftovers,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Came {
    /// A call was accepted, with its task where it has one.
    Accepted(Result<Option<Upid>, Fault>),
    Ended(Result<TaskEnd, Fault>),
    IdSeen(Result<IdStatus, Fault>),
    /// The volumes that remain.
    Left(Result<Vec<String>, Fault>),
}

/// What a removal does once a call came back.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Next {
    To(Remove),
    /// From the look on, after a pause that grows.
    Again(Fault),
    /// From the look on, a little later, for this reason.
    Later(String),
    /// The same call once more, after a pause that grows.
    Repeat(Fault),
    /// The guest is gone, but for these volumes.
    Gone(Vec<String>),
}

impl Remove {
    pub(crate) fn ask(&self) -> Ask {
        match self {
            Self::Look => Ask::Look,
            Self::Fence { .. } => Ask::Fence,
            Self::Stop => Ask::Stop,
            Self::StopAwait(upid) | Self::DestroyAwait(upid) => Ask::Await(upid.clone()),
            Self::Destroy => Ask::Destroy,
            Self::Confirm => Ask::IdTaken,
            Self::Leftovers => Ask::Leftovers,
        }
    }

    /// Whether the destroy was asked for, or its outcome is looked at.
    pub(crate) fn is_late(&self) -> bool {
        match self {
            Self::Destroy | Self::DestroyAwait(_) | Self::Confirm | Self::Leftovers => true,
            Self::Look | Self::Fence { .. } | Self::Stop | Self::StopAwait(_) => false,
        }
    }

    /// What follows on the answer to this step's call.
    pub(crate) fn next(&self, came: Came) -> Next {
        match (self, came) {
            (_, Came::Left(Err(fault))) => Next::Repeat(fault),
            (_, Came::Left(Ok(volumes))) => Next::Gone(volumes),
            (
                _,
                Came::Accepted(Err(fault))
                | Came::Ended(Ok(TaskEnd::Failed(fault)) | Err(fault))
                | Came::IdSeen(Err(fault)),
            ) => Next::Again(fault),
            (Self::Fence { stopped: true }, Came::Accepted(Ok(_)))
            | (Self::StopAwait(_), Came::Ended(Ok(TaskEnd::Done { .. }))) => {
                Next::To(Self::Destroy)
            }
            (Self::Fence { stopped: false }, Came::Accepted(Ok(_))) => Next::To(Self::Stop),
            (Self::Stop, Came::Accepted(Ok(Some(upid)))) => Next::To(Self::StopAwait(upid)),
            (_, Came::Accepted(Ok(Some(upid)))) => Next::To(Self::DestroyAwait(upid)),
            (_, Came::Accepted(Ok(None)) | Came::Ended(Ok(TaskEnd::Done { .. }))) => {
                Next::To(Self::Confirm)
            }
            (_, Came::Ended(Ok(TaskEnd::Unknown(text)))) => Next::Later(text),
            (_, Came::IdSeen(Ok(IdStatus::Free))) => Next::To(Self::Leftovers),
            (_, Came::IdSeen(Ok(IdStatus::Taken | IdStatus::Unknown))) => {
                Next::Later("its VMID is still taken".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use drover_model::fault::{Culprit, FaultKind};

    use super::*;

    fn upid() -> Upid {
        Upid::new("UPID:pve1:1:2:3:qmdestroy:9000:u@pve!t:")
    }

    fn done() -> Came {
        Came::Ended(Ok(TaskEnd::Done { warnings: Vec::new() }))
    }

    // Invariant: a guest is destroyed only behind a fence, and gone only once its id is free.

    #[test]
    fn a_guest_is_fenced_stopped_destroyed_and_confirmed_in_this_order() {
        let started = || Came::Accepted(Ok(Some(upid())));
        let answers = [
            Came::Accepted(Ok(None)),
            started(),
            done(),
            started(),
            done(),
            Came::IdSeen(Ok(IdStatus::Free)),
        ];
        let mut step = Remove::Fence { stopped: false };
        let mut asked = vec![step.ask()];
        for came in answers {
            let Next::To(next) = step.next(came) else { panic!("{step:?}") };
            step = next;
            asked.push(step.ask());
        }
        assert_eq!(
            asked,
            [
                Ask::Fence,
                Ask::Stop,
                Ask::Await(upid()),
                Ask::Destroy,
                Ask::Await(upid()),
                Ask::IdTaken,
                Ask::Leftovers
            ]
        );
        let left = vec!["thin:vm-9000-disk-1".to_owned()];
        assert_eq!(step.next(Came::Left(Ok(left.clone()))), Next::Gone(left));
        let fence = Remove::Fence { stopped: true };
        assert_eq!(fence.next(Came::Accepted(Ok(None))), Next::To(Remove::Destroy));
    }

    #[test]
    fn what_failed_or_is_not_known_begins_again_with_a_look() {
        let fault = || Fault::new(FaultKind::Contention, Culprit::Guest, "busy");
        let steps =
            [Remove::Fence { stopped: true }, Remove::Stop, Remove::Destroy, Remove::Confirm];
        for step in steps {
            assert_eq!(step.next(Came::Accepted(Err(fault()))), Next::Again(fault()), "{step:?}");
        }
        let awaits = Remove::DestroyAwait(upid());
        let ended = |end| awaits.next(Came::Ended(Ok(end)));
        assert_eq!(ended(TaskEnd::Failed(fault())), Next::Again(fault()));
        assert_eq!(ended(TaskEnd::Unknown("?".into())), Next::Later("?".into()));
        let seen = |status| Remove::Confirm.next(Came::IdSeen(Ok(status)));
        assert!(matches!(seen(IdStatus::Taken), Next::Later(_)));
        assert!(matches!(seen(IdStatus::Unknown), Next::Later(_)), "silence is no evidence");
    }
}
