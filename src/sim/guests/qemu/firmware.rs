//! UEFI of a guest: the code that all guests share, and the variables on its EFI disk.
//!
//! Source: qemu-server chooses by `efitype`, `pre-enrolled-keys` and the machine's type. That is from
//! knowledge of its sources: no recording shows it. The files are those of Debian's package `ovmf`.

use std::path::{Path, PathBuf};

use crate::conf::{Config, Drive};

/// The drive of the variables.
pub(super) const EFI_DISK: &str = "efidisk0";
/// Where Debian's `ovmf` puts its files.
const FOLDER: &str = "/usr/share/OVMF";

/// The files of a UEFI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Uefi {
    pub code: PathBuf,
    /// The variables that a guest begins with.
    pub variables: PathBuf,
    /// Whether the code needs the system management mode, which keeps the variables from the guest's
    /// own programs.
    pub is_guarded: bool,
}

impl Uefi {
    /// The UEFI of a configuration; none for a BIOS.
    pub(super) fn of(config: &Config) -> Option<Self> {
        config.get("bios").filter(|bios| *bios == "ovmf")?;
        let disk = config.get(EFI_DISK).map(|disk| Drive::parse(disk)).unwrap_or_default();
        let option = |key: &str| disk.options.get(key).map(String::as_str);
        let is_large = option("efitype") == Some("4m");
        let is_guarded = is_large && is_q35(config);
        let size = if is_large { "_4M" } else { "" };
        let keys = if option("pre-enrolled-keys") == Some("1") { ".ms" } else { "" };
        let guarded = if is_guarded { ".secboot" } else { "" };
        Some(Self {
            code: Path::new(FOLDER).join(format!("OVMF_CODE{size}{guarded}.fd")),
            variables: Path::new(FOLDER).join(format!("OVMF_VARS{size}{keys}.fd")),
            is_guarded,
        })
    }

    /// Whether this computer has the files.
    ///
    /// # Errors
    /// The text after `start failed: `.
    pub(super) fn check(&self) -> Result<(), String> {
        match [&self.code, &self.variables].into_iter().find(|path| !path.exists()) {
            Some(path) => Err(format!("`{}` is not there: install `ovmf`", path.display())),
            None => Ok(()),
        }
    }
}

pub(super) fn is_q35(config: &Config) -> bool {
    config.get("machine").is_some_and(|machine| machine.contains("q35"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn of(config: &[(&str, &str)]) -> Option<(String, String, bool)> {
        let config = config.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let uefi = Uefi::of(&config)?;
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        Some((name(&uefi.code), name(&uefi.variables), uefi.is_guarded))
    }

    // Invariant: a guest gets the firmware that its machine type and its EFI disk ask for.

    #[test]
    fn the_firmware_follows_the_machine_and_the_efi_disk() {
        let files = |code: &str, variables: &str, guarded| {
            Some((code.to_owned(), variables.to_owned(), guarded))
        };
        let disk = ("efidisk0", "thin:vm-1-disk-0,efitype=4m,pre-enrolled-keys=0,size=528K");
        let keys = ("efidisk0", "thin:vm-1-disk-0,efitype=4m,pre-enrolled-keys=1,size=528K");
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("bios", "seabios"), disk]), None);
        assert_eq!(of(&[("bios", "ovmf")]), files("OVMF_CODE.fd", "OVMF_VARS.fd", false));
        assert_eq!(
            of(&[("bios", "ovmf"), disk]),
            files("OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd", false)
        );
        assert_eq!(
            of(&[("bios", "ovmf"), ("machine", "q35"), keys]),
            files("OVMF_CODE_4M.secboot.fd", "OVMF_VARS_4M.ms.fd", true)
        );
    }

    #[test]
    fn a_computer_without_the_files_says_what_to_install() {
        let gone = PathBuf::from("/none/OVMF_CODE.fd");
        let uefi = Uefi { code: gone.clone(), variables: gone, is_guarded: false };
        assert_eq!(uefi.check().unwrap_err(), "`/none/OVMF_CODE.fd` is not there: install `ovmf`");
    }
}
