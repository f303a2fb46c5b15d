//! What to do about an endpoint that does not answer.

use proxmox_client::{Endpoint, PveError, Tls};

/// Commands and settings that help after such an error.
pub(super) fn remedies(error: &PveError, endpoint: &Endpoint, tls: &Tls) -> Vec<String> {
    let (host, port) = (endpoint.host(), endpoint.port());
    match error {
        PveError::Unreachable { seen: Some(sha256), tried, .. } => {
            for_certificate(host, sha256, &tried.join("; ").to_lowercase(), tls)
        }
        PveError::Unreachable { tried, .. } => {
            for_connection(host, port, &tried.join("; ").to_lowercase())
        }
        PveError::Lost { .. } | PveError::Unsent { .. } | PveError::Refused { .. } => {
            vec![format!("ssh {host} systemctl status pveproxy pvedaemon")]
        }
        PveError::Shape { .. } => {
            vec!["in the YAML: apiUrl or apiUrls with the address of a Proxmox VE node".into()]
        }
        PveError::SecondFactor(_) | PveError::Setup { .. } => Vec::new(),
    }
}

/// For a certificate that is not trusted; `why` is in lower case.
fn for_certificate(host: &str, sha256: &str, why: &str, tls: &Tls) -> Vec<String> {
    let pin = format!(
        "in the YAML: pinSha256: [\"{sha256}\"], after comparing it with `ssh {host} pvenode cert info`"
    );
    let first = match tls {
        Tls::Pins(_) => None,
        _ if why.contains("expired") => {
            Some(format!("ssh {host} 'pvecm updatecerts --force && systemctl restart pveproxy'"))
        }
        _ if why.contains("not valid for name") || why.contains("notvalidforname") => {
            Some("in the YAML: apiUrl or apiUrls with a name that is in the certificate".to_owned())
        }
        Tls::System | Tls::Bundle(_) | Tls::Ignore => Some(format!(
            "in the YAML: caFile: a file with the output of `ssh {host} cat /etc/pve/pve-root-ca.pem`"
        )),
    };
    first.into_iter().chain([pin]).collect()
}

/// For a connection that failed; `why` is in lower case.
fn for_connection(host: &str, port: u16, why: &str) -> Vec<String> {
    let firewall = "check the node's firewall: `pve-firewall status`";
    if why.contains("lookup") || why.contains("resolve") {
        return vec![format!(
            "getent hosts {host}; in the YAML: apiUrl or apiUrls with an address"
        )];
    }
    if why.contains("refused") {
        let runs = format!("ssh {host} systemctl status pveproxy");
        let asked = format!(
            "in the YAML: check apiUrl or apiUrls: drover calls {host} port {port}, and pveproxy uses 8006"
        );
        return vec![runs, asked, firewall.into()];
    }
    vec![format!("ping -c 3 {host}"), firewall.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: the advice fits why the certificate was refused, and names the fingerprint that
    // was seen.

    #[test]
    fn a_certificate_that_is_refused_is_repaired_by_why_it_was() {
        let reported = |why: &str, tls: &Tls| for_certificate("pve1", "AA:BB", why, tls);
        let pin = "in the YAML: pinSha256: [\"AA:BB\"], after comparing it with `ssh pve1 pvenode cert info`";
        let unknown = reported("invalid peer certificate: unknownissuer", &Tls::System);
        assert!(unknown[0].contains("caFile") && unknown[0].contains("pve-root-ca.pem"));
        assert_eq!(unknown[1], pin);
        let name = reported("certificate not valid for name \"10.0.0.1\"", &Tls::System);
        assert!(name[0].contains("apiUrl") && name[1] == pin, "{name:?}");
        let expired = reported("certificate expired", &Tls::Bundle(Vec::new()));
        assert!(expired[0].contains("pvecm updatecerts") && expired[1] == pin, "{expired:?}");
        assert_eq!(reported("the certificate is not a pinned one", &Tls::Pins(Vec::new())), [pin]);
    }
}
