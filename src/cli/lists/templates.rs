//! Templates with counts, cap and breaker.

use drover_api::{TemplateOut, TemplateOverridesOut};

use super::{Listed, breakers};
use crate::cli::table::{Cell, Column, Kind, Page, Tone, View, column};

impl Listed for TemplateOut {
    const COLUMNS: &'static [Column] = &[
        column("NAME", Kind::Name, 0),
        column("AGENTS", Kind::Number, 0),
        column("WARM", Kind::Name, 4),
        column("STATES", Kind::Text, 2),
        column("LABELS", Kind::Text, 3),
        column("BREAKER", Kind::State, 0),
        column("CLONED FROM", Kind::Text, 5),
        column("DETAIL", Kind::Text, 1),
    ];

    fn name(&self) -> String {
        self.id.clone()
    }

    fn row(&self, view: &View) -> Vec<Cell> {
        let states = self.states.iter().filter(|(_, count)| **count > 0);
        let states: Vec<String> = states.map(|(state, count)| format!("{count} {state}")).collect();
        let count: u32 = self.states.values().sum();
        let cap = self.cap.map_or_else(|| "-".to_owned(), |cap| cap.to_string());
        let warm = match (self.minimum, self.idle_minimum) {
            (0, 0) => String::new(),
            (all, 0) => all.to_string(),
            (0, idle) => format!("{idle} idle"),
            (all, idle) => format!("{all}, {idle} idle"),
        };
        vec![
            Cell::of(&self.id),
            Cell::of(format!("{count}/{cap}")),
            Cell::of(warm),
            Cell::list(&states),
            Cell::list(&self.labels),
            breakers::state(self.breaker),
            Cell::maybe(self.source.as_ref()),
            Cell::of(detail(self, view)),
        ]
    }

    fn aside(&self, page: &mut Page) {
        let id = &self.id;
        let seconds = |ms: Option<u64>| match ms {
            Some(ms) => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
            None => "-".to_owned(),
        };
        if let Some(resets) = &self.resets {
            let (reset, fresh) = (seconds(resets.reset_ms), seconds(resets.clone_ms));
            let detail = if resets.detail.is_empty() { "" } else { "; " };
            page.line(&format!(
                "{id}: {} resets of {reset} each, a new agent takes {fresh}{detail}{}",
                resets.count, resets.detail
            ));
        }
        for one in self.canary.iter().flat_map(|canary| &canary.given_up) {
            let (version, failures, cause) = (&one.version, one.failures, &one.cause);
            let text = format!(
                ": version {version} is not used, {failures} of its agents failed: {cause}"
            );
            page.toned(Tone::Bad, &format!("{id}: ALARM"), &text);
            page.line(&format!("  run, once that is repaired: drover breakers reset {id}"));
        }
        if let Some(canary) = &self.canary
            && let (Some(version), Some(agent)) = (&canary.trying, &canary.agent)
        {
            page.line(&format!("{id}: agent {agent} tries version {version}"));
        }
        if self.outdated > 0 {
            let (agents, be) = match self.outdated {
                1 => ("agent is", "it"),
                _ => ("agents are", "them"),
            };
            let text = format!(
                "{id}: {} {agents} outdated, and the roll-out replaces {be}",
                self.outdated
            );
            page.line(&text);
        }
        let own = self.overrides.map(TemplateOverridesOut::spell).filter(|own| !own.is_empty());
        if let Some(own) = own {
            page.line(&format!("{id}: set against the configuration: {own}"));
        }
        if let Some(seconds) = self.hold_next_seconds {
            page.line(&format!("{id}: the next failure is held for {seconds} s"));
        }
    }
}

/// Why a template starts nothing.
fn detail(one: &TemplateOut, view: &View) -> String {
    let tripped = match (&one.retry_at, &one.cause) {
        (Some(at), Some(cause)) => Some(format!("next try {}: {cause}", view.when(at))),
        (Some(_) | None, cause) => cause.clone(),
    };
    let paused = one.paused.as_ref().map(|why| format!("pauses: {why}"));
    let all = [tripped, one.lack.clone(), paused];
    all.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
