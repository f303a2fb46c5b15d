//! Decides when a member reads and writes the leader lease, leads, and stops leading. Pure: it takes what
//! the register answered and the time, and gives the next step and effects.

use std::time::Duration;

use drover_model::time::{Moment, Now};
use drover_vault::Version;

use super::lease::{FORMAT, Leader, LeaderLease};

/// How often a standby reads: so many times in the time that the leader holds the lease.
const READS: u32 = 10;
/// How often any member reads again where that failed: so many times in the same.
const RETRIES: u32 = 20;
/// How often the leader renews: so many times in the same.
const RENEWALS: u32 = 5;

/// What a member brings to the election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub me: Leader,
    /// How long after a renewal no other member takes the leader lease.
    pub hold: Duration,
    /// The digest of the configuration that this member has in its files.
    pub config: String,
    /// The digests of those that it had there before, and can still lead with.
    pub held: Vec<String>,
    /// The digest of the configuration in force that it may replace by its own, because every live member
    /// has that.
    pub replaces: Option<String>,
    /// Why this member does not lead with any; none where it may.
    pub unfit: Option<String>,
}

/// What a member does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Read the leader lease.
    Read,
    /// Write it over this version.
    Write(Option<Version>, LeaderLease),
    /// Nothing, until then.
    Rest(Moment),
}

/// What changed for a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It leads from now on. The leader before renewed last at this wall time, in milliseconds; none
    /// where nobody led before.
    Leads { term: u64, led_until: Option<i64> },
    /// It may send until then.
    Extends(Now),
    /// It sends nothing from now on, because it gives up.
    Stops,
    /// It leads no more; a text for people says why.
    Ends(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    lease: LeaderLease,
    version: Version,
    /// When this version was seen first.
    at: Moment,
}

/// What the last read found.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    /// Nothing was read yet, or the last read failed.
    Unknown,
    Nobody,
    Lease(Seen),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Standby {
        read_at: Option<Moment>,
        /// Whether the last call failed: the lease is read first.
        unsure: bool,
    },
    Leading {
        term: u64,
        /// When the next renewal begins.
        renews_at: Moment,
        /// Whether a write may have happened that was not answered: the lease is read first.
        unsure: bool,
    },
}

/// The mind of one member.
#[derive(Debug, Clone)]
pub struct Mind {
    settings: Settings,
    found: Found,
    state: State,
    /// The lease that was written last, and when that began.
    wrote: Option<(LeaderLease, Now)>,
    /// The member that is to lead next, where this one is to stop.
    gives_up: Option<Option<String>>,
    /// The digest of what it has put in force as the leader.
    in_force: String,
    /// When the leader before renewed last, by its wall clock.
    led_until: Option<i64>,
}

