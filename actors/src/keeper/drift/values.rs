//! Network cards, cloud-init values and tags of a machine that differ from its declaration. drover shows
//! them and never writes them: a card that is rewired or an address that changes can cut off those who use
//! the machine.

use std::collections::BTreeSet;

use drover_model::declared::{DeclaredSpec, Drift};
use drover_model::order::{ConfigValue, MachineView};
use drover_model::os::Os;
use drover_model::phase::DriftKind;
use drover_model::seed::NicSpec;
use drover_model::spec::NetworkSpec;

use super::AFTER_RESTART;

const BY_HAND: &str = "drover never corrects it: change it in Proxmox, or the declaration";
const NEXT_BOOT: &str = "drover never corrects it: change it in Proxmox, where it holds from the next \
                         boot on, or the declaration";

/// One value of a guest: what holds now, and what holds after its restart where that differs.
struct Shown {
    now: Option<String>,
    after: Option<Option<String>>,
}

impl Shown {
    fn of(rows: &[ConfigValue], key: &str, read: impl Fn(&str) -> Option<String>) -> Self {
        let row = rows.iter().find(|row| row.key == key);
        let read = |text: Option<&String>| text.and_then(|text| read(text));
        let after = row.and_then(|row| match (row.deleted, &row.pending) {
            (true, _) => Some(None),
            (false, Some(pending)) => Some(read(Some(pending))),
            (false, None) => None,
        });
        Self { now: read(row.and_then(|row| row.value.as_ref())), after }
    }

    /// The difference from what is declared, if there is one; `none` declares that there is nothing.
    fn differs(
        self,
        (kind, what): (DriftKind, String),
        declared: Option<String>,
        stays: &'static str,
    ) -> Option<Drift> {
        let after = self.after.filter(|after| *after != self.now);
        if self.now == declared && after.as_ref().is_none_or(|after| *after == declared) {
            return None;
        }
        let stays = match &after {
            Some(after) if *after == declared => AFTER_RESTART,
            Some(_) | None => stays,
        };
        let shown = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
        let found = match after {
            Some(after) => format!("{}, {} after a restart", shown(self.now), shown(after)),
            None => shown(self.now),
        };
        Some(Drift { kind, what, declared: shown(declared), found, stays: Some(stays.into()) })
    }
}

/// A part of a card's setting: its model, its MAC address, or a key such as `bridge`.
fn part<'a>(card: &'a str, key: &str) -> Option<&'a str> {
    let mut parts = card.split(',');
    let (model, mac) = parts.next().map(|first| first.split_once('=').unwrap_or((first, "")))?;
    match key {
        "model" => Some(model),
        "mac" => Some(mac).filter(|mac| !mac.is_empty()),
        _ => parts.find_map(|part| part.strip_prefix(key)?.strip_prefix('=')),
    }
}

