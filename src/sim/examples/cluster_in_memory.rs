//! Starts a simulated cluster of three nodes in this process and clones a guest on it, as a test
//! would.
//!
//! ```text
//! cargo run -p pve-sim --example cluster_in_memory
//! ```

#![expect(clippy::print_stdout, reason = "the example shows its result")]

use std::error::Error;
use std::sync::Arc;

use proxmox_client::{Client, Connection, Endpoint, Login, Tls};
use pve_sim::api::certificates::Certificates;
use pve_sim::guests::{StubGuests, StubOptions};
use pve_sim::simulation::{Simulation, SimulationOptions};
use pve_sim::spec::ClusterSpec;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let spec = ClusterSpec::three_nodes("password", "token-secret");
    let nodes: Vec<String> = spec.nodes.iter().map(|node| node.name.clone()).collect();
    let cluster = Simulation::new(
        &spec,
        SimulationOptions::default(),
        Certificates::fake(1, &nodes),
        Arc::new(StubGuests::new(StubOptions::default())),
    );
    let login = Login::Token {
        id: format!("root@pam!{}", spec.root_tokens[0].name),
        secret: spec.root_tokens[0].secret.clone().into(),
    };
    let endpoints = nodes.iter().map(|node| Endpoint::new(node, 8006)).collect();
    let connection = Connection::new(endpoints, login, Tls::System);
    let client = Client::new(&connection, &cluster.dialer())?;
    let template = client.resources(true).await?.1.into_iter().next().ok_or("no template")?;
    let home = template.node.ok_or("a template without a node")?;
    let how = vec![("newid".to_owned(), "101".to_owned())];
    let task = client.clone_guest(&home, u32::try_from(template.vmid.unwrap_or(0))?, how).await?;
    println!("cloned by {task}");
    for guest in client.resources(true).await?.1 {
        println!("{:>9} {}", guest.vmid.unwrap_or_default(), guest.name.unwrap_or_default());
    }
    Ok(())
}
