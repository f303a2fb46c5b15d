//! `drover setup rights`: what has to be done is decided by [`drover_admin::setup`]; here it is asked for,
//! carried out and printed.

use std::io;
use std::path::PathBuf;

use clap::Args;
use drover_hypervisor::Client;
use drover_model::id::{CloudId, TemplateId};
use proxmox_client::{Connection, Login, PveError, WireDialer};
use secrecy::SecretString;

use super::super::config::config_path;
use super::super::error::{CliError, failed};
use super::super::global::Global;
use super::super::report;
use super::super::sim_options::PveVersion;
use super::login::{LoginOptions, one_cloud, password};
use super::output::SetupOutput;
use drover_admin::doctor::{ROLE_PREFIX, facts};
use drover_admin::rights::{Facts, GrantOptions, Grants, Needs, Release, grants, is_placeholder};
use drover_admin::setup::{
    Action, ExistingRights, READ_PRIVILEGES, RightsPlan, WantedRights, missing_privileges, plan,
    why_not_renewed, write_secret,
};
use drover_config::{Checked, Environment, TokenPlace, token_place};

/// Options of `setup rights`.
#[derive(Debug, Clone, Default, Args)]
pub struct RightsOptions {
    #[command(flatten)]
    pub login: LoginOptions,
    /// Print the pveum lines that would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Replace the token by a new one, while drover runs
    #[arg(long, conflicts_with_all = ["dry_run", "renew", "print_secret"])]
    pub rotate: bool,
    /// Seconds between taking the new token into use and removing the old one, for calls under way
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "rotate")]
    pub grace: u64,
    /// Give a token that is there another secret: its file is lost
    #[arg(long)]
    pub renew: bool,
    /// Give the token access entries of its own (privsep 1) beside its user's
    #[arg(long)]
    pub privsep: bool,
    /// Grant what drover works without, too: Datastore.Allocate, to remove volumes left behind
    #[arg(long)]
    pub leftovers: bool,
    /// Grant snapshots, copies and other sizes of machines, for `drover machine`
    #[arg(long)]
    pub orders: bool,
    /// What the names of roles begin with
    #[arg(long, value_name = "WORD", default_value = ROLE_PREFIX, value_parser = role_prefix)]
    pub role_prefix: String,
    /// The Proxmox VE to print lines for when nothing is looked at
    #[arg(long, value_enum, default_value = "9.2")]
    pub pve: Option<PveVersion>,
    /// Print the token's secret instead of writing it into its file
    #[arg(long)]
    pub print_secret: bool,
}

/// Runs `setup rights`.
pub(super) async fn run(
    global: &Global,
    options: &RightsOptions,
    out: &mut SetupOutput<'_>,
) -> Result<(), CliError> {
    let work = Work::new(global, options)?;
    report::warn(global.json, &work.checked);
    work.run(out).await
}

/// Runs `setup rights` as an administrator whose secret is known already.
pub(in super::super) async fn run_as(
    global: &Global,
    options: &RightsOptions,
    secret: &SecretString,
    out: &mut SetupOutput<'_>,
) -> Result<(), CliError> {
    let work = Work { secret: Some(secret.clone()), ..Work::new(global, options)? };
    work.run(out).await
}

/// Refuses what the administrator may not do, before anything is done.
pub(in super::super) async fn refuse_without(
    admin: &Client,
    needed: impl IntoIterator<Item = (String, &'static [&'static str])>,
) -> Result<(), CliError> {
    let lacks = missing_privileges(admin, needed).await;
    let lacks = lacks.map_err(|error| failed(admin.fault(&error).text))?;
    if lacks.is_empty() {
        return Ok(());
    }
    Err(failed(format!(
        "{} lacks {}: nothing was done; log in as an administrator with --user, such as root@pam",
        admin.login(),
        lacks.join(", ")
    )))
}

/// Everything that is known before the cluster is asked.
pub(super) struct Work<'a> {
    pub(super) global: &'a Global,
    pub(super) options: &'a RightsOptions,
    pub(super) path: PathBuf,
    pub(super) environment: Environment,
    checked: Checked,
    cloud: CloudId,
    pub(super) connection: Connection,
    pub(super) user: String,
    pub(super) token: String,
    /// The administrator's secret; none where it is yet to be asked for.
    secret: Option<SecretString>,
}

