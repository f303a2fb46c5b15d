//! Settings of a GitLab source.

use std::time::Duration;

use drover_ci::System;
use drover_ci::gitlab::{Scope, Settings};

use super::{Behaviour, SourceInputs};

const FORMS: &str = "`server`, `group/ID-OR-PATH` or `project/ID-OR-PATH`";

pub(super) fn behaviour(inputs: &mut SourceInputs<'_, '_>) -> Option<Behaviour> {
    let token = inputs.token();
    let scope = inputs.scope("server", scope, FORMS);
    let raw = inputs.raw;
    let settings = Settings {
        scope: scope?,
        token: token?,
        run_untagged: raw.run_untagged.unwrap_or_default(),
        job: Duration::from_secs(raw.job_timeout_minutes * 60),
        idle: Duration::from_secs(raw.idle_timeout_sec),
    };
    // The runner ends after one job, but a hostile guest could get more jobs by its token.
    Some(Behaviour { early: true, ..Behaviour::of_single_jobs(System::GitLab(settings)) })
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
