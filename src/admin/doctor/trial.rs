//! One agent made for trial, and where its way ended. Pure: the running service makes the agent, so
//! that caps, marks and the journal hold for it as for any other, and it can not leak.

use std::fmt::Write as _;
use std::path::Path;

use drover_ssh::quote;
use proxmox_client::types::VmConfig;
use serde::Serialize;

/// The part of the way that did not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// No place was found for it.
    Place,
    /// It was not cloned or configured.
    Clone,
    /// It was not started, or ended by itself.
    Power,
    /// `agent` is off in its configuration.
    AgentOption,
    /// The guest agent's port is none that images listen on.
    AgentDevice,
    /// Nobody answers on the guest agent's port.
    AgentService,
    /// The agent answers, and there is no address.
    Dhcp,
    /// It has addresses, and none of them counts.
    GuestNetworks,
    /// The guest has not called drover.
    CallIn,
    /// Nobody answers at the address.
    SshPort,
    /// The login was refused.
    SshKey,
    /// Another host answers.
    SshHostKey,
    /// cloud-init failed or did not end.
    CloudInit,
    /// A later step of preparing.
    Step,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// What does not work.
    pub part: Part,
    /// What that means.
    pub text: String,
    /// What mends it.
    pub mend: String,
}

impl Diagnosis {
    /// The same with commands of drover's on this configuration.
    #[must_use]
    pub fn with_config(mut self, path: &Path) -> Self {
        let named = format!("drover --config {} ", quote(&path.display().to_string()));
        self.mend = self.mend.replace("drover ", &named);
        self
    }
}

/// Where an agent's way ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct End {
    /// The last state before it went.
    pub state: String,
    /// What was said in it last.
    pub detail: String,
    /// Why it went.
    pub reason: String,
}

fn found(part: Part, text: impl Into<String>, mend: impl Into<String>) -> Diagnosis {
    Diagnosis { part, text: text.into(), mend: mend.into() }
}

/// Tells apart what can be in the way, by where it ended, what was said, and how the guest is
/// configured. `template` is the VMID it was cloned from.
pub fn diagnose(end: &End, config: Option<&VmConfig>, template: &str) -> Diagnosis {
    let said = format!("{} {}", end.detail, end.reason);
    let whole = if end.detail.is_empty() || end.reason.contains(&end.detail) {
        end.reason.clone()
    } else {
        format!("{}: {}", end.reason, end.detail)
    };
    let state = end.state.split(':').next().unwrap_or_default();
    match state {
        "Queued" => found(Part::Place, whole, "drover status; drover breakers"),
        "Cloning" | "InDoubt" | "Configuring" => found(Part::Clone, whole, "drover doctor"),
        "Booting" => booting(&said, whole, config, template),
        "Connecting" => connecting(&said, whole, template),
        _ if end.state.contains("cloud-init") => {
            let mend = "drover hold-next TEMPLATE, and in the guest: cloud-init status --long";
            found(Part::CloudInit, whole, mend)
        }
        _ => found(Part::Step, whole, "drover events; drover hold-next TEMPLATE"),
    }
}

fn booting(said: &str, whole: String, config: Option<&VmConfig>, template: &str) -> Diagnosis {
    if said.contains("No QEMU guest agent configured") {
        let mend = format!("qm set {template} --agent enabled=1");
        return found(Part::AgentOption, "the option `agent` is off", mend);
    }
    if said.contains("waits for the guest's call") {
        let text = "the guest has not called drover: the image has no script that calls, or does \
                    not reach `service.listen`";
        return found(Part::CallIn, text, "drover hold-next TEMPLATE");
    }
    if said.contains("that drover may use, only") {
        return found(Part::GuestNetworks, whole, "in the YAML: guestNetworks, a network of these");
    }
    if said.contains("no address") {
        let text = format!("the guest agent answers, but no DHCP server gave an address ({whole})");
        return found(Part::Dhcp, text, "check bridge, VLAN and the DHCP server of that network");
    }
    let silent = said.contains("guest agent is not running") || said.contains("got timeout");
    if !silent && said.contains(" is not running") {
        return found(Part::Power, format!("the guest does not run ({whole})"), "drover events");
    }
    if !silent {
        return found(Part::Power, whole, "drover events");
    }
    let port = config.and_then(|config| config.get("agent")).unwrap_or_default();
    if port.contains("type=isa") {
        let text = "the guest agent has an ISA port, and images listen on the virtio one";
        return found(
            Part::AgentDevice,
            text,
            format!("qm set {template} --agent enabled=1,type=virtio"),
        );
    }
    let text = "the guest runs and has the agent's virtio port, and nobody answers there: \
                qemu-guest-agent is not installed, or not started";
    let mend = "in the image: apt-get install qemu-guest-agent; systemctl enable qemu-guest-agent";
    found(Part::AgentService, text, mend)
}

