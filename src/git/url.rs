//! The address of a repository: `https`, `http`, `ssh` or a folder of this machine, and nothing else.
//!
//! git knows more: remote helpers such as `ext::` run programs, and an address that begins with `-`
//! is an option. An address with a password or token in it is refused, since addresses are shown.

use std::fmt;
use std::str::FromStr;

use super::text::is_unsafe;

/// How a repository is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// HTTP with TLS.
    Https,
    /// HTTP without TLS: a password would go over the network in clear text.
    Http,
    /// `ssh://user@host:port/path`, or `user@host:path`.
    Ssh,
    /// A folder of this machine.
    File,
}

impl Scheme {
    /// The name that git gives the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
            Self::Ssh => "ssh",
            Self::File => "file",
        }
    }
}

/// The checked address of a repository, which has no password in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RepoUrl {
    text: String,
    scheme: Scheme,
    /// `scheme://host[:port]`; empty for a folder.
    origin: String,
    user: Option<String>,
}

/// Why a text is not the address of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlFault {
    /// There is no text.
    #[error("the repository URL is empty")]
    Empty,
    /// git would read the address, or a part of it, as an option.
    #[error("the repository URL, its host or its path begins with `-`")]
    Option,
    /// A character could change what is shown, or end the address early.
    #[error("the repository URL has a control character or a space in it")]
    Character,
    /// A login stands in the address.
    #[error(
        "the repository URL has a username or password in it: use a credential, so that the secret \
         is not shown with the URL"
    )]
    Login,
    /// The address asks for another protocol, or for a program that speaks one.
    #[error(
        "the repository URL is none of `https://host/path`, `http://host/path`, \
         `ssh://user@host/path`, `user@host:path`, `file:///path` and `/path`"
    )]
    Scheme,
    /// The host is missing or has characters that no host has.
    #[error("the host of the repository URL is empty or not a host name")]
    Host,
    /// The user of an ssh address has characters that no user has.
    #[error("the user of the repository URL is not a user name")]
    User,
    /// The port is not one.
    #[error("the port of the repository URL is not a number from 1 to 65535")]
    Port,
    /// There is no path.
    #[error("the repository URL has no path")]
    Path,
    /// An address over HTTP has parameters, which often are secrets.
    #[error("the repository URL has a `?` or `#` in it, which no repository needs")]
    Parameters,
}

impl RepoUrl {
    /// How the repository is reached.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The address as git gets it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `scheme://host[:port]`, to which a password is limited; empty for a folder.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The user in an ssh address.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }
}

impl fmt::Display for RepoUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for RepoUrl {
    type Err = UrlFault;

    fn from_str(text: &str) -> Result<Self, UrlFault> {
        if text.is_empty() {
            return Err(UrlFault::Empty);
        }
        if text.starts_with('-') {
            return Err(UrlFault::Option);
        }
        if text.chars().any(is_unsafe) {
            return Err(UrlFault::Character);
        }
        if text.starts_with('/') {
            return folder(text, text);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return scp_like(text);
        };
        let scheme = scheme.to_ascii_lowercase();
        if scheme == "file" {
            return folder(rest, &format!("file://{rest}"));
        }
        if rest.contains(char::is_whitespace) {
            return Err(UrlFault::Character);
        }
        match scheme.as_str() {
            "https" => over_http(Scheme::Https, rest),
            "http" => over_http(Scheme::Http, rest),
            "ssh" => over_ssh(rest),
            _ => Err(UrlFault::Scheme),
        }
    }
}

fn folder(path: &str, text: &str) -> Result<RepoUrl, UrlFault> {
    if !path.starts_with('/') {
        return Err(UrlFault::Host);
    }
    if path.trim_matches('/').is_empty() {
        return Err(UrlFault::Path);
    }
    Ok(RepoUrl { text: text.to_owned(), scheme: Scheme::File, origin: String::new(), user: None })
}

