//! The login: token or password, user, expiry, separate privileges.

use drover_ci::{Remedy, Severity};
use proxmox_client::Login;

use super::CloudCheck;

/// The user that may do everything.
pub(super) const ROOT: &str = "root@pam";
/// A privilege on `/` that only root and equals of root hold.
const ROOT_PRIVILEGE: &str = "Permissions.Modify";
const DAY_SECS: u64 = 86_400;
/// A token that expires sooner is warned about.
const TOKEN_WARN_DAYS: u64 = 14;

/// The login as the other checks need it.
pub(super) struct LoginFacts {
    /// The user, `user@realm`.
    pub user: String,
    /// The full token id, where the login is a token.
    pub token: Option<String>,
    /// Whether the token has privileges separate from its user's; none where that cannot be seen.
    pub separate: Option<bool>,
    /// Whether the login holds no privilege at all, which is reported already.
    pub powerless: bool,
}

impl CloudCheck<'_> {
    /// Reports that the login is root's. Returns whether it is a token without root's privileges,
    /// and whether it holds none.
    async fn root(&mut self, login: &str, name: Option<&str>) -> (bool, bool) {
        let held = self.client.privileges("/", None).await.unwrap_or_default();
        let narrow = name.filter(|_| !held.contains_key(ROOT_PRIVILEGE));
        let text = match narrow {
            None => "root may do everything; give drover a user of its own, which needs little",
            Some(_) => {
                "root's token with separate privileges may do only what it was granted: use a token of \
                 a user of drover's own, or let this one do everything"
            }
        };
        let whole = |name| format!("pveum user token modify {ROOT} {name} --privsep 0");
        let mut remedy = self.setup("");
        remedy.extend(narrow.map(|name| Remedy::on_any_node(whole(name)).or()));
        let none = narrow.is_some() && held.is_empty();
        let mark = if none { Severity::Fail } else { Severity::Warn };
        self.report.add(mark, format!("login {login}"), text.into(), remedy);
        (narrow.is_some(), none)
    }

    /// Checks the login; none where the token's id is malformed.
    pub(super) async fn token(&mut self) -> Option<LoginFacts> {
        let login = self.client.login().to_owned();
        let (user, name) = match &self.connection.login {
            Login::Token { id, .. } => {
                let (user, name) = id.split_once('!')?;
                (user.to_owned(), Some(name.to_owned()))
            }
            Login::Password { username, .. } => (username.clone(), None),
        };
        let (narrow, powerless) =
            if user == ROOT { self.root(&login, name.as_deref()).await } else { (false, false) };
        let token = name.as_ref().map(|_| login.clone());
        let known = |separate| {
            Some(LoginFacts { user: user.clone(), token: token.clone(), separate, powerless })
        };
        let Some(name) = name else {
            let text = "a password instead of a token; drover renews its tickets every 90 minutes";
            self.report.ok(format!("login {login}"), text);
            return known(Some(false));
        };
        let users = self.client.users().await.unwrap_or_default();
        let own = users.iter().find(|one| one.userid == user);
        let found = own.and_then(|own| own.tokens.iter().find(|token| token.tokenid == name));
        let Some(found) = found else { return known(narrow.then_some(true)) };
        let about = format!("token {login}");
        let kind = if found.privsep { "separate privileges" } else { "its user's privileges" };
        let now = (self.clients.clock)();
        let soonest = [found.expire, own.and_then(|own| own.expire)];
        match soonest.into_iter().flatten().filter(|at| *at > 0).min() {
            Some(at) if at < now + TOKEN_WARN_DAYS * DAY_SECS => {
                let left = at.saturating_sub(now) / DAY_SECS;
                let text = format!("{kind}, expires in {left} days");
                let mut remedy = self.setup(" --rotate");
                let command = format!("pveum user token modify {user} {name} --expire 0");
                remedy.push(Remedy::on_any_node(command).or());
                self.report.warn(about, text, remedy);
            }
            Some(at) => {
                let left = (at - now) / DAY_SECS;
                self.report.ok(about, format!("{kind}, expires in {left} days"));
            }
            None => self.report.ok(about, format!("{kind}, does not expire")),
        }
        known(Some(found.privsep))
    }
}
