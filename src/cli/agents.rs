//! `drover agents`: lists agents, and those that went.

use std::collections::BTreeSet;

use drover_api::{AgentsOut, TemplatesOut};

use super::client::{CALL_LIMIT, Client};
use super::error::CliError;
use super::list_options::ListOptions;
use super::lists;
use super::term::Term;

/// Lists agents; with `gone`, those that went too.
///
/// An agent has the labels of its template: `--filter label=linux` asks for those as well.
pub(super) async fn list(
    client: &Client,
    mut options: ListOptions,
    gone: bool,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let is_label = |key: &str| matches!(&*key.to_lowercase(), "label" | "labels");
    let (labels, others): (Vec<_>, Vec<_>) =
        options.filters.into_iter().partition(|(key, _)| is_label(key));
    options.filters = others;
    let mut out: AgentsOut = client.get("/v1/agents", CALL_LIMIT).await?;
    if !labels.is_empty() {
        let all: TemplatesOut = client.get("/v1/templates", CALL_LIMIT).await?;
        let has =
            |given: &[String], label: &str| given.iter().any(|one| one.eq_ignore_ascii_case(label));
        let fitting = all.templates.iter();
        let fitting = fitting.filter(|one| labels.iter().all(|(_, label)| has(&one.labels, label)));
        let fitting: BTreeSet<&str> = fitting.map(|one| &*one.id).collect();
        out.agents.retain(|agent| fitting.contains(&*agent.template));
        out.gone.retain(|agent| fitting.contains(&*agent.template));
    }
    let went = out.gone;
    let whole = |agents| AgentsOut { agents, gone: went };
    lists::show(term, json, &options, out.agents, whole, |out, page| {
        if gone {
            lists::gone(&out.gone, page);
        }
    })
}
