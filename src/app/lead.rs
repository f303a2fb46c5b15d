//! What a service learns of its lead while it runs: that it is lost, that the members changed, and that
//! somebody asked for another leader.

use std::sync::Arc;

use drover_members::{Listed, Role, SendBy};
use drover_server::{ForgetDoor, NotForgotten};
use futures_util::FutureExt as _;
use tokio::sync::{mpsc, watch};

use super::agreement;
use super::ground::Ground;
use super::membership::Membership;

/// What a drover without members answers to those who ask about them.
const ALONE: &str = "this drover stands alone: `service.store` names no store";

/// The lead of one term. For a service that stands alone nothing of it ever happens.
pub(super) struct Lead {
    pub(super) lost: Lost,
    pub(super) news: News,
    /// The member that is to lead next.
    pub(super) handed_over: mpsc::UnboundedReceiver<String>,
    asks: mpsc::UnboundedSender<String>,
    membership: Option<Arc<Membership>>,
    send_by: Option<SendBy>,
}

/// The end of a lead.
pub(super) struct Lost(Option<(watch::Receiver<Role>, Option<u64>)>);

/// News of the members.
pub(super) struct News(Option<(watch::Receiver<Role>, watch::Receiver<Vec<Listed>>)>);

impl Lead {
    pub(super) fn of(ground: &Ground) -> Self {
        let membership = ground.shared.as_ref();
        let (asks, handed_over) = mpsc::unbounded_channel();
        let lost = membership.map(|membership| {
            let role = membership.role();
            let term = role.borrow().term;
            (role, term)
        });
        let news = membership.map(|membership| (membership.role(), membership.listed()));
        let (membership, send_by) = (membership.cloned(), ground.send_by.clone());
        Self { lost: Lost(lost), news: News(news), handed_over, asks, membership, send_by }
    }

    /// This process among the members.
    pub(super) fn membership(&self) -> Option<&Arc<Membership>> {
        self.membership.as_ref()
    }

    /// What somebody asks who wants a member out of the list.
    pub(super) fn forget(&self) -> ForgetDoor {
        let membership = self.membership.clone();
        Arc::new(move |name| match &membership {
            Some(membership) => Arc::clone(membership).forget(name).boxed(),
            None => std::future::ready(Err(NotForgotten::Unknown(ALONE.to_owned()))).boxed(),
        })
    }

    /// Whether it may not send at the moment.
    pub(super) fn is_cut_off(&self) -> bool {
        self.send_by.as_ref().is_some_and(|send_by| !send_by.is_open())
    }

    /// Until when this service may send; none where it may always.
    pub(super) fn send_by(&self) -> Option<SendBy> {
        self.send_by.clone()
    }

    /// What somebody asks who wants another leader: a text for people, or why not.
    pub(super) fn transfer(
        &self,
    ) -> impl Fn(Option<String>) -> Result<String, String> + Send + Sync + 'static {
        let (asks, membership) = (self.asks.clone(), self.membership.clone());
        move |next| {
            let membership = membership.as_ref().ok_or_else(|| ALONE.to_owned())?;
            let listed = membership.listed().borrow().clone();
            let name = membership.name();
            let next = match next {
                Some(next) => next,
                None => agreement::successor(&listed, name)
                    .ok_or_else(|| "no other member is live and can lead".to_owned())?,
            };
            if let Some(why) = agreement::cannot_follow(&listed, name, &next) {
                return Err(why);
            }
            asks.send(next.clone()).map_err(|_| "the service is stopping".to_owned())?;
            Ok(format!("member {name} hands over to {next}"))
        }
    }
}

impl Lost {
    /// Waits until this member does not lead any more in its term, and says why.
    pub(super) async fn wait(&mut self) -> String {
        let Some((role, term)) = &mut self.0 else { return std::future::pending().await };
        let ended = role.wait_for(|role| role.term != *term).await;
        let why =
            ended.map(|role| role.ended.clone().unwrap_or_else(|| "its term ended".to_owned()));
        why.unwrap_or_else(|_| "the election's thread ended".to_owned())
    }
}

impl News {
    /// Waits until a member or the leader lease changed.
    pub(super) async fn wait(&mut self) {
        let Some((role, listed)) = &mut self.0 else { return std::future::pending().await };
        let changed = tokio::select! {
            changed = role.changed() => changed,
            changed = listed.changed() => changed,
        };
        if changed.is_err() {
            // A thread that ended: `Lost` says so of the election.
            std::future::pending::<()>().await;
        }
    }
}
