//! What is configured of a Gitea or a Forgejo.

use drover_ci::System;
use drover_ci::gitea::{Dialect, Scope, Settings};

use super::names::{GITEA_OWNER, GITEA_REPOSITORY, Rule};
use super::{Ground, Manner};

const FORMS: &str = "`server`, `org/NAME`, `user` or `repo/OWNER/NAME`";

pub(super) fn manner(dialect: Dialect, ground: &mut Ground<'_, '_>) -> Option<Manner> {
    let token = ground.token();
    let scope = ground.scope("server", scope, FORMS);
    let scope = scope.filter(|scope| ground.are_names("scope", &names(scope)));
    let settings = Settings { dialect, scope: scope?, token: token? };
    Some(Manner::of_single_jobs(System::Gitea(settings)))
}

fn scope(parts: &[&str]) -> Option<Scope> {
    Some(match parts {
        ["server"] => Scope::Server,
        ["user"] => Scope::User,
        ["org", name] => Scope::Organisation((*name).to_owned()),
        ["repo", owner, name] => Scope::Repository((*owner).to_owned(), (*name).to_owned()),
        _ => return None,
    })
}

fn names(scope: &Scope) -> Vec<(&str, &'static Rule)> {
    match scope {
        Scope::Server | Scope::User => Vec::new(),
        Scope::Organisation(name) => vec![(name, &GITEA_OWNER)],
        Scope::Repository(owner, name) => vec![(owner, &GITEA_OWNER), (name, &GITEA_REPOSITORY)],
    }
}
