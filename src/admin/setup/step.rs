//! One call to Proxmox that `drover setup` makes; it prints as the `pvesh` line that does the same.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use drover_hypervisor::Client;
use drover_hypervisor::TASK_POLL_INTERVAL;
use drover_hypervisor::Watcher;
use drover_model::id::Upid;
use drover_model::ports::TaskEnd;
use drover_ssh::quote;
use proxmox_client::Params;
use proxmox_client::PveError;
use proxmox_client::transport::Method;
use serde_json::Value;

/// The limit of one task: a template may be downloaded over a slow line.
const TASK_TIMEOUT: Duration = Duration::from_secs(1800);

/// Privileges that a login needs, each with its path.
pub type Needed = Vec<(String, &'static str)>;

/// One call to Proxmox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub method: Method,
    /// The path, without `/api2/json`.
    pub path: String,
    pub params: Params,
}

impl Step {
    /// A call that makes an object.
    pub fn create<const N: usize>(path: impl Into<String>, params: [(&str, &str); N]) -> Self {
        Self::new(Method::Post, path, params)
    }

    /// A call that changes an object.
    pub fn set<const N: usize>(path: impl Into<String>, params: [(&str, &str); N]) -> Self {
        Self::new(Method::Put, path, params)
    }

    fn new<const N: usize>(
        method: Method,
        path: impl Into<String>,
        params: [(&str, &str); N],
    ) -> Self {
        let params = params.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Self { method, path: path.into(), params: params.into() }
    }

    /// Adds a parameter where it has a value.
    #[must_use]
    pub fn with(mut self, key: &str, value: Option<&str>) -> Self {
        self.params.extend(value.map(|value| (key.to_owned(), value.to_owned())));
        self
    }

    /// Makes the call and waits for the task that it starts.
    ///
    /// # Errors
    /// What failed, for people, with the privilege where one is missing.
    pub async fn run(&self, client: &Arc<Client>) -> Result<(), String> {
        let reported = |error: PveError| client.fault(&error).text;
        let answer: Value =
            client.write(self.method, &self.path, self.params.clone()).await.map_err(reported)?;
        let Some(upid) = answer.as_str().filter(|text| text.starts_with("UPID:")) else {
            return Ok(());
        };
        let watcher = Watcher::new(TASK_POLL_INTERVAL);
        match watcher.wait(Arc::clone(client), &Upid::new(upid), TASK_TIMEOUT).await {
            TaskEnd::Done { .. } => Ok(()),
            TaskEnd::Failed(fault) => Err(fault.text),
            TaskEnd::Unknown(text) => Err(text),
        }
    }
}

impl fmt::Display for Step {
    /// The line that an administrator would type on a node.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.method {
            Method::Get => "get",
            Method::Post => "create",
            Method::Put => "set",
            Method::Delete => "delete",
        };
        write!(f, "pvesh {verb} {}", quote(&self.path))?;
        for (key, value) in &self.params {
            write!(f, " --{key} {}", quote(value))?;
        }
        Ok(())
    }
}

/// Checks before the first step that the login holds every privilege.
///
/// # Errors
/// All missing privileges with their paths, or why Proxmox refused.
pub async fn check_privileges(client: &Client, needed: &Needed) -> Result<(), String> {
    let mut paths: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, privilege) in needed {
        paths.entry(path).or_default().push(privilege);
    }
    let mut missing = Vec::new();
    for (path, privileges) in paths {
        let reported = |error: PveError| client.fault(&error).text;
        let held = client.privileges(path, None).await.map_err(reported)?;
        let lacks = privileges.into_iter().filter(|one| !held.contains_key(*one));
        missing.extend(lacks.map(|one| format!("{one} on {path}")));
    }
    if missing.is_empty() {
        return Ok(());
    }
    let (who, missing) = (client.login(), missing.join(", "));
    Err(format!("{who} lacks {missing}: log in as an administrator with --user"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a step prints as the line that does the same, quoted for a shell.

    #[test]
    fn a_step_is_reported_as_a_line_for_a_shell() {
        let step = Step::create("/nodes/pve1/lxc", [("vmid", "300"), ("description", "it's\nso")])
            .with("pool", Some("ci"))
            .with("start", None);
        insta::assert_snapshot!(step.to_string(), @r"
        pvesh create /nodes/pve1/lxc --vmid 300 --description 'it'\''s
        so' --pool ci
        ");
        let path = "/cluster/ha/resources/ct:300";
        assert_eq!(Step::set(path, []).to_string(), format!("pvesh set {path}"));
    }
}
