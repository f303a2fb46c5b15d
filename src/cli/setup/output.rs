//! What a set-up reports: lines as it goes, or for scripts one object at its end.

use std::fmt::Display;
use std::io;

use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;

use super::super::error::CliError;
use super::super::progress::Live;
use super::super::screen::Output;
use super::super::term::{shown, spelled};
use drover_admin::setup::machine::FileToWrite;

/// What a set-up reports.
pub(in super::super) struct SetupOutput<'a> {
    out: &'a mut (dyn io::Write + Send),
    json: Option<SetupOut>,
    /// Where the live line of long work stands.
    live: Live,
}

/// What scripts read of a set-up.
#[derive(Default, PartialEq, Eq, Serialize)]
struct SetupOut {
    /// What was done, in order.
    did: Vec<String>,
    /// What would be done, with `--dry-run`: lines for a shell.
    planned: Vec<String>,
    /// Files that would be written, with `--dry-run`.
    files: Vec<FileOut>,
    /// What people should know.
    notes: Vec<String>,
    /// How things stand then; null with `--dry-run`.
    outcome: Option<String>,
    /// The token's secret, with `--print-secret`.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

#[derive(PartialEq, Eq, Serialize)]
struct FileOut {
    path: String,
    /// In octal digits.
    mode: String,
    text: String,
}

impl<'a> SetupOutput<'a> {
    /// Reports to people, or to scripts.
    pub(in super::super) fn new(
        out: &'a mut (dyn io::Write + Send),
        json: bool,
        live: Live,
    ) -> Self {
        Self { out, json: json.then(SetupOut::default), live }
    }

    /// Where the live line of long work stands.
    pub(in super::super) fn live(&self) -> Live {
        self.live.clone()
    }

    /// What was done.
    pub(in super::super) fn did(&mut self, what: impl Display) -> io::Result<()> {
        match &mut self.json {
            Some(reported) => reported.did.push(what.to_string()),
            None => writeln!(self.out, "done: {}", shown(&what.to_string()))?,
        }
        Ok(())
    }

    /// A line for a shell that would be done.
    pub(in super::super) fn plan(&mut self, line: impl Display) -> io::Result<()> {
        match &mut self.json {
            Some(reported) => reported.planned.push(line.to_string()),
            None => writeln!(self.out, "{}", shown(&line.to_string()))?,
        }
        Ok(())
    }

    /// What would be done elsewhere than in this shell.
    pub(in super::super) fn plan_there(&mut self, what: impl Display) -> io::Result<()> {
        match &mut self.json {
            Some(reported) => reported.planned.push(what.to_string()),
            None => writeln!(self.out, "# {}", shown(&what.to_string()))?,
        }
        Ok(())
    }

    /// A file that would be written, as `shown`.
    pub(in super::super) fn file(&mut self, file: &FileToWrite, shown: &str) -> io::Result<()> {
        let (path, mode) = (&file.path, file.mode);
        match &mut self.json {
            Some(reported) => reported.files.push(FileOut {
                path: path.clone(),
                mode: format!("{mode:04o}"),
                text: shown.to_owned(),
            }),
            None => writeln!(self.out, "# {path}, mode {mode:04o}:\n{shown}")?,
        }
        Ok(())
    }

    /// What people should know of what is done.
    pub(in super::super) fn note(&mut self, text: impl Display) -> io::Result<()> {
        self.known("note: ", text)
    }

    /// What people should know of what would be done.
    pub(in super::super) fn remark(&mut self, text: impl Display) -> io::Result<()> {
        self.known("# ", text)
    }

    fn known(&mut self, before: &str, text: impl Display) -> io::Result<()> {
        match &mut self.json {
            Some(reported) => reported.notes.push(text.to_string()),
            None => writeln!(self.out, "{before}{}", shown(&text.to_string()))?,
        }
        Ok(())
    }

