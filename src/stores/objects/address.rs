//! Where a journal in an object store is, as people write it.
//!
//! `s3://BUCKET/PREFIX` and `gs://BUCKET/PREFIX`, with options behind a question mark. What the
//! environment says in the names of AWS and Google counts where no option does.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use secrecy::SecretString;

use crate::files;

/// What lies beneath each journal's prefix.
pub(super) const OWN_NAMES: [&str; 5] = ["beside", "log", "parts", "probes", "register"];
/// The prefix where none is given.
const PREFIX: &str = "drover";
/// The region where none is given: what stores that know no regions expect.
const REGION: &str = "us-east-1";
/// Where a machine of AWS finds a role's login; read from the environment as they are.
const ROLE_VARIABLES: [&str; 6] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];
/// The options of each kind of address.
const S3_OPTIONS: &str =
    "accessKeyIdFile, caFile, endpoint, pathStyle, region and secretAccessKeyFile";
const GCS_OPTIONS: &str = "caFile, credentialsFile and endpoint";

/// Where a journal in an object store is.
#[derive(Debug, Clone)]
pub struct ObjectAddress {
    bucket: String,
    prefix: String,
    endpoint: Option<String>,
    authority: Option<String>,
    service: Service,
}

/// Which kind of store it is.
#[derive(Debug, Clone)]
pub(super) enum Service {
    S3(S3),
    Gcs {
        /// A file with the login; none means the one of the machine.
        credentials: Option<PathBuf>,
    },
}

/// What S3 and stores like it need.
#[derive(Debug, Clone)]
pub(super) struct S3 {
    pub(super) region: String,
    /// Whether the bucket is a part of the path; otherwise it is one of the host's name.
    pub(super) path_style: bool,
    pub(super) login: Option<S3Login>,
    /// Variables of the environment that say where a role's login is.
    pub(super) role: Vec<(&'static str, String)>,
}

/// A login at S3.
#[derive(Debug, Clone)]
pub(super) struct S3Login {
    pub(super) id: String,
    pub(super) secret: SecretString,
    pub(super) session: Option<SecretString>,
}

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ObjectAddressError {
    #[error(
        "a prefix must not have `{0}` in it, which lies in each journal itself: name another one"
    )]
    Prefix(String),
    #[error(
        "`{0}` is no address of a journal in an object store: write s3://BUCKET/PREFIX or \
         gs://BUCKET/PREFIX"
    )]
    Shape(String),
    #[error("an address has no login: give `?accessKeyIdFile=…&secretAccessKeyFile=…`")]
    Login,
    #[error("`{option}` is no option of an address of {scheme}://: {known} are")]
    Option { option: String, scheme: &'static str, known: &'static str },
    #[error("`{0}` is given twice")]
    Twice(String),
    #[error("`endpoint` is `http://HOST:PORT` or `https://HOST:PORT`, not `{0}`")]
    Endpoint(String),
    #[error("`pathStyle` is `true` or `false`, not `{0}`")]
    PathStyle(String),
    #[error("`{0}` and `{1}` come together")]
    HalfLogin(&'static str, &'static str),
    #[error("`caFile` is for TLS, and the endpoint has none: write https://")]
    NoTls,
    #[error("the file `{}` cannot be read", .path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// The options of an address, and the environment behind them.
struct Options<'a> {
    given: Vec<(&'a str, &'a str)>,
    environment: &'a dyn Fn(&str) -> Option<String>,
}

