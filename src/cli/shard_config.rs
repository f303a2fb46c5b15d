//! `drover shard-config`: the configuration of a herd in the store of its members.
//!
//! A put goes by comparison: what somebody else put meanwhile is never lost. `get` writes the id of the
//! configuration beside the files that it writes, so that the put of an edit knows what was edited.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use causes::chain;
use drover_config::{
    Checked, Environment, Sources, StoreSpec, ValueChange, changes, store_of_environment, values,
    yaml_in,
};
use drover_members::{ConfigStore, Found, ShardConfig, ShardConfigError, file_name};
use drover_stores::StoreAddress;
use drover_vault::{ClusterKey, SealedVault};
use rustix::process::getuid;
use serde::Serialize;
use serde_json::json;

use super::config::{config_path, replace};
use super::global::Global;
use super::options::{ShardConfigAction, ShardPutOptions, StoreOptions};
use super::report::{self, FAILED, USAGE};
use super::sentences::clean;
use super::stdout::{put, put_value};

/// The file beside those of `get` with the id of the configuration that they are of.
const BASE: &str = ".shard-config";
/// The name in the store of a single file that has none of a YAML file.
const SINGLE: &str = "drover.yaml";

type Files = BTreeMap<String, String>;

/// The configuration that an edit began with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Base {
    /// The number alone: of `--expect`, or beside files of an older drover. A number comes again after
    /// `--force`.
    Number(u64),
    /// The number and the digest.
    Id(String),
}

/// A file that a put changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct FileChange {
    file: String,
    change: &'static str,
}

/// What `put` prints as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PutOut {
    store: String,
    /// The number of the configuration in the store afterwards.
    number: u64,
    /// Whether something was put.
    put: bool,
    files: Vec<FileChange>,
    /// None where the configuration before cannot be read here.
    changes: Option<Vec<ValueChange>>,
}

/// Puts, gets or shows the configuration in a store.
pub(super) fn shard_config(global: &Global, action: &ShardConfigAction) -> ExitCode {
    let done = match action {
        ShardConfigAction::Put(options) => put_config(global, options),
        ShardConfigAction::Get { directory, store } => get(global, store, directory.as_deref()),
        ShardConfigAction::Show(store) => show(global, store),
    };
    done.unwrap_or_else(|code| code)
}

fn refused(global: &Global, code: u8, text: &str) -> ExitCode {
    report::fail(global.json, code, text, &format!("drover: {text}\n"))
}

fn failed<E: std::error::Error + 'static>(global: &Global) -> impl Fn(E) -> ExitCode + '_ {
    |error| refused(global, FAILED, &chain(&error))
}

fn put_config(global: &Global, options: &ShardPutOptions) -> Result<ExitCode, ExitCode> {
    let path = options.path.clone().unwrap_or_else(|| config_path(global));
    let environment = options.store.environment().for_stored();
    let checked = drover_config::load(&path, &environment)
        .map_err(|error| report::fail_to_load(global.json, USAGE, &error))?;
    report::warn(global.json, &checked);
    let spec = checked.service.store.clone().ok_or_else(|| refused(global, USAGE, NO_STORE))?;
    let files = files_of(&checked, path.is_dir());
    let vault = spec.address.vault().map_err(failed(global))?;
    let vault = SealedVault::new(vault, &spec.key);
    let is_marked = vault.is_marked().map_err(failed(global))?;
    let store = store_at((&spec.address, &spec.key), !options.dry_run);
    let store = store.map_err(failed(global))?;
    let (before, is_readable) = match store.read() {
        Err(error) if error.is_refusal() && options.force => (None, false),
        Err(error) if error.is_refusal() => {
            let help = "look for who wrote it; `--force` replaces it";
            return Err(refused(global, FAILED, &format!("{}: {help}", chain(&error))));
        }
        read => (read.map_err(failed(global))?, true),
    };
    let base = options.expect.map(Base::Number).or_else(|| base_beside(&path));
    if is_readable {
        based_on(base.as_ref(), before.as_ref()).map_err(|text| refused(global, FAILED, &text))?;
    }
    let by = (jiff::Timestamp::now().to_string(), who());
    let config = ShardConfig::after(before.as_ref(), files, by);
    let config = config.map_err(|error| refused(global, USAGE, &chain(&error)))?;
    let none = Files::new();
    let changed =
        file_changes(before.as_ref().map_or(&none, |one| &one.config.files), &config.files);
    let is_put = !changed.is_empty() && !options.dry_run;
    if is_put {
        if !is_marked {
            vault.mark().map_err(failed(global))?;
        }
        let done = match is_readable {
            true => store.put(before.as_ref(), &config),
            false => store.replace(&config),
        };
        done.map_err(failed(global))?;
    }
    let there = if is_put { Some(&config) } else { before.as_ref().map(|before| &before.config) };
    let number = there.map_or(0, |there| there.number);
    if let Some(there) = there.filter(|_| path.join(BASE).is_file() && !options.dry_run) {
        let kept = replace(&path.join(BASE), &format!("{}\n", there.id()), None);
        kept.map_err(|error| not_written(global, &path.join(BASE), &error))?;
    }
    let out = PutOut {
        store: spec.address.to_string(),
        number,
        put: is_put,
        changes: value_changes(before.as_ref(), &checked, (&path, &environment)),
        files: changed,
    };
    if global.json {
        return Ok(put_value(global.output(), &out, ExitCode::SUCCESS));
    }
    Ok(put(false, &put_text(&out, options.dry_run), ExitCode::SUCCESS))
}