    /// The token's secret.
    pub(in super::super) fn secret(&mut self, secret: &SecretString) -> io::Result<()> {
        let secret = secret.expose_secret();
        match &mut self.json {
            Some(reported) => reported.secret = Some(secret.to_owned()),
            None => writeln!(self.out, "secret: {secret}")?,
        }
        Ok(())
    }

    /// What an earlier run did.
    pub(in super::super) fn already(&mut self, what: impl Display) -> io::Result<()> {
        self.known("already there: ", what)
    }

    /// A whole text for people, which scripts read elsewhere.
    pub(in super::super) fn text(&mut self, text: &str) -> io::Result<()> {
        match &self.json {
            Some(_) => Ok(()),
            None => write!(self.out, "{}", shown(text)),
        }
    }

    /// How things stand after what was done.
    pub(in super::super) fn stands(&mut self, how: impl Display) -> io::Result<()> {
        self.outcome("ok: ", how)
    }

    /// How things stand where there is nothing to do.
    pub(in super::super) fn idle(&mut self, how: impl Display) -> io::Result<()> {
        self.outcome("nothing to do: ", how)
    }

    fn outcome(&mut self, before: &str, how: impl Display) -> io::Result<()> {
        match &mut self.json {
            Some(reported) => reported.outcome = Some(how.to_string()),
            None => writeln!(self.out, "{before}{}", shown(&how.to_string()))?,
        }
        Ok(())
    }

    /// Ends: scripts hear all of it at once, also what was done before a failure.
    pub(in super::super) fn end(
        self,
        form: Output,
        done: Result<(), CliError>,
    ) -> Result<(), CliError> {
        let reported =
            self.json.filter(|reported| done.is_ok() || *reported != SetupOut::default());
        let Some(reported) = reported else { return done };
        let spelled = spelled(form, &reported);
        let written = spelled.and_then(|text| write!(self.out, "{text}").map_err(CliError::Output));
        done.and(written)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    // Invariant: people and scripts learn the same, and a failure hides nothing that was done.

    fn reported(json: bool, done: Result<(), CliError>) -> (String, bool) {
        let mut text = Vec::new();
        let mut out = SetupOutput::new(&mut text, json, Live::default());
        let file = FileToWrite { path: "/etc/a".into(), text: "a\n".into(), mode: 0o600 };
        out.remark("first").unwrap();
        out.plan("pvesh get /").unwrap();
        out.plan_there("put /etc/a there").unwrap();
        out.file(&file, "a\n").unwrap();
        out.did("pvesh set /").unwrap();
        out.note("second").unwrap();
        out.secret(&"5f0c".to_owned().into()).unwrap();
        out.idle("it runs").unwrap();
        out.stands("it runs").unwrap();
        let good = out.end(Output::Json, done).is_ok();
        (String::from_utf8(text).unwrap(), good)
    }

    #[test]
    fn people_are_reported_line_by_line() {
        let (text, good) = reported(false, Ok(()));
        assert!(good);
        insta::assert_snapshot!(text, @r"
        # first
        pvesh get /
        # put /etc/a there
        # /etc/a, mode 0600:
        a

        done: pvesh set /
        note: second
        secret: 5f0c
        nothing to do: it runs
        ok: it runs
        ");
    }

    #[test]
    fn scripts_are_reported_at_the_end_also_where_it_fails() {
        let (text, good) = reported(true, Ok(()));
        assert!(good);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            read,
            serde_json::json!({
                "did": ["pvesh set /"],
                "planned": ["pvesh get /", "put /etc/a there"],
                "files": [{"path": "/etc/a", "mode": "0600", "text": "a\n"}],
                "notes": ["first", "second"],
                "outcome": "it runs",
                "secret": "5f0c",
            })
        );
        let (failed, good) = reported(true, Err(CliError::Failed("no".into())));
        assert_eq!((&failed, good), (&text, false));
        let mut nothing = Vec::new();
        let ended = SetupOutput::new(&mut nothing, true, Live::default())
            .end(Output::Json, Err(CliError::Failed("no".into())));
        assert!(ended.is_err());
        assert!(nothing.is_empty(), "an error alone is no answer");
    }
}
