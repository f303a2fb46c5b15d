//! `/access/ticket`, `/access/password`, `/access/users` and their tokens.

use std::collections::{BTreeMap, BTreeSet};

use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};

use super::state::{State, Token, User};
use super::{Access, failed, ticket};
use crate::api::format::split_list;
use crate::call::{Answer, ApiError, Call, Caller, Outcome};

const TEXT_FIELDS: [&str; 5] = ["comment", "email", "firstname", "lastname", "keys"];

impl Access {
    pub(super) fn serve_users(&self, call: &Call) -> Outcome {
        let userid = call.params.text("userid").unwrap_or_default();
        let token = call.params.text("tokenid").unwrap_or_default();
        match (call.method, call.route) {
            ("GET", "/access/ticket") => Ok(Answer::null()),
            ("POST", "/access/ticket") => self.log_in(call),
            ("PUT", "/access/password") => self.set_password(&userid, call),
            ("GET", "/access/users") => Ok(Answer::new(self.users(call))),
            ("GET", "/access/users/{userid}") => self.user(&userid).map(Answer::new),
            ("GET", "/access/users/{userid}/token") => self.tokens(&userid),
            ("GET", "/access/users/{userid}/token/{tokenid}") => self.token(&userid, &token),
            ("POST", "/access/users") => self.create_user(userid, call),
            ("POST", _) => self.create_token(&userid, token, call),
            ("PUT", "/access/users/{userid}") => self.update_user(&userid, call),
            ("PUT", _) => self.update_token(&userid, &token, call),
            ("DELETE", "/access/users/{userid}") => self.delete_user(&userid),
            _ => self.delete_token(&userid, &token),
        }
    }

    fn log_in(&self, call: &Call) -> Outcome {
        let text = |name: &str| call.params.text(name).unwrap_or_default();
        let mut userid = text("username");
        if let Some(realm) = call.params.text("realm")
            && !userid.ends_with(&format!("@{realm}"))
        {
            userid = format!("{userid}@{realm}");
        }
        let refusal = || ApiError {
            status: 401,
            message: "authentication failure".into(),
            errors: BTreeMap::new(),
        };
        let (now, password) = (self.clock.now(), text("password"));
        let state = self.state();
        // A valid ticket of the user replaces the password; root's ticket replaces every password.
        let by_ticket = self.signer.verify(&password, now);
        let renewed = by_ticket.is_some_and(|owner| owner == userid || owner == "root@pam");
        let known = state.users.get(&userid).and_then(|user| user.password.as_ref());
        let by_password =
            known.is_some_and(|known| ticket::equal_secrets(known.expose_secret(), &password));
        if !state.is_user_active(&userid, now) || !(renewed || by_password) {
            return Err(refusal());
        }
        let caller = Caller { userid: userid.clone(), token: None };
        if let (Some(path), Some(privileges)) =
            (call.params.text("path"), call.params.text("privs"))
        {
            let held = state.privileges(&caller, &path);
            if split_list(&privileges).any(|name| !held.contains_key(name)) {
                return Err(refusal());
            }
        }
        let needs_more = state.users.get(&userid).is_some_and(|user| user.second_factor);
        if needs_more && !renewed {
            // The ticket serves for the second step alone (book: proxmox, section 3).
            return Ok(Answer::new(json!({
                "username": userid,
                "ticket": self.signer.ticket(&format!("!tfa!{userid}"), now),
                "CSRFPreventionToken": self.signer.csrf(&userid, now),
                "NeedTFA": 1,
            })));
        }
        let mut answer = json!({
            "username": userid,
            "ticket": self.signer.ticket(&userid, now),
            "CSRFPreventionToken": self.signer.csrf(&userid, now),
            "cap": capabilities(&state, &caller),
        });
        let sees_name = state.privileges(&caller, "/").contains_key("Sys.Audit");
        if !self.cluster.is_empty() && sees_name {
            answer["clustername"] = self.cluster.clone().into();
        }
        Ok(Answer::new(answer))
    }

    fn set_password(&self, userid: &str, call: &Call) -> Outcome {
        let mut state = self.state();
        let user = find_user(&mut state, userid)?;
        user.password = call.params.text("password").map(Into::into);
        Ok(Answer::null())
    }

    fn users(&self, call: &Call) -> Value {
        let caller = &call.caller;
        let wanted = ["User.Modify", "Sys.Audit"];
        let all = self.require_any(caller, "/access/groups", &wanted).is_ok();
        let wanted_enabled = call.params.0.get("enabled").and_then(Value::as_bool);
        let state = self.state();
        let line = |(userid, user): (&String, &User)| {
            let mut line = user_details(user);
            line.insert("userid".into(), userid.clone().into());
            if let Some(kind) = state.realm_type(userid) {
                line.insert("realm-type".into(), kind.into());
            }
            if call.params.flag("full") {
                line.insert("groups".into(), groups_of(&state, userid).join(",").into());
                line.insert("tokens".into(), token_lines(user));
            }
            Value::Object(line)
        };
        state
            .users
            .iter()
            .filter(|(userid, _)| all || **userid == caller.full_id())
            .filter(|(_, user)| wanted_enabled.is_none_or(|enabled| user.enable == enabled))
            .map(line)
            .collect()
    }

