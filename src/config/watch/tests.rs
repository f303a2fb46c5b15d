//! Which changes are taken and when, in virtual time over real files; `tests/saves.rs` has the
//! events of the system.

mod managed;
mod saves;

use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::sync::Arc;

use tokio::sync::Notify;

use super::*;

const GOOD: &str = "cloudConfigurations:\n  a: {name: A, credentialsId: t}\ncredentials:\n  \
    t: {kind: proxmoxToken, tokenId: a@pve!a, secretFile: token}\n";

/// A configuration whose cloud has this name.
fn named(name: &str) -> String {
    GOOD.replace("name: A", &format!("name: {name}"))
}

/// A directory with a good configuration in it.
fn site() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    secret(&dir.path().join("token"), "0123456789");
    fs::write(dir.path().join("drover.yaml"), GOOD).unwrap();
    dir
}

fn secret(path: &Path, text: &str) {
    let mut file = fs::OpenOptions::new();
    let mut file = file.write(true).create(true).truncate(true).mode(0o600).open(path).unwrap();
    std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
}

struct Scene {
    dir: tempfile::TempDir,
    watch: Watch,
    poke: Arc<Notify>,
}

async fn scene() -> Scene {
    let dir = site();
    let file = dir.path().join("drover.yaml");
    watched(dir, &file).await
}

async fn watched(dir: tempfile::TempDir, path: &Path) -> Scene {
    let events = Events::silent();
    let poke = events.poker();
    let (watch, first) = Watch::over(path, Environment::default(), events).await;
    first.unwrap();
    Scene { dir, watch, poke }
}

impl Scene {
    fn write(&self, text: &str) {
        fs::write(self.dir.path().join("drover.yaml"), text).unwrap();
    }

    fn poke(&self) {
        self.poke.notify_one();
    }

    async fn next(&mut self) -> (Change, Duration) {
        let start = Instant::now();
        let reported = self.watch.next().await;
        (reported.change, start.elapsed())
    }

    /// Nothing comes of it for as long as this.
    async fn nothing_for(&mut self, time: Duration) {
        let reported = tokio::time::timeout(time, self.watch.next()).await;
        assert!(reported.is_err(), "{:?}", reported.map(|reported| name(reported.change)));
    }
}

fn name(change: Change) -> String {
    match change {
        Change::Reloaded(checked) => checked.herd.clouds.values().next().unwrap().name.clone(),
        Change::Refused(text) => text,
    }
}

// Invariant: a change is reported once, after it has settled, and only when the content differs.

