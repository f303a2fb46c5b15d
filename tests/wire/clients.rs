//! Clients that others wrote, as PyPI has them, each with a simulator of its own: Ansible with
//! community.proxmox 1.4.0 (of `ansible` 12.3.0), and prometheus-pve-exporter 3.10.2.
//!
//! Terraform's providers bpg and telmate and Packer's plugin are played by hand: their builds take
//! seven minutes.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Kept, Lines, Sim};

/// The Python that has them, without what this machine sets for them and for proxies.
pub fn python() -> Command {
    let python = std::env::var("DROVER_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let mut command = Command::new(python);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().to_ascii_uppercase();
        let own = ["ANSIBLE_", "PVE_", "PROXMOX_"].iter().any(|start| text.starts_with(start));
        if own || text.ends_with("_PROXY") {
            command.env_remove(&name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// Plays a book of `tests/wire/ansible` on a simulator: each of its tasks must succeed.
fn play(book: &str, sim: &Sim, dir: &Path) {
    let port = sim.fact("url").rsplit(':').next().unwrap();
    let mut command = python();
    let interpreter = command.get_program().to_string_lossy().into_owned();
    command.args(["-m", "ansible", "playbook", "-i", "localhost,", "-c", "local"]);
    for (name, value) in [
        ("ansible_python_interpreter", interpreter.as_str()),
        ("sim_host", "127.0.0.1"),
        ("sim_port", port),
        ("sim_user", sim.fact("adminUser")),
        ("sim_password", sim.fact("adminPassword")),
        ("sim_node", sim.fact("node")),
    ] {
        command.arg("-e").arg(format!("{name}={value}"));
    }
    command.arg(format!("{}/tests/wire/ansible/{book}", env!("CARGO_MANIFEST_DIR")));
    command.current_dir(dir).env("HOME", dir).env("ANSIBLE_HOME", dir.join("ansible"));
    command.env("ANSIBLE_NOCOLOR", "1").env("ANSIBLE_LOCALHOST_WARNING", "false");
    // Ansible runs in no other encoding.
    command.env("LC_ALL", "C.UTF-8").env("REQUESTS_CA_BUNDLE", sim.fact("caFile"));
    let out = command.output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let faults = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("failed=0"), "{said}{faults}");
}

/// Plays a life on this version: nothing of it is left.
fn live(book: &str, version: &str) {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start_with(dir.path(), &["--guests", "process", "--pve", version]);
    play(book, &sim, dir.path());
    assert_eq!(sim.guests(), Vec::<u64>::new());
}

// Invariant: any Proxmox client can use the simulator.

#[test]
fn ansible_drives_a_virtual_machines_whole_life_on_8() {
    live("machine.yml", "8.4");
}

#[test]
fn ansible_drives_a_virtual_machines_whole_life_on_9() {
    live("machine.yml", "9.2");
}

#[test]
fn ansible_drives_a_containers_whole_life_on_8() {
    live("container.yml", "8.4");
}

#[test]
fn ansible_drives_a_containers_whole_life_on_9() {
    live("container.yml", "9.2");
}

#[test]
fn ansible_changes_networks_under_their_lock_and_the_guests_of_a_backup_job() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start_with(dir.path(), &["--guests", "none", "--pve", "9.2"]);
    let job = [("id", "nightly"), ("schedule", "02:00"), ("storage", "local"), ("vmid", "9000")];
    sim.send("POST", "/cluster/backup", &job);
    play("cluster.yml", &sim, dir.path());
    assert_eq!(sim.call("GET", "/cluster/backup/nightly")["data"]["vmid"], "9000");
    assert_eq!(sim.call("GET", "/cluster/sdn/zones")["data"], serde_json::json!([]));
}

/// The metrics that the exporter has of a cluster without a quorum device.
const METRICS: [&str; 36] = [
    "pve_cluster_info",
    "pve_cpu_usage_limit",
    "pve_cpu_usage_ratio",
    "pve_disk_read_bytes",
    "pve_disk_read_bytes_total",
    "pve_disk_size_bytes",
    "pve_disk_usage_bytes",
    "pve_disk_write_bytes",
    "pve_disk_written_bytes_total",
    "pve_guest_info",
    "pve_ha_state",
    "pve_lock_state",
    "pve_memory_size_bytes",
    "pve_memory_usage_bytes",
    "pve_network_receive_bytes",
    "pve_network_receive_bytes_total",
    "pve_network_transmit_bytes",
    "pve_network_transmit_bytes_total",
    "pve_node_info",
    "pve_not_backed_up_info",
    "pve_not_backed_up_total",
    "pve_onboot_status",
    "pve_replication_duration_seconds",
    "pve_replication_failed_syncs",
    "pve_replication_info",
    "pve_replication_last_sync_timestamp_seconds",
    "pve_replication_last_try_timestamp_seconds",
    "pve_replication_next_sync_timestamp_seconds",
    "pve_storage_info",
    "pve_storage_shared",
    "pve_subscription_info",
    "pve_subscription_next_due_timestamp_seconds",
    "pve_subscription_status",
    "pve_up",
    "pve_uptime_seconds",
    "pve_version_info",
];

/// What the exporter says of a cluster of this version, with its default flags.
fn scrape(version: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start_with(dir.path(), &["--guests", "none", "--pve", version]);
    let (user, token) = sim.fact("tokenId").split_once('!').unwrap();
    let mut command = python();
    command.args(["-m", "pve_exporter", "--web.listen-address", "127.0.0.1:0"]);
    command.env("PVE_USER", user).env("PVE_TOKEN_NAME", token);
    command.env("PVE_TOKEN_VALUE", sim.fact("tokenSecret"));
    command.env("REQUESTS_CA_BUNDLE", sim.fact("caFile"));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut exporter = Kept(command.spawn().unwrap());
    let stderr = exporter.0.stderr.take().unwrap();
    let mut log = Lines::of("prometheus-pve-exporter", stderr);
    let line = log.until(|line| line.contains("Listening at: "));
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let target = sim.fact("url").trim_start_matches("https://");
    let out = Command::new("curl")
        .args(["-sS", "--noproxy", "*", "-w", "%{http_code}"])
        .arg(format!("{url}/pve?target={target}"))
        .output()
        .unwrap();
    // Its worker ends with it.
    exporter.signal("TERM");
    assert_eq!(exporter.wait(), Some(0));
    let text = String::from_utf8(out.stdout).unwrap();
    text.strip_suffix("200").unwrap_or_else(|| panic!("{text}{}", log.rest())).to_owned()
}

#[test]
fn an_exporter_for_prometheus_has_all_its_metrics_of_a_cluster() {
    for version in ["8.4", "9.2"] {
        let text = scrape(version);
        let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let names = families.filter_map(|family| family.split(' ').next());
        assert_eq!(names.collect::<BTreeSet<_>>(), BTreeSet::from(METRICS), "{version}");
        for line in [
            "pve_up{id=\"node/pve3\"} 1.0",
            "pve_not_backed_up_total{id=\"cluster/drover\"} 3.0",
            "pve_not_backed_up_info{id=\"qemu/9001\"} 1.0",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}: {text}");
        }
        assert!(text.contains(&format!("pve_version_info{{release=\"{version}\"")), "{text}");
    }
}
