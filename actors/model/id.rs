//! Names of things, one type each, so that an agent's id cannot be passed for a lease's.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps a name.
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(Arc::from(text.as_ref()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id!(
    /// A configured cloud: its key in `cloudConfigurations`.
    CloudId
);
text_id!(
    /// A Proxmox cluster: the first 16 hex digits of its root CA's SHA-256 fingerprint.
    ClusterId
);
text_id!(
    /// A node of a Proxmox cluster.
    NodeName
);
text_id!(
    /// A pool of addresses: its key in `addressPools`.
    AddressPoolId
);
text_id!(
    /// One drover installation: 8 characters of lower-case Crockford base32.
    Installation
);
text_id!(
    /// One agent, from decision to gone: 16 characters of lower-case Crockford base32.
    AgentId
);
text_id!(
    /// A use of an agent handed to somebody.
    LeaseId
);
text_id!(
    /// An order to the machine of an agent: `order-` and 16 characters.
    OrderId
);
text_id!(
    /// A declared machine: its key in `machines`.
    DeclaredName
);
text_id!(
    /// A source of demand: its key in `demand`.
    SourceId
);
text_id!(
    /// A runner at a source of demand: `drover-<installation>-<agent>`, with `-<n>` for the n-th use
    /// of that agent beyond its first.
    RunnerName
);
text_id!(
    /// A Proxmox task (book: proxmox, section 5).
    Upid
);

impl RunnerName {
    /// The name of an agent's runner for its n-th use, counted from 1.
    pub fn of(installation: &Installation, agent: &AgentId, n: u32) -> Self {
        let first = format!("drover-{installation}-{agent}");
        Self::new(if n <= 1 { first } else { format!("{first}-{n}") })
    }

    /// Reads a name, which must be exactly one that [`RunnerName::of`] makes.
    pub fn parse(text: &str) -> Option<(Installation, AgentId, u32)> {
        let mut parts = text.strip_prefix("drover-")?.split('-');
        let (installation, agent) = (parts.next()?, parts.next()?);
        let n = parts.next().map_or(Some(1), |n| n.parse().ok())?;
        let (installation, agent) = (Installation::new(installation), AgentId::new(agent));
        let well = is_crockford(installation.as_str(), 8) && is_crockford(agent.as_str(), 16);
        let same = Self::of(&installation, &agent, n).as_str() == text;
        (well && same).then_some((installation, agent, n))
    }
}

/// A template on one cloud; shown as `cloud/template`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TemplateId {
    /// The cloud it clones on.
    pub cloud: CloudId,
    /// Its key in `agentConfigurations`.
    pub name: Arc<str>,
}

impl TemplateId {
    /// Names a template of a cloud.
    pub fn new(cloud: CloudId, name: impl AsRef<str>) -> Self {
        Self { cloud, name: Arc::from(name.as_ref()) }
    }

    /// Whether `text` names this template: `cloud/template`, or the bare name.
    pub fn answers_to(&self, text: &str) -> bool {
        match text.split_once('/') {
            Some((cloud, name)) => self.cloud.as_str() == cloud && &*self.name == name,
            None => &*self.name == text,
        }
    }
}

impl fmt::Display for TemplateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cloud, self.name)
    }
}

/// Proxmox's number of a guest, unique in its cluster at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VmId(pub u32);

impl fmt::Display for VmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Counts configurations taken into force; agents remember the one they were born under.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Generation(pub u64);

/// The stamp of one effect; its answer carries it back and is dropped when it is stale.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Attempt {
    /// Which start of the service, from the journal's `Takeover`.
    pub epoch: u64,
    /// Which incarnation of the actor within it.
    pub incarnation: u32,
    /// Which effect of that incarnation.
    pub n: u32,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.epoch, self.incarnation, self.n)
    }
}

const CROCKFORD: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Spells `length` characters of lower-case Crockford base32 from 5-bit draws.
pub fn crockford(length: usize, mut draw: impl FnMut() -> u32) -> String {
    (0..length).map(|_| char::from(CROCKFORD[(draw() & 31) as usize])).collect()
}

/// Whether text is exactly `length` characters of lower-case Crockford base32.
pub fn is_crockford(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| CROCKFORD.contains(&byte))
}
