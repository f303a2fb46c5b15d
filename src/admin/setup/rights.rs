//! The least rights for a configuration: what is there, what is wanted, and the steps between, each
//! both a call and the `pveum` line that does the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use drover_hypervisor::Client;
use proxmox_client::PveError;
use proxmox_client::admin::{AclEntry, User};
use secrecy::SecretString;

use crate::rights::{Grants, RoleKind};

/// What is written beside users, pools and tokens that are made here.
pub const COMMENT: &str = "made by drover setup rights";

/// The privilege on `/access` that shows entries of everybody.
const SEES_ENTRIES: &str = "Sys.Audit";

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Roles, entries and pools.
    pub grants: Grants,
    /// The user, `user@realm`.
    pub user: String,
    /// The token's name.
    pub token: String,
    /// Whether the token has privileges of its own, and so entries of its own.
    pub privsep: bool,
    /// What the names of roles begin with.
    pub prefix: String,
    /// Whether a token that is there is given another secret.
    pub renew: bool,
}

/// What is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Now {
    /// Privileges by role.
    pub roles: BTreeMap<String, BTreeSet<String>>,
    /// Pools.
    pub pools: BTreeSet<String>,
    /// The user's tokens with whether they are separate; none where there is no such user.
    pub tokens: Option<BTreeMap<String, bool>>,
    /// Whether the user is disabled.
    pub disabled: bool,
    /// Access entries.
    pub entries: BTreeSet<AclEntry>,
    /// Whether that is all of them: others may have a role otherwise, and nobody sees it.
    pub sees_all: bool,
    /// Whether a token's secret can be made anew in place.
    pub regenerates: bool,
}

impl Now {
    /// Reads it as an administrator.
    ///
    /// # Errors
    /// What Proxmox refused.
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
            sees_all: admin.privileges("/access", None).await?.contains_key(SEES_ENTRIES),
            regenerates,
        })
    }
}

/// The command that enables a user.
fn enabling(user: &str) -> String {
    format!("pveum user modify {user} --enable 1")
}

/// Why a token's secret is not renewed: another one lets nobody in either.
pub fn bars_renewal(wanted: &Wanted, now: &Now) -> Option<String> {
    let user = &wanted.user;
    (wanted.renew && now.disabled).then(|| {
        let first = enabling(user);
        format!(
            "user {user} is disabled, and no token of it logs in, whatever its secret: nothing was \
             done; first: {first}"
        )
    })
}

/// Who has a role beside what is planned.
enum Others {
    /// Nobody.
    None,
    /// These, each with the path.
    Some(Vec<String>),
    /// That can not be seen.
    Unseen,
}

impl Now {
    fn others_with(&self, role: &str, planned: impl Fn(&AclEntry) -> bool) -> Others {
        let of_role = self.entries.iter().filter(|entry| entry.roleid == role);
        let others = of_role.filter(|entry| !planned(entry));
        let others: Vec<String> =
            others.map(|one| format!("the {} {} on {}", one.kind, one.ugid, one.path)).collect();
        match (others.is_empty(), self.sees_all) {
            (false, _) => Others::Some(others),
            (true, true) => Others::None,
            (true, false) => Others::Unseen,
        }
    }
}

