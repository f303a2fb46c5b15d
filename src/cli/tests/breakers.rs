//! What `drover breakers reset` prints.

use drover_model::fact::What;
use drover_model::id::{CloudId, TemplateId};
use drover_model::phase::BreakerPhase;
use drover_model::status::BreakerStatus;

use super::super::*;
use super::prints::cli;
use drover_server::testing::{Served, THEN, reported};

// Invariant: a reset says what it changed.

#[tokio::test]
async fn a_breaker_that_is_closed_already_is_reported_as_that() {
    let served = Served::default();
    let node = |name: &str| format!("node:9f31c0aa52e7d410/{name}");
    for (name, breaker) in [("pve1", BreakerPhase::Closed), ("pve2", BreakerPhase::Open)] {
        let template = TemplateId::new(CloudId::new("lab"), "linux");
        let tripped = (breaker == BreakerPhase::Open).then(|| (THEN, "no answer".to_owned()));
        let scope = node(name).parse().unwrap();
        let status = BreakerStatus { scope, breaker, tripped, template };
        reported(&served.view, What::Breaker(Box::new(status)));
    }
    let list = ListOptions::default;
    let reset = |breaker| Command::Breakers {
        action: Some(BreakerAction::Reset { breaker }),
        list: list(),
    };
    let (flows, first) = cli(&served, false, reset(node("pve1"))).await;
    let (flowed, second) = cli(&served, false, reset(node("pve2"))).await;
    assert_eq!((flows, flowed), (Ok(0), Ok(0)));
    insta::assert_snapshot!([first, second].concat(), @r"
    breaker node:9f31c0aa52e7d410/pve1 was closed already
    breaker node:9f31c0aa52e7d410/pve2 is closed
    ");
    served.stop().await;
}
