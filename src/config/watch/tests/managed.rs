//! The files that git manages: which of their changes are taken, and when.

use std::os::unix::fs::symlink;

use super::*;
use crate::managed::{AppliedCommit, COPIES, RECORD, TREE};
use crate::managed_folder;

const GIT: &str = "cloudConfigurations:\n  b: {name: B, apiUrl: 'https://b', credentialsId: t}\n";

/// A scene whose configuration names a repository.
async fn synced() -> Scene {
    let dir = site();
    let state = dir.path().join("state");
    let service = format!(
        "service: {{stateDirectory: {}, configSync: {{repository: /ci.git}}}}\n",
        state.display()
    );
    fs::write(dir.path().join("drover.yaml"), format!("{GOOD}{service}")).unwrap();
    let file = dir.path().join("drover.yaml");
    watched(dir, &file).await
}

/// Brings an entry with this text into force, as a sync does.
fn apply(scene: &Scene, name: &str, text: &str) {
    let link = managed_folder(&scene.dir.path().join("state"));
    let folder = link.parent().unwrap().join("applied").join(name);
    for place in [TREE, COPIES] {
        fs::create_dir_all(folder.join(place)).unwrap();
        fs::write(folder.join(place).join("cloud.yaml"), text).unwrap();
    }
    let record = AppliedCommit::of_files(vec!["cloud.yaml".to_owned()]);
    fs::write(folder.join(RECORD), serde_json::to_string(&record).unwrap()).unwrap();
    let new = link.with_extension("new");
    symlink(Path::new("applied").join(name), &new).unwrap();
    fs::rename(new, link).unwrap();
}

fn clouds(change: Change) -> Vec<String> {
    match change {
        Change::Reloaded(checked) => checked.herd.clouds.keys().map(ToString::to_string).collect(),
        Change::Refused(text) => panic!("{text}"),
    }
}

// Invariant: an entry that comes into force is a change like any other.

#[tokio::test(start_paused = true)]
async fn an_entry_that_comes_into_force_is_taken_within_a_second() {
    let mut scene = synced().await;
    apply(&scene, "0001-a", GIT);
    scene.watch.trigger().pull();
    let (change, took) = scene.next().await;
    assert_eq!(clouds(change), ["a", "b"]);
    assert!(took < DEBOUNCE * 5, "{took:?}");
    apply(&scene, "0002-b", &GIT.replace("  b:", "  c:"));
    scene.poke();
    let (change, _) = scene.next().await;
    assert_eq!(clouds(change), ["a", "c"]);
}
