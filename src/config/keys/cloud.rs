//! Keys of `cloudDefaults` and each entry of `cloudConfigurations`.

use std::collections::BTreeMap;

use drover_model::spec::WIDTH;

use super::placement::HEADROOM;
use super::shared::TRUST;
use super::{
    Key, LAST_VMID, LONG, MANY, Raw, Table, flag, lists, mapping, names, text, texts, value, whole,
};

static WAYS: [&[&str]; 2] = [&["apiUrl", "apiUrls"], &TRUST];

table! {
    /// Keys of `cloudDefaults` and each entry of `cloudConfigurations`.
    CLOUD, ways: WAYS => RawCloud {
        "name" => name: String,
            text().required().filled("the name is blank", "name the cloud").eg(r#""Production""#),
            "display name; only in cloudConfigurations";
        "apiUrl" => api_url: String,
            text().or_text("https://localhost:8006").check(value::endpoint),
            "URL of the Proxmox API, with or without /api2/json";
        "apiUrls" => api_urls: Option<Vec<String>>,
            texts().check(value::endpoint).eg(r#"["https://pve1:8006", "https://pve2:8006"]"#)
                .filled("no URL is listed", "list at least one, such as `https://pve1:8006`"),
            "several URLs in place of apiUrl; drover tries them in turn";
        "credentialsId" => credentials_id: Option<String>, text().eg(r#""proxmox-token""#),
            "a proxmoxToken or proxmoxPassword; unset: the login of the environment";
        "caFile", text().eg("/etc/drover/pve-root-ca.pem"),
            "PEM file of trusted CA certificates; without any TLS key: the system's CAs";
        "caPem", text().eg(r#""-----BEGIN CERTIFICATE-----\n...""#),
            "text of such a file, in place of caFile";
        "pinSha256",
            texts().check(value::pin).eg(r#"["AB:CD:..."]"#),
            "SHA-256 fingerprints of accepted certificates, in place of caFile";
        "ignoreSslErrors", flag().or_flag(false),
            "true: certificates are not verified; drover warns about it";
        "connectTimeoutSec" => connect_timeout_sec: u64, whole(1..=300).or(10),
            "seconds to connect to the API";
        "callTimeoutSec" => call_timeout_sec: u64, whole(5..=3600).or(60),
            "seconds for one API call in all; Proxmox's own proxy times out after 30 s";
        "instanceCap" => instance_cap: u32, whole(0..=MANY).or(0),
            "maximum number of agents of all templates together; 0: unlimited";
        "operationTimeoutSec" => operation_timeout_sec: u64, whole(1..=LONG).or(300),
            "seconds for one Proxmox task, such as a start or a destroy";
        "startVmId" => start_vm_id: u32,
            whole(100..=LAST_VMID).or(100).at_most("endVmId").variable("RUNNER_ID_START"),
            "lowest VMID of an agent";
        "endVmId" => end_vm_id: u32, whole(100..=LAST_VMID).or(999_999).variable("RUNNER_ID_END"),
            "highest VMID of an agent";
        "cleanupOrphanedAgents" => cleanup_orphaned_agents: bool, flag().or_flag(false),
            "true: drover destroys orphans; false: it only reports them";
        "orphanCleanupPeriodSeconds" => orphan_cleanup_period_seconds: u64,
            whole(30..=LONG).or(600),
            "seconds between two reconciliations with the cluster";
        "orphanCleanupGracePeriodSeconds" => orphan_cleanup_grace_period_seconds: u64,
            whole(0..=LONG).or(300),
            "seconds before drover destroys an orphan; 0: at once";
        "nodeGracePeriodSeconds" => node_grace_period_seconds: u64, whole(0..=LONG).or(300),
            "seconds a node is offline before drover parks its agents; 0: at once";
        "cloudInitIsoStorage" => cloud_init_iso_storage: String,
            text().or_text("local").check(value::storage).variable("PROXMOX_STORAGE"),
            "storage for cloud-init ISO images, for templates with their own user data";
        "networkNames" => network_names: BTreeMap<String, String>,
            names().or_empty().check(value::network),
            "bridges by network name, beside lan, default, dmz, mgmt and management; `vmbr0.100` \
             is VLAN 100 on vmbr0";
        "clonesPerStorage" => clones_per_storage: u32, whole(1..=1000).or(WIDTH as u64),
            "maximum number of clones, and of destroys, at a time on one storage";
        "operationsPerNode" => operations_per_node: u32, whole(1..=1000).or(WIDTH as u64),
            "maximum number of clones, and of starts, at a time on one node";
        "adaptLanes" => adapt_lanes: bool, flag().or_flag(true),
            "true: drover lowers these two limits while operations slow down or fail; false: fixed \
             limits";
        "region" => region: String, text().or_text("").check(value::place),
            "all templates of the cloud carry the label region:<this>; blank: no label";
        "zone" => zone: String, text().or_text("").check(value::place),
            "all templates of the cloud carry the label zone:<this>; blank: no label";
        "nodeLabels" => node_labels: Option<BTreeMap<String, Vec<String>>>,
            lists().check(value::label).eg(r#"{pve1: ["ssd", "gpu"]}"#),
            "labels of each node, for nodeSelector; unset: none";
        "storageClasses" => storage_classes: Option<BTreeMap<String, Vec<String>>>,
            lists().check(value::storage).eg(r#"{fast: ["nvme1", "nvme2"]}"#),
            "storages of each class, for storageClass; unset: none";
        "memoryOvercommitPercent" => memory_overcommit_percent: u64,
            whole(100..=1000).or(100),
            "memory that guests of a node may have together, in percent of the node's memory";
        "headroom", mapping(&HEADROOM).eg("{memoryMb: 4096, memoryPercent: 10}"),
            "what stays free on every node and storage; unset: nothing";
    }
}
