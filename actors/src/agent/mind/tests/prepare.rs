//! Preparing over SSH: the steps, their order, their names, their output.

use std::time::Duration;

use drover_model::fact::What;
use drover_model::fault::FaultKind;
use drover_model::os::{LoginShell, Os};
use drover_model::phase::AgentPhase;
use drover_model::ports::Ran;
use drover_model::record::Reason;
use drover_model::spec::{JavaDistribution, JavaSpec, StepSpec, StepWork, TemplateSpec};
use drover_model::status::AgentStatus;
use drover_scripts::{guest, windows};

use crate::agent::event::{Answer, Call};
use crate::agent::testing::*;

fn with_java() -> TemplateSpec {
    let plain = spec();
    let java = JavaSpec { distribution: JavaDistribution::Corretto, ..plain.java.clone() };
    TemplateSpec { java, ..plain }
}

fn at_preparing(spec: TemplateSpec) -> Drive {
    let mut drive = Drive::new(spec);
    drive.go_to(AgentPhase::Preparing);
    drive
}

fn says(drive: &mut Drive, exit: Option<u32>, tail: &str) {
    drive.answer(Answer::Ran(Ok(Ran { exit, tail: tail.into() })));
}

fn status(drive: &Drive) -> AgentStatus {
    let reported = drive.facts().into_iter().rev().find_map(|what| match what {
        What::Agent(status) => Some((**status).clone()),
        _ => None,
    });
    reported.expect("a status")
}

fn failure(drive: &Drive) -> String {
    let reason = drive.journal_state.agents[&agent_id()].retiring.clone().expect("a reason");
    let Reason::Failed { text, .. } = reason else { panic!("{reason:?}") };
    text
}

fn limit(drive: &Drive) -> Duration {
    let Some((_, Call::Run(_, _, limit))) = drive.asked() else { panic!("no command") };
    limit
}

// Invariant: steps run in order. Each is shown by its name while it runs, and in the waterfall.

#[test]
fn every_step_is_shown_while_it_runs_and_has_its_part_in_the_waterfall() {
    let mut drive = at_preparing(with_java());
    let mut shown = Vec::new();
    while drive.state() == AgentPhase::Preparing {
        shown.push(status(&drive).detail);
        drive.wait(secs(1));
        says(&mut drive, Some(0), "");
    }
    let steps = [
        "step 1 of 5: cloud-init",
        "step 2 of 5: remoteFs",
        "step 3 of 5: Java",
        "step 4 of 5: ci.conf",
        "step 5 of 5: readyCommand",
    ];
    assert_eq!(shown, steps);
    let ready = status(&drive);
    assert_eq!((ready.phase, ready.detail.as_str()), (AgentPhase::Ready, ""));
    let parts: Vec<(&str, u64)> = ready
        .phases
        .iter()
        .filter_map(|(name, ms)| Some((name.strip_prefix("Preparing: ")?, *ms)))
        .collect();
    let names = ["cloud-init", "remoteFs", "Java", "ci.conf", "readyCommand"];
    assert_eq!(parts, names.map(|name| (name, 1000)));
}

#[test]
fn java_is_a_step_only_where_it_is_installed_and_looked_for_where_it_is_not() {
    let command = |spec: TemplateSpec| {
        let mut drive = at_preparing(spec);
        says(&mut drive, Some(0), "");
        let Some((_, Call::Run(_, command, _))) = drive.asked() else { panic!("no command") };
        let detail = status(&drive).detail;
        (detail, command)
    };
    let (detail, looks) = command(spec());
    assert_eq!(detail, "step 2 of 4: remoteFs");
    assert!(looks.ends_with(" 'java'"), "{looks}");
    let (detail, looks) = command(with_java());
    assert_eq!(detail, "step 2 of 5: remoteFs");
    assert!(looks.ends_with(" ''"), "{looks}");
}

// Invariant: a Windows guest has no cloud-init to wait for, gets time to start, and has its own
// scripts.

#[test]
fn a_guest_of_windows_is_prepared_without_cloud_init() {
    let os = Os::Windows(LoginShell::Auto);
    let spec = TemplateSpec { os, remote_fs: r"C:\ci".into(), steps: Vec::new(), ..spec() };
    let mut drive = Drive::new(spec.clone());
    drive.go_to(AgentPhase::Connecting);
    let Some((_, Call::Greet(_, limit))) = drive.asked() else { panic!("no login") };
    assert_eq!(limit, secs(30));
    drive.go_to(AgentPhase::Preparing);
    assert_eq!(status(&drive).detail, "step 1 of 2: remoteFs");
    let Some((_, Call::Run(_, command, _))) = drive.asked() else { panic!("no command") };
    assert_eq!(command, windows::remote_fs(&spec));
    says(&mut drive, Some(0), "warning: there is no Java");
    assert_eq!(status(&drive).detail, "step 2 of 2: readyCommand");
    let Some((_, Call::Run(_, command, _))) = drive.asked() else { panic!("no command") };
    assert_eq!(command, "true", "as it is written: the shell port knows the login shell");
    says(&mut drive, Some(0), "");
    assert_eq!(status(&drive).detail, "there is no Java");
}

