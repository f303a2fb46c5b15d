//! The commands that start something of their own, or look at a configuration: where the command
//! line hands over.

use std::process::ExitCode;

use causes::chain;
use pve_sim::worlds::WORLDS;
use pve_sim::{guests, spec};
use serde_json::{Value, json};

use super::client::fits;
use super::config::{config_path, replace};
use super::global::Global;
use super::options::{CopyOptions, DemoOptions, RunOptions};
use super::report::{self, FAILED, USAGE};
use super::runtime::runtime;
use super::screen::{Output, Screen};
use super::sim_options::{Accelerator, GuestKind, PveVersion, SimOptions};
use super::stdout::{not_written, put, put_line};
use crate::{app, demo, known, telemetry};
use drover_config::{Copied, EditError, Environment};

/// Runs the service.
pub(super) fn run(global: &Global, options: RunOptions) -> ExitCode {
    if let Some(socket) = &global.socket
        && let Err(error) = fits(socket)
    {
        return report::fail_by(global.json, &error, &format!("drover: {}\n", chain(&error)));
    }
    let settings = app::Settings {
        config: config_path(global),
        config_is_named: global.config.is_some(),
        config_from_store: options.config_from_store,
        strict: options.strict,
        state_dir: options.state_dir,
        socket: global.socket.clone(),
        json_log: global.json,
        store: options.store.place.address(),
        cluster_key_file: options.store.cluster_key_file,
        member: options.member,
        advertise: options.advertise,
    };
    match app::run(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let faults = match &error {
                app::RunError::Config(error) | app::RunError::FilesBesideStore(error) => {
                    error.located()
                }
                app::RunError::Level(_)
                | app::RunError::State { .. }
                | app::RunError::Beside { .. }
                | app::RunError::Unsafe(_)
                | app::RunError::Newer(_)
                | app::RunError::Member(_)
                | app::RunError::Stored(_)
                | app::RunError::NotFetched { .. }
                | app::RunError::Downgrade { .. }
                | app::RunError::Twin(_)
                | app::RunError::Journal(_)
                | app::RunError::Takeover(_)
                | app::RunError::Web(_)
                | app::RunError::System { .. }
                | app::RunError::Strict(_)
                | app::RunError::Unjournalled(_)
                | app::RunError::GaveUp(_) => Vec::new(),
            };
            let (code, text) = (error.exit_code(), chain(&error));
            report::fail_with(global.json, code, (&text, &faults), &error.render())
        }
    }
}

/// Runs the demo.
pub(super) fn demo(global: &Global, options: DemoOptions) -> ExitCode {
    if global.json {
        let text = "the demo is for people to look at and has no JSON: leave out --json, and ask its \
                    service on the socket that it names";
        return report::fail(true, USAGE, text, "");
    }
    let runtime = match runtime(false) {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    match runtime.block_on(demo::run(demo::Options {
        once: options.once,
        plain: options.plain,
        color: Screen::of_process(Output::Table, global.color).color,
        seed: options.seed,
        jobs: options.jobs,
        keep: options.keep,
        record: options.record,
    })) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(demo::DemoError::Output(error)) => not_written(false, error),
        Err(error) => {
            let text = chain(&error);
            report::fail(false, FAILED, &text, &format!("drover demo: {text}\n"))
        }
    }
}

