//! Leases as they are asked for.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::{LeaseId, SourceId};
use crate::labels::LabelExpression;
use crate::outside::{outside, outside_expression, outsides};
use crate::size::Size;
use crate::time::WallTime;

/// What somebody wants a lease on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Want {
    /// A template by `cloud/template` or bare name.
    Template(String),
    /// Any template that carries all of these labels.
    Labels(BTreeSet<String>),
    /// Any template whose labels an expression holds for.
    Expression(LabelExpression),
    /// The same on a machine of this size, whatever labels say of its size.
    Sized(Box<Self>, Size),
}

impl Want {
    /// The same on a machine of this size.
    #[must_use]
    pub fn of_size(self, size: Size) -> Self {
        if size.is_none() { self } else { Self::Sized(Box::new(self), size) }
    }

    /// What is wanted, whatever its size.
    pub fn plain(&self) -> &Self {
        match self {
            Self::Sized(want, _) => want.plain(),
            Self::Template(_) | Self::Labels(_) | Self::Expression(_) => self,
        }
    }

    /// The labels that it names.
    pub fn names(&self) -> BTreeSet<&str> {
        match self.plain() {
            Self::Labels(labels) => labels.iter().map(String::as_str).collect(),
            Self::Expression(expression) => expression.names(),
            Self::Template(_) | Self::Sized(..) => BTreeSet::new(),
        }
    }
}

/// What a lease or job wants, for people.
pub fn describe(want: &Want) -> String {
    match want {
        Want::Template(name) => format!("template {}", outside(name)),
        Want::Labels(labels) if labels.is_empty() => "any template in mode NORMAL".into(),
        Want::Labels(labels) => {
            format!("labels {}", outsides(labels.iter().map(String::as_str)))
        }
        Want::Expression(expression) => {
            format!("label expression {}", outside_expression(&expression.to_string()))
        }
        Want::Sized(want, size) => format!("{} with {size}", describe(want)),
    }
}

/// A lease as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseAsk {
    pub lease: LeaseId,
    /// What the lease may be on.
    pub want: Want,
    /// Who asked, as authenticated.
    pub principal: String,
    /// For whom, as the asker says.
    pub owner: String,
    /// How long it lasts from the grant, in milliseconds.
    pub ttl_ms: u64,
    /// A public key to install for the time of the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// SHA-256 of the idempotency key, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_hash: Option<String>,
    /// SHA-256 of the request's body.
    pub body_hash: String,
    /// When it was asked for.
    pub asked: WallTime,
    /// The source of demand whose runner takes the agent; none for who asked for the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceId>,
    /// Whether it takes its agent with all executors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// Whether user data goes with it. What that says may be secret and is kept beside the journal,
    /// by anyone who reaches the guest.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub user_data: bool,
    /// The group of anyone who asked, whose lease it is too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How long it waits for an agent, in milliseconds; none for as long as the configuration says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// For whom a lease is: who asked, and for whom they said. Only the same may have a guest again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// Who asked, as authenticated.
    pub principal: String,
    /// For whom, as the asker says.
    pub owner: String,
}

impl LeaseAsk {
    /// For whom it is.
    pub fn whose(&self) -> Owner {
        Owner { principal: self.principal.clone(), owner: self.owner.clone() }
    }

    /// Whether something is put into the guest for it that must be out of there when it is over.
    pub fn enters(&self) -> bool {
        self.public_key.is_some() || self.source.is_some() || self.user_data
    }
}