    fn user(&self, userid: &str) -> Result<Value, ApiError> {
        let state = self.state();
        let user = state.users.get(userid).ok_or_else(|| no_such_user(userid))?;
        let mut answer = user_details(user);
        answer.insert("groups".into(), json!(groups_of(&state, userid)));
        if !user.tokens.is_empty() {
            let tokens = user.tokens.iter().map(|(name, token)| (name.clone(), token_info(token)));
            answer.insert("tokens".into(), tokens.collect());
        }
        Ok(Value::Object(answer))
    }

    fn create_user(&self, userid: String, call: &Call) -> Outcome {
        let mut state = self.state();
        let Some(kind) = state.realm_type(&userid) else {
            let realm = userid.rsplit_once('@').map_or("", |(_, realm)| realm);
            return Err(failed("create user", &format!("domain '{realm}' does not exist")));
        };
        if call.params.0.contains_key("password") && !matches!(kind, "pam" | "pve") {
            let text = format!("can't set password on auth type '{kind}'");
            return Err(failed("create user", &text));
        }
        if state.users.contains_key(&userid) {
            return Err(failed("create user", &format!("user '{userid}' already exists")));
        }
        let mut user = User { enable: true, ..User::default() };
        change_user(&mut user, call);
        user.password = call.params.text("password").map(Into::into);
        change_groups(&mut state, &userid, call, false);
        state.users.insert(userid, user);
        Ok(Answer::null())
    }

    fn update_user(&self, userid: &str, call: &Call) -> Outcome {
        let mut state = self.state();
        change_user(find_user(&mut state, userid)?, call);
        change_groups(&mut state, userid, call, !call.params.flag("append"));
        Ok(Answer::null())
    }

    fn delete_user(&self, userid: &str) -> Outcome {
        let mut state = self.state();
        if state.users.remove(userid).is_none() {
            return Err(failed("delete user", &format!("user '{userid}' does not exist")));
        }
        for group in state.groups.values_mut() {
            group.users.remove(userid);
        }
        let tokens = format!("{userid}!");
        state.remove_acl_subjects(|subject| subject == userid || subject.starts_with(&tokens));
        Ok(Answer::null())
    }

    fn tokens(&self, userid: &str) -> Outcome {
        let state = self.state();
        let user = state.users.get(userid).ok_or_else(|| no_such_user(userid))?;
        Ok(Answer::new(token_lines(user)))
    }

    fn token(&self, userid: &str, name: &str) -> Outcome {
        let mut state = self.state();
        let token = find_token(&mut state, userid, name)?;
        Ok(Answer::new(token_info(token)))
    }

    fn create_token(&self, userid: &str, name: String, call: &Call) -> Outcome {
        let now = self.clock.now();
        let mut state = self.state();
        let user = find_user(&mut state, userid)?;
        if user.tokens.contains_key(&name) {
            return Err(ApiError::parameter("tokenid", "Token already exists."));
        }
        let full = format!("{userid}!{name}");
        let secret = self.signer.derive_uuid(&format!("{full}/{now}"));
        let privsep = call.params.0.get("privsep").and_then(Value::as_bool).unwrap_or(true);
        let expire = call.params.int("expire").and_then(|time| u64::try_from(time).ok());
        let comment = call.params.text("comment");
        let mut shown = json!({"privsep": if privsep { "1" } else { "0" }});
        if let Some(expire) = expire {
            shown["expire"] = expire.into();
        }
        if let Some(comment) = &comment {
            shown["comment"] = comment.clone().into();
        }
        let token =
            Token { secret: secret.clone().into(), privsep, expire: expire.unwrap_or(0), comment };
        user.tokens.insert(name, token);
        Ok(Answer::new(json!({"full-tokenid": full, "value": secret, "info": shown})))
    }

    fn update_token(&self, userid: &str, name: &str, call: &Call) -> Outcome {
        let now = self.clock.now();
        let mut state = self.state();
        let token = find_token(&mut state, userid, name)?;
        let deleted = call.params.text("delete").unwrap_or_default();
        // Proxmox deletes only the comment (pve-access-control, API2/User.pm:907). The lock of the
        // file turns the refusal into text.
        if let Some(key) = split_list(&deleted).find(|key| *key != "comment") {
            let text = "400 Parameter verification failed.\ndelete: unknown option";
            return Err(failed("updating token info", &format!("{text} '{key}'")));
        }
        if let Some(privsep) = call.params.0.get("privsep").and_then(Value::as_bool) {
            token.privsep = privsep;
        }
        if let Some(expire) = call.params.int("expire").and_then(|time| u64::try_from(time).ok()) {
            token.expire = expire;
        }
        if let Some(comment) = call.params.text("comment") {
            token.comment = Some(comment);
        }
        if split_list(&deleted).next().is_some() {
            token.comment = None;
        }
        let mut answer = token_info(token);
        if call.params.flag("regenerate") {
            let full = format!("{userid}!{name}");
            let secret = self.signer.derive_uuid(&format!("{full}/{now}/again"));
            token.secret = secret.clone().into();
            answer["value"] = secret.into();
            answer["full-tokenid"] = full.into();
        }
        Ok(Answer::new(answer))
    }

