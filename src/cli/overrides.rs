//! `drover templates set` and `drover clouds set`.

use drover_api::{CloudOverridesIn, CloudOverridesOut, TemplateOverridesIn, TemplateOverridesOut};

use super::client::{CALL_LIMIT, Client, path};
use super::error::CliError;
use super::options::{CloudsAction, Rollout, TemplatesAction, Value};
use super::sentences::clean;
use super::term::{Term, print};

/// Sets values of a template.
pub(super) async fn template(
    client: &Client,
    action: TemplatesAction,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let TemplatesAction::Set(values) = action;
    let asked = TemplateOverridesIn {
        instance_cap: values.instance_cap.map(Value::asked),
        instance_min: values.instance_min.map(Value::asked),
        idle_min: values.idle_min.map(Value::asked),
        idle_termination_minutes: values.idle_minutes.map(Value::asked),
        max_total_uses: values.max_uses.map(Value::asked),
        rollout_paused: values.rollout.map(|rollout| rollout == Rollout::Pause),
    };
    let template = values.template;
    let out: TemplateOverridesOut =
        client.change(&path("templates", &template, ""), &asked, CALL_LIMIT).await?;
    let name = clean(&template);
    print(term, json, &out, |out| match out.spell() {
        text if text.is_empty() => format!("template {name}: as configured\n"),
        text => format!("template {name}: {text}\n"),
    })
}

/// Sets the cap of a cloud.
pub(super) async fn cloud(
    client: &Client,
    action: CloudsAction,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let CloudsAction::Set { cloud, instance_cap } = action;
    let asked = CloudOverridesIn { instance_cap: Some(instance_cap.asked()) };
    let out: CloudOverridesOut =
        client.change(&path("clouds", &cloud, ""), &asked, CALL_LIMIT).await?;
    let name = clean(&cloud);
    print(term, json, &out, |out| match out.instance_cap {
        None => format!("cloud {name}: as configured\n"),
        Some(cap) => format!("cloud {name}: instanceCap {cap}\n"),
    })
}
