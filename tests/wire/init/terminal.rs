//! `drover init` on a terminal: what it asks, what it shows, and how it is ended.

use std::process::{Command, Stdio};

use super::*;

// Invariant: on a terminal nothing is shown of the password, and a no, or Ctrl-C, leaves nothing.

/// Runs a program on a pseudo-terminal: answers each question, and gives what was shown.
pub const TERMINAL: &str = r#"
import os, pty, signal, sys, select, time
answers = [part.split("=>", 1) for part in sys.argv[1].split("||")]
pid, fd = pty.fork()
if pid == 0:
    # As a terminal starts programs, whatever this one was started by.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execv(sys.argv[2], sys.argv[2:])
seen, at, read, limit = "", 0, 0, time.monotonic() + 60
while True:
    if time.monotonic() > limit:
        os.kill(pid, 9)
        print(seen + "\nTOO LONG")
        break
    if select.select([fd], [], [], 1)[0]:
        try:
            piece = os.read(fd, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece.decode("utf-8", "replace")
        while at < len(answers) and (found := seen.find(answers[at][0], read)) >= 0:
            question, answer = answers[at]
            read = found + len(question)
            os.write(fd, answer.encode().decode("unicode_escape").encode())
            at += 1
sys.stdout.write(seen.replace("\r\n", "\n"))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255)
"#;

fn on_a_terminal(scene: &Scene, answers: &[(&str, &str)]) -> (Option<i32>, String) {
    on_a_terminal_with(scene, &scene.urls(), answers)
}

fn on_a_terminal_with(
    scene: &Scene,
    options: &[String],
    answers: &[(&str, &str)],
) -> (Option<i32>, String) {
    let answers: Vec<String> = answers.iter().map(|(ask, say)| format!("{ask}=>{say}")).collect();
    let plain = drover();
    let mut command = Command::new("python3");
    command.args(["-c", TERMINAL, &answers.join("||")]).arg(plain.get_program());
    command.args(["init", "--dir"]).arg(scene.etc()).args(options);
    command.args(["--ssh-port", "2222", "--guest-networks", "127.77.0.0/16"]);
    command.env_remove("DROVER_ADMIN_PASSWORD").env("TERM", "xterm").stdin(Stdio::null());
    let out = command.output().unwrap();
    (out.status.code(), scene.said(&out))
}

#[test]
fn a_terminal_is_asked_and_a_no_leaves_nothing() {
    let scene = Scene::with(&["--guests", "none", "--all-nodes"]);
    let password = scene.sim.fact("adminPassword").to_owned() + "\\n";
    let mut asked = vec![
        ("Is it the same?", "yes\\n"),
        ("Administrator", "\\n"),
        ("password of root@pam", "wrong\\n"),
        ("Type it again", ""),
        ("password of root@pam", password.as_str()),
        ("Which one", "9999\\n"),
        ("write a VMID or a name of the list", ""),
        ("Which one", "\\n"),
        ("VMIDs of agents", "9000-9999\\n"),
        ("--vmids 10000-10999 are free", ""),
        ("VMIDs of agents", "\\n"),
        ("Labels of the agents", "linux, docker\\n"),
        ("Pool of the agents", "a b\\n"),
        ("is no name of a pool", ""),
        ("Pool of the agents", "\\n"),
        ("Login in guests", "\\n"),
        ("Write and make all this?", "no\\n"),
    ];
    let (code, said) = on_a_terminal(&scene, &asked);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("drover: nothing was written\n"), "{said}");
    assert!(!said.contains(scene.sim.fact("adminPassword")), "{said}");
    scene.is_untouched();
    asked[16].1 = "yes\\n";
    let (code, said) = on_a_terminal(&scene, &asked);
    assert_eq!(code, Some(0), "{said}");
    assert!(scene.yaml().contains("labelString: \"linux docker\""), "{}", scene.yaml());
}

// Invariant: no password is asked for before a Proxmox VE answers, and an address is asked for again until
// one does; where an option names it, it is an error.

#[test]
fn an_address_is_asked_for_until_a_proxmox_ve_answers() {
    let scene = Scene::with(&["--guests", "none", "--all-nodes"]);
    let other = Server::start(Woodpecker::default());
    let (port, _) = tls_before(other.address(), "localhost");
    let (stranger, right) = (format!("https://127.0.0.1:{port}"), scene.sim.fact("url").to_owned());
    let line = |address: &str| format!("{address}\\n");
    let (stranger_line, right_line) = (line(&stranger), line(&right));
    let question = "Address of one node";
    let asked = [
        (question, "ftp://pve1\\n"),
        ("write it like `https://pve1.example.com:8006`", ""),
        (question, "https://127.0.0.1:1\\n"),
        ("check the address, that the node is up", ""),
        (question, stranger_line.as_str()),
        ("does not answer as Proxmox VE does", ""),
        (question, right_line.as_str()),
        ("Is it the same?", "yes\\n"),
        ("Administrator", "root\\n"),
        ("is no login", ""),
        ("Administrator", "\\n"),
        ("password of root@pam", "\\x04"),
    ];
    let (code, said) = on_a_terminal_with(&scene, &[], &asked);
    assert_eq!(code, Some(2), "{said}");
    scene.is_untouched();
    let mut command = drover();
    command.args(["init", "--yes", "--node-url", &stranger, "--dir"]).arg(scene.etc());
    let out = command.output().unwrap();
    let said = scene.said(&out);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("does not answer as Proxmox VE does: it answers"), "{said}");
}

