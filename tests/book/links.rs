//! Links, anchors, and the list of pages.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use drover::cli::topics::PAGES;

use crate::{Document, documents, files, none_is, root};

/// The targets of a document's links, with the numbers of lines.
fn targets(document: &Document) -> Vec<(usize, String)> {
    let of_line = |(at, line): (usize, &str)| {
        // What stands between backquotes is no link.
        let bare: String = line.split('`').step_by(2).collect();
        let parts = bare.split("](").skip(1);
        let ends =
            parts.filter_map(|part| part.split_once(')').map(|(target, _)| target.to_owned()));
        ends.map(|target| (at, target)).collect::<Vec<_>>()
    };
    document.prose().into_iter().flat_map(of_line).collect()
}

/// The anchors of a document: those that it gives, and those of its headings.
fn anchors(document: &Document) -> BTreeSet<String> {
    let given = document.text.split("<a id=\"").skip(1);
    let given = given.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    let headings = document.prose().into_iter().filter(|(_, line)| line.starts_with('#'));
    let headings = headings.map(|(_, line)| anchor(line.trim_start_matches('#').trim()));
    given.chain(headings).collect()
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => plain.push(part),
        }
    }
    plain
}

// Invariant: anyone who follows a link arrives.

#[test]
fn every_link_and_anchor_leads_somewhere() {
    let mut wrong = Vec::new();
    for document in documents() {
        for (line, target) in targets(&document) {
            if target.starts_with("https://") || target.starts_with("http://") {
                continue;
            }
            let (file, wanted) = target.split_once('#').unwrap_or((&target, ""));
            let folder = document.path.parent().unwrap();
            let path = match file {
                "" => document.path.clone(),
                file => plain(&folder.join(file)),
            };
            let place = document.place(line);
            if !root().join(&path).exists() {
                wrong.push(format!("{place}: no file `{}`", path.display()));
            } else if !wanted.is_empty() && !anchors(&Document::read(&path)).contains(wanted) {
                wrong.push(format!("{place}: no heading `#{wanted}` in `{}`", path.display()));
            }
        }
    }
    none_is(&wrong);
}

#[test]
fn headings_become_anchors_as_on_the_web() {
    assert_eq!(anchor("A new root CA of a cluster"), "a-new-root-ca-of-a-cluster");
    assert_eq!(anchor("`drover help`: what it says"), "drover-help-what-it-says");
}

#[test]
fn the_summary_lists_each_page_and_drover_help_prints_them_in_its_order() {
    let folder = Path::new("src/book");
    let summary = Document::read(&folder.join("SUMMARY.md"));
    let listed: Vec<String> = targets(&summary).into_iter().map(|(_, target)| target).collect();
    let mut sorted = listed.clone();
    sorted.sort();
    let names = files(folder, &[".md"])
        .into_iter()
        .map(|path| path.strip_prefix(folder).unwrap().to_string_lossy().into_owned());
    let mut pages: Vec<String> = names.filter(|name| name != "SUMMARY.md").collect();
    pages.sort();
    assert_eq!(sorted, pages, "SUMMARY.md against the files beside it");
    let topics: Vec<String> = PAGES.iter().map(|page| format!("{}.md", page.topic)).collect();
    assert_eq!(listed, topics, "SUMMARY.md against `cli::topics::PAGES`");
}
