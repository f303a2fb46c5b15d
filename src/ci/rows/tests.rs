//! Lists that change while they are read, and rows that are asked for one by one.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::cell::RefCell;

use super::*;

fn read(pages: &[(&[u64], Option<usize>)], to_end: bool) -> (Vec<u64>, bool) {
    let mut reading = Reading::new();
    for (rows, total) in pages {
        reading.page(rows.iter().map(|id| (*id, *id)), *total);
    }
    let list = reading.end(to_end);
    (list.rows, list.whole)
}

// Invariant: a list that was cut, or that changed while it was read, is not complete.

#[test]
fn a_list_is_whole_when_no_row_came_twice_and_all_that_are_counted_came() {
    assert_eq!(read(&[(&[1, 2], Some(3)), (&[3], Some(3))], true), (vec![1, 2, 3], true));
    assert_eq!(read(&[(&[1, 2], None), (&[3], None)], true), (vec![1, 2, 3], true));
    assert!(!read(&[(&[1, 2], Some(3)), (&[3], Some(3))], false).1, "cut");
    assert_eq!(read(&[(&[1, 2], Some(4)), (&[2, 3], Some(4))], true), (vec![1, 2, 3], false));
    assert!(!read(&[(&[1, 2], None), (&[2, 3], None)], true).1, "shifted down");
    assert!(!read(&[(&[1, 2], Some(4)), (&[4], Some(3))], true).1, "shifted up");
    assert!(!read(&[(&[1, 2], Some(4)), (&[4], Some(4))], true).1, "short");
}

#[test]
fn what_is_read_last_of_a_row_counts() {
    let mut reading = Reading::new();
    reading.page([(1, "idle")], None);
    reading.page([(1, "busy")], None);
    assert_eq!(reading.end(true).rows, ["busy"]);
}

fn name(n: u64) -> RunnerName {
    RunnerName::new(format!("drover-7k2m9qxw-{n:016}"))
}

fn known(all: &[u64]) -> Known {
    all.iter().map(|n| (name(*n), BTreeSet::new())).collect()
}

// Invariant: each runner has its turn, however many there are.

#[test]
fn those_asked_for_longest_ago_are_asked_for_next() {
    let (ids, now) = (RowIds::default(), Instant::now());
    let many = u64::try_from(ROWS_ASKED_PER_POLL).unwrap() * 2 + 5;
    let all = || (0..many).map(name).collect();
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let (asked, gone) = ids.turn(all(), now);
        assert_eq!((asked.len(), gone.len()), (ROWS_ASKED_PER_POLL, 0));
        seen.extend(asked);
    }
    assert_eq!(seen.len(), ROWS_ASKED_PER_POLL * 2 + 5);
}

#[test]
fn others_rows_are_not_kept_and_names_may_have_several() {
    let ids = RowIds::default();
    ids.learn("theirs", 1);
    assert_eq!(ids.of(&RunnerName::new("theirs")), BTreeSet::new());
    ids.learn(name(1).as_str(), 7);
    ids.learn(name(1).as_str(), 5);
    assert_eq!(ids.of(&name(1)), [5, 7].into());
    ids.forget(&name(1));
    assert!(ids.of(&name(1)).is_empty());
    assert_eq!(ids.owner(7), None);
}

#[derive(Debug, Clone, PartialEq)]
struct Plain(u64, String);

impl Row for Plain {
    fn number(&self) -> Option<u64> {
        Some(self.0)
    }

    fn name(&self) -> &str {
        &self.1
    }

    fn rename(&mut self, name: &RunnerName) {
        self.1 = name.to_string();
    }
}

/// A source with rows by their numbers; `None` is a row that is answered with an error.
#[derive(Default)]
struct Source {
    ids: RowIds,
    rows: BTreeMap<u64, Option<Plain>>,
    asked: RefCell<Vec<u64>>,
}

impl Source {
    fn put(&mut self, id: u64, name: &str) {
        self.rows.insert(id, Some(Plain(id, name.to_owned())));
    }

    /// A poll whose list shows the rows with these numbers.
    async fn poll(&self, listed: &[u64], known: &Known) -> PolledRunners<Plain> {
        let rows = listed.iter().filter_map(|id| self.rows[id].clone()).collect();
        let list = Listing { rows, whole: false };
        let read = |id: u64| {
            self.asked.borrow_mut().push(id);
            let status = |status| DemandError::Status {
                call: format!("GET {id}"),
                status,
                text: String::new(),
            };
            let row = match self.rows.get(&id) {
                Some(Some(row)) => Ok(row.clone()),
                Some(None) => Err(status(500)),
                None => Err(status(404)),
            };
            std::future::ready(row)
        };
        let find = |name: RunnerName| async move { self.ids.by_number(&name, read).await };
        self.ids.seen(list, known, find).await.unwrap()
    }
}

fn names(seen: &PolledRunners<Plain>) -> Vec<&str> {
    seen.rows.iter().map(Row::name).collect()
}

// Invariant: a row belongs to the runner that it was made for, whatever it is called now.