impl ObjectAddress {
    /// Whether a text is meant as such an address.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("s3://") || text.starts_with("gs://")
    }

    pub(super) fn bucket(&self) -> &str {
        &self.bucket
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The URL of the store, with the bucket where requests need it; none means that of AWS or Google.
    pub(super) fn endpoint(&self) -> Option<String> {
        let endpoint = self.endpoint.as_ref()?;
        let in_host = match &self.service {
            Service::S3(s3) => !s3.path_style,
            Service::Gcs { .. } => false,
        };
        let (scheme, host) = endpoint.split_once("://")?;
        Some(if in_host { format!("{scheme}://{}.{host}", self.bucket) } else { endpoint.clone() })
    }

    pub(super) fn is_plain(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http:"))
    }

    /// The authorities that sign the store's certificate, as PEM; none means the system's.
    pub(super) fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    pub(super) fn service(&self) -> &Service {
        &self.service
    }

    /// Reads an address, and the files that it names.
    fn read(
        text: &str,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ObjectAddressError> {
        let shape = || ObjectAddressError::Shape(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(shape)?;
        let (scheme, known) = match scheme {
            "s3" => ("s3", S3_OPTIONS),
            "gs" => ("gs", GCS_OPTIONS),
            _ => return Err(shape()),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.contains('@') {
            return Err(ObjectAddressError::Login);
        }
        let prefix = match prefix.trim_end_matches('/') {
            "" => PREFIX,
            prefix => prefix,
        };
        if !is_name(bucket) || !prefix.split('/').all(is_name) {
            return Err(shape());
        }
        // Beneath another journal a journal would be what that one takes for damage.
        if let Some(part) = prefix.split('/').find(|part| OWN_NAMES.contains(part)) {
            return Err(ObjectAddressError::Prefix(part.to_owned()));
        }
        let mut given: Vec<(&str, &str)> = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let name = option.split_once('=').map_or(option, |(name, _)| name);
            let names = known.split([',', ' ']).filter(|name| *name != "and");
            let Some((_, value)) =
                option.split_once('=').filter(|_| names.into_iter().any(|known| known == name))
            else {
                let option = name.to_owned();
                return Err(ObjectAddressError::Option { option, scheme, known });
            };
            if given.iter().any(|(before, _)| *before == name) {
                return Err(ObjectAddressError::Twice(name.to_owned()));
            }
            given.push((name, value));
        }
        let options = Options { given, environment };
        let endpoint = options.endpoint(scheme)?;
        let is_plain = endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http:"));
        let authority = options.file("caFile", files::read)?;
        if authority.is_some() && is_plain {
            return Err(ObjectAddressError::NoTls);
        }
        let service = if scheme == "s3" {
            Service::S3(options.s3(endpoint.is_some())?)
        } else {
            let file = options.given("credentialsFile");
            let file = file.or_else(|| environment("GOOGLE_APPLICATION_CREDENTIALS"));
            Service::Gcs { credentials: file.map(PathBuf::from) }
        };
        let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
        Ok(Self { bucket, prefix, endpoint, authority, service })
    }
}

impl Options<'_> {
    fn given(&self, name: &str) -> Option<String> {
        let found = self.given.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    }

    /// The first of these variables that is set.
    fn variable(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| (self.environment)(name).filter(|value| !value.is_empty()))
    }

    /// The text of the file that an option names, as `read` reads it.
    fn file(
        &self,
        name: &str,
        read: fn(&Path) -> io::Result<String>,
    ) -> Result<Option<String>, ObjectAddressError> {
        let Some(path) = self.given(name).map(PathBuf::from) else { return Ok(None) };
        read(&path).map(Some).map_err(|source| ObjectAddressError::File { path, source })
    }

    fn endpoint(&self, scheme: &str) -> Result<Option<String>, ObjectAddressError> {
        let named = self.given("endpoint").or_else(|| {
            let names: &[&str] = match scheme {
                "s3" => &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"],
                _ => &[],
            };
            self.variable(names)
        });
        let Some(named) = named else { return Ok(None) };
        let endpoint = named.trim_end_matches('/');
        let host = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
        let is_sound = |host: &str| {
            !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || "@?#".contains(c))
        };
        if !host.is_some_and(is_sound) {
            // What stands before an `@` is a login.
            let shown = named.rsplit('@').next().unwrap_or_default().to_owned();
            return Err(ObjectAddressError::Endpoint(shown));
        }
        Ok(Some(endpoint.to_owned()))
    }

    fn s3(&self, has_endpoint: bool) -> Result<S3, ObjectAddressError> {
        let region = self.given("region");
        let region = region.or_else(|| self.variable(&["AWS_REGION", "AWS_DEFAULT_REGION"]));
        let path_style =
            self.given("pathStyle").or_else(|| self.variable(&["AWS_S3_USE_PATH_STYLE"]));
        let path_style = match path_style.as_deref() {
            Some("true") => true,
            Some("false") => false,
            Some(other) => return Err(ObjectAddressError::PathStyle(other.to_owned())),
            // Stores of one's own seldom have a name for each bucket.
            None => has_endpoint,
        };
        let files = (
            self.file("accessKeyIdFile", files::read)?,
            self.file("secretAccessKeyFile", files::read_secret)?,
        );
        let login = match files {
            (Some(id), Some(secret)) => Some(S3Login {
                id: id.trim().to_owned(),
                secret: SecretString::from(secret.trim()),
                session: None,
            }),
            (None, None) => self.login_of_environment()?,
            (Some(_), None) | (None, Some(_)) => {
                let (id, secret) = ("accessKeyIdFile", "secretAccessKeyFile");
                return Err(ObjectAddressError::HalfLogin(id, secret));
            }
        };
        let role = ROLE_VARIABLES.into_iter();
        let role = role.filter_map(|name| Some((name, self.variable(&[name])?))).collect();
        Ok(S3 { region: region.unwrap_or_else(|| REGION.to_owned()), path_style, login, role })
    }

    fn login_of_environment(&self) -> Result<Option<S3Login>, ObjectAddressError> {
        let (id, secret) = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
        match (self.variable(&[id]), self.variable(&[secret])) {
            (Some(id), Some(secret)) => Ok(Some(S3Login {
                id,
                secret: SecretString::from(secret),
                session: self.variable(&["AWS_SESSION_TOKEN"]).map(SecretString::from),
            })),
            (None, None) => Ok(None),
            (Some(_), None) | (None, Some(_)) => Err(ObjectAddressError::HalfLogin(id, secret)),
        }
    }
}

