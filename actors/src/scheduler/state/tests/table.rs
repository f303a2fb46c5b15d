//! The life of one lease in the scheduler, drawn from `step` itself and compared with
//! `transitions.txt`: a lease that somebody asked for, and one for a job of a source.
//!
//! After a wanted change: `cargo test -p drover-actors scheduler::state` prints the new table.

use drover_model::state_machine::{Row, table};
use drover_model::time::Now;

use crate::demand::Level;

use super::sources::source;
use super::*;

const GOLDEN: &str = include_str!("../../transitions.txt");

/// Longer than a lease waits, and than an ended one is known.
const LONG: u64 = 1_000_000_000;

const STATES: [&str; 11] = [
    "unknown",
    "recording",
    "waiting",
    "assigned",
    "assigned, released",
    "ready",
    "ready, released",
    "cancelling",
    "ended",
    "job: assigned",
    "job: ready",
];

const EVENTS: [&str; 16] = [
    "Asked",
    "Recorded: durable",
    "Recorded: lost",
    "Decide: no agent is free",
    "Decide: an agent is free",
    "Decide: long after",
    "Release",
    "Cancelled: durable",
    "Cancelled: lost",
    "News: its agent has it",
    "News: its agent has it not",
    "News: its agent gave it back",
    "News: it is over on its agent",
    "News: its agent leaves",
    "News: its agent is gone",
    "RunnerDone",
];

struct Play {
    scheduler: Scheduler,
    spec: Arc<TemplateSpec>,
    lease: LeaseId,
}

impl Play {
    fn step(&mut self, event: Event, now: Now) -> Vec<Effect> {
        self.scheduler.effects_of(event, now, 7)
    }

    fn news(&mut self, change: impl FnOnce(&mut TemplateNews, AgentLevel)) -> Vec<Effect> {
        let mut changed = news(&self.spec, 0);
        change(&mut changed, level(&self.spec, "a1", IDLE, &[]));
        self.step(Event::News(Box::new(changed)), at(1))
    }

    fn reports(&mut self, change: impl FnOnce(&mut AgentLevel)) -> Vec<Effect> {
        self.news(|news, mut agent| {
            change(&mut agent);
            news.agents = vec![agent];
        })
    }

    fn state(&self) -> String {
        let Some(entry) = self.scheduler.lease(&self.lease) else { return "unknown".to_owned() };
        let word = match &entry.stand {
            Stand::Recording => "recording",
            Stand::Waiting => "waiting",
            Stand::Cancelling => "cancelling",
            Stand::Sent(_) => "assigned",
            Stand::On(_) => "ready",
            Stand::Ended(_) => "ended",
        };
        let job = if entry.ask.source.is_some() { "job: " } else { "" };
        let placed = matches!(entry.stand, Stand::Sent(_) | Stand::On(_));
        let released = if entry.releasing && placed { ", released" } else { "" };
        format!("{job}{word}{released}")
    }

    fn happen(&mut self, event: &str) -> Vec<Effect> {
        let (lease, now) = (self.lease.clone(), at(1));
        match event {
            "Asked" => {
                let asked = ask("l1", labels(&["linux"]), 0);
                self.step(Event::Asked(Box::new(asked)), now)
            }
            "Recorded: durable" => self.step(Event::Recorded(lease, true), now),
            "Recorded: lost" => self.step(Event::Recorded(lease, false), now),
            "Decide: no agent is free" => self.step(Event::Decide, now),
            "Decide: an agent is free" => {
                let mut free = news(&self.spec, 0);
                free.agents = vec![level(&self.spec, "a2", IDLE, &[])];
                self.step(Event::News(Box::new(free)), now);
                self.step(Event::Decide, now)
            }
            "Decide: long after" => self.step(Event::Decide, at(LONG)),
            "Release" => self.step(Event::Release(lease), now),
            "Cancelled: durable" => self.step(Event::Cancelled(lease, true), now),
            "Cancelled: lost" => self.step(Event::Cancelled(lease, false), now),
            "News: its agent has it" => self.reports(|agent| {
                let status = Arc::make_mut(&mut agent.status);
                status.standing = Standing::Busy;
                status.leases = vec![lease];
            }),
            "News: its agent has it not" => self.reports(|_| {}),
            "News: its agent gave it back" => self.reports(|agent| agent.refused = vec![lease]),
            "News: it is over on its agent" => self.reports(|agent| agent.over = vec![lease]),
            "News: its agent leaves" => {
                self.reports(|agent| Arc::make_mut(&mut agent.status).standing = Standing::Leaving)
            }
            "News: its agent is gone" => self.news(|news, mut agent| {
                Arc::make_mut(&mut agent.status).standing = Standing::Gone;
                news.gone = vec![agent];
            }),
            "RunnerDone" => self.step(Event::RunnerDone(lease, "done"), now),
            other => panic!("no such event: {other}"),
        }
    }

