//! `drover check`: the faults of a configuration.

use std::path::Path;
use std::process::ExitCode;

use drover_hypervisor::probe;
use serde::Serialize;

use super::config::{config_path, load};
use super::global::Global;
use super::options::CheckOptions;
use super::report::{FAILED, USAGE};
use super::runtime::runtime;
use super::screen::Output;
use super::sentences;
use super::stdout::{put, put_line};
use drover_config::{Checked, Environment, LocatedFault};

/// What `check --json` prints.
#[derive(Debug, Serialize)]
struct CheckOut {
    ok: bool,
    file: String,
    clouds: usize,
    templates: usize,
    faults: Vec<LocatedFault>,
    warnings: Vec<LocatedFault>,
    /// With `--connect`: each cloud with its version, or why it was not reached.
    connections: Vec<ConnectionOut>,
}

#[derive(Debug, Serialize)]
struct ConnectionOut {
    cloud: String,
    version: Option<String>,
    error: Option<String>,
}

/// Checks the configuration, and with `--connect` every cloud in it.
pub(super) fn check(global: &Global, options: &CheckOptions) -> ExitCode {
    let path = options.file.clone().unwrap_or_else(|| config_path(global));
    if global.json {
        return as_json(&path, options.connect, global.output());
    }
    let checked = match load(&path, false) {
        Ok(checked) => checked,
        Err(code) => return code,
    };
    let mut text = format!(
        "{}: ok, clouds: {}, templates: {}\n",
        path.display(),
        checked.herd.clouds.len(),
        checked.herd.templates.len()
    );
    if let Some(period) = checked.service.reconcile_period {
        text += &format!("{}\n", sentences::every_cloud(period.as_secs()));
    }
    let printed = put(false, &text, ExitCode::SUCCESS);
    if !options.connect || printed != ExitCode::SUCCESS {
        return printed;
    }
    text.clear();
    let connections = match connect(&checked, false) {
        Ok(connections) => connections,
        Err(code) => return code,
    };
    for one in &connections {
        text += &match (&one.version, &one.error) {
            (Some(version), _) => format!("cloud {}: Proxmox VE {version}\n", one.cloud),
            (None, error) => format!("cloud {}: {}\n", one.cloud, error.as_deref().unwrap_or("-")),
        };
    }
    put(false, &text, ExitCode::from(if is_well(&connections) { 0 } else { FAILED }))
}

fn as_json(path: &Path, connects: bool, output: Output) -> ExitCode {
    let mut out = CheckOut {
        ok: true,
        file: path.display().to_string(),
        clouds: 0,
        templates: 0,
        faults: Vec::new(),
        warnings: Vec::new(),
        connections: Vec::new(),
    };
    let mut code = 0;
    match drover_config::load(path, &Environment::of_process()) {
        Ok(checked) => {
            (out.clouds, out.templates) = (checked.herd.clouds.len(), checked.herd.templates.len());
            out.warnings = checked.located_warnings();
            if connects {
                out.connections = match connect(&checked, true) {
                    Ok(connections) => connections,
                    Err(code) => return code,
                };
                code = if is_well(&out.connections) { 0 } else { FAILED };
            }
        }
        Err(error) => (out.faults, code) = (error.located(), USAGE),
    }
    out.ok = code == 0;
    put_line(output, &serde_json::json!(out), ExitCode::from(code))
}

/// Asks every cloud for its version.
fn connect(checked: &Checked, json: bool) -> Result<Vec<ConnectionOut>, ExitCode> {
    let runtime = runtime(json)?;
    let each = checked.connections.iter().map(|(cloud, connection)| {
        let probed = runtime.block_on(probe(cloud, connection));
        let (version, error) = match probed {
            Ok(version) => (Some(version), None),
            Err(error) => (None, Some(error.to_string())),
        };
        ConnectionOut { cloud: cloud.to_string(), version, error }
    });
    Ok(each.collect())
}

fn is_well(connections: &[ConnectionOut]) -> bool {
    connections.iter().all(|one| one.version.is_some())
}
