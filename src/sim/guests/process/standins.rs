//! The stand-in programs at the front of a guest's PATH. They do what a job expects of a whole
//! machine and a folder cannot do.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Names and scripts. One script can stand in for several programs, and looks at its own name.
const STANDINS: [(&str, &str); 24] = [
    ("shutdown", include_str!("standins/power.sh")),
    ("poweroff", include_str!("standins/power.sh")),
    ("halt", include_str!("standins/power.sh")),
    ("reboot", include_str!("standins/power.sh")),
    ("sudo", include_str!("standins/sudo.sh")),
    ("apt-get", include_str!("standins/packages.sh")),
    ("apt", include_str!("standins/packages.sh")),
    ("dnf", include_str!("standins/packages.sh")),
    ("yum", include_str!("standins/packages.sh")),
    ("zypper", include_str!("standins/packages.sh")),
    ("apk", include_str!("standins/packages.sh")),
    ("systemctl", include_str!("standins/systemctl.sh")),
    ("cloud-init", include_str!("standins/cloud-init.sh")),
    ("hostname", include_str!("standins/hostname.sh")),
    ("ip", include_str!("standins/ip.sh")),
    ("useradd", include_str!("standins/useradd.sh")),
    ("id", include_str!("standins/id.sh")),
    ("journalctl", include_str!("standins/journalctl.sh")),
    ("service", "#!/bin/sh\nexit 0\n"),
    ("dhclient", "#!/bin/sh\nexit 0\n"),
    ("networkctl", "#!/bin/sh\nexit 0\n"),
    ("chronyc", "#!/bin/sh\nexit 0\n"),
    ("date", include_str!("standins/date.sh")),
    ("windows", include_str!("standins/windows.sh")),
];

pub(super) fn install(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    for (name, text) in STANDINS {
        // A rename replaces the file: another host on the same folder can be running the old one.
        let fresh = dir.join(format!(".{name}.{}", std::process::id()));
        std::fs::write(&fresh, text)?;
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o755))?;
        std::fs::rename(&fresh, dir.join(name))?;
    }
    Ok(())
}
