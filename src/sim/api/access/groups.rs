//! `/access/groups`.

use serde_json::{Value, json};

use super::state::Group;
use super::{Access, failed};
use crate::call::{Answer, ApiError, Call, Caller, Outcome};

impl Access {
    pub(super) fn serve_groups(&self, call: &Call) -> Outcome {
        let name = call.params.text("groupid").unwrap_or_default();
        match (call.method, call.route) {
            ("GET", "/access/groups") => Ok(Answer::new(self.groups(&call.caller))),
            ("GET", _) => self.group(&name),
            ("POST", _) => self.create_group(&name, call),
            ("PUT", _) => self.update_group(&name, call),
            _ => self.delete_group(&name),
        }
    }

    fn groups(&self, caller: &Caller) -> Value {
        let names: Vec<String> = self.state().groups.keys().cloned().collect();
        let wanted = ["User.Modify", "Sys.Audit", "Group.Allocate"];
        let seen = |name: &String| {
            self.require_any(caller, &format!("/access/groups/{name}"), &wanted).is_ok()
        };
        let names: Vec<String> = names.into_iter().filter(seen).collect();
        let state = self.state();
        let line = |name: String| {
            let group = state.groups.get(&name);
            let users: Vec<&str> =
                group.iter().flat_map(|group| &group.users).map(String::as_str).collect();
            let mut line = json!({"groupid": name, "users": users.join(",")});
            if let Some(comment) = group.and_then(|group| group.comment.clone()) {
                line["comment"] = comment.into();
            }
            line
        };
        names.into_iter().map(line).collect()
    }

    fn group(&self, name: &str) -> Outcome {
        let state = self.state();
        let group = state
            .groups
            .get(name)
            .ok_or_else(|| ApiError::failed(format!("group '{name}' does not exist")))?;
        let mut answer = json!({"members": group.users});
        if let Some(comment) = &group.comment {
            answer["comment"] = comment.clone().into();
        }
        Ok(Answer::new(answer))
    }

    fn create_group(&self, name: &str, call: &Call) -> Outcome {
        let mut state = self.state();
        if state.groups.contains_key(name) {
            return Err(failed("create group", &format!("group '{name}' already exists")));
        }
        let group = Group { comment: call.params.text("comment"), ..Group::default() };
        state.groups.insert(name.to_owned(), group);
        Ok(Answer::null())
    }

    fn update_group(&self, name: &str, call: &Call) -> Outcome {
        let mut state = self.state();
        let Some(group) = state.groups.get_mut(name) else {
            return Err(failed("update group", &format!("group '{name}' does not exist")));
        };
        group.comment = call.params.text("comment");
        Ok(Answer::null())
    }

    fn delete_group(&self, name: &str) -> Outcome {
        let mut state = self.state();
        if state.groups.remove(name).is_none() {
            return Err(failed("delete group", &format!("group '{name}' does not exist")));
        }
        let subject = format!("@{name}");
        state.remove_acl_subjects(|other| other == subject);
        Ok(Answer::null())
    }
}
