//! What is configured of a GitLab.

use std::time::Duration;

use drover_ci::System;
use drover_ci::gitlab::{Scope, Settings};

use super::{Ground, Manner};

const FORMS: &str = "`server`, `group/ID-OR-PATH` or `project/ID-OR-PATH`";

pub(super) fn manner(ground: &mut Ground<'_, '_>) -> Option<Manner> {
    let token = ground.token();
    let scope = ground.scope("server", scope, FORMS);
    let raw = ground.raw;
    let settings = Settings {
        scope: scope?,
        token: token?,
        run_untagged: raw.run_untagged.unwrap_or_default(),
        job: Duration::from_secs(raw.job_timeout_minutes * 60),
        idle: Duration::from_secs(raw.idle_timeout_sec),
    };
    // Its program ends after one job, but a guest that lies would be given more by its token.
    Some(Manner { early: true, ..Manner::of_single_jobs(System::GitLab(settings)) })
}

/// Paths have slashes of their own.
fn scope(parts: &[&str]) -> Option<Scope> {
    Some(match parts {
        ["server"] => Scope::Server,
        ["group", path @ ..] if !path.is_empty() => Scope::Group(path.join("/")),
        ["project", path @ ..] if !path.is_empty() => Scope::Project(path.join("/")),
        _ => return None,
    })
}
