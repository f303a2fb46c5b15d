//! The ways into clusters: through which cloud a guest is reached. A cloud is called about a guest
//! only once it is proven to lead to that guest's cluster: behind another address the same VMID
//! would be free, or somebody else's. Where an agent's own cloud has left the configuration,
//! another cloud that leads to the same cluster replaces it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use drover_model::id::{CloudId, ClusterId};

use drover_runtime::notifier::ChangeNotifier;

use crate::shared::{Shared, role};

/// The known clouds and where they lead.
#[derive(Debug, Default)]
pub struct Ways {
    known: RefCell<BTreeMap<CloudId, Way>>,
    changes: ChangeNotifier,
}

/// A cloud that can be called: a configured one, or a former one that still has agents.
#[derive(Debug)]
struct Way {
    configured: bool,
    lead: Lead,
}

/// What is known of where a cloud leads.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Lead {
    /// The cloud was not asked yet.
    Untried,
    /// The cloud said that it leads to this cluster.
    To(ClusterId),
    /// The cloud does not work. Before, it said that it leads to this cluster.
    Silent(ClusterId),
    /// The cloud does not work and said nothing yet over this connection. Over an earlier one it
    /// led there.
    Unheard(Option<ClusterId>),
}

impl Lead {
    /// The cluster that the cloud is proven to lead to.
    fn cluster(&self) -> Option<&ClusterId> {
        match self {
            Self::To(cluster) | Self::Silent(cluster) => Some(cluster),
            Self::Untried | Self::Unheard(_) => None,
        }
    }
}

impl Shared<Ways, role::Herd> {
    /// A cloud comes into force, new or with another connection.
    pub fn configured(&self, cloud: &CloudId) {
        let way = Way { configured: true, lead: Lead::Untried };
        self.known.borrow_mut().insert(cloud.clone(), way);
    }

    /// A cloud left the configuration. Its own agents may still call it.
    pub fn unconfigured(&self, cloud: &CloudId) {
        if let Some(way) = self.known.borrow_mut().get_mut(cloud) {
            way.configured = false;
        }
    }

    /// Removes a cloud whose last agent is gone.
    pub fn forgotten(&self, cloud: &CloudId) {
        self.known.borrow_mut().remove(cloud);
    }

    /// A cloud said that it leads to this cluster.
    pub fn leads(&self, cloud: &CloudId, cluster: &ClusterId) {
        self.set(cloud, |lead| *lead = Lead::To(cluster.clone()));
    }

    /// A cloud does not work. Before, it led to this cluster, as far as is known.
    pub fn silent(&self, cloud: &CloudId, before: Option<&ClusterId>) {
        self.set(cloud, |lead| {
            *lead = match lead.cluster() {
                Some(proven) => Lead::Silent(proven.clone()),
                None => Lead::Unheard(before.cloned()),
            };
        });
    }

    fn set(&self, cloud: &CloudId, change: impl FnOnce(&mut Lead)) {
        if let Some(way) = self.known.borrow_mut().get_mut(cloud).filter(|way| way.configured) {
            change(&mut way.lead);
        }
        self.changes.notify();
    }
}

impl Ways {
    /// Resolves when something has changed since this call.
    pub fn change(&self) -> impl Future<Output = ()> + use<> {
        self.changes.changed()
    }

    /// The cloud to call about a guest of `own` on this cluster: `own` where it is known to lead
    /// there, otherwise a configured cloud that works and leads there. `None` as long as there is
    /// none.
    pub fn through(&self, own: &CloudId, cluster: &ClusterId) -> Option<CloudId> {
        let known = self.known.borrow();
        if known.get(own).is_some_and(|way| way.lead.cluster() == Some(cluster)) {
            return Some(own.clone());
        }
        let leads = |way: &Way| way.configured && way.lead == Lead::To(cluster.clone());
        known.iter().find(|(_, way)| leads(way)).map(|(other, _)| other.clone())
    }

