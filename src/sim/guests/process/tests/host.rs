//! A guest cannot change the host, and no process of a guest outlives the simulator.

use drover_ssh::upload_command;

use super::*;

/// The `sleep` processes of this computer whose command line contains `words`.
pub(super) fn processes_with(words: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.starts_with("sleep ") && line.contains(words) {
            found.push(pid);
        }
    }
    found
}

/// Starts a process in its own session that outlives the command, and waits until it runs.
pub(super) async fn leave_running(session: &Session, seconds: u32) {
    let job = format!(
        "setsid sleep {seconds} > /dev/null 2>&1 & \
         until [ \"$(cat /proc/$!/comm)\" = sleep ]; do :; done"
    );
    says(session, &job).await;
}

// Invariant: nothing outside a guest's disk can be changed or seen from inside.

#[tokio::test]
async fn the_host_is_untouched_from_inside_a_namespace() {
    let Some(rig) = Rig::isolated() else { return };
    let secret = rig.dir.path().join("secret");
    std::fs::write(&secret, "host").unwrap();
    let secret = secret.display();
    rig.up(1201, 1).await;
    let session = rig.log_in(1201).await;

    for place in ["/usr/x", "/bin/x", "/x", "/proc/sys/kernel/core_pattern", "/guest/bin/sudo"] {
        let result = run(&session, &format!(": >> {place}")).await;
        assert_ne!(result.exit, Some(0), "{place}");
        let deeper = format!(
            "unshare -Urm sh -c 'umount -l {place}; mount -o remount,rw /usr; : >> {place}'"
        );
        assert_ne!(run(&session, &deeper).await.exit, Some(0), "{place}");
    }
    assert_ne!(run(&session, &format!("cat {secret}")).await.exit, Some(0));
    assert_ne!(run(&session, &format!("sudo cat {secret}")).await.exit, Some(0));
    assert_eq!(says(&session, "ls /home").await, "ci");
    let caps = says(&session, "grep -E 'CapEff|CapPrm|NoNewPrivs' /proc/self/status").await;
    assert_eq!(caps, "CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nNoNewPrivs:\t1");

    // The guest sees only its own processes, and not this one.
    let me = std::process::id();
    let seen = says(&session, "cat /proc/[0-9]*/comm").await;
    assert!(seen.lines().all(|name| ["bwrap", "sh", "cat"].contains(&name)), "{seen}");
    assert_ne!(
        run(&session, &format!("kill -0 {me} && grep -q drover /proc/{me}/comm")).await.exit,
        Some(0)
    );
    assert_eq!(std::fs::read_to_string(rig.dir.path().join("secret")).unwrap(), "host");
}

#[tokio::test]
async fn one_guest_does_not_see_another() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1202, 1).await;
    rig.up(1203, 1).await;
    let (one, two) = (rig.log_in(1202).await, rig.log_in(1203).await);
    says(&one, "echo mine > ~/file; echo mine > /tmp/file").await;
    leave_running(&one, 98767).await;
    assert_eq!(says(&two, "ls ~ /tmp").await, "/home/ci:\n\n/tmp:");
    assert_ne!(run(&two, "grep -lr 9876[7] /proc/[0-9]*/cmdline").await.exit, Some(0));
}

#[tokio::test]
async fn variables_of_a_session_do_not_reach_the_hosts_programs() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1204, 1).await;
    let machine = rig.machine(1204);
    let extra = [("LD_PRELOAD", "/nonexistent.so"), ("PATH", "/evil"), ("OWN", "kept")];
    let extra =
        extra.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let environment = machine.environment(&extra);
    assert!(environment["PATH"].starts_with("/guest/bin:"));
    let sandbox = &machine.host.sandbox;
    let job = sandbox.session_command(&machine.disk, &machine.identity, Some(1), &environment, &[]);
    assert_eq!(job.get_envs().filter(|(name, _)| *name != "PATH").count(), 0);
}

#[tokio::test]
async fn the_host_does_not_follow_links_on_a_disk() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1205, 1).await;
    let outside = rig.dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let session = rig.log_in(1205).await;
    let set_up = format!(
        "rm -rf ~/.ssh /etc/ssh /var/log; ln -s {0} ~/.ssh; ln -s {0} /etc/ssh; ln -s {0} /var/log; \
         rm -f /etc/hostname; ln -s {0}/hostname /etc/hostname",
        outside.display()
    );
    run(&session, &set_up).await;
    rig.guests.stop(1205).await;
    rig.up(1205, 2).await;
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(says(&rig.log_in(1205).await, "cat /etc/hostname").await, "agent-1205");
}

