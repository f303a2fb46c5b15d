//! Checks the store of `service.store`: whether its journal can be read, whether its members have this key,
//! and who leads. Changes nothing.

use causes::chain;
use drover_ci::{Remedy, Severity};
use drover_config::StoreSpec;
use drover_members::leader_lease;
use drover_vault::SealedVault;

use super::report::{Line, StoreReport};

/// What is looked at, in this order.
const PARTS: [&str; 3] = ["journal", "clusterKey", "leader"];

/// Blocks for as long as the store takes to answer.
pub fn check_store(spec: &StoreSpec) -> StoreReport {
    let mut found = Vec::new();
    let fault = look(spec, &mut found).err();
    let well = found.into_iter().map(|text| (Severity::Ok, text, Vec::new()));
    let ill = fault.map(|(text, remedy)| (Severity::Fail, text, vec![remedy]));
    let lines = PARTS.into_iter().zip(well.chain(ill));
    let lines = lines.map(|(about, (severity, text, remedies))| Line {
        severity,
        about: about.to_owned(),
        text,
        remedies,
    });
    StoreReport { store: spec.address.to_string(), lines: lines.collect() }
}

/// What was found of each part, up to the first that is not well.
fn look(spec: &StoreSpec, found: &mut Vec<String>) -> Result<(), (String, Remedy)> {
    let failed = |error: &(dyn std::error::Error + 'static), action: &str| {
        (chain(error), Remedy::at("at the store or in `service.store`", action))
    };
    let reach = "let this machine reach the store, and let the store have a quorum";
    let last =
        spec.address.log().and_then(|log| log.last()).map_err(|error| failed(&error, reach))?;
    found.push(match last {
        0 => "it is empty".to_owned(),
        last => format!("it ends at record {last}"),
    });
    let vault = spec.address.vault().map_err(|error| failed(&error, reach))?;
    let same = "give every member the same key in `service.clusterKey`";
    let marked = SealedVault::new(vault, &spec.key).is_marked();
    found.push(match marked.map_err(|error| failed(&error, same))? {
        true => "the members have this key".to_owned(),
        false => "no member has written anything yet".to_owned(),
    });
    let register = spec.address.register().map_err(|error| failed(&error, reach))?;
    let lease = leader_lease(&*register).map_err(|error| failed(&error, reach))?;
    found.push(match lease.as_ref().and_then(|lease| Some((lease.leader.as_ref()?, lease.term))) {
        Some((leader, term)) => format!("member {} in term {term}", leader.name),
        None => "no member leads".to_owned(),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::time::Duration;

    use drover_vault::ClusterKey;

    use super::*;

    // Invariant: a store that cannot be used is named with what to do, and the rest is not asked.

    #[test]
    fn a_store_that_cannot_be_reached_is_named_once() {
        let spec = StoreSpec {
            address: "etcd://127.0.0.1:1/drover".parse().unwrap(),
            key: ClusterKey::new(&"k".repeat(32).into()).unwrap(),
            leader_lease: Duration::from_secs(5),
        };
        let report = check_store(&spec);
        let lines: Vec<_> = report.lines.iter().map(|line| (line.severity, &*line.about)).collect();
        assert_eq!(lines, [(Severity::Fail, "journal")]);
        let text = &report.lines[0].text;
        assert!(text.contains("etcd://127.0.0.1:1/drover"), "{text}");
    }
}
