//! The texts of messages, for people at night: what, since when, what to do, where to look.

use std::fmt::Write as _;

use drover_model::outside::steers;
use drover_model::time::WallTime;

use super::message::{Item, Message};
use super::mind::NAMED_MAX;

/// Characters of a subject.
const SUBJECT_CHARS: usize = 120;
/// How many are named in a subject.
const IN_SUBJECT: usize = 3;

/// A text of so many characters at most, without characters that steer a terminal, break a header, or turn the
/// direction of writing.
pub(crate) fn cut(text: &str, most: usize) -> String {
    let plain = text.chars().map(|one| if steers(one) { ' ' } else { one });
    let mut kept: String = plain.clone().take(most).collect();
    if plain.count() > most {
        kept.pop();
        kept.push('…');
    }
    kept
}

/// A span as people say it: the two largest units.
fn span(from: WallTime, to: WallTime) -> String {
    let seconds = (to.0.saturating_sub(from.0) / 1000).max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        (_, _, _) => format!("{days} d {hours} h"),
    }
}

/// A time to the minute, in UTC.
fn minute(at: WallTime) -> String {
    let text = at.rfc3339();
    let (day, clock) = text.split_once('T').unwrap_or((&text, ""));
    format!("{day} {} UTC", clock.get(..5).unwrap_or(clock))
}

fn names(items: &[Item], more: usize) -> String {
    let shown = items.iter().take(IN_SUBJECT).map(|one| one.about.as_str());
    let shown: Vec<&str> = shown.collect();
    let rest = items.len().saturating_sub(shown.len()) + more;
    let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    format!("{}{rest}", shown.join(", "))
}

fn problems(count: usize) -> String {
    if count == 1 { "1 problem".to_owned() } else { format!("{count} problems") }
}

/// The subject of a mail, the title of a notification.
pub fn subject(message: &Message) -> String {
    let Message { from, opened, recovered, still, is_test, .. } = message;
    let text = match (&**opened, &**recovered, &**still) {
        _ if *is_test => format!("a test of channel {}", message.channel),
        ([one], [], []) => format!("{}: {}", one.about, one.text),
        ([], [one], []) => {
            let until = one.until.unwrap_or(message.at);
            format!("recovered: {} after {}", one.about, span(one.since, until))
        }
        ([], [], _) => {
            let count = still.len() + message.still_more;
            let stands = if count == 1 { "stands" } else { "stand" };
            let names = names(still, message.still_more);
            format!("{} still {stands}: {names}", problems(count))
        }
        ([], _, _) => {
            let count = recovered.len() + message.recovered_more;
            format!("{} recovered: {}", problems(count), names(recovered, message.recovered_more))
        }
        _ => {
            let count = opened.len() + message.opened_more;
            format!("{}: {}", problems(count), names(opened, message.opened_more))
        }
    };
    cut(&format!("[drover {from}] {text}"), SUBJECT_CHARS)
}

fn one(text: &mut String, item: &Item, at: WallTime) {
    let Item { kind, about, text: what, command, since, until, link } = item;
    let _ = writeln!(text, "\n{about} ({}, {})", kind.word(), kind.severity().word());
    if let Some(until) = until {
        let lasted = span(*since, *until);
        let _ = writeln!(text, "  was: {what}");
        let _ = writeln!(text, "  from {} to {}: {lasted}", minute(*since), minute(*until));
    } else {
        let _ = writeln!(text, "  {what}");
        let _ = writeln!(text, "  since {}: {}", minute(*since), span(*since, at));
        if !command.is_empty() {
            let _ = writeln!(text, "  run: {command}");
        }
        if let Some(link) = link {
            let _ = writeln!(text, "  see: {link}");
        }
    }
}

fn part(text: &mut String, head: &str, (items, more): (&[Item], usize), at: WallTime) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(text, "{head}: {}", items.len() + more);
    items.iter().for_each(|item| one(text, item, at));
    if more > 0 {
        let _ = writeln!(text, "\n… and {more} more; the {NAMED_MAX} most urgent ones are above");
    }
    text.push('\n');
}

/// The text of a message.
pub(crate) fn body(message: &Message) -> String {
    let mut text = String::new();
    let at = message.at;
    if message.is_test {
        text += "This is a test. Nothing is wrong: somebody ran `drover notify test`.\n\n";
    }
    part(&mut text, "NEW", (&message.opened, message.opened_more), at);
    part(&mut text, "RECOVERED", (&message.recovered, message.recovered_more), at);
    part(&mut text, "STILL STANDING", (&message.still, message.still_more), at);
    if !message.is_test {
        let _ = match message.standing {
            0 => writeln!(text, "Nothing is wrong now."),
            1 => writeln!(text, "1 problem stands now: `drover status` shows it."),
            count => writeln!(text, "{count} problems stand now: `drover status` shows them."),
        };
    }
    if let Some(page) = &message.page {
        let _ = writeln!(text, "{page}/");
    }
    let Message { from, channel, id, .. } = message;
    let _ = writeln!(text, "drover on {from}, {}. Channel {channel}, message {id}.", minute(at));
    text
}
