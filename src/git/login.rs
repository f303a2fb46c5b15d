//! Who logs in to a repository, and the secrets that no text may show.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};

use super::url::{RepoUrl, Scheme, is_user};

/// Who logs in to a repository.
#[derive(Debug, Clone)]
pub enum Login {
    /// Nobody: a public repository, or a folder.
    None,
    /// A user with a password or token, for `https` and `http`.
    Password {
        /// The user; most services accept any name beside a token.
        username: String,
        /// The password or token.
        password: SecretString,
    },
    /// A user with an SSH key.
    SshKey {
        /// The user where the address has none, such as `git`.
        username: String,
        /// The private key in OpenSSH's PEM, without a passphrase.
        key: SecretString,
    },
}

/// Why a login does not fit a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoginFault {
    /// An ssh address without a key.
    #[error("an ssh repository needs an SSH key")]
    NeedsKey,
    /// An HTTP address with a key.
    #[error("a repository over http or https takes a password or token, not an SSH key")]
    NeedsPassword,
    /// A folder with a login.
    #[error("a repository in a folder takes no login")]
    NeedsNothing,
    /// A line end would let the rest of the text pass for another field.
    #[error("the username or password has a line end or a NUL character in it")]
    LineEnd,
    /// The key is something else, such as a public key.
    #[error("the SSH key is not a private key in PEM, as `ssh-keygen` writes it")]
    NotAKey,
    /// Nobody is there to type a passphrase.
    #[error("the SSH key has a passphrase: use a key without one")]
    Locked,
    /// ssh would not take the text for a user.
    #[error("the username is not one that ssh accepts")]
    User,
}

impl Login {
    /// Checks that the login fits the repository.
    ///
    /// # Errors
    /// See [`LoginFault`].
    pub fn check(&self, url: &RepoUrl) -> Result<(), LoginFault> {
        match (url.scheme(), self) {
            (Scheme::Ssh, Self::None | Self::Password { .. }) => Err(LoginFault::NeedsKey),
            (Scheme::Ssh, Self::SshKey { username, key }) => {
                if is_user(url.user().unwrap_or(username)) {
                    check_key(key.expose_secret())
                } else {
                    Err(LoginFault::User)
                }
            }
            (Scheme::Https | Scheme::Http, Self::SshKey { .. }) => Err(LoginFault::NeedsPassword),
            (Scheme::Https | Scheme::Http, Self::Password { username, password }) => {
                let breaks = |text: &str| text.contains(['\n', '\r', '\0']);
                if breaks(username) || breaks(password.expose_secret()) {
                    Err(LoginFault::LineEnd)
                } else {
                    Ok(())
                }
            }
            (Scheme::File, Self::Password { .. } | Self::SshKey { .. }) => {
                Err(LoginFault::NeedsNothing)
            }
            (Scheme::Https | Scheme::Http | Scheme::File, Self::None) => Ok(()),
        }
    }

    /// The text without the login's secrets: a server can send back what it was sent.
    pub(super) fn mask(&self, text: &str) -> String {
        const MASK: &str = "[secret]";
        match self {
            Self::None => text.to_owned(),
            Self::Password { username, password } => {
                let password = password.expose_secret();
                if password.is_empty() {
                    return text.to_owned();
                }
                let pair = format!("{username}:{password}");
                let carried =
                    SecretString::from(STANDARD.encode(SecretString::from(pair).expose_secret()));
                text.replace(carried.expose_secret(), MASK).replace(password, MASK)
            }
            Self::SshKey { key, .. } => key
                .expose_secret()
                .lines()
                .filter(|line| !line.trim().is_empty() && !line.starts_with("-----"))
                .fold(text.to_owned(), |text, line| text.replace(line.trim(), MASK)),
        }
    }
}

/// ssh does not say why it does not use a key.
fn check_key(text: &str) -> Result<(), LoginFault> {
    const FORMAT: &[u8] = b"openssh-key-v1\0";
    const UNLOCKED: &[u8] = b"\0\0\0\x04none";
    let Some((begin, rest)) = text.trim().split_once("PRIVATE KEY-----") else {
        return Err(LoginFault::NotAKey);
    };
    let Some((body, _)) = rest.split_once("-----END ") else {
        return Err(LoginFault::NotAKey);
    };
    match begin {
        "-----BEGIN OPENSSH " => {
            let body = SecretString::from(body.split_whitespace().collect::<String>());
            let key = STANDARD.decode(body.expose_secret()).map(SecretSlice::from);
            let key = key.map_err(|_| LoginFault::NotAKey)?;
            let after = key.expose_secret().strip_prefix(FORMAT).ok_or(LoginFault::NotAKey)?;
            if after.starts_with(UNLOCKED) { Ok(()) } else { Err(LoginFault::Locked) }
        }
        _ if begin.contains("ENCRYPTED") || body.contains("ENCRYPTED") => Err(LoginFault::Locked),
        _ if begin.starts_with("-----BEGIN ") => Ok(()),
        _ => Err(LoginFault::NotAKey),
    }
}
