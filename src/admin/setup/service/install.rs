//! Installs drover in the guest: over SSH, because nothing in Proxmox's API runs a command in a
//! container.
//!
//! [`reach`] waits for the guest's address and logs in. [`Installed::compare`] finds the files that
//! differ, and [`install`] uploads them into one folder and runs one script that puts them in place
//! and restarts the service. A program that does not run in the guest takes no other's place.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use causes::chain;
use drover_hypervisor::Client;
use drover_ssh::{
    Backoff, HostKeyPolicy, Keep, Limits, PrivateKey, PublicKey, Session, connect_until, quote,
};
use proxmox_client::Params;
use serde_json::Value;
use tokio::time::Instant;

use super::bundle::{Bundle, GUEST_PROGRAM, GUEST_UNIT, GuestFile};
use super::plan::ServicePlan;

/// How long a guest may take until it has an address and accepts the login.
const BOOT_TIMEOUT: Duration = Duration::from_secs(300);
/// The interval between two requests for its address.
const ADDRESS_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The limit of one upload; the program is large.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(900);
/// How long the service may take to be ready: its unit allows 120 s.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// The folder in root's home that receives all uploads first.
const UPLOAD_FOLDER: &str = "drover-setup";

/// How to log in to the guest.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The guest's address; none for the one that Proxmox reports.
    pub address: Option<IpAddr>,
    pub port: u16,
    /// The private key of the login.
    pub key: &'a PrivateKey,
    /// The file that stores the guest's host key.
    pub pin: &'a Path,
}

/// What is missing or different in a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MissingParts {
    /// The files, by their paths.
    pub files: Vec<String>,
    /// Whether nothing was installed yet.
    pub all: bool,
    /// Whether the service does not run.
    pub stopped: bool,
}

/// A guest with an open SSH session.
#[derive(Debug)]
pub struct Installed {
    session: Session,
    pub address: SocketAddr,
    /// The fingerprint of the host key, where it was seen for the first time.
    pub new_key: Option<String>,
}

/// Waits for the guest's address and logs in. The first host key is trusted and stored, and no
/// other afterwards: Proxmox does not report the key of a container.
///
/// # Errors
/// Why the login failed, for people.
pub async fn reach(
    client: &Client,
    plan: &ServicePlan,
    to: Target<'_>,
) -> Result<Installed, String> {
    let deadline = Instant::now() + BOOT_TIMEOUT;
    let host = match to.address {
        Some(address) => address,
        None => address_of(client, plan, deadline).await?,
    };
    let pinned = std::fs::read_to_string(to.pin).ok();
    let known = pinned.as_ref().map(|text| text.trim().to_owned());
    let policy = match &known {
        Some(line) => HostKeyPolicy::Pinned(vec![line.clone()]),
        None => HostKeyPolicy::TrustOnFirst,
    };
    let target = drover_ssh::Target { host, port: to.port, user: "root".to_owned() };
    let backoff = Backoff::default();
    let session = connect_until(deadline, &target, to.key, &policy, backoff, |_| ()).await;
    let session = session.map_err(|error| {
        let shown = to.pin.display();
        match &known {
            Some(_) => format!("{}; the stored host key is in {shown}", chain(&error)),
            None => chain(&error),
        }
    })?;
    let line = session.host_key().line();
    let new_key = if known.is_none() {
        let text = format!("{line}\n");
        std::fs::write(to.pin, text)
            .map_err(|error| format!("cannot write {}: {error}", to.pin.display()))?;
        PublicKey::parse(&line).ok().map(|key| key.fingerprint())
    } else {
        None
    };
    Ok(Installed { session, address: SocketAddr::new(host, to.port), new_key })
}

