//! Where a journal in etcd is, as people write it.
//!
//! `etcd://10.0.0.1:2379,10.0.0.2:2379/drover/main`, with TLS `etcds://…`, with options behind a
//! question mark: `caFile`, `certFile` and `keyFile`, `user` and `passwordFile`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use secrecy::SecretString;

use super::identity::{Identity, IdentityError};
use crate::files;

/// The port of etcd where none is given.
const PORT: u16 = 2379;
/// What lies in a journal.
pub(super) const OWN_NAMES: [&str; 5] = ["beside", "head", "records", "register", "snapshots"];
/// The prefix where none is given.
const PREFIX: &str = "/drover";

/// Where a journal in etcd is.
#[derive(Debug, Clone)]
pub struct EtcdAddress {
    secure: bool,
    /// `host:port` of each member.
    members: Vec<String>,
    prefix: String,
    authority: Option<String>,
    identity: Option<Identity>,
    login: Option<(String, SecretString)>,
}

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    #[error("`{0}` is no address of a journal in etcd: write etcd://HOST:PORT,HOST:PORT/PREFIX")]
    Shape(String),
    #[error("an address has no login: give `?user=…&passwordFile=…`")]
    Login,
    #[error(
        "`{0}` is no option of an address: caFile, certFile, keyFile, passwordFile and user are"
    )]
    Option(String),
    #[error(
        "a prefix must not have `{0}` in it, which lies in each journal itself: name another one"
    )]
    Prefix(String),
    #[error("`user` and `passwordFile` come together")]
    HalfLogin,
    #[error("`certFile` and `keyFile` come together")]
    HalfIdentity,
    #[error("`{0}` is for etcds://, and this address has no TLS")]
    NoTls(&'static str),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("the file `{}` cannot be read", .path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl EtcdAddress {
    /// Whether a text is meant as such an address.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("etcd://") || text.starts_with("etcds://")
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The base of each member's URL.
    pub(super) fn bases(&self) -> Vec<String> {
        let scheme = if self.secure { "https" } else { "http" };
        self.members.iter().map(|member| format!("{scheme}://{member}")).collect()
    }

    /// The authorities that sign the members' certificates, as PEM; none means the system's.
    pub(super) fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// The certificate that this caller shows.
    pub(super) fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    pub(super) fn login(&self) -> Option<&(String, SecretString)> {
        self.login.as_ref()
    }
}

impl FromStr for EtcdAddress {
    type Err = AddressError;

    /// Reads an address, and the files that it names.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let shape = || AddressError::Shape(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(shape)?;
        let secure = match scheme {
            "etcd" => false,
            "etcds" => true,
            _ => return Err(shape()),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (members, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if members.contains('@') {
            return Err(AddressError::Login);
        }
        let members: Option<Vec<String>> = members.split(',').map(member).collect();
        let members = members.ok_or_else(shape)?;
        let prefix = match prefix.trim_matches('/') {
            "" => PREFIX.to_owned(),
            prefix => format!("/{prefix}"),
        };
        // Beneath another journal a journal would lie among what that one deletes.
        if let Some(part) = prefix.split('/').find(|part| OWN_NAMES.contains(part)) {
            return Err(AddressError::Prefix(part.to_owned()));
        }
        let (mut authority, mut user, mut password) = (None, None, None);
        let (mut certificate, mut key) = (None, None);
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("caFile", path)) => authority = Some(file(path, files::read)?),
                Some(("certFile", path)) => certificate = Some(file(path, files::read)?),
                Some(("keyFile", path)) => key = Some(file(path, files::read_secret)?),
                Some(("user", name)) => user = Some(name.to_owned()),
                Some(("passwordFile", path)) => password = Some(file(path, files::read_secret)?),
                Some(_) | None => return Err(AddressError::Option(option.to_owned())),
            }
        }
        let of_tls = [
            ("caFile", authority.is_some()),
            ("certFile", certificate.is_some()),
            ("keyFile", key.is_some()),
        ];
        if let Some((option, _)) = of_tls.into_iter().find(|(_, given)| *given && !secure) {
            return Err(AddressError::NoTls(option));
        }
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(Identity::read(&certificate, &key)?),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(AddressError::HalfIdentity),
        };
        let login = match (user, password) {
            (Some(user), Some(password)) => {
                Some((user, SecretString::from(password.trim_end_matches(['\r', '\n']))))
            }
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(AddressError::HalfLogin),
        };
        Ok(Self { secure, members, prefix, authority, identity, login })
    }
}

