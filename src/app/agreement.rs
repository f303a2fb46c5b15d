//! Which configuration is in force, and who may lead with which. Pure.
//!
//! All members have the same files. A member leads with what is in force, if it has that: its files may be
//! an edit that waits for the others. A member that never had what is in force does not lead. An edit comes
//! into force when every live member has it, or not at all.

use std::time::Duration;

use drover_members::{LeaderLease, Listed};
use drover_server::NotForgotten;

/// The configurations of a member.
#[derive(Debug, Clone, Copy)]
pub(super) struct Configs<'a> {
    /// The digest of its files.
    pub(super) own: &'a str,
    /// The digests of what it had before and can still lead with.
    pub(super) held: &'a [String],
    /// Whether its files are those of the store.
    pub(super) is_stored: bool,
}

/// Why this member may not lead; none where it may.
pub(super) fn unfit(
    lease: Option<&LeaderLease>,
    listed: &[Listed],
    name: &str,
    Configs { own, held, is_stored }: Configs<'_>,
) -> Option<String> {
    let lease = lease.filter(|lease| lease.config != own && !held.contains(&lease.config))?;
    let in_force = short(&lease.config);
    if listed.is_empty() {
        return Some(format!(
            "its configuration {} is not the one in force, {in_force}, and the other members are not \
             known yet",
            short(own)
        ));
    }
    let others = others_without(listed, name, own);
    let help = if is_stored {
        "each member takes the one of the store within seconds, unless `drover members` says why not"
    } else {
        "give every member the same files"
    };
    (!others.is_empty()).then(|| {
        format!(
            "its configuration {} is not the one in force, {in_force}, and {} has another: {help}",
            short(own),
            others.join(", ")
        )
    })
}

/// The live members, this one left out, that do not have a configuration.
pub(super) fn others_without(listed: &[Listed], name: &str, config: &str) -> Vec<String> {
    let others = listed.iter().filter(|one| one.live && one.card.name != name);
    others.filter(|one| one.card.config != config).map(|one| one.card.name.clone()).collect()
}

/// A member that could lead next: the first that is live and fit.
pub(super) fn successor(listed: &[Listed], name: &str) -> Option<String> {
    let fit = |one: &&Listed| one.live && one.card.unfit.is_none() && one.card.name != name;
    listed.iter().find(fit).map(|one| one.card.name.clone())
}

/// Why a member could not lead next; none where it could.
pub(super) fn cannot_follow(listed: &[Listed], name: &str, next: &str) -> Option<String> {
    if next == name {
        return Some(format!("member {next} leads already"));
    }
    match listed.iter().find(|one| one.card.name == next) {
        None => Some(format!("no member is called {next}: `drover members` lists them")),
        Some(one) if !one.live => Some(format!("member {next} is silent")),
        Some(one) => one.card.unfit.as_ref().map(|why| format!("member {next} cannot lead: {why}")),
    }
}

/// Why a member stays in the list; none where it may be taken out of it.
pub(super) fn cannot_forget(
    listed: &[Listed],
    leader: Option<&str>,
    name: &str,
    silent_after: Duration,
) -> Option<NotForgotten> {
    let Some(one) = listed.iter().find(|one| one.card.name == name) else {
        let text = format!("no member is called `{name}`: `drover members` lists them");
        return Some(NotForgotten::Unknown(text));
    };
    if leader == Some(name) {
        return Some(NotForgotten::Refused(format!("member `{name}` leads")));
    }
    one.live.then(|| {
        NotForgotten::Refused(format!(
            "member `{name}` is live, or was heard of less than {} s ago: stop it first; one that stops in \
             order leaves the list by itself",
            silent_after.as_secs()
        ))
    })
}

/// The beginning of a digest, as people read it.
pub(super) fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

#[cfg(test)]
mod tests {
    use drover_members::Card;

    use super::*;

