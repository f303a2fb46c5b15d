//! The last calls about each guest, for people who look for what went wrong with it.
//!
//! A call is about the guest that its path names, or the task in its path; a clone is about the guest that it
//! makes. Bodies are not kept, so no secret is. Nothing is decided by it.
//!
//! Calls that are asked again and again, such as the state of a guest that boots, are one entry with a count.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use drover_model::time::Moment;
use proxmox_client::call_route::CallOutcome;
use proxmox_client::error::Call;
use proxmox_client::refusal::bounded;
use proxmox_client::transport::{Reply, TransportError};
use proxmox_client::upid::task_guest;

/// Different calls that are kept of one guest: the last ones.
const CALLS_MAX: usize = 32;
/// Guests whose calls are kept: those of the last calls.
const GUESTS_MAX: usize = 2048;

/// A call about a guest, or several of the same kind that ended the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestCall {
    pub method: &'static str,
    /// Below `/api2/json`, without parameters.
    pub path: String,
    /// The HTTP status of the answer, or how the call ended without one.
    pub outcome: String,
    /// How long the last of them took.
    pub took: Duration,
    /// How long ago the last of them ended.
    pub age: Duration,
    /// How many they are.
    pub times: u32,
}

/// One kind of call that is kept.
#[derive(Debug)]
struct Kept {
    call: Call,
    end: End,
    took: Duration,
    at: Moment,
    times: u32,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Status(u16),
    None(CallOutcome),
}

impl End {
    pub(crate) fn of(outcome: &Result<Reply, TransportError>) -> Self {
        match outcome {
            Ok(reply) => Self::Status(reply.status),
            Err(_) => Self::None(CallOutcome::of(outcome)),
        }
    }

    fn text(self) -> String {
        match self {
            Self::Status(status) => status.to_string(),
            Self::None(outcome) => outcome.name().to_owned(),
        }
    }
}

/// The last calls about each guest.
#[derive(Debug, Default)]
pub(crate) struct RecentCalls(HashMap<u32, VecDeque<Kept>>);

impl RecentCalls {
    /// Takes in a call about this guest that ended.
    pub(crate) fn note(
        &mut self,
        guest: u32,
        call: Call,
        end: End,
        (at, took): (Moment, Duration),
    ) {
        if self.0.len() >= GUESTS_MAX && !self.0.contains_key(&guest) {
            self.drop_oldest();
        }
        let calls = self.0.entry(guest).or_default();
        let same = calls.iter().position(|kept| kept.call == call && kept.end == end);
        let before = same.and_then(|at| calls.remove(at)).map_or(0, |kept| kept.times);
        calls.push_back(Kept { call, end, took, at, times: before.saturating_add(1) });
        if calls.len() > CALLS_MAX {
            calls.pop_front();
        }
    }

    fn drop_oldest(&mut self) {
        let last = |calls: &VecDeque<Kept>| calls.back().map(|kept| kept.at);
        let oldest = self.0.iter().min_by_key(|(guest, calls)| (last(calls), **guest));
        if let Some(oldest) = oldest.map(|(guest, _)| *guest) {
            self.0.remove(&oldest);
        }
    }

    /// The last calls about a guest that ended within this span, the oldest first.
    pub(crate) fn of(&self, guest: u32, now: Moment, span: Duration) -> Vec<GuestCall> {
        let calls = self.0.get(&guest).into_iter().flatten();
        let shown = calls.filter(|kept| now - kept.at <= span).map(|kept| GuestCall {
            method: kept.call.method.as_str(),
            path: bounded(&kept.call.path),
            outcome: kept.end.text(),
            took: kept.took,
            age: now - kept.at,
            times: kept.times,
        });
        shown.collect()
    }
}

/// The guest that a call is about, as its path says.
pub(crate) fn guest_of(call: &Call) -> Option<u32> {
    let mut parts = call.path.split('/').filter(|part| !part.is_empty()).skip(2);
    match parts.next()? {
        "qemu" | "lxc" => parts.next()?.parse().ok(),
        "tasks" => task_guest(&parts.next()?.replace("%3A", ":")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proxmox_client::transport::Method;

    const OK: End = End::Status(200);

    fn call(path: &str) -> Call {
        Call::new(Method::Get, path)
    }

    fn at(second: u64) -> (Moment, Duration) {
        (Moment(0) + Duration::from_secs(second), Duration::from_millis(40))
    }

    // Invariant: a call is kept with the guest that it is about, and with no other.

    #[test]
    fn a_call_is_about_the_guest_of_its_path_or_of_its_task() {
        for (path, guest) in [
            ("/nodes/pve1/qemu/101/config", Some(101)),
            ("/nodes/pve1/lxc/102/status/current", Some(102)),
            ("/nodes/pve1/qemu/101", Some(101)),
            ("/nodes/pve1/tasks/UPID:pve1:1:2:3:qmstart:101:a@pve:/status", Some(101)),
            ("/nodes/pve1/tasks/UPID%3Apve1%3A1%3A2%3A3%3Aqmstart%3A101%3Aa@pve%3A/log", Some(101)),
            ("/nodes/pve1/qemu", None),
            ("/nodes/pve1/tasks", None),
            ("/cluster/resources", None),
            ("/version", None),
        ] {
            assert_eq!(guest_of(&call(path)), guest, "{path}");
        }
    }

    #[test]
    fn calls_that_are_asked_again_are_one_entry_unless_they_end_otherwise() {
        let mut recent = RecentCalls::default();
        for second in 0..100 {
            recent.note(101, call("/a"), OK, at(second));
            recent.note(101, call("/b"), End::None(CallOutcome::TimedOut), at(second));
        }
        recent.note(101, call("/a"), End::Status(500), at(100));
        recent.note(102, call("/c"), OK, at(100));
        let shown = recent.of(101, at(101).0, Duration::from_secs(60));
        let shown: Vec<_> = shown
            .iter()
            .map(|one| (&*one.path, &*one.outcome, one.times, one.age.as_secs()))
            .collect();
        assert_eq!(shown, [("/a", "200", 100, 2), ("/b", "timeout", 100, 2), ("/a", "500", 1, 1)]);
    }

    // Invariant: what is kept has a bound, and a guest of before that had the same VMID is left out.

    #[test]
    fn the_last_calls_of_the_last_guests_are_kept() {
        let mut recent = RecentCalls::default();
        for number in 0..100 {
            recent.note(101, call(&format!("/{number}")), OK, at(number));
        }
        let kept = recent.of(101, at(100).0, Duration::MAX);
        assert_eq!((kept.len(), &*kept[0].path), (CALLS_MAX, "/68"));
        assert_eq!(recent.of(101, at(100).0, Duration::from_secs(2)).len(), 2);
        for guest in 0..GUESTS_MAX {
            recent.note(u32::try_from(guest).unwrap_or(0) + 1000, call("/x"), OK, at(200));
        }
        assert_eq!(
            (recent.0.len(), recent.of(101, at(200).0, Duration::MAX).len()),
            (GUESTS_MAX, 0)
        );
    }
}
