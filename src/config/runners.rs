//! Sources against templates: faults where a source would start runners in guests that cannot run
//! them, and warnings of labels that its runners cannot have.

use std::collections::BTreeMap;

use drover_ci::gitea::Dialect;
use drover_ci::github::Registration;
use drover_ci::{SourceConnection, System};
use drover_model::demand::spec::SourceSpec;
use drover_model::os::Os;
use drover_model::spec::{LabelMapping, Mode, TemplateSpec};

use super::context::Context;
use super::demand::CheckedDemand;
use super::template::CheckedTemplate;

/// Checks every source with every template that it can use.
pub(super) fn check(
    templates: &BTreeMap<String, CheckedTemplate>,
    mappings: &[LabelMapping],
    demand: &CheckedDemand,
    cx: &mut Context<'_>,
) {
    for template in templates.values() {
        for (source, connection) in demand.sources.values() {
            let used = || template.specs.iter().filter(|spec| serves(spec, mappings, source));
            let id = &source.id;
            if let Some((why, help)) = lacks_windows(connection)
                && used().any(|spec| spec.os.is_windows())
            {
                let message = format!("source `{id}` would start runners in its guests: {why}");
                let help = format!("{help}, or give the source `labels` that this template lacks");
                cx.faults.push(template.layer.fault("osType", message).help(help));
            }
            let mut labels = used().flat_map(|spec| asked(spec, mappings, source));
            if let Some(message) = labels.find_map(|label| source.bars(label)) {
                let help = "jobs that want it get no agent: rename the label, or give the source a \
                            `runnerCommand`, or `labels` without it";
                cx.warnings.push(template.layer.fault("labelString", message).help(help));
            }
            if used().any(|spec| spec.places() > 1 && shares_directory(connection, spec.os)) {
                let message = format!(
                    "source `{id}` would start several runners of a guest in one directory, where \
                     each overwrites the login of the others"
                );
                let help = "set it to 1, give the source a `runnerCommand` that makes a \
                            directory for each, or `labels` that this template lacks";
                cx.faults.push(template.layer.fault("numExecutors", message).help(help));
            }
        }
    }
}

/// Whether a template can get a job of a source.
fn serves(spec: &TemplateSpec, mappings: &[LabelMapping], source: &SourceSpec) -> bool {
    asked(spec, mappings, source).next().is_some() || spec.mode == Mode::Normal
}

/// The labels of a template that a source may ask for.
fn asked<'a>(
    spec: &'a TemplateSpec,
    mappings: &'a [LabelMapping],
    source: &'a SourceSpec,
) -> impl Iterator<Item = &'a String> {
    let mapped = mappings.iter().filter(move |mapping| mapping.templates.contains(&spec.id));
    let carried = spec.labels.iter().chain(mapped.flat_map(|mapping| &mapping.labels));
    carried.filter(move |label| {
        source.labels.as_ref().is_none_or(|labels| labels.contains(label.as_str()))
    })
}

/// Why a source's runners do not run in Windows, and what to do.
fn lacks_windows(connection: &SourceConnection) -> Option<(&'static str, &'static str)> {
    match &connection.system {
        System::Gitea(settings) => match (settings.dialect, &connection.command) {
            (Dialect::Forgejo, None) => Some((
                "forgejo-runner does not exist for Windows",
                "give the source a `runnerCommand`",
            )),
            (Dialect::Forgejo, Some(_)) | (Dialect::Gitea, _) => None,
        },
        System::GitHub(settings) => match settings.registration {
            Registration::Token => Some((
                "with `registration: token` a Linux script starts them",
                "set its `registration` to jit",
            )),
            Registration::Jit => None,
        },
        System::GitLab(_) | System::Woodpecker(_) | System::Jenkins(_) => None,
    }
}

/// Whether all runners of a source start in one directory of their guest. A GitHub runner with a
/// just-in-time configuration has a copy of the directory in Linux.
fn shares_directory(connection: &SourceConnection, os: Os) -> bool {
    match &connection.system {
        System::GitHub(settings) => {
            let has_copy = settings.registration == Registration::Jit && !os.is_windows();
            connection.command.is_none() && !has_copy
        }
        System::Gitea(_) | System::GitLab(_) | System::Woodpecker(_) | System::Jenkins(_) => false,
    }
}