/// What is to be said of a role that holds `more` than is needed, or that others have, too. What
/// others may need is taken from nobody.
fn surplus(
    role: &str,
    needed: &BTreeSet<String>,
    more: &BTreeSet<String>,
    grows: bool,
    others: Others,
) -> Option<String> {
    let (only, held) = (spell(needed), spell(more));
    let own = "--role-prefix WORD gives this installation roles of its own";
    match (others, more.is_empty()) {
        (Others::None | Others::Unseen, true) => None,
        (Others::None, false) => Some(format!(
            "role {role} holds {held} beyond what is needed: pveum role modify {role} --privs '{only}'"
        )),
        (Others::Unseen, false) => Some(format!(
            "role {role} holds {held} beyond what is needed; who else has it can not be seen without \
             {SEES_ENTRIES} on /access, so nothing is to be taken from it"
        )),
        (Others::Some(whom), false) => Some(format!(
            "role {role} is shared with {}, and holds {held} beyond what is needed here: nothing is \
             taken from it; {own}",
            whom.join(", ")
        )),
        (Others::Some(whom), true) if grows => Some(format!(
            "role {role} is shared with {}: what is added to it counts for them, too; {own}",
            whom.join(", ")
        )),
        (Others::Some(_), true) => None,
    }
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Makes a pool.
    MakePool(String),
    /// Makes a role with these privileges.
    MakeRole(String, BTreeSet<String>),
    /// Adds these privileges to a role.
    ExtendRole(String, BTreeSet<String>),
    /// Makes a user.
    MakeUser(String),
    /// Makes a token of a user: its name, and whether its privileges are its own.
    MakeToken(String, String, bool),
    /// Gives a token of a user another secret.
    RenewToken(String, String),
    /// Removes a token of a user.
    RemoveToken(String, String),
    /// Gives somebody a role on a path.
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
    /// Does it; gives the secret of a token that was made.
    ///
    /// # Errors
    /// What Proxmox refused.
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

/// What reading the cluster takes: what is not seen would be taken for missing.
pub const READS: [(&str, &[&str]); 5] = [
    ("/access", &[SEES_ENTRIES]),
    ("/vms", &["VM.Audit"]),
    ("/pool", &["Pool.Audit"]),
    ("/storage", &["Datastore.Audit"]),
    ("/sdn/zones", &["SDN.Audit"]),
];

impl Action {
    /// The privileges that it takes, any of each, and where (behaviour section 3). Whoever may grant
    /// on a path by less than `Permissions.Modify` grants no more than they hold.
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

/// What of the privileges needed a login does not hold: each with its path, none twice.
///
/// # Errors
/// What Proxmox refused.
pub async fn lacking(
    login: &Client,
    needed: impl IntoIterator<Item = (String, &'static [&'static str])>,
) -> Result<Vec<String>, PveError> {
    let needed: BTreeSet<_> = needed.into_iter().collect();
    let mut lacking = Vec::new();
    for (path, any) in needed {
        let held = login.privileges(&path, None).await?;
        if !any.iter().any(|one| held.contains_key(*one)) {
            lacking.push(format!("{} on {path}", any.join(" or ")));
        }
    }
    Ok(lacking)
}

/// The steps from what is there to what is wanted, and what is there beyond that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which they can be done.
    pub actions: Vec<Action>,
    /// What is left to people, with the command for it: rights beyond what is needed, a user that is
    /// disabled.
    pub beyond: Vec<String>,
}