impl<'a> Work<'a> {
    fn new(global: &'a Global, options: &'a RightsOptions) -> Result<Self, CliError> {
        let path = config_path(global);
        let environment = Environment::of_process().without_secrets();
        let checked = drover_config::load(&path, &environment)
            .map_err(|error| CliError::Config(Box::new(error)))?;
        let cloud = one_cloud(&checked, options.login.cloud.as_deref())?;
        let connection = checked.connections[&cloud].clone();
        let Login::Token { id, .. } = &connection.login else {
            let text = format!(
                "cloud `{cloud}` logs in with a password: give it a credential of kind proxmoxToken, \
                 with the tokenId and secretFile that are to be made"
            );
            return Err(CliError::Usage(text));
        };
        let Some((user, token)) = id.split_once('!') else {
            return Err(CliError::Usage(format!("`{id}` is no token: write user@realm!name")));
        };
        let (user, token) = (user.to_owned(), token.to_owned());
        if user == "root@pam" {
            let text = "the YAML's tokenId is root's, which may do everything: write another one \
                        there, such as drover@pve!ci, and it is made";
            return Err(CliError::Usage(text.into()));
        }
        let secret = None;
        Ok(Self {
            global,
            options,
            path,
            environment,
            checked,
            cloud,
            connection,
            user,
            token,
            secret,
        })
    }

    async fn run(self, out: &mut SetupOutput<'_>) -> Result<(), CliError> {
        let Some(admin) = self.admin()? else {
            return self.offline(out);
        };
        let live = out.live();
        let _step = live.step("looking at the cluster's users, roles and rights");
        self.let_in(&admin).await?;
        let reported = |error: PveError| failed(admin.fault(&error).text);
        if self.options.rotate {
            return self.rotate(&admin, out).await;
        }
        let reads = READ_PRIVILEGES.map(|(path, any)| (path.to_owned(), any));
        refuse_without(&admin, reads).await?;
        let (version, facts) = facts(&admin, &self.checked.herd, &self.cloud)
            .await
            .map_err(|error| failed(admin.fault(&error).text))?;
        let release = Release::of(&version);
        let now = ExistingRights::read(&admin, &self.user, release == Release::V9)
            .await
            .map_err(reported)?;
        let mut wanted = self.wanted(release, &facts);
        let left = left_out(&facts, &mut wanted.grants);
        let RightsPlan { actions, mut beyond } = plan(&wanted, &now);
        beyond.extend(self.leftovers(&admin).await?.lines());
        beyond.extend(left.iter().cloned());
        if self.options.dry_run {
            print(out, &actions, &beyond)?;
            // Where the lines are only read, somebody else may do them.
            return match self.secret {
                Some(_) => refuse_without(&admin, actions.iter().flat_map(Action::needs)).await,
                None => Ok(()),
            };
        }
        if let Some(why) = why_not_renewed(&wanted, &now) {
            return Err(failed(why));
        }
        let place = self.place()?;
        let has_secret = place.is_some_and(|file| file.exists());
        let makes =
            |action: &Action| matches!(action, Action::MakeToken(..) | Action::RenewToken(..));
        if !has_secret && !actions.iter().any(makes) && !self.options.print_secret {
            let text = format!(
                "the token {}!{} is there, and the file of its secret is not; the secret is shown only \
                 once: --renew makes another one, and the old one ends",
                self.user, self.token
            );
            return Err(failed(text));
        }
        refuse_without(&admin, actions.iter().flat_map(Action::needs)).await?;
        for action in &actions {
            let _step = live.step(&action.to_string());
            let secret = action.run(&admin).await.map_err(reported)?;
            out.did(action)?;
            if let Some(secret) = secret {
                self.keep(&admin, &secret, out).await?;
            }
        }
        for line in &beyond {
            out.note(line)?;
        }
        if actions.is_empty() {
            out.idle(format!("{} holds what is needed", self.connection.login.name()))?;
        }
        self.verify(out).await?;
        match left.is_empty() {
            true => Ok(()),
            false => Err(failed(format!(
                "the rights of {} on what the cluster does not have yet are left out: {AGAIN}",
                self.connection.login.name()
            ))),
        }
    }

