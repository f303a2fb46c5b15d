//! Lists the guests of a cluster. The third argument is the SHA-256 of the node's certificate, if
//! no known authority signed it.
//!
//! ```text
//! PVE_TOKEN=SECRET cargo run -p proxmox-client --example list_guests -- pve1.example.com ci@pve!list SHA256
//! ```

#![expect(clippy::print_stdout, reason = "what it is for")]

use std::error::Error;

use proxmox_client::{Client, Connection, Endpoint, Login, Tls, WireDialer, parse_pin};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(host), Some(id)) = (words.next(), words.next()) else {
        return Err(
            "give a node, the id of a token and, if needed, the SHA-256 of the certificate".into(),
        );
    };
    let tls = match words.next() {
        Some(pin) => Tls::Pins(vec![parse_pin(&pin)?]),
        None => Tls::System,
    };
    let login = Login::Token { id, secret: std::env::var("PVE_TOKEN")?.into() };
    let client =
        Client::new(&Connection::new(vec![Endpoint::new(host, 8006)], login, tls), &WireDialer)?;
    let (_, rows) = client.resources(true).await?;
    for guest in rows {
        let (vmid, node) = (guest.vmid.unwrap_or_default(), guest.node.unwrap_or_default());
        println!("{vmid:>9} {node} {}", guest.name.unwrap_or_default());
    }
    Ok(())
}
