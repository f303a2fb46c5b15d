//! What an event says, as one sentence for each kind.

use drover_model::phase::{BreakerPhase, LeasePhase};
use serde_json::Value;

use crate::{EventKind, count, faults_in_one_line, health};

/// One event in a line, by the word of its kind and its data.
pub fn sentence(kind: &str, value: &Value) -> String {
    let line = match EventKind::of(kind) {
        Some(kind) => of_kind(kind, &Event(value)),
        // A newer service may have more kinds than this command knows.
        None => {
            let mut rest = value.clone();
            if let Value::Object(rest) = &mut rest {
                rest.remove("at");
                rest.remove("kind");
            }
            format!("{kind} {rest}")
        }
    };
    line.trim_end().to_owned()
}

/// The data of an event.
struct Event<'a>(&'a Value);

impl Event<'_> {
    /// What stands at a path, as text; nothing where that is null or absent.
    fn text(&self, path: &str) -> String {
        self.given(path).unwrap_or_default()
    }

    fn given(&self, path: &str) -> Option<String> {
        match self.0.pointer(path)? {
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                Some(other.to_string())
            }
        }
    }

    fn list(&self, path: &str) -> &[Value] {
        self.0.pointer(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// A list of texts in one line.
    fn texts(&self, path: &str) -> String {
        let all = self.list(path).iter().filter_map(Value::as_str);
        all.collect::<Vec<_>>().join("; ")
    }

    fn number(&self, path: &str) -> usize {
        let number = self.0.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        usize::try_from(number).unwrap_or(usize::MAX)
    }
}

fn of_kind(kind: EventKind, event: &Event<'_>) -> String {
    let text = |path: &str| event.text(path);
    match kind {
        EventKind::ConfigApplied => {
            format!("configuration generation {} is in force", text("/generation"))
        }
        EventKind::ConfigRefused => {
            format!(
                "configuration REFUSED, the old one stays: {}",
                faults_in_one_line(&text("/text"))
            )
        }
        EventKind::ConfigSynced => {
            let commit = text("/commit");
            let short = commit.get(..12).unwrap_or(&commit);
            format!("git commit {short} is in force: {}", text("/subject"))
        }
        EventKind::ConfigNotSynced => {
            format!(
                "configuration NOT SYNCED with git, the old one stays: {}",
                faults_in_one_line(&text("/text"))
            )
        }
        EventKind::Ordered => format!("{} {}", text("/by"), text("/order")),
        EventKind::Agent => {
            let (id, template) = (text("/agent/id"), text("/agent/template"));
            let state = text("/agent/state");
            because(format!("agent {id} of {template} is {state}"), &text("/agent/detail"))
        }
        EventKind::Step => {
            let (id, step) = (text("/step/agent"), text("/step/name"));
            let how = match event.given("/step/exit") {
                Some(exit) => format!("with {exit}"),
                None => "by a signal or its time limit".to_owned(),
            };
            because(format!("agent {id}: its step {step} ended {how}"), &text("/step/log"))
        }
        EventKind::AgentGone => {
            format!("agent {} gone: {}", text("/agent/id"), text("/agent/detail"))
        }
        EventKind::Alarm => {
            format!("ALARM agent {}: {}", text("/alarm/agent"), text("/alarm/text"))
        }
        EventKind::Lease => {
            let state = match text("/lease/state").as_str() {
                ended if ended == LeasePhase::Ended.name() => "has ended".to_owned(),
                other => format!("is {other}"),
            };
            because(format!("lease {} {state}", text("/lease/id")), &text("/lease/detail"))
        }
        EventKind::Template => template(event),
        EventKind::Breaker => {
            let until = event.given("/breaker/retryAt").map(|at| format!(" until {at}"));
            let cause = event.given("/breaker/cause").map(|cause| format!(": {cause}"));
            format!(
                "breaker {} is {}{}{}",
                text("/breaker/id"),
                text("/breaker/state"),
                until.unwrap_or_default(),
                cause.unwrap_or_default()
            )
        }
        EventKind::Resets => {
            let resets = count(event.number("/resets/count"), "reset");
            let detail = match text("/resets/detail") {
                detail if detail.is_empty() => detail,
                detail => format!("; {detail}"),
            };
            format!("template {}: {resets} went well{detail}", text("/template"))
        }
        EventKind::HoldNext => match event.given("/seconds") {
            Some(seconds) => {
                format!("template {}: the next failure is held for {seconds} s", text("/template"))
            }
            None => format!("template {}: no failure is held", text("/template")),
        },
        EventKind::TemplateGone => {
            format!("template {} is gone: it left the configuration", text("/template"))
        }
        EventKind::Cloud => {
            let word = text("/cloud/health");
            // A newer service may have a word that this command does not know.
            let health = word.parse().map_or(word, |known| health(known).to_owned());
            because(format!("cloud {} is {health}", text("/cloud/id")), &text("/cloud/detail"))
        }
        EventKind::CloudGone => {
            format!("cloud {} is gone: it left the configuration", text("/cloud"))
        }
        EventKind::Source => source(event),
        EventKind::SourceGone => {
            format!("source {} is gone: it left the configuration", text("/source"))
        }
        EventKind::JobLost => {
            let job = event.given("/job/job").unwrap_or_else(|| "-".to_owned());
            format!("LOST job {job} of {} with agent {}", text("/job/source"), text("/job/agent"))
        }
        EventKind::OtherDrover if event.list("/why").is_empty() => {
            "nothing speaks for another drover any more".to_owned()
        }
        EventKind::OtherDrover => {
            format!("ALARM another drover may own agents: {}", event.texts("/why"))
        }
        EventKind::AddressPools => {
            let pools = event.list("/addressPools").iter().map(Event);
            let pools = pools.map(|pool| {
                format!(
                    "{} has {} of {} free",
                    pool.text("/id"),
                    pool.text("/free"),
                    pool.text("/size")
                )
            });
            match pools.collect::<Vec<_>>() {
                pools if pools.is_empty() => "address pools: none".to_owned(),
                pools => format!("address pools: {}", pools.join("; ")),
            }
        }
        EventKind::Image => {
            let (build, image) = (text("/image/build"), text("/image/image"));
            let (node, state) = (text("/image/node"), text("/image/state"));
            let line = format!("build {build} of image {image} on {node} is {state}");
            because(line, &text("/image/detail"))
        }
        EventKind::Machine => {
            let (name, state) = (text("/machine/name"), text("/machine/state"));
            let line = format!("machine {name} is {state} and {}", text("/machine/power"));
            because(line, &text("/machine/detail"))
        }
        EventKind::Reconciled => match event.given("/unread") {
            Some(why) => format!("cluster {} was not reconciled: {why}", text("/cluster")),
            None => {
                let findings = count(event.list("/findings").len(), "finding");
                let each = event.texts("/findings");
                let each = if each.is_empty() { each } else { format!(": {each}") };
                format!("cluster {} reconciled, {findings}{each}", text("/cluster"))
            }
        },
        EventKind::Restarted => {
            let times = count(event.number("/count"), "restart");
            let (actor, is_over) = (text("/actor"), event.0["gaveUp"] == true);
            match is_over {
                true => format!("GIVEN UP {actor} panicked, {times} in a row"),
                false => format!("{actor} panicked and was started again, {times} in a row"),
            }
        }
        EventKind::Lagged if event.given("/after").is_some() => {
            let since = match &*text("/after") {
                "0-0" => String::new(),
                after => format!(" after {after} and"),
            };
            let before = text("/before");
            format!(
                "events{since} before {before} are not known to the member that leads now: another one led \
                 then"
            )
        }
        EventKind::Lagged => match event.given("/missed") {
            Some(missed) => format!("missed {missed} events; look at `drover status`"),
            None => "missed events of an earlier start; look at `drover status`".to_owned(),
        },
    }
}

/// A sentence and what there is to say of it, if anything.
fn because(line: String, detail: &str) -> String {
    if detail.is_empty() { line } else { format!("{line}: {detail}") }
}

fn template(event: &Event<'_>) -> String {
    let states = event.0.pointer("/template/states").and_then(Value::as_object);
    let states = states.into_iter().flatten().filter(|(_, count)| count.as_u64() != Some(0));
    let states: Vec<String> = states.map(|(state, count)| format!("{count} {state}")).collect();
    let states = if states.is_empty() { "no agents".to_owned() } else { states.join(", ") };
    let breaker = match event.text("/template/breaker") {
        // What works as it should needs no word in each line.
        breaker if breaker == BreakerPhase::Closed.name() => String::new(),
        breaker => format!("; its breaker is {breaker}"),
    };
    format!("template {} has {states}{breaker}", event.text("/template/id"))
}

fn source(event: &Event<'_>) -> String {
    let text = |path: &str| event.text(path);
    let waiting = count(event.number("/source/waiting"), "job");
    let running = event.number("/source/running");
    let silent = event.given("/source/silentSince");
    let silent = silent
        .map(|since| format!("; it cannot be polled since {since}: {}", text("/source/detail")));
    let refused = event.given("/source/refusedSince");
    let refused = refused.map(|since| {
        format!("; it lets no runner be made since {since}: {}", text("/source/refusal"))
    });
    format!(
        "source {}: {waiting} waiting, {running} running{}{}",
        text("/source/id"),
        silent.unwrap_or_default(),
        refused.unwrap_or_default()
    )
}
