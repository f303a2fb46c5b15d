//! The ways into clusters: through which cloud a guest is reached when its own has left the
//! configuration. The guest's own marks say whose it is, whichever way is taken.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::id::{CloudId, ClusterId};

/// Which clouds there are and where they lead.
///
/// Shared by the actors of one thread; written by the herd alone.
#[derive(Debug, Clone, Default)]
pub struct Ways(Rc<RefCell<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// Clouds that can be called: configured at some time in this start, and with agents since.
    open: BTreeSet<CloudId>,
    /// Clouds that are configured.
    configured: BTreeMap<CloudId, Lead>,
}

/// What is known of where a configured cloud leads.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Lead {
    /// It was not asked yet.
    Untried,
    /// It works, and leads to this cluster.
    To(ClusterId),
    /// It does not work, and led to this cluster as far as is known.
    Silent(Option<ClusterId>),
}

impl Ways {
    /// A cloud comes into force, new or by another connection.
    pub fn configured(&self, cloud: &CloudId) {
        let mut known = self.0.borrow_mut();
        known.open.insert(cloud.clone());
        known.configured.insert(cloud.clone(), Lead::Untried);
    }

    /// A cloud left the configuration; its own agents may still call it.
    pub fn unconfigured(&self, cloud: &CloudId) {
        self.0.borrow_mut().configured.remove(cloud);
    }

    /// A cloud is forgotten with its last agent.
    pub fn forgotten(&self, cloud: &CloudId) {
        self.0.borrow_mut().open.remove(cloud);
    }

    /// A cloud works, and leads to this cluster.
    pub fn leads(&self, cloud: &CloudId, cluster: &ClusterId) {
        self.set(cloud, Lead::To(cluster.clone()));
    }

    /// A cloud does not work; it led to this cluster, as far as is known.
    pub fn silent(&self, cloud: &CloudId, cluster: Option<&ClusterId>) {
        self.set(cloud, Lead::Silent(cluster.cloned()));
    }

    fn set(&self, cloud: &CloudId, lead: Lead) {
        if let Some(known) = self.0.borrow_mut().configured.get_mut(cloud) {
            *known = lead;
        }
    }

    /// The cloud to call about a guest of `own` on this cluster: `own` where it can be called, else
    /// one that works and was found to lead to the same cluster.
    pub fn through(&self, own: &CloudId, cluster: &ClusterId) -> CloudId {
        let known = self.0.borrow();
        let leads = |lead: &Lead| matches!(lead, Lead::To(there) if there == cluster);
        let other = known.configured.iter().find(|(_, lead)| leads(lead)).map(|(other, _)| other);
        other.filter(|_| !known.open.contains(own)).unwrap_or(own).clone()
    }

    /// Whether nobody knows a way to a guest of `own` on this cluster, as far as can be told: no
    /// cloud of the configuration leads there, nor may one turn out to.
    pub fn cut_off(&self, own: &CloudId, cluster: &ClusterId) -> bool {
        let known = self.0.borrow();
        let may_lead = |lead: &Lead| match lead {
            Lead::Untried => true,
            Lead::To(there) | Lead::Silent(Some(there)) => there == cluster,
            Lead::Silent(None) => false,
        };
        !known.open.contains(own) && !known.configured.values().any(may_lead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(id: &str) -> ClusterId {
        ClusterId::new(id)
    }

    fn cloud(id: &str) -> CloudId {
        CloudId::new(id)
    }

    // Invariant: another cloud serves only where its cluster is proven to be the same.

    #[test]
    fn only_a_cloud_that_was_found_to_lead_to_the_same_cluster_stands_in() {
        let (ways, own, here) = (Ways::default(), cloud("rack"), cluster("c1"));
        ways.configured(&cloud("spare"));
        assert_eq!(ways.through(&own, &here), own);
        assert!(!ways.cut_off(&own, &here), "it was not asked yet");
        ways.leads(&cloud("spare"), &cluster("c2"));
        assert_eq!(ways.through(&own, &here), own);
        assert!(ways.cut_off(&own, &here));
        ways.leads(&cloud("spare"), &here);
        assert_eq!(ways.through(&own, &here), cloud("spare"));
        assert!(!ways.cut_off(&own, &here));
    }

    #[test]
    fn a_cloud_that_fell_silent_or_changed_serves_again_once_it_said_who_it_is() {
        let (ways, own, here) = (Ways::default(), cloud("rack"), cluster("c1"));
        ways.configured(&cloud("spare"));
        ways.leads(&cloud("spare"), &here);
        ways.silent(&cloud("spare"), Some(&here));
        assert_eq!(ways.through(&own, &here), own);
        assert!(!ways.cut_off(&own, &here), "it may well answer again");
        ways.leads(&cloud("spare"), &here);
        ways.configured(&cloud("spare"));
        assert_eq!(ways.through(&own, &here), own, "its connection is another one now");
        ways.silent(&cloud("spare"), None);
        assert!(ways.cut_off(&own, &here));
    }

    #[test]
    fn an_agents_own_cloud_is_called_as_long_as_it_can_be() {
        let (ways, own, here) = (Ways::default(), cloud("rack"), cluster("c1"));
        for id in ["rack", "spare"] {
            ways.configured(&cloud(id));
            ways.leads(&cloud(id), &here);
        }
        ways.unconfigured(&own);
        assert_eq!(ways.through(&own, &here), own);
        ways.forgotten(&own);
        assert_eq!(ways.through(&own, &here), cloud("spare"));
        ways.unconfigured(&cloud("spare"));
        assert!(ways.cut_off(&own, &here));
    }
}
