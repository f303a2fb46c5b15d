//! Whose certificate is trusted: at the first contact, and from then on.

use std::fs;

use drover_admin::init::{
    ClusterSeen, ContactError, Presented, Trust, present, recognise, trusts, ways,
};
use drover_hypervisor::Client;
use futures_util::future::join_all;
use proxmox_client::types::Certificate;
use proxmox_client::{Endpoint, Params, Tls, parse_pin};

use super::super::error::{CliError, failed, usage};
use super::super::prompt::confirm;
use super::super::setup::SetupOutput;
use super::InitOptions;
use super::files::{AUTHORITY, Place};

/// How a fingerprint is read on a node.
const READ: &str = "openssl x509 -noout -fingerprint -sha256 -in /etc/pve/local/pve-ssl.pem";

/// The first contact with a node.
pub(super) struct Contact {
    /// What its certificate was checked by.
    pub tls: Tls,
    /// The certificate that it showed.
    pub shown: Presented,
}

/// Why there is no contact.
pub(super) enum Unreached {
    /// Another address may be the right one.
    Address(String),
    /// The address is not what is wrong.
    Over(CliError),
}

impl From<CliError> for Unreached {
    fn from(error: CliError) -> Self {
        Self::Over(error)
    }
}

fn unreached(error: &ContactError) -> Unreached {
    let help = match error {
        ContactError::Silent { .. } => {
            ": check the address, that the node is up, and that this machine reaches its port"
        }
        ContactError::Stranger { .. } => {
            ": check host and port; the API of Proxmox VE is at port 8006 of each node"
        }
        ContactError::Refused { .. } => "",
    };
    Unreached::Address(format!("{error}{help}"))
}

/// Makes the first contact; no login is sent to a node that nobody vouches for, or to what is no node.
pub(super) async fn contact(
    url: &Endpoint,
    options: &InitOptions,
    place: &Place,
    asks: bool,
) -> Result<Contact, Unreached> {
    let shown = present(url).await.map_err(|error| unreached(&error))?;
    recognise(url).await.map_err(|error| unreached(&error))?;
    let by = async |tls: Tls| match trusts(url, &tls).await {
        Ok(shown) => Ok(Contact { tls, shown }),
        Err(error) => Err(unreached(&error)),
    };
    if let Some(file) = &options.ca_file {
        let text = fs::read_to_string(file)
            .map_err(|error| failed(format!("{} cannot be read: {error}", file.display())))?;
        return by(Tls::Bundle(vec![text])).await;
    }
    if let Some(pin) = &options.fingerprint {
        let pin = parse_pin(pin).map_err(|error| usage(error.to_string()))?;
        return by(Tls::Pins(vec![pin])).await;
    }
    if let Ok(earlier) = fs::read_to_string(place.beside(AUTHORITY))
        && let Ok(contact) = by(Tls::Bundle(vec![earlier])).await
    {
        return Ok(contact);
    }
    if let Ok(contact) = by(Tls::System).await {
        return Ok(contact);
    }
    let Presented { sha256, about } = &shown;
    if !asks || options.yes {
        return Err(Unreached::Over(usage(format!(
            "no authority of this system signed the certificate of {url} (SHA-256 {sha256} {about}): \
             compare it with what `{READ}` prints on the node, and give --fingerprint {sha256}; or \
             give the cluster's /etc/pve/pve-root-ca.pem with --ca-file"
        ))));
    }
    let question = format!(
        "No authority of this system signed the certificate of {url}.\n  SHA-256 {sha256}\n  {about}\n\
         The node prints the same with: {READ}\nIs it the same?"
    );
    if !confirm(&question)? {
        return Err(failed("the certificate was not confirmed; nothing was written").into());
    }
    let pin = parse_pin(sha256).map_err(|error| failed(error.to_string()))?;
    Ok(Contact { tls: Tls::Pins(vec![pin]), shown })
}