/// The first address of the guest that others can reach.
async fn address_of(
    client: &Client,
    plan: &ServicePlan,
    deadline: Instant,
) -> Result<IpAddr, String> {
    let place = plan.place();
    let path = match plan.container {
        true => format!("{place}/interfaces"),
        false => format!("{place}/agent/network-get-interfaces"),
    };
    loop {
        let said = match client.get::<Value>(&path, Params::new()).await {
            Ok(value) => match found(&value) {
                Some(address) => return Ok(address),
                None => "no address yet".to_owned(),
            },
            // The guest is still booting, and its agent does not answer.
            Err(error) => client.fault(&error).text,
        };
        if Instant::now() + ADDRESS_POLL_INTERVAL >= deadline {
            return Err(format!(
                "guest {} got no address within {} s ({said}); check that its bridge has a DHCP server, \
                 make one with drover setup dhcp, or give an address with --ip",
                plan.vmid,
                BOOT_TIMEOUT.as_secs()
            ));
        }
        tokio::time::sleep(ADDRESS_POLL_INTERVAL).await;
    }
}

/// Reads the addresses of a container or of a guest agent; the latter are below `result`.
fn found(value: &Value) -> Option<IpAddr> {
    let rows = value.as_array().or_else(|| value["result"].as_array())?;
    let all = rows.iter().filter(|row| row["name"] != "lo").flat_map(|row| {
        let listed = row["ip-addresses"].as_array().into_iter().flatten();
        let listed = listed.filter_map(|one| one["ip-address"].as_str());
        // Nodes before pve-container 5.3 report only these.
        let plain = ["inet", "inet6"].into_iter().filter_map(|key| row[key].as_str());
        listed.chain(plain)
    });
    let mut all: Vec<IpAddr> = all
        .filter_map(|text| text.split('/').next()?.parse().ok())
        .filter(|ip: &IpAddr| match ip {
            IpAddr::V4(ip) => !ip.is_link_local() && !ip.is_unspecified(),
            IpAddr::V6(ip) => !ip.is_unicast_link_local() && !ip.is_loopback(),
        })
        .collect();
    all.sort_by_key(IpAddr::is_ipv6);
    all.first().copied()
}

fn limits(time: Duration) -> Limits {
    Limits { time, output_bytes_max: 64 * 1024, keep: Keep::Last }
}

impl Installed {
    /// Runs a command; returns its output where it succeeded.
    async fn run(&self, command: &str, time: Duration) -> Result<String, String> {
        let ended = self.session.exec(command, None, limits(time), None).await;
        let ended = ended.map_err(|error| format!("{}: {}", self.address, chain(&error)))?;
        let out = String::from_utf8_lossy(&ended.stdout).into_owned();
        if ended.succeeded() {
            return Ok(out);
        }
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        Err(format!("{}: {}", self.address, format!("{out}{said}").trim()))
    }

    /// Compares the guest with the bundle.
    ///
    /// # Errors
    /// Why the command failed, for people.
    pub async fn compare(&self, bundle: &Bundle) -> Result<MissingParts, String> {
        let paths: Vec<String> = bundle.parts.iter().map(|part| quote(&part.path)).collect();
        let command = format!(
            "sha256sum -- {} 2>/dev/null; systemctl is-active drover.service 2>/dev/null || true",
            paths.join(" ")
        );
        let said = self.run(&command, START_TIMEOUT).await?;
        let has = |part: &&GuestFile| {
            let line = format!("{}  {}", part.sum(), part.path);
            said.lines().any(|other| other == line)
        };
        let there = |path: &str| said.lines().any(|line| line.ends_with(&format!("  {path}")));
        let files = bundle.parts.iter().filter(|part| !has(part));
        Ok(MissingParts {
            files: files.map(|part| part.path.clone()).collect(),
            all: !there(GUEST_PROGRAM) || !there(GUEST_UNIT),
            stopped: !said.lines().any(|line| line == "active"),
        })
    }

    /// Closes the session in good order.
    pub async fn close(self) {
        self.session.close().await;
    }
}

