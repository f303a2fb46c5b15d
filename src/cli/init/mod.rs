//! `drover init`: what is set up is worked out by [`drover_admin::init`]; here it is asked for, shown,
//! confirmed and carried out.
//!
//! 1. `trust`: whether the node is a Proxmox VE, and its certificate, before any login is sent.
//! 2. `login`, then `token`: a token whose secret is elsewhere ends it here.
//! 3. `questions`: what the options leave open, on a terminal only. An answer that does not fit is asked for
//!    again; an option that does not fit is an error.
//! 4. A summary, the YAML and the `pveum` lines; nothing is written before a yes.
//! 5. `files`: CA, key and YAML; then the rights, as `drover setup rights` makes them; then the storage of
//!    cloud images takes these.
//! 6. The doctor, and the next commands.
//!
//! Each step finds what an earlier run did. A failure names what to run again.

mod files;
mod login;
mod questions;
mod token;
mod trust;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use drover_admin::doctor::{ROLE_PREFIX, Report};
use drover_admin::init::{
    Answers, ClusterSeen, Image, Proposal, Source, VmidRange, earlier, image_checksum, image_url,
    propose,
};
use drover_ci::Severity;
use drover_config::Environment;
use drover_hypervisor::Client;
use drover_ssh::quote;
use proxmox_client::Endpoint;

use super::config::DEFAULT_CONFIG;
use super::doctor::{self, DoctorOptions};
use super::error::{CliError, failed, usage};
use super::global::Global;
use super::prompt;
use super::setup::{RightsOptions, SetupOutput, refuse_without, reporting, rights_as, role_prefix};
use files::Place;
use login::{Admin, login};

/// Options of `init`.
#[derive(Debug, Clone, Default, Args)]
pub struct InitOptions {
    /// Address of one node, such as `https://pve1.example.com:8006`; several: exactly these are used
    #[arg(long = "node-url", value_name = "URL")]
    pub urls: Vec<Endpoint>,
    /// An administrator, or a token, root@pam!setup; used once, and kept nowhere (default: root@pam)
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// File with the password or the token's secret [default: $DROVER_ADMIN_PASSWORD, else it is
    /// asked for]
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// SHA-256 fingerprint of the node's certificate, as `pvenode cert info` prints it on the node
    #[arg(long, value_name = "SHA256", conflicts_with = "ca_file")]
    pub fingerprint: Option<String>,
    /// PEM file of the authority that signed the node's certificate
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// VMID or name of a template image, or `make`: drover builds one later [default: one that fits]
    #[arg(long, value_name = "VMID|NAME|make")]
    pub template: Option<String>,
    /// With `make`: disk image of the cloud image to build from
    #[arg(long, value_name = "URL", requires = "image_checksum", value_parser = image_url)]
    pub image_url: Option<String>,
    /// With `make`: its SHA-256 or SHA-512
    #[arg(long, value_name = "SUM", requires = "image_url", value_parser = image_checksum)]
    pub image_checksum: Option<String>,
    /// Node of the agents [default: all that have the template, else the one with most free memory]
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Storage of the agents' disks [default: the template's, else the best that takes disk images]
    #[arg(long, value_name = "STORAGE")]
    pub storage: Option<String>,
    /// Bridge of the agents [default: the template's, else one that all nodes have]
    #[arg(long, value_name = "BRIDGE")]
    pub bridge: Option<String>,
    /// VMIDs of agents, at least 100, without a guest [default: 1,000 above all guests]
    #[arg(long, value_name = "FIRST-LAST")]
    pub vmids: Option<VmidRange>,
    /// Labels of the agents, separated by commas [default: linux]
    #[arg(long, value_delimiter = ',')]
    pub labels: Option<Vec<String>>,
    /// Pool of the agents; drover's rights end at it [default: drover]
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
    /// The login in guests [default: debian]
    #[arg(long, value_name = "USER")]
    pub guest_user: Option<String>,
    /// The token to make for drover (default: drover@pve!ci)
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// Give that token another secret where it exists: its file is lost
    #[arg(long)]
    pub renew: bool,
    /// What the names of roles begin with; another word for each drover of a cluster, in every run
    #[arg(long, value_name = "WORD", default_value = ROLE_PREFIX, value_parser = role_prefix)]
    pub role_prefix: String,
    /// SSH port of guests [default: 22]
    #[arg(long, value_name = "PORT")]
    pub ssh_port: Option<u16>,
    /// Networks of guests' addresses, separated by commas [default: drover takes any usable address]
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    pub guest_networks: Option<Vec<String>>,
    /// Folder of the configuration [default: that of --config, else /etc/drover]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Replace a configuration that differs, and keep it as FILE.old
    #[arg(long)]
    pub replace: bool,
    /// Do not ask before it writes
    #[arg(long, conflicts_with = "dry_run")]
    pub yes: bool,
    /// Print the summary, the YAML and the pveum lines, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

