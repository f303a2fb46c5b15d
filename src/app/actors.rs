//! The actors' home: one thread, one actix system, and a pulse that tells whether it turns.

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

/// How often the pulse beats, and how old it may be.
const PULSE: Duration = Duration::from_secs(1);
const PULSE_MAX: Duration = Duration::from_secs(15);
/// How long the end of a thread is waited for that was told to end.
const STOP_MAX: Duration = Duration::from_secs(10);

/// The herd on its thread.
pub struct Home {
    /// Takes wishes.
    pub wishes: Recipient<HerdCommand>,
    /// Takes configurations.
    pub specs: Recipient<ApplySpec>,
    /// Filled when every cloud was tried once.
    pub tried: oneshot::Receiver<Tried>,
    /// Actors that were given up; the thread's end shows as the channel's.
    pub given_up: mpsc::UnboundedReceiver<GivenUp>,
    /// Whether the thread still turns.
    pub alive: Arc<dyn Fn() -> bool + Send + Sync>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

struct Inside {
    wishes: Recipient<HerdCommand>,
    specs: Recipient<ApplySpec>,
    tried: oneshot::Receiver<Tried>,
}

impl Home {
    /// Starts the herd on a thread of its own.
    ///
    /// # Errors
    /// [`RunError::System`] when there is no thread to be had, [`RunError::GaveUp`] when the herd
    /// does not come up.
    pub async fn start(
        start: impl FnOnce(GiveUp) -> HerdStart + Send + 'static,
        ambient: Arc<dyn Ambient>,
    ) -> Result<Self, RunError> {
        let (told, up) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let (given_up, gave_up) = mpsc::unbounded_channel();
        let beat = Arc::new(AtomicU64::new(ambient.now().mono.0));
        let pulse = Arc::clone(&beat);
        let clock = Arc::clone(&ambient);
        let thread = std::thread::Builder::new()
            .name("actors".into())
            .spawn(move || {
                System::new().block_on(async move {
                    let escalate = Arc::new(move |what| {
                        // Nobody listens only when the service is ending anyway.
                        let _ = given_up.send(what);
                    });
                    let started = Herd::start_from(start(escalate));
                    let inside = Inside {
                        wishes: started.herd.clone().recipient(),
                        specs: started.herd.recipient(),
                        tried: started.tried,
                    };
                    let _ = told.send(inside);
                    actix::spawn(async move {
                        let mut tick = tokio::time::interval(PULSE);
                        loop {
                            tick.tick().await;
                            pulse.store(clock.now().mono.0, Ordering::Relaxed);
                        }
                    });
                    // The other end going away without a word means the same.
                    let _ = stopped.await;
                });
            })
            .map_err(|source| RunError::System {
                doing: "the actors' thread cannot be started",
                source,
            })?;
        let inside = up.await.map_err(|_| RunError::GaveUp("the herd did not come up".into()))?;
        let alive = Arc::new(move || {
            let age = ambient.now().mono.0.saturating_sub(beat.load(Ordering::Relaxed));
            u128::from(age) < PULSE_MAX.as_millis()
        });
        Ok(Self {
            wishes: inside.wishes,
            specs: inside.specs,
            tried: inside.tried,
            given_up: gave_up,
            alive,
            stop,
            thread,
        })
    }

    /// Ends the thread; the guests stay as they are. One that hangs is not waited for.
    pub async fn stop(self) {
        // Already ended is as good.
        let _ = self.stop.send(());
        let joined = tokio::task::spawn_blocking(move || self.thread.join());
        match tokio::time::timeout(STOP_MAX, joined).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(_)) | Err(_)) => tracing::warn!("the actors' thread ended with a fault"),
            Err(_) => tracing::error!("the actors do not turn: their thread is left behind"),
        }
    }
}
