//! Where the trial agent of `drover doctor --boot` failed, and what to do. Pure: the running
//! service makes the agent, so that limits, ownership tags and the journal apply to it as to any
//! other, and it cannot be left behind.

use drover_model::phase::AgentPhase;
use std::fmt::Write as _;
use std::path::Path;

use drover_ci::Remedy;
use drover_ssh::quote;
use proxmox_client::types::VmConfig;
use serde::{Serialize, Serializer};

/// The part that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// No node had room for the agent.
    Place,
    /// The clone or its configuration failed.
    Clone,
    /// The guest did not start, or stopped by itself.
    Power,
    /// The guest's option `agent` is off.
    AgentOption,
    /// The guest agent's port is of a kind that images do not use.
    AgentDevice,
    /// Nothing answers on the guest agent's port.
    AgentService,
    /// The guest agent answers, but the guest has no address.
    Dhcp,
    /// The guest has addresses, but none in `guestNetworks`.
    GuestNetworks,
    /// The guest has not called drover.
    CallIn,
    /// Nothing answers SSH at the address.
    SshPort,
    /// SSH refused the login.
    SshKey,
    /// Another host answers at the address.
    SshHostKey,
    /// cloud-init failed or did not end.
    CloudInit,
    /// A later step of the preparation failed.
    Step,
}

/// What failed, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    pub part: Part,
    pub text: String,
    #[serde(rename = "mend", serialize_with = "in_one_text")]
    pub remedies: Vec<Remedy>,
}

fn in_one_text<S: Serializer>(remedies: &[Remedy], to: S) -> Result<S::Ok, S::Error> {
    let each: Vec<String> = remedies.iter().map(ToString::to_string).collect();
    to.serialize_str(&each.join("; "))
}

impl Diagnosis {
    /// The same with drover's commands on this template, so that they can be typed as they are.
    #[must_use]
    pub fn of_template(mut self, template: &str) -> Self {
        for remedy in &mut self.remedies {
            remedy.action = remedy
                .action
                .replace("hold-next TEMPLATE", &format!("hold-next {}", quote(template)));
        }
        self
    }

    /// The same with drover's commands on this configuration.
    #[must_use]
    pub fn with_config(mut self, path: &Path) -> Self {
        let named = format!("drover --config {} ", quote(&path.display().to_string()));
        for remedy in &mut self.remedies {
            remedy.action = remedy.action.replace("drover ", &named);
        }
        self
    }
}

/// How the trial agent ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct End {
    /// The last phase of the agent, or the step of it, before the agent was retired.
    pub state: String,
    /// The last detail that was reported in that state.
    pub detail: String,
    /// Why the agent was retired.
    pub reason: String,
}

fn found(part: Part, text: impl Into<String>, remedies: impl Into<Vec<Remedy>>) -> Diagnosis {
    Diagnosis { part, text: text.into(), remedies: remedies.into() }
}

/// Keeps the next agent that fails, to look at it.
fn hold_next() -> Remedy {
    Remedy::here("drover hold-next TEMPLATE")
}

fn events() -> Remedy {
    Remedy::here("drover events")
}

/// Finds the part that failed, by the last state, by what was reported, and by the guest's
/// configuration. `template` is the VMID of the template image.
pub fn diagnose(end: &End, config: Option<&VmConfig>, template: &str) -> Diagnosis {
    let said = format!("{} {}", end.detail, end.reason);
    let whole = if end.detail.is_empty() || end.reason.contains(&end.detail) {
        end.reason.clone()
    } else {
        format!("{}: {}", end.reason, end.detail)
    };
    match AgentPhase::of_part(&end.state) {
        Some(AgentPhase::Queued) => found(
            Part::Place,
            whole,
            [Remedy::here("drover status"), Remedy::here("drover breakers")],
        ),
        Some(AgentPhase::Cloning | AgentPhase::InDoubt | AgentPhase::Configuring) => {
            found(Part::Clone, whole, [Remedy::here("drover doctor")])
        }
        Some(AgentPhase::Booting) => booting(&said, whole, config, template),
        Some(AgentPhase::Connecting) => connecting(&said, whole, template),
        None
        | Some(
            AgentPhase::Preparing
            | AgentPhase::Ready
            | AgentPhase::Leased
            | AgentPhase::Draining
            | AgentPhase::Resetting
            | AgentPhase::Held
            | AgentPhase::Retiring
            | AgentPhase::Stranded
            | AgentPhase::Gone,
        ) => preparing(&end.state, whole),
    }
}