const NO_STORE: &str =
    "no store is named: give --store, or --storage, --bucket and --shard, and --cluster-key-file";

fn store_at(
    (address, key): (&StoreAddress, &ClusterKey),
    is_written: bool,
) -> Result<ConfigStore, ShardConfigError> {
    Ok(ConfigStore::new(address.patient_register(is_written)?, key))
}

/// The files of a configuration by the names that they have in the store.
fn files_of(checked: &Checked, is_folder: bool) -> Files {
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match file_name(&name) {
            None if !is_folder => SINGLE.to_owned(),
            Some(_) | None => name,
        }
    };
    let files = checked.sources.files().iter();
    files.map(|file| (name(&file.path), file.text().to_owned())).collect()
}

/// What `get` wrote beside the files.
fn base_beside(path: &Path) -> Option<Base> {
    let text = fs::read_to_string(path.join(BASE)).ok()?;
    let text = text.trim();
    Some(text.parse().map_or_else(|_| Base::Id(text.to_owned()), Base::Number))
}

/// Refuses an edit of what is not the configuration in the store any more.
fn based_on(base: Option<&Base>, found: Option<&Found>) -> Result<(), String> {
    let Some(base) = base else { return Ok(()) };
    let (is_same, yours) = match base {
        Base::Number(number) => {
            (*number == found.map_or(0, |found| found.config.number), number.to_string())
        }
        Base::Id(id) => (found.is_some_and(|found| found.config.id() == *id), clean(id)),
    };
    if is_same {
        return Ok(());
    }
    let Some(Found { config, .. }) = found else {
        return Err(format!(
            "the store has no configuration, and yours is based on {yours}: nothing was put. If nobody took it \
             away on purpose, put yours there with `--expect 0`"
        ));
    };
    let there = match base {
        Base::Number(_) => config.number.to_string(),
        Base::Id(_) => config.id(),
    };
    Err(format!(
        "the store has configuration {there}, put by {} at {}, and yours is based on {yours}: nothing was put. \
         Get the one in the store with `drover shard-config get DIR`, and make your change there",
        clean(&config.put_by),
        clean(&config.put_at)
    ))
}

/// Which files differ.
fn file_changes(before: &Files, after: &Files) -> Vec<FileChange> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let change = |name: &String| {
        let change = match (before.get(name), after.get(name)) {
            (Some(before), Some(after)) if before == after => return None,
            (Some(_), Some(_)) => "changed",
            (None, _) => "added",
            (Some(_), None) => "removed",
        };
        Some(FileChange { file: name.clone(), change })
    };
    names.into_iter().filter_map(change).collect()
}

/// Which values differ; none where the configuration before has faults here.
fn value_changes(
    before: Option<&Found>,
    checked: &Checked,
    (path, environment): (&Path, &Environment),
) -> Option<Vec<ValueChange>> {
    let Some(before) = before else { return Some(Vec::new()) };
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    let files = before.config.files.iter();
    let files = files.map(|(name, text)| (folder.join(name), text.clone())).collect();
    let before = drover_config::check(Sources::of_files(files), environment).ok()?;
    Some(changes(&values(&before, environment), &values(checked, environment)))
}