#[tokio::test(start_paused = true)]
async fn a_change_is_reported_once_it_has_settled() {
    let mut scene = scene().await;
    scene.write(&named("B"));
    scene.poke();
    let (change, took) = scene.next().await;
    assert_eq!(name(change), "B");
    assert!(took >= DEBOUNCE && took < DEBOUNCE * 2, "{took:?}");
    scene.poke();
    scene.nothing_for(POLL * 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_loses_nothing() {
    let mut scene = scene().await;
    scene.write(&named("B"));
    scene.poke();
    for _ in 0..6 {
        scene.nothing_for(DEBOUNCE / 6).await;
    }
    let (change, took) = scene.next().await;
    assert_eq!(name(change), "B");
    assert!(took < DEBOUNCE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_change_no_event_reported_is_found_by_the_poll() {
    let mut scene = scene().await;
    scene.write(&named("B"));
    let (change, took) = scene.next().await;
    assert_eq!(name(change), "B");
    assert!(took <= POLL + DEBOUNCE * 2, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn another_secret_behind_the_same_yaml_is_a_change() {
    let mut scene = scene().await;
    secret(&scene.dir.path().join("token"), "9876543210");
    assert!(matches!(scene.next().await.0, Change::Reloaded(_)));
    let wide = fs::Permissions::from_mode(0o644);
    fs::set_permissions(scene.dir.path().join("token"), wide).unwrap();
    assert!(name(scene.next().await.0).contains("others can read"));
    scene.nothing_for(POLL * 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_taken_back_before_it_settled_is_none() {
    let mut scene = scene().await;
    scene.write(&named("B"));
    scene.poke();
    scene.nothing_for(DEBOUNCE / 2).await;
    scene.write(GOOD);
    scene.poke();
    scene.nothing_for(POLL * 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_only_touched_is_not_changed() {
    let mut scene = scene().await;
    scene.write(GOOD);
    scene.poke();
    scene.nothing_for(POLL * 3).await;
}

// Invariant: however many edits there are, what is taken is what was left to rest.

#[tokio::test(start_paused = true)]
async fn five_hundred_edits_a_second_are_one_change() {
    let mut scene = scene().await;
    let (file, poke) = (scene.dir.path().join("drover.yaml"), Arc::clone(&scene.poke));
    let writer = async move {
        for edit in 0..5_000 {
            // Every other one is broken, and some of those are half of a file.
            let text = if edit % 2 == 0 { &named("B")[..edit % 97] } else { &named("C") };
            fs::write(&file, text).unwrap();
            poke.notify_one();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        fs::write(&file, named("last")).unwrap();
        poke.notify_one();
        Instant::now()
    };
    let (last, reported) = tokio::join!(writer, scene.watch.next());
    assert_eq!(name(reported.change), "last");
    assert!(last.elapsed() < DEBOUNCE * 3, "{:?}", last.elapsed());
    scene.nothing_for(POLL * 3).await;
}

#[tokio::test(start_paused = true)]
async fn what_never_settles_is_reported_and_never_taken() {
    let mut scene = scene().await;
    let (file, poke) = (scene.dir.path().join("drover.yaml"), Arc::clone(&scene.poke));
    let trigger = scene.watch.trigger();
    let mut edits = 0_u32;
    let mut edit = || {
        edits += 1;
        fs::write(&file, named(&format!("n{edits}"))).unwrap();
        poke.notify_one();
    };
    let mut reported = Vec::new();
    let start = Instant::now();
    while start.elapsed() < MAX_UNSETTLED * 6 {
        edit();
        let pause = Duration::from_millis(50);
        if let Ok(next) = tokio::time::timeout(pause, scene.watch.next()).await {
            reported.push((name(next.change), start.elapsed()));
        }
    }
    let [(text, after)] = reported.as_slice() else { panic!("{reported:?}") };
    assert!(text.contains("has been changing for 15 s"), "{text}");
    assert!(*after >= MAX_UNSETTLED && *after < MAX_UNSETTLED + DEBOUNCE * 2, "{after:?}");
    // Who asks is answered, and does not get half of a file either.
    let pull = trigger.pull();
    edit();
    let answer = loop {
        let pause = Duration::from_millis(50);
        match tokio::time::timeout(pause, scene.watch.next()).await {
            Ok(reported) => break reported,
            Err(_) => edit(),
        }
    };
    assert!(answer.answers >= pull);
    assert!(name(answer.change).contains("has been changing"));
    // Settled: the earlier configuration is reported too, since the complaint is over.
    scene.write(GOOD);
    scene.poke();
    assert_eq!(name(scene.next().await.0), "A");
    scene.nothing_for(POLL * 3).await;
}

#[tokio::test(start_paused = true)]
async fn other_files_beside_it_do_not_hold_a_change_up() {
    let mut scene = scene().await;
    scene.write(&named("B"));
    let (file, poke) = (scene.dir.path().join("state"), Arc::clone(&scene.poke));
    let start = Instant::now();
    let noise = async {
        loop {
            fs::write(&file, "x").unwrap();
            poke.notify_one();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let reported = tokio::select! {
        reported = scene.watch.next() => reported,
        () = noise => unreachable!(),
    };
    assert_eq!(name(reported.change), "B");
    assert!(start.elapsed() < DEBOUNCE * 2, "{:?}", start.elapsed());
}

// Invariant: half of a file that reads well is not taken for the whole.

#[tokio::test(start_paused = true)]
async fn a_file_cut_off_is_waited_for_longer() {
    for cut in ["", "cloudConfigurations:\n", "cloudConfigurations:\n  a: {name: A, cred"] {
        let mut scene = scene().await;
        scene.write(cut);
        scene.poke();
        scene.nothing_for(MISSING_FILE_GRACE - DEBOUNCE).await;
        scene.write(&named("B"));
        scene.poke();
        let (change, took) = scene.next().await;
        assert_eq!(name(change), "B");
        assert!(took < DEBOUNCE * 3, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_missing_in_a_directory_is_waited_for_and_then_believed() {
    let dir = site();
    let root = dir.path().to_owned();
    let other = root.join("other.yaml");
    let text = "cloudConfigurations:\n  b: {name: B, credentialsId: t}\n";
    fs::write(&other, text).unwrap();
    let mut scene = watched(dir, &root).await;
    let clouds = |change| match change {
        Change::Reloaded(checked) => checked.herd.clouds.len(),
        Change::Refused(text) => panic!("{text}"),
    };
    fs::remove_file(&other).unwrap();
    scene.poke();
    scene.nothing_for(MISSING_FILE_GRACE - DEBOUNCE).await;
    fs::write(&other, text).unwrap();
    scene.poke();
    scene.nothing_for(POLL * 3).await;
    fs::remove_file(&other).unwrap();
    scene.poke();
    let (change, took) = scene.next().await;
    assert_eq!(clouds(change), 1);
    assert!(took >= MISSING_FILE_GRACE && took < MISSING_FILE_GRACE + DEBOUNCE * 2, "{took:?}");
    fs::write(&other, text).unwrap();
    scene.poke();
    let (change, took) = scene.next().await;
    assert_eq!(clouds(change), 2);
    assert!(took < DEBOUNCE * 2, "{took:?}");
}

// Invariant: all or nothing: one bad file in a directory keeps the others out.

#[tokio::test(start_paused = true)]
async fn one_bad_file_of_ten_keeps_all_of_them_out() {
    let dir = site();
    let root = dir.path().to_owned();
    let write = |n: u32, text: &str| fs::write(root.join(format!("{n}.yaml")), text).unwrap();
    let cloud = |n: u32, cap: u32| {
        format!(
            "cloudConfigurations:\n  c{n}: {{name: N{n}, credentialsId: t, instanceCap: {cap}}}\n"
        )
    };
    (0..9).for_each(|n| write(n, &cloud(n, 1)));
    let mut scene = watched(dir, &root).await;
    (0..9).for_each(|n| write(n, &cloud(n, 2)));
    write(5, &cloud(5, 2).replace("Cap", "Cpa"));
    scene.poke();
    let said = name(scene.next().await.0);
    assert!(said.contains("5.yaml:2:") && said.contains("the configuration has 1 fault"), "{said}");
    scene.nothing_for(POLL * 3).await;
    write(5, &cloud(5, 2));
    scene.poke();
    let Change::Reloaded(checked) = scene.next().await.0 else { panic!() };
    let caps: Vec<_> = checked.herd.clouds.values().filter_map(|cloud| cloud.cap).collect();
    assert_eq!(caps, [2; 9]);
}

// Invariant: a bad file is reported once and ends nothing; a short absence is no change.

#[tokio::test(start_paused = true)]
async fn a_bad_file_is_refused_once_and_a_good_one_taken_again() {
    let mut scene = scene().await;
    scene.write(&GOOD.replace("name: A", "nmae: A"));
    scene.poke();
    assert!(name(scene.next().await.0).contains("did you mean `name`?"));
    scene.nothing_for(POLL * 3).await;
    scene.write(GOOD);
    scene.poke();
    assert_eq!(name(scene.next().await.0), "A");
}

#[tokio::test(start_paused = true)]
async fn a_file_gone_for_a_moment_is_waited_for() {
    let mut scene = scene().await;
    let file = scene.dir.path().join("drover.yaml");
    fs::remove_file(&file).unwrap();
    scene.poke();
    scene.nothing_for(MISSING_FILE_GRACE - DEBOUNCE).await;
    scene.write(GOOD);
    scene.poke();
    scene.nothing_for(POLL * 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_file_that_stays_gone_is_reported_once() {
    let mut scene = scene().await;
    fs::remove_file(scene.dir.path().join("drover.yaml")).unwrap();
    scene.poke();
    assert!(name(scene.next().await.0).contains("cannot be read"));
    scene.nothing_for(POLL * 3).await;
    scene.write(GOOD);
    scene.poke();
    assert_eq!(name(scene.next().await.0), "A");
}

#[tokio::test(start_paused = true)]
async fn another_reason_why_it_cannot_be_read_is_reported_too() {
    let mut scene = scene().await;
    let file = scene.dir.path().join("drover.yaml");
    fs::remove_file(&file).unwrap();
    scene.poke();
    assert!(name(scene.next().await.0).contains("No such file"));
    fs::create_dir(&file).unwrap();
    scene.poke();
    assert!(name(scene.next().await.0).contains("contains no YAML file"));
    fs::remove_dir(&file).unwrap();
    rustix::fs::symlinkat("drover.yaml", rustix::fs::CWD, &file).unwrap();
    scene.poke();
    assert!(name(scene.next().await.0).contains("symbolic links"));
    fs::remove_file(&file).unwrap();
    let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &file, fifo, mode, 0).unwrap();
    scene.poke();
    assert!(name(scene.next().await.0).contains("it is a pipe"));
    fs::remove_file(&file).unwrap();
    fs::File::create(&file).unwrap().set_len(1 << 30).unwrap();
    scene.poke();
    assert!(name(scene.next().await.0).contains("1073741824 bytes"));
    scene.write(GOOD);
    scene.poke();
    assert_eq!(name(scene.next().await.0), "A");
}

#[tokio::test(start_paused = true)]
async fn a_pipe_in_the_place_of_a_secret_is_refused_and_blocks_nothing() {
    let mut scene = scene().await;
    let token = scene.dir.path().join("token");
    fs::remove_file(&token).unwrap();
    let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &token, fifo, mode, 0).unwrap();
    scene.poke();
    assert!(name(scene.next().await.0).contains("it is a pipe"));
    fs::remove_file(&token).unwrap();
    secret(&token, "0123456789");
    scene.poke();
    assert_eq!(name(scene.next().await.0), "A");
}

// Invariant: who asks is answered by what was read after the question.

#[tokio::test(start_paused = true)]
async fn a_trigger_reloads_what_did_not_change() {
    let mut scene = scene().await;
    tokio::time::sleep(DEBOUNCE).await;
    let trigger = scene.watch.trigger();
    trigger.pull();
    let last = trigger.pull();
    let start = Instant::now();
    let reported = scene.watch.next().await;
    assert_eq!(reported.answers, last);
    assert_eq!(name(reported.change), "A");
    assert_eq!(start.elapsed(), Duration::ZERO);
    scene.nothing_for(POLL * 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_trigger_waits_for_what_is_being_changed() {
    let mut scene = scene().await;
    tokio::time::sleep(DEBOUNCE).await;
    scene.write("cloudConfigurations:\n");
    let pull = scene.watch.trigger().pull();
    scene.nothing_for(DEBOUNCE * 2).await;
    scene.write(&named("B"));
    let reported = scene.watch.next().await;
    assert_eq!((reported.answers, name(reported.change)), (pull, "B".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_triggers_is_a_reload_now_and_then() {
    let mut scene = scene().await;
    let trigger = scene.watch.trigger();
    let storm = async {
        for _ in 0..10_000 {
            trigger.pull();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let mut reloads = 0;
    tokio::pin!(storm);
    loop {
        tokio::select! {
            () = &mut storm => break,
            reported = scene.watch.next() => {
                assert_eq!(name(reported.change), "A");
                reloads += 1;
            }
        }
    }
    assert!((50..=101).contains(&reloads), "{reloads}");
}
