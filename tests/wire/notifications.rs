//! Messages about what is wrong, from a real service to those who take them: a webhook that checks its
//! signature, a real mail server (mailpit), and what stands in for ntfy.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::harness::{Events, Kept, Lines, Service, Site, WAIT_LIMIT, world};
use crate::open::free_port;
use crate::parity::yaml;

/// A block of HMAC-SHA256, so that it is the key itself.
const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const PASSWORD: &str = "Test-only-1";

/// A call as it came over the line.
struct Call {
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Call {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map_or("", |(_, value)| value.as_str())
    }
}

/// A server that answers each call as `answer` says, and passes on those that it took.
fn serve(answer: impl Fn(&Call) -> (u16, String) + Send + 'static) -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (taken, messages) = channel();
    std::thread::spawn(move || {
        for line in listener.incoming().map_while(Result::ok) {
            let call = read(&line);
            let (status, said) = answer(&call);
            let length = said.len();
            let head = format!(
                "HTTP/1.1 {status} So\r\ncontent-length: {length}\r\nconnection: close\r\n"
            );
            let _ = (&line).write_all(format!("{head}\r\n{said}").as_bytes());
            let body = serde_json::from_str(&call.body).unwrap_or_default();
            if status == 200 && taken.send(body).is_err() {
                break;
            }
        }
    });
    (url, messages)
}

