//! The schema of the served API: routes, parameters, permissions, and how a route is found.
//!
//! The data is in `schema.json` and the files beside it: the schema of Proxmox VE 9.2, reduced to
//! the served routes. What 8.4 lacks is marked `since9`. `validate` checks values.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex_lite::Regex;
use serde::{Deserialize, Deserializer};

use super::permission::Permission;
use crate::spec::PveVersion;

/// In order: virtual machines and access control, containers, cluster services, nodes, firewalls,
/// calls that other clients of Proxmox use, and configuration files with sections.
const SCHEMA_FILES: [&str; 7] = [
    include_str!("schema.json"),
    include_str!("schema-lxc.json"),
    include_str!("schema-cluster.json"),
    include_str!("schema-nodes.json"),
    include_str!("schema-firewall.json"),
    include_str!("schema-more.json"),
    include_str!("schema-sections.json"),
];

#[expect(clippy::expect_used, reason = "the files are part of the binary and a test parses them")]
pub(crate) static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let mut schema = Schema::default();
    for part in SCHEMA_FILES {
        let part: Schema = serde_json::from_str(part).expect("the schema's parts are well-formed");
        schema.formats.extend(part.formats);
        schema.sets.extend(part.sets);
        schema.routes.extend(part.routes);
    }
    for route in &mut schema.routes {
        route.segments = parts_of(&route.path).map(Segment::parse).collect();
    }
    schema
});

/// All served routes, and the formats of their parameters.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Schema {
    /// Property-string formats by name.
    pub formats: BTreeMap<String, BTreeMap<String, Property>>,
    /// Sets of parameters that several routes include.
    sets: BTreeMap<String, BTreeMap<String, Property>>,
    routes: Vec<Route>,
}

/// One method of one path.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Route {
    /// The path template, such as `/nodes/{node}/qemu`.
    pub path: String,
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: String,
    pub permissions: Permission,
    /// Whether API tokens are refused.
    #[serde(default)]
    pub no_token: bool,
    /// Whether the node in the path handles the call.
    #[serde(default)]
    pub proxy: bool,
    /// Whether pvedaemon handles the call.
    #[serde(default)]
    pub protected: bool,
    /// Whether unknown parameters are accepted.
    #[serde(default)]
    pub additional: bool,
    /// Whether 8.4 lacks it.
    #[serde(default)]
    since9: bool,
    #[serde(default)]
    include: Option<String>,
    #[serde(default)]
    params: BTreeMap<String, Property>,
    /// The path template, split at its slashes.
    #[serde(skip)]
    segments: Vec<Segment>,
}

/// One part of a path template.
#[derive(Debug)]
enum Segment {
    Literal(String),
    Param(String),
    /// A parameter that can contain slashes, and matches the rest of the path.
    Rest(String),
}

/// The schema of a parameter, or of one key of a property string.
#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct Property {
    #[serde(rename = "type")]
    pub kind: Kind,
    pub optional: bool,
    /// Whether a value without a key belongs to this key.
    pub default_key: bool,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub min_length: Option<usize>,
    pub max_length: Option<usize>,
    /// All valid values; empty for any.
    #[serde(rename = "enum")]
    pub choices: Vec<String>,
    /// A parameter that is required beside this one.
    pub requires: Option<String>,
    /// Must match the whole value.
    #[serde(deserialize_with = "whole_match")]
    pub pattern: Option<Regex>,
    /// The type of an array's items.
    pub items: Option<Box<Property>>,
    /// The name of a format.
    pub format: Option<String>,
    /// The number of indices of `name[n]`.
    pub count: Option<u32>,
    /// The key that this one is another name of.
    pub alias: Option<String>,
    /// The key whose value is this one's name.
    pub key_alias: Option<String>,
    /// Whether 8.4 lacks it.
    pub(super) since9: bool,
}

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    #[default]
    String,
    Integer,
    Number,
    /// 0 or 1.
    Boolean,
    /// A list of items.
    Array,
}

impl Kind {
    /// The name in error messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array => "array",
        }
    }
}

fn whole_match<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Regex>, D::Error> {
    let pattern = String::deserialize(deserializer)?;
    Regex::new(&format!("^(?:{pattern})$")).map(Some).map_err(serde::de::Error::custom)
}

impl Schema {
    /// Finds the route of a decoded path (without a trailing slash; `/` is the root), and the
    /// parameters in the path.
    pub(crate) fn find(
        &self,
        method: &str,
        path: &str,
        version: PveVersion,
    ) -> Option<(&Route, BTreeMap<String, String>)> {
        let parts: Vec<&str> = parts_of(path).collect();
        let matches = |route: &&Route| {
            let served = !route.since9 || version == PveVersion::V9_2;
            served && route.matches(&parts) && route.method == method
        };
        // A literal component wins over a parameter.
        let route =
            self.routes.iter().filter(matches).min_by_key(|route| route.parameter_count())?;
        Some((route, route.params_in(&parts)))
    }

