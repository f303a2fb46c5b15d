//! What people and other members learn of the members.

use drover_api::{MemberOut, MembersOut};
use drover_members::Listed;

use super::agreement;
use super::membership::Membership;

/// The name and URL of the member that leads; none where nobody is known to.
pub(super) fn leader(membership: &Membership) -> Option<(String, String)> {
    let role = membership.role();
    let role = role.borrow();
    let leader = role.lease.as_ref()?.leader.as_ref()?;
    // This process may have led a moment ago.
    (leader.name != membership.name()).then(|| (leader.name.clone(), leader.url.clone()))
}

/// What a standby waits for, in one line.
pub(super) fn standing(membership: &Membership) -> String {
    let role = membership.role();
    let role = role.borrow();
    if let Some(trouble) = &role.trouble {
        return format!("the store does not answer: {trouble}");
    }
    let lease = role.lease.as_ref();
    match lease.and_then(|lease| lease.leader.as_ref()) {
        Some(leader) => format!("stands by; member {} leads", leader.name),
        None => "stands by; no member leads at the moment".to_owned(),
    }
}

/// All members, as the API lists them.
pub(super) fn listed(membership: &Membership) -> MembersOut {
    let role = membership.role().borrow().clone();
    let leader = role.lease.as_ref().and_then(|lease| lease.leader.as_ref());
    let leader = leader.map(|leader| leader.name.clone());
    let out = |one: &Listed| out(one, leader.as_deref());
    let members = membership.listed().borrow().iter().map(out).collect();
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
        silent_seconds: (!one.live).then_some(one.silent.as_secs()),
        configuration: agreement::short(&card.config).to_owned(),
    }
}
