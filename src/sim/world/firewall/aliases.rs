//! Names for addresses, which have no case (pve-firewall, API2/Firewall/Aliases.pm).

use std::collections::BTreeMap;

use super::super::ask::Ask;
use super::super::conf::Config;
use super::sets::lines;
use super::{digest_of_all, shown};
use crate::call::{Answer, ApiError, Outcome};

type Aliases = BTreeMap<String, Config>;

/// Serves a call on the aliases; none for routes that are not served.
pub fn serve(ask: &Ask, rest: &str, aliases: &mut Aliases) -> Option<Outcome> {
    let outcome = match (ask.call.method, rest) {
        ("GET", "aliases") => {
            let entries: Vec<Config> = aliases.values().cloned().collect();
            Ok(Answer::new(lines(&entries)))
        }
        ("POST", "aliases") => add(ask, aliases),
        ("GET", "aliases/{name}") => match aliases.get(&key(ask)) {
            Some(alias) => Ok(Answer::new(shown(alias).into())),
            None => Err(missing()),
        },
        ("PUT", "aliases/{name}") => change(ask, aliases),
        ("DELETE", "aliases/{name}") => fresh(ask, aliases).map(|()| {
            aliases.remove(&key(ask));
            Answer::null()
        }),
        _ => return None,
    };
    Some(outcome)
}

fn key(ask: &Ask) -> String {
    ask.text("name").unwrap_or_default().to_lowercase()
}

fn missing() -> ApiError {
    ApiError::parameter("name", "no such alias")
}

fn taken(name: &str) -> ApiError {
    ApiError::parameter("name", format!("alias '{name}' already exists"))
}

fn fresh(ask: &Ask, aliases: &Aliases) -> Result<(), ApiError> {
    super::fresh(ask, &digest_of_all(aliases.values()))
}

fn alias(ask: &Ask, name: String) -> Config {
    let comment = ask.text("comment").filter(|comment| !comment.is_empty());
    let fields = [("name", Some(name)), ("cidr", ask.text("cidr")), ("comment", comment)];
    fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

fn add(ask: &Ask, aliases: &mut Aliases) -> Outcome {
    let name = ask.text("name").unwrap_or_default();
    if aliases.contains_key(&key(ask)) {
        return Err(taken(&name));
    }
    aliases.insert(key(ask), alias(ask, name));
    Ok(Answer::null())
}

fn change(ask: &Ask, aliases: &mut Aliases) -> Outcome {
    fresh(ask, aliases)?;
    let old = key(ask);
    if !aliases.contains_key(&old) {
        return Err(missing());
    }
    let name = ask.text("rename").or_else(|| ask.text("name")).unwrap_or_default();
    let new = name.to_lowercase();
    if new != old && aliases.contains_key(&new) {
        return Err(taken(&name));
    }
    aliases.remove(&old);
    aliases.insert(new, alias(ask, name));
    Ok(Answer::null())
}
