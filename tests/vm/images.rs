//! A machine that is built from a cloud image, and those that are leased from what came of it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use crate::harness::{Service, note};
use crate::world::{Machines, images, reap, says, until};

/// Serves a file on this computer to all who ask, for as long as the test runs; gives its URL.
fn served(path: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/debian.qcow2", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let head = BufReader::new(stream.try_clone().unwrap()).lines();
            head.map_while(Result::ok).find(String::is_empty).unwrap();
            let mut file = std::fs::File::open(&path).unwrap();
            let length = file.metadata().unwrap().len();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").unwrap();
            std::io::copy(&mut file, &mut stream).unwrap();
        }
    });
    url
}

fn sha256(path: &Path) -> String {
    let out = std::process::Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8_lossy(&out.stdout)[..64].to_owned()
}

// Invariant: a version of an image boots on every clone as a machine of its own, with what its recipe
// installed, and nothing that let drover in while it was built.

#[test]
fn an_image_is_built_from_a_debian_and_leased_from() {
    let (machines, site) = Machines::with_site("full");
    let disk = images("full").join("full.qcow2");
    let (sum, url) = (sha256(&disk), served(disk));
    let yaml = machines.yaml(&site, "    memoryMb: 768\n");
    let template = machines.sim.facts["templateVmId"].as_u64().unwrap();
    let yaml = yaml.replace(&format!("templateVmId: {template}"), "image: debian");
    let images = format!(
        "images:\n  debian:\n    cloudIds: [lab]\n    credentialsId: agents\n    \
         storage: local-lvm\n    importStorage: shared\n    nodes: [{node}]\n    \
         source: {{url: \"{url}\", checksum: {sum}}}\n    \
         memoryMb: 768\n    diskSizeGb: 4\n    \
         commands: [\"echo by drover | sudo tee /etc/built\", \
           \"sudo cp /etc/ssh/ssh_host_ed25519_key.pub /etc/built-host-key\"]\n    \
         guestNetworks: [\"127.77.0.0/16\"]\n    sshPort: 2222\n    startupWaitSeconds: 600\n",
        node = machines.sim.fact("node"),
    );
    site.write_yaml(&format!("{yaml}{images}"));
    let _service = Service::start(&site);
    let out = site.cli(&["image", "build", "debian"]);
    let built = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{built}{}", String::from_utf8_lossy(&out.stderr));
    let last = built.lines().last().unwrap_or_default().trim();
    note(&format!("an image is built of a Debian: {last}"));

    let said = says(
        &site,
        "ann",
        "cat /etc/built; cmp -s /etc/built-host-key /etc/ssh/ssh_host_ed25519_key.pub; echo $?; \
         wc -c < /etc/machine-id; df --output=size -BM / | tail -n 1; cloud-init status; \
         test -d /sys/firmware/efi && echo uefi",
    );
    let said: Vec<&str> = said.lines().map(str::trim).collect();
    assert_eq!(said[0], "by drover", "{said:?}");
    assert_eq!(said[1..3], ["1", "33"], "a host key and a machine-id of its own: {said:?}");
    let size: u64 = said[3].trim_end_matches('M').parse().unwrap();
    assert!(size > 3500, "{said:?}");
    assert_eq!(said[4], "status: done");
    // A recipe without hardware of its own is a q35 with UEFI.
    assert_eq!(said.get(5), Some(&"uefi"), "{said:?}");
    let version = &site.json(&["image", "list"])["versions"][0];
    assert_eq!(version["kept"], "it is the newest", "{version}");
    reap(&site);
    until("the last machine's end", || machines.sim.guests().is_empty().then_some(()));
}
