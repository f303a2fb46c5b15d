//! `/metrics`: how drover does, in figures, for Prometheus.
//!
//! ```text
//! facts ──▶ view ──┬─ what stands now ──▶ gauges (`herd.rs`) ─────┐
//!                  └─ what happened (`view/numbers.rs`) ──────────┴─▶ page ──▶ text 0.0.4 or OpenMetrics
//! calls to Proxmox, writes to the journal ──▶ view/numbers.rs                  as the scraper asks
//! ```
//!
//! - `metric_table.rs` and its folder have every metric once: name, kind, unit, help, labels with their values, and what an
//!   operator does with it. The book's page, the Grafana dashboard and the alerts are generated from it and
//!   compared by the tests beneath `metrics/tests`.
//! - `page.rs` collects the samples of one scrape; `prometheus-client` encodes them. Its release 0.26 writes
//!   both formats: OpenMetrics where the scraper asks for it, as Prometheus does, and else the text format
//!   0.0.4, in which every name is as it always was.
//! - Label sets are fixed, and every series is there from the start, with zero where nothing happened.
//!   Series with names of templates, clouds, sources and places are there as long as these are.
//!
//! The depth of mailboxes is no metric: actix does not say how many messages wait, and counting them at
//! each sender would cost every message. What a busy actor delays shows in the histograms of waits.
//!
//! Failures: none. A sample that does not fit its metric's kind answers 500, and a test renders them all.

mod herd;
mod page;
#[cfg(test)]
mod tests;

use actix_web::{HttpRequest, HttpResponse, web};
use drover_api::MembersOut;

use super::metric_table;
use super::state::State;
use crate::view::View;
use page::{Format, Page};

#[utoipa::path(
    get, path = "/metrics",
    responses((
        status = 200,
        content((String = "text/plain"), (String = "application/openmetrics-text")),
    ))
)]
pub(super) async fn show(request: HttpRequest, state: web::Data<State>) -> HttpResponse {
    let members = (state.doors.members)();
    let page = of_leader(&state.doors.view, members.as_ref(), state.terminals.count());
    answered(page, Format::wanted(request.headers()))
}

/// What a member answers that stands by: all else is the leader's.
pub(super) fn of_standby(request: &HttpRequest, members: &MembersOut, name: &str) -> HttpResponse {
    let mut page = Page::default();
    herd::member(&mut page, members, false);
    let own = members.members.iter().find(|one| one.name == name);
    herd::refused(&mut page, own.is_some_and(|own| own.refused.is_some()));
    herd::build(&mut page);
    answered(page, Format::wanted(request.headers()))
}

/// All metrics, with those of a leader where it leads members of a store.
fn of_leader(view: &View, members: Option<&MembersOut>, terminals: usize) -> Page {
    let mut page = Page::whole();
    if let Some(members) = members {
        herd::member(&mut page, members, true);
    }
    herd::all(&mut page, view);
    page.add(&metric_table::TERMINALS, &[], terminals);
    page
}

fn answered(page: Page, format: Format) -> HttpResponse {
    match page.text(format) {
        Ok(text) => HttpResponse::Ok().content_type(format.content_type()).body(text),
        Err(_) => HttpResponse::InternalServerError().finish(),
    }
}
