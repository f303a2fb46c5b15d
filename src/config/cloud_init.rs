//! A template's texts for cloud-init (user data, meta data, network config) with their
//! placeholders, and the snippets that replace them.

use std::collections::BTreeMap;

use drover_api::nearest;
use drover_hypervisor::BUILT_IN_PLACEHOLDERS;
use drover_model::seed::SeedSpec;
use drover_nocloud::placeholder::{self, PlaceholderError as Bad, is_secret};
use serde_yaml::{Mapping, Value};

use super::context::Context;
use super::fault::Fault;
use super::keys::TEXTS;
use super::layer::Layer;
use super::network::Cards;
use super::node;

/// The largest text; public clouds take less.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// The beginnings of user data that cloud-init knows.
const BEGINNINGS: [&str; 5] = ["#cloud-", "#!", "#include", "#part-handler", "## template:"];
/// The kinds of snippets, as Proxmox names them.
const SNIPPETS: [&str; 4] = ["user", "meta", "network", "vendor"];

/// What a template gives to cloud-init beyond Proxmox's own keys.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// Snippets that Proxmox merges into its own texts (`cicustom`).
    pub custom: Option<String>,
    texts: [Option<String>; 3],
    values: BTreeMap<String, String>,
    storage: Option<String>,
}

impl Texts {
    /// The content of the ISO images on a cloud; none where Proxmox's own keys are enough, unless
    /// one is needed anyway.
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
}

/// Reads the texts of a template's layer.
pub(super) fn texts(
    layer: &Layer,
    values: &BTreeMap<String, String>,
    storage: Option<&str>,
    cx: &mut Context<'_>,
) -> Texts {
    let custom = custom(layer, cx);
    let storage = storage.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    let mut all = Texts { custom, values: values.clone(), storage, ..Texts::default() };
    for (name, text) in values {
        value(name, text, layer, cx);
    }
    for (at, [key, file]) in TEXTS.into_iter().enumerate() {
        all.texts[at] = text(key, file, layer, values, cx);
    }
    warn_unused(&all, layer, cx);
    all
}

/// Warns of the template's own values that no text uses; values of `agentDefaults` may be for other
/// templates.
fn warn_unused(all: &Texts, layer: &Layer, cx: &mut Context<'_>) {
    const KEY: &str = "userDataValues";
    let given = TEXTS.iter().filter(|ways| ways.iter().any(|key| layer.has(key))).count();
    let read: Vec<&String> = all.texts.iter().flatten().collect();
    // A text with a fault may be the one that uses them.
    if given != read.len() || !layer.is_own(KEY) {
        return;
    }
    let used: Vec<&str> =
        read.into_iter().filter_map(|text| placeholder::names(text).ok()).flatten().collect();
    for name in all.values.keys().filter(|name| !used.contains(&name.as_str())) {
        let fault = layer.fault(KEY, format!("no text uses `{name}`"));
        let help =
            format!("write `${{{name}}}` in userData, metaData or networkConfig, or remove it");
        cx.warnings.push(fault.help(help));
    }
}

/// Checks one of `userDataValues`.
fn value(name: &str, text: &str, layer: &Layer, cx: &mut Context<'_>) {
    const KEY: &str = "userDataValues";
    let mut add = |message: String, help: String| {
        cx.faults.push(layer.fault(KEY, message).help(help));
    };
    if BUILT_IN_PLACEHOLDERS.contains(&name) {
        add(format!("`{name}` is a built-in value"), "give it another name".into());
    } else if placeholder::names(&format!("${{{name}}}")).is_err() {
        add(format!("`{name}` is not a name"), "use letters, digits and `_`".into());
    } else if is_secret(name) && !text.is_empty() {
        add(
            format!("`{name}` is a secret: all users of the storage can read an ISO image"),
            "send it over SSH, in a lease or a step of prepare, and leave the value blank".into(),
        );
    }
    let own: Vec<&str> = BUILT_IN_PLACEHOLDERS.to_vec();
    unknown(KEY, text, &own, layer, cx);
}

/// Whether a text has a placeholder without a value, which is a fault.
fn unknown(key: &str, text: &str, known: &[&str], layer: &Layer, cx: &mut Context<'_>) -> bool {
    let bad = match placeholder::names(text) {
        Ok(names) => names.into_iter().find(|name| !known.contains(name)).map(|name| {
            let help = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean `${{{near}}}`? Else"),
                None => "add it to userDataValues, or".to_owned(),
            };
            let help = format!("{help} write `$${{{name}}}` for the guest's own");
            (Bad::Unknown(name.to_owned()), help)
        }),
        Err(bad) => Some((bad, "write `$${` for the guest's own `${`".to_owned())),
    };
    let found = bad.is_some();
    if let Some((bad, help)) = bad {
        cx.faults.push(layer.fault(key, bad.to_string()).help(help));
    }
    found
}

