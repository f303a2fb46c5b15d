//! `drover setup dhcp` and `drover setup vip` on real sockets: over SSH on a machine that stands in
//! for a node, by the API, and what they write read by the programs that it is for.

use std::net::{TcpListener, UdpSocket};
use std::process::{Command, Output};

use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::harness::{Service, Sim, Site, WAIT_LIMIT, drover, note};

/// A container whose root may be logged in to, in place of a node.
struct Node<'a> {
    site: &'a Site,
    address: String,
}

fn text(out: &Output) -> String {
    String::from_utf8_lossy(&[&out.stdout[..], &out.stderr].concat()).into_owned()
}

impl<'a> Node<'a> {
    fn make(sim: &Sim, site: &'a Site) -> Self {
        let key = drover_ssh::PrivateKey::from_seed(&[9; 32], "node");
        site.write_secret("node-key", key.to_openssh().unwrap().expose_secret());
        site.write_secret("admin", sim.fact("adminPassword"));
        let template = "debian-13-standard_13.1-2_amd64.tar.zst";
        wait(sim, "/nodes/pve1/aplinfo", &[("storage", "local"), ("template", template)]);
        let volume = format!("local:vztmpl/{template}");
        let line = key.public_line("node");
        let how = [
            ("vmid", "500"),
            ("ostemplate", &*volume),
            ("rootfs", "local-lvm:4"),
            ("net0", "name=eth0,bridge=vmbr0,ip=dhcp"),
            ("ssh-public-keys", &line),
            ("start", "1"),
        ];
        wait(sim, "/nodes/pve1/lxc", &how);
        let address = loop {
            let faces = sim.call("GET", "/nodes/pve1/lxc/500/interfaces")["data"].clone();
            let address = faces[1]["ip-addresses"][0]["ip-address"].clone();
            if let Some(address) = address.as_str() {
                break address.to_owned();
            }
        };
        let node = Self { site, address };
        // What is tested is what is written, and that it is started: neither program may do on this
        // computer what it is for.
        for name in ["dnsmasq", "keepalived"] {
            // keepalived wants the interface to be there, which is the guest's alone.
            let read = if name == "dnsmasq" { "exec /usr/sbin/dnsmasq \"$@\"" } else { "exit 0" };
            let stub = format!(
                "case \"$1\" in --test | -t) [ ! -x /usr/sbin/{name} ] || {read} ;; *) exec sleep 600 ;; esac"
            );
            node.ssh(&format!(
                "mkdir -p /usr/local/sbin; printf '#!/bin/sh\\n%s\\n' '{stub}' >/usr/local/sbin/{name}; \
                 chmod 755 /usr/local/sbin/{name}"
            ));
        }
        node
    }

    fn ssh(&self, command: &str) -> String {
        let out = Command::new("ssh")
            .args(["-p", "2222", "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR"])
            .args(["-o", "UserKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes", "-i"])
            .arg(self.site.dir.path().join("node-key"))
            .arg(format!("root@{}", self.address))
            .arg(command)
            .output()
            .unwrap();
        assert!(out.status.success(), "{command}: {}", text(&out));
        String::from_utf8(out.stdout).unwrap()
    }

    /// What `setup` says of it, without what is another in every run.
    fn setup(&self, args: &[&str]) -> (i32, String) {
        let mut command = drover();
        command.arg("--config").arg(self.site.config()).arg("setup").arg(args[0]);
        command.arg("--node-ssh").arg(format!("root@{}:2222", self.address));
        command.arg("--ssh-key").arg(self.site.dir.path().join("node-key")).args(&args[1..]);
        let out = command.output().unwrap();
        let said = text(&out).replace(&self.address, "ADDRESS");
        let known = |line: &&str| !line.contains("has the host key SHA256:");
        let said = said.lines().filter(known).map(|line| format!("{line}\n")).collect();
        (out.status.code().unwrap(), said)
    }
}