/// The card with the named parts alone, in words.
fn card_of(card: &str, keys: &[&str]) -> String {
    let value = |key: &str| match part(card, key) {
        Some(value) if key == "mac" => value.to_ascii_uppercase(),
        Some(value) => value.to_owned(),
        None => "none".to_owned(),
    };
    let parts = keys.iter().map(|key| match *key {
        "tag" => format!("VLAN {}", value(key)),
        "mac" => format!("MAC {}", value(key)),
        _ => format!("{key} {}", value(key)),
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// What a declaration says of one card, as the card's setting and the keys that count.
fn wanted(nic: &NicSpec) -> (String, Vec<&'static str>) {
    let mut keys = vec!["bridge", "tag"];
    keys.extend(nic.model.as_ref().map(|_| "model"));
    keys.extend(nic.mac.as_ref().map(|_| "mac"));
    let tag = nic.vlan.map(|vlan| format!(",tag={vlan}")).unwrap_or_default();
    let model = nic.model.as_deref().unwrap_or("any");
    let mac = nic.mac.as_ref().map(|mac| format!("={mac}")).unwrap_or_default();
    (format!("{model}{mac},bridge={}{tag}", nic.bridge), keys)
}

/// Network cards that differ.
pub(super) fn networks(spec: &DeclaredSpec, view: &MachineView) -> Vec<Drift> {
    let one = |key: &str, declared: Option<(String, Vec<&'static str>)>| {
        let keys = declared.as_ref().map_or(vec!["bridge"], |(_, keys)| keys.clone());
        let shown = Shown::of(&view.config, key, |card| Some(card_of(card, &keys)));
        let declared = declared.map(|(card, keys)| card_of(&card, &keys));
        shown.differs((DriftKind::Network, key.to_owned()), declared, BY_HAND)
    };
    let nics = &spec.template.nics;
    if nics.is_empty() {
        let made = spec.installer.as_ref().map(|installer| NetworkSpec {
            bridge: Some(installer.hardware.bridge.clone()),
            vlan: installer.hardware.vlan,
        });
        let NetworkSpec { bridge, vlan } = made.as_ref().unwrap_or(&spec.template.network);
        let mut keys = Vec::new();
        keys.extend(bridge.as_ref().map(|_| "bridge"));
        keys.extend(vlan.map(|_| "tag"));
        if keys.is_empty() {
            return Vec::new();
        }
        let bridge = bridge.as_deref().unwrap_or_default();
        let tag = vlan.map(|vlan| format!(",tag={vlan}")).unwrap_or_default();
        return one("net0", Some((format!("any,bridge={bridge}{tag}"), keys)))
            .into_iter()
            .collect();
    }
    let declared = nics.iter().enumerate();
    let mut all: Vec<Drift> =
        declared.filter_map(|(n, nic)| one(&format!("net{n}"), Some(wanted(nic)))).collect();
    let is_beyond = |key: &str| {
        let number = key.strip_prefix("net").and_then(|number| number.parse::<usize>().ok());
        number.is_some_and(|number| number >= nics.len())
    };
    let beyond = view.config.iter().filter(|row| is_beyond(&row.key));
    all.extend(beyond.filter_map(|row| one(&row.key, None)));
    all
}

/// Cloud-init values that differ. What the declaration does not say is not compared.
pub(super) fn cloud_init(spec: &DeclaredSpec, view: &MachineView) -> Vec<Drift> {
    let linux = match spec.template.os {
        Os::Linux => spec.installer.is_none(),
        Os::Windows(_) => false,
    };
    if !linux {
        return Vec::new();
    }
    let init = &spec.template.cloud_init;
    let mut all = Vec::new();
    let mut compare = |key: &str, declared: Option<&String>| {
        let Some(declared) = declared else { return };
        let shown = Shown::of(&view.given, key, |text| Some(text.to_owned()));
        let what = (DriftKind::CloudInit, key.to_owned());
        all.extend(shown.differs(what, Some(declared.clone()), NEXT_BOOT));
    };
    compare("ciuser", init.user.as_ref());
    compare("ipconfig0", init.ip_config.as_ref());
    for (n, ip_config) in init.ip_configs.iter().enumerate() {
        compare(&format!("ipconfig{}", n + 1), Some(ip_config));
    }
    for (n, nic) in spec.template.nics.iter().enumerate().skip(1) {
        compare(&format!("ipconfig{n}"), nic.ip_config.as_ref());
    }
    compare("nameserver", init.nameserver.as_ref());
    compare("searchdomain", init.search_domain.as_ref());
    let key = spec.template.ssh.public_key.trim();
    if !key.is_empty() {
        // Keys are long: people see whose they are by the declaration.
        let of = |text: &str| match text.trim() == key {
            true => Some("the key of `credentialsId`".to_owned()),
            false => Some("other keys".to_owned()),
        };
        let what = (DriftKind::CloudInit, "sshkeys".to_owned());
        let shown = Shown::of(&view.given, "sshkeys", of);
        all.extend(shown.differs(what, of(key), NEXT_BOOT));
    }
    all
}

/// Tags that the declaration names and the machine lacks. Further ones are anybody's.
pub(super) fn tags(spec: &DeclaredSpec, view: &MachineView) -> Option<Drift> {
    let row = view.given.iter().find(|row| row.key == "tags");
    let now = row.and_then(|row| row.value.as_deref()).unwrap_or_default();
    let now: BTreeSet<String> =
        now.split([';', ',', ' ']).filter(|tag| !tag.is_empty()).map(str::to_lowercase).collect();
    let declared: BTreeSet<String> =
        spec.template.tags.iter().map(|tag| tag.to_lowercase()).collect();
    if declared.is_subset(&now) {
        return None;
    }
    let shown = |tags: &BTreeSet<String>| match tags.is_empty() {
        true => "none".to_owned(),
        false => tags.iter().cloned().collect::<Vec<_>>().join(";"),
    };
    Some(Drift {
        kind: DriftKind::Tags,
        what: "tags".to_owned(),
        declared: shown(&declared),
        found: shown(&now),
        stays: Some(BY_HAND.into()),
    })
}

#[cfg(test)]
mod tests;
