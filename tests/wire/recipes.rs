//! Recipes of images over real HTTPS and SSH: a version on each of two nodes, an ISO image that is
//! installed, a template made by hand that becomes a version, and one download for all who wait.

use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

use serde_json::Value;

use crate::api::{ask, call, ready, release};
use crate::harness::{Events, Kept, Lines, Service, Sim, Site, WAIT_LIMIT, world_of};
use crate::images::{disk, publish, says, templates, until_templates};
use crate::parity::{leased, setting, until, yaml};

/// Two nodes that download, and two templates of one name that somebody made by hand.
const CLUSTER: &str = r#"
name: recipes
nodes: [{name: pve1}, {name: pve2}]
storages:
  - {name: local, type: dir, content: [iso, import, snippets]}
  - {name: local-lvm, type: lvmthin, content: [images]}
web:
  - url: https://cloud.example/debian-13.qcow2
    size: 419430400
    sha256: abababababababababababababababababababababababababababababababab
  - url: https://cloud.example/ubuntu-24.04.iso
    size: 2147483648
    sha256: cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd
guests:
  - vmid: 8000
    node: pve1
    template: true
    config:
      name: by-hand
      memory: "512"
      cores: "1"
      scsi0: "local-lvm:base-8000-disk-0,size=3G"
      ide2: "local-lvm:vm-8000-cloudinit,media=cdrom"
      net0: "virtio=BC:24:11:80:00:00,bridge=vmbr0"
      boot: "order=scsi0"
      agent: "1"
  - vmid: 8001
    node: pve1
    template: true
    config:
      name: by-hand
      memory: "512"
      cores: "1"
      scsi0: "local-lvm:base-8001-disk-0,size=4G"
      ide2: "local-lvm:vm-8001-cloudinit,media=cdrom"
      net0: "virtio=BC:24:11:80:01:00,bridge=vmbr0"
      boot: "order=scsi0"
      agent: "1"
"#;

/// A YAML with these images, each with what all of them have.
fn with_images(site: &Site, sim: &Sim, images: &[(&str, &str)], agents: &[(&str, &str)]) -> String {
    let all = "cloudIds: [lab], credentialsId: agents, storage: local-lvm, keep: 0, sshPort: 2222, \
               guestNetworks: [127.77.0.0/16]";
    let images = images.iter().map(|(name, keys)| format!("  {name}: {{{all}, {keys}}}\n"));
    format!("{}images:\n{}", yaml(site, sim, &[], agents), images.collect::<String>())
}

/// The templates that clones on a node were made of.
fn cloned(sim: &Sim, node: &str) -> Vec<u64> {
    let tasks = sim.call("GET", &format!("/nodes/{node}/tasks?typefilter=qmclone&limit=500"));
    let ids = tasks["data"].as_array().unwrap().iter().filter_map(|task| task["id"].as_str());
    ids.map(|id| id.parse().unwrap()).collect()
}

/// What a command says in an agent of a template.
fn run(site: &Site, template: &str, command: &str) -> String {
    says(site, &["lease", "--template", template, "--", command])
}

// Invariant: an image is made on each of its nodes, by all that its recipe says, of whatever source.

