//! The book and the sources: references from one to the other, files that pages name, and the text that
//! is generated from golden tables.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "references/phases.rs"]
mod phases;
#[path = "references/reasons.rs"]
mod reasons;
#[path = "references/simulator.rs"]
mod simulator;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use tree::{files, root};

/// Folders and files whose texts may refer to the book.
const SOURCES: [&str; 5] = ["actors", "src", "tests", "configs", "README.md"];
/// How names of such files end.
const ENDINGS: [&str; 8] = ["rs", "yaml", "txt", "toml", "sh", "ps1", "py", "md"];
/// Names of the notes from before the book. Each is written in two parts, so that this file is none of
/// the places.
const FORMER: [&str; 6] = [
    concat!("behaviour ", "section"),
    concat!("design ", "rule"),
    concat!("agent-", "machine"),
    concat!("design", ".md"),
    concat!("behaviour", ".md"),
    concat!("Invariant: ", "section"),
];
/// The end of a generated part of a page.
const END: &str = "<!-- end of generated -->";
/// Golden tables that pages show, in order of their page.
const TABLES: [Table; 9] = [
    Table { title: "", file: "agent", page: "agents", mark: "agent transitions", stays: false },
    Table::of("A template", "template"),
    Table::of("A cloud", "cloud"),
    Table::of("A VMID of a cluster", "cluster"),
    Table::of("A runner of a source", "demand"),
    Table::of("A lease in the scheduler", "scheduler"),
    Table::of("A guest in the reconciler", "reconciler"),
    Table::of("A build of an image", "builder"),
    Table::of("A declared machine", "keeper"),
];
/// Set to have the generated part of a page written again.
const WRITE: &str = "DROVER_WRITE_BOOK";

fn book() -> PathBuf {
    root().join("src/book")
}

fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap().display().to_string()
}

fn sources() -> Vec<PathBuf> {
    let mut all: Vec<_> = SOURCES.iter().flat_map(|of| files(&root().join(of), &ENDINGS)).collect();
    all.retain(|file| !file.starts_with(book()) && !file.ends_with("tests/references.rs"));
    all
}

fn pages() -> Vec<PathBuf> {
    files(&book(), &["md"])
}

/// A line without the mark of a comment; none where it is no comment.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    ["///", "//!", "//", "#"].iter().find_map(|mark| line.strip_prefix(mark)).map(str::trim)
}

/// A text as one line, without the marks of comments.
fn joined(text: &str) -> String {
    let bare = |line| comment(line).unwrap_or_else(|| str::trim(line));
    text.lines().map(bare).collect::<Vec<_>>().join(" ")
}

/// The comments of a source as one line.
fn comments(text: &str) -> String {
    text.lines().filter_map(comment).collect::<Vec<_>>().join(" ")
}

/// The numbers that begin a text, as in `4 and 5)` or `4, 13 and 19,`.
fn numbers(text: &str) -> Vec<u32> {
    let mut all = Vec::new();
    let mut rest = text;
    loop {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let Ok(number) = digits.parse() else { return all };
        all.push(number);
        rest = &rest[digits.len()..];
        match [", ", " and "].iter().find_map(|gap| rest.strip_prefix(gap)) {
            Some(next) => rest = next,
            None => return all,
        }
    }
}

/// What a comment refers to.
#[derive(Debug, PartialEq)]
struct Reference {
    page: String,
    /// Anchors of the sections or rules that it names.
    anchors: Vec<String>,
    /// What stands there where it names neither: it begins with a heading.
    text: String,
}

/// Each `book: PAGE, …` of a text.
fn references(text: &str) -> Vec<Reference> {
    let mut all = Vec::new();
    for rest in text.split("book: ").skip(1) {
        let page: String =
            rest.chars().take_while(|ch| ch.is_ascii_lowercase() || "-/".contains(*ch)).collect();
        let Some(rest) = rest[page.len()..].strip_prefix(", ").filter(|_| !page.is_empty()) else {
            continue;
        };
        let mut anchors = Vec::new();
        for word in ["section", "rule"] {
            if let Some(rest) = rest.strip_prefix(word) {
                let rest = rest.strip_prefix('s').unwrap_or(rest).trim_start();
                anchors.extend(numbers(rest).iter().map(|number| format!("{word}-{number}")));
            }
        }
        all.push(Reference { page, anchors, text: rest.to_lowercase() });
    }
    all
}

