//! Machines of the size that somebody asks for: by the command line over HTTP, and by labels of a job.

use serde_json::{Value, json};

use crate::gitlab::kind;
use crate::harness::{Service, Sim, Site, world};
use crate::ways::Scene;

const SIZABLE: &str = "    cores: 1\n    memoryMb: 512\n    \
                       sizeLabels: {cpu: {max: 8}, memory: {max: 4Gi}, disk: {max: 60}}\n";

/// Cores, memory and boot disk of an agent's guest.
fn guest(sim: &Sim, agent: &Value) -> [String; 3] {
    let config = sim.config(sim.fact("node"), agent["vmid"].as_u64().unwrap());
    let text = |key: &str| config[key].to_string().trim_matches('"').to_owned();
    let disk = text("scsi0");
    [text("cores"), text("memory"), disk.split("size=").nth(1).unwrap().to_owned()]
}

fn agent(site: &Site, id: &Value) -> Value {
    site.json(&["agents"])["agents"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["id"] == *id)
        .cloned()
        .unwrap()
}

// Invariant: a lease has a machine of the size that its holder asked for, or hears the limits.

#[test]
fn the_command_line_leases_a_machine_of_a_size() {
    let (_dir, sim, site) = world();
    site.write_yaml(&site.yaml(&sim, SIZABLE));
    let _service = Service::start(&site);
    let asked = ["lease", "--template", "linux", "--cpu", "4", "--memory", "2g", "--disk", "50g"];
    let lease = site.json(&asked);
    assert_eq!(lease["wants"], "template `linux` with 4 cores, 2048 MiB of memory, 50 GiB of disk");
    let shown = agent(&site, &lease["agent"]);
    assert_eq!(shown["size"], json!({"cores": 4, "memoryMb": 2048, "diskSizeGb": 50}));
    assert_eq!(guest(&sim, &shown), ["4", "2048", "50G"]);
    let by_labels = site.json(&["lease", "--labels", "linux,cpu=8"]);
    let shown = agent(&site, &by_labels["agent"]);
    assert_eq!(guest(&sim, &shown)[..2], ["8", "512"]);
    let table = String::from_utf8(site.cli(&["agents"]).stdout).unwrap();
    assert!(table.contains("8 cores, 512 MiB of memory"), "{table}");
    let out = site.cli(&["lease", "--template", "linux", "--cpu", "64", "--", "true"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{said}");
    let limits = "template `lab/linux` gives 1 to 8 cores (`sizeLabels`), not 64";
    assert!(said.contains(limits), "{said}");
}

// Invariant: the labels of a job say how large its machine is, and its runner has them.

#[test]
fn a_job_of_gitlab_runs_on_a_machine_of_the_size_that_its_tags_name() {
    let sizable = |_: &Site, yaml: String| yaml + SIZABLE;
    let mut scene = Scene::start_with(&kind(), "", sizable, |_| ());
    // One after the other: the runner of the large one may be given the plain one too.
    scene.push("large", &["linux", "cpu=4"], None, "sleep 600");
    scene.events.until("source", |fact| fact["source"]["running"] == 1);
    scene.push("plain", &["linux"], None, "sleep 600");
    scene.events.until("source", |fact| fact["source"]["running"] == 2);
    let agents = scene.site.json(&["agents"]);
    let agents = agents["agents"].as_array().unwrap().iter();
    let mut guests: Vec<_> = agents.map(|one| guest(&scene.sim, one)).collect();
    guests.sort();
    let sizes: Vec<_> = guests.iter().map(|[cores, memory, _]| (&**cores, &**memory)).collect();
    assert_eq!(sizes, [("1", "512"), ("4", "512")]);
    let rows = scene.server.fake().core.rows.clone();
    assert!(rows.iter().any(|row| row.labels.contains(&"cpu=4".to_owned())), "{rows:?}");
}
