//! The configuration: what is in force, from where, and why a newer one is refused.

use askama::Template;
use drover_api::{ConfigOut, MembersOut, SyncOut, ValueOut};

use crate::filter::Filter;
use crate::frame::Frame;

/// Rows of values on one page.
const ROWS: usize = 500;

/// The values in force that somebody may see.
#[derive(Debug, Clone, Default)]
pub struct ValuesShown {
    query: String,
    all: usize,
    found: usize,
    defaults: usize,
    values: Vec<ValueOut>,
}

impl ValuesShown {
    /// Those that a filter finds. Without one, defaults are left out.
    pub fn of(values: &[ValueOut], query: &str) -> Self {
        let filter = Filter::of(query, &["key", "value", "from"]);
        let is_default = |one: &&ValueOut| one.origin == "default";
        let defaults = values.iter().filter(is_default).count();
        let is_wanted = |one: &&ValueOut| {
            let row = [("key", one.path.as_str()), ("value", &one.value), ("from", &one.origin)];
            match query.trim().is_empty() {
                true => !is_default(one),
                false => filter.has(&row),
            }
        };
        let found = values.iter().filter(is_wanted);
        let (count, shown) = (found.clone().count(), found.take(ROWS).cloned().collect());
        Self { query: query.to_owned(), all: values.len(), found: count, defaults, values: shown }
    }
}

/// How the configuration stands.
#[derive(Template)]
#[template(path = "configuration.html")]
pub struct ConfigurationPage {
    frame: Frame,
    config: ConfigOut,
    path: String,
    sync: Option<SyncOut>,
    members: Option<MembersOut>,
    values: Option<ValuesShown>,
}

impl ConfigurationPage {
    /// With what git manages, the members of the store, and the values for who may see them.
    pub fn new(
        frame: Frame,
        config: ConfigOut,
        sync: Option<SyncOut>,
        members: Option<MembersOut>,
        values: Option<ValuesShown>,
    ) -> Self {
        let path = config.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        Self { frame, config, path, sync, members, values }
    }
}
