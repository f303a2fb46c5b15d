//! Container templates: what the list of appliances offers, and how one is fetched.

use serde_json::{Value, json};

use super::ask::{Ask, failed};
use super::download::{Wanted, begin};
use crate::call::{Answer, ApiError, Outcome};
use crate::spec::WebFile;

/// Where appliances lie.
const HOME: &str = "http://download.proxmox.com/images";

/// Package, operating system, version, architecture suffix and size of what is offered.
const OFFERED: &[(&str, &str, &str, u64)] = &[
    ("alpine-3.22-default", "alpine-3.22", "20250617", 3_100_000),
    ("debian-12-standard", "debian-12", "12.12-1", 126_000_000),
    ("debian-13-standard", "debian-13", "13.1-2", 131_000_000),
    ("ubuntu-24.04-standard", "ubuntu-24.04", "24.04-2", 141_000_000),
];

fn file_of(package: &str, version: &str) -> String {
    let suffix = if package.starts_with("alpine") { "tar.xz" } else { "tar.zst" };
    format!("{package}_{version}_amd64.{suffix}")
}

/// The appliances as files that nodes can download.
pub fn on_the_web() -> impl Iterator<Item = WebFile> {
    OFFERED.iter().map(|(package, _, version, size)| WebFile {
        url: format!("{HOME}/system/{}", file_of(package, version)),
        size: *size,
        sha256: String::new(),
    })
}

/// `GET /nodes/{node}/aplinfo`.
pub fn list() -> Outcome {
    let line = |(package, os, version, _): &(&str, &str, &str, u64)| {
        let file = file_of(package, version);
        let sum: String = file.bytes().cycle().take(64).map(|byte| format!("{byte:02x}")).collect();
        json!({
            "template": file, "package": package, "os": os, "version": version, "type": "lxc",
            "architecture": "amd64", "section": "system", "source": HOME,
            "location": format!("system/{file}"), "sha512sum": sum,
            "headline": format!("LXC default image for {os}"), "infopage": "https://pve.proxmox.com",
            "maintainer": "Proxmox Support Team <support@proxmox.com>",
            "description": format!("LXC default image for {os}"),
        })
    };
    Ok(Answer::new(OFFERED.iter().map(line).collect::<Vec<Value>>().into()))
}

/// `POST /nodes/{node}/aplinfo`: a task; a template that is there already is fetched again.
pub fn fetch(ask: &Ask) -> Outcome {
    let template = ask.text("template").unwrap_or_default();
    let storage = ask.text("storage").unwrap_or_default();
    if !OFFERED.iter().any(|(package, _, version, _)| file_of(package, version) == template) {
        return Err(ApiError::parameter("template", "no such template"));
    }
    {
        let state = ask.cluster.state();
        let found = state.storage(&storage).map_err(failed)?;
        if !found.takes("vztmpl") {
            let text = format!("storage '{storage}' does not support content type 'vztmpl'");
            return Err(failed(text));
        }
    }
    Ok(begin(
        ask,
        Wanted {
            url: format!("{HOME}/system/{template}"),
            volid: format!("{storage}:vztmpl/{template}"),
            task: template,
            checksum: None,
            overwrite: true,
        },
    ))
}
