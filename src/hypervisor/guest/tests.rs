#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::*;
use crate::testing::{Clients as _, Script, Step, token};

const MAC: &str = "BC:24:11:00:00:01";

fn interface(name: &str, mac: &str, addresses: &[&str]) -> GuestInterface {
    let addresses: Vec<_> = addresses.iter().map(|one| json!({"ip-address": one})).collect();
    let row = json!({"name": name, "hardware-address": mac, "ip-addresses": addresses});
    serde_json::from_value(row).unwrap()
}

fn chosen(interfaces: &[GuestInterface], networks: &[&str]) -> String {
    let networks: Vec<_> = networks.iter().map(|text| (*text).to_owned()).collect();
    let address = choose(interfaces, Some(MAC), &networks);
    address.map(|address| address.to_string()).unwrap_or_default()
}

fn busy_guest() -> Vec<GuestInterface> {
    vec![
        interface("lo", "00:00:00:00:00:00", &["127.0.0.1", "::1"]),
        interface("docker0", "02:42:00:00:00:01", &["172.17.0.1"]),
        interface("eth1", "BC:24:11:00:00:02", &["10.9.0.5"]),
        interface("eth0", "bc:24:11:00:00:01", &["fe80::1", "fd00::5", "169.254.3.4", "10.0.0.5"]),
    ]
}

// Invariant: the address is net0's, usable, IPv4 first; the operator's networks come before all
// that.

#[test]
fn net0_goes_before_the_rest_and_ipv4_before_ipv6() {
    assert_eq!(chosen(&busy_guest(), &[]), "10.0.0.5");
    let late = [interface("eth0", MAC, &[]), interface("eth1", "x", &["10.9.0.5"])];
    assert_eq!(chosen(&late, &[]), "", "net0 is there and has no address yet");
    let only_v6 = [interface("eth0", MAC, &["fe80::1", "fd00::5"])];
    assert_eq!(chosen(&only_v6, &[]), "fd00::5");
}

#[test]
fn without_net0_inner_interfaces_are_ruled_out() {
    let guest = [
        interface("lo", "", &["127.0.0.1"]),
        interface("br-1a2b", "", &["172.18.0.1"]),
        interface("veth12", "", &["172.19.0.1"]),
        interface("virbr0", "", &["192.168.122.1"]),
        interface("docker0", "", &["172.17.0.1", "fd00:17::1"]),
        interface("cni0", "", &["10.42.0.1"]),
        interface("flannel.1", "", &["10.42.0.2"]),
        interface("cali12", "", &["10.42.0.3"]),
        interface("podman1", "", &["10.88.0.1"]),
        interface("ens18", "", &["fe80::7", "fd00::7", "169.254.0.7", "10.0.0.7"]),
    ];
    assert_eq!(chosen(&guest, &[]), "10.0.0.7");
    let inner = &guest[..9];
    assert_eq!(chosen(inner, &[]), "");
    let only_v6 = [inner, &[interface("ens18", "", &["fe80::7", "fd00::7"])]].concat();
    assert_eq!(chosen(&only_v6, &[]), "fd00::7");
}

#[test]
fn named_networks_decide_among_all_but_inner_interfaces() {
    assert_eq!(chosen(&busy_guest(), &["10.9.0.0/16"]), "10.9.0.5");
    assert_eq!(chosen(&busy_guest(), &["127.0.0.0/8"]), "", "lo is up before eth0");
    assert_eq!(chosen(&busy_guest()[..3], &["172.16.0.0/12"]), "", "docker0 is, too");
    let bridged = [interface("br-lan", MAC, &["172.16.0.9"])];
    assert_eq!(chosen(&bridged, &["172.16.0.0/12"]), "172.16.0.9", "a bridge over net0 is net0");
    let other = [interface("eth0", "x", &["127.77.0.9"])];
    assert_eq!(chosen(&other, &["127.0.0.0/8"]), "127.77.0.9");
    assert_eq!(chosen(&busy_guest(), &["172.16.0.0/12", "fd00::/8"]), "fd00::5");
    assert_eq!(chosen(&busy_guest(), &["192.168.0.0/16"]), "");
    assert_eq!(chosen(&busy_guest(), &["nonsense"]), "");
}