#[tokio::test]
async fn keys_behind_a_link_to_a_file_outside_are_refused() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1213, 1).await;
    let session = rig.log_in(1213).await;
    let outside = rig.dir.path().join("keys");
    std::fs::write(&outside, key(2).public_line("outside")).unwrap();
    let set_up = format!("ln -sf {} ~/.ssh/authorized_keys", outside.display());
    says(&session, &set_up).await;
    let policy = HostKeyPolicy::TrustOnFirst;
    rig.log_in_as(1213, &key(2), &policy).await.unwrap_err();
}

// Invariant: no process outlives the host of the guests.

#[tokio::test]
async fn dropping_the_host_ends_every_process() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1206, 1).await;
    let session = rig.log_in(1206).await;
    leave_running(&session, 98768).await;
    assert_eq!(processes_with("98768").len(), 1);
    drop(rig);
    gone("98768").await;
}

#[tokio::test]
async fn without_a_namespace_a_stop_ends_every_group() {
    let rig = Rig::without_bubblewrap(true, |_| false);
    rig.up(1207, 1).await;
    let session = rig.log_in(1207).await;
    leave_running(&session, 98769).await;
    assert_eq!(processes_with("98769").len(), 1);
    rig.guests.stop(1207).await;
    gone("98769").await;
}

/// Waits until the kernel has removed a killed process.
async fn gone(words: &str) {
    let deadline = Instant::now() + SOON;
    while !processes_with(words).is_empty() {
        assert!(Instant::now() < deadline, "{words} lives on");
        tokio::task::yield_now().await;
    }
}

// Invariant: only known commands run without isolation.

#[tokio::test]
async fn without_bubblewrap_only_known_commands_run() {
    let rig = Rig::without_bubblewrap(false, |line| line == "echo demo");
    rig.up(1208, 1).await;
    let session = rig.log_in(1208).await;
    assert_eq!(says(&session, "echo demo").await, "demo");
    assert_eq!(says(&session, "cloud-init status --wait").await, "status: done");
    for bad in ["id", "echo demo; id", &upload_command("/etc/x", 1, 0o600)] {
        let refused = run(&session, bad).await;
        assert_eq!(refused.exit, Some(126), "{bad}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("bubblewrap") && said.contains("--unisolated"), "{said}");
    }
    session.upload("file", "content".into(), 0o600, SOON).await.unwrap();
    assert_eq!(rig.read(1208, "/home/ci/file").await.unwrap(), "content");
    let command = vec!["id".to_owned()];
    rig.ask(1208, AgentCall::Exec { command, input: None }).await.unwrap_err();
    let out = rig.read(1208, "/../../../etc/passwd").await.unwrap_err();
    assert!(out.to_string().contains("Permission denied"));
    let home = rig.machine(1208).disk.locate("/home/ci").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", home.join("link")).unwrap();
    let out = rig.read(1208, "/home/ci/link").await.unwrap_err();
    assert!(out.to_string().contains("Permission denied"));
    says(&session, "sudo poweroff").await;
    rig.machine(1208).wait_until_off().await;
}

#[tokio::test]
async fn a_shared_folder_can_be_read_and_not_written() {
    let Some(mut rig) = Rig::isolated() else { return };
    let shared = rig.dir.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::write(shared.join("file"), "of the host").unwrap();
    let (isolation, boot) = (Isolation::Required, Duration::ZERO..Duration::ZERO);
    let options = ProcessOptions::new(rig.dir.path().join("sharing"));
    let options =
        ProcessOptions { isolation, boot, shared_folders: vec![shared.clone()], ..options };
    rig.guests = ProcessGuests::new(options).unwrap();
    rig.up(1213, 1).await;
    let session = rig.log_in(1213).await;
    let (folder, file) = (shared.display(), shared.join("file").display().to_string());
    assert_eq!(says(&session, &format!("cat {file}")).await, "of the host");
    assert_ne!(run(&session, &format!("echo x >{file}; touch {folder}/new")).await.exit, Some(0));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "of the host");
    assert!(!shared.join("new").exists());
}

