//! Windows guests with the real SSH client: scripts, lines of a login shell, files.

use bytes::Bytes;
use drover_model::os::LoginShell;
use drover_scripts::windows::{
    COMMAND_CHARS_MAX, LOGIN_SHELL_PROBE, Script, command_line, printed_status, probed_login_shell,
};

use super::*;

/// Boots a Windows guest and logs in.
async fn log_in(rig: &Rig, vmid: u32, traits: &str) -> Session {
    let mut boot = guest(vmid, 1);
    boot.config.insert("tags".into(), format!("guest-{traits}"));
    rig.guests.boot(boot).await.unwrap();
    rig.machine(vmid).wait_until_up_or_off().await;
    let pin = rig.read(vmid, r"C:\ProgramData\ssh\ssh_host_ed25519_key.pub").await.unwrap();
    rig.log_in_as(vmid, &key(1), &HostKeyPolicy::Pinned(vec![pin])).await.unwrap()
}

// Invariant: a file arrives complete by SFTP, or the old one stays.

#[tokio::test]
async fn a_file_arrives_complete_and_replaces_the_old_one_or_the_error_says_why() {
    let Some(rig) = Rig::isolated() else { return };
    let session = log_in(&rig, 1050, "windows").await;
    says(&session, &Script::RemoteFs.command(&[r"C:\ci", "java"])).await;
    for letter in ["a", "b"] {
        let content = letter.repeat(100_000);
        session.send("/C:/ci/f", Bytes::from(content.clone()), SOON).await.unwrap();
        assert_eq!(says(&session, r"type C:\ci\f").await, content);
    }
    let error = session.send("/C:/nosuch/f", Bytes::from("x"), SOON).await.unwrap_err();
    let wanted = "the guest could not write `/C:/nosuch/f`: No such file";
    assert_eq!(error.to_string(), wanted);
}

#[tokio::test]
async fn a_guest_without_sftp_says_what_to_enable() {
    let rig = Rig::without_bubblewrap(false, |_| false);
    let session = log_in(&rig, 1051, "windows").await;
    let error = session.send("f", Bytes::from("x"), SOON).await.unwrap_err();
    assert!(error.to_string().contains("enable `Subsystem sftp`"), "{error}");
}

// Invariant: a login shell accepts what that of Windows accepts, and no POSIX shell lines.

#[tokio::test]
async fn the_probe_shows_the_login_shells_of_guests_apart() {
    let Some(rig) = Rig::isolated() else { return };
    for (vmid, traits, shell) in
        [(1052, "windows", LoginShell::Cmd), (1053, "windows-powershell", LoginShell::Powershell)]
    {
        let session = log_in(&rig, vmid, traits).await;
        let said = run(&session, LOGIN_SHELL_PROBE).await;
        assert_eq!(probed_login_shell(&String::from_utf8_lossy(&said.stdout)), shell, "{traits}");
        assert_eq!(
            says(&session, &command_line("echo it's && ver", shell)).await.lines().count(),
            2
        );
        assert_eq!(run(&session, "sh -c 'id'").await.exit, Some(1), "{traits}");
        let cards = Script::Cards.command(&[]);
        assert!(cards.len() < COMMAND_CHARS_MAX);
        assert_eq!(says(&session, &cards).await.to_uppercase(), "BC:24:11:AA:BB:CC");
    }
}

// Invariant: the status of a script is known, whatever the login shell makes of its exit status.

#[tokio::test]
async fn the_status_of_a_script_is_printed_where_the_login_shell_returns_1() {
    let Some(rig) = Rig::isolated() else { return };
    for (vmid, traits, exit) in [(1055, "windows", 33), (1056, "windows-powershell", 1)] {
        let session = log_in(&rig, vmid, traits).await;
        let register = Script::RunnerStarted.command(&["drover-a-b", "33"]);
        says(&session, &register).await;
        let start = Script::RunnerStart.command(&["drover-a-b", "ended", "nosuch.exe"]);
        let missing = run(&session, &start).await;
        let said = String::from_utf8(missing.stdout).unwrap();
        assert_eq!(printed_status(&said), Some((127, "")), "{traits}");
        for file in ["watch.ps1", "run.cmd"] {
            let path = format!(".drover-runners/drover-a-b/{file}");
            let content = Bytes::from("@echo off\r\n@chcp 65001 >nul\r\nver\r\n");
            session.send(&path, content, SOON).await.unwrap();
        }
        says(&session, &Script::RunnerStart.command(&["drover-a-b", "ended"])).await;
        let again = run(&session, &register).await;
        assert_eq!(again.exit, Some(exit), "{traits}");
        let said = String::from_utf8(again.stdout).unwrap();
        assert_eq!(printed_status(&said), Some((33, "")), "{traits}");
        says(&session, &Script::RunnerEnd.command(&["drover-a-b"])).await;
    }
}

// Invariant: the key of a lease is added and removed, and that of an ended lease is not added
// again.

#[tokio::test]
async fn keys_of_leases_are_added_and_removed_in_a_windows_guest() {
    let Some(rig) = Rig::isolated() else { return };
    let session = log_in(&rig, 1054, "windows").await;
    let admit = |lease: &str| {
        let line = format!("{} drover-lease-{lease}", key(2).public_line(""));
        Script::GrantAccess.command(&[lease, &line])
    };
    let keys = || async {
        let all = says(&session, r"type .ssh\authorized_keys").await;
        all.matches(" drover-lease-").count()
    };
    for _ in 0..2 {
        says(&session, &admit("l1")).await;
        assert_eq!(keys().await, 1);
    }
    assert_eq!(run(&session, &Script::AfterRollback.command(&[])).await.exit, Some(1));
    says(&session, &Script::RevokeAccess.command(&["l1"])).await;
    assert_eq!(keys().await, 0);
    assert_eq!(run(&session, &admit("l1")).await.exit, Some(1), "it has ended");
    says(&session, &Script::AfterRollback.command(&[])).await;
}
