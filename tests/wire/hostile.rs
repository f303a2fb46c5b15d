//! Guests whose SSH server means harm.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::api::{Board, ask, call, ready, release};
use crate::harness::{Service, Site, note, world};

/// Megabytes that a service may grow by, whatever guests send.
const GROWTH: u64 = 150;

/// The first VMID of guests here; no other test has any near it.
const FIRST: u16 = 30_000;

/// Where guests with the first VMIDs are: the simulator draws their addresses from those.
fn places() -> impl Iterator<Item = Ipv4Addr> {
    let byte = |number: u16| number.to_le_bytes()[0];
    (FIRST..FIRST + 24)
        .map(move |vmid| Ipv4Addr::new(127, 77, byte(vmid / 254), byte(vmid % 254 + 1)))
}

/// A server wherever guests are, which treats each connection the same way.
fn server(manners: impl Fn(&mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static) -> u16 {
    let manners = Arc::new(manners);
    places().fold(0, |port, place| {
        let listener = TcpListener::bind((place, port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let manners = Arc::clone(&manners);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let manners = Arc::clone(&manners);
                // It ends when the client has had enough.
                std::thread::spawn(move || {
                    let _ = manners(&mut stream);
                });
            }
        });
        port
    })
}

/// Reads until the other side closes.
fn listen(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer)? > 0 {}
    Ok(())
}

/// The most memory a process ever had, in megabytes.
fn peak(service: &Service) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.child.0.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// A YAML with a template for each port, beside the good one.
fn yaml(site: &Site, sim: &crate::harness::Sim, ports: &[(&str, u16)]) -> String {
    let good = site.yaml(sim, "");
    let good = good.replace("startVmId: 10000", &format!("startVmId: {FIRST}"));
    let (_, agent) = good.split_once("  linux:\n").unwrap();
    let bad = ports.iter().map(|(name, port)| {
        let agent = agent.replace("name: linux", &format!("name: {name}"));
        let agent = agent.replace("sshPort: 2222", &format!("sshPort: {port}"));
        let agent = agent.replace("\"linux x64\"", name);
        format!("  {name}:\n{agent}    startupWaitSeconds: 8\n    breakerThreshold: 1\n")
    });
    format!("{good}\n{}", bad.collect::<String>())
}

// Invariant: whatever a guest's SSH server does costs its own agent, bounded time and bounded
// memory, and nobody else anything.

#[test]
fn ssh_servers_that_hang_lie_and_flood_cost_only_their_own_agents() {
    let (_dir, sim, site) = world();
    let flooded = Arc::new(AtomicU64::new(0));
    let (banner, packets) = (Arc::clone(&flooded), Arc::clone(&flooded));
    let flood = |count: &AtomicU64, stream: &mut TcpStream, what: &[u8]| -> std::io::Result<()> {
        for _ in 0..(100 << 20) / what.len() {
            stream.write_all(what)?;
            count.fetch_add(what.len() as u64, Ordering::Relaxed);
        }
        listen(stream)
    };
    let ports = [
        ("silent", server(listen)),
        ("closing", server(|_| Ok(()))),
        (
            "garbage",
            server(move |stream| {
                stream.write_all(&[0x9e; 70_000])?;
                listen(stream)
            }),
        ),
        (
            "greeting",
            server(move |stream| {
                // Lines before the version are allowed by the protocol, and have no end here.
                flood(&banner, stream, &[&b"welcome, "[..], &[b'x'; 8000], b"\r\n"].concat())
            }),
        ),
        ("longline", server(move |stream| flood(&packets, stream, &[b'S'; 65_536]))),
        (
            "keyless",
            server(move |stream| {
                stream.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n")?;
                listen(stream)
            }),
        ),
        (
            "hugepacket",
            server(move |stream| {
                stream.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n\xff\xff\xff\xf0\x04\x14")?;
                listen(stream)
            }),
        ),
    ];
    site.write_yaml(&yaml(&site, &sim, &ports));
    let service = Service::start(&site);
    let mut board = Board::open(&site);
    let good = ask(&site, "linux", "good");
    ready(&site, &good);
    let before = peak(&service);
    let leases: Vec<String> = ports.iter().map(|(name, _)| ask(&site, name, name)).collect();
    let mut failed = std::collections::BTreeMap::new();
    while failed.len() < ports.len() {
        let event = board.next(&site);
        let agent = &event["agent"];
        if event["kind"] == "agentGone" {
            let template = agent["template"].as_str().unwrap().to_owned();
            failed.insert(template, agent["detail"].as_str().unwrap().to_owned());
        }
    }
    assert!(failed.keys().all(|template| template != "lab/linux"), "{failed:?}");
    // Where nobody listened all of them would have taken too long.
    for (name, why) in [
        ("silent", "took too long"),
        ("closing", "took too long"),
        ("garbage", "invalid SSH version string"),
        ("greeting", "invalid SSH version string"),
        ("longline", "invalid SSH version string"),
        ("keyless", "took too long"),
        ("hugepacket", "Bad packet size"),
    ] {
        let detail = &failed[&format!("lab/{name}")];
        assert!(detail.contains(why), "{name}: {detail}");
    }
    let grown = peak(&service).saturating_sub(before);
    note(&format!(
        "hostile SSH servers sent {} MB; the service grew by {grown} MB",
        flooded.load(Ordering::Relaxed) >> 20
    ));
    assert!(grown < GROWTH, "grew by {grown} MB");
    // The others go on meanwhile.
    let out = site.cli(&["lease", "--labels", "linux", "--", "true"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    ready(&site, &good);
    for lease in leases.iter().chain([&good]) {
        release(&site, lease);
    }
    assert_eq!(call(&site, "POST", "/v1/reap", Some(&serde_json::json!({"all": true}))).0, 200);
}
