//! What a key of the configuration means, from the tables of keys.

use serde::Serialize;
use serde_yaml::Value as Yaml;

use super::keys::{Form, Key, Kind, NODE_DEFAULTS, NODE_DEFAULTS_HELP, Preset, SECTIONS, Table};
use drover_api::nearest;

/// A key, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// Its path, with `NAME` for the name of an entry.
    pub path: String,
    pub meaning: String,
    /// What its value must look like.
    pub value: String,
    /// The value where it is not given, as YAML; none where that is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Whether it must be given.
    pub required: bool,
    /// A value, as YAML.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example: Option<String>,
    /// Another spelling that drover takes for the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias: Option<&'static str>,
    /// The environment variable that gives it where no file does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<&'static str>,
    /// The keys in it, each with what it means.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<(&'static str, String)>,
}

/// A word that is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown key `{word}`{}; `drover config explain` lists the sections", did_you_mean(.near))]
pub struct UnknownKey {
    pub word: String,
    /// The key that is spelled most like it.
    pub near: Option<String>,
}

fn did_you_mean(near: &Option<String>) -> String {
    near.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

/// The sections of the top level, each with what it is for.
pub fn sections() -> Vec<(String, &'static str)> {
    let mut all: Vec<_> =
        SECTIONS.iter().map(|section| (section.name.to_owned(), section.help)).collect();
    let behind = all.iter().position(|(name, _)| name == "agentDefaults").map_or(0, |at| at + 1);
    all.insert(behind, (format!("{NODE_DEFAULTS}NODE"), NODE_DEFAULTS_HELP));
    all
}

/// What a word may stand for: a section, a path such as `agentDefaults.memoryMb`, or a bare key such as
/// `memoryMb`, which several places may have.
///
/// # Errors
/// [`UnknownKey`].
pub fn explain(word: &str) -> Result<Vec<Explained>, UnknownKey> {
    let all = all();
    let wanted = normal(word);
    let found = |rule: &dyn Fn(&Explained) -> bool| -> Vec<Explained> {
        all.iter().filter(|one| rule(one)).cloned().collect()
    };
    let by_path = found(&|one| is_path(&one.path, &wanted));
    if !by_path.is_empty() {
        return Ok(by_path);
    }
    let tail = format!(".{wanted}");
    let by_key = found(&|one| one.path.ends_with(&tail) || one.alias == Some(word));
    if !by_key.is_empty() {
        return Ok(by_key);
    }
    let last = wanted.rsplit('.').next().unwrap_or(&wanted);
    let keys = all.iter().map(|one| one.path.rsplit('.').next().unwrap_or(&one.path));
    let near = nearest(last, keys).map(|near| match wanted.rsplit_once('.') {
        Some((before, _)) => format!("{before}.{near}"),
        None => near.to_owned(),
    });
    Err(UnknownKey { word: word.to_owned(), near })
}

/// A path without the numbers of items of lists.
fn normal(word: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for c in word.chars() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            _ if inside => {}
            _ => text.push(c),
        }
    }
    text
}

/// Whether a path is this one, with any name where it has `NAME` or `NODE`.
fn is_path(path: &str, wanted: &str) -> bool {
    let (mut parts, mut words) = (path.split('.'), wanted.split('.'));
    loop {
        match (parts.next(), words.next()) {
            (None, None) => return true,
            (Some("NAME"), Some(_)) => {}
            (Some(part), Some(word)) => {
                let of_node =
                    part.strip_suffix("NODE").is_some_and(|start| word.starts_with(start));
                if part != word && !of_node {
                    return false;
                }
            }
            (Some(_), None) | (None, Some(_)) => return false,
        }
    }
}

/// Every section and every key.
fn all() -> Vec<Explained> {
    let mut all = Vec::new();
    for section in &SECTIONS {
        let (name, help) = (section.name, section.help);
        match section.form {
            Form::One(table) => of_section(name, help, name, table, &mut all),
            Form::Many(table) => of_section(name, help, &format!("{name}.NAME"), table, &mut all),
            Form::Kinds(kinds) => {
                let meaning = help.to_owned();
                let keys =
                    kinds.iter().map(|(kind, ..)| (*kind, format!("an entry of kind {kind}")));
                let value = "mapping of names to entries, each with a `kind`".to_owned();
                all.push(plain(name.to_owned(), meaning, value, keys.collect()));
                let mut known: Vec<Explained> = Vec::new();
                kinds
                    .iter()
                    .for_each(|(.., table)| keys_of(table, &format!("{name}.NAME"), &mut known));
                for one in known {
                    if !all.contains(&one) {
                        all.push(one);
                    }
                }
            }
        }
        if name == "agentDefaults"
            && let Form::One(table) = section.form
        {
            let name = format!("{NODE_DEFAULTS}NODE");
            of_section(&name, NODE_DEFAULTS_HELP, &name, table, &mut all);
        }
    }
    all
}