fn wait(sim: &Sim, path: &str, params: &[(&str, &str)]) {
    let upid = sim.send("POST", path, params)["data"].clone();
    let status = format!("/nodes/pve1/tasks/{}/status", upid.as_str().unwrap());
    let mut reported = Value::Null;
    while reported["status"] != "stopped" {
        reported = sim.call("GET", &status)["data"].clone();
    }
    assert_eq!(reported["exitstatus"], "OK", "{reported}");
}

/// Whether a program accepts a file; where it is not installed that is reported.
fn accepted(program: &str, args: &[&str], content: &str) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, content).unwrap();
    match Command::new(program).args(args).arg(&file).output() {
        Ok(out) => assert!(out.status.success(), "{program}: {}\n{content}", text(&out)),
        Err(_) if std::env::var_os("DROVER_TEST_PROGRAMS").is_none() => {
            note(&format!("{program} is not installed: what is written for it was not read by it"));
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

// Invariant: what is printed is what is written; the second time there is nothing to do; files of others
// stay as they are.

#[test]
fn dnsmasq_is_set_up_once_on_a_node() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path());
    let site = Site::new(&sim);
    let node = Node::make(&sim, &site);
    let args =
        ["dhcp", "--bridge", "eth0", "--range", "127.200.0.50-127.200.0.99", "--dns", "9.9.9.9"];
    let (code, dry) = node.setup(&[&args[..], &["--dry-run"]].concat());
    assert_eq!(code, 0, "{dry}");
    insta::assert_snapshot!("dnsmasq", dry);
    let written = |path: &str| node.ssh(&format!("cat {path} 2>/dev/null || true"));
    assert_eq!(written("/etc/drover-dhcp/eth0.conf"), "");
    let (code, done) = node.setup(&args);
    assert_eq!(code, 0, "{done}");
    assert!(
        done.ends_with(
            "ok: drover-dhcp-eth0.service gives out 127.200.0.50-127.200.0.99 on eth0\n"
        )
    );
    let config = written("/etc/drover-dhcp/eth0.conf");
    assert!(dry.contains(&config.replace(&node.address, "ADDRESS")), "{config}");
    accepted("dnsmasq", &["--test", "-C"], &config);
    let (code, again) = node.setup(&args);
    assert_eq!((code, &*again), (0, "nothing to do: drover-dhcp-eth0.service runs\n"));
    let (code, reported) = node.setup(&[&args[..], &["--lease", "1h"]].concat());
    assert_eq!(code, 0, "{reported}");
    assert!(written("/etc/drover-dhcp/eth0.conf").contains(",1h\n"));

    node.ssh("echo '# mine' >/etc/drover-dhcp/eth0.conf");
    let (code, reported) = node.setup(&args);
    assert_eq!(code, 1);
    assert!(
        reported.contains("/etc/drover-dhcp/eth0.conf exists and drover did not make it"),
        "{reported}"
    );
    assert_eq!(written("/etc/drover-dhcp/eth0.conf"), "# mine\n");
    let mut other = args;
    other[2] = "vmbr7";
    let (code, reported) = node.setup(&other);
    assert!(code == 1 && reported.contains("there is no bridge vmbr7 here"), "{reported}");
}