    fn delete_token(&self, userid: &str, name: &str) -> Outcome {
        let mut state = self.state();
        find_token(&mut state, userid, name)?;
        find_user(&mut state, userid)?.tokens.remove(name);
        let full = format!("{userid}!{name}");
        state.remove_acl_subjects(|subject| subject == full);
        Ok(Answer::null())
    }
}

fn no_such_user(userid: &str) -> ApiError {
    ApiError::failed(format!("no such user ('{userid}')"))
}

fn find_user<'a>(state: &'a mut State, userid: &str) -> Result<&'a mut User, ApiError> {
    state.users.get_mut(userid).ok_or_else(|| no_such_user(userid))
}

fn find_token<'a>(
    state: &'a mut State,
    userid: &str,
    name: &str,
) -> Result<&'a mut Token, ApiError> {
    let token = find_user(state, userid)?.tokens.get_mut(name);
    token.ok_or_else(|| ApiError::failed(format!("no such token '{name}' for user '{userid}'")))
}

fn groups_of(state: &State, userid: &str) -> Vec<String> {
    let member = state.groups.iter().filter(|(_, group)| group.users.contains(userid));
    member.map(|(name, _)| name.clone()).collect()
}

fn user_details(user: &User) -> Map<String, Value> {
    let mut shown: Map<String, Value> =
        user.texts.iter().map(|(name, text)| (name.clone(), text.clone().into())).collect();
    shown.insert("enable".into(), u8::from(user.enable).into());
    shown.insert("expire".into(), user.expire.into());
    shown
}

fn token_info(token: &Token) -> Value {
    let mut shown = json!({"privsep": u8::from(token.privsep), "expire": token.expire});
    if let Some(comment) = &token.comment {
        shown["comment"] = comment.clone().into();
    }
    shown
}

fn token_lines(user: &User) -> Value {
    let line = |(name, token): (&String, &Token)| {
        let mut line = token_info(token);
        line["tokenid"] = name.clone().into();
        line
    };
    user.tokens.iter().map(line).collect()
}

fn change_user(user: &mut User, call: &Call) {
    if let Some(enable) = call.params.0.get("enable").and_then(Value::as_bool) {
        user.enable = enable;
    }
    if let Some(expire) = call.params.int("expire").and_then(|time| u64::try_from(time).ok()) {
        user.expire = expire;
    }
    for name in TEXT_FIELDS {
        if let Some(text) = call.params.text(name) {
            user.texts.insert(name.to_owned(), text);
        }
    }
}

fn change_groups(state: &mut State, userid: &str, call: &Call, replace: bool) {
    let Some(wanted) = call.params.text("groups") else { return };
    let wanted: BTreeSet<&str> = split_list(&wanted).collect();
    for (name, group) in &mut state.groups {
        if wanted.contains(name.as_str()) {
            group.users.insert(userid.to_owned());
        } else if replace {
            group.users.remove(userid);
        }
    }
}

/// The privileges on any path, by area: the web interface shows or hides parts by them.
fn capabilities(state: &State, caller: &Caller) -> Value {
    const AREAS: [(&str, &[&str]); 7] = [
        ("vms", &["VM.", "Permissions.Modify"]),
        ("access", &["User.", "Group.", "Permissions.Modify"]),
        ("storage", &["Datastore.", "Permissions.Modify"]),
        ("nodes", &["Sys.", "Permissions.Modify"]),
        ("sdn", &["SDN.", "Permissions.Modify"]),
        ("dc", &["Sys.Audit", "Sys.Modify"]),
        ("mapping", &["Mapping.", "Permissions.Modify"]),
    ];
    let mut paths: BTreeSet<String> = state.acl.keys().cloned().collect();
    let known = ["/", "/nodes", "/access/groups", "/vms", "/storage", "/sdn", "/mapping"];
    paths.extend(known.into_iter().map(str::to_owned));
    let held: BTreeSet<String> =
        paths.iter().flat_map(|path| state.privileges(caller, path).into_keys()).collect();
    let area = |(name, prefixes): (&str, &[&str])| {
        let mine = held.iter().filter(|one| prefixes.iter().any(|prefix| one.starts_with(prefix)));
        let shown: Map<String, Value> = mine.map(|one| (one.clone(), 1.into())).collect();
        (name.to_owned(), Value::Object(shown))
    };
    Value::Object(AREAS.into_iter().map(area).collect())
}
