//! A machine that was made: looks, drift and corrections, and what becomes of one that leaves the
//! configuration.

use super::*;

fn with(view: MachineView, key: &str, now: &str, pending: Option<&str>) -> MachineView {
    let mut view = view;
    let row = view.config.iter_mut().find(|row| row.key == key).unwrap();
    row.value = Some(now.to_owned());
    row.pending = pending.map(str::to_owned);
    view
}

pub(super) fn drift(play: &Play) -> Vec<String> {
    let line = |one: &drover_model::declared::Drift| {
        let stays = one.stays.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        format!("{} {}: {} is {}{stays}", one.kind, one.what, one.declared, one.found)
    };
    play.mind.status().drift.iter().map(line).collect()
}

// Invariant: drift is shown always, and put right only where `correct` names it.

#[test]
fn drift_is_shown_and_stays_where_nothing_allows_to_correct_it() {
    let mut play = Play::kept(&gitea());
    let moved = MachineView { disk: Some(10 << 30), ..view(Power::Stopped) };
    play.shows(with(moved, "cores", "4", None));
    assert_eq!(
        drift(&play),
        [
            "POWER power: running is stopped (`correct` does not name it)",
            "SIZE cores: 2 is 4 (`correct` does not name it)",
            "SIZE disk: 20 GiB is 10.0 GiB (`correct` does not name it)",
        ]
    );
    assert_eq!((play.phase(), play.call()), (DeclaredPhase::Kept, None));
    assert_eq!(play.bodies(), ["DeclaredIntended", "DeclaredMade"]);
}

#[test]
fn a_correction_is_durable_before_its_order_and_sizes_come_before_the_start() {
    let mut play = Play::kept(&correcting(&[DriftKind::Power, DriftKind::Size]));
    play.shows(with(view(Power::Stopped), "memory", "1024", None));
    let sizes = Size { memory_mb: Some(2048), ..Size::default() };
    assert_eq!(play.call(), Some(Call::Order(Work::Resize(sizes))));
    assert!(matches!(play.last[0], Effect::Record(Body::DeclaredCorrecting { .. })));
    play.answer(done());
    play.shows(view(Power::Stopped));
    assert_eq!(play.call(), Some(Call::Order(Work::Start)));
    play.answer(done());
    play.shows(view(Power::Running));
    assert_eq!((play.phase(), drift(&play)), (DeclaredPhase::Kept, Vec::new()));
    assert_eq!(play.mind.status().corrected.unwrap().1, "start");
}

#[test]
fn what_waits_for_a_restart_and_what_would_shrink_is_never_ordered() {
    let mut play = Play::kept(&correcting(&[DriftKind::Power, DriftKind::Size]));
    let larger = MachineView { disk: Some(40 << 30), ..view(Power::Running) };
    play.shows(with(larger, "cores", "1", Some("2")));
    assert_eq!(
        drift(&play),
        [
            "SIZE cores: 2 is 1, 2 after a restart (it waits for the next restart of the machine)",
            "SIZE disk: 20 GiB is 40.0 GiB (disks cannot shrink)",
        ]
    );
    assert_eq!(play.call(), None);
}

#[test]
fn a_machine_on_another_node_is_followed_and_shown() {
    let mut spec = correcting(&[DriftKind::Power, DriftKind::Size, DriftKind::Create]);
    spec.template.node = Some(NodeName::new("pve1"));
    let mut play = Play::kept(&spec);
    play.shows(MachineView { node: NodeName::new("pve2"), ..view(Power::Running) });
    assert_eq!(drift(&play), ["PLACE node: pve1 is pve2 (drover moves no machine)"]);
    assert_eq!(play.mind.guest().unwrap().node, NodeName::new("pve2"));
}

