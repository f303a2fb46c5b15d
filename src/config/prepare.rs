//! A template's `prepare`: the steps that prepare an agent over SSH.

use std::time::Duration;

use drover_model::spec::{StepSpec, StepWork, UploadSpec};

use super::context::Context;
use super::keys::{RawStep, RawUpload};
use super::layer::Layer;

/// The most steps of a template; each is a login of its own.
const MAX_STEPS: usize = 40;

/// Makes the steps of a template's layer; `limit_secs` is the limit of all of the preparation.
pub(super) fn steps(layer: &Layer, limit_secs: u64, cx: &mut Context<'_>) -> Vec<StepSpec> {
    let all = layer.nested("prepare");
    if all.len() > MAX_STEPS {
        let message = format!("{} steps exceed the maximum of {MAX_STEPS}", all.len());
        cx.faults.push(layer.fault("prepare", message).help("join several steps into one script"));
        return Vec::new();
    }
    let mut steps: Vec<StepSpec> = Vec::new();
    for (at, one) in all.iter().enumerate() {
        let Some(step) = step(at, one, cx) else { continue };
        if steps.iter().any(|other| other.name == step.name) {
            let message = format!("another step has the name `{}`", step.name);
            cx.faults.push(one.fault("name", message).help("give each step a unique name"));
        }
        if one.has("timeoutSec") && step.timeout.as_secs() > limit_secs {
            let message = format!("prepareTimeoutSec, {limit_secs}, is shorter");
            let fault = one.fault("timeoutSec", message);
            cx.warnings.push(fault.help("raise prepareTimeoutSec: it limits every step"));
        }
        steps.push(step);
    }
    steps
}

fn step(at: usize, layer: &Layer, cx: &mut Context<'_>) -> Option<StepSpec> {
    let work = layer.chosen().map_err(|fault| cx.faults.push(fault)).ok()?;
    let raw: RawStep = layer.typed(&mut cx.faults)?;
    let name = raw.name.unwrap_or_else(|| format!("step {} ({work})", at + 1));
    let found = match work {
        "run" => raw.run.filter(|run| !run.trim().is_empty()).map(StepWork::Run),
        "packages" => raw.packages.filter(|names| !names.is_empty()).map(StepWork::Packages),
        _ => Some(StepWork::Upload(upload(layer.nested("upload").first()?, cx)?)),
    };
    Some(StepSpec { name, work: found?, timeout: Duration::from_secs(raw.timeout_sec) })
}

pub(super) fn upload(layer: &Layer, cx: &mut Context<'_>) -> Option<UploadSpec> {
    let before = cx.faults.len();
    let raw: RawUpload = layer.typed(&mut cx.faults)?;
    if cx.faults.len() > before || layer.has_faulty() {
        return None;
    }
    let mode = u32::from_str_radix(&raw.mode, 8).ok()?;
    let sha256 = cx.upload(layer, "from", &raw.from)?;
    Some(UploadSpec { from: raw.from, to: raw.to, mode, sha256 })
}
