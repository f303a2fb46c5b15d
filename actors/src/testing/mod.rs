//! What tests of the herd stand on: specs, a scripted world behind the ports, and an agent that
//! does what it is asked.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod agent;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_model::spec::TemplateSpec;

use crate::template::TemplateNews;

pub use drover_model::testing::*;
pub use world::*;

/// Runs a future on an actix system whose clock only moves when everybody waits.
pub fn on_paused_system<F: Future>(future: impl FnOnce() -> F) -> F::Output {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    actix::System::with_tokio_rt(runtime).block_on(async move { future().await })
}

/// Lets everything happen that happens within a span.
pub async fn pass(span: Duration) {
    tokio::time::sleep(span).await;
}

/// News of a template that works, has no agent and may start `room` of them.
pub fn news(spec: &Arc<TemplateSpec>, room: u32) -> TemplateNews {
    TemplateNews {
        template: spec.id.clone(),
        spec: spec.clone(),
        configured: true,
        flowing: true,
        tripped: None,
        paused: None,
        live: 0,
        room,
        lack: None,
        kept: spec.minimums(),
        empty: true,
        agents: Vec::new(),
        gone: Vec::new(),
        released: 0,
        answered: BTreeMap::new(),
        unplaced: BTreeMap::new(),
    }
}

/// Ends an actor of a test.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub struct End;

/// Makes an actor of a test panic.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub struct Poison;
