#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write as _;

use drover_history::{Agent, Kept, MadeFor, Peaks};

use super::*;

const DAY: i64 = 24 * 60 * 60 * 1000;
const ALL: Range = Range { from: WallTime(0), to: WallTime(i64::MAX) };

fn keep(days: u64, bytes: u64) -> Keep {
    Keep { age: Duration::from_secs(days * 24 * 60 * 60), bytes }
}

fn agent(id: &str, made: i64, gone: Option<i64>) -> Line {
    Line::Agent(Box::new(Agent {
        id: id.into(),
        template: "lab/linux".into(),
        cloud: "lab".into(),
        node: None,
        cores: Some(2),
        memory_mib: Some(2048),
        made_for: MadeFor::Pool,
        made: WallTime(made),
        machine: Some(WallTime(made)),
        ready: None,
        boot: Vec::new(),
        after: Vec::new(),
        gone: gone.map(WallTime),
        reason: None,
        failed_in: None,
        fault: None,
        uses: 0,
        peaks: Peaks::default(),
    }))
}

fn ids(folder: &Path, range: Range) -> Vec<String> {
    let mut ids = Vec::new();
    reading::read(folder, range, &mut |line| {
        if let Line::Agent(agent) = line {
            let end = agent.gone.map_or("", |_| " gone");
            ids.push(format!("{}{end}", agent.id));
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    ids
}

fn append(files: &mut Files, now: i64, kept: &[Kept], open: &[Line]) {
    let open = open.iter().cloned().map(Kept::Open).collect();
    files.append(WallTime(now), kept, || open);
}

fn names(folder: &Path) -> Vec<u64> {
    reading::listed(folder).unwrap().into_iter().map(|(number, _)| number).collect()
}

// Invariant: a record is given once, as it was last, and one that goes on comes last.

#[test]
fn a_record_is_read_once_however_often_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Files::new(folder.path().to_owned(), keep(90, 1 << 30), WallTime(0));
    append(&mut files, 10, &[], &[]);
    let open = |line| Kept::Open(line);
    append(&mut files, 20, &[open(agent("a", 20, None)), open(agent("b", 20, None))], &[]);
    append(&mut files, 30, &[open(agent("a", 20, None)), open(agent("c", 30, None))], &[]);
    append(&mut files, 40, &[Kept::Closed(agent("b", 20, Some(40)))], &[]);
    assert_eq!(ids(folder.path(), ALL), ["b gone", "a", "c"]);
    let early = Range { from: WallTime(0), to: WallTime(25) };
    assert_eq!(ids(folder.path(), early), ["b gone", "a"]);
    let late = Range { from: WallTime(50), to: WallTime(60) };
    assert_eq!(ids(folder.path(), late), ["a", "c"]);
}

// Invariant: a start knows from the newest file alone what was open, whatever a death left in it.

#[test]
fn a_torn_line_costs_itself_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let mut files = Files::new(path.clone(), keep(90, 1 << 30), WallTime(0));
    append(&mut files, 10, &[], &[agent("a", 5, None)]);
    append(&mut files, 20, &[Kept::Open(agent("b", 20, None))], &[]);
    let file = path.join("000000000001.jsonl");
    let mut torn = fs::OpenOptions::new().append(true).open(&file).unwrap();
    torn.write_all(b"{\"closed\":{\"agent\":{\"id\":\"a\",").unwrap();
    let (open, last) = reading::open(&path).unwrap();
    assert_eq!((open.len(), last), (2, WallTime(20)));
    let mut next = Files::new(path.clone(), keep(90, 1 << 30), last);
    append(&mut next, 30, &[Kept::Closed(agent("b", 20, Some(30)))], &open);
    assert_eq!(names(&path), [1]);
    assert_eq!(ids(&path, ALL), ["b gone", "a"]);
    let seen = reading::read(&path, ALL, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((seen.unread, seen.since), (1, Some(WallTime(10))));
}

// Invariant: a file that was full keeps what is over, and the next one has what is open.

#[test]
fn the_next_file_begins_with_what_is_open_and_the_one_before_keeps_what_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let mut files = Files::new(path.clone(), keep(90, 1 << 20), WallTime(0));
    append(&mut files, 10, &[], &[]);
    let many = (0..400).map(|n| Kept::Open(agent(&format!("x{n}"), 20, None)));
    let over = (0..400).map(|n| Kept::Closed(agent(&format!("x{n}"), 20, Some(30))));
    let all: Vec<Kept> = many.chain(over).chain([Kept::Open(agent("a", 30, None))]).collect();
    append(&mut files, 30, &all, &[]);
    let before = fs::metadata(path.join("000000000001.jsonl")).unwrap().len();
    append(&mut files, 40, &[Kept::Closed(agent("y", 35, Some(40)))], &[agent("a", 30, None)]);
    assert_eq!(names(&path), [1, 2]);
    let after = fs::metadata(path.join("000000000001.jsonl")).unwrap().len();
    assert!(after < before * 6 / 10, "{after} of {before}");
    let read = ids(&path, ALL);
    assert_eq!((read.len(), &read[400..]), (402, &["y gone".to_owned(), "a".to_owned()][..]));
    assert_eq!(reading::open(&path).unwrap().0, [agent("a", 30, None)]);
    // What was over before a range is not read for it.
    assert_eq!(ids(&path, Range { from: WallTime(35), to: WallTime(50) }), ["y gone", "a"]);
}

#[test]
fn a_file_that_was_not_shortened_leaves_nothing_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let mut files = Files::new(path.clone(), keep(90, 1 << 30), WallTime(0));
    append(&mut files, 10, &[Kept::Open(agent("a", 5, None))], &[]);
    append(&mut files, 20, &[Kept::Open(agent("b", 20, None))], &[]);
    // The end of `a` was lost with the disk's room, and the file before stayed as it was.
    let next = [
        Kept::Head { format: drover_history::FORMAT, from: WallTime(30) },
        Kept::Open(agent("b", 20, None)),
    ];
    let text: String =
        next.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
    fs::write(path.join("000000000002.jsonl"), text).unwrap();
    assert_eq!(ids(&path, ALL), ["b"]);
}