impl InitOptions {
    fn answers(&self) -> Answers {
        let image = self.image_url.clone().zip(self.image_checksum.clone());
        Answers {
            template: self.template.clone(),
            image: image.map(|(url, checksum)| Image { url, checksum }),
            node: self.node.clone(),
            storage: self.storage.clone(),
            bridge: self.bridge.clone(),
            vmids: self.vmids,
            labels: self.labels.clone(),
            pool: self.pool.clone(),
            guest_user: self.guest_user.clone(),
            token: self.token.clone(),
            ssh_port: self.ssh_port,
            guest_networks: self.guest_networks.clone(),
        }
    }
}

/// Leads to a first configuration; gives the exit code.
pub(super) fn run(global: &Global, options: &InitOptions) -> ExitCode {
    reporting(global, async |out| init(global, options, out).await)
}

async fn init(
    global: &Global,
    options: &InitOptions,
    out: &mut SetupOutput<'_>,
) -> Result<(), CliError> {
    // The variable holds for all commands of a shell, and --dir for this one.
    let by_variable = std::env::var_os("DROVER_CONFIG");
    let named = global.config.as_deref().map(Path::as_os_str);
    if options.dir.is_some() && named.is_some_and(|named| Some(named) != by_variable.as_deref()) {
        return Err(usage("--dir and --config both name the place of the configuration: give one"));
    }
    let asks = prompt::is_interactive();
    if !asks && !options.yes && !options.dry_run {
        let text = "nobody can be asked here, since standard input is no terminal: give --yes, or \
                    --dry-run to look first";
        return Err(usage(text));
    }
    let place = Place::of(global, options);
    let there = place.read()?;
    let known = there.as_deref().and_then(earlier);
    let earlier_urls = known.as_ref().map(|(_, urls)| &urls[..]);
    let (urls, contact) = questions::reached(options, earlier_urls, &place, asks).await?;
    let Some(first) = urls.first() else { return Err(usage("name one node with --node-url")) };
    let user = questions::user(options, asks)?;
    let live = out.live();
    let file = options.password_file.as_deref();
    let (admin, client) = login(&user, file, (first, &contact), &live).await?;
    let step = live.step(&format!("reading the cluster at {first}"));
    let seen = ClusterSeen::read(&client).await;
    drop(step);
    let seen = seen.map_err(|error| {
        let text = client.fault(&error).text;
        failed(format!(
            "{text}: nothing was written; log in as an administrator with --user, such as root@pam"
        ))
    })?;
    let mut answers = options.answers();
    let old = known.map(|(answers, _)| answers);
    let vmids = old.as_ref().and_then(|old| old.vmids);
    if let Some(old) = old.clone() {
        answers = answers.or(old);
    }
    // The rights of a drover end at its pool, so that one with roles of its own has a pool of its own.
    if options.role_prefix != ROLE_PREFIX && answers.pool.is_none() {
        answers.pool = Some(format!("drover-{}", options.role_prefix.to_lowercase()));
    }
    token::refuse_unknown(&client, &answers, old.as_ref(), &place, options).await?;
    if options.urls.len() < 2 && seen.nodes.iter().any(|node| !node.online) {
        let gone: Vec<_> = seen.nodes.iter().filter(|node| !node.online).collect();
        for node in gone {
            out.note(format!("node {} is offline: it is left out of apiUrls", node.name))?;
        }
    }
    let step = live.step("looking at the certificates of the nodes");
    let (api_urls, trusted) = trust::endpoints(&client, &urls, &contact, &seen, out).await?;
    drop(step);
    if asks && !options.dry_run && !options.yes {
        answers = questions::rest(&seen, answers, vmids)?;
    }
    let plan = propose(&seen, &answers, (api_urls, trusted), vmids);
    let plan = plan.map_err(|wrong| failed(format!("nothing was written: {wrong}")))?;
    let text = place.yaml(&plan)?;
    let work = Work { global, options, place, plan, text, admin, client };
    work.run(there.as_deref(), asks, out).await
}

/// Everything that is decided, and nothing of it written.
struct Work<'a> {
    global: &'a Global,
    options: &'a InitOptions,
    place: Place,
    plan: Proposal,
    text: String,
    admin: Admin,
    client: Client,
}

