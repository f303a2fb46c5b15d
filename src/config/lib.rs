//! drover's configuration: YAML files, environment and defaults, checked and watched.
//!
//! In: one file or a directory of YAML files, and the [`Environment`]. Out: a [`Checked`]
//! configuration, which is the [`HerdSpec`] for the actors and, apart from it, what they must not
//! know (endpoints, secrets); or a [`LoadError`] with every fault at once, each with file, line,
//! column and help. The package opens no connection and changes no file.
//!
//! ```text
//! source, file ─▶ node ─▶ layer ◀─ keys          sections: cloud, template, demand, service, …
//!  read files     parse   check each mapping      merge layers, check rules and references
//!                 (YAML)  against its table    ─▶ load ─▶ Checked or faults (fault, mask)
//! ```
//!
//! The public face:
//! - [`load`](load()), [`check`](check()), [`inputs`](inputs()): read and check; [`Checked`],
//!   [`LoadError`], [`Fault`];
//! - [`watch`]: reads the files again whenever they change;
//! - [`schema`](schema()): the JSON Schema for editors; [`explain`](explain()): what a key means;
//!   [`values`](values()): every value in force, and where it comes from;
//! - [`copy`](copy()), [`token_place`](token_place()): edits of the files, with [`EditError`];
//! - [`socket`](socket()): the API's socket, whatever else is wrong; [`level`]: log levels;
//!   [`calendar`]: cron.
//!
//! All keys are in `keys.rs`: start there. Failure paths: a syntax fault ends the check, every
//! other fault is collected; a fault at a hot edit leaves the previous configuration in force.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod addresses;
pub mod calendar;
mod candidate;
mod changes;
mod channels;
mod cloud;
mod cloud_init;
mod collector;
mod connection;
mod container;
mod context;
mod copy;
mod credential;
mod demand;
mod edit;
mod encrypted;
mod environment;
mod explain;
mod fault;
mod file;
mod hardware;
mod image;
mod keys;
mod layer;
pub mod level;
mod load;
mod machine;
pub mod managed;
mod mapping;
mod mask;
mod network;
mod node;
mod notify;
mod openid;
mod origin;
mod os;
mod placement;
mod prepare;
mod rules;
mod runners;
mod schedule;
mod schema;
mod service;
mod shared_store;
mod size_labels;
mod socket;
mod source;
mod sync;
mod template;
#[cfg(test)]
mod tests;
mod token;
mod top;
mod traces;
mod trust;
mod value;
mod values;
pub mod watch;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drover_ci::SourceConnection;
use drover_model::id::{CloudId, Generation, SourceId};
use drover_model::spec::HerdSpec;
use proxmox_client::Connection;

pub use candidate::{Candidate, candidate};
pub use changes::{ValueChange, changes, manual_changes};
pub use context::{Uploads, is_private};
pub use copy::{Copied, CopyRequest, copy};
pub use credential::SshKeySpec;
pub use edit::EditError;
pub use encrypted::{Identities, encrypt};
pub use environment::Environment;
pub use explain::{Explained, UnknownKey, explain, sections};
pub use fault::{Fault, LocatedFault, Place};
pub use openid::{OpenIdGroup, OpenIdSpec};
pub use schema::schema;
pub use service::{
    ApiToken, AuditSpec, BlackBoxSpec, HistorySpec, HourPrices, PriceSpec, ServiceSpec,
};
pub use shared_store::{
    KEY_VARIABLE, STORE_VARIABLE, StoreSpec, key_of_environment, store_of_environment,
};
pub use socket::{Socket, elsewhere, socket};
pub use source::{SourceFile, Sources, yaml_in};
pub use sync::{ConfigSyncSpec, managed_folder, state_directory};
pub use token::{TokenPlace, token_place};
pub use value::SOCKET_PATH_MAX;
pub use values::{Origin, ValueInForce, values};

/// A configuration without faults.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The configuration of the actors; [`Checked::follow`] sets its generation.
    pub herd: HerdSpec,
    /// The connection of each cloud.
    pub connections: BTreeMap<CloudId, Connection>,
    /// The private keys for guests, by their ids in `credentials`.
    pub keys: BTreeMap<String, SshKeySpec>,
    /// The connection of each source.
    pub demand: BTreeMap<SourceId, SourceConnection>,
    /// The contents of the files that drover copies into guests.
    pub uploads: Uploads,
    pub service: ServiceSpec,
    /// Settings that are allowed but unwise, in order of place.
    pub warnings: Vec<Fault>,
    /// The files it was read from.
    pub sources: Sources,
    /// The merged layers of each template.
    layers: BTreeMap<String, layer::Layer>,
}

impl Checked {
    /// Makes this the configuration after `previous`. Templates without changes stay the same
    /// objects, generation included, so that only the others are new.
    pub fn follow(&mut self, previous: &HerdSpec, generation: Generation) {
        self.herd.generation = generation;
        for (id, cloud) in &mut self.herd.clouds {
            if let Some(old) = previous.clouds.get(id).filter(|old| *old == cloud) {
                *cloud = Arc::clone(old);
            }
        }
        for (id, template) in &mut self.herd.templates {
            let fresh = Arc::make_mut(template);
            fresh.generation = generation;
            let Some(old) = previous.templates.get(id) else { continue };
            fresh.generation = old.generation;
            if **old == *fresh {
                *template = Arc::clone(old);
            } else {
                fresh.generation = generation;
            }
        }
    }

