//! Where the nodes of a cluster may be reached, from the one address that is known.

use proxmox_client::Endpoint;

use super::cluster::NodeSeen;

/// The addresses at which one node may answer, the best first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeWays {
    pub node: String,
    pub ways: Vec<Endpoint>,
}

/// The addresses of all online nodes but the one that answered at `given`. A name in the domain of
/// `given` comes first, since certificates of other authorities name no address.
pub fn ways(given: &Endpoint, nodes: &[NodeSeen]) -> Vec<NodeWays> {
    let local = nodes.iter().find(|node| node.local).map_or("", |node| node.name.as_str());
    let domain = given.host().strip_prefix(local).filter(|_| !local.is_empty());
    let domain = domain.filter(|rest| rest.is_empty() || rest.starts_with('.'));
    let others = nodes.iter().filter(|node| node.online && !node.local);
    let found = others.map(|node| {
        let named = domain.map(|domain| format!("{}{domain}", node.name));
        let hosts = named.into_iter().chain(node.ip.clone());
        let ways = hosts.map(|host| Endpoint::new(host, given.port())).collect();
        NodeWays { node: node.name.clone(), ways }
    });
    found.collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    // Invariant: a node is looked for under a name like the one given, then at its own address; nodes
    // that are offline, and the one that answered, are not looked for.

    fn node(name: &str, ip: &str) -> NodeSeen {
        let (name, ip) = (name.to_owned(), Some(ip.to_owned()));
        NodeSeen { name, ip, online: true, ..NodeSeen::default() }
    }

    fn hosts(given: &str) -> Vec<String> {
        let pve1 = NodeSeen { local: true, ..node("pve1", "10.0.0.1") };
        let gone = NodeSeen { online: false, ..node("pve3", "10.0.0.3") };
        let nodes = [pve1, node("pve2", "10.0.0.2"), gone];
        let found = ways(&given.parse().unwrap(), &nodes);
        found.into_iter().flat_map(|one| one.ways).map(|one| one.to_string()).collect()
    }

    #[test]
    fn other_nodes_are_named_like_the_one_that_is_known() {
        let named = ["https://pve2.lan.example:8443", "https://10.0.0.2:8443"];
        assert_eq!(hosts("https://pve1.lan.example:8443"), named);
        assert_eq!(hosts("pve1"), ["https://pve2:8006", "https://10.0.0.2:8006"]);
        assert_eq!(hosts("10.0.0.1"), ["https://10.0.0.2:8006"]);
        assert_eq!(hosts("pve10.lan"), ["https://10.0.0.2:8006"], "no domain of pve1");
    }
}
