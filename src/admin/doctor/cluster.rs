//! Endpoints, their certificates, versions, quorum and clocks.

use drover_ci::{Remedy, Severity};
use drover_hypervisor::Client;
use drover_model::fault::FaultKind;
use drover_model::id::NodeName;
use proxmox_client::{Connection, Endpoint, Login, PveError, Tls};

use super::unreachable::{pin, remedies, renew};
use super::{Certificate, CloudCheck};
use crate::rights::Release;

/// A certificate that expires sooner is warned about.
const CERTIFICATE_WARN_DAYS: i64 = 30;
const DAY_SECS: i64 = 86_400;
/// A clock that differs by more seconds is warned about; the duration of a call and rounding are
/// included.
pub(super) const CLOCK_WARN_SECS: u64 = 5;
/// Proxmox accepts tickets up to so many seconds from the future (book: proxmox, section 3).
pub(super) const CLOCK_FAIL_SECS: u64 = 300;

/// The first number of a version.
fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

/// The finding about the versions of all nodes, with what to do.
fn judge_versions(
    version: &str,
    mut all: Vec<String>,
    reported: &[String],
) -> (Severity, String, Option<Remedy>) {
    all.sort();
    all.dedup();
    let guide = "https://pve.proxmox.com/wiki/Upgrade_from_7_to_8";
    let upgrade = Some(Remedy::at("on each node, as in this guide", guide));
    match all.iter().filter_map(|one| major(one)).min() {
        Some(old) if old < 7 => {
            let text = format!("Proxmox VE {version}: a node is too old; drover needs 8 or later");
            (Severity::Fail, text, upgrade)
        }
        Some(7) => {
            let text = format!(
                "Proxmox VE {version}: a node gets no more updates; upgrade it to 8 or later"
            );
            (Severity::Warn, text, upgrade)
        }
        Some(_) | None if all.len() > 1 => {
            let text = format!("nodes run different versions: {}", reported.join(", "));
            (
                Severity::Warn,
                text,
                Some(Remedy::at("on each node", "apt update && apt full-upgrade")),
            )
        }
        Some(_) | None => (Severity::Ok, format!("every node runs {version}"), None),
    }
}

/// The command for a node that is offline.
pub(super) fn node_status(node: &str) -> Remedy {
    Remedy::on_node(node, "systemctl status corosync pve-cluster")
}

/// Whether Proxmox refused the login.
fn is_refused(error: &PveError) -> bool {
    matches!(error, PveError::Refused { refusal, .. } if refusal.status == 401)
}

/// How a call to one endpoint failed to reach it: of the others nothing is said.
fn alone(error: &PveError, endpoint: &Endpoint) -> Option<String> {
    let PveError::Unreachable { tried, distrusted: false, .. } = error else { return None };
    let [text] = tried.as_slice() else { return None };
    Some(text.strip_prefix(&format!("`{endpoint}`: ")).unwrap_or(text).to_owned())
}

