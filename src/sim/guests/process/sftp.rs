//! The subsystem `sftp` of a guest's SSH server: which program answers it.
//!
//! OpenSSH's own server runs as a command of the guest, so that it sees the files that commands see
//! and may do what they may. A Windows guest has no program for its paths: `windows_sftp` answers.

use std::path::Path;

/// Where systems have OpenSSH's server: Debian, Fedora, SUSE and Alpine, macOS.
const SERVERS: [&str; 4] = [
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
];

/// The most open files of one SFTP session, with its own descriptors.
const DESCRIPTORS_MAX: u32 = 256;

/// The program and arguments that serve SFTP in a guest. Without OpenSSH's server it says on its
/// standard error what to install, and ends with status 127, as `sshd` does there.
pub(super) fn words() -> Vec<String> {
    words_with(|path| Path::new(path).is_file())
}

fn words_with(is_installed: impl Fn(&str) -> bool) -> Vec<String> {
    let line = match SERVERS.into_iter().find(|path| is_installed(path)) {
        Some(server) => format!("ulimit -n {DESCRIPTORS_MAX}; exec {server}"),
        None => {
            "echo 'this guest has no SFTP: install OpenSSH'\\''s sftp-server on the computer of \
                 the simulator (Debian: openssh-sftp-server)' >&2; exit 127"
                .to_owned()
        }
    };
    vec!["/bin/sh".to_owned(), "-c".to_owned(), line]
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    // Invariant: a guest has the SFTP server of its host, or says what to install.

    #[test]
    fn the_first_installed_server_runs_with_a_bound_on_its_open_files() {
        let fedora = words_with(|path| path.starts_with("/usr/libexec/"));
        assert_eq!(fedora[2], "ulimit -n 256; exec /usr/libexec/openssh/sftp-server");
        let all = words_with(|_| true);
        assert_eq!(all[2], "ulimit -n 256; exec /usr/lib/openssh/sftp-server");
    }

    #[test]
    fn a_host_without_a_server_says_what_to_install() {
        let words = words_with(|_| false);
        let out = std::process::Command::new(&words[0]).args(&words[1..]).output().unwrap();
        assert_eq!(out.status.code(), Some(127));
        assert_eq!(
            String::from_utf8(out.stderr).unwrap(),
            "this guest has no SFTP: install OpenSSH's sftp-server on the computer of the simulator \
             (Debian: openssh-sftp-server)\n"
        );
    }
}
