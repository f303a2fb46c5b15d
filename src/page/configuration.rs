//! The configuration: what is in force, from where, and why a newer one is refused.

use askama::Template;
use drover_api::{ConfigOut, MembersOut, SyncOut};

use crate::frame::Frame;

/// How the configuration stands.
#[derive(Template)]
#[template(path = "configuration.html")]
pub struct ConfigurationPage {
    frame: Frame,
    config: ConfigOut,
    path: String,
    sync: Option<SyncOut>,
    members: Option<MembersOut>,
}

impl ConfigurationPage {
    /// With what git manages, and the members of the store.
    pub fn new(
        frame: Frame,
        config: ConfigOut,
        sync: Option<SyncOut>,
        members: Option<MembersOut>,
    ) -> Self {
        let path = config.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        Self { frame, config, path, sync, members }
    }
}
