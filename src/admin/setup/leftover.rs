//! What an interrupted rotation leaves behind: tokens of the user beside the one in the YAML, and
//! files of secrets. They are found by their names. A token's comment proves which rotation made
//! it.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use drover_ssh::quote;
use proxmox_client::admin::User;

use super::rights::COMMENT;

/// The comment of tokens that a rotation makes: it names the machine and the configuration, so that
/// no rotation takes another's token for its own.
pub fn rotation_comment(machine: &str, configuration: &Path) -> String {
    format!("{COMMENT} --rotate on {machine} for {}", configuration.display())
}

/// A token's name without the number that rotations append, and that number: 1 where there is none.
pub(super) fn numbered(name: &str) -> (&str, u32) {
    let counted = name.rsplit_once('-').and_then(|(bare, digits)| {
        let number: u32 = digits.parse().ok()?;
        (number > 1 && number.to_string() == digits).then_some((bare, number))
    });
    counted.unwrap_or((name, 1))
}

/// A token whose name a rotation could have given, and that is not the one in the YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftToken {
    pub user: String,
    /// The name, without the user.
    pub name: String,
    pub comment: Option<String>,
    /// Whether a rotation of this configuration made it.
    pub proven: bool,
    /// Whether it was made after the token in the YAML, so that it was never in use.
    pub newer: bool,
    /// The file of its secret, where that exists.
    pub file: Option<PathBuf>,
}

/// Everything that is left behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Tokens, with the files of their secrets.
    pub tokens: Vec<LeftToken>,
    /// Files of secrets whose tokens no longer exist.
    pub files: Vec<PathBuf>,
}

impl Leftovers {
    /// Finds the tokens of a user whose names differ from `current` by a number, and pairs them
    /// with `secrets`: names of tokens, each with the file of its secret.
    pub fn find(own: &User, current: &str, comment: &str, secrets: Vec<(String, PathBuf)>) -> Self {
        let (bare, number) = numbered(current);
        let mut left = Self::default();
        let mut files = secrets;
        for token in own.tokens.iter().filter(|token| token.tokenid != current) {
            let (its_bare, its_number) = numbered(&token.tokenid);
            if its_bare != bare {
                continue;
            }
            let at = files.iter().position(|(name, _)| *name == token.tokenid);
            left.tokens.push(LeftToken {
                user: own.userid.clone(),
                name: token.tokenid.clone(),
                comment: token.comment.clone().filter(|text| !text.trim().is_empty()),
                proven: token.comment.as_deref().map(str::trim) == Some(comment),
                newer: its_number > number,
                file: at.map(|at| files.remove(at).1),
            });
        }
        let alive: BTreeSet<&str> = own.tokens.iter().map(|one| one.tokenid.as_str()).collect();
        files.retain(|(name, _)| !alive.contains(name.as_str()));
        left.files = files.into_iter().map(|(_, file)| file).collect();
        left
    }

    /// One line for each, with the command that removes it.
    pub fn lines(&self) -> Vec<String> {
        let tokens = self.tokens.iter().map(ToString::to_string);
        let files = self.files.iter().map(|file| {
            let shown = quote(&file.display().to_string());
            format!("{} is the secret of a token that no longer exists: rm {shown}", file.display())
        });
        tokens.chain(files).collect()
    }
}

impl LeftToken {
    /// The full id, `user@realm!name`.
    pub fn id(&self) -> String {
        format!("{}!{}", self.user, self.name)
    }

    /// Whether a rotation made the token and never put it in use.
    pub fn was_never_used(&self) -> bool {
        self.proven && self.newer
    }
}

impl std::fmt::Display for LeftToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { user, name, comment, .. } = self;
        let mut remove = format!("pveum user token remove {user} {name}");
        if let Some(file) = &self.file {
            remove.push_str(&format!("; rm {}", quote(&file.display().to_string())));
        }
        if self.was_never_used() {
            return write!(f, "token {user}!{name} was left by an interrupted rotation: {remove}");
        }
        let comment = comment.as_deref().unwrap_or("without a comment");
        write!(
            f,
            "token {user}!{name} ({comment}) exists beside the one in the YAML; once nothing uses it: \
             {remove}"
        )
    }
}

