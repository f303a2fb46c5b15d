//! Settings of a Gitea or Forgejo source.

use drover_ci::System;
use drover_ci::gitea::{Dialect, ENDS_OF_LABELS, Scope, Settings};

use super::names::{GITEA_OWNER, GITEA_REPOSITORY, Rule};
use super::{Behaviour, SourceInputs};

const FORMS: &str = "`server`, `org/NAME`, `user` or `repo/OWNER/NAME`";

pub(super) fn behaviour(dialect: Dialect, inputs: &mut SourceInputs<'_, '_>) -> Option<Behaviour> {
    let token = inputs.token();
    let scope = inputs.scope("server", scope, FORMS);
    let scope = scope.filter(|scope| inputs.are_names("scope", &names(scope)));
    let settings = Settings { dialect, scope: scope?, token: token? };
    let ends_of_labels = match inputs.raw.runner_command {
        Some(_) => &[],
        None => ENDS_OF_LABELS,
    };
    Some(Behaviour { ends_of_labels, ..Behaviour::of_single_jobs(System::Gitea(settings)) })
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
