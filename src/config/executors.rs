//! Templates whose agents take several jobs at once (`numExecutors`): a runner whose directory is one
//! for the whole guest cannot run there beside another.

use std::collections::BTreeMap;

use drover_ci::SourceConnection;
use drover_ci::System;
use drover_ci::github::Registration;
use drover_model::os::Os;
use drover_model::spec::LabelMapping;

use super::demand::CheckedDemand;
use super::fault::Fault;
use super::os;
use super::template::CheckedTemplate;

/// Faults of sources that would start several runners of a guest from one directory.
pub(super) fn sources(
    templates: &BTreeMap<String, CheckedTemplate>,
    mappings: &[LabelMapping],
    demand: &CheckedDemand,
    faults: &mut Vec<Fault>,
) {
    for template in templates.values() {
        for (source, connection) in demand.sources.values() {
            let mut specs = template.specs.iter().filter(|spec| spec.places() > 1);
            if specs.any(|spec| {
                shares_directory(connection, spec.os) && os::serves(spec, mappings, source)
            }) {
                let message = format!(
                    "source `{}` would start several runners of a guest from one directory, where \
                     each overwrites the login of the others",
                    source.id
                );
                let help = "set it to 1, give the source a `runnerCommand` that makes a directory for \
                            each, or `labels` that this template lacks";
                faults.push(template.layer.fault("numExecutors", message).help(help));
            }
        }
    }
}

/// Whether all runners of a source start from one directory of their guest. GitHub's with a
/// just-in-time configuration are given a copy of it each, where the guest is of Linux.
fn shares_directory(connection: &SourceConnection, os: Os) -> bool {
    match &connection.system {
        System::GitHub(settings) => {
            let has_copy = settings.registration == Registration::Jit && !os.is_windows();
            connection.command.is_none() && !has_copy
        }
        System::Gitea(_) | System::GitLab(_) | System::Woodpecker(_) | System::Jenkins(_) => false,
    }
}
