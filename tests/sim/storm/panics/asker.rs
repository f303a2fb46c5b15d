//! Which actor is at work: reported by the span that supervision puts around each of its steps.

use std::cell::RefCell;
use std::fmt::Debug;

use drover_runtime::supervise::AGENT_NAME_PREFIX;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

thread_local! {
    static AT_WORK: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Listens to the spans of this thread until the guard is dropped.
pub fn listen() -> DefaultGuard {
    AT_WORK.with_borrow_mut(Vec::clear);
    tracing::subscriber::set_default(Registry::default().with(Spans).with(LevelFilter::ERROR))
}

/// The actor at work on this thread.
pub fn at_work() -> Option<String> {
    AT_WORK.with_borrow(|names| names.last().cloned())
}

struct Spans;

#[derive(Default)]
struct Name(String);

impl Visit for Name {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "name" => self.0 = format!("{value:?}"),
            "agent" => self.0 = format!("{AGENT_NAME_PREFIX}{value:?}"),
            _ => {}
        }
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut name = Name::default();
        attributes.record(&mut name);
        if name.0.is_empty() {
            let actor = at_work().unwrap_or_default();
            name.0 = format!("{} of {actor}", attributes.metadata().name());
        }
        context.span(id).unwrap().extensions_mut().insert(name);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let name = span.extensions().get::<Name>().unwrap().0.clone();
        AT_WORK.with_borrow_mut(|names| names.push(name));
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        AT_WORK.with_borrow_mut(|names| names.pop());
    }
}
