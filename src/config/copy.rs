//! A new template made of an existing one's values: its text, and its place in a file. Nothing is
//! written before the whole configuration was checked with it.

use std::path::{Path, PathBuf};

use serde_yaml::{Mapping, Value as Yaml};

use super::keys::AGENT;
use super::origin;
use super::source::Sources;
use super::{Checked, Environment, LoadError, check};
use drover_api::nearest;

/// The section that templates stand in.
const SECTION: &str = "agentConfigurations";

/// What is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// The template to copy.
    pub old: &'a str,
    /// The new template's key.
    pub new: &'a str,
    /// Values of its own, `key=value` each.
    pub set: &'a [String],
    /// The file to write it into; none to print it.
    pub into: Option<&'a Path>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Copied {
    /// The text to be put into a configuration.
    Text(String),
    /// The whole text of the file with it.
    File(PathBuf, String),
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The wish can not be fulfilled.
    #[error("{0}")]
    Wish(String),
    /// The configuration has faults, by itself or with the copy.
    #[error("{why}")]
    Faulty {
        /// Which of them.
        why: &'static str,
        /// What is wrong with it.
        #[source]
        source: Box<LoadError>,
    },
}

impl CopyError {
    /// The error as people read it.
    pub fn render(&self) -> String {
        match self {
            Self::Wish(text) => format!("drover: {text}\n"),
            Self::Faulty { why, source } => format!("drover: {why}:\n{}", source.render()),
        }
    }
}

fn wish(text: impl Into<String>) -> CopyError {
    CopyError::Wish(text.into())
}

/// Makes the copy, and checks the configuration with it.
///
/// # Errors
/// [`CopyError`]; nothing is written either way.
pub fn copy(path: &Path, environment: &Environment, want: Wish<'_>) -> Result<Copied, CopyError> {
    let faulty = |why| move |source| CopyError::Faulty { why, source: Box::new(source) };
    let unreadable = |(path, source)| LoadError::Io { path, source };
    let sources = Sources::read(path).map_err(unreadable);
    let sources = sources.map_err(faulty("the configuration can not be read"))?;
    let before = check(sources.clone(), environment);
    let before = before.map_err(faulty("the configuration has faults as it is"))?;
    let values = values(&before, want)?;
    let block = block(want.new, values)?;
    let (with, copied) = match want.into {
        None => {
            let text = format!("{SECTION}:\n{}", indented(&block, 2));
            // Beside the other files, where it would find what it names.
            let beside =
                if path.is_dir() { path.join("copy") } else { path.with_file_name("copy") };
            (sources.with(&beside, &text), Copied::Text(text))
        }
        Some(file) => {
            let file = file_in(&sources, path, file)?;
            let known = sources.files().iter().find(|one| one.path == file);
            let text = insert(known.map_or("", |one| one.text.as_str()), &block)?;
            (sources.with(&file, &text), Copied::File(file, text))
        }
    };
    let after = check(with, environment);
    let after = after.map_err(faulty("with the copy the configuration would have faults"))?;
    let same =
        before.herd.templates.iter().all(|(id, old)| after.herd.templates.get(id) == Some(old));
    let added = after.layers.contains_key(want.new);
    if !same || !added {
        return Err(wish("the copy would change other templates: put it into the file by hand"));
    }
    Ok(copied)
}

/// The effective values of the old template with those of the new one's own.
fn values(before: &Checked, want: Wish<'_>) -> Result<Mapping, CopyError> {
    let Wish { old, new, set, .. } = want;
    let known = || before.layers.keys().map(String::as_str);
    let Some(layer) = before.layers.get(old) else {
        return Err(wish(match nearest(old, known()) {
            Some(near) => format!("no template is called `{old}`; did you mean `{near}`?"),
            None => format!(
                "no template is called `{old}`; known are {}",
                known().collect::<Vec<_>>().join(", ")
            ),
        }));
    };
    if before.layers.contains_key(new) {
        return Err(wish(format!("a template is called `{new}` already: choose another name")));
    }
    if new.trim().is_empty() || new.contains(|c: char| c == '/' || c.is_control()) {
        return Err(wish("the new template needs a name without `/`"));
    }
    let mut values = layer.to_yaml(AGENT);
    // Display names are unique on a cloud; without one its key does.
    values.remove("name");
    for pair in set {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(wish(format!("`--set {pair}` is no KEY=VALUE, such as cores=4")));
        };
        if !AGENT.iter().any(|one| one.name == key) {
            let near = nearest(key, AGENT.iter().map(|one| one.name));
            let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            return Err(wish(format!("no key of a template is called `{key}`{near}")));
        }
        let value: Yaml = serde_yaml::from_str(value)
            .map_err(|error| wish(format!("the value of `{key}` is no YAML: {error}")))?;
        for other in origin::instead_of(key) {
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
fn block(new: &str, values: Mapping) -> Result<String, CopyError> {
    let mut all = Mapping::new();
    all.insert(Yaml::from(new), Yaml::Mapping(values));
    serde_yaml::to_string(&all)
        .map_err(|error| wish(format!("the copy can not be spelled: {error}")))
}

fn indented(block: &str, depth: usize) -> String {
    let lines = block.lines().map(|line| match line {
        "" => "\n".to_owned(),
        line => format!("{:depth$}{line}\n", ""),
    });
    lines.collect()
}

/// The file of the configuration that is meant: one of its own, or a new one in its directory.
fn file_in(sources: &Sources, path: &Path, file: &Path) -> Result<PathBuf, CopyError> {
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
    Err(wish(format!(
        "`{}` is no file of the configuration at `{}`: give one of {}, or a new one in its directory",
        file.display(),
        path.display(),
        names.join(", ")
    )))
}

/// A file's text with the block behind the last template of its section; every other line stays.
fn insert(text: &str, block: &str) -> Result<String, CopyError> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let begin = lines.iter().position(|line| line.starts_with(&format!("{SECTION}:")));
    let Some(begin) = begin else {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return Ok(format!("{text}{gap}{SECTION}:\n{}", indented(block, 2)));
    };
    let rest = lines[begin].trim_start_matches(SECTION).trim_start_matches(':').trim();
    if !rest.is_empty() && !rest.starts_with('#') {
        return Err(wish(format!(
            "`{SECTION}` is written in one line there: put each template on a line of its own first"
        )));
    }
    let blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let inside = |line: &&&str| line.starts_with(' ') || blank(line);
    let end = begin + 1 + lines[begin + 1..].iter().take_while(inside).count();
    // Comments before the next section are that section's, those that are indented this one's.
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
