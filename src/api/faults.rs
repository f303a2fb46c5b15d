//! Faults of a configuration where there is one line for them.

/// The faults of a refused configuration in one line, each with its place: what is drawn of the file
/// itself is left out.
pub fn faults_in_one_line(refusal: &str) -> String {
    let mut faults: Vec<String> = Vec::new();
    for line in refusal.lines().map(str::trim) {
        if let Some(fault) = line.strip_prefix('×') {
            faults.push(fault.trim().to_owned());
        } else if let Some((_, place)) = line.split_once("╭─[")
            && let Some(fault) = faults.last_mut()
        {
            *fault += &format!(" ({})", place.trim_end_matches(']'));
        }
    }
    if faults.is_empty() {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        return match refusal.split_once("\n  help: ") {
            Some((what, help)) => format!("{}; {}", words(what), words(help)),
            None => words(refusal),
        };
    }
    faults.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a line for faults names each of them, and where it is.

    #[test]
    fn each_fault_stands_in_the_line_with_its_place() {
        let drawn = "  × agentConfigurations.linux.instanceCap: expected a whole number, found text\n    \
                     ╭─[/etc/drover/drover.yaml:32:18]\n 31 │     a: b\n 32 │     instanceCap: many\n    \
                     ·                  ──┬─\n    ╰────\n  help: write a number\n\n  × unknown key `clouds`\n    \
                     ╭─[/etc/drover/drover.yaml:40:1]\n";
        assert_eq!(
            faults_in_one_line(drawn),
            "agentConfigurations.linux.instanceCap: expected a whole number, found text \
             (/etc/drover/drover.yaml:32:18); unknown key `clouds` (/etc/drover/drover.yaml:40:1)"
        );
        assert_eq!(
            faults_in_one_line("drover.yaml:3:1\n  unknown key"),
            "drover.yaml:3:1 unknown key"
        );
    }
}
