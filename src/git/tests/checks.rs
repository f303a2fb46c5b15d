//! What is checked before anything runs, and what is made of the texts of others.

use crate::commit::Commit;
use crate::text::clean;
use crate::{CommitId, Login, RepoUrl, Scheme, check_branch, check_path};

fn fault<T: std::fmt::Debug, E: std::fmt::Display>(result: Result<T, E>) -> String {
    result.unwrap_err().to_string()
}

// Invariant: a URL is one of four kinds, has no secret in it, and is never an option.

#[test]
fn urls_of_four_kinds_are_accepted() {
    for (text, shown, scheme, origin, user) in [
        (
            "https://Example.ORG/a/b.git",
            "https://example.org/a/b.git",
            Scheme::Https,
            "https://example.org",
            None,
        ),
        (
            "HTTPS://example.org:8443/a",
            "https://example.org:8443/a",
            Scheme::Https,
            "https://example.org:8443",
            None,
        ),
        ("http://[::1]:80/a", "http://[::1]:80/a", Scheme::Http, "http://[::1]:80", None),
        (
            "ssh://git@example.org:2222/a",
            "ssh://git@example.org:2222/a",
            Scheme::Ssh,
            "ssh://example.org:2222",
            Some("git"),
        ),
        ("ssh://example.org/~/a", "ssh://example.org/~/a", Scheme::Ssh, "ssh://example.org", None),
        (
            "git@example.org:group/a.git",
            "git@example.org:group/a.git",
            Scheme::Ssh,
            "ssh://example.org",
            Some("git"),
        ),
        ("git@[::1]:a", "git@[::1]:a", Scheme::Ssh, "ssh://[::1]", Some("git")),
        ("example.org:a", "example.org:a", Scheme::Ssh, "ssh://example.org", None),
        ("file:///srv/my config.git", "file:///srv/my config.git", Scheme::File, "", None),
        ("/srv/config.git", "/srv/config.git", Scheme::File, "", None),
    ] {
        let url: RepoUrl = text.parse().unwrap();
        assert_eq!((url.to_string().as_str(), url.scheme()), (shown, scheme), "{text}");
        assert_eq!((url.origin(), url.user()), (origin, user), "{text}");
    }
}

#[test]
fn other_urls_are_refused_with_a_reason() {
    let login = "the repository URL has a username or password in it: use a credential, so that \
                 the secret is not shown with the URL";
    let scheme = "the repository URL is none of `https://host/path`, `http://host/path`, \
                  `ssh://user@host/path`, `user@host:path`, `file:///path` and `/path`";
    let option = "the repository URL, its host or its path begins with `-`";
    let character = "the repository URL has a control character or a space in it";
    let host = "the host of the repository URL is empty or not a host name";
    let port = "the port of the repository URL is not a number from 1 to 65535";
    let path = "the repository URL has no path";
    for (text, said) in [
        ("", "the repository URL is empty"),
        ("--upload-pack=touch /tmp/x", option),
        ("-u", option),
        ("ext::sh -c touch% /tmp/x", character),
        ("ext::sh", scheme),
        ("ssh::x", scheme),
        ("fd::17", scheme),
        ("git://example.org/a", scheme),
        ("ftp://example.org/a", scheme),
        ("git+ssh://example.org/a", scheme),
        ("a/relative/path", scheme),
        ("a/b:c", scheme),
        ("../config.git", scheme),
        ("https://user:word@example.org/a", login),
        ("https://token@example.org/a", login),
        ("https://user:word@example.org", login),
        ("ssh://git:word@example.org/a", login),
        ("git:word@example.org:a", login),
        (
            "https://example.org/a?token=1",
            "the repository URL has a `?` or `#` in it, which no repository needs",
        ),
        ("https://example.org/a\nb", character),
        ("https://example.org/a b", character),
        ("https://exa\u{202e}mple.org/a", character),
        ("ssh://-oProxyCommand=x/a", option),
        ("ssh://git@-oProxyCommand/a", option),
        ("-oProxyCommand=x:a", option),
        ("git@-oProxyCommand=x:a", option),
        ("example.org:-a", option),
        ("ssh://-x@example.org/a", "the user of the repository URL is not a user name"),
        ("ssh://a;b@example.org/a", "the user of the repository URL is not a user name"),
        ("https:///a", host),
        ("https://exa$mple/a", host),
        ("https://[::1/a", host),
        ("https://bücher.example/a", host),
        ("file://server/a", host),
        ("https://example.org:0/a", port),
        ("https://example.org:x/a", port),
        ("https://example.org:+1/a", port),
        ("https://example.org:65536/a", port),
        ("https://example.org", path),
        ("https://example.org/", path),
        ("ssh://git@example.org/", path),
        ("git@example.org:", path),
        ("file:///", path),
        ("/", path),
    ] {
        assert_eq!(fault(text.parse::<RepoUrl>()), said, "{text}");
    }
}

#[test]
fn branches_are_checked_as_git_checks_them() {
    for name in ["main", "feature/x-1", "a.b", "über", "a@b", "a{b"] {
        assert_eq!(check_branch(name), Ok(()), "{name}");
        assert!(git_accepts(name), "{name}");
    }
    for name in [
        "", "-a", "a b", "a\u{1b}b", "a~b", "a^b", "a:b", "a?b", "a*b", "a[b", "a\\b", "a..b",
        "a@{b", "a//b", ".a", "a/.b", "@", "/a", "a/", "a.", "a.lock", "a.lock/b",
    ] {
        assert!(check_branch(name).is_err(), "{name}");
        // git takes this for the commit that is checked out.
        assert!(!git_accepts(name) || name == "@", "{name}");
    }
    assert_eq!(fault(check_branch(&"a".repeat(201))), "the branch name is longer than 200 bytes");
    assert_eq!(
        fault(check_branch("a@{b")),
        "the branch name has `..`, `@{`, `//` or a part that begins with `.` in it"
    );
}