/// The headings of a page, in lower case.
fn headings(page: &str) -> Vec<String> {
    let (mut all, mut fence) = (Vec::new(), None);
    for line in page.lines() {
        let ticks = line.trim_start().chars().take_while(|ch| *ch == '`').count();
        match fence {
            None if ticks >= 3 => fence = Some(ticks),
            Some(open) if ticks >= open => fence = None,
            None | Some(_) => {}
        }
        if let Some(heading) = line.strip_prefix('#').filter(|_| fence.is_none()) {
            all.push(heading.trim_start_matches('#').trim().to_lowercase());
        }
    }
    all
}

/// The anchors of a page: those that it gives, and those of its headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let given = page.split("<a id=\"").skip(1);
    let given = given.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    let kept = |ch: &char| ch.is_alphanumeric() || " -_".contains(*ch);
    let anchor =
        |heading: String| heading.chars().filter(kept).collect::<String>().replace(' ', "-");
    given.chain(headings(page).into_iter().map(anchor)).collect()
}

// Invariant: what a comment refers to is in the book.

#[test]
fn every_reference_to_the_book_has_its_page_and_its_place_there() {
    let (mut found, mut faults) = (0, Vec::new());
    for file in sources() {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        for Reference { page, anchors: wanted, text } in references(&comments(&text)) {
            found += u32::from(!wanted.is_empty());
            let Ok(there) = std::fs::read_to_string(book().join(format!("{page}.md"))) else {
                // Without a number it may speak of another book, such as that of leases.
                if !wanted.is_empty() {
                    faults.push(format!("{}: there is no page `{page}`", shown(&file)));
                }
                continue;
            };
            let given = anchors(&there);
            for anchor in wanted.iter().filter(|anchor| !given.contains(*anchor)) {
                faults.push(format!("{}: page `{page}` has no `{anchor}`", shown(&file)));
            }
            let is_named = |heading: &String| text.starts_with(heading.as_str());
            if wanted.is_empty() && !headings(&there).iter().any(is_named) {
                let text: String = text.chars().take(40).collect();
                faults.push(format!("{}: page `{page}` has no heading `{text}`", shown(&file)));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(found > 50, "only {found} references were found: is their form still the same?");
}

#[test]
fn no_source_refers_to_notes_that_are_not_in_the_repository() {
    let mut faults = Vec::new();
    for file in sources() {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let line = joined(&text);
        let lower = line.to_lowercase();
        for former in FORMER.iter().filter(|former| lower.contains(&former.to_lowercase())) {
            faults.push(format!("{}: `{former}`", shown(&file)));
        }
    }
    assert!(faults.is_empty(), "write them as `book: PAGE, section N`:\n{}", faults.join("\n"));
}

// Invariant: what a page refers to is there.

/// Paths of this repository that a page names in code spans.
fn named(page: &str) -> Vec<&str> {
    let spans = page.lines().filter(|line| !line.starts_with("```"));
    let spans = spans.flat_map(|line| line.split('`').skip(1).step_by(2));
    let begins = ["actors/", "src/", "tests/", "configs/", ".ci/"];
    let is_path = |span: &&str| {
        begins.iter().any(|begin| span.starts_with(begin))
            && !span.contains(['*', '{', '<', ' ', '…'])
    };
    spans.filter(is_path).map(|span| span.trim_end_matches('/')).collect()
}

#[test]
fn every_file_that_a_page_names_is_there() {
    let mut faults = Vec::new();
    for file in pages() {
        let text = std::fs::read_to_string(&file).unwrap();
        for path in named(&text).into_iter().filter(|path| !root().join(path).exists()) {
            faults.push(format!("{}: `{path}`", shown(&file)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

// Invariant: what is generated says what its golden table says.

/// A golden table and its place in the book.
struct Table {
    /// The heading; none where the page has its own.
    title: &'static str,
    /// The folder of its actor.
    file: &'static str,
    page: &'static str,
    mark: &'static str,
    /// Whether the page also shows what follows where the state stays.
    stays: bool,
}

/// One row of a golden table: the events by which one state leads to another.
struct Move {
    from: String,
    to: String,
    effects: String,
    events: Vec<String>,
}

impl Table {
    const fn of(title: &'static str, file: &'static str) -> Self {
        Self { title, file, page: "minds", mark: "other transitions", stays: true }
    }

    fn path(&self) -> PathBuf {
        root().join("actors/src").join(self.file).join("transitions.txt")
    }

    /// What the page says; nothing for a mind without a table.
    fn text(&self) -> String {
        let Ok(table) = std::fs::read_to_string(self.path()) else { return String::new() };
        let title = match self.title {
            "" => String::new(),
            title => format!("\n## {title}\n\nFrom `{}`.\n\n", shown(&self.path())),
        };
        let (states, moves) = moves(&table);
        format!("{title}{}\n{}", drawing(&states, &moves), rows(&states, &moves, self.stays))
    }
}

/// The states of a golden table, and its moves in order of both states.
fn moves(table: &str) -> (Vec<String>, Vec<Move>) {
    let mut states: Vec<String> = Vec::new();
    let mut moves: BTreeMap<(usize, String), Vec<String>> = BTreeMap::new();
    for line in table.lines().filter(|line| !line.trim().is_empty()) {
        let (state, rest) = line.split_once("  ").or_else(|| line.split_once(' ')).unwrap();
        let at = states.iter().position(|known| known == state).unwrap_or_else(|| {
            states.push(state.to_owned());
            states.len() - 1
        });
        let (events, to) = rest.trim().split_once(" -> ").unwrap();
        let known = moves.entry((at, to.to_owned())).or_default();
        for event in events.split(" | ").filter(|event| !event.is_empty()) {
            if !known.iter().any(|one| one == event) {
                known.push(event.to_owned());
            }
        }
    }
    let read = |((at, to), events): ((usize, String), Vec<String>)| {
        let (to, effects) = to.split_once(", ").unwrap_or((&to, ""));
        let effects = effects.trim_start_matches("then ").to_owned();
        Move { from: states[at].clone(), to: to.to_owned(), effects, events }
    };
    let moves: Vec<Move> = moves.into_iter().map(read).collect();
    // One that is only entered has no lines of its own.
    for Move { to, .. } in moves.iter().filter(|one| one.to != "stay") {
        if !states.contains(to) {
            states.push(to.clone());
        }
    }
    (states, moves)
}

/// The changes of state as a diagram, each arrow with its first events.
fn drawing(states: &[String], moves: &[Move]) -> String {
    const LABELS: usize = 3;
    let mut arrows: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for Move { from, to, events, .. } in moves.iter().filter(|one| one.to != "stay") {
        let events = events.iter().map(String::as_str);
        match arrows.iter_mut().find(|(a, b, _)| a == from && b == to) {
            Some((.., known)) => known.extend(events),
            None => arrows.push((from, to, events.collect())),
        }
    }
    let plain = |state: &str| state.replace(|ch: char| !ch.is_ascii_alphanumeric(), "_");
    let mut text = String::from("```mermaid\nstateDiagram-v2\n");
    for state in states.iter().filter(|state| plain(state) != **state) {
        writeln!(text, "    state \"{state}\" as {}", plain(state)).unwrap();
    }
    for (from, to, mut events) in arrows {
        if events.len() > LABELS {
            let mut known = BTreeSet::new();
            events = events.iter().map(|event| event.split(": ").next().unwrap()).collect();
            events.retain(|event| known.insert(*event));
        }
        let more = if events.len() > LABELS { ", …" } else { "" };
        events.truncate(LABELS);
        // A colon would end the label.
        let events = events.iter().map(|event| match event.split_once(": ") {
            Some((event, which)) => format!("{event} ({which})"),
            None => (*event).to_owned(),
        });
        let events = events.collect::<Vec<_>>().join(", ");
        writeln!(text, "    {} --> {} : {events}{more}", plain(from), plain(to)).unwrap();
    }
    text.push_str("```\n");
    text
}

/// The moves as a table for people.
fn rows(states: &[String], moves: &[Move], stays: bool) -> String {
    let mut page = String::from(match stays {
        true => "| from | to | by | effects |\n|---|---|---|---|\n",
        false => "| from | to | by |\n|---|---|---|\n",
    });
    for state in states {
        let shown = |one: &&Move| one.to != "stay" || (stays && !one.effects.is_empty());
        let own: Vec<&Move> = moves.iter().filter(|one| one.from == *state).filter(shown).collect();
        let last = if stays { " |" } else { "" };
        if own.is_empty() {
            writeln!(page, "| `{state}` | – | |{last}").unwrap();
        }
        for (n, Move { to, effects, events, .. }) in own.into_iter().enumerate() {
            let from = if n == 0 { format!("`{state}`") } else { String::new() };
            let to = if to == "stay" { "stays".to_owned() } else { format!("`{to}`") };
            let effects = if stays { format!(" {effects} |") } else { String::new() };
            writeln!(page, "| {from} | {to} | {} |{effects}", grouped(events)).unwrap();
        }
    }
    page
}

/// Events by the call whose answers they are: `Call: one, two; Other: three`.
fn grouped(events: &[String]) -> String {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for event in events {
        let (call, answer) = event.split_once(": ").unwrap_or((event, ""));
        match groups.iter_mut().find(|(known, _)| known == call) {
            Some((_, answers)) => answers.push(answer),
            None => groups.push((call.to_owned(), vec![answer])),
        }
    }
    let each = groups.iter().map(|(call, answers)| match answers.as_slice() {
        [""] => call.clone(),
        _ => format!("{call}: {}", answers.join(", ")),
    });
    each.collect::<Vec<_>>().join("; ")
}

/// A page with this text as its generated part of that mark.
fn filled(page: &str, mark: &str, text: &str) -> String {
    let begin = format!("<!-- generated: {mark} -->");
    let (before, rest) = page.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    format!("{before}{begin}\n{text}{END}{after}")
}

/// A page with its generated parts as the golden tables and the code have them now.
fn generated(name: &str, page: &str) -> String {
    let mut page = page.to_owned();
    let marks: BTreeSet<&str> =
        TABLES.iter().filter(|table| table.page == name).map(|table| table.mark).collect();
    for mark in marks {
        let own = TABLES.iter().filter(|table| (table.page, table.mark) == (name, mark));
        page = filled(&page, mark, &own.map(Table::text).collect::<String>());
    }
    if name == "agents" { filled(&page, "agent phases", &phases::table()) } else { page }
}

#[test]
fn the_book_has_what_is_drawn_from_the_code() {
    for name in TABLES.iter().map(|table| table.page).collect::<BTreeSet<_>>() {
        let file = book().join(format!("{name}.md"));
        let page = std::fs::read_to_string(&file).unwrap();
        let wanted = generated(name, &page);
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&file, wanted).unwrap();
            continue;
        }
        assert!(
            page == wanted,
            "{}: `{WRITE}=1 cargo test --test references` writes its tables again:\n{wanted}",
            shown(&file)
        );
    }
}

// Invariant: what these tests read is read rightly.

#[test]
fn references_are_read_over_lines_and_in_the_plural() {
    let text = "/// Why (book: proxmox,\n/// section 5), and book: safety, rules 4 and 5.\n\
                let book: keys, \n// book: agents, Marks";
    let all = references(&comments(text));
    let read = |n: usize| (all[n].page.as_str(), all[n].anchors.join(" "));
    assert_eq!(all.len(), 3, "{all:?}");
    assert_eq!(read(0), ("proxmox", "section-5".to_owned()));
    assert_eq!(read(1), ("safety", "rule-4 rule-5".to_owned()));
    assert_eq!((read(2), all[2].text.as_str()), (("agents", String::new()), "marks"));
}

#[test]
fn a_golden_table_is_read_with_its_effects_and_its_stays() {
    let (states, moves) =
        moves("closed     Failed | Tick -> stay, then Record\n\nopen       Tick -> closed\n");
    assert_eq!(states, ["closed", "open"]);
    let drawn = drawing(
        &states,
        &[Move {
            to: "open".into(),
            from: "closed".into(),
            effects: String::new(),
            events: vec!["Failed".into()],
        }],
    );
    assert!(drawn.contains("closed --> open : Failed\n"), "{drawn}");
    let table = rows(&states, &moves, true);
    assert!(table.contains("| `closed` | stays | Failed; Tick | Record |\n"), "{table}");
    assert!(table.contains("| `open` | `closed` | Tick |  |\n"), "{table}");
}
