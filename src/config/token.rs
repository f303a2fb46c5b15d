//! Finds a Proxmox token in the YAML, and replaces it (`drover setup rotate`). Every other
//! character of the file stays as it is; nothing is written here.

use std::path::{Path, PathBuf};

use super::context::{UNIT_CREDENTIALS, resolve};
use super::edit::{EditError, faulty, read, request};
use super::fault::Place;
use super::node::{Entry, Value};
use super::top::Top;
use super::{Environment, check};

/// A credential that holds a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenPlace {
    /// Its id in `credentials`.
    pub credential: String,
    /// The token's full id.
    pub token: String,
    /// The path of the secret's file; none where the secret is elsewhere.
    pub secret_file: Option<PathBuf>,
    /// That file as the YAML has it.
    written: Option<String>,
    token_at: Place,
    secret_at: Option<Place>,
    /// The file of the configuration that contains it.
    pub file: PathBuf,
}

/// A scalar of a mapping, and where it stands.
fn scalar(entry: &Entry, key: &str) -> Option<(String, Place)> {
    let Value::Map(keys) = &entry.value.value else { return None };
    let found = keys.iter().find(|one| one.key == key)?;
    match &found.value.value {
        Value::Scalar { text, .. } => Some((text.clone(), found.value.place)),
        Value::List(_) | Value::Map(_) => None,
    }
}

/// Finds the one credential that holds a token.
///
/// # Errors
/// [`EditError`]: there is none, or there are several.
pub fn token_place(
    path: &Path,
    environment: &Environment,
    token: &str,
) -> Result<TokenPlace, EditError> {
    let sources = read(path)?;
    let mut faults = Vec::new();
    let all = Top::of(&sources, &mut faults).map_err(|fault| request(fault.to_string()))?;
    let credentials = all.local("credentials");
    let entries = match credentials.map(|entry| &entry.value.value) {
        Some(Value::Map(entries)) => entries.as_slice(),
        Some(Value::Scalar { .. } | Value::List(_)) | None => &[],
    };
    let mut places = Vec::new();
    for entry in entries {
        let Some((text, token_at)) = scalar(entry, "tokenId").filter(|(text, _)| text == token)
        else {
            continue;
        };
        let secret = scalar(entry, "secretFile");
        let Some(file) = sources.file(token_at.file) else { continue };
        let path = |(name, _): &(String, Place)| resolve(environment, file.path.parent(), name);
        // The unit loads its credentials from the directory of the YAML.
        let credential = scalar(entry, "systemdCredential")
            .filter(|_| environment.get("CREDENTIALS_DIRECTORY").is_none())
            .map(|(name, _)| resolve(environment, file.path.parent(), UNIT_CREDENTIALS).join(name));
        places.push(TokenPlace {
            credential: entry.key.clone(),
            token: text,
            secret_file: secret.as_ref().map(path).or(credential),
            written: secret.as_ref().map(|(name, _)| name.clone()),
            token_at,
            secret_at: secret.map(|(_, place)| place),
            file: file.path.clone(),
        });
    }
    let text = match places.len() {
        1 => return Ok(places.remove(0)),
        0 => {
            format!("no credential in the YAML has the tokenId `{token}`")
        }
        _ => {
            let names: Vec<_> = places.iter().map(|one| format!("`{}`", one.credential)).collect();
            let names = names.join(", ");
            format!("several credentials have the tokenId `{token}`: {names}; keep one of them")
        }
    };
    Err(request(text))
}

impl TokenPlace {
    /// The file of another token's secret, as the YAML has it: that of the old one with another
    /// ending.
    pub fn file_for(&self, name: &str) -> Option<String> {
        Some(format!("{}.{name}", self.bare_file()?))
    }

    /// The common beginning of the secrets' files, as the YAML has it.
    pub fn bare_file(&self) -> Option<&str> {
        let written = self.written.as_deref()?;
        let old = self.token.split_once('!').map_or("", |(_, name)| name);
        Some(written.strip_suffix(&format!(".{old}")).unwrap_or(written))
    }

    /// The path of a file that is written so.
    pub fn resolve(&self, environment: &Environment, written: &str) -> PathBuf {
        resolve(environment, self.file.parent(), written)
    }