#[test]
fn power_is_corrected_by_the_verb_that_fits_and_never_hard() {
    let stopped = DeclaredSpec { power: Power::Stopped, ..correcting(&[DriftKind::Power]) };
    let running = correcting(&[DriftKind::Power]);
    let on_disk = MachineView { word: "stopped".into(), ..view(Power::Suspended) };
    let cases = [
        (&running, view(Power::Stopped), Some(Work::Start)),
        (&running, view(Power::Suspended), Some(Work::Resume)),
        (&running, on_disk, Some(Work::Start)),
        (&running, view(Power::Unknown), None),
        (&stopped, view(Power::Running), Some(Work::Shutdown)),
        (&stopped, view(Power::Suspended), None),
    ];
    for (spec, view, work) in cases {
        let mut play = Play::new(spec);
        play.up_to(&State::Resting(Standing::Kept, Watch::Describe));
        play.shows(view.clone());
        assert_eq!(play.call(), work.map(Call::Order), "{} {}", spec.power, view.power);
    }
}

#[test]
fn a_machine_that_does_not_stay_right_is_corrected_less_and_less_often() {
    let mut play = Play::kept(&correcting(&[DriftKind::Power]));
    let mut moments = Vec::new();
    while moments.len() < 6 {
        play.shows(view(Power::Stopped));
        if play.call() == Some(Call::Order(Work::Start)) {
            moments.push(play.now);
            play.answer(done());
        }
    }
    let gaps: Vec<u64> = moments.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.windows(2).all(|pair| pair[0] < pair[1]), "{gaps:?}");
    assert!(gaps.last().unwrap() <= &3700, "{gaps:?}");
    assert!(
        play.mind.status().detail.is_empty()
            || play.detail().contains("does not stay right (POWER)")
    );
}

#[test]
fn a_locked_machine_and_one_that_another_drover_may_own_are_not_corrected() {
    let mut play = Play::kept(&correcting(&[DriftKind::Power]));
    play.shows(MachineView { lock: Some("backup".into()), ..view(Power::Stopped) });
    assert_eq!(play.call(), None);
    assert!(play.detail().contains("locked (backup)"), "{}", play.detail());
    play.shows(view(Power::Stopped));
    let (attempt, call) = play.asked().unwrap();
    assert_eq!(call, Call::Order(Work::Start));
    play.feed(Event::Held(attempt, "another drover may own it".into()));
    assert_eq!((play.call(), &*play.detail()), (None, "another drover may own it"));
    // What was decided on an old look is not carried out later.
    play.feed(Event::Declare(Some(Arc::new(gitea()))));
    play.shows(view(Power::Stopped));
    assert_eq!((play.phase(), play.call()), (DeclaredPhase::Kept, None));
}

#[test]
fn a_removal_that_was_held_back_looks_again_before_it_destroys() {
    let (mut play, _) = removing(5);
    assert_eq!(play.call(), Some(Call::Destroy));
    let (attempt, _) = play.asked().unwrap();
    play.feed(Event::Held(attempt, "another drover may own it".into()));
    play.ring();
    assert_eq!(play.call(), Some(Call::Look));
    play.answer(Answer::Looked(Ok(unmarked(None))));
    assert_eq!((play.phase(), destroys(&play)), (DeclaredPhase::Removed, 1));
}

// Invariant: a machine is gone only when a quorate cluster said so twice; silence says nothing.

#[test]
fn a_machine_that_is_gone_is_missing_after_two_rounds_and_made_again_only_with_create() {
    let mut play = Play::kept(&gitea());
    play.gone_round();
    assert_eq!(play.phase(), DeclaredPhase::Kept);
    play.gone_round();
    assert_eq!(play.phase(), DeclaredPhase::Missing);
    assert_eq!(drift(&play), ["CREATE guest: there is gone (`correct` does not name it)"]);
    assert_eq!(play.journal.declared.len(), 1);
    // A guest with these very marks is restored: it is the machine again.
    play.ring();
    play.answer(Answer::Described(Ok(Box::new(view(Power::Running)))));
    assert_eq!((play.phase(), drift(&play)), (DeclaredPhase::Kept, Vec::new()));

    let mut play = Play::kept(&correcting(&[DriftKind::Create]));
    play.gone_round();
    play.gone_round();
    assert!(play.journal.declared.is_empty());
    play.up_to(&State::Resting(Standing::Kept, Watch::Pause));
    assert_eq!(play.journal.declared.len(), 1);
}