    fn listed(name: &str, config: &str, live: bool) -> Listed {
        let (name, config) = (name.to_owned(), config.to_owned());
        let card = Card {
            process: name.clone(),
            url: String::new(),
            drover: "0.1.0".to_owned(),
            leads: false,
            unfit: (name == "d").then(|| "it is not well".to_owned()),
            refused: None,
            beat: 1,
            name,
            config,
        };
        Listed { card, silent: Duration::ZERO, live }
    }

    fn lease(config: &str) -> LeaderLease {
        LeaderLease {
            format: 1,
            term: 1,
            leader: None,
            renewals: 0,
            hold_ms: 5000,
            config: config.to_owned(),
            renewed_at: 0,
            next: None,
        }
    }

    fn own(own: &str) -> Configs<'_> {
        Configs { own, held: &[], is_stored: false }
    }

    // Invariant: a member leads with what is in force, or with what every live member has.

    #[test]
    fn a_member_with_other_files_leads_only_where_all_live_ones_have_them() {
        let old = lease("old");
        let two = |other: &str, live| [listed("a", "new", true), listed("b", other, live)];
        assert_eq!(unfit(None, &[], "a", own("new")), None, "nobody led before");
        assert_eq!(unfit(Some(&old), &[], "a", own("old")), None);
        let unknown = unfit(Some(&old), &[], "a", own("new")).unwrap_or_default();
        assert!(unknown.contains("the other members are not known yet"), "{unknown}");
        let differs = unfit(Some(&old), &two("old", true), "a", own("new")).unwrap_or_default();
        assert!(
            differs
                .contains("new is not the one in force, old, and b has another: give every member"),
            "{differs}"
        );
        assert_eq!(unfit(Some(&old), &two("new", true), "a", own("new")), None);
        assert_eq!(unfit(Some(&old), &two("old", false), "a", own("new")), None, "b is not there");
        assert!(unfit(Some(&old), &two("third", true), "a", own("new")).is_some());
    }

    #[test]
    fn a_member_leads_with_what_is_in_force_whatever_its_files_have_by_now() {
        let old = lease("old");
        let three = [listed("a", "new", true), listed("b", "third", true)];
        let held = ["first".to_owned(), "old".to_owned()];
        let has = |held| Configs { own: "new", held, is_stored: true };
        assert_eq!(unfit(Some(&old), &three, "a", has(&held)), None);
        assert_eq!(unfit(Some(&old), &[], "a", has(&held)), None);
        let never = unfit(Some(&old), &three, "a", has(&held[..1])).unwrap_or_default();
        assert!(never.contains("b has another: each member takes the one of the store"), "{never}");
    }

    // Invariant: nobody takes a member out of the list that may be there.

    #[test]
    fn a_member_is_forgotten_that_is_silent_and_does_not_lead() {
        let all = [listed("a", "c", true), listed("l", "c", false), listed("s", "c", false)];
        let why = |name| {
            let why = cannot_forget(&all, Some("l"), name, Duration::from_secs(15));
            why.map(|why| why.to_string()).unwrap_or_default()
        };
        assert_eq!(why("s"), "");
        assert!(why("a").starts_with("member `a` is live, or was heard of less than 15 s ago"));
        assert_eq!(why("l"), "member `l` leads", "its card may stand still for a while");
        assert!(why("../x").starts_with("no member is called"));
    }

    #[test]
    fn the_next_leader_is_live_and_fit_and_another_one() {
        let all = [listed("a", "c", true), listed("d", "c", true), listed("s", "c", false)];
        assert_eq!(successor(&all, "a"), None);
        assert_eq!(successor(&all, "x").as_deref(), Some("a"));
        let why = |next| cannot_follow(&all, "a", next).unwrap_or_default();
        assert_eq!(why("a"), "member a leads already");
        assert_eq!(why("s"), "member s is silent");
        assert_eq!(why("d"), "member d cannot lead: it is not well");
        assert!(why("q").starts_with("no member is called q"));
        assert_eq!(cannot_follow(&[listed("b", "c", true)], "a", "b"), None);
    }
}