    /// The route of a path template, with any method.
    pub(crate) fn by_template(&self, path: &str) -> Option<&Route> {
        self.routes.iter().find(|route| route.path == path)
    }

    /// Whether a name is a key of the configuration that this path writes, including keys that
    /// callers cannot set.
    pub(crate) fn is_config_key(&self, path: &str, name: &str, version: PveVersion) -> bool {
        // Keys of both kinds of guests that only Proxmox itself writes.
        const WRITTEN_BY_PROXMOX: [&str; 7] =
            ["lock", "meta", "parent", "runningcpu", "runningmachine", "snaptime", "vmstate"];
        let own = self.routes.iter().filter(|route| route.path == path);
        let Some(set) = own.filter_map(|route| self.sets.get(route.include.as_ref()?)).next()
        else {
            return false;
        };
        let is_known = || property(|key| set.get(key), name, version).is_some();
        WRITTEN_BY_PROXMOX.contains(&name) || (!matches!(name, "node" | "vmid") && is_known())
    }

    /// Whether a call has a parameter of this name.
    pub(crate) fn is_parameter(
        &self,
        method: &str,
        path: &str,
        name: &str,
        version: PveVersion,
    ) -> bool {
        let same = |route: &&Route| route.method == method && route.path == path;
        let mut routes = self.routes.iter().filter(same);
        routes.any(|route| self.param(route, name, version).is_some())
    }

    /// The type of a parameter, from the first of these routes that has it.
    pub(crate) fn kind_of(&self, is_of: impl Fn(&str) -> bool, name: &str) -> Option<Kind> {
        let mut routes = self.routes.iter().filter(|route| is_of(&route.path));
        routes.find_map(|route| route.params.get(name)).map(|property| property.kind)
    }

    /// All served routes: path, method, and whether 8.4 lacks it.
    pub(crate) fn served(&self) -> impl Iterator<Item = (&str, &str, bool)> {
        self.routes.iter().map(|route| (route.path.as_str(), route.method.as_str(), route.since9))
    }

    /// The parameters of a route, with the names of the schema.
    pub(crate) fn params<'a>(
        &'a self,
        route: &'a Route,
    ) -> impl Iterator<Item = (&'a str, &'a Property)> {
        self.included(route).chain(&route.params).map(|(name, property)| (name.as_str(), property))
    }

    fn included<'a>(
        &'a self,
        route: &'a Route,
    ) -> std::iter::Flatten<std::option::IntoIter<&'a BTreeMap<String, Property>>> {
        route.include.as_ref().and_then(|name| self.sets.get(name)).into_iter().flatten()
    }

    /// The schema of one parameter; `net3` finds `net[n]` when 3 is a valid index.
    pub(crate) fn param<'a>(
        &'a self,
        route: &'a Route,
        name: &str,
        version: PveVersion,
    ) -> Option<&'a Property> {
        let set = route.include.as_ref().and_then(|name| self.sets.get(name));
        let get = |key: &str| route.params.get(key).or_else(|| set?.get(key));
        property(get, name, version)
    }
}

/// The schema of a name, or of `name[n]` where the name ends in a valid index.
fn property<'a>(
    get: impl Fn(&str) -> Option<&'a Property>,
    name: &str,
    version: PveVersion,
) -> Option<&'a Property> {
    let property = get(name).filter(|property| property.count.is_none()).or_else(|| {
        let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let index = &name[stem.len()..];
        if index.is_empty() || (index.len() > 1 && index.starts_with('0')) {
            return None;
        }
        let property = get(&format!("{stem}[n]"))?;
        (index.parse::<u32>().ok()? < property.count?).then_some(property)
    })?;
    (!property.since9 || version == PveVersion::V9_2).then_some(property)
}

fn parts_of(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

impl Segment {
    fn parse(part: &str) -> Self {
        match part.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            // Volumes, and members of IP sets (pve-firewall, IPSet.pm:767, fragmentDelimiter).
            Some(name @ ("volume" | "cidr")) => Self::Rest(name.to_owned()),
            Some(name) => Self::Param(name.to_owned()),
            None => Self::Literal(part.to_owned()),
        }
    }

    fn matches(&self, part: &str) -> bool {
        match self {
            Self::Literal(text) => text == part,
            Self::Param(_) => !part.contains(char::is_whitespace),
            Self::Rest(_) => true,
        }
    }
}

