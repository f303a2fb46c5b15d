//! Which part of Proxmox's API the simulator serves, and the answer to all other calls.
//!
//! Both a call that only the simulator lacks and a call that Proxmox lacks get a 501. The messages
//! differ.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::schema::SCHEMA;
use crate::call::ApiError;
use crate::spec::PveVersion;

/// One path of Proxmox's API and its methods.
struct ApiPath {
    parts: Vec<&'static str>,
    /// Each method, and whether 8.4 lacks it.
    methods: Vec<(&'static str, bool)>,
}

static PATHS: LazyLock<Vec<ApiPath>> = LazyLock::new(|| {
    let lines = include_str!("paths.txt").lines().filter(|line| !line.starts_with('#'));
    let known = lines.filter_map(|line| {
        let mut words = line.split(' ');
        let parts = words.next()?.split('/').filter(|part| !part.is_empty()).collect();
        let methods = words.map(|word| match word.strip_prefix('!') {
            Some(method) => (method, true),
            None => (word, false),
        });
        Some(ApiPath { parts, methods: methods.collect() })
    });
    known.collect()
});

fn is_param(part: &str) -> bool {
    part.starts_with('{')
}

impl ApiPath {
    /// Whether a path matches; the last parameter can contain slashes, such as the name of a
    /// volume.
    fn matches(&self, path: &[&str]) -> bool {
        let is_rest = |part: &str| matches!(part, "{volume}" | "{cidr}");
        // A component with a blank matches no parameter, as recorded from Proxmox.
        let takes = |own: &str, given: &str| is_rest(own) || !given.contains(char::is_whitespace);
        let same = |(own, given): (&&str, &&str)| {
            if is_param(own) { takes(own, given) } else { own == given }
        };
        let long = self.parts.last().is_some_and(|part| is_rest(part));
        let length = path.len() == self.parts.len() || (long && path.len() > self.parts.len());
        length && self.parts.iter().zip(path).all(same)
    }

    fn has(&self, method: &str, version: PveVersion) -> bool {
        let mut methods = self.methods.iter();
        methods.any(|(own, since9)| *own == method && (!since9 || version == PveVersion::V9_2))
    }
}

/// Whether Proxmox serves a method of a path.
fn is_real(method: &str, path: &str, version: PveVersion) -> bool {
    let path: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let matching = PATHS.iter().filter(|known| known.matches(&path));
    // A literal name wins over a parameter, as in a tree.
    let nearest =
        matching.min_by_key(|known| known.parts.iter().filter(|part| is_param(part)).count());
    nearest.is_some_and(|known| known.has(method, version))
}

/// The 501 for a call that is not served.
pub(crate) fn not_served(method: &str, path: &str, version: PveVersion) -> ApiError {
    let message = if is_real(method, path, version) {
        format!("drover sim does not serve {method} {path}")
    } else {
        format!("Method '{method} {path}' not implemented")
    };
    ApiError { status: 501, message, errors: BTreeMap::new() }
}

/// A line for each served method and path, sorted by path.
pub fn served_routes(version: PveVersion) -> Vec<String> {
    let routes = SCHEMA.served().filter(|(_, _, since9)| !since9 || version == PveVersion::V9_2);
    let mut routes: Vec<(&str, &str)> = routes.map(|(path, method, _)| (path, method)).collect();
    routes.sort_unstable();
    routes.dedup();
    routes.into_iter().map(|(path, method)| format!("{method:6} {path}")).collect()
}

/// The list of served calls as an HTML page, the simulator's start page.
pub(crate) fn page(version: PveVersion) -> String {
    let (release, ..) = version.version_strings();
    let lines = served_routes(version).join("\n");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">\
         <title>drover sim</title></head>\n<body>\n\
         <h1>drover sim: a simulated Proxmox VE {release}</h1>\n\
         <p>It serves these calls below <code>/api2/json</code>. It answers any other call that \
         Proxmox VE {release} has with <code>501 drover sim does not serve METHOD PATH</code>.\
         </p>\n<pre>\n{lines}\n</pre>\n</body>\n</html>\n"
    )
}

#[cfg(test)]
mod tests;
