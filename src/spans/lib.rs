//! OpenTelemetry traces of agents: facts become spans, spans become OTLP, a collector takes them.
//!
//! ```text
//! facts, jobs of sources ──▶ Fold ──▶ spans ──▶ encode ──▶ JSON ──▶ Collector ──▶ POST …/v1/traces
//!                            pure               pure                HTTP          └─▶ Answer
//! ```
//!
//! One agent is one trace. Its root span is the agent's life, and each part of its waterfall and each lease
//! that it served is a span beneath it. A span is made once what it is about is over, so that a restart of
//! the service loses what was under way at most. The ids of a trace and its spans are hashes of the agent's
//! id and of what the span is about: every member and every start of the service makes the same ones.
//!
//! - **Attributes** are those of the [semantic conventions](CONVENTIONS) where they have one (`cicd.*`,
//!   `vcs.*`, `service.*`, `error.type`), else `drover.*`. No secret, no output of a step and no name of a
//!   person is in one.
//! - **Encoding.** OTLP/HTTP 1.10.0 in JSON, as the messages of `opentelemetry-proto` 1.10 say it
//!   (`encode.rs`).
//! - **Bounds.** Texts of spans are cut (`span.rs`), what the fold keeps open has a limit (`fold.rs`), a batch
//!   has a limit of spans and bytes (`encode.rs`), an answer a limit of bytes and time (`collector.rs`).
//!
//! When spans are sent, again or not at all decides the service (`src/app/spans`). Nothing but `collector.rs`
//! does I/O.
//!
//! Files: `span.rs` has the types, `conventions.rs` the names of attributes, `fold.rs` makes spans of facts,
//! `encode.rs` writes them, `answer.rs` reads what a collector answers, `collector.rs` calls it.

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod answer;
mod collector;
pub mod conventions;
mod encode;
mod fold;
mod span;

pub use answer::{Answer, answer};
pub use collector::{CALL_LIMIT, Collector, Header, Settings};
pub use conventions::CONVENTIONS;
pub use encode::{BATCH_BYTES, BATCH_SPANS, Sender, batch, encode};
pub use fold::Fold;
pub use span::{Span, SpanId, TraceId, Value};
