//! The configuration of a member whose herd keeps it in the store.
//!
//! ```text
//! store ── every 5 s ──> latest ── the watch of files ──> check ──> agreement of the members
//!                           │  checks without a fault
//!                           v
//!                        accepted      what the member starts with where `latest` has faults
//! ```
//!
//! The files go into a folder of the state directory ([`KeptConfigs`]), and everything behind it is as for
//! files that an operator edits there. [`begin`] makes the folder at the start; a [`Follower`] follows the
//! store while the process lives.
//!
//! Failures: a store that does not answer leaves the files as they are. What cannot be opened is refused as
//! a file with faults is, and so is a store without any ([`StoreTrouble`]). Without a configuration that can be
//! used, in the store or kept, a member waits for one. It ends after a minute, and the service manager starts it
//! again: more than ten failures in 300 s would keep it down.

mod follower;
mod kept;
mod trouble;

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use causes::chain;
use drover_config::{Environment, state_directory, store_of_environment, yaml_in};
use drover_members::ConfigStore;

use super::{RunError, Settings, state_dir};
use crate::systemd::Notifier;
pub(super) use follower::Follower;
use kept::KeptConfigs;
pub(super) use trouble::StoreTrouble;

/// How long a member waits at its start for a configuration that can be used.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often it looks for one meanwhile.
const START_INTERVAL: Duration = Duration::from_secs(2);

/// Where a member has its configuration from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Files,
    Store,
}

/// What the settings say of where the configuration is.
#[derive(Debug, Clone, Copy)]
struct Given {
    /// `--config-from-store`.
    from_store: bool,
    /// Both the store and the key of the members, by options or variables.
    store_and_key: bool,
    /// A path was named.
    path: bool,
    found: FoundThere,
}

/// What is at the path of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FoundThere {
    Nothing,
    /// A folder without a YAML file.
    EmptyFolder,
    Files,
}

/// Where the configuration is; an error where that is said twice.
fn origin(given: Given, path: &Path) -> Result<Origin, String> {
    match (given.from_store, given.found) {
        (true, FoundThere::Files) => Err(format!(
            "`{}` has a configuration, and --config-from-store reads it from the store: move the files \
             away, or leave the option out",
            path.display()
        )),
        (true, FoundThere::Nothing | FoundThere::EmptyFolder) => Ok(Origin::Store),
        (false, FoundThere::Files) => Ok(Origin::Files),
        (false, FoundThere::EmptyFolder) if given.store_and_key => Ok(Origin::Store),
        // A path that was named and is not there is a slip.
        (false, FoundThere::Nothing) if given.store_and_key && !given.path => Ok(Origin::Store),
        (false, FoundThere::Nothing | FoundThere::EmptyFolder) => Ok(Origin::Files),
    }
}

fn found_at(path: &Path) -> FoundThere {
    if !path.is_dir() {
        // What cannot be looked at may be there: reading it says why not.
        let is_absent = matches!(path.try_exists(), Ok(false)) && !path.is_symlink();
        return if is_absent { FoundThere::Nothing } else { FoundThere::Files };
    }
    match yaml_in(path) {
        Ok(files) if files.is_empty() => FoundThere::EmptyFolder,
        Ok(_) | Err(_) => FoundThere::Files,
    }
}

