//! Tips for slips that clap cannot know: a verb of another noun, or a command without `--` before it.

use std::ffi::OsString;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use drover_api::nearest;

use super::help::first;
use super::options::Cli;

/// Puts our tips in the place of clap's where an argument of `lease` or `ssh` is not expected.
pub(super) fn tip(error: &mut clap::Error, words: &[OsString]) {
    if !matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand) {
        return;
    }
    let kinds = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let slip = kinds.iter().find_map(|kind| match error.get(*kind) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        Some(_) | None => None,
    });
    let (Some(slip), Some(at)) = (slip, first(words)) else { return };
    let Some(verb) = words[at].to_str().filter(|verb| matches!(*verb, "lease" | "ssh")) else {
        return;
    };
    let tips = match slip.strip_prefix('-') {
        Some(option) => of_option(verb, option),
        None if verb == "ssh" => Some(vec![behind("drover ssh AGENT", &slip)]),
        None => {
            let is_next = words.get(at + 1).is_some_and(|next| *next == *slip);
            Some(of_lease(&slip, is_next))
        }
    };
    let Some(tips) = tips else { return };
    error.remove(ContextKind::Suggested);
    if !tips.is_empty() {
        let tips = tips.into_iter().map(Into::into).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
}

/// A word behind `lease` that is neither a verb of it nor the value of an option.
fn of_lease(slip: &str, is_next: bool) -> Vec<String> {
    let command = || behind("drover lease --labels LABEL", slip);
    if !is_next {
        return vec![command()];
    }
    let verb = match slip {
        "ls" | "get" => Some(slip),
        slip => nearest(slip, ["list", "show", "renew", "release"].into_iter()),
    };
    match verb {
        Some("list" | "ls" | "show" | "get") => {
            vec!["`drover leases` lists leases, and `drover show lease ID` shows one".to_owned()]
        }
        Some(verb) => vec![format!("did you mean `drover lease {verb}`?")],
        None => vec![
            "what to lease is said by --labels, --label-expression or --template".to_owned(),
            command(),
        ],
    }
}

/// Where a command stands.
fn behind(line: &str, slip: &str) -> String {
    format!("what is to run there comes after `--`: `{line} -- {slip}`")
}

/// A short option that `lease` or `ssh` does not have; none where clap's own tip is the right one.
fn of_option(verb: &str, option: &str) -> Option<Vec<String>> {
    if option.starts_with('-') {
        return None;
    }
    let letter = option.chars().next()?;
    let cli = Cli::command();
    let options = cli.find_subcommand(verb)?.get_arguments().filter_map(clap::Arg::get_long);
    let near: Vec<String> =
        options.filter(|long| long.starts_with(letter)).map(|long| format!("`--{long}`")).collect();
    if near.is_empty() {
        return Some(Vec::new());
    }
    Some(vec![format!("did you mean {}?", near.join(" or "))])
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use clap::Parser as _;

    use super::*;

    /// What is said of wrong arguments, without the usage.
    fn answer(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let mut error = Cli::try_parse_from(&words).unwrap_err();
        tip(&mut error, &words[1..]);
        let text = error.to_string();
        text.split("\n\nUsage:").next().unwrap().to_owned()
    }

    // Invariant: a slip below `lease` or `ssh` names what was meant, and no tip leads astray.

    #[test]
    fn a_slip_below_lease_or_ssh_names_what_was_meant() {
        let lines = [
            "drover lease list",
            "drover lease lst",
            "drover lease show lease-1",
            "drover --json lease relese lease-1",
            "drover lease linux",
            "drover lease --labels linux uname -a",
            "drover lease -l linux",
            "drover lease --lables linux",
            "drover lease -x",
            "drover ssh 4f8z1c3p hostname",
            "drover release --all",
        ];
        let all: Vec<String> =
            lines.iter().map(|line| format!("$ {line}\n{}\n", answer(line))).collect();
        insta::assert_snapshot!(all.join("\n"));
    }
}
