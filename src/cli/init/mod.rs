//! `drover init`: what is set up is worked out by [`drover_admin::init`]; here it is asked for, shown,
//! confirmed and carried out.
//!
//! 1. `trust`: the node's certificate, before any login is sent.
//! 2. `questions`: what the options leave open, on a terminal only.
//! 3. A summary, the YAML and the `pveum` lines; nothing is written before a yes.
//! 4. `files`: CA, key and YAML; then the rights, as `drover setup rights` makes them; then the storage of
//!    cloud images takes these.
//! 5. The doctor, and the next commands.
//!
//! Each step finds what an earlier run did. A failure names what to run again.

mod files;
mod questions;
mod trust;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use drover_admin::doctor::{ROLE_PREFIX, Report};
use drover_admin::init::{
    Answers, ClusterSeen, Image, Proposal, Source, VmidRange, earlier, propose, yaml,
};
use drover_ci::Severity;
use drover_config::Environment;
use drover_hypervisor::Client;
use drover_model::id::CloudId;
use drover_ssh::quote;
use proxmox_client::{Connection, Endpoint, Login, PveError, WireDialer};
use secrecy::SecretString;

use super::config::DEFAULT_CONFIG;
use super::doctor::{self, DoctorOptions};
use super::error::{CliError, failed, usage};
use super::global::Global;
use super::prompt;
use super::setup::{RightsOptions, SetupOutput, password, reporting, rights_as};
use files::{AUTHORITY, Place};

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
    /// VMID of a template image, or `make`: drover builds one later [default: one that fits]
    #[arg(long, value_name = "VMID|make")]
    pub template: Option<String>,
    /// With `make`: disk image of the cloud image to build from
    #[arg(long, value_name = "URL", requires = "image_checksum")]
    pub image_url: Option<String>,
    /// With `make`: its SHA-256 or SHA-512
    #[arg(long, value_name = "SUM", requires = "image_url")]
    pub image_checksum: Option<String>,
    /// Node of the agents [default: the template's, else the one with most free memory]
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
    /// SSH port of guests [default: 22]
    #[arg(long, value_name = "PORT")]
    pub ssh_port: Option<u16>,
    /// Networks of guests' addresses, separated by commas [default: drover takes any usable address]
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    pub guest_networks: Option<Vec<String>>,
    /// Folder of the configuration [default: that of --config, else /etc/drover]
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
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

/// The administrator, for this run alone.
struct Admin {
    user: String,
    secret: SecretString,
}

impl Admin {
    fn login(&self) -> Login {
        let (user, secret) = (self.user.clone(), self.secret.clone());
        match user.contains('!') {
            true => Login::Token { id: user, secret },
            false => Login::Password { username: user, secret },
        }
    }
}

async fn init(
    global: &Global,
    options: &InitOptions,
    out: &mut SetupOutput<'_>,
) -> Result<(), CliError> {
    let asks = prompt::is_interactive();
    if !asks && !options.yes && !options.dry_run {
        let text = "nobody can be asked here, since standard input is no terminal: give --yes, or \
                    --dry-run to look first";
        return Err(usage(text));
    }
    let place = Place::of(global, options);
    let there = place.read()?;
    let known = there.as_deref().and_then(earlier);
    let urls = questions::urls(options, known.as_ref().map(|(_, urls)| &urls[..]), asks)?;
    let Some(first) = urls.first() else {
        return Err(usage("name one node: --node-url https://pve1.example.com:8006"));
    };
    let contact = trust::contact(first, options, &place, asks).await?;
    let environment = Environment::of_process();
    let user = questions::user(options, asks)?;
    let secret = password(&environment, options.password_file.as_deref(), &user)?;
    let admin = Admin { user, secret };
    let connection = Connection::new(vec![first.clone()], admin.login(), contact.tls.clone());
    let client = Client::new(CloudId::new("primary"), &connection, &WireDialer)
        .map_err(|error| failed(error.chain()))?;
    let live = out.live();
    let step = live.step(&format!("reading the cluster at {first}"));
    let_in(&client, first).await?;
    let seen = ClusterSeen::read(&client).await;
    drop(step);
    let seen = seen.map_err(|error| failed(client.fault(&error).text))?;
    if options.urls.len() < 2 && seen.nodes.iter().any(|node| !node.online) {
        let gone: Vec<_> = seen.nodes.iter().filter(|node| !node.online).collect();
        for node in gone {
            out.note(format!("node {} is offline: it is left out of apiUrls", node.name))?;
        }
    }
    let step = live.step("looking at the certificates of the nodes");
    let (api_urls, trusted) = trust::endpoints(&client, &urls, &contact, &seen, out).await?;
    drop(step);
    let mut answers = options.answers();
    let old = known.map(|(answers, _)| answers);
    let vmids = old.as_ref().and_then(|old| old.vmids);
    if let Some(old) = old {
        answers = answers.or(old);
    }
    if asks && !options.dry_run && !options.yes {
        answers = questions::rest(&seen, answers)?;
    }
    let plan = propose(&seen, &answers, (api_urls, trusted), vmids);
    let plan = plan.map_err(|wrong| failed(format!("nothing was written: {wrong}")))?;
    let text = yaml(&plan, AUTHORITY);
    let work = Work { global, options, place, plan, text, admin, client };
    work.run(there.as_deref(), asks, out).await
}

