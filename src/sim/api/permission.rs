//! The permission expressions of the schema, and their evaluation (book: proxmox, section 4).

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::access::Access;
use super::format::split_list;
use crate::call::{ApiError, Caller};

/// Who may call a route.
#[derive(Debug)]
pub(crate) enum Permission {
    /// Anybody, without login.
    World,
    /// Any user; the code of the route checks more.
    Everyone,
    RootOnly,
    Check(Check),
}

#[derive(Debug)]
pub(crate) enum Check {
    /// Privileges on a path. The path is a template that the parameters fill.
    Perm {
        path: String,
        privileges: Vec<String>,
        /// Whether one of the privileges is enough.
        any: bool,
        /// A parameter without which the check fails.
        needs: Option<String>,
    },
    /// All must hold.
    And(Vec<Check>),
    /// One must hold.
    Or(Vec<Check>),
    /// The caller is the user in the parameters.
    SelfOnly,
    /// `Realm.AllocateUser` on the realm of the user in the parameters.
    Realm,
    /// One of the privileges on `/access/groups`, or on a group of the user in the parameters.
    Group {
        privileges: Vec<String>,
        /// Whether the call creates the user.
        create: bool,
    },
    /// The right to change the ACL of a path.
    Modify(String),
}

impl<'de> Deserialize<'de> for Permission {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if value["rootOnly"] == true {
            return Ok(Self::RootOnly);
        }
        match value["user"].as_str() {
            Some("world") => Ok(Self::World),
            Some(_) => Ok(Self::Everyone),
            None => parse(&value["check"]).map(Self::Check).ok_or_else(|| {
                serde::de::Error::custom(format!("unknown permission expression {value}"))
            }),
        }
    }
}

fn parse(value: &Value) -> Option<Check> {
    let items = value.as_array()?;
    let text = |index: usize| items.get(index)?.as_str();
    let texts = |index: usize| -> Option<Vec<String>> {
        let list = items.get(index)?.as_array()?;
        list.iter().map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let option = |name: &str| {
        let place = items.iter().position(|item| item == name)?;
        items.get(place + 1)
    };
    match text(0)? {
        "perm" => Some(Check::Perm {
            path: text(1)?.to_owned(),
            privileges: texts(2)?,
            any: option("any").is_some(),
            needs: option("require_param").and_then(Value::as_str).map(str::to_owned),
        }),
        "and" => items[1..].iter().map(parse).collect::<Option<_>>().map(Check::And),
        "or" => items[1..].iter().map(parse).collect::<Option<_>>().map(Check::Or),
        "userid-param" if text(1)? == "self" => Some(Check::SelfOnly),
        "userid-param" => Some(Check::Realm),
        "userid-group" => Some(Check::Group {
            privileges: texts(1)?,
            create: option("groups_param").is_some_and(|when| when == "create"),
        }),
        "perm-modify" => Some(Check::Modify(text(1)?.to_owned())),
        _ => None,
    }
}

impl Check {
    /// Evaluates the expression for a caller and the parameters of the call.
    ///
    /// # Errors
    /// The 403. It names the path and the privileges, but for `or`.
    pub(crate) fn evaluate(
        &self,
        access: &Access,
        caller: &Caller,
        params: &BTreeMap<String, String>,
    ) -> Result<(), ApiError> {
        let refuse = |good: bool| if good { Ok(()) } else { Err(ApiError::denied("")) };
        match self {
            Self::Perm { path, privileges, any, needs } => {
                if needs.as_ref().is_some_and(|name| !params.contains_key(name)) {
                    return Err(ApiError::denied(""));
                }
                let path = fill_template(path, params);
                let privileges: Vec<&str> = privileges.iter().map(String::as_str).collect();
                if *any {
                    access.require_any(caller, &path, &privileges)
                } else {
                    access.require(caller, &path, &privileges)
                }
            }
            Self::And(checks) => {
                checks.iter().try_for_each(|check| check.evaluate(access, caller, params))
            }
            Self::Or(checks) => {
                refuse(checks.iter().any(|check| check.evaluate(access, caller, params).is_ok()))
            }
            Self::SelfOnly => {
                let userid = params.get("userid").map_or("", String::as_str);
                refuse(access.user_exists(userid) && caller.full_id() == userid)
            }
            Self::Realm => {
                let userid = params.get("userid").map_or("", String::as_str);
                let realm = userid.rsplit_once('@').map_or("", |(_, realm)| realm);
                access.require(caller, &format!("/access/realm/{realm}"), &["Realm.AllocateUser"])
            }
            Self::Group { privileges, create } => {
                self.evaluate_group(access, caller, params, privileges, *create)
            }
            Self::Modify(path) => access.require_modify(caller, &fill_template(path, params)),
        }
    }

    fn evaluate_group(
        &self,
        access: &Access,
        caller: &Caller,
        params: &BTreeMap<String, String>,
        privileges: &[String],
        create: bool,
    ) -> Result<(), ApiError> {
        let userid = params.get("userid").map_or("", String::as_str);
        let privileges: Vec<&str> = privileges.iter().map(String::as_str).collect();
        if !create && !access.user_exists(userid) {
            return Err(ApiError::failed(format!("no such user ('{userid}')")));
        }
        let whole = access.require_any(caller, "/access/groups", &privileges);
        if whole.is_ok() {
            return Ok(());
        }
        let groups: Vec<String> = if create {
            split_list(params.get("groups").map_or("", String::as_str)).map(str::to_owned).collect()
        } else {
            access.groups_of(userid)
        };
        let allowed = |group: &String| {
            access.require_any(caller, &format!("/access/groups/{group}"), &privileges).is_ok()
        };
        let enough = if create {
            !groups.is_empty() && groups.iter().all(allowed)
        } else {
            groups.iter().any(allowed)
        };
        if enough { Ok(()) } else { whole }
    }
}

/// Fills a path template; a missing parameter leaves its component out.
fn fill_template(template: &str, params: &BTreeMap<String, String>) -> String {
    let parts = template.split('/').filter(|part| !part.is_empty()).map(|part| {
        match part.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some(name) => params.get(name).map_or("", String::as_str),
            None => part,
        }
    });
    normalize_path(&parts.collect::<Vec<_>>().join("/"))
}

/// A path of the ACL without doubled or trailing slashes.
pub(crate) fn normalize_path(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled_and_normalized() {
        let params = BTreeMap::from([("path".to_owned(), "//vms//100/".to_owned())]);
        assert_eq!(fill_template("{path}", &params), "/vms/100");
        assert_eq!(fill_template("/vms/{newid}", &params), "/vms");
        assert_eq!(fill_template("/", &params), "/");
    }
}
