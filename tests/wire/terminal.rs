//! A terminal in an agent, in a real Chromium, over real SSH, with a real shell on a real pseudo-terminal.

use serde_json::{Value, json};

use crate::api::{ask, call, ready};
use crate::browser::Browser;
use crate::harness::world;
use crate::page::{VIEWER_TOKEN, logged_in, logged_in_with, paged};

const ENTER: char = '\u{e007}';
const CONTROL: char = '\u{e009}';
const SHIFT: char = '\u{e008}';
const ESCAPE: char = '\u{e00c}';
const UP: char = '\u{e013}';

fn enter(browser: &Browser, line: &str) {
    browser.press(&format!("{line}{ENTER}"));
}

/// Waits until a terminal is open and has the keys.
fn until_open(browser: &Browser) {
    browser.until_text("#terminal-state", "open");
    browser.until("the keys", || {
        let has = browser.run("return document.activeElement.id");
        if has == "terminal-keys" { Ok(()) } else { Err(format!("{has} has them")) }
    });
}

/// Waits until the shell asks for a line: a program that ends throws away what was typed before.
fn prompt(browser: &Browser) {
    browser.until("the shell asks", || {
        let screen = browser.text("#terminal-screen");
        if screen.trim_end().ends_with('$') { Ok(()) } else { Err(screen) }
    });
}

fn lines(browser: &Browser) -> u64 {
    let lines = browser.run("return document.querySelectorAll('#terminal-screen > div').length");
    lines.as_u64().unwrap()
}

/// Columns and rows that the shell has, once they are those of the page: it measures again when its parts move.
fn size(browser: &Browser) -> (u64, u64) {
    for round in 0..20 {
        enter(browser, &format!("clear; echo round{round}:$(stty size | tr ' ' x)"));
        let (rows, columns): (u64, u64) = browser.until("a size", || {
            let shown = browser.text("#terminal-screen");
            let sizes = shown.split_whitespace().find_map(|word| {
                let (rows, columns) =
                    word.strip_prefix(&format!("round{round}:"))?.split_once('x')?;
                Some((rows.parse().ok()?, columns.parse().ok()?))
            });
            sizes.ok_or(shown)
        });
        if rows == lines(browser) {
            return (columns, rows);
        }
    }
    panic!("the shell never had the size of the page");
}

// Invariant: a person works in an agent from the page alone, with programs of the whole screen, and everybody
// sees later who was there.

