//! The provider at which people log in for the page, and what its groups may do.
//!
//! The way of a login is in `page/openid.rs`; what is asked of the provider and how its tokens are checked is
//! in `drover-openid`. Here is what the configuration says of it: which groups come in, and as whom. A session
//! holds the groups of its person (`session.rs`), so that a change here counts at the next request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_api::Role;
use drover_openid::{Provider, Settings};
use parking_lot::Mutex;

/// How long a person may take to log in at the provider, in milliseconds.
pub(super) const LOGIN_AGE_MAX_MS: i64 = 10 * 60 * 1000;
/// Logins that ended which are remembered.
const ENDED_MAX: usize = 10_000;

/// What a group of the provider may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupGrant {
    /// As the provider spells it.
    pub name: String,
    /// What its members may do.
    pub role: Role,
    /// The group whose leases they share.
    pub group: Option<String>,
}

/// A provider, and who of its people comes in.
pub struct OpenId {
    /// On the button.
    pub(super) name: String,
    pub(super) provider: Arc<Provider>,
    grants: Vec<GroupGrant>,
    /// How long a session lasts, in milliseconds.
    pub(super) session_ms: i64,
    /// Whether a logout ends the session at the provider too.
    pub(super) ends_session: bool,
}

impl OpenId {
    /// Asks the provider nothing yet.
    pub fn new(
        name: String,
        settings: Settings,
        grants: Vec<GroupGrant>,
        session: Duration,
    ) -> Self {
        let session_ms = i64::try_from(session.as_millis()).unwrap_or(i64::MAX);
        let provider = Arc::new(Provider::new(settings));
        Self { name, provider, grants, session_ms, ends_session: false }
    }

    /// The same, where a logout may end the session at the provider too.
    pub fn ending_sessions(self, ends_session: bool) -> Self {
        Self { ends_session, ..self }
    }

    /// Takes over what was read of the same provider.
    pub(super) fn follow(&mut self, former: &Self) {
        if self.provider.settings() == former.provider.settings() {
            self.provider = Arc::clone(&former.provider);
        }
    }

    /// What members of these groups may do, and whose leases they share: the highest role of all, and the
    /// first group that the configuration has. None where no group of theirs comes in.
    pub(super) fn admitted(&self, groups: &[String]) -> Option<(Role, Option<String>)> {
        let theirs = || self.grants.iter().filter(|grant| groups.contains(&grant.name));
        let role = theirs().map(|grant| grant.role).max()?;
        Some((role, theirs().find_map(|grant| grant.group.clone())))
    }

    /// The groups of a person, those first that come in.
    pub(super) fn sorted(&self, groups: Vec<String>) -> Vec<String> {
        let comes_in = |group: &String| self.grants.iter().any(|grant| grant.name == *group);
        let (mut first, rest): (Vec<_>, Vec<_>) = groups.into_iter().partition(comes_in);
        first.extend(rest);
        first
    }

    /// What a session is of: a provider, drover as its client, and what is taken for a person's name and
    /// groups.
    pub(super) fn mark(&self) -> String {
        let Settings { issuer, client_id, user_claim, groups_claim, .. } = self.provider.settings();
        [issuer, client_id, user_claim, groups_claim].map(|text| format!("{text:?}")).join(",")
    }
}

/// Logins that ended, until their time is over: each ends once.
#[derive(Debug, Default)]
pub(super) struct EndedLogins(Mutex<BTreeMap<(i64, String), ()>>);

impl EndedLogins {
    /// Whether a login ends for the first time, which counts `until` then.
    pub(super) fn is_first(&self, state: &str, until: i64, now_ms: i64) -> bool {
        let mut ended = self.0.lock();
        *ended = ended.split_off(&(now_ms, String::new()));
        if ended.len() >= ENDED_MAX {
            ended.pop_first();
        }
        ended.insert((until, state.to_owned()), ()).is_none()
    }
}

#[cfg(test)]
mod tests {
    use drover_openid::testing::settings;

    use super::*;

    fn openid() -> OpenId {
        let grant = |name: &str, role, group: Option<&str>| GroupGrant {
            name: name.to_owned(),
            role,
            group: group.map(str::to_owned),
        };
        let grants = vec![
            grant("/viewers", Role::Viewer, Some("all")),
            grant("/build", Role::Operator, Some("build")),
            grant("/admins", Role::Admin, None),
        ];
        let session = Duration::from_secs(3600);
        OpenId::new("id".into(), settings("https://id", "https://d"), grants, session)
    }

    fn groups(all: &[&str]) -> Vec<String> {
        all.iter().map(|group| (*group).to_owned()).collect()
    }

    // Invariant: only members of a listed group come in, as the configuration says.

    #[test]
    fn the_highest_role_counts_and_the_first_group() {
        let of = |all: &[&str]| openid().admitted(&groups(all));
        assert_eq!(of(&["x", "/build"]), Some((Role::Operator, Some("build".to_owned()))));
        assert_eq!(of(&["/admins", "/build", "/viewers"]), Some((Role::Admin, Some("all".into()))));
        assert_eq!(of(&["/admins"]), Some((Role::Admin, None)));
        for none in [&[][..], &[""], &["build"], &["/Build"], &["/build/sub"], &["/build "]] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }

    #[test]
    fn groups_that_come_in_are_kept_first() {
        let sorted = openid().sorted(groups(&["a", "/build", "b", "/admins"]));
        assert_eq!(sorted, groups(&["/build", "/admins", "a", "b"]));
    }

    // Invariant: a login ends once, and what is remembered has a bound.

    #[test]
    fn a_login_ends_once_while_it_could_end_again() {
        let ended = EndedLogins::default();
        assert!(ended.is_first("s", 100, 0) && !ended.is_first("s", 100, 99));
        assert!(ended.is_first("t", 100, 99));
        for number in 0..2 * ENDED_MAX {
            ended.is_first(&number.to_string(), 200, 150);
        }
        assert_eq!(ended.0.lock().len(), ENDED_MAX);
    }
}
