//! Roles and access entries that grant what is needed, and no more.

use std::collections::{BTreeMap, BTreeSet};

use super::need::{Needs, is_guess};
use super::table::At;

/// The roles that drover's rights are put into, one for each kind of path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoleKind {
    /// Reading, on `/`.
    Reader,
    /// Making and destroying, on the pool.
    Guests,
    /// Cloning, on each template.
    Templates,
    /// Allocating disks.
    Storage,
    /// Disc images, on the storage they are uploaded to.
    Discs,
    /// Using bridges.
    Network,
}

impl RoleKind {
    /// The role that holds what is needed on such paths.
    pub fn of(at: At) -> Self {
        match at {
            At::Root | At::Access | At::Nodes | At::AllGuests => Self::Reader,
            At::Guests => Self::Guests,
            At::Template => Self::Templates,
            At::Storage => Self::Storage,
            At::DiscStorage => Self::Discs,
            At::Bridge => Self::Network,
        }
    }

    /// Its name, behind a prefix such as `Drover`.
    pub fn name(self, prefix: &str) -> String {
        let rest = match self {
            Self::Reader => "Reader",
            Self::Guests => "Guests",
            Self::Templates => "Templates",
            Self::Storage => "Storage",
            Self::Discs => "Discs",
            Self::Network => "Network",
        };
        format!("{prefix}{rest}")
    }
}

/// How grants are worked out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wishes {
    /// What drover works without, too: `Datastore.Allocate`.
    pub optional: bool,
}

/// Roles with their privileges, and where each is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// Privileges by role.
    pub roles: BTreeMap<RoleKind, BTreeSet<String>>,
    /// Paths and the role given on each.
    pub entries: BTreeSet<(String, RoleKind)>,
    /// Pools that must exist.
    pub pools: BTreeSet<String>,
}

/// The least that grants what is needed.
///
/// Entries on a path replace those from above it, so each role holds whatever is needed on its
/// paths, reading included. Templates that are found by name, pattern or tag and lie in a pool are
/// granted there, so that the next image is too.
pub fn grants(needs: &Needs, pools: &BTreeMap<String, String>, wishes: Wishes) -> Grants {
    let mut grants = Grants::default();
    let wanted = || {
        let all = needs.all.iter();
        all.filter(|need| wishes.optional || !need.row.feature.is_optional())
    };
    for need in wanted() {
        let kind = RoleKind::of(need.row.at);
        let path = match need.row.at {
            At::Root | At::Access | At::Nodes | At::AllGuests => "/".to_owned(),
            At::Template => match pools.get(&need.path) {
                Some(pool) => format!("/pool/{pool}"),
                None => need.path.clone(),
            },
            At::Guests | At::Storage | At::DiscStorage | At::Bridge => need.path.clone(),
        };
        if let (At::Guests, Some(pool)) = (need.row.at, need.path.strip_prefix("/pool/")) {
            grants.pools.insert(pool.to_owned());
        }
        grants.entries.insert((path, kind));
        if let [only] = need.any_of {
            grants.roles.entry(kind).or_default().insert((*only).to_owned());
        }
    }
    // Of several that do, one that is granted anyway is enough.
    for need in wanted().filter(|need| need.any_of.len() > 1) {
        let role = grants.roles.entry(RoleKind::of(need.row.at)).or_default();
        if let (false, Some(first)) =
            (need.any_of.iter().any(|name| role.contains(*name)), need.any_of.first())
        {
            role.insert((*first).to_owned());
        }
    }
    grants
}

impl Grants {
    /// Paths that could not be worked out, to be put in by hand.
    pub fn guesses(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(path, _)| path.as_str()).filter(|path| is_guess(path))
    }
}
