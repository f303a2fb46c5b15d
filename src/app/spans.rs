//! Sends traces of agents to a collector of OpenTelemetry, where `service.traces` names one.
//!
//! ```text
//! facts, jobs ──▶ queue ──▶ task: Fold ──▶ Outbox ──▶ Collector ──▶ POST …/v1/traces
//!                                             ▲           │
//!                                             └── answer ─┘
//! ```
//!
//! Nothing is decided by it, so nothing waits for it: facts that come faster than the task takes them are left
//! out, and spans that have no room while the collector is silent are dropped and counted
//! (`drover_trace_spans_total`). Only the service sends, and a member that stands by is none.
//!
//! - **Off** without `service.traces`: then a fact costs one look at a flag.
//! - **Reload.** Another collector gets what waits. Without one, what waits is dropped.
//! - **Stop.** What waits is sent within [`STOP_LIMIT`], also where the service hands over or ends by a fault; the
//!   rest is dropped and counted. One that leads no more sends nothing.
//!
//! Files: `spans/outbox.rs` decides what goes when, and what is said of it.

mod outbox;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use drover_model::fact::Fact;
use drover_model::noted::Noted;
use drover_model::ports::Ambient;
use drover_server::view::{SpanOutcome, View};
use drover_spans::{Answer, Collector, Fold, Sender, Settings};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use outbox::{Outbox, Outcome, Say};

/// What may wait for the task; more is left out.
const WAITING_MAX: usize = 16_384;
/// How long a stop waits for the collector.
const STOP_LIMIT: Duration = Duration::from_secs(3);

/// Ends that may wait beside it: those of all that can be open.
const ENDS_MAX: usize = 200_000;

enum Message {
    Fact(Fact),
    Noted(Noted),
    /// Answers once all before it is sent, or is dropped.
    Stop {
        sends: bool,
        done: oneshot::Sender<()>,
    },
}

/// The way to the task that sends.
pub struct Spans {
    messages: mpsc::Sender<Message>,
    settings: watch::Sender<Option<Settings>>,
    is_on: AtomicBool,
    has_gaps: AtomicBool,
    /// Ends for which the queue had no room: what has no end would stay in memory.
    ends: Ends,
}

type Ends = Arc<Mutex<Vec<Fact>>>;

impl Spans {
    /// Starts the task on the current runtime. `instance` is its name among others.
    pub fn start(
        settings: Option<Settings>,
        instance: String,
        view: &Arc<View>,
        ambient: Arc<dyn Ambient>,
    ) -> Arc<Self> {
        let (messages, received) = mpsc::channel(WAITING_MAX);
        let is_on = AtomicBool::new(settings.is_some());
        let (settings, configured) = watch::channel(settings);
        let ends = Ends::default();
        let sender = Sender { version: env!("CARGO_PKG_VERSION").to_owned(), instance };
        let mut work = Work {
            sender: Arc::new(sender),
            view: Arc::downgrade(view),
            ambient,
            collector: None,
            fold: None,
            outbox: Outbox::default(),
            call: None,
            ends: Arc::clone(&ends),
        };
        work.configure(configured.borrow().clone());
        tokio::spawn(work.run(received, configured));
        Arc::new(Self { messages, settings, is_on, has_gaps: AtomicBool::new(false), ends })
    }

    fn send(&self, message: Message) {
        match self.messages.try_send(message) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            Err(mpsc::error::TrySendError::Full(Message::Fact(fact)))
                if fact.what.is_end() && self.keep_end(&fact) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                if !self.has_gaps.swap(true, Ordering::Relaxed) {
                    tracing::warn!("facts come faster than traces take them: they have gaps");
                }
            }
        }
    }

    /// Whether an end has room beside the queue.
    fn keep_end(&self, fact: &Fact) -> bool {
        let mut ends = self.ends.lock();
        let has_room = ends.len() < ENDS_MAX;
        if has_room {
            ends.push(fact.clone());
        }
        has_room
    }

    /// Takes in a fact, where a trace has a use for it.
    pub fn observe(&self, fact: &Fact) {
        if self.is_on.load(Ordering::Relaxed) && Fold::wants(&fact.what) {
            self.send(Message::Fact(fact.clone()));
        }
    }

    /// Takes in what the history hears beside facts.
    pub fn note(&self, noted: &Noted) {
        if self.is_on.load(Ordering::Relaxed) && matches!(noted, Noted::Jobs(_)) {
            self.send(Message::Noted(noted.clone()));
        }
    }

    /// Takes another collector, or none.
    pub fn configure(&self, settings: Option<Settings>) {
        self.is_on.store(settings.is_some(), Ordering::Relaxed);
        self.settings.send_if_modified(|now| {
            let is_other = *now != settings;
            *now = settings;
            is_other
        });
    }

    /// Sends what waits, within the limit; drops the rest, and counts it.
    pub async fn stop(&self) {
        self.end(true).await;
    }

    /// Drops what waits, and counts it: another member leads, and this one sends nothing any more.
    pub async fn drop_all(&self) {
        self.end(false).await;
    }

    async fn end(&self, sends: bool) {
        let (done, sent) = oneshot::channel();
        let flushed = async {
            let stopped = self.messages.send(Message::Stop { sends, done }).await.is_ok();
            stopped && sent.await.is_ok()
        };
        if !timeout(STOP_LIMIT * 2, flushed).await.unwrap_or(false) {
            tracing::warn!("the last traces may be missing after the restart");
        }
    }
}

