//! Addresses that are given to agents: pools of them, and whose each one is ([`book`]).

pub mod book;
mod claims;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use drover_model::addresses::{AddressPoolSpec, AddressSource, AssignedAddress};

pub use book::{Book, Supply};

use claims::Claims;

use drover_model::id::{AddressPoolId, AgentId, TemplateId};
use drover_model::status::AddressPoolStatus;
use drover_model::time::{Moment, Now};
use drover_runtime::notifier::ChangeNotifier;

use crate::shared::{Shared, role};

/// The one book of addresses of a herd.
///
/// There is one for all templates, so that no two of them give the same address.
#[derive(Debug, Default)]
pub struct Addresses {
    book: RefCell<Book>,
    claims: RefCell<Claims>,
    changes: ChangeNotifier,
}

impl Addresses {
    /// Resolves when whose an address is, or what there are, has changed since this call.
    pub fn change(&self) -> impl Future<Output = ()> + use<> {
        self.changes.changed()
    }

    /// How many agents more of this source can have addresses.
    pub fn supply(&self, source: &AddressSource, now: Now) -> Supply {
        self.book.borrow().supply(source, now)
    }

    /// What an agent has.
    pub fn of(&self, agent: &AgentId) -> Vec<AssignedAddress> {
        self.book.borrow().of(agent)
    }

    /// Why drover does not believe an address that an agent's guest reports. `None` when it may be
    /// the guest's.
    pub fn objection(&self, agent: &AgentId, address: IpAddr) -> Option<String> {
        let (claims, book) = (self.claims.borrow(), self.book.borrow());
        let owner = claims.at(address).or_else(|| book.user(address));
        if let Some(other) = owner.filter(|other| *other != agent) {
            return Some(format!(
                "its guest reports the address {address}, which is agent {other}'s: drover does not \
                 connect to it there"
            ));
        }
        let pool = book.pool_of(address).filter(|_| owner.is_none())?;
        Some(format!(
            "its guest reports the address {address}, which address pool `{pool}` gives to others: \
             drover does not connect to it there"
        ))
    }

    /// Every pool for people, and when a status of them changes by time alone.
    pub fn statuses(&self, now: Now) -> (Vec<AddressPoolStatus>, Option<Moment>) {
        let book = self.book.borrow();
        (book.statuses(now), book.next(now.mono))
    }
}

/// Which pools there are is the herd's to write.
impl Shared<Addresses, role::Herd> {
    /// Restores the book from the journal.
    pub fn open(&self, book: Book) {
        *self.book.borrow_mut() = book;
    }

    /// Other pools come into force.
    pub fn configure(&self, pools: &BTreeMap<AddressPoolId, Arc<AddressPoolSpec>>) {
        self.book.borrow_mut().configure(pools);
        self.changes.notify();
    }
}

/// A role that starts agents, or takes them over at a start of the service.
pub trait KeepsBack {}

impl KeepsBack for role::Herd {}
impl KeepsBack for role::Template {}

impl<R: KeepsBack> Shared<Addresses, R> {
    /// Keeps addresses back for an agent; see [`Book::take`].
    pub fn take(&self, agent: &AgentId, template: &TemplateId, source: &AddressSource, now: Now) {
        if !source.is_scarce() {
            return;
        }
        match self.book.borrow_mut().take(agent, template, source, now) {
            Some(addresses) => {
                let shown: Vec<String> =
                    addresses.iter().map(|one| one.address.to_string()).collect();
                tracing::debug!(agent = %agent, addresses = shown.join(" "), "address is kept back");
            }
            None => tracing::warn!(agent = %agent, "no address is free for the agent"),
        }
        self.changes.notify();
    }
}

impl Shared<Addresses, role::Template> {
    /// An agent is gone.
    pub fn give_back(&self, agent: &AgentId, now: Now) {
        self.claims.borrow_mut().settle(agent, None);
        if self.book.borrow_mut().give_back(agent, now) {
            self.changes.notify();
        }
    }

    /// Gives back what was kept for agents of a template that never came to be.
    pub fn sweep(&self, template: &TemplateId, lives: impl Fn(&AgentId) -> bool, now: Now) {
        if self.book.borrow_mut().sweep(template, lives, now) {
            self.changes.notify();
        }
    }
}

impl Shared<Addresses, role::Agent> {
    /// An agent's addresses are being written down.
    pub fn speak(&self, agent: &AgentId) {
        self.book.borrow_mut().speak(agent);
    }

    /// An agent is reached at this address from now on, or nowhere.
    pub fn settle(&self, agent: &AgentId, address: Option<IpAddr>) {
        self.claims.borrow_mut().settle(agent, address);
    }
}
