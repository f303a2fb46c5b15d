//! `/access/acl`, `/access/permissions` and `/access/roles`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::privileges::Privileges;
use super::{Access, failed};
use crate::api::format::split_list;
use crate::api::permission::normalize_path;
use crate::call::{Answer, ApiError, Call, Caller, Outcome};

impl Access {
    pub(super) fn serve_acl(&self, call: &Call) -> Outcome {
        match (call.method, call.route) {
            ("GET", "/access/acl") => Ok(Answer::new(self.entries(&call.caller))),
            ("PUT", "/access/acl") => self.change_entries(call),
            ("GET", "/access/permissions") => self.permissions(call),
            ("GET", "/access/roles") => Ok(Answer::new(self.roles())),
            ("GET", _) => self.role(call),
            ("POST", _) => self.create_role(call),
            ("PUT", _) => self.update_role(call),
            _ => self.delete_role(call),
        }
    }

    fn entries(&self, caller: &Caller) -> Value {
        let audit = self.require(caller, "/access", &["Sys.Audit"]).is_ok();
        let mut list = Vec::new();
        let acl = self.state().acl.clone();
        for (path, subjects) in acl {
            if !audit && self.require_modify(caller, &path).is_err() {
                continue;
            }
            for (subject, roles) in subjects {
                let (kind, name) = match subject.strip_prefix('@') {
                    Some(group) => ("group", group),
                    None if subject.contains('!') => ("token", subject.as_str()),
                    None => ("user", subject.as_str()),
                };
                list.extend(roles.iter().map(|(role, propagate)| {
                    json!({"path": path, "ugid": name, "type": kind, "roleid": role,
                        "propagate": u8::from(*propagate)})
                }));
            }
        }
        Value::Array(list)
    }

    fn change_entries(&self, call: &Call) -> Outcome {
        let text = |name: &str| call.params.text(name).unwrap_or_default();
        let path = normalize_path(&text("path"));
        let removing = call.params.flag("delete");
        if !removing && !is_acl_path(&path) {
            let refusal = format!("invalid ACL path '{}'", text("path"));
            return Err(ApiError::parameter("path", refusal));
        }
        let propagate = call.params.0.get("propagate").and_then(Value::as_bool).unwrap_or(true);
        let mut subjects: Vec<String> = split_list(&text("users")).map(str::to_owned).collect();
        subjects.extend(split_list(&text("tokens")).map(str::to_owned));
        subjects.extend(split_list(&text("groups")).map(|group| format!("@{group}")));
        if subjects.is_empty() {
            let refusal = "either 'users', 'groups' or 'tokens' is required.";
            return Err(ApiError::parameter("users", refusal));
        }
        let mut state = self.state();
        for role in split_list(&text("roles")) {
            if !state.roles.contains_key(role) {
                return Err(failed("ACL update", &format!("role '{role}' does not exist")));
            }
            for subject in &subjects {
                if removing {
                    state.revoke(&path, subject, role);
                    continue;
                }
                if let Some(missing) = missing_subject(&state, subject) {
                    return Err(failed("ACL update", &missing));
                }
                state.grant(&path, subject, role, propagate);
            }
        }
        Ok(Answer::null())
    }

    fn permissions(&self, call: &Call) -> Outcome {
        let asked = call.params.text("userid");
        let about = match asked {
            Some(userid) if userid != call.caller.full_id() => {
                self.require(&call.caller, "/access", &["Sys.Audit"])?;
                let (userid, token) = match userid.split_once('!') {
                    Some((userid, token)) => (userid.to_owned(), Some(token.to_owned())),
                    None => (userid, None),
                };
                Caller { userid, token }
            }
            Some(_) | None => call.caller.clone(),
        };
        let show = |privileges: Privileges| -> Value {
            privileges.into_iter().map(|(name, below)| (name, json!(u8::from(below)))).collect()
        };
        let state = self.state();
        let shown: serde_json::Map<String, Value> = match call.params.text("path") {
            Some(path) => {
                let path = normalize_path(&path);
                let privileges = state.privileges(&about, &path);
                [(path, show(privileges))].into_iter().collect()
            }
            None => state.effective(&about).into_iter().map(|(path, p)| (path, show(p))).collect(),
        };
        Ok(Answer::new(Value::Object(shown)))
    }