#[test]
fn silence_a_list_without_quorum_or_one_that_has_it_are_no_evidence() {
    let mut play = Play::kept(&correcting(&[DriftKind::Create]));
    let name = play.marks().name("");
    let unknown = VmObservation { id: IdStatus::Unknown, ..free() };
    for _ in 0..3 {
        play.gone_round();
        assert_eq!(play.phase(), DeclaredPhase::Kept);
        // One round of silence between two that say that it is gone.
        play.ring();
        play.answer(Answer::Described(Err(fault(FaultKind::Contention))));
        play.answer(Answer::Looked(Ok(unknown.clone())));
        play.ring();
        play.answer(Answer::Described(Err(fault(FaultKind::Contention))));
        play.answer(Answer::Looked(Err(fault(FaultKind::Unreachable))));
        for answer in [
            Ok(Survey { quorate: false, ..survey(Vec::new()) }),
            Err(fault(FaultKind::Unreachable)),
            Ok(survey(vec![listed(10_000, "renamed")])),
            Ok(survey(vec![listed(20_000, &name)])),
        ] {
            play.ring();
            play.answer(Answer::Described(Err(fault(FaultKind::Gone))));
            play.answer(Answer::Looked(Ok(free())));
            play.answer(Answer::Surveyed(answer));
            assert_eq!(play.phase(), DeclaredPhase::Kept);
        }
    }
    assert_eq!(play.bodies(), ["DeclaredIntended", "DeclaredMade"]);
}

// Invariant: what leaves the configuration goes only where its last declaration says so.

#[test]
fn a_machine_that_leaves_the_configuration_stays_unless_it_is_declared_otherwise() {
    let mut play = Play::kept(&gitea());
    play.feed(Event::Declare(None));
    assert_eq!(play.phase(), DeclaredPhase::Left);
    play.shows(view(Power::Stopped));
    assert_eq!((play.call(), drift(&play)), (None, Vec::new()), "nobody keeps it at anything");
    play.restart(None);
    assert_eq!(play.phase(), DeclaredPhase::Left);
    play.feed(Event::Declare(Some(Arc::new(gitea()))));
    assert_eq!(play.phase(), DeclaredPhase::Kept);
    assert_eq!(play.bodies(), ["DeclaredIntended", "DeclaredMade"]);
}

#[test]
fn a_machine_that_is_to_stop_is_shut_down_once_and_stays() {
    let spec = DeclaredSpec { on_removal: OnRemoval::Stop, ..gitea() };
    let mut play = Play::kept(&spec);
    play.feed(Event::Declare(None));
    play.answer(Answer::Described(Ok(Box::new(view(Power::Running)))));
    assert_eq!(play.call(), None, "it has its grace");
    assert!(
        play.mind.status().detail.contains("shuts it down in 60 s"),
        "{:?}",
        play.mind.status()
    );
    // A look that somebody asks for does not shorten it.
    play.feed(Event::Look);
    play.answer(Answer::Described(Ok(Box::new(view(Power::Running)))));
    assert_eq!(play.call(), None);
    play.ring();
    play.answer(Answer::Described(Ok(Box::new(view(Power::Running)))));
    assert_eq!(play.call(), Some(Call::Order(Work::Shutdown)));
    play.answer(done());
    play.answer(Answer::Described(Ok(Box::new(view(Power::Stopped)))));
    assert_eq!(play.phase(), DeclaredPhase::Left);
    // Somebody starts it again, and drover as well.
    play.restart(None);
    play.answer(Answer::Described(Ok(Box::new(view(Power::Running)))));
    assert_eq!((play.phase(), play.call()), (DeclaredPhase::Left, None));
}

