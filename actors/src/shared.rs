//! Knowledge that the actors of one thread share beside their mailboxes, and who may write it.
//!
//! ```text
//! Shared<Board, role::Cluster> ──Deref──▶ Board             all roles read: `closed`, `status`
//!            │
//!            └── impl Shared<Board, role::Cluster>          verbs that this role writes: `started`
//! ```
//!
//! - [`Shared<K, R>`] is the handle on knowledge `K` that an actor of the role `R` has. It
//!   dereferences to `K`, whose own methods only read.
//! - What a role writes is in an `impl Shared<K, role::…>` block of `K`'s module. Another role has no
//!   such verb: the compiler refuses it.
//! - `K` itself cannot be cloned, so nobody makes a handle of another role from one that it has. An
//!   actor gives each child the handle of the child's role ([`role::Starts`]).
//! - The herd's handles cannot be cloned either: the herd is one.
//! - The knowledge belongs to no actor, so a panic of one loses none of it.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::rc::Rc;

/// The handle on knowledge that an actor of the role `R` has.
pub struct Shared<K, R = role::Reader> {
    known: Rc<K>,
    role: PhantomData<R>,
}

impl<K, R> Shared<K, R> {
    /// Starts to share. Who calls it owns the knowledge: it is its first handle.
    pub fn new(known: K) -> Self {
        Self::wrap(Rc::new(known))
    }

    /// The handle of an actor that this one starts.
    pub fn give<C>(&self) -> Shared<K, C>
    where
        R: role::Starts<C>,
    {
        Shared::wrap(Rc::clone(&self.known))
    }

    /// The handle of another role, for a test that plays its actor.
    #[cfg(test)]
    pub fn playing<C>(&self) -> Shared<K, C> {
        Shared::wrap(Rc::clone(&self.known))
    }

    fn wrap(known: Rc<K>) -> Self {
        Self { known, role: PhantomData }
    }
}

impl<K, R> Deref for Shared<K, R> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.known
    }
}

impl<K, R: role::Many> Clone for Shared<K, R> {
    fn clone(&self) -> Self {
        Self::wrap(Rc::clone(&self.known))
    }
}

impl<K: Default, R> Default for Shared<K, R> {
    fn default() -> Self {
        Self::new(K::default())
    }
}

impl<K: fmt::Debug, R> fmt::Debug for Shared<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.known.fmt(f)
    }
}

/// The roles of actors. No role has a value: it is a type parameter only.
pub mod role {
    /// The root, of which there is one.
    #[derive(Debug)]
    pub enum Herd {}
    #[derive(Debug)]
    pub enum Cloud {}
    #[derive(Debug)]
    pub enum Template {}
    #[derive(Debug)]
    pub enum Agent {}
    #[derive(Debug)]
    pub enum Cluster {}
    #[derive(Debug)]
    pub enum Reconciler {}
    #[derive(Debug)]
    pub enum Source {}
    /// A build of an image.
    #[derive(Debug)]
    pub enum Builder {}
    /// The keeper of a declared machine.
    #[derive(Debug)]
    pub enum Keeper {}
    /// No actor: a test of a whole herd.
    #[derive(Debug)]
    pub enum Reader {}

    /// An actor of this role starts actors of the role `C`.
    pub trait Starts<C> {}

    impl Starts<Cloud> for Herd {}
    impl Starts<Cluster> for Herd {}
    impl Starts<Reconciler> for Herd {}
    impl Starts<Source> for Herd {}
    impl Starts<Builder> for Herd {}
    impl Starts<Keeper> for Herd {}
    impl Starts<Reader> for Herd {}
    impl Starts<Template> for Cloud {}
    impl Starts<Agent> for Template {}

    /// A role that many have: its handles may be cloned.
    pub trait Many {}

    impl Many for Cloud {}
    impl Many for Template {}
    impl Many for Agent {}
    impl Many for Cluster {}
    impl Many for Reconciler {}
    impl Many for Source {}
    impl Many for Builder {}
    impl Many for Keeper {}
    impl Many for Reader {}
}

#[cfg(test)]
mod tests {
    use super::{Shared, role};

    /// Compiles only while none of the types can be cloned: with `Clone`, two traits have `is_single`.
    macro_rules! cannot_be_cloned {
        ($($type:ty),* $(,)?) => {$({
            trait Single<Reason> {
                fn is_single() {}
            }
            impl<T> Single<()> for T {}
            struct BesideClone;
            impl<T: Clone> Single<BesideClone> for T {}
            <$type as Single<_>>::is_single();
        })*};
    }

    // Invariant: no actor makes a handle of another role, and nobody but the herd writes as the herd.

    #[test]
    fn neither_knowledge_nor_a_handle_of_the_herd_can_be_cloned() {
        cannot_be_cloned!(
            Shared<(), role::Herd>,
            crate::addresses::Addresses,
            crate::board::Board,
            crate::canary::Canaries,
            crate::doubts::Doubts,
            crate::history::History,
            crate::hold_next::HoldNext,
            crate::records::Records,
            crate::restraint::Restraint,
            crate::roster::Roster,
            crate::runners::Runners,
            crate::sites::Sites,
            crate::ways::Ways,
        );
    }

    #[test]
    fn handles_of_all_roles_show_the_same_knowledge() {
        let herds: Shared<std::cell::Cell<u32>, role::Herd> = Shared::default();
        let clouds: Shared<_, role::Cloud> = herds.give();
        let agents = clouds.clone().give::<role::Template>().give::<role::Agent>();
        herds.set(7);
        assert_eq!((clouds.get(), agents.get()), (7, 7));
    }
}
