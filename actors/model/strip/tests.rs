use super::*;

// Invariant: what looks like a secret is not kept, and the rest of a text reads as before.

#[test]
fn values_of_secret_names_logins_and_tokens_are_masked() {
    for (text, kept) in [
        ("PASSWORD=hunter2 make", "PASSWORD=*** make"),
        ("password: hunter2", "password: ***"),
        ("db_password = hunter2", "db_password = ***"),
        ("db_password =hunter2 x", "db_password =*** x"),
        ("the password is wrong", "the password is wrong"),
        ("--token abc123 --verbose", "--token *** --verbose"),
        ("-token abc123 --verbose", "-token *** --verbose"),
        ("--token=abc123", "--token=***"),
        ("{\"apiKey\": \"abc\"}", "{\"apiKey\": ***}"),
        ("{\"apiKey\" : \"abc\", \"a\": 1}", "{\"apiKey\" : ***, \"a\": 1}"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("PVEAPIToken=root@pam!a=0f-1a", "PVEAPIToken=***"),
        ("https://me:word@git.lan/x.git", "https://***@git.lan/x.git"),
        ("see https://git.lan/a@b", "see https://git.lan/a@b"),
        ("using ghp_0123456789abcdef0123 now", "using *** now"),
        ("id:ghp_0123456789abcdef0123, x", "id:***, x"),
        ("eyJ is short", "eyJ is short"),
        (
            "https://x-access-token:ghp_0123456789abcdef0123@github.com/o/r",
            "https://***@github.com/o/r",
        ),
        ("https://gitlab-ci-token:word@git.lan", "https://***@git.lan"),
        ("a=https://u:v@h b=https://w:x@i", "a=https://***@h b=https://***@i"),
        ("https://h/x?a=1&token=word&b=2", "https://h/x?a=1&token=***&b=2"),
        ("GET /x?a=1&sig=word&b=2 200", "GET /x?a=1&sig=***&b=2 200"),
        (
            "{\"user\":\"x\",\"password\":\"y\",\"a\":1}",
            "{\"user\":\"x\",\"password\":***,\"a\":1}",
        ),
        ("--env=PASSWORD=word", "--env=PASSWORD=***"),
        ("PASSWORD=\"my secret pass\" make", "PASSWORD=*** *** *** make"),
        ("password: 'two words' next", "password: *** *** ***"),
        ("a\tb  c", "a\tb  c"),
    ] {
        assert_eq!(stripped(text), kept, "{text}");
    }
}

#[test]
fn a_secret_is_masked_as_a_whole_whatever_stands_in_it() {
    for (text, kept) in [
        ("{\"password\":\"a,b\"}", "{\"password\":***}"),
        ("{\"password\":\"a\\\",b c{d\",\"a\":1}", "{\"password\":*** ***,\"a\":1}"),
        ("{\"token\":12,\"a\":\"x y\"}", "{\"token\":***,\"a\":\"x y\"}"),
        (
            "\"{\\\"password\\\":\\\"a,b\\\",\\\"c\\\":1}\"",
            "\"{\\\"password\\\":***,\\\"c\\\":1}\"",
        ),
        ("PASSWORD=hun,ter2", "PASSWORD=***"),
        ("PASSWORD=hun&ter;2{3} make", "PASSWORD=*** make"),
        ("PASSWORD=\"a,b c d\"", "PASSWORD=*** *** ***"),
        ("PASSWORD=a\"b c\"d make", "PASSWORD=*** *** make"),
        ("export PASSWORD='a'\"b\"c make", "export PASSWORD=*** make"),
        ("echo \"PASSWORD=a,b\" done", "echo \"PASSWORD=***\" done"),
        ("docker run -e \"PASSWORD=a b,c\" x", "docker run -e \"PASSWORD=*** ***\" x"),
        ("echo 'the token=a,b' done", "echo 'the token=***' done"),
        ("can't use password=abc here", "can't use password=*** here"),
        ("hosts' token='a b' x", "hosts' token=*** *** x"),
        ("sh -c \"make token='a'\" x", "sh -c \"make token=***\" x"),
        ("Server=x;Pwd=word;Database=y", "Server=x;Pwd=***"),
        ("{password:hun,ter2}", "{password:***"),
        ("password: yaml with blanks", "password: *** *** ***"),
        ("  - password: yaml with blanks", "  - password: *** *** ***"),
        ("PASSWORD=\"first\nsecond part\" make\nlast", "PASSWORD=***\n*** *** make\nlast"),
        ("PASSWORD=\"no end\nsecond line", "PASSWORD=*** ***\nsecond line"),
    ] {
        assert_eq!(stripped(text), kept, "{text}");
    }
}

#[test]
fn what_logs_a_caller_in_is_masked_with_all_of_its_words() {
    for (text, kept) in [
        ("Authorization: token abc", "Authorization: *** ***"),
        ("authorization: Digest username=\"x\", response=\"y\"", "authorization: *** *** ***"),
        (
            "curl -H 'Authorization: token abc' https://h/x",
            "curl -H 'Authorization: *** ***' https://h/x",
        ),
        ("-H \"Authorization: Bearer abc\" -v", "-H \"Authorization: Bearer ***\" -v"),
        ("{'Authorization': 'token abc', 'X': 'y'}", "{'Authorization': *** ***, 'X': 'y'}"),
        ("[\"Authorization: token abc\",\"X: y\"]", "[\"Authorization: *** ***\",\"X: y\"]"),
        ("Cookie: session=abc; other=def", "Cookie: *** ***"),
        ("Set-Cookie: a=b; Path=/", "Set-Cookie: *** ***"),
        ("curl -u bob:word https://h", "curl -u bob:*** https://h"),
        ("curl --user \"bob:two words\" https://h", "curl --user \"bob:*** ***\" https://h"),
        ("mysql -uroot -pword db", "mysql -uroot -p*** db"),
        ("sshpass -p word ssh h", "sshpass -p *** ssh h"),
        ("docker login -u x -p word h", "docker login -u x -p *** h"),
        ("mkdir -p dir", "mkdir -p dir"),
        ("echo root:word | chpasswd", "echo root:*** | chpasswd"),
        ("PASS=word PWD=word NPM_AUTH=word", "PASS=*** PWD=*** NPM_AUTH=***"),
        ("access_key: word", "access_key: ***"),
        ("{\"auths\":{\"h\":{\"auth\":\"ZG9j\"}}}", "{\"auths\":{\"h\":{\"auth\":***}}}"),
        (
            "POST https://hooks.slack.com/services/T/B/X done",
            "POST https://hooks.slack.com/services/*** done",
        ),
    ] {
        assert_eq!(stripped(text), kept, "{text}");
    }
}

#[test]
fn a_private_key_is_masked_as_a_whole_also_where_its_end_is_cut_off() {
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\naC1r\n";
    let whole = format!("before\n{key}-----END OPENSSH PRIVATE KEY-----\nafter");
    assert_eq!(stripped(&whole), "before\n***\nafter");
    assert_eq!(stripped(&format!("before\n{key}")), "before\n***");
    let line = "MIIBkTCB+wIJAKHHCgVZU1234567890abcdefghijklmnopqrstuvwxyzABCDEFG";
    let public =
        format!("-----BEGIN CERTIFICATE-----\n{line}\n{line}\nMIIB\n-----END CERTIFICATE-----");
    assert_eq!(stripped(&public), public);
}

#[test]
fn a_private_key_is_masked_where_its_beginning_or_both_ends_are_cut_off() {
    let end = "-----END OPENSSH PRIVATE KEY-----";
    let cut = format!("x: exit 3 after 1.5 s\nPRIVKEYBODY3\nPRIVKEYBODY4==\n{end}\nit failed");
    assert_eq!(stripped(&cut), "x: exit 3 after 1.5 s\n***\nit failed");
    let stamped = format!("it runs now\n[  12.3] sh[1]: PRIVKEYBODY3\n[  12.4] sh[1]: {end}");
    assert_eq!(stripped(&stamped), "it runs now\n***");
    let line = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW";
    assert_eq!(
        stripped(&format!("before it\n{line}\n{line}\nb3Bl==\nit ends now")),
        "before it\n***\nit ends now"
    );
    let digests = format!("{0}\n{0}", "0123456789abcdef".repeat(4));
    assert_eq!(stripped(&digests), digests);
}

#[test]
fn lines_that_hide_nothing_stay_as_they_are() {
    for line in [
        "TASK ERROR: start failed: command '/usr/bin/kvm -id 10417' failed: exit code 1",
        "2026-11-28T17:46:00Z cloud-init[612]: Cloud-init v. 24.1 finished",
        "can't open '/dev/zvol/rpool/vm-10417-disk-0': No such file or directory",
        "cat: /etc/passwd: Permission denied",
        "author: somebody, bypassed: 3, key_type: rsa",
        "",
    ] {
        assert_eq!(stripped(line), line);
    }
}

// Invariant: a text that is masked twice, in the guest's error and in a black box, says the same.

#[test]
fn a_masked_text_stays_as_it_is() {
    for text in
        ["a=1 PASSWORD=\"x y\" b", "Cookie: a=b; c", "{\"token\":\"x\",\"a\":\"b c\"}", "-u a:b c"]
    {
        let once = stripped(text);
        assert_eq!(stripped(&once), once, "{text}");
    }
}