    /// The administrator's client; none where nobody was named.
    fn admin(&self) -> Result<Option<Client>, CliError> {
        let Some(username) = self.options.login.user.clone() else {
            if self.options.dry_run {
                return Ok(None);
            }
            let text = "name an administrator with --user, such as root@pam";
            return Err(CliError::Usage(text.into()));
        };
        let file = self.options.login.password_file.as_deref();
        let secret = match &self.secret {
            Some(known) => known.clone(),
            None => password(&self.environment, file, &username)?,
        };
        let mut connection = self.connection.clone();
        connection.login = if username.contains('!') {
            Login::Token { id: username, secret }
        } else {
            Login::Password { username, secret }
        };
        if let Some(endpoint) = &self.options.login.api_url {
            connection.endpoints = vec![endpoint.clone()];
        }
        let client = Client::new(self.cloud.clone(), &connection, &WireDialer);
        client.map(Some).map_err(|error| failed(error.chain()))
    }

    /// Logs in as the administrator.
    async fn let_in(&self, admin: &Client) -> Result<(), CliError> {
        let error = match admin.version().await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let PveError::Refused { refusal, .. } = &error else {
            return Err(failed(admin.fault(&error).text));
        };
        if refusal.status != 401 {
            return Err(failed(admin.fault(&error).text));
        }
        let secret = match admin.login().contains('!') {
            true => "that the token is there, has not expired, and its secret is the one given",
            false => "the password",
        };
        Err(failed(format!(
            "cloud `{}` does not let {} in: {}: check {secret} (--password-file, or \
             $DROVER_ADMIN_PASSWORD), and that the user is enabled and has not expired",
            self.cloud,
            admin.login(),
            refusal.text
        )))
    }

    fn wanted(&self, release: Release, facts: &Facts) -> WantedRights {
        let needs = Needs::of(&self.checked.herd, &self.cloud, release, facts);
        let commands =
            GrantOptions { optional: self.options.leftovers, orders: self.options.orders };
        WantedRights {
            grants: grants(&needs, &facts.template_pools(&self.checked.herd), commands),
            user: self.user.clone(),
            token: self.token.clone(),
            privsep: self.options.privsep,
            prefix: self.options.role_prefix.clone(),
            renew: self.options.renew,
        }
    }

    /// The lines for a cluster that nobody looked at.
    fn offline(&self, out: &mut SetupOutput<'_>) -> Result<(), CliError> {
        let release = match self.options.pve {
            Some(PveVersion::V7_4 | PveVersion::V8_4) => Release::V8,
            Some(PveVersion::V9_2) | None => Release::V9,
        };
        let wanted = self.wanted(release, &Facts::default());
        let RightsPlan { actions, beyond } = plan(&wanted, &ExistingRights::default());
        let release = match release {
            Release::V8 => "Proxmox VE 8",
            Release::V9 => "Proxmox VE 9",
        };
        out.remark(format!("nothing was looked at: for a new cluster with {release}"))?;
        if wanted.grants.placeholders().next().is_some() {
            out.remark("put in what stands between < and >, or give --user to look there")?;
        }
        print(out, &actions, &beyond)?;
        Ok(())
    }

    /// The file that the secret is written into; none where it is printed.
    fn place(&self) -> Result<Option<PathBuf>, CliError> {
        if self.options.print_secret {
            return Ok(None);
        }
        let place = self.token_place()?;
        place.secret_file.map(Some).ok_or_else(|| {
            let text = format!(
                "credential `{}` has no secretFile that the secret could be written into: give it \
                 one, or use --print-secret",
                place.credential
            );
            CliError::Usage(text)
        })
    }

    pub(super) fn token_place(&self) -> Result<TokenPlace, CliError> {
        let token = self.connection.login.name();
        token_place(&self.path, &self.environment, token)
            .map_err(|error| CliError::Usage(error.render()))
    }