#[test]
fn a_free_agent_is_held_entered_used_and_left_in_a_browser() {
    let (_dir, sim, site) = world();
    let (_service, base) = paged(&sim, &site, "");
    let browser = logged_in(&base, (1280, 900));
    browser.until_text("#clouds", "healthy");
    browser.click("#templates a");
    browser.click("main [data-do$='/provision']");
    browser.until_text("#agents", "Ready");
    browser.click("#agents a");
    browser.until_text("h1", "Ready");
    let agent = browser.place().trim_start_matches("/agents/").to_owned();
    browser.click("#terminal");
    browser.until_text("#terminal-free", "This agent is free");
    browser.shoot("terminal-free");
    browser.click("#terminal-open");
    until_open(&browser);

    // A line, its colours, and letters of two columns.
    enter(&browser, "PS1='$ '; echo hello-$((6*7))");
    browser.until_text("#terminal-screen", "hello-42");
    enter(
        &browser,
        r"printf '\033[31mred\033[0m \033[1;42mbold\033[0m \346\274\242\345\255\227 \033[38;5;208mmany\033[0m\n'",
    );
    browser.until_text("#terminal-screen", "漢字");
    let red = "return [...document.querySelectorAll('#terminal-screen span')].find((e) => e.textContent === 'red').style.getPropertyValue('--f')";
    assert_eq!(browser.run(red), json!("var(--c1)"));
    enter(&browser, "ls --color=always -l /; seq 1 80");
    browser.until_text("#terminal-screen", "79\n80\n");
    let above = browser.run("return document.querySelector('#terminal-above').innerText");
    assert!(above.as_str().unwrap().contains("hello-42"), "{above}");
    browser.shoot("terminal-lines");
    assert_eq!(browser.barriers(), Vec::<String>::new());

    // A program that waits is stopped by Ctrl-C, and one of the whole screen gives the lines before back.
    enter(&browser, "sleep 1000; echo over");
    browser.chord(&[CONTROL, 'c']);
    browser.until_text("#terminal-screen", "^C");
    enter(&browser, "less /etc/protocols");
    browser.until_text("#terminal-screen", "/etc/protocols");
    browser.press("G");
    browser.until_text("#terminal-screen", "(END)");
    browser.shoot("terminal-less");
    browser.press("q");
    prompt(&browser);
    // An editor, with arrow keys as it asks for them.
    enter(&browser, "vi -u NONE note");
    browser.until_text("#terminal-screen", "~");
    browser.press("ione");
    browser.press(&format!("{ENTER}two{ESCAPE}{UP}A-1{ESCAPE}"));
    browser.until_text("#terminal-screen", "one-1");
    browser.shoot("terminal-vi");
    enter(&browser, ":wq");
    prompt(&browser);
    enter(&browser, "clear; tr '\\n' + < note");
    browser.until_text("#terminal-screen", "one-1+two+");
    enter(&browser, "top");
    browser.until_text("#terminal-screen", "COMMAND");
    browser.shoot("terminal-top");
    browser.press("q");
    prompt(&browser);
    enter(&browser, "clear; echo since-$((1+1))");
    browser.until_text("#terminal-screen", "since-2");

    // Another window has another size, and a page that is loaded again has the same screen.
    let before = size(&browser);
    browser.resize(900, 700);
    browser.until("a smaller screen", || {
        let lines = lines(&browser);
        if lines < before.1 { Ok(()) } else { Err(format!("{lines} lines")) }
    });
    let after = size(&browser);
    assert!(after.0 < before.0 && after.1 < before.1, "{before:?} {after:?}");
    enter(&browser, "echo after-$((1+1))");
    browser.until_text("#terminal-screen", "after-2");
    browser.go(&format!("/agents/{agent}/terminal"));
    until_open(&browser);
    browser.until_text("#terminal-screen", "after-2");
    enter(&browser, "echo again-$((2+2))");
    browser.until_text("#terminal-screen", "again-4");
    // What is pasted is what was copied.
    let paste = "const data = new DataTransfer(); data.setData('text/plain', 'echo pasted-$((3+3))'); \
        document.querySelector('#terminal-keys').dispatchEvent(new ClipboardEvent('paste', {clipboardData: data}))";
    browser.run(paste);
    enter(&browser, "");
    browser.until_text("#terminal-screen", "pasted-6");
    browser.darken();
    browser.shoot("terminal-dark");
    assert_eq!(browser.barriers(), Vec::<String>::new());

    // The keyboard leaves it, and the audit log has that somebody was there.
    browser.chord(&[CONTROL, SHIFT, UP]);
    assert_eq!(browser.run("return document.activeElement.id"), json!("terminal-close"));
    enter(&browser, "");
    browser.until_text("#terminal-state", "ended: it was closed");
    let (status, audit) = call(&site, "GET", &format!("/v1/audit?about={agent}"), None);
    assert_eq!(status, 200);
    let ended = audit["records"].as_array().unwrap();
    let ended = ended
        .iter()
        .find(|one| one["kind"] == "terminalEnded")
        .unwrap_or_else(|| panic!("{audit}"));
    assert_eq!((&ended["principal"], &ended["object"]), (&json!("token:ops"), &json!(agent)));
    assert!(!audit.to_string().contains("hello-"), "{audit}");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_shell_that_ends_says_so_and_the_end_of_a_lease_ends_the_terminal_in_its_agent() {
    let (_dir, sim, site) = world();
    let (_service, base) = paged(&sim, &site, "");
    let lease = ask(&site, "linux", "page");
    let agent = ready(&site, &lease)["agent"].as_str().unwrap().to_owned();
    let browser = logged_in(&base, (500, 900));
    browser.go(&format!("/agents/{agent}/terminal"));
    browser.click("#terminal-open");
    until_open(&browser);
    enter(&browser, "echo phone-$((6*7))");
    browser.until_text("#terminal-screen", "phone-42");
    browser.shoot("terminal-phone");
    assert_eq!(browser.barriers(), Vec::<String>::new());
    enter(&browser, "exit 3");
    browser.until_text("#terminal-state", "ended: its shell ended with status 3");
    browser.click("#terminal-open");
    until_open(&browser);
    let (status, _) = call(&site, "DELETE", &format!("/v1/leases/{lease}"), None);
    assert_eq!(status, 204);
    browser.until_text("#terminal-state", "ended: ");
    browser.shoot("terminal-ended");
    assert_eq!(wider(&browser), json!(0));

    // A viewer has no button, and the place refuses them.
    let lease = ask(&site, "linux", "page");
    let agent = ready(&site, &lease)["agent"].as_str().unwrap().to_owned();
    let viewer = logged_in_with(&base, (1280, 900), VIEWER_TOKEN);
    viewer.go(&format!("/agents/{agent}"));
    viewer.until_text("h1", &agent);
    assert_eq!(viewer.run("return document.querySelector('#terminal')"), Value::Null);
    viewer.go(&format!("/agents/{agent}/terminal"));
    viewer.until_text("main", "has the role viewer");
}

fn wider(browser: &Browser) -> Value {
    browser
        .run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
}