fn put_text(out: &PutOut, dry_run: bool) -> String {
    let PutOut { store, number, files, .. } = out;
    if files.is_empty() {
        return format!("{store}: configuration {number} has these files already\n");
    }
    let mut text = String::new();
    for FileChange { file, change } in files {
        text += &format!("{}: {change}\n", clean(file));
    }
    match &out.changes {
        Some(changes) => {
            text.extend(changes.iter().map(|change| format!("  {}\n", clean(&change.to_string()))));
        }
        None => text += "  the configuration before has faults here, so values are not compared\n",
    }
    text += &match dry_run {
        true => format!("{store}: nothing was put\n"),
        false => {
            format!("{store}: configuration {number} is put; its members take it within seconds\n")
        }
    };
    text
}

/// The user and machine that put a configuration.
fn who() -> String {
    let user = std::env::var("USER").unwrap_or_else(|_| format!("uid {}", getuid().as_raw()));
    format!("{user}@{}", crate::host::host_name())
}

/// The configuration in the store that the options name, else the configuration of this machine.
fn found(global: &Global, options: &StoreOptions) -> Result<(String, Found), ExitCode> {
    let environment = options.environment();
    let (address, key) = store_of_environment(&environment).or_else(|text| {
        let checked = drover_config::load(&config_path(global), &environment).ok();
        let spec = checked.and_then(|checked| checked.service.store);
        let spec = spec.ok_or_else(|| refused(global, USAGE, &text))?;
        let StoreSpec { address, key, .. } = spec;
        Ok::<_, ExitCode>((address, key))
    })?;
    let read = store_at((&address, &key), false).and_then(|store| store.read());
    let found = read.map_err(failed(global))?.ok_or_else(|| {
        let text =
            format!("{address} has no configuration: `drover shard-config put` puts one there");
        refused(global, FAILED, &text)
    })?;
    Ok((address.to_string(), found))
}

fn get(
    global: &Global,
    options: &StoreOptions,
    directory: Option<&Path>,
) -> Result<ExitCode, ExitCode> {
    let (store, Found { config, .. }) = found(global, options)?;
    let names: Vec<&String> = config.files.keys().collect();
    if let Some(directory) = directory {
        write_into(global, directory, &config)?;
        let value = json!({
            "store": store, "number": config.number,
            "directory": directory.display().to_string(), "files": names,
        });
        if global.json {
            return Ok(put_value(global.output(), &value, ExitCode::SUCCESS));
        }
        let shown = directory.display();
        let text = format!(
            "{shown}: configuration {} of {store}; put it back with `drover shard-config put {shown}`\n",
            config.number
        );
        return Ok(put(false, &text, ExitCode::SUCCESS));
    }
    if global.json {
        let value = json!({ "store": store, "number": config.number, "files": config.files });
        return Ok(put_value(global.output(), &value, ExitCode::SUCCESS));
    }
    let mut text = String::new();
    for (name, file) in &config.files {
        if config.files.len() > 1 {
            text += &format!("# file: {}\n", clean(name));
        }
        text += file;
        if !file.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(put(false, &text, ExitCode::SUCCESS))
}

fn not_written(global: &Global, path: &Path, error: &std::io::Error) -> ExitCode {
    refused(global, FAILED, &format!("{} cannot be written: {error}", path.display()))
}

/// Writes the files for their owner alone into a folder without any of its own.
fn write_into(global: &Global, directory: &Path, config: &ShardConfig) -> Result<(), ExitCode> {
    let written = |path: &PathBuf, text: &str| {
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| not_written(global, path, &error))
    };
    if directory.exists() && !yaml_in(directory).is_ok_and(|files| files.is_empty()) {
        let text = format!(
            "{} has YAML files, or is no folder: name a new folder, since nothing is overwritten",
            directory.display()
        );
        return Err(refused(global, USAGE, &text));
    }
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| not_written(global, directory, &error))?;
    for (name, text) in &config.files {
        written(&directory.join(name), text)?;
    }
    written(&directory.join(BASE), &format!("{}\n", config.id()))
}

