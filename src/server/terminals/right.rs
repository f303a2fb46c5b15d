//! Who may sit at a terminal of which agent, and for how long. Pure.

use std::time::Duration;

use drover_model::id::LeaseId;
use drover_model::phase::AgentPhase;
use drover_model::status::AgentStatus;
use drover_model::tenant::By;

/// How long a terminal is open without a key.
pub(crate) const IDLE_LIMIT: Duration = Duration::from_secs(30 * 60);
/// How long a terminal is open at all.
pub(crate) const LIFE_LIMIT: Duration = Duration::from_secs(8 * 60 * 60);
/// How long a terminal is open that nobody looks at: a browser that lost its connection comes back.
pub(crate) const UNREAD_LIMIT: Duration = Duration::from_secs(60);

/// What somebody may do with the terminal of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Right {
    Enter,
    /// Only once the agent is held for them: it is free, and drover may hand it out at any time.
    Hold,
    /// Nothing, since the agent is somebody else's.
    Forbidden(&'static str),
    /// Nothing now, and nobody else may.
    Closed(&'static str),
}

/// What somebody who is an operator at least may do. It is asked again for as long as a terminal is open.
pub(crate) fn right(by: &By, agent: &AgentStatus, is_theirs: impl Fn(&LeaseId) -> bool) -> Right {
    if agent.address.is_none() || agent.way_in.is_none() {
        return Right::Closed("no address of it is known yet");
    }
    if agent.host_keys.is_empty() {
        return Right::Closed("its host key is not known yet");
    }
    match agent.phase {
        AgentPhase::Queued
        | AgentPhase::Cloning
        | AgentPhase::InDoubt
        | AgentPhase::Configuring => Right::Closed("its machine does not run yet"),
        AgentPhase::Resetting => Right::Closed("its machine is put back to a snapshot"),
        AgentPhase::Retiring | AgentPhase::Gone => Right::Closed("it goes already"),
        AgentPhase::Leased | AgentPhase::Draining if !agent.leases.is_empty() => {
            match by.all || agent.leases.iter().all(is_theirs) {
                true => Right::Enter,
                false => Right::Forbidden("a lease of somebody else is on it"),
            }
        }
        AgentPhase::Ready | AgentPhase::Leased | AgentPhase::Draining => {
            held_or(by, agent, Right::Hold)
        }
        AgentPhase::Held => match by.may_change_hold(agent.hold_owner.as_ref()) {
            true => Right::Enter,
            false => Right::Forbidden("somebody else holds it"),
        },
        AgentPhase::Booting | AgentPhase::Connecting | AgentPhase::Preparing => {
            match agent.hold_owner {
                // It is kept for them, and nobody else gets it.
                Some(_) => held_or(by, agent, Right::Enter),
                None => Right::Hold,
            }
        }
        AgentPhase::Stranded if by.all => Right::Enter,
        AgentPhase::Stranded => Right::Forbidden("it is Stranded, and only an admin may enter it"),
    }
}

/// `right`, unless somebody else will hold the agent.
fn held_or(by: &By, agent: &AgentStatus, right: Right) -> Right {
    match agent.hold_owner.as_ref() {
        Some(owner) if !by.may_change_hold(Some(owner)) => {
            Right::Forbidden("somebody else holds it")
        }
        Some(_) | None => right,
    }
}

/// How long ago things happened to a terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ages {
    pub opened: Duration,
    pub last_key: Duration,
    /// Since nobody looks at it; none while somebody does.
    pub unread: Option<Duration>,
}

