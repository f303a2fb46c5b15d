//! Machines of the size that somebody asks for: by the command line over HTTP, and by labels of a job.

use serde_json::{Value, json};

use crate::gitlab::kind;
use crate::harness::{Service, Sim, Site, drover, world};
use crate::open::Open;
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

// Invariant: a quota bounds the size of a machine by whichever way it is asked for, and nothing is started
// for what is beyond it.

#[test]
fn a_quota_bounds_the_size_that_a_token_may_ask_for() {
    let (_dir, sim, site) = world();
    let (open, yaml) = Open::of(&site, &site.yaml(&sim, SIZABLE));
    let quota = "{principal: \"token:ci\", maxCores: 4, maxMemoryMB: 2048, maxDiskGB: 20}";
    let leases = format!("service:\n  leases: {{quotas: [{quota}]}}\n");
    site.write_yaml(&yaml.replace("service:\n", &leases));
    let _service = Service::start(&site);
    let run = |words: &[&str]| {
        let mut command = drover();
        command.env("DROVER_URL", &open.url).env("DROVER_TOKEN_FILE", &open.token);
        command.env("XDG_RUNTIME_DIR", site.dir.path());
        let out = command.arg("--json").args(words).output().unwrap();
        (
            out.status.code(),
            String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned(),
        )
    };
    let lease = |size: &[&str]| run(&[&["lease"], size].concat());
    for (size, key) in [
        (&["--template", "linux", "--cpu", "5", "--disk", "20g"][..], "maxCores"),
        (&["--template", "linux", "--memory", "3g", "--disk", "20g"], "maxMemoryMB"),
        (&["--template", "linux", "--disk", "21g"], "maxDiskGB"),
        (&["--labels", "linux,cpu=8,disk=20g"], "maxCores"),
        // As large as its template image, which nobody says.
        (&["--template", "linux"], "maxDiskGB"),
    ] {
        let (code, said) = lease(size);
        assert!(code == Some(1) && said.contains(&format!("`{key}`")), "{size:?}: {said}");
    }
    assert_eq!(sim.guests(), Vec::<u64>::new());
    let most = ["--template", "linux", "--cpu", "4", "--memory", "2g", "--disk", "20g"];
    let (code, said) = lease(&most);
    assert_eq!(code, Some(0), "{said}");
    let shown = site.json(&["agents"])["agents"][0].clone();
    assert_eq!(guest(&sim, &shown), ["4", "2048", "20G"]);
    // Nor does a machine grow beyond it later, for any caller: it counts for who leased it.
    let leased = site.json(&["leases"])["leases"][0]["id"].as_str().unwrap().to_owned();
    let by_socket = |words: &[&str]| {
        let out = site.cli(words);
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    for (size, key) in [
        (["--cores", "5"], "maxCores"),
        (["--memory", "3g"], "maxMemoryMB"),
        (["--disk", "21g"], "maxDiskGB"),
    ] {
        let words = [&["machine", "resize", &leased][..], &size].concat();
        for (code, said) in [run(&words), by_socket(&words)] {
            assert!(code == Some(1) && said.contains(&format!("`{key}`")), "{size:?}: {said}");
        }
    }
    assert_eq!(guest(&sim, &shown), ["4", "2048", "20G"]);
    // The socket is another principal.
    let asked = ["lease", "--template", "linux", "--cpu", "8"];
    let shown = agent(&site, &site.json(&asked)["agent"]);
    assert_eq!(guest(&sim, &shown)[0], "8");
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
