//! What the options leave open, asked on a terminal.

use drover_admin::init::{Answers, ClusterSeen, Image, TEMPLATE_MAKE, VmidRange, propose};
use proxmox_client::Endpoint;

use super::super::error::{CliError, usage};
use super::super::prompt::ask;
use super::InitOptions;
use drover_admin::init::Trust;

/// Who logs in where nobody is named.
const ADMINISTRATOR: &str = "root@pam";

/// The addresses of nodes: of the options, an earlier run, or the terminal.
pub(super) fn urls(
    options: &InitOptions,
    earlier: Option<&[String]>,
    asks: bool,
) -> Result<Vec<Endpoint>, CliError> {
    let earlier: Vec<Endpoint> =
        earlier.unwrap_or_default().iter().filter_map(|url| url.parse().ok()).collect();
    let known = |given: Endpoint| match earlier.contains(&given) {
        // One may be off now, and is none the less one of the cluster's.
        true => [vec![given.clone()], rest_of(&earlier, &given)].concat(),
        false => vec![given],
    };
    match &options.urls[..] {
        [] => {}
        [one] => return Ok(known(one.clone())),
        many => return Ok(many.to_vec()),
    }
    if !asks || options.yes {
        return Ok(earlier);
    }
    let default = earlier.first().map(ToString::to_string);
    let question = "Address of one node, such as https://pve1.example.com:8006";
    let given = ask(question, default.as_deref(), |text| {
        text.parse::<Endpoint>().map_err(|error| error.to_string())
    })?;
    Ok(known(given))
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

/// Asks for everything that has no answer yet, with what fits as the default.
pub(super) fn rest(seen: &ClusterSeen, mut answers: Answers) -> Result<Answers, CliError> {
    let text = |text: &str| match text {
        "" => Err("an answer is needed".to_owned()),
        text => Ok(text.to_owned()),
    };
    if answers.template.is_none() {
        answers.template = Some(template(seen)?);
    }
    let makes = answers.template.as_deref() == Some(TEMPLATE_MAKE);
    if makes && answers.image.is_none() {
        let sums = "https://cloud.debian.org/images/cloud/trixie/";
        let file = "debian-13-genericcloud-amd64-DAY.qcow2";
        let url = ask(
            &format!("URL of a cloud image ({sums} has a folder for each day, with {file})"),
            None,
            text,
        )?;
        let checksum = ask("Its SHA-512 or SHA-256, of SHA512SUMS beside it", None, |sum| {
            let sound = matches!(sum.len(), 64 | 128) && sum.chars().all(|c| c.is_ascii_hexdigit());
            sound.then(|| sum.to_owned()).ok_or("a sum has 64 or 128 hexadecimal digits".to_owned())
        })?;
        answers.image = Some(Image { url, checksum });
    }
    // What would be proposed is the default of each question.
    let trial = propose(seen, &answers, (Vec::new(), Trust::System), answers.vmids);
    let Ok(trial) = trial else { return Ok(answers) };
    if makes {
        use drover_admin::init::Source::Image;
        if let Image { node, storage, bridge, .. } = &trial.source {
            if answers.node.is_none() {
                answers.node = Some(ask("Node", Some(node), text)?).filter(|named| named != node);
            }
            if answers.storage.is_none() {
                let found = ask("Storage of disks", Some(storage), text)?;
                answers.storage = Some(found).filter(|named| named != storage);
            }
            if answers.bridge.is_none() {
                let found = ask("Bridge of the agents", Some(bridge), text)?;
                answers.bridge = Some(found).filter(|named| named != bridge);
            }
        }
    }
    if answers.vmids.is_none() {
        let default = trial.vmids.to_string();
        let question = "VMIDs of agents, where nobody else makes guests";
        answers.vmids = Some(ask(question, Some(&default), |text| text.parse::<VmidRange>())?);
    }
    if answers.labels.is_none() {
        let labels = ask("Labels of the agents", Some(&trial.labels.join(",")), text)?;
        answers.labels = Some(labels.split([',', ' ']).map(str::to_owned).collect());
    }
    if answers.pool.is_none() {
        answers.pool = Some(ask("Pool of the agents", Some(&trial.pool), text)?);
    }
    if answers.guest_user.is_none() {
        let question = "Login in guests, which cloud-init makes";
        answers.guest_user = Some(ask(question, Some(&trial.guest_user), text)?);
    }
    Ok(answers)
}

/// Asks for a template among those that fit.
fn template(seen: &ClusterSeen) -> Result<String, CliError> {
    use std::io::Write as _;
    let mut said = String::from("Template images:\n");
    for one in &seen.templates {
        let fits = one.problem().map_or("fits".to_owned(), |why| format!("does not fit: {why}"));
        said.push_str(&format!("  {} `{}` on {}: {fits}\n", one.vmid, one.name, one.node));
    }
    said.push_str(&format!("  {TEMPLATE_MAKE}: drover builds one from a cloud image, later\n"));
    write!(std::io::stderr(), "{}", super::super::term::shown(&said))?;
    let trial = propose(seen, &Answers::default(), (Vec::new(), Trust::System), None);
    let default = trial.ok().and_then(|plan| match plan.source {
        drover_admin::init::Source::Template { vmid, .. } => Some(vmid.to_string()),
        drover_admin::init::Source::Image { .. } => None,
    });
    let default = default.unwrap_or_else(|| TEMPLATE_MAKE.to_owned());
    ask("Which one", Some(&default), |text| {
        if text == TEMPLATE_MAKE {
            return Ok(text.to_owned());
        }
        let found = seen.templates.iter().find(|one| one.vmid.to_string() == text);
        let found = found.ok_or(format!("write a VMID of the list, or {TEMPLATE_MAKE}"))?;
        match found.problem() {
            None => Ok(text.to_owned()),
            Some(why) => Err(format!("it does not fit: {why}")),
        }
    })
}
