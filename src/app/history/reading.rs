//! Reads the files of the history, one line after the other: what is in memory is one line and the records
//! that are open, however much the files have.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use drover_history::{FORMAT, Kept, Line, Range};
use drover_model::time::WallTime;
use drover_server::HistorySeen;

/// A longer line is none of drover's.
const LINE_MAX: u64 = 64 << 10;
/// How a line of a record that is over begins.
const CLOSED: &[u8] = b"{\"closed\"";

/// The files by number, the oldest first.
pub(super) fn listed(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_one = path.extension().is_some_and(|end| end == "jsonl");
        let number =
            path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        all.extend(number.filter(|_| is_one).map(|number: u64| (number, path)));
    }
    all.sort();
    Ok(all)
}

/// Gives each line of a file that can be read; counts those that cannot.
fn each(path: &Path, mut take: impl FnMut(&[u8]) -> ControlFlow<()>) -> io::Result<()> {
    let mut file = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = file.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        if line.pop() != Some(b'\n') {
            if read as u64 >= LINE_MAX {
                // The rest of it is no line.
                file.skip_until(b'\n')?;
                if take(b"?").is_break() {
                    return Ok(());
                }
            }
            // A line that is written just now, or torn by a death, is none yet.
            continue;
        }
        if !line.is_empty() && take(&line).is_break() {
            return Ok(());
        }
    }
}

/// When a file began; none where its first line is none of this format.
pub(super) fn head(path: &Path) -> io::Result<Option<WallTime>> {
    let mut found = None;
    each(path, |line| {
        if let Ok(Kept::Head { format: FORMAT, from }) = serde_json::from_slice(line) {
            found = Some(from);
        }
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// Whether a file ends with a whole line.
pub(super) fn ends_whole(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// A file without what the next one has: its first line, and records that are over.
pub(super) fn closed(path: &Path) -> io::Result<String> {
    let (mut text, mut is_first) = (Vec::new(), true);
    each(path, |line| {
        if std::mem::take(&mut is_first) || line.starts_with(CLOSED) {
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        ControlFlow::Continue(())
    })?;
    String::from_utf8(text).map_err(io::Error::other)
}

/// The records that were open at the end of the newest file, and the latest time in it.
pub(super) fn open(folder: &Path) -> io::Result<(Vec<Line>, WallTime)> {
    let (mut open, mut last) = (BTreeMap::new(), WallTime(0));
    if let Some((_, newest)) = listed(folder)?.pop() {
        each(&newest, |line| {
            match serde_json::from_slice(line) {
                Ok(Kept::Head { from: at, .. } | Kept::Alive(at)) => last = last.max(at),
                Ok(Kept::Open(line)) => {
                    last = last.max(line.started().unwrap_or(last));
                    follow(&mut open, line);
                }
                Ok(Kept::Closed(line)) => {
                    last = last.max(line.ended().unwrap_or(last));
                    line.name().map(|name| open.remove(&name));
                }
                Err(_) => {}
            }
            ControlFlow::Continue(())
        })?;
    }
    Ok((open.into_values().collect(), last))
}

fn follow(open: &mut BTreeMap<String, Line>, line: Line) {
    if let Some(name) = line.name() {
        open.insert(name, line);
    }
}

/// Gives each record of a range: those that are over as they come, then those that go on.
pub(super) fn read(
    folder: &Path,
    range: Range,
    take: &mut dyn FnMut(Line) -> ControlFlow<()>,
) -> io::Result<HistorySeen> {
    let mut seen = HistorySeen::default();
    let mut open: BTreeMap<String, Line> = BTreeMap::new();
    let mut done = 0;
    let mut is_over = false;
    // The next file may be started while one is read, which then loses its open records.
    loop {
        let all = listed(folder)?;
        if let Some((_, oldest)) = all.first().filter(|_| seen.since.is_none()) {
            seen.since = head(oldest).ok().flatten();
        }
        let todo: Vec<_> = all.iter().filter(|(number, _)| *number > done).collect();
        if todo.is_empty() || is_over {
            break;
        }
        for (at, (number, path)) in todo.iter().enumerate() {
            done = *number;
            let next = todo.get(at + 1).and_then(|(_, next)| head(next).ok().flatten());
            // Its records were over before the range, or are in the next file.
            if next.is_some_and(|ended| ended < range.from) {
                continue;
            }
            let read = each(path, |line| match serde_json::from_slice(line) {
                Ok(Kept::Open(line)) => {
                    follow(&mut open, line);
                    ControlFlow::Continue(())
                }
                Ok(Kept::Closed(line)) => {
                    line.name().map(|name| open.remove(&name));
                    let flow =
                        if range.takes(&line) { take(line) } else { ControlFlow::Continue(()) };
                    is_over |= flow.is_break();
                    flow
                }
                // A file begins with all that is open, also where the one before could not be shortened.
                Ok(Kept::Head { .. }) => {
                    open.clear();
                    ControlFlow::Continue(())
                }
                Ok(Kept::Alive(_)) => ControlFlow::Continue(()),
                Err(_) => {
                    seen.unread += 1;
                    ControlFlow::Continue(())
                }
            });
            match read {
                // It was removed meanwhile: it was too old.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                read => read?,
            }
            if is_over {
                return Ok(seen);
            }
        }
    }
    let mut open: Vec<Line> = open.into_values().filter(|line| range.takes(line)).collect();
    open.sort_by_key(Line::started);
    for line in open {
        if take(line).is_break() {
            break;
        }
    }
    Ok(seen)
}
