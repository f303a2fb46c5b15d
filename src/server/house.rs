//! What leader and standby have in common: who may come in, the bounds of what callers take, and the
//! sign that the server stops.

use std::sync::Arc;
use std::time::Duration;

use drover_audit::Audit;
use drover_model::time::WallTime;
use drover_vault::ClusterKey;
use parking_lot::RwLock;
use tokio::sync::watch;

use super::auth::Auth;
use super::crowd::Room;
use super::session::SessionKey;
use super::{intake, meter, openid, share, taken};

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

impl Limits {
    /// How long a page waits for what it can do without.
    pub(super) fn glance(&self) -> Duration {
        self.reply / 5
    }
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

/// Event streams that may be open at once, and those of one principal: a team may look by one token.
pub(super) const STREAMS: (usize, usize) = (512, 384);
/// Requests that may wait for a change of a lease at once, and those of one principal.
pub(super) const WAITS: (usize, usize) = (1024, 768);

/// The largest body taken, in bytes.
pub const BODY_LIMIT: usize = 64 * 1024;

/// The time at which a request is answered.
pub(super) fn now() -> WallTime {
    WallTime(jiff::Timestamp::now().as_millisecond())
}

/// What every server of the API has, whatever it answers.
pub(crate) struct House {
    pub(super) limits: Limits,
    /// Who changed what.
    pub(super) audit: Audit,
    /// The key of the members; none where this drover stands alone.
    pub(super) key: Option<ClusterKey>,
    /// Words of members that were taken.
    pub(super) taken: taken::Taken,
    /// Webhooks and calls of guests that were nobody's.
    pub(super) meter: meter::Meter,
    /// Tokens that were wrong.
    pub(super) wrong_tokens: meter::Meter,
    pub(super) right_tokens: meter::Proven,
    /// Logins at the provider that came back.
    pub(super) ended_logins: openid::EndedLogins,
    pub(super) intake: intake::Intake,
    pub(super) streams: Arc<share::Shared<String>>,
    pub(super) waits: Arc<share::Shared<String>>,
    pub(super) stopping: watch::Sender<bool>,
    /// What sessions of the page are signed with.
    pub(super) sessions: SessionKey,
    auth: RwLock<Arc<Auth>>,
}

impl House {
    pub(super) fn new(
        limits: Limits,
        auth: Auth,
        key: Option<ClusterKey>,
        sessions: SessionKey,
        audit: Audit,
    ) -> Arc<Self> {
        Arc::new(Self {
            limits,
            audit,
            key,
            taken: taken::Taken::default(),
            meter: meter::Meter::default(),
            wrong_tokens: meter::Meter::default(),
            right_tokens: meter::Proven::default(),
            ended_logins: openid::EndedLogins::default(),
            intake: intake::Intake::default(),
            streams: share::Shared::new(STREAMS.0, STREAMS.1),
            waits: share::Shared::new(WAITS.0, WAITS.1),
            stopping: watch::Sender::new(false),
            sessions,
            auth: RwLock::new(Arc::new(auth)),
        })
    }

    pub(super) fn auth(&self) -> Arc<Auth> {
        self.auth.read().clone()
    }

    pub(super) fn replace_auth(&self, auth: Auth) {
        let mut known = self.auth.write();
        *known = Arc::new(auth.after(&known));
    }

    /// Ends when the server stops, so that long answers end too.
    pub(super) async fn stopping(&self) {
        let mut seen = self.stopping.subscribe();
        // The sender lives in `self`, so the wait cannot end early.
        let _ = seen.wait_for(|stopping| *stopping).await;
    }
}