fn over_http(scheme: Scheme, rest: &str) -> Result<RepoUrl, UrlFault> {
    let (authority, path) = authority_and_path(rest)?;
    if authority.contains('@') {
        return Err(UrlFault::Login);
    }
    if rest.contains(['?', '#']) {
        return Err(UrlFault::Parameters);
    }
    let authority = host_and_port(authority)?;
    let origin = format!("{}://{authority}", scheme.name());
    Ok(RepoUrl { text: format!("{origin}/{path}"), scheme, origin, user: None })
}

fn over_ssh(rest: &str) -> Result<RepoUrl, UrlFault> {
    let (authority, path) = authority_and_path(rest)?;
    let (user, host) = user_and_host(authority)?;
    let host = host_and_port(host)?;
    let at = user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
    Ok(RepoUrl {
        text: format!("ssh://{at}{host}/{path}"),
        scheme: Scheme::Ssh,
        origin: format!("ssh://{host}"),
        user,
    })
}

/// `user@host:path`, where no `/` stands before the colon.
fn scp_like(text: &str) -> Result<RepoUrl, UrlFault> {
    if text.contains(char::is_whitespace) {
        return Err(UrlFault::Character);
    }
    let host_end =
        if text.contains('[') { text.find("]:").map(|at| at + 1) } else { text.find(':') };
    let Some((authority, path)) = host_end.map(|at| (&text[..at], &text[at + 1..])) else {
        return Err(UrlFault::Scheme);
    };
    // `ext::program` is the address of a remote helper.
    if authority.contains('/') || path.starts_with(':') {
        return Err(UrlFault::Scheme);
    }
    // `user:password@host:path` would pass for the path `password@host:path` on a host `user`.
    if path.split_once('@').is_some_and(|(_, rest)| rest.contains(':')) {
        return Err(UrlFault::Login);
    }
    let (user, host) = user_and_host(authority)?;
    // A port has no place in this form: what follows the colon is the path.
    let bare = host_and_port(host)?;
    if path.trim_matches('/').is_empty() {
        return Err(UrlFault::Path);
    }
    if path.starts_with('-') {
        return Err(UrlFault::Option);
    }
    Ok(RepoUrl {
        text: text.to_owned(),
        scheme: Scheme::Ssh,
        origin: format!("ssh://{bare}"),
        user,
    })
}

fn authority_and_path(rest: &str) -> Result<(&str, &str), UrlFault> {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.is_empty() {
        return Err(UrlFault::Host);
    }
    if path.trim_matches('/').is_empty() {
        // A login is the worse fault: it is named also where the path is missing.
        return Err(if authority.contains('@') && authority.contains(':') {
            UrlFault::Login
        } else {
            UrlFault::Path
        });
    }
    Ok((authority, path))
}

fn user_and_host(authority: &str) -> Result<(Option<String>, &str), UrlFault> {
    let Some((user, host)) = authority.rsplit_once('@') else {
        return Ok((None, authority));
    };
    if user.contains(':') {
        return Err(UrlFault::Login);
    }
    if !is_user(user) {
        return Err(UrlFault::User);
    }
    Ok((Some(user.to_owned()), host))
}

/// Whether ssh takes this for a user and for nothing else.
pub(super) fn is_user(user: &str) -> bool {
    !user.is_empty()
        && !user.starts_with('-')
        && user.chars().all(|c| c.is_ascii_alphanumeric() || "._-+".contains(c))
}

fn host_and_port(text: &str) -> Result<String, UrlFault> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, after)) => {
            let address: std::net::Ipv6Addr = address.parse().map_err(|_| UrlFault::Host)?;
            let port = match after {
                "" => None,
                after => Some(after.strip_prefix(':').ok_or(UrlFault::Host)?),
            };
            (format!("[{address}]"), port)
        }
        None => {
            let (host, port) = match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            };
            if host.starts_with('-') {
                return Err(UrlFault::Option);
            }
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if host.is_empty() || !host.chars().all(plain) {
                return Err(UrlFault::Host);
            }
            (host.to_ascii_lowercase(), port)
        }
    };
    match port {
        None => Ok(host),
        Some(port) => match port.parse::<u16>() {
            Ok(number) if number > 0 && !port.starts_with('+') => Ok(format!("{host}:{number}")),
            Ok(_) | Err(_) => Err(UrlFault::Port),
        },
    }
}