#[test]
fn keepalived_is_set_up_once_with_the_firewalls_rule() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start_with(dir.path(), &["--guests", "process", "--pve", "9.2"]);
    let site = Site::new(&sim);
    let node = Node::make(&sim, &site);
    site.write_secret("auth", "s3cret\n");
    let password = site.dir.path().join("admin");
    let auth = site.dir.path().join("auth");
    let login = ["--user", "root@pam", "--password-file", password.to_str().unwrap()];
    let own = ["--auth-file", auth.to_str().unwrap()];
    let args =
        [&["vip", "--address", "127.200.0.9", "--priority", "120"][..], &own, &login].concat();
    sim.send("PUT", "/cluster/firewall/options", &[("enable", "1")]);
    let rules = || sim.call("GET", "/cluster/firewall/rules")["data"].as_array().unwrap().clone();

    let (code, dry) = node.setup(&[&args[..], &["--dry-run"]].concat());
    assert_eq!(code, 0, "{dry}");
    insta::assert_snapshot!("keepalived", dry);
    assert_eq!(rules().len(), 0);
    let (code, done) = node.setup(&args);
    assert_eq!(code, 0, "{done}");
    assert_eq!(
        (&rules()[0]["proto"], &rules()[0]["source"]),
        (&"vrrp".into(), &"127.0.0.0/8".into())
    );
    let config = node.ssh("cat /etc/keepalived/keepalived.conf");
    assert!(config.contains("auth_pass s3cret"), "{config}");
    assert_eq!(
        node.ssh("stat -c %a /etc/keepalived/keepalived.conf /etc/keepalived/drover-ready"),
        "600\n755\n"
    );
    accepted("sh", &["-n"], &node.ssh("cat /etc/keepalived/drover-ready"));
    let (code, again) = node.setup(&args);
    assert_eq!(
        (code, &*again),
        (0, "nothing to do: keepalived.service runs, with 127.200.0.9 on eth0\n")
    );
    assert_eq!(rules().len(), 1);
    let (code, reported) = node.setup(&["vip", "--address", "10.0.0.9"]);
    assert!(
        code == 1 && reported.contains("10.0.0.9 is on no network of this machine"),
        "{reported}"
    );
}

// Invariant: one drover serves a cluster, so an address that has a drover behind it gets no second one.

#[test]
fn a_second_drover_behind_the_address_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start_with(dir.path(), &["--guests", "process", "--pve", "9.2"]);
    let site = Site::new(&sim);
    let node = Node::make(&sim, &site);
    let port = TcpListener::bind("127.200.0.9:0").unwrap().local_addr().unwrap().port();
    let listen = format!("service:\n  listen: \"127.200.0.9:{port}\"\n");
    site.write_yaml(&site.yaml(&sim, "").replace("service:\n", &listen));
    let first = Service::start(&site);
    let ready = format!("http://127.0.0.1:{port}/readyz");
    let args = ["vip", "--address", "127.200.0.9", "--ready-url", &ready];
    let written = || node.ssh("ls /etc/keepalived 2>/dev/null || true");
    for more in [&["--dry-run"][..], &[]] {
        let (code, said) = node.setup(&[&args[..], more].concat());
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("another drover is ready behind 127.200.0.9"), "{said}");
        assert_eq!(written(), "");
    }
    let (code, said) = node.setup(&[&args[..], &["--peers", "127.200.0.3"]].concat());
    assert!(code == 1 && said.contains("peer 127.200.0.3 is another machine"), "{said}");
    drop(first);
    let (code, said) = node.setup(&args);
    assert_eq!(code, 0, "{said}");
    assert_eq!(written(), "drover-ready\nkeepalived.conf\n");
}

// Invariant: keepalived itself takes what is written for it.

#[test]
fn keepalived_reads_what_is_written_for_it() {
    use drover_admin::setup::vip::VipSpec;
    let wanted = |peers: Vec<std::net::Ipv4Addr>, password: Option<String>| VipSpec {
        address: "127.200.0.9".parse().unwrap(),
        prefix: None,
        interface: None,
        router: 51,
        priority: 100,
        peers,
        password,
        ready: "http://127.0.0.1:8080/readyz".into(),
    };
    // As root alone it reads anything, and it takes an interface that is there and has multicast.
    use std::os::unix::fs::MetadataExt as _;
    let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let links = std::fs::read_dir("/sys/class/net").unwrap().flatten();
    let mut able = links.filter(|link| {
        let flags = std::fs::read_to_string(link.path().join("flags")).unwrap_or_default();
        let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap_or(0);
        // IFF_MULTICAST, and not IFF_LOOPBACK.
        flags & 0x1000 != 0 && flags & 8 == 0
    });
    let Some(link) = able.next().filter(|_| root) else {
        note("no root or no network: what is written for keepalived was not read by it");
        return;
    };
    let name = link.file_name().into_string().unwrap();
    let face = drover_admin::setup::dhcp::InterfaceAddress {
        name,
        address: "127.200.0.2".parse().unwrap(),
        prefix: 8,
    };
    for wanted in [
        wanted(Vec::new(), None),
        wanted(vec!["127.200.0.3".parse().unwrap()], Some("s3cret".into())),
    ] {
        // The check is not on this computer.
        let [config, _] = wanted.files(&face, false);
        accepted(
            "keepalived",
            &["-t", "-f"],
            &config
                .text
                .replace("/etc/keepalived/drover-ready", "/bin/true")
                // Debian 12's ends itself when it tests with another.
                .replace("script_user nobody", "script_user root"),
        );
    }
}

