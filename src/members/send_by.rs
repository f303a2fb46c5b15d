//! Until when calls may be sent that change something.
//!
//! Both clocks count: the monotonic one stands still while a machine sleeps, and somebody may set the
//! wall clock back. Whichever is past closes the gate.
//!
//! Each service of a member has a handle of its own, which is closed for good when the lead ends or the next
//! service has its handle. What a service left behind, such as a call that waits in a thread that hangs, must
//! not go out when the member leads again.

use std::sync::Arc;

use drover_model::gate::Gate;
use drover_model::ports::Ambient;
use drover_model::time::Now;
use futures_util::FutureExt as _;
use tokio::sync::watch;

/// Until when a member, or one service of it, may send. Clones share it.
#[derive(Clone)]
pub struct SendBy {
    shared: watch::Sender<Shared>,
    /// The service that this is for; none for the member, whichever service it has.
    service: Option<u64>,
    ambient: Arc<dyn Ambient>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Shared {
    until: Option<Now>,
    /// The service that may send.
    service: u64,
}

impl SendBy {
    /// Nothing may be sent yet.
    pub fn new(ambient: Arc<dyn Ambient>) -> Self {
        Self { shared: watch::Sender::new(Shared::default()), service: None, ambient }
    }

    /// The same for a service that starts now; those before it send nothing any more.
    pub fn for_next_service(&self) -> Self {
        self.shared.send_modify(|shared| shared.service += 1);
        let service = Some(self.shared.borrow().service);
        Self { service, ..self.clone() }
    }

    /// From now on calls may be sent until then.
    pub(crate) fn extend(&self, until: Now) {
        self.shared.send_modify(|shared| shared.until = Some(until));
    }

    /// Nothing may be sent from now on, unless this is extended again.
    pub(crate) fn stop(&self) {
        self.shared.send_modify(|shared| shared.until = None);
    }

    /// The lead is over: nothing may be sent from now on, and never again by the service that could.
    pub(crate) fn end(&self) {
        self.shared.send_modify(|shared| {
            *shared = Shared { until: None, service: shared.service + 1 };
        });
    }

    /// Whether calls may be sent now.
    pub fn is_open(&self) -> bool {
        let (now, shared) = (self.ambient.now(), *self.shared.borrow());
        let last = self.service.is_none_or(|service| service == shared.service);
        last && shared.until.is_some_and(|until| now.mono < until.mono && now.wall < until.wall)
    }

    /// Lets calls through while they may be sent, and keeps the others waiting.
    pub fn gate(&self) -> Gate {
        let by = self.clone();
        Gate::new(Arc::new(move || {
            let by = by.clone();
            async move {
                let mut news = by.shared.subscribe();
                while !by.is_open() {
                    // The sender lives in `by`, so this cannot fail.
                    let _ = news.changed().await;
                }
            }
            .boxed()
        }))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use drover_model::time::{Moment, WallTime};

    use super::*;

    /// Clocks that stand still.
    struct Still;

    impl Ambient for Still {
        fn now(&self) -> Now {
            Now { mono: Moment(1000), wall: WallTime(1000) }
        }

        fn draw(&self) -> u64 {
            0
        }
    }

    fn until(millis: u64) -> Now {
        Now { mono: Moment(millis), wall: WallTime(i64::try_from(millis).unwrap()) }
    }

    fn lets_through(gate: &Gate) -> bool {
        gate.pass().now_or_never().is_some()
    }

    // Invariant: what a service left behind is never sent, though its member leads again.

    #[test]
    fn a_service_whose_lead_ended_sends_nothing_when_its_member_leads_again() {
        let member = SendBy::new(Arc::new(Still));
        let first = member.for_next_service();
        assert!(!first.is_open(), "it does not lead yet");
        member.extend(until(2000));
        assert!(first.is_open() && lets_through(&first.gate()));
        member.end();
        member.extend(until(3000));
        assert!(!first.is_open() && !lets_through(&first.gate()), "that was another lead");
        let second = member.for_next_service();
        assert!(second.is_open() && lets_through(&second.gate()) && member.is_open());
        member.stop();
        assert!(!second.is_open());
        member.extend(until(3000));
        assert!(second.is_open(), "it did not give up after all");
    }

    #[test]
    fn a_service_that_starts_in_the_same_term_closes_the_one_before() {
        let member = SendBy::new(Arc::new(Still));
        let first = member.for_next_service();
        member.extend(until(2000));
        let second = member.for_next_service();
        assert!(!first.is_open() && second.is_open());
        assert!(!lets_through(&first.gate()) && lets_through(&second.gate()));
    }
}
