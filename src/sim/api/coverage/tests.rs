//! Compares the list of served calls, the schema and the code of the routes.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::*;
use crate::api::certificates::Certificates;
use crate::call::{Call, Caller, Params};
use crate::guests::{StubGuests, StubOptions};
use crate::simulation::{Simulation, SimulationOptions};
use crate::spec::ClusterSpec;

fn simulation(version: PveVersion) -> Simulation {
    let spec = ClusterSpec::three_nodes("secret123", "token-secret");
    let options = SimulationOptions { version, ..SimulationOptions::default() };
    let guests = Arc::new(StubGuests::new(StubOptions::default()));
    Simulation::new(&spec, options, Certificates::fake(1, &[]), guests)
}

/// A value for a parameter of a path.
fn stand_in(name: &str) -> Value {
    match name {
        "node" => "pve1".into(),
        "vmid" => 9000.into(),
        "storage" => "local".into(),
        "pos" => 0.into(),
        "userid" => "root@pam".into(),
        name => name.into(),
    }
}

/// A call as the API makes it after the validation of parameters.
fn call_with(names: &[String]) -> impl FnOnce((&'static str, &'static str, bool)) -> Call {
    let node = names.iter().any(|name| name == "node").then(|| "pve1".to_owned());
    let params = names.iter().map(|name| (name.clone(), stand_in(name))).collect();
    let node_name = "pve1".to_owned();
    move |(method, route, protected): (&'static str, &'static str, bool)| Call {
        caller: Caller { userid: "root@pam".into(), token: None },
        received_by: node_name.clone(),
        handled_by: node_name,
        protected,
        method,
        route,
        node,
        params: Params(params),
        file: None,
    }
}

// Invariant: the list of served calls matches the code.

#[tokio::test(start_paused = true)]
async fn each_listed_route_reaches_its_own_code() {
    for version in [PveVersion::V8_4, PveVersion::V9_2] {
        let simulation = simulation(version);
        for line in served_routes(version) {
            let (method, path) = line.split_once(' ').unwrap();
            let path = path.trim();
            let (route, in_path) = SCHEMA.find(method, path, version).unwrap();
            assert_eq!(route.path, path);
            let names: Vec<String> = in_path.into_keys().collect();
            let outcome = simulation.api.run(route, call_with(&names)).await;
            let Err(error) = outcome else { continue };
            let refused = ["drover sim does not serve ", "Method '"];
            let is_refused = refused.iter().any(|start| error.message.starts_with(start));
            assert!(error.status != 501 || !is_refused, "{line}: {error}");
        }
    }
}

/// Method and path of each handler in a source file.
fn handlers(source: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for line in source.lines() {
        for method in ["GET", "POST", "PUT", "DELETE"] {
            if let Some((_, rest)) = line.split_once(&format!("(\"{method}\", \"")) {
                found.push((method, rest.split('"').next().unwrap_or_default()));
            }
        }
    }
    found
}

#[test]
fn each_handler_has_a_route_that_leads_to_it() {
    let routes: BTreeSet<(&str, &str)> =
        SCHEMA.served().map(|(path, method, _)| (method, path)).collect();
    let (vm, storage) = ("/nodes/{node}/qemu/{vmid}/", "/nodes/{node}/storage/{storage}/");
    let firewall = "/cluster/firewall/";
    let sources: [(&str, &[&str]); 14] = [
        (include_str!("../../world/routes.rs"), &["", vm, storage]),
        (include_str!("../../world/lxc/mod.rs"), &["/nodes/{node}/lxc"]),
        (include_str!("../../world/ha.rs"), &["/cluster/ha/"]),
        (include_str!("../../world/sdn.rs"), &["/cluster/sdn"]),
        (include_str!("../../world/firewall/mod.rs"), &[firewall]),
        (include_str!("../../world/firewall/sets.rs"), &[firewall]),
        (include_str!("../../world/firewall/aliases.rs"), &[firewall]),
        (include_str!("../../world/firewall/groups.rs"), &["/cluster/firewall/groups"]),
        (include_str!("../../world/firewall/rules.rs"), &["/cluster/firewall/rules"]),
        (include_str!("../access/acl.rs"), &[""]),
        (include_str!("../access/groups.rs"), &[""]),
        (include_str!("../access/pools.rs"), &[""]),
        (include_str!("../access/realms.rs"), &[""]),
        (include_str!("../access/users.rs"), &[""]),
    ];
    for (source, below) in sources {
        let found = handlers(source);
        assert!(!found.is_empty(), "{below:?}");
        for (method, rest) in found {
            let paths: Vec<String> = below.iter().map(|start| format!("{start}{rest}")).collect();
            let has_route = paths.iter().any(|path| routes.contains(&(method, path.as_str())));
            assert!(has_route, "{method} {paths:?}");
        }
    }
}

#[test]
fn each_route_is_in_the_schema_once() {
    let mut seen = BTreeSet::new();
    for (path, method, _) in SCHEMA.served() {
        assert!(seen.insert((path, method)), "{method} {path}");
    }
}

#[test]
fn the_501_differs_between_unserved_paths_of_proxmox_and_unknown_paths() {
    let text = |method, path| not_served(method, path, PveVersion::V8_4).message;
    let path = "/nodes/pve1/qemu/100/termproxy";
    assert_eq!(text("POST", path), format!("drover sim does not serve POST {path}"));
    assert_eq!(text("GET", path), format!("Method 'GET {path}' not implemented"));
    for path in ["/nope", "/nodes/p x/qemu"] {
        assert_eq!(text("GET", path), format!("Method 'GET {path}' not implemented"));
    }
    assert_eq!(not_served("GET", "/nope", PveVersion::V8_4).status, 501);
}

#[test]
fn a_path_that_came_with_9_is_unknown_to_8() {
    let path = "/nodes/pve1/query-oci-repo-tags";
    let says = |version| not_served("GET", path, version).message.starts_with("drover sim");
    assert_eq!((says(PveVersion::V8_4), says(PveVersion::V9_2)), (false, true));
}

// Invariant: a refusal has the words of the simulated version.
#[test]
fn a_path_that_8_lacks_is_refused_in_the_words_of_8() {
    for (method, path) in [
        ("GET", "/cluster/ha/rules"),
        ("POST", "/cluster/ha/status/disarm-ha"),
        ("POST", "/cluster/sdn/lock"),
        ("GET", "/cluster/sdn/fabrics/all"),
        ("GET", "/nodes/pve1/storage/local/identity"),
    ] {
        let eight = not_served(method, path, PveVersion::V8_4).message;
        assert_eq!(eight, format!("Method '{method} {path}' not implemented"));
    }
}

#[test]
fn every_served_path_exists_in_the_same_version_of_proxmox() {
    for (path, method, since9) in SCHEMA.served() {
        assert!(is_real(method, path, PveVersion::V9_2), "{method} {path}");
        assert_eq!(is_real(method, path, PveVersion::V8_4), !since9, "{method} {path}");
    }
}

#[test]
fn the_list_of_served_calls_leaves_out_those_that_the_version_lacks() {
    let eight = served_routes(PveVersion::V8_4);
    assert!(eight.contains(&"POST   /nodes/{node}/vzdump".to_owned()));
    let bulk = "POST   /cluster/bulk-action/guest/start".to_owned();
    assert!(!eight.contains(&bulk) && served_routes(PveVersion::V9_2).contains(&bulk));
}
