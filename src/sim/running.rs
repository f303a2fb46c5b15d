//! A cluster that serves requests and executes commands: what `drover sim` holds while it runs.
//!
//! In: the options, and commands of the control socket. Out: the facts for scripts, and answers to
//! the commands.
//!
//! A reset ends the world with its guests and tasks, and builds another one from the description of
//! the first, or from a named world. Authority, token, password and URL stay. The servers stay too:
//! they close their connections after the current call and serve the new world.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use causes::chain;
use serde_json::{Value, json};

use crate::api::certificates::{Authority, CLUSTER_AUTHORITY, Certificates};
use crate::api::https::HttpsServer;
use crate::clock;
use crate::control::Command;
use crate::guests::{GuestKind, Image, QemuError, read_images};
use crate::recorder::Recorder;
use crate::run::{Options, SimError, guests, open_recorder, read_yaml, with_credentials};
use crate::simulation::{Simulation, SimulationOptions};
use crate::spec::{ClusterSpec, WorkersSpec};
use crate::world::{Certificates as ShownCertificates, Faults, Latency, WorldControl};
use crate::worlds;

/// What every world of one run has in common.
struct Setup<'a> {
    options: Options,
    /// Holds the certificates of authorities, and the files of guests.
    folder: &'a Path,
    images: Vec<Image>,
    latency: Latency,
    faults: Faults,
    record: Option<Arc<Recorder>>,
}

impl Setup<'_> {
    /// Builds a world; `generation` is the number of worlds before it.
    async fn build(
        &self,
        spec: &ClusterSpec,
        certificates: Certificates,
        generation: u32,
        before: Option<&Simulation>,
    ) -> Result<Simulation, SimError> {
        let folder = guests_folder(self.folder, generation);
        let described = &spec.guests;
        let guests = guests(&self.options, &self.latency, &folder, &self.images, described).await?;
        if let Some(before) = before {
            before.world.control().end().await;
        }
        let options = SimulationOptions {
            version: self.options.version,
            seed: self.options.seed,
            epoch: clock::unix_now(),
            latency: self.latency.clone(),
            faults: self.faults.clone(),
            record: self.record.clone(),
        };
        Ok(Simulation::new(spec, options, certificates, guests))
    }
}

/// The description that the options ask for, without credentials where it gives none.
fn described(options: &Options, images: &[Image]) -> Result<ClusterSpec, SimError> {
    let spec = match (&options.cluster, &options.world) {
        (Some(path), _) => read_yaml(path, "a simulated cluster")?,
        (None, Some(name)) => worlds::named(name)?,
        (None, None) => worlds::named(worlds::WORLDS[0].name)?,
    };
    if options.cluster.is_some() || images.is_empty() {
        return Ok(spec);
    }
    let named: Vec<_> = images.iter().map(|image| (image.name.clone(), image.bytes)).collect();
    Ok(spec.with_templates_of(&named))
}

pub(crate) struct RunningCluster<'a> {
    setup: Setup<'a>,
    /// The description that a reset goes back to.
    spec: ClusterSpec,
    /// The number of worlds so far.
    generation: u32,
    simulation: Simulation,
    servers: Vec<(String, HttpsServer)>,
    authority: Authority,
    /// The cluster's own certificates, which an administrator's can hide.
    own: Certificates,
    ca_file: PathBuf,
}

/// Where the guests of one world have their files.
fn guests_folder(folder: &Path, generation: u32) -> PathBuf {
    match generation {
        0 => folder.join("guests"),
        later => folder.join(format!("guests-{later}")),
    }
}

fn require_guest(world: &WorldControl, vmid: u32) -> Result<(), String> {
    let found = world.config(vmid).map(|_| ());
    found.ok_or_else(|| format!("unknown guest {vmid}; GET /cluster/resources lists the guests"))
}

fn node_names(spec: &ClusterSpec) -> Vec<String> {
    spec.nodes.iter().map(|node| node.name.clone()).collect()
}

