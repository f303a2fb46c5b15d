//! What every handler can reach: the herd, the read side, and the bounds of what callers may do.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use drover_actors::message::HerdCommand;
use drover_api::{PlanIn, PlanOut, SyncDoneOut, SyncIn, SyncTestOut};
use drover_ci::Hooks;
use drover_model::fact::{Fact, What};
use drover_model::id::{AgentId, LeaseId};
use drover_model::ports::Observer as _;
use drover_model::time::WallTime;
use drover_runtime::reply::Reply;
use drover_shell::user_data::UserDataStore;
use futures_util::future::BoxFuture;
use parking_lot::RwLock;
use tokio::sync::{Semaphore, watch};

use crate::auth::{Auth, Caller};
use crate::crowd::Room;
use crate::problem::Rejection;
use crate::view::View;
use crate::{intake, meter, share};

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

/// Why a sync with git brought nothing into force.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSynced {
    /// No repository is configured.
    #[error("{0}")]
    Off(String),
    /// What git has is refused; the old configuration stays.
    #[error("{0}")]
    Refused(String),
    /// There is no such commit.
    #[error("{0}")]
    Unknown(String),
    /// Git could not be read, or the state directory not be written.
    #[error("{0}")]
    Failed(String),
    /// Other syncs wait, or the service stops.
    #[error("{0}")]
    Unavailable(String),
}

/// What a sync does, or a return to a commit.
pub type SyncDoor =
    Arc<dyn Fn(SyncIn) -> BoxFuture<'static, Result<SyncDoneOut, NotSynced>> + Send + Sync>;
/// Tests the connection to git, and changes nothing.
pub type TestSyncDoor =
    Arc<dyn Fn() -> BoxFuture<'static, Result<SyncTestOut, NotSynced>> + Send + Sync>;

/// Says what a configuration would do, and changes nothing.
pub type PlanDoor =
    Arc<dyn Fn(PlanIn) -> BoxFuture<'static, Result<PlanOut, NotSynced>> + Send + Sync>;

/// What a reload does: reads the configuration again; gives the generation in force or the faults.
pub type Reload = Arc<dyn Fn() -> BoxFuture<'static, Result<u64, NotReloaded>> + Send + Sync>;
/// Whose token a guest shows; none for nobody's.
pub type WhoCalls = Arc<dyn Fn(&str) -> Option<AgentId> + Send + Sync>;
/// Sets the level of the log, or says why not.
pub type SetLogLevel = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// The ways from the web into the rest of the service.
#[derive(Clone)]
pub struct Doors {
    pub herd: Recipient<HerdCommand>,
    /// The read side.
    pub view: Arc<View>,
    /// The file or directory of the configuration, as an absolute path.
    pub configuration: PathBuf,
    /// Reads the configuration again.
    pub reload: Reload,
    /// Brings into force what git has.
    pub sync: SyncDoor,
    /// Tests the connection to git.
    pub test_sync: TestSyncDoor,
    /// Plans the way to a configuration.
    pub plan: PlanDoor,
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
    /// Commands that may wait for the herd at once, those of callers that went away too: its mailbox
    /// itself has no bound.
    pub commands: usize,
    /// How long a reconciliation of all clusters may take.
    pub resync: Duration,
    /// The longest a lease may be asked for at once.
    pub longest_lease: Duration,
    /// Time between two signs of life on an event stream without events.
    pub heartbeat: Duration,
    /// Connections that the Unix socket has room for, and again so many on TCP.
    pub room: Room,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            reply: Duration::from_secs(10),
            commands: 1000,
            resync: Duration::from_secs(120),
            longest_lease: Duration::from_secs(24 * 60 * 60),
            heartbeat: Duration::from_secs(15),
            room: Room::default(),
        }
    }
}

/// Event streams that may be open at once, and those of one principal.
pub(super) const STREAMS: (usize, usize) = (256, 64);
/// Requests that may wait for a change of a lease at once, and those of one principal.
pub(super) const WAITS: (usize, usize) = (1024, 768);

/// The largest body taken, in bytes.
pub const BODY_LIMIT: usize = 64 * 1024;

/// The time at which a request is answered.
pub(super) fn now() -> WallTime {
    WallTime(jiff::Timestamp::now().as_millisecond())
}

/// What every handler can reach.
pub(crate) struct State {
    pub(super) doors: Doors,
    pub(super) limits: Limits,
    pub(super) commands: Arc<Semaphore>,
    /// Webhooks and calls of guests that were nobody's.
    pub(super) meter: meter::Meter,
    /// Tokens that were wrong.
    pub(super) wrong_tokens: meter::Meter,
    pub(super) right_tokens: meter::Proven,
    pub(super) intake: intake::Intake,
    pub(super) streams: Arc<share::Shared<String>>,
    pub(super) waits: Arc<share::Shared<String>>,
    pub(super) auth: RwLock<Arc<Auth>>,
    pub(super) stopping: watch::Sender<bool>,
}

impl State {
    pub(super) fn new(doors: Doors, limits: Limits, auth: Auth) -> Self {
        let stopping = watch::Sender::new(false);
        let commands = Arc::new(Semaphore::new(limits.commands));
        Self {
            doors,
            limits,
            commands,
            meter: meter::Meter::default(),
            wrong_tokens: meter::Meter::default(),
            right_tokens: meter::Proven::default(),
            intake: intake::Intake::default(),
            streams: share::Shared::new(STREAMS.0, STREAMS.1),
            waits: share::Shared::new(WAITS.0, WAITS.1),
            auth: RwLock::new(Arc::new(auth)),
            stopping,
        }
    }

    pub(super) fn auth(&self) -> Arc<Auth> {
        self.auth.read().clone()
    }

    pub(super) fn replace_auth(&self, auth: Auth) {
        *self.auth.write() = Arc::new(auth);
    }

    /// Sends a command to the herd and waits for its answer, at most `limit`. It is refused where too many
    /// wait already.
    pub(super) async fn ask<T: 'static>(
        &self,
        limit: Duration,
        command: impl FnOnce(Reply<T>) -> HerdCommand,
    ) -> Result<T, Rejection> {
        let (reply, answer) = Reply::channel();
        let place =
            Arc::clone(&self.commands).try_acquire_owned().map_err(|_| Rejection::busy())?;
        self.doors.herd.do_send(command(reply));
        // The command has its place for as long as it waits, also when its caller is gone.
        let answer = actix_web::rt::spawn(async move {
            let answer = answer.await;
            drop(place);
            answer
        });
        match tokio::time::timeout(limit, answer).await {
            Ok(Ok(Ok(answer))) => Ok(answer),
            Ok(Ok(Err(_)) | Err(_)) | Err(_) => Err(Rejection::unknown_outcome()),
        }
    }

    /// Reports what a caller ordered, once it is taken: `order` is the rest of a sentence about the caller.
    pub(super) fn report_order(&self, caller: &Caller, order: String) {
        let at = now();
        let by = caller.principal.clone();
        self.doors.view.observe(Fact { at, what: What::Ordered { by, order } });
    }

    /// Ends when the server stops, so that long answers end too.
    pub(super) async fn stopping(&self) {
        let mut seen = self.stopping.subscribe();
        // The sender lives in `self`, so the wait cannot end early.
        let _ = seen.wait_for(|stopping| *stopping).await;
    }
}
