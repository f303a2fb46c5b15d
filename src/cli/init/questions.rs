//! What the options leave open, asked on a terminal.

use std::io::{self, Write as _};

use drover_admin::init::{
    Answers, ClusterSeen, Image, Proposal, Refusals, Source, TEMPLATE_MAKE, TemplateSeen, Trust,
    VmidRange, image_checksum, image_url, propose, wrong_settings,
};
use proxmox_client::Endpoint;

use super::super::error::{CliError, failed, usage};
use super::super::prompt::ask;
use super::super::term::shown;
use super::InitOptions;
use super::files::Place;
use super::trust::{self, Contact, Unreached};

/// Who logs in where nobody is named.
const ADMINISTRATOR: &str = "root@pam";

/// The addresses of nodes, and the contact with the first: of the options or an earlier run, else asked for
/// on the terminal until one answers as it must.
pub(super) async fn reached(
    options: &InitOptions,
    earlier: Option<&[String]>,
    place: &Place,
    asks: bool,
) -> Result<(Vec<Endpoint>, Contact), CliError> {
    let earlier: Vec<Endpoint> =
        earlier.unwrap_or_default().iter().filter_map(|url| url.parse().ok()).collect();
    let known = |given: Endpoint| match earlier.contains(&given) {
        // One may be off now, and is none the less one of the cluster's.
        true => [vec![given.clone()], rest_of(&earlier, &given)].concat(),
        false => vec![given],
    };
    let asked = options.urls.is_empty() && asks && !options.yes;
    let default = earlier.first().map(ToString::to_string);
    loop {
        let urls = match &options.urls[..] {
            [] if asked => {
                let question = "Address of one node, such as https://pve1.example.com:8006";
                known(ask(question, default.as_deref(), |text| {
                    text.parse::<Endpoint>().map_err(|error| error.to_string())
                })?)
            }
            [] => earlier.clone(),
            [one] => known(one.clone()),
            many => many.to_vec(),
        };
        let Some(first) = urls.first() else {
            return Err(usage("name one node: --node-url https://pve1.example.com:8006"));
        };
        match trust::contact(first, options, place, asks).await {
            Ok(contact) => return Ok((urls, contact)),
            Err(Unreached::Address(why)) if asked => {
                writeln!(io::stderr(), "  {}", shown(&why))?;
            }
            Err(Unreached::Address(why)) => {
                return Err(failed(format!("{why}; nothing was written")));
            }
            Err(Unreached::Over(error)) => return Err(error),
        }
    }
}

fn rest_of(all: &[Endpoint], one: &Endpoint) -> Vec<Endpoint> {
    all.iter().filter(|other| *other != one).cloned().collect()
}

/// The administrator's name.
pub(super) fn user(options: &InitOptions, asks: bool) -> Result<String, CliError> {
    let sound = |text: &str| match text.split_once('@') {
        Some((user, realm)) if !user.is_empty() && !realm.is_empty() => Ok(text.to_owned()),
        Some(_) | None => Err(format!("`{text}` is no login: write root@pam, or root@pam!setup")),
    };
    match &options.user {
        Some(user) => sound(user).map_err(usage),
        None if asks && !options.yes => {
            ask("Administrator, for this run alone", Some(ADMINISTRATOR), sound)
        }
        None => Ok(ADMINISTRATOR.to_owned()),
    }
}

/// Checks that answers fit the cluster, and each other.
struct Check<'a> {
    seen: &'a ClusterSeen,
    /// The VMIDs of an earlier run.
    earlier: Option<VmidRange>,
}

impl Check<'_> {
    /// What would be proposed. Where the cloud image is yet to be named, any stands for it.
    fn plan(&self, answers: &Answers) -> Result<Proposal, Refusals> {
        let mut answers = answers.clone();
        if answers.template.as_deref() == Some(TEMPLATE_MAKE) {
            let any = || Image { url: String::new(), checksum: String::new() };
            answers.image.get_or_insert_with(any);
        }
        propose(self.seen, &answers, (Vec::new(), Trust::System), self.earlier)
    }

    /// Asks one question until the answer fits.
    fn ask<T>(
        &self,
        (question, default): (&str, &str),
        answers: &mut Answers,
        read: impl Fn(&str) -> Result<T, String>,
        put: impl Fn(&mut Answers, T),
    ) -> Result<(), CliError> {
        *answers = ask(question, Some(default), |text| {
            let mut tried = answers.clone();
            put(&mut tried, read(text)?);
            self.plan(&tried).map(|_| tried).map_err(|why| why.to_string().replace('\n', "\n  "))
        })?;
        Ok(())
    }
}

