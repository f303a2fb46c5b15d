//! Leases, and why one waits.

use askama::Template;
use drover_api::{LeaseOut, WhySubjectOut};
use drover_model::phase::LeasePhase;

use crate::filter::Filter;
use crate::frame::Frame;
use crate::why::Held;

/// Rows of one page.
const ROWS: usize = 200;
const COLUMNS: [&str; 6] = ["id", "state", "agent", "owner", "principal", "wants"];

/// The list of leases.
#[derive(Template)]
#[template(path = "leases.html")]
pub struct LeasesPage {
    frame: Frame,
    query: String,
    all: usize,
    found: usize,
    leases: Vec<LeaseOut>,
}

impl LeasesPage {
    /// Those that a filter finds: the ones that wait first, those that ended last.
    pub fn new(frame: Frame, mut leases: Vec<LeaseOut>, query: &str) -> Self {
        let filter = Filter::of(query, &COLUMNS);
        let all = leases.len();
        leases.retain(|one| {
            filter.has(&[
                ("id", &one.id),
                ("state", one.state.name()),
                ("agent", one.agent.as_deref().unwrap_or_default()),
                ("owner", &one.owner),
                ("principal", &one.principal),
                ("wants", &one.wants),
                ("detail", &one.detail),
            ])
        });
        let place = |one: &LeaseOut| match one.state {
            LeasePhase::Waiting => 0,
            LeasePhase::Granted => 1,
            LeasePhase::Ready => 2,
            LeasePhase::Ended => 3,
        };
        leases.sort_by(|one, other| {
            let by_place = place(one).cmp(&place(other));
            let ended = |one: &LeaseOut| one.ended_at.clone();
            by_place.then_with(|| match one.state {
                LeasePhase::Ended => ended(other).cmp(&ended(one)),
                LeasePhase::Waiting | LeasePhase::Granted | LeasePhase::Ready => {
                    one.asked_at.cmp(&other.asked_at)
                }
            })
        });
        let found = leases.len();
        leases.truncate(ROWS);
        Self { frame, query: query.to_owned(), all, found, leases }
    }
}

/// One lease, and why it waits.
#[derive(Template)]
#[template(path = "lease.html")]
pub struct LeasePage {
    frame: Frame,
    lease: LeaseOut,
    is_over: bool,
    /// Whether it ended with its machine.
    is_lost: bool,
    /// Whether the caller may end it: an operator its own ones, an admin all.
    may_end: bool,
    /// What it waits for; none for callers that may not ask, and where it does not wait.
    why: Option<WhySubjectOut>,
    templates: Vec<Held>,
}

impl LeasePage {
    /// With what it waits for.
    pub fn new(frame: Frame, lease: LeaseOut, why: Option<WhySubjectOut>) -> Self {
        let is_over = lease.state == LeasePhase::Ended;
        // The owner is blank where the lease is not the caller's.
        let is_own = frame.may_operate() && !lease.owner.is_empty();
        let may_end = !is_over && (is_own || frame.may_admin());
        let is_lost = is_over && lease.detail.starts_with("lost");
        let templates = why.as_ref().map(Held::all).unwrap_or_default();
        Self { frame, is_over, is_lost, may_end, lease, why, templates }
    }
}
