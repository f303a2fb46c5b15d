//! Who logs in: token, user, expiry, separate privileges.

use super::Patient;
use crate::pve::Login;

const DAY: u64 = 86_400;
/// Tokens that expire sooner are told.
const TOKEN_DAYS: u64 = 14;

/// What is known of the login.
pub(super) struct Known {
    /// Its user.
    pub user: String,
    /// Its full id, where it is a token.
    pub token: Option<String>,
    /// Whether it has privileges of its own beside its user's; none where that can not be seen.
    pub separate: Option<bool>,
}

impl Patient<'_> {
    /// Looks at the login.
    pub(super) async fn token(&mut self) -> Option<Known> {
        let login = self.client.login().to_owned();
        let (user, name) = match &self.connection.login {
            Login::Token { id, .. } => {
                let (user, name) = id.split_once('!')?;
                (user.to_owned(), Some(name.to_owned()))
            }
            Login::Password { username, .. } => (username.clone(), None),
        };
        if user == "root@pam" {
            let text = "root may do everything: a user of drover's own needs little";
            let mend = [format!("drover setup rights --cloud {}", self.cloud.id)];
            self.report.warn(format!("login {login}"), text, mend);
        }
        let token = name.as_ref().map(|_| login.clone());
        let known = |separate| Some(Known { user: user.clone(), token: token.clone(), separate });
        let Some(name) = name else {
            let text = "a password instead of a token: its tickets are renewed every 90 minutes";
            self.report.ok(format!("login {login}"), text);
            return known(Some(false));
        };
        let users = self.client.users().await.unwrap_or_default();
        let own = users.iter().find(|one| one.userid == user);
        let found = own.and_then(|own| own.tokens.iter().find(|token| token.tokenid == name));
        let Some(found) = found else { return known(None) };
        let about = format!("token {login}");
        let kind = if found.privsep { "separate privileges" } else { "its user's privileges" };
        let now = (self.ways.clock)();
        let soonest = [found.expire, own.and_then(|own| own.expire)];
        match soonest.into_iter().flatten().filter(|at| *at > 0).min() {
            Some(at) if at < now + TOKEN_DAYS * DAY => {
                let left = at.saturating_sub(now) / DAY;
                let text = format!("{kind}, expires in {left} days");
                let mend = [
                    format!("drover setup rights --cloud {} --rotate", self.cloud.id),
                    format!("pveum user token modify {user} {name} --expire 0"),
                ];
                self.report.warn(about, text, mend);
            }
            Some(at) => {
                let left = (at - now) / DAY;
                self.report.ok(about, format!("{kind}, expires in {left} days"));
            }
            None => self.report.ok(about, format!("{kind}, does not expire")),
        }
        known(Some(found.privsep))
    }
}
