//! One source of demand under the doctor's eyes: whether it answers, proves itself and lets drover do
//! what it must. Changes nothing there.

use std::error::Error;

use causes::{causes, chain};
use drover_ci::{DemandError, Http, Proof, connector};
use drover_model::demand::spec::SourceSpec;
use proxmox_client::tls::CertificateRefused;
use proxmox_client::{Tls, refused_certificate};
use reqwest::Method;

use super::cluster::{CLOCK_FAIL, CLOCK_WARN};
use super::{CloudReport, Mark, SourceReport, Ways};
use drover_config::SourceConnection;

/// Examines one source.
pub async fn examine_source(
    ways: Ways<'_>,
    spec: &SourceSpec,
    connection: &SourceConnection,
) -> SourceReport {
    let mut report =
        CloudReport { cloud: spec.id.to_string(), name: spec.kind.to_owned(), lines: Vec::new() };
    if answers(ways, connection, &mut report).await {
        let mut found = Vec::new();
        let ended = match connector(connection) {
            Ok(connector) => connector.prove(&mut found).await,
            Err(error) => Err(error),
        };
        found.extend(ended.err().map(|error| Proof::told(&error)));
        for proof in found {
            report.add(proof.mark, proof.about.into(), proof.text, proof.mend);
        }
    }
    webhook(spec, connection, &mut report);
    SourceReport { source: report.cloud, kind: report.name, lines: report.lines }
}

/// Whether anything answers there, what vouches for it, and what its clock says.
async fn answers(ways: Ways<'_>, connection: &SourceConnection, report: &mut CloudReport) -> bool {
    let before = (ways.clock)();
    let answer = match Http::new(&connection.url, &connection.tls, &connection.route) {
        Ok(http) => http.call(Method::GET, "", None, &[]).await,
        Err(error) => Err(error),
    };
    let after = (ways.clock)();
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            unanswered(&error, connection, report);
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
        0..=CLOCK_WARN => Mark::Ok,
        _ if apart <= CLOCK_FAIL => Mark::Warn,
        _ => Mark::Fail,
    };
    let (text, mend) = if mark == Mark::Ok {
        (format!("within {CLOCK_WARN} s of this machine's"), Vec::new())
    } else {
        let mend = vec!["timedatectl, here and there".to_owned()];
        (format!("{apart} s {way} this machine's"), mend)
    };
    report.add(mark, "clock".into(), text, mend);
    true
}

fn certificate(connection: &SourceConnection, report: &mut CloudReport) {
    if connection.url.scheme() == "http" {
        // The configuration warns where that goes over a network.
        return report.ok("certificate", "none: it is asked without TLS");
    }
    match &connection.tls {
        Tls::System => report.ok("certificate", "the system's authorities vouch for it"),
        Tls::Bundle(_) => report.ok("certificate", "an authority of caFile vouches for it"),
        Tls::Pins(_) => report.ok("certificate", "it is a pinned one"),
        Tls::Ignore => report.warn(
            "certificate",
            "is not looked at: whoever stands between can read every credential",
            ["caFile or pinSha256 in the place of ignoreSslErrors"],
        ),
    }
}

/// Why nothing answered, and what mends it.
fn unanswered(error: &DemandError, connection: &SourceConnection, report: &mut CloudReport) {
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
        let mends = [
            "in the YAML: caFile: a file with the authority that signed it".to_owned(),
            format!("in the YAML: pinSha256: [\"{sha256}\"], once compared with the server's own"),
        ];
        let text = format!("is not trusted: saw SHA-256 {sha256}");
        return report.add(Mark::Fail, "certificate".into(), text, mends.into());
    }
    let innermost = cause.and_then(|cause| causes(cause).last()).map(ToString::to_string);
    let text = innermost.unwrap_or_else(|| chain(error));
    let host = connection.url.host_str().unwrap_or_default();
    let mend = if text.contains("lookup") || text.contains("resolve") {
        format!("getent hosts {host}")
    } else {
        format!("curl -v {}", connection.url)
    };
    report.fail("answers", format!("{} does not: {text}", connection.url), [mend.as_str()]);
}

/// Whether it is heard of at once that a job waits, or at the next look.
fn webhook(spec: &SourceSpec, connection: &SourceConnection, report: &mut CloudReport) {
    let seconds = spec.poll.as_secs();
    let about = "webhook";
    match &connection.webhook {
        None => report.ok(about, format!("none: it is looked at every {seconds} s")),
        Some(_) => {
            report
                .ok(about, format!("taken at /v1/hooks/{}, and every {seconds} s looked", spec.id));
        }
    }
}