// Invariant: a failed step ends the provision with its name and its last lines; a warning does not.

#[test]
fn a_failed_step_is_named_with_its_last_lines() {
    let mut drive = at_preparing(with_java());
    says(&mut drive, Some(0), "");
    says(&mut drive, Some(0), "");
    says(&mut drive, Some(1), "E: Unable to locate package java-21-amazon-corretto-jdk\n");
    says(&mut drive, Some(0), "");
    assert_eq!(drive.state(), AgentPhase::Retiring);
    let wanted = "the step `Java` ended with exit status 1; last: E: Unable to locate package \
                  java-21-amazon-corretto-jdk";
    assert_eq!(failure(&drive), wanted);
}

// Invariant: before the machine of a failed step goes, its guest says what is wrong with it; that changes
// nothing of what follows, and takes no time that is not there.

#[test]
fn a_guest_in_which_a_step_failed_is_asked_once_what_is_wrong_with_it() {
    let answers = [
        Ok(Ran { exit: Some(0), tail: "-- disks\n/dev/vda1 100%".into() }),
        Ok(Ran { exit: None, tail: String::new() }),
        Err(fault(FaultKind::UnknownOutcome)),
        Err(fault(FaultKind::Unreachable)),
        Err(fault(FaultKind::Broken)),
    ];
    for answer in answers {
        let mut drive = at_preparing(spec());
        says(&mut drive, Some(3), "no space left");
        assert_eq!(drive.state(), AgentPhase::Preparing);
        assert_eq!(status(&drive).detail, "a step failed; report of the guest");
        let parts = |drive: &Drive| -> Vec<String> {
            let parts = status(drive).phases.into_iter().map(|(part, _)| part);
            parts.filter(|part| part.starts_with("Preparing")).collect()
        };
        assert_eq!(parts(&drive), ["Preparing: cloud-init"]);
        let Some((_, Call::Run(_, command, limit))) = drive.asked() else { panic!("no command") };
        assert_eq!((command, limit), (guest::report(), secs(5)));
        drive.answer(Answer::Ran(answer));
        assert_eq!(drive.state(), AgentPhase::Retiring);
        let wanted = "the step `cloud-init` ended with exit status 3; last: no space left";
        assert_eq!(failure(&drive), wanted);
        assert_eq!(parts(&drive), ["Preparing: cloud-init"], "by the last part people look for it");
    }
}

#[test]
fn a_guest_is_not_asked_what_is_wrong_where_little_time_is_left_and_windows_needs_more() {
    let mut drive = at_preparing(spec());
    drive.wait(spec().limits.prepare - secs(9));
    says(&mut drive, Some(3), "");
    assert_eq!(drive.state(), AgentPhase::Retiring);
    let os = Os::Windows(LoginShell::Auto);
    for (left, state) in [(39, AgentPhase::Retiring), (41, AgentPhase::Preparing)] {
        let spec = TemplateSpec { os, remote_fs: r"C:\ci".into(), ..spec() };
        let mut drive = at_preparing(spec.clone());
        drive.wait(spec.limits.prepare - secs(left));
        says(&mut drive, Some(3), "");
        assert_eq!(drive.state(), state, "{left} s");
    }
    let mut drive = at_preparing(TemplateSpec { os, remote_fs: r"C:\ci".into(), ..spec() });
    says(&mut drive, Some(3), "");
    let Some((_, Call::Run(_, command, limit))) = drive.asked() else { panic!("no command") };
    assert_eq!((command, limit), (windows::report(), secs(20)));
}

#[test]
fn warnings_of_our_own_steps_are_shown_once_it_is_ready() {
    let mut drive = at_preparing(spec());
    says(&mut drive, Some(0), "noise\nwarning: cloud-init met errors\nwarning: status: error");
    says(&mut drive, Some(0), "warning: there is no Java");
    says(&mut drive, Some(0), "warning: the upload's own business");
    says(&mut drive, Some(0), "warning: the readyCommand's own business");
    assert_eq!(drive.state(), AgentPhase::Ready);
    let wanted = "cloud-init met errors; status: error; there is no Java";
    assert_eq!(status(&drive).detail, wanted);
}

