//! What runs in a template's guests (`osType`). What a guest of Windows cannot have is a fault, so that
//! nobody waits for an agent that never gets ready.

use std::collections::{BTreeMap, BTreeSet};

use drover_ci::SourceConnection;
use drover_ci::System;
use drover_ci::gitea::Dialect;
use drover_ci::github::Registration;
use drover_model::demand::spec::SourceSpec;
use drover_model::os::{LoginShell, Os};
use drover_model::spec::{JavaDistribution, LabelMapping, Mode, TemplateSpec};
use drover_scripts::windows::{COMMAND_CHARS_MAX, has_drive};
use serde::Deserialize;
use serde_yaml::Value as Yaml;

use super::demand::CheckedDemand;
use super::fault::Fault;
use super::layer::Layer;
use super::template::CheckedTemplate;

/// What a template says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum OsType {
    Linux,
    Windows,
}

/// What else a template says that hangs on it.
pub(super) struct Wanted<'a> {
    pub os: OsType,
    pub shell: LoginShell,
    pub remote_fs: &'a str,
    pub java: JavaDistribution,
    /// Whether used guests go back to their memory.
    pub memory: bool,
    /// Whether SSH is closed off before an agent is destroyed.
    pub closes: bool,
}

/// Keys that only cloud-init reads, beyond those that Proxmox itself knows.
const OF_CLOUD_INIT: [&str; 7] = [
    "userData",
    "userDataFile",
    "metaData",
    "metaDataFile",
    "networkConfig",
    "networkConfigFile",
    "cloudInitCustom",
];
/// Characters that no path of Windows has.
const NOT_IN_PATHS: &str = "<>\"|?*";
const PATH: &str = "write it as `C:\\Users\\ci\\agent`";
const BATCH: &str = "upload a batch file, and run that";

/// What runs in a template's guests; `own` is what the template itself says, `layer` all that holds.
pub(super) fn os(
    wanted: &Wanted<'_>,
    own: &Layer,
    layer: &Layer,
    (faults, warnings): (&mut Vec<Fault>, &mut Vec<Fault>),
) -> Os {
    match wanted.os {
        OsType::Linux => {
            let path = wanted.remote_fs;
            if has_drive(path) {
                let fault = layer.fault("remoteFs", format!("`{path}` is not an absolute path"));
                faults.push(fault.help("begin it with `/`, or set osType to WINDOWS"));
            }
            if own.has("windowsLoginShell") && !own.is_faulty("windowsLoginShell") {
                let fault = own.fault("windowsLoginShell", "osType is LINUX");
                warnings.push(fault.help("take it out, or set osType to WINDOWS"));
            }
            Os::Linux
        }
        OsType::Windows => {
            directory(wanted.remote_fs, own, layer, faults);
            lacks(wanted, own, layer, faults);
            steps(own, layer, faults, warnings);
            Os::Windows(wanted.shell)
        }
    }
}

/// Checks the working directory, which has no default there.
fn directory(path: &str, own: &Layer, layer: &Layer, faults: &mut Vec<Fault>) {
    if layer.is_faulty("remoteFs") {
        return;
    }
    let message = if path.trim().is_empty() {
        "`remoteFs` is missing: it has no default in guests of Windows".to_owned()
    } else if !has_drive(path) {
        format!("`{path}` has no drive")
    } else if !is_behind_drive(&path[2..]) {
        format!("`{}` is no path of Windows", path.replace(char::is_control, "?"))
    } else {
        return;
    };
    faults.push(own.fault("remoteFs", message).help(PATH));
}

/// Whether the part of a path without its drive is made of what Windows has in paths.
fn is_behind_drive(path: &str) -> bool {
    !path.contains(|c: char| c == ':' || c.is_control() || NOT_IN_PATHS.contains(c))
}

/// Faults of what drover does in guests of Linux alone, or cloud-init does.
fn lacks(wanted: &Wanted<'_>, own: &Layer, layer: &Layer, faults: &mut Vec<Fault>) {
    let mut add = |key: &str, message: &str, help: &str| {
        faults.push(own.fault(key, message).help(help));
    };
    if wanted.java != JavaDistribution::None {
        let message = "drover installs Java in guests of Linux alone";
        add("javaDistribution", message, "set it to NONE here, and put Java into the image");
    }
    if wanted.memory {
        let message =
            "a guest of Windows is not put back with its memory: its clock would be wrong";
        add("reset", message, "set it to DISK, after which the guest boots, or to NONE");
    }
    if wanted.closes {
        let message = "drover closes SSH off in guests of Linux alone";
        add("closeSshBeforeDelete", message, "set it to false here");
    }
    for key in OF_CLOUD_INIT.into_iter().filter(|key| layer.has(key)) {
        let message = "no cloud-init reads it in a guest of Windows";
        add(key, message, "take it out, or leave it empty here where it is inherited");
    }
    let filled = |key: &str| layer.text(key).is_some_and(|text| !text.is_empty());
    for key in ["addressPool", "addressPool6"].into_iter().filter(|key| filled(key)) {
        let message = "no cloud-init tells a guest of Windows the address that it gets of a pool";
        add(key, message, "leave it blank here, and have a DHCP server give addresses");
    }
    if layer.text("addressFrom") == Some("call") {
        let message = "no cloud-init tells a guest of Windows how to call drover";
        add("addressFrom", message, "set it to guestAgent here");
    }
    for card in layer.nested("networks") {
        let servers =
            card.get("dns").and_then(Yaml::as_sequence).is_some_and(|all| !all.is_empty());
        let domains = card.text("searchDomain").is_some_and(|text| !text.trim().is_empty());
        for (key, given) in [("dns", servers), ("searchDomain", domains)] {
            if given {
                let fault = card.fault(key, "no cloud-init tells it to a guest of Windows");
                faults.push(fault.help("take it out, and have a DHCP server tell it"));
            }
        }
    }
}

