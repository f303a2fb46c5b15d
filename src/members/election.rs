//! Carries out what the mind decides, on a thread of its own: the register's calls block.

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use causes::chain;
use drover_model::ports::Ambient;
use drover_vault::{Register, StoreError, Version};
use tokio::sync::watch;

use super::lease::{LeaderLease, NAME};
use super::mind::{Effect, Mind, Settings, Step};
use super::send_by::SendBy;

/// What this member is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Role {
    /// The term in which it leads; none where it stands by.
    pub term: Option<u64>,
    /// When the leader before renewed last, by its wall clock in milliseconds.
    pub led_until: Option<i64>,
    /// The name of the leader before.
    pub before: Option<String>,
    /// The leader lease as it was read last.
    pub lease: Option<LeaderLease>,
    /// Whether nobody renewed that for its whole time, as far as this member sees.
    pub silent: bool,
    /// Why its last term ended.
    pub ended: Option<String>,
    /// Why the store cannot be read now.
    pub trouble: Option<String>,
}

enum Command {
    Configure(Box<Settings>),
    PutInForce(String),
    GiveUp(Option<String>),
    TakePart,
}

/// The member's part in the election, until it is dropped.
pub struct Election {
    commands: mpsc::Sender<Command>,
    role: watch::Receiver<Role>,
    send_by: SendBy,
}

impl Election {
    /// Takes part from now on.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(
        settings: Settings,
        register: Arc<dyn Register>,
        ambient: Arc<dyn Ambient>,
    ) -> io::Result<Self> {
        let mut participant = Participant::new(settings, register, ambient);
        let (role, send_by) = (participant.role(), participant.send_by());
        let (commands, taken) = mpsc::channel();
        let run = move || participant.run(&taken);
        std::thread::Builder::new().name("election".into()).spawn(run)?;
        Ok(Self { commands, role, send_by })
    }

    /// What this member is, and news of it. Closed where the election's thread panicked.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.role.clone()
    }

    /// Until when this member may send.
    pub fn send_by(&self) -> SendBy {
        self.send_by.clone()
    }

    /// Takes other settings.
    pub fn configure(&self, settings: Settings) {
        self.say(Command::Configure(Box::new(settings)));
    }

    /// As the leader, this member has put the configuration with this digest in force.
    pub fn put_in_force(&self, config: String) {
        self.say(Command::PutInForce(config));
    }

    /// Leads no more, for the member that is named; takes no part until [`Election::take_part`].
    pub fn give_up(&self, next: Option<String>) {
        self.say(Command::GiveUp(next));
    }

    /// Takes part again.
    pub fn take_part(&self) {
        self.say(Command::TakePart);
    }

    fn say(&self, command: Command) {
        // A thread that panicked is noticed by its role.
        let _ = self.commands.send(command);
    }
}

/// A member's part in the election, step by step: for a thread, or for virtual time.
pub struct Participant {
    mind: Mind,
    register: Arc<dyn Register>,
    ambient: Arc<dyn Ambient>,
    says: watch::Sender<Role>,
    send_by: SendBy,
}

impl Participant {
    pub fn new(settings: Settings, register: Arc<dyn Register>, ambient: Arc<dyn Ambient>) -> Self {
        let send_by = SendBy::new(Arc::clone(&ambient));
        let nobody = Role::default();
        let says = watch::Sender::new(nobody);
        Self { mind: Mind::new(settings), register, ambient, says, send_by }
    }

