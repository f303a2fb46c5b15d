//! Reads a trace, which may come from anywhere: each line has a bound, and each fault names its line.

use std::io::{self, BufRead, Read as _};

use drover_model::time::WallTime;

use crate::{Agent, Configuration, Demand, End, FORMAT, Header, Line, Service};

/// The longest range of a trace, in days: more is kept of no history.
const RANGE_DAYS_MAX: u64 = 3660;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// What is read at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Lines between the header and the end.
    pub lines: u64,
    /// Bytes of one line.
    pub line_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { lines: 2_000_000, line_bytes: 64 << 10 }
    }
}

/// Why a trace cannot be used. Lines count from 1.
#[derive(Debug, thiserror::Error)]
pub enum TraceFault {
    #[error("line {line}: the trace cannot be read")]
    Io {
        line: u64,
        #[source]
        error: io::Error,
    },
    #[error("line 1: this is no trace: its first line is no header; `drover trace` writes one")]
    NoHeader,
    #[error("line 1: the trace has format {found}, and this drover reads format {FORMAT}")]
    Format { found: u32 },
    #[error("line {line}: the line is longer than {most} bytes")]
    LineTooLong { line: u64, most: usize },
    #[error("line {line}, column {column}: {why}")]
    NotRead { line: u64, column: usize, why: String },
    #[error("line {line}: {why}")]
    Untimely { line: u64, why: Untimely },
    #[error("line {line}: a second header")]
    SecondHeader { line: u64 },
    #[error("line {line}: the trace has more than {most} lines; export a shorter range")]
    TooManyLines { line: u64, most: u64 },
    #[error("line {line}: the trace is cut off: it has no last line; export it again")]
    NoEnd { line: u64 },
    #[error("line {line}: the last line counts {counted} lines, and {read} are there")]
    OtherCount { line: u64, counted: u64, read: u64 },
    #[error("line {line}: the trace has ended, and something follows")]
    AfterEnd { line: u64 },
}

/// A record whose times contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Untimely {
    #[error("`served` is before `arrived`")]
    ServedBeforeArrived,
    #[error("`granted` is before `arrived`")]
    GrantedBeforeArrived,
    #[error("`ended` is before `arrived` or `served`")]
    EndedBefore,
    #[error("`machine` is before `made`")]
    MachineBeforeMade,
    #[error("`ready` is before `made`")]
    ReadyBeforeMade,
    #[error("`gone` is before `made` or `ready`")]
    GoneBefore,
    #[error("`to` is before `from`")]
    ToBeforeFrom,
    #[error("the range is longer than {RANGE_DAYS_MAX} days")]
    TooLong,
    #[error("it starts after the end of the trace")]
    AfterTrace,
}

impl Demand {
    fn untimely(&self) -> Option<Untimely> {
        let start = self.served.unwrap_or(self.arrived);
        let before = |at: Option<WallTime>, than| at.is_some_and(|at| at < than);
        if before(self.served, self.arrived) {
            Some(Untimely::ServedBeforeArrived)
        } else if before(self.granted, self.arrived) {
            Some(Untimely::GrantedBeforeArrived)
        } else {
            before(self.ended, start).then_some(Untimely::EndedBefore)
        }
    }
}

impl Agent {
    fn untimely(&self) -> Option<Untimely> {
        let before = |at: Option<WallTime>, than| at.is_some_and(|at| at < than);
        if before(self.machine, self.made) {
            Some(Untimely::MachineBeforeMade)
        } else if before(self.ready, self.made) {
            Some(Untimely::ReadyBeforeMade)
        } else {
            before(self.gone, self.ready.unwrap_or(self.made)).then_some(Untimely::GoneBefore)
        }
    }
}

impl Header {
    fn untimely(&self) -> Option<Untimely> {
        if self.to < self.from {
            return Some(Untimely::ToBeforeFrom);
        }
        let long = self.to.0.abs_diff(self.from.0) > RANGE_DAYS_MAX * DAY_MS;
        long.then_some(Untimely::TooLong)
    }
}

impl Line {
    /// What of its times contradicts each other.
    pub fn untimely(&self) -> Option<Untimely> {
        match self {
            Self::Demand(demand) => demand.untimely(),
            Self::Agent(agent) => agent.untimely(),
            Self::Trace(header) => header.untimely(),
            Self::Configuration(_) | Self::Service(_) | Self::End(_) => None,
        }
    }
}

/// Reads a trace line by line: an iterator over all lines but the first and the last.
pub struct Reader<R> {
    from: R,
    limits: Limits,
    header: Header,
    /// The number of the line that was read last.
    line: u64,
    end: Option<End>,
    /// Whether nothing is read any more.
    over: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// Why this is no trace that this drover reads.
    pub fn begin(mut from: R, limits: Limits) -> Result<Self, TraceFault> {
        let first = match next_line(&mut from, 1, limits.line_bytes) {
            Ok(first) => first.ok_or(TraceFault::NoHeader)?,
            // A first line of such a length is no header of drover's.
            Err(TraceFault::LineTooLong { .. }) => return Err(TraceFault::NoHeader),
            Err(fault) => return Err(fault),
        };
        let line = parse(&first, 1).map_err(|_| format_of(&first))?;
        let Line::Trace(header) = line else { return Err(TraceFault::NoHeader) };
        if header.format != FORMAT {
            return Err(TraceFault::Format { found: header.format });
        }
        if let Some(why) = header.untimely() {
            return Err(TraceFault::Untimely { line: 1, why });
        }
        Ok(Self { from, limits, header, line: 1, end: None, over: false })
    }

