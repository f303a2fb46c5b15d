//! A real Hudson 3.3.2, from which Jenkins was forked: its remote API is that of Jenkins' older versions,
//! which make nodes by form alone. It runs in Jetty; `tests/all` fetches both as artifacts of Maven.
//!
//! Anybody may do anything there, and it listens on every interface. So it has a network of its own, and is
//! reached by one socket of this machine's loopback, which it inherits as its standard input.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use drover_ci::SourceConnection;
use drover_ci::jenkins::{Launch, Settings};
use drover_ci::{Connector, RegisterRequest, Route, System, connector};
use drover_model::gate::Gate;
use drover_model::id::{CloudId, RunnerName, TemplateId, VmId};
use drover_model::ports::{Known, ShellTarget, Shut, SourceObservation};
use drover_model::record::Want;
use drover_model::spec::TemplateSpec;
use proxmox_client::Tls;
use serde_json::{Value, json};

use crate::harness::{Events, Kept, Lines, Service, Sim, Site, WAIT_LIMIT, note, world};

/// All that it starts ends with it.
const CAGE: [&str; 9] = [
    "bwrap",
    "--die-with-parent",
    "--unshare-user",
    "--unshare-pid",
    "--dev-bind",
    "/",
    "/",
    "--proc",
    "/proc",
];
const NETWORK: &str = "--unshare-net";

/// What it reaches into, as Java up to 8 let everybody.
const OPENED: [(&str, &[&str]); 2] = [
    (
        "java.base",
        &[
            "java.io",
            "java.lang",
            "java.lang.ref",
            "java.lang.reflect",
            "java.math",
            "java.net",
            "java.nio",
            "java.security",
            "java.text",
            "java.util",
            "java.util.concurrent",
            "java.util.concurrent.atomic",
            "java.util.concurrent.locks",
            "java.util.regex",
            "sun.nio.ch",
        ],
    ),
    ("java.desktop", &["java.awt", "java.awt.font", "javax.swing"]),
];

/// It takes Java 17 for older than 7, and asks outside for plugins unless a proxy is in its way.
const OPTIONS: [&str; 11] = [
    "-Xmx512m",
    "-Djava.version=1.8.0_300",
    "-Djava.awt.headless=true",
    "-DskipInitSetup=true",
    "-Dhudson.model.UpdateCenter.never=true",
    "-Dhudson.DNSMultiCast.disabled=true",
    "-Dhudson.TcpSlaveAgentListener.hostName=127.0.0.1",
    "-Dhttp.proxyHost=127.0.0.1",
    "-Dhttp.proxyPort=9",
    "-Dhttp.nonProxyHosts=127.0.0.1|localhost",
    "-jar",
];

const HEAD: &str = "<?xml version=\"1.0\"?>\n<!DOCTYPE Configure PUBLIC \"-//Jetty//Configure//EN\" \
                    \"https://www.eclipse.org/jetty/configure_9_3.dtd\">\n";

/// Its settings where its port for agents is closed.
const CLOSED: &str =
    "<hudsonSecurityManager><slaveAgentPort>-1</slaveAgentPort></hudsonSecurityManager>";

/// A Hudson of its own for one test.
struct Hudson {
    url: String,
    /// Whether it has a network of its own, and so a port for agents.
    alone: bool,
    _child: Kept,
    /// What it says is read for as long as it lives.
    _said: Lines,
    _dir: tempfile::TempDir,
}

