//! From what a cluster shows to a proposal and its YAML.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

use super::*;

const URL: &str = "https://cloud.debian.org/images/cloud/trixie/20260601-2500/debian-13.qcow2";

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn node(name: &str, free_gib: u64) -> NodeSeen {
    let (name, ip) = (name.to_owned(), Some("10.0.0.1".to_owned()));
    let (free_memory, bridges) = (free_gib << 30, set(&["vmbr0", "vmbr1"]));
    NodeSeen { name, online: true, local: false, ip, free_memory, bridges }
}

fn storage(name: &str, kind: &str, content: &[&str], on: &[&str], shared: bool) -> StorageSeen {
    let free = on.iter().map(|node| ((*node).to_owned(), 1 << 40)).collect();
    let (name, kind) = (name.to_owned(), kind.to_owned());
    StorageSeen { name, kind, shared, content: set(content), free }
}

fn template(vmid: u32, node: &str, storage: &str) -> TemplateSeen {
    TemplateSeen {
        vmid,
        name: "debian-13".into(),
        node: node.into(),
        has_cloud_init: true,
        has_agent: true,
        is_windows: false,
        storage: Some(storage.into()),
        bridge: Some("vmbr0".into()),
    }
}

/// Two nodes, of which the second has more room, with a template on a local storage of the first.
fn cluster() -> ClusterSeen {
    let both = ["pve1", "pve2"];
    ClusterSeen {
        name: "rack".into(),
        version: "9.1.1".into(),
        quorate: true,
        nodes: vec![node("pve1", 16), node("pve2", 48)],
        storages: vec![
            storage("local", "dir", &["iso", "snippets"], &both, false),
            storage("local-lvm", "lvmthin", &["images", "rootdir"], &both, false),
            storage("ceph", "rbd", &["images"], &both, true),
            storage("san", "lvm", &["images"], &["pve1"], false),
        ],
        vmids: BTreeSet::from([100, 9000]),
        drover_pools: [].into(),
        templates: vec![template(9000, "pve1", "local-lvm")],
    }
}

fn made(seen: &ClusterSeen, answers: &Answers) -> Proposal {
    proposed(seen, answers).unwrap()
}

fn proposed(seen: &ClusterSeen, answers: &Answers) -> Result<Proposal, Refusals> {
    let urls = ["https://pve1.lan:8006", "https://pve2.lan:8006"].map(str::to_owned);
    propose(seen, answers, (urls.into(), Trust::Authority("PEM".into())), None)
}

fn make() -> Answers {
    let image = Some(Image { url: URL.into(), checksum: "0".repeat(128) });
    Answers { template: Some("make".into()), image, ..Answers::default() }
}

fn files(authority: &str) -> Files<'_> {
    Files { authority, service: None }
}

fn shown(plan: &Proposal) -> String {
    let lines = plan.summary().into_iter().map(|(subject, text)| format!("{subject}: {text}\n"));
    format!("{}---\n{}", lines.collect::<String>(), yaml(plan, files("pve-root-ca.pem")))
}

// Invariant: without any answer the proposal is one that works, with a reason for each choice, in at
// most 30 lines that drover takes.

#[test]
fn a_template_that_fits_is_proposed_where_its_disk_is() {
    insta::assert_snapshot!("a_template", shown(&made(&cluster(), &Answers::default())));
}

// Invariant: every node that has a template of one name serves, each with its own; one that cannot is left
// out, and a node that somebody names is alone.

/// A third node, and a template of the same name on each.
fn three() -> ClusterSeen {
    let mut seen = cluster();
    seen.nodes.push(node("pve3", 8));
    for one in &mut seen.storages {
        if one.name.starts_with("local") {
            one.free.insert("pve3".into(), 1 << 40);
        }
    }
    seen.templates.push(template(9001, "pve2", "local-lvm"));
    seen.templates.push(template(9002, "pve3", "local-lvm"));
    seen
}

