//! Typed calls for administration.
//!
//! - to check: clocks, versions, bridges, storages and snippets of nodes, VNets, privileges.
//! - to read and create: users, roles, pools, access entries and API tokens.
//!
//! What the login may not see is missing from the answers, without an error. All calls fail with a
//! [`PveError`].

use std::collections::{BTreeMap, BTreeSet};

use secrecy::SecretString;
use serde::Deserialize;
use serde_json::Value;

use crate::client::{Client, Params};
use crate::error::PveError;
use crate::loose;
use crate::transport::{Method, encode};
use crate::types::{ResourceMapping, Version, Volume};

/// `GET /nodes/{node}/time`.
#[derive(Debug, Clone, Deserialize)]
struct NodeTime {
    #[serde(default, deserialize_with = "loose::maybe_number")]
    time: Option<u64>,
}

/// One interface of `GET /nodes/{node}/network`.
#[derive(Debug, Clone, Deserialize)]
pub struct NodeInterface {
    /// The name, such as `vmbr0`.
    pub iface: String,
    /// The type, such as `bridge`, `OVSBridge` or `vnet`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Whether the interface is up.
    #[serde(default, deserialize_with = "loose::flag")]
    pub active: bool,
}

/// One storage of `GET /nodes/{node}/storage`.
#[derive(Debug, Clone, Deserialize)]
pub struct NodeStorage {
    /// The storage's name in the cluster's configuration.
    pub storage: String,
    /// The plug-in, such as `lvmthin`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// The content types that the storage accepts, separated by commas.
    #[serde(default)]
    pub content: String,
    /// Whether the node can reach the storage.
    #[serde(default, deserialize_with = "loose::maybe_flag")]
    pub active: Option<bool>,
    /// Whether the storage may be used.
    #[serde(default, deserialize_with = "loose::maybe_flag")]
    pub enabled: Option<bool>,
    /// Whether all nodes see the same contents.
    #[serde(default, deserialize_with = "loose::flag")]
    pub shared: bool,
    /// Free space in bytes.
    #[serde(default, deserialize_with = "loose::maybe_number")]
    pub avail: Option<u64>,
    /// Total space in bytes.
    #[serde(default, deserialize_with = "loose::maybe_number")]
    pub total: Option<u64>,
}

/// One VNet of `GET /cluster/sdn/vnets`.
#[derive(Debug, Clone, Deserialize)]
struct Vnet {
    vnet: String,
    #[serde(default)]
    zone: String,
}

/// One user of `GET /access/users?full=1`.
#[derive(Debug, Clone, Deserialize)]
pub struct User {
    /// The full name, `user@realm`.
    pub userid: String,
    /// Whether the user may log in; absent means yes.
    #[serde(default, deserialize_with = "loose::maybe_flag")]
    pub enable: Option<bool>,
    /// When the account expires, in Unix seconds; 0 means never.
    #[serde(default, deserialize_with = "loose::maybe_number")]
    pub expire: Option<u64>,
    /// The user's API tokens.
    #[serde(default)]
    pub tokens: Vec<Token>,
}

/// One API token of a user.
#[derive(Debug, Clone, Deserialize)]
pub struct Token {
    /// The token's name, without the user.
    pub tokenid: String,
    /// When the token expires, in Unix seconds; 0 means never.
    #[serde(default, deserialize_with = "loose::maybe_number")]
    pub expire: Option<u64>,
    /// Whether the token has privileges of its own, apart from its user's (privilege separation).
    #[serde(default, deserialize_with = "loose::flag")]
    pub privsep: bool,
    /// The comment that was entered with the token.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub comment: Option<String>,
}

/// One role of `GET /access/roles`.
#[derive(Debug, Clone, Deserialize)]
struct RoleRow {
    roleid: String,
    #[serde(default, deserialize_with = "loose::maybe_text")]
    privs: Option<String>,
}

/// One access entry of `GET /access/acl`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct AclEntry {
    /// The path to which the entry applies.
    pub path: String,
    /// Who gets the role: a user, a token's full id, or a group.
    pub ugid: String,
    /// `user`, `token` or `group`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The role that is granted.
    pub roleid: String,
    /// Whether the entry also applies below the path.
    #[serde(default, deserialize_with = "loose::flag")]
    pub propagate: bool,
}

/// The pool of a guest, from its row in the cluster's list.
#[derive(Debug, Clone, Deserialize)]
struct GuestPool {
    #[serde(default, deserialize_with = "loose::maybe_number")]
    vmid: Option<u64>,
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pool: Option<String>,
}

/// Privileges, each with whether it also applies below the path.
pub type Privileges = BTreeMap<String, bool>;