fn preparing(step: &str, whole: String) -> Diagnosis {
    if step.contains("cloud-init") {
        let status = Remedy::at("then in the guest", "cloud-init status --long");
        return found(Part::CloudInit, whole, [hold_next(), status]);
    }
    found(Part::Step, whole, [events(), hold_next()])
}

fn booting(said: &str, whole: String, config: Option<&VmConfig>, template: &str) -> Diagnosis {
    let set =
        |option: &str| Remedy::at("on the template's node", format!("qm set {template} {option}"));
    if said.contains("No QEMU guest agent configured") {
        let remedy = set("--agent enabled=1");
        return found(Part::AgentOption, "the guest's option `agent` is off", [remedy]);
    }
    if said.contains("waits for the guest's call") {
        let text = "the guest has not called drover: the image has no script for that, or cannot \
                    reach `service.listen`";
        return found(Part::CallIn, text, [hold_next()]);
    }
    if said.contains("that drover may use, only") {
        let remedy =
            Remedy::yaml("guestNetworks: [NETWORK]").noting("a network of these addresses");
        return found(Part::GuestNetworks, whole, [remedy]);
    }
    if said.contains("no address") {
        let text = format!("the guest agent answers, but no DHCP server gave an address ({whole})");
        let look = "check bridge, VLAN and the DHCP server";
        return found(Part::Dhcp, text, [Remedy::at("in the network of the guest", look)]);
    }
    let silent = said.contains("guest agent is not running") || said.contains("got timeout");
    if !silent && said.contains(" is not running") {
        return found(Part::Power, format!("the guest is not running ({whole})"), [events()]);
    }
    if !silent {
        return found(Part::Power, whole, [events()]);
    }
    let port = config.and_then(|config| config.get("agent")).unwrap_or_default();
    if port.contains("type=isa") {
        let text = "the guest agent has an ISA port, but images use the virtio port";
        return found(Part::AgentDevice, text, [set("--agent enabled=1,type=virtio")]);
    }
    let text = "the guest runs and has the agent's virtio port, but nothing answers there: \
                qemu-guest-agent is not installed or not started";
    let command = "apt-get install qemu-guest-agent; systemctl enable qemu-guest-agent";
    found(Part::AgentService, text, [Remedy::at("in the image", command)])
}

fn connecting(said: &str, whole: String, template: &str) -> Diagnosis {
    if said.contains("that the image has this key") {
        let key = "put the public key where its sshd_config has AuthorizedKeysFile";
        let remedies = [Remedy::at("in the image", key), same_user("username")];
        return found(Part::SshKey, format!("SSH answers but refuses the key ({whole})"), remedies);
    }
    if said.contains("key-rejected") || said.contains("does not accept the key") {
        let command = format!("qm set {template} --ide2 STORAGE:cloudinit");
        let drive = Remedy::at("on the template's node, where it has no cloud-init drive", command);
        // Kernels made for clouds have no driver for the AHCI controller of a q35.
        let command = format!("qm set {template} --delete ide2 --scsi1 STORAGE:cloudinit");
        let at = "on the template's node, where a q35 has that drive in ide2 and an image for clouds, \
                  such as Debian's genericcloud: its kernel reads no IDE or SATA drive there";
        let remedies = [drive, Remedy::at(at, command), same_user("ciUser")];
        return found(Part::SshKey, format!("SSH answers but refuses the key ({whole})"), remedies);
    }
    if said.contains("impostor") || said.contains("host key") {
        let look = "look for another machine with the same address";
        let remedy = Remedy::at("in the network of the guest", look);
        return found(Part::SshHostKey, format!("another host answers ({whole})"), [remedy]);
    }
    let port =
        Remedy::at("in the image, with sshPort open in its firewall", "systemctl enable ssh");
    found(Part::SshPort, format!("nothing answers SSH ({whole})"), [port])
}

