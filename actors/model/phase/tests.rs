use super::*;

// Invariant: a word has one spelling, in text and in JSON, and it is the one that journals hold.

#[test]
fn every_word_reads_as_it_is_written() {
    fn both_ways<T>(all: &[T])
    where
        T: Copy + PartialEq + fmt::Debug + fmt::Display + FromStr<Err = UnknownWord>,
        T: serde::Serialize + for<'de> serde::Deserialize<'de>,
    {
        for one in all {
            assert_eq!(one.to_string().parse(), Ok(*one));
            let json = serde_json::to_string(one).expect("a word");
            assert_eq!(json, format!("\"{one}\""));
            assert_eq!(serde_json::from_str::<T>(&json).expect("the same word"), *one);
        }
    }
    both_ways(&AgentPhase::ALL);
    both_ways(&LeasePhase::ALL);
    both_ways(&BreakerPhase::ALL);
    both_ways(&CloudHealth::ALL);
    both_ways(&JobPhase::ALL);
    both_ways(&LoginPhase::ALL);
}

#[test]
fn the_words_are_those_of_older_journals_and_callers() {
    assert_eq!(
        AgentPhase::ALL.map(AgentPhase::name).join(" "),
        "Queued Cloning InDoubt Configuring Booting Connecting Preparing Ready Leased Draining \
         Resetting Held Retiring Stranded Gone"
    );
    assert_eq!(LeasePhase::ALL.map(LeasePhase::name).join(" "), "waiting granted ready ended");
    assert_eq!(BreakerPhase::ALL.map(BreakerPhase::name).join(" "), "flowing tripped probing");
    assert_eq!(CloudHealth::ALL.map(CloudHealth::name).join(" "), "connecting well degraded");
    assert_eq!(
        JobPhase::ALL.map(JobPhase::name).join(" "),
        "waiting running unserved unread ignored"
    );
}

// Invariant: an unknown word is an error that names it and the known ones, never a default.

#[test]
fn an_unknown_word_is_named_with_the_known_ones() {
    for word in ["Dreaming", "ready", "Ready ", ""] {
        let error = word.parse::<AgentPhase>().expect_err("no phase");
        let text = error.to_string();
        assert!(text.starts_with(&format!("unknown agent phase `{word}`; drover ")), "{text}");
        assert!(text.contains("knows Queued, Cloning, InDoubt, "), "{text}");
    }
    let error = serde_json::from_str::<LeasePhase>("\"lost\"").expect_err("no state");
    let text = error.to_string();
    assert!(text.starts_with("unknown lease state `lost`"), "{text}");
    assert!(text.contains("knows waiting, granted, ready, ended"), "{text}");
}

// Invariant: in maps the words are in the order of their names, as text would be.

#[test]
fn words_sort_as_text() {
    let mut phases = AgentPhase::ALL.to_vec();
    phases.sort();
    let mut names = AgentPhase::ALL.map(AgentPhase::name);
    names.sort_unstable();
    assert_eq!(phases.into_iter().map(AgentPhase::name).collect::<Vec<_>>(), names);
}

// Invariant: the questions agree with each other.

#[test]
fn what_runs_has_a_guest_and_what_leaves_is_not_alive() {
    for phase in AgentPhase::ALL {
        assert!(!phase.should_run() || phase.has_guest(), "{phase}");
        assert!(!phase.should_run() || phase.is_alive(), "{phase}");
        assert!(!(phase.is_alive() && phase.is_leaving()), "{phase}");
        assert!(!(phase.is_cloning() && phase.has_guest()), "{phase}");
        assert!(!phase.is_starting() || !phase.disk_is_shown(), "{phase}");
        assert!(!phase.takes_leases() || !phase.takes_no_more(), "{phase}");
    }
    assert_eq!(AgentPhase::of_part("Preparing: cloud-init"), Some(AgentPhase::Preparing));
    assert_eq!(AgentPhase::of_part("Gone"), Some(AgentPhase::Gone));
    assert_eq!(AgentPhase::of_part("Earlier"), None);
}
