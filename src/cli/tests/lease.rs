//! `drover lease`, from asking to releasing.

use std::future::{pending, ready};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use drover_actors::message::HerdCommand;
use drover_model::fact::What;
use drover_model::phase::{AgentPhase, LeasePhase};
use drover_ssh::testing::{self as ssh_testing, TestServer};
use drover_ssh::{Output, PrivateKey};
use futures_util::future::BoxFuture;
use sha2::Digest as _;
use tokio::sync::oneshot;

use super::super::lease::lease;
use super::super::leasing::{Leasing, TimeLimits};
use super::super::over_ssh::{Cut, OverSsh};
use super::super::*;
use super::global;
use drover_server::Limits;
use drover_server::testing::{self, Served, reported};
use drover_server::view::View;

pub(super) const WAIT_LIMIT: TimeLimits = TimeLimits {
    tries: 3,
    pause: Duration::ZERO,
    wait_seconds: 300,
    watch: Duration::from_millis(20),
    loss: Duration::from_millis(50),
};

/// A guest that prints, and ends as asked.
#[derive(Default)]
pub(super) struct Guest {
    pub jobs: Mutex<Vec<(String, String)>>,
    pub fails: bool,
    pub sent: bool,
    /// Whether the next command alone is cut off.
    pub cut_once: Mutex<bool>,
    pub killed: bool,
    pub meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    pub hangs: Mutex<Option<oneshot::Sender<()>>>,
}

impl RunOverSsh for Guest {
    fn run(&self, job: SshJob) -> BoxFuture<'static, Result<u32, Cut>> {
        let login = format!("{}@{}:{}", job.user, job.host, job.port);
        self.jobs.lock().unwrap().push((login, job.command));
        assert_eq!(job.host_keys.len(), 2);
        let cut = std::mem::take(&mut *self.cut_once.lock().unwrap());
        let (fails, sent) = (self.fails || cut, self.sent || cut);
        let status = if self.killed { 255 } else { 7 };
        if let Some(happens) = self.meanwhile.lock().unwrap().take() {
            happens();
        }
        let hangs = self.hangs.lock().unwrap().take();
        Box::pin(async move {
            if let Some(started) = hangs {
                started.send(()).unwrap();
                pending::<()>().await;
            }
            if fails {
                return Err(Cut { text: "connection reset".into(), sent });
            }
            job.output.send(Output::Stdout("one\n".into())).await.unwrap();
            job.output.send(Output::Stderr("two\n".into())).await.unwrap();
            job.output.send(Output::Stdout("three\n".into())).await.unwrap();
            Ok(status)
        })
    }
}

pub(super) fn options(template: &str, command: &[&str]) -> LeaseOptions {
    LeaseOptions {
        labels: None,
        label_expression: None,
        cpu: None,
        memory: None,
        disk: None,
        template: Some(template.into()),
        ttl: Duration::from_secs(60),
        wait: None,
        owner: None,
        identity: None,
        passphrase_file: None,
        user_data: None,
        command: command.iter().map(ToString::to_string).collect(),
    }
}

pub(super) struct Printed {
    pub result: Result<u8, String>,
    pub code: u8,
    pub out: String,
    pub err: String,
}

