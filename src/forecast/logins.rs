//! The machines as the actors' port to guests.

use std::time::Duration;

use drover_model::fault::Fault;
use drover_model::phase::AgentPhase;
use drover_model::ports::{Ask, Greeting, Holder, Ran, Sessions, Shell, ShellTarget};
use drover_model::spec::UploadSpec;
use futures_util::FutureExt;
use tokio::time::{Instant, sleep};

use crate::guests::Guests as _;
use crate::machines::{Machines, measured_fault};
use crate::ssh::{greeting, login, probe};

/// What of a limit a command takes that was measured longer: the rest falls to the next command.
const MOST_OF_LIMIT: u32 = 9;

impl Machines {
    /// Logs in, and leaves the connection for so long.
    async fn visit(
        self,
        target: ShellTarget,
        takes: Duration,
        limit: Duration,
    ) -> Result<u32, Fault> {
        login(&self, &target, (takes, limit), |_| true).await.map(|(serial, _)| serial)
    }

    async fn prepare(self, target: ShellTarget, limit: Duration) -> Result<Ran, Fault> {
        let serial = self.clone().visit(target, Duration::ZERO, limit).await?;
        let ran = |exit| Ran { exit: Some(exit), tail: String::new() };
        let Some((until, way)) = self.prepared(serial) else { return Ok(ran(0)) };
        let left = until.saturating_duration_since(Instant::now());
        let most = limit / 10 * MOST_OF_LIMIT;
        sleep(left.min(most)).await;
        let fails = left <= most && way.fails == Some(AgentPhase::Preparing);
        Ok(ran(u32::from(fails)))
    }
}

impl Shell for Machines {
    fn greet(&self, target: ShellTarget, limit: Duration) -> Ask<Greeting> {
        let machines = self.clone();
        async move {
            let opens = machines.at(target.address).and_then(|serial| machines.opens(serial));
            let left =
                opens.as_ref().map(|(from, _)| from.saturating_duration_since(Instant::now()));
            let takes = left.unwrap_or_default();
            let seen = login(&machines, &target, (takes, limit), |_| takes <= limit).await?;
            match opens.and_then(|(_, way)| way.fails) {
                Some(phase @ AgentPhase::Connecting) => Err(measured_fault(phase)),
                Some(_) | None => Ok(greeting(&machines, seen)),
            }
        }
        .boxed()
    }

    fn probe(&self, target: ShellTarget, limit: Duration) -> Ask<()> {
        let machines = self.clone();
        async move { probe(&machines, &target, limit, |_| true).await }.boxed()
    }

    fn run(&self, target: ShellTarget, _: String, limit: Duration) -> Ask<Ran> {
        self.clone().prepare(target, limit).boxed()
    }

    fn upload(&self, target: ShellTarget, _: UploadSpec, limit: Duration) -> Ask<Ran> {
        self.clone().prepare(target, limit).boxed()
    }

    fn admit(&self, target: ShellTarget, _: &str, _: &Holder, limit: Duration) -> Ask<()> {
        let machines = self.clone();
        async move {
            let serial = machines.at(target.address);
            let takes = serial.map_or(Duration::ZERO, |serial| machines.hand_out(serial));
            machines.visit(target, takes.min(limit), limit).await.map(drop)
        }
        .boxed()
    }

    fn expel(&self, target: ShellTarget, _: &str, _: Sessions, limit: Duration) -> Ask<()> {
        self.clone().visit(target, crate::ssh::LOGIN, limit).map(|seen| seen.map(drop)).boxed()
    }
}