impl CloudCheck<'_> {
    /// Tries every endpoint; returns whether any answers.
    pub(super) async fn endpoints(&mut self) -> bool {
        let endpoints = self.connection.endpoints.clone();
        let mut versions = Vec::new();
        for endpoint in &endpoints {
            let alone = Connection { endpoints: vec![endpoint.clone()], ..self.connection.clone() };
            versions.push(match Client::new(self.cloud.id.clone(), &alone, self.clients.dialer) {
                Ok(client) => client.version().await,
                Err(error) => Err(error),
            });
        }
        let answers = versions.iter().any(Result::is_ok);
        // drover works while any endpoint answers.
        let mark = if answers { Severity::Warn } else { Severity::Fail };
        for (endpoint, version) in endpoints.iter().zip(versions) {
            let about = format!("endpoint {endpoint}");
            match version {
                Ok(version) => self.report.ok(about, format!("Proxmox VE {}", version.version)),
                Err(error) => {
                    let fault = self.client.fault(&error);
                    let remedy = if is_refused(&error) {
                        self.login_commands()
                    } else if matches!(fault.kind, FaultKind::Denied { .. }) {
                        self.setup(" --renew")
                    } else {
                        remedies(&error, endpoint, &self.connection.tls)
                    };
                    let text = alone(&error, endpoint).unwrap_or(fault.text);
                    self.report.add(mark, about, text, remedy);
                    if matches!(error, PveError::Unreachable { .. }) {
                        // Nothing is known of a certificate without a connection.
                        continue;
                    }
                }
            }
            self.certificate(endpoint).await;
        }
        answers
    }

    /// Commands that make Proxmox accept the login. Proxmox does not say why it refuses one, and a
    /// new secret does not help a disabled user, so the user comes first.
    fn login_commands(&self) -> Vec<Remedy> {
        let user = match &self.connection.login {
            Login::Token { id, .. } => id.split_once('!').map_or(id.as_str(), |(user, _)| user),
            Login::Password { username, .. } => username.as_str(),
        };
        let mut remedies = vec![
            Remedy::on_any_node(format!("pveum user list --full | grep -F {user}")),
            Remedy::on_any_node(format!("pveum user modify {user} --enable 1")),
        ];
        remedies.extend(self.setup(" --renew"));
        remedies
    }

    /// Warns where a cluster of several nodes has one endpoint.
    pub(super) fn only_endpoint(&mut self, online: &[NodeName]) {
        let ([only], true) = (self.connection.endpoints.as_slice(), online.len() > 1) else {
            return;
        };
        let text = format!(
            "is the only one, and the cluster has {} nodes: drover stops while it is down, unless \
             that address moves between nodes",
            online.len()
        );
        let urls: Vec<_> = online.iter().map(|node| format!("\"https://{node}:8006\"")).collect();
        let remedy = Remedy::yaml(format!("apiUrls: [{}]", urls.join(", ")));
        let remedy = remedy.noting("with names that resolve");
        self.report.warn(format!("endpoint {only}"), text, [remedy]);
    }

    async fn certificate(&mut self, endpoint: &Endpoint) {
        let about = format!("certificate of {endpoint}");
        let Some(shown) = self.clients.certificates.read(endpoint, self.connection).await else {
            return;
        };
        let Certificate { sha256, until } = shown;
        let (how, dated) = match &self.connection.tls {
            Tls::System => ("signed by one of the system's authorities", true),
            Tls::Bundle(_) => ("signed by a configured authority", true),
            Tls::Pins(_) => ("has the pinned fingerprint", false),
            Tls::Ignore => {
                let remedy = [pin(&sha256, endpoint.host())];
                let text = "is not verified: anyone between drover and the node can read the token";
                return self.report.warn(about, text, remedy);
            }
        };
        let now = i64::try_from((self.clients.clock)()).unwrap_or(i64::MAX);
        let left = until.map(|until| (until - now).div_euclid(DAY_SECS));
        match left {
            Some(left) if dated && left < CERTIFICATE_WARN_DAYS => {
                let text = match left {
                    ..0 => format!("expired {} days ago: drover does not trust it any more", -left),
                    _ => format!("{how}, expires in {left} days"),
                };
                self.report.warn(about, text, [renew(endpoint.host())]);
            }
            Some(left) => self.report.ok(about, format!("{how}, {left} days left")),
            None => self.report.ok(about, how),
        }
    }

    /// Checks quorum, nodes and versions; none where the cluster does not answer.
    pub(super) async fn cluster(&mut self) -> Option<(Release, Vec<NodeName>)> {
        let version = match self.client.version().await {
            Ok(version) => version.version,
            Err(error) => {
                let text = self.error_text(&error);
                self.report.fail("version", text, []);
                return None;
            }
        };
        let release = Release::of(&version);
        let (_, status) = match self.client.cluster_status().await {
            Ok(status) => status,
            Err(error) => {
                let text = self.error_text(&error);
                self.report.fail("quorum", text, []);
                // The list of nodes in /cluster/resources needs no right, and neither do template
                // nodes.
                return Some((release, Vec::new()));
            }
        };
        let quorate = status.iter().find(|item| item.kind == "cluster").is_none_or(|c| c.quorate);
        if quorate {
            self.report.ok("quorum", "the cluster is quorate");
        } else {
            let text = "the cluster has no quorum: drover can neither make nor destroy guests";
            self.report.fail("quorum", text, [Remedy::on_any_node("pvecm status")]);
        }
        let mut online = Vec::new();
        for item in status.iter().filter(|item| item.kind == "node") {
            if item.online {
                online.push(NodeName::new(&item.name));
            } else {
                let about = format!("node {}", item.name);
                self.report.warn(about, "is offline", [node_status(&item.name)]);
            }
        }
        self.versions(&version, &online).await;
        Some((release, online))
    }

    async fn versions(&mut self, version: &str, online: &[NodeName]) {
        let mut all = vec![version.to_owned()];
        let mut reported = Vec::new();
        for node in online {
            if let Ok(own) = self.client.node_version(node.as_str()).await {
                reported.push(format!("{node} {own}"));
                all.push(own);
            }
        }
        let (mark, text, remedy) = judge_versions(version, all, &reported);
        self.report.add(mark, "version".into(), text, remedy.into_iter().collect());
    }

    /// Compares each node's clock with this machine's.
    pub(super) async fn clocks(&mut self, online: &[NodeName]) {
        let (mut reported, mut off) = (0, false);
        for node in online {
            let before = (self.clients.clock)();
            let time = self.client.node_time(node.as_str()).await;
            let after = (self.clients.clock)();
            let Ok(Some(time)) = time else { continue };
            reported += 1;
            let apart = if time < before { before - time } else { time.saturating_sub(after) };
            if apart <= CLOCK_WARN_SECS {
                continue;
            }
            off = true;
            let way = if time < before { "behind" } else { "ahead of" };
            let text = format!("{apart} s {way} this machine's");
            let about = format!("clock of {node}");
            let remedy = Remedy::on_node(node, "chronyc tracking; timedatectl");
            if apart > CLOCK_FAIL_SECS {
                self.report.fail(about, text, [remedy]);
            } else {
                self.report.warn(about, text, [remedy]);
            }
        }
        if !off && reported > 0 {
            self.report.ok(
                "clocks",
                format!("{reported} nodes are within {CLOCK_WARN_SECS} s of this machine's"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(all: &[&str]) -> (Severity, String) {
        let reported: Vec<String> = all.iter().map(|one| format!("pve {one}")).collect();
        let all: Vec<String> = all.iter().map(|one| (*one).to_owned()).collect();
        let (mark, text, remedy) = judge_versions(&all[0].clone(), all, &reported);
        assert_eq!(remedy.is_some(), mark != Severity::Ok);
        (mark, text)
    }

    // Invariant: 8 is the minimum, 7 is warned about, and so are nodes of different versions.

    #[test]
    fn versions_are_judged_by_the_oldest_and_by_their_differences() {
        assert_eq!(said(&["8.4.21", "8.4.21"]), (Severity::Ok, "every node runs 8.4.21".into()));
        assert_eq!(said(&["9.2.11", "8.4.21"]).0, Severity::Warn);
        assert_eq!(said(&["8.4.21", "7.4-17"]).0, Severity::Warn);
        assert!(said(&["7.4-17"]).1.contains("8 or later"));
        assert_eq!(said(&["6.4-15"]).0, Severity::Fail);
    }
}