#[test]
fn open_records_that_are_more_than_a_file_begin_no_file_with_each_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    // A file has 64 KiB, and what is open has more.
    let mut files = Files::new(path.clone(), keep(90, 1 << 20), WallTime(0));
    let open: Vec<Line> = (0..500).map(|n| agent(&format!("x{n}"), 20, None)).collect();
    for turn in 0..10 {
        append(&mut files, 30 + turn, &[Kept::Open(agent("y", 20, None))], &open);
    }
    assert_eq!(names(&path), [1]);
    assert!(fs::metadata(path.join("000000000001.jsonl")).unwrap().len() > 64 << 10);
    let many = (0..500).map(|n| Kept::Closed(agent(&format!("z{n}"), 20, Some(30))));
    append(&mut files, 50, &many.collect::<Vec<_>>(), &open);
    append(&mut files, 60, &[], &open);
    assert_eq!(names(&path), [1, 2], "what came since then counts");
}

// Invariant: what ends is written, however much else is left out.

/// A clock that a test can hold.
struct Held(Mutex<()>);

impl Ambient for Held {
    fn now(&self) -> drover_model::time::Now {
        let _goes_on = self.0.lock();
        drover_model::time::Now { mono: drover_model::time::Moment(0), wall: WallTime(1000) }
    }

    fn draw(&self) -> u64 {
        0
    }
}

#[test]
fn an_end_for_which_the_queue_has_no_room_is_written_behind_what_came_before() {
    use drover_model::fact::What;
    use drover_model::id::{AgentId, TemplateId};
    use drover_model::phase::AgentPhase;
    use drover_model::record::Reason;
    use drover_model::status::AgentStatus;

    let folder = tempfile::tempdir().unwrap();
    let held = Arc::new(Held(Mutex::new(())));
    let history =
        History::with(folder.path(), keep(90, 1 << 30), Arc::clone(&held) as Arc<dyn Ambient>);
    let fact = |what| Fact { at: WallTime(1000), what };
    let (id, template) = (AgentId::new("a1"), TemplateId::new(CloudId::new("lab"), "linux"));
    let started = AgentStatus::started(id.clone(), template.clone(), WallTime(1000));
    let cloning = AgentStatus { phase: AgentPhase::Cloning, ..started };
    let cloning = fact(What::Agent(Arc::new(cloning)));
    let stalled = held.0.lock();
    while history.left_out.load(Ordering::Relaxed) == 0 {
        history.observe(&cloning);
    }
    let (reason, phases) = (Reason::Idle, Vec::new());
    history.observe(&fact(What::AgentGone { agent: id, template, reason, phases }));
    assert_eq!(history.left_out.load(Ordering::Relaxed), 1, "an end is not left out");
    drop(stalled);
    // The queue has room again at some time, and the end is taken with what came then.
    while !history.wait(Message::Flush) || !history.ends.lock().is_empty() {}
    assert!(history.wait(Message::Stop));
    assert_eq!(ids(&folder.path().join(FOLDER), ALL), ["a1 gone"]);
}