fn git_accepts(name: &str) -> bool {
    let mut git = std::process::Command::new("git");
    git.args(["check-ref-format", "--branch", name])
        .current_dir("/")
        .output()
        .unwrap()
        .status
        .success()
}

#[test]
fn paths_stay_inside_the_repository() {
    for path in ["a", "a/b.yaml", "...", "-a", ":(top)a", "a b", ".hidden/ü"] {
        assert_eq!(check_path(path), Ok(()), "{path}");
    }
    let part = "the path in the repository has an empty part, `.` or `..` in it";
    for (path, said) in [
        ("", "the path in the repository is empty"),
        ("/etc", "the path in the repository begins with `/`: write it relative to the repository"),
        ("a//b", part),
        ("a/", part),
        ("./a", part),
        ("a/../b", part),
        ("..", part),
        ("a\0b", "the path in the repository has a control character in it"),
    ] {
        assert_eq!(fault(check_path(path)), said);
    }
}

#[test]
fn commit_ids_are_whole_and_lower_case() {
    let id: CommitId = "0123456789abcdef0123456789abcdef01234567".parse().unwrap();
    assert_eq!((id.short(), id.to_string().len()), ("0123456789ab", 40));
    assert!("a".repeat(64).parse::<CommitId>().is_ok());
    for text in ["", "main", "0123456", &"A".repeat(40), &"a".repeat(41), &"g".repeat(40)] {
        let said = "a commit id has 40 or 64 lower-case hexadecimal digits";
        assert_eq!(fault(text.parse::<CommitId>()), said);
    }
}

#[test]
fn logins_fit_their_repositories() {
    let url = |text: &str| text.parse::<RepoUrl>().unwrap();
    let password = |username: &str, password: &str| Login::Password {
        username: username.to_owned(),
        password: password.into(),
    };
    let key = |username: &str| Login::SshKey { username: username.to_owned(), key: "".into() };
    let (https, ssh) = (url("https://example.org/a"), url("ssh://example.org/a"));
    let break_said = "the username or password has a line end or a NUL character in it";
    for (login, url, said) in [
        (Login::None, &ssh, "an ssh repository needs an SSH key"),
        (password("u", "p"), &ssh, "an ssh repository needs an SSH key"),
        (
            key("u"),
            &https,
            "a repository over http or https takes a password or token, not an SSH key",
        ),
        (password("u", "p\nhost=evil"), &https, break_said),
        (password("u\r", "p"), &https, break_said),
        (key("-oProxyCommand=x"), &ssh, "the username is not one that ssh accepts"),
        (key("a b"), &ssh, "the username is not one that ssh accepts"),
        (key("git"), &ssh, "the SSH key is not a private key in PEM, as `ssh-keygen` writes it"),
        (key("git"), &url("/a"), "a repository in a folder takes no login"),
    ] {
        assert_eq!(fault(login.check(url)), said);
    }
    assert_eq!(password("u", "p").check(&https), Ok(()));
    assert_eq!(Login::None.check(&https), Ok(()));
}

// Invariant: texts of others are shown on one line, bounded, and without an effect.

#[test]
fn texts_are_cleaned() {
    assert_eq!(clean(" a\n\u{1b}[31mb\u{202e}c\u{7} ", 100), "a \u{fffd}[31mb\u{fffd}c\u{fffd}");
    assert_eq!(clean("abcdef", 6), "abcdef");
    assert_eq!(clean("abcdef", 5), "abcd…");
}

#[test]
fn commits_are_read_from_their_objects() {
    let id: CommitId = "a".repeat(40).parse().unwrap();
    let read = |object: &str| Commit::parse(id.clone(), object.as_bytes());
    let commit = read(
        "tree 1\nauthor Ada <a@b> 5 +0000\ncommitter Bob <b@c> 7 +0100\ngpgsig x\n y\n\n\nSub\n\nBody",
    )
    .unwrap();
    let seen = (commit.author.as_str(), commit.at_epoch_seconds, commit.subject.as_str());
    assert_eq!(seen, ("Ada", 7, "Sub"));
    let long = format!("author  <a@b> 5 +0000\ncommitter B <b> -7 +0\n\n{}", "x".repeat(300));
    let commit = read(&long).unwrap();
    let seen = (commit.author.as_str(), commit.at_epoch_seconds, commit.subject.chars().count());
    assert_eq!(seen, ("a@b", -7, 200));
    assert_eq!(read("tree 1\n\nNo head"), None);
}

#[test]
fn secrets_are_masked_in_what_servers_send_back() {
    let login = Login::Password { username: "u".to_owned(), password: "pass-1".into() };
    assert_eq!(login.mask("Basic dTpwYXNzLTE= and pass-1!"), "Basic [secret] and [secret]!");
    let key = "-----BEGIN X-----\nQUJD\nREVG\n-----END X-----\n";
    let login = Login::SshKey { username: "u".to_owned(), key: key.into() };
    assert_eq!(login.mask("has QUJD in it"), "has [secret] in it");
    assert_eq!(Login::None.mask("pass-1"), "pass-1");
}
