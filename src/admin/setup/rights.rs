//! `drover setup rights`: the least rights for a configuration, and the steps towards them.
//!
//! In: [`WantedRights`], worked out from the table of rights, and [`ExistingRights`], read with an
//! administrator's login. Out: a [`RightsPlan`]: steps that are missing, in an order in which they
//! can run, and notes about what drover leaves to people.
//!
//! Each step is both a call to Proxmox and the `pveum` line that does the same. A plan adds rights
//! and takes none away: a role, a user or an entry may serve others, too, and a user that somebody
//! disabled stays disabled. The notes name the commands for that.
//!
//! Before the first step [`Action::needs`] and [`READ_PRIVILEGES`] say what the login must hold, so
//! that no set-up ends half-way for a missing privilege.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use drover_hypervisor::Client;
use proxmox_client::PveError;
use proxmox_client::admin::{AclEntry, User};
use secrecy::SecretString;

use crate::rights::{Grants, RoleKind};

/// The comment of users, pools and tokens that `drover setup rights` makes.
pub(crate) const COMMENT: &str = "made by drover setup rights";

/// The privilege on `/access` that shows the access entries of everybody.
const ENTRIES_PRIVILEGE: &str = "Sys.Audit";

/// The rights to set up, and for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedRights {
    pub grants: Grants,
    /// The user, `user@realm`.
    pub user: String,
    pub token: String,
    /// Whether the token has separate privileges, and so access entries of its own.
    pub privsep: bool,
    /// The prefix of the roles' names.
    pub prefix: String,
    /// Whether an existing token gets a new secret.
    pub renew: bool,
}

/// The rights that exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExistingRights {
    pub roles: BTreeMap<String, BTreeSet<String>>,
    pub pools: BTreeSet<String>,
    /// The user's tokens, and whether each has separate privileges; none where the user does not
    /// exist.
    pub tokens: Option<BTreeMap<String, bool>>,
    pub disabled: bool,
    pub entries: BTreeSet<AclEntry>,
    /// Whether `entries` is complete: others may have a role on entries that drover cannot see.
    pub sees_all: bool,
    /// Whether this Proxmox can give an existing token a new secret.
    pub regenerates: bool,
}

impl ExistingRights {
    /// Reads the rights with an administrator's login.
    ///
    /// # Errors
    /// Why Proxmox refused or did not answer.
    pub async fn read(admin: &Client, user: &str, regenerates: bool) -> Result<Self, PveError> {
        let users = admin.users().await?;
        let own = users.into_iter().find(|one| one.userid == user);
        let disabled = own.as_ref().is_some_and(|own| own.enable == Some(false));
        let names =
            |own: User| own.tokens.into_iter().map(|one| (one.tokenid, one.privsep)).collect();
        Ok(Self {
            roles: admin.roles().await?,
            pools: admin.pools().await?,
            tokens: own.map(names),
            disabled,
            entries: admin.acl_entries().await?,
            sees_all: admin.privileges("/access", None).await?.contains_key(ENTRIES_PRIVILEGE),
            regenerates,
        })
    }
}

/// The command that enables a user.
fn enable_command(user: &str) -> String {
    format!("pveum user modify {user} --enable 1")
}

/// Why a token's secret must not be renewed: the user is disabled, and a new secret would not log
/// in.
pub fn why_not_renewed(wanted: &WantedRights, now: &ExistingRights) -> Option<String> {
    let user = &wanted.user;
    (wanted.renew && now.disabled).then(|| {
        let first = enable_command(user);
        format!(
            "user {user} is disabled, so none of its tokens logs in, whatever the secret; nothing was \
             done; first: {first}"
        )
    })
}

/// Who else has a role.
enum OtherHolders {
    None,
    /// These, each with the path.
    Some(Vec<String>),
    /// Unknown: drover cannot see all entries.
    Unseen,
}

