//! Where a Proxmox token is written in the YAML, and the same file with another token in its place.
//! Every other line stays as it is; nothing is written here.

use std::path::{Path, PathBuf};

use super::credential::BESIDE;
use super::fault::Place;
use super::node::{Entry, Value};
use super::source::Sources;
use super::survey::{base_of, top};
use super::{Environment, LoadError, check};

/// A credential that holds a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenPlace {
    /// Its id in `credentials`.
    pub credential: String,
    /// The token's full id.
    pub token: String,
    /// The file of its secret, as a path that can be opened; none where the secret is elsewhere.
    pub secret_file: Option<PathBuf>,
    /// That file as it is written.
    written: Option<String>,
    token_at: Place,
    secret_at: Option<Place>,
    /// The file of the configuration it stands in.
    pub file: PathBuf,
}

/// Why the place of a token can not be told or changed.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It is not as it must be.
    #[error("{0}")]
    Wish(String),
    /// The configuration has faults, by itself or with the new token.
    #[error("{why}")]
    Faulty {
        /// Which of them.
        why: &'static str,
        /// What is wrong with it.
        #[source]
        source: Box<LoadError>,
    },
}

impl TokenError {
    /// The error as people read it.
    pub fn render(&self) -> String {
        match self {
            Self::Wish(text) => text.clone(),
            Self::Faulty { why, source } => format!("{why}:\n{}", source.render()),
        }
    }
}

fn faulty(why: &'static str) -> impl Fn(LoadError) -> TokenError {
    move |source| TokenError::Faulty { why, source: Box::new(source) }
}

fn read(path: &Path) -> Result<Sources, TokenError> {
    let unreadable = |(path, source)| LoadError::Io { path, source };
    Sources::read(path).map_err(unreadable).map_err(faulty("the configuration can not be read"))
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
/// [`TokenError`]: there is none, or there are several.
pub fn token_place(
    path: &Path,
    environment: &Environment,
    token: &str,
) -> Result<TokenPlace, TokenError> {
    let sources = read(path)?;
    let mut faults = Vec::new();
    let all = top(&sources, &mut faults).map_err(|fault| TokenError::Wish(fault.to_string()))?;
    let credentials = all.iter().find(|entry| entry.key == "credentials");
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
        let resolve = |(name, _): &(String, Place)| base_of(environment, &file.path, name);
        // What the unit hands over lies beside the YAML.
        let credential = scalar(entry, "systemdCredential")
            .filter(|_| environment.get("CREDENTIALS_DIRECTORY").is_none())
            .map(|(name, _)| base_of(environment, &file.path, BESIDE).join(name));
        places.push(TokenPlace {
            credential: entry.key.clone(),
            token: text,
            secret_file: secret.as_ref().map(resolve).or(credential),
            written: secret.as_ref().map(|(name, _)| name.clone()),
            token_at,
            secret_at: secret.map(|(_, place)| place),
            file: file.path.clone(),
        });
    }
    let text = match places.len() {
        1 => return Ok(places.remove(0)),
        0 => {
            format!("no credential in the YAML has the tokenId `{token}`: it comes from elsewhere")
        }
        _ => {
            let names: Vec<_> = places.iter().map(|one| format!("`{}`", one.credential)).collect();
            let names = names.join(", ");
            format!("several credentials have the tokenId `{token}`: {names}; keep one of them")
        }
    };
    Err(TokenError::Wish(text))
}

impl TokenPlace {
    /// The name of the secret's file with another token: that of the old one without its ending.
    pub fn file_for(&self, name: &str) -> Option<String> {
        Some(format!("{}.{name}", self.bare_file()?))
    }

    /// What the names of the secrets' files begin with, as it is written.
    pub fn bare_file(&self) -> Option<&str> {
        let written = self.written.as_deref()?;
        let old = self.token.split_once('!').map_or("", |(_, name)| name);
        Some(written.strip_suffix(&format!(".{old}")).unwrap_or(written))
    }

    /// The secret's file of that name, as a path that can be opened.
    pub fn resolve(&self, environment: &Environment, written: &str) -> PathBuf {
        base_of(environment, &self.file, written)
    }

    /// The whole text of its file with another token and another file of its secret, once the
    /// configuration was checked with it.
    ///
    /// # Errors
    /// [`TokenError`]; nothing is written either way.
    pub fn replaced(
        &self,
        path: &Path,
        environment: &Environment,
        token: &str,
        secret_file: &str,
    ) -> Result<String, TokenError> {
        let sources = read(path)?;
        let by_hand = || {
            let (file, id) = (self.file.display(), &self.credential);
            TokenError::Wish(format!(
                "`{id}` in `{file}` is written in a way that can not be changed line by line: put \
                 tokenId and secretFile on lines of their own, without anchors"
            ))
        };
        let file = sources.files().iter().find(|one| one.path == self.file).ok_or_else(by_hand)?;
        let mut edits = vec![(self.token_at, self.token.as_str(), token)];
        let (written, place) = (self.written.as_deref(), self.secret_at);
        edits.push((place.ok_or_else(by_hand)?, written.ok_or_else(by_hand)?, secret_file));
        // From the back, so that places before stay where they are.
        edits.sort_by_key(|(place, ..)| std::cmp::Reverse(*place));
        let mut text = file.text.clone();
        for (place, old, new) in edits {
            text = replace(&text, place, old, new).ok_or_else(by_hand)?;
        }
        let after = check(sources.with(&self.file, &text), environment);
        after.map_err(faulty("with the new token the configuration would have faults"))?;
        Ok(text)
    }
}

/// A text with one scalar replaced; none where that scalar does not stand there as it reads.
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
        insta::assert_snapshot!(said("c@pve!x"), @"no credential in the YAML has the tokenId `c@pve!x`: it comes from elsewhere");
    }
}