/// Files in which rotations store secrets, beside the file in the YAML: each with its token's name.
/// `current` is the file in the YAML and `token` its token; the names of the files begin with
/// `bare`.
///
/// # Errors
/// The folder cannot be read.
pub fn secrets_beside(
    current: &Path,
    bare: &Path,
    token: &str,
) -> io::Result<Vec<(String, PathBuf)>> {
    let Some(folder) = bare.parent() else { return Ok(Vec::new()) };
    let Some(begin) = bare.file_name().and_then(|name| name.to_str()) else {
        return Ok(Vec::new());
    };
    let (family, _) = numbered(token);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let of = if name == begin {
            Some(family)
        } else {
            name.strip_prefix(begin).and_then(|rest| rest.strip_prefix('.'))
        };
        let Some(of) = of.filter(|of| *of != token && numbered(of).0 == family) else { continue };
        if entry.path() != current && entry.file_type()?.is_file() {
            found.push((of.to_owned(), entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;
    use proxmox_client::admin::Token;

    fn user(tokens: &[(&str, Option<&str>)]) -> User {
        let token = |(name, comment): &(&str, Option<&str>)| Token {
            tokenid: (*name).to_owned(),
            expire: None,
            privsep: false,
            comment: comment.map(str::to_owned),
        };
        User {
            userid: "a@pve".into(),
            enable: None,
            expire: None,
            tokens: tokens.iter().map(token).collect(),
        }
    }

    // Invariant: only names that a rotation gives are considered, and only the exact comment proves
    // that this configuration's rotation gave it.

    #[test]
    fn tokens_are_reported_apart_by_name_number_and_comment() {
        let own = rotation_comment("ci1", Path::new("/etc/drover/drover.yaml"));
        let other = rotation_comment("ci2", Path::new("/etc/drover/drover.yaml"));
        let tokens = user(&[
            ("ci", None),
            ("ci-2", Some(&own)),
            ("ci-3", None),
            ("ci-4", Some(&own)),
            ("ci-5", Some(&other)),
            ("ci-05", Some(&own)),
            ("ci-1", Some(&own)),
            ("web", Some(&own)),
            ("my-ci-4", Some(&own)),
        ]);
        let file = |name: &str| (name.to_owned(), PathBuf::from(format!("/s/token.{name}")));
        let secrets = vec![file("ci-4"), file("ci-9")];
        let left = Leftovers::find(&tokens, "ci-3", &own, secrets);
        let reported: Vec<_> = left
            .tokens
            .iter()
            .map(|one| (one.name.as_str(), one.proven, one.was_never_used()))
            .collect();
        let wanted = [
            ("ci", false, false),
            ("ci-2", true, false),
            ("ci-4", true, true),
            ("ci-5", false, false),
        ];
        assert_eq!(reported, wanted);
        insta::assert_snapshot!(left.lines().join("\n"), @r"
        token a@pve!ci (without a comment) exists beside the one in the YAML; once nothing uses it: pveum user token remove a@pve ci
        token a@pve!ci-2 (made by drover setup rights --rotate on ci1 for /etc/drover/drover.yaml) exists beside the one in the YAML; once nothing uses it: pveum user token remove a@pve ci-2
        token a@pve!ci-4 was left by an interrupted rotation: pveum user token remove a@pve ci-4; rm /s/token.ci-4
        token a@pve!ci-5 (made by drover setup rights --rotate on ci2 for /etc/drover/drover.yaml) exists beside the one in the YAML; once nothing uses it: pveum user token remove a@pve ci-5
        /s/token.ci-9 is the secret of a token that no longer exists: rm /s/token.ci-9
        ");
    }

    #[test]
    fn secrets_are_found_by_the_names_that_rotations_give_them() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["token", "token.ci-2", "token.ci-3", "token.bak", "token.ci-03", "other.ci-2"]
        {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        std::fs::create_dir(folder.path().join("token.ci-4")).unwrap();
        let bare = folder.path().join("token");
        let found = secrets_beside(&folder.path().join("token.ci-3"), &bare, "ci-3").unwrap();
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["ci", "ci-2"]);
    }
}
