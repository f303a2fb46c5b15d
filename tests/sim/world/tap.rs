//! A tap on every way out of the actors: a test sees each call before it leaves, and may hit it.
//!
//! The tap sits above the ports, where one call of an agent is one call; [`super::tally`] sits below
//! the client, where it is one or more requests.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_model::fact::Fact;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::gate::Gate;
use drover_model::id::VmId;
use drover_model::layer::{Layer, PortCall, Reply};
use drover_model::noted::Noted;
use drover_model::ports::{Ambient, Ask, Journal, JournalFault, Observer, Ports};
use drover_model::record::Body;
use drover_model::time::{Now, WallTime};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending};

use super::tally::Tally;

/// One call that is about to leave.
#[derive(Debug, Clone, PartialEq)]
pub struct Knock {
    /// The port's method, such as `clone_vm`.
    pub call: &'static str,
    /// The guest it is about, where it is about one.
    pub vmid: Option<VmId>,
    /// What an append would write.
    pub records: Vec<Body>,
}

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Hit {
    /// Nothing: it goes its way.
    Pass,
    /// The caller panics while asking, inside its handler or timer.
    Panic,
    /// The caller panics when the answer is there, inside the future of the effect.
    PanicLater,
    /// It never leaves, and the trap springs.
    Hold,
    /// It is carried out, its answer never comes, and the trap springs.
    HoldAnswer,
    /// It never arrives, and is answered like this.
    Fail(Fault),
    /// It is carried out, and answered like this.
    FailAfter(Fault),
    /// It is carried out twice, one after the other; the second answer counts.
    Twice,
    /// Nobody answers for so long, and then the outcome is unknown; carried out or not.
    Lose {
        /// Whether it is carried out.
        done: bool,
        /// How long nobody answers.
        after: Duration,
    },
    /// It is carried out, and something else is answered.
    Alter(Alteration),
}

type Alter = dyn Fn(&mut dyn Any) + Send + Sync;

/// Makes another answer of a call's own.
#[derive(Clone)]
pub struct Alteration(Arc<Alter>);

impl Alteration {
    /// Answers with what this makes of the call's own answer, whose type must be the call's.
    pub fn of<T: 'static>(
        alter: impl Fn(Result<T, Fault>) -> Result<T, Fault> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |answer| {
            let answer = answer.downcast_mut::<Result<T, Fault>>().expect("the call's own type");
            let nothing = Fault::new(FaultKind::Broken, Culprit::Guest, "taken out");
            *answer = alter(std::mem::replace(answer, Err(nothing)));
        }))
    }
}

impl fmt::Debug for Alteration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Alteration")
    }
}

impl PartialEq for Alteration {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

type Watcher = Box<dyn FnMut(&Knock) -> Hit + Send>;

/// The tap of one world; it outlives crashes, and passes everything until a test says otherwise.
#[derive(Clone)]
pub struct Tap {
    watcher: Arc<Mutex<Option<Watcher>>>,
    tally: Tally,
    looks: Arc<AtomicU64>,
    /// What each call waits for.
    gate: Arc<Mutex<Gate>>,
}

impl Tap {
    /// A tap that passes everything; a trap that springs informs the tally.
    pub fn new(tally: Tally) -> Self {
        Self { watcher: Arc::default(), tally, looks: Arc::default(), gate: Arc::default() }
    }

    /// Lets every call from here on wait for a gate.
    pub fn pass(&self, gate: Gate) {
        *self.gate.lock().unwrap() = gate;
    }

    /// Lets every call from here on be judged.
    pub fn watch(&self, watcher: impl FnMut(&Knock) -> Hit + Send + 'static) {
        *self.watcher.lock().unwrap() = Some(Box::new(watcher));
    }

    /// Passes everything from here on.
    pub fn release(&self) {
        *self.watcher.lock().unwrap() = None;
    }

    /// How often actors looked at the clock: once and more at each of their steps.
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// The ports, with every call through this tap.
    pub fn on(&self, ports: Ports) -> Ports {
        let (ports, tap) = (ports.under(self), self.clone());
        Ports {
            journal: Arc::new(Tapped { inner: ports.journal, tap: tap.clone() }),
            observer: Arc::new(Tapped { inner: ports.observer, tap: tap.clone() }),
            ambient: Arc::new(Tapped { inner: ports.ambient, tap }),
            ..ports
        }
    }

