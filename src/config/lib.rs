//! The YAML, checked and watched.
//!
//! [`load`] reads the files, finds every fault at once, and gives a [`Checked`] configuration: the
//! [`HerdSpec`] the actors live by, and beside it what they must not know (endpoints, secrets).
//! [`watch`] does so again whenever the files change. Opens no connection and changes nothing.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod addresses;
pub mod calendar;
mod cloud;
mod connection;
mod copy;
mod credential;
mod demand;
mod environment;
mod executors;
mod fault;
mod file;
mod keys;
mod layer;
pub mod level;
mod mapping;
mod mask;
mod network;
mod node;
mod origin;
mod os;
mod placement;
mod prepare;
mod schedule;
mod schema;
mod seed;
mod service;
mod source;
mod survey;
mod template;
#[cfg(test)]
mod tests;
mod token;
mod trust;
mod value;
pub mod watch;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drover_model::id::{CloudId, Generation, SourceId};
use drover_model::spec::HerdSpec;
use proxmox_client::Connection;

pub use copy::{Copied, CopyError, Wish, copy};
pub use credential::SshKeySpec;
pub use drover_ci::SourceConnection;
pub use environment::Environment;
pub use fault::{Fault, Place, ToldFault, render, render_warnings};
pub use prepare::Uploads;
pub use schema::schema;
pub use service::{ApiToken, ServiceSpec, socket};
pub use source::{SourceFile, Sources};
pub use token::{TokenError, TokenPlace, token_place};

/// A configuration without faults.
#[derive(Debug, Clone)]
pub struct Checked {
    /// What the actors live by; its generation is set by [`Checked::follow`].
    pub herd: HerdSpec,
    /// How each cloud is reached.
    pub connections: BTreeMap<CloudId, Connection>,
    /// The private keys for guests, by their ids in `credentials`.
    pub keys: BTreeMap<String, SshKeySpec>,
    /// How each source of demand is reached.
    pub demand: BTreeMap<SourceId, SourceConnection>,
    /// The contents of the files that are put into guests.
    pub uploads: Uploads,
    /// How drover itself runs.
    pub service: ServiceSpec,
    /// What is allowed but unwise, in order of place.
    pub warnings: Vec<Fault>,
    /// The files it was read from.
    pub sources: Sources,
    /// What is given of each template, all layers together.
    layers: BTreeMap<String, layer::Layer>,
}

impl Checked {
    /// Makes this the configuration after `previous`: templates that did not change stay the very
    /// same, generation included, so that only the others look new.
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

    /// The warnings with the lines they are about; empty when there are none.
    pub fn rendered_warnings(&self) -> String {
        if self.warnings.is_empty() {
            return String::new();
        }
        render_warnings(&self.warnings, &self.sources)
    }

    /// The warnings as scripts read them.
    pub fn told_warnings(&self) -> Vec<ToldFault> {
        self.warnings.iter().map(|warning| warning.told(&self.sources)).collect()
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
    /// A file can not be read.
    #[error("`{path}` can not be read")]
    Io {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "fault" } else { "faults" }
}

fn help(unreadable: &io::Error) -> &'static str {
    if unreadable.kind() == io::ErrorKind::NotFound {
        return "name a YAML file, or a directory of them, with --config or DROVER_CONFIG";
    }
    if unreadable.kind() == io::ErrorKind::InvalidInput {
        return "put a plain file there, or take it away";
    }
    if unreadable.kind() == io::ErrorKind::FileTooLarge {
        return "look whether this is a configuration at all";
    }
    if unreadable.kind() == io::ErrorKind::PermissionDenied {
        return "let the user that drover runs as read it";
    }
    "look at the file and the links that lead to it"
}

impl LoadError {
    /// The error as people read it, faults in their places, without secrets and colour.
    pub fn render(&self) -> String {
        match self {
            Self::Missing { what, help } => format!("{what}\n  help: {help}\n"),
            Self::Faults { faults, sources } => format!("{}\n{self}\n", render(faults, sources)),
            Self::Io { source, .. } => format!("{self}: {source}\n  help: {}\n", help(source)),
        }
    }

    /// All faults as scripts read them.
    pub fn told(&self) -> Vec<ToldFault> {
        let alone = |what: String, help: &str| {
            let (file, line, column, key) = (None, None, None, None);
            vec![ToldFault { file, line, column, key, what, help: Some(help.to_owned()) }]
        };
        match self {
            Self::Missing { what, help } => alone(what.clone(), help),
            Self::Faults { faults, sources } => {
                faults.iter().map(|fault| fault.told(sources)).collect()
            }
            Self::Io { source, .. } => alone(format!("{self}: {source}"), help(source)),
        }
    }

    /// The same for a log: a line each, of the first faults.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Missing { what, help } => vec![format!("{what}; {help}")],
            Self::Faults { faults, sources } => fault::lines(faults, sources),
            Self::Io { source, .. } => vec![format!("{self}: {source}; {}", help(source))],
        }
    }
}

/// The files that a configuration is made of beside its YAML, found or not: keys, secrets, bundles,
/// and what is put into guests.
pub fn inputs(path: &Path, environment: &Environment) -> Vec<PathBuf> {
    survey::load(path, environment).inputs
}

/// Reads and checks a configuration: a file, or a directory of YAML files.
///
/// # Errors
/// [`LoadError`]; all faults at once, but a syntax fault alone.
pub fn load(path: &Path, environment: &Environment) -> Result<Checked, LoadError> {
    survey::load(path, environment).result
}

/// Checks a configuration already read.
///
/// # Errors
/// [`LoadError`]; all faults at once, but a syntax fault alone.
pub fn check(sources: Sources, environment: &Environment) -> Result<Checked, LoadError> {
    survey::check(sources, environment).result
}
