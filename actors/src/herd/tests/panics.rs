//! A panic in any actor below the herd: it is started again under supervision and goes on from what
//! others know, without a cap, an id or a lease lost.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use actix::{Context, Handler, Message};
use drover_model::fact::What;
use drover_model::id::LeaseId;
use drover_runtime::reply::Reply;

use super::Herd;
use super::{Bed, t};
use crate::cloud::Cloud;
use crate::cluster::Cluster;
use crate::message::HerdCommand;
use crate::reconciler::Reconciler;
use crate::template::Template;
use crate::testing::{Poison, ask, cloud, herd, on_paused_system, pass, seconds, template};

/// To the herd: poison one kind of its actors.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
enum Poisoned {
    Clouds,
    Templates,
    Clusters,
    Reconcilers,
}

impl Handler<Poisoned> for Herd {
    type Result = ();

    fn handle(&mut self, whom: Poisoned, _: &mut Context<Self>) {
        for cloud in self.clouds.values() {
            match whom {
                Poisoned::Clouds => cloud.do_send(Poison),
                Poisoned::Templates => cloud.do_send(whom),
                Poisoned::Clusters | Poisoned::Reconcilers => {}
            }
        }
        for actors in self.clusters.values() {
            match whom {
                Poisoned::Clusters => actors.cluster.do_send(Poison),
                Poisoned::Reconcilers => actors.reconciler.do_send(Poison),
                Poisoned::Clouds | Poisoned::Templates => {}
            }
        }
    }
}

impl Handler<Poisoned> for Cloud {
    type Result = ();

    fn handle(&mut self, _: Poisoned, _: &mut Context<Self>) {
        self.templates().for_each(|template| template.do_send(Poison));
    }
}

macro_rules! dies_of_poison {
    ($($actor:ty),*) => {$(
        impl Handler<Poison> for $actor {
            type Result = ();

            fn handle(&mut self, _: Poison, _: &mut Context<Self>) {
                panic!("a planned panic");
            }
        }
    )*};
}

dies_of_poison!(Herd, Cloud, Template, Cluster, Reconciler);

/// Poisons a kind of actors and lets them come back; gives who was started again.
async fn poison(bed: &Bed, whom: Poisoned) -> Vec<String> {
    let before = restarts(bed).len();
    bed.herd.do_send(whom);
    pass(seconds(1)).await;
    restarts(bed).split_off(before)
}

fn restarts(bed: &Bed) -> Vec<String> {
    let restart = |what: &What| {
        let What::Restarted { actor, gave_up: false, .. } = what else { return None };
        Some(actor.clone())
    };
    bed.world.with(|script| script.facts.iter().filter_map(|fact| restart(&fact.what)).collect())
}

fn ids(bed: &Bed) -> Vec<u32> {
    let living = bed.roster.select(|living| living.place.is_some()).into_values();
    living.filter_map(|living| living.place).map(|place| place.vmid.0).collect()
}

// Invariant: whichever actor panics, caps hold, ids are handed out once and leases are served.

#[test]
fn a_cloud_started_again_keeps_its_cap_and_serves_on() {
    on_paused_system(|| async {
        let bed = Bed::new(herd(vec![cloud("c", Some(2))], vec![template("c/t", &[])]));
        for lease in ["l1", "l2", "l3"] {
            bed.lease(ask(lease, t(), 0)).await.unwrap();
        }
        pass(seconds(1)).await;
        assert_eq!(poison(&bed, Poisoned::Clouds).await, ["cloud c"]);
        pass(seconds(20)).await;
        assert_eq!((bed.states().as_str(), bed.born()), ("c/t Leased, c/t Leased", 2));
        for lease in ["l1", "l2"] {
            bed.release(lease).await.unwrap();
        }
        pass(seconds(5)).await;
        let served = bed.roster.select(|living| living.status.leases.contains(&LeaseId::new("l3")));
        assert_eq!((served.len(), bed.born()), (1, 2));
    });
}

#[test]
fn a_template_started_again_keeps_its_agents_and_its_warm_pool() {
    on_paused_system(|| async {
        let mut spec = template("c/t", &[]);
        (spec.idle_minimum, spec.cap) = (1, Some(2));
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![spec]));
        bed.lease(ask("l1", t(), 0)).await.unwrap();
        pass(seconds(20)).await;
        assert_eq!(bed.states(), "c/t Leased, c/t Ready");
        assert_eq!(poison(&bed, Poisoned::Templates).await, ["template c/t"]);
        pass(seconds(60)).await;
        assert_eq!((bed.states().as_str(), bed.born()), ("c/t Leased, c/t Ready", 2));
        bed.release("l1").await.unwrap();
    });
}

#[test]
fn a_cluster_started_again_keeps_lanes_and_ids_and_asks_again_for_those_who_wait() {
    on_paused_system(|| async {
        let mut narrow = cloud("c", None);
        narrow.operations_per_node = 1;
        let bed = Bed::new(herd(vec![narrow], vec![template("c/t", &[])]));
        for lease in ["l1", "l2", "l3"] {
            bed.lease(ask(lease, t(), 0)).await.unwrap();
        }
        pass(seconds(1)).await;
        assert_eq!(ids(&bed), [10_000]);
        let started = poison(&bed, Poisoned::Clusters).await;
        assert_eq!(started.len(), 1, "{started:?}");
        assert_eq!(ids(&bed), [10_000], "the lane is still taken");
        pass(seconds(60)).await;
        assert_eq!(bed.states(), "c/t Leased, c/t Leased, c/t Leased");
        let different: BTreeSet<u32> = ids(&bed).into_iter().collect();
        assert_eq!(different, BTreeSet::from([10_000, 10_001, 10_002]));
    });
}

#[test]
fn a_reconciler_started_again_goes_on_reconciling_and_answers() {
    on_paused_system(|| async {
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![]));
        pass(seconds(1)).await;
        let (reply, answer) = Reply::channel();
        bed.herd.do_send(HerdCommand::Resync { reply });
        let started = poison(&bed, Poisoned::Reconcilers).await;
        assert_eq!(started.len(), 1, "{started:?}");
        assert_eq!(answer.await.unwrap().len(), 1);
        let surveys = bed.world.calls("survey");
        pass(seconds(125)).await;
        assert!(bed.world.calls("survey") >= surveys + 2);
    });
}

#[test]
fn an_actor_that_panics_again_and_again_is_given_up_and_reported() {
    on_paused_system(|| async {
        let given_up = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let bed = Bed::output(herd(vec![cloud("c", None)], vec![]), given_up.clone());
        pass(seconds(1)).await;
        for _ in 0..6 {
            poison(&bed, Poisoned::Clouds).await;
            pass(seconds(4)).await;
        }
        assert_eq!(*given_up.lock().unwrap(), ["cloud c"]);
    });
}

#[test]
fn the_root_is_given_up_at_its_first_panic() {
    on_paused_system(|| async {
        let given_up = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let bed = Bed::output(herd(vec![cloud("c", None)], vec![]), given_up.clone());
        pass(seconds(1)).await;
        bed.herd.do_send(Poison);
        pass(seconds(1)).await;
        assert_eq!(*given_up.lock().unwrap(), ["herd"]);
    });
}