impl ExistingRights {
    fn others_with(&self, role: &str, planned: impl Fn(&AclEntry) -> bool) -> OtherHolders {
        let of_role = self.entries.iter().filter(|entry| entry.roleid == role);
        let others = of_role.filter(|entry| !planned(entry));
        let others: Vec<String> =
            others.map(|one| format!("the {} {} on {}", one.kind, one.ugid, one.path)).collect();
        match (others.is_empty(), self.sees_all) {
            (false, _) => OtherHolders::Some(others),
            (true, true) => OtherHolders::None,
            (true, false) => OtherHolders::Unseen,
        }
    }
}

/// The note about a role that holds `more` than is needed, or that others have, too. drover takes
/// nothing from a role that others may need.
fn role_note(
    role: &str,
    needed: &BTreeSet<String>,
    more: &BTreeSet<String>,
    grows: bool,
    others: OtherHolders,
) -> Option<String> {
    let (only, held) = (spell(needed), spell(more));
    let own = "--role-prefix WORD gives this installation roles of its own";
    match (others, more.is_empty()) {
        (OtherHolders::None | OtherHolders::Unseen, true) => None,
        (OtherHolders::None, false) => Some(format!(
            "role {role} holds {held} beyond what is needed: pveum role modify {role} --privs '{only}'"
        )),
        (OtherHolders::Unseen, false) => Some(format!(
            "role {role} holds {held} beyond what is needed; drover cannot see who else has it without \
             {ENTRIES_PRIVILEGE} on /access, so it takes nothing from the role"
        )),
        (OtherHolders::Some(whom), false) => Some(format!(
            "role {role} is shared with {}, and holds {held} beyond what is needed here: drover takes \
             nothing from it; {own}",
            whom.join(", ")
        )),
        (OtherHolders::Some(whom), true) if grows => Some(format!(
            "role {role} is shared with {}: they also get what is added to it; {own}",
            whom.join(", ")
        )),
        (OtherHolders::Some(_), true) => None,
    }
}

/// One change of rights; it prints as the `pveum` line that does the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    MakePool(String),
    /// Makes a role with these privileges.
    MakeRole(String, BTreeSet<String>),
    /// Adds these privileges to a role.
    ExtendRole(String, BTreeSet<String>),
    MakeUser(String),
    /// Makes a token: the user, its name, and whether its privileges are separate.
    MakeToken(String, String, bool),
    /// Gives an existing token of a user a new secret.
    RenewToken(String, String),
    /// Removes a token of a user.
    RemoveToken(String, String),
    /// Grants a role: the path, the user or token, the role.
    Grant(String, String, String),
}

fn spell(privileges: &BTreeSet<String>) -> String {
    privileges.iter().cloned().collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Action {
    /// The line that an administrator would type on a node.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MakePool(pool) => write!(f, "pveum pool add {pool} --comment '{COMMENT}'"),
            Self::MakeRole(role, all) => {
                write!(f, "pveum role add {role} --privs '{}'", spell(all))
            }
            Self::ExtendRole(role, more) => {
                write!(f, "pveum role modify {role} --privs '{}' --append 1", spell(more))
            }
            Self::MakeUser(user) => write!(f, "pveum user add {user} --comment '{COMMENT}'"),
            Self::MakeToken(user, name, privsep) => {
                let privsep = u8::from(*privsep);
                write!(
                    f,
                    "pveum user token add {user} {name} --privsep {privsep} --comment '{COMMENT}'"
                )
            }
            Self::RenewToken(user, name) => {
                write!(f, "pveum user token modify {user} {name} --regenerate 1")
            }
            Self::RemoveToken(user, name) => write!(f, "pveum user token remove {user} {name}"),
            Self::Grant(path, who, role) => {
                let kind = if who.contains('!') { "tokens" } else { "users" };
                write!(f, "pveum acl modify '{path}' --{kind} '{who}' --roles {role}")
            }
        }
    }
}

