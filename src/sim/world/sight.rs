//! What the cluster's lists know of a guest: values as of the last cycle of its node's status
//! daemon, worked out only when somebody looks or changes something.

use std::time::Duration;

use super::clock::Moment;
use super::conf;
use super::state::{Guest, Kind};

/// After this long values of a silent node are dropped (behaviour section 8).
const EXPIRY: Duration = Duration::from_secs(300);

/// What the status daemon says of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// `running`, `stopped` or `paused`.
    pub status: &'static str,
    /// Its name.
    pub name: String,
    /// Whether it is a template.
    pub template: bool,
    /// When it started.
    pub since: Option<Moment>,
    /// Memory in bytes.
    pub memory: u64,
    /// Processors.
    pub cpus: u64,
    /// Size of the disk it boots from.
    pub disk: u64,
}

impl View {
    /// The present values of a guest.
    pub fn of(guest: &Guest) -> Self {
        let config = &guest.config;
        let status = match &guest.run {
            None => "stopped",
            Some(run) if run.paused => "paused",
            Some(_) => "running",
        };
        Self {
            status,
            name: name_of(guest),
            template: conf::flag(config, "template"),
            since: guest.run.as_ref().map(|run| run.since),
            memory: conf::memory(config),
            cpus: conf::cpus(config),
            disk: match guest.kind {
                Kind::Vm => conf::boot_disk_size(config),
                Kind::Ct => config.get("rootfs").map_or(0, |root| conf::Drive::parse(root).size()),
            },
        }
    }
}

fn name_of(guest: &Guest) -> String {
    let key = match guest.kind {
        Kind::Vm => "name",
        Kind::Ct => "hostname",
    };
    let name = guest.config.get(key).cloned();
    name.unwrap_or_else(|| match guest.kind {
        Kind::Vm => format!("VM {}", guest.vmid),
        Kind::Ct => format!("CT{}", guest.vmid),
    })
}

/// What is published of a guest, and since when its values differ from that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// The values of the last cycle, and when that was.
    pub published: Option<(Moment, View)>,
    /// The last change.
    pub changed: Moment,
}

impl Sight {
    /// A guest nobody has published yet.
    pub fn new(now: Moment) -> Self {
        Self { published: None, changed: now }
    }

    /// The published values, unless they are too old.
    pub fn fresh(&self, now: Moment) -> Option<&(Moment, View)> {
        self.published.as_ref().filter(|(at, _)| now.saturating_sub(*at) <= EXPIRY)
    }
}

impl Guest {
    /// Brings what is published up to the last cycle of the node's status daemon.
    pub fn settle(&mut self, cycle: Option<Moment>) {
        let Some(cycle) = cycle else { return };
        if self.sight.changed <= cycle {
            self.sight.published = Some((cycle, self.view()));
        }
    }
}
