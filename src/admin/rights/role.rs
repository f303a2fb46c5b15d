//! Roles and access entries that grant what is needed, and no more.

use std::collections::{BTreeMap, BTreeSet};

use super::need::{Needs, is_placeholder};
use super::table::{At, Feature};

/// The roles that hold drover's privileges: one for each kind of path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoleKind {
    /// Reads the cluster, on `/`.
    Reader,
    /// Makes and destroys guests, on the pool.
    Guests,
    /// Clones, on each template.
    Templates,
    /// Allocates disks, on each storage.
    Storage,
    /// Uploads cloud-init images, on their storage.
    Discs,
    /// Downloads disk images and container templates, on their storage.
    Imports,
    /// Uses the devices of resource mappings, on each of them.
    Devices,
    /// Uses bridges, on each of them.
    Network,
}

impl RoleKind {
    /// The role that holds the privileges on such paths.
    pub fn of(at: At) -> Self {
        match at {
            At::Root | At::Access | At::Nodes | At::AllGuests => Self::Reader,
            At::Guests => Self::Guests,
            At::Template => Self::Templates,
            At::Storage => Self::Storage,
            At::DiscStorage => Self::Discs,
            At::ImportStorage | At::OsTemplateStorage => Self::Imports,
            At::Mapping => Self::Devices,
            At::Bridge => Self::Network,
        }
    }

    /// The name, after a prefix such as `Drover`.
    pub fn name(self, prefix: &str) -> String {
        let rest = match self {
            Self::Reader => "Reader",
            Self::Guests => "Guests",
            Self::Templates => "Templates",
            Self::Storage => "Storage",
            Self::Discs => "Discs",
            Self::Imports => "Imports",
            Self::Devices => "Devices",
            Self::Network => "Network",
        };
        format!("{prefix}{rest}")
    }
}

/// What to grant beyond the minimum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GrantOptions {
    /// Privileges without which drover works as documented: `Datastore.Allocate`.
    pub optional: bool,
    /// Whether snapshots and other sizes of machines may be ordered.
    pub orders: bool,
}

/// Roles with their privileges, and the paths on which each is granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    pub roles: BTreeMap<RoleKind, BTreeSet<String>>,
    /// The paths, each with the role that is granted on it.
    pub entries: BTreeSet<(String, RoleKind)>,
    /// The pools that must exist.
    pub pools: BTreeSet<String>,
}

/// The smallest grants that give what is needed.
///
/// Entries on a path replace those from above, so each role holds everything that is needed on its
/// paths, including privileges for reading. A template that is found by name, pattern or tag and is
/// in a pool is granted on that pool, so that the next image is granted, too.
pub fn grants(needs: &Needs, pools: &BTreeMap<String, String>, options: GrantOptions) -> Grants {
    let mut grants = Grants::default();
    let wanted = || {
        let all = needs.all.iter();
        all.filter(|need| {
            let feature = need.row.feature;
            let optional = options.optional || !feature.is_optional();
            if feature == Feature::Orders { options.orders } else { optional }
        })
    };
    for need in wanted() {
        let kind = RoleKind::of(need.row.at);
        let path = match need.row.at {
            At::Root | At::Access | At::Nodes | At::AllGuests => "/".to_owned(),
            At::Template => match pools.get(&need.path) {
                Some(pool) => format!("/pool/{pool}"),
                None => need.path.clone(),
            },
            At::Guests
            | At::Storage
            | At::DiscStorage
            | At::ImportStorage
            | At::Mapping
            | At::OsTemplateStorage
            | At::Bridge => need.path.clone(),
        };
        if let (At::Guests, Some(pool)) = (need.row.at, need.path.strip_prefix("/pool/")) {
            grants.pools.insert(pool.to_owned());
        }
        grants.entries.insert((path, kind));
        if let [only] = need.any_of {
            grants.roles.entry(kind).or_default().insert((*only).to_owned());
        }
    }
    // Of several privileges that are enough, one that is granted anyway serves.
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
    /// Takes out what cannot be granted yet, because its path is not known; returns these paths.
    pub fn take_placeholders(&mut self) -> Vec<String> {
        let unknown: Vec<String> = self.placeholders().map(str::to_owned).collect();
        self.entries.retain(|(path, _)| !is_placeholder(path));
        unknown
    }

    /// Placeholders for paths that could not be worked out; people must replace them.
    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(path, _)| path.as_str()).filter(|path| is_placeholder(path))
    }
}
