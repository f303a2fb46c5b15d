#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drover_ssh::PublicKey;
use tokio::time::advance;

use super::*;

const MAC: &str = "BC:24:11:AA:BB:CC";

fn guest(vmid: u32, boot: u32) -> GuestBoot {
    GuestBoot {
        vmid,
        node: "pve1".to_owned(),
        hostname: format!("agent-{vmid}"),
        config: BTreeMap::new(),
        mac: Some(MAC.to_owned()),
        boot,
        resumed: false,
        config_from_disc: false,
        discs: Vec::new(),
    }
}

fn host(seed: u64) -> StubGuests {
    StubGuests::new(StubOptions { seed, ..StubOptions::default() })
}

async fn up(host: &StubGuests, vmid: u32) {
    host.boot(guest(vmid, 1)).await.unwrap();
    advance(Duration::from_secs(40)).await;
}

async fn interfaces(host: &StubGuests) -> Result<Value, AgentError> {
    host.agent(100, AgentCall::NetworkInterfaces).await
}

async fn read(host: &StubGuests, vmid: u32, path: &str) -> Result<String, AgentError> {
    let answer = host.agent(vmid, AgentCall::FileRead { path: path.to_owned() }).await?;
    let bytes = STANDARD.decode(answer["content"].as_str().unwrap()).unwrap();
    Ok(String::from_utf8(bytes).unwrap())
}

// Invariant: a guest boots, gets an address and ends after drawn times, equal for equal seeds.

#[tokio::test(start_paused = true)]
async fn a_booting_guest_first_has_no_agent_then_no_address() {
    let host = host(7);
    host.boot(guest(100, 1)).await.unwrap();
    assert!(host.running(100));
    assert_eq!(interfaces(&host).await, Err(AgentError::NotRunning));
    let (mut silent, mut bare) = (0, 0);
    let address = loop {
        advance(Duration::from_millis(100)).await;
        match interfaces(&host).await {
            Err(_) => silent += 1,
            Ok(list) => match list[1]["ip-addresses"][0]["ip-address"].as_str() {
                Some(address) => break address.to_owned(),
                None => bare += 1,
            },
        }
    };
    assert_eq!(address, "10.77.0.101");
    assert!((79..250).contains(&silent), "{silent}");
    assert!((9..51).contains(&bare), "{bare}");
    let list = interfaces(&host).await.unwrap();
    assert_eq!(list[0]["name"], "lo");
    assert_eq!(list[1]["hardware-address"], MAC.to_lowercase());
    assert_eq!(host.address(100).unwrap().ip.to_string(), address);
}

