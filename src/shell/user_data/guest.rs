//! A lease's user data in its guest: a folder for the lease in the login user's home.

use bytes::Bytes;
use drover_ssh::quote;

use crate::EXIT_ALREADY_DONE;

/// The folder of all leases, in the login user's home.
const FOLDER: &str = ".drover-lease";
/// The user data as it was given.
const DATA: &str = "user-data";
/// Variables for a shell. Written last: when this file exists, everything does.
const ENV: &str = "env";

fn path(lease: &str, name: &str) -> String {
    format!("{FOLDER}/{lease}/{name}")
}

/// A file's path as a word for the guest's shell.
fn word(lease: &str, name: &str) -> String {
    format!("\"$HOME\"/{}", quote(&path(lease, name)))
}

/// The path of the user data, for people.
pub fn data_path(lease: &str) -> String {
    format!("~/{}", path(lease, DATA))
}

/// The path of the file of variables, for people.
pub fn env_path(lease: &str) -> String {
    format!("~/{}", path(lease, ENV))
}

/// A shell command that runs with the variables of a lease.
pub fn with_env(lease: &str, command: &str) -> String {
    format!(". {}; {command}", word(lease, ENV))
}

/// The command that makes a lease's folder. It ends with [`EXIT_ALREADY_DONE`] when the lease's
/// files were written already, and with 0 otherwise. The files belong to the lease's holder, who
/// may have changed or removed them since.
pub fn make_folder(lease: &str) -> String {
    let env = word(lease, ENV);
    let folder = format!("\"$HOME\"/{}", quote(&format!("{FOLDER}/{lease}")));
    format!("test -e {env} && exit {EXIT_ALREADY_DONE}; umask 077; mkdir -p {folder} || exit 2")
}

/// The command that removes a lease's files; it may be repeated.
pub fn remove(lease: &str) -> String {
    let folder = quote(&format!("{FOLDER}/{lease}"));
    format!("rm -rf \"$HOME\"/{folder} && {{ rmdir \"$HOME\"/{FOLDER} 2>/dev/null || true; }}")
}

/// The files with their paths relative to the home, in the order in which they are written.
pub fn files(lease: &str, content: Bytes) -> [(String, Bytes); 2] {
    let env = env(lease, &content);
    [(path(lease, DATA), content), (path(lease, ENV), Bytes::from(env))]
}

/// The file of variables: the lease's id, the path of the user data, and each line of user data
/// that consists of nothing but lines `NAME=value`. Values are taken literally.
fn env(lease: &str, content: &[u8]) -> String {
    const OWN: [&str; 2] = ["DROVER_LEASE_ID", "DROVER_USER_DATA"];
    let mut text = format!("export DROVER_LEASE_ID={}\n", quote(lease));
    // Before the others: one of them may be HOME.
    text.push_str(&format!("export DROVER_USER_DATA={}\n", word(lease, DATA)));
    for (name, value) in variables(content).into_iter().filter(|(name, _)| !OWN.contains(name)) {
        text.push_str(&format!("export {name}={}\n", quote(value)));
    }
    text
}

/// The variables in user data, if it holds nothing else but empty lines and lines that start with
/// `#`.
fn variables(content: &[u8]) -> Vec<(&str, &str)> {
    let Ok(text) = std::str::from_utf8(content) else { return Vec::new() };
    let said = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let pairs = said.map(|line| line.split_once('=').filter(|(name, _)| is_name(name)));
    pairs.collect::<Option<Vec<_>>>().unwrap_or_default()
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn sh(home: &Path, command: &str) -> (Option<u32>, String) {
        let out = Command::new("/bin/sh").args(["-c", command]).env("HOME", home).output().unwrap();
        (out.status.code().map(i32::unsigned_abs), String::from_utf8(out.stdout).unwrap())
    }

    fn put(home: &Path, lease: &str, content: &'static [u8]) {
        for (path, content) in files(lease, Bytes::from_static(content)) {
            fs::write(home.join(path), content).unwrap();
        }
    }

    // Invariant: a variable gives the path of the user data, and lines of variables become
    // variables.

    #[test]
    fn lines_of_variables_are_in_the_environment_as_they_stand() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(sh(home.path(), &make_folder("l1")).0, Some(0));
        put(
            home.path(),
            "l1",
            b"# a comment\nA=it's $HOME \"x\" = `id`\n\nB_2=\nDROVER_LEASE_ID=x\r\n",
        );
        let (_, said) =
            sh(home.path(), &with_env("l1", "printf '%s|' \"$A\" \"$B_2\" $DROVER_LEASE_ID"));
        assert_eq!(said, "it's $HOME \"x\" = `id`||l1|");
        let (_, said) = sh(home.path(), &with_env("l1", "head -n1 \"$DROVER_USER_DATA\""));
        assert_eq!(said, "# a comment\n");
        put(home.path(), "l1", b"HOME=/nowhere");
        let (_, said) = sh(home.path(), &with_env("l1", "cat \"$DROVER_USER_DATA\""));
        assert_eq!(said, "HOME=/nowhere", "its path is of the login's own home");
    }

    #[test]
    fn any_other_user_data_sets_no_variable_of_its_own() {
        for other in [
            &b"A=1\necho hello\n"[..],
            b"#!/bin/sh\nA=1; B=2 make\ntrue\n",
            b"1A=x",
            b"A=\xff",
            b"=x",
        ] {
            assert_eq!(variables(other), [], "{other:?}");
        }
        assert_eq!(variables(b"#!/bin/sh\nA=1"), [("A", "1")]);
    }

    // Invariant: what a lease's holder did to its files stays until the lease ends.

    #[test]
    fn files_are_put_once_and_removed_any_number_of_times() {
        let home = tempfile::tempdir().unwrap();
        sh(home.path(), &make_folder("l1"));
        put(home.path(), "l1", b"secret");
        fs::remove_file(home.path().join(".drover-lease/l1/user-data")).unwrap();
        assert_eq!(sh(home.path(), &make_folder("l1")).0, Some(EXIT_ALREADY_DONE));
        assert_eq!(sh(home.path(), &make_folder("l2")).0, Some(0));
        for _ in 0..2 {
            assert_eq!(sh(home.path(), &remove("l1")).0, Some(0));
        }
        assert!(home.path().join(".drover-lease/l2").exists(), "another's stay");
        assert_eq!(sh(home.path(), &remove("l2")).0, Some(0));
        assert!(!home.path().join(".drover-lease").exists());
    }
}
