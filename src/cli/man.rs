//! `drover man`: man pages, one for each command, made from the definitions of the commands.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use serde_json::json;

use super::global::Global;
use super::options::Cli;
use super::report::{self, FAILED};
use super::stdout::{put, put_value};

/// A man page: the name of its file, and its text.
pub(super) struct ManPage {
    pub file: String,
    pub text: String,
}

/// Prints the page of drover itself, or writes all pages into a directory.
pub(super) fn pages(global: &Global, directory: Option<&Path>) -> ExitCode {
    let done = match directory {
        None => main_page(),
        Some(directory) => write_all(directory),
    };
    match done {
        Ok(text) if global.json => {
            put_value(global.output(), &json!({ "text": text }), ExitCode::SUCCESS)
        }
        Ok(text) => put(false, &text, ExitCode::SUCCESS),
        Err(error) => {
            let place = directory.unwrap_or(Path::new("-")).display();
            let text = format!("cannot write man pages to `{place}`: {error}");
            report::fail(global.json, FAILED, &text, &format!("drover: {text}\n"))
        }
    }
}

fn main_page() -> io::Result<String> {
    let mut all = all()?;
    Ok(if all.is_empty() { String::new() } else { all.swap_remove(0).text })
}

/// Writes every page; reports how many, and how to read one.
fn write_all(directory: &Path) -> io::Result<String> {
    let all = all()?;
    fs::create_dir_all(directory)?;
    for page in &all {
        fs::write(directory.join(&page.file), &page.text)?;
    }
    let (count, shown) = (all.len(), directory.display());
    Ok(format!("{count} man pages in {shown}; read one: man {shown}/drover.1\n"))
}

/// Every page, that of drover itself first.
pub(super) fn all() -> io::Result<Vec<ManPage>> {
    let mut cli = without_help(Cli::command());
    cli.build();
    let mut found = Vec::new();
    collect(&cli, &mut found)?;
    Ok(found)
}

/// A command without `help` among those below it: its page would say what theirs say.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

fn collect(command: &clap::Command, found: &mut Vec<ManPage>) -> io::Result<()> {
    found.push(page(command)?);
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        collect(below, found)?;
    }
    Ok(())
}

fn page(command: &clap::Command) -> io::Result<ManPage> {
    let version = format!("drover {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(version).manual("drover");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    more(command).to_writer(&mut text)?;
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    Ok(ManPage { file: man.get_filename(), text })
}

/// What a command's help ends with, line by line, and where to read on.
fn more(command: &clap::Command) -> Roff {
    let mut roff = Roff::default();
    if let Some(help) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        roff.control("SH", ["NOTES"]);
        roff.control("nf", []);
        for line in help.to_string().lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([
        bold("drover help"),
        roman(" lists commands and the pages of the book; "),
        bold("drover help TOPIC"),
        roman(" prints a page."),
    ]);
    roff
}