#[test]
fn ranges_hold_at_their_edges() {
    let holds =
        |range: &str, address: &str| Cidr::parse(range).unwrap().contains(address.parse().unwrap());
    assert!(holds("10.0.0.0/31", "10.0.0.1") && !holds("10.0.0.0/31", "10.0.0.2"));
    assert!(holds("0.0.0.0/0", "255.0.0.1") && holds("::/0", "fd00::1"));
    assert!(holds("10.0.0.1", "10.0.0.1") && !holds("10.0.0.1", "10.0.0.2"));
    assert!(!holds("0.0.0.0/0", "::1"));
    assert!(Cidr::parse("10.0.0.0/33").is_none() && Cidr::parse("x/8").is_none());
}

// Invariant: drover waits for a guest agent that is not up yet, and reports other failures.

async fn asked(
    answer: impl FnMut(&str) -> Step + Send + 'static,
) -> Result<AddressObservation, FaultKind> {
    let script = Script::new(answer);
    let client = script.client(&["a"], token());
    let observation = address(&client, &NodeName::new("pve1"), VmId(101), Some(MAC), &[]).await;
    observation.map_err(|error| client.fault(&error).kind)
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_not_up_is_waited_for() {
    for text in [
        "QEMU guest agent is not running\n",
        "VM 101 is not running\n",
        "VM 101 qga command 'network-get-interfaces' failed - got timeout\n",
    ] {
        let observation = asked(move |_| Step::Refuse(500, text)).await.unwrap();
        assert_eq!(observation, AddressObservation::NotYet(text.trim().to_owned()));
    }
    let inside = json!({"result": {"error": {"class": "CommandNotFound", "desc": "disabled"}}});
    let observation = asked(move |_| Step::Data(inside.clone())).await.unwrap();
    assert_eq!(
        observation,
        AddressObservation::NotYet("the guest agent answered: disabled".into())
    );
    let bare = json!({"result": [{"name": "lo"}, {"nonsense": 1}, 5]});
    let observation = asked(move |_| Step::Data(bare.clone())).await.unwrap();
    assert_eq!(observation, AddressObservation::NotYet("the guest has no address".into()));
}

#[test]
fn addresses_that_do_not_count_are_named_with_what_decides() {
    let interfaces = [
        interface("lo", "00:00:00:00:00:00", &["127.0.0.1", "::1", "127.77.39.101"]),
        interface("eth0", MAC, &["fe80::1", "not an address"]),
    ];
    assert_eq!(
        no_usable_address(&interfaces, &[]),
        "the guest has no address that drover may use, only 127.77.39.101, fe80::1: set \
         `guestNetworks` to the networks that drover may use"
    );
    let within = no_usable_address(&interfaces, &["10.0.0.0/8".to_owned()]);
    let start = "the guest has no address in `10.0.0.0/8` that drover may use, only ";
    assert!(within.starts_with(start), "{within}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_never_will_answer_is_a_fault() {
    let kind = asked(|_| Step::Refuse(500, "No QEMU guest agent configured")).await.unwrap_err();
    assert_eq!(kind, FaultKind::Broken);
    let text = "Permission check failed (/vms/101, VM.Monitor)";
    let kind = asked(move |_| Step::Refuse(403, text)).await.unwrap_err();
    assert_eq!(kind.label(), "denied");
}

#[tokio::test(start_paused = true)]
async fn an_address_is_found() {
    let answer: Value = json!({"result": [
        {"name": "eth0", "hardware-address": "bc:24:11:00:00:01",
         "ip-addresses": [{"ip-address": "10.0.0.5", "ip-address-type": "ipv4", "prefix": 24}]},
    ]});
    let observation = asked(move |_| Step::Data(answer.clone())).await.unwrap();
    assert_eq!(observation, AddressObservation::At("10.0.0.5".parse().unwrap()));
}

// Invariant: only a host key is accepted as one; without the privilege to read it there is none.

fn key_line(kind: &str) -> String {
    let mut blob = (kind.len() as u32).to_be_bytes().to_vec();
    blob.extend(kind.as_bytes());
    blob.extend([0, 0, 0, 2, 7, 7]);
    format!("{kind} {}", base64::engine::general_purpose::STANDARD.encode(blob))
}

#[test]
fn host_keys_are_checked() {
    let good = key_line("ssh-ed25519");
    assert_eq!(host_key(&format!("{good} root@guest\nmore")), Some(good.clone()));
    let ecdsa = key_line("ecdsa-sha2-nistp256");
    assert_eq!(host_key(&ecdsa), Some(ecdsa.clone()));
    let liar = good.replacen("ssh-ed25519", "ecdsa-sha2-nistp256", 1);
    for bad in
        [liar, key_line("ssh-rsa"), "ssh-ed25519".into(), "ssh-ed25519 !!".into(), "x".repeat(9000)]
    {
        assert_eq!(host_key(&bad), None, "{bad:.60}");
    }
}

async fn keys(
    answer: impl FnMut(&str) -> Step + Send + 'static,
) -> (Result<usize, FaultKind>, usize) {
    keys_of(Os::Linux, answer).await
}

async fn keys_of(
    os: Os,
    answer: impl FnMut(&str) -> Step + Send + 'static,
) -> (Result<usize, FaultKind>, usize) {
    let script = Script::new(answer);
    let client = script.client(&["a"], token());
    let keys = host_keys(&client, &NodeName::new("pve1"), VmId(101), os).await;
    let keys = keys.map(|keys| keys.len()).map_err(|error| client.fault(&error).kind);
    (keys, script.seen().len())
}

#[tokio::test(start_paused = true)]
async fn host_keys_cost_one_call_when_the_first_is_there() {
    let line = key_line("ssh-ed25519");
    let read = keys(move |_| Step::Data(json!({"content": line, "bytes-read": 90}))).await;
    assert_eq!(read, (Ok(1), 1));
    let line = key_line("ecdsa-sha2-nistp256");
    let read = keys(move |asked| match asked.contains("ed25519") {
        true => Step::Refuse(500, "Agent error: failed to open file: No such file or directory"),
        false => Step::Data(json!({"content": line})),
    });
    assert_eq!(read.await, (Ok(1), 2));
    let denied = "Permission check failed (/vms/101, VM.GuestAgent.FileRead)";
    assert_eq!(keys(move |_| Step::Refuse(403, denied)).await, (Ok(0), 1));
    let down = keys(|_| Step::Refuse(500, "QEMU guest agent is not running")).await;
    assert_eq!(down, (Err(FaultKind::Contention), 1));
}

#[tokio::test(start_paused = true)]
async fn the_host_keys_of_windows_are_where_its_own_openssh_has_them() {
    let line = key_line("ecdsa-sha2-nistp256");
    let os = Os::Windows(drover_model::os::LoginShell::Auto);
    let read = keys_of(os, move |asked| {
        assert!(asked.contains("ProgramData") && !asked.contains("etc"), "{asked}");
        match asked.contains("ed25519") {
            true => Step::Refuse(500, "Agent error: The system cannot find the file specified."),
            false => Step::Data(json!({"content": line})),
        }
    });
    assert_eq!(read.await, (Ok(1), 2));
}

// Invariant: of a guest that only its guest agent can enter, the end of one log is read, and it is plain text.

#[tokio::test(start_paused = true)]
async fn the_first_log_that_a_guest_has_is_read_through_its_guest_agent() {
    let missing = "Agent error: failed to open file: No such file or directory";
    for (has, first_line) in [
        ("cloud-init-output.log", Some("/var/log/cloud-init-output.log")),
        ("cloud-init.log", Some("/var/log/cloud-init.log")),
        (
            "cloudbase",
            Some(r"C:\Program Files\Cloudbase Solutions\Cloudbase-Init\log\cloudbase-init.log"),
        ),
        ("nothing", None),
    ] {
        let script = Script::new(move |asked: &str| match asked.contains(has) {
            true => Step::Data(json!({"content": "a\nE: no\u{1b}[31m network\n"})),
            false => Step::Refuse(500, missing),
        });
        let client = script.client(&["a"], token());
        let read = log(&client, &NodeName::new("pve1"), VmId(101)).await;
        let wanted = first_line.map(|file| format!("{file}\na\nE: no[31m network\n"));
        assert_eq!(read, wanted, "{has}");
    }
    for silent in ["QEMU guest agent is not running", "No QEMU guest agent configured"] {
        let script = Script::new(move |_: &str| Step::Refuse(500, silent));
        let client = script.client(&["a"], token());
        assert_eq!(log(&client, &NodeName::new("pve1"), VmId(101)).await, None);
        assert_eq!(script.seen().len(), 1, "{silent}");
    }
}

#[test]
fn of_a_long_log_the_whole_lines_at_its_end_are_kept() {
    let text: String = (0..2000).map(|line| format!("line {line}\n")).collect();
    let kept = last_lines(&text);
    assert!(kept.len() <= LOG_CHARS_MAX && kept.starts_with("line 1"), "{kept:.40}");
    assert!(kept.ends_with("line 1998\nline 1999\n"), "{kept}");
    assert_eq!(last_lines("short"), "short");
}
