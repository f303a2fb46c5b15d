//! The wall around the decisions: what this crate may depend on, and what its lints keep out.

const MANIFEST: &str = include_str!("../Cargo.toml");
const CLIPPY: &str = include_str!("../clippy.toml");

/// The crates that the minds and bodies may use; none of them does I/O as it is built here.
const ALLOWED: [&str; 9] = [
    "actix",
    "drover-limits",
    "drover-model",
    "drover-runtime",
    "drover-scripts",
    "futures-util",
    "thiserror",
    "tokio",
    "tracing",
];

fn section(name: &str) -> Vec<&'static str> {
    let lines = MANIFEST.lines().skip_while(|line| *line != format!("[{name}]")).skip(1);
    lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.is_empty()).collect()
}

// Invariant: no decision has a way to the world but the ports.

#[test]
fn the_manifest_names_no_crate_that_does_io() {
    for line in section("dependencies") {
        let name = line.split([' ', '=', '.']).next().unwrap_or_default();
        assert!(ALLOWED.contains(&name), "`{name}` is not allowed here");
    }
}

#[test]
fn tokio_brings_timers_and_channels_and_nothing_else() {
    let tokio = section("dependencies").into_iter().find(|line| line.starts_with("tokio "));
    assert!(tokio.is_some_and(|line| line.contains(r#"features = ["time", "sync"]"#)));
}

#[test]
fn the_lints_keep_out_what_std_brings_along() {
    for path in [
        "std::net::TcpStream",
        "std::fs::File",
        "std::fs::read",
        "std::process::Command",
        "std::time::Instant::now",
        "std::time::SystemTime::now",
        "tokio::time::Instant::now",
        "std::collections::HashMap",
        "std::collections::HashSet",
        "rand::rng",
        "std::println",
        "std::thread::spawn",
    ] {
        let entry = format!("path = \"{path}\", reason = \"");
        assert!(CLIPPY.contains(&entry), "`{path}` is not banned with a reason");
    }
}

/// The sources of this crate: each path below `src`, and the text.
#[expect(clippy::disallowed_methods, reason = "the sources themselves are what is looked at")]
fn sources() -> Vec<(String, String)> {
    let root = std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let (mut folders, mut sources) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
            sources.push((name, std::fs::read_to_string(&path).unwrap_or_default()));
        }
    }
    sources.sort();
    sources
}

// Invariant: no actor keeps the thread for a mailbox that never empties.

#[test]
fn every_handler_counts_its_message() {
    let (mut handlers, mut silent) = (0, Vec::new());
    for (path, text) in sources() {
        for after in text.split("    fn handle(&mut self, ").skip(1) {
            handlers += 1;
            if after.lines().nth(1).is_none_or(|line| line.trim() != "count_message(ctx);") {
                silent.push(format!("{path}: {}", after.lines().next().unwrap_or("")));
            }
        }
    }
    // Those of tests may be silent.
    silent.retain(|handler| !handler.contains("test"));
    assert!(handlers > 15, "the handlers were not found");
    assert_eq!(silent, Vec::<String>::new(), "these do not call `count_message` first");
}

// Invariant: what actors share, they share by roles (`shared.rs`).

#[test]
fn only_what_outlives_its_one_actor_is_in_a_cell_that_anybody_may_write() {
    let is_cell = |text: &str| text.contains("Rc<RefCell<") || text.contains("Rc<Cell<");
    let all = sources().into_iter().filter(|(path, text)| !path.contains("test") && is_cell(text));
    let with_cells: Vec<String> = all.map(|(path, _)| path).collect();
    // The VMIDs of a cluster and the memory of its reconciler: the herd keeps them, and reads none.
    assert_eq!(with_cells, ["cluster/mod.rs", "herd/clusters.rs", "reconciler/mod.rs"]);
}
