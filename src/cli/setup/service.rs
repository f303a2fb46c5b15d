//! `drover setup service`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use causes::chain;
use clap::Args;
use drover_ssh::PrivateKey;
use rand::TryRng as _;
use rand::rngs::SysRng;

use super::super::config::config_path;
use super::super::error::{CliError, failed, usage};
use super::super::global::Global;
use super::login::{LoginOptions, read};
use super::output::SetupOutput;
use super::steps::carry_out;
use drover_admin::setup::service::{
    Bundle, DEFAULT_HOSTNAME, GuestSpec, InstallMethod, Target, install, plan, reach, read_cluster,
};
use drover_admin::setup::write_secret;
use drover_config::Environment;

/// Options of `setup service`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
A container is what is made unless --vm names a template. Variables of the same meaning are taken \
where an option is left out. Drover's own program, the configuration with all files that it names, \
and the variables that it reads are put into the guest over SSH, with a key beside the YAML: \
Proxmox's API runs no commands in containers. Run again it finds the guest by its description and \
changes nothing, or with --upgrade what is other than here.

A token will do instead of a password where it holds VM.Allocate, VM.PowerMgmt, VM.Audit and the \
VM.Config.* of what is set, Datastore.AllocateSpace, SDN.Use, Datastore.AllocateTemplate to \
download a template, and for --ha Sys.Console on /. What is missing is reported before anything is done.")]
pub struct ServiceOptions {
    #[command(flatten)]
    login: LoginOptions,
    /// The node [default: the first that has the storage]
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// The guest's VMID [default: the first free from 300]
    #[arg(long, value_name = "VMID", env = "CT_ID")]
    vmid: Option<u32>,
    /// The guest's name, by which it is found again
    #[arg(long, value_name = "NAME", env = "CT_HOSTNAME", default_value = DEFAULT_HOSTNAME)]
    hostname: String,
    /// The storage of its disk
    #[arg(long, value_name = "STORAGE", env = "CT_STORAGE", default_value = "local-lvm")]
    storage: String,
    /// Its bridge or VNet; vmbr0.100 is VLAN 100
    #[arg(long, value_name = "BRIDGE", env = "CT_BRIDGE", default_value = "vmbr0")]
    bridge: String,
    /// The number of its processors
    #[arg(long, value_name = "N", env = "CT_CORES", default_value_t = 1)]
    cores: u32,
    /// Its memory in MiB
    #[arg(long, value_name = "MIB", env = "CT_MEMORY", default_value_t = 512)]
    memory: u32,
    /// Its disk in GiB
    #[arg(long, value_name = "GIB", env = "CT_DISK", default_value_t = 4)]
    disk: u32,
    /// The container's template; where it is not to be had the newest of the same name is taken
    #[arg(
        long,
        value_name = "FILE",
        env = "CT_TEMPLATE",
        default_value = "debian-12-standard_12.2-1_amd64.tar.zst"
    )]
    template: String,
    /// Where the container's template is, or is downloaded to [default: any that takes templates]
    #[arg(long, value_name = "STORAGE")]
    template_storage: Option<String>,
    /// Make a virtual machine, of the template with this VMID or name, which has cloud-init
    #[arg(long, value_name = "TEMPLATE", conflicts_with = "template_storage")]
    vm: Option<String>,
    /// Its address, dhcp or 10.0.0.5/24
    #[arg(long, value_name = "ADDRESS", default_value = "dhcp", value_parser = address)]
    ip: String,
    /// The gateway of its address
    #[arg(long, value_name = "ADDRESS")]
    gateway: Option<IpAddr>,
    /// The pool it joins
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// Have high availability keep it running; its storage must be shared
    #[arg(long)]
    ha: bool,
    /// The program to install [default: this one]
    #[arg(long, value_name = "FILE", default_value = "/proc/self/exe", hide_default_value = true)]
    program: PathBuf,
    /// The private key for the guest; made where there is none [default: service-ssh-key beside the
    /// YAML]
    #[arg(long, value_name = "FILE")]
    ssh_key: Option<PathBuf>,
    /// The guest's SSH port
    #[arg(long, value_name = "PORT", default_value_t = 22)]
    ssh_port: u16,
    /// Bring a guest that is there the program and the configuration of here
    #[arg(long)]
    upgrade: bool,
    /// Print the calls that would be made, and change nothing
    #[arg(long)]
    dry_run: bool,
}

fn address(text: &str) -> Result<String, String> {
    let good = text == "dhcp"
        || text.split_once('/').is_some_and(|(ip, prefix)| {
            ip.parse::<IpAddr>().is_ok() && prefix.parse::<u8>().is_ok_and(|length| length <= 128)
        });
    let fault = || format!("`{text}` is no address: write dhcp or 10.0.0.5/24");
    good.then(|| text.to_owned()).ok_or_else(fault)
}

impl ServiceOptions {
    fn wanted(&self, key: &PrivateKey) -> GuestSpec {
        let source = match &self.vm {
            Some(template) => InstallMethod::Machine(template.clone()),
            None => InstallMethod::Container {
                template: self.template.clone(),
                storage: self.template_storage.clone(),
            },
        };
        GuestSpec {
            source,
            vmid: self.vmid,
            hostname: self.hostname.clone(),
            node: self.node.clone(),
            storage: self.storage.clone(),
            bridge: self.bridge.clone(),
            cores: self.cores,
            memory: self.memory,
            disk: self.disk,
            ip: self.ip.clone(),
            gateway: self.gateway.map(|gateway| gateway.to_string()),
            pool: self.pool.clone(),
            ha: self.ha,
            public_key: key.public_line("drover-setup"),
        }
    }