impl Hudson {
    /// Starts one; `tests/all` has fetched it.
    fn start() -> Self {
        let folder = std::env::var_os("DROVER_TEST_HUDSON").map(PathBuf::from);
        let folder =
            folder.unwrap_or_else(|| panic!("DROVER_TEST_HUDSON is not set: run tests/all"));
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        fs::create_dir(&home).unwrap();
        let refusal = network_refused();
        if let Some(refusal) = &refusal {
            note(&format!("Hudson has no network of its own, and no port for agents: {refusal}"));
            fs::write(home.join("hudson-security.xml"), CLOSED).unwrap();
        }
        let alone = refusal.is_none();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let [server, context] = ["server.xml", "context.xml"].map(|name| dir.path().join(name));
        fs::write(&server, server_xml(alone.then_some(port))).unwrap();
        fs::write(&context, context_xml(dir.path(), &folder)).unwrap();

        let mut command = Command::new(CAGE[0]);
        command.args(&CAGE[1..]).args(alone.then_some(NETWORK)).arg("java");
        for (module, packages) in OPENED {
            for package in packages {
                command.args(["--add-opens", &format!("{module}/{package}=ALL-UNNAMED")]);
            }
        }
        command.arg(format!("-DHUDSON_HOME={}", home.display()));
        command.arg(format!("-Djava.io.tmpdir={}", dir.path().display()));
        command.args(OPTIONS).arg(folder.join("jetty-runner.jar"));
        command.arg("--config").arg(server).arg(context);
        // Hudson has the agent under another name (`jnlpJars/slave.jar`).
        command.args(["--path", "/jnlpJars"]).arg(folder.join("agent"));
        command.stdin(Stdio::from(OwnedFd::from(listener))).stdout(Stdio::null());
        let mut child = Kept(command.stderr(Stdio::piped()).spawn().unwrap());
        let mut said = Lines::of("hudson", child.0.stderr.take().unwrap());
        said.until(|line| line.contains("Hudson is ready"));
        let url = format!("http://127.0.0.1:{port}/");
        Self { url, alone, _child: child, _said: said, _dir: dir }
    }

    fn curl(&self, options: &[&str], path: &str) -> Vec<u8> {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--globoff", "--noproxy", "*", "--max-time", "60"]).args(options);
        let out = curl.arg(format!("{}{path}", self.url)).output().unwrap();
        assert!(out.status.success(), "{path}: {out:?}");
        out.stdout
    }

    /// The JSON it answers with; null for anything else.
    fn read(&self, path: &str) -> Value {
        serde_json::from_slice(&self.curl(&[], path)).unwrap_or(Value::Null)
    }

    /// Reads until something is so: it has no way to wait for it.
    fn until(&self, what: &str, path: &str, is: impl Fn(&Value) -> bool) {
        let end = Instant::now() + WAIT_LIMIT;
        loop {
            let answer = self.read(path);
            if is(&answer) {
                return;
            }
            assert!(Instant::now() < end, "{what} did not come: {answer}");
        }
    }

    /// A build of a new job waits for this label from now on.
    fn queue(&self, name: &str, label: &str, run: &str) {
        let job = format!(
            "<project><assignedNode>{label}</assignedNode><canRoam>false</canRoam><builders>\
             <hudson.tasks.Shell><command>{run}</command></hudson.tasks.Shell></builders></project>"
        );
        let xml = ["-f", "-H", "Content-Type: application/xml", "-d"];
        self.curl(&[&xml[..], &[job.as_str()]].concat(), &format!("createItem?name={name}"));
        self.curl(&["-f", "-d", ""], &format!("job/{name}/build?delay=0sec"));
    }

    /// The names of its nodes but for its own.
    fn nodes(&self) -> Vec<String> {
        let all = self.read("computer/api/json?tree=computer[displayName]");
        let all = all["computer"].as_array().unwrap().iter();
        let names = all.map(|node| node["displayName"].as_str().unwrap().to_owned());
        names.filter(|name| name != "master").collect()
    }

    /// Drover's own way to it.
    fn connector(&self, launch: Launch) -> Arc<dyn Connector> {
        let (username, secret) = ("drover".to_owned(), "a token of tests".into());
        let connection = SourceConnection {
            url: self.url.parse().unwrap(),
            tls: Tls::System,
            route: Route::Direct,
            system: System::Jenkins(Settings { username, secret, launch }),
            command: None,
            webhook: None,
        };
        connector(&connection, Gate::default()).unwrap()
    }

    /// A site with it as its source `ci`, whose guests have the tests' own stand-in for `java`.
    fn source(&self, site: &Site, sim: &Sim, folder: &Path) {
        site.write_secret("hudson", "a token of tests");
        let dir = site.dir.path().display();
        let login = format!("kind: apiLogin, username: drover, secretFile: \"{dir}/hudson\"");
        let credential = format!("credentials:\n  ci: {{{login}}}\n");
        let yaml = site.yaml(sim, "").replace("credentials:\n", &credential);
        let agent = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/hudson_agent.py");
        let upload = format!("upload: {{from: \"{agent}\", to: agent.py, mode: \"0755\"}}");
        let java = "    javaPath: /home/debian/agent.py\n";
        let template =
            format!("    prepare: [{{{upload}}}]\n{java}    remoteFs: {}\n", folder.display());
        let url = &self.url;
        let source = format!("kind: jenkins, url: \"{url}\", credentialsId: ci, pollSeconds: 1");
        site.write_yaml(&format!(
            "{yaml}{template}demand:\n  ci: {{{source}, launch: inboundTcp}}\n"
        ));
    }
}

