//! What outlives a term: the log's level, the sockets, and the place among the members.

use std::path::Path;
use std::sync::Arc;

use drover_audit::Audit;
use drover_config::Checked;
use drover_config::watch::Watch;
use drover_model::ports::Ambient;
use drover_server::Bound;
use sha2::{Digest as _, Sha256};

use super::auditing;
use super::ground::Ground;
use super::membership::{self, Identity, Membership};
use super::service::{self, Ended, Service};
use super::shard_config::Follower;
use super::signals::Signals;
use super::standby::{Begin, Files, Waited, stand_by};
use super::{RunError, Settings, members, state_dir, twin, wiring};
use crate::clock::SystemAmbient;
use crate::telemetry::{self, LevelHandle};

/// This process as a member: its sockets, and its audit log.
type Member<'a> = (Arc<Membership>, &'a Bound, Audit);

/// The process over all its terms.
#[derive(Default)]
pub(super) struct Process {
    level: Option<LevelHandle>,
    bound: Option<Bound>,
    membership: Option<Arc<Membership>>,
    /// The configuration of the last term.
    files: Option<Box<Checked>>,
    /// What follows the configuration in the store; none where it is in files.
    follower: Option<Follower>,
    audit: auditing::Slot,
}

impl Process {
    pub(super) fn following(follower: Option<Follower>) -> Self {
        Self { follower, ..Self::default() }
    }

    /// Serves until the service stops, or leads no more.
    ///
    /// # Errors
    /// See [`RunError`].
    pub(super) async fn serve(&mut self, settings: &Settings) -> Result<Ended, RunError> {
        let outcome = self.one_term(settings).await;
        let goes_on = matches!(outcome, Ok(Ended::LeadsNoMore(_)));
        if let Ok(Ended::LeadsNoMore(files)) = &outcome {
            self.files = Some(files.clone());
        }
        if goes_on && let Some(membership) = &self.membership {
            membership.fall_back().await;
        }
        if let Some(membership) = self.membership.take_if(|_| !goes_on) {
            membership.leave().await;
        }
        outcome
    }

    async fn one_term(&mut self, settings: &Settings) -> Result<Ended, RunError> {
        let environment = settings.environment();
        let (watch, first) = Watch::open(&settings.config, environment.clone()).await;
        let files = match (first, self.files.take()) {
            (Ok(checked), former) => Files { newest: Box::new(checked), former, refused: None },
            // An edit with faults leaves the old configuration in force, between two terms too.
            (Err(error), Some(files)) => {
                tracing::error!(error = error.render(), "configuration refused");
                Files { newest: files, former: None, refused: Some(error.render()) }
            }
            (Err(error), None) => return Err(error.into()),
        };
        let checked = &files.newest;
        let level = self.level(checked, settings)?;
        if !checked.warnings.is_empty() {
            tracing::warn!(warnings = checked.rendered_warnings(), "configuration has warnings");
        }
        let mut signals = Signals::listen()?;
        let state = state_dir::create(settings.state_dir.clone(), &checked.service)?;
        let ambient: Arc<dyn Ambient> = Arc::new(SystemAmbient::new().map_err(|source| {
            RunError::System { doing: "the operating system gives no random numbers", source }
        })?);
        let trigger = watch.trigger();
        let (mut changes, watching) = service::changes_of(watch);
        if let Some(follower) = &self.follower {
            follower.serves(trigger.clone());
        }
        let (ground, begin) = match self.member((settings, &state), checked, &ambient)? {
            None => (Ground::alone(&state), Begin::with(*files.newest)),
            Some((membership, bound, audit)) => {
                let serves = (bound, audit);
                let waited =
                    stand_by(&membership, files, serves, &mut signals, (&trigger, &mut changes));
                match waited.await? {
                    Waited::Stops => return Ok(Ended::Stopped),
                    Waited::Leads(begin) => {
                        members::announce(&membership);
                        (Ground::of_leader(membership, &*ambient), begin)
                    }
                }
            }
        };
        let bound = match &self.bound {
            Some(bound) => Some(bound.again().map_err(|source| RunError::System {
                doing: "cannot share the API's sockets",
                source,
            })?),
            None => None,
        };
        let files = self.membership.is_some().then(|| begin.checked.clone());
        let stored = self.follower.as_ref().map(Follower::trouble);
        let audit = &mut self.audit;
        let begins = service::Begins { settings, state, ambient, ground, bound, stored, audit };
        let ended = Service::serve(
            begins,
            begin,
            (level, environment),
            (&trigger, &mut changes),
            &mut signals,
        );
        let ended = ended.await;
        watching.abort();
        match (ended, &self.membership, files) {
            // A newer drover wrote it, which may be another member: this one leads no more until it is newer too.
            (Err(RunError::Journal(error)), Some(membership), Some(files))
                if membership.cannot_read(&error) =>
            {
                membership.give_up(None).await;
                Ok(Ended::LeadsNoMore(files))
            }
            (ended, _, _) => ended,
        }
    }

    fn level(&mut self, checked: &Checked, settings: &Settings) -> Result<LevelHandle, RunError> {
        if let Some(level) = &self.level {
            return Ok(level.clone());
        }
        let level = telemetry::init(&checked.service.log_level, settings.json_log)?;
        let files = wiring::raise_open_files();
        tracing::debug!(files, "limit on open files");
        self.level = Some(level.clone());
        Ok(level)
    }

    /// This process as a member, and its sockets; none where the journal is its own alone.
    fn member(
        &mut self,
        (settings, state): (&Settings, &Path),
        checked: &Checked,
        ambient: &Arc<dyn Ambient>,
    ) -> Result<Option<Member<'_>>, RunError> {
        let Some(store) = &checked.service.store else { return Ok(None) };
        let bound = match self.bound.take() {
            Some(bound) => bound,
            None => drover_server::bind(
                service::listen(settings, checked),
                &wiring::auth(&checked.service),
            )?,
        };
        let bound = self.bound.insert(bound);
        if let Some(membership) = &self.membership {
            let audit = self.audit.open(state, &checked.service)?;
            return Ok(Some((Arc::clone(membership), bound, audit)));
        }
        let host = crate::host::host_name();
        let name = settings.member.clone().unwrap_or_else(|| host.clone());
        membership::check_name(&name)?;
        let url = match (&settings.advertise, bound.addrs().first()) {
            (Some(url), _) => membership::advertised(url)?,
            (None, Some(addr)) => membership::url(*addr, &host),
            (None, None) => {
                let text = "the other members cannot reach this one: give service.listen";
                return Err(RunError::Member(text.to_owned()));
            }
        };
        let key = Sha256::digest(store.address.to_string());
        let key: String = key.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        let socket = service::listened(settings, checked);
        twin::hold_member(&name, &key, state, socket)?;
        twin::hold_state(state, socket)?;
        let audit = self.audit.open(state, &checked.service)?;
        tracing::info!(member = name, url, store = %store.address, "member of a store");
        let identity = Identity { name, url };
        let agreed = checked.agreed_text();
        let stored = self.follower.as_ref().map(Follower::trouble);
        let membership = Membership::start(store, identity, (&agreed, stored), ambient)?;
        Ok(Some((Arc::clone(self.membership.insert(membership)), bound, audit)))
    }
}
