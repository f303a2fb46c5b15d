//! Which module of the actors, of the server and of the command line imports which. No module imports
//! itself over others, so each can be read after those that it imports. In the model, words are beneath
//! what is done with them.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{files, root};
use super::{is_test, production};

/// Each module with the modules that it imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Modules of the model that do something: the fold of the journal, the frame of the minds, and the
/// ways out. All others are vocabulary.
const BEHAVIOUR: [&str; 5] = ["journal_state", "layer", "operations", "ports", "state_machine"];

/// The roots of packages, and of the command line in its package.
const TOPS: [&str; 2] = ["lib.rs", "mod.rs"];

/// The code of a source without comments and without its tests.
fn code(text: &str) -> String {
    let lines = production(text).lines();
    lines.map(|line| line.split("//").next().unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// The first names of a path, or of each path in braces: `a` of `a::b`, `a` and `c` of `{a::b, c}`.
fn heads(path: &str) -> Vec<String> {
    let name = |part: &str| -> String {
        let part = part.trim_start();
        part.chars().take_while(|one| one.is_alphanumeric() || *one == '_').collect()
    };
    let Some(list) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut depth, mut heads, mut start) = (0_u32, Vec::new(), 0);
    for (at, one) in list.char_indices() {
        match one {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' if depth == 0 => {
                heads.push(name(&list[start..at]));
                start = at + 1;
            }
            '}' => {
                heads.push(name(&list[start..at]));
                break;
            }
            _other => {}
        }
    }
    heads.retain(|head| !head.is_empty());
    heads
}

/// The modules at the top of the package that a source imports. `depth` is the number of modules
/// above the source's items: that many `super::` lead to the top.
fn imports(text: &str, depth: usize) -> BTreeSet<String> {
    let code = code(text);
    let up = "super::".repeat(depth);
    let mut found = BTreeSet::new();
    for prefix in ["crate::", up.as_str()] {
        for (at, _) in code.match_indices(prefix) {
            let before = code[..at].chars().next_back();
            // Part of a longer path or of a longer name.
            let is_whole = before.is_none_or(|one| !one.is_alphanumeric() && !"_:".contains(one));
            if is_whole {
                found.extend(heads(&code[at + prefix.len()..]));
            }
        }
    }
    found
}

/// The path of a source's module under the package's root.
fn module_path(file: &str) -> &str {
    file.trim_end_matches(".rs").trim_end_matches("/mod")
}

/// The number of modules above what a module has.
fn depth(path: &str) -> usize {
    path.split('/').count()
}

/// The imports between the modules of sources, each with its path under the package's root.
fn between<'a>(sources: impl Iterator<Item = (&'a str, &'a str)>) -> Imports {
    let mut all = Imports::new();
    for (file, text) in sources.filter(|(file, _)| !TOPS.contains(file)) {
        let path = module_path(file);
        let module = path.split('/').next().unwrap_or(path).to_owned();
        all.entry(module).or_default().extend(imports(text, depth(path)));
    }
    let modules: BTreeSet<String> = all.keys().cloned().collect();
    for (module, imported) in &mut all {
        imported.retain(|other| other != module && modules.contains(other));
    }
    all
}

/// The modules that import themselves over others: what is left when modules that import nothing
/// that is left are taken away, and then modules that nothing left imports.
fn circles(mut all: Imports) -> Imports {
    loop {
        let known: BTreeSet<String> = all.keys().cloned().collect();
        all.values_mut().for_each(|imported| imported.retain(|other| known.contains(other)));
        let used: BTreeSet<String> = all.values().flatten().cloned().collect();
        let before = all.len();
        all.retain(|module, imported| !imported.is_empty() && used.contains(module));
        if all.len() == before {
            return all;
        }
    }
}

/// The sources in a folder, each with its path there, tests left out.
fn sources_in(folder: &str) -> Vec<(String, String)> {
    let folder = root().join(folder);
    let all = files(&folder, &["rs"]).into_iter().map(|path| {
        let file = path.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned();
        (file, std::fs::read_to_string(&path).unwrap())
    });
    all.filter(|(file, _)| !is_test(&format!("/{file}"))).collect()
}

/// The imports between the modules in a folder, tests left out.
fn imports_in(folder: &str) -> Imports {
    let all = sources_in(folder);
    between(all.iter().map(|(file, text)| (file.as_str(), text.as_str())))
}

/// Fails on a circle in a folder, and where the reader does not find an import that is there.
fn expect_no_circle(folder: &str, (module, imported): (&str, &str)) {
    let imports = imports_in(folder);
    assert!(imports[module].contains(imported), "the reader finds no imports: {imports:?}");
    let circles = circles(imports);
    assert!(circles.is_empty(), "move what both sides need into a module beneath: {circles:#?}");
}

// Invariant: the modules of the actors, of the server and of the command line import each other in one
// direction only.

#[test]
fn no_module_of_the_actors_imports_itself_over_others() {
    expect_no_circle("actors/src", ("herd", "cloud"));
}

#[test]
fn no_module_of_the_server_imports_itself_over_others() {
    expect_no_circle("src/server", ("routes", "leases"));
}

#[test]
fn no_module_of_the_command_line_imports_itself_over_others() {
    expect_no_circle("src/cli", ("remote", "lease"));
}

#[test]
fn no_re_export_at_the_top_hides_which_module_is_imported() {
    for folder in ["actors/src", "src/server", "src/cli"] {
        for (file, text) in sources_in(folder).iter().filter(|(file, _)| !TOPS.contains(&&**file)) {
            let imports = imports(text, depth(module_path(file)));
            let is_item = |name: &&String| name.starts_with(|first: char| first.is_uppercase());
            let hidden: Vec<_> = imports.iter().filter(is_item).collect();
            assert!(hidden.is_empty(), "{folder}/{file}: import {hidden:?} from their modules");
        }
    }
}

// Invariant: the vocabulary of the model knows nothing of what is done with it.

#[test]
fn no_vocabulary_of_the_model_imports_behaviour() {
    let imports = imports_in("actors/model");
    assert!(BEHAVIOUR.iter().all(|module| imports.contains_key(*module)), "{:?}", imports.keys());
    for (module, imported) in &imports {
        let upward: Vec<_> = imported.iter().filter(|one| BEHAVIOUR.contains(&&***one)).collect();
        let is_behaviour = BEHAVIOUR.contains(&module.as_str());
        assert!(is_behaviour || upward.is_empty(), "`{module}` imports {upward:?}");
    }
}

#[test]
fn the_reader_finds_a_planted_circle_in_every_spelling() {
    let apart = ("c.rs", "use crate::b::B;\n// crate::a is named here only\n");
    for back in [
        "use crate::a::A;",
        "use crate::{c::{C, D}, a};",
        "fn f() -> crate::a::A {}",
        "use super::super::a::A;",
    ] {
        let sources = [("a.rs", "use crate::b::{B, c};"), ("b/inner.rs", back), apart];
        let found = circles(between(sources.into_iter()));
        assert!(found.contains_key("a") && found.contains_key("b"), "{back}: {found:?}");
    }
}

#[test]
fn tests_comments_and_arrows_in_one_direction_are_no_circle() {
    for harmless in
        ["mod x;\nmod tests {\n    use crate::a::A;\n}", "//! crate::a", "use super::a::A;"]
    {
        let sources = [("a.rs", "use crate::b::B;"), ("b/inner.rs", harmless)];
        assert_eq!(circles(between(sources.into_iter())), Imports::new(), "{harmless}");
    }
}
