//! What drover sends Jenkins, and how it reads Jenkins' answers, without a server.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use drover_model::gate::Gate;
use std::collections::BTreeSet;

use drover_model::id::{RunnerName, TemplateId};
use drover_model::labels::LabelExpression;
use drover_model::os::{LoginShell, Os};
use drover_model::ports::{ShellTarget, Shut};
use drover_model::record::Want;
use drover_model::spec::{JavaSpec, TemplateSpec};
use proxmox_client::Tls;
use serde_json::{Value, json};

use super::*;
use crate::Route;
use crate::connector::tests::started_for;
use crate::finding::Severity;

const NAME: &str = "drover-7k2m9qxw-4f8z1c3px9t2vkab";

fn labels(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn set(text: &str) -> Want {
    Want::Labels(labels(text))
}

fn jenkins(launch: Launch) -> Jenkins {
    let url = "https://ci.lan/jenkins".parse().unwrap();
    let http = Http::new(&url, &Tls::System, &Route::Direct, Gate::default()).unwrap();
    Jenkins::new(http, &Settings { username: "drover".into(), secret: "x".into(), launch })
}

fn spec() -> TemplateSpec {
    let id = TemplateId::new(drover_model::id::CloudId::new("lab"), "linux");
    let mut spec = TemplateSpec::bare(id, drover_model::id::VmId(9000));
    spec.labels = labels("linux x64");
    spec.remote_fs = "/home/ci/it's <here>".into();
    spec.java.path = "/opt/my java/bin/java".into();
    spec.java.options = "-Xmx512m -Dcolour=\"dark & <blue>\"".into();
    spec.executors = 2;
    spec
}

fn target() -> ShellTarget {
    let host_keys = vec!["ssh-ed25519 AAAAC3Nz".to_owned()];
    ShellTarget { address: "10.0.0.9".parse().unwrap(), ssh: spec().ssh, os: Os::Linux, host_keys }
}

/// The node and the bundle of a request, as `register_node` makes them.
fn made(launch: Launch, spec: &TemplateSpec, want: &Want) -> (String, String, RunnerBundle) {
    let (jenkins, runner) = (jenkins(launch), RunnerName::new(NAME));
    let target = ShellTarget { os: spec.os, ..target() };
    let request = RegisterRequest { runner: &runner, spec, want, target: &target };
    let address = target.address.to_string();
    let node = jenkins.node(request, &address).unwrap();
    let bundle = jenkins.inbound(spec.os, &node, "ab".repeat(32), Bytes::from_static(b"PK"));
    (node.xml(), node.form(), bundle)
}

// Invariant: a node is made as its template says, and no name or option breaks out of its place.

#[test]
fn a_node_is_made_as_its_template_says_and_everything_in_it_is_escaped() {
    let (xml, form, bundle) = made(Launch::WebSocket, &spec(), &set("linux gpu"));
    insta::assert_snapshot!(xml.replace("><", ">\n<"));
    assert!(form.starts_with("name=drover%2D7k2m9qxw%2D4f8z1c3px9t2vkab&type=hudson%2Eslaves"));
    insta::assert_snapshot!(bundle.command);
    assert_eq!(bundle.programs, ["/opt/my java/bin/java"]);
    assert!(!bundle.command.contains(&"ab".repeat(32)), "everybody in the guest sees commands");
    let names: Vec<&str> = bundle.files.iter().map(|file| file.name).collect();
    assert_eq!(names, ["agent.jar", "secret"]);
}

#[test]
fn a_node_has_no_more_executors_than_its_template_has_uses() {
    let once = TemplateSpec { max_uses: Some(1), ..spec() };
    assert!(made(Launch::WebSocket, &once, &set("linux")).0.contains("<numExecutors>1<"));
    let often = TemplateSpec { max_uses: Some(9), ..spec() };
    assert!(made(Launch::WebSocket, &often, &set("linux")).0.contains("<numExecutors>2<"));
}

#[test]
fn jenkins_own_ssh_launcher_pins_the_key_that_drover_knows() {
    let (xml, ..) = made(Launch::Ssh("agents".into()), &spec(), &set("linux"));
    insta::assert_snapshot!(xml.replace("><", ">\n<"));
    let (xml, _, bundle) = made(Launch::InboundTcp, &spec(), &set("linux"));
    assert!(xml.contains("<webSocket>false</webSocket>"));
    assert!(!bundle.command.contains("-webSocket"));
}

// Invariant: an agent of Windows is started by a line of `cmd.exe`, whatever its login shell is.

#[test]
fn an_agent_of_windows_is_started_by_a_line_of_cmd() {
    let windows = |shell| TemplateSpec {
        os: Os::Windows(shell),
        remote_fs: r"C:\my agents\ci".into(),
        java: JavaSpec { path: r"C:\Java\bin\java.exe".into(), ..spec().java },
        ..spec()
    };
    let (.., bundle) = made(Launch::WebSocket, &windows(LoginShell::Auto), &set("linux"));
    assert_eq!(
        bundle.command,
        "C:\\Java\\bin\\java.exe -Xmx512m -Dcolour=\"dark & <blue>\" -jar agent.jar -url \
         https://ci.lan/jenkins/ -secret @secret -name drover-7k2m9qxw-4f8z1c3px9t2vkab -webSocket \
         -noReconnect -workDir \"C:\\my agents\\ci\""
    );
    let ssh = |shell| made(Launch::Ssh("agents".into()), &windows(shell), &set("linux"));
    let (xml, form, _) = ssh(LoginShell::Powershell);
    let around = "<prefixStartSlaveCmd>cmd /c &apos;</prefixStartSlaveCmd>\
                  <suffixStartSlaveCmd>&apos;</suffixStartSlaveCmd></launcher>";
    assert!(xml.contains(around), "{xml}");
    assert!(form.contains("prefixStartSlaveCmd%22%3A%22cmd%20%2Fc%20%27%22"), "{form}");
    assert!(!ssh(LoginShell::Cmd).0.contains("StartSlaveCmd"));
}

// Invariant: a build says the size of its machine by a label or an expression, and its node has it.

#[test]
fn a_build_names_a_size_by_a_label_or_an_expression_that_its_node_offers() {
    for (text, cores, offered) in [
        ("linux&&cpu=8", 8, "<label>cpu=8 linux</label>"),
        ("linux && (cpu=8 || cpu=4)", 4, "<label>cpu=4 linux</label>"),
        ("linux&&!cpu=8", 2, "<label>linux</label>"),
    ] {
        let want = why::want(text).unwrap();
        let spec = started_for(&want);
        assert_eq!(spec.cores, Some(cores), "{text}");
        let (xml, ..) = made(Launch::WebSocket, &spec, &want);
        assert!(xml.contains(offered), "{text}: {xml}");
        assert_eq!(node::made_for(&node::description(&want)), Some(want), "{text}");
    }
}

#[test]
fn what_a_node_was_made_for_is_read_back_from_its_description() {
    let either = LabelExpression::parse("linux && (x64 || \"a b\")").unwrap();
    for want in [set(""), set("linux"), set("linux x64"), Want::Expression(either)] {
        assert_eq!(node::made_for(&node::description(&want)), Some(want));
    }
    let blanks = Want::Labels(["a b".to_owned()].into());
    assert_eq!(node::made_for(&node::description(&blanks)), Some(blanks));
    assert_eq!(node::made_for("the Jenkins controller's built-in node"), None);
}

// Invariant: of the queue, only builds count that wait for a node and nothing else, and the demand
// of a build stays the same while it waits.

fn computer(name: &str, more: Value) -> Value {
    let mut all = json!({
        "_class": "hudson.slaves.SlaveComputer", "displayName": name, "offline": false,
        "temporarilyOffline": false, "offlineCause": null, "offlineCauseReason": "",
        "assignedLabels": [{"name": name}], "executors": [{"idle": true}], "description": "",
    });
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

fn nodes(all: &[Value]) -> Nodes {
    let own = json!({
        "_class": "hudson.model.Hudson$MasterComputer", "displayName": "Built-In Node",
        "executors": [],
    });
    let all: Vec<Value> = std::iter::once(own).chain(all.iter().cloned()).collect();
    serde_json::from_value(json!({ "computer": all })).unwrap()
}

fn item(id: u64, why: &str) -> Value {
    json!({"id": id, "why": why, "buildable": true, "inQueueSince": 5, "task": {"name": "app"}})
}

fn read(memory: &mut QueueMemory, nodes: &Nodes, items: &[Value]) -> (Vec<Want>, usize, bool) {
    let queue = serde_json::from_value(json!({ "items": items })).unwrap();
    let waiting = memory.read(queue, nodes);
    let wants = waiting.jobs.into_iter().map(|job| job.want).collect();
    (wants, waiting.unread.len(), waiting.names_no_label)
}

#[test]
fn builds_that_wait_for_something_else_than_a_node_want_none() {
    let mut held = item(1, "Build #3 is already in progress");
    held["buildable"] = json!(false);
    held["blocked"] = json!(true);
    let mut going = item(2, "Finished waiting");
    going["pending"] = json!(true);
    let mut stuck = item(3, "There are no nodes with the label ‘linux’");
    stuck["stuck"] = json!(true);
    stuck["buildableStartMilliseconds"] = json!(77);
    let quiet = json!({"id": 4, "why": "In the quiet period. Expires in 4 sec", "task": {}});
    let odd = json!({"id": 5, "buildable": true, "why": null, "task": {}});
    let items = [held, going, stuck.clone(), quiet, odd];
    let mut memory = QueueMemory::default();
    let all = read(&mut memory, &nodes(&[]), &items);
    assert_eq!(all, (vec![set("linux")], 1, false));
    let queue = serde_json::from_value(json!({ "items": [stuck] })).unwrap();
    let job = memory.read(queue, &nodes(&[])).jobs.remove(0);
    assert_eq!((job.id.as_str(), job.name.as_str(), job.since.0), ("3", "app", 77));
}

#[test]
fn a_build_wants_the_same_when_jenkins_names_the_only_node_instead_of_the_label() {
    let mut memory = QueueMemory::default();
    let none = nodes(&[]);
    let first = item(1, "There are no nodes with the label ‘linux’");
    assert_eq!(read(&mut memory, &none, &[first]).0, [set("linux")]);
    let made = json!({
        "description": node::description(&set("linux")), "offline": true,
        "assignedLabels": [{"name": "linux"}, {"name": "x64"}, {"name": NAME}],
    });
    let one = nodes(&[computer(NAME, made.clone())]);
    let offline = format!("‘{NAME}’ is offline");
    let both = [item(1, &offline), item(2, &offline)];
    assert_eq!(read(&mut memory, &one, &both).0, [set("linux"), set("linux")]);
    // After a restart nothing is remembered: the node says what it was made for.
    assert_eq!(read(&mut QueueMemory::default(), &one, &both[..1]).0, [set("linux")]);
    // A build does not wait for a node that is taken, but for another such node.
    let mut taken = made;
    taken["offline"] = json!(false);
    taken["executors"] = json!([{"idle": false, "currentExecutable": {"url": "u", "number": 1}}]);
    let busy = nodes(&[computer(NAME, taken)]);
    let waits = item(3, &format!("Waiting for next available executor on ‘{NAME}’"));
    assert_eq!(read(&mut memory, &busy, &[waits]).0, [set("linux x64")]);
}

#[test]
fn nodes_of_others_are_no_labels_and_jobs_that_say_their_label_are_believed() {
    let others = nodes(&[computer("mac-1", json!({}))]);
    let waits = item(1, "Waiting for next available executor on ‘mac-1’");
    let label = item(2, "Waiting for next available executor on ‘mac’");
    let gone = item(3, "‘mac-2’ is offline");
    let mut memory = QueueMemory::default();
    let all = read(&mut memory, &others, &[waits.clone(), label, gone]);
    assert_eq!(all, (vec![set("mac")], 2, false));
    let mut reported = waits;
    reported["task"]["labelExpression"] = json!("linux||mac");
    let either = Want::Expression(LabelExpression::parse("linux||mac").unwrap());
    assert_eq!(read(&mut memory, &others, &[reported]).0, [either]);
}

#[test]
fn without_a_node_jenkins_names_no_label_and_with_one_it_means_builds_without() {
    let plain = [item(1, "Waiting for next available executor")];
    assert_eq!(read(&mut QueueMemory::default(), &nodes(&[]), &plain), (vec![], 1, true));
    let queue = serde_json::from_value(json!({ "items": plain })).unwrap();
    let unread = QueueMemory::default().read(queue, &nodes(&[])).unread.remove(0);
    assert_eq!((unread.id.as_str(), unread.name.as_str(), unread.since.0), ("1", "app", 5));
    let ensure_labels_node = nodes(&[computer(LABELS_NODE, json!({"offline": true}))]);
    assert_eq!(
        read(&mut QueueMemory::default(), &ensure_labels_node, &plain),
        (vec![set("")], 0, false)
    );
}

// Invariant: a row says whether its node takes builds, and who decided that.

#[test]
fn rows_are_drovers_nodes_and_say_who_took_them_off() {
    let row = |more: Value| nodes(&[computer(NAME, more)]).computer[1].row().unwrap();
    assert!(nodes(&[computer("drover-1", json!({}))]).computer[1].row().is_none());
    let plain = row(json!({}));
    assert!(plain.online && plain.jobs == 0 && plain.node.shut == Shut::Open);
    let build =
        json!({"idle": false, "currentExecutable": {"url": "https://ci/job/a/", "number": 3}});
    let names_no_label = json!({"idle": false, "currentExecutable": {}});
    let busy = row(json!({"executors": [build, names_no_label, {"idle": true}]}));
    assert_eq!((busy.jobs, busy.job.as_deref()), (2, Some("https://ci/job/a/")));
    assert_eq!(busy.node.running, ["https://ci/job/a/#3".to_owned()].into());
    let off = |reason: &str, class: &str| {
        row(json!({"offline": true, "temporarilyOffline": true, "offlineCauseReason": reason,
            "offlineCause": {"_class": class}}))
    };
    let user = "hudson.slaves.OfflineCause$UserCause";
    let own = off(&format!("Disconnected by drover : {CORDON_REASON}"), user);
    assert!(own.online && own.node.shut == Shut::Quiet);
    assert_eq!(off("Disconnected by ann : disk", user).node.shut, Shut::Person);
    let cause = json!({ "description": format!("Disconnected by drover : {CORDON_REASON}") });
    let hudsons = row(json!({"offline": true, "temporarilyOffline": true, "offlineCause": cause}));
    assert_eq!(hudsons.node.shut, Shut::Quiet);
    let full =
        off("Disk space is too low", "hudson.node_monitors.DiskSpaceMonitorDescriptor$DiskSpace");
    assert_eq!(full.node.shut, Shut::Unfit("Disk space is too low".into()));
    let lost = row(json!({"offline": true, "offlineCauseReason": "Connection\nwas broken"}));
    assert_eq!((lost.online, lost.node.reason.as_deref()), (false, Some("Connection was broken")));
}

// Invariant: an old version is named as the reason only where it is the reason.

#[test]
fn a_version_that_makes_nodes_by_its_form_alone_is_reported_from_all_others() {
    let versions = ["2.538", "2.528.3", "1.651", "2.539", "2.541.1", "2.579", "3.0", "2", "dev"];
    let older = versions.map(is_older);
    assert_eq!(older, [true, true, true, false, false, false, false, false, false]);
}

#[test]
fn an_agent_that_does_not_know_drovers_options_is_reported_where_agents_connect() {
    let mark = |version, launch: &Launch| checks::version(Some(version), launch).severity;
    for version in ["2.426.3", "2.428"] {
        assert_eq!(mark(version, &Launch::WebSocket), Severity::Fail);
        assert_eq!(mark(version, &Launch::InboundTcp), Severity::Fail);
        assert_eq!(mark(version, &Launch::Ssh("agents".into())), Severity::Warn);
    }
    for version in ["2.429", "2.440.1"] {
        assert_eq!(mark(version, &Launch::WebSocket), Severity::Warn);
    }
    assert_eq!(mark("2.541.1", &Launch::WebSocket), Severity::Ok);
}

#[test]
fn a_login_that_lacks_the_right_is_reported_which_and_no_version_is_named_that_was_not_reported() {
    let jenkins = jenkins(Launch::WebSocket);
    let status =
        |status| DemandError::Status { call: "POST /x".into(), status, text: String::new() };
    let reported = |error, by_form| jenkins.explained(error, by_form).to_string();
    assert_eq!(reported(status(403), true), "POST /x: 403: the login needs `Agent/Create`");
    assert_eq!(reported(status(400), true), "POST /x: 400");
    assert_eq!(reported(DemandError::Paused("later".into()), false), "later");
}
