//! What people and other members learn of the members.

use drover_api::{LastLeaderOut, MemberOut, MembersOut};
use drover_members::{Listed, Role};
use drover_model::time::WallTime;

use super::agreement;
use super::membership::Membership;

/// The name and URL of the member that leads: this one among them. None where nobody is known to.
pub(super) fn known_to_lead(role: &Role) -> Option<(String, String)> {
    let leader = role.lease.as_ref()?.leader.as_ref()?;
    (!is_silent(role)).then(|| (leader.name.clone(), leader.url.clone()))
}

/// Whether the last leader fell silent. A member that does not reach the store cannot know that.
fn is_silent(role: &Role) -> bool {
    role.silent && role.trouble.is_none()
}

/// What a standby waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// The store does not answer.
    CutOff,
    /// This member leads.
    Behind(String),
    NobodyLeads,
}

/// What this member waits for while it stands by.
pub(super) fn standing(membership: &Membership) -> Standing {
    let role = membership.role();
    let role = role.borrow();
    match known_to_lead(&role) {
        _ if role.trouble.is_some() => Standing::CutOff,
        Some((leader, _)) if leader != membership.name() => Standing::Behind(leader),
        Some(_) | None => Standing::NobodyLeads,
    }
}

impl std::fmt::Display for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::CutOff => f.write_str("the store does not answer"),
            Self::Behind(leader) => write!(f, "member {leader} leads"),
            Self::NobodyLeads => {
                f.write_str("no member leads at the moment, and `drover members` says more")
            }
        }
    }
}

/// Says in the log that this member leads, and after whom.
pub(super) fn announce(membership: &Membership) {
    let role = membership.role().borrow().clone();
    let silent = role.led_until.map(|until| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        now.saturating_sub(until)
    });
    let (term, before) = (role.term, role.before);
    let member = membership.name();
    tracing::info!(member, term, before, last_renewal_ms_ago = silent, "this member leads now");
}

/// All members, as the API lists them.
pub(super) fn listed(membership: &Membership) -> MembersOut {
    let role = membership.role().borrow().clone();
    let (leader, last_leader) = leader(&role);
    // The leader lease may be of its process before, and nobody takes it where no member can lead.
    let listed = membership.listed().borrow().clone();
    let is_unfit =
        |name: &String| listed.iter().any(|one| one.card.name == *name && one.card.unfit.is_some());
    let leader = leader.filter(|name| !is_unfit(name));
    let out = |one: &Listed| out(one, leader.as_deref());
    let mut members: Vec<MemberOut> = listed.iter().map(out).collect();
    // A member that cannot reach the store knows of itself alone.
    if let Some(trouble) = &role.trouble {
        let own = members.iter_mut().find(|one| one.name == membership.name());
        if let Some(own) = own {
            own.detail = Some(format!("the store does not answer: {trouble}"));
        }
    }
    let term = role.lease.as_ref().map_or(0, |lease| lease.term);
    MembersOut { store: membership.place(), leader, last_leader, term, members }
}

/// The member that leads, or the one that led last and is silent.
fn leader(role: &Role) -> (Option<String>, Option<LastLeaderOut>) {
    let Some(lease) = role.lease.as_ref().filter(|_| is_silent(role)) else {
        return (known_to_lead(role).map(|(name, _)| name), None);
    };
    let silent_since = WallTime(lease.renewed_at).rfc3339();
    let last = lease.leader.as_ref().map(|leader| leader.name.clone());
    (None, last.map(|name| LastLeaderOut { name, silent_since }))
}

fn out(one: &Listed, leader: Option<&str>) -> MemberOut {
    let card = &one.card;
    let (role, detail) = match &card.unfit {
        _ if leader == Some(card.name.as_str()) => ("leader", None),
        _ if !one.live => ("silent", None),
        Some(why) => ("unfit", Some(why.clone())),
        None => ("standby", None),
    };
    MemberOut {
        name: card.name.clone(),
        url: card.url.clone(),
        drover: card.drover.clone(),
        role: role.to_owned(),
        detail,
        refused: card.refused.clone().filter(|_| one.live),
        silent_seconds: (!one.live).then_some(one.silent.as_secs()),
        configuration: agreement::short(&card.config).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use drover_members::{Leader, LeaderLease};

    use super::*;

    fn role(silent: bool, trouble: Option<&str>) -> Role {
        let text = str::to_owned;
        let (name, process, url) = (text("a"), text("a-1"), text("http://a:8080"));
        let lease = LeaderLease {
            format: 1,
            term: 4,
            leader: Some(Leader { name, process, url }),
            renewals: 7,
            hold_ms: 5000,
            config: text("c"),
            renewed_at: 1_764_230_000_000,
            next: None,
        };
        Role { lease: Some(lease), silent, trouble: trouble.map(text), ..Role::default() }
    }

    // Invariant: a member is named as the leader while it may lead, and as the last one when it cannot.

    #[test]
    fn a_leader_that_fell_silent_is_the_one_that_led_last() {
        assert_eq!(leader(&Role::default()), (None, None), "nobody led yet");
        assert_eq!(leader(&role(false, None)), (Some("a".to_owned()), None));
        let silent_since = "2025-11-27T07:53:20Z".to_owned();
        let last = LastLeaderOut { name: "a".to_owned(), silent_since };
        assert_eq!(leader(&role(true, None)), (None, Some(last)));
        let cut_off = role(true, Some("no answer"));
        assert_eq!(leader(&cut_off), (Some("a".to_owned()), None), "nobody knows");
    }
}
