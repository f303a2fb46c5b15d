//! The thread of the actors, with one actix system and a heartbeat that shows whether it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use actix::{Recipient, System};
use drover_actors::birth::GiveUp;
use drover_actors::herd::{Herd, HerdStart, Tried};
use drover_actors::message::{ApplySpec, HerdCommand};
use drover_model::ports::Ambient;
use drover_runtime::supervise::GivenUp;
use tokio::sync::{mpsc, oneshot};

use super::RunError;

/// The interval of the heartbeat, and the age at which the thread counts as hanging.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
const HEARTBEAT_AGE_MAX: Duration = Duration::from_secs(15);
/// How long to wait for the end of the thread.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The running thread with the herd.
pub struct ActorsThread {
    pub commands: Recipient<HerdCommand>,
    pub specs: Recipient<ApplySpec>,
    /// Resolves when each cloud was tried once.
    pub tried: oneshot::Receiver<Tried>,
    /// Actors that panicked too often. The channel closes when the thread ends.
    pub given_up: mpsc::UnboundedReceiver<GivenUp>,
    /// Whether the thread is alive.
    pub alive: Arc<dyn Fn() -> bool + Send + Sync>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

struct Started {
    commands: Recipient<HerdCommand>,
    specs: Recipient<ApplySpec>,
    tried: oneshot::Receiver<Tried>,
}

impl ActorsThread {
    ///
    /// # Errors
    /// [`RunError::System`] when the thread cannot be created, [`RunError::GaveUp`] when the herd
    /// does not start.
    pub async fn start(
        start: impl FnOnce(GiveUp) -> HerdStart + Send + 'static,
        ambient: Arc<dyn Ambient>,
    ) -> Result<Self, RunError> {
        let (report, reported) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let (given_up, gave_up) = mpsc::unbounded_channel();
        let heartbeat = Arc::new(AtomicU64::new(ambient.now().mono.0));
        let beating = Arc::clone(&heartbeat);
        let clock = Arc::clone(&ambient);
        let thread = std::thread::Builder::new()
            .name("actors".into())
            .spawn(move || {
                System::new().block_on(async move {
                    let escalate = Arc::new(move |what| {
                        // The receiver is gone only while the service stops.
                        let _ = given_up.send(what);
                    });
                    let started = Herd::start_from(start(escalate));
                    let started_herd = Started {
                        commands: started.herd.clone().recipient(),
                        specs: started.herd.recipient(),
                        tried: started.tried,
                    };
                    let _ = report.send(started_herd);
                    actix::spawn(async move {
                        let mut tick = tokio::time::interval(HEARTBEAT_INTERVAL);
                        loop {
                            tick.tick().await;
                            beating.store(clock.now().mono.0, Ordering::Relaxed);
                        }
                    });
                    // A dropped sender means the same as a message.
                    let _ = stopped.await;
                });
            })
            .map_err(|source| RunError::System {
                doing: "cannot start the actors' thread",
                source,
            })?;
        let started_herd =
            reported.await.map_err(|_| RunError::GaveUp("the herd did not start".into()))?;
        let alive = Arc::new(move || {
            let age = ambient.now().mono.0.saturating_sub(heartbeat.load(Ordering::Relaxed));
            u128::from(age) < HEARTBEAT_AGE_MAX.as_millis()
        });
        Ok(Self {
            commands: started_herd.commands,
            specs: started_herd.specs,
            tried: started_herd.tried,
            given_up: gave_up,
            alive,
            stop,
            thread,
        })
    }

    /// Ends the thread; the guests stay as they are. A thread that hangs is abandoned.
    pub async fn stop(self) {
        // The thread can have ended already.
        let _ = self.stop.send(());
        let joined = tokio::task::spawn_blocking(move || self.thread.join());
        match tokio::time::timeout(STOP_TIMEOUT, joined).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(_)) | Err(_)) => tracing::warn!("the actors' thread panicked"),
            Err(_) => tracing::error!("the actors hang; drover does not wait for their thread"),
        }
    }
}
