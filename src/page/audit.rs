//! Who changed what.

use askama::Template;
use drover_api::{AuditOut, AuditRecordOut};

use crate::filter::Filter;
use crate::frame::Frame;

/// The newest records of the audit log.
#[derive(Template)]
#[template(path = "audit.html")]
pub struct AuditPage {
    frame: Frame,
    query: String,
    all: usize,
    found: usize,
    records: Vec<Row>,
    trouble: Option<String>,
}

/// A record in words.
struct Row {
    out: AuditRecordOut,
    who: String,
    what: String,
    /// Whether the call was refused, or has no answer.
    is_refused: bool,
}

impl AuditPage {
    /// Those that a filter finds, the newest first.
    pub fn new(frame: Frame, out: AuditOut, query: &str) -> Self {
        let filter = Filter::of(query, &["who", "what", "kind", "status"]);
        let all = out.records.len();
        let rows = out.records.into_iter().rev().map(row).filter(|row| {
            let status = row.out.status.map(|status| status.to_string()).unwrap_or_default();
            filter.has(&[
                ("who", &row.who),
                ("what", &row.what),
                ("kind", &row.out.kind),
                ("status", &status),
                ("request", row.out.request.as_deref().unwrap_or_default()),
            ])
        });
        let records: Vec<Row> = rows.collect();
        let found = records.len();
        Self { frame, query: query.to_owned(), all, found, records, trouble: out.trouble }
    }
}

fn row(out: AuditRecordOut) -> Row {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let what = match &out.method {
        Some(method) => {
            let object =
                out.object.as_ref().map(|object| format!(": {object}")).unwrap_or_default();
            format!("{method} {}{object}", text(&out.route))
        }
        None => text(&out.detail),
    };
    let is_call = out.method.is_some();
    let is_refused = is_call && out.status.is_none_or(|status| status >= 400);
    Row { who: text(&out.principal), what, is_refused, out }
}
