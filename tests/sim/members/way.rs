//! A member's way to the leader lease: it may be cut, lose answers, or take its time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_model::ports::Ambient;
use drover_model::time::{Moment, Now};
use drover_vault::{Entry, MemoryRegister, Register, StoreError, Version};
use tokio::time::sleep;

use crate::world::store::Store;

/// A member's clock. While the member waits for the store it may show another time than it is: the member did
/// what it does now when it began to wait, or gets an answer that is still on its way.
#[derive(Clone)]
pub struct Clock {
    ambient: Arc<dyn Ambient>,
    shifts: Arc<Mutex<Shifts>>,
}

/// By how many milliseconds a clock is shifted.
#[derive(Debug, Clone, Copy, Default)]
struct Shifts {
    now: i64,
    /// Once the next call to the store came back.
    after_call: i64,
}

impl Clock {
    pub fn new(ambient: Arc<dyn Ambient>) -> Self {
        Self { ambient, shifts: Arc::default() }
    }

    /// Shows the time as it was so long ago, until the next call to the store comes back.
    pub fn look_back(&self, span: Duration) {
        *self.shifts.lock().unwrap() = Shifts { now: -millis(span), after_call: 0 };
    }

    /// Shows the time as it will be when the next call comes back that takes so long.
    pub fn look_ahead(&self, span: Duration) {
        *self.shifts.lock().unwrap() = Shifts { now: 0, after_call: millis(span) };
    }

    /// Shows the time as it is.
    pub fn look_up(&self) {
        *self.shifts.lock().unwrap() = Shifts::default();
    }

    fn call_returns(&self) {
        let mut shifts = self.shifts.lock().unwrap();
        shifts.now = shifts.after_call;
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap()
}

impl Ambient for Clock {
    fn now(&self) -> Now {
        let Now { mono, wall } = self.ambient.now();
        let shift = self.shifts.lock().unwrap().now;
        Now { mono: Moment(mono.0.checked_add_signed(shift).unwrap()), wall: wall.shifted(shift) }
    }

    fn draw(&self) -> u64 {
        self.ambient.draw()
    }
}

/// A way to the register.
pub struct Way {
    pub register: MemoryRegister,
    pub store: Store,
    /// Whether writes happen and no answer comes.
    pub loses: Arc<AtomicBool>,
    pub clock: Clock,
}

impl Way {
    /// Whether the store cannot be reached, after the time that this takes.
    fn is_cut(&self) -> bool {
        self.clock.call_returns();
        self.store.away.load(Ordering::Acquire)
    }
}

fn refused(name: &str, doing: &'static str) -> StoreError {
    StoreError::refused(name, doing, "the store does not answer")
}

impl Register for Way {
    fn place(&self) -> String {
        "store".to_owned()
    }

    fn read(&self, name: &str) -> Result<Option<Entry>, StoreError> {
        if self.is_cut() {
            return Err(refused(name, "read"));
        }
        self.register.read(name)
    }

    fn write(
        &self,
        name: &str,
        before: Option<&Version>,
        bytes: &[u8],
    ) -> Result<Option<Version>, StoreError> {
        if self.is_cut() {
            return Err(refused(name, "written"));
        }
        let unknown = || {
            let source = "no answer came".into();
            StoreError::Unknown { name: name.to_owned(), doing: "written", source }
        };
        if !self.loses.load(Ordering::Acquire) {
            return self.register.write(name, before, bytes);
        }
        let span = self.store.takes();
        if span.is_zero() {
            drop(self.register.write(name, before, bytes));
        } else {
            // The member stops to wait for it, and it arrives later.
            let (register, name) = (self.register.clone(), name.to_owned());
            let (before, bytes) = (before.cloned(), bytes.to_vec());
            tokio::spawn(async move {
                sleep(span).await;
                drop(register.write(&name, before.as_ref(), &bytes));
            });
        }
        Err(unknown())
    }
}