#[test]
fn a_machine_that_is_to_go_is_fenced_stopped_destroyed_and_confirmed() {
    let spec = DeclaredSpec { on_removal: OnRemoval::Delete, ..gitea() };
    let mut play = Play::kept(&spec);
    play.feed(Event::Declare(None));
    assert_eq!((play.call(), play.bodies().len()), (None, 2), "it has its grace");
    play.ring();
    let mut calls = Vec::new();
    while play.phase() != DeclaredPhase::Removed {
        let name = format!("{:?}", play.call().unwrap());
        calls.push(name.split(['(', ' ']).next().unwrap().to_owned());
        play.well();
    }
    let way = ["Look", "Fence", "Stop", "Await", "Destroy", "Await", "IdTaken", "Leftovers"];
    assert_eq!(calls, way);
    assert_eq!(play.bodies()[2..], ["DeclaredRemoving", "DeclaredGone"]);
    assert_eq!(play.last.last(), Some(&Effect::End));
}

#[test]
fn a_removal_goes_on_after_a_crash_at_each_step() {
    let spec = DeclaredSpec { on_removal: OnRemoval::Delete, ..gitea() };
    for steps in 0..9 {
        let mut play = Play::kept(&spec);
        play.feed(Event::Declare(None));
        for _ in 0..steps {
            play.well();
        }
        play.restart(None);
        assert_eq!(play.phase(), DeclaredPhase::Removing, "after {steps} steps");
        while play.phase() != DeclaredPhase::Removed {
            play.well();
        }
        assert!(play.journal.declared.is_empty());
    }
}

/// A machine whose removal came so many steps far, and whether the destroy was asked for.
fn removing(steps: usize) -> (Play, bool) {
    let mut play = Play::kept(&DeclaredSpec { on_removal: OnRemoval::Delete, ..gitea() });
    play.feed(Event::Declare(None));
    for _ in 0..steps {
        play.well();
    }
    let destroyed = play.all.iter().any(|one| matches!(one, Effect::Ask(_, Call::Destroy)));
    (play, destroyed)
}

fn destroys(play: &Play) -> usize {
    play.all.iter().filter(|one| matches!(one, Effect::Ask(_, Call::Destroy))).count()
}

#[test]
fn a_machine_that_is_declared_again_before_its_guest_is_destroyed_is_kept_also_over_a_crash() {
    let spec = gitea();
    for crash in [false, true] {
        let steps = (0..8).take_while(|steps| !removing(*steps).1);
        for steps in steps {
            let (mut play, _) = removing(steps);
            match crash {
                true => play.restart(Some(&spec)),
                false => play.feed(Event::Declare(Some(Arc::new(spec.clone())))),
            }
            play.up_to(&State::Resting(Standing::Kept, Watch::Pause));
            assert_eq!(destroys(&play), 0, "after {steps} steps, crash {crash}");
            let entry = play.journal.declared.values().next().unwrap();
            assert_eq!((entry.removing, entry.spec.on_removal), (false, OnRemoval::Keep));
            // A restart that comes later has nothing to destroy either.
            play.restart(None);
            play.up_to(&State::Resting(Standing::Kept, Watch::Pause));
            assert_eq!((play.phase(), destroys(&play)), (DeclaredPhase::Left, 0));
        }
    }
}

#[test]
fn a_machine_that_is_declared_again_during_its_destroy_is_kept_where_that_fails() {
    let steps = (0..8).find(|steps| removing(*steps).1).unwrap();
    for fails in [true, false] {
        let (mut play, _) = removing(steps);
        play.feed(Event::Declare(Some(Arc::new(gitea()))));
        assert_eq!(play.phase(), DeclaredPhase::Removing);
        if fails {
            play.answer(Answer::Accepted(Err(fault(FaultKind::Broken))));
            play.up_to(&State::Resting(Standing::Kept, Watch::Pause));
            assert!(!play.journal.declared.values().next().unwrap().removing);
        } else {
            play.up_to(&State::Removed);
            assert!(play.journal.declared.is_empty());
        }
        assert_eq!(destroys(&play), 1);
    }
}

#[test]
fn a_guest_that_was_never_configured_is_configured_where_it_is_declared_again() {
    let spec = DeclaredSpec { on_removal: OnRemoval::Delete, ..gitea() };
    let mut play = Play::new(&spec);
    play.up_to(&State::Configuring);
    play.feed(Event::Declare(None));
    play.ring();
    play.feed(Event::Declare(Some(Arc::new(spec))));
    play.up_to(&State::Configuring);
    play.up_to(&State::Resting(Standing::Kept, Watch::Pause));
    assert_eq!(destroys(&play), 0);
}

