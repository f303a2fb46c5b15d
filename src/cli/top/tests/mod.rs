//! A screen with answers, keys and events put in by hand; the time stands still unless a test moves it.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod actions;
mod flow;
mod screens;

use std::time::Duration;

use jiff::Timestamp;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use serde_json::{Value, json};

use super::super::options::TopNoun;
use super::draw::{Theme, screen};
use super::input::{Clock, Effect, Fault, FaultKind, Input};
use super::keys::Key;
use super::model::{Mode, Top};
use super::nouns::Ask;

const START: &str = "2026-11-28T08:00:00Z";

fn clock(ms: u64) -> Clock {
    let start: Timestamp = START.parse().unwrap();
    let since_start = Duration::from_millis(ms);
    Clock { since_start, wall: start + since_start }
}

/// A screen and the time.
struct Seat {
    top: Top,
    now_ms: u64,
}

impl Seat {
    fn new(noun: TopNoun, role: &str, size: (u16, u16)) -> Self {
        let top = Top::new("/run/drover/drover.sock", "drover", noun, false, clock(0));
        let mut seat = Self { top, now_ms: 0 };
        seat.step(Input::Size(size.0, size.1));
        let who = json!({ "principal": "token:ann", "role": role, "group": null });
        seat.step(Input::Who(Ok(serde_json::from_value(who).unwrap())));
        seat.step(Input::StreamOpen);
        seat.answer(Ask::Status, status());
        seat
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        let effects = self.top.step(input, clock(self.now_ms));
        self.top.settle_pane();
        effects
    }

    fn after(&mut self, ms: u64) -> Vec<Effect> {
        self.now_ms += ms;
        self.step(Input::Tick)
    }

    fn answer(&mut self, ask: Ask, answer: Value) {
        self.step(Input::Answer(ask, Ok(answer)));
    }

    /// Lets a question that is open be seen.
    fn sees(&mut self) {
        if matches!(self.top.mode, Mode::Confirm(_)) {
            self.now_ms += 400;
        }
    }

    /// Types a text at once, and gives what the last key came to.
    fn types(&mut self, text: &str) -> Vec<Effect> {
        self.sees();
        let keys = text.chars().map(|c| if c == '\n' { Key::Enter } else { Key::Char(c) });
        keys.map(|key| self.step(Input::Key(key))).last().unwrap_or_default()
    }

    fn key(&mut self, key: Key) -> Vec<Effect> {
        self.sees();
        self.step(Input::Key(key))
    }

    fn drawn(&self, color: bool) -> Buffer {
        let area = Rect::new(0, 0, self.top.size.0, self.top.size.1);
        let mut buffer = Buffer::empty(area);
        screen(&self.top, Theme { color }, area, &mut buffer);
        buffer
    }

