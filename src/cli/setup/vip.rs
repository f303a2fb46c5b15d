//! `drover setup vip`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::Args;
use proxmox_client::Params;
use proxmox_client::PveError;
use proxmox_client::loose::{as_flag, as_text};
use serde_json::Value;

use super::super::error::{CliError, failed, usage};
use super::super::global::Global;
use super::login::{LoginOptions, read};
use super::node::{NodeOptions, as_root};
use super::output::SetupOutput;
use super::steps::carry_out;
use drover_admin::setup::vip::{
    KEEPALIVED_CONFIG, KEEPALIVED_UNIT, VRRP_PASSWORD_MAX, VipSpec, address, rule,
};
use drover_config::Environment;

/// Options of `setup vip`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Run it on one machine, which holds the address while its drover is ready (GET /readyz, so service.listen \
must be set). Two drovers on one cluster would serve its jobs twice. So a second machine is refused while \
another drover is ready behind the address. --peers that names another machine is refused, too. To move the \
address, run `systemctl disable --now drover` on the machine that has it, then this on the next one. \
Members of a store elect a leader: run it on each member while its drover runs, and the leader alone holds the \
address (GET /leaderz). Both hear each other by VRRP, which the cluster's firewall drops where \
it is on: with --user the rule that lets it through is made there too. Containers that Proxmox's firewall \
filters need it as well.")]
pub struct VipOptions {
    #[command(flatten)]
    login: LoginOptions,
    #[command(flatten)]
    node: NodeOptions,
    /// The virtual address, 10.0.0.9 or 10.0.0.9/24
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    address: (Ipv4Addr, Option<u8>),
    /// The interface [default: the one on whose network the address is]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Who has most of it holds the address, 1 to 254
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..=254))]
    priority: u8,
    /// The number that its members have in common, and nobody else on the network, 1 to 255
    #[arg(long, value_name = "N", default_value_t = 51, value_parser = clap::value_parser!(u8).range(1..))]
    router_id: u8,
    /// Members' own addresses, with commas; another machine's is refused
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    peers: Vec<Ipv4Addr>,
    /// File with a password that members have in common, 1 to 8 characters, clear on the network
    #[arg(long, value_name = "FILE")]
    auth_file: Option<PathBuf>,
    /// Where drover answers on the member itself
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080/readyz")]
    ready_url: String,
    /// Print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl VipOptions {
    fn wanted(&self) -> Result<VipSpec, CliError> {
        let mut password = None;
        if let Some(file) = &self.auth_file {
            let text = std::fs::read_to_string(file)
                .map_err(|error| failed(format!("{} cannot be read: {error}", file.display())))?;
            let word = text.trim().to_owned();
            let plain = word.chars().all(|letter| letter.is_ascii_alphanumeric());
            if word.is_empty() || word.len() > VRRP_PASSWORD_MAX || !plain {
                let text = format!("{} must hold 1 to 8 letters or digits", file.display());
                return Err(usage(text));
            }
            password = Some(word);
        }
        let plain = |letter: char| letter.is_ascii_alphanumeric() || ":/.-_[]%".contains(letter);
        let url = &self.ready_url;
        if !url.starts_with("http") || !url.chars().all(plain) {
            return Err(usage(format!("`{url}` is no address of drover's")));
        }
        Ok(VipSpec {
            address: self.address.0,
            prefix: self.address.1,
            interface: self.interface.clone(),
            router: self.router_id,
            priority: self.priority,
            peers: self.peers.clone(),
            password,
            ready: url.clone(),
        })
    }
}

