//! Words of a command line, quoted for a POSIX shell.
//!
//! Not with the crate `shlex`: it changes the kind of quotes at each backslash and each `^`, so no
//! script stays readable in a log, and it quotes `,`, `=` and `%`, which stand in most of the
//! commands that people are shown.

/// Quotes one word so that a shell reads exactly it.
#[must_use]
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Joins words to one command line, each quoted.
#[must_use]
pub fn join<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> String {
    let quoted: Vec<String> = words.into_iter().map(|word| quote(word.as_ref())).collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    // Invariant: a shell reads back what was quoted.

    #[test]
    fn plain_words_stay_readable() {
        assert_eq!(join(["cat", "/etc/os-release"]), "cat /etc/os-release");
        assert_eq!(quote(""), "''");
        assert_eq!(quote("it's"), r"'it'\''s'");
    }

    #[test]
    fn a_script_keeps_its_text() {
        assert_eq!(quote(r#"printf '\n' | tr -d "^""#), r#"'printf '\''\n'\'' | tr -d "^"'"#);
        assert_eq!(join(["--net0", "virtio,bridge=vmbr0"]), "--net0 virtio,bridge=vmbr0");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_shell_reads_back_every_word(words in prop::collection::vec("[^\\x00]{0,12}", 1..4)) {
            let line = format!("printf '%s\\0' {}", join(&words));
            let out = Command::new("/bin/sh").arg("-c").arg(line).output().unwrap();
            let expected: Vec<u8> =
                words.iter().flat_map(|word| word.bytes().chain(std::iter::once(0))).collect();
            prop_assert_eq!(out.stdout, expected);
        }
    }
}
