//! What a guest receives for a runner of GitHub Actions, and how the runner is started there.

use std::collections::BTreeSet;

use bytes::Bytes;
use drover_ssh::quote;
use secrecy::{ExposeSecret, SecretString};

use super::super::connector::{RegisterRequest, RunnerBundle, RunnerFile, program_of};
use super::super::windows;
use super::jobs::SELF_HOSTED;
use super::versions::DEPRECATED_EXIT_VARIABLE;

/// The path of the runner's program in a guest, unless a command is configured.
const RUN_SCRIPT: &str = "/opt/actions-runner/run.sh";
/// Copies the program into the folder of this runner, by hard links where the file system has them,
/// without what a runner left that ran in the original. The links of a program that updated itself
/// name the folder that it was in.
///
/// A runner stores its login and its work beside its program (actions/runner 2.336.0 at
/// 258d6c857db3, `Runner.cs` and `HostContext.cs`), so two runners in one folder would use each
/// other's.
const COPY_PROGRAM: &str = "from=/opt/actions-runner/.; rm -rf runner; mkdir runner || exit 1; \
                    cp -al \"$from\" runner 2>/dev/null || \
                    { rm -rf runner; mkdir runner && cp -R \"$from\" runner; } || exit 1; \
                    rm -rf runner/.runner runner/.credentials* runner/_diag runner/_work \
                    runner/run-helper.sh; for part in bin externals; do [ ! -L runner/$part ] || \
                    ln -sfn \"$(basename \"$(readlink runner/$part)\")\" runner/$part; done";
const RUN_SCRIPT_WINDOWS: &str = r"C:\actions-runner\run.cmd";
const RUN_ONCE_SCRIPT: &str = "/opt/actions-runner/run-once.sh";
/// The runner also reads its options from variables with this prefix, and removes them from its
/// environment. The list of processes would show an argument.
const JIT_VARIABLE: &str = "ACTIONS_RUNNER_INPUT_JITCONFIG";
/// Without this variable `run.sh` ends at once where the login user is root (actions/runner
/// 2.336.0, `run-helper.sh.template`). drover's guests are thrown away, so root is harmless.
const ROOT_VARIABLE: &str = "RUNNER_ALLOW_RUNASROOT";

/// The labels of a runner; GitHub adds none to a runner that is made by a configuration.
pub(super) fn labels(request: RegisterRequest<'_>) -> BTreeSet<String> {
    let mut labels = request.labels();
    labels.insert(SELF_HOSTED.to_owned());
    labels
}

/// The bundle of a runner that drover registered: its own login and nothing else. Where several
/// runners may share the guest, each has a copy of the program.
pub(super) fn jit_bundle(
    configuration: &SecretString,
    command: Option<&str>,
    executors: u32,
) -> RunnerBundle {
    let run = if executors > 1 {
        format!("rm -f jitconfig; {COPY_PROGRAM}; exec ./runner/run.sh")
    } else {
        format!("rm -f jitconfig; exec {RUN_SCRIPT}")
    };
    let (may_detach, command) = (command.is_some(), command.unwrap_or(&run));
    let content = Bytes::from(configuration.expose_secret().to_owned());
    RunnerBundle {
        files: vec![RunnerFile { name: "jitconfig", content }],
        programs: if command == run { vec![RUN_SCRIPT.to_owned()] } else { program_of(command) },
        command: format!(
            "{JIT_VARIABLE}=\"$(cat jitconfig)\"; export {JIT_VARIABLE}; {}; {command}",
            variables(),
        ),
        may_detach,
        secrets: vec![configuration.clone()],
    }
}

/// The same for a Windows guest.
pub(super) fn jit_bundle_windows(
    configuration: &SecretString,
    command: Option<&str>,
) -> RunnerBundle {
    let variables =
        [(JIT_VARIABLE, configuration.expose_secret()), (DEPRECATED_EXIT_VARIABLE, "1")];
    windows::bundle(
        (command, RUN_SCRIPT_WINDOWS),
        &variables,
        Vec::new(),
        vec![configuration.clone()],
    )
}

/// The variables that every runner needs.
fn variables() -> String {
    format!("export {DEPRECATED_EXIT_VARIABLE}=1 {ROOT_VARIABLE}=1")
}