fn connecting(said: &str, whole: String, template: &str) -> Diagnosis {
    if said.contains("that the image has this key") {
        let mend = "put the public key into the image, where its sshd_config has AuthorizedKeysFile; \
                    compare its user with the credential's username";
        return found(Part::SshKey, format!("SSH answers and refuses the key ({whole})"), mend);
    }
    if said.contains("key-rejected") || said.contains("does not accept the key") {
        let mend = format!(
            "give template {template} a cloud-init drive (qm set {template} --ide2 STORAGE:cloudinit); \
             compare ciUser with the credential's username"
        );
        return found(Part::SshKey, format!("SSH answers and refuses the key ({whole})"), mend);
    }
    if said.contains("impostor") || said.contains("host key") {
        let mend = "check for another machine with the same address";
        return found(Part::SshHostKey, format!("another host answers ({whole})"), mend);
    }
    let mend = "in the image: systemctl enable ssh; open sshPort in its firewall";
    found(Part::SshPort, format!("nobody answers SSH ({whole})"), mend)
}

/// The way in steps: each state and how long it took.
pub fn timeline(phases: &[(String, u64)]) -> String {
    let width = phases.iter().map(|(state, _)| state.chars().count()).max().unwrap_or(0);
    let (mut out, mut at) = (String::new(), 0);
    for (state, ms) in phases {
        let _ = writeln!(out, "  {:>8}  {state:<width$}  {}", seconds(at), seconds(*ms));
        at += ms;
    }
    out
}

fn seconds(ms: u64) -> String {
    format!("{}.{:02} s", ms / 1000, ms % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(state: &str, detail: &str, reason: &str, agent: &str) -> Part {
        let end = End { state: state.into(), detail: detail.into(), reason: reason.into() };
        diagnose(&end, Some(&VmConfig::new([("agent", agent)])), "9000").part
    }

    // Invariant: what is in the way is told apart by where it ended and what was said there.

    #[test]
    fn each_way_to_fail_is_told_from_the_others() {
        let slow = "Booting took too long";
        let silent = "QEMU guest agent is not running";
        assert_eq!(part("Queued", "", "Queued took too long", ""), Part::Place);
        assert_eq!(part("Cloning", "", "Cloning failed (broken): x", ""), Part::Clone);
        assert_eq!(part("Booting", silent, slow, "enabled=1"), Part::AgentService);
        assert_eq!(part("Booting", silent, slow, "enabled=1,type=isa"), Part::AgentDevice);
        let off = "`GET …` failed: 500 No QEMU guest agent configured";
        assert_eq!(part("Booting", "", off, "0"), Part::AgentOption);
        assert_eq!(part("Booting", "the guest has no address", slow, "1"), Part::Dhcp);
        let other =
            "the guest has no address that drover may use, only 10.0.0.5: set `guestNetworks` to";
        assert_eq!(part("Booting", other, slow, "1"), Part::GuestNetworks);
        assert_eq!(part("Booting", "VM 101 is not running", slow, "1"), Part::Power);
        assert_eq!(part("Booting", "waits for the guest's call", slow, "1"), Part::CallIn);
        let refused = "`10.0.0.5:22` is not reachable: Connection refused";
        assert_eq!(part("Connecting", refused, "Connecting took too long", "1"), Part::SshPort);
        let key = "Connecting failed (key-rejected): x";
        assert_eq!(part("Connecting", "", key, "1"), Part::SshKey);
        let windows =
            "Connecting failed (key-rejected): check the user and that the image has this key";
        let end = End { state: "Connecting".into(), reason: windows.into(), ..End::default() };
        let mend = diagnose(&end, None, "9000").mend;
        assert!(mend.contains("AuthorizedKeysFile"), "{mend}");
        let other = "Connecting failed (impostor): x";
        assert_eq!(part("Connecting", "", other, "1"), Part::SshHostKey);
        let init = "Preparing failed (broken): cloud-init: status: error";
        assert_eq!(part("Preparing: cloud-init", "", init, "1"), Part::CloudInit);
        assert_eq!(part("Preparing: Java", "", "Preparing failed (broken): x", "1"), Part::Step);
    }

    #[test]
    fn commands_of_drovers_name_the_configuration_that_was_given() {
        let end = End { state: "Queued".into(), ..End::default() };
        let found = diagnose(&end, None, "9000").with_config(Path::new("/srv/ci.yaml"));
        assert_eq!(
            found.mend,
            "drover --config /srv/ci.yaml status; drover --config /srv/ci.yaml breakers"
        );
    }

    #[test]
    fn a_timeline_tells_when_each_step_began_and_how_long_it_took() {
        let phases = [("Queued", 10), ("Cloning", 2300), ("Booting", 12_040)]
            .map(|(state, ms)| (state.to_owned(), ms));
        insta::assert_snapshot!(timeline(&phases), @r"
          0.00 s  Queued   0.01 s
          0.01 s  Cloning  2.30 s
          2.31 s  Booting  12.04 s
        ");
    }
}
