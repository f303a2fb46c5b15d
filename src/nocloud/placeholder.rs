//! Placeholders `${name}` in an operator's texts, as in Packer's and Terraform's `templatefile` and
//! Python's `string.Template`: `$${` stands for `${`, and every other `$` for itself. So `$HOME`,
//! `$(date)` and `$$` of a shell stay as they are.

use std::collections::BTreeMap;

/// What is wrong with a placeholder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceholderError {
    /// The name has no value.
    #[error("`${{{0}}}` has no value")]
    Unknown(String),
    /// The text between the braces is not a name.
    #[error("`${{{0}` is not a placeholder")]
    NoName(String),
}

#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Plain(&'a str),
    Name(&'a str),
}

/// How many characters of a malformed placeholder an error shows.
const SHOWN_CHARS_MAX: usize = 24;

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, PlaceholderError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        if let Some(kept) = before.strip_suffix('$') {
            pieces.extend([Piece::Plain(kept), Piece::Plain("${")]);
            rest = after;
            continue;
        }
        pieces.push(Piece::Plain(before));
        let end = after.find('}');
        let Some(name) = end.map(|end| &after[..end]).filter(|name| is_name(name)) else {
            let shown = after.lines().next().unwrap_or_default();
            let shown = end.map_or(shown, |end| shown.get(..=end).unwrap_or(shown));
            return Err(PlaceholderError::NoName(shown.chars().take(SHOWN_CHARS_MAX).collect()));
        };
        pieces.push(Piece::Name(name));
        rest = &after[name.len() + 1..];
    }
    pieces.push(Piece::Plain(rest));
    Ok(pieces)
}

/// The names in a text, each once, in order of appearance.
///
/// # Errors
/// [`PlaceholderError::NoName`].
pub fn names(text: &str) -> Result<Vec<&str>, PlaceholderError> {
    let mut names = Vec::new();
    for piece in pieces(text)? {
        match piece {
            Piece::Name(name) if !names.contains(&name) => names.push(name),
            Piece::Name(_) | Piece::Plain(_) => {}
        }
    }
    Ok(names)
}

/// The text with its placeholders filled in.
///
/// # Errors
/// When a placeholder is malformed or has no value.
pub fn fill(text: &str, values: &BTreeMap<String, String>) -> Result<String, PlaceholderError> {
    let mut filled = String::with_capacity(text.len());
    for piece in pieces(text)? {
        filled.push_str(match piece {
            Piece::Plain(plain) => plain,
            Piece::Name(name) => {
                values.get(name).ok_or_else(|| PlaceholderError::Unknown(name.to_owned()))?
            }
        });
    }
    Ok(filled)
}

/// Whether a name looks like that of a secret, which must not be on a disc that others can read.
pub fn is_secret(name: &str) -> bool {
    const WORDS: [&str; 8] = [
        "token",
        "secret",
        "password",
        "passwd",
        "passphrase",
        "privatekey",
        "apikey",
        "credential",
    ];
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let bare: String = letters.map(|c| c.to_ascii_lowercase()).collect();
    WORDS.iter().any(|word| bare.contains(word))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn values() -> BTreeMap<String, String> {
        let pairs = [
            ("repo_url", "https://github.com/NREL/EnergyPlus"),
            ("runner_name", "energyplus-runner-001"),
            ("runner_labels", "energyplus,linux,x64,ubuntu-22.04"),
            ("registration_token", "not-one"),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    // Invariant: a template written for `templatefile` or `string.Template` gives the same text
    // here.

    #[test]
    fn a_runner_template_is_filled_in_and_its_shell_is_left_alone() {
        let text = r#"#cloud-config
hostname: ${runner_name}
write_files:
  - path: /opt/runner/start.sh
    permissions: "0755"
    content: |
      #!/bin/bash
      set -euo pipefail
      cd "$HOME/actions-runner" || exit 1
      echo "pid $$ at $(date -u +%FT%TZ), arguments $#: $@, last $?"
      ARCH="$${RUNNER_ARCH:-x64}"
      ./config.sh --unattended --ephemeral --url "${repo_url}" \
        --token "${registration_token}" --name "${runner_name}" --labels "${runner_labels}"
      trap 'poweroff' EXIT
runcmd:
  - [sudo, -u, runner, /opt/runner/start.sh]
"#;
        let expected = r#"#cloud-config
hostname: energyplus-runner-001
write_files:
  - path: /opt/runner/start.sh
    permissions: "0755"
    content: |
      #!/bin/bash
      set -euo pipefail
      cd "$HOME/actions-runner" || exit 1
      echo "pid $$ at $(date -u +%FT%TZ), arguments $#: $@, last $?"
      ARCH="${RUNNER_ARCH:-x64}"
      ./config.sh --unattended --ephemeral --url "https://github.com/NREL/EnergyPlus" \
        --token "not-one" --name "energyplus-runner-001" --labels "energyplus,linux,x64,ubuntu-22.04"
      trap 'poweroff' EXIT
runcmd:
  - [sudo, -u, runner, /opt/runner/start.sh]
"#;
        assert_eq!(fill(text, &values()).unwrap(), expected);
        let names = names(text).unwrap();
        assert_eq!(names, ["runner_name", "repo_url", "registration_token", "runner_labels"]);
    }

    #[test]
    fn values_are_not_looked_into_and_dollars_stay() {
        let values = BTreeMap::from([("a".to_owned(), "${b} $${c}".to_owned())]);
        assert_eq!(fill("${a}", &values).unwrap(), "${b} $${c}");
        assert_eq!(fill("$$${a}", &values).unwrap(), "$${a}");
        assert_eq!(fill("$ $$ $1 {x} $", &values).unwrap(), "$ $$ $1 {x} $");
        assert_eq!(fill("", &values).unwrap(), "");
    }

    // Invariant: a placeholder that cannot be filled in is an error that shows it.

    #[test]
    fn unknown_names_and_what_is_none_are_faults() {
        let fault = |text: &str| fill(text, &values()).unwrap_err().to_string();
        assert_eq!(fault("x ${nobody} y"), "`${nobody}` has no value");
        assert_eq!(fault("${VAR:-x} y"), "`${VAR:-x}` is not a placeholder");
        assert_eq!(fault("${}"), "`${}` is not a placeholder");
        assert_eq!(fault("${open\nnext}"), "`${open` is not a placeholder");
        assert_eq!(fault("a ${"), "`${` is not a placeholder");
    }

    #[test]
    fn names_of_secrets_are_known() {
        for name in ["registration_token", "dbPassword", "API_KEY", "privateKey", "SECRET"] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["sshPublicKey", "hostname", "runner_labels", "key_id"] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
