//! Takes secrets out of texts of guests, tasks and collectors.
//!
//! drover does not know the secrets of a job. So it masks what looks like one: values behind names such as
//! `password` and `token`, passwords that commands are given, logins and hooks in addresses, tokens with well-known
//! beginnings, private keys. It rather masks too much.
//!
//! Files: `keys.rs` private keys, `words.rs` names, beginnings and options of secrets.

mod keys;
mod words;

use std::borrow::Cow;

use words::{
    WEB_HOOKS, asks_for_login, is_scheme, is_secret_name, is_secret_option, is_token,
    makes_p_secret, takes_rest,
};

/// What stands in place of a secret.
pub const MASK: &str = "***";
/// Lines that one quoted value has at most.
const QUOTED_LINES_MAX: usize = 8;
/// What ends a value in JSON that no quote ends.
const JSON_ENDS: &[char] = &[',', '}', ']'];
/// What ends a value in the query of an address.
const QUERY_ENDS: &[char] = &['&', '#'];

/// The text without what looks like a secret.
pub fn stripped(text: &str) -> String {
    let keyless = keys::stripped(text);
    let lines: Vec<&str> = keyless.split('\n').collect();
    let mut shown = Vec::with_capacity(lines.len());
    let mut open = None;
    for (at, line) in lines.iter().enumerate() {
        let (text, still) = line_stripped(line, open);
        shown.push(text);
        // A quote that nothing ends is none.
        let next = &lines[at + 1..];
        let next = &next[..next.len().min(QUOTED_LINES_MAX)];
        open = still.filter(|(quote, _)| next.iter().any(|line| quote.end(line).is_some()));
    }
    shown.join("\n")
}

/// A mark that begins a quoted text, and how many backslashes stand before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Quote {
    mark: char,
    escapes: usize,
}

impl Quote {
    /// The quote that a text begins with, and its length.
    fn begins(text: &str) -> Option<(Self, usize)> {
        let escapes = text.len() - text.trim_start_matches('\\').len();
        let mark = text[escapes..].chars().next().filter(|c| matches!(c, '"' | '\''))?;
        Some((Self { mark, escapes }, escapes + 1))
    }

    /// The first byte behind its end.
    fn end(self, text: &str) -> Option<usize> {
        let mut escapes = 0;
        for (at, c) in text.char_indices() {
            if c == self.mark && escapes <= self.escapes {
                return Some(at + 1);
            }
            escapes = if c == '\\' { escapes + 1 } else { 0 };
        }
        None
    }
}

/// What ends a value that no quote ends.
type Ends = &'static [char];

/// What the words before make of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Plain,
    /// A name of a secret: after `=` or `:` comes its value.
    Name(Ends),
    /// The word begins with a secret.
    Secret(Ends),
    /// The word is a part of a secret that this quote ends.
    Quoted(Quote, Ends),
    /// All words to the end of the line or of the quote around them are secret.
    Rest,
    /// The word is a name and a password.
    Login,
}

/// One line, word by word.
struct Scan {
    shown: String,
    before: Before,
    /// The quote around what comes next.
    around: Option<Quote>,
    is_first: bool,
    /// Whether `-p` is followed by a password in this line.
    is_p_secret: bool,
    /// Whether words such as `root:word` are logins.
    has_logins: bool,
}

/// A line without its secrets, and the quote around a secret that goes on in the next one.
fn line_stripped(line: &str, open: Option<(Quote, Ends)>) -> (String, Option<(Quote, Ends)>) {
    let line = without_hooks(line);
    let mut scan = Scan {
        shown: String::with_capacity(line.len()),
        before: open.map_or(Before::Plain, |(quote, ends)| Before::Quoted(quote, ends)),
        around: None,
        is_first: true,
        is_p_secret: false,
        has_logins: line.contains("chpasswd"),
    };
    for piece in line.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        if !word.is_empty() {
            scan.word(word);
            scan.is_first &= matches!(word, "-" | "+" | "#");
        }
        scan.shown.push_str(&piece[word.len()..]);
    }
    let open = match scan.before {
        Before::Quoted(quote, ends) => Some((quote, ends)),
        Before::Plain | Before::Name(_) | Before::Secret(_) | Before::Rest | Before::Login => None,
    };
    (without_tokens(&scan.shown), open)
}

