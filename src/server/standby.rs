//! The API of a member that stands by: it forwards calls to the leader, and answers by itself only how
//! it stands.
//!
//! ```text
//! caller ──▶ standby ──signed (`forwarded.rs`)──▶ leader
//!              └─ /healthz, /readyz, /leaderz, /metrics, GET /v1/members
//! ```
//!
//! A caller of the Unix socket is proven here, and the leader takes this member's word for them. Tokens,
//! signatures of webhooks and tokens of guests go on as they are, and the leader judges them.
//!
//! Failures: where no leader is known or reached, nothing was done, and the answer says so
//! (`no-leader`, 503). Where the leader got a call and its answer does not come, the outcome is
//! unknown (`unknown-outcome`, 502); nobody waits for it once another member leads, because a leader that
//! hangs would hold its callers with it. A call that another member forwarded is never forwarded again.
//! `standby/forward.rs` forwards.

mod forward;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use drover_api::{MembersOut, Role};
use drover_audit::Audit;
use drover_vault::ClusterKey;
use proxmox_client::Tls;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::gate::{Access, Guard};
use super::hooks::HOOK_LIMIT;
use super::metrics;
use super::peer::Peer;
use super::place::{Place, guarded};
use super::problem::Rejection;
use super::share::Shared;

/// How long a connection to the leader may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Calls that may be forwarded at once, and those of one peer.
const FORWARDS: (usize, usize) = (256, 64);

/// The ways from the API of a standby into the rest of the service.
#[derive(Clone)]
pub struct StandbyDoors {
    /// The leader's name and URL (`http://HOST:PORT`); none while nobody is known to lead. What is on its way
    /// to one leader ends when another leads, this member among them.
    pub leader: watch::Receiver<Option<(String, String)>>,
    /// The members of the store.
    pub members: Arc<dyn Fn() -> MembersOut + Send + Sync>,
    /// The key of the members, which signs what this one forwards.
    pub key: ClusterKey,
    /// The name of this member.
    pub member: String,
    /// Why nobody leads, for people.
    pub why: Arc<dyn Fn() -> String + Send + Sync>,
    /// What this member answered itself to calls that may change something.
    pub audit: Audit,
}

/// What every handler of a standby can reach.
pub(super) struct Standby {
    doors: StandbyDoors,
    client: reqwest::Client,
    forwards: Arc<Shared<Peer>>,
}

impl Standby {
    pub(super) fn new(doors: StandbyDoors) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(proxmox_client::client_config(&Tls::Ignore)?)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_LIMIT)
            // Each call has a connection of its own: a connection that the leader closes while a call
            // is on its way would leave open whether the call was done.
            .pool_max_idle_per_host(0)
            .http1_only()
            .tcp_nodelay(true)
            .build()?;
        Ok(Self { doors, client, forwards: Shared::new(FORWARDS.0, FORWARDS.1) })
    }

    /// The name and URL of the member that leads, where that is another one.
    fn other(&self) -> Option<(String, String)> {
        // This one may have led a moment ago, and a call to itself would wait for its own end.
        self.doors.leader.borrow().clone().filter(|(name, _)| *name != self.doors.member)
    }

    /// The same for a call, which is refused where there is none.
    fn leader(&self) -> Result<(String, String), Rejection> {
        self.other().ok_or_else(|| {
            let why = (self.doors.why)();
            Rejection::no_leader(format!("nothing was done; repeat the request: {why}"))
        })
    }
}

/// Registers what a standby answers by itself; everything else goes on to the leader.
pub(super) fn register(config: &mut ServiceConfig, standby: &web::Data<Standby>) {
    config.app_data(standby.clone());
    for place in [
        Place::at("/healthz").get(Access::Open, healthz),
        Place::at("/readyz").get(Access::Open, readyz),
        Place::at("/leaderz").get(Access::Open, leaderz),
        Place::at("/metrics").get(Access::Least(Role::Viewer), own_metrics),
        Place::at("/v1/members").get(Access::Least(Role::Viewer), members),
    ] {
        config.service(place.service());
    }
    let guard =
        Guard { first: Some(forward::first), body_limit: HOOK_LIMIT, ..Guard::of(Access::Open) };
    config.default_service(guarded(web::route().to(forward::forward), guard));
}

async fn healthz() -> web::Json<Value> {
    web::Json(json!({ "status": "standby" }))
}

async fn readyz(standby: web::Data<Standby>) -> Result<web::Json<Value>, Rejection> {
    let (leader, _) = standby.leader()?;
    Ok(web::Json(json!({ "status": "standby", "leader": leader })))
}

async fn leaderz(standby: web::Data<Standby>) -> Rejection {
    let leads = standby
        .other()
        .map_or_else(|| (standby.doors.why)(), |(name, _)| format!("`{name}` leads"));
    Rejection::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "standby",
        "this member stands by",
        format!("member `{}` does not lead: {leads}", standby.doors.member),
    )
}

async fn own_metrics(request: HttpRequest, standby: web::Data<Standby>) -> HttpResponse {
    metrics::of_standby(&request, &(standby.doors.members)(), &standby.doors.member)
}

async fn members(standby: web::Data<Standby>) -> web::Json<MembersOut> {
    web::Json((standby.doors.members)())
}
