//! Sentences for people, and what makes text from elsewhere harmless in them.

use drover_api::{ProvisionOut, ResyncOut, ResyncPlanOut, UnreadOut};
use drover_model::finding::Does;

pub(super) use super::table::clean;
pub(super) use drover_api::count;

/// What of the known words a slip may have meant, to stand behind a semicolon; blank where none is near.
pub(super) fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let near = drover_api::nearest(word, known);
    near.map(|near| format!(" did you mean `{}`?", clean(near))).unwrap_or_default()
}

pub(super) fn dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| text.to_string())
}

/// That the service says how often its clouds are reconciled.
pub(super) fn every_cloud(seconds: u64) -> String {
    format!("every cloud is reconciled each {seconds} s: service.orphanCleanupPeriodSeconds")
}

/// What was started, and why not more.
pub(super) fn provisioned(out: &ProvisionOut) -> String {
    let started = count(out.agents.len(), "agent");
    let mut text = format!("{started} of {} started\n", clean(&out.template));
    for agent in &out.agents {
        text.push_str(&format!("  {}\n", clean(agent)));
    }
    if let Some(why) = &out.short {
        let missing = (out.wanted as usize).saturating_sub(out.agents.len());
        text.push_str(&format!("{missing} not started: {}\n", clean(why)));
    }
    if let Some(why) = out.paused.as_ref().filter(|_| !out.agents.is_empty()) {
        text.push_str(&format!(
            "they go at once where it still holds that the template pauses: {}\n",
            clean(why)
        ));
    }
    text
}

/// Clusters that could not be read, each with why.
pub(super) fn unread(clusters: &[UnreadOut]) -> String {
    let line = |one: &UnreadOut| {
        let (cluster, why) = (clean(&one.cluster), clean(&one.why));
        match &one.cloud {
            Some(cloud) => {
                format!("cloud {} (cluster {cluster}) was not read: {why}\n", clean(cloud))
            }
            None => format!("cluster {cluster} was not read: {why}\n"),
        }
    };
    clusters.iter().map(line).collect()
}

/// What a reconciliation found.
pub(super) fn findings(out: &ResyncOut) -> String {
    let mut text = unread(&out.unread);
    for (cluster, findings) in &out.clusters {
        text.push_str(&format!("{cluster}: {}\n", count(findings.len(), "finding")));
        for finding in findings {
            text.push_str(&format!("  {}\n", clean(finding)));
        }
    }
    text
}

/// What a reconciliation would do.
pub(super) fn planned(out: &ResyncPlanOut) -> String {
    let mut text = unread(&out.unread);
    for (cluster, found) in &out.clusters {
        let counted = |does: Does| {
            let count = found.iter().filter(|one| one.does == does.name()).count();
            (count > 0).then(|| format!("{count} to {}", does.name()))
        };
        let counts: Vec<String> = Does::ALL.into_iter().filter_map(counted).collect();
        let sum = if counts.is_empty() { "nothing to do".to_owned() } else { counts.join(", ") };
        text.push_str(&format!("{cluster}: {sum}\n"));
        for one in found {
            text.push_str(&format!("  {:<7}  {}\n", clean(&one.does), clean(&one.why)));
        }
    }
    text + "nothing was changed\n"
}

/// The first digits of a commit's id, by which people name it.
pub(super) fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}
