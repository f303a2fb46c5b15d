//! The named worlds: descriptions of clusters that come with the simulator (`drover sim --world`).

use crate::spec::ClusterSpec;

/// A description of a cluster with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct World {
    pub name: &'static str,
    /// What is in it, in one line.
    pub about: &'static str,
    /// Its description; none for [`ClusterSpec::three_nodes`].
    yaml: Option<&'static str>,
}

const fn of(name: &'static str, about: &'static str, yaml: &'static str) -> World {
    World { name, about, yaml: Some(yaml) }
}

/// All named worlds; the first is the default.
pub const WORLDS: [World; 6] = [
    World {
        name: "three-nodes",
        about: "three nodes with a template each, local and shared storage",
        yaml: None,
    },
    of("lone", "one node outside a cluster", include_str!("worlds/lone.yaml")),
    of(
        "full-storage",
        "one node; its image storage has room for the template only",
        include_str!("worlds/full-storage.yaml"),
    ),
    of("troubles", "one template for each trouble of guests", include_str!("worlds/troubles.yaml")),
    of("big", "16 nodes with 48 running machines of others", include_str!("worlds/big.yaml")),
    of("old", "error bodies and types of before 2025", include_str!("worlds/old.yaml")),
];

/// No world has this name, or its description is wrong.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    #[error("unknown world `{0}`; the worlds are {names}", names = names())]
    Unknown(String),
    #[error("the description of world `{name}` is wrong; please report this as a bug")]
    Malformed {
        name: &'static str,
        #[source]
        source: serde_yaml::Error,
    },
}

fn names() -> String {
    WORLDS.map(|world| world.name).join(", ")
}

/// The description of a named world, without credentials.
///
/// # Errors
/// See [`WorldError`].
pub fn named(name: &str) -> Result<ClusterSpec, WorldError> {
    let found = WORLDS.into_iter().find(|world| world.name == name);
    let world = found.ok_or_else(|| WorldError::Unknown(name.to_owned()))?;
    match world.yaml {
        None => Ok(ClusterSpec {
            root_password: String::new(),
            root_tokens: Vec::new(),
            ..ClusterSpec::three_nodes("", "")
        }),
        Some(yaml) => serde_yaml::from_str(yaml)
            .map_err(|source| WorldError::Malformed { name: world.name, source }),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    // Invariant: a client that knows one world finds its way in each: a template to clone, a pool,
    // and nobody's credentials.
    #[test]
    fn every_world_has_a_template_and_the_pool_ci_and_no_credentials() {
        for world in WORLDS {
            let spec = named(world.name).unwrap();
            assert!(spec.guests.iter().any(|guest| guest.template), "{}", world.name);
            assert!(spec.pools.iter().any(|pool| pool.name == "ci"), "{}", world.name);
            assert!(spec.root_tokens.is_empty() && spec.root_password.is_empty());
        }
    }

    #[test]
    fn every_guest_of_a_world_is_on_a_node_of_it() {
        for world in WORLDS {
            let spec = named(world.name).unwrap();
            let known = |name: &String| spec.nodes.iter().any(|node| node.name == *name);
            assert!(spec.guests.iter().all(|guest| known(&guest.node)), "{}", world.name);
        }
    }

    #[test]
    fn an_unknown_world_is_refused_with_the_list() {
        let refused = named("paradise").unwrap_err().to_string();
        assert!(refused.starts_with("unknown world `paradise`; the worlds are three-nodes, lone"));
    }
}