    /// The first line.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The last line, once everything was read.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    fn read_next(&mut self) -> Result<Option<Line>, TraceFault> {
        let number = self.line + 1;
        let bytes = next_line(&mut self.from, number, self.limits.line_bytes)?;
        let Some(bytes) = bytes else { return Err(TraceFault::NoEnd { line: self.line }) };
        self.line = number;
        let line = parse(&bytes, number)?;
        // A replay would have to wait for it.
        let is_late = line.started().is_some_and(|at| at > self.header.to);
        let late = is_late.then_some(Untimely::AfterTrace);
        if let Some(why) = line.untimely().or(late) {
            return Err(TraceFault::Untimely { line: number, why });
        }
        match line {
            Line::Trace(_) => Err(TraceFault::SecondHeader { line: number }),
            Line::End(end) => {
                let read = number - 2;
                if end.lines != read {
                    let counted = end.lines;
                    return Err(TraceFault::OtherCount { line: number, counted, read });
                }
                self.end = Some(end);
                match next_line(&mut self.from, number + 1, self.limits.line_bytes)? {
                    Some(_) => Err(TraceFault::AfterEnd { line: number + 1 }),
                    None => Ok(None),
                }
            }
            Line::Demand(_) | Line::Agent(_) | Line::Configuration(_) | Line::Service(_)
                if number - 1 > self.limits.lines =>
            {
                Err(TraceFault::TooManyLines { line: number, most: self.limits.lines })
            }
            line @ (Line::Demand(_)
            | Line::Agent(_)
            | Line::Configuration(_)
            | Line::Service(_)) => Ok(Some(line)),
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Line, TraceFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.read_next().transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}

/// The next line that is not empty, without its end; none at the end of the input.
fn next_line(
    from: &mut impl BufRead,
    line: u64,
    most: usize,
) -> Result<Option<Vec<u8>>, TraceFault> {
    let mut bytes = Vec::new();
    let room = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let read = from.take(room).read_until(b'\n', &mut bytes);
    read.map_err(|error| TraceFault::Io { line, error })?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    } else if bytes.len() > most {
        return Err(TraceFault::LineTooLong { line, most });
    }
    Ok((!bytes.is_empty()).then_some(bytes))
}

fn parse(bytes: &[u8], line: u64) -> Result<Line, TraceFault> {
    serde_json::from_slice(bytes).map_err(|error| {
        let text = error.to_string();
        // The place is in front of it, and its line is that of the trace.
        let why = text.rsplit_once(" at line ").map_or(text.as_str(), |(why, _)| why).to_owned();
        TraceFault::NotRead { line, column: error.column(), why }
    })
}

/// Why a first line cannot be read: another format may have another header.
fn format_of(first: &[u8]) -> TraceFault {
    let value: Option<serde_json::Value> = serde_json::from_slice(first).ok();
    let found = value.as_ref().and_then(|value| value.get("trace")?.get("format")?.as_u64());
    match found.and_then(|found| u32::try_from(found).ok()) {
        Some(found) if found != FORMAT => TraceFault::Format { found },
        Some(_) | None => TraceFault::NoHeader,
    }
}

/// A whole trace in memory, each kind in order of its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    pub header: Header,
    /// By arrival, then by id.
    pub demands: Vec<Demand>,
    /// By when they were made, then by id.
    pub agents: Vec<Agent>,
    pub configurations: Vec<Configuration>,
    pub services: Vec<Service>,
    /// Why records of the range are missing, where some are.
    pub cut: Option<String>,
}

impl Trace {
    /// Reads a whole trace.
    ///
    /// # Errors
    /// Why it cannot be used, with the line.
    pub fn read(from: impl BufRead, limits: Limits) -> Result<Self, TraceFault> {
        let mut reader = Reader::begin(from, limits)?;
        let mut trace = Self {
            header: reader.header().clone(),
            demands: Vec::new(),
            agents: Vec::new(),
            configurations: Vec::new(),
            services: Vec::new(),
            cut: None,
        };
        for line in reader.by_ref() {
            match line? {
                Line::Demand(demand) => trace.demands.push(*demand),
                Line::Agent(agent) => trace.agents.push(*agent),
                Line::Configuration(configuration) => trace.configurations.push(configuration),
                Line::Service(service) => trace.services.push(service),
                // The reader takes these itself.
                Line::Trace(_) | Line::End(_) => {}
            }
        }
        trace.cut = reader.end().and_then(End::shortfall);
        trace.demands.sort_by(|a, b| (a.arrived, &a.id).cmp(&(b.arrived, &b.id)));
        trace.agents.sort_by(|a, b| (a.made, &a.id).cmp(&(b.made, &b.id)));
        trace.configurations.sort_by_key(|one| one.at);
        trace.services.sort_by_key(|one| one.at);
        Ok(trace)
    }
}

#[cfg(test)]
mod tests;