fn of_section(name: &str, help: &str, path: &str, table: &Table, all: &mut Vec<Explained>) {
    let value = if name == path { "mapping" } else { "mapping of names to entries" };
    let keys = table.iter().map(|key| (key.name, key.meaning())).collect();
    all.push(plain(name.to_owned(), help.to_owned(), value.to_owned(), keys));
    keys_of(table, path, all);
}

fn plain(
    path: String,
    meaning: String,
    value: String,
    keys: Vec<(&'static str, String)>,
) -> Explained {
    Explained {
        path,
        meaning,
        value,
        default: None,
        required: false,
        example: None,
        alias: None,
        variable: None,
        keys,
    }
}

/// The keys of a table under a path, and those of the mappings in them.
fn keys_of(table: &Table, of: &str, all: &mut Vec<Explained>) {
    for key in table.iter() {
        let path = format!("{of}.{}", key.name);
        let inner = key.kind.table();
        let keys = inner.into_iter().flat_map(Table::iter);
        all.push(Explained {
            path: path.clone(),
            meaning: key.meaning(),
            value: kind(key.kind),
            default: key.default().map(|value| spelled(&value)),
            required: key.preset == Preset::Required,
            example: Some(key.example).filter(|text| !text.is_empty()).map(str::to_owned),
            alias: key.alias,
            variable: key.variable,
            keys: keys.map(|key: &Key| (key.name, key.meaning())).collect(),
        });
        if let Some(table) = inner {
            keys_of(table, &path, all);
        }
    }
}

/// A value in one line.
pub(super) fn spelled(value: &Yaml) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// What a value must look like, in words.
pub(super) fn kind(kind: Kind) -> String {
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Whole(least, most) => format!("number, {least} to {most}"),
        Kind::ZeroOr(least, most) => format!("0, or a number, {least} to {most}"),
        Kind::Memory(least, most) => format!("MiB, {least} to {most}, or such as `4Gi`"),
        Kind::Flag => "true or false".to_owned(),
        Kind::Choice(words) => {
            words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        }
        Kind::Texts => "list of texts".to_owned(),
        Kind::Wholes => "list of numbers".to_owned(),
        Kind::Names => "mapping of names to texts".to_owned(),
        Kind::Lists => "mapping of names to lists of texts".to_owned(),
        Kind::Mapping(_) => "mapping, see below".to_owned(),
        Kind::Mappings(_) => "list of mappings, see below".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    // Invariant: every key is explained from its one entry, however it is named.

    #[test]
    fn a_key_is_found_by_its_path_in_any_entry_and_by_its_name_alone() {
        let paths = |word: &str| -> Vec<String> {
            explain(word).unwrap().into_iter().map(|one| one.path).collect()
        };
        assert_eq!(
            paths("agentConfigurations.linux.memoryMb"),
            ["agentConfigurations.NAME.memoryMb"]
        );
        assert_eq!(paths("agentDefaults-pve1.memoryMb"), ["agentDefaults-NODE.memoryMb"]);
        assert!(paths("memoryMb").contains(&"agentDefaults.memoryMb".to_owned()));
        assert_eq!(paths("service.tokens[0].secretFile"), ["service.tokens.secretFile"]);
        assert_eq!(paths("service"), ["service"]);
    }

    #[test]
    fn a_slip_is_answered_with_the_nearest_key() {
        insta::assert_snapshot!(explain("agentDefaults.memoryMB").unwrap_err().to_string());
        insta::assert_snapshot!(explain("xyzzy").unwrap_err().to_string());
    }

    #[test]
    fn every_section_is_listed_and_explained() {
        for (name, help) in sections() {
            let found = explain(&name).unwrap();
            assert_eq!((found[0].path.as_str(), found[0].meaning.as_str()), (&*name, help));
            assert!(!found[0].keys.is_empty(), "{name}");
        }
    }
}
