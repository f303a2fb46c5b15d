//! The texts on an agent's own cloud-init disc: user data, meta data and network.
//!
//! [`texts`] fills in the placeholders of the operator's texts: drover's own values
//! ([`BUILT_IN_PLACEHOLDERS`]) and the operator's. A text that the operator does not set says the
//! same as Proxmox's own cloud-init drive would: users and keys here, the network in `network.rs`.
//! The meta data always has an id and a name of the guest's own, or cloud-init would take a clone
//! for its template.
//!
//! A malformed or unknown placeholder, and meta data that is not a mapping, are errors that name
//! the setting ([`TextsError`]).

pub(crate) mod network;

use std::collections::BTreeMap;

use drover_model::marks::Marks;
use drover_model::spec::TemplateSpec;
use drover_nocloud::iso::CloudInitTexts;
use drover_nocloud::placeholder::{self, PlaceholderError};
use percent_encoding::percent_decode_str;
use proxmox_client::types::VmConfig;
use serde_yaml::{Mapping, Value};

/// Placeholders that always have a value.
pub const BUILT_IN_PLACEHOLDERS: [&str; 12] = [
    "agent",
    "cloud",
    "hostname",
    "installation",
    "instanceId",
    "labels",
    "node",
    "searchDomain",
    "sshPublicKey",
    "template",
    "user",
    "vmid",
];

/// Why the texts could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextsError {
    /// A placeholder is malformed or has no value.
    #[error("{what}: {fault}")]
    Placeholder {
        /// The setting that contains it.
        what: &'static str,
        fault: PlaceholderError,
    },
    /// The meta data is not what cloud-init reads.
    #[error("metaData is not a YAML mapping of keys and values")]
    MetaData,
}

/// The values of all placeholders of an agent: drover's own, then the operator's, in which drover's
/// own may appear.
///
/// # Errors
/// When the operator's value has a placeholder that is malformed or unknown.
pub(crate) fn values(
    spec: &TemplateSpec,
    marks: &Marks,
    node: &str,
    search: Option<&str>,
) -> Result<BTreeMap<String, String>, TextsError> {
    let user = spec.cloud_init.user.clone().unwrap_or_else(|| spec.ssh.user.clone());
    let labels: Vec<&str> = spec.labels.iter().map(String::as_str).collect();
    let own = [
        ("agent", marks.agent.to_string()),
        ("cloud", marks.cloud.clone()),
        ("hostname", marks.name(&spec.name_prefix)),
        ("installation", marks.installation.to_string()),
        ("instanceId", instance_id(marks)),
        ("labels", labels.join(",")),
        ("node", node.to_owned()),
        ("searchDomain", search.unwrap_or_default().to_owned()),
        ("sshPublicKey", spec.ssh.public_key.trim().to_owned()),
        ("template", spec.id.name.to_string()),
        ("user", user),
        ("vmid", marks.vmid.to_string()),
    ];
    let own: BTreeMap<String, String> =
        own.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let mut all = own.clone();
    for (name, text) in spec.cloud_init.seed.iter().flat_map(|seed| &seed.values) {
        let value = placeholder::fill(text, &own);
        let what = "userDataValues";
        let value = value.map_err(|fault| TextsError::Placeholder { what, fault })?;
        all.insert(name.clone(), value);
    }
    Ok(all)
}

/// The id by which cloud-init recognizes its first run in a guest.
fn instance_id(marks: &Marks) -> String {
    format!("drover-{}", marks.agent)
}

/// The texts of an agent's disc; none if its template uses no such disc. `config` is the guest's
/// configuration as it will be.
///
/// # Errors
/// When a placeholder cannot be filled in, or the meta data is not a mapping.
pub fn texts(
    spec: &TemplateSpec,
    marks: &Marks,
    node: &str,
    config: &VmConfig,
) -> Result<Option<CloudInitTexts>, TextsError> {
    let Some(seed) = &spec.cloud_init.seed else { return Ok(None) };
    let values = values(spec, marks, node, config.get("searchdomain"))?;
    let filled = |what: &'static str, text: &Option<String>| {
        let Some(text) = text else { return Ok(None) };
        let filled = placeholder::fill(text, &values);
        filled.map(Some).map_err(|fault| TextsError::Placeholder { what, fault })
    };
    let user_data = filled("userData", &seed.user_data)?;
    let network_config = filled("networkConfig", &seed.network_config)?;
    let meta_data = filled("metaData", &seed.meta_data)?;
    Ok(Some(CloudInitTexts {
        user_data: user_data.unwrap_or_else(|| native_user_data(marks, spec, config)),
        meta_data: meta(meta_data.as_deref(), marks, spec)?,
        network_config: network_config.or_else(|| network::config(config, &spec.nics)),
    }))
}

fn text(value: impl Into<String>) -> Value {
    Value::String(value.into())
}

fn yaml(mapping: Mapping) -> String {
    // A mapping of plain texts and lists can always be written.
    serde_yaml::to_string(&Value::Mapping(mapping)).unwrap_or_default()
}

/// The meta data, always with an id and a name of the guest's own: without them cloud-init would
/// take a clone for its template. The key lets drover in as the image's user.
fn meta(own: Option<&str>, marks: &Marks, spec: &TemplateSpec) -> Result<String, TextsError> {
    let mut mapping = match own.map(serde_yaml::from_str::<Value>) {
        None | Some(Ok(Value::Null)) => Mapping::new(),
        Some(Ok(Value::Mapping(mapping))) => mapping,
        Some(_) => return Err(TextsError::MetaData),
    };
    let mut add = |key: &str, value: Value| {
        if !mapping.contains_key(key) {
            mapping.insert(text(key), value);
        }
    };
    add("instance-id", text(instance_id(marks)));
    add("local-hostname", text(marks.name(&spec.name_prefix)));
    let key = spec.ssh.public_key.trim();
    if !key.is_empty() {
        add("public-keys", Value::Sequence(vec![text(key)]));
    }
    Ok(yaml(mapping))
}

/// The same user data as on Proxmox's own drive, except for a password, which Proxmox does not
/// show.
fn native_user_data(marks: &Marks, spec: &TemplateSpec, config: &VmConfig) -> String {
    let name = config.get("name").map_or_else(|| marks.name(&spec.name_prefix), str::to_owned);
    let mut mapping = Mapping::new();
    let mut set = |key: &str, value: Value| mapping.insert(text(key), value);
    set("hostname", text(name.split('.').next().unwrap_or(&name)));
    set("manage_etc_hosts", Value::Bool(true));
    set(
        "fqdn",
        text(match config.get("searchdomain") {
            Some(domain) if !name.contains('.') => format!("{name}.{domain}"),
            Some(_) | None => name.clone(),
        }),
    );
    if let Some(user) = config.get("ciuser") {
        set("user", text(user));
    }
    let keys = config.get("sshkeys").map(|keys| percent_decode_str(keys).decode_utf8_lossy());
    let keys = keys.unwrap_or_default();
    let keys = keys.lines().filter(|key| !key.trim().is_empty()).map(text);
    set("ssh_authorized_keys", Value::Sequence(keys.collect()));
    let mut expire = Mapping::new();
    expire.insert(text("expire"), Value::Bool(false));
    set("chpasswd", Value::Mapping(expire));
    set("users", Value::Sequence(vec![text("default")]));
    set("package_upgrade", Value::Bool(config.get("ciupgrade").is_none_or(|word| word != "0")));
    format!("#cloud-config\n{}", yaml(mapping))
}

#[cfg(test)]
mod tests;
