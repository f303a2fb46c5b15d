//! The command line against a real service socket with a scripted herd.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::future::{pending, ready};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use drover_actors::fact::What;
use drover_actors::id::{AgentId, CloudId, ClusterId, Generation, TemplateId};
use drover_actors::record::Reason;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::lease::{Leasing, Patience, lease};
use super::*;
use crate::view::View;
use crate::web::testing::{self, Served, THEN, told};

const PATIENCE: Patience = Patience { tries: 3, pause: Duration::ZERO, wait_seconds: 300 };

fn global(socket: &Path) -> Global {
    Global { socket: Some(socket.to_owned()), ..Global::default() }
}

/// Runs a command; gives its result, and what it printed.
async fn cli(served: &Served, json: bool, command: Command) -> (Result<u8, String>, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term { out: &mut out, err: &mut err };
    let global = Global { json, ..global(&served.socket) };
    let result = remote::run(&global, command, &mut term).await.map_err(|fault| chain(&fault));
    (result, String::from_utf8(out).unwrap())
}

/// A guest that prints, and ends as told.
#[derive(Default)]
struct Guest {
    jobs: Mutex<Vec<(String, String)>>,
    fails: bool,
    hangs: Mutex<Option<oneshot::Sender<()>>>,
}

impl RunOverSsh for Guest {
    fn run(&self, job: SshJob) -> BoxFuture<'static, Result<u32, String>> {
        let login = format!("{}@{}:{}", job.user, job.host, job.port);
        self.jobs.lock().unwrap().push((login, job.command));
        assert_eq!(job.host_keys.len(), 2);
        let fails = self.fails;
        let hangs = self.hangs.lock().unwrap().take();
        Box::pin(async move {
            if let Some(begun) = hangs {
                begun.send(()).unwrap();
                pending::<()>().await;
            }
            if fails {
                return Err("connection reset".into());
            }
            job.output.send(Output::Stdout("one\n".into())).await.unwrap();
            job.output.send(Output::Stderr("two\n".into())).await.unwrap();
            job.output.send(Output::Stdout("three\n".into())).await.unwrap();
            Ok(7)
        })
    }
}

fn options(template: &str, command: &[&str]) -> LeaseOptions {
    LeaseOptions {
        labels: None,
        template: Some(template.into()),
        ttl: Duration::from_secs(60),
        owner: None,
        identity: None,
        command: command.iter().map(ToString::to_string).collect(),
    }
}

/// Output that tells when the first line came.
struct Watched {
    text: Vec<u8>,
    begun: Option<oneshot::Sender<()>>,
}

