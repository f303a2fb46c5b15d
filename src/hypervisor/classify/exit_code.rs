//! What the exit codes of programs mean that a node runs in its tasks.

/// What the exit code of wget means in a task's text, after its manual (section "Exit Status"). `None`
/// where the text names another program, or a code that the manual does not have.
pub(super) fn of_wget(exit: &str) -> Option<String> {
    let (_, command) = exit.split_once("command '")?;
    let program = command.split([' ', '\'']).next()?;
    let (_, code) = exit.rsplit_once("exit code ")?;
    let digits: String = code.chars().take_while(char::is_ascii_digit).collect();
    if program.rsplit('/').next() != Some("wget") {
        return None;
    }
    let means = match digits.parse::<u8>().ok()? {
        1 => "an error of no other kind",
        2 => "its options or its `.wgetrc` were not understood",
        3 => "the node could not read or write a file",
        4 => "a network failure: the node did not reach the server; check its DNS and its proxy",
        5 => "the certificate of the server could not be verified",
        6 => "the server refused the login",
        7 => "a protocol error",
        8 => "the server answered with an error, such as 404; check the URL",
        _ => return None,
    };
    Some(format!("wget means by exit code {digits}: {means}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(program: &str, code: u8) -> String {
        format!(
            "download failed: command '{program} --progress=dot:giga -O /x.tmp https://a.example/wget' \
             failed: exit code {code}"
        )
    }

    // Invariant: a number that a program ended with is said in words, and no other program's is.

    #[test]
    fn each_exit_code_of_wget_has_its_meaning_and_others_have_none() {
        let all: Vec<Option<String>> =
            (0..=9).map(|code| of_wget(&failed("/usr/bin/wget", code))).collect();
        assert_eq!((&all[0], &all[9]), (&None, &None));
        let known: Vec<String> = all.into_iter().flatten().collect();
        insta::assert_snapshot!(known.join("\n"), @r"
        wget means by exit code 1: an error of no other kind
        wget means by exit code 2: its options or its `.wgetrc` were not understood
        wget means by exit code 3: the node could not read or write a file
        wget means by exit code 4: a network failure: the node did not reach the server; check its DNS and its proxy
        wget means by exit code 5: the certificate of the server could not be verified
        wget means by exit code 6: the server refused the login
        wget means by exit code 7: a protocol error
        wget means by exit code 8: the server answered with an error, such as 404; check the URL
        ");
        for other in [failed("/usr/bin/curl", 4), "start failed: exit code 4".into(), String::new()]
        {
            assert_eq!(of_wget(&other), None, "{other}");
        }
    }
}
