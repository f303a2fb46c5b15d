//! SFTP in guests with OpenSSH's server, which the host of these tests has.

use bytes::Bytes;

use super::*;

// Invariant: SFTP sees what commands see, and nothing outside the guest.

#[tokio::test]
async fn a_file_by_sftp_is_where_commands_find_it_and_of_the_same_user() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1060, 1).await;
    let session = rig.log_in(1060).await;
    for content in ["old", "new"] {
        session.send("a b", Bytes::from(content), SOON).await.unwrap();
        assert_eq!(says(&session, "cat 'a b'; stat -c ' %U' 'a b'").await, format!("{content} ci"));
    }
    session.send("/tmp/x", Bytes::from(vec![b'x'; 3 << 20]), SOON).await.unwrap();
    assert_eq!(says(&session, "stat -c %s /tmp/x").await, (3 << 20).to_string());
}

#[tokio::test]
async fn no_path_of_sftp_leaves_the_guest() {
    let Some(rig) = Rig::isolated() else { return };
    let outside = rig.dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    rig.up(1061, 1).await;
    let session = rig.log_in(1061).await;
    says(&session, &format!("ln -s {} ~/out; ln -s ../../../../../.. ~/up", outside.display()))
        .await;
    let host = rig.dir.path().canonicalize().unwrap();
    let disk = host.join("guests/1061/disk/hostkey");
    for path in [
        outside.join("f").display().to_string(),
        "out/f".to_owned(),
        format!("up{}/f", outside.display()),
        format!("../../../..{}/f", outside.display()),
        disk.display().to_string(),
        "/usr/bin/f".to_owned(),
        "/f".to_owned(),
    ] {
        let error = session.send(&path, Bytes::from("x"), SOON).await.unwrap_err().to_string();
        let wanted = ["No such file", "Permission denied", "Failure"];
        assert!(wanted.iter().any(|why| error.ends_with(why)), "{path}: {error}");
    }
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

// Invariant: a server of SFTP ends with its session and its guest.

#[tokio::test]
async fn one_session_has_a_bound_on_its_open_files() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1062, 1).await;
    let session = rig.log_in(1062).await;
    let [shell, option, line] = <[String; 3]>::try_from(super::super::sftp::words()).unwrap();
    let bounded = line.replace("exec ", "ulimit -n; : ");
    assert_eq!(says(&session, &drover_ssh::join(&[shell, option, bounded])).await, "256");
}

// Invariant: without isolation there is no SFTP, and the client hears why.

#[tokio::test]
async fn without_bubblewrap_sftp_is_refused_with_the_remedy() {
    let rig = Rig::without_bubblewrap(false, |_| false);
    rig.up(1063, 1).await;
    let key_file = rig.dir.path().join("key");
    let text = key(1).to_openssh().unwrap();
    std::fs::write(&key_file, secrecy::ExposeSecret::expose_secret(&text)).unwrap();
    std::fs::set_permissions(&key_file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    let address = rig.guests.address(1063).unwrap();
    let mut command = tokio::process::Command::new("sftp");
    command.args(["-q", "-b", "/dev/null", "-o", "UserKnownHostsFile=/dev/null", "-F", "none"]);
    command.args(["-o", "StrictHostKeyChecking=no", "-P", &address.port.to_string(), "-i"]);
    command.arg(&key_file).arg(format!("ci@{}", address.ip));
    let out = command.stdin(std::process::Stdio::null()).output().await.unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(!out.status.success(), "{said}");
    assert!(said.contains("must not run outside a sandbox: install bubblewrap"), "{said}");
}