#[test]
fn a_removal_that_cannot_go_on_ends_where_the_machine_is_forgotten() {
    let (mut play, _) = removing(1);
    for _ in 0..3 {
        play.answer(Answer::Looked(Err(fault(FaultKind::Unreachable))));
        play.ring();
    }
    assert_eq!(play.phase(), DeclaredPhase::Removing);
    play.feed(Event::Forget);
    assert_eq!((play.phase(), destroys(&play)), (DeclaredPhase::Removed, 0));
    assert!(play.last.contains(&Effect::IdBack { vmid: VmId(10_000), burned: true }));
}

#[test]
fn a_cloud_of_another_cluster_is_drift_and_one_of_the_same_cluster_is_none() {
    for (cluster, differs) in [(CLUSTER, false), ("0000000000000000", true)] {
        let mut play = Play::kept(&gitea());
        let mut moved = gitea();
        moved.template.id.cloud = drover_model::id::CloudId::new("far");
        play.feed(Event::Declare(Some(Arc::new(moved))));
        assert!(play.last.contains(&Effect::WantCluster));
        play.feed(Event::Cluster(Ok(ClusterId::new(cluster))));
        play.answer(Answer::Described(Ok(Box::new(view(Power::Running)))));
        let drift = drift(&play);
        assert_eq!(!drift.is_empty(), differs, "{drift:?}");
        assert_eq!(play.phase(), DeclaredPhase::Kept);
    }
}

#[test]
fn a_guest_with_other_marks_is_not_destroyed_in_its_place() {
    let mut play = Play::kept(&gitea());
    play.feed(Event::Declare(None));
    play.feed(Event::Delete);
    assert_eq!(*play.mind.state(), State::Removing(Remove::Look));
    play.answer(Answer::Looked(Ok(unmarked(None))));
    assert_eq!(play.phase(), DeclaredPhase::Removed);
    let changed = |one: &Effect| matches!(one, Effect::Ask(_, Call::Fence | Call::Destroy));
    assert!(!play.all.iter().any(changed));
    assert!(play.last.contains(&Effect::IdBack { vmid: VmId(10_000), burned: true }));
}

#[test]
fn a_machine_that_is_forgotten_leaves_its_guest_as_it_is() {
    let mut play = Play::kept(&gitea());
    let before = play.all.len();
    play.feed(Event::Forget);
    assert_eq!(play.phase(), DeclaredPhase::Removed);
    assert!(play.journal.declared.is_empty());
    assert!(!play.all[before..].iter().any(|one| matches!(one, Effect::Ask(..))));
}

#[test]
fn a_machine_that_is_gone_and_not_declared_is_forgotten_by_itself() {
    let mut play = Play::kept(&gitea());
    play.feed(Event::Declare(None));
    play.gone_round();
    play.gone_round();
    assert_eq!(play.phase(), DeclaredPhase::Removed);
    assert!(play.journal.declared.is_empty());
}

#[test]
fn a_declaration_that_changes_is_written_down_and_looked_at_at_once() {
    let mut play = Play::kept(&gitea());
    let mut other = correcting(&[DriftKind::Size]);
    other.template.cores = Some(4);
    play.feed(Event::Declare(Some(Arc::new(other.clone()))));
    assert!(matches!(play.last[0], Effect::Record(Body::DeclaredChanged { .. })));
    assert_eq!(play.call(), Some(Call::Describe));
    play.answer(Answer::Described(Ok(Box::new(view(Power::Running)))));
    let sizes = Size { cores: Some(4), ..Size::default() };
    assert_eq!(play.call(), Some(Call::Order(Work::Resize(sizes))));
    let entry = play.journal.declared.values().next().unwrap();
    assert_eq!(entry.spec.template.cores, Some(4));
    // The same again is nothing new.
    play.feed(Event::Declare(Some(Arc::new(other))));
    assert!(!play.last.iter().any(|one| matches!(one, Effect::Record(_))));
}