    /// Whether no way to a guest of `own` on this cluster is known: no configured cloud leads
    /// there, and none may turn out to.
    pub fn cut_off(&self, own: &CloudId, cluster: &ClusterId) -> bool {
        let may_lead = |(cloud, way): (&CloudId, &Way)| match &way.lead {
            Lead::Untried => cloud == own || way.configured,
            Lead::Unheard(None) => cloud == own,
            Lead::To(there) | Lead::Silent(there) | Lead::Unheard(Some(there)) => {
                there == cluster && (cloud == own || way.configured)
            }
        };
        !self.known.borrow().iter().any(may_lead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn herds() -> Shared<Ways, role::Herd> {
        Shared::default()
    }

    fn cluster(id: &str) -> ClusterId {
        ClusterId::new(id)
    }

    fn cloud(id: &str) -> CloudId {
        CloudId::new(id)
    }

    // Invariant: a cloud is called about a guest only where its cluster is proven to be the same.

    #[test]
    fn only_a_cloud_that_was_found_to_lead_to_the_same_cluster_stands_in() {
        let (ways, own, here) = (herds(), cloud("rack"), cluster("c1"));
        ways.configured(&cloud("spare"));
        assert_eq!(ways.through(&own, &here), None);
        assert!(!ways.cut_off(&own, &here), "it was not asked yet");
        ways.leads(&cloud("spare"), &cluster("c2"));
        assert_eq!(ways.through(&own, &here), None);
        assert!(ways.cut_off(&own, &here));
        ways.leads(&cloud("spare"), &here);
        assert_eq!(ways.through(&own, &here), Some(cloud("spare")));
        assert!(!ways.cut_off(&own, &here));
    }

    #[test]
    fn a_cloud_that_fell_silent_or_changed_serves_again_once_it_said_who_it_is() {
        let (ways, own, here) = (herds(), cloud("rack"), cluster("c1"));
        ways.configured(&cloud("spare"));
        ways.leads(&cloud("spare"), &here);
        ways.silent(&cloud("spare"), Some(&here));
        assert_eq!(ways.through(&own, &here), None);
        assert!(!ways.cut_off(&own, &here), "it may well answer again");
        ways.leads(&cloud("spare"), &here);
        ways.configured(&cloud("spare"));
        assert_eq!(ways.through(&own, &here), None, "its connection is another one now");
        ways.silent(&cloud("spare"), Some(&here));
        assert!(!ways.cut_off(&own, &here), "it may lead where it led");
        ways.silent(&cloud("spare"), None);
        assert!(ways.cut_off(&own, &here));
    }

    #[test]
    fn an_agents_own_cloud_is_called_as_long_as_it_can_be() {
        let (ways, own, here) = (herds(), cloud("rack"), cluster("c1"));
        for id in ["rack", "spare"] {
            ways.configured(&cloud(id));
            ways.leads(&cloud(id), &here);
        }
        ways.unconfigured(&own);
        assert_eq!(ways.through(&own, &here), Some(own.clone()));
        ways.forgotten(&own);
        assert_eq!(ways.through(&own, &here), Some(cloud("spare")));
        ways.unconfigured(&cloud("spare"));
        assert!(ways.cut_off(&own, &here));
    }

    #[test]
    fn an_own_cloud_that_changed_is_not_called_until_it_said_that_it_leads_there() {
        let (ways, own, here) = (herds(), cloud("rack"), cluster("c1"));
        ways.configured(&own);
        assert_eq!(ways.through(&own, &here), None);
        ways.silent(&own, Some(&here));
        assert_eq!(ways.through(&own, &here), None);
        assert!(!ways.cut_off(&own, &here), "it may be only down");
        ways.leads(&own, &cluster("c2"));
        assert_eq!(ways.through(&own, &here), None);
        assert!(ways.cut_off(&own, &here), "it leads elsewhere");
        ways.silent(&own, Some(&here));
        assert_eq!(ways.through(&own, &here), None);
        ways.leads(&own, &here);
        ways.silent(&own, Some(&here));
        assert_eq!(ways.through(&own, &here), Some(own), "silent, but proven");
    }
}
