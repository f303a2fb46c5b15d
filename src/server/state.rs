//! What every handler of the leader can reach: the herd, the read side, and the house (`house.rs`).

use std::io;
use std::ops::{ControlFlow, Deref};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use drover_actors::message::HerdCommand;
use drover_api::{
    BlackBoxOut, MembersOut, PlanIn, PlanOut, SyncDoneOut, SyncIn, SyncTestOut, ValueOut,
};
use drover_audit::Audit;
use drover_ci::Hooks;
use drover_history::{Line, PriceList, Range};
use drover_model::fact::{Fact, What};
use drover_model::id::{AgentId, LeaseId};
use drover_model::ports::{Ask, Observer as _, ShellTarget};
use drover_model::time::WallTime;
use drover_notify::Tested;
use drover_runtime::reply::Reply;
use drover_shell::OpenTerminal;
use drover_shell::user_data::UserDataStore;
use drover_ssh::TerminalSize;
use drover_vault::ClusterKey;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::auth::Caller;
use crate::hints::KeptHints;
use crate::house::{House, now};
use crate::looks::Looks;
use crate::problem::Rejection;
use crate::session::SessionKey;
use crate::terminals::Terminals;
use crate::view::View;

/// Readers of the history at once.
pub(crate) const READERS: usize = 2;

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

/// Why a member stays in the list of members.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotForgotten {
    /// There is no such member.
    #[error("{0}")]
    Unknown(String),
    /// It leads, or is live.
    #[error("{0}")]
    Refused(String),
    /// The store did not take it.
    #[error("{0}")]
    Failed(String),
}

/// What a sync does, or a return to a commit.
pub type SyncDoor =
    Arc<dyn Fn(SyncIn) -> BoxFuture<'static, Result<SyncDoneOut, NotSynced>> + Send + Sync>;
/// Tests the connection to git, and changes nothing.
pub type TestSyncDoor =
    Arc<dyn Fn() -> BoxFuture<'static, Result<SyncTestOut, NotSynced>> + Send + Sync>;

/// The values of the configuration in force; may take a moment where a configuration is large.
pub type ValuesDoor = Arc<dyn Fn() -> Arc<[ValueOut]> + Send + Sync>;

/// Says what a configuration would do, and changes nothing.
pub type PlanDoor =
    Arc<dyn Fn(PlanIn) -> BoxFuture<'static, Result<PlanOut, NotSynced>> + Send + Sync>;

/// What a reload does: reads the configuration again; gives the generation in force or the faults.
pub type Reload = Arc<dyn Fn() -> BoxFuture<'static, Result<u64, NotReloaded>> + Send + Sync>;
/// Whose token a guest shows; none for nobody's.
pub type WhoCalls = Arc<dyn Fn(&str) -> Option<AgentId> + Send + Sync>;
/// Sets the level of the log, or says why not.
pub type SetLogLevel = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// The members of the store; none where the journal is a file of this drover alone.
pub type MembersDoor = Arc<dyn Fn() -> Option<MembersOut> + Send + Sync>;
/// Hands the lead to a member, or to any that can lead: a text for people, or why not.
pub type TransferDoor =
    Arc<dyn Fn(Option<String>) -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// Takes a member out of the list that is gone for good.
pub type ForgetDoor =
    Arc<dyn Fn(String) -> BoxFuture<'static, Result<(), NotForgotten>> + Send + Sync>;

/// Opens a terminal of a size in a guest.
pub type TerminalDoor = Arc<dyn Fn(ShellTarget, TerminalSize) -> Ask<OpenTerminal> + Send + Sync>;

/// What is kept of an agent that failed; none where nothing is.
pub type BlackBoxDoor = Arc<dyn Fn(&str) -> io::Result<Option<BlackBoxOut>> + Send + Sync>;

/// What a reading of the history says of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HistorySeen {
    /// Since when there are records; none where there are none.
    pub since: Option<WallTime>,
    /// Lines that could not be read.
    pub unread: u64,
    /// Facts that came too fast since the service started.
    pub left_out: u64,
}

/// Reads all records of a range, one after the other.
pub type ReadHistory = Arc<
    dyn Fn(Range, &mut dyn FnMut(Line) -> ControlFlow<()>) -> io::Result<HistorySeen> + Send + Sync,
>;

/// The way to the history.
#[derive(Clone)]
pub struct HistoryDoor {
    pub read: ReadHistory,
    /// What machines cost, and in what currency; none where nothing is configured.
    pub prices: Arc<dyn Fn() -> Option<(PriceList, String)> + Send + Sync>,
}

impl Default for HistoryDoor {
    /// A history without records.
    fn default() -> Self {
        Self { read: Arc::new(|_, _| Ok(HistorySeen::default())), prices: Arc::new(|| None) }
    }
}
/// Sends a test message over a channel of notifications, or over all: none where there is no such channel.
pub type NotifyDoor =
    Arc<dyn Fn(Option<String>) -> BoxFuture<'static, Option<Vec<Tested>>> + Send + Sync>;

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
    /// What is in force, and from where.
    pub values: ValuesDoor,
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
    /// The members of the store.
    pub members: MembersDoor,
    /// Hands the lead to another member.
    pub transfer: TransferDoor,
    /// Takes a member out of the list.
    pub forget_member: ForgetDoor,
    /// Whether this drover may change anything now: a member that leads cannot while its store does not
    /// answer.
    pub leads: Arc<dyn Fn() -> bool + Send + Sync>,
    /// The key of the members, which signs what they forward; none where this drover stands alone.
    pub key: Option<ClusterKey>,
    /// What sessions of the page are signed with.
    pub session_key: SessionKey,
    /// The book: each page's path without `.md`, and its Markdown.
    pub book: Arc<[(&'static str, String)]>,
    /// Who changed what.
    pub audit: Audit,
    /// What is kept of agents that failed.
    pub black_box: BlackBoxDoor,
    /// Opens a terminal in an agent.
    pub terminal: TerminalDoor,
    /// What drover has seen.
    pub history: HistoryDoor,
    /// Tests channels of notifications.
    pub test_notify: NotifyDoor,
}

/// What every handler can reach on the leader.
pub(crate) struct State {
    pub(super) doors: Doors,
    pub(super) commands: Arc<Semaphore>,
    /// What the page was answered lately by clusters.
    pub(super) looks: Looks,
    /// What reasons on the page lead to.
    pub(super) hints: KeptHints,
    /// Terminals that are open.
    pub(super) terminals: Terminals,
    /// Places for readers of the history.
    pub(super) history_readers: Arc<Semaphore>,
    house: Arc<House>,
}

impl Deref for State {
    type Target = House;

    fn deref(&self) -> &House {
        &self.house
    }
}

impl State {
    pub(super) fn new(doors: Doors, house: &Arc<House>) -> Self {
        let commands = Arc::new(Semaphore::new(house.limits.commands));
        let history_readers = Arc::new(Semaphore::new(READERS));
        let (looks, house) = (Looks::default(), Arc::clone(house));
        let terminals = Terminals::default();
        let hints = KeptHints::default();
        Self { doors, commands, looks, hints, terminals, history_readers, house }
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
}