impl Scan {
    fn word(&mut self, word: &str) {
        match self.before {
            Before::Plain => self.plain(word),
            Before::Name(ends) => {
                let rest = word.trim_start_matches(['=', ':']);
                if rest.len() == word.len() {
                    self.before = Before::Plain;
                    return self.plain(word);
                }
                self.show(&word[..word.len() - rest.len()]);
                self.before = Before::Secret(ends);
                if !rest.is_empty() {
                    self.value(rest, ends);
                }
            }
            Before::Secret(ends) => self.value(word, ends),
            Before::Quoted(quote, ends) => {
                self.hide();
                if let Some(end) = quote.end(word) {
                    self.before = Before::Plain;
                    let (more, open) = value_end(&word[end..], self.around, ends);
                    self.behind(&word[end + more..], open, ends);
                }
            }
            Before::Rest => self.rest(word),
            Before::Login => {
                self.before = Before::Plain;
                self.login(word);
            }
        }
    }

    /// Hides the secret that a text begins with, and shows what is behind it.
    fn value(&mut self, text: &str, ends: Ends) {
        self.hide();
        // A value that begins with a quote ends with it, also where an apostrophe was taken for one before.
        let begins = Quote::begins(text).map(|(quote, _)| quote.mark);
        let around = self.around.filter(|around| begins != Some(around.mark));
        let (end, open) = value_end(text, around, ends);
        self.behind(&text[end..], open, ends);
    }

    /// Shows what is behind a secret, unless a quote in it is open.
    fn behind(&mut self, text: &str, open: Option<Quote>, ends: Ends) {
        match open {
            Some(quote) => self.before = Before::Quoted(quote, ends),
            None => {
                self.before = Before::Plain;
                self.pairs(text);
            }
        }
    }

    /// Hides a word of a secret that has the rest of the line.
    fn rest(&mut self, word: &str) {
        if is_scheme(word) {
            return self.show(word);
        }
        self.hide();
        let (end, _) = value_end(word, self.around, &[]);
        self.before = if end < word.len() { Before::Plain } else { Before::Rest };
        self.show(&word[end..]);
    }

    /// Hides the password behind a name.
    fn login(&mut self, word: &str) {
        match word.split_once(':') {
            Some((name, password)) if !password.is_empty() && !password.starts_with("//") => {
                self.show(name);
                self.show(":");
                match self.is_around(name) {
                    true => self.rest(password),
                    false => self.value(password, &[]),
                }
            }
            Some(_) | None => self.plain(word),
        }
    }

    /// Shows a word without the secrets in it, and sees what it makes of the next one.
    fn plain(&mut self, word: &str) {
        if std::mem::take(&mut self.has_logins) {
            self.login(word);
            self.has_logins = true;
            return;
        }
        let bare = word.trim_matches(|c: char| "\"',;()[]{}".contains(c));
        self.is_p_secret |= makes_p_secret(bare);
        if self.is_p_secret && word.starts_with("-p") && word.len() > 2 {
            self.show("-p");
            return self.value(&word[2..], &[]);
        }
        self.pairs(word);
        if self.before != Before::Plain {
            return;
        }
        if is_scheme(bare) || is_secret_option(bare) || self.is_p_secret && bare == "-p" {
            self.before = Before::Secret(&[]);
        } else if asks_for_login(bare) {
            self.before = Before::Login;
        } else if !bare.contains(['=', ':']) && is_secret_name(bare) {
            let is_quoted = word.trim_end_matches(',').ends_with(['"', '\'']);
            self.before = Before::Name(if is_quoted { JSON_ENDS } else { &[] });
        }
    }

    /// Shows a text without the values of secret names in it. Names may stand one in another, as in
    /// `--env=PASSWORD=x`.
    fn pairs(&mut self, text: &str) {
        let Some((from, at)) = secret_pair(text) else { return self.show(text) };
        let (name, value) = (text[from..at].to_owned(), &text[at + 1..]);
        self.show(&text[..=at]);
        let is_quoted = name.ends_with(['"', '\'']);
        let is_address = text[..at].contains("://") || text[..at].contains('?');
        let ends = match (is_quoted, is_address) {
            (true, _) => JSON_ENDS,
            (false, true) => QUERY_ENDS,
            (false, false) => &[],
        };
        let bare = value.trim_matches(['"', '\'', '\\']);
        let is_empty = bare.trim_end_matches([',', '}', ']', ')', ';']).is_empty();
        let has_value = !is_empty && !is_scheme(bare);
        let has_rest = takes_rest(&name) || self.is_around(&name);
        if !is_quoted && has_rest && Quote::begins(value).is_none_or(|_| is_empty) {
            self.before = Before::Rest;
            if has_value {
                return self.rest(value);
            }
            return self.show(value);
        }
        if !has_value {
            // `"password":""` has none, and `password=` may have one behind the blank.
            let is_done = is_quoted && !value.is_empty() && is_empty;
            let is_yaml = self.is_first && text[at..].starts_with(':') && value.is_empty();
            self.before = match (is_done, is_yaml && !is_quoted) {
                (true, _) => Before::Plain,
                (false, true) => Before::Rest,
                (false, false) => Before::Secret(ends),
            };
            return self.show(value);
        }
        self.value(value, ends);
    }