/// A storage as the cluster defines it.
#[derive(Debug, Deserialize)]
struct StorageDefinition {
    /// Types of content, separated by commas.
    content: String,
    /// The digest of the file with all definitions.
    digest: String,
}

fn params<const N: usize>(pairs: [(&str, &str); N]) -> Params {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn flag(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}

impl Client {
    /// The node's clock in Unix seconds; none when the node does not report it.
    pub async fn node_time(&self, node: &str) -> Result<Option<u64>, PveError> {
        let path = format!("/nodes/{}/time", encode(node));
        Ok(self.get::<NodeTime>(&path, Params::new()).await?.time)
    }

    /// The Proxmox version of one node.
    pub async fn node_version(&self, node: &str) -> Result<String, PveError> {
        let path = format!("/nodes/{}/version", encode(node));
        Ok(self.get::<Version>(&path, Params::new()).await?.version)
    }

    /// The bridges of a node that the login may see, and the VNets that are active there.
    pub async fn bridges_of(&self, node: &str) -> Result<Vec<NodeInterface>, PveError> {
        let path = format!("/nodes/{}/network", encode(node));
        self.get(&path, params([("type", "any_bridge")])).await
    }

    /// The snippets on a node's storage. Proxmox lists them only to logins with
    /// `Datastore.Allocate` there.
    pub async fn snippets(&self, node: &str, storage: &str) -> Result<BTreeSet<String>, PveError> {
        let (node, storage) = (encode(node), encode(storage));
        let path = format!("/nodes/{node}/storage/{storage}/content");
        let found: Vec<Volume> = self.get(&path, params([("content", "snippets")])).await?;
        Ok(found.into_iter().map(|one| one.volid).collect())
    }

    /// The storages of a node that the login may see, disabled ones included.
    pub async fn storages_of(&self, node: &str) -> Result<Vec<NodeStorage>, PveError> {
        let path = format!("/nodes/{}/storage", encode(node));
        self.get(&path, Params::new()).await
    }

    /// The resource mappings of a kind, `pci` or `usb`, that the login may see.
    pub async fn resource_mappings(&self, kind: &str) -> Result<Vec<ResourceMapping>, PveError> {
        self.get(&format!("/cluster/mapping/{}", encode(kind)), Params::new()).await
    }

    /// The zone of each VNet that the login may see; empty without SDN.
    pub async fn vnet_zones(&self) -> Result<BTreeMap<String, String>, PveError> {
        match self.get::<Vec<Vnet>>("/cluster/sdn/vnets", Params::new()).await {
            Ok(vnets) => Ok(vnets.into_iter().map(|one| (one.vnet, one.zone)).collect()),
            Err(PveError::Refused { refusal, .. }) if refusal.status == 501 => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        }
    }

    /// The users that the login may see, with their tokens.
    pub async fn users(&self) -> Result<Vec<User>, PveError> {
        self.get("/access/users", params([("full", "1")])).await
    }

    /// The privileges of every role.
    pub async fn roles(&self) -> Result<BTreeMap<String, BTreeSet<String>>, PveError> {
        let rows: Vec<RoleRow> = self.get("/access/roles", Params::new()).await?;
        let split = |privs: String| {
            let names = privs.split([',', ' ']).filter(|name| !name.is_empty());
            names.map(str::to_owned).collect()
        };
        let role = |row: RoleRow| (row.roleid, row.privs.map(split).unwrap_or_default());
        Ok(rows.into_iter().map(role).collect())
    }

    /// The access entries that the login may see.
    pub async fn acl_entries(&self) -> Result<BTreeSet<AclEntry>, PveError> {
        let rows: Vec<AclEntry> = self.get("/access/acl", Params::new()).await?;
        Ok(rows.into_iter().collect())
    }

    /// The names of the pools that the login may see.
    pub async fn pools(&self) -> Result<BTreeSet<String>, PveError> {
        let rows: Vec<Value> = self.get("/pools", Params::new()).await?;
        Ok(rows.iter().filter_map(|row| loose::as_text(row.get("poolid")?)).collect())
    }

    /// The names of the pools with exactly this comment, of those that the login may see.
    pub async fn pools_commented(&self, comment: &str) -> Result<BTreeSet<String>, PveError> {
        let rows: Vec<Value> = self.get("/pools", Params::new()).await?;
        let commented = |row: &&Value| row.get("comment").and_then(Value::as_str) == Some(comment);
        let found = rows.iter().filter(commented);
        Ok(found.filter_map(|row| loose::as_text(row.get("poolid")?)).collect())
    }

    /// The pool of each guest that is in one, by VMID.
    pub async fn pool_of_guests(&self) -> Result<BTreeMap<u64, String>, PveError> {
        let rows: Vec<GuestPool> = self.get("/cluster/resources", params([("type", "vm")])).await?;
        Ok(rows.into_iter().filter_map(|row| Some((row.vmid?, row.pool?))).collect())
    }

    /// The privileges of the login, or of `who`, on a path.
    pub async fn privileges(&self, path: &str, who: Option<&str>) -> Result<Privileges, PveError> {
        let mut filter = params([("path", path)]);
        filter.extend(who.map(|who| ("userid".to_owned(), who.to_owned())));
        let all: BTreeMap<String, BTreeMap<String, Value>> =
            self.get("/access/permissions", filter).await?;
        let held = all.into_values().flatten();
        Ok(held.map(|(name, below)| (name, loose::as_flag(&below).unwrap_or(false))).collect())
    }

    /// Creates a role; `privileges` is a list separated by commas.
    pub async fn create_role(&self, role: &str, privileges: &str) -> Result<(), PveError> {
        let how = params([("roleid", role), ("privs", privileges)]);
        self.write::<Value>(Method::Post, "/access/roles", how).await.map(drop)
    }

    /// Adds privileges to a role and keeps those that it has.
    pub async fn extend_role(&self, role: &str, privileges: &str) -> Result<(), PveError> {
        let path = format!("/access/roles/{}", encode(role));
        let how = params([("privs", privileges), ("append", "1")]);
        self.write::<Value>(Method::Put, &path, how).await.map(drop)
    }

    /// Lets a storage take one more type of content, such as `import`, and keeps those that it takes. Gives
    /// all of them, separated by commas; none where it took that type before. An edit between reading and
    /// writing is refused by the digest.
    pub async fn extend_storage(
        &self,
        storage: &str,
        content: &str,
    ) -> Result<Option<String>, PveError> {
        let path = format!("/storage/{}", encode(storage));
        let known: StorageDefinition = self.get(&path, Params::new()).await?;
        if known.content.split(',').any(|one| one.trim() == content) {
            return Ok(None);
        }
        let all = format!("{},{content}", known.content);
        let how = params([("content", &all), ("digest", &known.digest)]);
        self.write::<Value>(Method::Put, &path, how).await?;
        Ok(Some(all))
    }

    /// Creates a user without a password.
    pub async fn create_user(&self, user: &str, comment: &str) -> Result<(), PveError> {
        let how = params([("userid", user), ("comment", comment)]);
        self.write::<Value>(Method::Post, "/access/users", how).await.map(drop)
    }

    /// Creates an empty pool.
    pub async fn create_pool(&self, pool: &str, comment: &str) -> Result<(), PveError> {
        let how = params([("poolid", pool), ("comment", comment)]);
        self.write::<Value>(Method::Post, "/pools", how).await.map(drop)
    }

    /// Grants a user or a token a role on a path and below it.
    pub async fn grant(&self, path: &str, who: &str, role: &str) -> Result<(), PveError> {
        let kind = if who.contains('!') { "tokens" } else { "users" };
        let how = params([("path", path), (kind, who), ("roles", role)]);
        self.write::<Value>(Method::Put, "/access/acl", how).await.map(drop)
    }

    /// Creates a token and returns its secret, which Proxmox shows only this once.
    pub async fn create_token(
        &self,
        user: &str,
        name: &str,
        privsep: bool,
        comment: &str,
    ) -> Result<SecretString, PveError> {
        let how = params([("privsep", flag(privsep)), ("comment", comment)]);
        self.secret_of(Method::Post, user, name, how).await
    }

    /// Replaces a token's secret; its access entries stay, and the old secret stops working. Since
    /// Proxmox VE 9.
    pub async fn regenerate_token(&self, user: &str, name: &str) -> Result<SecretString, PveError> {
        self.secret_of(Method::Put, user, name, params([("regenerate", "1")])).await
    }

    async fn secret_of(
        &self,
        method: Method,
        user: &str,
        name: &str,
        how: Params,
    ) -> Result<SecretString, PveError> {
        /// No `Debug`: it holds a secret.
        #[derive(Deserialize)]
        struct Made {
            value: String,
        }
        Ok(self.write::<Made>(method, &token_path(user, name), how).await?.value.into())
    }

    /// Removes a token and its access entries.
    pub async fn remove_token(&self, user: &str, name: &str) -> Result<(), PveError> {
        let path = token_path(user, name);
        self.write::<Value>(Method::Delete, &path, Params::new()).await.map(drop)
    }
}

fn token_path(user: &str, name: &str) -> String {
    format!("/access/users/{}/token/{}", encode(user), encode(name))
}
