//! Files that are no configuration at all: what is said of each, with its place, and that none of
//! them makes drover wait or run away.

use std::fmt::Write;
use std::os::unix::fs::symlink;

use insta::assert_snapshot;

use super::*;

/// What is said about a directory `conf` with these files.
fn said(files: &[(&str, &[u8])]) -> String {
    let scene = Scene::new();
    let root = scene.path("conf");
    fs::create_dir(&root).unwrap();
    for (name, bytes) in files {
        fs::write(root.join(name), bytes).unwrap();
    }
    scene.shown(load(&root, &scene.environment).unwrap_err())
}

/// A configuration that loads, and what stands before its first line is kept.
fn loads(text: &str) {
    let text = text.replace("secretFile: token", "secretFile: ../token");
    let text = text.replace("privateKeyFile: ed25519", "privateKeyFile: ../ed25519");
    let scene = Scene::new();
    fs::create_dir(scene.path("conf")).unwrap();
    fs::write(scene.path("conf/a.yaml"), text).unwrap();
    load(&scene.path("conf"), &scene.environment).unwrap_or_else(|e| panic!("{}", scene.shown(e)));
}

// Invariant: what is wrong is shown in its place, whatever the bytes are.

#[test]
fn text_that_is_not_utf_8_is_shown_where_it_ends() {
    let latin =
        b"# caf\xc3\xa9\ncloudConfigurations:\n  a: {name: \"caf\xe9\", credentialsId: t}\n";
    assert_snapshot!(said(&[("a.yaml", latin)]));
    let wide: Vec<u8> = "a: 1\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_snapshot!(said(&[("a.yaml", &[&b"\xff\xfe"[..], &wide].concat())]));
}

#[test]
fn binary_rubbish_and_zeros_are_shown() {
    assert_snapshot!(said(&[("a.yaml", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0")]));
    assert_snapshot!(said(&[("a.yaml", &[0; 40])]));
    assert_snapshot!(said(&[("a.yaml", b"cloudDefaults:\n  name: a\0b\n")]));
}

#[test]
fn a_file_cut_off_in_a_word_is_shown() {
    let whole = with_agent("cores: 2");
    let cut = whole.find("privateKeyFile").unwrap() + 5;
    assert_snapshot!(said(&[("a.yaml", &whole.as_bytes()[..cut])]));
}

#[test]
fn a_key_of_two_files_is_shown_with_both_places() {
    let one = "cloudConfigurations:\n  a: {name: A}\n";
    let two = "# as before\n\ncloudConfigurations:\n  b: {name: B}\n  a: {name: C}\n";
    assert_snapshot!(said(&[("10-rack.yaml", one.as_bytes()), ("20-more.yml", two.as_bytes())]));
}

#[test]
fn what_is_no_plain_file_is_named() {
    let scene = Scene::new();
    let root = scene.path("conf");
    fs::create_dir(&root).unwrap();
    symlink("../nowhere", root.join("link.yaml")).unwrap();
    symlink("loop.yaml", scene.path("loop.yaml")).unwrap();
    let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, scene.path("pipe.yaml"), fifo, mode, 0).unwrap();
    fs::File::create(scene.path("huge.yaml")).unwrap().set_len(1 << 40).unwrap();
    let said = ["conf", "loop.yaml", "pipe.yaml", "huge.yaml"]
        .map(|name| scene.shown(load(&scene.path(name), &scene.environment).unwrap_err()));
    assert_snapshot!(said.concat());
}

// Invariant: a mark at the beginning and the line ends of other systems are no faults.

#[test]
fn a_byte_order_mark_and_carriage_returns_are_taken() {
    let text = with_agent("cores: 2");
    loads(&format!("\u{feff}{text}"));
    loads(&text.replace('\n', "\r\n"));
    loads(text.trim_end());
}

#[test]
fn a_fault_keeps_its_place_behind_them() {
    let text = format!("\u{feff}{}", with_agent("cpus: 2")).replace('\n', "\r\n");
    let text = text.replace("secretFile: ", "secretFile: ../").replace("ed25519", "../ed25519");
    assert_snapshot!(said(&[("a.yaml", text.as_bytes())]));
}

// Invariant: no file makes drover run away; what is shown of very many faults is bounded.

#[test]
fn a_swarm_of_aliases_is_shown_as_what_it_is() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..12 {
        writeln!(text, "a{n}: &a{n} [{}]", vec![format!("*a{}", n - 1); 10].join(", ")).unwrap();
    }
    assert_snapshot!(said(&[("a.yaml", text.as_bytes())]));
}

#[test]
fn nesting_without_an_end_is_shown_as_what_it_is() {
    let text = format!("cloudDefaults: {}", "[".repeat(100_000));
    let said = said(&[("a.yaml", text.as_bytes())]);
    assert_snapshot!(said);
}

#[test]
fn of_very_many_faults_the_first_hundred_are_shown() {
    let keys: String = (0..90_000).fold(String::new(), |mut text, n| {
        writeln!(text, "    strange{n}: 1").unwrap();
        text
    });
    let text = format!("cloudConfigurations:\n  a:\n{keys}");
    let said = said(&[("a.yaml", text.as_bytes())]);
    assert!(said.contains("`strange0`"), "{said}");
    assert_eq!(said.matches("╰── here").count(), 100);
    assert!(said.contains("more faults are not shown"), "{said}");
}
