//! What a lease's user sees of a real machine.

use crate::api::release;
use crate::harness::Service;
use crate::world::{Machines, leased, reap, says, until};

const GIB: u64 = 1 << 30;

// Invariant: a machine is cloned, reached by the address and host key that its own agent says, has
// the disk of its template's size, and is gone without a trace.

#[test]
fn a_machine_is_cloned_logged_in_to_resized_and_retired_and_leaves_nothing() {
    let (machines, site) = Machines::with_site("tiny");
    site.write_yaml(&machines.yaml(&site, "    diskSizeGb: 1\n"));
    let _service = Service::start(&site);
    let shown = leased(&site, "ann");
    let host = shown["ssh"]["host"].as_str().unwrap();
    assert!(host.starts_with("127.77."), "{shown}");
    let node = machines.sim.fact("node");
    let vmid = machines.sim.guests()[0];
    let own_key = machines.says(vmid, "cut -d' ' -f2 /etc/ssh/ssh_host_ed25519_key.pub");
    assert!(own_key.len() > 40 && shown.to_string().contains(&own_key), "{own_key}: {shown}");
    // Its disk is an overlay of the template's image.
    assert!(machines.files().contains(&"1.qcow2".to_owned()), "{:?}", machines.files());

    let size = || machines.says(vmid, "cat /sys/block/sda/size").parse::<u64>().unwrap() * 512;
    assert_eq!(size(), GIB);
    machines.task("PUT", vmid, "/resize", &[("disk", "scsi0"), ("size", "2G")]);
    until("the larger disk", || (size() == 2 * GIB).then_some(()));
    assert!(machines.sim.config(node, vmid)["scsi0"].as_str().unwrap().contains("size=2G"));

    release(&site, shown["id"].as_str().unwrap());
    let name = machines.sim.config(node, vmid)["name"].clone();
    assert_eq!(says(&site, "ann", "hostname"), name.as_str().unwrap(), "the same machine");
    reap(&site);
    machines.until_nothing_is_left();
}

// Invariant: a machine that is put back with its memory goes on where it was, without a boot.

#[test]
fn a_machine_is_put_back_with_its_memory_for_the_same_owner() {
    let (machines, site) = Machines::with_site("tiny");
    // The kernel makes the id of a boot when it is first read: before the snapshot.
    let keys = "    reset: MEMORY\n    readyCommand: \"cat /proc/sys/kernel/random/boot_id\"\n";
    site.write_yaml(&machines.yaml(&site, keys));
    let _service = Service::start(&site);
    let state = "cat /proc/sys/kernel/random/boot_id; ls ~ /run | grep -c left; hostname";
    let first = says(&site, "ann", &format!("{state}; touch ~/left /run/left; sync"));
    until("the reset", || {
        let resets = site.json(&["templates"])["templates"][0]["resets"].clone();
        (resets["count"] == 1).then_some(())
    });
    let second = says(&site, "ann", state);
    assert_eq!(second, first, "the same boot of the same machine, with nothing left behind");
    reap(&site);
    machines.until_nothing_is_left();
}

// Invariant: a machine boots with the user data of an uploaded disc.

#[test]
fn a_machine_is_what_its_uploaded_user_data_says() {
    let (machines, site) = Machines::with_site("tiny");
    let file = site.config().with_file_name("user-data.yaml");
    let user_data = "#cloud-config\nhostname: build-${vmid}\nuser: ${user}\n\
                     ssh_authorized_keys:\n  - ${sshPublicKey}\n\
                     runcmd:\n  - echo ${vmid} > /etc/said\n";
    std::fs::write(&file, user_data).unwrap();
    let keys = "    userDataFile: user-data.yaml\n    maxTotalUses: 1\n";
    site.write_yaml(&machines.yaml(&site, keys));
    let _service = Service::start(&site);
    let said = says(&site, "ann", "hostname; cat /etc/said");
    let (name, vmid) = said.split_once('\n').unwrap();
    assert_eq!(name, format!("build-{vmid}"));
    machines.until_nothing_is_left();
    let content = format!("/nodes/{}/storage/local/content?content=iso", machines.sim.fact("node"));
    until("the disc's end", || {
        (machines.sim.call("GET", &content)["data"] == serde_json::json!([])).then_some(())
    });
}
