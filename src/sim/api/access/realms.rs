//! `/access/domains`: the configuration of realms (pve-access-control, API2/Domains.pm). The
//! simulator asks no directory, so that users of added realms cannot log in.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Access, failed};
use crate::api::format::split_list;
use crate::api::typed;
use crate::call::{Answer, ApiError, Call, Outcome};
use crate::section_keys::{Keys, digest};

pub(crate) type Realm = BTreeMap<String, String>;

/// Parameters of calls that are no options of a realm.
const NOT_OPTIONS: [&str; 5] = ["realm", "delete", "digest", "check-connection", "password"];

/// The built-in realms and their comments.
const BUILT_IN: [(&str, &str); 2] =
    [("pam", "Linux PAM standard authentication"), ("pve", "Proxmox VE authentication server")];

pub(crate) fn built_in() -> BTreeMap<String, Realm> {
    BUILT_IN
        .iter()
        .filter_map(|(name, _)| Some(((*name).to_owned(), built_in_realm(name)?)))
        .collect()
}

/// A built-in realm with its default options.
fn built_in_realm(name: &str) -> Option<Realm> {
    let (name, comment) = BUILT_IN.iter().find(|(own, _)| *own == name)?;
    let pairs = [("type", *name), ("comment", *comment)];
    Some(pairs.into_iter().map(|(key, text)| (key.to_owned(), text.to_owned())).collect())
}

/// The options of realms of this type (pve-access-control, Auth/*.pm, options).
fn keys(kind: &str) -> Option<Keys> {
    const COMMON_OPTIONS: &[&str] = &["comment", "default"];
    const DIRECTORY_OPTIONS: &[&str] = &[
        "base_dn",
        "bind_dn",
        "capath",
        "case-sensitive",
        "cert",
        "certkey",
        "filter",
        "group_classes",
        "group_dn",
        "group_filter",
        "group_name_attr",
        "mode",
        "port",
        "secure",
        "server2",
        "sslversion",
        "sync-defaults-options",
        "sync_attributes",
        "tfa",
        "user_attr",
        "user_classes",
        "verify",
    ];
    let (required, more, fixed): (
        &'static [&'static str],
        &'static [&'static str],
        &'static [&'static str],
    ) = match kind {
        "pam" | "pve" => (&[], &["tfa"], &[]),
        "ldap" => (&["base_dn", "server1", "user_attr"], DIRECTORY_OPTIONS, &[]),
        "ad" => (&["domain", "server1"], DIRECTORY_OPTIONS, &[]),
        "openid" => (
            &["client-id", "issuer-url"],
            &[
                "acr-values",
                "audiences",
                "autocreate",
                "client-key",
                "groups-autocreate",
                "groups-claim",
                "groups-overwrite",
                "prompt",
                "query-userinfo",
                "scopes",
                "username-claim",
            ],
            &["username-claim"],
        ),
        _ => return None,
    };
    Some(Keys { required, optional: COMMON_OPTIONS, more, fixed })
}

fn kind_of(realm: &Realm) -> &str {
    realm.get("type").map(String::as_str).unwrap_or_default()
}

fn is_default(realm: &Realm) -> bool {
    realm.get("default").is_some_and(|default| default == "1")
}

/// The options that a call sets.
fn options_of(call: &Call) -> Realm {
    let keys = call.params.0.keys().filter(|key| !NOT_OPTIONS.contains(&key.as_str()));
    keys.filter_map(|key| Some((key.clone(), call.params.text(key)?))).collect()
}

/// The digest of the file with all realms.
fn digest_of(realms: &BTreeMap<String, Realm>) -> String {
    let lines = realms.iter().map(|(name, realm)| (name.clone(), format!("{realm:?}")));
    digest(&lines.collect::<Realm>())
}

/// Refuses `check-connection`: the simulator has no directory.
fn refuse_connection_check(call: &Call, kind: &str, what: &str) -> Result<(), ApiError> {
    const PARAMETER: &str = "check-connection";
    if !call.params.0.contains_key(PARAMETER) {
        return Ok(());
    }
    if !matches!(kind, "ad" | "ldap") {
        let text = "parameter can only be set for realms of type 'ldap' or 'ad'";
        return Err(failed(what, &format!("'{PARAMETER}' {text}")));
    }
    if call.params.flag(PARAMETER) {
        let (method, route) = (call.method, call.route);
        let text = format!("drover sim does not serve '{PARAMETER}' of {method} {route}");
        return Err(ApiError::with_status(501, text));
    }
    Ok(())
}

