//! The longest wait for an answer of a port, so that a call which never comes back blocks no actor
//! for ever.
//!
//! The ports have limits of their own, which are shorter. This layer is the net beneath them. Each
//! call's limit is in its row of `drover_model::operations`.

use drover_model::fault::{Fault, FaultKind};
use drover_model::layer::{Layer, PortCall, Reply};
use drover_model::ports::{Ask, Ports};

/// The ports with a limit on every wait. The journal has none: an append cannot be taken back, and
/// nothing may be done before it is durable.
pub fn patient(ports: Ports) -> Ports {
    ports.under(&TimeLimits)
}

#[derive(Clone)]
struct TimeLimits;

impl Layer for TimeLimits {
    /// The limit counts from the first poll: a call may wait for its turn before.
    fn ask<T: Reply>(&self, call: PortCall, make: impl Fn() -> Ask<T>) -> Ask<T> {
        let answer = make();
        Box::pin(async move {
            let PortCall { name, changes, limit, culprit, .. } = call;
            tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| {
                let limit_s = limit.as_secs();
                tracing::error!(call = name, changes, limit_s, "call through a port is given up");
                let text = format!("`{name}` was not answered within {limit_s} s");
                Err(Fault::new(FaultKind::UnknownOutcome, culprit, text))
            })
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use drover_model::container::GuestType;
    use drover_model::fault::Culprit;
    use drover_model::id::{CloudId, NodeName, VmId};
    use drover_model::layer::Layered;
    use drover_model::ports::{FakeHypervisor, Hypervisor, VmRef};

    use super::*;

    /// A cluster that never answers.
    struct Silent;

    impl FakeHypervisor for Silent {
        fn unserved<T: Send + 'static>(&self, _: &'static str) -> Ask<T> {
            Box::pin(std::future::pending())
        }
    }

    // Invariant: an answer that never comes blocks a sequence of questions only for a limited time.

    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_never_answered_is_given_up_at_the_limit_of_its_kind() {
        let silent: Arc<dyn Hypervisor> = Arc::new(Silent);
        let port = Layered { layer: TimeLimits, port: silent };
        let cloud = CloudId::new("rack");
        let vm = VmRef {
            cloud: cloud.clone(),
            node: NodeName::new("n1"),
            vmid: VmId(100),
            guest: GuestType::Vm,
        };
        let second = Duration::from_secs(1);
        for (call, limit) in [("identify", 60), ("look", 90)] {
            let ask = || -> Ask<()> {
                let (identify, look) = (port.identify(&cloud), port.look(&vm));
                Box::pin(async move {
                    if call == "identify" {
                        identify.await.map(|_| ())
                    } else {
                        look.await.map(|_| ())
                    }
                })
            };
            let limit = Duration::from_secs(limit);
            assert!(tokio::time::timeout(limit - second, ask()).await.is_err(), "{call}");
            let fault = tokio::time::timeout(limit + second, ask()).await.unwrap().unwrap_err();
            assert_eq!(fault.kind, FaultKind::UnknownOutcome);
            assert_eq!(fault.culprit, Culprit::Cloud(cloud.clone()));
            let text = format!("`{call}` was not answered within {} s", limit.as_secs());
            assert_eq!(fault.text, text);
        }
    }
}
