//! A thousand agents under one herd: what its actors hold afterwards is what they held before.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use actix::{Actor, Context, Handler, Message};
use drover_model::ports::Ambient as _;
use drover_model::record::LeaseAsk;
use drover_runtime::reply::Reply;
use tokio::sync::mpsc::{self, UnboundedSender};

use super::Herd;
use super::{Bed, t};
use crate::cloud::Cloud;
use crate::cluster::Cluster;
use crate::reconciler::Reconciler;
use crate::template::Template;
use crate::testing::{ask, cloud, herd, on_paused_system, pass, seconds, template};

const HOUR: u64 = 3600;

/// Report everything that is held.
#[derive(Clone, Message)]
#[rtype(result = "()")]
struct Lines(UnboundedSender<String>);

impl Handler<Lines> for Herd {
    type Result = ();

    fn handle(&mut self, report: Lines, _: &mut Context<Self>) {
        let asked = (self.asking.len(), self.releasing.len(), self.writes.len());
        let names = (self.clouds.keys(), self.clusters.keys(), &self.leads, self.tried.keys());
        let text = format!("{:?} {names:?} {asked:?} {:?}", self.scheduler, self.explained);
        report.0.send(format!("herd {text} {}", self.common.roster.len())).unwrap();
        self.clouds.values().for_each(|cloud| cloud.do_send(report.clone()));
        for actors in self.clusters.values() {
            actors.cluster.do_send(report.clone());
            actors.reconciler.do_send(report.clone());
        }
    }
}

impl Handler<Lines> for Cloud {
    type Result = ();

    fn handle(&mut self, report: Lines, _: &mut Context<Self>) {
        report.0.send(format!("cloud {}", self.held())).unwrap();
        self.templates().for_each(|template| template.do_send(report.clone()));
    }
}

macro_rules! reports {
    ($($name:literal $actor:ty),*) => {$(
        impl Handler<Lines> for $actor {
            type Result = ();

            fn handle(&mut self, report: Lines, _: &mut <Self as Actor>::Context) {
                report.0.send(format!("{} {}", $name, self.held())).unwrap();
            }
        }
    )*};
}

reports!("template" Template, "cluster" Cluster, "reconciler" Reconciler);

/// What all actors hold, in order, with one digit for each number.
async fn held(bed: &Bed) -> Vec<String> {
    let (report, mut reported) = mpsc::unbounded_channel();
    bed.herd.do_send(Lines(report));
    let mut all = Vec::new();
    while let Some(text) = reported.recv().await {
        let mut plain = String::new();
        for letter in text.chars() {
            match (letter.is_ascii_digit(), plain.ends_with('0')) {
                (true, true) => {}
                (true, false) => plain.push('0'),
                (false, _) => plain.push(letter),
            }
        }
        all.push(plain);
    }
    all.sort();
    all
}

/// Leases and agents from this number to that one, ten at a time.
async fn live(bed: &Bed, from: u64, to: u64) {
    for first in (from..to).step_by(10) {
        for n in first..first + 10 {
            let asked = bed.world.now().wall;
            let ask = LeaseAsk { asked, ..ask(&format!("l{n}"), t(), n) };
            bed.lease(ask).await.unwrap();
        }
        pass(seconds(30)).await;
        for n in first..first + 10 {
            bed.release(&format!("l{n}")).await.unwrap();
        }
        let (reply, reported) = Reply::channel();
        bed.herd.do_send(crate::message::HerdCommand::Reap { all: true, reply });
        assert_eq!(reported.await, Ok(10));
        pass(seconds(30)).await;
        assert!(bed.roster.is_empty(), "{}", bed.states());
    }
}

// Invariant: what is held for an agent or a lease is let go after its end.

#[test]
fn a_thousand_lives_leave_every_actor_as_it_was() {
    on_paused_system(|| async {
        let mut spec = template("c/t", &[]);
        spec.cap = Some(10);
        let bed = Bed::new(herd(vec![cloud("c", Some(10))], vec![spec]));
        live(&bed, 0, 10).await;
        // Ended leases are remembered for a day, ids rest for an hour.
        pass(seconds(25 * HOUR)).await;
        live(&bed, 10, 20).await;
        let before = held(&bed).await;
        assert_eq!(before.len(), 5, "{before:?}");
        live(&bed, 20, 1020).await;
        assert_eq!(bed.born(), 1020);
        assert!(held(&bed).await.concat().len() > before.concat().len(), "nothing is measured");
        pass(seconds(25 * HOUR)).await;
        live(&bed, 1020, 1030).await;
        assert_eq!(held(&bed).await, before);
    });
}
