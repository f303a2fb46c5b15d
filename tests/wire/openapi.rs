//! The API by its own description: a validator of others, and a client that others' program makes.

use std::process::Command;

use crate::examples::opened;
use crate::harness::{Service, world};

// Invariant: what `/openapi.json` says is enough to use the API, without a look at anything else.

#[test]
fn the_document_is_valid_and_a_client_made_from_it_leases_and_releases() {
    let (_dir, sim, site) = world();
    let made = tempfile::tempdir().unwrap();
    let open = opened(&sim, &site, "");
    let _service = Service::start(&site);
    let python = std::env::var("DROVER_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/openapi_client.py");
    let mut command = Command::new(python);
    command.arg(script).arg(&open.url).arg(&open.token).arg(made.path());
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    let out = command.output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let faults = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("operations ok"), "{said}{faults}");
}