impl Access {
    pub(super) fn serve_realms(&self, call: &Call) -> Outcome {
        let name = call.params.text("realm").unwrap_or_default();
        match (call.method, call.route) {
            ("GET", "/access/domains") => Ok(Answer::new(self.realms())),
            ("GET", _) => self.realm(&name),
            ("POST", _) => self.add_realm(name, call),
            ("PUT", _) => self.change_realm(&name, call),
            _ => self.remove_realm(&name),
        }
    }

    fn realms(&self) -> Value {
        let state = self.state();
        let line = |(name, realm): (&String, &Realm)| {
            let mut line = json!({ "realm": name, "type": kind_of(realm) });
            if let Some(comment) = realm.get("comment").filter(|comment| !comment.is_empty()) {
                line["comment"] = comment.clone().into();
            }
            if is_default(realm) {
                line["default"] = 1.into();
            }
            let tfa = realm.get("tfa").map(String::as_str).unwrap_or_default();
            if let Some(kind) = tfa.split(',').find_map(|part| part.strip_prefix("type=")) {
                line["tfa"] = kind.into();
            }
            line
        };
        state.realms.iter().map(line).collect()
    }

    fn realm(&self, name: &str) -> Outcome {
        let state = self.state();
        let Some(realm) = state.realms.get(name) else {
            return Err(ApiError::failed(format!("domain '{name}' does not exist")));
        };
        let value = |key: &str, text: &str| typed(|path| path == "/access/domains", key, text);
        let mut fields: Map<String, Value> =
            realm.iter().map(|(key, text)| (key.clone(), value(key, text))).collect();
        fields.insert("digest".into(), digest_of(&state.realms).into());
        if name == "pam" {
            fields.insert("plugin".into(), "PVE::Auth::PAM".into());
        }
        Ok(Answer::new(fields.into()))
    }

    fn add_realm(&self, name: String, call: &Call) -> Outcome {
        const ACTION: &str = "add auth server";
        let set = options_of(call);
        let kind = kind_of(&set);
        let mut state = self.state();
        let taken = state.realms.contains_key(&name);
        let text = match (taken, kind) {
            (true, _) => Some(format!("domain '{name}' already exists")),
            (false, "pam" | "pve") => Some(format!("unable to create builtin type '{kind}'")),
            (false, _) => None,
        };
        if let Some(text) = text {
            return Err(failed(ACTION, &text));
        }
        refuse_connection_check(call, kind, ACTION)?;
        let keys = keys(kind).ok_or_else(|| format!("unknown section type '{kind}'"));
        keys.and_then(|keys| keys.check_new(&set)).map_err(|text| failed(ACTION, &text))?;
        if is_default(&set) {
            for other in state.realms.values_mut() {
                other.remove("default");
            }
        }
        state.realms.insert(name, set);
        Ok(Answer::null())
    }

    fn change_realm(&self, name: &str, call: &Call) -> Outcome {
        const ACTION: &str = "update auth server";
        let fail = |text: String| failed(ACTION, &text);
        let set = options_of(call);
        let mut state = self.state();
        if call.params.text("digest").is_some_and(|wanted| wanted != digest_of(&state.realms)) {
            let text = "detected modified configuration - file changed by other user? Try again.";
            return Err(fail(text.into()));
        }
        let Some(mut realm) = state.realms.get(name).cloned() else {
            return Err(fail(format!("domain '{name}' does not exist")));
        };
        let kind = kind_of(&realm).to_owned();
        refuse_connection_check(call, &kind, ACTION)?;
        let deleted = call.params.text("delete").unwrap_or_default();
        if deleted.is_empty() && set.is_empty() && !call.params.0.contains_key("password") {
            return Err(fail("no options specified".into()));
        }
        let keys = keys(&kind).ok_or_else(|| format!("unknown section type '{kind}'"));
        keys.and_then(|keys| keys.check_change(&set)).map_err(fail)?;
        // Proxmox does not check here whether the realm requires a deleted option.
        for key in split_list(&deleted) {
            realm.remove(key);
        }
        if is_default(&set) {
            for other in state.realms.values_mut() {
                other.remove("default");
            }
        }
        realm.extend(set);
        for (key, text) in built_in_realm(name).into_iter().flatten() {
            realm.entry(key).or_insert(text);
        }
        state.realms.insert(name.to_owned(), realm);
        Ok(Answer::null())
    }

    /// Removes a realm; a built-in one gets its default options.
    fn remove_realm(&self, name: &str) -> Outcome {
        let mut state = self.state();
        if state.realms.remove(name).is_none() {
            let text = format!("authentication domain '{name}' does not exist");
            return Err(failed("delete auth server", &text));
        }
        if let Some(realm) = built_in_realm(name) {
            state.realms.insert(name.to_owned(), realm);
        }
        Ok(Answer::null())
    }
}