impl Work<'_> {
    async fn run(
        &self,
        there: Option<&str>,
        asks: bool,
        out: &mut SetupOutput<'_>,
    ) -> Result<(), CliError> {
        self.place.refuse_others(there, &self.text, self.options.replace)?;
        self.show(out)?;
        let staged = files::stage(&self.plan, &self.text)?;
        self.rights(staged.path(), true, out).await?;
        if let Source::Image { prepare: Some(command), .. } = &self.plan.source {
            out.plan(command)?;
            // As Proxmox asks for its `PUT /storage/{storage}` (API schema).
            let needed = ("/storage".to_owned(), &["Datastore.Allocate"][..]);
            refuse_without(&self.client, [needed]).await?;
        }
        if self.options.dry_run {
            return Ok(());
        }
        if !self.options.yes && (!asks || !prompt::confirm("Write and make all this?")?) {
            return Err(failed("nothing was written"));
        }
        let done = async {
            self.place.write(&self.plan, &self.text, there, out)?;
            self.rights(&self.place.config(), false, out).await?;
            self.downloads(out).await?;
            self.examine(out).await
        };
        done.await.map_err(|error| match error {
            CliError::Failed(text) => failed(format!(
                "{text}\nwhat is done above stays; the same command goes on from there, with --renew where \
                 the token was made and its secret did not arrive"
            )),
            error @ (CliError::Usage(_)
            | CliError::Config(_)
            | CliError::Call(_)
            | CliError::Waited(_)
            | CliError::Over(_)
            | CliError::Output(_)) => error,
        })
    }

    /// Shows what would be made.
    fn show(&self, out: &mut SetupOutput<'_>) -> Result<(), CliError> {
        out.text("init would set up:\n")?;
        for (subject, text) in self.plan.summary() {
            out.remark(format!("{subject}: {text}"))?;
        }
        self.place.show(&self.text, out)?;
        Ok(())
    }

    /// Makes user, token, pool and roles, or prints the lines that would.
    async fn rights(
        &self,
        config: &Path,
        dry_run: bool,
        out: &mut SetupOutput<'_>,
    ) -> Result<(), CliError> {
        let global = Global { config: Some(config.to_owned()), ..self.global.clone() };
        let mut options = RightsOptions {
            dry_run,
            renew: self.options.renew,
            role_prefix: self.options.role_prefix.clone(),
            ..RightsOptions::default()
        };
        options.login.user = Some(self.admin.user.clone());
        rights_as(&global, &options, &self.admin.secret, out).await
    }

    /// Lets the storage of downloads take disk images to import.
    async fn downloads(&self, out: &mut SetupOutput<'_>) -> Result<(), CliError> {
        let Source::Image { import_storage, prepare: Some(command), .. } = &self.plan.source else {
            return Ok(());
        };
        let done = self.client.extend_storage(import_storage, "import").await;
        match done.map_err(|error| {
            let text = self.client.fault(&error).text;
            failed(format!("{text}; on a node: {command}"))
        })? {
            Some(all) => out.did(format!("pvesm set {import_storage} --content {all}"))?,
            None => out.already(format!("storage {import_storage} takes disk images to import"))?,
        }
        Ok(())
    }

    /// Makes no fault of it that the image is still to be built: the build is the next command.
    fn expect_build(&self, report: &mut Report) {
        let builds = matches!(self.plan.source, Source::Image { .. });
        let lines = report.clouds.iter_mut().flat_map(|cloud| &mut cloud.lines);
        for line in lines.filter(|line| builds && line.about == "template linux") {
            line.severity = line.severity.min(Severity::Warn);
        }
    }

    /// Runs the doctor; says what comes next.
    async fn examine(&self, out: &mut SetupOutput<'_>) -> Result<(), CliError> {
        let config = self.place.config();
        let checked = drover_config::load(&config, &Environment::of_process())
            .map_err(|error| CliError::Config(Box::new(error)))?;
        let named = Some(config.as_path()).filter(|_| !self.place.is_usual());
        let mut report =
            doctor::look(&checked, &DoctorOptions::default(), named, &out.live()).await;
        self.expect_build(&mut report);
        out.text(&report.text())?;
        let drover = match named {
            Some(path) => format!("drover --config {}", quote(&path.display().to_string())),
            None => "drover".to_owned(),
        };
        let mut next = Vec::new();
        next.push(match named {
            Some(_) => {
                format!(
                    "{drover} run   # in a terminal of its own: the unit reads {DEFAULT_CONFIG}"
                )
            }
            None => "systemctl enable --now drover".to_owned(),
        });
        if matches!(self.plan.source, Source::Image { .. }) {
            next.push(format!("{drover} image build debian"));
        }
        let labels = self.plan.labels.join(",");
        next.push(format!("{drover} lease --labels {labels} -- uname -a"));
        if !report.is_well() {
            return Err(failed(format!(
                "the doctor found what must be repaired first; `{drover} doctor` shows it again; then:\n  {}",
                next.join("\n  ")
            )));
        }
        out.stands(format!("{} is ready; next:", config.display()))?;
        for line in next {
            out.plan(line)?;
        }
        Ok(())
    }
}
