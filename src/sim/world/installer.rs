//! Installers of ISO images: a guest whose disk is blank boots the disc behind it in its boot order.
//!
//! The installer is Ubuntu's: it reads its answers from a disc with the label `cidata`, as strictly as
//! cloud-init and subiquity do, and asks for a confirmation unless its kernel was started with
//! `autoinstall`. An ISO image that the simulator has the bytes of says that in a file `grub.cfg`;
//! one without bytes counts as one that says it. Nobody answers questions here, so an installer that
//! asks runs until the guest is stopped. One that is done powers the guest off.

use std::time::Duration;

use drover_nocloud::iso::{self, Disc, LABEL};
use serde_yaml::Value;

use super::Cluster;
use super::clock::Moment;
use super::conf::{self, Config};
use super::state::State;

/// An installer that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Installer {
    /// When it is done, and what it leaves for cloud-init; none where it waits for somebody.
    pub(crate) done: Option<(Moment, Disc)>,
}

/// The name of the file of an ISO image with the parameters of its kernel.
const BOOT_LOADER: &str = "grub.cfg";

impl Cluster {
    /// The installer that a guest with a blank disk boots; none where no disc is in its boot order.
    pub(crate) fn installer(
        state: &State,
        node: &str,
        config: &Config,
        takes: Duration,
    ) -> Option<Installer> {
        let order = config.get("boot")?.strip_prefix("order=")?;
        let drives = conf::drives(config);
        let mut discs = order.split(';').filter_map(|key| {
            let (_, drive) = drives.iter().find(|(name, _)| name == key)?;
            drive.is_cdrom().then(|| drive.file.clone())
        });
        let volid = discs.next()?;
        let storage = state.storage_of(&volid).ok()?;
        storage.volume(node, &volid)?;
        let bytes = storage.file(node, &volid);
        let is_unattended = match bytes.and_then(|bytes| iso::read(bytes)) {
            Some(disc) => disc
                .text(BOOT_LOADER)
                .is_some_and(|text| text.split_whitespace().any(|word| word == "autoinstall")),
            None => true,
        };
        let answers = Self::nocloud_disc(state, node, config).as_ref().and_then(left_by);
        let done = answers.filter(|_| is_unattended);
        let done = done.map(|disc| (state.clock.now() + takes, disc));
        Some(Installer { done })
    }
}

/// What an installer with these answers leaves for cloud-init on the disk; none where it does not
/// install, or does not power the guest off.
fn left_by(answers: &Disc) -> Option<Disc> {
    let text = answers.text("user-data")?;
    // cloud-init knows the kind of user data by its first line.
    if text.lines().next()?.trim_end() != "#cloud-config" {
        return None;
    }
    let yaml: Value = serde_yaml::from_str(&text).ok()?;
    let autoinstall = yaml.get("autoinstall")?;
    let is = |key: &str, wanted: Value| autoinstall.get(key) == Some(&wanted);
    let user = autoinstall.get("user-data").filter(|user| user.is_mapping());
    let logs_in = user.is_some() || autoinstall.get("identity").is_some_and(Value::is_mapping);
    if !is("version", Value::from(1)) || !is("shutdown", Value::from("poweroff")) || !logs_in {
        return None;
    }
    let user = user.and_then(|user| serde_yaml::to_string(user).ok()).unwrap_or_default();
    let mut left = Disc { label: LABEL.into(), files: answers.files.clone() };
    left.files.insert("user-data".into(), format!("#cloud-config\n{user}").into_bytes());
    Some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disc(text: &str) -> Disc {
        let files = [("user-data".to_owned(), text.as_bytes().to_vec())].into();
        Disc { label: LABEL.into(), files }
    }

    // Invariant: an installer installs only with answers that the real one takes.

    #[test]
    fn answers_without_what_the_installer_needs_install_nothing() {
        let whole = "#cloud-config\nautoinstall:\n  version: 1\n  shutdown: poweroff\n  \
                     user-data: {users: [{name: ci}]}\n";
        let left = left_by(&disc(whole)).and_then(|left| left.text("user-data"));
        assert!(left.is_some_and(|text| text.starts_with("#cloud-config\nusers:\n")));
        let wrong = [
            whole.replace("#cloud-config\n", ""),
            whole.replace("version: 1", "version: '1'"),
            whole.replace("poweroff", "reboot"),
            whole.replace("user-data", "late-commands"),
            whole.replace("autoinstall", "autoinstal"),
        ];
        for text in wrong {
            assert!(left_by(&disc(&text)).is_none(), "{text}");
        }
    }
}
