//! What is too large, too long or too many says so, with the limit.

use super::*;

// Invariant: every limit is said in the fault of what exceeds it, and the faults are bounded too.

#[test]
fn what_exceeds_a_limit_of_a_template_says_which() {
    let scene = Scene::new();
    scene.put("large.yaml", 0o644, &format!("#cloud-config\n#{}\n", "x".repeat(64 << 10)));
    scene.put("big", 0o644, &"x".repeat((4 << 20) + 1));
    let windows = "osType: WINDOWS\nremoteFs: 'C:\\ci'\n";
    for (lines, what) in [
        (format!("prepare: [{}]", "{run: id}, ".repeat(41)), "41 steps exceed the maximum of 40"),
        (
            format!("networks: [{}]", "{name: lan}, ".repeat(33)),
            "33 network cards exceed the maximum of 32",
        ),
        ("userDataFile: large.yaml".to_owned(), "65552 bytes exceed the maximum of 64 KiB"),
        (
            "prepare: [{upload: {from: big, to: x}}]".to_owned(),
            "/big` cannot be read: it is larger than 4 MiB",
        ),
        (format!("{windows}readyCommand: '{}'", "x".repeat(5000)), "it is too long for cmd.exe"),
    ] {
        let shown = scene.faults(&with_agent(&lines));
        assert!(shown.contains(what) && shown.contains("has 1 fault\n"), "{shown}");
        assert!(shown.contains("help: "), "{shown}");
    }
}

#[test]
fn a_log_has_faults_a_line_each_with_their_places_and_says_how_many_more_there_are() {
    let error = Scene::new().check(&with_agent("instanceCpa: 5")).unwrap_err();
    let lines = error.lines();
    let said = ": agentConfigurations.a.instanceCpa: unknown key `instanceCpa`; did you mean `instanceCap`?";
    assert!(
        lines.len() == 1 && lines[0].contains(".yaml:") && lines[0].ends_with(said),
        "{lines:?}"
    );
    let many: String = (0..9).map(|n| format!("nothing{n}: 1\n")).collect();
    let lines = Scene::new().check(&with_agent(&many)).unwrap_err().lines();
    assert_eq!((lines.len(), lines[5].as_str()), (6, "and 4 more: `drover check` shows all"));
}

#[test]
fn of_very_many_faults_the_first_hundred_are_shown() {
    let keys: String = (0..90_000).map(|n| format!("    strange{n}: 1\n")).collect();
    let said = Scene::new().faults(&format!("cloudConfigurations:\n  a:\n{keys}"));
    assert!(said.contains("`strange0`"), "{said}");
    assert_eq!(said.matches("╰── here").count(), 100);
    assert!(said.contains("more faults are not shown"), "{said}");
}