fn read(line: &TcpStream) -> Call {
    line.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    let mut reader = BufReader::new(line);
    let mut next = || {
        let mut text = String::new();
        reader.read_line(&mut text).unwrap();
        text.trim_end().to_owned()
    };
    let first = next();
    let words: Vec<&str> = first.split(' ').collect();
    assert_eq!((words[0], words.len()), ("POST", 3), "{first}");
    let path = words[1].to_owned();
    let mut headers = Vec::new();
    while let Some((name, value)) = next().split_once(": ") {
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let call = Call { path, headers, body: String::new() };
    let mut body = vec![0; call.header("content-length").parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    Call { body: String::from_utf8(body).unwrap(), ..call }
}

/// Takes what is signed, and nothing else.
fn strict(call: &Call) -> (u16, String) {
    let timestamp = call.header("x-drover-timestamp");
    let mut mac = Hmac::<Sha256>::new(&(*<&[u8; 64]>::try_from(SECRET.as_bytes()).unwrap()).into());
    mac.update(format!("{timestamp}.{}", call.body).as_bytes());
    let digits = mac.finalize().into_bytes();
    let digits: String = digits.iter().map(|byte| format!("{byte:02x}")).collect();
    let body: Value = serde_json::from_str(&call.body).unwrap_or_default();
    let is_signed = call.header("x-drover-signature") == format!("sha256={digits}");
    let is_json = call.header("content-type") == "application/json";
    let is_named = body["id"] == call.header("x-drover-message") && call.path == "/hook/hidden";
    match is_signed && is_json && is_named {
        true => (200, "taken".to_owned()),
        false => (403, "wrong signature for /hook/hidden".to_owned()),
    }
}

/// The names in a part of a message.
fn names(message: &Value, part: &str) -> Vec<String> {
    let all = message[part].as_array().unwrap_or_else(|| panic!("{message}"));
    all.iter().map(|one| one["about"].as_str().unwrap().to_owned()).collect()
}

fn next(messages: &Receiver<Value>) -> Value {
    messages.recv_timeout(WAIT_LIMIT).unwrap()
}

/// A configuration with these notifications.
fn with_notify(site: &Site, text: &str, notify: &str) -> String {
    site.write_secret("hook", SECRET);
    site.write_secret("password", PASSWORD);
    let notify = format!("\nservice:\n  notify: {{groupSec: 1, recoverySec: 1, {notify}}}\n");
    text.replacen("\nservice:\n", &notify, 1)
}

// Invariant: what goes wrong and its end are one message each, over a kill, too; nobody can forge one.

#[test]
fn what_fails_is_sent_once_over_a_kill_and_its_end_is_sent() {
    let (_dir, sim, site) = world();
    let (url, messages) = serve(strict);
    let broken = "readyCommand: \"exit 3\", breakerThreshold: 1, breakerCooldownSec: 600";
    let text = yaml(&site, &sim, &[], &[("broken", broken)]);
    let hook = format!(
        "pageUrl: \"https://drover.lan\", webhooks: [{{name: ops, url: \"{url}/hook/hidden\", \
         signing: {{secretFile: \"{}\"}}}}]",
        site.dir.path().join("hook").display()
    );
    // A source that nobody serves.
    let port = free_port();
    let dead = format!(
        "{}demand:\n  git: {{kind: gitea, url: \"http://127.0.0.1:{port}\", \
         credentialsId: forge, labels: [linux]}}\n",
        with_notify(&site, &text, &hook)
    );
    let dir = site.dir.path().display();
    site.write_secret("forge", "Test-only-token");
    let credential =
        format!("\ncredentials:\n  forge: {{kind: apiToken, secretFile: \"{dir}/forge\"}}\n");
    let text = dead.replacen("\ncredentials:\n", &credential, 1);
    site.write_yaml(&text);
    let mut service = Service::start(&site);
    let first = next(&messages);
    assert_eq!(names(&first, "opened"), ["source git"], "{first}");
    assert_eq!((&first["severity"], &first["standing"]), (&json!("critical"), &json!(1)));
    let since = first["opened"][0]["since"].clone();

    service.child.signal("KILL");
    service.child.wait();
    let (mut service, mut log) = Service::start_logged(&site);
    let mut events = Events::follow(&site);
    assert!(site.cli(&["provision", "broken"]).status.success());
    let mut opened = next(&messages);
    // drover ended before it kept that the first was taken: the second has the id of the first.
    if opened["id"] == first["id"] {
        opened = next(&messages);
    }
    assert_eq!(names(&opened, "opened"), ["breaker lab/broken"], "{opened}");
    assert_eq!(opened["opened"][0]["link"], "https://drover.lan/templates/lab/broken");
    assert_eq!(opened["standing"], 2);

    site.write_yaml(&format!("{text}nonsense: 1\n"));
    events.until("configRefused", |_| true);
    let refused = next(&messages);
    assert_eq!(names(&refused, "opened"), ["configuration"], "{refused}");
    assert!(refused["text"].as_str().unwrap().contains("run: drover check"), "{refused}");
    site.write_yaml(&text);
    let repaired = next(&messages);
    assert_eq!(names(&repaired, "recovered"), ["configuration"], "{repaired}");
    assert!(site.cli(&["breakers", "reset", "broken"]).status.success());
    let closed = next(&messages);
    assert_eq!(names(&closed, "recovered"), ["breaker lab/broken"], "{closed}");
    assert_eq!((names(&closed, "opened").len(), &closed["standing"]), (0, &json!(1)));
    assert!(since.is_string() && closed["recovered"][0]["until"].is_string());

    let book = fs::read_to_string("src/book/notifications.md").unwrap();
    let blocks = book.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let blocks: Vec<Value> = blocks.map(|text| serde_json::from_str(text).unwrap()).collect();
    let [example, schema] = &blocks[..] else { panic!("{blocks:?}") };
    for message in [example, &first, &opened, &refused, &repaired, &closed] {
        conforms(message, schema);
    }
    service.child.signal("TERM");
    assert_eq!(service.child.wait(), Some(0));
    let said = log.rest();
    assert!(said.contains("notification sent") && !said.contains("hidden"), "{said}");
}

/// Whether a message has the keys of its schema and no other.
fn conforms(message: &Value, schema: &Value) {
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(keys(message), keys(&schema["properties"]));
    for part in ["opened", "recovered", "stillStanding"] {
        for item in message[part].as_array().unwrap() {
            assert_eq!(keys(item), keys(&schema["$defs"]["trouble"]["properties"]));
        }
    }
}

// Invariant: a refusal is shown with the server's words and without secrets, and is an alarm.

#[test]
fn a_webhook_that_refuses_is_an_alarm_and_its_url_is_shown_nowhere() {
    let (_dir, sim, site) = world();
    let (url, _refused) = serve(strict);
    let (other, messages) = serve(|_| (200, String::new()));
    let hooks = format!(
        "webhooks: [{{name: ops, url: \"{url}/hook/hidden\"}}, {{name: chat, url: \"{other}/x\", format: slack}}]"
    );
    let broken = "readyCommand: \"exit 3\", breakerThreshold: 1, breakerCooldownSec: 600";
    let text = yaml(&site, &sim, &[], &[("broken", broken)]);
    site.write_yaml(&with_notify(&site, &text, &hooks));
    let _service = Service::start(&site);
    let out = site.cli(&["notify", "test", "ops"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    assert!(said.starts_with("FAIL  ops"), "{said}");
    assert!(said.contains("403") && said.contains("wrong signature"), "{said}");
    assert!(site.cli(&["provision", "broken"]).status.success());
    // One message, or one after the other: whether the refusal comes in time for the first.
    let mut shown = String::new();
    while !(shown.contains("breaker lab/broken") && shown.contains("channel ops")) {
        let text = next(&messages)["text"].as_str().unwrap().to_owned();
        assert!(text.starts_with("*[drover "), "{text}");
        shown += &text;
    }
    assert!(shown.contains("403"), "{shown}");
    let alarms = site.json(&["alarms"]).to_string();
    assert!(alarms.contains("drover notify test ops"), "{alarms}");
    let out = site.cli(&["notify", "test", "nobody"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("no channel `nobody`"), "{out:?}");
    for shown in [alarms, shown, said] {
        assert!(!shown.contains("hook/hidden"), "{shown}");
    }
}

/// A mailpit, a real mail server that keeps what it takes: `tests/all` has built it.
struct Mailpit {
    port: u16,
    api: String,
    _child: Kept,
    _lines: Lines,
}

impl Mailpit {
    /// Starts one that wants STARTTLS and a login, and takes mail for one domain.
    fn start(site: &Site) -> Self {
        let program = std::env::var_os("DROVER_TEST_MAILPIT").map(PathBuf::from);
        let program = program.unwrap_or_else(|| {
            panic!("DROVER_TEST_MAILPIT is not set: run the tests by tests/all")
        });
        let dir = site.dir.path();
        let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        fs::write(dir.join("mail.pem"), certified.cert.pem()).unwrap();
        fs::write(dir.join("mail.key"), certified.signing_key.serialize_pem()).unwrap();
        fs::write(dir.join("users"), format!("drover:{PASSWORD}\n")).unwrap();
        let (port, web) = (free_port(), free_port());
        let api = format!("http://127.0.0.1:{web}/api/v1");
        let at = |name: &str| dir.join(name).display().to_string();
        let mut command = Command::new(program);
        command.args([
            "--smtp",
            &format!("127.0.0.1:{port}"),
            "--listen",
            &format!("127.0.0.1:{web}"),
        ]);
        command.args(["--smtp-auth-file", &at("users"), "--smtp-require-starttls"]);
        command.args(["--smtp-tls-cert", &at("mail.pem"), "--smtp-tls-key", &at("mail.key")]);
        command.args(["--smtp-allowed-recipients", "@lan\\.example$", "--smtp-disable-rdns"]);
        command.args(["--disable-version-check"]).env("HOME", dir).stdin(Stdio::null());
        let mut child = Kept(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        let mut lines = Lines::of("mailpit", child.0.stdout.take().unwrap());
        lines.until(|line| line.contains("accessible via"));
        Self { port, api, _child: child, _lines: lines }
    }

    fn get(&self, path: &str) -> Value {
        let url = format!("{}{path}", self.api);
        let out = Command::new("curl").args(["-sSf", "--max-time", "10", &url]).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    }
}

// Invariant: mail goes encrypted to a server that is proven, and every refusal is said with the server's words.

#[test]
fn mail_reaches_a_real_server_by_starttls_and_each_refusal_is_named() {
    let (_dir, sim, site) = world();
    let mailpit = Mailpit::start(&site);
    let dir = site.dir.path().display();
    let port = mailpit.port;
    site.write_secret("wrong", "Test-only-2");
    let mail = |name: &str, password: &str, to: &str, more: &str| {
        format!(
            "{{name: {name}, server: \"localhost:{port}\", from: \"drover <drover@lan.example>\", \
             to: [{to}], login: {{username: drover, secretFile: \"{dir}/{password}\"}}{more}}}"
        )
    };
    let trusted = format!(", caFile: \"{dir}/mail.pem\"");
    let good =
        mail("good", "password", "ops@lan.example, \"Ops Zwei <zwei@lan.example>\"", &trusted);
    let all = [
        good,
        mail("login", "wrong", "ops@lan.example", &trusted),
        mail("some", "password", "ops@lan.example, nobody@elsewhere.example", &trusted),
        mail("none", "password", "nobody@elsewhere.example", &trusted),
        mail("proof", "password", "ops@lan.example", ""),
    ];
    let notify = format!("mails: [{}]", all.join(", "));
    site.write_yaml(&with_notify(&site, &site.yaml(&sim, ""), &notify));
    let _service = Service::start(&site);
    let out = site.cli(&["--json", "notify", "test"]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let tested: Value = serde_json::from_slice(&out.stdout).unwrap();
    let said = |name: &str| {
        let all = tested["channels"].as_array().unwrap();
        let one = all.iter().find(|one| one["channel"] == name).unwrap();
        (one["taken"].as_bool().unwrap(), one["answer"].as_str().unwrap().to_owned())
    };
    for (name, taken, parts) in [
        ("good", true, vec!["250"]),
        ("login", false, vec!["login", "535"]),
        ("some", false, vec!["250", "recipient nobody@elsewhere.example", "550"]),
        ("none", false, vec!["recipient nobody@elsewhere.example", "550"]),
        ("proof", false, vec!["STARTTLS", "certificate"]),
    ] {
        let (is_taken, answer) = said(name);
        assert_eq!(is_taken, taken, "{name}: {answer}");
        assert!(parts.iter().all(|part| answer.contains(part)), "{name}: {answer}");
        assert!(!answer.contains("Test-only"), "{answer}");
    }
    let out = site.cli(&["--config", &site.config().display().to_string(), "--json", "doctor"]);
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let found = |at: usize| report["channels"][at]["lines"][0].clone();
    let good = found(0)["text"].as_str().unwrap().to_owned();
    assert!(good.contains("over TLS, with the login"), "{good}");
    assert_eq!((&found(1)["mark"], &found(4)["mark"]), (&json!("fail"), &json!("fail")));
    let kept = mailpit.get("/messages");
    let kept = kept["messages"].as_array().unwrap();
    assert_eq!(kept.len(), 2, "{kept:?}");
    let one = kept.iter().find(|one| one["To"][1]["Name"] == "Ops Zwei").unwrap();
    let one = mailpit.get(&format!("/message/{}", one["ID"].as_str().unwrap()));
    let subject = one["Subject"].as_str().unwrap();
    assert!(
        subject.starts_with("[drover ") && subject.ends_with("a test of channel good"),
        "{one}"
    );
    assert_eq!(
        (&one["From"]["Name"], &one["From"]["Address"]),
        (&json!("drover"), &json!("drover@lan.example"))
    );
    assert!(one["Text"].as_str().unwrap().contains("Nothing is wrong"), "{one}");
    let headers = mailpit.get(&format!("/message/{}/headers", one["ID"].as_str().unwrap()));
    assert_eq!(headers["Auto-Submitted"], json!(["auto-generated"]), "{headers}");
}

/// Stands in for a server of ntfy, as its documentation of v2 has it ("Publish as JSON", "Authentication", limits
/// of messages): a POST to the root, a topic, a message of at most 4,096 bytes, a priority of 1 to 5.
fn ntfy(call: &Call) -> (u16, String) {
    if call.header("authorization") != format!("Bearer {PASSWORD}") {
        return (401, json!({"code": 40101, "http": 401, "error": "unauthorized"}).to_string());
    }
    let body: Value = serde_json::from_str(&call.body).unwrap_or_default();
    let known = ["topic", "title", "message", "priority", "tags", "click"];
    let is_known =
        body.as_object().is_some_and(|all| all.keys().all(|key| known.contains(&&**key)));
    let is_sound = body["topic"] == "drover-ops"
        && body["message"].as_str().is_some_and(|text| (1..=4096).contains(&text.len()))
        && body["title"].is_string()
        && body["priority"].as_u64().is_some_and(|number| (1..=5).contains(&number))
        && body["tags"].as_array().is_some_and(|tags| tags.iter().all(Value::is_string));
    match call.path == "/" && is_known && is_sound {
        true => (200, json!({"id": "hwQ2YpKdmg", "event": "message"}).to_string()),
        false => (400, json!({"code": 40024, "http": 400, "error": "invalid request"}).to_string()),
    }
}

// Invariant: a phone gets a title, a text and a link, and a wrong token is named.

#[test]
fn a_phone_gets_what_is_wrong_and_a_wrong_token_is_named() {
    let (_dir, sim, site) = world();
    let (url, messages) = serve(ntfy);
    site.write_secret("wrong", "Test-only-2");
    let dir = site.dir.path().display();
    let topic = |name: &str, secret: &str| {
        format!(
            "{{name: {name}, server: \"{url}\", topic: drover-ops, access: {{secretFile: \"{dir}/{secret}\"}}, \
             quietKinds: [channel]}}"
        )
    };
    let all = [topic("phone", "password"), topic("old", "wrong")].join(", ");
    let broken = "readyCommand: \"exit 3\", breakerThreshold: 1, breakerCooldownSec: 600";
    let text = yaml(&site, &sim, &[], &[("broken", broken)]);
    let notify = format!("pageUrl: \"https://drover.lan/\", ntfy: [{all}]");
    site.write_yaml(&with_notify(&site, &text, &notify));
    let _service = Service::start(&site);
    let out = site.cli(&["notify", "test"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("ok    phone") && said.contains("unauthorized"), "{said}");
    assert_eq!(next(&messages)["priority"], 3);
    assert!(site.cli(&["provision", "broken"]).status.success());
    let opened = next(&messages);
    assert_eq!((&opened["priority"], &opened["click"]), (&json!(4), &json!("https://drover.lan/")));
    assert!(opened["title"].as_str().unwrap().contains("breaker lab/broken"), "{opened}");
}
