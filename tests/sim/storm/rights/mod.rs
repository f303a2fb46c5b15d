//! Rights, made from the table of privileges itself: every feature works with exactly what is
//! documented, and with each privilege taken away the 403 that names it is seen, or the documented
//! milder effect. The doctor mentions it either way.

mod play;
mod stage;

use drover_admin::rights::{At, Feature, Row, TABLE, Without};
use drover_ci::{Remedy, Severity};
use libtest_mimic::Trial;
use pve_sim::spec::PveVersion;

use crate::on_paused_clock;
use play::{denied, doctored, refused, served};
use stage::{Layout, Stage};

const VERSIONS: [(PveVersion, &str); 2] = [(PveVersion::V8_4, "8.4"), (PveVersion::V9_2, "9.2")];

/// The features of virtual machines, which one template can have together. Those of containers
/// and of `hardware` are not taken away one by one here.
const STAGED: [Feature; 20] = [
    Feature::Cluster,
    Feature::Life,
    Feature::AgentAddress,
    Feature::HostKeys,
    Feature::Cores,
    Feature::Memory,
    Feature::DiskSize,
    Feature::Network,
    Feature::Networks,
    Feature::Discs,
    Feature::Snippets,
    Feature::Placement,
    Feature::CallIn,
    Feature::Reset,
    Feature::Leftovers,
    Feature::Pool,
    Feature::Images,
    Feature::Downloads,
    Feature::Uploads,
    Feature::Doctor,
];

/// All of them.
pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (version, named) in VERSIONS {
        for feature in STAGED {
            let name =
                format!("rights: {named}: {} works with what is documented", feature.label());
            trials.push(Trial::test(name, move || {
                on_paused_clock(works(version, &[feature], Layout::Least));
                Ok(())
            }));
        }
        for layout in Layout::ALL {
            let name = format!("rights: {named}: everything works {}", layout.label());
            trials.push(Trial::test(name, move || {
                on_paused_clock(works(version, &STAGED, layout));
                Ok(())
            }));
        }
        let name = format!("rights: {named}: without SDN.Use on the bridge of a further card");
        trials.push(Trial::test(name, move || {
            on_paused_clock(lacks_a_bridge(version));
            Ok(())
        }));
        let staged = |row: &&Row| STAGED.contains(&row.feature) && !row.feature.is_quiet();
        for row in TABLE.iter().filter(staged) {
            let without = row.any_of(stage::release(version)).join(" and ");
            let (at, what) = (row.at, row.feature.label());
            let name = format!("rights: {named}: without {without} on {at:?} for {what}");
            trials.push(Trial::test(name, move || {
                on_paused_clock(lacks(version, row));
                Ok(())
            }));
        }
    }
    trials
}

/// The doctor finds nothing missing, and the features do what they are for.
async fn works(version: PveVersion, features: &[Feature], layout: Layout) {
    let stage = Stage::of(version, features, layout).await;
    let setup = stage.setup();
    let report = doctored(&setup).await;
    let lines = report.lines.iter().filter(|line| line.about.starts_with("privilege"));
    let bad = lines.filter(|line| line.severity != Severity::Ok).map(|line| line.about.as_str());
    let mut expected = Vec::new();
    if layout == Layout::Pool {
        expected.push("privilege VM.Audit on /vms");
    }
    // It is given where it is asked for, and reported where it is not.
    if !features.contains(&Feature::Leftovers) {
        expected.push("privilege Datastore.Allocate on /storage/local-lvm");
    }
    assert_eq!(bad.collect::<Vec<_>>(), expected);
    let world = served(setup, features).await;
    world.end().await;
}

/// One privilege is taken away.
async fn lacks(version: PveVersion, row: &'static Row) {
    let mut stage = Stage::of(version, &[row.feature], Layout::Least).await;
    stage.take(row);
    let release = stage::release(version);
    let any_of = row.any_of(release);
    // The doctor names it, where, and how to give it.
    let report = doctored(&stage.setup()).await;
    let path = match row.at {
        At::Root => "/",
        At::Access => "/access",
        At::Nodes => "/nodes",
        At::AllGuests => "/vms",
        At::Guests => "/pool/ci",
        At::Template => "/vms/9000",
        At::Storage => "/storage/local-lvm",
        At::DiscStorage => "/storage/local",
        At::ImportStorage => "/storage/shared",
        At::OsTemplateStorage => "/storage/local",
        At::Mapping => "/mapping/pci/gpu",
        At::Bridge => "/sdn/zones/localnetwork/vmbr0",
    };
    let wanted = format!("privilege {} on {path}", any_of.join(" or "));
    let of_feature = |text: &str| text.contains(row.calls) || row.feature.is_optional();
    let mut lines = report.lines.iter();
    let line = lines.find(|line| line.about == wanted && of_feature(&line.text));
    let line = line.unwrap_or_else(|| panic!("no `{wanted}` in {:#?}", report.lines));
    let mark = match row.without {
        Without::Fails => Severity::Fail,
        Without::Degrades(_) => Severity::Warn,
    };
    assert_eq!(line.severity, mark, "{line:?}");
    if row.feature.is_optional() {
        let setup = "drover setup rights --cloud rack --leftovers --user root@pam";
        assert_eq!(line.remedies, [Remedy::here(setup)]);
    } else {
        let mut commands = line.remedies.iter().map(|remedy| remedy.action.as_str());
        let given = commands.clone().any(|command| command.starts_with("pveum acl modify "));
        let named = commands.any(|command| any_of.iter().any(|name| command.contains(name)));
        // There the role is whole, and something else is in its way.
        assert!(given && (named || matches!(row.at, At::Access | At::Nodes)), "{line:?}");
    }
    match row.without {
        Without::Fails => denied(stage.setup(), row, any_of).await,
        Without::Degrades(effect) => {
            assert!(line.text.contains(effect), "{line:?}");
            // What it is for is left out; all else is as before.
            let world = served(stage.setup(), &[Feature::Life]).await;
            play::degrades(&world, row).await;
            world.end().await;
        }
    }
}

/// The bridges of the template may be used, and one of a card beside them may not.
async fn lacks_a_bridge(version: PveVersion) {
    const PATH: &str = "/sdn/zones/localnetwork/vmbr1/5";
    let mut stage = Stage::of(version, &[Feature::Networks], Layout::Least).await;
    stage.close(PATH);
    let report = doctored(&stage.setup()).await;
    let about = format!("privilege SDN.Use on {PATH}");
    let line = report.lines.iter().find(|line| line.about == about).unwrap();
    assert_eq!(line.severity, Severity::Fail, "{line:?}");
    refused(stage.setup(), Feature::Networks, "SDN.Use", &format!("`{PATH}`")).await;
}