/// The user that has the key must be the one that logs in.
fn same_user(key: &str) -> Remedy {
    Remedy::yaml(format!("{key}: USER")).noting("the same user in template and credential")
}

/// The agent's states as a table: when each began and how long it took.
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

    // Invariant: each cause is recognised by the last state and by what was reported there.

    #[test]
    fn each_way_to_fail_is_distinguished_from_the_others() {
        let slow = "Booting took too long";
        let silent = "QEMU guest agent is not running";
        assert_eq!(part(AgentPhase::Queued.name(), "", "Queued took too long", ""), Part::Place);
        assert_eq!(
            part(AgentPhase::Cloning.name(), "", "Cloning failed (broken): x", ""),
            Part::Clone
        );
        assert_eq!(part(AgentPhase::Booting.name(), silent, slow, "enabled=1"), Part::AgentService);
        assert_eq!(
            part(AgentPhase::Booting.name(), silent, slow, "enabled=1,type=isa"),
            Part::AgentDevice
        );
        let off = "`GET …` failed: 500 No QEMU guest agent configured";
        assert_eq!(part(AgentPhase::Booting.name(), "", off, "0"), Part::AgentOption);
        assert_eq!(
            part(AgentPhase::Booting.name(), "the guest has no address", slow, "1"),
            Part::Dhcp
        );
        let other =
            "the guest has no address that drover may use, only 10.0.0.5: set `guestNetworks` to";
        assert_eq!(part("Booting", other, slow, "1"), Part::GuestNetworks);
        assert_eq!(part("Booting", "VM 101 is not running", slow, "1"), Part::Power);
        assert_eq!(part("Booting", "waits for the guest's call", slow, "1"), Part::CallIn);
        let refused = "`10.0.0.5:22` is not reachable: Connection refused";
        assert_eq!(
            part(AgentPhase::Connecting.name(), refused, "Connecting took too long", "1"),
            Part::SshPort
        );
        let key = "Connecting failed (key-rejected): x";
        assert_eq!(part(AgentPhase::Connecting.name(), "", key, "1"), Part::SshKey);
        let windows =
            "Connecting failed (key-rejected): check the user and that the image has this key";
        let end = End {
            state: AgentPhase::Connecting.to_string(),
            reason: windows.into(),
            ..End::default()
        };
        let remedies = diagnose(&end, None, "9000").remedies;
        assert!(remedies[0].action.contains("AuthorizedKeysFile"), "{remedies:?}");
        let other = "Connecting failed (impostor): x";
        assert_eq!(part(AgentPhase::Connecting.name(), "", other, "1"), Part::SshHostKey);
        let init = "Preparing failed (broken): cloud-init: status: error";
        assert_eq!(part("Preparing: cloud-init", "", init, "1"), Part::CloudInit);
        assert_eq!(part("Preparing: Java", "", "Preparing failed (broken): x", "1"), Part::Step);
    }

    #[test]
    fn commands_of_drovers_name_the_configuration_that_was_given() {
        let end = End { state: AgentPhase::Queued.to_string(), ..End::default() };
        let found = diagnose(&end, None, "9000").with_config(Path::new("/srv/ci.yaml"));
        let commands = found.remedies.iter().map(|remedy| remedy.action.as_str());
        assert_eq!(
            commands.collect::<Vec<_>>(),
            ["drover --config /srv/ci.yaml status", "drover --config /srv/ci.yaml breakers"]
        );
        assert_eq!(
            serde_json::to_value(&found).ok().map(|found| found["mend"].clone()),
            Some(serde_json::json!(
                "on this machine: drover --config /srv/ci.yaml status; on this machine: drover \
                 --config /srv/ci.yaml breakers"
            ))
        );
    }

    #[test]
    fn a_timeline_says_when_each_step_began_and_how_long_it_took() {
        let phases =
            [(AgentPhase::Queued, 10), (AgentPhase::Cloning, 2300), (AgentPhase::Booting, 12_040)]
                .map(|(phase, ms)| (phase.to_string(), ms));
        insta::assert_snapshot!(timeline(&phases), @r"
          0.00 s  Queued   0.01 s
          0.01 s  Cloning  2.30 s
          2.31 s  Booting  12.04 s
        ");
    }
}
