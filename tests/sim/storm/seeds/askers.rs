//! Those who ask for leases: each asks again after a crash under the same idempotency key, as a
//! client of the lease API does, and so knows in the end what became of its lease.
//!
//! They are several tenants, two of which share a group. Leases are ended and renewed by their own
//! tenant or by the other one of its group, and anyone else who tries is refused.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_actors::message::{HerdCommand, Refusal, Target};
use drover_model::id::LeaseId;
use drover_model::order::Work;
use drover_model::record::{LeaseAsk, Want};
use drover_model::tenant::By;
use drover_model::time::WallTime;
use drover_runtime::reply::Reply;
use tokio::sync::oneshot::{self, Receiver};

use super::plan::TEMPLATES;
use super::sizes::Asked;
use super::watch::Watch;
use crate::world::World;

/// Leases that are short enough to be waited for until they run out.
const SHORT: Duration = Duration::from_secs(600);

/// The answers to somebody who tries to end a lease and to renew it.
type Meddling = (Receiver<Result<(), Refusal>>, Receiver<Result<WallTime, Refusal>>);

/// One who asks.
#[derive(Default)]
struct Asker {
    want: Option<Want>,
    ttl: Duration,
    tries: u32,
    lease: Option<LeaseId>,
    asking: Option<Receiver<Result<LeaseId, Refusal>>>,
    /// The answer was that the YAML serves no such lease.
    refused: bool,
    ends: Ends,
    ending: Option<Receiver<Result<(), Refusal>>>,
    renewing: Option<(Duration, Receiver<Result<WallTime, Refusal>>)>,
    /// Whether the lease was served when somebody else last tried to end and to renew it.
    meddled: Option<bool>,
    meddling: Option<Meddling>,
}

/// How many tenants ask for leases.
const TENANTS: u32 = 3;
/// The first so many of them share a group.
const GROUPED: u32 = 2;

/// The tenant of an asker, by its number.
fn tenant(number: u32) -> By {
    let number = number % TENANTS;
    let group = (number < GROUPED).then(|| "build".to_owned());
    By { principal: format!("tenant {number}"), group, all: false }
}

/// Who ends and renews the lease of an asker: its tenant, or the other one of its group.
fn friend(who: u32) -> By {
    let own = who % TENANTS;
    tenant(if own < GROUPED && who.is_multiple_of(2) { GROUPED - 1 - own } else { own })
}