#[test]
fn a_lost_connection_runs_the_step_again_and_no_other() {
    let mut drive = at_preparing(spec());
    says(&mut drive, Some(0), "warning: kept");
    let (_, before) = drive.asked().expect("a call");
    drive.answer(Answer::Ran(Err(fault(FaultKind::UnknownOutcome))));
    assert!(status(&drive).detail.starts_with("remoteFs: "), "{}", status(&drive).detail);
    drive.wait(secs(1));
    let (_, again) = drive.asked().expect("a call");
    let (Call::Run(_, before, _), Call::Run(_, again, _)) = (before, again) else { panic!() };
    assert_eq!(before, again);
}

// Invariant: a step ends before the common deadline, so that its last output arrives.

#[test]
fn a_step_that_takes_all_the_time_there_is_still_says_its_last_lines() {
    let mut drive = at_preparing(spec());
    let all = spec().limits.prepare;
    assert_eq!(limit(&drive), all - secs(2));
    drive.wait(all - secs(2));
    says(&mut drive, None, "still running\n(ended after 598 s)");
    let wanted = "the step `cloud-init` was ended by a signal or its limit; last: still running\n\
                  (ended after 598 s)";
    assert_eq!(failure(&drive), wanted);
}

// Invariant: a template's own steps run in order after drover's, each within its own time.

fn own(name: &str, work: StepWork, seconds: u64) -> StepSpec {
    StepSpec { name: name.into(), work, timeout: secs(seconds) }
}

#[test]
fn a_templates_own_steps_run_in_their_order_each_within_its_time() {
    let steps = vec![
        own("one", StepWork::Run("echo one".into()), 5),
        own("two", StepWork::Packages(vec!["git".into(), "jq".into()]), 70),
        upload(),
        own("four", StepWork::Run("echo four".into()), 100_000),
    ];
    let mut drive = at_preparing(TemplateSpec { steps, ready_command: None, ..spec() });
    says(&mut drive, Some(0), "");
    says(&mut drive, Some(0), "");
    let mut seen = Vec::new();
    while drive.state() == AgentPhase::Preparing {
        let (_, call) = drive.asked().expect("a call");
        seen.push(match call {
            Call::Run(_, command, limit) => {
                let ours = command.rsplit_once(" drover").map(|(_, words)| words.to_owned());
                format!("{} {}", ours.unwrap_or(command), limit.as_secs())
            }
            Call::Upload(_, upload, limit) => format!("{} {}", upload.to, limit.as_secs()),
            other => panic!("{other:?}"),
        });
        says(&mut drive, Some(0), "");
    }
    assert_eq!(drive.state(), AgentPhase::Ready);
    assert_eq!(seen, ["echo one 5", " 'git' 'jq' 70", "ci.conf 60", "echo four 298"]);
}

#[test]
fn a_step_that_fails_is_the_last_and_what_it_said_is_kept() {
    let steps = vec![own("one", StepWork::Run("echo one".into()), 5), upload()];
    let mut drive = at_preparing(TemplateSpec { steps, ..spec() });
    says(&mut drive, Some(0), "");
    says(&mut drive, Some(0), "");
    drive.wait(secs(5));
    says(&mut drive, None, "one\n(ended after 5 s)");
    says(&mut drive, Some(0), "-- disks");
    assert_eq!(drive.state(), AgentPhase::Retiring);
    let wanted = "the step `one` was ended by a signal or its limit; last: one\n(ended after 5 s)";
    assert_eq!(failure(&drive), wanted);
    let reported = drive.facts().into_iter().filter_map(|what| match what {
        What::Step { step, ms, exit, log, .. } => Some((step.as_str(), *ms, *exit, log.as_str())),
        _ => None,
    });
    let wanted = [
        ("cloud-init", 0, Some(0), ""),
        ("remoteFs", 0, Some(0), ""),
        ("one", 5000, None, "one\n(ended after 5 s)"),
        ("report of the guest", 0, Some(0), "-- disks"),
    ];
    assert_eq!(reported.collect::<Vec<_>>(), wanted);
}

#[test]
fn a_journal_of_before_reads_as_no_steps() {
    let mut written = serde_json::to_value(spec()).expect("a value");
    let fields = written.as_object_mut().expect("fields");
    fields.remove("steps");
    fields.remove("os");
    let java = fields.get_mut("java").and_then(|java| java.as_object_mut()).expect("java");
    java.remove("repository");
    java.remove("repository_key");
    let read: TemplateSpec = serde_json::from_value(written).expect("a spec");
    assert_eq!(read, TemplateSpec { steps: Vec::new(), ..spec() });
}
