//! A service that is reached over TCP: its port, its operator's token, and hooks that are sent to it.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use crate::harness::Site;

/// What webhooks are proven with.
pub const HOOK_SECRET: &str = "a secret of hooks";

/// A port that nobody listens on.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// How a service is reached over TCP.
pub struct Open {
    /// The address of its API.
    pub url: String,
    /// The file of an operator's token.
    pub token: PathBuf,
}

impl Open {
    /// Has the service of a YAML listen on a port, with a token of an operator and the secret of
    /// hooks beside it; and the YAML that says so.
    pub fn of(site: &Site, yaml: &str) -> (Self, String) {
        let (port, token) = (free_port(), site.dir.path().join("api"));
        site.write_secret("api", "an-operators-token");
        site.write_secret("hook", HOOK_SECRET);
        let tokens =
            format!("tokens: [{{name: ci, role: operator, secretFile: \"{}\"}}]", token.display());
        let listen = format!("service:\n  listen: \"127.0.0.1:{port}\"\n  {tokens}\n");
        let yaml = yaml.replace("service:\n", &listen);
        (Self { url: format!("http://127.0.0.1:{port}"), token }, yaml)
    }

    /// The address that webhooks of a source are sent to.
    pub fn hooks(&self, source: &str) -> String {
        format!("{}/v1/hooks/{source}", self.url)
    }

    /// Sends a webhook; its status.
    pub fn send(&self, source: &str, headers: &[String], body: &str) -> String {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", "-d", body]);
        for header in headers {
            curl.args(["-H", header]);
        }
        let out = curl.arg(self.hooks(source)).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    }
}

/// The keys of a source whose hooks are proven with [`HOOK_SECRET`]; a path is read beside the YAML.
pub const HOOKED: &str = "pollSeconds: 3600, webhook: {secretFile: hook}";
