//! The guest agent of a process guest.

use super::*;

async fn exec(rig: &Rig, vmid: u32, words: &[&str], input: Option<&str>) -> Value {
    let command = words.iter().map(|word| (*word).to_owned()).collect();
    let input = input.map(|input| input.as_bytes().to_vec());
    let started = rig.ask(vmid, AgentCall::Exec { command, input }).await.unwrap();
    let pid = started["pid"].as_i64().unwrap();
    loop {
        let status = rig.ask(vmid, AgentCall::ExecStatus { pid }).await.unwrap();
        if status["exited"] == true {
            let again = rig.ask(vmid, AgentCall::ExecStatus { pid }).await.unwrap_err();
            assert_eq!(again.to_string(), "Invalid parameter 'pid'");
            return status;
        }
        tokio::task::yield_now().await;
    }
}

fn text(value: &Value) -> String {
    String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap()
}

// Invariant: the agent answers as qemu-ga does, about what really happens in the guest.

#[tokio::test]
async fn commands_run_in_the_guest_and_report_how_they_end() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1101, 1).await;
    let status =
        exec(&rig, 1101, &["sh", "-c", "hostname; cat; echo err >&2; exit 3"], Some("in")).await;
    assert_eq!(status["exitcode"], 3);
    assert_eq!(text(&status["out-data"]), "agent-1101\nin");
    assert_eq!(text(&status["err-data"]), "err\n");
    assert_eq!(status["out-truncated"], false);
    let killed = exec(&rig, 1101, &["sh", "-c", "kill -9 $$"], None).await;
    assert_eq!(killed, serde_json::json!({"exited": true, "signal": 9}));
    let much = exec(&rig, 1101, &["head", "-c", "20000000", "/dev/zero"], None).await;
    assert_eq!(much["out-truncated"], true);

    let command = vec!["/nonexistent".to_owned()];
    let missing = rig.ask(1101, AgentCall::Exec { command, input: None }).await.unwrap_err();
    assert!(missing.to_string().starts_with("Failed to execute child process \u{201c}/nonex"));
}

#[tokio::test]
async fn files_are_the_guests_own() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1102, 1).await;
    let write = |path: &str, content: &[u8]| AgentCall::FileWrite {
        path: path.to_owned(),
        content: content.to_vec(),
    };
    assert_eq!(rig.ask(1102, write("/tmp/f1", "line ü\n".as_bytes())).await, Ok(Value::Null));
    assert_eq!(rig.read(1102, "/tmp/f1").await.unwrap(), "line ü\n");
    assert!(!std::path::Path::new("/tmp/f1").exists());
    let none = rig.read(1102, "/tmp/none").await.unwrap_err();
    let said = "failed to open file '/tmp/none' (mode: 'r'): No such file or directory";
    assert_eq!(none.to_string(), said);
    let nowhere = rig.ask(1102, write("/nodir/x", b"x")).await.unwrap_err();
    let said = "failed to open file '/nodir/x' (mode: 'wb'): No such file or directory";
    assert_eq!(nowhere.to_string(), said);
    let shut = rig.ask(1102, write("/usr/x", b"x")).await.unwrap_err();
    assert_eq!(shut.to_string(), "failed to open file '/usr/x' (mode: 'wb'): Permission denied");

    // A link to an absolute path leads to the guest's own file.
    let session = rig.log_in(1102).await;
    says(&session, "ln -s /etc/hostname link").await;
    assert_eq!(rig.read(1102, "/home/ci/link").await.unwrap(), "agent-1102\n");
}

#[tokio::test]
async fn the_network_card_and_the_names_are_reported() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1103, 1).await;
    let list = rig.ask(1103, AgentCall::NetworkInterfaces).await.unwrap();
    assert_eq!(list[0]["ip-addresses"][0]["ip-address"], "127.0.0.1");
    assert_eq!(list[1]["name"], "eth0");
    assert_eq!(list[1]["hardware-address"], "bc:24:11:aa:bb:cc");
    let own = rig.guests.address(1103).unwrap().ip.to_string();
    assert_eq!(list[1]["ip-addresses"][0]["ip-address"], own);
    assert_eq!(list[1]["ip-addresses"][0]["prefix"], 8);
    let name = AgentCall::Get("get-host-name".to_owned());
    assert_eq!(rig.ask(1103, name).await.unwrap()["host-name"], "agent-1103");
    assert_eq!(rig.ask(1103, AgentCall::Ping).await.unwrap(), serde_json::json!({}));
    let odd = rig.ask(1103, AgentCall::Get("get-cookies".to_owned())).await.unwrap_err();
    assert!(matches!(odd, AgentError::Refused { class, .. } if class == "CommandNotFound"));
}
