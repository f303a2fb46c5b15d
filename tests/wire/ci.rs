//! Fakes of CI systems: HTTP on loopback, what each must have in common, and the ways a job can go
//! that hold for all of them.
//!
//! A fake answers what it knows and complains of everything else: a call it does not know, a field
//! that is missing or that nobody reads. A test ends in a failure where it complained.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};
use serde_json::{Value, json};

use crate::harness::{Sim, Site, WAIT_LIMIT};

/// A call as it came.
pub struct Request {
    pub method: String,
    /// The parts of its path, decoded.
    pub path: Vec<String>,
    /// Its query, decoded.
    pub query: BTreeMap<String, String>,
    /// Its headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its body as text.
    pub body: String,
}

impl Request {
    /// Method and parts, to be matched.
    pub fn route(&self) -> (String, Vec<&str>) {
        (self.method.clone(), self.path.iter().map(String::as_str).collect())
    }

    /// A header; empty where it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// A parameter of its query; empty where it is missing.
    pub fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// Its body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }
}

/// What is answered.
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

impl Reply {
    pub fn json(status: u16, body: &Value) -> Self {
        Self { status, headers: Vec::new(), body: body.to_string() }
    }

    /// Nothing but a status.
    pub fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: String::new() }
    }

    /// One more header.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    /// Another must be done first.
    Held(u64),
    /// It can run.
    Waits,
    /// It is on this row.
    Runs(u64),
    /// It was, and how it ended.
    Done(bool, u64),
}

#[derive(Debug, Clone)]
pub struct Job {
    pub id: u64,
    pub name: String,
    /// What it wants.
    pub labels: Vec<String>,
    /// The command it is.
    pub run: String,
    /// Where it stands.
    pub stand: Stand,
    /// What its runner said.
    pub log: String,
}

/// A runner's row.
#[derive(Debug, Clone)]
pub struct Row {
    pub id: u64,
    pub name: String,
    /// What it offers.
    pub labels: Vec<String>,
    /// What its runner logs in with.
    pub secret: String,
    /// Whether it is given no job any more.
    pub quiet: bool,
    /// Whether its runner called.
    pub called: bool,
}

/// What all fakes keep.
pub struct Core {
    /// What drover logs in with.
    pub token: String,
    /// Whether that may make rows.
    pub may_make: bool,
    /// Whether no job is given out, though there are some.
    pub holds: bool,
    /// Whether nothing works.
    pub down: bool,
    pub jobs: Vec<Job>,
    pub rows: Vec<Row>,
    /// Whether drover's rows move to the first page of their list once that was read.
    pub shifts: bool,
    /// All calls, for what is asked of them.
    pub calls: Vec<String>,
    /// What was wrong with calls.
    pub complaints: Vec<String>,
    next: u64,
}

impl Default for Core {
    fn default() -> Self {
        let token = "a token of tests".to_owned();
        let (jobs, rows, calls, complaints) = Default::default();
        let (may_make, holds, down, shifts, next) = (true, false, false, false, 100);
        Self { token, may_make, holds, down, jobs, rows, shifts, calls, complaints, next }
    }
}

impl Core {
    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A job that waits, or is held back by another; gives its number.
    pub fn push(&mut self, name: &str, labels: &[&str], after: Option<u64>, run: &str) -> u64 {
        let id = self.id();
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let stand = after.map_or(Stand::Waits, Stand::Held);
        let (name, run) = (name.to_owned(), run.to_owned());
        self.jobs.push(Job { id, name, labels, run, stand, log: String::new() });
        id
    }

    /// A new row.
    pub fn row(&mut self, name: &str, labels: Vec<String>) -> Row {
        let id = self.id();
        let (name, secret) = (name.to_owned(), format!("secret-of-{id}"));
        let row = Row { id, name, labels, secret, quiet: false, called: false };
        self.rows.push(row.clone());
        row
    }

