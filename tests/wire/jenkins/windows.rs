//! Builds on agents of Windows: the runner's command is a batch file, and what it is given comes by SFTP.

use super::*;

// Invariant: a build runs on an agent of Windows as on any other, whatever its login shell is.

#[test]
fn a_build_runs_on_an_agent_of_windows_and_leaves_nothing_behind() {
    let keys =
        "    osType: WINDOWS\n    remoteFs: 'C:\\ci'\n    tags: [guest-windows-powershell]\n";
    let scene = scene(keys, "", TOKEN);
    crate::windows::bake(&scene.sim);
    let yaml = std::fs::read_to_string(scene.site.config()).unwrap();
    let yaml = yaml
        .replace("to: agent.py", r"to: 'C:\ci\agent.py'")
        .replace("javaPath: /home/debian/agent.py", r"javaPath: 'C:\ci\agent.py'");
    scene.site.write_yaml(&yaml);
    let (_service, mut events) = scene.start();
    scene.jenkins.queue("a", "linux", "wait");
    let node = scene.jenkins.running("a");
    let words = scene.jenkins.wait("its start", |state| state.hellos.get(&node).cloned());
    let words: Vec<&str> = words.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(words.ends_with(&["-noReconnect", "-workDir", r"C:\ci"]), "{words:?}");
    // A build that no look sees does not use its agent up.
    scene.jenkins.looked();
    scene.jenkins.go("a");
    assert_eq!(ended(&scene.jenkins.over(1)), [("a", Some(0))]);
    let gone = events.until("agentGone", |_| true);
    assert_eq!(gone["agent"]["reason"], "used-up", "{gone}");
    scene.is_over();
}