// Invariant: the oldest files go by age and by size, and the newest one never.

#[test]
fn the_oldest_files_go_by_age() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    for day in 0..4 {
        let mut files = Files::new(path.clone(), keep(2, 1 << 30), WallTime(day * DAY));
        // Each begins its own file.
        fs::create_dir_all(&path).unwrap();
        let text = format!("{{\"head\":{{\"format\":1,\"from\":{}}}}}\n", day * DAY);
        fs::write(path.join(format!("{:012}.jsonl", day + 1)), text).unwrap();
        files.configure(keep(2, 1 << 30));
    }
    assert_eq!(names(&path), [1, 2, 3, 4]);
    // The next one is started where the newest is no file of this format.
    fs::write(path.join("000000000005.jsonl"), "{\"head\":{\"format\":9}}\n").unwrap();
    let mut files = Files::new(path.clone(), keep(2, 1 << 30), WallTime(0));
    append(&mut files, 4 * DAY + 1, &[], &[]);
    assert_eq!(names(&path), [3, 4, 5, 6]);
    let foreign = fs::read_to_string(path.join("000000000005.jsonl")).unwrap();
    assert_eq!(foreign, "{\"head\":{\"format\":9}}\n");
}

#[test]
fn the_oldest_files_go_by_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let mut files = Files::new(path.clone(), keep(90, 200 << 10), WallTime(0));
    for turn in 0..20 {
        let over = (0..100)
            .map(|n| Kept::Closed(agent(&format!("{turn}-{n}"), 10 * turn, Some(10 * turn + 5))));
        append(&mut files, 10 * turn + 5, &over.collect::<Vec<_>>(), &[]);
    }
    let bytes: u64 = reading::listed(&path)
        .unwrap()
        .iter()
        .map(|(_, path)| fs::metadata(path).unwrap().len())
        .sum();
    assert!(bytes <= (200 << 10) + (128 << 10), "{bytes}");
    let numbers = names(&path);
    assert!(numbers[0] > 1 && numbers.len() > 1, "{numbers:?}");
    assert!(ids(&path, ALL).contains(&"19-99 gone".to_owned()));
}

#[test]
fn nothing_is_kept_where_the_history_is_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let mut files = Files::new(path.clone(), keep(90, 1 << 30), WallTime(0));
    append(&mut files, 10, &[Kept::Closed(agent("a", 5, Some(10)))], &[]);
    assert_eq!(names(&path), [1]);
    files.configure(keep(0, 1 << 30));
    append(&mut files, 20, &[Kept::Closed(agent("b", 5, Some(20)))], &[]);
    assert!(names(&path).is_empty());
    files.configure(keep(1, 1 << 30));
    append(&mut files, 30, &[], &[agent("c", 5, None)]);
    assert_eq!(ids(&path, ALL), ["c"]);
}

// Invariant: a clock that is set back hides no record from a range.

#[test]
fn a_clock_that_is_set_back_hides_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let mut files = Files::new(path.clone(), keep(90, 1 << 20), WallTime(0));
    append(&mut files, 10 * DAY, &[], &[]);
    let over: Vec<Kept> =
        (0..400).map(|n| Kept::Closed(agent(&format!("x{n}"), 9 * DAY, Some(10 * DAY)))).collect();
    append(&mut files, 10 * DAY, &over, &[]);
    // The next file is started a day earlier.
    append(&mut files, 9 * DAY, &[Kept::Closed(agent("y", 8 * DAY, Some(9 * DAY)))], &[]);
    assert_eq!(names(&path), [1, 2]);
    let range = Range { from: WallTime(9 * DAY + 1), to: WallTime(11 * DAY) };
    assert_eq!(ids(&path, range).len(), 400);
    assert_eq!(ids(&path, Range { from: WallTime(9 * DAY), ..range }).len(), 401);
}
