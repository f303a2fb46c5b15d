//! What a table looks like.

use jiff::Timestamp;

use super::*;

const COLUMNS: &[Column] = &[
    column("ID", Kind::Id, 0),
    column("NAME", Kind::Name, 0),
    column("STATE", Kind::State, 1),
    column("ASKED", Kind::Time, 2),
    column("SIZE", Kind::Number, 3),
    column("LABELS", Kind::Name, 4),
    column("DETAIL", Kind::Text, 1),
];

fn now() -> Timestamp {
    "2026-11-21T08:11:02Z".parse().unwrap_or_default()
}

fn terminal(width: usize) -> View {
    View { width: Some(width), wide: false, whole: false, utc: false, ..View::complete(now()) }
}

fn row(id: &str, name: &str, tone: Tone, at: &str, size: &str, detail: &str) -> Vec<Cell> {
    vec![
        Cell::of(id),
        Cell::of(name),
        Cell::State(format!("{tone:?}").to_lowercase(), tone),
        Cell::Time(format!("2026-11-21T{at}Z")),
        Cell::of(size),
        Cell::list(&["linux".to_owned(), "x64".to_owned()]),
        Cell::of(detail),
    ]
}

fn some() -> Table {
    let long =
        "no address in `10.0.0.0/8`: set `guestNetworks` to the networks that drover may use";
    Table::new(
        COLUMNS,
        vec![
            row("4f8z1c3px9t2vkab", "lab/linux", Tone::Good, "08:10:50", "512 MiB", ""),
            row("4f8z1c3qx9t2vkab", "lab/windows", Tone::Busy, "08:00:00", "8192 MiB", long),
            row(
                "9abcdef012345678",
                "lab/日本語",
                Tone::Bad,
                "07:00:00",
                "70 MiB",
                "絵文字🚚の説明",
            ),
            row("zz9zzzzzzzzzzzzz", "office/mac", Tone::Gone, "09:11:02", "", "\u{1b}[2Jgone"),
        ],
    )
}

// Invariant: a table fits its terminal, is whole where it must be, and cannot move the cursor.

#[test]
fn a_table_is_as_wide_as_its_terminal_at_most() {
    let table = some();
    let mut all = String::new();
    for width in [30, 60, 80, 120, 200] {
        let text = table.draw(&terminal(width));
        all += &format!("{width} columns\n{text}\n");
        for line in text.lines() {
            assert!(unicode_width::UnicodeWidthStr::width(line) <= width, "{width}: {line}");
        }
    }
    let wide = View { wide: true, ..terminal(80) };
    let whole = View { whole: true, ..terminal(80) };
    let utc = View { utc: true, ..terminal(120) };
    for (name, view) in
        [("wide", wide), ("whole", whole), ("utc", utc), ("pipe", View::complete(now()))]
    {
        all += &format!("{name}\n{}\n", table.draw(&view));
    }
    insta::assert_snapshot!("widths", all);
}

#[test]
fn states_are_coloured_and_alignment_does_not_change_by_it() {
    let plain = some().draw(&terminal(80));
    let coloured = some().draw(&View { color: true, ..terminal(80) });
    let mut stripped = coloured.clone();
    while let Some(start) = stripped.find('\u{1b}') {
        let end = stripped[start..].find('m').map_or(stripped.len(), |end| start + end + 1);
        stripped.replace_range(start..end, "");
    }
    let trimmed = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    assert_eq!(trimmed(&stripped), trimmed(&plain));
    insta::assert_snapshot!("colours", coloured.replace('\u{1b}', "␛"));
}

// Invariant: prose is never cut: it goes on below, in its column.

#[test]
fn prose_goes_on_in_its_own_column_and_loses_nothing() {
    const COLUMNS: &[Column] = &[
        column("ABOUT", Kind::Text, 0),
        column("RAISED", Kind::Time, 1),
        column("ALARM", Kind::Prose, 0),
        column("RUN", Kind::Prose, 0),
    ];
    let text = "refused, the old configuration stays: agentConfigurations.linux.instanceCap: expected \
                a whole number, found text (/etc/drover/proxmox-cloud-of-the-office.yaml:32:18)";
    let row = |about: &str, text: &str, run: &str| {
        let at = Cell::Time("2026-11-21T08:10:50Z".to_owned());
        vec![Cell::of(about), at, Cell::of(text), Cell::of(run)]
    };
    let table = Table::new(
        COLUMNS,
        vec![
            row("configuration", text, "drover check"),
            row("agent a3", "`lock: clone` stays", ""),
        ],
    );
    let narrow = table.draw(&terminal(80));
    let words = |text: &str| text.split_whitespace().map(str::len).sum::<usize>();
    let all = format!("ABOUT RAISED ALARM RUN configuration 12s ago {text} drover check agent a3");
    assert_eq!(words(&narrow), words(&all) + words("12s ago `lock: clone` stays"));
    assert!(
        narrow.lines().all(|line| unicode_width::UnicodeWidthStr::width(line) <= 80),
        "{narrow}"
    );
    insta::assert_snapshot!(narrow);
}

// Invariant: several filters must all hold, and a key that a list does not have is named with those it has.

fn order(
    filters: &[(&str, &str)],
    sort: Option<&str>,
    is_reversed: bool,
) -> Result<Vec<usize>, Unknown> {
    let filters = filters.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    some().order(&Order { filters, sort: sort.map(Into::into), is_reversed })
}

#[test]
fn rows_are_chosen_by_what_their_columns_hold() {
    for (filters, expected) in [
        (&[("state", "BUSY")][..], &[1][..]),
        (&[("label", "linux")], &[0, 1, 2, 3]),
        (&[("label", "lin")], &[]),
        (&[("label", "linux"), ("state", "good")], &[0]),
        (&[("id", "4f8z1c")], &[0, 1]),
        (&[("name", "lab/linux")], &[0]),
        (&[("name", "linux")], &[0]),
        (&[("detail", "GuestNetworks")], &[1]),
        (&[("size", "-")], &[3]),
    ] {
        assert_eq!(order(filters, None, false).as_deref(), Ok(expected), "{filters:?}");
    }
    let unknown = order(&[("colour", "red")], None, false).err();
    let known = ["id", "name", "state", "asked", "size", "labels", "detail"].map(str::to_owned);
    assert_eq!(unknown, Some(Unknown { key: "colour".into(), known: known.into() }));
    assert!(order(&[], Some("colour"), false).is_err());
}

#[test]
fn rows_are_sorted_by_what_their_columns_mean_and_those_without_come_last() {
    assert_eq!(order(&[], Some("size"), false), Ok(vec![2, 0, 1, 3]));
    assert_eq!(order(&[], Some("size"), true), Ok(vec![1, 0, 2, 3]));
    assert_eq!(order(&[], Some("asked"), false), Ok(vec![2, 1, 0, 3]));
    assert_eq!(order(&[], Some("state"), false), Ok(vec![2, 1, 3, 0]));
}

// Invariant: a sentence is broken between its words, and its first word may stand out.

#[test]
fn a_long_sentence_is_broken_between_words() {
    let mut page = Page::new(&View { color: true, ..terminal(40) });
    page.heading("CLOUDS");
    page.toned(Tone::Bad, "ALARM", " for 2m: agent a1: `lock: clone` stays and no task runs\u{7}");
    page.line("  run: qm unlock 10420 # and a word_that_is_longer_than_the_terminal_is_wide stays");
    page.line("");
    page.heading("LEASES");
    page.table(&some(), &[], "none");
    insta::assert_snapshot!("sentences", page.into_text().replace('\u{1b}', "␛"));
}
