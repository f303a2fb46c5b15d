//! Checks the provider of `service.openId`: whether it answers and is the one that is meant, its clock, its
//! keys, and whether it knows drover's client. Logs nobody in, and changes nothing there.

use drover_ci::{Remedy, Severity};
use drover_config::OpenIdSpec;
use drover_openid::{Examined, Fault, Provider};

use super::cluster::CLOCK_WARN_SECS;
use super::report::{Line, ProviderReport};

/// Tokens count so many seconds too early and too late; a clock that is off by more ends logins.
const CLOCK_FAIL_SECS: u64 = 60;
/// The algorithms that prove a token.
const ALGORITHMS: [&str; 2] = ["RS256", "ES256"];

pub async fn check_provider(spec: &OpenIdSpec, clock: &(dyn Fn() -> u64 + Sync)) -> ProviderReport {
    let mut report = ProviderReport { issuer: spec.settings.issuer.clone(), lines: Vec::new() };
    let before = clock();
    let examined = Provider::new(spec.settings.clone()).examine().await;
    let found = match examined {
        Ok(found) => found,
        Err(fault) => {
            report.failed("answers", &fault);
            return report;
        }
    };
    report.ok("answers", format!("as `{}`", spec.settings.issuer));
    time(&found, (before, clock()), &mut report);
    keys(&found, &mut report);
    match &found.client {
        Ok(()) => report.ok("client", format!("the provider knows `{}`", spec.settings.client_id)),
        Err(fault) => report.failed("client", fault),
    }
    match &found.login {
        Ok(()) => report.ok("login", format!("leads back to {}", spec.settings.redirect)),
        Err(fault) => {
            let remedy = Remedy::at(
                "at the provider",
                format!("allow the client the redirect URI {}", spec.settings.redirect),
            );
            let text = format!("the provider shows no login: {fault}");
            report.add(Severity::Warn, "login", text, vec![remedy]);
        }
    }
    report
}

/// The provider's clock, where it shows it.
fn time(found: &Examined, (before, after): (u64, u64), report: &mut ProviderReport) {
    let Some(date) = found.date.and_then(|date| u64::try_from(date.as_second()).ok()) else {
        return;
    };
    let apart = if date < before { before - date } else { date.saturating_sub(after) };
    let severity = match apart {
        0..=CLOCK_WARN_SECS => {
            let text = format!("within {CLOCK_WARN_SECS} s of this machine's");
            return report.ok("clock", text);
        }
        _ if apart <= CLOCK_FAIL_SECS => Severity::Warn,
        _ => Severity::Fail,
    };
    let way = if date < before { "behind" } else { "ahead of" };
    let remedy = Remedy::at("on this machine and at the provider", "timedatectl");
    report.add(severity, "clock", format!("{apart} s {way} this machine's"), vec![remedy]);
}

/// Whether any key of the provider proves a token.
fn keys(found: &Examined, report: &mut ProviderReport) {
    let named = &found.algorithms;
    let is_known = |name: &String| ALGORITHMS.contains(&name.as_str());
    if !named.is_empty() && !named.iter().any(is_known) {
        let text = format!("it signs by {}, and drover takes RS256 and ES256", named.join(", "));
        let remedy = Remedy::at("at the provider", "sign ID tokens of this client by RS256");
        return report.add(Severity::Fail, "keys", text, vec![remedy]);
    }
    match &found.keys {
        Ok(0) => {
            let text = "no published key is for RS256 or ES256".to_owned();
            let remedy = Remedy::at("at the provider", "sign ID tokens of this client by RS256");
            report.add(Severity::Fail, "keys", text, vec![remedy]);
        }
        Ok(count) => report.ok("keys", format!("{count} that drover can use")),
        Err(fault) => report.failed("keys", fault),
    }
    if found.lacks_proof_key {
        let text = "it says that it takes no proof key (PKCE, S256)".to_owned();
        let remedy = Remedy::at("at the provider", "allow PKCE by S256 for this client");
        report.add(Severity::Warn, "proof key", text, vec![remedy]);
    }
}

impl ProviderReport {
    fn add(&mut self, severity: Severity, about: &str, text: String, remedies: Vec<Remedy>) {
        self.lines.push(Line { severity, about: about.to_owned(), text, remedies });
    }

    fn ok(&mut self, about: &str, text: String) {
        self.add(Severity::Ok, about, text, Vec::new());
    }

    fn failed(&mut self, about: &str, fault: &Fault) {
        let remedy = Remedy::at("in `service.openId` or at the provider", fault.help());
        self.add(Severity::Fail, about, fault.to_string(), vec![remedy]);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use drover_openid::testing::{Fake, settings};
    use serde_json::json;

    use super::*;
    use crate::doctor::Report;

    fn spec(issuer: &str) -> OpenIdSpec {
        OpenIdSpec {
            name: "id".to_owned(),
            settings: settings(issuer, "https://drover.example.com"),
            groups: Vec::new(),
            session: Duration::from_secs(3600),
            ends_session: false,
        }
    }

    async fn text(fake: &Fake) -> String {
        let provider = Some(check_provider(&spec(&fake.issuer), &|| 0).await);
        let report = Report { provider, ..Report::default() };
        report.text().replace(&fake.issuer, "http://id")
    }

    // Invariant: the report says what of a provider fails, and what to do there.

    #[tokio::test]
    async fn what_works_and_what_fails_of_a_provider_is_reported_apart() {
        rustls::crypto::ring::default_provider().install_default().ok();
        let fake = Fake::start().await;
        fake.answer("/auth", 200, &json!({}));
        insta::assert_snapshot!(text(&fake).await, @r"
        login at http://id
          ok    answers: as `http://id`
          ok    keys: 1 that drover can use
          ok    client: the provider knows `drover`
          ok    login: leads back to https://drover.example.com/login/openid/callback
        4 ok, 0 warn, 0 fail
        ");
        fake.answer("/keys", 200, &json!({ "keys": [] }));
        fake.answer("/token", 401, &json!({ "error": "invalid_client" }));
        fake.answer("/auth", 400, &json!({}));
        insta::assert_snapshot!(text(&fake).await, @r"
        login at http://id
          ok    answers: as `http://id`
          fail  keys: no published key is for RS256 or ES256
                at the provider:
                > sign ID tokens of this client by RS256
          fail  client: the provider refused the login: invalid_client
                in `service.openId` or at the provider:
                > compare `service.openId.clientId` and its secret with the client at the provider
          warn  login: the provider shows no login: the provider answered http://id/auth with status 400
                at the provider:
                > allow the client the redirect URI https://drover.example.com/login/openid/callback
        1 ok, 1 warn, 2 fail
        ");
        fake.answer("/.well-known/openid-configuration", 404, &json!({}));
        insta::assert_snapshot!(text(&fake).await, @r"
        login at http://id
          fail  answers: the provider answered http://id/.well-known/openid-configuration with status 404
                in `service.openId` or at the provider:
                > check `service.openId.issuer` with `drover doctor`, and the log of the provider
        0 ok, 0 warn, 1 fail
        ");
    }
}
