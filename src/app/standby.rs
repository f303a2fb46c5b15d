//! A member that stands by: it serves callers by passing them on, and waits until it leads.

use std::sync::Arc;
use std::time::Duration;

use drover_config::Checked;
use drover_config::watch::{Change, Outcome, Trigger};
use drover_server::{Bound, Limits, Running, StandbyDoors};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::membership::Membership;
use super::signals::{SignalAction, Signals};
use super::{RunError, members, wiring};
use crate::systemd::{self, Notifier};

/// How often a standby reads what is new in the journal.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(2);

/// How long a member waits for its first look into the journal before it takes part in the election.
const FIRST_LOOK_LIMIT: Duration = Duration::from_secs(5);

/// How the time of standing by ended.
pub(super) enum Waited {
    Leads,
    Stops,
}

/// Stands by until this member leads or is to stop. `checked` follows the files.
///
/// # Errors
/// [`RunError::Web`]; [`RunError::GaveUp`] where the election ended.
pub(super) async fn stand_by(
    membership: &Arc<Membership>,
    checked: &mut Checked,
    bound: &Bound,
    signals: &mut Signals,
    (trigger, changes): (&Trigger, &mut mpsc::Receiver<Outcome>),
) -> Result<Waited, RunError> {
    let (leads, leader) = watch::channel(members::known_to_lead(&membership.role().borrow()));
    let server = serve(membership, leader, checked, bound)?;
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
            break Ok(Waited::Leads);
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
                    *checked = *new;
                    server.replace_auth(wiring::auth(&checked.service));
                    membership.has(membership.digest(&checked.agreed_text()));
                }
                // The configuration's watch has logged the faults.
                Change::Refused(_) => {}
            },
            action = signals.next() => match action {
                SignalAction::Reload => drop(trigger.pull()),
                SignalAction::Reap | SignalAction::Resync => {
                    tracing::warn!("signal ignored: this member stands by, and the leader alone reaps and resyncs");
                }
                SignalAction::Stop => break Ok(Waited::Stops),
            },
        }
    };
    watchdog.abort();
    server.stop().await;
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
    bound: &Bound,
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
    };
    Ok(again.stand_by(doors, wiring::auth(&checked.service), Limits::default())?)
}
