//! What of Proxmox's API the simulator serves, and how it refuses the rest.
//!
//! A path that Proxmox has and the simulator has not is told apart from one that Proxmox refuses
//! itself: both are a 501, and the message differs.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::schema::SCHEMA;
use crate::call::ApiError;
use crate::spec::PveVersion;

/// One path of Proxmox's API, in its parts, with the methods it has.
struct Known {
    parts: Vec<&'static str>,
    /// Methods, and whether 8.4 lacks them.
    methods: Vec<(&'static str, bool)>,
}

static PATHS: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let lines = include_str!("paths.txt").lines().filter(|line| !line.starts_with('#'));
    let known = lines.filter_map(|line| {
        let mut words = line.split(' ');
        let parts = words.next()?.split('/').filter(|part| !part.is_empty()).collect();
        let methods = words.map(|word| match word.strip_prefix('!') {
            Some(method) => (method, true),
            None => (word, false),
        });
        Some(Known { parts, methods: methods.collect() })
    });
    known.collect()
});

fn is_param(part: &str) -> bool {
    part.starts_with('{')
}

impl Known {
    /// Whether a path is this one; the last parameter may hold slashes, as a volume's name does.
    fn fits(&self, path: &[&str]) -> bool {
        let is_rest = |part: &str| matches!(part, "{volume}" | "{cidr}");
        // A component with a blank matches no parameter, as recorded.
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

/// Whether Proxmox itself serves a method of a path.
fn is_real(method: &str, path: &str, version: PveVersion) -> bool {
    let path: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let fits = PATHS.iter().filter(|known| known.fits(&path));
    // A literal name wins over a parameter, as in a tree.
    let nearest = fits.min_by_key(|known| known.parts.iter().filter(|part| is_param(part)).count());
    nearest.is_some_and(|known| known.has(method, version))
}

/// The 501 for a method and a path that are not served.
pub fn refusal(method: &str, path: &str, version: PveVersion) -> ApiError {
    let message = if is_real(method, path, version) {
        format!("drover sim does not serve {method} {path}")
    } else {
        format!("Method '{method} {path}' not implemented")
    };
    ApiError { status: 501, message, errors: BTreeMap::new() }
}

/// Every served method and path, a line each, sorted by path.
pub fn served(version: PveVersion) -> Vec<String> {
    let routes = SCHEMA.served().filter(|(_, _, since9)| !since9 || version == PveVersion::V9_2);
    let mut routes: Vec<(&str, &str)> = routes.map(|(path, method, _)| (path, method)).collect();
    routes.sort_unstable();
    routes.dedup();
    routes.into_iter().map(|(path, method)| format!("{method:6} {path}")).collect()
}

/// The list as a page, for a browser at the simulator's root.
pub fn page(version: PveVersion) -> String {
    let (release, ..) = version.facts();
    let lines = served(version).join("\n");
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
mod tests {
    use super::*;

    #[test]
    fn a_path_of_proxmox_that_is_not_served_says_so_and_another_does_not() {
        let text = |method, path| refusal(method, path, PveVersion::V8_4).message;
        let path = "/nodes/pve1/qemu/100/termproxy";
        assert_eq!(text("POST", path), format!("drover sim does not serve POST {path}"));
        assert_eq!(text("GET", path), format!("Method 'GET {path}' not implemented"));
        for path in ["/nope", "/nodes/p x/qemu"] {
            assert_eq!(text("GET", path), format!("Method 'GET {path}' not implemented"));
        }
        assert_eq!(refusal("GET", "/nope", PveVersion::V8_4).status, 501);
    }

    #[test]
    fn a_path_that_came_with_9_is_unknown_to_8() {
        let path = "/nodes/pve1/query-oci-repo-tags";
        let says = |version| refusal("GET", path, version).message.starts_with("drover sim");
        assert_eq!((says(PveVersion::V8_4), says(PveVersion::V9_2)), (false, true));
    }

    // Invariant: a refusal is in the words of the version that is played.
    #[test]
    fn a_path_that_8_has_not_is_refused_in_its_own_words() {
        for (method, path) in [
            ("GET", "/cluster/ha/rules"),
            ("POST", "/cluster/ha/status/disarm-ha"),
            ("POST", "/cluster/sdn/lock"),
            ("GET", "/cluster/sdn/fabrics/all"),
            ("GET", "/nodes/pve1/storage/local/identity"),
        ] {
            let eight = refusal(method, path, PveVersion::V8_4).message;
            assert_eq!(eight, format!("Method '{method} {path}' not implemented"));
        }
    }

    #[test]
    fn every_served_path_is_one_that_its_version_of_proxmox_has() {
        for (path, method, since9) in SCHEMA.served() {
            assert!(is_real(method, path, PveVersion::V9_2), "{method} {path}");
            assert_eq!(is_real(method, path, PveVersion::V8_4), !since9, "{method} {path}");
        }
    }

    #[test]
    fn the_list_of_what_is_served_leaves_out_what_its_version_has_not() {
        let eight = served(PveVersion::V8_4);
        assert!(eight.contains(&"POST   /nodes/{node}/vzdump".to_owned()));
        let bulk = "POST   /cluster/bulk-action/guest/start".to_owned();
        assert!(!eight.contains(&bulk) && served(PveVersion::V9_2).contains(&bulk));
    }
}