    /// Its rows in the order of a page of them.
    pub fn rows_in_order(&self, first: bool) -> Vec<Row> {
        let mut rows = self.rows.clone();
        if self.shifts {
            rows.sort_by_key(|row| row.name.starts_with("drover-") == first);
        }
        rows
    }

    /// The row whose runner calls.
    pub fn caller(&mut self, secret: &str) -> Option<Row> {
        let row = self.rows.iter_mut().find(|row| row.secret == secret)?;
        row.called = true;
        Some(row.clone())
    }

    /// Gives a row its job: one, and no other after it.
    pub fn take(&mut self, row: &Row, fits: impl Fn(&Job) -> bool) -> Option<Job> {
        let had =
            |job: &Job| matches!(job.stand, Stand::Runs(on) | Stand::Done(_, on) if on == row.id);
        if row.quiet || self.holds || self.jobs.iter().any(had) {
            return None;
        }
        let found = self.jobs.iter_mut().find(|job| job.stand == Stand::Waits && fits(job))?;
        found.stand = Stand::Runs(row.id);
        Some(found.clone())
    }

    /// A job is over; those it held back wait now, or are over with it.
    pub fn finish(&mut self, id: u64, good: bool) {
        for job in &mut self.jobs {
            match job.stand {
                Stand::Runs(row) if job.id == id => job.stand = Stand::Done(good, row),
                Stand::Held(on) if on == id && good => job.stand = Stand::Waits,
                Stand::Held(_) | Stand::Waits | Stand::Runs(_) | Stand::Done(..) => {}
            }
        }
    }

    /// The names of drover's rows.
    pub fn own(&self) -> Vec<String> {
        let all = self.rows.iter().map(|row| row.name.clone());
        all.filter(|name| name.starts_with("drover-")).collect()
    }

    /// Jobs that are or were on a row.
    pub fn on(&self, row: u64) -> Vec<&Job> {
        let on =
            |job: &&Job| matches!(job.stand, Stand::Runs(at) | Stand::Done(_, at) if at == row);
        self.jobs.iter().filter(on).collect()
    }

    /// Jobs by name, and how they ended.
    pub fn ends(&self) -> BTreeMap<String, &'static str> {
        let end = |stand| match stand {
            Stand::Done(true, _) => "success",
            Stand::Done(false, _) => "failure",
            Stand::Runs(_) => "runs",
            Stand::Waits | Stand::Held(_) => "-",
        };
        self.jobs.iter().map(|job| (job.name.clone(), end(job.stand))).collect()
    }

    /// Something is wrong with a call.
    pub fn complain(&mut self, what: impl Into<String>) -> Reply {
        let what = what.into();
        let reply = Reply::json(400, &json!({ "message": what }));
        self.complaints.push(what);
        reply
    }

    /// Complains of fields of a body that are missing or that nobody knows.
    pub fn fields(&mut self, body: &Value, needed: &[&str], known: &[&str]) {
        let given: Vec<String> =
            body.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default();
        for name in needed.iter().filter(|name| !given.iter().any(|key| key == **name)) {
            self.complaints.push(format!("`{name}` is missing in {body}"));
        }
        let is_known = |key: &str| needed.contains(&key) || known.contains(&key);
        for key in given.iter().filter(|key| !is_known(key)) {
            self.complaints.push(format!("nobody knows `{key}` in {body}"));
        }
    }
}

/// One kind of system.
pub trait Fake: Send + 'static {
    /// What it keeps.
    fn core(&mut self) -> &mut Core;
    /// Answers a call.
    fn answer(&mut self, request: &Request) -> Reply;
}

/// A fake that is served.
pub struct Server<F: Fake> {
    port: u16,
    fake: Arc<(Mutex<F>, Condvar)>,
}