/// Works out the steps. Pure: nothing in `now` means a cluster that nobody looked at.
pub fn plan(wanted: &Wanted, now: &Now) -> Plan {
    let Wanted { grants, user, token, privsep, prefix, renew } = wanted;
    let (mut actions, mut beyond) = (Vec::new(), Vec::new());
    // Somebody disabled it, and knows why.
    beyond.extend(now.disabled.then(|| {
        let first = enabling(user);
        format!("user {user} is disabled, and no token of it logs in: {first}")
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
        beyond.extend(surplus(&role, privileges, &more, !lacks.is_empty(), others));
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
    // Entries of a token that is removed go with it.
    let anew = actions.iter().any(|action| matches!(action, Action::RemoveToken(..)));
    for who in &subjects {
        for (path, kind) in &grants.entries {
            let role = kind.name(prefix);
            let there = now.entries.iter().any(|one| {
                one.path == *path && one.ugid == *who && one.roleid == role && one.propagate
            });
            if !there || (anew && *who == full) {
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
            // What agents still have on a storage that left the YAML is removed by this right.
            let first = if path.starts_with("/storage/") {
                "; once nothing of its agents is there any more"
            } else {
                " beside"
            };
            beyond.push(format!(
                "{ugid} has the role {roleid} on {path}{first}: \
                 pveum acl delete '{path}' --{kind} '{ugid}' --roles {roleid}"
            ));
        }
    }
    if grants.entries.contains(&("/vms".to_owned(), RoleKind::Guests)) {
        let text = "a template names no targetPool, so these rights count for every guest of the \
                    cluster: give it one, and run this again";
        beyond.push(text.to_owned());
    }
    Plan { actions, beyond }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(privsep: bool) -> Wanted {
        let role = BTreeSet::from(["VM.Clone".to_owned()]);
        Wanted {
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

    /// The cluster once a plan was carried out.
    fn after(wanted: &Wanted, plan: &Plan) -> Now {
        let mut now = Now { regenerates: true, sees_all: true, ..Now::default() };
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

    // Invariant: after what is planned there is nothing to do, and each thing that is taken away is
    // planned again, alone.

    #[test]
    fn what_was_done_is_not_planned_again_and_what_was_undone_is() {
        for privsep in [false, true] {
            let wanted = wanted(privsep);
            let first = plan(&wanted, &Now::default());
            assert_eq!(first.actions.len(), if privsep { 6 } else { 5 });
            let done = after(&wanted, &first);
            assert_eq!(plan(&wanted, &done), Plan::default());
            // A token that is there stays as it is, whatever is asked for.
            let other = Wanted { privsep: !privsep, ..wanted.clone() };
            assert_eq!(plan(&other, &done), Plan::default());
            for entry in &done.entries {
                let mut now = done.clone();
                now.entries.remove(entry);
                let again =
                    Action::Grant(entry.path.clone(), entry.ugid.clone(), entry.roleid.clone());
                assert_eq!(plan(&wanted, &now).actions, std::slice::from_ref(&again));
                // One that does not count below its path is as good as none.
                now.entries.insert(AclEntry { propagate: false, ..entry.clone() });
                assert_eq!(plan(&wanted, &now).actions, [again]);
            }
            let mut now = done.clone();
            now.pools.clear();
            assert_eq!(plan(&wanted, &now).actions, [Action::MakePool("ci".into())]);
        }
    }

    // Invariant: a lost secret costs the token itself only where Proxmox can not make another in place.

    #[test]
    fn a_token_is_renewed_in_place_or_made_anew_with_its_entries() {
        let wanted = Wanted { renew: true, ..wanted(true) };
        let done = after(&wanted, &plan(&wanted, &Now::default()));
        let (user, token) = ("a@pve".to_owned(), "ci".to_owned());
        let renewed = plan(&wanted, &done).actions;
        assert_eq!(renewed, [Action::RenewToken(user.clone(), token.clone())]);
        let anew = plan(&wanted, &Now { regenerates: false, ..done }).actions;
        let granted =
            Action::Grant("/vms/9000".into(), "a@pve!ci".into(), "DroverTemplates".into());
        let removed = Action::RemoveToken(user.clone(), token.clone());
        assert_eq!(anew, [removed, Action::MakeToken(user, token, true), granted]);
    }

    #[test]
    fn a_disabled_user_is_told_and_left_disabled() {
        let wanted = wanted(true);
        let done = after(&wanted, &plan(&wanted, &Now::default()));
        let Plan { actions, beyond } = plan(&wanted, &Now { disabled: true, ..done });
        assert_eq!(actions, []);
        let [told] = &beyond[..] else { panic!("{beyond:?}") };
        assert!(told.ends_with("pveum user modify a@pve --enable 1"), "{told}");
    }

    #[test]
    fn the_secret_of_a_disabled_users_token_is_not_renewed() {
        let (there, renewed) = (wanted(true), Wanted { renew: true, ..wanted(true) });
        let done = after(&there, &plan(&there, &Now::default()));
        let disabled = Now { disabled: true, ..done.clone() };
        let told = bars_renewal(&renewed, &disabled).unwrap_or_default();
        assert!(told.ends_with("nothing was done; first: pveum user modify a@pve --enable 1"));
        assert_eq!(bars_renewal(&there, &disabled), None);
        assert_eq!(bars_renewal(&renewed, &done), None);
    }

    // Invariant: what is there beyond need is told with how to take it back, and left.

    #[test]
    fn rights_beyond_need_are_told_and_left() {
        let wanted = wanted(false);
        let mut now = after(&wanted, &plan(&wanted, &Now::default()));
        now.roles.entry("DroverTemplates".into()).or_default().insert("VM.Backup".into());
        let (path, ugid, kind) = ("/".to_owned(), "a@pve".to_owned(), "user".to_owned());
        let roleid = "Administrator".to_owned();
        now.entries.insert(AclEntry { path, ugid, kind, roleid, propagate: true });
        let Plan { actions, beyond } = plan(&wanted, &now);
        assert_eq!(actions, []);
        insta::assert_snapshot!(beyond.join("\n"), @r"
        role DroverTemplates holds VM.Backup beyond what is needed: pveum role modify DroverTemplates --privs 'VM.Clone'
        a@pve has the role Administrator on / beside: pveum acl delete '/' --users 'a@pve' --roles Administrator
        ");
    }

    // Invariant: what somebody else may need is taken from no role.

    #[test]
    fn a_role_that_others_have_is_not_told_to_be_narrowed() {
        let wanted = wanted(false);
        let mut now = after(&wanted, &plan(&wanted, &Now::default()));
        now.roles.entry("DroverTemplates".into()).or_default().insert("VM.Backup".into());
        let told = |now: &Now| plan(&wanted, now).beyond.join("\n");
        let blind = Now { sees_all: false, ..now.clone() };
        insta::assert_snapshot!(told(&blind), @"role DroverTemplates holds VM.Backup beyond what is needed; who else has it can not be seen without Sys.Audit on /access, so nothing is to be taken from it");
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
            let said = told(&now);
            assert!(
                said.contains(&format!("is shared with {whom}, and holds VM.Backup")),
                "{said}"
            );
            assert!(!said.contains("pveum role modify"), "{said}");
            // Where something is added to it they have that, too.
            now.roles.insert("DroverTemplates".into(), BTreeSet::new());
            let said = told(&now);
            assert!(said.contains(&format!("is shared with {whom}: what is added")), "{said}");
        }
    }
}
