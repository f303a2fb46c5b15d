//! What a guest receives for a runner of GitHub Actions, and how the runner is started there.

use std::collections::BTreeSet;

use bytes::Bytes;
use drover_ssh::quote;
use secrecy::{ExposeSecret, SecretString};

use super::super::connector::{Enlist, Kit, KitFile, program_of};
use super::super::windows;
use super::jobs::SELF_HOSTED;
use super::versions::SAYS_DEPRECATED;

/// The path of the runner's program in a guest, unless a command is configured.
const RUN: &str = "/opt/actions-runner/run.sh";
/// Copies the program into the folder of this runner, by hard links where the file system has them,
/// without what a runner left that ran in the original. The links of a program that updated itself
/// name the folder that it was in.
///
/// A runner stores its login and its work beside its program (actions/runner 2.336.0 at
/// 258d6c857db3,
/// `Runner.cs` and `HostContext.cs`), so two runners in one folder would use each other's.
const COPY: &str = "from=/opt/actions-runner/.; rm -rf runner; mkdir runner || exit 1; \
                    cp -al \"$from\" runner 2>/dev/null || \
                    { rm -rf runner; mkdir runner && cp -R \"$from\" runner; } || exit 1; \
                    rm -rf runner/.runner runner/.credentials* runner/_diag runner/_work \
                    runner/run-helper.sh; for part in bin externals; do [ ! -L runner/$part ] || \
                    ln -sfn \"$(basename \"$(readlink runner/$part)\")\" runner/$part; done";
const RUN_WINDOWS: &str = r"C:\actions-runner\run.cmd";
const RUN_ONCE: &str = "/opt/actions-runner/run-once.sh";
/// The runner also reads its options from variables with this prefix, and removes them from its
/// environment. The list of processes would show an argument.
const JIT_VARIABLE: &str = "ACTIONS_RUNNER_INPUT_JITCONFIG";
/// Without this variable `run.sh` ends at once where the login user is root (actions/runner
/// 2.336.0,
/// `run-helper.sh.template`). drover's guests are thrown away, so root is harmless.
const ROOT_VARIABLE: &str = "RUNNER_ALLOW_RUNASROOT";

/// The labels of a runner; GitHub adds none to a runner that is made by a configuration.
pub fn labels(wish: Enlist<'_>) -> BTreeSet<String> {
    let mut labels = wish.labels();
    labels.insert(SELF_HOSTED.to_owned());
    labels
}

/// The bundle of a runner that drover registered: its own login and nothing else. Where several
/// runners may share the guest, each has a copy of the program.
pub fn jit_kit(configuration: &SecretString, command: Option<&str>, executors: u32) -> Kit {
    let run = if executors > 1 {
        format!("rm -f jitconfig; {COPY}; exec ./runner/run.sh")
    } else {
        format!("rm -f jitconfig; exec {RUN}")
    };
    let (leaves, command) = (command.is_some(), command.unwrap_or(&run));
    let content = Bytes::from(configuration.expose_secret().to_owned());
    Kit {
        files: vec![KitFile { name: "jitconfig", content }],
        programs: if command == run { vec![RUN.to_owned()] } else { program_of(command) },
        command: format!(
            "{JIT_VARIABLE}=\"$(cat jitconfig)\"; export {JIT_VARIABLE}; {}; {command}",
            variables(),
        ),
        leaves,
        secrets: vec![configuration.clone()],
    }
}

/// The same for a Windows guest.
pub fn jit_kit_of_windows(configuration: &SecretString, command: Option<&str>) -> Kit {
    let variables = [(JIT_VARIABLE, configuration.expose_secret()), (SAYS_DEPRECATED, "1")];
    windows::kit((command, RUN_WINDOWS), &variables, Vec::new(), vec![configuration.clone()])
}

/// The variables that every runner needs.
fn variables() -> String {
    format!("export {SAYS_DEPRECATED}=1 {ROOT_VARIABLE}=1")
}

