//! What is started while a cloud does not work, or while the outcome of a clone is unknown: nothing,
//! but for one clone after each pause.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_model::id::CloudId;
use drover_model::phase::CloudHealth;

/// What was granted a moment before still begins.
const UNDER_WAY: Duration = Duration::from_secs(1);
/// The shortest pause between two clones while an outcome is unknown.
const PAUSE: u32 = 5;

#[derive(Debug)]
struct Reported {
    since: Duration,
    /// Whether the cloud does not work at all.
    down: bool,
    clones: u32,
}

/// What clouds reported of themselves last, where it keeps clones back.
#[derive(Debug, Default)]
pub struct Held(BTreeMap<String, Reported>);

impl Held {
    /// The service starts again.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// A cloud reports its health, and what keeps clones back.
    pub fn reported(&mut self, cloud: &CloudId, health: CloudHealth, detail: &str, now: Duration) {
        let down = health != CloudHealth::Well;
        if !down && detail.is_empty() {
            self.0.remove(cloud.as_str());
            return;
        }
        let reported = self.0.get(cloud.as_str());
        if reported.is_none_or(|reported| reported.down != down) {
            let reported = Reported { since: now, down, clones: 0 };
            self.0.insert(cloud.as_str().to_owned(), reported);
        }
    }

    /// A clone is about to begin through a cloud; what is wrong with that.
    pub fn cloned(&mut self, cloud: &str, now: Duration) -> Option<String> {
        let reported = self.0.get_mut(cloud)?;
        let spent = now - reported.since;
        if spent <= UNDER_WAY {
            return None;
        }
        reported.clones += 1;
        let most = if reported.down { 0 } else { 1 + spent.as_secs() as u32 / PAUSE };
        (reported.clones > most).then(|| {
            format!("clone {} through {cloud} {spent:?} after {reported:?}", reported.clones)
        })
    }
}
