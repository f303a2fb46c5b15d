//! What notifications are about: every alarm, every breaker that is not closed, every source that fails.

use drover_api::AlarmOut;
use drover_model::phase::BreakerPhase;
use drover_notify::{Kind, Trouble};

use super::alarms::{Alarm, standing};
use super::breakers::breakers;
use crate::view::View;

/// All that is wrong now; none while the service does not know yet what is.
pub fn troubles(view: &View) -> Option<Vec<Trouble>> {
    if !view.readiness().ready() {
        return None;
    }
    let mut all: Vec<Trouble> = standing(view).into_iter().map(of_alarm).collect();
    all.extend(breakers(view).into_iter().map(|one| {
        let what = match one.state {
            BreakerPhase::Open => "open, nothing starts there",
            BreakerPhase::HalfOpen => "half-open, one agent tries it",
            // Those that are closed are not in the list.
            BreakerPhase::Closed => "closed",
        };
        let cause = one.cause.map(|cause| format!(". Cause: {cause}")).unwrap_or_default();
        Trouble {
            key: format!("breaker/{}", one.id),
            kind: Kind::Breaker,
            about: format!("breaker {}", one.id),
            text: format!("{what}{cause}"),
            command: format!("drover breakers reset {}", one.id),
            since: None,
            path: page_of("templates", &one.template),
        }
    }));
    for source in view.sources() {
        let id = &source.source;
        let outage = source.outage.iter().map(|one| ("cannot be polled", "outage", one));
        let refused = source.refused.iter().map(|one| ("lets no runner be made", "refused", one));
        all.extend(outage.chain(refused).map(|(what, key, (since, why))| Trouble {
            key: format!("source/{id}/{key}"),
            kind: Kind::Source,
            about: format!("source {id}"),
            text: format!("{what}: {why}"),
            command: "drover sources".to_owned(),
            since: Some(*since),
            path: "/jobs".to_owned(),
        }));
    }
    Some(all)
}

/// Where the page shows one of many.
fn page_of(what: &str, id: &str) -> String {
    let mut path = format!("/{what}/");
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path += &format!("%{byte:02X}");
        }
    }
    path
}

fn of_alarm(Alarm { kind, key, at, out }: Alarm) -> Trouble {
    let path = match kind {
        Kind::Agent => page_of("agents", &out.agent),
        Kind::Configuration | Kind::Git => "/configuration".to_owned(),
        Kind::Template => out
            .about
            .strip_prefix("template ")
            .map_or_else(String::new, |id| page_of("templates", id)),
        Kind::Journal
        | Kind::OtherDrover
        | Kind::Actor
        | Kind::Cloud
        | Kind::Source
        | Kind::Breaker
        | Kind::AuditLog
        | Kind::Image
        | Kind::Channel => "/".to_owned(),
    };
    let AlarmOut { about, text, command, agent: _, since: _ } = out;
    Trouble { key: format!("{}/{key}", kind.word()), kind, about, text, command, since: at, path }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_model::fact::What;
    use drover_model::id::{AgentId, CloudId, Generation, SourceId, TemplateId};
    use drover_model::scope::Scope;
    use drover_model::status::{BreakerStatus, SourceStatus};
    use drover_model::time::WallTime;
    use drover_notify::ChannelTrouble;

    use super::*;
    use crate::alarms::alarms;
    use crate::testing::reported;

    fn ready() -> Arc<View> {
        let view = View::new(1);
        view.mark_journal_folded();
        view.mark_clouds_tried();
        view
    }

    fn lines(view: &View) -> String {
        let all = troubles(view).unwrap_or_default();
        let line = |one: &Trouble| {
            let since = one.since.map_or("-".to_owned(), WallTime::rfc3339);
            format!(
                "{} | {} | {} | {} | {} | {since}\n",
                one.key, one.about, one.text, one.command, one.path
            )
        };
        all.iter().map(line).collect()
    }

    // Invariant: what people are sent is what page, top and metrics show, and nothing before that is known.

    #[test]
    fn alarms_breakers_and_sources_that_fail_are_troubles_until_they_are_over() {
        let view = ready();
        let text = "`lock: clone` stays".to_owned();
        reported(
            &view,
            What::Alarm { agent: AgentId::new("a3"), text, command: "qm unlock 10420".into() },
        );
        reported(
            &view,
            What::ConfigRefused { text: "  × unknown key `x`\n".into(), after: Generation(4) },
        );
        let template = TemplateId::new(CloudId::new("lab"), "linux");
        let breaker = |breaker, tripped| {
            let scope = Scope::Cloud(CloudId::new("lab"));
            What::Breaker(Box::new(BreakerStatus {
                scope,
                breaker,
                tripped,
                template: template.clone(),
            }))
        };
        let cause = Some((WallTime(9000), "5 clones failed".to_owned()));
        reported(&view, breaker(BreakerPhase::Open, cause));
        let idle = SourceStatus::idle(SourceId::new("git"), "gitea");
        let silent = SourceStatus { outage: Some((WallTime(2000), "401".into())), ..idle.clone() };
        reported(&view, What::Source(Box::new(silent)));
        let dead =
            ChannelTrouble { channel: "ops".into(), since: WallTime(3000), text: "404".into() };
        view.mark_channels(vec![dead]);
        insta::assert_snapshot!(lines(&view), @r"
        agent/a3 | agent a3 | `lock: clone` stays | qm unlock 10420 | /agents/a3 | 2026-11-21T08:11:02Z
        configuration/refused | configuration | refused, the old configuration stays: unknown key `x` | drover check | /configuration | 2026-11-21T08:11:02Z
        channel/ops | channel ops | its notifications are not taken: 404 | drover notify test ops | / | 1970-01-01T00:00:03Z
        breaker/cloud:lab | breaker cloud:lab | open, nothing starts there. Cause: 5 clones failed | drover breakers reset cloud:lab | /templates/lab/linux | -
        source/git/outage | source git | cannot be polled: 401 | drover sources | /jobs | 1970-01-01T00:00:02Z
        ");
        assert_eq!(alarms(&view).len(), 3);
        reported(&view, What::ConfigApplied { generation: Generation(5), reconcile_seconds: None });
        reported(&view, breaker(BreakerPhase::Closed, None));
        reported(&view, What::Source(Box::new(idle)));
        view.mark_channels(Vec::new());
        assert_eq!(lines(&view).lines().count(), 1);
    }

    #[test]
    fn nothing_is_known_before_clouds_were_tried() {
        let view = View::new(1);
        view.mark_journal_folded();
        assert_eq!(troubles(&view), None);
        view.mark_clouds_tried();
        assert_eq!(troubles(&view), Some(Vec::new()));
    }
}