/// What keeps it from a network of its own; none where nothing does.
fn network_refused() -> Option<String> {
    let tried = Command::new(CAGE[0]).args(&CAGE[1..]).args([NETWORK, "true"]).output().unwrap();
    let said = String::from_utf8_lossy(&tried.stderr).trim().to_owned();
    (!tried.status.success()).then_some(said)
}

/// It is served on the socket that it inherits, and in its own network on a port as well, for agents there.
fn server_xml(port: Option<u16>) -> String {
    let connector = |keys: &str| {
        format!(
            "<Call name=\"addConnector\"><Arg><New class=\"org.eclipse.jetty.server.ServerConnector\">\
             <Arg><Ref refid=\"Server\"/></Arg>{keys}</New></Arg></Call>\n"
        )
    };
    let inherited = connector("<Set name=\"inheritChannel\">true</Set>");
    let own = port.map(|port| {
        let keys = "<Set name=\"host\">127.0.0.1</Set><Set name=\"port\">";
        connector(&format!("{keys}{port}</Set>"))
    });
    format!(
        "{HEAD}<Configure id=\"Server\" class=\"org.eclipse.jetty.server.Server\">\n\
         {inherited}{}</Configure>\n",
        own.unwrap_or_default()
    )
}

/// Hudson wants a realm, which knows nobody.
fn context_xml(dir: &Path, folder: &Path) -> String {
    let realm = dir.join("realm.properties");
    fs::write(&realm, "").unwrap();
    format!(
        "{HEAD}<Configure class=\"org.eclipse.jetty.webapp.WebAppContext\">\n\
         <Set name=\"contextPath\">/</Set><Set name=\"war\">{}/hudson-war.war</Set>\n\
         <Get name=\"securityHandler\"><Set name=\"loginService\">\
         <New class=\"org.eclipse.jetty.security.HashLoginService\">\
         <Set name=\"name\">default</Set><Set name=\"config\">{}</Set></New></Set></Get>\n\
         </Configure>\n",
        folder.display(),
        realm.display()
    )
}

fn block<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

const NODE: &str = "drover-7k2m9qxw-4f8z1c3px9t2vkab";

fn template() -> TemplateSpec {
    let id = TemplateId::new(CloudId::new("lab"), "linux");
    let mut spec = TemplateSpec::bare(id, VmId(9000));
    spec.labels = ["linux".to_owned(), "x64".to_owned()].into();
    spec.remote_fs = "/home/ci".into();
    spec
}

/// Of the one row: whether it is connected, its jobs, and what keeps it from jobs.
fn row(observation: &SourceObservation) -> (bool, u32, Shut) {
    assert_eq!(observation.rows.len(), 1, "{observation:?}");
    let row = &observation.rows[0];
    (row.online, row.jobs, row.node.shut.clone())
}

// Invariant: a real server takes what drover sends it, and says what drover reads in it.

