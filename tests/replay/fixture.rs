//! The installation whose answers were recorded, as a simulated cluster.

use std::sync::Arc;

use pve_sim::api::Api;
use pve_sim::api::access::Access;
use pve_sim::clock::WallClock;
use pve_sim::spec::{ClusterSpec, PveVersion};
use pve_sim::world::{World, WorldControl, WorldOptions};
use serde_json::{Value, json};

use crate::guest::RecordedGuests;

/// Unix seconds at which the recording began.
const BEGIN: u64 = 1_795_250_900;

/// The tokens by the names the recording gives them.
pub const TOKENS: [(&str, &str); 6] = [
    ("root", "root@pam!full=11111111-1111-1111-1111-111111111111"),
    ("ci", "ci@pve!limited=22222222-2222-2222-2222-222222222222"),
    ("none", "ci@pve!none=33333333-3333-3333-3333-333333333333"),
    ("expired", "ci@pve!expired=44444444-4444-4444-4444-444444444444"),
    ("aud", "aud@pve!aud=55555555-5555-5555-5555-555555555555"),
    ("off", "off@pve!tok=66666666-6666-6666-6666-666666666666"),
];

/// The installation, ready to answer.
pub struct Installation {
    pub api: Arc<Api>,
    pub side: WorldControl,
}

pub fn build() -> Installation {
    let spec: ClusterSpec = serde_json::from_value(spec()).unwrap();
    let clock = WallClock::starting_at(BEGIN);
    let access = Access::new(&spec, PveVersion::V8_4, clock);
    let options =
        WorldOptions { version: PveVersion::V8_4, epoch: BEGIN, ..WorldOptions::default() };
    let guests = Arc::new(RecordedGuests::default());
    let world = World::new(&spec, options, Arc::clone(&access) as _, guests);
    let side = world.control();
    let api = Api::new(&spec, PveVersion::V8_4, 1, access, world, None);
    Installation { api, side }
}

fn spec() -> Value {
    let token = |name: &str, privsep: bool, expire: u64| {
        let (_, text) =
            TOKENS.iter().find(|(_, text)| text.contains(&format!("!{name}="))).unwrap();
        let secret = text.split_once('=').unwrap().1;
        json!({"name": name, "secret": secret, "privsep": privsep, "expire": expire})
    };
    let dir = |name: &str, content: &[&str]| json!({"name": name, "type": "dir", "content": content, "sizeBytes": 1_u64 << 36});
    let both = |path: &str, role: &str| {
        [
            json!({"path": path, "who": "ci@pve", "role": role}),
            json!({"path": path, "who": "ci@pve!limited", "role": role}),
        ]
    };
    let mut acl = vec![json!({"path": "/", "who": "aud@pve", "role": "PVEAuditor"})];
    acl.extend(both("/pool/ci", "RunnerRole"));
    acl.extend(both("/storage/store", "PVEDatastoreUser"));
    acl.extend(both("/sdn/zones/localnetwork", "PVESDNUser"));
    json!({
        "nodes": [{"name": "pve1", "cpus": 2, "memoryBytes": 25_276_502_016_u64}],
        "storages": [
            dir("local", &["iso", "vztmpl", "backup", "snippets"]),
            dir("store", &["images", "iso", "import", "snippets"]),
            dir("store2", &["images"]),
            dir("isoonly", &["iso"]),
        ],
        "users": [
            {"userid": "ci@pve", "password": "secret123", "tokens": [
                token("limited", true, 0), token("none", true, 0),
                token("expired", false, 1_000_000_000)]},
            {"userid": "aud@pve", "tokens": [token("aud", false, 0)]},
            {"userid": "off@pve", "enabled": false, "tokens": [token("tok", true, 0)]},
        ],
        "roles": {"RunnerRole": [
            "VM.Allocate", "VM.Audit", "VM.Clone", "VM.Config.CPU", "VM.Config.Cloudinit",
            "VM.Config.Disk", "VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network",
            "VM.Config.Options", "VM.Console", "VM.Monitor", "VM.PowerMgmt", "VM.Snapshot",
            "Pool.Audit"]},
        "acl": acl,
        "pools": [{"name": "ci", "comment": "runner pool"}, {"name": "other"}],
        "rootPassword": "not used in the recording",
        "rootTokens": [token("full", false, 0)],
    })
}