/// `host:port` of a member.
fn member(text: &str) -> Option<String> {
    let (host, port) = match text.rsplit_once(':') {
        // The colons of an IPv6 address stand in brackets.
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        Some(_) | None => (text, PORT),
    };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let plain = !host.contains([':', '[', ']']);
    let sound = !host.is_empty() && !host.contains(char::is_whitespace) && (bracketed || plain);
    sound.then(|| format!("{host}:{port}"))
}

/// Reads a file as `read` does.
fn file(path: &str, read: fn(&Path) -> io::Result<String>) -> Result<String, AddressError> {
    let path = Path::new(path);
    read(path).map_err(|source| AddressError::File { path: path.to_owned(), source })
}

/// As people write it; options are left out.
impl fmt::Display for EtcdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}{}", self.members.join(","), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn written(text: &str) -> String {
        match text.parse::<EtcdAddress>() {
            Ok(address) => address.to_string(),
            Err(error) => error.to_string(),
        }
    }

    // Invariant: an address means one place, and what is no address is refused.

    #[test]
    fn an_address_names_members_and_a_prefix() {
        assert_eq!(written("etcd://a"), "etcd://a:2379/drover");
        assert_eq!(written("etcds://a:1,[::1]:2/x/y/"), "etcds://a:1,[::1]:2/x/y");
        assert_eq!(written("etcd://[::1]"), "etcd://[::1]:2379/drover");
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_to_write() {
        for text in ["etcd://", "etcd://a,,b", "etcd://a:x", "etcd://::1", "http://a", "a b"] {
            assert!(written(text).contains("is no address"), "{text}: {}", written(text));
        }
        assert!(written("etcd://a/drover/records").contains("must not have `records` in it"));
        assert!(written("etcd://u:p@a").contains("no login"));
        assert!(written("etcd://a?cert=x").contains("is no option"));
        assert!(written("etcd://a?user=x").contains("come together"));
        assert!(written("etcds://a?caFile=/nowhere").contains("cannot be read"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cert.pem");
        fs::write(&path, "no certificate").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let path = path.display();
        let plain = written(&format!("etcd://a?certFile={path}&keyFile={path}"));
        assert!(plain.contains("`certFile` is for etcds://"), "{plain}");
        let half = written(&format!("etcds://a?certFile={path}"));
        assert!(half.contains("`certFile` and `keyFile` come together"), "{half}");
        let none = written(&format!("etcds://a?certFile={path}&keyFile={path}"));
        assert!(none.contains("has no certificate"), "{none}");
    }

    #[test]
    fn a_password_comes_from_its_file_and_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        fs::write(&path, "hush\n").unwrap();
        let mode = |mode| fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o644);
        let open = format!("etcd://a?user=root&passwordFile={}", path.display());
        let refused = open.parse::<EtcdAddress>().unwrap_err();
        assert!(causes::chain(&refused).contains("chmod 600"), "{}", causes::chain(&refused));
        mode(0o600);
        let text = format!("etcd://a?user=root&passwordFile={}", path.display());
        let address: EtcdAddress = text.parse().unwrap();
        let (user, password) = address.login().unwrap();
        assert_eq!((&**user, secrecy::ExposeSecret::expose_secret(password)), ("root", "hush"));
        assert!(!format!("{address} {address:?}").contains("hush"));
    }
}
