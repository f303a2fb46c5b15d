//! What people and other members learn of the members.

use drover_api::{MemberOut, MembersOut};
use drover_members::{Listed, Role};

use super::agreement;
use super::membership::Membership;

/// The name and URL of the member that leads, or led last: this one among them. None where nobody is known to.
pub(super) fn known_to_lead(role: &Role) -> Option<(String, String)> {
    let leader = role.lease.as_ref()?.leader.as_ref()?;
    Some((leader.name.clone(), leader.url.clone()))
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
            Self::NobodyLeads => f.write_str("no member leads at the moment"),
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
    let leader = known_to_lead(&role).map(|(name, _)| name);
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
    MembersOut { store: membership.place(), leader, term, members }
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
