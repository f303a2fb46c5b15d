//! `drover why` and `drover jobs`.

use super::client::{CALL_LIMIT, Client, LONG_LIMIT, path};
use super::error::CliError;
use super::list_options::{ListOptions, ViewOptions};
use super::lists;
use super::sentences::{clean, count};
use super::table::{Page, View};
use super::term::{Term, page};
use drover_api::{
    AccountOut, JobsOut, KindOut, Remedies, SilentOut, TROUBLESHOOTING, TemplatesOut, UntriedOut,
    WhyOut, WhySubjectOut, shows_failure,
};

/// Lists the jobs of all sources.
pub(super) async fn jobs(
    client: &Client,
    options: &ListOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let out: JobsOut = client.get("/v1/jobs", CALL_LIMIT).await?;
    let silent = out.silent;
    let whole = |jobs| JobsOut { jobs, silent };
    lists::show(term, json, options, out.jobs, whole, |out, page| {
        for SilentOut { source, since, detail } in &out.silent {
            let since = page.view().since(since);
            page.line(&format!("{source} cannot be polled {since}: {detail}"));
        }
    })
}

/// Says why something waits, or what keeps each template from beginning agents.
pub(super) async fn why(
    client: &Client,
    of: Option<String>,
    options: &ViewOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    if let Some(of) = of {
        let out: WhySubjectOut = client.get(&query(&of), LONG_LIMIT).await?;
        return page(term, json, options, &out, subject);
    }
    let all: TemplatesOut = client.get("/v1/templates", CALL_LIMIT).await?;
    let mut reported: Vec<WhyOut> = Vec::new();
    for one in all.templates {
        reported.push(client.get(&path("templates", &one.id, "/why"), LONG_LIMIT).await?);
    }
    page(term, json, options, &reported, |all, page| {
        let view = page.view();
        let each = all.iter().map(|one| template(one, &view)).collect::<Vec<_>>().join("\n");
        page.sentences(&each);
        page.sentences(&what_to_do(&each));
    })
}

/// The path that asks about something.
pub(super) fn query(of: &str) -> String {
    let encoded = percent_encoding::utf8_percent_encode(of, percent_encoding::NON_ALPHANUMERIC);
    format!("/v1/why?of={encoded}")
}

pub(super) fn subject(out: &WhySubjectOut, page: &mut Page) {
    let view = page.view();
    let mut text = String::new();
    if out.account.is_some() || out.state.is_some() {
        text += &clean(&out.subject);
        if let Some(state) = &out.state {
            text += &format!(": {}", clean(state));
        }
        text.push('\n');
    }
    let mut said = Said::default();
    if let Some(one) = &out.account {
        text += &account(one, out.state.is_none(), &out.templates, &view, &mut said);
    }
    page.sentences(&text);
    if !out.jobs.is_empty() {
        lists::page(&out.jobs, page);
    }
    let rest = out.templates.iter().filter(|one| !said.is_reported(&one.template));
    let rest: Vec<String> = rest.map(|one| template(one, &view)).collect();
    if !rest.is_empty() && !page.is_empty() {
        page.line("");
    }
    let rest = rest.join("\n");
    page.sentences(&rest);
    page.sentences(&what_to_do(&format!("{text}{rest}")));
}

/// Where the book says what to do about the reasons of a text, one a line.
fn what_to_do(text: &str) -> String {
    let book = super::topics::page(TROUBLESHOOTING).map(|page| page.text).unwrap_or_default();
    let remedies = Remedies::of(book);
    let mut found: Vec<&str> = Vec::new();
    for heading in text.lines().filter_map(|line| remedies.find(line)) {
        if !found.contains(&&*heading.title) {
            found.push(&heading.title);
        }
    }
    let line =
        |title: &&str| format!("what to do: `drover help {TROUBLESHOOTING}`, under \"{title}\"\n");
    found.iter().map(line).collect()
}

/// What an answer says already: each cause is said once.
#[derive(Default)]
struct Said {
    causes: Vec<String>,
    templates: Vec<String>,
}