pub(super) async fn lease_with(
    served: &Served,
    guest: &Guest,
    options: LeaseOptions,
    stop: impl Future<Output = u8>,
) -> Printed {
    let client = Client::new(&global(&served.socket)).ok().unwrap();
    let leasing = Leasing {
        client: &client,
        over: guest,
        input: |_| (),
        time_limits: WAIT_LIMIT,
        key_dir: served.directory.path().to_owned(),
        json: false,
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term::new(&mut out, &mut err);
    let result = lease(&leasing, &options, stop, &mut term).await;
    let code = result.as_ref().map_or_else(CliError::exit_code, |code| *code);
    let result = result.map_err(|fault| chain(&fault));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Printed { result, code, out: text(out), err: text(err) }
}

pub(super) fn states(served: &Served) -> Vec<LeasePhase> {
    served.view.leases().into_iter().map(|lease| lease.state).collect()
}

// Invariant: a lease taken for a command ends with it, whatever happens.

#[tokio::test]
async fn a_command_runs_on_a_lease_with_its_status_and_output() {
    let served = Served::default();
    let guest = Guest::default();
    let command = options("quick", &["echo", "a b", "it's"]);
    let printed = lease_with(&served, &guest, command, pending()).await;
    assert_eq!(printed.result, Ok(7));
    assert_eq!(printed.out, "one\nthree\n");
    insta::assert_snapshot!(printed.err, @r"
    lease l1: ready on agent a1
    two
    ");
    let jobs = guest.jobs.lock().unwrap().clone();
    assert_eq!(jobs, [("ci@127.77.0.9:2222".into(), r"echo 'a b' 'it'\''s'".into())]);
    assert_eq!(states(&served), [LeasePhase::Ended]);
    let asked = served.asks.lock().unwrap()[0].clone();
    assert!(asked.public_key.unwrap().starts_with("ssh-ed25519 "));
    assert_eq!(asked.ttl_ms, 60_000);
    served.stop().await;
}

#[tokio::test]
async fn user_data_is_brought_and_its_variables_are_the_commands() {
    let served = Served::default();
    let guest = Guest::default();
    let file = served.directory.path().join("data");
    std::fs::write(&file, "A=1\n").unwrap();
    let options = LeaseOptions { user_data: Some(file), ..options("quick", &["make", "a b"]) };
    lease_with(&served, &guest, options, pending()).await;
    let command = guest.jobs.lock().unwrap()[0].1.clone();
    assert_eq!(command, r#". "$HOME"/.drover-lease/l1/env; make 'a b'"#);
    assert!(served.asks.lock().unwrap()[0].user_data);
    assert_eq!(served.doors().user_data.read("l1").unwrap().unwrap().as_ref(), b"A=1\n");
    served.stop().await;
}

#[tokio::test]
async fn user_data_that_cannot_be_brought_takes_no_lease() {
    let served = Served::default();
    let file = served.directory.path().join("data");
    for (content, part) in [
        (None, "cannot be read"),
        (Some(Vec::new()), "1 to 65536 bytes"),
        (Some(vec![b'x'; 65537]), "1 to 65536 bytes"),
    ] {
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let options = LeaseOptions { user_data: Some(file.clone()), ..options("quick", &["true"]) };
        let printed = lease_with(&served, &Guest::default(), options, pending()).await;
        assert!(printed.result.clone().unwrap_err().contains(part), "{:?}", printed.result);
    }
    assert!(served.asks.lock().unwrap().is_empty());
    served.stop().await;
}

#[tokio::test]
async fn a_single_word_goes_to_the_shell_as_it_is() {
    let served = Served::default();
    let guest = Guest::default();
    lease_with(&served, &guest, options("quick", &["make && make test"]), pending()).await;
    assert_eq!(guest.jobs.lock().unwrap()[0].1, "make && make test");
    served.stop().await;
}

#[tokio::test]
async fn a_lease_is_released_when_ssh_fails() {
    let served = Served::default();
    let guest = Guest { fails: true, ..Guest::default() };
    let printed = lease_with(&served, &guest, options("quick", &["true"]), pending()).await;
    insta::assert_snapshot!(
        printed.result.unwrap_err(),
        @"the command could not be run: connection reset"
    );
    assert_eq!(states(&served), [LeasePhase::Ended]);
    served.stop().await;
}

#[tokio::test]
async fn a_lease_is_released_on_a_signal_while_it_waits() {
    let served = Served::default();
    let guest = Guest::default();
    let printed = lease_with(&served, &guest, options("slow", &["true"]), ready(130)).await;
    assert_eq!(printed.result, Ok(130));
    assert_eq!(printed.err, "lease l1: waiting (no agent is free)\nlease l1 is released\n");
    assert!(guest.jobs.lock().unwrap().is_empty());
    assert_eq!(states(&served), [LeasePhase::Ended]);
    served.stop().await;
}

#[tokio::test]
async fn a_lease_is_released_when_it_was_waited_for_long_enough() {
    let served = Served::default();
    let guest = Guest::default();
    let options = LeaseOptions { wait: Some(Duration::ZERO), ..options("slow", &["true"]) };
    let printed = lease_with(&served, &guest, options, pending()).await;
    assert_eq!(
        printed.result,
        Err("lease `l1` was not ready within 0 s (--wait): no agent is free".into())
    );
    assert!(guest.jobs.lock().unwrap().is_empty());
    assert_eq!(states(&served), [LeasePhase::Ended]);
    served.stop().await;
}

#[tokio::test]
async fn a_lease_is_released_on_a_signal_while_the_command_runs() {
    let served = Served::default();
    let (started, running) = oneshot::channel();
    let guest = Guest { hangs: Mutex::new(Some(started)), ..Guest::default() };
    let stop = async {
        running.await.unwrap();
        143
    };
    let printed = lease_with(&served, &guest, options("quick", &["sleep"]), stop).await;
    assert_eq!(printed.result, Ok(143));
    assert_eq!(printed.err, "lease l1: ready on agent a1\nlease l1 is released\n");
    assert_eq!(states(&served), [LeasePhase::Ended]);
    served.stop().await;
}

#[tokio::test]
async fn a_lease_that_ends_before_it_is_ready_says_why() {
    let served = Served::default();
    let guest = Guest::default();
    let waiting = lease_with(&served, &guest, options("slow", &["true"]), pending());
    let ending = async {
        loop {
            if served.view.leases().len() == 1 {
                let ended = testing::lease("l1", LeasePhase::Ended, None, "the template is broken");
                reported(&served.view, What::Lease(Box::new(ended)));
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let (printed, ()) = tokio::join!(waiting, ending);
    assert_eq!(printed.result, Err("lease `l1` ended: the template is broken".into()));
    served.stop().await;
}

#[tokio::test]
async fn a_lease_whose_agent_nobody_knows_is_given_up() {
    let served = Served::default();
    let guest = Guest::default();
    let waiting = lease_with(&served, &guest, options("slow", &["true"]), pending());
    let losing = async {
        while served.view.leases().is_empty() {
            tokio::task::yield_now().await;
        }
        let ready = testing::lease("l1", LeasePhase::Ready, Some("lost"), "");
        reported(&served.view, What::Lease(Box::new(ready)));
    };
    let (printed, ()) = tokio::join!(waiting, losing);
    let fault = printed.result.unwrap_err();
    assert_eq!(fault, "lease `l1` is ready and drover does not say where");
    assert_eq!(states(&served), [LeasePhase::Ended]);
    served.stop().await;
}

// Invariant: a lease without a command is kept, with all that is needed to use it.

#[tokio::test]
async fn without_a_command_it_says_how_to_log_in_and_keeps_the_lease() {
    let served = Served::default();
    let guest = Guest::default();
    let printed = lease_with(&served, &guest, options("quick", &[]), pending()).await;
    assert_eq!(printed.result, Ok(0));
    let directory = served.directory.path();
    let shown = printed.out.replace(&directory.display().to_string(), "DIR");
    insta::assert_snapshot!(shown, @r"
    lease l1 lasts until 2026-11-21T09:11:02Z
    shell:   drover ssh l1
    copy:    drover cp FILE l1:/tmp/
    log in:  ssh -i DIR/drover-l1.key -o UserKnownHostsFile=DIR/drover-l1.hosts -o HostKeyAlias=drover-l1 -o StrictHostKeyChecking=yes -p 2222 ci@127.77.0.9
    renew:   drover lease renew l1 --ttl 1h
    release: drover release l1
    ");
    assert_eq!(states(&served), [LeasePhase::Ready]);
    let key = directory.join("drover-l1.key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let hosts = std::fs::read_to_string(directory.join("drover-l1.hosts")).unwrap();
    assert!(hosts.starts_with("drover-l1 ecdsa-"), "{hosts}");
    let read = identity::Identity::of(&with_key(&key, None)).ok().unwrap();
    assert_eq!(Some(read.key.public_line("")), served.asks.lock().unwrap()[0].public_key);
    kept::forget(directory, "l1");
    assert!(!key.exists());
    served.stop().await;
}

// Invariant: keys stay as long as their leases last, and no longer than until the next command.

#[tokio::test]
async fn keys_of_leases_that_are_over_go_with_the_next_command() {
    let served = Served::default();
    served.view.mark_journal_folded();
    served.view.mark_clouds_tried();
    let guest = Guest::default();
    for _ in ["l1", "l2"] {
        let printed = lease_with(&served, &guest, options("quick", &[]), pending()).await;
        assert_eq!(printed.result, Ok(0));
    }
    let directory = served.directory.path();
    let write = |lease: &str, place: &str, until: SystemTime| {
        let path = directory.join(format!("drover-{lease}.place"));
        std::fs::write(&path, place).unwrap();
        std::fs::File::open(path).unwrap().set_modified(until).unwrap();
    };
    let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
    write("unknown", &served.socket.display().to_string(), now + hour);
    write("other-over", "/run/other.sock", SystemTime::UNIX_EPOCH);
    write("other", "/run/other.sock", now + hour);
    // It may have been renewed, and nobody says that it was not.
    write("other-past", "/run/other.sock", now - hour);
    reported(
        &served.view,
        What::Lease(Box::new(testing::lease("l1", LeasePhase::Ended, None, "expired"))),
    );
    let printed = lease_with(&served, &guest, options("quick", &["true"]), pending()).await;
    assert_eq!(printed.result, Ok(7));
    let files = std::fs::read_dir(directory).unwrap().flatten();
    let files = files.filter_map(|file| file.file_name().into_string().ok());
    let mut files: Vec<String> = files.filter(|name| name.starts_with("drover-")).collect();
    files.sort();
    let others = ["drover-other-past.place", "drover-other.place"];
    let left = ["drover-l2.hosts", "drover-l2.key", "drover-l2.place"];
    assert_eq!(files, [&left[..], &others[..]].concat());

    // A service that is down says nothing of its leases, which last longer by that time.
    let gone = directory.join("gone.sock");
    let client = Client::new(&global(&gone)).ok().unwrap();
    write("l9", &gone.display().to_string(), now - hour);
    kept::sweep(&client, directory).await;
    assert!(directory.join("drover-l9.place").exists());
    served.stop().await;
}

fn with_key(key: &Path, passphrase: Option<&Path>) -> LeaseOptions {
    LeaseOptions {
        identity: Some(key.to_owned()),
        passphrase_file: passphrase.map(Path::to_owned),
        ..options("quick", &[])
    }
}

#[test]
fn a_key_that_cannot_be_used_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let (path, passphrase) = (directory.path().join("id"), directory.path().join("words"));
    let fault = |text: Option<&str>, words: Option<&str>| {
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let given = words.map(|words| {
            std::fs::write(&passphrase, words).unwrap();
            passphrase.as_path()
        });
        let fault = identity::Identity::of(&with_key(&path, given)).err().unwrap();
        assert_eq!(fault.exit_code(), 2);
        fault.to_string().replace(&path.display().to_string(), "KEY")
    };
    let locked = include_str!("../../ssh/testdata/locked.pem");
    let said = [
        fault(None, None),
        fault(Some("ssh-ed25519 AAAA me@here\n"), None),
        fault(Some(locked), None),
        fault(Some(locked), Some("shut\n")),
        fault(Some(include_str!("../../ssh/testdata/rsa.pem")), None),
    ];
    insta::assert_snapshot!(said.join("\n"), @r"
    failed to read the key file `KEY`: No such file or directory (os error 2); check that the file exists and that you may read it, or leave out -i to have a key made for this lease
    `KEY` holds no private key; give the file that begins with `-----BEGIN OPENSSH PRIVATE KEY-----`, not the `.pub` beside it, or leave out -i to have a key made for this lease
    the key `KEY` needs a passphrase; name a file with the passphrase in DROVER_KEY_PASSPHRASE_FILE, or remove the passphrase from a copy of the key with `ssh-keygen -p`, or leave out -i to have a key made for this lease
    the passphrase does not open the key `KEY`; check the passphrase in the file named in DROVER_KEY_PASSPHRASE_FILE, or leave out -i to have a key made for this lease
    the key `KEY` is of kind ssh-rsa, which drover does not support; make another with `ssh-keygen -t ed25519`, or leave out -i to have a key made for this lease
    ");
    std::fs::write(&passphrase, "open sesame\n").unwrap();
    assert!(identity::Identity::of(&with_key(&path, Some(&passphrase))).is_err());
    std::fs::write(&path, locked).unwrap();
    assert!(identity::Identity::of(&with_key(&path, Some(&passphrase))).is_ok());
}

// Invariant: an answer that was lost never costs a second lease.

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_with_the_same_key() {
    let view = View::new(3);
    let asks: Arc<Mutex<Vec<_>>> = Arc::default();
    let (reported_view, kept) = (view.clone(), Arc::clone(&asks));
    let script = move |command: HerdCommand| match command {
        // The first answer is dropped, as when the service is killed after the journal's write.
        HerdCommand::Lease { ask, reply } => {
            let mut kept = kept.lock().unwrap();
            kept.push(*ask);
            if let [first, _] = &kept[..] {
                let id = first.lease.clone();
                reported(
                    &reported_view,
                    What::Agent(Arc::new(testing::agent("a1", AgentPhase::Leased))),
                );
                let ready = testing::lease(id.as_str(), LeasePhase::Ready, Some("a1"), "");
                reported(&reported_view, What::Lease(Box::new(ready)));
                reply.send(Ok(id));
            }
        }
        HerdCommand::Release { reply, .. } => reply.send(Ok(())),
        HerdCommand::Renew { .. }
        | HerdCommand::Retire { .. }
        | HerdCommand::Provision { .. }
        | HerdCommand::Override { .. }
        | HerdCommand::OverrideTemplate { .. }
        | HerdCommand::OverrideCloud { .. }
        | HerdCommand::UndoOverrides { .. }
        | HerdCommand::Plan { .. }
        | HerdCommand::Hold { .. }
        | HerdCommand::Order { .. }
        | HerdCommand::Machine { .. }
        | HerdCommand::MachineOf { .. }
        | HerdCommand::Copy(_)
        | HerdCommand::CallIn { .. }
        | HerdCommand::Wake { .. }
        | HerdCommand::HoldNext { .. }
        | HerdCommand::Reap { .. }
        | HerdCommand::ResetBreaker { .. }
        | HerdCommand::ConfirmOlderJournal
        | HerdCommand::ConfirmMachine
        | HerdCommand::ConfirmCluster { .. }
        | HerdCommand::Resync { .. }
        | HerdCommand::PlanResync { .. }
        | HerdCommand::OrderNode { .. }
        | HerdCommand::Nodes { .. }
        | HerdCommand::NodesKnown { .. }
        | HerdCommand::Why { .. }
        | HerdCommand::Jobs { .. }
        | HerdCommand::Account { .. }
        | HerdCommand::BuildImage(_)
        | HerdCommand::CancelBuild { .. }
        | HerdCommand::Images { .. }
        | HerdCommand::PruneImages { .. }
        | HerdCommand::ImportImage { .. }
        | HerdCommand::DeleteMachine { .. }
        | HerdCommand::ForgetMachine { .. }
        | HerdCommand::AdoptMachine(_)
        | HerdCommand::Drain { .. } => panic!("not asked for here"),
    };
    let served = Served::scripted(view, Arc::clone(&asks), script, Limits::default());
    let guest = Guest::default();
    let printed = lease_with(&served, &guest, options("quick", &["true"]), pending()).await;
    assert_eq!(printed.result, Ok(7));
    assert!(
        printed.err.starts_with("the lease is not taken yet, trying again: "),
        "{}",
        printed.err
    );
    let asks = asks.lock().unwrap().clone();
    assert_eq!(asks.len(), 2);
    assert!(asks[0].key_hash.is_some());
    assert_eq!(asks[0].key_hash, asks[1].key_hash);
    assert_eq!(asks[0].body_hash, asks[1].body_hash);
    served.stop().await;
}

// Invariant: over real SSH the command's status and output arrive, and only from the agent's host.

async fn over_ssh(server: &TestServer, key: &PrivateKey, pin: String, command: &str) -> Ended {
    let (_, input) = tokio::sync::mpsc::channel(1);
    reading(server, key, pin, (command, input)).await
}

/// The same for a command that reads this.
async fn reading(
    server: &TestServer,
    key: &PrivateKey,
    pin: String,
    (command, input): (&str, tokio::sync::mpsc::Receiver<Bytes>),
) -> Ended {
    let (output, mut pieces) = tokio::sync::mpsc::channel(64);
    let job = SshJob {
        host: "127.0.0.1".into(),
        port: server.port,
        user: "ci".into(),
        host_keys: vec![pin],
        key: key.clone(),
        command: command.into(),
        input,
        output,
    };
    let result = OverSsh.run(job).await;
    let (mut out, mut err) = (String::new(), String::new());
    while let Some(piece) = pieces.recv().await {
        match piece {
            Output::Stdout(bytes) => out.push_str(std::str::from_utf8(&bytes).unwrap()),
            Output::Stderr(bytes) => err.push_str(std::str::from_utf8(&bytes).unwrap()),
        }
    }
    (result, out, err)
}

type Ended = (Result<u32, Cut>, String, String);

// Invariant: a command reads its whole input as it is, and ends when it does, whatever is still to come.

#[tokio::test]
async fn a_command_reads_its_input_to_the_end_and_does_not_wait_for_it() {
    let key = ssh_testing::key(1);
    let server = TestServer::start(0, &key, ssh_testing::key(2)).await;
    let pin = || server.host_key.public_line("");
    let (pieces, input) = tokio::sync::mpsc::channel(1);
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(300_000).collect();
    let write = async {
        for piece in bytes.chunks(70_000) {
            pieces.send(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        drop(pieces);
    };
    let hash = "sha256sum | cut -c1-64";
    let (ended, ()) = tokio::join!(reading(&server, &key, pin(), (hash, input)), write);
    assert_eq!(ended, (Ok(0), sha256(&bytes) + "\n", String::new()));

    let (pieces, input) = tokio::sync::mpsc::channel(1);
    let ended = reading(&server, &key, pin(), ("exit 3", input)).await;
    assert_eq!(ended.0, Ok(3));
    assert!(pieces.is_closed(), "nobody reads it any more");
}

fn sha256(bytes: &[u8]) -> String {
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_command_runs_over_ssh() {
    let key = ssh_testing::key(1);
    let server = TestServer::start(0, &key, ssh_testing::key(2)).await;
    let pin = || server.host_key.public_line("");
    let ended = over_ssh(&server, &key, pin(), "echo one; echo two >&2; exit 7").await;
    assert_eq!(ended, (Ok(7), "one\n".into(), "two\n".into()));
    let (refused, ..) = over_ssh(&server, &ssh_testing::key(3), pin(), "true").await;
    let before = |ended: &Result<u32, Cut>| ended.as_ref().unwrap_err().clone();
    assert!(before(&refused).text.contains("does not accept the key"), "{refused:?}");
    assert!(!before(&refused).sent, "nothing was sent");
    let (impostor, ..) = over_ssh(&server, &key, key.public_line(""), "true").await;
    assert!(before(&impostor).text.contains("host key"), "{impostor:?}");
    assert!(!before(&impostor).sent, "nothing was sent");
}
