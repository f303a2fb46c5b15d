//! Whose leases are: who may end them and log in, and how many and how large ones somebody may have.

use std::time::Duration;

use crate::record::{HoldOwner, LeaseAsk};

/// Who asks about a lease, or wants it changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct By {
    /// Who it is, as authenticated.
    pub principal: String,
    /// The group the configuration puts them into.
    pub group: Option<String>,
    /// Whether everybody's leases are theirs, as an admin's are.
    pub all: bool,
}

impl By {
    /// Somebody whose every lease is.
    pub fn admin(principal: impl Into<String>) -> Self {
        Self { principal: principal.into(), group: None, all: true }
    }

    /// Whether a lease of these is theirs: their own, their group's, or anybody's for an admin.
    pub fn owns(&self, principal: &str, group: Option<&str>) -> bool {
        let same_group = self.group.is_some() && self.group.as_deref() == group;
        self.all || self.principal == principal || same_group
    }

    /// Whether a lease as asked for is theirs.
    pub fn may(&self, ask: &LeaseAsk) -> bool {
        self.owns(&ask.principal, ask.group.as_deref())
    }

    /// Whether a hold is theirs; one without an owner is the admins'.
    pub fn may_change_hold(&self, owner: Option<&HoldOwner>) -> bool {
        let theirs = |owner: &HoldOwner| self.owns(&owner.principal, owner.group.as_deref());
        self.all || owner.is_some_and(theirs)
    }

    /// As the owner of a hold.
    pub fn owner(&self) -> HoldOwner {
        HoldOwner { principal: self.principal.clone(), group: self.group.clone() }
    }
}

/// Whose leases a quota counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// Those of one principal.
    Principal(String),
    /// Those of everybody in a group, together.
    Group(String),
}

impl Whose {
    /// Whether a lease counts.
    pub fn counts(&self, ask: &LeaseAsk) -> bool {
        self.is(&ask.principal, ask.group.as_deref())
    }

    /// Whether what this principal has counts.
    pub fn is(&self, principal: &str, group: Option<&str>) -> bool {
        match self {
            Self::Principal(name) => name == principal,
            Self::Group(name) => group == Some(name),
        }
    }
}

impl std::fmt::Display for Whose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Principal(name) => write!(f, "principal `{name}`"),
            Self::Group(name) => write!(f, "group `{name}`"),
        }
    }
}

/// What one principal or group may have; none is no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    pub whose: Whose,
    /// Leases at once, those that wait included.
    pub leases: Option<u32>,
    /// Leases that wait at once.
    pub waiting: Option<u32>,
    /// Processor cores of one machine.
    pub cores: Option<u32>,
    /// Memory of one machine, in MiB.
    pub memory_mb: Option<u32>,
    /// The primary disk of one machine, in GiB.
    pub disk_gb: Option<u32>,
}

/// What holds for all who ask for leases themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseLimits {
    /// Leases that wait at once, of all together.
    pub waiting: u32,
    /// Leases that wait at once, of one principal.
    pub waiting_each: u32,
    /// How long a lease waits for an agent where its asker says nothing.
    pub wait: Duration,
    /// What single principals and groups may have.
    pub quotas: Vec<Quota>,
}

impl LeaseLimits {
    /// The most leases that wait, where nothing is configured.
    pub const WAITING: u32 = 10_000;
    /// The most of one principal.
    pub const WAITING_EACH: u32 = 2_000;
    /// How long a lease waits, in seconds.
    pub const WAIT_SECONDS: u32 = 24 * 60 * 60;
}

impl Default for LeaseLimits {
    fn default() -> Self {
        Self {
            waiting: Self::WAITING,
            waiting_each: Self::WAITING_EACH,
            wait: Duration::from_secs(u64::from(Self::WAIT_SECONDS)),
            quotas: Vec::new(),
        }
    }
}