/// The addresses of all nodes that answer with a certificate that is trusted, and how the YAML says
/// whose are.
pub(super) async fn endpoints(
    client: &Client,
    urls: &[Endpoint],
    contact: &Contact,
    seen: &ClusterSeen,
    out: &mut SetupOutput<'_>,
) -> Result<(Vec<String>, Trust), CliError> {
    let Some(first) = urls.first() else { return Err(usage("name one node with --node-url")) };
    let refused = |error: proxmox_client::PveError| failed(client.fault(&error).text);
    let certificates = client.certificates().await.map_err(refused)?;
    let (tls, mut trust) = lasting(first, contact, &certificates).await;
    let mut found = vec![first.to_string()];
    if urls.len() > 1 {
        found = urls.iter().map(ToString::to_string).collect();
        let looks = join_all(urls.iter().skip(1).map(|url| trusts(url, &tls))).await;
        for error in looks.into_iter().filter_map(Result::err) {
            if let (Trust::Pins(pins), ContactError::Refused { refused, .. }) = (&mut trust, &error)
            {
                // Only what the cluster itself lists is pinned.
                let sha256 = &refused.certificate().sha256;
                let listed = shown_by(client, seen).await.contains(sha256);
                if listed {
                    pins.push(sha256.clone());
                    continue;
                }
            }
            match error {
                ContactError::Refused { .. } => {
                    return Err(failed(format!("{error}; nothing was written")));
                }
                ContactError::Silent { .. } | ContactError::Stranger { .. } => {
                    out.note(format!("{error}: it stays in apiUrls"))?;
                }
            }
        }
        return Ok((found, trust));
    }
    let listed = match &trust {
        Trust::Pins(_) => shown_by(client, seen).await,
        Trust::System | Trust::Authority(_) => Vec::new(),
    };
    for node in ways(first, &seen.nodes) {
        let looks = join_all(node.ways.iter().map(|way| trusts(way, &tls))).await;
        let mut why = Vec::new();
        let mut taken = None;
        for (way, look) in node.ways.iter().zip(looks) {
            match (look, &mut trust) {
                (Ok(_), _) => taken = taken.or(Some(way)),
                (Err(ContactError::Refused { refused, .. }), Trust::Pins(pins))
                    if listed.contains(&refused.certificate().sha256) =>
                {
                    pins.push(refused.certificate().sha256.clone());
                    taken = taken.or(Some(way));
                }
                (Err(error), _) => why.push(error.to_string()),
            }
        }
        match taken {
            Some(way) => found.push(way.to_string()),
            None => out.note(format!(
                "node {} is left out of apiUrls: {}; a second --node-url names it",
                node.node,
                why.join("; ")
            ))?,
        }
    }
    Ok((found, trust))
}

/// What vouches for the cluster from now on: its own authority where that signed the certificate,
/// else what did at the first contact, else the certificate itself.
async fn lasting(url: &Endpoint, contact: &Contact, listed: &[Certificate]) -> (Tls, Trust) {
    let root = listed.iter().find(|one| one.filename.as_deref() == Some("pve-root-ca.pem"));
    if let Some(pem) = root.and_then(|one| one.pem.clone()) {
        let tls = Tls::Bundle(vec![pem.clone()]);
        if trusts(url, &tls).await.is_ok() {
            return (tls, Trust::Authority(pem));
        }
    }
    match &contact.tls {
        Tls::Bundle(texts) => (contact.tls.clone(), Trust::Authority(texts.concat())),
        Tls::System => (Tls::System, Trust::System),
        Tls::Pins(_) | Tls::Ignore => {
            (contact.tls.clone(), Trust::Pins(vec![contact.shown.sha256.clone()]))
        }
    }
}

/// The fingerprints of all certificates that the cluster lists for its online nodes.
async fn shown_by(client: &Client, seen: &ClusterSeen) -> Vec<String> {
    let mut all = Vec::new();
    for node in seen.online() {
        let path = format!("/nodes/{}/certificates/info", node.name);
        let found = client.get::<Vec<Certificate>>(&path, Params::new()).await.unwrap_or_default();
        all.extend(found.into_iter().filter_map(|one| one.fingerprint));
    }
    all
}