fn show(global: &Global, options: &StoreOptions) -> Result<ExitCode, ExitCode> {
    let (store, Found { config, .. }) = found(global, options)?;
    if global.json {
        let files: BTreeMap<&String, usize> =
            config.files.iter().map(|(name, text)| (name, text.len())).collect();
        let value = json!({
            "store": store, "number": config.number, "putAt": config.put_at,
            "putBy": config.put_by, "fileBytes": files,
        });
        return Ok(put_value(global.output(), &value, ExitCode::SUCCESS));
    }
    let mut text = format!(
        "store:  {store}\nnumber: {}\nput:    {} by {}\n",
        config.number,
        clean(&config.put_at),
        clean(&config.put_by)
    );
    for (name, file) in &config.files {
        text += &format!("file:   {} ({} bytes)\n", clean(name), file.len());
    }
    Ok(put(false, &text, ExitCode::SUCCESS))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::sync::Arc;

    use drover_vault::MemoryRegister;

    use super::*;

    fn files(all: &[(&str, &str)]) -> Files {
        all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    // Invariant: a put says what it changes, and what it is based on.

    #[test]
    fn files_that_differ_are_named_with_how() {
        let before = files(&[("a.yaml", "1"), ("b.yaml", "1"), ("c.yaml", "1")]);
        let after = files(&[("a.yaml", "1"), ("b.yaml", "2"), ("d.yaml", "1")]);
        let all = file_changes(&before, &after);
        let all: Vec<_> = all.iter().map(|one| (&*one.file, one.change)).collect();
        assert_eq!(all, [("b.yaml", "changed"), ("c.yaml", "removed"), ("d.yaml", "added")]);
        assert_eq!(file_changes(&after, &after), []);
    }

    #[test]
    fn an_edit_of_an_older_configuration_is_refused() {
        let (zero, three) = (Base::Number(0), Base::Number(3));
        assert_eq!(based_on(None, None), Ok(()));
        assert_eq!(based_on(Some(&zero), None), Ok(()));
        let refused = based_on(Some(&three), None).unwrap_err();
        assert!(refused.contains("no configuration, and yours is based on 3"), "{refused}");
    }

    #[test]
    fn an_edit_of_another_configuration_with_the_same_number_is_refused() {
        let key = ClusterKey::new(&"0123456789abcdef0123456789abcdef".into()).unwrap();
        let store = ConfigStore::new(Arc::new(MemoryRegister::default()), &key);
        let config = |text: &str| {
            let by = ("2026-11-28T09:00:00Z".to_owned(), "ops@lab".to_owned());
            ShardConfig::after(None, files(&[("drover.yaml", text)]), by).unwrap()
        };
        store.put(None, &config("a: 1")).unwrap();
        let found = store.read().unwrap();
        let same = Base::Id(config("a: 1").id());
        assert_eq!(based_on(Some(&same), found.as_ref()), Ok(()));
        assert_eq!(based_on(Some(&Base::Number(1)), found.as_ref()), Ok(()));
        let other = Base::Id(config("a: 2").id());
        let refused = based_on(Some(&other), found.as_ref()).unwrap_err();
        insta::assert_snapshot!(refused, @"the store has configuration 000001-57538e5eb3ab, put by ops@lab at 2026-11-28T09:00:00Z, and yours is based on 000001-b9e4f32d4fad: nothing was put. Get the one in the store with `drover shard-config get DIR`, and make your change there");
        assert!(based_on(Some(&Base::Id("damaged".to_owned())), found.as_ref()).is_err());
    }

    #[test]
    fn what_is_beside_the_files_is_an_id_or_the_number_of_an_older_drover() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(base_beside(dir.path()), None);
        let base = |text: &str| {
            fs::write(dir.path().join(BASE), text).unwrap();
            base_beside(dir.path()).unwrap()
        };
        assert_eq!(base("7\n"), Base::Number(7));
        assert_eq!(base("000007-1a2b3c4d5e6f\n"), Base::Id("000007-1a2b3c4d5e6f".to_owned()));
    }

    #[test]
    fn the_text_of_a_put_ends_with_what_was_done() {
        let change = FileChange { file: "a.yaml".to_owned(), change: "changed" };
        let mut out = PutOut {
            store: "s3://ci/lab".to_owned(),
            number: 4,
            put: true,
            files: vec![change],
            changes: None,
        };
        let text = put_text(&out, false);
        assert!(
            text.starts_with("a.yaml: changed\n  the configuration before has faults"),
            "{text}"
        );
        assert!(text.ends_with("configuration 4 is put; its members take it within seconds\n"));
        assert!(put_text(&out, true).ends_with("nothing was put\n"));
        out.files.clear();
        assert_eq!(put_text(&out, false), "s3://ci/lab: configuration 4 has these files already\n");
    }
}
