//! Container templates: the list of downloadable templates (`aplinfo`), and the download of one.

use serde_json::{Value, json};

use super::context::{CallContext, failed};
use super::download::{Download, start_download};
use crate::call::{Answer, ApiError, Outcome};
use crate::spec::WebFile;

/// The directory of the templates on Proxmox's download server.
const DOWNLOAD_BASE: &str = "http://download.proxmox.com/images";

/// Package, operating system, version and size in bytes of each template.
const TEMPLATES: &[(&str, &str, &str, u64)] = &[
    ("alpine-3.22-default", "alpine-3.22", "20250617", 3_100_000),
    ("debian-12-standard", "debian-12", "12.12-1", 126_000_000),
    ("debian-13-standard", "debian-13", "13.1-2", 131_000_000),
    ("ubuntu-24.04-standard", "ubuntu-24.04", "24.04-2", 141_000_000),
];

fn file_name(package: &str, version: &str) -> String {
    let suffix = if package.starts_with("alpine") { "tar.xz" } else { "tar.zst" };
    format!("{package}_{version}_amd64.{suffix}")
}

/// The templates as files that nodes can download.
pub(crate) fn downloadable_files() -> impl Iterator<Item = WebFile> {
    TEMPLATES.iter().map(|(package, _, version, size)| WebFile {
        url: format!("{DOWNLOAD_BASE}/system/{}", file_name(package, version)),
        size: *size,
        ..WebFile::default()
    })
}

/// `GET /nodes/{node}/aplinfo`.
pub(crate) fn list() -> Outcome {
    let line = |(package, os, version, _): &(&str, &str, &str, u64)| {
        let file = file_name(package, version);
        let sum: String = file.bytes().cycle().take(64).map(|byte| format!("{byte:02x}")).collect();
        json!({
            "template": file, "package": package, "os": os, "version": version, "type": "lxc",
            "architecture": "amd64", "section": "system", "source": DOWNLOAD_BASE,
            "location": format!("system/{file}"), "sha512sum": sum,
            "headline": format!("LXC default image for {os}"), "infopage": "https://pve.proxmox.com",
            "maintainer": "Proxmox Support Team <support@proxmox.com>",
            "description": format!("LXC default image for {os}"),
        })
    };
    Ok(Answer::new(TEMPLATES.iter().map(line).collect::<Vec<Value>>().into()))
}

/// `POST /nodes/{node}/aplinfo`: a task. A template that the storage already has is downloaded
/// again.
pub(crate) fn fetch(ctx: &CallContext) -> Outcome {
    let template = ctx.text("template").unwrap_or_default();
    let storage = ctx.text("storage").unwrap_or_default();
    if !TEMPLATES.iter().any(|(package, _, version, _)| file_name(package, version) == template) {
        return Err(ApiError::parameter("template", "no such template"));
    }
    {
        let state = ctx.cluster.state();
        let found = state.storage(&storage).map_err(failed)?;
        if !found.accepts("vztmpl") {
            let text = format!("storage '{storage}' does not support content type 'vztmpl'");
            return Err(failed(text));
        }
    }
    Ok(start_download(
        ctx,
        Download {
            url: format!("{DOWNLOAD_BASE}/system/{template}"),
            volid: format!("{storage}:vztmpl/{template}"),
            task_id: template,
            checksum: None,
            algorithm: None,
            overwrite: true,
        },
    ))
}
