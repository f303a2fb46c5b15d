//! The checks of single texts: what each takes, and what it says of the others.

use std::collections::BTreeMap;

use super::*;
use crate::value::{self, Check};

/// The checks by their names.
macro_rules! checks {
    ($($check:ident)*) => { [$((stringify!($check), value::$check as Check)),*] };
}

// Invariant: what is accepted means one thing, and what is refused says why.

#[test]
fn right_texts_pass_and_wrong_ones_say_why() {
    let checks: BTreeMap<&str, Check> = checks! {
        address address_range bridge cidr correction cron directory endpoint filled grpc_server guest_file
        ip4 ip6 ip_config label listen log_level mac name_prefix nameserver network octal_mode
        package pattern pin place proxy repository size_label snippet step_name storage
        storage_or_none tag template_tag time_zone token_id url user_id
    }
    .into();
    let file = "src/config/tests/forms.txt";
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    let golden = fs::read_to_string(golden).unwrap();
    let mut check = checks["filled"];
    let again = golden.lines().map(|line| {
        if let Some(name) = line.strip_prefix("=== ") {
            check = checks[name];
        }
        if !line.starts_with('"') {
            return format!("{line}\n");
        }
        let written = line.split_once(" => ").map_or(line, |(written, _)| written);
        match check(&serde_yaml::from_str::<String>(written).unwrap()) {
            Ok(()) => format!("{written} => sound\n"),
            Err(bad) => format!("{written} => {}; {}\n", bad.message, bad.help),
        }
    });
    is_generated(file, &again.collect::<String>());
    for name in checks.keys() {
        assert!(golden.contains(&format!("\n=== {name}\n")), "{name} has no texts");
    }
}
