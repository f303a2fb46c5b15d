//! Checks the collector of `service.traces`: whether it answers and takes a request without spans. It leaves
//! no trace there.

use drover_ci::{Remedy, Severity};
use drover_spans::{Answer, Collector, Sender, Settings};

use super::report::{CollectorReport, Line};

/// Asks the collector whether it takes traces.
pub async fn check_collector(settings: &Settings) -> CollectorReport {
    // Nothing is sent that says whose it is.
    let sender = Sender { version: env!("CARGO_PKG_VERSION").to_owned(), instance: String::new() };
    let answer = Collector::new(settings.clone()).send(&sender, &[]).await;
    let line = |severity, text: String, remedies| Line {
        severity,
        about: "takes traces".to_owned(),
        text,
        remedies,
    };
    let refused = |why: String| {
        let names: Vec<&str> = settings.headers.iter().map(|header| &*header.name).collect();
        let login = match &names[..] {
            [] => "add the login that it asks for as `headers`".to_owned(),
            names => format!("compare the values of {} with what it expects", names.join(", ")),
        };
        let path = "compare the path of `endpoint` with the OTLP/HTTP receiver's (`/v1/traces`)";
        let remedies = [path.to_owned(), login];
        let place = "in `service.traces` or at the collector";
        let remedies = remedies.map(|action| Remedy::at(place, action)).into();
        line(Severity::Fail, why, remedies)
    };
    let found = match answer {
        Answer::Taken { warning: None } => {
            line(Severity::Ok, "it took a request without spans".to_owned(), Vec::new())
        }
        Answer::Taken { warning: Some(why) } | Answer::Partly { why, .. } => {
            line(Severity::Warn, format!("it took a request, and says: {why}"), Vec::new())
        }
        Answer::Refused { why } => refused(why),
        Answer::Later { why, .. } => {
            let action = "check `endpoint`, and that the collector runs with an OTLP/HTTP receiver";
            let remedies = vec![Remedy::at("in `service.traces` and at the collector", action)];
            line(Severity::Fail, why, remedies)
        }
    };
    CollectorReport { endpoint: settings.endpoint.clone(), lines: vec![found] }
}

#[cfg(test)]
mod tests;
