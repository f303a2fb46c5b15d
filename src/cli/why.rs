//! `drover why` and `drover jobs`.

use super::client::CALL_LIMIT;
use super::remote::{LONG_LIMIT, path, print};
use super::tables::{clean, count, dash, table};
use super::{CliError, Client, Term};
use crate::web::shapes::TemplatesOut;
use crate::web::{AccountOut, JobOut, JobsOut, KindOut, WhyOut, WhySubjectOut};

/// Lists the jobs of all sources.
pub(super) async fn jobs(client: &Client, json: bool, term: &mut Term<'_>) -> Result<(), CliError> {
    let out: JobsOut = client.get("/v1/jobs", CALL_LIMIT).await?;
    print(term, json, &out, |out| {
        let mut text = table_of(&out.jobs);
        for one in &out.silent {
            let (source, detail) = (clean(&one.source), clean(&one.detail));
            text += &format!("{source} can not be looked at since {}: {detail}\n", one.since);
        }
        text
    })
}

fn table_of(jobs: &[JobOut]) -> String {
    if jobs.is_empty() {
        return "none\n".to_owned();
    }
    let row = |job: &JobOut| {
        let lacks = job.lacks.as_ref().map(|lacks| format!(": {}", clean(lacks)));
        [
            job.source.clone(),
            job.id.clone(),
            dash(job.name.as_ref()),
            job.state.clone() + &lacks.unwrap_or_default(),
            dash(job.wants.as_ref()),
            dash(job.since.as_ref()),
            dash(job.agent.as_ref()),
        ]
    };
    let headings = ["SOURCE", "JOB", "NAME", "STATE", "WANTS", "SINCE", "AGENT"];
    table(headings, jobs.iter().map(row).collect())
}

/// Says why something waits, or what keeps each template from beginning agents.
pub(super) async fn why(
    client: &Client,
    of: Option<String>,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    if let Some(of) = of {
        let out: WhySubjectOut = client.get(&query(&of), LONG_LIMIT).await?;
        return print(term, json, &out, subject);
    }
    let all: TemplatesOut = client.get("/v1/templates", CALL_LIMIT).await?;
    let mut told: Vec<WhyOut> = Vec::new();
    for one in all.templates {
        told.push(client.get(&path("templates", &one.id, "/why"), LONG_LIMIT).await?);
    }
    print(term, json, &told, |all| all.iter().map(template).collect::<Vec<_>>().join("\n"))
}

/// The path that asks about something.
fn query(of: &str) -> String {
    let encoded = percent_encoding::utf8_percent_encode(of, percent_encoding::NON_ALPHANUMERIC);
    format!("/v1/why?of={encoded}")
}

fn subject(out: &WhySubjectOut) -> String {
    let mut text = String::new();
    if out.account.is_some() || out.state.is_some() {
        text += &clean(&out.subject);
        if let Some(state) = &out.state {
            text += &format!(": {}", clean(state));
        }
        text.push('\n');
    }
    if let Some(one) = &out.account {
        text += &account(one);
    }
    if !out.jobs.is_empty() {
        text += &table_of(&out.jobs);
    }
    let templates: Vec<String> = out.templates.iter().map(template).collect();
    if !templates.is_empty() && !text.is_empty() {
        text.push('\n');
    }
    text + &templates.join("\n")
}

fn account(one: &AccountOut) -> String {
    let (uses, all) = (count(one.has as usize, "use"), one.all);
    let cap = one.cap.map(|cap| format!(", at most {cap}")).unwrap_or_default();
    let mut text = format!(
        "  {} has {uses} of {all}{cap}; weight {} of {}, priority {}\n",
        clean(&one.source),
        one.weight,
        one.weights,
        one.priority
    );
    if one.kinds.is_empty() {
        text += "  nothing waits\n";
    }
    one.kinds.iter().for_each(|one| text += &kind(one));
    text
}

fn kind(one: &KindOut) -> String {
    let since = one.since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
    let mut text = format!("  {}: {} wait{since}", clean(&one.wants), one.count);
    if one.open > 0 {
        text += &format!(", {} with a runner there or on its way", one.open);
    }
    if let Some(ahead) = one.ahead.filter(|ahead| *ahead > 0) {
        text += &format!(", {ahead} before it");
    }
    text += &format!("\n    why: {}\n", clean(&one.why));
    match one.estimate_seconds {
        Some(seconds) => text += &format!("    in about {seconds} s: {}\n", clean(&one.estimate)),
        None => text += &format!("    when: {}\n", clean(&one.estimate)),
    }
    for one in &one.serve {
        let of = one.cap.map(|cap| format!(" of {cap}")).unwrap_or_default();
        text += &format!(
            "    {} serves it: {}{of} living, {} on their way, {} free, {} busy, room for {}",
            clean(&one.template),
            one.live,
            one.coming,
            one.free,
            one.busy,
            one.room
        );
        if let Some(obstacle) = &one.obstacle {
            text += &format!("; {}", clean(obstacle));
        }
        text.push('\n');
    }
    for one in &one.others {
        text += &format!("    {} does not: {}\n", clean(&one.template), clean(&one.why));
    }
    text
}

fn template(out: &WhyOut) -> String {
    let mut text = format!("{}\n", clean(&out.template));
    if let Some(waits) = &out.waits {
        text += &format!("  begins nothing: {}\n", clean(waits));
    }
    if let Some(next) = &out.next {
        text += &format!("  next on {}\n", clean(next));
    }
    if out.nodes.is_empty()
        && let Some(refused) = &out.refused
    {
        text += &format!("  nothing can be cloned: {}\n", clean(refused));
    }
    // What keeps the template back keeps it from every node.
    let free = if out.waits.is_some() { "has room" } else { "can take one" };
    for node in &out.nodes {
        let why = node.refused.as_ref().map_or_else(|| free.to_owned(), |why| clean(why));
        text += &format!("  {}: {why}\n", clean(&node.node));
    }
    if let Some(failed) = &out.failed {
        text += &format!("  its last agent failed at {}: {}\n", failed.at, clean(&failed.why));
    }
    text
}
