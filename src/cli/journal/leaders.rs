//! Makes sure that nobody leads with a journal that is copied, or at the place where the copy goes.

use std::sync::Arc;

use causes::chain;
use drover_members::{Leader, Unled, Watched, watch};
use drover_model::ports::Ambient;
use drover_vault::{Register, StoreError};
use serde_json::json;

use super::place::Place;
use crate::cli::global::Global;
use crate::cli::report;
use crate::cli::sentences::{clean, count};

/// A journal with which nobody leads; a file is one, which locks out others by itself.
pub(super) struct Quiet(Option<(Arc<dyn Register>, Unled)>);

impl Quiet {
    /// Watches the leader lease of a store for as long as it holds.
    ///
    /// # Errors
    /// The member that leads, or why the store cannot be read.
    pub(super) fn watch(
        global: &Global,
        place: &Place,
        ambient: &dyn Ambient,
    ) -> Result<Self, String> {
        let Some(register) = place.register()? else { return Ok(Self(None)) };
        let says = |span: std::time::Duration| {
            let span = count(usize::try_from(span.as_secs()).unwrap_or(usize::MAX), "second");
            let place = place.text();
            let text = format!("watching for {span} whether a drover leads in {}", clean(&place));
            report::progress(global.json, &text, json!({ "place": place }));
        };
        let watched = watch(&*register, ambient, std::thread::sleep, says);
        match watched.map_err(|error| unread(place, &error))? {
            Watched::Led(leader) => Err(is_led(place, &leader)),
            Watched::Unled(unled) => Ok(Self(Some((register, unled)))),
        }
    }

    /// Makes sure that nobody led since the watch.
    ///
    /// # Errors
    /// That somebody did, or why the store cannot be read.
    pub(super) fn check(&self, place: &Place) -> Result<(), String> {
        let Some((register, unled)) = &self.0 else { return Ok(()) };
        let is_still = unled.is_still(&**register);
        match is_still.map_err(|error| unread(place, &error))? {
            true => Ok(()),
            false => Err(format!(
                "a drover began to lead in `{}` meanwhile, and nothing was copied: stop all its \
                 members, and copy then",
                place.text()
            )),
        }
    }
}

fn is_led(place: &Place, leader: &Leader) -> String {
    format!(
        "member `{}` leads in `{}`, and nothing was copied: stop all its members, and copy then",
        clean(&leader.name),
        place.text()
    )
}

fn unread(place: &Place, error: &StoreError) -> String {
    format!("the journal `{}` could not be read: {}", place.text(), chain(error))
}