type Call = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// What the task has.
struct Work {
    sender: Arc<Sender>,
    view: Weak<View>,
    ambient: Arc<dyn Ambient>,
    collector: Option<Arc<Collector>>,
    /// None while no collector is configured.
    fold: Option<Fold>,
    outbox: Outbox,
    /// The request under way.
    call: Option<Call>,
    ends: Ends,
}

/// The answer of the request under way; never, where there is none.
async fn answer_of(call: &mut Option<Call>) -> Answer {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}

impl Work {
    async fn run(
        mut self,
        mut messages: mpsc::Receiver<Message>,
        mut settings: watch::Receiver<Option<Settings>>,
    ) {
        loop {
            let due = self.outbox.due();
            tokio::select! {
                message = messages.recv() => match message {
                    Some(Message::Fact(fact)) => self.fact(&fact),
                    Some(Message::Noted(noted)) => {
                        if let Some(fold) = &mut self.fold {
                            fold.note(&noted);
                        }
                    }
                    Some(Message::Stop { sends, done }) => {
                        self.take_ends(&messages);
                        self.flush(sends).await;
                        // Who waited may have given up.
                        let _ = done.send(());
                        return;
                    }
                    None => return,
                },
                Ok(()) = settings.changed() => {
                    let settings = settings.borrow_and_update().clone();
                    self.configure(settings);
                }
                answer = answer_of(&mut self.call) => self.answered(answer),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.begin(),
            }
            self.take_ends(&messages);
        }
    }

    /// Takes the ends that had no room, once all that came before them is taken.
    fn take_ends(&mut self, messages: &mpsc::Receiver<Message>) {
        let ends = {
            let mut kept = self.ends.lock();
            let is_due = !kept.is_empty() && messages.is_empty();
            if is_due { std::mem::take(&mut *kept) } else { Vec::new() }
        };
        ends.iter().for_each(|fact| self.fact(fact));
    }

    fn fact(&mut self, fact: &Fact) {
        let Some(fold) = &mut self.fold else { return };
        fold.observe(fact);
        let spans = fold.take();
        if !spans.is_empty() {
            let outcome = self.outbox.push(spans, Instant::now());
            self.count(outcome);
        }
    }

    fn configure(&mut self, settings: Option<Settings>) {
        // A request under way is sent again, where it is to be sent.
        self.call = None;
        self.collector = settings.map(|settings| Arc::new(Collector::new(settings)));
        if self.collector.is_none() {
            self.fold = None;
            let outcome = self.outbox.clear();
            return self.count(outcome);
        }
        let now = self.ambient.now().wall;
        self.fold.get_or_insert_with(|| Fold::new(now));
        self.outbox.reconfigured(Instant::now());
    }

    fn begin(&mut self) {
        let Some(collector) = self.collector.clone() else { return };
        let (sender, spans) = (Arc::clone(&self.sender), self.outbox.begin());
        self.call = Some(Box::pin(async move { collector.send(&sender, &spans).await }));
    }

    fn answered(&mut self, answer: Answer) {
        self.call = None;
        let outcome = self.outbox.answered(answer, Instant::now());
        self.count(outcome);
    }

    /// Sends what waits, within the limit, and drops the rest; a collector that does not take it gets no second try.
    async fn flush(&mut self, sends: bool) {
        let until = Instant::now() + STOP_LIMIT;
        let sending = async {
            while sends && self.collector.is_some() && !self.outbox.is_empty() {
                if self.call.is_none() {
                    self.begin();
                }
                let answer = answer_of(&mut self.call).await;
                let is_over = matches!(answer, Answer::Later { .. });
                self.answered(answer);
                if is_over {
                    return;
                }
            }
        };
        // What was not sent by then is dropped.
        let _ = tokio::time::timeout_at(until, sending).await;
        let outcome = self.outbox.clear();
        let count = outcome.dropped;
        self.count(outcome);
        if count > 0 {
            tracing::warn!(
                count,
                "drover stops before the collector took the last spans of traces"
            );
        }
    }

    fn count(&self, Outcome { sent, refused, dropped, say }: Outcome) {
        if let Some(view) = self.view.upgrade() {
            view.count_spans(SpanOutcome::Sent, sent);
            view.count_spans(SpanOutcome::Refused, refused);
            view.count_spans(SpanOutcome::Dropped, dropped);
        }
        let url = self.collector.as_ref().map(|collector| &*collector.settings().endpoint);
        match say {
            None => {}
            Some(Say::Silent { why }) => {
                tracing::warn!(url, why, "the collector does not take traces; spans wait for it");
            }
            Some(Say::Refuses { why }) => {
                tracing::warn!(url, why, "the collector refuses traces; drover drops these spans");
            }
            Some(Say::Partly { why }) => {
                tracing::warn!(url, why, "the collector does not take some spans of traces");
            }
            Some(Say::Warning { why }) => {
                tracing::warn!(url, why, "the collector takes traces, and warns");
            }
            Some(Say::Full) => {
                tracing::warn!(
                    url,
                    "spans come faster than the collector takes them; drover drops some"
                );
            }
            Some(Say::Again { lost }) => {
                tracing::info!(
                    url,
                    count = lost,
                    "the collector takes traces again, without so many spans of the time before"
                );
            }
        }
    }
}