/// Asks for everything that has no answer yet, with what fits as the default. An answer that does not fit
/// is asked for again; `earlier` are the VMIDs of an earlier run.
///
/// # Errors
/// What options or an earlier run answer does not fit, which no question repairs.
pub(super) fn rest(
    seen: &ClusterSeen,
    mut answers: Answers,
    earlier: Option<VmidRange>,
) -> Result<Answers, CliError> {
    let check = Check { seen, earlier };
    let unfit = |why: &dyn std::fmt::Display| failed(format!("nothing was written: {why}"));
    let wrong = wrong_settings(seen, &answers, earlier);
    if !wrong.is_empty() {
        return Err(unfit(&wrong.join("\n")));
    }
    if answers.template.is_none() {
        answers.template = Some(template(&check, &answers)?);
    }
    let plan = check.plan(&answers).map_err(|why| unfit(&why))?;
    let text = |text: &str| match text {
        "" => Err("an answer is needed".to_owned()),
        text => Ok(text.to_owned()),
    };
    if answers.template.as_deref() == Some(TEMPLATE_MAKE) && answers.image.is_none() {
        answers.image = Some(image()?);
    }
    if let Source::Image { node, storage, bridge, .. } = &plan.source {
        // What is proposed stays open: storage and bridge follow the node.
        if answers.node.is_none() {
            let put =
                |all: &mut Answers, named: String| all.node = Some(named).filter(|one| one != node);
            check.ask(("Node", node), &mut answers, text, put)?;
        }
        let plan = check.plan(&answers).map_err(|why| unfit(&why))?;
        let (storage, bridge) = match &plan.source {
            Source::Image { storage, bridge, .. } => (storage, bridge),
            Source::Template { .. } => (storage, bridge),
        };
        if answers.storage.is_none() {
            let put = |all: &mut Answers, named: String| {
                all.storage = Some(named).filter(|one| one != storage)
            };
            check.ask(("Storage of disks", storage), &mut answers, text, put)?;
        }
        if answers.bridge.is_none() {
            let put = |all: &mut Answers, named: String| {
                all.bridge = Some(named).filter(|one| one != bridge)
            };
            check.ask(("Bridge of the agents", bridge), &mut answers, text, put)?;
        }
    }
    if answers.vmids.is_none() {
        let question = "VMIDs of agents, where nobody else makes guests";
        let put = |all: &mut Answers, range: VmidRange| all.vmids = Some(range);
        check.ask((question, &plan.vmids.to_string()), &mut answers, str::parse, put)?;
    }
    if answers.labels.is_none() {
        let put = |all: &mut Answers, labels: String| {
            let words = labels.split([',', ' ']).filter(|word| !word.is_empty());
            all.labels = Some(words.map(str::to_owned).collect());
        };
        let question = "Labels of the agents, separated by commas";
        check.ask((question, &plan.labels.join(",")), &mut answers, text, put)?;
    }
    if answers.pool.is_none() {
        let put = |all: &mut Answers, pool: String| all.pool = Some(pool);
        check.ask(("Pool of the agents", &plan.pool), &mut answers, text, put)?;
    }
    if answers.guest_user.is_none() {
        let question = "Login in guests, which cloud-init makes";
        let put = |all: &mut Answers, user: String| all.guest_user = Some(user);
        check.ask((question, &plan.guest_user), &mut answers, text, put)?;
    }
    Ok(answers)
}

/// Asks for the cloud image that drover builds from.
fn image() -> Result<Image, CliError> {
    let sums = "https://cloud.debian.org/images/cloud/trixie/";
    let file = "debian-13-genericcloud-amd64-DAY.qcow2";
    let question = format!("URL of a cloud image ({sums} has a folder for each day, with {file})");
    let url = ask(&question, None, image_url)?;
    let sums = "Its SHA-512 or SHA-256, of SHA512SUMS beside it";
    let checksum = ask(sums, None, image_checksum)?;
    Ok(Image { url, checksum })
}

/// Asks for a template among those that fit.
fn template(check: &Check<'_>, answers: &Answers) -> Result<String, CliError> {
    let seen = check.seen;
    let with = |template: &str| Answers { template: Some(template.to_owned()), ..answers.clone() };
    let fits =
        |template: &str| check.plan(&with(template)).map(|_| ()).map_err(|why| why.to_string());
    let ids: Vec<String> = seen.templates.iter().map(|one| one.vmid.to_string()).collect();
    if fits(TEMPLATE_MAKE).is_err() && !ids.iter().any(|vmid| fits(vmid).is_ok()) {
        // No answer would do: the options are what is wrong, or the cluster.
        let why = check.plan(answers).err().map(|why| why.to_string()).unwrap_or_default();
        let make = fits(TEMPLATE_MAKE).err().unwrap_or_default();
        return Err(failed(format!("nothing was written: {why}\n{TEMPLATE_MAKE}: {make}")));
    }
    let mut said = String::from("Template images:\n");
    for one in &seen.templates {
        let fits = one.problem().map_or("fits".to_owned(), |why| format!("does not fit: {why}"));
        said.push_str(&format!("  {} `{}` on {}: {fits}\n", one.vmid, one.name, one.node));
    }
    said.push_str(&format!("  {TEMPLATE_MAKE}: drover builds one from a cloud image, later\n"));
    write!(io::stderr(), "{}", shown(&said))?;
    let default = check.plan(answers).ok().and_then(|plan| match plan.source {
        Source::Template { guests, .. } => guests.first().map(|(vmid, _)| vmid.to_string()),
        Source::Image { .. } => None,
    });
    let default = default.unwrap_or_else(|| TEMPLATE_MAKE.to_owned());
    ask("Which one", Some(&default), |text| {
        let named = |one: &TemplateSeen| one.vmid.to_string() == text || one.name == text;
        if text != TEMPLATE_MAKE && !seen.templates.iter().any(named) {
            return Err(format!("write a VMID or a name of the list, or {TEMPLATE_MAKE}"));
        }
        fits(text).map(|()| text.to_owned())
    })
}
