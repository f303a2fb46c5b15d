//! The simulated cluster of the demo, in this process: its nodes, and guests that are processes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pve_sim::api::certificates::Certificates;
use pve_sim::api::https::HttpsServer;
use pve_sim::guests::{KnownCommands, ProcessGuests, ProcessOptions};
use pve_sim::simulation::{Simulation, SimulationOptions};
use pve_sim::spec::ClusterSpec;
use pve_sim::world::NodeLoad;

use super::fault::DemoError;
use super::jobs;
use crate::known;

/// The VMIDs of the template images.
const TEMPLATES: [u32; 3] = [9000, 9001, 9002];

/// The memory of each node: guests of the demo fill a part of it that can be seen.
const NODE_MEMORY_BYTES: u64 = 24 << 30;

pub struct DemoCluster {
    simulation: Simulation,
    server: HttpsServer,
    guests: Arc<ProcessGuests>,
    /// The secret of the token `root@pam!drover`.
    pub token_secret: String,
    initial_volumes: Vec<String>,
}

impl DemoCluster {
    /// Starts the cluster; its guests have their files in `folder`.
    ///
    /// # Errors
    /// When processes cannot be guests, and when the API cannot be served.
    pub async fn start(seed: u64, folder: &Path) -> Result<Self, DemoError> {
        let token_secret = uuid::Uuid::new_v4().to_string();
        let mut spec = ClusterSpec::three_nodes(&uuid::Uuid::new_v4().to_string(), &token_secret);
        spec.nodes.iter_mut().for_each(|node| node.memory_bytes = NODE_MEMORY_BYTES);
        let mut options = ProcessOptions::new(folder.to_path_buf());
        options.seed = seed;
        options.boot = Duration::from_millis(500)..Duration::from_millis(1500);
        let known = known::commands();
        let may_run = Arc::clone(&known.may_run);
        let may_run = Arc::new(move |line: &str| may_run(line) || jobs::is_demo_job(line));
        options.known_commands = KnownCommands { may_run, ..known };
        let guests = Arc::new(ProcessGuests::new(options)?);
        let names: Vec<String> = spec.nodes.iter().map(|node| node.name.clone()).collect();
        let certificates = Certificates::generate(&names)?;
        let options = SimulationOptions {
            seed,
            epoch: pve_sim::clock::unix_now(),
            ..SimulationOptions::default()
        };
        let simulation = Simulation::new(&spec, options, certificates, Arc::clone(&guests) as _);
        let server = simulation.listen(([127, 0, 0, 1], 0).into()).await?;
        let cluster =
            Self { simulation, server, guests, token_secret, initial_volumes: Vec::new() };
        Ok(Self { initial_volumes: cluster.volumes(), ..cluster })
    }

    /// Whether guests are isolated from this machine.
    pub fn is_isolated(&self) -> bool {
        self.guests.is_isolated()
    }

    /// The URL of its API.
    pub fn url(&self) -> String {
        format!("https://{}", self.server.addr)
    }

    /// The certificate authority of its API.
    pub fn ca_pem(&self) -> &str {
        &self.server.ca_pem
    }

    /// What runs on each node.
    pub fn nodes(&self) -> Vec<NodeLoad> {
        self.simulation.world.control().node_loads()
    }

    /// Kills the processes of a guest; Proxmox notices that by itself.
    pub async fn kill_guest(&self, vmid: u32) {
        self.simulation.world.control().kill_guest(vmid).await;
    }

    /// The guests that are no template images.
    pub fn guests(&self) -> Vec<u32> {
        let all = self.simulation.world.control().guests();
        all.into_iter().filter(|vmid| !TEMPLATES.contains(vmid)).collect()
    }

    /// Guests and volumes that were not there at the start, in words; none when all are gone.
    pub fn left_behind(&self) -> Option<String> {
        let (guests, volumes) = (self.guests(), self.volumes());
        let clean = guests.is_empty() && volumes == self.initial_volumes;
        (!clean).then(|| format!("LEFT BEHIND: guests {guests:?}, volumes {volumes:?}"))
    }

    fn volumes(&self) -> Vec<String> {
        let side = self.simulation.world.control();
        let mut all: Vec<String> = ["pve1", "pve2", "pve3"]
            .iter()
            .flat_map(|node| {
                ["local-lvm", "shared"].map(|storage| side.volumes(node, storage)).concat()
            })
            .collect();
        all.sort();
        all.dedup();
        all
    }

    /// Ends the API and the guests.
    pub async fn stop(self) {
        self.server.stop().await;
        drop(self.simulation);
        drop(self.guests);
    }
}