/// The script that puts uploaded files in place and starts the service.
fn script(parts: &[&GuestFile]) -> String {
    let mut text = include_str!("install.sh").to_owned();
    for (index, part) in parts.iter().enumerate() {
        let (path, mode) = (quote(&part.path), part.mode);
        if part.path == GUEST_PROGRAM {
            // The program may be running: its file cannot be written, but another can take its
            // name.
            text.push_str(&format!(
                "install -D -m {mode:o} program {path}.new\nmv -f {path}.new {path}\n"
            ));
            continue;
        }
        let owner = if part.own { "-o drover -g drover " } else { "" };
        if part.own
            && let Some((folder, _)) = part.path.rsplit_once('/')
        {
            text.push_str(&format!(
                "[ -d {0} ] || install -d -m 750 -o drover -g drover {0}\n",
                quote(folder)
            ));
        }
        text.push_str(&format!("install -D -m {mode:o} {owner}{index} {path}\n"));
    }
    text.push_str(
        "systemctl daemon-reload\nsystemctl enable drover.service\n\
         systemctl restart drover.service || {\n    \
         journalctl -u drover.service -n 30 --no-pager -o cat >&2\n    exit 76\n}\n",
    );
    text
}

/// Puts files into the guest and starts the service with them.
///
/// # Errors
/// Why that failed, for people; the old files stay where the new program does not run.
pub async fn install(to: &Installed, bundle: &Bundle, lack: &MissingParts) -> Result<(), String> {
    let parts: Vec<&GuestFile> =
        bundle.parts.iter().filter(|part| lack.files.contains(&part.path)).collect();
    to.run(&format!("rm -rf {UPLOAD_FOLDER} && mkdir -m 700 {UPLOAD_FOLDER}"), START_TIMEOUT)
        .await?;
    for (index, part) in parts.iter().enumerate() {
        let (name, mode) = match part.path == GUEST_PROGRAM {
            true => ("program".to_owned(), 0o755),
            false => (index.to_string(), 0o600),
        };
        let path = format!("{UPLOAD_FOLDER}/{name}");
        let sent = to.session.upload(&path, part.content.clone(), mode, UPLOAD_TIMEOUT).await;
        sent.map_err(|error| chain(&error))?;
    }
    let text = Bytes::from(script(&parts));
    let sent =
        to.session.upload(&format!("{UPLOAD_FOLDER}/run"), text, 0o700, UPLOAD_TIMEOUT).await;
    sent.map_err(|error| chain(&error))?;
    let done = to.run(&format!("sh {UPLOAD_FOLDER}/run"), START_TIMEOUT).await;
    // The folder has secrets. A failure to remove it shows at the next run.
    let _ = to.run(&format!("rm -rf {UPLOAD_FOLDER}"), START_TIMEOUT).await;
    done.map(drop)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // Invariant: the address is one that others can reach, IPv4 first, in every form of Proxmox.

    #[test]
    fn the_address_is_read_of_containers_and_of_the_guest_agent() {
        let row = |name: &str, ip: &str| json!({"name": name, "ip-addresses": [{"ip-address": "fe80::1"}, {"ip-address": ip}]});
        let both = json!([row("lo", "127.0.0.1"), row("eth0", "10.0.0.5")]);
        assert_eq!(found(&both), "10.0.0.5".parse().ok());
        assert_eq!(found(&json!({"result": both})), "10.0.0.5".parse().ok());
        let six = json!([{"name": "eth0", "inet": "10.0.0.6/24", "inet6": "2001:db8::1/64"}]);
        assert_eq!(found(&six), "10.0.0.6".parse().ok());
        assert_eq!(found(&json!([row("eth0", "169.254.0.9")])), None);
        assert_eq!(found(&Value::Null), None);
    }

    // Invariant: secrets belong to the service's user in the guest, and a program is replaced in
    // one step.

    #[test]
    fn files_are_put_in_their_places_by_one_script() {
        let part = |path: &str, mode, own| GuestFile {
            path: path.to_owned(),
            content: Bytes::new(),
            mode,
            own,
        };
        let all = [
            part(GUEST_PROGRAM, 0o755, false),
            part("/etc/drover/keys/agent key", 0o600, true),
            part(GUEST_UNIT, 0o644, false),
        ];
        insta::assert_snapshot!(script(&all.iter().collect::<Vec<_>>()));
    }
}