impl Write for Watched {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        if let Some(begun) = self.begun.take_if(|_| bytes.ends_with(b"\n")) {
            begun.send(()).unwrap();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Printed {
    result: Result<u8, String>,
    out: String,
    err: String,
}

async fn lease_with(
    served: &Served,
    guest: &Guest,
    options: LeaseOptions,
    stop: impl Future<Output = u8>,
) -> Printed {
    let client = Client::new(&global(&served.socket)).ok().unwrap();
    let leasing = Leasing {
        client: &client,
        over: guest,
        patience: PATIENCE,
        key_dir: served.directory.path().to_owned(),
        json: false,
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term { out: &mut out, err: &mut err };
    let result = lease(&leasing, &options, stop, &mut term).await.map_err(|fault| chain(&fault));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Printed { result, out: text(out), err: text(err) }
}

fn states(served: &Served) -> Vec<String> {
    served.view.leases().into_iter().map(|lease| lease.state).collect()
}

// Invariant: a lease taken for a command ends with it, whatever happens.

#[tokio::test]
async fn a_command_runs_on_a_lease_with_its_status_and_output() {
    let served = Served::new();
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
    assert_eq!(states(&served), ["ended"]);
    let asked = served.asks.lock().unwrap()[0].clone();
    assert!(asked.public_key.unwrap().starts_with("ssh-ed25519 "));
    assert_eq!(asked.ttl_ms, 60_000);
    served.stop().await;
}

#[tokio::test]
async fn a_single_word_goes_to_the_shell_as_it_is() {
    let served = Served::new();
    let guest = Guest::default();
    lease_with(&served, &guest, options("quick", &["make && make test"]), pending()).await;
    assert_eq!(guest.jobs.lock().unwrap()[0].1, "make && make test");
    served.stop().await;
}

#[tokio::test]
async fn a_lease_is_released_when_ssh_fails() {
    let served = Served::new();
    let guest = Guest { fails: true, ..Guest::default() };
    let printed = lease_with(&served, &guest, options("quick", &["true"]), pending()).await;
    insta::assert_snapshot!(
        printed.result.unwrap_err(),
        @"the command could not be run: connection reset"
    );
    assert_eq!(states(&served), ["ended"]);
    served.stop().await;
}

#[tokio::test]
async fn a_lease_is_released_on_a_signal_while_it_waits() {
    let served = Served::new();
    let guest = Guest::default();
    let printed = lease_with(&served, &guest, options("slow", &["true"]), ready(130)).await;
    assert_eq!(printed.result, Ok(130));
    assert_eq!(printed.err, "lease l1: waiting (no agent is free)\n");
    assert!(guest.jobs.lock().unwrap().is_empty());
    assert_eq!(states(&served), ["ended"]);
    served.stop().await;
}

#[tokio::test]
async fn a_lease_is_released_on_a_signal_while_the_command_runs() {
    let served = Served::new();
    let (begun, running) = oneshot::channel();
    let guest = Guest { hangs: Mutex::new(Some(begun)), ..Guest::default() };
    let stop = async {
        running.await.unwrap();
        143
    };
    let printed = lease_with(&served, &guest, options("quick", &["sleep"]), stop).await;
    assert_eq!(printed.result, Ok(143));
    assert_eq!(states(&served), ["ended"]);
    served.stop().await;
}

#[tokio::test]
async fn a_lease_that_ends_before_it_is_ready_says_why() {
    let served = Served::new();
    let guest = Guest::default();
    let waiting = lease_with(&served, &guest, options("slow", &["true"]), pending());
    let ending = async {
        loop {
            if served.view.leases().len() == 1 {
                let ended = testing::lease("l1", "ended", None, "the template is broken");
                told(&served.view, What::Lease(Box::new(ended)));
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let (printed, ()) = tokio::join!(waiting, ending);
    assert_eq!(printed.result, Err("lease `l1` ended: the template is broken".into()));
    served.stop().await;
}

// Invariant: a lease without a command is kept, with all that is needed to use it.

#[tokio::test]
async fn without_a_command_it_tells_how_to_log_in_and_keeps_the_lease() {
    let served = Served::new();
    let guest = Guest::default();
    let printed = lease_with(&served, &guest, options("quick", &[]), pending()).await;
    assert_eq!(printed.result, Ok(0));
    let directory = served.directory.path();
    let shown = printed.out.replace(&directory.display().to_string(), "DIR");
    insta::assert_snapshot!(shown, @r"
    lease l1 lasts until 2026-11-21T09:11:02Z
    log in:  ssh -i DIR/drover-l1.key -o UserKnownHostsFile=DIR/drover-l1.hosts -o StrictHostKeyChecking=yes -p 2222 ci@127.77.0.9
    release: drover release l1
    ");
    assert_eq!(states(&served), ["ready"]);
    let key = directory.join("drover-l1.key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let hosts = std::fs::read_to_string(directory.join("drover-l1.hosts")).unwrap();
    assert!(hosts.starts_with("[127.77.0.9]:2222 ecdsa-"), "{hosts}");
    let read = identity::Identity::of(Some(&key)).ok().unwrap();
    assert_eq!(Some(read.public), served.asks.lock().unwrap()[0].public_key);
    identity::forget(directory, "l1");
    assert!(!key.exists());
    served.stop().await;
}

#[test]
fn a_key_that_cannot_be_used_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("id");
    let fault = |text: Option<&str>| {
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let fault = identity::Identity::of(Some(&path)).err().unwrap();
        assert_eq!(fault.exit_code(), 2);
        fault.to_string().replace(&path.display().to_string(), "KEY")
    };
    insta::assert_snapshot!(
        fault(None),
        @"cannot read the key file `KEY`: No such file or directory (os error 2)"
    );
    let public = fault(Some("ssh-ed25519 AAAA me@here\n"));
    assert!(public.contains("give the file without .pub"), "{public}");
}

// Invariant: a service that is not there, or is something else, is told apart, with what to do.

#[tokio::test]
async fn no_service_says_how_to_start_one() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("none.sock");
    let fault = async || {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut term = Term { out: &mut out, err: &mut err };
        let fault = remote::run(&global(&socket), Command::Status, &mut term).await.unwrap_err();
        assert_eq!(fault.exit_code(), 1);
        chain(&fault).replace(&socket.display().to_string(), "SOCKET")
    };
    insta::assert_snapshot!(
        fault().await,
        @"no drover is listening on `SOCKET`: is it running? start it with `drover run --config FILE`, or name its socket with --socket or DROVER_SOCKET"
    );
    // A socket that nobody listens on any more is told the same way.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(fault().await.starts_with("no drover is listening"));
}

#[tokio::test]
async fn a_remote_service_takes_a_token_from_a_file() {
    let served = Served::new();
    let token = served.directory.path().join("token");
    let status = async |text: &str| {
        std::fs::write(&token, text).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut term = Term { out: &mut out, err: &mut err };
        let global = Global {
            url: Some(served.base.clone()),
            token_file: Some(token.clone()),
            ..Global::default()
        };
        let result = remote::run(&global, Command::Reload, &mut term).await;
        result.map_err(|fault| chain(&fault).replace(&token.display().to_string(), "TOKEN"))
    };
    insta::assert_snapshot!(status("admin-token\n").await.unwrap_err(), @"the configuration was refused, the old one stays in force: drover.yaml: unknown key");
    insta::assert_snapshot!(status("viewer-token\n").await.unwrap_err(), @"the caller may not do this: `token:viewer` has the role viewer, and this needs admin; use a token of that role");
    insta::assert_snapshot!(status("wrong\n").await.unwrap_err(), @"the caller is not known: no token of the configuration is the one given");
    insta::assert_snapshot!(status("two tokens\n").await.unwrap_err(), @"`TOKEN` must hold one token and nothing else");
    served.stop().await;
}

#[tokio::test]
async fn another_server_is_not_taken_for_drover() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let other = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        let _read = stream.read(&mut request).await.unwrap();
        let answer = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\nno";
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "t").unwrap();
    let global = Global { url: Some(base.clone()), token_file: Some(token), ..Global::default() };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term { out: &mut out, err: &mut err };
    let fault = remote::run(&global, Command::Status, &mut term).await.unwrap_err();
    insta::assert_snapshot!(
        chain(&fault).replace(&base, "URL"),
        @"`URL` answered 502, and not as drover does: is something else there?"
    );
    other.await.unwrap();
}

// Invariant: what is printed for people is plain and aligned, and cannot move the cursor.

fn furnish(view: &View) {
    told(view, What::ConfigApplied { generation: Generation(4) });
    told(view, What::ConfigRefused { text: "drover.yaml:3:1\n  unknown key `clouds`".into() });
    for (cloud, health, version, detail) in [
        ("lab", "well", Some("8.4.21"), ""),
        ("office", "degraded", None, "login refused: check the token `drover@pve!ci`"),
    ] {
        let what = What::Cloud {
            cloud: CloudId::new(cloud),
            cluster: version.map(|_| ClusterId::new("9f31c0aa52e7d410")),
            health: health.into(),
            version: version.map(Into::into),
            detail: detail.into(),
            agents: 2,
            cap: version.map(|_| 10),
        };
        told(view, what);
    }
    for (name, breaker, tripped) in [
        ("linux", "flowing", None),
        ("windows", "tripped", Some((THEN, "no space on `local-lvm`".to_owned()))),
    ] {
        let what = What::Template {
            template: TemplateId::new(CloudId::new("lab"), name),
            states: [("Ready".to_owned(), 1), ("Booting".to_owned(), 1), ("Held".to_owned(), 0)]
                .into(),
            cap: tripped.is_none().then_some(5),
            labels: vec!["big".into(), name.into()],
            breaker: breaker.into(),
            tripped,
        };
        told(view, what);
    }
    let mut booting = testing::agent("a2", "Booting");
    booting.detail = "\u{1b}[2Jno address yet".into();
    (booting.address, booting.ssh) = (None, None);
    told(view, What::Agent(Box::new(booting)));
    let mut leased = testing::agent("a1", "Leased");
    leased.leases = vec![drover_actors::id::LeaseId::new("x")];
    told(view, What::Agent(Box::new(leased)));
    told(view, What::Lease(Box::new(testing::lease("x", "ready", Some("a1"), ""))));
    told(view, What::Lease(Box::new(testing::lease("y", "waiting", None, "no agent is free"))));
    told(view, What::Lease(Box::new(testing::lease("z", "ended", None, "released"))));
    let alarm = What::Alarm {
        agent: AgentId::new("a3"),
        text: "`lock: clone` stays and no task runs".into(),
        command: "qm unlock 10420".into(),
    };
    told(view, alarm);
    let findings = vec!["orphan 10417 on pve1: destroy".to_owned()];
    told(view, What::Reconciled { cluster: ClusterId::new("9f31c0aa52e7d410"), findings });
}

#[tokio::test]
async fn status_shows_everything_at_a_glance() {
    let served = Served::new();
    furnish(&served.view);
    let (result, text) = cli(&served, false, Command::Status).await;
    assert_eq!(result, Ok(0));
    insta::assert_snapshot!(text, @r"
    drover 0.1.0, starting
    configuration: generation 4, in force since 2026-11-21T08:11:02Z
    REFUSED at 2026-11-21T08:11:02Z, the old configuration stays:
      drover.yaml:3:1
        unknown key `clouds`
    ALARM since 2026-11-21T08:11:02Z: agent a3: `lock: clone` stays and no task runs
      run: qm unlock 10420

    CLOUDS
    NAME    HEALTH    VERSION  AGENTS  CLUSTER           DETAIL
    lab     well      8.4.21   2/10    9f31c0aa52e7d410
    office  degraded  -        2/-     -                 login refused: check the token `drover@pve!ci`

    TEMPLATES
    NAME         AGENTS  STATES              LABELS       BREAKER
    lab/linux    2/5     1 Booting, 1 Ready  big,linux    flowing
    lab/windows  2/-     1 Booting, 1 Ready  big,windows  tripped until 2026-11-21T08:11:02Z: no space on `local-lvm`

    AGENTS
    ID  TEMPLATE   STATE    SINCE                 VMID   NODE  LOGIN               LEASES  DETAIL
    a1  lab/linux  Leased   2026-11-21T08:11:02Z  10417  pve1  ci@127.77.0.9:2222  x
    a2  lab/linux  Booting  2026-11-21T08:11:02Z  10417  pve1  -                   -       ?[2Jno address yet

    LEASES
    ID  STATE    AGENT  OWNER   EXPIRES               DETAIL
    x   ready    a1     tester  2026-11-21T09:11:02Z
    y   waiting  -      tester  -                     no agent is free

    RECONCILED
    9f31c0aa52e7d410 at 2026-11-21T08:11:02Z: 1 finding
      orphan 10417 on pve1: destroy
    ");
    served.stop().await;
}

#[tokio::test]
async fn an_empty_herd_says_none() {
    let served = Served::new();
    let (_, text) = cli(&served, false, Command::Status).await;
    insta::assert_snapshot!(text, @r"
    drover 0.1.0, starting
    configuration: none in force

    CLOUDS
    none

    TEMPLATES
    none

    AGENTS
    none

    LEASES
    none
    ");
    served.stop().await;
}

#[tokio::test]
async fn agents_that_went_are_listed_when_asked_for() {
    let served = Served::new();
    let gone = What::AgentGone {
        agent: AgentId::new("a1"),
        template: TemplateId::new(CloudId::new("lab"), "linux"),
        reason: Reason::Failed {
            state: "Connecting".into(),
            kind: "key-rejected".into(),
            text: "the guest refused the key of `ci`".into(),
        },
        phases: vec![("Cloning".into(), 1200), ("Booting".into(), 4050)],
    };
    told(&served.view, gone);
    let (_, text) = cli(&served, false, Command::Agents { gone: true }).await;
    insta::assert_snapshot!(text, @r"
    none

    GONE
    ID  TEMPLATE   GONE AT               LIVED  WHY
    a1  lab/linux  2026-11-21T08:11:02Z  5.2 s  Connecting failed (key-rejected): the guest refused the key of `ci`
    ");
    served.stop().await;
}

// Invariant: scripts get JSON, and people a line, from every command.

#[tokio::test]
async fn short_commands_answer_in_a_line_or_in_json() {
    let served = Served::new();
    furnish(&served.view);
    let mut lines = Vec::new();
    let commands: [fn() -> Command; 5] = [
        || Command::Release { lease: "x".into() },
        || Command::Retire { agent: "a1".into() },
        || Command::Reap { all: true },
        || Command::Resync,
        || Command::Templates,
    ];
    for command in commands {
        for json in [false, true] {
            let (result, text) = cli(&served, json, command()).await;
            assert_eq!(result, Ok(0));
            match serde_json::from_str::<serde_json::Value>(&text) {
                Ok(value) if json && value["templates"].is_null() => lines.push(value.to_string()),
                Ok(value) => assert!(json, "{value}"),
                Err(_) => lines.push(text.trim_end().to_owned()),
            }
        }
    }
    insta::assert_snapshot!(lines.join("\n"), @r#"
    lease x is over
    {"released":"x"}
    agent a1 goes, after its last lease if it has one
    {"retiring":"a1"}
    3 agents told to go
    {"retired":3}
    9f31c0aa52e7d410: 1 finding
      destroy orphan 10417 on pve1
    {"clusters":{"9f31c0aa52e7d410":["destroy orphan 10417 on pve1"]}}
    NAME         AGENTS  STATES              LABELS       BREAKER
    lab/linux    2/5     1 Booting, 1 Ready  big,linux    flowing
    lab/windows  2/-     1 Booting, 1 Ready  big,windows  tripped until 2026-11-21T08:11:02Z: no space on `local-lvm`
    "#);
    let (missing, _) = cli(&served, false, Command::Release { lease: "a/b".into() }).await;
    assert_eq!(missing, Err("there is no such thing: no lease `a/b`".into()));
    served.stop().await;
}

#[tokio::test]
async fn events_are_followed_until_the_service_stops() {
    let served = Served::new();
    for state in ["Cloning", "Booting"] {
        told(&served.view, What::Agent(Box::new(testing::agent("a1", state))));
    }
    let socket = served.socket.clone();
    let (begun, printed) = oneshot::channel();
    let follow = tokio::spawn(async move {
        let (mut out, mut err) = (Watched { text: Vec::new(), begun: Some(begun) }, Vec::new());
        let mut term = Term { out: &mut out, err: &mut err };
        let options = EventsOptions { after: Some("3-1".into()) };
        let result = remote::run(&global(&socket), Command::Events(options), &mut term).await;
        (result.map_err(|fault| chain(&fault)), String::from_utf8(out.text).unwrap())
    });
    printed.await.unwrap();
    served.stop().await;
    let (result, text) = follow.await.unwrap();
    assert_eq!(result, Err("the event stream ended: drover stops".into()));
    insta::assert_snapshot!(text, @"3-2  2026-11-21T08:11:02Z  agent a1 lab/linux Booting");
}