impl Mind {
    pub fn new(settings: Settings) -> Self {
        let state = State::Standby { read_at: None, unsure: false };
        Self {
            settings,
            found: Found::Unknown,
            state,
            wrote: None,
            gives_up: None,
            in_force: String::new(),
            led_until: None,
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes other settings.
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Another configuration is in force: a leader writes that down at once.
    pub fn put_in_force(&mut self, config: String, now: Now) {
        if let State::Leading { renews_at, .. } = &mut self.state
            && config != self.in_force
        {
            *renews_at = now.mono;
            self.in_force = config;
        }
    }

    /// Stops leading at the next step, for this member where one is named. A standby takes no more part.
    ///
    /// A leader stops sending before it writes that: another may lead as soon as it is written.
    pub fn give_up(&mut self, next: Option<String>, now: Now) -> Vec<Effect> {
        self.gives_up = Some(next);
        match &mut self.state {
            State::Leading { renews_at, .. } => {
                *renews_at = now.mono;
                vec![Effect::Stops]
            }
            State::Standby { .. } => Vec::new(),
        }
    }

    /// Takes part again after it gave up.
    pub fn take_part(&mut self) {
        self.gives_up = None;
    }

    pub fn is_leading(&self) -> bool {
        matches!(self.state, State::Leading { .. })
    }

    /// The lease as it was read or written last.
    pub fn lease(&self) -> Option<&LeaderLease> {
        match &self.found {
            Found::Lease(seen) => Some(&seen.lease),
            Found::Unknown | Found::Nobody => None,
        }
    }

    /// Whether nobody renewed the lease of another member for its whole time: that one leads no more.
    pub fn is_silent(&self, now: Now) -> bool {
        match (&self.state, &self.found) {
            (State::Standby { .. }, Found::Lease(seen)) => {
                seen.lease.leader.is_some() && now.mono >= seen.at + seen.lease.hold()
            }
            (State::Standby { .. }, Found::Unknown | Found::Nobody)
            | (State::Leading { .. }, _) => false,
        }
    }

    /// Why this member would not lead now; none where it would.
    pub fn unfit(&self) -> Option<String> {
        self.settings.unfit.clone()
    }

    pub fn next(&self, now: Now) -> Step {
        match &self.state {
            State::Leading { renews_at, .. } if now.mono < *renews_at => Step::Rest(*renews_at),
            State::Leading { unsure: true, .. } => Step::Read,
            State::Leading { term, unsure: false, .. } => match &self.found {
                Found::Lease(seen) => {
                    Step::Write(Some(seen.version.clone()), self.renewal(*term, seen, now))
                }
                Found::Unknown | Found::Nobody => Step::Read,
            },
            State::Standby { read_at, unsure } => self.standby(*read_at, *unsure, now),
        }
    }

    fn standby(&self, read_at: Option<Moment>, unsure: bool, now: Now) -> Step {
        let between = self.settings.hold / if unsure { RETRIES } else { READS };
        let due = read_at.map_or(now.mono, |at| at + between);
        if now.mono >= due {
            return Step::Read;
        }
        if unsure || self.settings.unfit.is_some() || self.gives_up.is_some() {
            return Step::Rest(due);
        }
        match &self.found {
            Found::Unknown => Step::Rest(due),
            Found::Nobody => Step::Write(None, self.claim(0, &self.settings.config, now)),
            Found::Lease(seen) => {
                let free_at = self.free_at(seen);
                match self.config_after(&seen.lease) {
                    Some(config) if now.mono >= free_at => {
                        let claim = self.claim(seen.lease.term, config, now);
                        Step::Write(Some(seen.version.clone()), claim)
                    }
                    Some(_) => Step::Rest(due.min(free_at)),
                    None => Step::Rest(due),
                }
            }
        }
    }

    /// What this member would put in force after that lease: the same configuration where it has that, else
    /// its own where every live member has it. None where it may not lead.
    fn config_after<'a>(&'a self, lease: &'a LeaderLease) -> Option<&'a str> {
        let Settings { config, held, replaces, .. } = &self.settings;
        let in_force = &lease.config;
        if config == in_force || held.contains(in_force) {
            return Some(in_force);
        }
        (replaces.as_ref() == Some(in_force)).then_some(config)
    }

    /// When this member may take a lease that it has seen.
    fn free_at(&self, seen: &Seen) -> Moment {
        let given_up = seen.lease.leader.is_none();
        let for_me = seen.lease.next.as_ref().is_none_or(|next| *next == self.settings.me.name);
        // A claim of this process whose answer was lost, and which is too old to send by: nobody else leads.
        if self.is_of_this_process(&seen.lease) || given_up && for_me {
            return seen.at;
        }
        seen.at + seen.lease.hold()
    }

    fn claim(&self, last: u64, config: &str, now: Now) -> LeaderLease {
        LeaderLease {
            format: FORMAT,
            term: last + 1,
            leader: Some(self.settings.me.clone()),
            renewals: 0,
            hold_ms: u64::try_from(self.settings.hold.as_millis()).unwrap_or(u64::MAX),
            config: config.to_owned(),
            renewed_at: now.wall.0,
            next: None,
        }
    }

    fn renewal(&self, term: u64, seen: &Seen, now: Now) -> LeaderLease {
        let claim = self.claim(term - 1, &self.in_force, now);
        let renewal = LeaderLease { renewals: seen.lease.renewals + 1, ..claim };
        match &self.gives_up {
            Some(next) => LeaderLease { leader: None, next: next.clone(), ..renewal },
            None => renewal,
        }
    }

    /// A read came back: `lease` is none where nothing is there, and an error where it failed.
    pub fn read(
        &mut self,
        lease: Result<Option<(LeaderLease, Version)>, ()>,
        now: Now,
    ) -> Vec<Effect> {
        let before = std::mem::replace(&mut self.found, Found::Unknown);
        let failed = lease.is_err();
        match lease {
            // What was seen stays seen: a store that is away for a moment makes nobody wait longer.
            Err(()) => self.found = before,
            Ok(None) => self.found = Found::Nobody,
            Ok(Some((lease, version))) => {
                let at = match before {
                    Found::Lease(seen) if seen.version == version => seen.at,
                    Found::Lease(_) | Found::Unknown | Found::Nobody => now.mono,
                };
                self.found = Found::Lease(Seen { lease, version, at });
            }
        }
        match &self.state {
            State::Standby { .. } => {
                self.state = State::Standby { read_at: Some(now.mono), unsure: failed };
                // A claim whose answer was lost: it happened. One that is too old to send by is taken again.
                if self.is_what_was_written() && self.may_send_by_what_was_written(now) {
                    return self.won(now);
                }
                self.led_until = match &self.found {
                    Found::Lease(seen) if self.is_of_this_process(&seen.lease) => self.led_until,
                    Found::Lease(seen) => Some(seen.lease.renewed_at),
                    Found::Nobody | Found::Unknown => None,
                };
                Vec::new()
            }
            State::Leading { .. } if failed => self.retry(now),
            State::Leading { term, .. } => {
                let term = *term;
                if self.is_what_was_written() {
                    return self.won(now);
                }
                match &self.found {
                    // An older renewal of this term: the last write did not happen.
                    Found::Lease(seen) if self.is_mine(&seen.lease, term) => {
                        self.state = State::Leading { term, renews_at: now.mono, unsure: false };
                        Vec::new()
                    }
                    Found::Lease(_) | Found::Nobody | Found::Unknown => self.ends(now),
                }
            }
        }
    }

    /// A write that began at `sent` came back: with the new version, with none where another version was there,
    /// or with an error where nobody knows.
    pub fn wrote(
        &mut self,
        lease: LeaderLease,
        outcome: Result<Option<Version>, ()>,
        sent: Now,
        now: Now,
    ) -> Vec<Effect> {
        self.wrote = Some((lease.clone(), sent));
        match outcome {
            Ok(Some(version)) => {
                self.found = Found::Lease(Seen { lease, version, at: now.mono });
                self.won(now)
            }
            // Somebody else wrote, or this write was sent twice because its first answer was lost.
            Ok(None) | Err(()) => match &self.state {
                State::Standby { .. } => {
                    self.state = State::Standby { read_at: None, unsure: true };
                    Vec::new()
                }
                State::Leading { .. } => self.retry(now),
            },
        }
    }

    fn is_of_this_process(&self, lease: &LeaderLease) -> bool {
        lease.leader.as_ref().is_some_and(|leader| leader.process == self.settings.me.process)
    }

    fn is_mine(&self, lease: &LeaderLease, term: u64) -> bool {
        self.is_of_this_process(lease) && lease.term == term
    }

    /// Whether this member could still send by the lease that it wrote last.
    fn may_send_by_what_was_written(&self, now: Now) -> bool {
        self.wrote.as_ref().is_some_and(|(_, sent)| {
            let until = sent_until(*sent, self.settings.hold);
            now.mono < until.mono && now.wall < until.wall
        })
    }

    /// Whether the lease that was found is the one that was written last.
    fn is_what_was_written(&self) -> bool {
        match (&self.found, &self.wrote) {
            (Found::Lease(seen), Some((wrote, _))) => seen.lease == *wrote,
            (Found::Lease(_) | Found::Unknown | Found::Nobody, _) => false,
        }
    }

    /// The lease that was written last is there.
    fn won(&mut self, now: Now) -> Vec<Effect> {
        let Some((lease, sent)) = self.wrote.take() else { return Vec::new() };
        let was = self.is_leading();
        if lease.leader.is_none() {
            self.state = State::Standby { read_at: Some(now.mono), unsure: false };
            return vec![Effect::Ends("it gave the lead up".to_owned())];
        }
        let renews_at = sent.mono + self.settings.hold / RENEWALS;
        self.state = State::Leading { term: lease.term, renews_at, unsure: false };
        let mut effects = match &self.gives_up {
            Some(_) => Vec::new(),
            None => vec![Effect::Extends(sent_until(sent, self.settings.hold))],
        };
        if !was {
            self.in_force.clone_from(&lease.config);
            effects.insert(0, Effect::Leads { term: lease.term, led_until: self.led_until });
        }
        effects
    }

    /// Nobody knows whether the last write happened: the lease is read, a little later where that failed too.
    fn retry(&mut self, now: Now) -> Vec<Effect> {
        if let State::Leading { renews_at, unsure, .. } = &mut self.state {
            *renews_at = if *unsure { now.mono + self.settings.hold / RETRIES } else { now.mono };
            *unsure = true;
        }
        Vec::new()
    }

    fn ends(&mut self, now: Now) -> Vec<Effect> {
        let why = match &self.found {
            Found::Lease(seen) => match &seen.lease.leader {
                Some(leader) => format!("member {} leads now", leader.name),
                None => "another member led since".to_owned(),
            },
            Found::Nobody | Found::Unknown => "the leader lease is gone from the store".to_owned(),
        };
        self.wrote = None;
        self.state = State::Standby { read_at: Some(now.mono), unsure: false };
        vec![Effect::Ends(why)]
    }
}

/// Until when a leader may send that began to renew then: three quarters of the time, on either clock.
fn sent_until(sent: Now, hold: Duration) -> Now {
    let span = hold * 3 / 4;
    Now { mono: sent.mono + span, wall: sent.wall + span }
}
