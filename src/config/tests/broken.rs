//! Files that are no configuration at all: what is said of each, with its place, and that none of
//! them makes drover wait or run away.

use std::os::unix::fs::symlink;

use super::*;

/// The name of a file, and its bytes.
type File<'a> = (&'a str, &'a [u8]);

/// What is said about a directory `conf` with these files.
fn said(files: &[File<'_>]) -> Result<Checked, String> {
    let scene = Scene::new();
    let root = scene.path("conf");
    fs::create_dir(&root).unwrap();
    for name in ["token", "ed25519", "git"] {
        fs::copy(scene.path(name), root.join(name)).unwrap();
    }
    for (name, bytes) in files {
        fs::write(root.join(name), bytes).unwrap();
    }
    load(&root, &scene.environment).map_err(|error| scene.shown(error))
}

// Invariant: what is wrong is shown in its place, whatever the bytes are; no file makes drover run
// away.

#[test]
fn what_is_wrong_with_broken_files_is_shown() {
    let latin =
        b"# caf\xc3\xa9\ncloudConfigurations:\n  a: {name: \"caf\xe9\", credentialsId: t}\n";
    let wide: Vec<u8> = "a: 1\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let whole = with_agent("cores: 2");
    let cut = whole.find("privateKeyFile").unwrap() + 5;
    let marked = format!("\u{feff}{}", with_agent("cpus: 2")).replace('\n', "\r\n");
    let mut aliases = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let before = vec![format!("*a{}", n - 1); 10].join(", ");
        aliases += &format!("a{n}: &a{n} [{before}]\n");
    }
    let nested = format!("cloudDefaults: {}", "[".repeat(100_000));
    let one: File<'_> = ("10-rack.yaml", b"cloudConfigurations:\n  a: {name: A}\n");
    let two = b"# as before\n\ncloudConfigurations:\n  b: {name: B}\n  a: {name: C}\n";
    let cases: [(&str, &[File<'_>]); 11] = [
        ("Latin-1", &[("a.yaml", latin)]),
        ("UTF-16", &[("a.yaml", &[&b"\xff\xfe"[..], &wide].concat())]),
        ("a program", &[("a.yaml", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0")]),
        ("zeros", &[("a.yaml", &[0; 40])]),
        ("a zero in a value", &[("a.yaml", b"cloudDefaults:\n  name: a\0b\n")]),
        ("a file cut off in a word", &[("a.yaml", &whole.as_bytes()[..cut])]),
        ("a key of two files", &[one, ("20-more.yml", two)]),
        (
            "a section that is not the same in two files",
            &[one, ("b.yaml", b"cloudConfigurations: 5\n")],
        ),
        ("a fault behind a byte order mark and carriage returns", &[("a.yaml", marked.as_bytes())]),
        ("a swarm of aliases", &[("a.yaml", aliases.as_bytes())]),
        ("nesting without an end", &[("a.yaml", nested.as_bytes())]),
    ];
    let shown = cases.map(|(name, files)| format!("=== {name}\n{}", said(files).unwrap_err()));
    is_generated("src/config/tests/broken.txt", &shown.join("\n"));
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
    fs::write(scene.path("binary.yaml"), b"\xff\xfe").unwrap();
    fs::create_dir(scene.path("bare")).unwrap();
    let names = ["conf", "loop.yaml", "pipe.yaml", "huge.yaml", "none.yaml", "binary.yaml", "bare"];
    let said = names.map(|name| {
        let error = load(&scene.path(name), &scene.environment).unwrap_err();
        format!("=== {name}\n{}", scene.shown(error))
    });
    is_generated("src/config/tests/no-files.txt", &said.join("\n"));
}

// Invariant: a mark at the beginning and the line ends of other systems are no faults.

#[test]
fn a_byte_order_mark_and_carriage_returns_are_taken() {
    let text = with_agent("cores: 2");
    for text in [format!("\u{feff}{text}"), text.replace('\n', "\r\n"), text.trim_end().to_owned()]
    {
        said(&[("a.yaml", text.as_bytes())]).unwrap();
    }
}

// Invariant: files of a directory are one configuration.

#[test]
fn files_are_joined_section_by_section() {
    let clouds = b"cloudConfigurations:\n  a: {name: A, credentialsId: api}\n";
    let more = b"cloudConfigurations:\n  b: {name: B, credentialsId: api}\n";
    let files: [File<'_>; 4] = [
        ("10.yaml", clouds),
        ("20.yaml", more),
        (
            "30.yaml",
            b"credentials:\n  api: {kind: proxmoxToken, tokenId: a@pve!a, secretFile: token}\n",
        ),
        ("40.yaml", b""),
    ];
    assert_eq!(said(&files).unwrap().herd.clouds.len(), 2);
}