#[test]
fn templates_of_one_name_serve_on_all_their_nodes() {
    insta::assert_snapshot!("namesakes", shown(&made(&three(), &Answers::default())));
    let nodes = |seen: &ClusterSeen, answers: &Answers| match made(seen, answers).source {
        Source::Template { guests, by_name, nodes, .. } => {
            let ids: Vec<u32> = guests.iter().map(|(vmid, _)| *vmid).collect();
            format!("{by_name} {ids:?} {}", nodes.join(" "))
        }
        Source::Image { .. } => String::new(),
    };
    let of = |text: &str| Answers { template: Some(text.into()), ..Answers::default() };
    assert_eq!(nodes(&three(), &of("9002")), "true [9000, 9001, 9002] pve1 pve2 pve3");
    assert_eq!(nodes(&three(), &of("debian-13")), "true [9000, 9001, 9002] pve1 pve2 pve3");
    let alone = |text: &str| Answers { node: Some("pve3".into()), ..of(text) };
    assert_eq!(nodes(&three(), &alone("9002")), "false [9002] pve3");
    assert_eq!(nodes(&three(), &alone("debian-13")), "true [9002] pve3");
    // One that does not fit, two of one node, a storage or bridge that is not there.
    let mut seen = three();
    seen.templates[1].has_agent = false;
    assert_eq!(nodes(&seen, &of("9000")), "true [9000, 9002] pve1 pve3");
    seen.templates.push(template(9003, "pve3", "local-lvm"));
    assert_eq!(nodes(&seen, &of("9000")), "false [9000] pve1");
    let said = proposed(&seen, &Answers { node: Some("pve3".into()), ..of("debian-13") });
    assert_eq!(
        said.unwrap_err().to_string(),
        "pve3 has several templates called `debian-13`: name one by its VMID, as --template 9002"
    );
    let mut seen = three();
    seen.nodes[1].bridges.clear();
    seen.storages[1].free.remove("pve3");
    assert_eq!(nodes(&seen, &of("9000")), "false [9000] pve1");
}

#[test]
fn a_template_of_one_node_says_why_agents_run_there_alone() {
    let node = |seen: &ClusterSeen, answers: &Answers| {
        let lines = made(seen, answers).summary();
        lines.into_iter().find(|(about, _)| about.starts_with("node")).unwrap().1
    };
    let mut seen = three();
    seen.templates.truncate(1);
    let mut all = vec![node(&seen, &Answers::default())];
    seen.templates.push(template(9002, "pve3", "local-lvm"));
    all.push(node(&seen, &Answers::default()));
    let local = Answers { storage: Some("local-lvm".into()), ..make() };
    all.push(node(&seen, &local));
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn an_image_is_proposed_on_the_storage_that_all_nodes_share() {
    insta::assert_snapshot!("an_image", shown(&made(&cluster(), &make())));
}

#[test]
fn no_configuration_has_more_than_30_lines_and_each_passes_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = include_str!("../../config/tests/keys/ca.pem");
    std::fs::write(folder.path().join("pve-root-ca.pem"), certificate).unwrap();
    let reached = |answers: Answers| Answers {
        ssh_port: Some(2222),
        guest_networks: Some(vec!["10.0.0.0/8".into()]),
        bridge: Some("vmbr1".into()),
        labels: Some(vec!["linux".into(), "os:debian".into()]),
        ..answers
    };
    let moved = Answers { storage: Some("ceph".into()), ..Answers::default() };
    for (seen, answers) in [
        (cluster(), Answers::default()),
        (cluster(), make()),
        (cluster(), moved),
        (three(), Answers::default()),
    ] {
        for answers in [answers.clone(), reached(answers)] {
            let (state, socket) = (Path::new("state"), Path::new("drover.sock"));
            let own = Files { authority: "pve-root-ca.pem", service: Some((state, Some(socket))) };
            let text = yaml(&made(&seen, &answers), own);
            assert!(text.lines().count() <= 30, "{text}");
            let text = yaml(&made(&seen, &answers), files("pve-root-ca.pem"));
            std::fs::write(folder.path().join("drover.yaml"), &text).unwrap();
            let environment = drover_config::Environment::of(&[]).without_secrets();
            let checked = drover_config::load(folder.path(), &environment);
            assert!(checked.is_ok(), "{text}{}", checked.unwrap_err().render());
        }
    }
}