/// The bundle for servers without just-in-time configurations: a token that registers the runner.
pub fn token_kit(page: &str, token: &SecretString, wish: Enlist<'_>, command: Option<&str>) -> Kit {
    let labels: Vec<String> = wish.labels().into_iter().collect();
    let words = format!(
        "set -- {} \"$(cat token)\" {} {}",
        quote(page),
        quote(&labels.join(",")),
        quote(wish.runner.as_str()),
    );
    let run = format!("exec {RUN_ONCE} \"$@\"");
    let (leaves, command) = (command.is_some(), command.unwrap_or(&run));
    let content = Bytes::from(token.expose_secret().to_owned());
    Kit {
        files: vec![KitFile { name: "token", content }],
        programs: program_of(command),
        command: format!("{words}; {}; {command}", variables()),
        leaves,
        secrets: vec![token.clone()],
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::process::Command;

    use drover_model::id::{CloudId, RunnerName, TemplateId, VmId};
    use drover_model::ports::ShellTarget;
    use drover_model::record::Want;
    use drover_model::spec::TemplateSpec;

    use super::*;

    /// Runs a bundle as a guest does, with this script in place of the runner's program; returns
    /// its
    /// output and the files that are left.
    fn ran(kit: &Kit, program: &str, script: &str) -> (String, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        for file in &kit.files {
            std::fs::write(dir.path().join(file.name), &file.content).unwrap();
        }
        std::fs::write(dir.path().join("runner"), script).unwrap();
        assert!(kit.command.contains(program), "{}", kit.command);
        let command = kit.command.replace(program, "sh ./runner");
        let out = Command::new("sh").args(["-c", &command]).current_dir(dir.path()).output();
        let left = std::fs::read_dir(dir.path()).unwrap();
        let left = left.map(|file| file.unwrap().file_name().into_string().unwrap());
        (String::from_utf8(out.unwrap().stdout).unwrap(), left.collect())
    }

    // Invariant: no command line shows a secret, because everybody in a guest can read it.

    #[test]
    fn the_runner_has_its_configuration_by_a_variable_and_no_file_of_it_is_left() {
        let kit = jit_kit(&"c2VjcmV0".to_owned().into(), None, 1);
        assert_eq!(kit.programs, [RUN]);
        assert!(!kit.command.contains("c2VjcmV0"));
        let script = "echo \"$ACTIONS_RUNNER_INPUT_JITCONFIG $#\"";
        assert_eq!(ran(&kit, RUN, script), ("c2VjcmV0 0\n".into(), vec!["runner".into()]));
        let own = jit_kit(&"c2VjcmV0".to_owned().into(), Some("exec ./mine.sh --once"), 2);
        assert_eq!(own.programs, ["./mine.sh"]);
    }

    // Invariant: each of several runners in one guest has its own login.

    #[test]
    fn runners_that_share_a_guest_have_a_copy_of_the_program_each() {
        let guest = tempfile::tempdir().unwrap();
        let image = guest.path().join("image");
        std::fs::create_dir_all(image.join("bin.2.336.0")).unwrap();
        // As a self-update leaves it.
        std::os::unix::fs::symlink(image.join("bin.2.336.0"), image.join("bin")).unwrap();
        let script = "root=$(cd -P \"$(dirname \"$0\")/bin\" && cd .. && pwd)\n\
                      echo \"$ACTIONS_RUNNER_INPUT_JITCONFIG\" >\"$root/.runner\"\n";
        std::fs::write(image.join("run.sh"), script).unwrap();
        std::fs::write(image.join(".runner"), "of the image\n").unwrap();
        for name in ["a", "b"] {
            let folder = guest.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            let kit = jit_kit(&name.to_owned().into(), None, 2);
            assert_eq!(kit.programs, [RUN]);
            std::fs::write(folder.join(kit.files[0].name), &kit.files[0].content).unwrap();
            let command = kit.command.replace("/opt/actions-runner", image.to_str().unwrap());
            let command = command.replace("exec ./runner", "exec sh ./runner");
            let ran = Command::new("sh").args(["-c", &command]).current_dir(&folder).output();
            assert!(ran.unwrap().status.success(), "{command}");
            assert!(!folder.join("jitconfig").exists());
        }
        let login =
            |folder: &str| std::fs::read_to_string(guest.path().join(folder).join(".runner"));
        let logins = ["image", "a/runner", "b/runner"].map(|folder| login(folder).unwrap());
        assert_eq!(logins, ["of the image\n", "a\n", "b\n"]);
    }

    #[test]
    fn the_runner_of_windows_has_its_configuration_in_a_file_of_variables() {
        let kit = jit_kit_of_windows(&"c2VjcmV0".to_owned().into(), None);
        assert_eq!((kit.command.as_str(), kit.leaves), (RUN_WINDOWS, false));
        assert_eq!(kit.programs, [RUN_WINDOWS]);
        let [file] = &kit.files[..] else { panic!("{}", kit.files.len()) };
        assert_eq!(file.name, "env.json");
        let said: serde_json::Value = serde_json::from_slice(&file.content).unwrap();
        let wanted = serde_json::json!({JIT_VARIABLE: "c2VjcmV0", SAYS_DEPRECATED: "1"});
        assert_eq!(said, wanted);
        let own = jit_kit_of_windows(&"x".to_owned().into(), Some("call D:\\mine.cmd"));
        assert_eq!((own.command.as_str(), own.leaves), ("call D:\\mine.cmd", true));
    }

    // Invariant: a runner whose version GitHub refuses exits with a status of its own, and a runner
    // whose
    // login user is root runs.

    #[test]
    fn the_runner_is_told_to_say_that_it_is_too_old_and_that_it_may_be_roots() {
        let kit = jit_kit(&"c2VjcmV0".to_owned().into(), None, 1);
        let script = format!("echo \"${SAYS_DEPRECATED} ${ROOT_VARIABLE}\"");
        assert_eq!(ran(&kit, RUN, &script).0, "1 1\n");
    }

    #[test]
    fn run_once_has_url_token_labels_and_name_in_their_places() {
        let mut spec = TemplateSpec::bare(TemplateId::new(CloudId::new("c"), "t"), VmId(9000));
        spec.labels = ["x64".to_owned(), "it's".to_owned()].into();
        let (want, name) =
            (Want::Labels(["linux".to_owned()].into()), RunnerName::new("drover-a-b"));
        let address = "10.0.0.9".parse().unwrap();
        let (ssh, os) = (spec.ssh.clone(), spec.os);
        let target = ShellTarget { address, ssh, os, host_keys: Vec::new() };
        let wish = Enlist { runner: &name, spec: &spec, want: &want, target: &target };
        let kit = token_kit("https://github.com/o/r", &"AREG".to_owned().into(), wish, None);
        assert_eq!(kit.programs, [RUN_ONCE]);
        assert!(!kit.command.contains("AREG"));
        let (said, _) = ran(&kit, RUN_ONCE, "printf '%s\\n' \"$@\"");
        assert_eq!(said, "https://github.com/o/r\nAREG\nit's,linux,x64\ndrover-a-b\n");
    }
}