// Invariant: a zone is made by the API alone, once.

#[test]
fn a_zone_has_dhcp_by_the_api_alone() {
    for version in ["8.4", "9.2"] {
        let dir = tempfile::tempdir().unwrap();
        let sim = Sim::start_with(dir.path(), &["--guests", "none", "--pve", version]);
        let site = Site::new(&sim);
        site.write_secret("admin", sim.fact("adminPassword"));
        let run = |user: &str, more: &[&str]| {
            let mut command = drover();
            command.arg("--config").arg(site.config()).args(["setup", "dhcp", "--sdn", "ci"]);
            command.args(["--subnet", "10.9.0.0/24", "--gateway", "10.9.0.1", "--snat"]);
            command.args(["--range", "10.9.0.50-10.9.0.99", "--dns", "9.9.9.9", "--user", user]);
            command.arg("--password-file").arg(site.dir.path().join("admin")).args(more);
            let out = command.output().unwrap();
            (out.status.code().unwrap(), text(&out))
        };
        let (code, dry) = run("root@pam", &["--dry-run"]);
        assert_eq!(code, 0, "{dry}");
        insta::assert_snapshot!("zone", dry);
        assert_eq!(sim.call("GET", "/cluster/sdn/zones")["data"], serde_json::json!([]));
        let (code, done) = run("root@pam", &[]);
        assert_eq!(code, 0, "{done}");
        let did: Vec<&str> = done.lines().filter_map(|line| line.strip_prefix("done: ")).collect();
        assert_eq!(did, dry.lines().collect::<Vec<_>>());
        let subnets = sim.call("GET", "/cluster/sdn/vnets/ci0/subnets?running=1")["data"].clone();
        assert_eq!(subnets[0]["cidr"], "10.9.0.0/24", "{subnets}");
        let (code, again) = run("root@pam", &[]);
        assert_eq!((code, &*again), (0, "nothing to do: VNet ci0 has DHCP\n"));

        sim.send("POST", "/access/users", &[("userid", "eve@pve"), ("password", "long-enough")]);
        let audit = [("path", "/"), ("users", "eve@pve"), ("roles", "PVEAuditor")];
        sim.send("PUT", "/access/acl", &audit);
        site.write_secret("admin", "long-enough");
        let (code, reported) = run("eve@pve", &["--vnet", "ci1"]);
        assert_eq!(code, 1);
        assert!(reported.contains("eve@pve lacks SDN.Allocate on /sdn"), "{reported}");
    }
}

// Invariant: a server that answers on the network is heard of, and nothing is taken from it.

#[test]
fn a_server_that_answers_is_heard() {
    let probe = include_str!("../../src/admin/setup/dhcp-probe.pl");
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    // A port that nobody has: the probe binds it, as it would 68.
    let from = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let to = server.local_addr().unwrap().port();
    let child = Command::new("perl")
        .args(["-e", probe, "lo", &from.to_string(), &to.to_string(), "127.0.0.1"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut asked = [0; 1500];
    let Ok((length, peer)) = server.recv_from(&mut asked) else {
        panic!("{}", text(&child.wait_with_output().unwrap()));
    };
    assert_eq!((length, asked[0], asked[1], asked[2]), (300, 1, 1, 6));
    assert_eq!(asked[236..243], [0x63, 0x82, 0x53, 0x63, 53, 1, 1], "a discover, after the cookie");
    assert_eq!(asked[10], 0x80, "the answer is to come to everybody");
    let mut offer = asked[..length].to_vec();
    offer[0] = 2;
    server.send_to(&offer, peer).unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(text(&out), "offer 127.0.0.1\nasked\n");
}