/// Settles where the configuration is. Where it is in the store, reads it from there, sets the settings to
/// the folder where it lies then, and follows the store. Where it is in files, says whether it could be in
/// the store. Blocks.
///
/// # Errors
/// [`RunError::Stored`] for options that do not go together; [`RunError::NotFetched`] where there is no
/// configuration to start with for a minute.
pub(super) fn begin(settings: &mut Settings) -> Result<(Option<Follower>, bool), RunError> {
    let environment = settings.environment();
    let has = |name| environment.get(name).is_some();
    let given = Given {
        from_store: settings.config_from_store,
        store_and_key: has(drover_config::STORE_VARIABLE) && has(drover_config::KEY_VARIABLE),
        path: settings.config_is_named,
        found: found_at(&settings.config),
    };
    let origin = origin(given, &settings.config).map_err(RunError::Stored)?;
    settings.config_from_store = origin == Origin::Store;
    if origin == Origin::Files {
        return Ok((None, given.store_and_key));
    }
    let state = state_directory(None, &environment);
    settings.state_dir = Some(state_dir::make(&state)?);
    let environment = settings.environment();
    let (address, key) = store_of_environment(&environment).map_err(RunError::Stored)?;
    let kept = KeptConfigs::at(&state);
    settings.config = kept.latest();
    let place = address.to_string();
    let register = address.patient_register(false);
    let register = register.map_err(|source| RunError::Beside { place: place.clone(), source })?;
    let store = ConfigStore::new(register, &key);
    wait_for_first(|| fetch_first(&store, &kept, &environment), &place)?;
    let follower = Follower::start(store, kept, environment);
    let system = |source| RunError::System { doing: "cannot start a thread", source };
    Ok((Some(follower.map_err(system)?), false))
}

/// Looks for a configuration to start with until there is one, and says what is in the way.
fn wait_for_first(
    mut fetch: impl FnMut() -> Result<Option<String>, RunError>,
    place: &str,
) -> Result<(), RunError> {
    let ends = Instant::now() + START_LIMIT;
    let mut said = None;
    while let Some(why) = fetch()? {
        if Instant::now() >= ends {
            return Err(RunError::NotFetched { place: place.to_owned(), why });
        }
        if said.as_ref() != Some(&why) {
            // The log is not open: its level is in the configuration.
            let _ = writeln!(
                std::io::stderr(),
                "drover: waiting for a configuration in `{place}`: {}",
                why.trim_end()
            );
            Notifier.status(&format!("waiting for a configuration in {place}"));
            said = Some(why);
        }
        std::thread::sleep(START_INTERVAL);
    }
    Ok(())
}

/// Brings the newest configuration that can be started with to `latest`. Says why there is none.
fn fetch_first(
    store: &ConfigStore,
    kept: &KeptConfigs,
    environment: &Environment,
) -> Result<Option<String>, RunError> {
    let state = |source| RunError::State { path: kept.latest(), source };
    let fault = match store.read() {
        Ok(Some(found)) => {
            if kept.named_latest().as_deref() != Some(&*found.config.id()) {
                kept.put(&found.config).map_err(state)?;
            }
            None
        }
        Ok(None) => Some(
            "nobody has put a configuration there: run `drover shard-config put`, with the same store \
             and key"
                .to_owned(),
        ),
        Err(error) => Some(chain(&error)),
    };
    if kept.named_latest().is_none() {
        return Ok(fault);
    }
    let Err(faults) = kept.accept(environment) else { return Ok(None) };
    // The follower reports the faults once the log is open: it finds that the store has another one.
    if kept.fall_back().map_err(state)? && kept.accept(environment).is_ok() {
        return Ok(None);
    }
    Ok(Some(fault.unwrap_or_else(|| format!("the one there is refused:\n{}", faults.render()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: where the configuration is has one answer, or an error.

    #[test]
    fn the_store_is_read_where_it_is_asked_for_or_where_there_is_nothing_else() {
        let of = |from_store, store_and_key, path, found| {
            origin(Given { from_store, store_and_key, path, found }, Path::new("/etc/drover")).ok()
        };
        let (files, store) = (Some(Origin::Files), Some(Origin::Store));
        for named in [false, true] {
            for key in [false, true] {
                assert_eq!(of(true, key, named, FoundThere::Files), None, "said twice");
                assert_eq!(of(true, key, named, FoundThere::EmptyFolder), store);
                assert_eq!(of(true, key, named, FoundThere::Nothing), store);
                assert_eq!(of(false, key, named, FoundThere::Files), files);
            }
            assert_eq!(of(false, false, named, FoundThere::EmptyFolder), files);
            assert_eq!(of(false, true, named, FoundThere::EmptyFolder), store);
        }
        assert_eq!(of(false, true, false, FoundThere::Nothing), store);
        assert_eq!(of(false, true, true, FoundThere::Nothing), files, "a slip in --config");
    }
}