impl FromStr for ObjectAddress {
    type Err = ObjectAddressError;

    fn from_str(text: &str) -> Result<Self, ObjectAddressError> {
        Self::read(text, &|name| std::env::var(name).ok())
    }
}

/// Whether a text can be a bucket, or a part of a prefix.
fn is_name(text: &str) -> bool {
    let is_sound = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !text.is_empty() && text.chars().all(is_sound) && text != "." && text != ".."
}

/// As people write it; options are left out, but for the endpoint.
impl fmt::Display for ObjectAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match &self.service {
            Service::S3(_) => "s3",
            Service::Gcs { .. } => "gs",
        };
        write!(f, "{scheme}://{}/{}", self.bucket, self.prefix)?;
        match &self.endpoint {
            Some(endpoint) => write!(f, "?endpoint={endpoint}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use secrecy::ExposeSecret as _;

    use super::*;

    fn read_with(
        text: &str,
        environment: &[(&str, &str)],
    ) -> Result<ObjectAddress, ObjectAddressError> {
        ObjectAddress::read(text, &|name| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn written(text: &str) -> String {
        match read_with(text, &[]) {
            Ok(address) => address.to_string(),
            Err(error) => error.to_string(),
        }
    }

    fn s3(address: &ObjectAddress) -> &S3 {
        match address.service() {
            Service::S3(s3) => s3,
            Service::Gcs { .. } => panic!("it is of Google"),
        }
    }

    // Invariant: an address means one place, and what is no address is refused.

    #[test]
    fn an_address_names_a_bucket_and_a_prefix() {
        assert_eq!(written("s3://herd"), "s3://herd/drover");
        assert_eq!(written("s3://herd/a/b/?region=eu-west-1"), "s3://herd/a/b");
        assert_eq!(written("gs://herd.x/a?caFile=/dev/null"), "gs://herd.x/a");
        let with_endpoint = "s3://herd/a?endpoint=http://[::1]:7070/";
        assert_eq!(written(with_endpoint), "s3://herd/a?endpoint=http://[::1]:7070");
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_to_write() {
        for text in ["s3://", "s3:///x", "s3://a b", "s3://a//b", "s3://a/../b", "http://a", "a"] {
            assert!(written(text).contains("is no address"), "{text}: {}", written(text));
        }
        for own in ["log", "parts", "register", "beside", "probes"] {
            for text in [format!("s3://a/h/{own}"), format!("gs://a/{own}/h")] {
                let says = format!("must not have `{own}` in it");
                assert!(written(&text).contains(&says), "{text}: {}", written(&text));
            }
        }
        assert!(written("s3://id:secret@a").contains("no login"));
        assert!(written("s3://a?regoin=x").contains("`regoin` is no option"));
        assert!(written("gs://a?region=x").contains("caFile, credentialsFile and endpoint are"));
        assert!(written("s3://a?region=x&region=y").contains("given twice"));
        assert!(written("s3://a?pathStyle=yes").contains("`true` or `false`"));
        assert!(written("s3://a?endpoint=minio:9000").contains("http://HOST:PORT"));
        assert!(written("s3://a?caFile=/nowhere").contains("cannot be read"));
        assert!(written("s3://a?endpoint=http://b&caFile=/dev/null").contains("write https://"));
        let half = written("s3://a?accessKeyIdFile=/dev/null");
        assert!(half.contains("come together"), "{half}");
        let with_login = written("s3://a?endpoint=https://id:hush@b");
        assert!(with_login.contains("HOST:PORT") && !with_login.contains("hush"), "{with_login}");
    }

    #[test]
    fn the_environment_counts_where_no_option_does() {
        let environment = [
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "hush"),
            ("AWS_SESSION_TOKEN", "quiet"),
            ("AWS_DEFAULT_REGION", "eu-north-1"),
            ("AWS_ENDPOINT_URL", "https://store"),
        ];
        let address = read_with("s3://herd", &environment).unwrap();
        let found = s3(&address);
        let login = found.login.as_ref().unwrap();
        assert_eq!((login.id.as_str(), login.secret.expose_secret()), ("id", "hush"));
        assert_eq!(login.session.as_ref().unwrap().expose_secret(), "quiet");
        assert_eq!((found.region.as_str(), found.path_style), ("eu-north-1", true));
        assert_eq!(address.endpoint().unwrap(), "https://store");
        let host = read_with("s3://herd?pathStyle=false&region=x", &environment).unwrap();
        assert_eq!(
            (s3(&host).region.as_str(), host.endpoint().unwrap().as_str()),
            ("x", "https://herd.store")
        );
        let half = read_with("s3://herd", &environment[..1]).unwrap_err();
        assert!(half.to_string().contains("`AWS_SECRET_ACCESS_KEY` come together"), "{half}");
        let plain = read_with("s3://herd", &[]).unwrap();
        assert!(!s3(&plain).path_style && plain.endpoint().is_none());
    }

    #[test]
    fn a_secret_comes_from_its_file_and_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (id, secret) = (file("id", "me\n"), file("secret", "hush\n"));
        let text = format!("s3://a?accessKeyIdFile={id}&secretAccessKeyFile={secret}");
        let mode = |mode| fs::set_permissions(&secret, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o644);
        let refused = causes::chain(&read_with(&text, &[]).unwrap_err());
        assert!(refused.contains("chmod 600"), "{refused}");
        mode(0o600);
        let address = read_with(&text, &[]).unwrap();
        let login = s3(&address).login.as_ref().unwrap();
        assert_eq!((login.id.as_str(), login.secret.expose_secret()), ("me", "hush"));
        assert!(!format!("{address} {address:?}").contains("hush"));
    }
}