/// The bundle for servers without just-in-time configurations: a token that registers the runner.
pub(super) fn token_bundle(
    page: &str,
    token: &SecretString,
    request: RegisterRequest<'_>,
    command: Option<&str>,
) -> RunnerBundle {
    let labels: Vec<String> = request.labels().into_iter().collect();
    let words = format!(
        "set -- {} \"$(cat token)\" {} {}",
        quote(page),
        quote(&labels.join(",")),
        quote(request.runner.as_str()),
    );
    let run = format!("exec {RUN_ONCE_SCRIPT} \"$@\"");
    let (may_detach, command) = (command.is_some(), command.unwrap_or(&run));
    let content = Bytes::from(token.expose_secret().to_owned());
    RunnerBundle {
        files: vec![RunnerFile { name: "token", content }],
        programs: program_of(command),
        command: format!("{words}; {}; {command}", variables()),
        may_detach,
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
    /// its output and the files that are left.
    fn ran(bundle: &RunnerBundle, program: &str, script: &str) -> (String, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        for file in &bundle.files {
            std::fs::write(dir.path().join(file.name), &file.content).unwrap();
        }
        std::fs::write(dir.path().join("runner"), script).unwrap();
        assert!(bundle.command.contains(program), "{}", bundle.command);
        let command = bundle.command.replace(program, "sh ./runner");
        let out = Command::new("sh").args(["-c", &command]).current_dir(dir.path()).output();
        let left = std::fs::read_dir(dir.path()).unwrap();
        let left = left.map(|file| file.unwrap().file_name().into_string().unwrap());
        (String::from_utf8(out.unwrap().stdout).unwrap(), left.collect())
    }

    // Invariant: no command line shows a secret, because everybody in a guest can read it.

    #[test]
    fn the_runner_has_its_configuration_by_a_variable_and_no_file_of_it_is_left() {
        let bundle = jit_bundle(&"c2VjcmV0".to_owned().into(), None, 1);
        assert_eq!(bundle.programs, [RUN_SCRIPT]);
        assert!(!bundle.command.contains("c2VjcmV0"));
        let script = "echo \"$ACTIONS_RUNNER_INPUT_JITCONFIG $#\"";
        assert_eq!(
            ran(&bundle, RUN_SCRIPT, script),
            ("c2VjcmV0 0\n".into(), vec!["runner".into()])
        );
        let own = jit_bundle(&"c2VjcmV0".to_owned().into(), Some("exec ./mine.sh --once"), 2);
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
            let bundle = jit_bundle(&name.to_owned().into(), None, 2);
            assert_eq!(bundle.programs, [RUN_SCRIPT]);
            std::fs::write(folder.join(bundle.files[0].name), &bundle.files[0].content).unwrap();
            let command = bundle.command.replace("/opt/actions-runner", image.to_str().unwrap());
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
        let bundle = jit_bundle_windows(&"c2VjcmV0".to_owned().into(), None);
        assert_eq!((bundle.command.as_str(), bundle.may_detach), (RUN_SCRIPT_WINDOWS, false));
        assert_eq!(bundle.programs, [RUN_SCRIPT_WINDOWS]);
        let [file] = &bundle.files[..] else { panic!("{}", bundle.files.len()) };
        assert_eq!(file.name, "env.json");
        let said: serde_json::Value = serde_json::from_slice(&file.content).unwrap();
        let wanted = serde_json::json!({JIT_VARIABLE: "c2VjcmV0", DEPRECATED_EXIT_VARIABLE: "1"});
        assert_eq!(said, wanted);
        let own = jit_bundle_windows(&"x".to_owned().into(), Some("call D:\\mine.cmd"));
        assert_eq!((own.command.as_str(), own.may_detach), ("call D:\\mine.cmd", true));
    }

    // Invariant: a runner whose version GitHub refuses exits with a status of its own, and a runner
    // whose login user is root runs.

    #[test]
    fn the_runner_is_reported_to_say_that_it_is_too_old_and_that_it_may_be_roots() {
        let bundle = jit_bundle(&"c2VjcmV0".to_owned().into(), None, 1);
        let script = format!("echo \"${DEPRECATED_EXIT_VARIABLE} ${ROOT_VARIABLE}\"");
        assert_eq!(ran(&bundle, RUN_SCRIPT, &script).0, "1 1\n");
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
        let request = RegisterRequest { runner: &name, spec: &spec, want: &want, target: &target };
        let bundle =
            token_bundle("https://github.com/o/r", &"AREG".to_owned().into(), request, None);
        assert_eq!(bundle.programs, [RUN_ONCE_SCRIPT]);
        assert!(!bundle.command.contains("AREG"));
        let (said, _) = ran(&bundle, RUN_ONCE_SCRIPT, "printf '%s\\n' \"$@\"");
        assert_eq!(said, "https://github.com/o/r\nAREG\nit's,linux,x64\ndrover-a-b\n");
    }
}