/// Why a terminal is over by its age.
pub(crate) fn over(ages: Ages) -> Option<&'static str> {
    if ages.opened >= LIFE_LIMIT {
        Some("it was open for 8 hours, the longest time")
    } else if ages.last_key >= IDLE_LIMIT {
        Some("no key was pressed for 30 minutes")
    } else if ages.unread.is_some_and(|age| age >= UNREAD_LIMIT) {
        Some("no browser showed it for 60 s")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use drover_model::record::HoldOwner;

    use super::*;
    use crate::testing::agent;

    fn by(name: &str, group: Option<&str>) -> By {
        By {
            principal: format!("token:{name}"),
            group: group.map(str::to_owned),
            all: name == "admin",
        }
    }

    /// What ann, who is in the group `lab`, her colleague bob, a stranger and an admin may do.
    fn rights(agent: &AgentStatus) -> [Right; 4] {
        let who =
            [by("ann", Some("lab")), by("bob", Some("lab")), by("eve", None), by("admin", None)];
        who.map(|by| right(&by, agent, |_| by.owns("token:ann", Some("lab"))))
    }

    // Invariant: nobody enters a machine on which somebody else works, or that drover may give to somebody else.

    #[test]
    fn leases_and_holds_open_an_agent_to_those_whose_they_are_and_to_admins() {
        let (hold, enter) = (Right::Hold, Right::Enter);
        let mut one = agent("a1", AgentPhase::Ready);
        let all_hold = [hold.clone(), hold.clone(), hold.clone(), hold.clone()];
        assert_eq!(rights(&one), all_hold);
        one.phase = AgentPhase::Leased;
        one.leases = vec![LeaseId::new("l1")];
        let other = Right::Forbidden("a lease of somebody else is on it");
        assert_eq!(rights(&one), [enter.clone(), enter.clone(), other, enter.clone()]);
        // Two leases on one machine are of two people.
        one.leases.push(LeaseId::new("l2"));
        let mixed = right(&by("ann", None), &one, |lease| lease.as_str() == "l1");
        assert_eq!(mixed, Right::Forbidden("a lease of somebody else is on it"));
        one.leases.clear();
        one.phase = AgentPhase::Held;
        let owner = HoldOwner { principal: "token:ann".into(), group: Some("lab".into()) };
        one.hold_owner = Some(owner);
        let other = Right::Forbidden("somebody else holds it");
        assert_eq!(rights(&one), [enter.clone(), enter.clone(), other.clone(), enter.clone()]);
        // On its way, and kept for ann once it is ready.
        one.phase = AgentPhase::Preparing;
        assert_eq!(rights(&one), [enter.clone(), enter.clone(), other, enter.clone()]);
        // On its way to anybody: who was in it may have left something there.
        one.hold_owner = None;
        assert_eq!(rights(&one), all_hold);
    }

    #[test]
    fn an_agent_without_a_machine_that_runs_has_no_terminal_for_anybody() {
        for phase in AgentPhase::ALL {
            let mut one = agent("a1", phase);
            one.leases = vec![LeaseId::new("l1")];
            let shut = right(&by("admin", None), &one, |_| true);
            let is_shut = matches!(shut, Right::Closed(_));
            let wanted = [
                AgentPhase::Queued,
                AgentPhase::Cloning,
                AgentPhase::InDoubt,
                AgentPhase::Configuring,
                AgentPhase::Resetting,
                AgentPhase::Retiring,
                AgentPhase::Gone,
            ];
            assert_eq!(is_shut, wanted.contains(&phase), "{phase}: {shut:?}");
            one.address = None;
            assert!(matches!(right(&by("admin", None), &one, |_| true), Right::Closed(_)));
        }
    }

    // Invariant: no terminal stays open that nobody uses.

    #[test]
    fn a_terminal_ends_by_its_age_without_keys_and_without_a_browser() {
        let second = Duration::from_secs(1);
        let young = Ages { opened: second, last_key: second, unread: None };
        assert_eq!(over(young), None);
        assert_eq!(over(Ages { unread: Some(UNREAD_LIMIT - second), ..young }), None);
        for old in [
            Ages { unread: Some(UNREAD_LIMIT), ..young },
            Ages { last_key: IDLE_LIMIT, ..young },
            Ages { opened: LIFE_LIMIT, ..young },
        ] {
            assert!(over(old).is_some(), "{old:?}");
        }
    }
}
