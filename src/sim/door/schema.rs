//! The API schema the simulator serves: routes, parameters, permissions, and the search for a route.
//!
//! The facts are in `schema.json` and its neighbours (Proxmox VE 9.2's, reduced to the served
//! routes; what 8.4 lacks is marked). Checking of values is in `validate`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex_lite::Regex;
use serde::{Deserialize, Deserializer};

use super::permission::Permission;
use crate::spec::PveVersion;

/// The parts of the schema: virtual machines and access, containers, the cluster's services, nodes,
/// firewalls, what clients of others asked for, and what is kept as sections.
const PARTS: [&str; 7] = [
    include_str!("schema.json"),
    include_str!("schema-lxc.json"),
    include_str!("schema-cluster.json"),
    include_str!("schema-nodes.json"),
    include_str!("schema-firewall.json"),
    include_str!("schema-more.json"),
    include_str!("schema-sections.json"),
];

/// The schema, parsed once.
#[expect(clippy::expect_used, reason = "the files are part of the binary and a test parses them")]
pub static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let mut schema = Schema::default();
    for part in PARTS {
        let part: Schema = serde_json::from_str(part).expect("the schema's parts are well-formed");
        schema.formats.extend(part.formats);
        schema.sets.extend(part.sets);
        schema.routes.extend(part.routes);
    }
    for route in &mut schema.routes {
        route.segments = parts_of(&route.path).map(Segment::of).collect();
    }
    schema
});

/// All served routes and the formats their parameters use.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// Property-string formats by name.
    pub formats: BTreeMap<String, BTreeMap<String, Property>>,
    /// Parameters shared by several routes.
    sets: BTreeMap<String, BTreeMap<String, Property>>,
    routes: Vec<Route>,
}

/// One method of one path.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Route {
    /// The path template, such as `/nodes/{node}/qemu`.
    pub path: String,
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: String,
    /// Who may call it.
    pub permissions: Permission,
    /// Refused to API tokens.
    #[serde(default)]
    pub no_token: bool,
    /// Runs on the node named in the path.
    #[serde(default)]
    pub proxy: bool,
    /// Handled by pvedaemon.
    #[serde(default)]
    pub protected: bool,
    /// Whether unknown parameters are let through.
    #[serde(default)]
    pub additional: bool,
    /// Absent from 8.4.
    #[serde(default)]
    since9: bool,
    #[serde(default)]
    include: Option<String>,
    #[serde(default)]
    params: BTreeMap<String, Property>,
    /// The path template in its parts.
    #[serde(skip)]
    segments: Vec<Segment>,
}

/// One part of a path template.
#[derive(Debug)]
enum Segment {
    /// This text.
    Literal(String),
    /// A parameter of this name.
    Param(String),
    /// A parameter with slashes of its own, which takes the rest of the path.
    Rest(String),
}

/// What a parameter, or one key of a property string, may be.
#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Property {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// May be left out.
    pub optional: bool,
    /// The key that a value without a key stands for.
    pub default_key: bool,
    /// Least number.
    pub minimum: Option<f64>,
    /// Greatest number.
    pub maximum: Option<f64>,
    /// Least length in characters.
    pub min_length: Option<usize>,
    /// Greatest length in characters.
    pub max_length: Option<usize>,
    /// All values, when they are listed.
    #[serde(rename = "enum")]
    pub choices: Vec<String>,
    /// A parameter that must come with this one.
    pub requires: Option<String>,
    /// What the whole value must match.
    #[serde(deserialize_with = "whole_match")]
    pub pattern: Option<Regex>,
    /// The type of an array's items.
    pub items: Option<Box<Property>>,
    /// A named format.
    pub format: Option<String>,
    /// How many indices a `name[n]` has.
    pub count: Option<u32>,
    /// The key this one stands for.
    pub alias: Option<String>,
    /// The key that receives this one's name.
    pub key_alias: Option<String>,
    /// Absent from 8.4.
    pub(super) since9: bool,
}

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Any text.
    #[default]
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// 0 or 1.
    Boolean,
    /// A list of items.
    Array,
}

impl Kind {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
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
    /// Finds the route of a decoded path (no trailing slash; `/` is the root) and the parameters in
    /// the path.
    pub fn find(
        &self,
        method: &str,
        path: &str,
        version: PveVersion,
    ) -> Option<(&Route, BTreeMap<String, String>)> {
        let parts: Vec<&str> = parts_of(path).collect();
        let fits = |route: &&Route| {
            let served = !route.since9 || version == PveVersion::V9_2;
            served && route.method == method && route.fits(&parts)
        };
        // A literal name wins over a parameter, as in a tree.
        let route = self.routes.iter().filter(fits).min_by_key(|route| route.open_segments())?;
        Some((route, route.params_in(&parts)))
    }

    /// The route of a path template, whatever its method.
    pub fn by_template(&self, path: &str) -> Option<&Route> {
        self.routes.iter().find(|route| route.path == path)
    }

