//! The operator's page: who may see what of it, what is asked for it, and the answers' headers.
//!
//! [`places`] lists its routes; each has the access of the API's route with the same answer. HTML is made by
//! `drover-page`. A page changes nothing: its buttons call the API, with the session's cookie and
//! [`CSRF_HEADER`](super::session::CSRF_HEADER).
//!
//! Beside this folder, `answers.rs` has headers, and refusals as pages; `looks.rs` keeps for some seconds what
//! clusters answered, so that many readers ask them once.
//!
//! - `login.rs` takes a token and gives a session; `openid.rs` asks the provider for one, and `logout.rs` ends it.
//! - `views.rs` has one handler a page, `happened.rs` the events as they show them.

mod attention;
mod happened;
mod login;
mod logout;
mod openid;
#[cfg(test)]
mod tests;
mod views;

use drover_api::Role;

use super::answers;
use super::gate::Access;
use super::place::Place;

const OPEN: Access = Access::Open;
const VIEWER: Access = Access::Least(Role::Viewer);
const ADMIN: Access = Access::Least(Role::Admin);
const OPERATOR: Access = Access::Least(Role::Operator);

/// The most bytes of the form of a login.
const FORM_LIMIT: usize = 8 << 10;

/// The page's routes.
pub(super) fn places() -> Vec<Place> {
    let at = |path| Place::at(path).page();
    vec![
        at("/").query().get(VIEWER, views::herd),
        at("/agents").query().get(VIEWER, views::agents),
        at("/agents/{id}").query().get(VIEWER, views::agent),
        at("/agents/{id}/terminal").query().get(OPERATOR, views::terminal),
        at("/leases").query().get(VIEWER, views::leases),
        at("/leases/{id}").query().get(VIEWER, views::lease),
        at("/jobs").query().get(VIEWER, views::jobs),
        // What these ask clusters, the API's routes ask for operators alone, too.
        at("/why").query().get(OPERATOR, views::why),
        at("/nodes").query().get(OPERATOR, views::nodes),
        at("/plan").query().get(OPERATOR, views::plan),
        at("/templates/{id:.+}").query().get(VIEWER, views::template),
        at("/configuration").query().get(VIEWER, views::configuration),
        at("/events").query().get(VIEWER, views::events),
        at("/usage").query().get(OPERATOR, views::usage),
        at("/audit").query().get(ADMIN, views::audit),
        at("/docs").query().get(VIEWER, views::book),
        at("/docs/{topic:.+}").query().get(VIEWER, views::docs),
        at("/login")
            .body_limit(FORM_LIMIT)
            .any_kind()
            .query()
            .get(OPEN, login::form)
            .post(OPEN, login::enter),
        at("/login/openid").query().get(OPEN, openid::begin),
        at(openid::CALLBACK).query().get(OPEN, openid::end),
        Place::at("/logout").post(VIEWER, logout::leave),
        Place::at("/assets/{name}").query().get(OPEN, answers::asset),
    ]
}