    /// A lease in this state, right after entering it, with the way there.
    fn in_state(wanted: &str) -> Self {
        let (scheduler, specs) = scheduler(&[("c/t", &["linux"], 0)]);
        let mut play = Self { scheduler, spec: specs[0].clone(), lease: LeaseId::new("l1") };
        let waiting = ["Asked", "Recorded: durable"];
        let assigned = [&waiting[..], &["News: its agent has it not", "Decide: no agent is free"]];
        let assigned = assigned.concat();
        let then = |more: &[&'static str]| [&assigned[..], more].concat();
        let way = match wanted {
            "unknown" => Vec::new(),
            "recording" => vec!["Asked"],
            "waiting" => waiting.to_vec(),
            "assigned" => assigned,
            "assigned, released" => then(&["Release"]),
            "ready" => then(&["News: its agent has it"]),
            "ready, released" => then(&["News: its agent has it", "Release"]),
            "cancelling" => [&waiting[..], &["Release"]].concat(),
            "ended" => then(&["News: its agent has it", "News: it is over on its agent"]),
            "job: assigned" | "job: ready" => {
                play.job_assigned();
                if wanted == "job: ready" { vec!["News: its agent has it"] } else { Vec::new() }
            }
            other => panic!("no such state: {other}"),
        };
        way.into_iter().for_each(|event| drop(play.happen(event)));
        assert_eq!(play.state(), wanted);
        play
    }

    fn job_assigned(&mut self) {
        let git = source("git", ShareSpec::default());
        let waits = Level { want: labels(&["linux"]), since: vec![at(0).wall] };
        self.step(Event::Shares(ShareSpec::default(), vec![git.clone()]), at(1));
        self.step(Event::Wanted(git.id.clone(), vec![waits], Vec::new()), at(1));
        self.happen("News: its agent has it not");
        let effects = self.happen("Decide: no agent is free");
        self.lease =
            effects
                .into_iter()
                .find_map(|effect| {
                    if let Effect::HandOut { ask, .. } = effect { Some(ask.lease) } else { None }
                })
                .unwrap();
        // The job is not wanted twice.
        self.step(Event::Wanted(git.id.clone(), Vec::new(), Vec::new()), at(1));
    }
}

fn word(effect: &Effect) -> String {
    if let Effect::Cancel { why, .. } = effect {
        return format!("Cancel({why})");
    }
    if let Effect::End { why, .. } = effect {
        return format!("End({why})");
    }
    let text = format!("{effect:?}");
    text.split([' ', '(']).next().unwrap_or_default().to_owned()
}

fn draw() -> String {
    let mut rows = Vec::new();
    for before in STATES {
        for event in EVENTS {
            let mut play = Play::in_state(before);
            let effects = play.happen(event).iter().map(word).collect();
            let (before, event) = (before.to_owned(), event.to_owned());
            rows.push(Row { before, event, after: play.state(), effects });
        }
    }
    table(&rows)
}

// Invariant: the life of a lease in the scheduler is the agreed one.

#[test]
fn the_table_drawn_from_the_code_is_the_one_agreed_on() {
    let drawn = draw();
    assert!(drawn == GOLDEN, "the table moved; it is:\n{drawn}");
}
