//! A template's texts for cloud-init: user data, meta data and network config, their placeholders and
//! values, and the snippets that take their place.

use std::collections::BTreeMap;

use drover_hypervisor::BUILT_IN_PLACEHOLDERS;
use drover_model::seed::SeedSpec;
use drover_nocloud::placeholder::{self, PlaceholderError as Bad, is_secret};
use serde_yaml::{Mapping, Value};

use super::credential::Vault;
use super::fault::Fault;
use super::layer::Layer;
use super::network::Cards;
use drover_api::nearest;

/// Each text: its key, and that of a file with it.
const TEXTS: [(&str, &str); 3] = [
    ("userData", "userDataFile"),
    ("metaData", "metaDataFile"),
    ("networkConfig", "networkConfigFile"),
];
/// The largest of them; clouds take less.
const LARGEST: usize = 64 << 10;
/// How user data begins that cloud-init understands.
const BEGINNINGS: [&str; 5] = ["#cloud-", "#!", "#include", "#part-handler", "## template:"];
/// The kinds of snippets, in Proxmox's words.
const SNIPPETS: [&str; 4] = ["user", "meta", "network", "vendor"];

/// What a template says to cloud-init beyond Proxmox's own keys.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// `cicustom`.
    pub custom: Option<String>,
    texts: [Option<String>; 3],
    values: BTreeMap<String, String>,
    storage: Option<String>,
}

impl Told {
    /// What goes into disc images on a cloud; nothing where Proxmox's own keys say it all, unless
    /// there must be one.
    pub fn on(&self, storage: &str, needed: bool) -> Option<SeedSpec> {
        let [user_data, meta_data, network_config] = self.texts.clone();
        let any = self.texts.iter().any(Option::is_some);
        (any || needed).then(|| SeedSpec {
            storage: self.storage.clone().unwrap_or_else(|| storage.to_owned()),
            user_data,
            meta_data,
            network_config,
            values: self.values.clone(),
        })
    }

    /// Whether it has a text of its own for the network.
    pub fn has_network(&self) -> bool {
        self.texts[2].is_some()
    }

    /// Whether there is any text.
    pub fn any(&self) -> bool {
        self.texts.iter().any(Option::is_some)
    }
}

/// Reads what a template's layer says.
pub(super) fn told(
    layer: &Layer,
    values: &BTreeMap<String, String>,
    storage: Option<&str>,
    vault: &mut Vault<'_>,
) -> Told {
    let custom = custom(layer, vault);
    let storage = storage.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    let mut told = Told { custom, values: values.clone(), storage, ..Told::default() };
    for (name, text) in values {
        value(name, text, layer, vault);
    }
    for (at, (key, file)) in TEXTS.into_iter().enumerate() {
        told.texts[at] = text(key, file, layer, values, vault);
    }
    unused(&told, layer, vault);
    told
}

/// Warns of a template's own values that no text has a placeholder for; those of `agentDefaults` may
/// be meant for others.
fn unused(told: &Told, layer: &Layer, vault: &mut Vault<'_>) {
    const KEY: &str = "userDataValues";
    let given = TEXTS.iter().filter(|(key, file)| layer.has(key) || layer.has(file)).count();
    let read: Vec<&String> = told.texts.iter().flatten().collect();
    // One at fault may be the one that uses them.
    if given != read.len() || !layer.fault(KEY, "").path.starts_with(&layer.path) {
        return;
    }
    let used: Vec<&str> =
        read.into_iter().filter_map(|text| placeholder::names(text).ok()).flatten().collect();
    for name in told.values.keys().filter(|name| !used.contains(&name.as_str())) {
        let fault = layer.fault(KEY, format!("`{name}` is used nowhere"));
        let help = format!(
            "write `${{{name}}}` in userData, metaData or networkConfig where it is meant, or take it out"
        );
        vault.warnings.push(fault.help(help));
    }
}

/// Checks one of `userDataValues`.
fn value(name: &str, text: &str, layer: &Layer, vault: &mut Vault<'_>) {
    const KEY: &str = "userDataValues";
    let mut add = |message: String, help: String| {
        vault.faults.push(layer.fault(KEY, message).help(help));
    };
    if BUILT_IN_PLACEHOLDERS.contains(&name) {
        add(format!("`{name}` is drover's own"), "give it another name".into());
    } else if placeholder::names(&format!("${{{name}}}")).is_err() {
        add(format!("`{name}` is no name"), "use letters, digits and `_`".into());
    } else if is_secret(name) && !text.is_empty() {
        add(
            format!("`{name}` is a secret: whoever may read the storage can read an ISO image"),
            "hand it over by SSH, in a lease or a step of prepare; blank it is taken here".into(),
        );
    }
    let own: Vec<&str> = BUILT_IN_PLACEHOLDERS.to_vec();
    unknown(KEY, text, &own, layer, vault);
}

/// Tells of placeholders that have no value.
fn unknown(key: &str, text: &str, known: &[&str], layer: &Layer, vault: &mut Vault<'_>) -> bool {
    let bad = match placeholder::names(text) {
        Ok(names) => names.into_iter().find(|name| !known.contains(name)).map(|name| {
            let help = match nearest(name, known.iter().copied()) {
                Some(near) => {
                    format!(
                        "did you mean `${{{near}}}`? Else write `$${{{name}}}` for the guest's own"
                    )
                }
                None => {
                    format!("add it to userDataValues, or write `$${{{name}}}` for the guest's own")
                }
            };
            (Bad::Unknown(name.to_owned()), help)
        }),
        Err(bad) => Some((bad, "write `$${` for a `${` that is the guest's own".to_owned())),
    };
    let found = bad.is_some();
    if let Some((bad, help)) = bad {
        vault.faults.push(layer.fault(key, bad.to_string()).help(help));
    }
    found
}