    /// Whether a name is a key of the configuration that this path writes, whoever may set it.
    pub fn is_setting(&self, path: &str, name: &str, version: PveVersion) -> bool {
        // Keys that only Proxmox itself writes, of both kinds of guests.
        const OWN: [&str; 7] =
            ["lock", "meta", "parent", "runningcpu", "runningmachine", "snaptime", "vmstate"];
        let own = self.routes.iter().filter(|route| route.path == path);
        let Some(set) = own.filter_map(|route| self.sets.get(route.include.as_ref()?)).next()
        else {
            return false;
        };
        let is_known = || property(|key| set.get(key), name, version).is_some();
        OWN.contains(&name) || (!matches!(name, "node" | "vmid") && is_known())
    }

    /// Whether a call takes a parameter of this name.
    pub fn is_parameter(&self, method: &str, path: &str, name: &str, version: PveVersion) -> bool {
        let same = |route: &&Route| route.method == method && route.path == path;
        let mut routes = self.routes.iter().filter(same);
        routes.any(|route| self.param(route, name, version).is_some())
    }

    /// What kind of value a name has, in the first of these routes that takes it.
    pub fn kind_of(&self, is_of: impl Fn(&str) -> bool, name: &str) -> Option<Kind> {
        let mut routes = self.routes.iter().filter(|route| is_of(&route.path));
        routes.find_map(|route| route.params.get(name)).map(|property| property.kind)
    }

    /// All served routes: path, method, and whether 8.4 lacks it.
    pub fn served(&self) -> impl Iterator<Item = (&str, &str, bool)> {
        self.routes.iter().map(|route| (route.path.as_str(), route.method.as_str(), route.since9))
    }

    /// The parameters of a route, by the names in the schema.
    pub fn params<'a>(&'a self, route: &'a Route) -> impl Iterator<Item = (&'a str, &'a Property)> {
        self.included(route).chain(&route.params).map(|(name, property)| (name.as_str(), property))
    }

    fn included<'a>(
        &'a self,
        route: &'a Route,
    ) -> std::iter::Flatten<std::option::IntoIter<&'a BTreeMap<String, Property>>> {
        route.include.as_ref().and_then(|name| self.sets.get(name)).into_iter().flatten()
    }

    /// The property of one parameter; `net3` finds `net[n]` when 3 is a valid index.
    pub fn param<'a>(
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

/// The property of a name, or of its stem where the name ends in a valid index.
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
    fn of(part: &str) -> Self {
        match part.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            // Volumes, and members of address sets (pve-firewall, IPSet.pm:767, fragmentDelimiter).
            Some(name @ ("volume" | "cidr")) => Self::Rest(name.to_owned()),
            Some(name) => Self::Param(name.to_owned()),
            None => Self::Literal(part.to_owned()),
        }
    }

    fn takes(&self, part: &str) -> bool {
        match self {
            Self::Literal(text) => text == part,
            Self::Param(_) => !part.contains(char::is_whitespace),
            Self::Rest(_) => true,
        }
    }
}

impl Route {
    fn fits(&self, parts: &[&str]) -> bool {
        let long_enough = match self.segments.last() {
            Some(Segment::Rest(_)) => parts.len() >= self.segments.len(),
            Some(Segment::Literal(_) | Segment::Param(_)) | None => {
                parts.len() == self.segments.len()
            }
        };
        long_enough && self.segments.iter().zip(parts).all(|(segment, part)| segment.takes(part))
    }

    /// How many parts of its path are parameters.
    fn open_segments(&self) -> usize {
        self.segments.iter().filter(|segment| !matches!(segment, Segment::Literal(_))).count()
    }

    /// The parameters in a path that fits.
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

    // Invariant: section 23 item 12, what 9 added is unknown to 8.4.
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
    fn a_member_of_an_address_set_keeps_its_slash() {
        let path = "/cluster/firewall/ipset/lan/10.0.0.0/8";
        let (route, params) = SCHEMA.find("DELETE", path, PveVersion::V8_4).unwrap();
        assert_eq!(route.path, "/cluster/firewall/ipset/{name}/{cidr}");
        assert_eq!((&*params["name"], &*params["cidr"]), ("lan", "10.0.0.0/8"));
    }

    #[test]
    fn a_setting_is_a_key_of_the_configuration_and_no_parameter_of_the_call() {
        let vm = "/nodes/{node}/qemu/{vmid}/config";
        let is_setting = |name: &str| SCHEMA.is_setting(vm, name, PveVersion::V8_4);
        for name in ["net31", "unused7", "lock", "description", "cipassword", "amd-sev", "parent"] {
            assert!(is_setting(name), "{name}");
        }
        for name in ["nope", "net32", "vmid", "delete", "background_delay", "digest"] {
            assert!(!is_setting(name), "{name}");
        }
        assert!(SCHEMA.is_setting("/nodes/{node}/lxc/{vmid}/config", "mp3", PveVersion::V8_4));
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
