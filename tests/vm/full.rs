//! A whole Debian: cloud-init as it is, and a job of a real Gitea.

use serde_json::json;

use crate::gitea_server::{Gitea, job};
use crate::harness::{Service, Site, note};
use crate::world::{Machines, reap, says, until};

/// A template that also serves the jobs of a Gitea.
///
/// The runner in the guest calls the address that drover calls. There it leads to the guest itself,
/// so systemd passes it on to this computer, which QEMU shows as 10.0.2.2.
fn demand(site: &Site, yaml: &str, gitea: &Gitea) {
    site.write_secret("gitea", &gitea.token);
    let dir = site.dir.path().display();
    let runner = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/runner.py");
    let (_, port) = gitea.url.rsplit_once(':').unwrap();
    let forward = format!(
        "sudo systemd-run -q systemd-socket-activate -l 127.0.0.1:{port} \
         /usr/lib/systemd/systemd-socket-proxyd 10.0.2.2:{port}"
    );
    let place = "sudo install -m 755 runner.py /usr/local/bin/gitea-runner";
    let prepare = format!(
        "    prepare: [{{upload: {{from: \"{runner}\", to: runner.py}}}}, {{run: \"{place}\"}}, \
         {{run: \"{forward}\"}}]\n"
    );
    let yaml = yaml.replace(
        "credentials:\n",
        &format!("credentials:\n  gitea: {{kind: apiToken, secretFile: \"{dir}/gitea\"}}\n"),
    );
    let url = &gitea.url;
    site.write_yaml(&format!(
        "{yaml}{prepare}demand:\n  git: {{kind: gitea, url: \"{url}\", credentialsId: gitea, \
         labels: [linux], pollSeconds: 1}}\n"
    ));
}

// Invariant: cloud-init itself makes the machine what its template says, and it serves a lease and
// a job.

#[test]
fn a_debian_with_cloud_init_serves_a_lease_and_a_job_of_a_real_gitea() {
    let gitea = Gitea::start();
    let (machines, site) = Machines::with_site("full");
    let keys = "    memoryMb: 768\n    diskSizeGb: 4\n";
    demand(&site, &machines.yaml(&site, keys), &gitea);
    let service = Service::start(&site);
    service.drain();
    gitea.repository("app", &job("cloud-init status --long && df -BG / && hostname"));
    let said = says(
        &site,
        "ann",
        "cloud-init status; hostname; df --output=size -BM / | tail -n 1; systemctl is-system-running",
    );
    note(&format!("a Debian with cloud-init says: {}", said.replace('\n', ", ")));
    let said: Vec<&str> = said.lines().map(str::trim).collect();
    assert_eq!(said[0], "status: done");
    // The template's disk is half of that.
    let size: u64 = said[2].trim_end_matches('M').parse().unwrap();
    assert!(size > 3500, "{said:?}");
    until("the job's end", || (gitea.conclusions().get("it")? == "success").then_some(()));
    until("the runner's end", || (gitea.runners() == 0).then_some(()));
    assert_eq!(site.json(&["status"])["lostJobs"], json!([]));
    reap(&site);
    machines.until_nothing_is_left();
}
