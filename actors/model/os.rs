//! What runs in a guest, as far as it decides what is sent there.

use serde::{Deserialize, Serialize};

/// The operating system of a template's guests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Os {
    /// Linux, or whatever else has a POSIX shell.
    #[default]
    Linux,
    /// Windows with OpenSSH, whose sessions have this login shell.
    Windows(LoginShell),
}

impl Os {
    /// Whether it is Windows.
    pub fn is_windows(self) -> bool {
        match self {
            Self::Linux => false,
            Self::Windows(_) => true,
        }
    }
}

/// The login shell of a Windows guest: the `DefaultShell` of its OpenSSH.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum LoginShell {
    /// The guest is asked.
    Auto,
    /// `cmd.exe`, or another shell that takes lines of `cmd.exe` as they are.
    Cmd,
    /// Windows PowerShell, which does not.
    Powershell,
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: what a journal says of a guest's system is read back, and nothing said is Linux.

    #[test]
    fn a_system_is_written_and_read_back() {
        for os in [Os::Linux, Os::Windows(LoginShell::Auto), Os::Windows(LoginShell::Powershell)] {
            let written = serde_json::to_string(&os).unwrap_or_default();
            assert_eq!(serde_json::from_str(&written).ok(), Some(os), "{written}");
        }
        assert_eq!(Os::default(), Os::Linux);
    }
}
