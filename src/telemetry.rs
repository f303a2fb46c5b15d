//! Tracing set-up: field names, live level, redaction.
