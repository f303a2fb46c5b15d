//! Who claims are about.

use serde_json::Value;

use crate::discovery::{bounded, is_odd};
use crate::fault::Fault;
use crate::token::Claims;

/// The longest name of a person, in letters.
const NAME_CHARS_MAX: usize = 100;
/// The longest name of a group, in bytes, and how many of one person are looked at.
const GROUP_BYTES_MAX: usize = 256;
const GROUPS_MAX: usize = 2000;

/// Who logged in, as the provider says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    pub name: String,
    /// Their groups; none where the claims say nothing of groups.
    pub groups: Option<Vec<String>>,
}

/// The value of a claim: by its name, else by a path with dots.
pub(crate) fn claim<'a>(claims: &'a Claims, path: &str) -> Option<&'a Value> {
    let found = claims.get(path).or_else(|| {
        let mut steps = path.split('.');
        let first = claims.get(steps.next()?)?;
        steps.try_fold(first, |within, step| within.get(step))
    });
    found.filter(|value| !value.is_null())
}

/// The name of a person.
pub(crate) fn name(claims: &Claims, path: &str) -> Result<String, Fault> {
    let Some(text) = claim(claims, path).and_then(Value::as_str) else {
        let has: Vec<_> = claims.keys().map(String::as_str).collect();
        return Err(Fault::NoUser { claim: path.to_owned(), has: bounded(&has.join(", ")) });
    };
    let wrong = |why| Err(Fault::User { claim: path.to_owned(), why });
    if path == "email" && claims.get("email_verified") == Some(&Value::Bool(false)) {
        return wrong("the provider did not verify the address");
    }
    let text = text.trim();
    if text.is_empty() {
        return wrong("it is blank");
    }
    if text.chars().nth(NAME_CHARS_MAX).is_some() {
        return wrong("it is too long");
    }
    if text.chars().any(is_odd) {
        return wrong("it has letters that no line shows");
    }
    Ok(text.to_owned())
}

/// The groups of a person; none where the claims say nothing of them.
pub(crate) fn groups(claims: &Claims, path: &str) -> Result<Option<Vec<String>>, Fault> {
    let wrong = |what| Err(Fault::Groups { claim: path.to_owned(), what });
    let all: Vec<&str> = match claim(claims, path) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(all)) => match all.iter().map(Value::as_str).collect() {
            Some(all) => all,
            None => return wrong("a list of something else than texts"),
        },
        Some(Value::Bool(_)) => return wrong("true or false"),
        Some(Value::Number(_)) => return wrong("a number"),
        Some(Value::Object(_)) => return wrong("a mapping"),
    };
    let fits = |group: &&str| !group.is_empty() && group.len() <= GROUP_BYTES_MAX;
    let all = all.into_iter().filter(fits).take(GROUPS_MAX).map(str::to_owned);
    Ok(Some(all.collect()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use serde_json::json;

    use super::*;

    fn claims(value: Value) -> Claims {
        value.as_object().unwrap().clone()
    }

    // Invariant: a name is one that records can show, and groups are a list of texts or nothing.

    #[test]
    fn a_person_is_who_the_claim_names() {
        let of = |value: Value, path| name(&claims(value), path).map_err(|fault| fault.to_string());
        assert_eq!(
            of(json!({"preferred_username": " ann "}), "preferred_username").unwrap(),
            "ann"
        );
        let mail = |verified| json!({"email": "ann@example.com", "email_verified": verified});
        assert!(of(mail(json!(true)), "email").is_ok());
        assert!(of(mail(json!(false)), "email").unwrap_err().contains("did not verify"));
        for wrong in [json!(""), json!("a\u{202e}b"), json!("a\nb"), json!("x".repeat(101))] {
            assert!(of(json!({ "sub": wrong }), "sub").unwrap_err().contains("no name"), "{wrong}");
        }
        for missing in [json!({"nickname": "ann"}), json!({"nickname": "ann", "sub": 5})] {
            assert!(of(missing, "sub").unwrap_err().contains("but nickname"));
        }
    }

    #[test]
    fn groups_are_found_by_name_or_path() {
        let of = |value: Value, path| groups(&claims(value), path);
        let some = |all: &[&str]| Ok(Some(all.iter().map(|one| (*one).to_owned()).collect()));
        assert_eq!(of(json!({"groups": ["/ci", "b"]}), "groups"), some(&["/ci", "b"]));
        assert_eq!(of(json!({"groups": "ci"}), "groups"), some(&["ci"]));
        let nested = json!({"realm_access": {"roles": ["ci"]}, "https://a.b/groups": ["x"]});
        assert_eq!(of(nested.clone(), "realm_access.roles"), some(&["ci"]));
        assert_eq!(of(nested.clone(), "https://a.b/groups"), some(&["x"]));
        assert_eq!(of(nested, "groups"), Ok(None));
        assert_eq!(of(json!({"groups": null}), "groups"), Ok(None));
        for wrong in [json!(5), json!(true), json!({}), json!([1]), json!([["ci"]])] {
            assert!(of(json!({ "groups": wrong }), "groups").is_err());
        }
        let long = "x".repeat(257);
        assert_eq!(of(json!({"groups": [long, "", "ci"]}), "groups"), some(&["ci"]));
    }
}