pub(super) async fn run(
    global: &Global,
    options: &VipOptions,
    out: &mut SetupOutput<'_>,
) -> Result<(), CliError> {
    let wanted = options.wanted()?;
    let machine = options.node.machine(out).await?;
    let said = machine.ask(&wanted.state_commands()).await.map_err(failed)?;
    let face = wanted.check(&said).map_err(failed)?;
    firewall(global, options, &VipSpec::network(&face), out).await?;
    let text = |name: &str| said.get(name).map(|text| text.trim()).unwrap_or_default();
    let is_member = VipSpec::is_member(&said);
    let files = wanted.files(&face, is_member);
    let same =
        files.iter().zip(["config", "check"]).all(|(file, name)| file.text.trim() == text(name));
    if same && text("state") == "active" {
        out.idle(format!("{KEEPALIVED_UNIT} runs, with {} on {}", wanted.address, face.name))?;
        return Ok(());
    }
    let has = |name: &str| text("programs").lines().any(|line| line.ends_with(name));
    let lacks = !has("/keepalived") || !has("/curl");
    if options.dry_run {
        for file in &files {
            let shown = match &wanted.password {
                Some(password) => {
                    file.text.replace(&format!("auth_pass {password}"), "auth_pass ********")
                }
                None => file.text.clone(),
            };
            out.file(file, &shown)?;
        }
        if lacks {
            out.plan("apt-get install -y --no-install-recommends keepalived curl")?;
        }
        out.plan(format!("systemctl enable {KEEPALIVED_UNIT}"))?;
        out.plan(format!("systemctl restart {KEEPALIVED_UNIT}"))?;
        return Ok(());
    }
    as_root(&said)?;
    if lacks {
        let install = "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y \
                       --no-install-recommends keepalived curl";
        machine.run(install).await.map_err(failed)?;
        out.did("installed keepalived and curl")?;
        // Without curl the machine could not ask whether a drover is behind the address.
        let said = machine.ask(&wanted.state_commands()).await.map_err(failed)?;
        wanted.check(&said).map_err(failed)?;
    }
    // The check comes first: keepalived looks for it when it reads its configuration.
    for file in files.iter().rev() {
        machine.put(file).await.map_err(failed)?;
        out.did(format!("wrote {}", file.path))?;
    }
    // keepalived 2.2.7 ends itself when it is to test with another user for scripts than its own.
    let start = format!(
        "sed 's/script_user nobody/script_user root/' {KEEPALIVED_CONFIG} >{KEEPALIVED_CONFIG}.test && \
         {{ keepalived -t -f {KEEPALIVED_CONFIG}.test; good=$?; rm -f {KEEPALIVED_CONFIG}.test; [ $good = 0 ]; }} && \
         systemctl enable {KEEPALIVED_UNIT} && systemctl restart {KEEPALIVED_UNIT} && systemctl is-active {KEEPALIVED_UNIT}"
    );
    machine.run(&start).await.map_err(failed)?;
    let (address, name, priority) = (wanted.address, &face.name, wanted.priority);
    out.stands(format!(
        "{address} is held on {name} with priority {priority} while drover {}",
        if is_member { "leads" } else { "is ready" }
    ))?;
    Ok(())
}

/// Lets VRRP through the cluster's firewall, where somebody logs in who may.
async fn firewall(
    global: &Global,
    options: &VipOptions,
    network: &str,
    out: &mut SetupOutput<'_>,
) -> Result<(), CliError> {
    if options.login.user.is_none() {
        out.remark("the cluster's firewall was not looked at: give --user, or where it is on")?;
        let step = rule(network, true, &[]);
        if let Some(step) = &step {
            out.remark(step)?;
        }
        return Ok(());
    }
    let environment = Environment::of_process().without_secrets();
    let (_, checked) = read(global, &environment)?;
    let client = options.login.client(&checked, &environment)?;
    let reported = |error: PveError| failed(client.fault(&error).text);
    let settings: Value =
        client.get("/cluster/firewall/options", Params::new()).await.map_err(reported)?;
    let rules: Vec<BTreeMap<String, Value>> =
        client.get("/cluster/firewall/rules", Params::new()).await.map_err(reported)?;
    let texts = |rule: BTreeMap<String, Value>| -> BTreeMap<String, String> {
        rule.into_iter().filter_map(|(key, value)| Some((key, as_text(&value)?))).collect()
    };
    let rules: Vec<_> = rules.into_iter().map(texts).collect();
    let enabled = as_flag(&settings["enable"]).unwrap_or(false);
    let step = rule(network, enabled, &rules);
    let needed = vec![("/".to_owned(), "Sys.Modify")];
    let steps: Vec<_> = step.into_iter().collect();
    carry_out(&client, (&steps, &needed), options.dry_run, out).await
}