impl<'a> RunningCluster<'a> {
    /// Builds the first world and serves it.
    pub(crate) async fn start(options: Options, folder: &'a Path) -> Result<Self, SimError> {
        let password = uuid::Uuid::new_v4().to_string();
        let secret = uuid::Uuid::new_v4().to_string();
        let images = match (options.guests, &options.images) {
            (GuestKind::Qemu, Some(folder)) => read_images(folder)?,
            (GuestKind::Qemu, None) => return Err(QemuError::NoFolder.into()),
            (GuestKind::None | GuestKind::Greeter | GuestKind::Process, _) => Vec::new(),
        };
        let fresh = ClusterSpec::three_nodes(&password, &secret);
        let spec = described(&options, &images)?;
        let mut spec = with_credentials(spec, &fresh.root_password, &fresh.root_tokens)?;
        spec.workers = options.workers.map_or(spec.workers, WorkersSpec::of);
        let latency = match options.latency.as_str() {
            "none" => Latency::none(),
            file => read_yaml(Path::new(file), "delays")?,
        };
        let faults = match &options.faults {
            Some(path) => read_yaml(path, "planned faults")?,
            None => Faults::default(),
        };
        let record = options.record.as_deref().map(open_recorder).transpose()?;
        let authority = Authority::new(CLUSTER_AUTHORITY)?;
        let own = authority.issue(&node_names(&spec))?;
        let setup = Setup { options, folder, images, latency, faults, record };
        let simulation = setup.build(&spec, own.clone(), 0, None).await?;
        let mut running = Self {
            setup,
            spec,
            generation: 1,
            simulation,
            servers: Vec::new(),
            authority,
            ca_file: folder.join("ca.pem"),
            own,
        };
        running.write_ca("ca.pem", &running.own.ca_pem)?;
        running.listen().await?;
        Ok(running)
    }

    pub(crate) fn options(&self) -> &Options {
        &self.setup.options
    }

    /// Closes all sockets.
    pub(crate) async fn stop(self) {
        for (_, server) in self.servers {
            server.stop().await;
        }
    }

    /// Serves the first node on the address of the options, and with `all_nodes` the others on free
    /// ports. A server that is there keeps its address.
    async fn listen(&mut self) -> Result<(), SimError> {
        let names = node_names(&self.spec);
        let count = if self.setup.options.all_nodes { names.len() } else { 1 };
        while self.servers.len() > count {
            if let Some((_, server)) = self.servers.pop() {
                server.stop().await;
            }
        }
        for (at, name) in names.into_iter().take(count).enumerate() {
            if let Some((known, server)) = self.servers.get_mut(at) {
                server.replace_world(Arc::clone(&self.simulation.api), &name, &self.own)?;
                *known = name;
                continue;
            }
            let address = self.setup.options.listen;
            let port = if at == 0 { address.port() } else { 0 };
            let address = SocketAddr::new(address.ip(), port);
            let server = self.simulation.listen_as(&name, address).await?;
            self.servers.push((name, server));
        }
        if self.servers.is_empty() {
            return Err(SimError::Unusable("no node is served".into()));
        }
        Ok(())
    }