impl<F: Fake> Server<F> {
    /// Serves it on loopback.
    pub fn start(fake: F) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let fake = Arc::new((Mutex::new(fake), Condvar::new()));
        let served = Arc::clone(&fake);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let fake = Arc::clone(&served);
                std::thread::spawn(move || serve(&stream, &fake));
            }
        });
        Self { port, fake }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Where agents connect.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The fake itself; it answers nobody meanwhile.
    pub fn fake(&self) -> MutexGuard<'_, F> {
        self.fake.0.lock()
    }

    /// Waits until something is so, which is looked at after each call.
    pub fn until(&self, what: &str, mut is: impl FnMut(&mut Core) -> bool) {
        let mut fake = self.fake();
        let over = self.fake.1.wait_while_for(&mut fake, |fake| !is(fake.core()), WAIT_LIMIT);
        let core = fake.core();
        assert!(!over.timed_out(), "not {what}: {:?} {:?}", core.jobs, core.rows);
    }

    /// A job that waits.
    pub fn push(&self, name: &str, labels: &[&str], run: &str) -> u64 {
        self.fake().core().push(name, labels, None, run)
    }

    /// A site with this as its source `ci`, whose guests have this runner of the tests' own: as
    /// `runner.py`, and as the program whose place it takes; more keys of the source.
    pub fn source(&self, site: &Site, yaml: &str, (script, program): (&str, &str), keys: &str) {
        let token = self.fake().core().token.clone();
        site.write_secret("ci", &token);
        let dir = site.dir.path().display();
        let runner = format!("{}/tests/wire/{script}", env!("CARGO_MANIFEST_DIR"));
        let place = format!("mkdir -p /opt/bin && install -m 755 runner.py /opt/bin/{program}");
        let upload = format!("{{upload: {{from: \"{runner}\", to: runner.py}}}}");
        let prepare = format!("    prepare: [{upload}, {{run: \"{place}\"}}]\n");
        let yaml = yaml.replace(
            "credentials:\n",
            &format!("credentials:\n  ci: {{kind: apiToken, secretFile: \"{dir}/ci\"}}\n"),
        );
        let url = self.url();
        site.write_yaml(&format!(
            "{yaml}{prepare}demand:\n  ci: {{url: \"{url}\", credentialsId: ci, {keys}}}\n"
        ));
    }
}

impl<F: Fake> Drop for Server<F> {
    fn drop(&mut self) {
        let complaints = std::mem::take(&mut self.fake().core().complaints);
        if !std::thread::panicking() {
            assert_eq!(complaints, Vec::<String>::new());
        }
    }
}

fn serve<F: Fake>(stream: &TcpStream, (fake, called): &(Mutex<F>, Condvar)) {
    let Some(request) = read(stream) else { return };
    let mut fake = fake.lock();
    let core = fake.core();
    core.calls.push(format!("{} {}", request.method, request.path.join("/")));
    let reply = if core.down {
        Reply { status: 503, headers: Vec::new(), body: "<html>back soon</html>".into() }
    } else if request.path.is_empty() {
        // What browsers are shown.
        Reply { status: 200, headers: Vec::new(), body: "<html>welcome</html>".into() }
    } else {
        fake.answer(&request)
    };
    drop(fake);
    called.notify_all();
    let mut head = format!("HTTP/1.1 {} -\r\nConnection: close\r\n", reply.status);
    head += &format!("Content-Length: {}\r\n", reply.body.len());
    let now = jiff::Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT");
    head += &format!("Date: {now}\r\n");
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    // Anyone who does not listen any more has gone.
    let mut out: &TcpStream = stream;
    let _ = out.write_all(format!("{head}\r\n{}", reply.body).as_bytes());
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    lines.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let plain = |text: &str| {
        percent_encoding::percent_decode_str(&text.replace('+', " "))
            .decode_utf8_lossy()
            .into_owned()
    };
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    Some(Request {
        method,
        path: path.split('/').filter(|part| !part.is_empty()).map(plain).collect(),
        query: pairs.map(|(key, value)| (plain(key), plain(value))).collect(),
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

/// That nothing is left of a run; others' rows are none of drover's affair.
pub fn nothing_left<F: Fake>(server: &Server<F>, sim: &Sim, site: &Site) {
    server.until("removed", |core| core.own().is_empty());
    site.until_empty();
    assert_eq!(sim.guests(), Vec::<u64>::new());
}