impl Route {
    fn matches(&self, parts: &[&str]) -> bool {
        let long_enough = match self.segments.last() {
            Some(Segment::Rest(_)) => parts.len() >= self.segments.len(),
            Some(Segment::Literal(_) | Segment::Param(_)) | None => {
                parts.len() == self.segments.len()
            }
        };
        long_enough && self.segments.iter().zip(parts).all(|(segment, part)| segment.matches(part))
    }

    /// The number of parameters in the path.
    fn parameter_count(&self) -> usize {
        self.segments.iter().filter(|segment| !matches!(segment, Segment::Literal(_))).count()
    }

    /// The values of the parameters in a path that matches.
    fn params_in(&self, parts: &[&str]) -> BTreeMap<String, String> {
        let each = self.segments.iter().enumerate().filter_map(|(place, segment)| match segment {
            Segment::Literal(_) => None,
            Segment::Param(name) => Some((name.clone(), (*parts.get(place)?).to_owned())),
            Segment::Rest(name) => Some((name.clone(), parts.get(place..)?.join("/"))),
        });
        each.collect()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_schema_parses_and_every_included_set_exists() {
        assert!(SCHEMA.routes.len() > 100);
        for route in &SCHEMA.routes {
            if let Some(set) = &route.include {
                assert!(SCHEMA.sets.contains_key(set), "{set}");
            }
        }
    }

    // Invariant: 8.4 does not know what 9 added (book: proxmox, section 23, item 12).
    #[test]
    fn parameters_and_routes_that_came_with_9_are_unknown_to_8() {
        let path = "/nodes/a/qemu/100/agent/file-read";
        let (route, _) = SCHEMA.find("GET", path, PveVersion::V8_4).unwrap();
        assert!(SCHEMA.param(route, "count", PveVersion::V8_4).is_none());
        assert!(SCHEMA.param(route, "count", PveVersion::V9_2).is_some());
        let bulk = "/cluster/bulk-action/guest/start";
        assert!(SCHEMA.find("POST", bulk, PveVersion::V8_4).is_none());
        assert!(SCHEMA.find("POST", bulk, PveVersion::V9_2).is_some());
    }

    #[test]
    fn a_volume_takes_the_rest_of_the_path() {
        let path = "/nodes/a/storage/s/content/s:iso/a.iso";
        let (route, params) = SCHEMA.find("GET", path, PveVersion::V8_4).unwrap();
        assert_eq!(route.path, "/nodes/{node}/storage/{storage}/content/{volume}");
        assert_eq!(params["volume"], "s:iso/a.iso");
    }

    #[test]
    fn a_member_of_an_ip_set_keeps_its_slash() {
        let path = "/cluster/firewall/ipset/lan/10.0.0.0/8";
        let (route, params) = SCHEMA.find("DELETE", path, PveVersion::V8_4).unwrap();
        assert_eq!(route.path, "/cluster/firewall/ipset/{name}/{cidr}");
        assert_eq!((&*params["name"], &*params["cidr"]), ("lan", "10.0.0.0/8"));
    }

    #[test]
    fn a_config_key_is_not_a_parameter_of_the_call() {
        let vm = "/nodes/{node}/qemu/{vmid}/config";
        let is_config_key = |name: &str| SCHEMA.is_config_key(vm, name, PveVersion::V8_4);
        for name in ["net31", "unused7", "lock", "description", "cipassword", "amd-sev", "parent"] {
            assert!(is_config_key(name), "{name}");
        }
        for name in ["nope", "net32", "vmid", "delete", "background_delay", "digest"] {
            assert!(!is_config_key(name), "{name}");
        }
        assert!(SCHEMA.is_config_key("/nodes/{node}/lxc/{vmid}/config", "mp3", PveVersion::V8_4));
    }

    #[test]
    fn a_component_with_a_blank_matches_no_parameter() {
        assert!(SCHEMA.find("GET", "/nodes/p x/qemu", PveVersion::V8_4).is_none());
    }

    #[test]
    fn indexed_parameters_end_at_their_count() {
        let (route, _) = SCHEMA.find("POST", "/nodes/a/qemu", PveVersion::V8_4).unwrap();
        assert!(SCHEMA.param(route, "net31", PveVersion::V8_4).is_some());
        assert!(SCHEMA.param(route, "net32", PveVersion::V8_4).is_none());
        assert!(SCHEMA.param(route, "net01", PveVersion::V8_4).is_none());
        assert!(SCHEMA.param(route, "net[n]", PveVersion::V8_4).is_none());
    }
}
