//! A stand for a person: one case, staged for whom `DROVER_TEST_STAY` names it, with the address of the page and
//! a token, until its file is removed or ten minutes are over.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use super::seat::WAYS;
use super::stage::{Staged, TOKEN};
use super::{capacity, clusters, guests};
use crate::harness::note;

/// How long a stage stays.
const STAYS: Duration = Duration::from_secs(600);

/// Sets up a stage.
type Set = fn() -> Staged;

const CASES: [(&str, Set); 24] = [
    ("one_endpoint_down_of_one", clusters::one_endpoint_down_of_one),
    ("one_endpoint_down_of_three", clusters::one_endpoint_down_of_three),
    ("memory_above_any_node", capacity::memory_above_any_node),
    ("label_nobody_has", capacity::label_nobody_has),
    ("missing_vmid", guests::missing_vmid),
    ("cap_eaten_by_a_minimum", capacity::cap_eaten_by_a_minimum),
    ("ready_command", guests::ready_command),
    ("storage_lock", guests::storage_lock),
    ("no_space", guests::no_space),
    ("wrong_guest_networks", guests::wrong_guest_networks),
    ("wrong_ssh_port", guests::wrong_ssh_port),
    ("user_disabled", clusters::user_disabled),
    ("privilege_gone", clusters::privilege_gone),
    ("all_drained", clusters::all_drained),
    ("pool_of_a_dead_address", guests::pool_of_a_dead_address),
    ("gitea_silent", clusters::gitea_silent),
    ("backup_lock", guests::backup_lock),
    ("no_quorum", clusters::no_quorum),
    ("certificate_changed", clusters::certificate_changed),
    ("template_full", capacity::template_full),
    ("configuration_broken", clusters::configuration_broken),
    ("machine_lost_under_its_job", clusters::machine_lost_under_its_job),
    ("node_maintenance", clusters::node_maintenance),
    ("cloud_gone_at_resync", clusters::cloud_gone_at_resync),
];

// Invariant: each case of the field's table has a way on the page, and a stage on which a person can try it.

#[test]
fn each_case_has_a_way_on_the_page_and_a_stand_for_a_person() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/why");
    let files = std::fs::read_dir(golden).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let answered: BTreeSet<String> =
        names.map(|name| name.trim_end_matches(".snap").to_owned()).collect();
    let ways: BTreeSet<String> = WAYS.iter().map(|way| way.case.to_owned()).collect();
    let stands: BTreeSet<String> = CASES.iter().map(|(case, _)| (*case).to_owned()).collect();
    assert_eq!((&ways, &stands), (&answered, &answered));

    let Some(wanted) = std::env::var_os("DROVER_TEST_STAY") else { return };
    let wanted = wanted.into_string().unwrap();
    let case = CASES.iter().find(|(case, _)| *case == wanted);
    let (_, set) = case.unwrap_or_else(|| panic!("no case is called {wanted}: {stands:?}"));
    let Staged { stage, .. } = set();
    let file = stage.site.dir.path().join("stay");
    std::fs::write(&file, "").unwrap();
    let (page, folder) = (stage.page(), stage.site.dir.path().display());
    let end = file.display();
    note(&format!("page {page}/\ntoken {TOKEN}\nfiles {folder}\nend rm {end}"));
    let start = Instant::now();
    while file.exists() && start.elapsed() < STAYS {
        // A person has no other sign.
        std::thread::sleep(Duration::from_millis(200));
    }
}
