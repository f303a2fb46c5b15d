//! Tracing set-up: where logs go, their level and its live change.
//!
//! The level comes from `LOG_LEVEL` (a level such as `debug`, or directives such as
//! `info,proxmox_client=debug`), else from `service.logLevel`; the form is JSON with `--json` or
//! `LOG_FORMAT=json`, else text. Under journald the time of a text is left to it.

mod line;

use std::io::IsTerminal;
use std::sync::Arc;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

use drover_config::level::{LevelError, parse};
use line::Line;

/// Changes the level of a running process.
#[derive(Clone)]
pub struct LevelHandle {
    set: Arc<dyn Fn(EnvFilter) -> Result<(), LevelError> + Send + Sync>,
}

impl LevelHandle {
    /// Takes a new level or set of directives.
    ///
    /// # Errors
    /// [`LevelError`] when it does not parse; the old level stays.
    pub fn set(&self, given: &str) -> Result<(), LevelError> {
        (self.set)(parse(given)?)
    }
}

/// Sets logging up for the process, to standard error; `json` gives an object a line, whatever
/// `LOG_FORMAT` says.
///
/// # Errors
/// [`LevelError`] when `LOG_LEVEL` does not parse.
pub fn init(default_level: &str, json: bool) -> Result<LevelHandle, LevelError> {
    // A variable that is set and blank is not set, as everywhere in the configuration.
    let given = std::env::var("LOG_LEVEL").ok().filter(|level| !level.is_empty());
    let level = given.unwrap_or_else(|| default_level.to_owned());
    let (filter, handle) = reload::Layer::new(parse(&level)?);
    let journald = std::env::var_os("JOURNAL_STREAM").is_some();
    let json = json || std::env::var("LOG_FORMAT").is_ok_and(|format| format == "json");
    let colored = std::io::stderr().is_terminal();
    let plain = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let layer: Box<dyn Layer<_> + Send + Sync> = match json {
        true => plain.json().boxed(),
        false => plain.event_format(Line { time: !journald, colored }).boxed(),
    };
    // A second set-up in one process (tests) keeps the first: logging is never worth a failure.
    let _ = Registry::default().with(filter).with(layer).try_init();
    let set = move |filter: EnvFilter| handle.reload(filter).map_err(|_| LevelError::NotSetUp);
    Ok(LevelHandle { set: Arc::new(set) })
}
