//! A member that stands by: it serves callers by passing them on, and waits until it leads.

use std::sync::Arc;
use std::time::Duration;

use drover_audit::{Audit, Entry};
use drover_config::Checked;
use drover_config::watch::{Change, Outcome, Trigger};
use drover_server::{Bound, Limits, Running, StandbyDoors};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::held::Held;
use super::membership::Membership;
use super::signals::{SignalAction, Signals};
use super::{RunError, auditing, members, wiring};
use crate::systemd::{self, Notifier};

/// How often a standby reads what is new in the journal.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(2);

/// How long a member waits for its first look into the journal before it takes part in the election.
const FIRST_LOOK_LIMIT: Duration = Duration::from_secs(5);

/// How the time of standing by ended.
pub(super) enum Waited {
    Leads(Begin),
    Stops,
}

/// What a term begins with.
pub(super) struct Begin {
    /// The configuration in force.
    pub(super) checked: Box<Checked>,
    /// What the files had since then, for the service to take up.
    pub(super) changes: Vec<Change>,
}

impl Begin {
    /// With what the files have.
    pub(super) fn with(checked: Checked) -> Self {
        Self { checked: Box::new(checked), changes: Vec::new() }
    }
}

/// What a member has in its files when it begins to stand by.
pub(super) struct Files {
    pub(super) newest: Box<Checked>,
    /// The configuration of its last term.
    pub(super) former: Option<Box<Checked>>,
    /// Why the files are refused; the newest is what they had before then.
    pub(super) refused: Option<String>,
}

/// Stands by until this member leads or is to stop.
///
/// # Errors
/// [`RunError::Web`]; [`RunError::GaveUp`] where the election ended.
pub(super) async fn stand_by(
    membership: &Arc<Membership>,
    Files { newest, former, mut refused }: Files,
    (bound, audit): (&Bound, Audit),
    signals: &mut Signals,
    (trigger, changes): (&Trigger, &mut mpsc::Receiver<Outcome>),
) -> Result<Waited, RunError> {
    let (leads, leader) = watch::channel(members::known_to_lead(&membership.role().borrow()));
    let server = serve(membership, leader, &newest, (bound, &audit))?;
    let digest = |checked: &Checked| membership.digest(&checked.agreed_text());
    let mut held = Held::new(digest(&newest), newest);
    if let Some(former) = former {
        held = held.beside(digest(&former), former);
    }
    membership.has(held.digest().to_owned(), held.before());
    membership.refuses(refused.as_deref());
    let watchdog = tokio::spawn(systemd::feed_watchdog(Arc::new(|| true)));
    let (mut role, mut listed) = (membership.role(), membership.listed());
    // A member that cannot read the journal must not win: the others would wait for its lease to end.
    let followed = tokio::time::timeout(FIRST_LOOK_LIMIT, look(membership)).await;
    if followed.is_ok() {
        membership.follow();
    }
    membership.take_part();
    let mut follow = tokio::time::interval(FOLLOW_INTERVAL);
    follow.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut reported = None;
    let waited = loop {
        membership.follow();
        let now = role.borrow_and_update().clone();
        let leader = members::known_to_lead(&now);
        leads.send_if_modified(|known| {
            let differs = *known != leader;
            *known = leader;
            differs
        });
        if now.term.is_some() {
            let (checked, newest) = held.with(now.lease.as_ref().map(|lease| &*lease.config));
            let newest = newest.map(Change::Reloaded).into_iter();
            let changes = newest.chain(refused.map(Change::Refused)).collect();
            break Ok(Waited::Leads(Begin { checked, changes }));
        }
        let standing = members::standing(membership);
        if reported.as_ref() != Some(&standing) {
            tracing::info!(member = membership.name(), %standing, "stands by");
            Notifier.ready(&format!("stands by: {standing}"));
            reported = Some(standing);
        }
        tokio::select! {
            _ = follow.tick() => drop(look(membership)),
            changed = role.changed() => if changed.is_err() {
                break Err(RunError::GaveUp("the election's thread ended".to_owned()));
            },
            changed = listed.changed() => if changed.is_err() {
                break Err(RunError::GaveUp("the thread of the members ended".to_owned()));
            },
            Some(outcome) = changes.recv() => match outcome.change {
                Change::Reloaded(new) => {
                    server.replace_auth(wiring::auth(&new.service));
                    auditing::configure(&audit, &new.service);
                    let in_force = now.lease.as_ref().map(|lease| &*lease.config);
                    held.replace(digest(&new), new, in_force);
                    membership.has(held.digest().to_owned(), held.before());
                    membership.refuses(None);
                    refused = None;
                }
                // The configuration's watch has logged the faults.
                Change::Refused(faults) => {
                    membership.refuses(Some(&faults));
                    refused = Some(faults);
                }
            },
            action = signals.next() => {
                audit.note(auditing::signal(action));
                match action {
                    SignalAction::Reload => drop(trigger.pull()),
                    SignalAction::Reap | SignalAction::Resync => {
                        tracing::warn!("signal ignored: this member stands by, and the leader alone reaps and resyncs");
                    }
                    SignalAction::Stop => break Ok(Waited::Stops),
                }
            }
        }
    };
    watchdog.abort();
    server.stop().await;
    if matches!(waited, Ok(Waited::Stops)) {
        auditing::record(&audit, Entry::Stopped).await;
    }
    waited
}

/// Begins a look into the journal.
fn look(membership: &Arc<Membership>) -> JoinHandle<()> {
    let membership = Arc::clone(membership);
    tokio::task::spawn_blocking(move || membership.follow_journal())
}

fn serve(
    membership: &Arc<Membership>,
    leader: watch::Receiver<Option<(String, String)>>,
    checked: &Checked,
    (bound, audit): (&Bound, &Audit),
) -> Result<Running, RunError> {
    let again = bound.again();
    let again = again
        .map_err(|source| RunError::System { doing: "cannot share the API's sockets", source })?;
    let (all, why) = (Arc::clone(membership), Arc::clone(membership));
    let doors = StandbyDoors {
        leader,
        members: Arc::new(move || members::listed(&all)),
        key: membership.key().clone(),
        member: membership.name().to_owned(),
        why: Arc::new(move || members::standing(&why).to_string()),
        audit: audit.clone(),
    };
    Ok(again.stand_by(doors, wiring::auth(&checked.service), Limits::default())?)
}
