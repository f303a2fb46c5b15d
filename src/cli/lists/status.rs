//! Everything at a glance.

use drover_api::{AlarmOut, BreakerOut, ConfigOut, LostJobOut, ReconcileOut, StatusOut, SyncOut};

use super::{build_line, last_leader, page as list};
use crate::cli::sentences::{count, every_cloud, short};
use crate::cli::table::{Page, Tone, clean};

/// Everything at a glance: first what is wrong, then each list.
pub(in crate::cli) fn status(status: &StatusOut, page: &mut Page) {
    let (ready, tone) = match (status.ready, &status.journal) {
        (true, _) => ("ready", Tone::Good),
        (false, Some(_)) => ("not ready", Tone::Bad),
        (false, None) => ("starting", Tone::Busy),
    };
    let ready = page.view().paint(tone, ready);
    page.own(&format!("drover {}, {ready}", clean(&status.version)));
    config(&status.config, page);
    if let Some(sync) = &status.sync {
        synced(sync, page);
    }
    troubles(status, page);
    if let Some(members) = &status.members {
        section("MEMBERS", &members.members, page);
        last_leader(members, page);
    }
    page.heading("CLOUDS");
    list(&status.clouds, page);
    page.heading("TEMPLATES");
    list(&status.templates, page);
    let places = status.breakers.iter().filter(|one| one.id != one.template);
    let places: Vec<BreakerOut> = places.cloned().collect();
    section("BREAKERS", &places, page);
    section("ADDRESS POOLS", &status.address_pools, page);
    section("DEMAND", &status.sources, page);
    for build in &status.builds {
        build_line(build, page);
    }
    for lost in &status.lost_jobs {
        lost_job(lost, page);
    }
    section("MACHINES", &status.machines, page);
    page.heading("AGENTS");
    list(&status.agents, page);
    page.heading("LEASES");
    list(&status.leases, page);
    if !status.reconciled.is_empty() {
        page.heading("RECONCILED");
        status.reconciled.iter().for_each(|one| reconciled(one, page));
    }
}

/// A list under its heading, unless it is empty.
fn section<T: super::Listed>(name: &str, items: &[T], page: &mut Page) {
    if !items.is_empty() {
        page.heading(name);
        list(items, page);
    }
}

fn config(config: &ConfigOut, page: &mut Page) {
    let view = page.view();
    match (config.generation, &config.applied_at) {
        (Some(generation), Some(at)) => page
            .line(&format!("configuration: generation {generation}, in force {}", view.since(at))),
        (Some(_) | None, _) => page.line("configuration: none in force"),
    }
    if let Some(seconds) = config.orphan_cleanup_period_seconds {
        page.line(&every_cloud(seconds));
    }
    if let (Some(at), Some(refusal)) = (&config.refused_at, &config.refusal) {
        let text = format!(" {}, the old configuration stays:", view.when(at));
        page.toned(Tone::Bad, "REFUSED", &text);
        for line in refusal.lines() {
            page.lines(&format!("  {line}"));
        }
    }
}

/// The part of the configuration that git manages.
fn synced(sync: &SyncOut, page: &mut Page) {
    let view = page.view();
    let Some(of) = &sync.in_force else {
        return page.line(&format!("git: nothing of {} is in force yet", sync.repository));
    };
    let stays = if sync.pinned { "; it stays there until `drover sync`" } else { "" };
    let (commit, at) = (short(&of.commit), view.since(&of.applied_at));
    page.line(&format!("git: commit {commit} \"{}\", in force {at}{stays}", of.subject));
}

/// What somebody must look at, each with what to run. Clouds, templates, builds and the configuration that
/// was refused have lines of their own.
fn troubles(status: &StatusOut, page: &mut Page) {
    let view = page.view();
    let is_refusal = |alarm: &AlarmOut| {
        alarm.since.is_some() && alarm.since == status.config.refused_at && alarm.agent.is_empty()
    };
    let is_listed = |alarm: &AlarmOut| {
        ["cloud ", "template ", "image "].iter().any(|kind| alarm.about.starts_with(kind))
    };
    for alarm in status.alarms.iter().filter(|one| !is_refusal(one) && !is_listed(one)) {
        let since = alarm.since.as_ref().map(|since| format!(" {}", view.since(since)));
        let text = format!("{}: {}: {}", since.unwrap_or_default(), alarm.about, alarm.text);
        page.toned(Tone::Bad, "ALARM", &text);
        if !alarm.command.is_empty() {
            page.lines(&format!("  run: {}", alarm.command.replace('\n', " ")));
        }
    }
}

fn lost_job(lost: &LostJobOut, page: &mut Page) {
    let text = format!(
        " {}: job {} of {} with agent {}; run it again there if it is wanted",
        page.view().when(&lost.at),
        lost.job.as_deref().unwrap_or("-"),
        lost.source,
        lost.agent
    );
    page.toned(Tone::Bad, "LOST", &text);
}

fn reconciled(one: &ReconcileOut, page: &mut Page) {
    let result = match &one.unread {
        Some(why) => format!("not read: {why}"),
        None => count(one.findings.len(), "finding"),
    };
    let when = page.view().when(&one.at);
    page.line(&format!("{} {when}: {result}", one.cluster));
    for finding in &one.findings {
        page.line(&format!("  {finding}"));
    }
}
