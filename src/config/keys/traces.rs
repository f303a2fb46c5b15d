//! Keys of `service.traces`.

use super::credential::SECRETS;
use super::{Key, Raw, Table, mappings, text};
use crate::collector;

table! {
    /// Keys of `service.traces`.
    TRACES => RawTraces {
        "endpoint" => endpoint: String,
            text().required().check(collector::endpoint).eg(r#""https://otel.example.com:4318/v1/traces""#),
            "address at which a collector of OpenTelemetry takes traces by OTLP/HTTP, with its path";
        "headers", mappings(&HEADER), "headers of each request, such as a login";
        "caFile", text().eg("/etc/drover/otel-ca.pem"),
            "CA certificates of the collector, PEM; unset: those of the system";
    }
}

/// The ways to give the value of a header; exactly one is given.
pub(super) const HEADER_KEYS: [&str; 6] =
    ["value", "secretFile", "secretEnv", "systemdCredential", "secretAge", "secret"];

table! {
    /// Keys of each item of `service.traces.headers`.
    HEADER, one_of: HEADER_KEYS, shared: SECRETS => RawHeader {
        "name" => name: String, text().required().check(collector::header).eg("Authorization"),
            "name of the header";
        "value" => value: Option<String>, text().secret().eg("team-ci"),
            "value that is no secret, such as a tenant; or one of the secret keys";
    }
}