    /// What this member is, and news of it.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.says.subscribe()
    }

    /// Until when this member may send.
    pub fn send_by(&self) -> SendBy {
        self.send_by.clone()
    }

    /// Does what is due: one call to the register at most. Says for how long nothing is due then.
    pub fn step(&mut self) -> Duration {
        let now = self.ambient.now();
        match self.mind.next(now) {
            Step::Read => self.read(),
            Step::Write(before, lease) => self.write(before.as_ref(), lease),
            Step::Rest(until) => return until - now.mono,
        }
        Duration::ZERO
    }

    /// Takes other settings.
    pub fn configure(&mut self, settings: Settings) {
        self.mind.configure(settings);
    }

    /// As the leader, this member has put the configuration with this digest in force.
    pub fn put_in_force(&mut self, config: String) {
        self.mind.put_in_force(config, self.ambient.now());
    }

    /// Leads no more, for the member that is named; takes no part until [`Participant::take_part`].
    pub fn give_up(&mut self, next: Option<String>) {
        let effects = self.mind.give_up(next, self.ambient.now());
        let trouble = self.says.borrow().trouble.clone();
        self.carry_out(effects, trouble);
    }

    /// Takes part again.
    pub fn take_part(&mut self) {
        self.mind.take_part();
    }

    fn run(&mut self, commands: &mpsc::Receiver<Command>) {
        loop {
            match commands.recv_timeout(self.step()) {
                Ok(Command::Configure(settings)) => self.configure(*settings),
                Ok(Command::PutInForce(config)) => self.put_in_force(config),
                Ok(Command::GiveUp(next)) => self.give_up(next),
                Ok(Command::TakePart) => self.take_part(),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return self.send_by.end(),
            }
        }
    }

    fn read(&mut self) {
        let entry = read(&*self.register);
        let trouble = entry.as_ref().err().map(|error| chain(error));
        let effects = self.mind.read(entry.map_err(drop), self.ambient.now());
        self.carry_out(effects, trouble);
    }

    fn write(&mut self, before: Option<&Version>, lease: LeaderLease) {
        let sent = self.ambient.now();
        let outcome = self.register.write(NAME, before, &lease.encode());
        let trouble = outcome.as_ref().err().map(|error| chain(error));
        let effects = self.mind.wrote(lease, outcome.map_err(drop), sent, self.ambient.now());
        self.carry_out(effects, trouble);
    }

    fn carry_out(&mut self, effects: Vec<Effect>, trouble: Option<String>) {
        let before = self.says.borrow().clone();
        match (&before.trouble, &trouble) {
            (None, Some(error)) => {
                let store = self.register.place();
                tracing::warn!(store, error, "the leader lease cannot be read or written");
            }
            (Some(_), None) => tracing::info!("the leader lease can be read again"),
            (None, None) | (Some(_), Some(_)) => {}
        }
        let (lease, silent) = (self.mind.lease().cloned(), self.mind.is_silent(self.ambient.now()));
        let mut role = Role { lease, silent, trouble, ..before.clone() };
        for effect in effects {
            match effect {
                Effect::Leads { term, led_until } => {
                    let before = before.lease.as_ref().and_then(|lease| lease.leader.as_ref());
                    let before = before.map(|leader| leader.name.clone());
                    role = Role { term: Some(term), led_until, before, ended: None, ..role };
                }
                Effect::Extends(until) => self.send_by.extend(until),
                Effect::Stops => self.send_by.stop(),
                Effect::Ends(why) => {
                    self.send_by.end();
                    role = Role { term: None, ended: Some(why), ..role };
                }
            }
        }
        if role != before {
            self.says.send_replace(role);
        }
    }
}

/// The leader lease as it is now; none where nobody led yet. Blocks.
///
/// # Errors
/// When it cannot be read, or was written by a newer drover.
pub fn leader_lease(register: &dyn Register) -> Result<Option<LeaderLease>, StoreError> {
    Ok(read(register)?.map(|(lease, _)| lease))
}

pub(crate) fn read(register: &dyn Register) -> Result<Option<(LeaderLease, Version)>, StoreError> {
    let Some(entry) = register.read(NAME)? else { return Ok(None) };
    let lease = LeaderLease::decode(&entry.bytes)
        .map_err(|error| StoreError::refused(NAME, "read", error))?;
    Ok(Some((lease, entry.version)))
}