impl Action {
    /// Runs the step; returns the secret of a token that was made or renewed.
    ///
    /// # Errors
    /// Why Proxmox refused or did not answer.
    pub async fn run(&self, admin: &Client) -> Result<Option<SecretString>, PveError> {
        match self {
            Self::MakePool(pool) => admin.create_pool(pool, COMMENT).await?,
            Self::MakeRole(role, all) => admin.create_role(role, &spell(all)).await?,
            Self::ExtendRole(role, more) => admin.extend_role(role, &spell(more)).await?,
            Self::MakeUser(user) => admin.create_user(user, COMMENT).await?,
            Self::MakeToken(user, name, privsep) => {
                return admin.create_token(user, name, *privsep, COMMENT).await.map(Some);
            }
            Self::RenewToken(user, name) => {
                return admin.regenerate_token(user, name).await.map(Some);
            }
            Self::RemoveToken(user, name) => admin.remove_token(user, name).await?,
            Self::Grant(path, who, role) => admin.grant(path, who, role).await?,
        }
        Ok(None)
    }
}

/// The privileges that reading the rights needs: what drover cannot see would count as missing.
pub const READ_PRIVILEGES: [(&str, &[&str]); 5] = [
    ("/access", &[ENTRIES_PRIVILEGE]),
    ("/vms", &["VM.Audit"]),
    ("/pool", &["Pool.Audit"]),
    ("/storage", &["Datastore.Audit"]),
    ("/sdn/zones", &["SDN.Audit"]),
];

impl Action {
    /// The privileges that the step needs on each path; any one of them is enough (book: proxmox,
    /// section 3). A login that may grant on a path without `Permissions.Modify` can grant no more
    /// than it holds.
    pub fn needs(&self) -> Vec<(String, &'static [&'static str])> {
        let users: (String, &[_]) = ("/access/groups".to_owned(), &["User.Modify"]);
        match self {
            Self::MakePool(pool) => vec![(format!("/pool/{pool}"), &["Pool.Allocate"])],
            Self::MakeRole(..) | Self::ExtendRole(..) => vec![("/access".into(), &["Sys.Modify"])],
            Self::MakeUser(user) => {
                let realm = user.rsplit_once('@').map_or("", |(_, realm)| realm);
                vec![(format!("/access/realm/{realm}"), &["Realm.AllocateUser"]), users]
            }
            Self::MakeToken(..) | Self::RenewToken(..) | Self::RemoveToken(..) => vec![users],
            Self::Grant(path, ..) => {
                let any: &[_] = match path.trim_start_matches('/').split('/').next() {
                    Some("vms") => &["Permissions.Modify", "VM.Allocate"],
                    Some("storage") => &["Permissions.Modify", "Datastore.Allocate"],
                    Some("pool") => &["Permissions.Modify", "Pool.Allocate"],
                    Some(_) | None => &["Permissions.Modify"],
                };
                vec![(path.clone(), any)]
            }
        }
    }
}

/// The needed privileges that a login lacks, each with its path, none twice.
///
/// # Errors
/// Why Proxmox refused or did not answer.
pub async fn missing_privileges(
    login: &Client,
    needed: impl IntoIterator<Item = (String, &'static [&'static str])>,
) -> Result<Vec<String>, PveError> {
    let needed: BTreeSet<_> = needed.into_iter().collect();
    let mut missing_privileges = Vec::new();
    for (path, any) in needed {
        let held = login.privileges(&path, None).await?;
        if !any.iter().any(|one| held.contains_key(*one)) {
            missing_privileges.push(format!("{} on {path}", any.join(" or ")));
        }
    }
    Ok(missing_privileges)
}

/// The steps from what exists to what is wanted, and notes for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RightsPlan {
    /// The steps in an order in which they can run.
    pub actions: Vec<Action>,
    /// What is left to people, each with its command: rights beyond what is needed, and a disabled
    /// user.
    pub beyond: Vec<String>,
}

