//! The lease API and the status routes: HTTP over a Unix socket and TCP.
//!
//! Runs on threads of its own and owns no state of the herd: wishes go to the herd as messages
//! and come back through one-shot channels, everything shown is read from the view.

mod addresses;
mod agents;
mod auth;
mod body;
mod breakers;
mod call_in;
mod control;
mod demand;
mod events;
mod health;
mod holds;
mod hooks;
mod leases;
mod metrics;
mod nodes;
mod openapi;
mod problem;
mod server;
pub mod shapes;
pub mod sources;
mod templates;
mod told;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use actix::Recipient;
use actix_web::web::{self, ServiceConfig};
use drover_actors::id::{AgentId, LeaseId};
use drover_actors::message::HerdCommand;
use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::demand::Hooks;
use crate::user_data::UserDataStore;
use crate::view::View;

pub use addresses::{AddressPoolOut, AddressPoolsOut};
pub use auth::{Auth, Caller, Peer, PeerGrant, Role, TokenGrant};
pub use breakers::{BreakerOut, BreakersOut, ResetOut};
pub use call_in::{CallIn, CalledIn};
pub use control::{
    FoundOut, LogLevelIn, ReapIn, ReapOut, ReloadOut, ResyncIn, ResyncOut, ResyncPlanOut,
};
pub use demand::{AccountOut, JobOut, JobsOut, KindOut, WhySubjectOut};
pub use holds::{HoldIn, HoldNextOut, HoldOut};
pub use leases::{LeaseIn, RenewIn, check_public_key};
pub use nodes::{
    DrainIn, DrainOut, NodeOut, NodesOut, RefusesOut, RoomOut, UnreadOut, WhyNodeOut, WhyOut,
};
pub use problem::{FieldFault, Problem};
pub use server::{Bound, Listen, Running, StartError, bind};
pub use templates::{ProvisionIn, ProvisionOut};

/// Why a reload brought nothing into force.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReloaded {
    /// The configuration has these faults; the old one stays.
    #[error("{0}")]
    Refused(String),
    /// What comes of it is not known, or nothing will.
    #[error("{0}")]
    Unknown(String),
}

/// What a reload does: reads the configuration again; gives the generation in force or the faults.
pub type Reload = Arc<dyn Fn() -> BoxFuture<'static, Result<u64, NotReloaded>> + Send + Sync>;
/// Whose token a guest shows; none for nobody's.
pub type WhoCalls = Arc<dyn Fn(&str) -> Option<AgentId> + Send + Sync>;
/// Sets the level of the log, or says why not.
pub type SetLogLevel = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// The ways from the web into the rest of the service.
#[derive(Clone)]
pub struct Doors {
    /// The herd.
    pub herd: Recipient<HerdCommand>,
    /// The read side.
    pub view: Arc<View>,
    /// Reads the configuration again.
    pub reload: Reload,
    /// Sets the level of the log.
    pub log_level: SetLogLevel,
    /// Whether the actors' thread still turns.
    pub alive: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Whose token a guest that calls shows.
    pub call_in: WhoCalls,
    /// The sources of demand that send webhooks.
    pub hooks: Arc<Hooks>,
    /// Where user data of leases is kept.
    pub user_data: Arc<UserDataStore>,
    /// Makes the id of a new lease.
    pub mint_lease: Arc<dyn Fn() -> LeaseId + Send + Sync>,
}

/// Bounds of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long the herd may take to answer.
    pub reply: Duration,
    /// Wishes that may wait for the herd at once, those of callers that went away too: its mailbox
    /// itself has no bound.
    pub wishes: usize,
    /// How long a reconciliation of all clusters may take.
    pub resync: Duration,
    /// The longest a lease may be asked for at once.
    pub longest_lease: Duration,
    /// Time between two signs of life on an event stream without events.
    pub heartbeat: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            reply: Duration::from_secs(10),
            wishes: 1000,
            resync: Duration::from_secs(120),
            longest_lease: Duration::from_secs(24 * 60 * 60),
            heartbeat: Duration::from_secs(15),
        }
    }
}

/// The largest body taken, in bytes.
pub const BODY_LIMIT: usize = 64 * 1024;

/// What every handler can reach.
pub(crate) struct State {
    doors: Doors,
    limits: Limits,
    wishes: Arc<Semaphore>,
    meter: call_in::Meter,
    auth: RwLock<Arc<Auth>>,
    stopping: watch::Sender<bool>,
}

impl State {
    fn new(doors: Doors, limits: Limits, auth: Auth) -> Self {
        let stopping = watch::Sender::new(false);
        let wishes = Arc::new(Semaphore::new(limits.wishes));
        let meter = call_in::Meter::default();
        Self { doors, limits, wishes, meter, auth: RwLock::new(Arc::new(auth)), stopping }
    }

