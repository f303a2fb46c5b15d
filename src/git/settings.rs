//! What a child gets to see: an environment of its own, in which git's settings stand too.
//!
//! Nothing is inherited but the search path, proxies and the system's certificates, and git reads
//! no file of settings but that of its own repository. Settings are in the environment, since
//! every user of the machine can read the arguments of a program.

use std::ffi::OsString;
use std::path::Path;

use secrecy::ExposeSecret as _;

use super::login::Login;
use super::remote::Remote;
use super::ssh_files;
use super::url::Scheme;

/// The name by which git knows the remote.
pub(super) const REMOTE: &str = "origin";

/// Variables that a child inherits: proxies, and where certificates are.
const INHERITED: [&str; 10] = [
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "https_proxy",
    "http_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// Prints the login for git. Both values are in its environment, not in its text.
const HELPER: &str = "!f() { test \"$1\" = get && \
    printf 'username=%s\\npassword=%s\\n' \"$DROVER_GIT_USERNAME\" \"$DROVER_GIT_PASSWORD\"; }; f";

/// Files of blobs are fetched one by one, when they are read.
pub(super) const BLOBLESS: &str = "blob:none";

/// The environment of one child.
pub(super) struct Settings {
    variables: Vec<(OsString, OsString)>,
    keys: Vec<(String, String)>,
}

impl Settings {
    /// For a child that works on the repository of the scratch folder alone.
    pub(super) fn local(folder: &Path, search: Option<&OsString>) -> Self {
        let mut this = Self { variables: Vec::new(), keys: Vec::new() };
        if let Some(search) = search {
            this.set("PATH", search);
        }
        this.set("HOME", folder.as_os_str());
        this.set("LC_ALL", "C");
        this.set("GIT_DIR", folder.join(super::scratch::REPOSITORY));
        this.set("GIT_CONFIG_NOSYSTEM", "1");
        this.set("GIT_CONFIG_GLOBAL", "/dev/null");
        this.set("GIT_ATTR_NOSYSTEM", "1");
        this.set("GIT_TERMINAL_PROMPT", "0");
        // Empty, so that git runs no program that asks.
        this.set("GIT_ASKPASS", "");
        this.set("GIT_OPTIONAL_LOCKS", "0");
        this.set("GIT_LITERAL_PATHSPECS", "1");
        this.set("GIT_NO_LAZY_FETCH", "1");
        this.set("GIT_NO_REPLACE_OBJECTS", "1");
        this.set("GIT_ALLOW_PROTOCOL", "");
        for (key, value) in [
            ("core.hooksPath", "/dev/null"),
            ("core.bigFileThreshold", "8m"),
            ("protocol.version", "2"),
            ("transfer.fsckObjects", "true"),
            ("fetch.fsckObjects", "true"),
            ("fetch.recurseSubmodules", "false"),
            ("http.lowSpeedLimit", "1"),
            ("http.lowSpeedTime", "60"),
            ("http.followRedirects", "initial"),
            ("credential.interactive", "false"),
            ("pack.threads", "1"),
            ("gc.auto", "0"),
            ("maintenance.auto", "false"),
        ] {
            this.key(key, value);
        }
        this
    }

    /// For a child that speaks to the remote. Without `blobless`, it fetches all files of a commit.
    pub(super) fn remote(mut self, remote: &Remote, folder: &Path, blobless: bool) -> Self {
        for name in INHERITED {
            if let Some(value) = std::env::var_os(name) {
                self.set(name, value);
            }
        }
        self.key(&format!("remote.{REMOTE}.url"), remote.url.as_str());
        if blobless {
            self.key(&format!("remote.{REMOTE}.promisor"), "true");
            self.key(&format!("remote.{REMOTE}.partialclonefilter"), BLOBLESS);
        }
        // A redirect may lead from http to https, never back.
        self.set(
            "GIT_ALLOW_PROTOCOL",
            match remote.url.scheme() {
                Scheme::Https => "https",
                Scheme::Http => "http:https",
                Scheme::Ssh => "ssh",
                Scheme::File => "file",
            },
        );
        match remote.url.scheme() {
            Scheme::Https | Scheme::Http => self.certificates(remote),
            // git hands this file on to the program that reads the other repository, unlike the
            // settings in the environment.
            Scheme::File => {
                self.set("GIT_CONFIG_GLOBAL", folder.join(super::scratch::ANY_OWNER));
            }
            Scheme::Ssh => {}
        }
        match &remote.login {
            Login::None => {}
            Login::Password { username, password } => {
                self.key(&format!("credential.{}.helper", remote.url.origin()), HELPER);
                self.set("DROVER_GIT_USERNAME", username);
                self.set("DROVER_GIT_PASSWORD", password.expose_secret());
            }
            Login::SshKey { username, .. } => {
                self.set("GIT_SSH_VARIANT", "ssh");
                self.set("GIT_SSH_COMMAND", ssh_files::command(&remote.url, username));
            }
        }
        self
    }

    /// git takes the system's certificates from where its TLS library has them, and does not look
    /// at `SSL_CERT_FILE` as the rest of drover does.
    fn certificates(&mut self, remote: &Remote) {
        let file = remote.ca_file.as_ref().and_then(|file| std::path::absolute(file).ok());
        if let Some(file) = file.map(OsString::from).or_else(|| std::env::var_os("SSL_CERT_FILE")) {
            self.set("GIT_SSL_CAINFO", file);
        }
    }

    fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.into(), value.into()));
    }

    fn key(&mut self, key: &str, value: &str) {
        self.keys.push((key.to_owned(), value.to_owned()));
    }

    /// All variables, those of git's settings included.
    pub(super) fn into_variables(self) -> Vec<(OsString, OsString)> {
        let mut all = self.variables;
        all.push(("GIT_CONFIG_COUNT".into(), self.keys.len().to_string().into()));
        for (at, (key, value)) in self.keys.into_iter().enumerate() {
            all.push((format!("GIT_CONFIG_KEY_{at}").into(), key.into()));
            all.push((format!("GIT_CONFIG_VALUE_{at}").into(), value.into()));
        }
        all
    }
}