    /// Whether the quote around what comes next begins with this name, as in `"PASSWORD=two words"`.
    fn is_around(&self, name: &str) -> bool {
        let name = name.trim_start_matches('\\');
        self.around.is_some_and(|quote| name.starts_with(quote.mark))
    }

    fn hide(&mut self) {
        if !self.shown.ends_with(MASK) {
            self.shown.push_str(MASK);
        }
    }

    /// Shows a text, and sees in which quote it ends.
    fn show(&mut self, text: &str) {
        let mut last = self.shown.chars().next_back();
        let mut escapes = 0;
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            let is_inner = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
            // As in `can't`.
            let is_letter = c == '\'' && is_inner(last) && is_inner(rest.peek().copied());
            if matches!(c, '"' | '\'') && !is_letter {
                self.around = match self.around {
                    Some(quote) if quote.mark == c && escapes <= quote.escapes => None,
                    None => Some(Quote { mark: c, escapes }),
                    around @ Some(_) => around,
                };
            }
            escapes = if c == '\\' { escapes + 1 } else { 0 };
            last = Some(c);
        }
        self.shown.push_str(text);
    }
}

/// The first pair of a secret name and its value: where the name begins, and where its sign is.
fn secret_pair(text: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    for (at, c) in text.char_indices() {
        if matches!(c, '=' | ':') {
            let is_address = c == ':' && text[at + 1..].starts_with("//");
            if is_secret_name(&text[from..at]) && !is_address {
                return Some((from, at));
            }
        }
        if matches!(c, '=' | ':' | ',' | '&' | '?' | ';' | '{' | '}') {
            from = at + c.len_utf8();
        }
    }
    None
}

/// Where the value that a text begins with ends, and the quote in it that is open at the end of the text.
fn value_end(text: &str, around: Option<Quote>, ends: Ends) -> (usize, Option<Quote>) {
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        if let Some((quote, length)) = Quote::begins(&text[at..]) {
            let ends_around = around
                .is_some_and(|around| around.mark == quote.mark && quote.escapes <= around.escapes);
            if ends_around {
                return (at, None);
            }
            at += length;
            match quote.end(&text[at..]) {
                Some(end) => at += end,
                None => return (text.len(), Some(quote)),
            }
            continue;
        }
        if ends.contains(&c) {
            break;
        }
        at += c.len_utf8();
    }
    (at, None)
}

/// A line without logins in addresses, and without what makes an address of a hook secret.
fn without_hooks(line: &str) -> Cow<'_, str> {
    let mut line = Cow::Borrowed(line);
    let mut from = 0;
    while let Some(begin) = line[from..].find("://").map(|at| from + at + 3) {
        let is_end = |c: char| c.is_whitespace() || "/?#\"'".contains(c);
        let end = line[begin..].find(is_end).map_or(line.len(), |at| begin + at);
        from = begin;
        if let Some(at) = line[begin..end].rfind('@') {
            line = format!("{}{MASK}{}", &line[..begin], &line[begin + at..]).into();
        }
    }
    for hook in WEB_HOOKS {
        if let Some(begin) = line.find(hook).map(|at| at + hook.len()) {
            let is_end = |c: char| c.is_whitespace() || "\"'".contains(c);
            let end = line[begin..].find(is_end).map_or(line.len(), |at| begin + at);
            line = format!("{}{MASK}{}", &line[..begin], &line[end..]).into();
        }
    }
    line
}

/// A line without tokens that are known by how they begin.
fn without_tokens(line: &str) -> String {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let mut shown = String::with_capacity(line.len());
    for piece in line.split_inclusive(|c: char| !is_inner(c)) {
        let word = piece.trim_end_matches(|c: char| !is_inner(c));
        let text = if is_token(word) { MASK } else { word };
        shown.push_str(text);
        shown.push_str(&piece[word.len()..]);
    }
    shown
}

#[cfg(test)]
mod tests;
