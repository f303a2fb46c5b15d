//! The service's own API over its socket, without a process for each call, and a board of agents
//! and leases kept up by its event stream.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::{Site, WAIT_LIMIT};

/// One call; gives the status and the body, `null` where there is none. An answer that was cut off or
/// is no JSON fails the test.
pub fn call(site: &Site, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let mut stream = open(site, method, path, body);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    read(&answer).unwrap_or_else(|wrong| panic!("{method} {path}: {wrong}: {answer}"))
}

fn read(answer: &str) -> Result<(u16, Value), String> {
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer ends in its head")?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or("no status")?;
    let mut headers = head.lines().filter_map(|line| line.split_once(": "));
    let length = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.map_or(Some(0), |(_, length)| length.parse().ok()).ok_or("no length")?;
    if body.len() != length {
        return Err(format!("the body has {} of {length} bytes", body.len()));
    }
    if body.is_empty() {
        return Ok((status, Value::Null));
    }
    let value = serde_json::from_str(body).map_err(|error| format!("no JSON, {error}"))?;
    Ok((status, value))
}

fn open(site: &Site, method: &str, path: &str, body: Option<&Value>) -> UnixStream {
    let mut stream = UnixStream::connect(site.dir.path().join("drover.sock")).unwrap();
    stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    let body = body.map(Value::to_string).unwrap_or_default();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: drover\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    stream
}

/// Asks for a lease of a template and gives its id.
pub fn ask(site: &Site, template: &str, owner: &str) -> String {
    let body = json!({"template": template, "owner": owner, "ttlSeconds": 3600});
    let (status, lease) = call(site, "POST", "/v1/leases", Some(&body));
    assert_eq!(status, 201, "{lease}");
    lease["id"].as_str().unwrap().to_owned()
}

/// Waits until a lease is ready and gives it; fails when it has ended.
pub fn ready(site: &Site, lease: &str) -> Value {
    let deadline = Instant::now() + WAIT_LIMIT * 3;
    loop {
        let (status, reported) =
            call(site, "GET", &format!("/v1/leases/{lease}?waitSeconds=30"), None);
        assert_eq!(status, 200, "{reported}");
        match reported["state"].as_str() {
            Some("ready") => return reported,
            Some("ended") => panic!("the lease ended: {reported}"),
            _ => assert!(Instant::now() < deadline, "the lease never got ready: {reported}"),
        }
    }
}

/// Ends a lease.
pub fn release(site: &Site, lease: &str) {
    let (status, reported) = call(site, "DELETE", &format!("/v1/leases/{lease}"), None);
    assert!((200..300).contains(&status), "{status} {reported}");
}

/// All agents and leases, as the event stream reports them.
pub struct Board {
    events: BufReader<UnixStream>,
    /// Live agents by id.
    pub agents: BTreeMap<String, Value>,
    /// Leases by id.
    pub leases: BTreeMap<String, Value>,
    /// Clouds by id.
    pub clouds: BTreeMap<String, Value>,
    /// The last restarts of actors.
    pub restarts: Vec<Value>,
}

impl Board {
    /// Follows a service from now on.
    pub fn open(site: &Site) -> Self {
        let events = BufReader::new(open(site, "GET", "/v1/events", None));
        let mut board = Self {
            events,
            agents: BTreeMap::new(),
            leases: BTreeMap::new(),
            clouds: BTreeMap::new(),
            restarts: Vec::new(),
        };
        // Nothing is missed from the first line on.
        let mut line = String::new();
        while line.trim() != ": open" {
            line.clear();
            assert!(board.events.read_line(&mut line).unwrap() > 0, "no event stream");
        }
        board.look(site);
        board
    }

    /// Looks at the whole again.
    pub fn look(&mut self, site: &Site) {
        let (_, status) = call(site, "GET", "/v1/status", None);
        let by_id = |list: &Value| {
            let all = list.as_array().cloned().unwrap_or_default();
            all.into_iter().map(|one| (one["id"].as_str().unwrap().to_owned(), one)).collect()
        };
        self.agents = by_id(&status["agents"]);
        self.leases = by_id(&status["leases"]);
        self.clouds = by_id(&status["clouds"]);
    }

    /// Takes the next event.
    pub fn next(&mut self, site: &Site) -> Value {
        let deadline = Instant::now() + WAIT_LIMIT * 2;
        let mut line = String::new();
        let data = loop {
            line.clear();
            // The stream is alive even when nothing happens.
            assert!(Instant::now() < deadline, "nothing happens: {}", self.counts());
            match self.events.read_line(&mut line) {
                Ok(length) if length > 0 => {}
                end => panic!("the event stream ended ({end:?}): {}", self.counts()),
            }
            if let Some(data) = line.strip_prefix("data: ") {
                break data.trim();
            }
        };
        let event: Value = serde_json::from_str(data).unwrap();
        let place = |map: &mut BTreeMap<String, Value>, one: &Value| {
            map.insert(one["id"].as_str().unwrap().to_owned(), one.clone());
        };
        match event["kind"].as_str() {
            Some("agent") => place(&mut self.agents, &event["agent"]),
            Some("agentGone") => {
                self.agents.remove(event["agent"]["id"].as_str().unwrap());
            }
            Some("lease") => place(&mut self.leases, &event["lease"]),
            Some("cloud") => place(&mut self.clouds, &event["cloud"]),
            Some("restarted") => self.restarts.push(event.clone()),
            Some(_) => {}
            None => self.look(site),
        }
        event
    }

    /// Follows until the board is as wanted.
    pub fn until(&mut self, site: &Site, what: &str, wanted: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + WAIT_LIMIT * 4;
        while !wanted(self) {
            assert!(Instant::now() < deadline, "not in time: {what}; {}", self.counts());
            self.next(site);
        }
    }

    /// Agents in a state.
    pub fn in_state(&self, state: &str) -> usize {
        self.agents.values().filter(|agent| agent["state"] == state).count()
    }

    /// A cloud's health and what is said of it.
    pub fn cloud(&self, id: &str) -> (&str, &str) {
        let text = |name: &str| {
            self.clouds.get(id).and_then(|cloud| cloud[name].as_str()).unwrap_or_default()
        };
        (text("health"), text("detail"))
    }

    /// How many agents are in each state, for messages.
    pub fn counts(&self) -> String {
        let mut counts = BTreeMap::<&str, usize>::new();
        for agent in self.agents.values() {
            *counts.entry(agent["state"].as_str().unwrap_or("?")).or_default() += 1;
        }
        format!("agents: {counts:?}, leases: {}, clouds: {:?}", self.leases.len(), self.clouds)
    }
}

#[test]
fn an_answer_that_was_cut_off_or_is_no_json_is_no_answer() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
    let whole = format!("{head}{{\"one\":1}}");
    assert_eq!(read(&whole), Ok((200, json!({"one": 1}))));
    assert_eq!(read("HTTP/1.1 202 Accepted\r\n\r\n"), Ok((202, Value::Null)));
    let cut = |length: usize| read(&whole[..length]).unwrap_err();
    assert_eq!(cut(whole.len() - 1), "the body has 8 of 9 bytes");
    assert_eq!(cut(head.len()), "the body has 0 of 9 bytes");
    assert_eq!(cut(head.len() - 1), "the answer ends in its head");
    assert!(read(&format!("{head}123456789")).is_ok());
    assert!(read(&format!("{head}not JSON!")).unwrap_err().starts_with("no JSON, "));
}