    fn auth(&self) -> Arc<Auth> {
        self.auth.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace_auth(&self, auth: Auth) {
        *self.auth.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(auth);
    }

    /// Puts a wish to the herd and waits for its answer, at most `limit`. It is refused where too many
    /// wait already.
    async fn ask<T: 'static>(
        &self,
        limit: Duration,
        wish: impl FnOnce(oneshot::Sender<T>) -> HerdCommand,
    ) -> Result<T, Problem> {
        let (reply, answer) = oneshot::channel();
        let place = Arc::clone(&self.wishes).try_acquire_owned().map_err(|_| Problem::busy())?;
        self.doors.herd.do_send(wish(reply));
        // The wish has its place for as long as it waits, whoever still waits for it.
        let answer = actix_web::rt::spawn(async move {
            let answer = answer.await;
            drop(place);
            answer
        });
        match tokio::time::timeout(limit, answer).await {
            Ok(Ok(Ok(answer))) => Ok(answer),
            Ok(Ok(Err(_)) | Err(_)) | Err(_) => Err(Problem::unknown_outcome()),
        }
    }

    /// Ends when the server stops, so that long answers end too.
    async fn stopping(&self) {
        let mut seen = self.stopping.subscribe();
        // The sender lives in `self`, so the wait cannot end early.
        let _ = seen.wait_for(|stopping| *stopping).await;
    }
}

fn routes(config: &mut ServiceConfig) {
    let resource = |path: &str| {
        web::resource(path.to_owned()).default_service(web::to(problem::method_not_allowed))
    };
    config
        .app_data(web::PayloadConfig::new(BODY_LIMIT))
        .app_data(
            web::PathConfig::default().error_handler(|fault, _| {
                Problem::not_found(format!("no such name: {fault}")).into()
            }),
        )
        .service(
            resource("/v1/leases")
                .app_data(web::PayloadConfig::new(leases::LEASE_LIMIT))
                .route(web::get().to(leases::list))
                .route(web::post().to(leases::create)),
        )
        .service(
            resource("/v1/leases/{id}")
                .route(web::get().to(leases::show))
                .route(web::delete().to(leases::release)),
        )
        .service(resource("/v1/leases/{id}/renew").route(web::post().to(leases::renew)))
        .service(resource("/v1/agents").route(web::get().to(agents::list)))
        .service(
            resource("/v1/agents/{id}")
                .route(web::get().to(agents::show))
                .route(web::patch().to(agents::limit)),
        )
        .service(
            resource("/v1/agents/{id}/hold")
                .route(web::post().to(holds::hold))
                .route(web::delete().to(holds::release)),
        )
        .service(resource("/v1/agents/{id}/retire").route(web::post().to(agents::retire)))
        .service(resource("/v1/templates").route(web::get().to(templates::list)))
        .service(
            resource("/v1/templates/{id}/provision").route(web::post().to(templates::provision)),
        )
        .service(
            resource("/v1/templates/{id}/hold-next")
                .route(web::post().to(holds::hold_next))
                .route(web::delete().to(holds::hold_none)),
        )
        .service(resource("/v1/breakers").route(web::get().to(breakers::list)))
        .service(resource("/v1/breakers/{id}/reset").route(web::post().to(breakers::reset)))
        .service(resource("/v1/templates/{id}/why").route(web::get().to(nodes::why)))
        .service(resource("/v1/jobs").route(web::get().to(demand::list)))
        .service(resource("/v1/why").route(web::get().to(demand::why)))
        .service(resource("/v1/nodes").route(web::get().to(nodes::list)))
        .service(resource("/v1/nodes/{node}/drain").route(web::post().to(nodes::drain)))
        .service(resource("/v1/address-pools").route(web::get().to(addresses::list)))
        .service(resource("/v1/call-in").route(web::post().to(call_in::call)))
        .service(
            resource("/v1/hooks/{source}")
                .app_data(web::PayloadConfig::new(hooks::HOOK_LIMIT))
                .route(web::post().to(hooks::hear)),
        )
        .service(resource("/v1/clouds").route(web::get().to(agents::clouds)))
        .service(resource("/v1/status").route(web::get().to(agents::status)))
        .service(resource("/v1/events").route(web::get().to(events::stream)))
        .service(resource("/v1/reap").route(web::post().to(control::reap)))
        .service(
            resource("/v1/resync")
                .route(web::get().to(control::plan_resync))
                .route(web::post().to(control::resync)),
        )
        .service(resource("/v1/reload").route(web::post().to(control::reload)))
        .service(resource("/v1/log-level").route(web::put().to(control::log_level)))
        .service(resource("/healthz").route(web::get().to(health::healthz)))
        .service(resource("/readyz").route(web::get().to(health::readyz)))
        .service(resource("/metrics").route(web::get().to(metrics::show)))
        .service(resource("/openapi.json").route(web::get().to(openapi::show)))
        .default_service(web::to(problem::no_such_route));
}

#[cfg(test)]
mod operators;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
