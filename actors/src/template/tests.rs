//! The template's body: what a new incarnation knows.
#![expect(clippy::unwrap_used, reason = "a test may panic")]
use drover_model::size::Size;
use std::sync::Mutex;

use actix::{Addr, Supervisor};
use drover_model::fault::Fault;
use drover_model::id::ClusterId;
use drover_model::phase::AgentPhase;

use super::*;
use crate::message::{IdBack, LaneAsk, LaneFree};
use crate::roster::Roster;
use crate::testing::{
    self, CLUSTER, World, agent_status, on_paused_system, pass, seconds, template,
};

/// A cloud that keeps what it hears, and a cluster that answers nobody.
struct Listener(Arc<Mutex<Vec<ToCloud>>>);

impl Actor for Listener {
    type Context = Context<Self>;
}

impl Handler<ToCloud> for Listener {
    type Result = ();

    fn handle(&mut self, message: ToCloud, _: &mut Self::Context) {
        self.0.lock().unwrap().push(message);
    }
}

impl Handler<LaneAsk> for Listener {
    type Result = ();

    fn handle(&mut self, _: LaneAsk, _: &mut Self::Context) {}
}

impl Handler<LaneFree> for Listener {
    type Result = ();

    fn handle(&mut self, _: LaneFree, _: &mut Self::Context) {}
}

impl Handler<IdBack> for Listener {
    type Result = ();

    fn handle(&mut self, _: IdBack, _: &mut Self::Context) {}
}

impl Handler<testing::End> for Template {
    type Result = ();

    fn handle(&mut self, _: testing::End, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

struct Bed {
    roster: Shared<Roster>,
    address: Addr<Template>,
    heard: Arc<Mutex<Vec<ToCloud>>>,
}

/// A template under a supervisor, with its ways to a cluster that never answers.
fn bed(change: impl FnOnce(&mut TemplateSpec)) -> Bed {
    let world = World::new(&["c"]);
    let common: Common<role::Template> = world.common();
    let roster = common.roster.playing();
    let heard: Arc<Mutex<Vec<ToCloud>>> = Arc::default();
    let listener = Listener(heard.clone()).start();
    let lanes = Lanes {
        cluster: ClusterId::new(CLUSTER),
        ask: listener.clone().recipient(),
        free: listener.clone().recipient(),
        id_back: listener.clone().recipient(),
    };
    let mut spec = template("c/t", &[]);
    change(&mut spec);
    let address = Supervisor::start(move |_| {
        let cloud = listener.recipient();
        Template::new(common, cloud, Arc::new(spec), true, Breaker::default())
    });
    address.do_send(TemplateCommand::Lanes(lanes));
    Bed { roster, address, heard }
}

impl Bed {
    async fn news(&self) -> TemplateNews {
        pass(seconds(1)).await;
        let heard = std::mem::take(&mut *self.heard.lock().unwrap());
        let news = heard.into_iter().filter_map(|message| match message {
            ToCloud::News(news) => Some(*news),
            ToCloud::WarmNeed { .. } | ToCloud::Suspect(_) => None,
        });
        news.last().unwrap()
    }
}

// Invariant: a new incarnation knows its agents, its breaker and its debts.

#[test]
fn a_template_started_again_still_counts_the_agents_it_had() {
    on_paused_system(|| async {
        let bed = bed(|spec| spec.cap = Some(3));
        bed.address.do_send(TemplateCommand::Begin { reserved: 2, asked: Some((Size::NONE, 2)) });
        let before = bed.news().await;
        assert_eq!((before.live, before.room, before.answered), (2, 1, [(Size::NONE, 2)].into()));
        bed.address.do_send(testing::End);
        let after = bed.news().await;
        assert_eq!((after.live, after.room, after.agents.len()), (2, 1, 2));
        assert_eq!((after.released, after.answered.len()), (0, 0));
        assert_eq!(bed.roster.len(), 2);
        bed.address.do_send(TemplateCommand::Begin { reserved: 2, asked: Some((Size::NONE, 2)) });
        assert_eq!(bed.news().await.live, 3);
    });
}

#[test]
fn a_template_started_again_is_as_tripped_as_before() {
    on_paused_system(|| async {
        let bed = bed(|_| ());
        bed.address.do_send(TemplateCommand::Begin { reserved: 3, asked: Some((Size::NONE, 3)) });
        pass(seconds(1)).await;
        for agent in bed.roster.select(|_| true).into_keys() {
            let culprit = drover_model::fault::Culprit::Template;
            let fault = Fault::new(drover_model::fault::FaultKind::Broken, culprit, "no boot disk");
            let (phase, standing) = (AgentPhase::Retiring, Standing::Leaving);
            let template = testing::template_id("c/t");
            bed.address.do_send(AgentReport {
                status: Arc::new(agent_status(agent.as_str(), &template, phase, standing)),
                fault: Some(fault),
                refused: Vec::new(),
            });
        }
        assert_eq!(bed.news().await.room, 0);
        bed.address.do_send(testing::End);
        let after = bed.news().await;
        assert_eq!((after.room, after.flowing), (0, false));
    });
}
