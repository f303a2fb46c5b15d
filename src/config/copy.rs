//! Copies a template (`drover template copy`): the text of the new one, and its place in a file.

use std::path::{Path, PathBuf};

use serde_yaml::{Mapping, Value as Yaml};

use super::edit::{EditError, faulty, read, request};
use super::keys::AGENT;
use super::node;
use super::origin;
use super::source::Sources;
use super::{Checked, Environment, check};
use drover_api::nearest;

/// The section of templates.
const SECTION: &str = "agentConfigurations";

/// A request to copy a template.
#[derive(Debug, Clone, Copy)]
pub struct CopyRequest<'a> {
    /// The template to copy.
    pub old: &'a str,
    /// The new template's key.
    pub new: &'a str,
    /// Values of its own, `key=value` each.
    pub set: &'a [String],
    /// The file to write it into; none to print it.
    pub into: Option<&'a Path>,
}

/// The result of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Copied {
    /// The text to put into a configuration.
    Text(String),
    /// The whole text of the file with it.
    File(PathBuf, String),
}

/// Makes the copy, and checks the configuration with it.
///
/// # Errors
/// [`EditError`]; nothing is written either way.
pub fn copy(
    path: &Path,
    environment: &Environment,
    want: CopyRequest<'_>,
) -> Result<Copied, EditError> {
    let sources = read(path)?;
    let before = check(sources.clone(), environment);
    let before = before.map_err(faulty("the configuration has faults as it is"))?;
    let values = values(&before, want)?;
    let block = block(want.new, values)?;
    let (with, copied) = match want.into {
        None => {
            let text = format!("{SECTION}:\n{}", indented(&block, 2));
            // In the directory of the other files, for the relative paths in it.
            let file = if path.is_dir() { path.join("copy") } else { path.with_file_name("copy") };
            (sources.with(&file, Some("the copy"), &text), Copied::Text(text))
        }
        Some(file) => {
            let file = file_in(&sources, path, file)?;
            let known = sources.files().iter().find(|one| one.path == file);
            let text = insert(known.map_or("", |one| one.text.as_str()), &block)?;
            (sources.with(&file, None, &text), Copied::File(file, text))
        }
    };
    let after = check(with, environment);
    let after = after.map_err(faulty("with the copy the configuration would have faults"))?;
    let same =
        before.herd.templates.iter().all(|(id, old)| after.herd.templates.get(id) == Some(old));
    let added = after.layers.contains_key(want.new);
    if !same || !added {
        return Err(request(
            "the copy would change other templates; write it into the file by hand",
        ));
    }
    Ok(copied)
}

/// The effective values of the old template with those of the new one's own.
fn values(before: &Checked, want: CopyRequest<'_>) -> Result<Mapping, EditError> {
    let CopyRequest { old, new, set, .. } = want;
    let known = || before.layers.keys().map(String::as_str);
    let Some(layer) = before.layers.get(old) else {
        let help = match nearest(old, known()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known are {}", known().collect::<Vec<_>>().join(", ")),
        };
        return Err(request(format!("unknown template `{old}`; {help}")));
    };
    if before.layers.contains_key(new) {
        return Err(request(format!("template `{new}` already exists; choose another name")));
    }
    if new.trim().is_empty() || new.contains(|c: char| c == '/' || c.is_control()) {
        return Err(request("the new template needs a name without `/`"));
    }
    let mut values = layer.to_yaml();
    // Display names are unique on a cloud; the key of the copy is its name.
    values.remove("name");
    for pair in set {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(request(format!("`--set {pair}` is not KEY=VALUE, such as cores=4")));
        };
        if !AGENT.iter().any(|one| one.name == key) {
            let near = nearest(key, AGENT.iter().map(|one| one.name));
            let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            return Err(request(format!("unknown key `{key}` of a template{near}")));
        }
        let value = node::value(value)
            .map_err(|fault| request(format!("the value of `{key}` is not YAML: {fault}")))?;
        for other in origin::group_of(key) {
            values.remove(*other);
        }
        if value.is_null() {
            values.remove(key);
        } else {
            values.insert(Yaml::from(key), value);
        }
    }
    Ok(values)
}

/// The new template as text of its own, not indented.
fn block(new: &str, values: Mapping) -> Result<String, EditError> {
    let mut all = Mapping::new();
    all.insert(Yaml::from(new), Yaml::Mapping(values));
    serde_yaml::to_string(&all)
        .map_err(|error| request(format!("the copy cannot be written as YAML: {error}")))
}

fn indented(block: &str, depth: usize) -> String {
    let lines = block.lines().map(|line| match line {
        "" => "\n".to_owned(),
        line => format!("{:depth$}{line}\n", ""),
    });
    lines.collect()
}

/// The file to write into: one of the configuration's own, or a new one in its directory.
fn file_in(sources: &Sources, path: &Path, file: &Path) -> Result<PathBuf, EditError> {
    let whole = |path: &Path| path.canonicalize().ok();
    let own = |one: &&super::SourceFile| {
        one.path == file || whole(&one.path).is_some_and(|known| Some(known) == whole(file))
    };
    if let Some(found) = sources.files().iter().find(own) {
        return Ok(found.path.clone());
    }
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let here = path.is_dir() && whole(parent).is_some() && whole(parent) == whole(path);
    if here && !file.exists() && super::source::is_yaml(file) {
        return Ok(file.to_owned());
    }
    let names: Vec<_> = sources.files().iter().map(|one| format!("`{}`", one.name)).collect();
    Err(request(format!(
        "`{}` is not a file of the configuration at `{}`: give one of {}, or a new one in its directory",
        file.display(),
        path.display(),
        names.join(", ")
    )))
}

/// A file's text with the block after the last template of its section; every other line stays.
fn insert(text: &str, block: &str) -> Result<String, EditError> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let begin = lines.iter().position(|line| line.starts_with(&format!("{SECTION}:")));
    let Some(begin) = begin else {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return Ok(format!("{text}{gap}{SECTION}:\n{}", indented(block, 2)));
    };
    let rest = lines[begin].trim_start_matches(SECTION).trim_start_matches(':').trim();
    if !rest.is_empty() && !rest.starts_with('#') {
        return Err(request(format!(
            "the file has `{SECTION}` in one line; first put each template on a line of its own"
        )));
    }
    let blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let inside = |line: &&&str| line.starts_with(' ') || blank(line);
    let end = begin + 1 + lines[begin + 1..].iter().take_while(inside).count();
    // A comment before the next section belongs to that one, an indented comment to this one.
    let last =
        lines[begin..end].iter().rposition(|line| line.starts_with(' ') && !line.trim().is_empty());
    let at = begin + last.unwrap_or(0) + 1;
    let first = lines[begin + 1..end].iter().find(|line| !blank(line));
    let depth = first.map_or(2, |line| line.len() - line.trim_start_matches(' ').len());
    let mut whole: String = lines[..at].concat();
    if !whole.ends_with('\n') {
        whole.push('\n');
    }
    whole.push_str(&indented(block, depth));
    whole.push_str(&lines[at..].concat());
    Ok(whole)
}