#[test]
fn images_are_made_on_two_nodes_of_an_iso_and_of_what_somebody_made_by_hand() {
    let (_dir, sim, site) = world_of(CLUSTER);
    let file = |name: &str, text: &str| std::fs::write(site.dir.path().join(name), text).unwrap();
    file("tools.conf", "from the file\n");
    file("tools.vars", "# of the team\na = file\nb=file\nc=file\n");
    let tools = format!(
        "nodes: [pve1, pve2], source: {{url: \"https://cloud.example/debian-13.qcow2\", checksum: {}}}, \
         files: [{{from: tools.conf, to: tools.conf, mode: \"0640\"}}], variablesFile: tools.vars, \
         variables: {{a: own, b: own, c: own, d: own}}, commands: [\"echo ${{a}} ${{b}} ${{c}} ${{d}} > ~/built\"]",
        "ab".repeat(32)
    );
    let ubuntu = format!(
        "nodes: [pve2], diskSizeGb: 20, commands: [\"echo installed > ~/built\"], source: \
         {{iso: \"https://cloud.example/ubuntu-24.04.iso\", checksum: {}}}",
        "cd".repeat(32)
    );
    let images = [("tools", tools.as_str()), ("ubuntu", &ubuntu), ("golden", "nodes: [pve1]")];
    let templates = [
        ("tools", "image: tools, nodes: [pve1, pve2], placement: SPREAD"),
        ("ubuntu", "image: ubuntu, node: pve2"),
        ("golden", "image: golden"),
        ("twice", "node: pve1, templateName: by-hand"),
    ];
    let text = with_images(&site, &sim, &images, &templates);
    site.write_yaml(&text.replace("node: pve1, templateVmId: 9000, ", ""));
    let variables = [("DROVER_VAR_b", "env"), ("DROVER_VAR_c", "env")];
    let mut service = Service::spawn_with(&site, &[], &variables);
    service.hear("READY=1");
    service.drain();

    // Of two with one name none is taken, until one of them is called otherwise.
    let waiting = ask(&site, "twice", "wire");
    let reason = "several templates on node `pve1` are called `by-hand`: 8000, 8001";
    until(reason, || {
        let (_, reported) = call(&site, "GET", &format!("/v1/leases/{waiting}"), None);
        reported["detail"].to_string().contains(reason)
    });
    let both = [&["tools", "--var", "c=flag"][..], &["ubuntu"]].map(|words| {
        let mut command = site.command([&["image", "build"][..], words].concat());
        command.stdout(Stdio::piped()).spawn().unwrap()
    });
    for (child, count) in both.into_iter().zip([2, 1]) {
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && said.matches("  Done").count() == count, "{said}");
    }
    let planned = says(&site, &["image", "import", "8000", "--as", "golden", "--dry-run"]);
    assert!(planned.contains("would be called golden-"), "{planned}");
    assert_eq!(sim.config("pve1", 8000)["name"], "by-hand");
    let done = says(&site, &["image", "import", "8000", "--as", "golden"]);
    let name = sim.config("pve1", 8000)["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("golden-") && done.contains(&name), "{name}: {done}");
    until_templates(&site, &sim, &[8000, 8001, 9000, 9001, 9002]);
    service.child.signal("KILL");
    service.child.wait();

    // All of it is on the cluster: the next service knows the versions by their marks.
    let _service = Service::start(&site);
    let wanted = ["tools", "tools", "ubuntu", "golden"];
    let agents = leased(&site, wanted);
    ready(&site, &waiting);
    let mut nodes = agents.each_ref().map(|(_, agent)| agent["node"].as_str().unwrap());
    nodes[..2].sort_unstable();
    assert_eq!(nodes, ["pve1", "pve2", "pve2", "pve1"]);
    let mut sources = ["pve1", "pve2"].map(|node| {
        let name = |vmid| sim.config(node, vmid)["name"].as_str().unwrap().to_owned();
        let mut of = cloned(&sim, node).into_iter().map(name).collect::<Vec<_>>();
        of.sort();
        of.into_iter().map(|name| name.split('-').next().unwrap().to_owned()).collect::<Vec<_>>()
    });
    sources.sort();
    assert_eq!(sources, [vec!["by", "golden", "tools"], vec!["tools", "ubuntu"]]);
    // What is asked now is served by the agents that are idle again.
    agents.iter().for_each(|(lease, _)| release(&site, lease));
    let said = run(&site, "tools", "cat built tools.conf; stat -c %a tools.conf");
    assert_eq!(said, "file env flag own\nfrom the file\n640\n");
    assert_eq!(run(&site, "ubuntu", "cat built"), "installed\n");

    let version = site.json(&["image", "list"])["versions"].clone();
    let version = version.as_array().unwrap().iter().find(|one| one["image"] == "lab/ubuntu");
    let made = sim.config("pve2", version.unwrap()["vmid"].as_u64().unwrap());
    assert_eq!((&made["ide0"], setting(&made, "boot")), (&Value::Null, "order=scsi0".to_owned()));
    assert!(setting(&made, "scsi0").contains("size=20G"), "{made}");
    assert!(setting(&made, "scsi1").contains("cloudinit"), "{made}");
    let discs = sim.call("GET", "/nodes/pve2/storage/local/content?content=iso")["data"].clone();
    let names: Vec<&str> =
        discs.as_array().unwrap().iter().filter_map(|one| one["volid"].as_str()).collect();
    assert!(names.len() == 1 && names[0].starts_with("local:iso/ubuntu-24.04"), "{names:?}");
}

// Invariant: two who want an image wait for one download and one build; a download that takes longer than
// its limit ends the build for both, with the limit's reason, and leaves nothing.