#[tokio::test(start_paused = true)]
async fn equal_seeds_boot_in_equal_times() {
    let (one, two, other) = (host(1), host(1), host(2));
    let mut times = Vec::new();
    for host in [&one, &two, &other] {
        host.boot(guest(100, 1)).await.unwrap();
        let started = Instant::now();
        while host.agent(100, AgentCall::Ping).await.is_err() {
            advance(Duration::from_millis(1)).await;
        }
        times.push(started.elapsed());
    }
    assert_eq!(times[0], times[1]);
    assert_ne!(times[0], times[2]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_after_a_while_and_stop_at_once() {
    let host = host(3);
    up(&host, 100).await;
    up(&host, 101).await;
    host.shutdown(100).await;
    assert!(host.running(100));
    advance(Duration::from_secs(8)).await;
    assert!(!host.running(100));
    assert_eq!(host.address(100), None);
    host.stop(101).await;
    assert!(!host.running(101));
    host.stop(101).await;
}

// Invariant: a disk's first boot makes the host key, which stays on the disk.

#[tokio::test(start_paused = true)]
async fn a_host_key_outlives_a_restart_and_a_rollback_but_not_a_clone() {
    let host = host(4);
    up(&host, 100).await;
    let first = read(&host, 100, answers::HOST_KEY_FILE).await.unwrap();
    PublicKey::parse(&first).unwrap();
    host.snapshot(100, "clean", false).await.unwrap();
    host.stop(100).await;
    host.rollback(100, "clean").await.unwrap();
    host.boot(guest(100, 2)).await.unwrap();
    advance(Duration::from_secs(40)).await;
    assert_eq!(read(&host, 100, answers::HOST_KEY_FILE).await.unwrap(), first);
    host.stop(100).await;
    host.boot(GuestBoot { resumed: true, ..guest(100, 1) }).await.unwrap();
    let at_once = read(&host, 100, answers::HOST_KEY_FILE).await;
    assert_eq!(at_once.unwrap(), first, "saved memory goes on, and nothing boots");
    host.clone_disk(100, 101, true).await.unwrap();
    up(&host, 101).await;
    assert_ne!(read(&host, 101, answers::HOST_KEY_FILE).await.unwrap(), first);
    host.forget(100);
    up(&host, 100).await;
    assert_ne!(read(&host, 100, answers::HOST_KEY_FILE).await.unwrap(), first);
}

// Invariant: the agent answers as qemu-ga does.

#[tokio::test(start_paused = true)]
async fn a_command_runs_and_its_end_is_reported_once() {
    let host = host(5);
    up(&host, 100).await;
    let command = vec!["cat".to_owned(), answers::HOST_KEY_FILE.to_owned()];
    let started = host.agent(100, AgentCall::Exec { command, input: None }).await.unwrap();
    let pid = started["pid"].as_i64().unwrap();
    let status = host.agent(100, AgentCall::ExecStatus { pid }).await.unwrap();
    let said = STANDARD.decode(status["out-data"].as_str().unwrap()).unwrap();
    let key = read(&host, 100, answers::HOST_KEY_FILE).await.unwrap();
    assert_eq!((status["exitcode"].as_i64(), said), (Some(0), key.into_bytes()));
    let again = host.agent(100, AgentCall::ExecStatus { pid }).await.unwrap_err();
    assert_eq!(again.to_string(), "Invalid parameter 'pid'");
    let command = vec!["/nonexistent".to_owned()];
    let missing = host.agent(100, AgentCall::Exec { command, input: None }).await.unwrap_err();
    assert!(missing.to_string().contains("\u{201c}/nonexistent\u{201d}"));
}

#[tokio::test(start_paused = true)]
async fn the_agent_answers_ping_and_get_commands() {
    let host = host(6);
    up(&host, 100).await;
    assert_eq!(host.agent(100, AgentCall::Ping).await.unwrap(), json!({}));
    let name = AgentCall::Get("get-host-name".to_owned());
    assert_eq!(host.agent(100, name).await.unwrap()["host-name"], "agent-100");
    let os = AgentCall::Get("get-osinfo".to_owned());
    assert_eq!(host.agent(100, os).await.unwrap()["id"], "debian");
    assert!(host.agent(100, AgentCall::Info).await.unwrap()["supported_commands"].is_array());
    let missing = read(&host, 100, "/tmp/none").await.unwrap_err();
    let text = "failed to open file '/tmp/none' (mode: 'r'): No such file or directory";
    assert_eq!(missing.to_string(), text);
}

// Invariant: a guest misbehaves only as its quirk says.

#[tokio::test(start_paused = true)]
async fn each_quirk_takes_effect_and_can_be_removed() {
    let host = host(8);
    host.quirk_next_boot(Quirk::NeverBoots);
    up(&host, 100).await;
    assert_eq!(interfaces(&host).await, Err(AgentError::NotRunning));
    host.shutdown(100).await;
    advance(Duration::from_secs(60)).await;
    assert!(host.running(100));

    host.set_quirk(100, Some(Quirk::Hangs));
    assert_eq!(interfaces(&host).await, Err(AgentError::Timeout));
    host.set_quirk(100, Some(Quirk::NoAddress));
    assert!(interfaces(&host).await.unwrap()[1].get("ip-addresses").is_none());
    host.set_quirk(100, Some(Quirk::WrongMac));
    assert_ne!(interfaces(&host).await.unwrap()[1]["hardware-address"], MAC.to_lowercase());
    host.set_quirk(100, Some(Quirk::WrongAddress(IpAddr::from([10, 9, 9, 9]))));
    let list = interfaces(&host).await.unwrap();
    assert_eq!(list[1]["ip-addresses"][0]["ip-address"], "10.9.9.9");
    host.set_quirk(100, None);
    let list = interfaces(&host).await.unwrap();
    assert_eq!(list[1]["ip-addresses"][0]["ip-address"], "10.77.0.101");

    host.set_quirk(100, Some(Quirk::PowersOff(Duration::from_secs(5))));
    advance(Duration::from_secs(4)).await;
    assert_eq!(host.running_vmids(), [100]);
    advance(Duration::from_secs(1)).await;
    assert_eq!(host.running_vmids(), [0_u32; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_guest_can_power_itself_off() {
    let host = host(9);
    up(&host, 100).await;
    host.power_off(100);
    assert!(!host.running(100));
}