/// Runs the simulated cluster.
pub(super) fn sim(global: &Global, options: SimOptions) -> ExitCode {
    let version = match options.pve {
        PveVersion::V7_4 => spec::PveVersion::V7_4,
        PveVersion::V8_4 => spec::PveVersion::V8_4,
        PveVersion::V9_2 => spec::PveVersion::V9_2,
    };
    if options.list_worlds {
        let lines = WORLDS.map(|world| format!("{:12}  {}\n", world.name, world.about));
        let list = WORLDS.map(|world| json!({ "name": world.name, "about": world.about }));
        let text = match global.json {
            true => format!("{}\n", json!({ "worlds": list })),
            false => lines.concat(),
        };
        return put(global.json, &text, ExitCode::SUCCESS);
    }
    if options.list_api {
        let served = pve_sim::api::served_routes(version);
        if global.json {
            let served: Vec<Value> = served.iter().map(|line| route(line)).collect();
            return put_line(global.output(), &json!({ "served": served }), ExitCode::SUCCESS);
        }
        return put(false, &format!("{}\n", served.join("\n")), ExitCode::SUCCESS);
    }
    if let Err(error) = telemetry::init("warn", global.json) {
        let text = error.to_string();
        return report::fail(global.json, USAGE, &text, &format!("drover: {text}\n"));
    }
    let runtime = match runtime(global.json) {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let outcome = runtime.block_on(pve_sim::run::run(pve_sim::run::Options {
        listen: options.listen,
        cluster: options.cluster,
        world: options.world,
        guests: match options.guests {
            GuestKind::None => guests::GuestKind::None,
            GuestKind::Greeter => guests::GuestKind::Greeter,
            GuestKind::Process => guests::GuestKind::Process,
            GuestKind::Qemu => guests::GuestKind::Qemu,
        },
        images: options.images,
        accelerator: match options.accel {
            Accelerator::Tcg => guests::AcceleratorChoice::Tcg,
            Accelerator::Kvm => guests::AcceleratorChoice::Kvm,
            Accelerator::Auto => guests::AcceleratorChoice::Auto,
        },
        version,
        workers: options.workers,
        seed: options.seed,
        latency: options.latency,
        faults: options.faults,
        unisolated: options.unisolated,
        shared_folders: options.share,
        known_commands: known::commands(),
        all_nodes: options.all_nodes,
        control: options.control,
        record: options.record,
    }));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let (code, text) = (if error.is_usage() { USAGE } else { FAILED }, chain(&error));
            report::fail(global.json, code, &text, &format!("drover sim: {text}\n"))
        }
    }
}

/// A line of what is served, for scripts.
fn route(line: &str) -> Value {
    let (method, path) = line.split_once(' ').unwrap_or((line, ""));
    json!({ "method": method, "path": path.trim_start() })
}

/// Copies a template: prints the copy, or writes it into a file of the configuration.
pub(super) fn copy(global: &Global, options: &CopyOptions) -> ExitCode {
    let path = config_path(global);
    let CopyOptions { old, new, set, into } = options;
    let request = drover_config::CopyRequest { old, new, set, into: into.as_deref() };
    match drover_config::copy(&path, &Environment::of_process(), request) {
        Ok(Copied::Text(text)) => {
            let value = json!({ "template": new, "copyOf": old, "yaml": text });
            match global.json {
                true => put_line(global.output(), &value, ExitCode::SUCCESS),
                false => put(false, &text, ExitCode::SUCCESS),
            }
        }
        Ok(Copied::File(file, text)) => match replace(&file, &text, None) {
            Ok(()) => {
                let file = file.display().to_string();
                let value = json!({ "template": new, "copyOf": old, "file": file });
                let text = format!("{file}: template {new} is a copy of {old}\n");
                match global.json {
                    true => put_line(global.output(), &value, ExitCode::SUCCESS),
                    false => put(false, &text, ExitCode::SUCCESS),
                }
            }
            Err(error) => {
                let text = format!("{} cannot be written: {error}", file.display());
                report::fail(global.json, FAILED, &text, &format!("drover: {text}\n"))
            }
        },
        Err(error) => {
            let faults = match &error {
                EditError::Faulty { source, .. } => source.located(),
                EditError::Request(_) => Vec::new(),
            };
            let text = chain(&error);
            report::fail_with(
                global.json,
                USAGE,
                (&text, &faults),
                &format!("drover: {}\n", error.render().trim_end()),
            )
        }
    }
}
