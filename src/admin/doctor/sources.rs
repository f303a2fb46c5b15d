//! Checks one source: whether it answers, how its certificate is verified, and whether the login
//! may do what drover needs. Changes nothing there.

use std::error::Error;

use causes::{chain, innermost};
use drover_ci::{DemandError, Finding, Http, connector};
use drover_ci::{Remedy, Severity};
use drover_model::demand::spec::SourceSpec;
use drover_model::gate::Gate;
use proxmox_client::tls::CertificateRefused;
use proxmox_client::{Tls, refused_certificate};
use reqwest::Method;

use super::cluster::{CLOCK_FAIL_SECS, CLOCK_WARN_SECS};
use super::{Clients, CloudReport, SourceReport};
use drover_ci::SourceConnection;

pub async fn check_source(
    clients: Clients<'_>,
    spec: &SourceSpec,
    connection: &SourceConnection,
) -> SourceReport {
    let mut report =
        CloudReport { cloud: spec.id.to_string(), name: spec.kind.to_owned(), lines: Vec::new() };
    if answers(clients, connection, &mut report).await {
        let mut found = Vec::new();
        let ended = match connector(connection, Gate::default()) {
            Ok(connector) => connector.check(&mut found).await,
            Err(error) => Err(error),
        };
        found.extend(ended.err().map(|error| Finding::from_error(&error)));
        for finding in found {
            report.add(finding.severity, finding.about.into(), finding.text, finding.remedies);
        }
    }
    webhook(spec, connection, &mut report);
    SourceReport { source: report.cloud, kind: report.name, lines: report.lines }
}

/// Checks whether the source answers, its certificate and its clock.
async fn answers(
    clients: Clients<'_>,
    connection: &SourceConnection,
    report: &mut CloudReport,
) -> bool {
    let before = (clients.clock)();
    let answer =
        match Http::new(&connection.url, &connection.tls, &connection.route, Gate::default()) {
            Ok(http) => http.call(Method::GET, "", None, &[]).await,
            Err(error) => Err(error),
        };
    let after = (clients.clock)();
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            report_unanswered(&error, connection, report);
            return false;
        }
    };
    report.ok("answers", connection.url.to_string());
    certificate(connection, report);
    let Some(time) = answer.date().and_then(|date| u64::try_from(date.as_second()).ok()) else {
        return true;
    };
    let apart = if time < before { before - time } else { time.saturating_sub(after) };
    let way = if time < before { "behind" } else { "ahead of" };
    let mark = match apart {
        0..=CLOCK_WARN_SECS => Severity::Ok,
        _ if apart <= CLOCK_FAIL_SECS => Severity::Warn,
        _ => Severity::Fail,
    };
    let (text, remedy) = if mark == Severity::Ok {
        (format!("within {CLOCK_WARN_SECS} s of this machine's"), Vec::new())
    } else {
        let remedy = vec![Remedy::at("on this machine and on the server", "timedatectl")];
        (format!("{apart} s {way} this machine's"), remedy)
    };
    report.add(mark, "clock".into(), text, remedy);
    true
}

fn certificate(connection: &SourceConnection, report: &mut CloudReport) {
    if connection.url.scheme() == "http" {
        // The configuration warns where the connection leaves this machine.
        return report.ok("certificate", "none: the URL is http");
    }
    match &connection.tls {
        Tls::System => report.ok("certificate", "verified by the system's authorities"),
        Tls::Bundle(_) => report.ok("certificate", "verified by caFile"),
        Tls::Pins(_) => report.ok("certificate", "matches pinSha256"),
        Tls::Ignore => report.warn(
            "certificate",
            "is not verified: anyone between drover and the server can read every credential",
            [Remedy::yaml("caFile: FILE").noting("in place of ignoreSslErrors")],
        ),
    }
}

/// Reports why the source does not answer, and what to do.
fn report_unanswered(error: &DemandError, connection: &SourceConnection, report: &mut CloudReport) {
    let cause: Option<&(dyn Error + 'static)> = match error {
        DemandError::Unreachable { source, .. } => Some(source),
        DemandError::Setup(_)
        | DemandError::Status { .. }
        | DemandError::Shape { .. }
        | DemandError::NotReady { .. }
        | DemandError::Moved { .. }
        | DemandError::Paused(_)
        | DemandError::Refused(_)
        | DemandError::Guest(_) => None,
    };
    let refused: Option<CertificateRefused> = cause.and_then(refused_certificate);
    if let Some(refused) = refused {
        let sha256 = &refused.certificate().sha256;
        let pin = Remedy::yaml(format!("pinSha256: [\"{sha256}\"]"));
        let remedies = [
            Remedy::yaml("caFile: FILE").noting("a file with the authority that signed it"),
            pin.noting("if the server's own certificate has the same").or(),
        ];
        let text = format!("is not trusted; its SHA-256 is {sha256}");
        return report.add(Severity::Fail, "certificate".into(), text, remedies.into());
    }
    let text = cause.map_or_else(|| chain(error), innermost);
    let host = connection.url.host_str().unwrap_or_default();
    let remedy = if text.contains("lookup") || text.contains("resolve") {
        format!("getent hosts {host}")
    } else {
        format!("curl -v {}", connection.url)
    };
    let text = format!("{} does not answer: {text}", connection.url);
    report.fail("answers", text, [Remedy::here(remedy)]);
}

/// Reports whether drover learns of a job by webhook or at the next poll.
fn webhook(spec: &SourceSpec, connection: &SourceConnection, report: &mut CloudReport) {
    let seconds = spec.poll.as_secs();
    let about = "webhook";
    match &connection.webhook {
        None => report.ok(about, format!("none: drover polls every {seconds} s")),
        Some(_) => {
            report.ok(
                about,
                format!("accepted at /v1/hooks/{}; drover also polls every {seconds} s", spec.id),
            );
        }
    }
}
