//! ISO images with an installer as sources of images: the answers that the installer gets, and the disk
//! that it installs to.
//!
//! drover gives the answers on a disc with the label `CIDATA`, where Ubuntu's installer (subiquity)
//! looks for them. It presses no keys. Debian's installer reads no such disc: its preseed must be in
//! the ISO image, and then it does not read these answers.

use drover_model::image::{ImageSource, IsoImage};
use serde_yaml::Value;

use super::super::context::Context;
use super::super::keys::RawImage;
use super::super::layer::Layer;

/// The answers for Ubuntu's installer where the recipe has none: the whole disk, and a login with
/// drover's key, which cloud-init makes at the first boot.
pub(super) const ANSWERS: &str = "#cloud-config
autoinstall:
  version: 1
  shutdown: poweroff
  storage: {layout: {name: direct}}
  ssh: {install-server: true, allow-pw: false}
  packages: [qemu-guest-agent]
  user-data:
    hostname: ${hostname}
    manage_etc_hosts: true
    users:
      - name: ${user}
        groups: [adm, sudo]
        shell: /bin/bash
        sudo: \"ALL=(ALL) NOPASSWD:ALL\"
        lock_passwd: true
        ssh_authorized_keys: [\"${sshPublicKey}\"]
";

/// The answers of a recipe, checked as far as a build depends on them.
pub(super) fn answers(layer: &Layer, cx: &mut Context<'_>) -> Option<String> {
    const KEY: &str = "userData";
    let text = layer.text(KEY)?.to_owned();
    if layer.text("iso").is_none() {
        let fault = layer.fault(KEY, "`userData` is for an `iso` alone");
        let help = "remove it: what cloud-init does in a cloud image is drover's own";
        cx.faults.push(fault.help(help));
        return None;
    }
    if let Some(wrong) = wrong_with(&text) {
        let help = "`drover help images.md` shows answers for an installer";
        cx.faults.push(layer.fault(KEY, wrong).help(help));
        return None;
    }
    Some(text)
}

/// Why an installer would not take these answers, or drover would not see its end.
fn wrong_with(text: &str) -> Option<&'static str> {
    if !text.starts_with("#cloud-config") {
        return Some("the text does not begin with `#cloud-config`");
    }
    let yaml: Value = serde_yaml::from_str(text).unwrap_or(Value::Null);
    let autoinstall = &yaml["autoinstall"];
    let checks = [
        (autoinstall.is_mapping(), "the text has no `autoinstall` mapping"),
        (autoinstall["version"] == 1, "`autoinstall` has no `version: 1`"),
        (
            autoinstall["shutdown"] == "poweroff",
            "`autoinstall` has no `shutdown: poweroff`, by which drover knows the end",
        ),
    ];
    checks.into_iter().find(|(right, _)| !right).map(|(_, wrong)| wrong)
}

/// The source with the disk that an installer needs.
pub(super) fn with_disk(
    source: ImageSource,
    raw: &RawImage,
    layer: &Layer,
    cx: &mut Context<'_>,
) -> Option<ImageSource> {
    let ImageSource::Iso { iso, .. } = source else { return Some(source) };
    if raw.disk_size_gb == 0 {
        let message = "the disk that the `iso` installs to has no size";
        let fault = layer.fault("diskSizeGb", message);
        cx.faults.push(fault.help("add diskSizeGb, such as `diskSizeGb: 20`"));
        return None;
    }
    Some(ImageSource::Iso { iso, disk_gb: raw.disk_size_gb })
}

/// The storage of an ISO image that is there already.
pub(super) fn storage_of(source: Option<&ImageSource>) -> Option<String> {
    match source? {
        ImageSource::Iso { iso: IsoImage::Volume(volume), .. } => {
            volume.split_once(':').map(|(storage, _)| storage.to_owned())
        }
        ImageSource::Iso { .. } | ImageSource::Url { .. } | ImageSource::Template(_) => None,
    }
}