    /// Taken out while it judges, so that a watcher may use the world.
    fn judge(&self, call: &'static str, vmid: Option<VmId>) -> Hit {
        self.judge_knock(&Knock { call, vmid, records: Vec::new() })
    }

    fn judge_knock(&self, knock: &Knock) -> Hit {
        let Some(mut watcher) = self.watcher.lock().unwrap().take() else { return Hit::Pass };
        let deregister = watcher(knock);
        self.watcher.lock().unwrap().get_or_insert(watcher);
        assert_ne!(deregister, Hit::Panic, "a planned panic at {}", knock.call);
        deregister
    }
}

impl Layer for Tap {
    fn ask<T: Reply>(&self, call: PortCall, make: impl Fn() -> Ask<T>) -> Ask<T> {
        let call = match call {
            // How a guest answers probes is the guest's matter.
            PortCall { name: "probe", .. } => return make(),
            // It is a look that a list may answer.
            PortCall { name: "confirm", .. } => PortCall { name: "look", ..call },
            PortCall { .. } => call,
        };
        let PortCall { name: call, vmid, .. } = call;
        let tally = self.tally.clone();
        match self.judge(call, vmid) {
            Hit::Pass | Hit::Panic => {
                let (gate, answer) = (self.gate.lock().unwrap().clone(), make());
                async move {
                    gate.pass().await;
                    answer.await
                }
                .boxed()
            }
            Hit::PanicLater => {
                let answer = make();
                async move {
                    drop(answer.await);
                    panic!("a planned panic at the answer of {call}")
                }
                .boxed()
            }
            Hit::Hold => {
                tally.spring();
                pending().boxed()
            }
            Hit::HoldAnswer => {
                let answer = make();
                async move {
                    drop(answer.await);
                    tally.spring();
                    pending().await
                }
                .boxed()
            }
            Hit::Fail(fault) => async move { Err(fault) }.boxed(),
            Hit::FailAfter(fault) => {
                let answer = make();
                async move {
                    drop(answer.await);
                    Err(fault)
                }
                .boxed()
            }
            Hit::Twice => {
                let (first, second) = (make(), make());
                async move {
                    drop(first.await);
                    second.await
                }
                .boxed()
            }
            Hit::Lose { done, after } => {
                let answer = done.then(make);
                async move {
                    if let Some(answer) = answer {
                        drop(answer.await);
                    }
                    tokio::time::sleep(after).await;
                    let text = format!("{call}: nobody answers");
                    Err(Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text))
                }
                .boxed()
            }
            Hit::Alter(alteration) => {
                let answer = make();
                async move {
                    let mut answer = answer.await;
                    (alteration.0)(&mut answer);
                    answer
                }
                .boxed()
            }
        }
    }
}

struct Tapped<P: ?Sized> {
    inner: Arc<P>,
    tap: Tap,
}

impl Journal for Tapped<dyn Journal> {
    /// Only `Panic`, `Hold` (nothing is written) and `HoldAnswer` hit an append.
    fn append(&self, bodies: Vec<Body>) -> BoxFuture<'static, Result<u64, JournalFault>> {
        let knock = Knock { call: "append", vmid: None, records: bodies.clone() };
        let deregister = self.tap.judge_knock(&knock);
        if deregister == Hit::Hold {
            self.tap.tally.spring();
            return pending().boxed();
        }
        let done = self.inner.append(bodies);
        if deregister != Hit::HoldAnswer {
            return done;
        }
        let tally = self.tap.tally.clone();
        async move {
            drop(done.await);
            tally.spring();
            pending().await
        }
        .boxed()
    }

    fn last_seq(&self) -> u64 {
        self.inner.last_seq()
    }
}

impl Observer for Tapped<dyn Observer> {
    /// Only `Panic` hits a fact.
    fn observe(&self, fact: Fact) {
        self.tap.judge("observe", None);
        self.inner.observe(fact);
    }

    fn note(&self, at: WallTime, noted: Noted) {
        self.inner.note(at, noted);
    }
}

impl Ambient for Tapped<dyn Ambient> {
    /// Only `Panic` hits a look at the clock.
    fn now(&self) -> Now {
        self.tap.looks.fetch_add(1, Ordering::Relaxed);
        self.tap.judge("now", None);
        self.inner.now()
    }

    fn draw(&self) -> u64 {
        self.tap.judge("draw", None);
        self.inner.draw()
    }
}
