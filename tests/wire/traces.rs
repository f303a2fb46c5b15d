//! Traces at a real collector: the OTLP receiver of the OpenTelemetry Collector 0.165.0 (`tests/wire/otel`). What
//! no healthy collector does (busy, a part refused, silence, no login) does a stand-in of the tests, after
//! OTLP/HTTP 1.10.0.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use serde_json::Value;

use crate::gitea::demand;
use crate::gitea_server::{Gitea, job};
use crate::harness::{Events, Kept, Lines, Service, Site, WAIT_LIMIT, world};
use crate::open::free_port;

/// The value of the header that no text may have.
const SECRET: &str = "Bearer s3cret-of-otel";

/// The collector, where it is installed: `DROVER_TEST_OTEL` names it.
struct Otel {
    _process: Kept,
    lines: Lines,
    port: u16,
    spans: Vec<Value>,
}

impl Otel {
    fn start() -> Option<Self> {
        let found = std::env::var_os("DROVER_TEST_OTEL").map(PathBuf::from);
        assert!(
            found.is_some() || std::env::var_os("DROVER_TEST_PROGRAMS").is_none(),
            "DROVER_TEST_OTEL does not name the receiver: run the tests by tests/all"
        );
        let port = free_port();
        let mut command = Command::new(found?);
        command.arg(format!("127.0.0.1:{port}")).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Kept(command.spawn().unwrap());
        let mut lines = Lines::of("otel", process.0.stdout.take().unwrap());
        lines.until(|line| line == "listening");
        Some(Self { _process: process, lines, port, spans: Vec::new() })
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}/v1/traces", self.port)
    }

    /// All spans so far, each with the attributes of its resource, once one of this name is among them.
    fn until(&mut self, name: &str) -> &[Value] {
        while !self.spans.iter().any(|span| span["name"] == name) {
            let line = self.lines.until(|_| true);
            let request: Value = serde_json::from_str(&line).unwrap();
            for resource in request["resourceSpans"].as_array().unwrap() {
                for span in resource["scopeSpans"][0]["spans"].as_array().unwrap() {
                    let mut span = span.clone();
                    span["resource"] = resource["resource"]["attributes"].clone();
                    self.spans.push(span);
                }
            }
        }
        &self.spans
    }
}

/// The text of an attribute.
fn of<'a>(attributes: &'a Value, key: &str) -> &'a str {
    let all = attributes.as_array().map(Vec::as_slice).unwrap_or_default();
    let found = all.iter().find(|attribute| attribute["key"] == key);
    found.and_then(|one| one["value"]["stringValue"].as_str()).unwrap_or_default()
}

fn named<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    let found: Vec<&Value> = spans.iter().filter(|span| span["name"] == name).collect();
    assert_eq!(found.len(), 1, "{name}: {spans:#?}");
    found[0]
}

fn nanos(span: &Value, key: &str) -> u64 {
    span[key].as_str().unwrap().parse().unwrap()
}

/// The YAML with a collector at this address.
fn traced(site: &Site, yaml: &str, endpoint: &str) -> String {
    site.write_secret("otel", SECRET);
    let secret = site.dir.path().join("otel").display().to_string();
    yaml.replace(
        "service:\n",
        &format!(
            "service:\n  traces:\n    endpoint: \"{endpoint}\"\n    headers:\n      - {{name: \
             Authorization, secretFile: \"{secret}\"}}\n      - {{name: X-Scope-OrgID, value: \
             ci}}\n"
        ),
    )
}

/// Ends all agents.
fn retire(site: &Site) {
    for agent in site.json(&["agents"])["agents"].as_array().unwrap() {
        let out = site.cli(&["retire", agent["id"].as_str().unwrap()]);
        assert!(out.status.success(), "{out:?}");
    }
    site.until_empty();
}

