//! What operators say of templates and clouds against the configuration, over a scripted world.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_model::id::CloudId;
use drover_model::overridden::{TemplateChange, TemplateOverrides};
use drover_model::overrides::Change;
use drover_runtime::reply::Reply;

use super::Bed;
use crate::message::{ApplySpec, HerdCommand, Refusal};
use crate::testing::{cloud, herd, on_paused_system, pass, seconds, template};

// Invariant: what operators say of templates and clouds follows one another as in the journal, and is over
// with what it is about.

/// Sends changes at one moment; gives what holds after the last.
async fn set(bed: &Bed, changes: &[TemplateChange]) -> TemplateOverrides {
    let mut last = None;
    for change in changes {
        let (reply, answer) = Reply::channel();
        let (template, change) = ("c/t".to_owned(), *change);
        bed.herd.do_send(HerdCommand::OverrideTemplate { template, change, reply });
        last = Some(answer);
    }
    last.unwrap().await.unwrap().unwrap().1
}

#[test]
fn changes_of_a_template_at_one_moment_do_not_undo_one_another() {
    on_paused_system(|| async {
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![template("c/t", &["x"])]));
        let cap = TemplateChange { cap: Change::Set(3), ..Default::default() };
        let paused = TemplateChange { rollout_paused: Some(true), ..Default::default() };
        let own = set(&bed, &[cap, paused]).await;
        assert_eq!((own.cap, own.rollout_paused), (Some(3), true));
        let clouds = BTreeSet::from([CloudId::new("c")]);
        let (reply, undone) = Reply::channel();
        bed.herd.do_send(HerdCommand::UndoOverrides { clouds, reply });
        let resumed = TemplateChange { rollout_paused: Some(false), ..Default::default() };
        let own = set(&bed, &[resumed]).await;
        assert_eq!((undone.await.unwrap(), own), (Ok(1), TemplateOverrides::default()));
    });
}

#[test]
fn what_was_said_of_a_template_is_forgotten_when_it_leaves_the_configuration() {
    on_paused_system(|| async {
        let (with, without) = (template("c/t", &["x"]), template("c/u", &["x"]));
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![with.clone(), without.clone()]));
        set(&bed, &[TemplateChange { cap: Change::Set(0), ..Default::default() }]).await;
        for templates in [vec![without.clone()], vec![with, without]] {
            bed.herd.do_send(ApplySpec(herd(vec![cloud("c", None)], templates)));
            pass(seconds(1)).await;
        }
        let own =
            set(&bed, &[TemplateChange { minimum: Change::Set(1), ..Default::default() }]).await;
        assert_eq!((own.cap, own.minimum), (None, Some(1)));
    });
}

#[test]
fn where_git_manages_a_cloud_alone_nobody_sets_values_but_roll_outs_pause() {
    on_paused_system(|| async {
        let mut spec = (*herd(vec![cloud("c", None)], vec![template("c/t", &["x"])])).clone();
        (spec.managed, spec.locked) = (BTreeSet::from([CloudId::new("c")]), true);
        let bed = Bed::new(Arc::new(spec));
        let ask = |change| {
            let (reply, answer) = Reply::channel();
            let template = "t".to_owned();
            bed.herd.do_send(HerdCommand::OverrideTemplate { template, change, reply });
            answer
        };
        let cap = ask(TemplateChange { cap: Change::Set(3), ..Default::default() });
        assert!(
            matches!(cap.await.unwrap(), Err(Refusal::Conflict(why)) if why.contains("git manages"))
        );
        let paused = ask(TemplateChange { rollout_paused: Some(true), ..Default::default() });
        assert!(paused.await.unwrap().unwrap().1.rollout_paused);
    });
}
