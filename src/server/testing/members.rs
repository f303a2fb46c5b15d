//! The members of a store, for tests.

use drover_api::{MemberOut, MembersOut};
use drover_vault::ClusterKey;
use secrecy::SecretString;

/// The members of a store, of which `a` leads.
pub fn members() -> MembersOut {
    let member = |name: &str, role: &str| MemberOut {
        name: name.to_owned(),
        url: format!("http://{name}:7780"),
        drover: "0.1.0".to_owned(),
        role: role.to_owned(),
        detail: None,
        refused: None,
        silent_seconds: None,
        configuration: "5b2c4f0e91aa".to_owned(),
    };
    MembersOut {
        store: "etcd://etcd:2379/drover".to_owned(),
        leader: Some("a".to_owned()),
        last_leader: None,
        term: 3,
        members: vec![member("a", "leader"), member("b", "standby")],
    }
}

/// The key of the members of a store.
pub fn members_key() -> ClusterKey {
    ClusterKey::new(&SecretString::from("a key of the members, 32 bytes or more")).unwrap()
}