    /// Ends the world and serves a new one of this description.
    async fn restart(&mut self, spec: ClusterSpec) -> Result<Value, SimError> {
        let names = node_names(&spec);
        if names != node_names(&self.spec) {
            self.own = self.authority.issue(&names)?;
        }
        let before = Some(&self.simulation);
        let next = self.setup.build(&spec, self.own.clone(), self.generation, before).await?;
        // The files of the guests that have ended; none with guests that are addresses only.
        let files = guests_folder(self.setup.folder, self.generation - 1);
        if let Err(error) = std::fs::remove_dir_all(&files)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %files.display(), %error, "cannot remove files of guests");
        }
        self.generation += 1;
        (self.spec, self.simulation) = (spec, next);
        self.listen().await?;
        Ok(self.facts())
    }

    /// The named world, with the credentials that this run began with.
    fn named(&self, name: &str) -> Result<ClusterSpec, SimError> {
        if self.setup.options.guests == GuestKind::Qemu {
            let why = "machines of QEMU have the templates of `--images`: there is `reset`, and no \
                       `world NAME`";
            return Err(SimError::Unusable(why.to_owned()));
        }
        let (password, tokens) = (&self.spec.root_password, &self.spec.root_tokens);
        let mut spec = with_credentials(worlds::named(name)?, password, tokens)?;
        spec.workers = self.setup.options.workers.map_or(spec.workers, WorkersSpec::of);
        Ok(spec)
    }

    /// Where the cluster is, and what is in it, without secrets.
    fn facts(&self) -> Value {
        let template = self.spec.guests.iter().find(|guest| guest.template);
        let first = self.servers.first().map(|(_, server)| server);
        let urls: serde_json::Map<String, Value> = self
            .servers
            .iter()
            .map(|(name, server)| (name.clone(), format!("https://{}", server.addr).into()))
            .collect();
        json!({
            "url": first.map(|server| format!("https://{}", server.addr)),
            "fingerprint": self.own.leaf_fingerprint,
            "caFile": self.ca_file,
            "node": template.map_or(self.simulation.first_node(), |guest| &guest.node),
            "nodes": node_names(&self.spec),
            "urls": urls,
            "templateVmId": template.map(|guest| guest.vmid),
            "release": self.setup.options.version.version_strings().0,
        })
    }

    /// The facts and the credentials, for the first line.
    pub(crate) fn facts_with_secrets(&self) -> Value {
        let token = self.spec.root_tokens.first();
        let mut facts = self.facts();
        facts["tokenId"] = json!(token.map(|token| format!("root@pam!{}", token.name)));
        facts["tokenSecret"] = json!(token.map(|token| token.secret.clone()));
        facts["adminUser"] = json!("root@pam");
        facts["adminPassword"] = json!(self.spec.root_password);
        facts["pid"] = json!(std::process::id());
        facts
    }

    pub(crate) async fn execute(&mut self, command: Command) -> Result<Value, String> {
        let world = self.simulation.world.control();
        match command {
            Command::Reset => {
                let spec = self.spec.clone();
                return self.restart(spec).await.map_err(|error| chain(&error));
            }
            Command::World(name) => {
                let spec = self.named(&name).map_err(|error| chain(&error))?;
                return self.restart(spec).await.map_err(|error| chain(&error));
            }
            Command::RenewCertificate => {
                return self.renew_certificate().map_err(|error| chain(&error));
            }
            Command::ReplaceCertificate => {
                return self.replace_certificate().map_err(|error| chain(&error));
            }
            Command::RenewAuthority => {
                return self.renew_authority().map_err(|error| chain(&error));
            }
            Command::ExpireTickets => self.simulation.access.expire_tickets(),
            Command::Faults(None) => world.set_faults(Faults::default()),
            Command::Faults(Some(path)) => {
                let faults = read_yaml(&path, "planned faults").map_err(|error| chain(&error))?;
                world.set_faults(faults);
            }
            Command::NodeDown(node) => world.node_down(self.known_node(&node)?).await,
            Command::NodeUp(node) => world.node_up(self.known_node(&node)?),
            Command::Isolate(node) => world.set_partitioned(self.known_node(&node)?, true),
            Command::Rejoin(node) => world.set_partitioned(self.known_node(&node)?, false),
            Command::Maintain(node, on) => world.set_maintenance(self.known_node(&node)?, on),
            Command::Lock(vmid, lock) => {
                require_guest(&world, vmid)?;
                world.set_config(vmid, "lock", lock.as_deref());
            }
            Command::Move(vmid, node) => {
                require_guest(&world, vmid)?;
                world.move_guest(vmid, self.known_node(&node)?);
            }
            Command::Trouble(vmid, trouble) => {
                require_guest(&world, vmid)?;
                world.trouble(vmid, trouble).await;
            }
            Command::PowerOff(vmid) => {
                require_guest(&world, vmid)?;
                world.kill_guest(vmid).await;
            }
        }
        Ok(Value::Null)
    }

    fn known_node<'n>(&self, node: &'n str) -> Result<&'n str, String> {
        let names = node_names(&self.spec);
        match names.iter().any(|name| name == node) {
            true => Ok(node),
            false => Err(format!("unknown node `{node}`; the nodes are: {}", names.join(", "))),
        }
    }

    /// Shows a new certificate of the cluster's own authority; it replaces an administrator's own
    /// certificate.
    fn renew_certificate(&mut self) -> Result<Value, SimError> {
        let made = self.authority.issue(&node_names(&self.spec))?;
        for (_, server) in &self.servers {
            server.replace_certificates(&made)?;
        }
        self.simulation.world.control().set_certificates((&made).into());
        let shown = json!({ "fingerprint": made.leaf_fingerprint });
        self.own = made;
        Ok(shown)
    }

    /// Creates another authority for the cluster, as after the loss of `/etc/pve/priv`.
    fn renew_authority(&mut self) -> Result<Value, SimError> {
        self.authority = Authority::new(CLUSTER_AUTHORITY)?;
        let mut shown = self.renew_certificate()?;
        self.ca_file = self.write_ca("renewed-ca.pem", &self.own.ca_pem)?;
        shown["caFile"] = json!(self.ca_file);
        Ok(shown)
    }

    fn write_ca(&self, name: &str, pem: &str) -> Result<PathBuf, SimError> {
        let file = self.setup.folder.join(name);
        std::fs::write(&file, pem).map_err(|source| SimError::System {
            doing: "cannot write the authority's certificate",
            source,
        })?;
        Ok(file)
    }

    /// Shows a certificate of an authority outside the cluster; the cluster's own authority stays.
    fn replace_certificate(&self) -> Result<Value, SimError> {
        let other = Authority::new("Somebody's own authority")?;
        let made = other.issue(&node_names(&self.spec))?;
        let ca_file = self.write_ca("other-ca.pem", &made.ca_pem)?;
        for (_, server) in &self.servers {
            server.replace_certificates(&made)?;
        }
        let world = self.simulation.world.control();
        let shown = Some((made.leaf_pem.clone(), made.leaf_fingerprint.clone()));
        world.set_certificates(ShownCertificates { proxy: shown, ..world.certificates() });
        Ok(json!({ "fingerprint": made.leaf_fingerprint, "caFile": ca_file }))
    }
}