    fn roles(&self) -> Value {
        let state = self.state();
        let line = |(name, privileges): (&String, &BTreeSet<String>)| {
            let names: Vec<&str> = privileges.iter().map(String::as_str).collect();
            let special = u8::from(state.built_in_roles.contains(name));
            json!({"roleid": name, "privs": names.join(","), "special": special})
        };
        state.roles.iter().map(line).collect()
    }

    fn role(&self, call: &Call) -> Outcome {
        let name = call.params.text("roleid").unwrap_or_default();
        let state = self.state();
        let privileges = state.roles.get(&name);
        let privileges =
            privileges.ok_or_else(|| ApiError::failed(format!("role '{name}' does not exist")))?;
        Ok(Answer::new(privileges.iter().map(|name| (name.clone(), json!(1))).collect()))
    }

    fn create_role(&self, call: &Call) -> Outcome {
        let name = call.params.text("roleid").unwrap_or_default();
        if name.starts_with("PVE") {
            let refusal = "role ID starts with the (reserved) prefix 'PVE'";
            return Err(ApiError::parameter("roleid", refusal));
        }
        let mut state = self.state();
        if state.roles.contains_key(&name) {
            return Err(failed("create role", &format!("role '{name}' already exists")));
        }
        let privileges = call.params.text("privs").unwrap_or_default();
        state.roles.insert(name, split_list(&privileges).map(str::to_owned).collect());
        Ok(Answer::null())
    }

    fn update_role(&self, call: &Call) -> Outcome {
        let name = call.params.text("roleid").unwrap_or_default();
        let mut state = self.state();
        if state.built_in_roles.contains(&name) {
            let refusal = format!("auto-generated role '{name}' cannot be modified");
            return Err(failed("update role", &refusal));
        }
        let Some(role) = state.roles.get_mut(&name) else {
            return Err(failed("update role", &format!("role '{name}' does not exist")));
        };
        if !call.params.flag("append") {
            role.clear();
        }
        let privileges = call.params.text("privs").unwrap_or_default();
        role.extend(split_list(&privileges).map(str::to_owned));
        Ok(Answer::null())
    }

    fn delete_role(&self, call: &Call) -> Outcome {
        let name = call.params.text("roleid").unwrap_or_default();
        let mut state = self.state();
        if state.built_in_roles.contains(&name) {
            let refusal = format!("auto-generated role '{name}' cannot be deleted");
            return Err(failed("delete role", &refusal));
        }
        if state.roles.remove(&name).is_none() {
            return Err(failed("delete role", &format!("role '{name}' does not exist")));
        }
        Ok(Answer::null())
    }
}

fn missing_subject(state: &super::state::State, subject: &str) -> Option<String> {
    if let Some(group) = subject.strip_prefix('@') {
        let missing = !state.groups.contains_key(group);
        return missing.then(|| format!("no such group '{group}'"));
    }
    let (userid, token) = match subject.split_once('!') {
        Some((userid, token)) => (userid, Some(token)),
        None => (subject, None),
    };
    let Some(user) = state.users.get(userid) else {
        return Some(format!("no such user '{userid}'"));
    };
    let token = token.filter(|token| !user.tokens.contains_key(*token))?;
    Some(format!("no such token '{token}' for user '{userid}'"))
}

/// Whether an entry can have this path.
fn is_acl_path(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts.as_slice() {
        [""] | ["access" | "nodes" | "pool" | "sdn" | "storage" | "vms" | "mapping"] => true,
        ["access", "groups" | "realm"] | ["access", "groups" | "realm", _] => true,
        ["nodes" | "storage", _] => true,
        ["pool", levels @ ..] => levels.len() <= 3,
        ["sdn", "zones" | "fabrics"] | ["sdn", "zones", _] => true,
        ["sdn", "zones", _, _] | ["sdn", "zones", _, _, _] => true,
        ["vms", vmid] => vmid.parse::<u32>().is_ok_and(|vmid| vmid >= 100),
        ["mapping", "dir" | "pci" | "usb" | "notifications"] => true,
        ["mapping", "dir" | "pci" | "usb" | "notifications", _] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_possible_only_on_known_paths() {
        for good in ["/", "/vms", "/vms/100", "/pool/a/b/c", "/sdn/zones/localnetwork/vmbr0"] {
            assert!(is_acl_path(good), "{good}");
        }
        for bad in ["/nope", "/vms/99", "/vms/x", "/pool/a/b/c/d", "/access/nope"] {
            assert!(!is_acl_path(bad), "{bad}");
        }
    }
}