impl Said {
    /// Whether the causes of a template stand above.
    fn is_reported(&self, template: &str) -> bool {
        self.templates.iter().any(|reported| reported == template)
    }

    /// Adds a cause as a line, unless an earlier line has all of it.
    fn add(&mut self, text: &mut String, indent: &str, before: &str, cause: &str) {
        let cause = clean(cause);
        if !self.causes.iter().any(|reported| reported.contains(&cause)) {
            *text += &format!("{indent}{before}{cause}\n");
            self.causes.push(cause);
        }
    }
}

/// `is_known` says whether drover knows what waits.
fn account(
    one: &AccountOut,
    is_known: bool,
    templates: &[WhyOut],
    view: &View,
    said: &mut Said,
) -> String {
    let cap = one.cap.map(|cap| format!(", at most {cap}")).unwrap_or_default();
    let mut text = format!(
        "  {}{cap}; weight {} of {}, priority {}\n",
        served(one),
        one.weight,
        one.weights,
        one.priority
    );
    if one.kinds.is_empty() && is_known {
        text += "  nothing waits\n";
    }
    one.kinds.iter().for_each(|one| text += &kind(one, templates, view, said));
    text
}

/// How many jobs or leases of a source are on agents, and how many there are of all.
fn served(one: &AccountOut) -> String {
    let (thing, of) = match &*one.source {
        "leases" => ("lease", String::new()),
        source => ("job", format!(" of {}", clean(source))),
    };
    match (one.has, one.all) {
        (0, _) => format!("agents serve no {thing}{of}"),
        (has, all) => {
            let some = count(has as usize, thing);
            format!("agents serve {some}{of} (jobs and leases in all: {all})")
        }
    }
}

fn kind(of: &KindOut, templates: &[WhyOut], view: &View, said: &mut Said) -> String {
    let since = of.since.as_ref().map(|since| format!(" {}", view.since(since)));
    let since = since.unwrap_or_default();
    let verb = if of.count == 1 { "waits" } else { "wait" };
    let mut text = format!("  {}: {} {verb}{since}", clean(&of.wants), of.count);
    if of.open > 0 {
        text += &format!(", {} with a runner there or on its way", of.open);
    }
    if let Some(ahead) = of.ahead.filter(|ahead| *ahead > 0) {
        text += &format!(", {ahead} before it");
    }
    text.push('\n');
    // What keeps each template stands with it.
    let mut obstacles: Vec<&str> =
        of.serve.iter().filter_map(|one| one.obstacle.as_deref()).collect();
    obstacles.dedup();
    if obstacles.is_empty() || obstacles.join("; ") != of.why {
        said.add(&mut text, "    ", "why: ", &of.why);
    }
    match of.estimate_seconds {
        Some(seconds) => text += &format!("    in about {seconds} s: {}\n", clean(&of.estimate)),
        None => text += &format!("    when: {}\n", clean(&of.estimate)),
    }
    for one in &of.serve {
        let cap = one.cap.map(|cap| format!(" of {cap}")).unwrap_or_default();
        let (coming, held) = of.coming(one);
        let held = if held > 0 { format!(", {held} held up") } else { String::new() };
        text += &format!(
            "    {} serves it: {}{cap} living, {coming} on their way{held}, {} free, {} busy, room for {}\n",
            clean(&one.template),
            one.live,
            one.free,
            one.busy,
            one.room
        );
        if said.is_reported(&one.template) {
            continue;
        }
        said.templates.push(one.template.clone());
        let of_it = templates.iter().find(|reported| reported.template == one.template);
        text += &causes(one.obstacle.as_deref(), of_it, "      ", view, said);
    }
    for one in &of.others {
        text += &format!("    {} does not: {}\n", clean(&one.template), clean(&one.why));
    }
    text
}

