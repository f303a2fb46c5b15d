//! How often a cluster that fails every call is tried: bounded by time and by the agents there are.

use std::time::Duration;

use proxmox_client::transport::Request;

const WINDOW: Duration = Duration::from_secs(60);
/// Calls a window may have for each cluster, beside those of agents: its clouds' and its own polls.
const BASE: u32 = 200;
/// Calls of one agent in a window.
const EACH: u32 = 60;
/// Clones in a window: the pauses between failures double from a second.
const CLONES: u32 = 40;

/// Calls in the current window of an outage.
#[derive(Debug)]
pub struct Outage {
    from: Duration,
    calls: u32,
    clones: u32,
    most: usize,
}

impl Outage {
    pub fn from(now: Duration) -> Self {
        Self { from: now, calls: 0, clones: 0, most: 0 }
    }

    /// Counts a call; what is wrong when it is one too many.
    pub fn count(
        &mut self,
        request: &Request,
        now: Duration,
        agents: usize,
        clusters: u32,
    ) -> Option<String> {
        if now >= self.from + WINDOW {
            *self = Self::from(now);
        }
        self.calls += 1;
        self.clones += u32::from(request.path.ends_with("/clone"));
        self.most = self.most.max(agents);
        let bound = BASE * clusters + EACH * u32::try_from(self.most).unwrap();
        let over = self.calls > bound || self.clones > CLONES * clusters;
        over.then(|| {
            format!("{} calls and {} clones since {:?}", self.calls, self.clones, self.from)
        })
    }
}
