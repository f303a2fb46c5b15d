//! What a herd is played with: a cluster, how it behaves, and the YAML.

use std::sync::{LazyLock, Mutex};

use drover_config::{Checked, Environment, Sources, check};
use drover_ssh::PrivateKey;
use pve_sim::guests::StubOptions;
use pve_sim::spec::{ClusterSpec, GuestSpec, PveVersion};
use pve_sim::world::{Faults, Latency};
use secrecy::ExposeSecret;

/// The secret of the token.
pub const SECRET: &str = "token-secret";

/// Credentials of CI systems: `ci` for all kinds but Jenkins, which takes `login`.
pub const CI_LOGINS: &str = "ci: {kind: apiToken, secret: a-token-of-ci}\n  \
    login: {kind: apiLogin, username: drover, secret: a-token-of-ci}";

/// The private key of the credential `ssh`, as a line of YAML takes it.
static KEY: LazyLock<String> = LazyLock::new(|| {
    let key = PrivateKey::from_seed(&[7; 32], "drover-test").to_openssh().unwrap();
    key.expose_secret().replace('\n', "\\n")
});

/// A container's template on a node.
pub fn container_template(vmid: u32, node: &str) -> GuestSpec {
    let config = [
        ("hostname", "debian-ct".to_owned()),
        ("arch", "amd64".into()),
        ("ostype", "debian".into()),
        ("cores", "1".into()),
        ("memory", "512".into()),
        ("swap", "512".into()),
        ("unprivileged", "1".into()),
        ("rootfs", format!("local-lvm:base-{vmid}-disk-0,size=4G")),
        ("net0", "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:91:00,ip=dhcp,type=veth".into()),
    ];
    let config = config.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    GuestSpec { vmid, node: node.to_owned(), template: true, running: false, pool: None, config }
}

/// Everything a world is made of.
pub struct Setup {
    /// Fixes all chance.
    pub seed: u64,
    pub cluster: ClusterSpec,
    /// Further ones, which only clouds with `apiUrls` of their own lead to.
    pub beyond: Vec<ClusterSpec>,
    /// The Proxmox VE it runs.
    pub version: PveVersion,
    /// How long things take there.
    pub latency: Latency,
    /// What goes wrong there.
    pub faults: Faults,
    /// How guests behave.
    pub guests: StubOptions,
    /// Clouds: key and further keys as flow YAML (`instanceCap: 6`).
    pub clouds: Vec<(&'static str, String)>,
    /// Templates: key and further keys as flow YAML.
    pub templates: Vec<(&'static str, String)>,
    /// One credential more, as flow YAML; blank for none.
    pub credentials: String,
    /// Further sections of the YAML.
    pub sections: String,
    /// Who logs in.
    pub token: &'static str,
    /// The YAML that was read last, and what it says.
    read: Mutex<Option<(String, Checked)>>,
}

impl Setup {
    /// Three nodes, one cloud `rack`, one template `linux` of 9000 with these keys.
    pub fn linux(keys: &str) -> Self {
        Self {
            seed: 1,
            cluster: Self::three_nodes(),
            beyond: Vec::new(),
            version: PveVersion::default(),
            latency: Latency::default(),
            faults: Faults::default(),
            guests: StubOptions::default(),
            clouds: vec![("rack", String::new())],
            templates: vec![("linux", keys.to_owned())],
            credentials: String::new(),
            sections: String::new(),
            token: "root@pam!drover",
            read: Mutex::default(),
        }
    }

    /// The cluster that is played where nothing else is said.
    pub fn three_nodes() -> ClusterSpec {
        ClusterSpec::three_nodes("secret123", SECRET)
    }

    /// One credential more, `root`, for the login that new containers have.
    pub fn login_of_root(&self) -> String {
        format!("root: {{kind: sshKey, username: root, secret: \"{}\"}}", *KEY)
    }

    /// With another seed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self.guests.seed = seed;
        self
    }

    /// With keys for the cloud `rack`.
    pub fn rack(mut self, keys: &str) -> Self {
        self.clouds = vec![("rack", keys.to_owned())];
        self
    }

    /// With one template more.
    pub fn template(mut self, key: &'static str, keys: &str) -> Self {
        self.templates.push((key, keys.to_owned()));
        self
    }

    /// With pools of addresses: their names and keys as flow YAML.
    pub fn pools(mut self, pools: &str) -> Self {
        self.sections = format!("addressPools: {{{pools}}}\n");
        self
    }

    /// The configuration as drover reads it; the same text is read once.
    pub fn checked(&self) -> Checked {
        let yaml = self.yaml();
        let mut read = self.read.lock().unwrap();
        if let Some((_, checked)) = read.as_ref().filter(|(text, _)| *text == yaml) {
            return checked.clone();
        }
        let checked = check(Sources::of_text("drover.yaml", &yaml), &Environment::default())
            .unwrap_or_else(|error| panic!("{}\n{yaml}", error.render()));
        read.insert((yaml, checked)).1.clone()
    }

    fn yaml(&self) -> String {
        let hosts: Vec<String> =
            self.cluster.nodes.iter().map(|node| format!("https://{}", node.name)).collect();
        let mut text = format!(
            "credentials:\n  \
               api: {{kind: proxmoxToken, tokenId: \"{token}\", secret: {SECRET}}}\n  \
               ssh: {{kind: sshKey, username: debian, secret: \"{key}\"}}\n  {more}\n\
             cloudDefaults: {{credentialsId: api, apiUrls: [{hosts}], startVmId: 10000}}\n\
             agentDefaults: {{cloudIds: [rack], templateVmId: 9000, cloneStrategy: LINKED, \
               credentialsId: ssh, ciUser: debian}}\n\
             cloudConfigurations:\n",
            token = self.token,
            key = *KEY,
            more = self.credentials,
            hosts = hosts.join(", "),
        );
        for (id, keys) in &self.clouds {
            text += &format!("  {id}: {{name: {id}, {keys}}}\n");
        }
        text += "agentConfigurations:\n";
        for (id, keys) in &self.templates {
            text += &format!("  {id}: {{labelString: {id}, {keys}}}\n");
        }
        text + &self.sections
    }
}
