//! The operating system of guests (`osType`). What drover or cloud-init cannot do in Windows is a
//! fault, since such an agent would never become ready.

use drover_model::os::Os;
use drover_model::spec::JavaDistribution;
use drover_scripts::windows::{COMMAND_CHARS_MAX, has_drive};
use serde_yaml::Value as Yaml;

use super::context::Context;
use super::fault::Fault;
use super::keys::{AddressFrom, OsType, RawAgent, Reset, TEXTS};
use super::layer::Layer;

/// Characters that no path of Windows has.
const NOT_IN_PATHS: &str = "<>\"|?*";
const PATH: &str = "write it as `C:\\Users\\ci\\agent`";
const BATCH: &str = "upload a batch file, and run that";

/// The operating system of a template's guests.
pub(super) fn os(raw: &RawAgent, layer: &Layer, cx: &mut Context<'_>) -> Os {
    match raw.os_type {
        OsType::Linux => {
            let path = &raw.remote_fs;
            if has_drive(path) {
                let fault = layer.fault("remoteFs", format!("`{path}` is not an absolute path"));
                cx.faults.push(fault.help("begin it with `/`, or set osType to WINDOWS"));
            }
            if layer.is_sound("windowsLoginShell") && layer.is_own("windowsLoginShell") {
                let fault = layer.fault("windowsLoginShell", "osType is LINUX");
                cx.warnings.push(fault.help("remove it, or set osType to WINDOWS"));
            }
            Os::Linux
        }
        OsType::Windows => {
            directory(&raw.remote_fs, layer, &mut cx.faults);
            linux_only(raw, layer, &mut cx.faults);
            steps(layer, cx);
            Os::Windows(raw.windows_login_shell)
        }
    }
}

/// A fault of a key that is wrong in guests of Windows.
fn fault(layer: &Layer, key: &str, message: impl Into<String>) -> Fault {
    layer.fault_beside(key, "osType", message)
}

/// Checks the working directory, which has no default in Windows.
fn directory(path: &str, layer: &Layer, faults: &mut Vec<Fault>) {
    if layer.is_faulty("remoteFs") {
        return;
    }
    let message = if path.trim().is_empty() {
        "`remoteFs` is missing: it has no default in guests of Windows".to_owned()
    } else if !has_drive(path) {
        format!("`{path}` has no drive")
    } else if !is_behind_drive(&path[2..]) {
        format!("`{}` is not a path of Windows", path.replace(char::is_control, "?"))
    } else {
        return;
    };
    faults.push(fault(layer, "remoteFs", message).help(PATH));
}

/// Whether Windows allows all characters of a path behind its drive.
fn is_behind_drive(path: &str) -> bool {
    !path.contains(|c: char| c == ':' || c.is_control() || NOT_IN_PATHS.contains(c))
}

/// Faults of what drover does only in Linux, and of what cloud-init does.
fn linux_only(raw: &RawAgent, layer: &Layer, faults: &mut Vec<Fault>) {
    let mut add = |key: &str, message: &str, help: &str| {
        faults.push(fault(layer, key, message).help(help));
    };
    if raw.java_distribution != JavaDistribution::None {
        let message = "drover installs Java only in Linux guests";
        add("javaDistribution", message, "set it to NONE here, and put Java into the image");
    }
    if raw.reset == Reset::Memory {
        let message =
            "a Windows guest cannot go back to a snapshot with memory: its clock would be wrong";
        add("reset", message, "set it to DISK, after which the guest boots, or to NONE");
    }
    if raw.close_ssh_before_delete {
        let message = "drover blocks SSH only in Linux guests";
        add("closeSshBeforeDelete", message, "set it to false here");
    }
    // Only cloud-init reads these, beyond the keys of Proxmox itself.
    let of_cloud_init = TEXTS.as_flattened().iter().chain(&["cloudInitCustom"]);
    for key in of_cloud_init.filter(|key| layer.has(key)) {
        let message = "a Windows guest has no cloud-init that reads it";
        add(key, message, "remove it, or leave it empty here where it is inherited");
    }
    let filled = |key: &str| layer.text(key).is_some_and(|text| !text.is_empty());
    for key in ["addressPool", "addressPool6"].into_iter().filter(|key| filled(key)) {
        let message = "a Windows guest has no cloud-init that sets the address of a pool";
        add(key, message, "leave it blank here, and use a DHCP server");
    }
    if raw.address_from == Some(AddressFrom::Call) {
        let message = "a Windows guest has no cloud-init that learns how to call drover";
        add("addressFrom", message, "set it to guestAgent here");
    }
    for card in layer.nested("networks") {
        let servers =
            card.get("dns").and_then(Yaml::as_sequence).is_some_and(|all| !all.is_empty());
        let domains = card.text("searchDomain").is_some_and(|text| !text.trim().is_empty());
        for (key, given) in [("dns", servers), ("searchDomain", domains)] {
            if given {
                let fault = card.fault(key, "a Windows guest has no cloud-init that sets it");
                faults.push(fault.help("remove it, and use a DHCP server"));
            }
        }
    }
}

/// Checks what a template's own steps do.
fn steps(layer: &Layer, cx: &mut Context<'_>) {
    if let Some((message, help)) = layer.text("readyCommand").and_then(unsent) {
        cx.faults.push(fault(layer, "readyCommand", message).help(help));
    }
    for step in layer.nested("prepare") {
        if let Some((message, help)) = step.text("run").and_then(unsent) {
            cx.faults.push(step.fault("run", message).help(help));
        }
        if step.has("packages") {
            let fault = step.fault("packages", "drover installs packages only in Linux guests");
            cx.faults.push(fault.help("put them into the image"));
        }
        for upload in step.nested("upload") {
            let to = upload.text("to").unwrap_or_default();
            let rest = if has_drive(to) { &to[2..] } else { to };
            let strange =
                to.starts_with(['/', '\\']) || to.ends_with('\\') || !is_behind_drive(rest);
            if strange && !upload.is_faulty("to") {
                let fault =
                    upload.fault("to", format!("`{to}` is not a path of a file in Windows"));
                cx.faults.push(
                    fault.help(
                        "write it as `C:\\ci\\ci.conf`, or `ci.conf` for the login user's home",
                    ),
                );
            }
            if upload.is_sound("mode") {
                let fault = upload.fault("mode", "files in Windows have no such permissions");
                cx.warnings
                    .push(fault.help("remove it: the file inherits the rights of its directory"));
            }
        }
    }
}

/// Why a command cannot be sent to `cmd.exe`, and what to do.
fn unsent(command: &str) -> Option<(&'static str, &'static str)> {
    let command = command.trim_end();
    if command.contains(['\n', '\r']) {
        return Some(("it has several lines, and cmd.exe runs only the first", BATCH));
    }
    // drover may double each quote.
    (command.len() > COMMAND_CHARS_MAX / 2).then_some(("it is too long for cmd.exe", BATCH))
}