/// A template that nobody asks about as demand.
fn template(out: &WhyOut, view: &View) -> String {
    let mut text = format!("{}\n", clean(&out.template));
    let mut said = Said::default();
    match out.idle {
        0 => {}
        1 => text += "  1 agent is free: the next job or lease gets it\n",
        more => text += &format!("  {more} agents are free: the next job or lease gets one\n"),
    }
    text += &causes(out.waits.as_deref(), Some(out), "  ", view, &mut said);
    // What keeps the template back keeps it from every node.
    if out.waits.is_some() {
        return text;
    }
    if let Some(next) = &out.next {
        text += &format!("  next on {}\n", clean(next));
    }
    for node in out.nodes.iter().filter(|node| node.refused.is_none()) {
        text += &format!("  {}: can take one\n", clean(&node.node));
    }
    text
}

/// What keeps a template from agents, one cause a line: the template's own, each node's, and what its
/// last agent failed of.
fn causes(
    obstacle: Option<&str>,
    out: Option<&WhyOut>,
    indent: &str,
    view: &View,
    said: &mut Said,
) -> String {
    let mut text = String::new();
    let nodes = out.map_or(&[][..], |out| &out.nodes);
    let refusals: Vec<&str> = nodes.iter().filter_map(|one| one.refused.as_deref()).collect();
    let is_each = |reported: &str| refusals.iter().all(|refused| reported.contains(refused));
    let by_node = !refusals.is_empty() && refusals.len() == nodes.len();
    match obstacle {
        // Its nodes follow, each in a line.
        Some(reported) if by_node && is_each(reported) => {
            said.add(&mut text, indent, "", "no agent starts: no node takes one");
        }
        Some(reported) => said.add(&mut text, indent, "", reported),
        None => {}
    }
    let Some(out) = out else { return text };
    let nothing_yet = nodes.is_empty() && obstacle.is_none();
    if let Some(refused) = out.refused.as_ref().filter(|_| nothing_yet) {
        said.add(&mut text, indent, "nothing can be cloned: ", refused);
    }
    for node in nodes {
        let Some(refused) = &node.refused else { continue };
        // Other nodes may have the same words.
        let has =
            |reported: &String| reported.contains(&*node.node) && reported.contains(&**refused);
        if !said.causes.iter().any(has) {
            said.add(&mut text, indent, "", &format!("{}: {refused}", node.node));
        }
    }
    for (nodes, why) in UntriedOut::together(&out.untried) {
        said.add(&mut text, indent, "", &format!("{nodes}: not tried, {why}"));
    }
    // Behind what keeps it stands the same cause, or an older one.
    if let Some(failed) = out.failed.as_ref().filter(|_| shows_failure(obstacle)) {
        let before = format!("its last agent failed {}: ", view.when(&failed.at));
        said.add(&mut text, indent, &before, &failed.why);
    }
    text
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    // Invariant: whether an agent is free stands before why no other one starts.

    #[test]
    fn a_full_template_with_free_agents_says_first_that_the_next_one_is_served() {
        let view = View::complete("2026-11-21T08:00:00Z".parse().unwrap());
        let of = |idle: u32| {
            let why = serde_json::json!({
                "template": "rack/linux", "waits": "rack/linux is full: 4 of 4 (instanceCap)",
                "next": null, "refused": null, "nodes": [], "idle": idle,
            });
            template(&serde_json::from_value(why).unwrap(), &view)
        };
        insta::assert_snapshot!([of(0), of(1), of(3)].concat());
    }

    // Invariant: what has agents is counted in jobs and leases.

    #[test]
    fn jobs_and_leases_on_agents_are_counted_as_such() {
        let of = |source: &str, has: u32, all: u32| {
            let account = serde_json::json!({
                "source": source, "weight": 1, "weights": 2, "priority": 0, "cap": null, "has": has,
                "all": all, "kinds": [],
            });
            served(&serde_json::from_value(account).unwrap())
        };
        let all = [of("leases", 6, 6), of("leases", 0, 2), of("git", 1, 7), of("git", 0, 0)];
        insta::assert_snapshot!(all.join("\n"));
    }
}
