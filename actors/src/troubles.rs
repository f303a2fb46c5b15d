//! Since when nodes are offline, clouds are degraded and sources cannot be read. The actors of one
//! thread share it. It is recorded in the journal, so that a trouble does not look new after a panic
//! or a start of the service.
//!
//! Each actor reports the state of its own subject. A repeated report is not written again. After a
//! start a subject in trouble stays so until its actor has seen that it works.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use drover_model::id::{ClusterId, NodeName};
use drover_model::journal_state::JournalState;
use drover_model::record::{Body, Troubled};
use drover_model::time::WallTime;

use crate::records::Records;

#[derive(Clone)]
pub struct Troubles(Rc<Inner>);

struct Inner {
    since: RefCell<BTreeMap<Troubled, WallTime>>,
    records: Records,
}

impl Troubles {
    /// Restores the troubles from the journal.
    pub fn of_journal_state(journal_state: &JournalState, records: Records) -> Self {
        Self(Rc::new(Inner { since: RefCell::new(journal_state.troubled.clone()), records }))
    }

    /// Since when something is in trouble, as far as is known.
    pub fn since(&self, of: &Troubled) -> Option<WallTime> {
        self.0.since.borrow().get(of).copied()
    }

    /// Sets since when something is in trouble. `None`: it works.
    pub fn set(&self, of: Troubled, since: Option<WallTime>) {
        let known = {
            let mut all = self.0.since.borrow_mut();
            match since {
                Some(since) => all.insert(of.clone(), since),
                None => all.remove(&of),
            }
        };
        if known != since {
            self.0.records.write(Body::TroubleSince { of, since });
        }
    }

    /// Removes the troubles of subjects that are not `wanted` any more.
    pub fn retain(&self, wanted: impl Fn(&Troubled) -> bool) {
        let all: Vec<Troubled> = self.0.since.borrow().keys().cloned().collect();
        all.into_iter().filter(|of| !wanted(of)).for_each(|of| self.set(of, None));
    }

    /// The offline nodes of a cluster, each with how long it is offline.
    pub fn offline(&self, cluster: &ClusterId, now: WallTime) -> BTreeMap<NodeName, Duration> {
        let all = self.0.since.borrow();
        let span = |(of, since): (&Troubled, &WallTime)| match of {
            Troubled::Node { cluster: its, node } if its == cluster => {
                Some((node.clone(), now - *since))
            }
            Troubled::Node { .. } | Troubled::Cloud { .. } | Troubled::Source { .. } => None,
        };
        all.iter().filter_map(span).collect()
    }

    /// Sets the offline nodes of a cluster, each with how long it is offline. All others are
    /// online.
    pub fn set_offline(
        &self,
        cluster: &ClusterId,
        offline: &BTreeMap<NodeName, Duration>,
        now: WallTime,
    ) {
        let known = self.offline(cluster, now);
        let of = |node: &NodeName| Troubled::Node { cluster: cluster.clone(), node: node.clone() };
        for node in known.keys().filter(|node| !offline.contains_key(*node)) {
            self.set(of(node), None);
        }
        for (node, span) in offline.iter().filter(|(node, _)| !known.contains_key(*node)) {
            self.set(of(node), Some(now.before(*span)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, at, on_paused_system, pass, seconds};
    use drover_model::id::CloudId;

    // Invariant: a change is written, and a repeated report is not.

    #[test]
    fn a_trouble_is_written_when_it_starts_and_when_it_is_over() {
        on_paused_system(|| async {
            let world = World::new(&[]);
            let records = Records::new(world.ports().journal);
            let troubles = Troubles::of_journal_state(&JournalState::default(), records);
            let cluster = ClusterId::new("c0");
            let cloud = Troubled::Cloud { cloud: CloudId::new("c") };
            let node = Troubled::Node { cluster: cluster.clone(), node: NodeName::new("pve1") };
            let offline = |span: u64| BTreeMap::from([(NodeName::new("pve1"), seconds(span))]);
            troubles.set(cloud.clone(), Some(at(1).wall));
            troubles.set(cloud.clone(), Some(at(1).wall));
            troubles.set_offline(&cluster, &offline(2), at(10).wall);
            pass(seconds(1)).await;
            troubles.set_offline(&cluster, &offline(12), at(20).wall);
            assert_eq!(troubles.offline(&cluster, at(20).wall), offline(12));
            troubles.set_offline(&cluster, &BTreeMap::new(), at(30).wall);
            troubles.retain(|_| false);
            pass(seconds(1)).await;
            let since = |of: &Troubled, since: Option<u64>| Body::TroubleSince {
                of: of.clone(),
                since: since.map(|second| at(second).wall),
            };
            let written = world.with(|script| script.bodies.clone());
            let expected = [
                since(&cloud, Some(1)),
                since(&node, Some(8)),
                since(&node, None),
                since(&cloud, None),
            ];
            assert_eq!(written, expected);
        });
    }
}