// Invariant: three wrong passwords end it, since Proxmox may lock the account.

#[test]
fn three_wrong_passwords_end_the_dialog() {
    let scene = Scene::with(&["--guests", "none", "--all-nodes"]);
    let mut asked = vec![("Is it the same?", "yes\\n"), ("Administrator", "\\n")];
    // A blank line is no password, and is not sent.
    for wrong in ["\\n", "one\\n", "two\\n", "three\\n", "four\\n"] {
        asked.push(("password of root@pam", wrong));
    }
    let (code, said) = on_a_terminal(&scene, &asked);
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(said.matches("does not let root@pam in").count(), 3, "{said}");
    assert!(said.contains("drover asks no more, because Proxmox may lock the account"), "{said}");
    assert!(!said.contains("four"), "{said}");
    scene.is_untouched();
}

// Invariant: Ctrl-C and Ctrl-D end every question in the same way, with what that means.

#[test]
fn ctrl_c_and_ctrl_d_end_every_question_in_the_same_way() {
    let scene = Scene::with(&["--guests", "none", "--all-nodes"]);
    let asked = [("Is it the same?", "yes\\n"), ("Administrator", "\\n")];
    let password = ("password of root@pam", "\\x03");
    let ctrl_c = [vec![asked[0], ("Administrator", "\\x03")], [&asked[..], &[password]].concat()];
    // Ctrl-D behind text ends the line alone, as terminals have it.
    let behind_text = vec![asked[0], ("Administrator", "ro\\x03")];
    let password = ("password of root@pam", "\\x04");
    let ctrl_d = [vec![asked[0], ("Administrator", "\\x04")], [&asked[..], &[password]].concat()];
    let ended_by = |all: &[Vec<(&str, &str)>], code: i32| {
        for answers in all {
            let (ended, said) = on_a_terminal(&scene, answers);
            assert_eq!(ended, Some(code), "{said}");
            assert!(said.contains("nothing was written or made\n"), "{said}");
        }
    };
    // By the signal itself, which a shell shows as 130.
    ended_by(&[&ctrl_c[..], &[behind_text]].concat(), 256 - 2);
    ended_by(&ctrl_d, 2);
    scene.is_untouched();
}

// Invariant: without a template image the configuration has one that drover builds, and the commands
// that come next build it.

#[test]
fn an_image_that_drover_builds_takes_the_place_of_a_template() {
    // As a new Proxmox VE: no storage takes disk images to import.
    let cluster = include_str!("../images_cluster.yaml").replace("iso, import, ", "iso, ");
    let scene = Scene::of(&cluster);
    let content = || scene.sim.call("GET", "/storage/local")["data"]["content"].to_string();
    let (url, sum) = ("https://cloud.example/debian-13.qcow2", "ab".repeat(32));
    let image = ["--template", "make", "--image-url", url, "--image-checksum", &sum, "--yes"];
    let before = content();
    let out = scene.trusted(&[&image[..6], &["--dry-run"]].concat());
    assert!(out.status.success() && content() == before, "{}", scene.said(&out));
    let out = scene.trusted(&image);
    assert!(out.status.success(), "{}", scene.said(&out));
    insta::assert_snapshot!("image_run", scene.said(&out));
    let split = |text: &str| -> BTreeSet<String> {
        text.trim_matches('"').split(',').map(str::to_owned).collect()
    };
    let mut wanted = split(&before);
    assert!(wanted.insert("import".to_owned()), "{before}");
    assert_eq!(split(&content()), wanted, "what the storage took, it takes");
    assert!(scene.yaml().lines().count() <= 31, "{}", scene.yaml());
    let again = scene.trusted(&["--yes"]);
    let said = scene.said(&again);
    assert!(!said.contains("done: ") && said.contains("image: debian"), "{said}");
    let mut service = scene.service(&said);
    for (line, says) in
        [("image build debian", "Done"), ("lease --labels linux -- id -un", "debian\n")]
    {
        let out = scene.asks(line);
        let said = scene.said(&out);
        assert!(out.status.success() && said.contains(says), "{line}: {said}");
    }
    service.child.signal("TERM");
    assert_eq!(service.child.wait(), Some(0));
}