/// One who has nothing to do with the leases of an asker.
fn stranger(who: u32) -> By {
    tenant(if who % TENANTS < GROUPED { GROUPED } else { 0 })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Ends {
    /// It keeps its lease until it runs out.
    #[default]
    Never,
    /// It ends its lease once it was served.
    Served,
    /// It ends its lease.
    Now,
    /// It ended its lease.
    Done,
}

/// All of them, by number.
#[derive(Default)]
pub struct Askers(BTreeMap<u32, Asker>);

impl Askers {
    /// Somebody wants a lease from here on.
    pub fn want(&mut self, who: u32, (template, label, size): (usize, bool, Asked), ttl: u64) {
        let name = TEMPLATES[template].to_owned();
        let want = match label {
            true => Want::Labels(size.labels().into_iter().chain([name]).collect()),
            false => Want::Template(name).of_size(size.size()),
        };
        let asker = self.0.entry(who).or_default();
        asker.want = Some(want);
        asker.ttl = Duration::from_secs(ttl);
    }

    /// Somebody wants its lease to end.
    pub fn end(&mut self, who: u32, patient: bool) {
        if let Some(asker) = self.0.get_mut(&who).filter(|asker| asker.ends != Ends::Done) {
            asker.ends = if patient { Ends::Served } else { Ends::Now };
        }
    }

    /// Anyone who holds its lease for long wants it to end once it was served.
    pub fn end_all(&mut self) {
        let stays = |asker: &&mut Asker| asker.ends == Ends::Never && asker.ttl > SHORT;
        for asker in self.0.values_mut().filter(stays) {
            asker.ends = Ends::Served;
        }
    }

    /// Somebody wants its lease for longer.
    pub fn renew(&mut self, who: u32, ttl: u64, world: &World) {
        let Some(asker) = self.0.get_mut(&who) else { return };
        let Some(lease) = asker.lease.clone().filter(|_| world.runs()) else { return };
        let (reply, answer) = Reply::channel();
        let ttl = Duration::from_secs(ttl);
        world.send(HerdCommand::Renew { lease, ttl, by: friend(who), reply });
        asker.renewing = Some((ttl, answer));
    }

    /// Somebody gives the machine of its lease an order; where it has none, nothing comes of it.
    pub fn order(&self, who: u32, work: Work, world: &World) {
        let lease = self.0.get(&who).and_then(|asker| asker.lease.clone());
        let Some(lease) = lease.filter(|_| world.runs()) else { return };
        let (reply, _) = Reply::channel();
        let (target, by) = (Target::Lease(lease), friend(who));
        world.send(HerdCommand::Order { target, work, key: None, by, reply });
    }

    /// Anyone who was refused may ask again: the YAML changed.
    pub fn hope(&mut self) {
        self.0.values_mut().for_each(|asker| asker.refused = false);
    }

    /// The service is down: what was not answered is asked again.
    pub fn cut(&mut self) {
        for asker in self.0.values_mut() {
            (asker.asking, asker.ending, asker.renewing) = (None, None, None);
            asker.meddling = None;
        }
    }

    /// Takes the answers that are there, and sends what is wanted and was not sent.
    pub fn turn(&mut self, world: &World, watch: &Watch) {
        for (who, asker) in &mut self.0 {
            asker.hear(watch);
            if world.runs() {
                asker.meddle(*who, world, watch);
                asker.speak(*who, world, watch);
            }
        }
    }

    /// Who still waits for an answer, or has something to say.
    pub fn busy(&self, watch: &Watch) -> Vec<String> {
        let busy = self.0.iter().filter(|(_, asker)| {
            let seen = asker.lease.as_ref().and_then(|lease| watch.lease(lease));
            let over = seen.as_ref().is_some_and(|seen| seen.over.is_some());
            !over || asker.asking.is_some() || asker.ending.is_some()
        });
        let reported = |(who, asker): (&u32, &Asker)| {
            let (asks, ends) = (asker.asking.is_some(), asker.ending.is_some());
            format!("{who} with {:?} asks {asks} ends {ends}", asker.lease)
        };
        busy.map(reported).collect()
    }

    /// What became of everybody's lease.
    pub fn fates(&self, watch: &Watch) -> BTreeMap<u32, String> {
        let outcome = |asker: &Asker| {
            let seen = asker.lease.as_ref().and_then(|lease| watch.lease(lease));
            match (seen, asker.refused) {
                (_, true) => "refused".to_owned(),
                (None, _) => "never heard of".to_owned(),
                (Some(seen), _) => {
                    let served = if seen.served { "served" } else { "never served" };
                    format!("{served}, {}", seen.over.as_deref().unwrap_or("not over"))
                }
            }
        };
        self.0.iter().map(|(who, asker)| (*who, outcome(asker))).collect()
    }
}

impl Asker {
    fn hear(&mut self, watch: &Watch) {
        if let Some(answer) = self.asking.as_mut().map(Receiver::try_recv) {
            match answer {
                Ok(Ok(lease)) => (self.lease, self.asking) = (Some(lease), None),
                Ok(Err(
                    Refusal::Unknown(_)
                    | Refusal::Conflict(_)
                    | Refusal::TooMany(_)
                    | Refusal::Forbidden(_),
                )) => {
                    (self.refused, self.asking) = (true, None);
                }
                Ok(Err(Refusal::Unavailable(_))) | Err(oneshot::error::TryRecvError::Closed) => {
                    self.asking = None;
                }
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
        }
        if let Some(answer) = self.ending.as_mut().map(Receiver::try_recv) {
            match answer {
                Ok(Ok(())) => {
                    let lease = self.lease.clone().unwrap();
                    let over = watch.lease(&lease).is_some_and(|seen| seen.over.is_some());
                    if !over {
                        let text = format!("the end of {lease} is answered and not written down");
                        watch.complain("journal-before-acting", text);
                    }
                    (self.ends, self.ending) = (Ends::Done, None);
                }
                // Where the clock was set forward it is over for longer than it is known.
                Ok(Err(Refusal::Unknown(_)))
                    if self
                        .lease
                        .as_ref()
                        .and_then(|lease| watch.lease(lease))
                        .is_some_and(|seen| seen.over.is_some()) =>
                {
                    (self.ends, self.ending) = (Ends::Done, None);
                }
                Ok(Err(_)) | Err(oneshot::error::TryRecvError::Closed) => self.ending = None,
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
        }
        if let Some((release, renewal)) = &mut self.meddling {
            let (ended, renewed) = (release.try_recv(), renewal.try_recv());
            if matches!(ended, Ok(Ok(()))) || matches!(renewed, Ok(Ok(_))) {
                let text = format!("{:?} is changed by another tenant", self.lease);
                watch.complain("leases-are-their-tenants", text);
            }
        }
        let renewed = self.renewing.as_mut().map(|(_, answer)| answer.try_recv());
        if renewed.is_some_and(|answer| answer != Err(oneshot::error::TryRecvError::Empty)) {
            self.renewing = None;
        }
    }

    fn speak(&mut self, who: u32, world: &World, watch: &Watch) {
        match &self.lease {
            None if self.asking.is_none() && !self.refused => self.ask(who, world),
            None => {}
            Some(lease) if self.ending.is_none() => {
                let seen = watch.lease(lease).unwrap_or_default();
                let due = match self.ends {
                    Ends::Never | Ends::Done => false,
                    Ends::Served => seen.served || seen.over.is_some(),
                    Ends::Now => true,
                };
                if due {
                    watch.commands_end(lease);
                    let (reply, answer) = Reply::channel();
                    world.send(HerdCommand::Release {
                        lease: lease.clone(),
                        by: friend(who),
                        reply,
                    });
                    self.ending = Some(answer);
                }
            }
            Some(_) => {}
        }
    }

    /// Another tenant tries to end the lease and to renew it, once while it waits and once after that.
    fn meddle(&mut self, who: u32, world: &World, watch: &Watch) {
        let Some(lease) = self.lease.clone() else { return };
        let served = watch.lease(&lease).is_some_and(|seen| seen.served);
        if self.meddled == Some(served) || self.ending.is_some() {
            return;
        }
        self.meddled = Some(served);
        let ((reply, ended), (answer, renewed)) = (Reply::channel(), Reply::channel());
        let (by, ttl) = (stranger(who), Duration::from_secs(1));
        let renewal =
            HerdCommand::Renew { lease: lease.clone(), ttl, by: by.clone(), reply: answer };
        world.send(renewal);
        world.send(HerdCommand::Release { lease, by, reply });
        self.meddling = Some((ended, renewed));
    }

    fn ask(&mut self, who: u32, world: &World) {
        let Some(want) = self.want.clone() else { return };
        self.tries += 1;
        let (reply, answer) = Reply::channel();
        let By { principal, group, .. } = tenant(who);
        let ask = LeaseAsk {
            lease: LeaseId::new(format!("lease-{who}-{}", self.tries)),
            want,
            principal,
            // Some come again, and get what they had if that is clean by then.
            owner: format!("asker {}", who % 3),
            ttl_ms: u64::try_from(self.ttl.as_millis()).unwrap(),
            public_key: (who % 4 != 3).then(|| "ssh-ed25519 AAAA somebody".into()),
            key_hash: Some(format!("key-{who}")),
            body_hash: format!("body-{who}"),
            asked: world.wall(),
            source: None,
            whole: false,
            user_data: who % 2 == 1,
            group,
            wait_ms: None,
        };
        world.send(HerdCommand::Lease { ask: Box::new(ask), reply });
        self.asking = Some(answer);
    }
}
