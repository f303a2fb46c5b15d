//! A member's way to the leader lease: it may be cut, lose answers, or take its time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_model::ports::Ambient;
use drover_model::time::{Moment, Now};
use drover_vault::{Entry, MemoryRegister, Register, StoreError, Version};
use tokio::time::sleep;

use crate::world::store::Store;

/// A member's clock, which may stand in the past while the member waits for the store.
#[derive(Clone)]
pub struct Clock {
    ambient: Arc<dyn Ambient>,
    past: Arc<Mutex<Duration>>,
}

impl Clock {
    pub fn new(ambient: Arc<dyn Ambient>) -> Self {
        Self { ambient, past: Arc::default() }
    }

    /// Shows the time as it was so long ago, until the next call to the store comes back.
    pub fn look_back(&self, span: Duration) {
        *self.past.lock().unwrap() = span;
    }

    /// Shows the time as it is.
    pub fn look_up(&self) {
        self.look_back(Duration::ZERO);
    }
}

impl Ambient for Clock {
    fn now(&self) -> Now {
        let Now { mono, wall } = self.ambient.now();
        let past = u64::try_from(self.past.lock().unwrap().as_millis()).unwrap();
        Now { mono: Moment(mono.0 - past), wall: wall.shifted(-i64::try_from(past).unwrap()) }
    }

    fn draw(&self) -> u64 {
        self.ambient.draw()
    }
}

/// A way to the register. A call on it comes back when the member's clock shows the present again.
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
        self.clock.look_up();
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
