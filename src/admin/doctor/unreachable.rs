//! What to do about an endpoint that does not answer.

use drover_ci::Remedy;
use proxmox_client::{Endpoint, PveError, Tls};

/// Commands and settings that help after such an error.
pub(super) fn remedies(error: &PveError, endpoint: &Endpoint, tls: &Tls) -> Vec<Remedy> {
    let (host, port) = (endpoint.host(), endpoint.port());
    match error {
        PveError::Unreachable { seen: Some(sha256), tried, .. } => {
            for_certificate(host, sha256, &tried.join("; ").to_lowercase(), tls)
        }
        PveError::Unreachable { tried, .. } => {
            for_connection(host, port, &tried.join("; ").to_lowercase())
        }
        PveError::Lost { .. } | PveError::Unsent { .. } | PveError::Refused { .. } => {
            vec![on_host(host, "systemctl status pveproxy pvedaemon")]
        }
        PveError::Shape { .. } => {
            vec![Remedy::yaml("apiUrls: [\"https://NODE:8006\"]")]
        }
        PveError::SecondFactor(_) | PveError::Setup { .. } => Vec::new(),
    }
}

/// A command on the machine behind an endpoint, which may be called otherwise than its node.
fn on_host(host: &str, command: &str) -> Remedy {
    Remedy::at(format!("on {host}"), command)
}

/// Makes a certificate that has expired new.
pub(super) fn renew(host: &str) -> Remedy {
    on_host(host, "pvecm updatecerts --force && systemctl restart pveproxy")
}

/// Trusts this certificate alone.
pub(super) fn pin(sha256: &str, host: &str) -> Remedy {
    let note = format!("if `pvenode cert info` on {host} shows the same");
    Remedy::yaml(format!("pinSha256: [\"{sha256}\"]")).noting(&note)
}

/// For a certificate that is not trusted; `why` is in lower case.
fn for_certificate(host: &str, sha256: &str, why: &str, tls: &Tls) -> Vec<Remedy> {
    let pin = pin(sha256, host);
    let first = match tls {
        Tls::Pins(_) => return vec![pin],
        _ if why.contains("expired") => renew(host),
        _ if why.contains("not valid for name") || why.contains("notvalidforname") => {
            Remedy::yaml("apiUrls: [\"https://NAME:8006\"]")
                .noting("with a name that is in the certificate")
        }
        Tls::System | Tls::Bundle(_) | Tls::Ignore => {
            let note = format!("a copy of /etc/pve/pve-root-ca.pem of {host}");
            Remedy::yaml("caFile: FILE").noting(&note)
        }
    };
    vec![first, pin.or()]
}

/// For a connection that failed; `why` is in lower case.
fn for_connection(host: &str, port: u16, why: &str) -> Vec<Remedy> {
    let firewall = on_host(host, "pve-firewall status");
    if why.contains("lookup") || why.contains("resolve") {
        let address = Remedy::yaml("apiUrls: [\"https://ADDRESS:8006\"]");
        return vec![Remedy::here(format!("getent hosts {host}")), address.or()];
    }
    if why.contains("refused") {
        let runs = on_host(host, "systemctl status pveproxy");
        let asked = Remedy::yaml(format!("apiUrls: [\"https://{host}:8006\"]"))
            .noting(&format!("where drover calls port {port}, and pveproxy uses 8006"));
        return if port == 8006 { vec![runs, firewall] } else { vec![runs, firewall, asked.or()] };
    }
    vec![Remedy::here(format!("ping -c 3 {host}")), firewall]
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: the advice fits why the certificate was refused, and names the fingerprint that
    // was seen.

    #[test]
    fn a_certificate_that_is_refused_is_repaired_by_why_it_was() {
        let reported = |why: &str, tls: &Tls| for_certificate("pve1", "AA:BB", why, tls);
        let pin = pin("AA:BB", "pve1");
        assert_eq!(
            pin.to_string(),
            "in the YAML, if `pvenode cert info` on pve1 shows the same: pinSha256: [\"AA:BB\"]"
        );
        let unknown = reported("invalid peer certificate: unknownissuer", &Tls::System);
        assert_eq!((&*unknown[0].action, &unknown[1]), ("caFile: FILE", &pin.clone().or()));
        assert!(unknown[0].place.contains("pve-root-ca.pem of pve1"), "{unknown:?}");
        let name = reported("certificate not valid for name \"10.0.0.1\"", &Tls::System);
        assert!(name[0].action.contains("apiUrl") && name[1] == pin.clone().or(), "{name:?}");
        let expired = reported("certificate expired", &Tls::Bundle(Vec::new()));
        assert_eq!(expired, [renew("pve1"), pin.clone().or()]);
        assert_eq!(reported("the certificate is not a pinned one", &Tls::Pins(Vec::new())), [pin]);
    }
}
