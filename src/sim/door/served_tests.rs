//! What is listed as served against what is: the schema beside the code behind it.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeSet;

use serde_json::Value;

use super::certificates::Certificates;
use super::*;
use crate::guests::{NoneGuests, NoneOptions};
use crate::simulation::{Simulation, SimulationOptions};

fn simulation(version: PveVersion) -> Simulation {
    let spec = ClusterSpec::three_nodes("secret123", "token-secret");
    let options = SimulationOptions { version, ..SimulationOptions::default() };
    let guests = Arc::new(NoneGuests::new(NoneOptions::default()));
    Simulation::new(&spec, options, Certificates::imitate(1, &[]), guests)
}

/// What stands for a parameter of a path.
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

/// A call as the door makes it once it has let the parameters through.
fn call_with(names: &[String]) -> impl FnOnce((&'static str, &'static str, bool)) -> Call {
    let node = names.iter().any(|name| name == "node").then(|| "pve1".to_owned());
    let params = names.iter().map(|name| (name.clone(), stand_in(name))).collect();
    let on = "pve1".to_owned();
    move |(method, route, protected): (&'static str, &'static str, bool)| Call {
        caller: Caller { userid: "root@pam".into(), token: None },
        at: on.clone(),
        on,
        protected,
        method,
        route,
        node,
        params: Params(params),
        file: None,
    }
}

// Invariant: the list of what is served says what the simulator does.

#[tokio::test(start_paused = true)]
async fn each_route_that_is_listed_reaches_code_of_its_own() {
    for version in [PveVersion::V8_4, PveVersion::V9_2] {
        let simulation = simulation(version);
        for line in served(version) {
            let (method, path) = line.split_once(' ').unwrap();
            let path = path.trim();
            let (route, in_path) = SCHEMA.find(method, path, version).unwrap();
            assert_eq!(route.path, path);
            let names: Vec<String> = in_path.into_keys().collect();
            let outcome = simulation.door.run(route, call_with(&names)).await;
            let Err(error) = outcome else { continue };
            let refused = ["drover sim does not serve ", "Method '"];
            let is_refused = refused.iter().any(|start| error.message.starts_with(start));
            assert!(error.status != 501 || !is_refused, "{line}: {error}");
        }
    }
}

/// Method and path of each handler in a source.
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
        (include_str!("../world/routes.rs"), &["", vm, storage]),
        (include_str!("../world/lxc/mod.rs"), &["/nodes/{node}/lxc"]),
        (include_str!("../world/ha.rs"), &["/cluster/ha/"]),
        (include_str!("../world/sdn.rs"), &["/cluster/sdn"]),
        (include_str!("../world/firewall/mod.rs"), &[firewall]),
        (include_str!("../world/firewall/sets.rs"), &[firewall]),
        (include_str!("../world/firewall/aliases.rs"), &[firewall]),
        (include_str!("../world/firewall/groups.rs"), &["/cluster/firewall/groups"]),
        (include_str!("../world/firewall/rules.rs"), &["/cluster/firewall/rules"]),
        (include_str!("access/acl.rs"), &[""]),
        (include_str!("access/groups.rs"), &[""]),
        (include_str!("access/pools.rs"), &[""]),
        (include_str!("access/realms.rs"), &[""]),
        (include_str!("access/users.rs"), &[""]),
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
fn each_route_stands_in_the_schema_once() {
    let mut seen = BTreeSet::new();
    for (path, method, _) in SCHEMA.served() {
        assert!(seen.insert((path, method)), "{method} {path}");
    }
}