#[tokio::test]
async fn a_row_that_somebody_renamed_is_known_by_its_number_listed_or_not() {
    let mut source = Source::default();
    source.put(7, name(1).as_str());
    source.poll(&[7], &known(&[1])).await;
    source.put(7, "the fast one");
    for listed in [&[7][..], &[]] {
        let seen = source.poll(listed, &known(&[1])).await;
        assert_eq!((names(&seen), seen.gone.len()), (vec![name(1).as_str()], 0), "{listed:?}");
    }
    // A number that was given again belongs to another runner.
    source.put(7, name(2).as_str());
    let seen = source.poll(&[], &known(&[1])).await;
    assert_eq!((names(&seen), seen.gone.clone()), (vec![], [name(1)].into()));
}

#[tokio::test]
async fn a_row_is_asked_for_by_the_numbers_that_an_earlier_start_wrote_down() {
    let mut source = Source::default();
    source.put(7, "the fast one");
    let reported: Known =
        [(name(1), [7].into()), (name(2), [8].into()), (name(3), [].into())].into();
    let seen = source.poll(&[], &reported).await;
    assert_eq!((names(&seen), seen.gone.clone()), (vec![name(1).as_str()], [name(2)].into()));
    assert_eq!(seen.numbers, [(name(1), [7].into()), (name(2), [8].into())].into());
}

#[tokio::test]
async fn the_numbers_of_a_runner_are_reported_as_soon_as_a_list_shows_it_though_nobody_asks_for_it()
{
    let mut source = Source::default();
    source.put(7, name(1).as_str());
    source.put(8, "theirs");
    let seen = source.poll(&[7, 8], &Known::new()).await;
    assert_eq!(seen.numbers, [(name(1), [7].into())].into());
}

// Invariant: a failure with one row affects that row alone.

#[tokio::test]
async fn a_row_that_is_answered_with_an_error_is_unknown_and_the_others_are_seen() {
    let mut source = Source::default();
    for n in [1, 2, 3] {
        source.put(n, name(n).as_str());
    }
    source.poll(&[1, 2, 3], &known(&[1, 2, 3])).await;
    source.rows.insert(2, None);
    source.rows.remove(&3);
    let seen = source.poll(&[], &known(&[1, 2, 3])).await;
    assert_eq!((names(&seen), seen.gone.clone()), (vec![name(1).as_str()], [name(3)].into()));
}

#[tokio::test]
async fn a_login_that_is_refused_is_no_fault_of_a_row() {
    let ids = RowIds::default();
    ids.learn(name(1).as_str(), 1);
    for status in [401, 403, 404, 429] {
        let list = Listing::<Plain> { rows: Vec::new(), whole: true };
        let find = |_| async move {
            let (call, text) = (String::new(), String::new());
            Err(DemandError::Status { call, status, text })
        };
        assert!(ids.seen(list, &known(&[1]), find).await.is_err(), "{status}");
    }
}

// Invariant: a row that does not exist is asked for ever less often, and counts as gone all the
// while.

#[tokio::test]
async fn a_row_that_was_not_there_is_gone_without_being_asked_for_at_each_look() {
    let mut source = Source::default();
    source.put(7, name(1).as_str());
    source.poll(&[7], &known(&[1])).await;
    source.rows.clear();
    for _ in 0..20 {
        assert_eq!(source.poll(&[], &known(&[1])).await.gone, [name(1)].into());
    }
    assert_eq!(*source.asked.borrow(), [7], "once");
    source.put(7, name(1).as_str());
    assert_eq!(names(&source.poll(&[7], &known(&[1])).await), [name(1).as_str()]);
    source.rows.clear();
    source.poll(&[], &known(&[1])).await;
    assert_eq!(source.asked.borrow().len(), 2, "it was there again");
}

#[test]
fn the_pauses_before_a_row_that_was_not_there_is_asked_for_grow() {
    let (ids, start) = (RowIds::default(), Instant::now());
    let mut asked = Vec::new();
    for second in 0..3600 {
        let now = start + Duration::from_secs(second);
        let (due, gone) = ids.turn([name(1)].into(), now);
        assert_eq!(due.len() + gone.len(), 1);
        if !due.is_empty() {
            ids.miss(&name(1), now);
            asked.push(second);
        }
    }
    assert_eq!(asked, [0, 5, 15, 35, 75, 155, 315, 635, 1235, 1835, 2435, 3035]);
}

// Invariant: a runner whose rows are not known does not count as removed by an incomplete list.

#[test]
fn a_list_that_was_cut_and_does_not_show_a_runner_is_an_error() {
    let ids = RowIds::default();
    let list = |whole| Listing { rows: vec![Plain(1, "theirs".into())], whole };
    assert!(ids.numbers(list(false), &name(1)).is_err());
    assert_eq!(ids.numbers(list(true), &name(1)).unwrap(), [].into());
    ids.learn(name(1).as_str(), 7);
    assert_eq!(ids.numbers(list(false), &name(1)).unwrap(), [7].into());
}
