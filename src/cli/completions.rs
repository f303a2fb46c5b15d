//! `drover completions`: completions for a shell. Commands and options come from their definitions. Ids and
//! names come from the service, at every TAB (`candidates.rs`).
//!
//! clap_complete makes the scripts, and each gets a function that asks drover. Its own engine for
//! candidates that a program gives is unstable (`unstable-dynamic`).
//!
//! For fish, clap_complete gives two levels of commands: `drover machine snapshot create` has its name
//! there, and not its options.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;
use serde_json::json;

use super::candidates;
use super::global::Global;
use super::options::{Cli, CompletedShell};
use super::stdout::{put, put_value};

/// Prints the completions for a shell.
pub(super) fn print(global: &Global, shell: CompletedShell) -> ExitCode {
    let script = script(shell);
    if global.json {
        return put_value(global.output(), &json!({ "script": script }), ExitCode::SUCCESS);
    }
    put(false, &script, ExitCode::SUCCESS)
}

/// In place of what clap_complete has for the word, where drover knows ids or names for it.
const BASH: &str = r#"_drover_asks() {
    _drover "$@"
    local cur="${COMP_WORDS[COMP_CWORD]}" found
    if [[ "${cur}" == -* ]]; then
        return 0
    fi
    if [[ "${cur}" == "=" ]]; then
        cur=""
    fi
    found="$("${COMP_WORDS[0]}" ASK "${COMP_WORDS[@]:0:COMP_CWORD}" 2>/dev/null)"
    if [[ -n "${found}" ]]; then
        COMPREPLY=( $(compgen -W "${found}" -- "${cur}") )
    fi
    return 0
}

"#;
/// For what clap_complete completes as zsh does by default.
const ZSH: &str = r#"_drover_asks() {
    local -a found
    found=(${(f)"$("${drover_words[@]:0:1}" ASK "${drover_words[@]}" 2>/dev/null)"})
    if (( ${#found} )); then
        compadd "$@" -a found
    else
        _default "$@"
    fi
}

"#;
/// The words before the cursor: `_arguments` changes `words`.
const ZSH_WORDS: &str =
    "    local -a drover_words\n    drover_words=(\"${(@Q)words[1,CURRENT-1]}\")\n";
/// Beside what clap_complete has.
const FISH: &str = r#"function __fish_drover_asks
    set -l words (commandline -opc)
    $words[1] ASK $words 2>/dev/null
end
complete -c drover -n "not __fish_drover_needs_command" -a "(__fish_drover_asks)"
"#;

/// The script that a shell loads.
pub(super) fn script(shell: CompletedShell) -> String {
    match shell {
        CompletedShell::Bash => {
            let made = generated(Shell::Bash).replace("-F _drover ", "-F _drover_asks ");
            let end = made.rfind("if [[ \"${BASH_VERSINFO").unwrap_or(made.len());
            let (start, end) = made.split_at(end);
            format!("{start}{}{end}", asking(BASH))
        }
        CompletedShell::Zsh => {
            let made = generated(Shell::Zsh).replace(":_default'", ":_drover_asks'");
            let first = "_drover() {\n";
            made.replacen(first, &format!("{}{first}{ZSH_WORDS}", asking(ZSH)), 1)
        }
        CompletedShell::Fish => {
            let asks = |line: &str| match line.ends_with(" -r") {
                true => format!("{line} -a \"(__fish_drover_asks)\"\n"),
                false => format!("{line}\n"),
            };
            let made: String = generated(Shell::Fish).lines().map(asks).collect();
            made + &asking(FISH)
        }
    }
}

fn asking(function: &str) -> String {
    function.replace("ASK", candidates::WORD)
}

fn generated(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "drover", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: each shell asks drover for ids and names where clap_complete knows none.

    #[test]
    fn each_script_asks_for_ids_and_names() {
        let bash = script(CompletedShell::Bash);
        assert!(bash.contains("complete -F _drover_asks -o nosort"), "it completes otherwise");
        assert!(!bash.contains("-F _drover "), "a way around it is left");
        let zsh = script(CompletedShell::Zsh);
        assert!(zsh.contains("':agent -- The id of the agent, or the start of it:_drover_asks'"));
        assert!(!zsh.contains(":_default'") && zsh.contains("drover_words=("));
        let fish = script(CompletedShell::Fish);
        let options = fish.lines().filter(|line| line.contains(" -l template "));
        assert!(options.clone().count() > 0);
        assert!(options.into_iter().all(|line| line.ends_with("-r -a \"(__fish_drover_asks)\"")));
        for script in [bash, zsh, fish] {
            assert_eq!(script.matches(candidates::WORD).count(), 1, "one place asks");
        }
    }
}