// Invariant: what an earlier run wrote answers the next one, which then writes the same text, whatever
// runs meanwhile.

#[test]
fn a_second_run_proposes_what_the_first_one_wrote() {
    let moved = Answers { storage: Some("ceph".into()), ..Answers::default() };
    for (mut seen, answers) in [
        (cluster(), Answers::default()),
        (cluster(), make()),
        (cluster(), moved),
        (three(), Answers::default()),
    ] {
        let first = made(&seen, &answers);
        let text = yaml(&first, files("ca.pem"));
        let (old, urls) = earlier(&text).unwrap();
        assert_eq!(urls, first.api_urls);
        // Agents are there now, and another node has more room.
        seen.vmids.extend([10_000, 10_001]);
        seen.nodes[0].free_memory = 1 << 40;
        let range = old.vmids;
        let trust = Trust::Authority("PEM".into());
        let answers = Answers::default().or(old);
        let again = propose(&seen, &answers, (urls, trust), range).unwrap();
        assert_eq!(yaml(&again, files("ca.pem")), text);
    }
    let text = yaml(&made(&three(), &Answers::default()), {
        let service = Some(("/srv/lab/state".as_ref(), Some("/srv/lab/drover.sock".as_ref())));
        Files { authority: "ca.pem", service }
    });
    let own = "service: {stateDirectory: \"/srv/lab/state\", socket: \"/srv/lab/drover.sock\"}";
    assert!(text.lines().last().unwrap().starts_with(own), "{text}");
    assert_eq!(earlier("service: {}"), None);
    assert!(is_blank("# an example\n\n#cloudConfigurations:\n") && !is_blank("# a\nb: 1\n"));
}

// Invariant: everything in the way is said at once, with what helps.

#[test]
fn what_is_in_the_way_is_said_with_what_helps() {
    let said =
        |seen: &ClusterSeen, answers: Answers| proposed(seen, &answers).unwrap_err().to_string();
    let mut bare = cluster();
    bare.templates[0].has_agent = false;
    bare.templates.push(TemplateSeen { has_cloud_init: false, ..template(9001, "pve2", "ceph") });
    bare.templates.push(TemplateSeen { is_windows: true, ..template(9002, "pve2", "ceph") });
    bare.quorate = false;
    let mut all = said(&bare, Answers::default());
    let answers = Answers {
        template: Some("9000".into()),
        node: Some("pve2".into()),
        vmids: "9000-9200".parse().ok(),
        pool: Some("a b".into()),
        guest_user: Some(String::new()),
        labels: Some(vec!["a b".into()]),
        token: Some("root@pam!x".into()),
        ..Answers::default()
    };
    all += "\n---\n";
    all += &said(&cluster(), answers);
    let mut empty = cluster();
    empty.storages.retain(|one| one.name == "local");
    for answers in [make(), Answers { image: None, ..make() }] {
        all += "\n---\n";
        all += &said(&empty, answers);
    }
    all += "\n---\n";
    let named = Answers {
        node: Some("pve9".into()),
        storage: Some("local".into()),
        bridge: Some("vmbr9".into()),
        ..Answers::default()
    };
    all += &said(&cluster(), named.clone());
    all += "\n---\n";
    all += &said(&cluster(), Answers { node: None, ..named });
    all += "\n---\n";
    all += &said(&cluster(), Answers { template: Some("77".into()), ..Answers::default() });
    insta::assert_snapshot!("refusals", all);
}