    /// The screen as text; `>` stands before the row of the cursor.
    fn text(&self) -> String {
        let buffer = self.drawn(false);
        let rows = buffer.content.chunks(usize::from(buffer.area.width.max(1)));
        let lines = rows.map(|row| {
            let is_chosen = row[0].modifier.contains(ratatui::style::Modifier::REVERSED);
            let text: String = row.iter().map(Cell::symbol).collect();
            format!("{}{}", if is_chosen { '>' } else { ' ' }, text).trim_end().to_owned()
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The name of the thing that keys are about.
    fn subject(&self) -> String {
        self.top.subject().map(|entry| entry.name.clone()).unwrap_or_default()
    }
}

fn down(kind: FaultKind, text: &str) -> Fault {
    Fault { kind, text: text.to_owned() }
}

fn agent(id: &str, template: &str, state: &str, node: &str, detail: &str) -> Value {
    json!({
        "id": id, "template": template, "state": state, "since": "2026-11-28T07:58:00Z",
        "vmid": 10_000 + u32::from(id.as_bytes()[0]), "node": node,
        "ssh": {"host": "10.0.0.7", "port": 22, "user": "ci", "hostKey": null, "hostKeys": []},
        "leases": [], "uses": 0, "detail": detail,
        "phases": [{"state": "Queued", "ms": 900}, {"state": "Cloning", "ms": 8200},
            {"state": "Booting", "ms": 21_040}, {"state": "Preparing: cloud-init", "ms": 12_500}],
    })
}

fn agents() -> Value {
    json!({
        "agents": [
            agent("4f8z1c3qx9t2vkab", "lab/linux", "Booting", "pve1", "waits for its address"),
            agent("7kq0m2w8r5y1tdca", "lab/linux", "Ready", "pve2", ""),
            agent("9d3h6n1b7s4xfpea", "lab/windows", "Leased", "pve1", ""),
            agent("c2v5j8g0z3l9mwra", "lab/windows", "Stranded", "pve3", "evil\u{1b}[2J: its clone was refused"),
        ],
        "gone": [{"id": "a0a0a0a0b1b1b1b1", "template": "lab/linux", "reason": "used", "detail": "used up",
            "goneAt": "2026-11-28T07:50:00Z", "phases": [{"state": "Ready", "ms": 60_000}]}],
    })
}

fn template(id: &str, states: Value, breaker: &str) -> Value {
    json!({
        "id": id, "labels": ["linux", "x64"], "states": states, "cap": 8, "minimum": 0, "idleMinimum": 2,
        "breaker": breaker, "retryAt": null, "cause": null,
    })
}

fn templates() -> Value {
    json!({ "templates": [
        template("lab/linux", json!({"Booting": 1, "Ready": 1}), "flowing"),
        template("lab/windows", json!({"Leased": 1, "Stranded": 1}), "tripped"),
    ]})
}

fn nodes() -> Value {
    let node = |name: &str, cluster: &str| {
        json!({"cluster": cluster, "node": name, "state": "online", "agents": 2, "guests": 1,
            "room": null, "refuses": []})
    };
    json!({ "nodes": [node("pve1", "c1"), node("pve2", "c2")], "unread": [] })
}

fn leases() -> Value {
    json!({ "leases": [{
        "id": "lease-7ab1c2d3e4f5a6b7", "state": "waiting", "agent": null, "owner": "make", "principal": "token:ann",
        "wants": "linux", "askedAt": "2026-11-28T07:59:00Z", "expiresAt": null, "detail": "no agent is free",
        "ssh": null,
    }]})
}

fn status() -> Value {
    let cloud = |id: &str, cluster: &str, health: &str| {
        json!({"id": id, "cluster": cluster, "health": health, "version": "9.0.3", "detail": "", "agents": 4,
            "cap": 16, "managedBy": null, "toldAt": START})
    };
    json!({
        "version": "0.1.0", "ready": true, "journal": null,
        "config": {"generation": 3, "appliedAt": START, "refusedAt": null, "refusal": null},
        "clouds": [cloud("lab", "c1", "well"), cloud("rack", "c2", "connecting")],
        "templates": templates()["templates"], "agents": agents()["agents"], "leases": leases()["leases"],
        "alarms": [{"about": "agent c2v5j8g0z3l9mwra", "agent": "c2v5j8g0z3l9mwra",
            "text": "its clone was refused", "command": "drover resync", "since": START}],
        "sources": [{"id": "git", "kind": "gitea", "configured": true, "waiting": 7, "oldest": null,
            "running": 1, "runners": 1, "unoffered": 0, "ignored": 0, "unserved": 0, "lacks": [],
            "silentSince": null, "refusedSince": null, "refusal": null, "detail": null}],
        "reconciled": [], "restarts": [],
    })
}

fn happened(id: &str, state: &str) -> Input {
    let data = json!({"at": "2026-11-28T07:59:30Z", "kind": "agent",
        "agent": {"id": "4f8z1c3qx9t2vkab", "template": "lab/linux", "state": state, "detail": ""}});
    Input::Happened { id: id.to_owned(), kind: "agent".to_owned(), data: data.to_string() }
}