fn metric(site: &Site, outcome: &str) -> u64 {
    let mut curl = Command::new("curl");
    curl.args(["-sSf", "--unix-socket"]).arg(site.dir.path().join("drover.sock"));
    let out = curl.arg("http://drover/metrics").output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let series = format!("drover_trace_spans_total{{outcome=\"{outcome}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&series));
    line.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

// Invariant: a real collector reads what drover sends as one whole trace of each agent.

#[test]
fn a_real_collector_takes_one_trace_of_each_agent() {
    let Some(mut otel) = Otel::start() else { return };
    let (_dir, sim, site) = world();
    let step = "    prepare: [{name: tools, run: \"echo the output; true\"}]\n";
    site.write_yaml(&traced(&site, &site.yaml(&sim, step), &otel.endpoint()));
    let doctor = site.command(["--config"]).arg(site.config()).arg("doctor").output().unwrap();
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains("takes traces: it took a request without spans"), "{doctor}");
    let (service, mut log) = Service::start_logged(&site);
    let out = site.cli(&["lease", "--labels", "linux", "--", "true"]);
    assert!(out.status.success(), "{out:?}");
    retire(&site);
    let spans = otel.until("agent lab/linux").to_vec();

    let root = named(&spans, "agent lab/linux");
    let (trace, id) = (&root["traceId"], &root["spanId"]);
    assert_eq!(trace.as_str().unwrap().len(), 32);
    assert!(spans.iter().all(|span| span["traceId"] == *trace));
    let ids: BTreeSet<&str> = spans.iter().map(|span| span["spanId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), spans.len(), "each span once");
    let lease = named(&spans, "lease");
    for part in ["Queued", "Cloning", "Booting", "Preparing: tools", "Leased", "Retiring"] {
        let part = named(&spans, part);
        assert_eq!(part["parentSpanId"], *id, "{part}");
        assert!(nanos(part, "startTimeUnixNano") >= nanos(root, "startTimeUnixNano"), "{part}");
        assert!(nanos(part, "endTimeUnixNano") <= nanos(root, "endTimeUnixNano"), "{part}");
    }
    assert_eq!(lease["parentSpanId"], *id);
    for part in ["wait", "hand-over", "use"] {
        assert_eq!(named(&spans, part)["parentSpanId"], lease["spanId"]);
    }
    // It was ready before its lease, and after it.
    let ready: Vec<&Value> = spans.iter().filter(|span| span["name"] == "Ready").collect();
    assert_eq!(ready.len(), 2);
    assert_eq!(of(&ready[0]["attributes"], "cicd.worker.state"), "available");
    assert_eq!(of(&root["attributes"], "drover.template"), "lab/linux");
    assert_eq!(of(&root["resource"], "service.name"), "drover");
    assert_eq!(of(&root["resource"], "service.version"), env!("CARGO_PKG_VERSION"));
    let worker = of(&root["resource"], "cicd.worker.id");
    assert_eq!(worker.len(), 16, "{root}");
    assert!(root["status"]["code"].is_null(), "{root}");

    // The last batch is counted once its answer is there.
    let mut sent = (0..500).map(|_| metric(&site, "sent"));
    assert!(sent.any(|count| count == spans.len() as u64), "{}", metric(&site, "sent"));
    assert_eq!((metric(&site, "refused"), metric(&site, "dropped")), (0, 0));
    service.child.signal("TERM");
    let all = format!("{spans:?}{doctor}{}", log.rest());
    assert!(!all.contains("s3cret") && !all.contains("the output"), "{all}");
}

// Invariant: the trace of an agent that failed says where and why.

#[test]
fn the_trace_of_an_agent_that_failed_says_where_and_why() {
    let Some(mut otel) = Otel::start() else { return };
    let (_dir, sim, site) = world();
    let step = "    prepare: [{name: tools, run: \"exit 7\"}]\n";
    let plain = site.yaml(&sim, step);
    site.write_yaml(&plain);
    let (service, _log) = Service::start_logged(&site);
    service.drain();
    // Named while the service runs.
    site.write_yaml(&traced(&site, &plain, &otel.endpoint()));
    assert!(site.cli(&["reload"]).status.success());
    site.json(&["provision", "linux"]);
    let spans = otel.until("agent lab/linux").to_vec();
    let failed = named(&spans, "Preparing: tools");
    assert_eq!(failed["status"]["code"], 2, "{failed}");
    assert!(failed["status"]["message"].as_str().unwrap().contains("exit"), "{failed}");
    let exit = failed["attributes"].as_array().unwrap().iter();
    let mut exit = exit.filter(|one| one["key"] == "process.exit.code");
    assert_eq!(exit.next().unwrap()["value"]["intValue"], "7");
    let root = named(&spans, "agent lab/linux");
    assert_eq!(root["status"]["code"], 2, "{root}");
    assert_ne!(of(&root["attributes"], "error.type"), "");
    assert!(named(&spans, "Cloning")["status"]["code"].is_null());
}

// Invariant: the lease of a job has what its source says of it.

#[test]
fn the_lease_of_a_job_of_a_real_gitea_leads_to_the_job() {
    let Some(mut otel) = Otel::start() else { return };
    let gitea = Gitea::start();
    let (_dir, sim, site) = world();
    let yaml = traced(&site, &site.yaml(&sim, ""), &otel.endpoint());
    demand(&site, &yaml, &gitea, "pollSeconds: 1");
    let service = Service::start(&site);
    service.drain();
    let mut events = Events::follow(&site);
    gitea.repository("app", &job("sleep 4"));
    assert_eq!(events.finished(1).len(), 1);
    let spans = otel.until("agent lab/linux").to_vec();
    let lease = &named(&spans, "lease")["attributes"];
    let repository = format!("{}/drover/app", gitea.url);
    assert_eq!(of(lease, "drover.source"), "git");
    assert_eq!(of(lease, "vcs.repository.url.full"), repository, "{lease}");
    assert_eq!(of(lease, "vcs.repository.name"), "app");
    assert_eq!(of(lease, "vcs.ref.head.revision").len(), 40, "{lease}");
    assert!(of(lease, "cicd.pipeline.task.run.id").parse::<u64>().is_ok(), "{lease}");
    assert!(of(lease, "cicd.pipeline.run.id").parse::<u64>().is_ok(), "{lease}");
    let url = of(lease, "cicd.pipeline.task.run.url.full");
    assert!(url.starts_with(&format!("{repository}/actions/runs/")), "{lease}");
    assert!(of(lease, "cicd.worker.name").starts_with("drover-"), "{lease}");
}

/// A stand-in that answers as a test says.
struct StandIn {
    endpoint: String,
    /// The bodies of requests, each after its headers were checked.
    requests: Receiver<Value>,
    answers: Sender<&'static str>,
}

const TAKEN: &str = "200 OK\r\ncontent-type: application/json\r\n\r\n{}";
const BUSY: &str = "503 Busy\r\nretry-after: 0\r\n\r\n";
const NO_LOGIN: &str = "401 No\r\n\r\n{\"code\":16,\"message\":\"no login\"}";
const PARTLY: &str =
    "200 OK\r\n\r\n{\"partialSuccess\":{\"rejectedSpans\":\"1\",\"errorMessage\":\"too old\"}}";
/// It reads, and never answers.
const SILENCE: &str = "";

/// Reads a request, and whatever is wrong with it.
fn request(stream: &TcpStream) -> Option<Value> {
    let mut lines = BufReader::new(stream);
    let (mut head, mut line) = (String::new(), String::new());
    while lines.read_line(&mut line).ok()? > 2 {
        head += &line.to_ascii_lowercase();
        line.clear();
    }
    let header = |name: &str| {
        let start = format!("{name}: ");
        head.lines().find_map(|line| line.strip_prefix(&start).map(str::to_owned))
    };
    assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
    assert_eq!(header("content-type").as_deref(), Some("application/json"));
    assert_eq!(header("authorization"), Some(SECRET.to_ascii_lowercase()));
    assert_eq!(header("x-scope-orgid").as_deref(), Some("ci"));
    let mut body = vec![0; header("content-length")?.parse().ok()?];
    lines.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

impl StandIn {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let ((sender, requests), (answers, orders)) = (channel(), channel::<&'static str>());
        std::thread::spawn(move || {
            // Those that are never answered stay open.
            let mut silent = Vec::new();
            for mut stream in listener.incoming().map_while(Result::ok) {
                let Some(body) = request(&stream) else { continue };
                if sender.send(body).is_err() {
                    return;
                }
                let Ok(answer) = orders.recv() else { return };
                if answer == SILENCE {
                    silent.push(stream);
                    continue;
                }
                let (head, body) = answer.split_once("\r\n\r\n").unwrap();
                let length = body.len();
                let text = format!(
                    "HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
                );
                // Who asked may be gone.
                let _ = stream.write_all(text.as_bytes());
            }
        });
        Self { endpoint, requests, answers }
    }

    /// The next request, which is answered so.
    fn next(&self, answer: &'static str) -> Value {
        let body = self.requests.recv_timeout(WAIT_LIMIT).unwrap();
        self.answers.send(answer).unwrap();
        body
    }

    /// Takes requests until a span of this name is in one.
    fn until(&self, name: &str) {
        let wanted = format!("\"name\":\"{name}\"");
        while !self.next(TAKEN).to_string().contains(&wanted) {}
    }
}

fn spans_of(body: &Value) -> usize {
    let resources = body["resourceSpans"].as_array().unwrap().iter();
    resources.map(|one| one["scopeSpans"][0]["spans"].as_array().unwrap().len()).sum()
}

// Invariant: a collector that is busy gets the same again, what it refuses is dropped and counted, and an
// outage is in the log once.

#[test]
fn what_a_collector_does_not_take_is_sent_again_or_counted_and_said_once() {
    let collector = StandIn::start();
    let (_dir, sim, site) = world();
    site.write_yaml(&traced(&site, &site.yaml(&sim, ""), &collector.endpoint));
    let (service, mut log) = Service::start_logged(&site);
    service.drain();
    site.json(&["provision", "linux"]);
    let first = collector.next(BUSY);
    for _ in 0..3 {
        assert_eq!(collector.next(BUSY), first, "the same again");
    }
    assert_eq!(collector.next(TAKEN), first);
    let silent = log.until(|line| line.contains("does not take traces; spans wait for it"));
    assert!(silent.contains("status 503"), "{silent}");
    let again = log.until(|line| line.contains("takes traces") && !line.contains("not take"));
    assert!(again.contains("takes traces again"), "one line an outage: {again}");

    let out = site.cli(&["lease", "--labels", "linux", "--", "true"]);
    assert!(out.status.success(), "{out:?}");
    let refused = spans_of(&collector.next(NO_LOGIN));
    let why = log.until(|line| line.contains("refuses traces"));
    assert!(why.contains("no login"), "{why}");
    retire(&site);
    let partly = collector.next(PARTLY);
    log.until(|line| line.contains("does not take some spans") && line.contains("too old"));
    let mut counted = (0..500).map(|_| metric(&site, "refused"));
    assert!(counted.any(|count| count == refused as u64 + 1), "{partly}");
    service.child.signal("TERM");
    let all = [silent, again, why, log.rest()].concat();
    assert!(!all.contains("s3cret"), "{all}");
}

// Invariant: the herd works on while a collector is silent, and another one gets what waits.

#[test]
fn the_herd_works_on_while_a_collector_is_silent_and_another_one_gets_what_waits() {
    let (silent, other) = (StandIn::start(), StandIn::start());
    let (_dir, sim, site) = world();
    let plain = site.yaml(&sim, "");
    site.write_yaml(&traced(&site, &plain, &silent.endpoint));
    let mut service = Service::start(&site);
    site.json(&["provision", "linux"]);
    let waits = silent.next(SILENCE);
    let out = site.cli(&["lease", "--labels", "linux", "--", "true"]);
    assert!(out.status.success(), "{out:?}");
    retire(&site);
    site.write_yaml(&traced(&site, &plain, &other.endpoint));
    assert!(site.cli(&["reload"]).status.success());
    assert_eq!(other.next(TAKEN), waits, "what was under way goes to the other one");
    other.until("agent lab/linux");
    // Without a collector nothing is sent.
    site.write_yaml(&plain);
    assert!(site.cli(&["reload"]).status.success());
    let sent = metric(&site, "sent");
    let out = site.cli(&["lease", "--labels", "linux", "--", "true"]);
    assert!(out.status.success() && sent > 0, "{out:?}");
    retire(&site);
    assert_eq!(metric(&site, "sent"), sent);
    // A stop does not wait long for a collector that is silent.
    site.write_yaml(&traced(&site, &plain, &silent.endpoint));
    assert!(site.cli(&["reload"]).status.success());
    site.json(&["provision", "linux"]);
    silent.next(SILENCE);
    let started = Instant::now();
    service.child.signal("TERM");
    service.child.wait();
    assert!(started.elapsed() < WAIT_LIMIT, "{:?}", started.elapsed());
}

// Invariant: the doctor says what a collector answers, and `check` where the address is wrong.

#[test]
fn the_doctor_and_check_say_what_is_wrong_with_a_collector() {
    let collector = StandIn::start();
    let (_dir, sim, site) = world();
    let plain = site.yaml(&sim, "");
    site.write_yaml(&traced(&site, &plain, &collector.endpoint));
    collector.answers.send(NO_LOGIN).unwrap();
    let run = |command: &str| {
        let out = site.command(["--config"]).arg(site.config()).arg(command).output().unwrap();
        let both = [out.stdout, out.stderr].concat();
        (out.status.code(), String::from_utf8(both).unwrap())
    };
    let (code, doctor) = run("doctor");
    assert_eq!(code, Some(1));
    for part in ["traces to http://127.0.0.1:", "fail  takes traces", "no login", "Authorization"] {
        assert!(doctor.contains(part), "{part}: {doctor}");
    }
    assert_eq!(spans_of(&collector.requests.recv_timeout(WAIT_LIMIT).unwrap()), 0);
    assert!(!doctor.contains("s3cret"), "{doctor}");
    site.write_yaml(&traced(&site, &plain, "http://otel.lan:4318"));
    let (code, check) = run("check");
    assert_ne!(code, Some(0));
    let line = std::fs::read_to_string(site.config()).unwrap();
    let line = 1 + line.lines().position(|line| line.contains("endpoint:")).unwrap();
    assert!(check.contains(&format!("drover.yaml:{line}:")), "{check}");
    assert!(check.contains("has no path: collectors take traces at `/v1/traces`"), "{check}");
}
