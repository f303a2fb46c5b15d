//! Writes a trace.

use std::io::{self, Write};

use crate::{End, Header, Line};

/// Writes the lines of a trace: the header first, the end last.
pub struct Writer<W> {
    to: W,
    lines: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// Why nothing can be written.
    pub fn begin(to: W, header: Header) -> io::Result<Self> {
        let mut writer = Self { to, lines: 0 };
        writer.line(&Line::Trace(header))?;
        Ok(writer)
    }

    /// Writes one line.
    ///
    /// # Errors
    /// Why it cannot be written.
    pub fn put(&mut self, line: &Line) -> io::Result<()> {
        self.line(line)?;
        self.lines += 1;
        Ok(())
    }

    /// Writes the last line, with why records of the range are missing where some are, and how many lines of
    /// the history cannot be read.
    ///
    /// # Errors
    /// Why it cannot be written.
    pub fn finish(mut self, cut: Option<String>, unread: u64) -> io::Result<W> {
        let lines = self.lines;
        self.line(&Line::End(End { lines, cut, unread }))?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.to.write_all(&text)
    }
}