#[test]
fn a_real_hudson_takes_the_form_of_a_node_and_every_call_of_its_life() {
    let hudson = Hudson::start();
    let jenkins = hudson.connector(Launch::InboundTcp);
    let (runner, spec) = (RunnerName::new(NODE), template());
    let (address, ssh) = ("127.0.0.1".parse().unwrap(), spec.ssh.clone());
    let host_keys = vec!["ssh-ed25519 AAAAC3Nz".to_owned()];
    let target = ShellTarget { address, ssh, os: spec.os, host_keys };
    let want = Want::Labels(["linux".to_owned()].into());
    let request = RegisterRequest { runner: &runner, spec: &spec, want: &want, target: &target };
    let known: Known = [(runner.clone(), BTreeSet::new())].into();
    hudson.queue("app", "linux", "true");
    block(async {
        let mut found = Vec::new();
        jenkins.check(&mut found).await.unwrap();
        assert!(found.iter().any(|proof| proof.text == "the login may"), "{found:?}");

        // It names no label as long as it has no node.
        let observation = jenkins.poll(&Known::new()).await.unwrap();
        assert!(observation.jobs.is_empty() && observation.obstacle.is_none(), "{observation:?}");
        assert_eq!(hudson.nodes(), ["drover-labels"]);
        let observation = jenkins.poll(&Known::new()).await.unwrap();
        let jobs: Vec<_> =
            observation.jobs.iter().map(|job| (job.name.as_str(), &job.want)).collect();
        assert_eq!(jobs, [("app", &want)]);

        let bundle = jenkins.register(request).await.unwrap();
        let secret = bundle.files.iter().find(|file| file.name == "secret").unwrap();
        assert_eq!(secret.content.len(), 64);
        let labelled = hudson.read("label/x64/api/json?tree=nodes[nodeName]");
        assert_eq!(labelled["nodes"], json!([{ "nodeName": NODE }]));
        let observation = jenkins.poll(&known).await.unwrap();
        assert_eq!(row(&observation), (false, 0, Shut::Open));
        // Now it names the only node with the label instead.
        assert_eq!(observation.jobs[0].want, want);

        // The call toggles.
        for _ in 0..2 {
            jenkins.cordon(&runner).await.unwrap();
        }
        let observation = jenkins.poll(&known).await.unwrap();
        assert_eq!(row(&observation), (true, 0, Shut::Quiet));
        // A node stays until the threads of its executors have ended; a source asks again, too.
        let end = Instant::now() + WAIT_LIMIT;
        while let Err(error) = jenkins.deregister(&runner).await {
            assert!(Instant::now() < end, "{error}");
        }
        jenkins.deregister(&runner).await.unwrap();
        let observation = jenkins.poll(&known).await.unwrap();
        assert!(
            observation.rows.is_empty() && observation.gone.contains(&runner),
            "{observation:?}"
        );

        // It has no such plugin.
        let by_ssh = hudson.connector(Launch::Ssh("agents".to_owned()));
        let refusal = by_ssh.register(request).await.err().unwrap().to_string();
        assert!(refusal.contains("POST /computer/doCreateItem: 500"), "{refusal}");

        let end = Instant::now() + WAIT_LIMIT;
        while let Err(error) = jenkins.clean_up().await {
            assert!(Instant::now() < end, "{error}");
        }
        assert_eq!(hudson.nodes(), Vec::<String>::new());
    });
}

#[test]
fn a_build_of_a_real_hudson_runs_on_an_agent_of_its_own_and_leaves_nothing_behind() {
    let hudson = Hudson::start();
    if !hudson.alone {
        note("no build of Hudson's is tried");
        return;
    }
    let (_dir, sim, site) = world();
    // Of the guest and of this machine, where Hudson's agent works.
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    hudson.source(&site, &sim, folder.path());
    let service = Service::start(&site);
    service.drain();
    let mut events = Events::follow(&site);
    let go = site.dir.path().join("go");
    let run = format!("until test -e {}; do sleep 0.1; done", go.display());
    hudson.queue("app", "linux", &run);
    events.until("source", |fact| fact["source"]["running"] == 1);
    let node = hudson.nodes().into_iter().find(|name| name != "drover-labels").unwrap();
    let path = format!("computer/{node}/api/json?tree=temporarilyOffline");
    hudson.until("its being shut", &path, |reported| reported["temporarilyOffline"] == true);
    assert_eq!(hudson.read("job/app/1/api/json")["building"], true);
    fs::write(&go, "").unwrap();
    let gone = events.until("agentGone", |_| true);
    assert_eq!(gone["agent"]["reason"], "used-up", "{gone}");
    let build = hudson.read("job/app/1/api/json");
    assert_eq!(build["result"], "SUCCESS", "{build}");
    assert_eq!(build["builtOn"], node.as_str(), "{build}");

    site.until_empty();
    assert_eq!(sim.guests(), Vec::<u64>::new());
    let all = "computer/api/json?tree=computer[displayName]";
    hudson.until("the end of its node", all, |reported| {
        let nodes = reported["computer"].as_array();
        nodes.is_some_and(|all| all.iter().all(|one| one["displayName"] != node.as_str()))
    });
    assert_eq!(site.json(&["status"])["lostJobs"], json!([]));
}