// Invariant: a guest whose name is not known yet is no proof that the name is free.

#[test]
fn a_guest_without_a_name_in_the_list_is_looked_at_and_waited_for() {
    let nameless = || drover_model::ports::Listed { name: None, ..listed(300, "") };
    let looked = |observation| {
        let mut play = Play::new(&gitea());
        play.up_to(&State::Checking(Check::List));
        play.answer(Answer::Surveyed(Ok(survey(vec![nameless()]))));
        assert_eq!(play.call(), Some(Call::LookAt(VmId(300), NodeName::new("pve1"))));
        play.answer(Answer::Looked(Ok(observation)));
        play
    };
    let marks = |kind, template: &str| Marks {
        kind,
        template: template.to_owned(),
        ..drover_model::testing::marks("nnnnnnnnnnnnnnnn", 300)
    };
    for other in [marks(Kind::Agent, "gitea"), marks(Kind::Machine, "forge")] {
        assert_eq!(looked(seen(&other, true)).call(), Some(Call::Locate));
    }
    let same = looked(seen(&marks(Kind::Machine, "gitea"), true));
    assert_eq!(same.phase(), DeclaredPhase::Blocked);
    let mut plain = looked(unmarked(None));
    assert_eq!((plain.phase(), plain.call()), (DeclaredPhase::Waiting, None));
    assert!(plain.detail().contains("no name in the list"), "{}", plain.detail());
    // Its name comes within seconds.
    plain.ring();
    assert_eq!(plain.call(), Some(Call::Survey));
    plain.answer(Answer::Surveyed(Ok(survey(vec![listed(300, "gitea")]))));
    assert_eq!(plain.phase(), DeclaredPhase::Blocked);
}

// Invariant: a guest that an operator has a machine adopt is the machine's from one durable record on, and
// nothing of it changes; a machine that has a guest adopts none.

#[test]
fn a_guest_is_taken_over_where_there_is_none_and_is_never_configured() {
    let marks = Marks {
        kind: Kind::Machine,
        template: "gitea".into(),
        ..drover_model::testing::marks("nnnnnnnnnnnnnnnn", 300)
    };
    let take_over = || Event::TakeOver(Box::new(marks.clone()), NodeName::new("pve2"));
    let mut foreign = Play::kept(&gitea());
    foreign.ring();
    foreign.answer(Answer::Described(Err(fault(FaultKind::Foreign))));
    foreign.answer(Answer::Looked(Ok(unmarked(None))));
    assert_eq!(foreign.phase(), DeclaredPhase::Foreign);
    let detail = foreign.detail();
    for part in
        ["neither its name nor its description", "qm set 10000 --name gitea-", "with a new disk"]
    {
        assert!(detail.contains(part), "{detail}");
    }
    let mut blocked = Play::new(&gitea());
    blocked.up_to(&State::Checking(Check::List));
    blocked.answer(Answer::Surveyed(Ok(survey(vec![listed(300, "gitea")]))));
    for (mut play, gone) in [(foreign, true), (blocked, false)] {
        play.feed(take_over());
        assert_eq!(play.call(), Some(Call::Describe));
        assert!(gone == play.bodies().contains(&"DeclaredGone".to_owned()), "{:?}", play.bodies());
        let entry = play.journal.declared.values().next().unwrap().clone();
        assert_eq!((entry.made, &entry.marks, play.journal.declared.len()), (true, &marks, 1));
        play.restart(Some(&gitea()));
        assert_eq!(play.call(), Some(Call::Describe), "it is not made again, and not configured");
        play.answer(Answer::Described(Ok(Box::new(view(Power::Stopped)))));
        assert_eq!((play.phase(), play.call()), (DeclaredPhase::Kept, None));
    }
    let mut kept = Play::kept(&gitea());
    kept.feed(take_over());
    assert_eq!((kept.phase(), kept.bodies().len()), (DeclaredPhase::Kept, 2));
}