#[test]
fn two_who_wait_share_one_download_and_hear_of_one_that_takes_too_long() {
    let (_dir, sim, site) = world_of(CLUSTER);
    let (open, gate) = channel();
    let (content, quick_sum) = disk(7);
    let (quick, asked) = publish(content, Some(gate));
    let (never, closed) = channel();
    let (content, slow_sum) = disk(8);
    let (slow, _) = publish(content, Some(closed));
    let keys = |url: &str, sum: &str| {
        format!(
            "nodes: [pve1], downloadBy: DROVER, downloadProxy: none, pullTimeoutMinutes: 1, \
             source: {{url: \"{url}\", checksum: {sum}}}"
        )
    };
    let images = [("quick", &*keys(&quick, &quick_sum)), ("slow", &*keys(&slow, &slow_sum))];
    site.write_yaml(&with_images(&site, &sim, &images, &[("any", "templateVmId: 8000")]));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let follow = |image: &str| {
        let mut command = site.command(["image", "build", image]);
        let mut child = Kept(command.stdout(Stdio::piped()).spawn().unwrap());
        let said = Lines::of("image build", child.0.stdout.take().unwrap());
        (child, said)
    };
    // Two follow the build of an image, the second from when its download is under way.
    let mut both = |image: &str| {
        let (first, mut said) = follow(image);
        said.until(|line| line.contains(" starts"));
        events.until("image", |fact| fact["image"]["state"] == "Pulling");
        let (second, mut also) = follow(image);
        also.until(|line| line.contains(" runs already"));
        [(first, said), (second, also)]
    };
    let ends = |followed: [(Kept, Lines); 2]| {
        followed.map(|(mut child, mut said)| (said.rest_within(WAIT_LIMIT * 2), child.wait()))
    };
    let followed = both("quick");
    drop(open);
    for (said, code) in ends(followed) {
        assert_eq!((code, said.trim_end().ends_with("Done")), (Some(0), true), "{said}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    until_templates(&site, &sim, &[8000, 8001, 9000]);

    for (said, code) in ends(both("slow")) {
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("Failed") && said.contains("it took too long"), "{said}");
    }
    assert_eq!(templates(&sim), [8000, 8001, 9000]);
    assert_eq!(sim.guests(), Vec::<u64>::new());
    let files = std::fs::read_dir(site.dir.path().join("state/downloads")).unwrap();
    assert_eq!(files.count(), 0);
    drop(never);
}

// Invariant: the limits of a build end it with what it waited for, and no guest of it is left: the wait for
// the same download, the whole build, and the step that has the rest of its time.

#[test]
fn builds_that_wait_or_run_for_too_long_end_with_what_they_waited_for() {
    let (_dir, sim, site) = world_of(CLUSTER);
    let (never, closed) = channel();
    let (content, sum) = disk(9);
    let (slow, _) = publish(content, Some(closed));
    let downloads = format!(
        "nodes: [pve1], downloadBy: DROVER, downloadProxy: none, source: {{url: \"{slow}\", checksum: {sum}}}"
    );
    let waits = format!("{downloads}, lockTimeoutMinutes: 1, packages: [git]");
    let step = format!(
        "nodes: [pve2], buildTimeoutMinutes: 1, commands: [sleep 600], source: \
         {{url: \"https://cloud.example/debian-13.qcow2\", checksum: {}}}",
        "ab".repeat(32)
    );
    // The whole build ends last: until then the other one waits for its turn.
    let whole = format!("{downloads}, buildTimeoutMinutes: 2");
    let images = [("whole", &*whole), ("waits", &*waits), ("step", &*step)];
    site.write_yaml(&with_images(&site, &sim, &images, &[("any", "templateVmId: 8000")]));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let follow = |image: &str| {
        let mut command = site.command(["image", "build", image]);
        let mut child = Kept(command.stdout(Stdio::piped()).spawn().unwrap());
        let said = Lines::of("image build", child.0.stdout.take().unwrap());
        (child, said)
    };
    let first = follow("whole");
    events.until("image", |fact| {
        fact["image"]["image"] == "lab/whole" && fact["image"]["state"] == "Pulling"
    });
    let rest = ["waits", "step"].map(follow);
    let reasons = [
        "Pulling: it took too long",
        "Queued: it took too long; last: waits for the build of `lab/whole`",
        "the step `command 1` was ended by a signal or its limit",
    ];
    for ((mut child, mut said), reason) in std::iter::once(first).chain(rest).zip(reasons) {
        let said = said.rest_within(WAIT_LIMIT * 3);
        assert_eq!(child.wait(), Some(1), "{said}");
        assert!(said.contains("Failed") && said.contains(reason), "{reason}: {said}");
    }
    assert_eq!(templates(&sim), [8000, 8001]);
    assert_eq!(sim.guests(), Vec::<u64>::new());
    drop(never);
}