/// Checks what a template's own steps do.
fn steps(own: &Layer, layer: &Layer, faults: &mut Vec<Fault>, warnings: &mut Vec<Fault>) {
    if let Some((message, help)) = layer.text("readyCommand").and_then(unsent) {
        faults.push(own.fault("readyCommand", message).help(help));
    }
    for step in layer.nested("prepare") {
        if let Some((message, help)) = step.text("run").and_then(unsent) {
            faults.push(step.fault("run", message).help(help));
        }
        if step.has("packages") {
            let fault = step.fault("packages", "drover installs packages in guests of Linux alone");
            faults.push(fault.help("put them into the image"));
        }
        for upload in step.nested("upload") {
            let to = upload.text("to").unwrap_or_default();
            let rest = if has_drive(to) { &to[2..] } else { to };
            let strange =
                to.starts_with(['/', '\\']) || to.ends_with('\\') || !is_behind_drive(rest);
            if strange && !upload.is_faulty("to") {
                let fault = upload.fault("to", format!("`{to}` is no path of a file of Windows"));
                faults.push(
                    fault.help(
                        "write it as `C:\\ci\\ci.conf`, or `ci.conf` for the login user's home",
                    ),
                );
            }
            if upload.has("mode") && !upload.is_faulty("mode") {
                let fault = upload.fault("mode", "files of Windows have no such permissions");
                warnings.push(fault.help("take it out: the directory's rights hold"));
            }
        }
    }
}

/// Why a command cannot be sent to `cmd.exe`, and what to do.
fn unsent(command: &str) -> Option<(&'static str, &'static str)> {
    let command = command.trim_end();
    if command.contains(['\n', '\r']) {
        return Some(("it has several lines, and cmd.exe runs the first alone", BATCH));
    }
    // Quotes may stand twice in it.
    (command.len() > COMMAND_CHARS_MAX / 2).then_some(("it is longer than cmd.exe takes", BATCH))
}

/// Faults of sources that would start runners in guests of Windows which are not made for that.
pub(super) fn sources(
    templates: &BTreeMap<String, CheckedTemplate>,
    mappings: &[LabelMapping],
    demand: &CheckedDemand,
    faults: &mut Vec<Fault>,
) {
    for template in templates.values() {
        for (source, connection) in demand.sources.values() {
            let Some((why, help)) = unfit(connection) else { continue };
            let mut specs = template.specs.iter().filter(|spec| spec.os.is_windows());
            if specs.any(|spec| serves(spec, mappings, source)) {
                let message =
                    format!("source `{}` would start runners in its guests: {why}", source.id);
                let help = format!("{help}, or give the source `labels` that this template lacks");
                faults.push(template.layer.fault("osType", message).help(help));
            }
        }
    }
}

/// Why a source's runners do not run in guests of Windows, and what to do.
fn unfit(connection: &SourceConnection) -> Option<(&'static str, &'static str)> {
    match &connection.system {
        System::Gitea(settings) => match (settings.dialect, &connection.command) {
            (Dialect::Forgejo, None) => Some((
                "forgejo-runner is not made for Windows",
                "give the source a `runnerCommand`",
            )),
            (Dialect::Forgejo, Some(_)) | (Dialect::Gitea, _) => None,
        },
        System::GitHub(settings) => match settings.registration {
            Registration::Token => Some((
                "with `registration: token` they are started by a script of Linux",
                "set its `registration` to jit",
            )),
            Registration::Jit => None,
        },
        System::GitLab(_) | System::Woodpecker(_) | System::Jenkins(_) => None,
    }
}

/// Whether a template can get a job of a source.
pub(super) fn serves(spec: &TemplateSpec, mappings: &[LabelMapping], source: &SourceSpec) -> bool {
    let lent = mappings.iter().filter(|mapping| mapping.templates.contains(&spec.id));
    let carried: BTreeSet<&String> =
        spec.labels.iter().chain(lent.flat_map(|mapping| &mapping.labels)).collect();
    let wanted = source.labels.as_ref();
    let asked = carried.iter().any(|label| wanted.is_none_or(|labels| labels.contains(*label)));
    asked || spec.mode == Mode::Normal
}
