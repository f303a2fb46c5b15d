//! The forms of what lists print, and which rows they print.

use drover_model::fact::What;
use drover_model::phase::{AgentPhase, LeasePhase};

use super::super::*;
use drover_server::testing::{self, Served, empty_template, reported};

/// Runs a command line; gives what it printed, or why it did not.
async fn cli(served: &Served, line: &str) -> String {
    let cli = Cli::try_parse_from(["drover"].into_iter().chain(line.split(' '))).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let global = Global { socket: Some(served.socket.clone()), ..cli.global }.settled();
    let screen = Screen { output: global.output(), ..Screen::default() };
    let mut term = Term { screen, ..Term::new(&mut out, &mut err) };
    match remote::run(&global, cli.command, &mut term).await {
        Ok(_) => String::from_utf8(out).unwrap(),
        Err(fault) => format!("{}: {}\n", fault.exit_code(), chain(&fault)),
    }
}

fn furnish(served: &Served) {
    let What::Template(mut template) = empty_template() else { panic!("no template") };
    template.labels = vec!["linux".into()];
    reported(&served.view, What::Template(template));
    for (id, state) in
        [("a1", AgentPhase::Leased), ("a2", AgentPhase::Ready), ("a3", AgentPhase::Ready)]
    {
        reported(&served.view, What::Agent(std::sync::Arc::new(testing::agent(id, state))));
    }
    let lease = testing::lease("x", LeasePhase::Ready, Some("a1"), "");
    reported(&served.view, What::Lease(Box::new(lease)));
}

// Invariant: JSON, YAML and names hold the same rows as the table, in the same order.

#[tokio::test]
async fn filters_and_sorting_hold_for_every_form() {
    let served = Served::default();
    furnish(&served);
    let names = async |line: &str| cli(&served, &format!("{line} -o name")).await;
    assert_eq!(names("agents").await, "a1\na2\na3\n");
    assert_eq!(names("agents --filter state=ready").await, "a2\na3\n");
    assert_eq!(names("agents --filter state=ready --sort -id").await, "a3\na2\n");
    assert_eq!(names("agents --filter template=linux --filter lease=x").await, "");
    assert_eq!(names("agents --filter label=linux").await, "a1\na2\na3\n");
    assert_eq!(names("agents --filter label=windows").await, "");
    assert_eq!(names("leases --filter agent=a1").await, "x\n");
    let json = cli(&served, "agents --filter state=Ready --sort -id --output json").await;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let ids: Vec<&str> =
        json["agents"].as_array().unwrap().iter().filter_map(|one| one["id"].as_str()).collect();
    assert_eq!(ids, ["a3", "a2"]);
    let yaml = cli(&served, "agents --filter state=Ready --sort -id -o yaml").await;
    assert!(yaml.starts_with("---\nagents:\n- id: a3\n"), "{yaml}");
    assert_eq!(serde_yaml::from_str::<serde_json::Value>(&yaml).unwrap(), json);
    let table = cli(&served, "agents --filter state=Ready --sort -id").await;
    let rows: Vec<&str> = table.lines().map(|line| &line[..2]).collect();
    assert_eq!(rows, ["ID", "a3", "a2"]);
    served.stop().await;
}

#[tokio::test]
async fn a_column_that_a_list_does_not_have_is_refused_with_those_it_has() {
    let served = Served::default();
    furnish(&served);
    assert_eq!(
        cli(&served, "agents --sort stat").await,
        "2: this list has no column `stat`; did you mean `state`? it has id, template, state, changed, \
         vmid, node, login, leases, detail\n"
    );
    assert_eq!(
        cli(&served, "leases --filter label=linux").await,
        "2: this list has no column `label`; it has id, state, wants, agent, principal, owner, asked, \
         expires, detail\n"
    );
    served.stop().await;
}

#[tokio::test]
async fn one_lease_or_agent_prints_its_whole_id_as_its_name() {
    let served = Served::default();
    furnish(&served);
    assert_eq!(cli(&served, "show lease x -o name").await, "x\n");
    assert_eq!(cli(&served, "show agent a2 -o name").await, "a2\n");
    assert!(cli(&served, "show lease y -o name").await.starts_with("1: unknown lease `y`"));
    served.stop().await;
}

#[test]
fn names_are_printed_of_what_has_one_and_refused_elsewhere() {
    let checked = |line: &str| {
        let cli = Cli::try_parse_from(["drover"].into_iter().chain(line.split(' '))).unwrap();
        let command = remote::plain(cli.command);
        lists::check(cli.global.output(), &command).map_err(|fault| fault.to_string())
    };
    for line in ["lease --labels linux -o name", "get lease x -o name", "leases -o name"] {
        assert_eq!(checked(line), Ok(()), "{line}");
    }
    assert_eq!(
        checked("lease --labels linux -o name -- true").unwrap_err(),
        "`--output name` prints the id of a lease that is kept, and with a command none is: leave out the \
         command, or `--output name`"
    );
    for line in ["lease release x -o name", "show node n -o name", "status -o name"] {
        assert!(checked(line).unwrap_err().contains("such as `drover agents`"), "{line}");
    }
}

// Invariant: every answer that scripts may have as JSON they may have as YAML.

#[tokio::test]
async fn answers_of_commands_are_yaml_where_that_is_asked_for() {
    let served = Served::default();
    furnish(&served);
    let yaml = cli(&served, "release x -o yaml").await;
    assert_eq!(yaml, "---\nreleased: x\n");
    let yaml = cli(&served, "retire a2 -o yaml").await;
    assert_eq!(yaml, "---\nretiring: a2\n");
    served.stop().await;
}