fn text(
    key: &'static str,
    file: &'static str,
    layer: &Layer,
    values: &BTreeMap<String, String>,
    cx: &mut Context<'_>,
) -> Option<String> {
    let (given, text) = match (layer.text(key), layer.text(file)) {
        (Some(text), _) => (key, text.to_owned()),
        (None, Some(name)) => (file, cx.open_file(layer, file, name)?),
        (None, None) => return None,
    };
    if layer.has("cloudInitCustom") {
        let fault = layer.fault(given, format!("cloudInitCustom and {given} contradict"));
        cx.faults.push(fault.help("keep one of them"));
        return None;
    }
    if text.trim().is_empty() {
        cx.faults.push(layer.fault(given, "the text is empty").help("remove the key"));
        return None;
    }
    if text.len() > MAX_TEXT_BYTES {
        let message = format!("{} bytes exceed the maximum of 64 KiB", text.len());
        let fault = layer.fault(given, message);
        cx.faults.push(fault.help("put large files into the image, or upload them in prepare"));
        return None;
    }
    let known: Vec<&str> =
        BUILT_IN_PLACEHOLDERS.into_iter().chain(values.keys().map(String::as_str)).collect();
    if unknown(given, &text, &known, layer, cx) {
        return None;
    }
    check_form(key, given, &text, &known, layer, cx);
    Some(text)
}

/// Checks that cloud-init understands a text.
fn check_form(
    key: &str,
    given: &str,
    text: &str,
    known: &[&str],
    layer: &Layer,
    cx: &mut Context<'_>,
) {
    let begins = BEGINNINGS.iter().any(|word| text.starts_with(word));
    let mime = text.starts_with("Content-Type:") || text.starts_with("MIME-Version:");
    if key == "userData" && !begins && !mime {
        let fault = layer.fault(given, "cloud-init does not know this kind of user data");
        cx.warnings.push(fault.help("begin it with `#cloud-config`, or a script with `#!`"));
        return;
    }
    if key == "userData" && !text.starts_with("#cloud-config\n") {
        let code = |line: &&str| !line.trim_start().starts_with('#');
        if text.lines().filter(code).any(|line| line.contains("chpasswd")) {
            cx.warnings.push(readable(given, layer));
        }
        return;
    }
    let sample = |name: &&str| ((*name).to_owned(), "x".to_owned());
    let samples: BTreeMap<String, String> = known.iter().map(sample).collect();
    let Ok(filled) = placeholder::fill(text, &samples) else { return };
    let wrong = match node::value(&filled) {
        Ok(Value::Mapping(map)) => {
            let readable_password = key == "userData" && sets_password(&map);
            cx.warnings.extend(readable_password.then(|| readable(given, layer)));
            return;
        }
        Ok(Value::Null) if key == "userData" => return,
        Ok(_) => "it is not a mapping".to_owned(),
        Err(fault) => {
            let what = fault.message.trim_start_matches("not valid YAML: ");
            format!("{what}, line {}", fault.place.map_or(1, |at| at.line))
        }
    };
    let fault = layer.fault(given, format!("cloud-init cannot read this as YAML: {wrong}"));
    cx.faults.push(fault.help("correct it; `cloud-init schema` shows details"));
}

/// Whether a cloud-config sets a password, plain or as a hash.
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

/// The warning that others can read a password in the ISO image.
fn readable(given: &str, layer: &Layer) -> Fault {
    const WHAT: &str = "it sets a password: all users of the storage can read an ISO image";
    let fault = layer.fault(given, WHAT);
    fault.help("log in by keys, or send it over SSH, in a lease or an upload of prepare")
}

/// Warns of guests without a DNS server: an ISO image does not have that of the node.
pub(super) fn warn_no_dns(texts: &Texts, cards: &Cards, layer: &Layer, warnings: &mut Vec<Fault>) {
    let [user_data, meta_data, network_config] = &texts.texts;
    let has_image = user_data.is_some() || meta_data.is_some() || cards.apart;
    if network_config.is_none() && has_image && cards.lacks_servers() {
        let fault = layer.fault("networks", "the guest has no DNS server");
        warnings
            .push(fault.help("give dns or nameserver: an ISO image does not contain the node's"));
    }
}

fn custom(layer: &Layer, cx: &mut Context<'_>) -> Option<String> {
    if !layer.has("cloudInitCustom") || layer.is_faulty("cloudInitCustom") {
        return None;
    }
    let inner = layer.nested("cloudInitCustom").first()?;
    let given = SNIPPETS.into_iter().filter_map(|kind| Some((kind, inner.text(kind)?)));
    let parts: Vec<String> = given.map(|(kind, volume)| format!("{kind}={volume}")).collect();
    if parts.is_empty() && !SNIPPETS.iter().any(|kind| inner.is_faulty(kind)) {
        let fault = layer.fault("cloudInitCustom", "it is empty");
        cx.faults.push(fault.help("name a snippet as user, meta, network or vendor"));
    }
    (!parts.is_empty()).then(|| parts.join(","))
}