    /// The key's file: beside the YAML where none is named.
    fn key_file(&self, config: &Path) -> PathBuf {
        let folder = if config.is_dir() { Some(config) } else { config.parent() };
        let beside = || folder.unwrap_or(Path::new("")).join("service-ssh-key");
        self.ssh_key.clone().unwrap_or_else(beside)
    }

    /// The key for the guest, and whether it is yet to be written.
    fn key(&self, file: &Path) -> Result<(PrivateKey, bool), CliError> {
        if file.exists() {
            let key = PrivateKey::load(file, None);
            let fault = |error| failed(format!("{}: {}", file.display(), chain(&error)));
            return key.map(|key| (key, false)).map_err(fault);
        }
        let mut seed = [0; 32];
        SysRng.try_fill_bytes(&mut seed).map_err(|error| failed(error.to_string()))?;
        Ok((PrivateKey::from_seed(&seed, "drover-setup"), true))
    }
}

pub(super) async fn run(
    global: &Global,
    options: &ServiceOptions,
    out: &mut SetupOutput<'_>,
) -> Result<(), CliError> {
    if options.gateway.is_some() && options.ip == "dhcp" {
        return Err(usage("--gateway goes with an address in --ip: DHCP names its own"));
    }
    let path = config_path(global);
    let folder = if path.is_dir() { Some(path.as_path()) } else { path.parent() };
    let credentials = folder.unwrap_or(Path::new("")).join("credentials");
    // As the unit would hand them over.
    let environment = Environment::of_process()
        .or("CREDENTIALS_DIRECTORY", &credentials.display().to_string())
        .or("STATE_DIRECTORY", "/var/lib/drover");
    let (path, checked) = read(global, &environment)?;
    let bundle = Bundle::collect(&path, &options.program, &checked, &environment);
    let bundle = bundle.map_err(usage)?;
    let client = options.login.client(&checked, &environment)?;

    let file = options.key_file(&path);
    let (key, new) = options.key(&file)?;
    let wanted = options.wanted(&key);
    let now = read_cluster(&client, &wanted).await.map_err(failed)?;
    if new && let Some(own) = &now.own {
        let (name, own, file) = (&wanted.hostname, own.vmid, file.display());
        return Err(failed(format!(
            "guest {own} is drover's `{name}`, and its key {file} is not here: name it with --ssh-key"
        )));
    }
    let plan = plan(&wanted, &now).map_err(failed)?;
    for note in &plan.notes {
        out.remark(note)?;
    }
    let kind = if plan.container { "container" } else { "virtual machine" };
    let pin = file
        .with_file_name(format!("{}.host", file.file_name().unwrap_or_default().to_string_lossy()));
    if options.dry_run {
        carry_out(&client, (&plan.steps, &plan.needed), true, out).await?;
        if now.own.is_none() {
            out.remark(format!("then over SSH, as root of {kind} {}:", plan.vmid))?;
            for part in &bundle.parts {
                out.plan_there(format!("put {} there, mode {:04o}", part.path, part.mode))?;
            }
            let start = "systemctl enable drover.service; systemctl restart drover.service";
            out.plan_there(start)?;
            return Ok(());
        }
        if plan.steps.iter().any(|step| step.path.ends_with("/start")) {
            return Ok(());
        }
    } else {
        if new {
            use secrecy::ExposeSecret as _;
            let text = key.to_openssh().map_err(|error| failed(chain(&error)))?;
            let text = text.expose_secret().trim_end().to_owned().into();
            write_secret(&file, &text).map_err(|error| {
                failed(format!("{} cannot be written: {error}", file.display()))
            })?;
        }
        if now.own.is_none() && pin.exists() {
            // It was another guest's.
            std::fs::remove_file(&pin)?;
        }
        carry_out(&client, (&plan.steps, &plan.needed), false, out).await?;
    }
    let fixed = options.ip.split_once('/').and_then(|(ip, _)| ip.parse().ok());
    let to = Target { address: fixed, port: options.ssh_port, key: &key, pin: &pin };
    let guest = reach(&client, &plan, to).await.map_err(failed)?;
    if let Some(seen) = &guest.new_key {
        out.note(format!("{} has the host key {seen}, taken as it is", guest.address))?;
    }
    let lack = guest.compare(&bundle).await.map_err(failed)?;
    let (vmid, node) = (plan.vmid, &plan.node);
    let wanting = lack.all || options.upgrade || lack.files.is_empty();
    if !lack.files.is_empty() && !wanting {
        let differ = lack.files.join(", ");
        let rests = if lack.stopped { ", and its drover does not run" } else { "" };
        let text = "--upgrade brings those of here";
        out.note(format!("{kind} {vmid} has others of {differ}{rests}: {text}"))?;
    } else if lack.files.is_empty() && !lack.stopped {
        out.idle(format!("drover runs in {kind} {vmid} on {node}, at {}", guest.address))?;
    } else if options.dry_run {
        for file in &lack.files {
            out.plan_there(format!("put {file} there"))?;
        }
        out.plan_there("systemctl restart drover.service")?;
    } else {
        install(&guest, &bundle, &lack).await.map_err(failed)?;
        for file in &lack.files {
            out.did(format!("put {file} there"))?;
        }
        out.stands(format!("drover runs in {kind} {vmid} on {node}, at {}", guest.address))?;
    }
    guest.close().await;
    Ok(())
}