/// Part of another test: looks for bubblewrap where it is not installed.
#[tokio::test]
#[ignore = "runs as the child of `a_missing_bubblewrap_is_named_with_the_remedy`"]
async fn a_computer_without_bubblewrap() {
    let refused = Rig::new(Isolation::Required, |_| false).err().unwrap().to_string();
    assert!(refused.contains("bwrap") && refused.contains("install bubblewrap"), "{refused}");
    let rig = Rig::new(Isolation::Auto, |_| false).unwrap();
    assert!(!rig.guests.is_isolated());
    rig.up(1212, 1).await;
    let command = vec!["id".to_owned()];
    let refused = rig.ask(1212, AgentCall::Exec { command, input: None }).await.unwrap_err();
    assert!(refused.to_string().contains("--unisolated"));
}

#[test]
fn a_missing_bubblewrap_is_named_with_the_remedy() {
    let name = "guests::process::tests::host::a_computer_without_bubblewrap";
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture"]).env("PATH", "/nonexistent");
    let out = command.output().unwrap();
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    assert!(out.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test]
async fn unisolated_guests_work_in_their_own_folder() {
    let rig = Rig::without_bubblewrap(true, |_| false);
    rig.up(1209, 1).await;
    let session = rig.log_in(1209).await;
    let home = rig.dir.path().canonicalize().unwrap().join("guests/1209/disk/home/ci");
    assert_eq!(says(&session, "pwd; hostname").await, format!("{}\nagent-1209", home.display()));
    let echoed = session.exec("cat; exit 5", Some("in".into()), limits(), None).await.unwrap();
    assert_eq!((echoed.stdout.as_slice(), echoed.exit), (b"in".as_slice(), Some(5)));
    assert_eq!(rig.read(1209, "/etc/hostname").await.unwrap(), "agent-1209\n");
    rig.guests.shutdown(1209).await;
    rig.machine(1209).wait_until_off().await;
}

#[tokio::test]
async fn variables_of_clients_reach_no_program_of_the_host_where_nothing_isolates() {
    let rig = Rig::without_bubblewrap(false, |_| true);
    rig.up(1216, 1).await;
    let variables = [("LD_PRELOAD", "./x.so"), ("ENV", "./x.sh"), ("PATH", "."), ("LC_ALL", "C")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let all = rig.machine(1216).environment(&variables);
    assert_eq!((all.get("LD_PRELOAD"), all.get("ENV")), (None, None), "{all:?}");
    assert_ne!(all["PATH"], ".");
    assert_eq!(all["LC_ALL"], "C");
}

/// Part of the next test: the simulator that it kills, in a process of its own.
#[tokio::test]
#[ignore = "runs as the child of `a_killed_simulator_leaves_nothing_behind`"]
async fn a_simulator_to_be_killed() {
    let bare = std::env::var_os("GUEST_TEST_BARE").is_some();
    let rig = if bare {
        Rig::without_bubblewrap(true, |_| false)
    } else {
        Rig::new(Isolation::Required, |_| false).unwrap()
    };
    let (vmid, seconds) = if bare { (1211, 98_771) } else { (1210, 98_770) };
    rig.up(vmid, 1).await;
    let session = rig.log_in(vmid).await;
    let job = format!("sleep {seconds}");
    let job = session.exec(&job, None, limits(), None);
    let ready = async {
        while processes_with(&seconds.to_string()).is_empty() {
            tokio::task::yield_now().await;
        }
        let folder = format!("\nrunning in {}\n", rig.dir.path().display());
        std::io::Write::write_all(&mut std::io::stdout(), folder.as_bytes()).unwrap();
    };
    let _both = futures_util::future::join(job, ready).await;
}

#[tokio::test]
async fn a_killed_simulator_leaves_nothing_behind() {
    let isolated = Rig::isolated().is_some();
    for (bare, words) in [(false, "98770"), (true, "98771")] {
        if !bare && !isolated {
            continue;
        }
        let name = "guests::process::tests::host::a_simulator_to_be_killed";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--ignored", "--nocapture"]);
        if bare {
            command.env("GUEST_TEST_BARE", "1");
        }
        let mut simulator = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let said = std::io::BufReader::new(simulator.stdout.take().unwrap());
        let folder = std::io::BufRead::lines(said)
            .find_map(|line| Some(line.unwrap().strip_prefix("running in ")?.to_owned()))
            .unwrap();
        assert_eq!(processes_with(words).len(), 1);
        simulator.kill().unwrap();
        simulator.wait().unwrap();
        gone(words).await;
        std::fs::remove_dir_all(folder).unwrap();
    }
}
