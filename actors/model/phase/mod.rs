//! The words for where a thing stands in its life: agents, leases, breakers, clouds, nodes, jobs.
//!
//! Each set of words is one enum, and everybody uses that enum: the minds, the journal, the
//! reconciler, the API, the metrics and the command line. No other file of drover's own code spells
//! the name of an [`AgentPhase`], a [`BreakerPhase`] or a [`CloudHealth`] (`tests/walls.rs` reads the
//! sources for that).
//!
//! What goes in is text of the journal, of a query or of another drover's API; what comes out is
//! the same text. [`name`](AgentPhase::name), `Display`, `FromStr` and serde agree on it, so a word
//! has one spelling everywhere. The words are a contract: journals and callers hold them. A variant
//! may be renamed, its word may not.
//!
//! A word that is in no list is an [`UnknownWord`], never a default: it names the word and the
//! words that this version knows. The journal adds which record holds it, and what to do.
//!
//! What follows from a phase is a method of it (`has_guest`, `should_run`, …), said once. The book has
//! a table of which phases answer yes to which question (book: agents, What each phase means to
//! others), drawn from these methods. A match on a phase names all phases, so that a new one has to be
//! thought about everywhere.
//!
//! The words sort as their names do, in maps of the API too. `ALL` has them in the order of life.
//!
//! Beside this: `agent.rs` the life of an agent, with its diagram; `lease.rs`, `breaker.rs`,
//! `cloud.rs`, `declared.rs`, `image.rs`, `node.rs`, `job.rs`, `login.rs`, `order.rs` and `power.rs` the
//! others.

mod agent;
mod breaker;
mod cloud;
mod declared;
mod image;
mod job;
mod lease;
mod login;
mod node;
mod order;
mod power;

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Error, Visitor};

pub use agent::AgentPhase;
pub use breaker::BreakerPhase;
pub use cloud::{CloudHealth, NO_ENDPOINT};
pub use declared::{DeclaredPhase, DriftKind};
pub use image::ImagePhase;
pub use job::JobPhase;
pub use lease::LeasePhase;
pub use login::LoginPhase;
pub use node::{NodeOrder, NodeStatus, OrderedBy};
pub use order::OrderPhase;
pub use power::Power;

/// A word that this version of drover does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown {what} `{word}`; drover {} knows {}",
    env!("CARGO_PKG_VERSION"), .known.join(", ")
)]
pub struct UnknownWord {
    /// What the word was read as, such as `agent phase`.
    pub what: &'static str,
    pub word: String,
    /// The words that would have been understood.
    pub known: Vec<&'static str>,
}

/// Reads a word out of serialized text.
struct Word<T>(PhantomData<T>);

impl<T: FromStr<Err = UnknownWord>> Visitor<'_> for Word<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<T, E> {
        word.parse().map_err(E::custom)
    }
}

/// Declares a closed set of words: an enum, with its names as text, in serde and in the API's
/// schema.
macro_rules! words {
    (
        $(#[$attribute:meta])*
        $Name:ident, $what:literal {
            $($(#[$comment:meta])* $Variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $Name {
            $($(#[$comment])* $Variant,)+
        }

        impl $Name {
            /// All of them, in the order of life.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$Variant),+];

            /// The word, as the journal, the API and people have it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $Name {
            type Err = crate::phase::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.into_iter().find(|one| one.name() == word);
                found.ok_or_else(|| crate::phase::UnknownWord {
                    what: $what,
                    word: word.to_owned(),
                    known: Self::ALL.map(Self::name).to_vec(),
                })
            }
        }

        impl Ord for $Name {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.name().cmp(other.name())
            }
        }

        impl PartialOrd for $Name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl serde::Serialize for $Name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $Name {
            fn deserialize<D: serde::Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
                reader.deserialize_str(crate::phase::Word(std::marker::PhantomData))
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::PartialSchema for $Name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .enum_values(Some(Self::ALL.map(Self::name)))
                    .into()
            }
        }

        #[cfg(feature = "openapi")]
        impl utoipa::ToSchema for $Name {}
    };
}

use words;

#[cfg(test)]
#[expect(clippy::expect_used, reason = "a test may panic")]
mod tests;