    /// The whole text of the file with another token and another file of its secret, after a check
    /// of the configuration with it.
    ///
    /// # Errors
    /// [`EditError`]; nothing is written either way.
    pub fn replaced(
        &self,
        path: &Path,
        environment: &Environment,
        token: &str,
        secret_file: &str,
    ) -> Result<String, EditError> {
        let sources = read(path)?;
        let by_hand = || {
            let (file, id) = (self.file.display(), &self.credential);
            request(format!(
                "`{id}` in `{file}` cannot be changed line by line; put tokenId and secretFile on \
                 lines of their own, without anchors"
            ))
        };
        let file = sources.files().iter().find(|one| one.path == self.file).ok_or_else(by_hand)?;
        let mut edits = vec![(self.token_at, self.token.as_str(), token)];
        let (written, place) = (self.written.as_deref(), self.secret_at);
        edits.push((place.ok_or_else(by_hand)?, written.ok_or_else(by_hand)?, secret_file));
        // From the end, so that the other places stay valid.
        edits.sort_by_key(|(place, ..)| std::cmp::Reverse(*place));
        let mut text = file.text.clone();
        for (place, old, new) in edits {
            text = replace(&text, place, old, new).ok_or_else(by_hand)?;
        }
        let after = check(sources.with(&self.file, None, &text), environment);
        after.map_err(faulty("with the new token the configuration would have faults"))?;
        Ok(text)
    }
}

/// A text with one scalar replaced; none where the text at the place is not that scalar.
fn replace(text: &str, place: Place, old: &str, new: &str) -> Option<String> {
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let line = *lines.get(place.line.checked_sub(1)?)?;
    let begin = line.char_indices().nth(place.column.checked_sub(1)?)?.0;
    let rest = &line[begin..];
    let spelled = [format!("\"{old}\""), format!("'{old}'"), old.to_owned()];
    let raw = spelled.iter().find(|raw| rest.starts_with(raw.as_str()))?;
    let quoted = format!("\"{}\"", new.replace('\\', "\\\\").replace('"', "\\\""));
    let fresh = format!("{}{quoted}{}", &line[..begin], &rest[raw.len()..]);
    let at = place.line - 1;
    lines[at] = &fresh;
    Some(lines.concat())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    const YAML: &str = "# Kept.\ncredentials:\n  pve: {kind: proxmoxToken, tokenId: a@pve!ci, \
        secretFile: 'tokens/a'} # too\n  other: {kind: proxmoxToken, tokenId: b@pve!x, secret: s3cret-y}\n\
        cloudConfigurations:\n  rack: {name: R, credentialsId: pve}\n";

    // Invariant: the token and its file change together, and every other character stays.

    #[test]
    fn a_token_is_replaced_in_its_line_and_nothing_else_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("drover.yaml");
        std::fs::write(&path, YAML).unwrap();
        let environment = Environment::default().without_secrets();
        let place = token_place(&path, &environment, "a@pve!ci").unwrap();
        assert_eq!(place.credential, "pve");
        assert_eq!(place.secret_file.as_deref(), Some(&*directory.path().join("tokens/a")));
        let file = place.file_for("ci-2").unwrap();
        assert_eq!(file, "tokens/a.ci-2");
        let text = place.replaced(&path, &environment, "a@pve!ci-2", &file).unwrap();
        let wanted = YAML
            .replace("tokenId: a@pve!ci,", "tokenId: \"a@pve!ci-2\",")
            .replace("'tokens/a'", "\"tokens/a.ci-2\"");
        assert_eq!(text, wanted);
        std::fs::write(&path, &text).unwrap();
        let again = token_place(&path, &environment, "a@pve!ci-2").unwrap();
        assert_eq!(again.file_for("ci-3").unwrap(), "tokens/a.ci-3");
    }

    #[test]
    fn a_token_that_is_nowhere_or_twice_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("drover.yaml");
        std::fs::write(&path, YAML.replace("b@pve!x", "a@pve!ci")).unwrap();
        let environment = Environment::default();
        let said = |token| token_place(&path, &environment, token).unwrap_err().render();
        insta::assert_snapshot!(said("a@pve!ci"), @"several credentials have the tokenId `a@pve!ci`: `pve`, `other`; keep one of them");
        insta::assert_snapshot!(said("c@pve!x"), @"no credential in the YAML has the tokenId `c@pve!x`");
    }
}