/// Logs in; says what is wrong where that fails.
async fn let_in(client: &Client, url: &Endpoint) -> Result<(), CliError> {
    let error = match client.version().await {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    let who = client.login();
    Err(failed(match &error {
        PveError::Refused { refusal, .. } if refusal.status == 401 => format!(
            "{url} does not let {who} in: {}: check the password or secret (--password-file, or \
             $DROVER_ADMIN_PASSWORD), and that the user is enabled; nothing was written",
            refusal.text
        ),
        PveError::SecondFactor(_) => format!(
            "{who} needs a second factor, which drover cannot answer; nothing was written. On a node: \
             `pveum user token add {who} setup --privsep 0` shows a secret once; give --user \
             '{who}!setup' and that secret, and afterwards `pveum user token remove {who} setup`"
        ),
        PveError::Refused { .. }
        | PveError::Unreachable { .. }
        | PveError::Lost { .. }
        | PveError::Unsent { .. }
        | PveError::Shape { .. }
        | PveError::Setup { .. } => client.fault(&error).text,
    }))
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
                "{text}\nwhat is done above stays; the same command goes on from there"
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
            role_prefix: ROLE_PREFIX.to_owned(),
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

    /// Whether the doctor found nothing but that the image is still to be built.
    fn is_ready(&self, report: &Report) -> bool {
        let builds = matches!(self.plan.source, Source::Image { .. });
        let mut all = report.clouds.iter().flat_map(|cloud| &cloud.lines);
        all.all(|line| line.severity < Severity::Fail || (builds && line.about == "template linux"))
    }

    /// Runs the doctor; says what comes next.
    async fn examine(&self, out: &mut SetupOutput<'_>) -> Result<(), CliError> {
        let config = self.place.config();
        let checked = drover_config::load(&config, &Environment::of_process())
            .map_err(|error| CliError::Config(Box::new(error)))?;
        let is_usual = config == Path::new(DEFAULT_CONFIG);
        let named = Some(config.as_path()).filter(|_| !is_usual);
        let report = doctor::look(&checked, &DoctorOptions::default(), named, &out.live()).await;
        out.text(&report.text())?;
        let drover = match named {
            Some(path) => format!("drover --config {}", quote(&path.display().to_string())),
            None => "drover".to_owned(),
        };
        let mut next = Vec::new();
        next.push(match named {
            Some(_) => format!("{drover} run   # the unit reads {DEFAULT_CONFIG}"),
            None => "systemctl enable --now drover".to_owned(),
        });
        if matches!(self.plan.source, Source::Image { .. }) {
            next.push(format!("{drover} image build debian"));
        }
        let labels = self.plan.labels.join(",");
        next.push(format!("{drover} lease --labels {labels} -- uname -a"));
        if !self.is_ready(&report) {
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