    /// What two members must have alike: the names and texts of the files, and the files for guests.
    /// Secrets that the configuration names by file or variable are not part of it.
    pub fn agreed_text(&self) -> Vec<u8> {
        let file = |file: &SourceFile| {
            let name = file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, file.text.clone())
        };
        let files: Vec<(String, String)> = self.sources.files().iter().map(file).collect();
        let uploads: Vec<&str> = self.uploads.iter().map(|(sha256, _)| sha256).collect();
        // Texts alone: this cannot fail.
        serde_json::to_vec(&(files, uploads)).unwrap_or_default()
    }

    /// The warnings with the lines around them; empty without warnings.
    pub fn rendered_warnings(&self) -> String {
        if self.warnings.is_empty() {
            return String::new();
        }
        fault::render_warnings(&self.warnings, &self.sources)
    }

    /// The same of those alone that are about files of git.
    pub fn rendered_warnings_of_git(&self) -> String {
        let file = |warning: &Fault| self.sources.file(warning.place?.file);
        let is_of_git = |warning: &&Fault| {
            file(warning).is_some_and(|file| file.name.starts_with(managed::OF_GIT))
        };
        let warnings: Vec<Fault> = self.warnings.iter().filter(is_of_git).cloned().collect();
        if warnings.is_empty() {
            return String::new();
        }
        fault::render_warnings(&warnings, &self.sources)
    }

    /// The warnings as scripts read them.
    pub fn located_warnings(&self) -> Vec<LocatedFault> {
        self.warnings.iter().map(|warning| warning.located(&self.sources)).collect()
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Nothing is configured; the command line exits with 2.
    #[error("{what}")]
    Missing {
        /// What is missing.
        what: String,
        /// What to do about it.
        help: String,
    },
    /// There are faults.
    #[error("the configuration has {} {}", faults.len(), plural(faults.len()))]
    Faults {
        /// All of them, in order of place.
        faults: Vec<Fault>,
        /// The files they are in.
        sources: Sources,
    },
    /// A file cannot be read.
    #[error("`{path}` cannot be read")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "fault" } else { "faults" }
}

fn help(path: &Path, unreadable: &io::Error) -> &'static str {
    if path.components().any(|part| part.as_os_str() == managed::CONFIG_SYNC) {
        return "restore it from a backup, or point the link `in-force` in `config-sync` at another \
                folder in `applied`; then start drover and run `drover sync`";
    }
    if unreadable.kind() == io::ErrorKind::NotFound {
        return "name a YAML file, or a directory of them, with --config or DROVER_CONFIG";
    }
    if unreadable.kind() == io::ErrorKind::InvalidInput {
        return "put a plain file there, or remove it";
    }
    if unreadable.kind() == io::ErrorKind::FileTooLarge {
        return "check that this is a configuration";
    }
    if unreadable.kind() == io::ErrorKind::PermissionDenied {
        return "let drover's user read it";
    }
    "check the file and the links to it"
}

impl LoadError {
    /// The error as people read it, faults in their places, without secrets and colour.
    pub fn render(&self) -> String {
        match self {
            Self::Missing { what, help } => format!("{what}\n  help: {help}\n"),
            Self::Faults { faults, sources } => {
                format!("{}\n{self}\n", fault::render(faults, sources))
            }
            Self::Io { path, source } => {
                format!("{self}: {source}\n  help: {}\n", help(path, source))
            }
        }
    }

    /// All faults as scripts read them.
    pub fn located(&self) -> Vec<LocatedFault> {
        let alone = |what: String, help: &str| {
            let (file, line, column, key) = (None, None, None, None);
            vec![LocatedFault { file, line, column, key, what, help: Some(help.to_owned()) }]
        };
        match self {
            Self::Missing { what, help } => alone(what.clone(), help),
            Self::Faults { faults, sources } => {
                faults.iter().map(|fault| fault.located(sources)).collect()
            }
            Self::Io { path, source } => alone(format!("{self}: {source}"), help(path, source)),
        }
    }

    /// The first faults for the log, one line each.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Missing { what, help } => vec![format!("{what}; {help}")],
            Self::Faults { faults, sources } => fault::lines(faults, sources),
            Self::Io { path, source } => {
                vec![format!("{self}: {source}; {}", help(path, source))]
            }
        }
    }
}

/// The files of a configuration beside its YAML, found or not: keys, secrets, bundles and uploads.
pub fn inputs(path: &Path, environment: &Environment) -> Vec<PathBuf> {
    load::load(path, environment).inputs
}

/// Reads and checks a configuration: a file, or a directory of YAML files.
///
/// # Errors
/// [`LoadError`] with all faults at once; a syntax fault is alone.
pub fn load(path: &Path, environment: &Environment) -> Result<Checked, LoadError> {
    load::load(path, environment).result
}

/// Checks a configuration that is already read.
///
/// # Errors
/// [`LoadError`] with all faults at once; a syntax fault is alone.
pub fn check(sources: Sources, environment: &Environment) -> Result<Checked, LoadError> {
    load::check(sources, environment).result
}