fn text(
    key: &'static str,
    file: &'static str,
    layer: &Layer,
    values: &BTreeMap<String, String>,
    vault: &mut Vault<'_>,
) -> Option<String> {
    let (given, text) = match (layer.text(key), layer.text(file)) {
        (Some(text), _) => (key, text.to_owned()),
        (None, Some(name)) => (file, vault.open_file(layer, file, name)?),
        (None, None) => return None,
    };
    if layer.has("cloudInitCustom") {
        let fault = layer.fault(given, format!("cloudInitCustom and {given} contradict"));
        vault.faults.push(fault.help("keep one of them"));
        return None;
    }
    if text.trim().is_empty() {
        vault.faults.push(layer.fault(given, "there is nothing in it").help("take it out"));
        return None;
    }
    if text.len() > LARGEST {
        let message = format!("{} bytes are more than 64 KiB", text.len());
        let fault = layer.fault(given, message);
        vault.faults.push(fault.help("put what is large into the image, or upload it in prepare"));
        return None;
    }
    let known: Vec<&str> =
        BUILT_IN_PLACEHOLDERS.into_iter().chain(values.keys().map(String::as_str)).collect();
    if unknown(given, &text, &known, layer, vault) {
        return None;
    }
    understood(key, given, &text, &known, layer, vault);
    Some(text)
}

/// Tells of texts that cloud-init would not understand.
fn understood(
    key: &str,
    given: &str,
    text: &str,
    known: &[&str],
    layer: &Layer,
    vault: &mut Vault<'_>,
) {
    let begins = BEGINNINGS.iter().any(|word| text.starts_with(word));
    let mime = text.starts_with("Content-Type:") || text.starts_with("MIME-Version:");
    if key == "userData" && !begins && !mime {
        let fault = layer.fault(given, "cloud-init does not know what this is");
        vault.warnings.push(fault.help("begin it with `#cloud-config`, or with `#!` of a script"));
        return;
    }
    if key == "userData" && !text.starts_with("#cloud-config\n") {
        let code = |line: &&str| !line.trim_start().starts_with('#');
        if text.lines().filter(code).any(|line| line.contains("chpasswd")) {
            vault.warnings.push(readable(given, layer));
        }
        return;
    }
    let sample = |name: &&str| ((*name).to_owned(), "x".to_owned());
    let samples: BTreeMap<String, String> = known.iter().map(sample).collect();
    let Ok(filled) = placeholder::fill(text, &samples) else { return };
    let wrong = match serde_yaml::from_str::<Value>(&filled) {
        Ok(Value::Mapping(map)) => {
            let told = key == "userData" && sets_password(&map);
            vault.warnings.extend(told.then(|| readable(given, layer)));
            return;
        }
        Ok(Value::Null) if key == "userData" => return,
        Ok(_) => "it is no mapping".to_owned(),
        Err(error) => error.to_string(),
    };
    let fault = layer.fault(given, format!("this is no YAML that cloud-init reads: {wrong}"));
    vault.faults.push(fault.help("correct it; `cloud-init schema` tells more"));
}

/// Whether a cloud-config sets a password, as it is or as a hash.
fn sets_password(map: &Mapping) -> bool {
    const OF_USERS: [&str; 3] = ["passwd", "plain_text_passwd", "hashed_passwd"];
    let filled = |value: Option<&Value>| match value {
        None | Some(Value::Null | Value::Bool(_)) => false,
        Some(Value::String(text)) => !text.trim().is_empty(),
        Some(Value::Sequence(items)) => !items.is_empty(),
        Some(Value::Number(_) | Value::Mapping(_) | Value::Tagged(_)) => true,
    };
    let changed = map.get("chpasswd");
    let users = map.get("users").and_then(Value::as_sequence).into_iter().flatten();
    let mut users = users.chain(map.get("user"));
    filled(map.get("password"))
        || changed.is_some_and(|it| filled(it.get("list")) || filled(it.get("users")))
        || users.any(|user| OF_USERS.iter().any(|key| filled(user.get(*key))))
}

/// The warning that whoever reads the disc image reads a password.
fn readable(given: &str, layer: &Layer) -> Fault {
    const WHAT: &str = "it sets a password: whoever may read the storage can read an ISO image";
    let fault = layer.fault(given, WHAT);
    fault.help("log in by keys, or hand it over by SSH, in a lease or an upload of prepare")
}

/// Warns of what a disc image can not tell.
pub(super) fn advise(told: &Told, cards: &Cards, layer: &Layer, warnings: &mut Vec<Fault>) {
    if !told.any() && !cards.apart {
        return;
    }
    if !told.has_network() && cards.lacks_servers() {
        let fault = layer.fault("networks", "the guest has no DNS server");
        warnings.push(fault.help("an ISO image does not know the node's: give dns or nameserver"));
    }
}

fn custom(layer: &Layer, vault: &mut Vault<'_>) -> Option<String> {
    if !layer.has("cloudInitCustom") || layer.is_faulty("cloudInitCustom") {
        return None;
    }
    let inner = layer.nested("cloudInitCustom").first()?;
    let given = SNIPPETS.into_iter().filter_map(|kind| Some((kind, inner.text(kind)?)));
    let parts: Vec<String> = given.map(|(kind, volume)| format!("{kind}={volume}")).collect();
    if parts.is_empty() && !SNIPPETS.iter().any(|kind| inner.is_faulty(kind)) {
        let fault = layer.fault("cloudInitCustom", "there is nothing in it");
        vault.faults.push(fault.help("name a snippet as user, meta, network or vendor"));
    }
    (!parts.is_empty()).then(|| parts.join(","))
}
