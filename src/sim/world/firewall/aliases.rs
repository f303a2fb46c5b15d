//! Aliases of addresses; their names are case-insensitive (pve-firewall, API2/Firewall/Aliases.pm).

use std::collections::BTreeMap;

use super::super::conf::Config;
use super::super::context::CallContext;
use super::sets::entries_with_digest;
use super::{digest_of_all, json_fields};
use crate::call::{Answer, ApiError, Outcome};

type Aliases = BTreeMap<String, Config>;

/// Serves a call on the aliases; none for unknown routes.
pub(crate) fn serve(ctx: &CallContext, rest: &str, aliases: &mut Aliases) -> Option<Outcome> {
    let outcome = match (ctx.call.method, rest) {
        ("GET", "aliases") => {
            let entries: Vec<Config> = aliases.values().cloned().collect();
            Ok(Answer::new(entries_with_digest(&entries)))
        }
        ("POST", "aliases") => add(ctx, aliases),
        ("GET", "aliases/{name}") => match aliases.get(&alias_key(ctx)) {
            Some(alias) => Ok(Answer::new(json_fields(alias).into())),
            None => Err(unknown_alias()),
        },
        ("PUT", "aliases/{name}") => change(ctx, aliases),
        ("DELETE", "aliases/{name}") => check_aliases_digest(ctx, aliases).map(|()| {
            aliases.remove(&alias_key(ctx));
            Answer::null()
        }),
        _ => return None,
    };
    Some(outcome)
}

fn alias_key(ctx: &CallContext) -> String {
    ctx.text("name").unwrap_or_default().to_lowercase()
}

fn unknown_alias() -> ApiError {
    ApiError::parameter("name", "no such alias")
}

fn alias_exists(name: &str) -> ApiError {
    ApiError::parameter("name", format!("alias '{name}' already exists"))
}

fn check_aliases_digest(ctx: &CallContext, aliases: &Aliases) -> Result<(), ApiError> {
    super::check_digest(ctx, &digest_of_all(aliases.values()))
}

fn alias_from(ctx: &CallContext, name: String) -> Config {
    let comment = ctx.text("comment").filter(|comment| !comment.is_empty());
    let fields = [("name", Some(name)), ("cidr", ctx.text("cidr")), ("comment", comment)];
    fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

fn add(ctx: &CallContext, aliases: &mut Aliases) -> Outcome {
    let name = ctx.text("name").unwrap_or_default();
    if aliases.contains_key(&alias_key(ctx)) {
        return Err(alias_exists(&name));
    }
    aliases.insert(alias_key(ctx), alias_from(ctx, name));
    Ok(Answer::null())
}

fn change(ctx: &CallContext, aliases: &mut Aliases) -> Outcome {
    check_aliases_digest(ctx, aliases)?;
    let old = alias_key(ctx);
    if !aliases.contains_key(&old) {
        return Err(unknown_alias());
    }
    let name = ctx.text("rename").or_else(|| ctx.text("name")).unwrap_or_default();
    let new = name.to_lowercase();
    if new != old && aliases.contains_key(&new) {
        return Err(alias_exists(&name));
    }
    aliases.remove(&old);
    aliases.insert(new, alias_from(ctx, name));
    Ok(Answer::null())
}