    /// Keeps a token's secret; where it cannot be kept the token goes again.
    async fn keep(
        &self,
        admin: &Client,
        secret: &SecretString,
        out: &mut SetupOutput<'_>,
    ) -> Result<(), CliError> {
        let Some(file) = self.place()? else {
            out.secret(secret)?;
            return Ok(());
        };
        if let Err(error) = write_secret(&file, secret) {
            let gone = match admin.remove_token(&self.user, &self.token).await {
                Ok(()) => "the token was removed again".to_owned(),
                Err(_) => format!(
                    "the token is left: pveum user token remove {} {}",
                    self.user, self.token
                ),
            };
            return Err(failed(format!("{} cannot be written: {error}; {gone}", file.display())));
        }
        out.did(format!("secret written into {}", file.display()))?;
        Ok(())
    }

    /// Asks as the token whether it can log in and holds what is needed.
    async fn verify(&self, out: &mut SetupOutput<'_>) -> Result<(), CliError> {
        if self.options.print_secret {
            return Ok(());
        }
        // The token's secret is there now; keys for guests may come later.
        let again = drover_config::load(&self.path, &self.environment)
            .map_err(|error| failed(error.render()))?;
        let Some(connection) = again.connections.get(&self.cloud) else { return Ok(()) };
        let client = Client::new(self.cloud.clone(), connection, &WireDialer)
            .map_err(|error| failed(error.chain()))?;
        let reported = |error: PveError| failed(client.fault(&error).text);
        let (version, facts) = facts(&client, &again.herd, &self.cloud)
            .await
            .map_err(|error| failed(client.fault(&error).text))?;
        let needs = Needs::of(&again.herd, &self.cloud, Release::of(&version), &facts);
        let known = |path: &String| !is_placeholder(path);
        let (mut count, mut missing) = (0, Vec::new());
        for need in needs.usual().filter(|need| need.asked.iter().any(known)) {
            count += 1;
            let mut held = false;
            for path in &need.asked {
                let found = client.privileges(path, None).await.map_err(reported)?;
                held |= need.any_of.iter().any(|name| found.contains_key(*name));
            }
            if !held {
                missing.push(format!("{} on {}", need.any_of.join(" or "), need.path));
            }
        }
        if missing.is_empty() {
            out.stands(format!("{} logs in and holds all {count} privileges", client.login()))?;
            return Ok(());
        }
        let missing = missing.join(", ");
        Err(failed(format!("{} still lacks {missing}: `drover doctor` says more", client.login())))
    }
}

/// What to do about rights that were left out.
const AGAIN: &str = "run `drover setup rights` again once it is there";

/// Takes out of the grants what cannot be granted yet; says of each template and image what is
/// missing.
fn left_out(facts: &Facts, grants: &mut Grants) -> Vec<String> {
    let templates = facts.missing.iter();
    let missing = templates.map(|(id, why)| format!("`{id}` is left out: {why}; {AGAIN}"));
    let mut left: Vec<String> = missing.collect();
    for path in grants.take_placeholders() {
        // Of a template that was named above, its storages are unknown, too.
        let named = |id: &TemplateId| path.ends_with(&format!(" of {}>", id.name));
        if !facts.missing.keys().any(named) {
            left.push(format!("nothing on the cluster fits `{path}`, which is left out; {AGAIN}"));
        }
    }
    left
}

/// Checks the beginning of roles' names: letters, digits, `-` and `_`, and none of Proxmox's own.
pub(in super::super) fn role_prefix(text: &str) -> Result<String, String> {
    let sound = |ch: char| ch.is_ascii_alphanumeric() || matches!(ch, '-' | '_');
    if text.is_empty() || !text.chars().all(sound) {
        return Err("use letters, digits, `-` and `_`".into());
    }
    if text.to_ascii_uppercase().starts_with("PVE") {
        return Err("`PVE` begins Proxmox's own roles: use another word".into());
    }
    Ok(text.to_owned())
}

fn print(out: &mut SetupOutput<'_>, actions: &[Action], beyond: &[String]) -> io::Result<()> {
    for action in actions {
        out.plan(action)?;
    }
    for line in beyond {
        out.remark(line)?;
    }
    if actions.is_empty() {
        out.remark("nothing to do")?;
    }
    Ok(())
}