/// Works out the steps. Pure: an empty `now` stands for a cluster that was not read.
pub fn plan(wanted: &WantedRights, now: &ExistingRights) -> RightsPlan {
    let WantedRights { grants, user, token, privsep, prefix, renew } = wanted;
    let (mut actions, mut beyond) = (Vec::new(), Vec::new());
    // Somebody disabled the user and knows why.
    beyond.extend(now.disabled.then(|| {
        let first = enable_command(user);
        format!("user {user} is disabled, so none of its tokens logs in: {first}")
    }));
    for pool in grants.pools.difference(&now.pools) {
        actions.push(Action::MakePool(pool.clone()));
    }
    let there = now.tokens.as_ref().and_then(|tokens| tokens.get(token)).copied();
    let separate = there.unwrap_or(*privsep);
    let full = format!("{user}!{token}");
    let mut subjects = vec![user.clone()];
    subjects.extend(separate.then(|| full.clone()));
    for (kind, privileges) in &grants.roles {
        let role = kind.name(prefix);
        let Some(there) = now.roles.get(&role) else {
            actions.push(Action::MakeRole(role, privileges.clone()));
            continue;
        };
        let lacks: BTreeSet<String> = privileges.difference(there).cloned().collect();
        let more: BTreeSet<String> = there.difference(privileges).cloned().collect();
        let planned = |entry: &AclEntry| {
            subjects.contains(&entry.ugid) && grants.entries.contains(&(entry.path.clone(), *kind))
        };
        let others = now.others_with(&role, planned);
        beyond.extend(role_note(&role, privileges, &more, !lacks.is_empty(), others));
        if !lacks.is_empty() {
            actions.push(Action::ExtendRole(role, lacks));
        }
    }
    if now.tokens.is_none() {
        actions.push(Action::MakeUser(user.clone()));
    }
    match there {
        None => actions.push(Action::MakeToken(user.clone(), token.clone(), *privsep)),
        Some(_) if *renew && now.regenerates => {
            actions.push(Action::RenewToken(user.clone(), token.clone()));
        }
        Some(own) if *renew => {
            actions.push(Action::RemoveToken(user.clone(), token.clone()));
            actions.push(Action::MakeToken(user.clone(), token.clone(), own));
        }
        Some(_) => {}
    }
    // Removing a token removes its entries.
    let fresh = actions.iter().any(|action| matches!(action, Action::RemoveToken(..)));
    for who in &subjects {
        for (path, kind) in &grants.entries {
            let role = kind.name(prefix);
            let there = now.entries.iter().any(|one| {
                one.path == *path && one.ugid == *who && one.roleid == role && one.propagate
            });
            if !there || (fresh && *who == full) {
                actions.push(Action::Grant(path.clone(), who.clone(), role));
            }
        }
    }
    for entry in now.entries.iter().filter(|entry| subjects.contains(&entry.ugid)) {
        let ours = grants.entries.iter().any(|(path, kind): &(String, RoleKind)| {
            *path == entry.path && kind.name(prefix) == entry.roleid
        });
        if !ours {
            let AclEntry { path, ugid, roleid, .. } = entry;
            let kind = if ugid.contains('!') { "tokens" } else { "users" };
            // This right removes what agents still have on a storage that left the YAML.
            let first = if path.starts_with("/storage/") {
                "; once the storage holds nothing of its agents"
            } else {
                ", which drover does not need"
            };
            beyond.push(format!(
                "{ugid} has the role {roleid} on {path}{first}: \
                 pveum acl delete '{path}' --{kind} '{ugid}' --roles {roleid}"
            ));
        }
    }
    if grants.entries.contains(&("/vms".to_owned(), RoleKind::Guests)) {
        let text = "a template names no targetPool, so these rights apply to every guest of the \
                    cluster; give each template a targetPool and run this again";
        beyond.push(text.to_owned());
    }
    RightsPlan { actions, beyond }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(privsep: bool) -> WantedRights {
        let role = BTreeSet::from(["VM.Clone".to_owned()]);
        WantedRights {
            grants: Grants {
                roles: [(RoleKind::Templates, role)].into(),
                entries: [("/vms/9000".to_owned(), RoleKind::Templates)].into(),
                pools: ["ci".to_owned()].into(),
            },
            user: "a@pve".into(),
            token: "ci".into(),
            privsep,
            prefix: "Drover".into(),
            renew: false,
        }
    }

    /// The rights once a plan was carried out.
    fn after(wanted: &WantedRights, plan: &RightsPlan) -> ExistingRights {
        let mut now =
            ExistingRights { regenerates: true, sees_all: true, ..ExistingRights::default() };
        for action in &plan.actions {
            match action {
                Action::MakePool(pool) => drop(now.pools.insert(pool.clone())),
                Action::MakeRole(role, all) | Action::ExtendRole(role, all) => {
                    now.roles.entry(role.clone()).or_default().extend(all.clone());
                }
                Action::MakeUser(_) => now.tokens = Some(BTreeMap::new()),
                Action::MakeToken(_, name, privsep) => {
                    now.tokens.get_or_insert_default().insert(name.clone(), *privsep);
                }
                Action::RenewToken(..) | Action::RemoveToken(..) => {}
                Action::Grant(path, who, role) => {
                    let (path, ugid, roleid) = (path.clone(), who.clone(), role.clone());
                    let kind = if who.contains('!') { "token" } else { "user" }.to_owned();
                    now.entries.insert(AclEntry { path, ugid, kind, roleid, propagate: true });
                }
            }
        }
        assert!(now.tokens.is_some(), "{wanted:?}");
        now
    }

    // Invariant: after a plan is carried out nothing is left to do, and each thing that is taken
    // away is planned again, alone.

    #[test]
    fn what_was_done_is_not_planned_again_and_what_was_undone_is() {
        for privsep in [false, true] {
            let wanted = wanted(privsep);
            let first = plan(&wanted, &ExistingRights::default());
            assert_eq!(first.actions.len(), if privsep { 6 } else { 5 });
            let done = after(&wanted, &first);
            assert_eq!(plan(&wanted, &done), RightsPlan::default());
            // An existing token stays as it is, whatever is wanted.
            let other = WantedRights { privsep: !privsep, ..wanted.clone() };
            assert_eq!(plan(&other, &done), RightsPlan::default());
            for entry in &done.entries {
                let mut now = done.clone();
                now.entries.remove(entry);
                let again =
                    Action::Grant(entry.path.clone(), entry.ugid.clone(), entry.roleid.clone());
                assert_eq!(plan(&wanted, &now).actions, std::slice::from_ref(&again));
                // An entry that does not apply below its path counts as missing.
                now.entries.insert(AclEntry { propagate: false, ..entry.clone() });
                assert_eq!(plan(&wanted, &now).actions, [again]);
            }
            let mut now = done.clone();
            now.pools.clear();
            assert_eq!(plan(&wanted, &now).actions, [Action::MakePool("ci".into())]);
        }
    }

    // Invariant: a token is replaced for a lost secret only where Proxmox cannot renew the secret.

    #[test]
    fn a_token_is_renewed_in_place_or_replaced_with_its_entries() {
        let wanted = WantedRights { renew: true, ..wanted(true) };
        let done = after(&wanted, &plan(&wanted, &ExistingRights::default()));
        let (user, token) = ("a@pve".to_owned(), "ci".to_owned());
        let renewed = plan(&wanted, &done).actions;
        assert_eq!(renewed, [Action::RenewToken(user.clone(), token.clone())]);
        let fresh = plan(&wanted, &ExistingRights { regenerates: false, ..done }).actions;
        let granted =
            Action::Grant("/vms/9000".into(), "a@pve!ci".into(), "DroverTemplates".into());
        let removed = Action::RemoveToken(user.clone(), token.clone());
        assert_eq!(fresh, [removed, Action::MakeToken(user, token, true), granted]);
    }

    #[test]
    fn a_disabled_user_is_reported_and_left_disabled() {
        let wanted = wanted(true);
        let done = after(&wanted, &plan(&wanted, &ExistingRights::default()));
        let RightsPlan { actions, beyond } =
            plan(&wanted, &ExistingRights { disabled: true, ..done });
        assert_eq!(actions, []);
        let [reported] = &beyond[..] else { panic!("{beyond:?}") };
        assert!(reported.ends_with("pveum user modify a@pve --enable 1"), "{reported}");
    }

    #[test]
    fn the_secret_of_a_disabled_users_token_is_not_renewed() {
        let (there, renewed) = (wanted(true), WantedRights { renew: true, ..wanted(true) });
        let done = after(&there, &plan(&there, &ExistingRights::default()));
        let disabled = ExistingRights { disabled: true, ..done.clone() };
        let reported = why_not_renewed(&renewed, &disabled).unwrap_or_default();
        assert!(reported.ends_with("nothing was done; first: pveum user modify a@pve --enable 1"));
        assert_eq!(why_not_renewed(&there, &disabled), None);
        assert_eq!(why_not_renewed(&renewed, &done), None);
    }

    // Invariant: rights beyond need are reported with how to take them back, and left in place.

    #[test]
    fn rights_beyond_need_are_reported_and_left() {
        let wanted = wanted(false);
        let mut now = after(&wanted, &plan(&wanted, &ExistingRights::default()));
        now.roles.entry("DroverTemplates".into()).or_default().insert("VM.Backup".into());
        let (path, ugid, kind) = ("/".to_owned(), "a@pve".to_owned(), "user".to_owned());
        let roleid = "Administrator".to_owned();
        now.entries.insert(AclEntry { path, ugid, kind, roleid, propagate: true });
        let RightsPlan { actions, beyond } = plan(&wanted, &now);
        assert_eq!(actions, []);
        insta::assert_snapshot!(beyond.join("\n"), @r"
        role DroverTemplates holds VM.Backup beyond what is needed: pveum role modify DroverTemplates --privs 'VM.Clone'
        a@pve has the role Administrator on /, which drover does not need: pveum acl delete '/' --users 'a@pve' --roles Administrator
        ");
    }

    // Invariant: drover takes no right from a role that somebody else may need.

    #[test]
    fn a_role_that_others_have_is_not_reported_to_be_narrowed() {
        let wanted = wanted(false);
        let mut now = after(&wanted, &plan(&wanted, &ExistingRights::default()));
        now.roles.entry("DroverTemplates".into()).or_default().insert("VM.Backup".into());
        let reported = |now: &ExistingRights| plan(&wanted, now).beyond.join("\n");
        let blind = ExistingRights { sees_all: false, ..now.clone() };
        insta::assert_snapshot!(reported(&blind), @"role DroverTemplates holds VM.Backup beyond what is needed; drover cannot see who else has it without Sys.Audit on /access, so it takes nothing from the role");
        for (kind, ugid, path) in [
            ("user", "b@pve", "/vms/9001"),
            ("token", "a@pve!other", "/vms/9000"),
            ("group", "ci", "/pool/ci"),
        ] {
            let mut now = now.clone();
            let (path, ugid, kind) = (path.to_owned(), ugid.to_owned(), kind.to_owned());
            let roleid = "DroverTemplates".to_owned();
            let whom = format!("the {kind} {ugid} on {path}");
            now.entries.insert(AclEntry { path, ugid, kind, roleid, propagate: true });
            let said = reported(&now);
            assert!(
                said.contains(&format!("is shared with {whom}, and holds VM.Backup")),
                "{said}"
            );
            assert!(!said.contains("pveum role modify"), "{said}");
            // Where something is added to the role, they get that, too.
            now.roles.insert("DroverTemplates".into(), BTreeSet::new());
            let said = reported(&now);
            assert!(said.contains(&format!("is shared with {whom}: they also get")), "{said}");
        }
    }
}
