//! What init would set up: every choice, or all that is in the way.

use std::fmt::Write as _;
use std::slice;

use super::choice::{
    TEMPLATE_MAKE, VmidRange, best_bridge, best_node, best_storage, best_template, free_range,
    links, namesakes, namesakes_on,
};
use super::cluster::{ClusterSeen, NodeSeen, TemplateSeen};
use super::settings::{has_node, wrong_settings};

/// The pool of agents where nobody names one.
pub(super) const POOL: &str = "drover";
/// The label of agents where nobody names one.
const LABEL: &str = "linux";
/// The login of agents where nobody names one.
pub(super) const GUEST_USER: &str = "debian";
/// The token where nobody names one.
const TOKEN: &str = "drover@pve!ci";
/// Where sums of Debian's cloud images are.
const SUMS: &str = "https://cloud.debian.org/images/cloud/trixie";

/// A cloud image to build from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub url: String,
    /// SHA-256 or SHA-512, in hexadecimal digits.
    pub checksum: String,
}

/// What an administrator answered; none where they did not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answers {
    /// A VMID, a name, or `make`.
    pub template: Option<String>,
    pub image: Option<Image>,
    pub node: Option<String>,
    pub storage: Option<String>,
    pub bridge: Option<String>,
    pub vmids: Option<VmidRange>,
    pub labels: Option<Vec<String>>,
    pub pool: Option<String>,
    /// The login in guests.
    pub guest_user: Option<String>,
    /// `user@realm!name`.
    pub token: Option<String>,
    pub ssh_port: Option<u16>,
    pub guest_networks: Option<Vec<String>>,
}

impl Answers {
    /// The token that drover gets, `user@realm!name`.
    pub fn token(&self) -> &str {
        self.token.as_deref().unwrap_or(TOKEN)
    }

    /// These answers, and where one is missing the earlier one.
    #[must_use]
    pub fn or(self, earlier: Self) -> Self {
        // Image and storage of another template are no answers.
        let same = self.template.is_none() || self.template == earlier.template;
        let kept = if same { earlier.clone() } else { Self::default() };
        Self {
            template: self.template.or(earlier.template),
            image: self.image.or(kept.image),
            node: self.node.or(kept.node),
            storage: self.storage.or(kept.storage),
            bridge: self.bridge.or(kept.bridge),
            vmids: self.vmids.or(earlier.vmids),
            labels: self.labels.or(earlier.labels),
            pool: self.pool.or(earlier.pool),
            guest_user: self.guest_user.or(earlier.guest_user),
            token: self.token.or(earlier.token),
            ssh_port: self.ssh_port.or(earlier.ssh_port),
            guest_networks: self.guest_networks.or(earlier.guest_networks),
        }
    }
}

/// How the YAML says whose certificates are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The system's authorities.
    System,
    /// This authority, PEM, which becomes a file.
    Authority(String),
    /// These SHA-256 fingerprints.
    Pins(Vec<String>),
}

/// What agents are cloned from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Template {
        /// The VMID and the node of each template that serves.
        guests: Vec<(u32, String)>,
        name: String,
        /// Whether the YAML names it by its name: each node clones its own.
        by_name: bool,
        /// The nodes that agents run on.
        nodes: Vec<String>,
        linked: bool,
        /// The storage of the disks; several, separated by commas, where templates have their own.
        storage: String,
        /// Whether the storage is not the template's own.
        moved: bool,
        /// The bridge, where it is not the template's own.
        bridge: Option<String>,
    },
    Image {
        image: Image,
        /// The node that builds it.
        node: String,
        /// The nodes that agents run on; empty for the node of the image.
        nodes: Vec<String>,
        storage: String,
        import_storage: String,
        /// The command of a node that lets that storage take disk images to import, where it does not
        /// yet: init does the same.
        prepare: Option<String>,
        bridge: String,
        linked: bool,
    },
}

/// What init would set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    pub cluster: String,
    pub api_urls: Vec<String>,
    pub trust: Trust,
    pub vmids: VmidRange,
    pub labels: Vec<String>,
    pub pool: String,
    pub guest_user: String,
    pub token: String,
    pub source: Source,
    pub ssh_port: Option<u16>,
    pub guest_networks: Vec<String>,
    /// Why each choice was made, with its subject.
    pub reasons: Vec<(&'static str, String)>,
}

/// All that is in the way, each with what helps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Refusals(pub Vec<String>);

/// Works out what to set up. `earlier` are the VMIDs of an earlier run, which may have agents in them.
///
/// # Errors
/// All that is in the way, at once.
pub fn propose(
    seen: &ClusterSeen,
    answers: &Answers,
    (api_urls, trust): (Vec<String>, Trust),
    earlier: Option<VmidRange>,
) -> Result<Proposal, Refusals> {
    // A node that is not there is refused below, and the rest is judged as if nobody had named one.
    let node = answers.node.clone().filter(|named| has_node(seen, named));
    let known = Answers { node, ..answers.clone() };
    let mut work = Work { seen, answers: &known, wrong: Vec::new(), reasons: Vec::new() };
    let source = work.source();
    let Work { mut wrong, reasons, .. } = work;
    wrong.extend(wrong_settings(seen, answers, earlier));
    let Some(source) = source.filter(|_| wrong.is_empty()) else { return Err(Refusals(wrong)) };
    Ok(Proposal {
        cluster: seen.name.clone(),
        api_urls,
        trust,
        vmids: vmids(seen, answers),
        labels: labels(answers),
        pool: given(&answers.pool, POOL),
        guest_user: given(&answers.guest_user, GUEST_USER),
        token: answers.token().to_owned(),
        source,
        ssh_port: answers.ssh_port,
        guest_networks: answers.guest_networks.clone().unwrap_or_default(),
        reasons,
    })
}

pub(super) fn vmids(seen: &ClusterSeen, answers: &Answers) -> VmidRange {
    answers.vmids.unwrap_or_else(|| free_range(&seen.vmids, other_drovers(seen, answers)))
}

/// How many pools other drovers of this cluster have.
pub(super) fn other_drovers(seen: &ClusterSeen, answers: &Answers) -> u32 {
    let own = given(&answers.pool, POOL);
    let others = seen.drover_pools.iter().filter(|pool| **pool != own).count();
    u32::try_from(others).unwrap_or(u32::MAX)
}

pub(super) fn labels(answers: &Answers) -> Vec<String> {
    answers.labels.clone().unwrap_or_else(|| vec![LABEL.to_owned()])
}

pub(super) fn given(answer: &Option<String>, default: &str) -> String {
    answer.clone().unwrap_or(default.to_owned())
}

struct Work<'a> {
    seen: &'a ClusterSeen,
    answers: &'a Answers,
    wrong: Vec<String>,
    reasons: Vec<(&'static str, String)>,
}

impl<'a> Work<'a> {
    fn source(&mut self) -> Option<Source> {
        let seen = self.seen;
        match self.answers.template.as_deref() {
            Some(TEMPLATE_MAKE) => self.image(),
            Some(text) => {
                let found = self.named(text)?;
                let by_name = found.vmid.to_string() != text;
                self.template(found, by_name)
            }
            None => match best_template(seen, None, self.answers.node.as_deref()) {
                Some(found) => self.template(found, false),
                None => {
                    let mut text = "no template fits".to_owned();
                    for one in &seen.templates {
                        let problem = one.problem().unwrap_or_default();
                        let _ = write!(text, "\n  {} `{}`: {problem}", one.vmid, one.name);
                    }
                    let _ = write!(
                        text,
                        "\nlet drover build one: --template make --image-url URL --image-checksum SUM; \
                         {SUMS}/ has a folder for each day, with disk images and SHA512SUMS"
                    );
                    self.wrong.push(text);
                    None
                }
            },
        }
    }

    /// The template of a VMID or name.
    fn named(&mut self, text: &str) -> Option<&'a TemplateSeen> {
        let seen = self.seen;
        let meant = |one: &&TemplateSeen| one.vmid.to_string() == text || one.name == text;
        let Some(first) = seen.templates.iter().find(meant) else {
            let known = seen.templates.iter().map(|one| format!("{} `{}`", one.vmid, one.name));
            let known = known.collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "none".to_owned() } else { known };
            self.wrong.push(format!(
                "`{text}` is no template of an online node: there are {known}; --template make lets \
                 drover build one"
            ));
            return None;
        };
        let by_name = || best_template(seen, Some(text), self.answers.node.as_deref());
        let found = if first.name == text { by_name().unwrap_or(first) } else { first };
        let (vmid, node) = (found.vmid, &found.node);
        if let Some(problem) = found.problem() {
            self.wrong.push(format!("template {vmid} does not fit: {problem}"));
            return None;
        }
        if found.name == text && namesakes_on(seen, found) > 1 {
            self.wrong.push(format!(
                "{node} has several templates called `{text}`: name one by its VMID, as --template {vmid}"
            ));
            return None;
        }
        Some(found)
    }

    /// The node that was named, or the one with the most free memory.
    fn node(&mut self) -> Option<&NodeSeen> {
        let seen = self.seen;
        let known = || seen.online().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", ");
        if let Some(named) = &self.answers.node {
            let found = seen.online().find(|one| one.name == *named);
            if found.is_none() {
                self.wrong.push(format!("no node `{named}` is online: --node takes {}", known()));
            }
            return found;
        }
        let found = best_node(seen)?;
        if seen.online().count() > 1 {
            let gib = found.free_memory >> 30;
            self.reasons.push(("node", format!("most free memory, {gib} GiB")));
        }
        Some(found)
    }

    /// Whether a storage takes disk images on a node; says so where it does not.
    fn check_storage(&mut self, storage: &str, node: &str) {
        let seen = self.seen;
        let found = seen.storages.iter().find(|one| one.name == storage);
        if found.is_none_or(|one| !one.free.contains_key(node)) {
            self.wrong
                .push(format!("{node} has no storage `{storage}` that works: `pvesm status`"));
        } else if found.is_some_and(|one| !one.takes("images")) {
            let content = found.map(|one| content_with(&one.content, "images")).unwrap_or_default();
            let remedy = format!("pvesm set {storage} --content {content}");
            self.wrong
                .push(format!("storage `{storage}` takes no disk images; on a node: {remedy}"));
        }
    }

    fn check_bridge(&mut self, bridge: &str, nodes: &[String]) {
        for name in nodes {
            let seen = self.seen;
            let has = |one: &NodeSeen| one.name == *name && !one.bridges.contains(bridge);
            if let Some(node) = seen.online().find(|one| has(one)) {
                let known = node.bridges.iter().cloned().collect::<Vec<_>>().join(", ");
                self.wrong.push(format!("{name} has no bridge `{bridge}`: --bridge takes {known}"));
            }
        }
    }

    fn template(&mut self, found: &'a TemplateSeen, by_name: bool) -> Option<Source> {
        let seen = self.seen;
        let own = found.storage.clone()?;
        let common =
            |name: &str| seen.storages.iter().any(|one| one.name == name && one.is_common(seen));
        let named = self.answers.storage.clone();
        let all_reach = common(&own) && named.as_deref().is_none_or(common);
        let all = match &self.answers.node {
            None if !all_reach && found.bridge.is_some() => {
                let own = (named.as_deref(), self.answers.bridge.as_deref());
                namesakes(seen, found, own)
            }
            None | Some(_) => vec![found],
        };
        let mut nodes: Vec<String> = all.iter().map(|one| one.node.clone()).collect();
        if let Some(named) = self.answers.node.clone() {
            if named != found.node && !common(&own) {
                let (vmid, node) = (found.vmid, &found.node);
                self.wrong.push(format!(
                    "template {vmid} is on {node}, and its storage `{own}` is that node's alone: --node {node}"
                ));
            } else {
                nodes = self.node().map(|one| vec![one.name.clone()])?;
            }
        } else if all_reach {
            nodes = seen.online().map(|one| one.name.clone()).collect();
            let why = format!("all of them, since they share storage `{own}`");
            self.reasons.push(("node", why));
        } else {
            self.reasons.push(("node", whose_clones(seen, &nodes, (&found.name, &own))));
        }
        let mut storages: Vec<String> = Vec::new();
        for one in &all {
            let storage = named.clone().or(one.storage.clone())?;
            // Clones go to the nodes that were chosen, and each is made where its template is.
            let at = if all.len() > 1 { &one.node } else { nodes.first()? };
            self.check_storage(&storage, at);
            if !storages.contains(&storage) {
                storages.push(storage);
            }
        }
        let moved = all.iter().any(|one| named.is_some() && one.storage != named);
        let linked = !moved && links(seen, &own);
        let how = match (linked, all.len()) {
            (true, 1) => "clones share the template's disk",
            (true, _) => "clones share the disk of their node's template",
            (false, _) => "clones are full copies",
        };
        self.reasons.push(("storage", how.to_owned()));
        let differs = |name: &String| all.iter().any(|one| one.bridge.as_ref() != Some(name));
        let bridge = match (&self.answers.bridge, &found.bridge) {
            (Some(named), _) => Some(named.clone()).filter(differs),
            (None, Some(_)) => None,
            (None, None) => best_bridge(seen, nodes.first()?),
        };
        match &bridge {
            Some(used) => self.check_bridge(used, &nodes),
            None => {
                for one in &all {
                    let at = if all.len() > 1 { slice::from_ref(&one.node) } else { &nodes };
                    self.check_bridge(one.bridge.as_ref()?, at);
                }
            }
        }
        Some(Source::Template {
            guests: all.iter().map(|one| (one.vmid, one.node.clone())).collect(),
            name: found.name.clone(),
            by_name: by_name || all.len() > 1,
            nodes,
            linked,
            storage: storages.join(", "),
            moved,
            bridge,
        })
    }

    fn image(&mut self) -> Option<Source> {
        let seen = self.seen;
        let image = self.answers.image.clone();
        if image.is_none() {
            self.wrong.push(format!(
                "name the cloud image to build from: --image-url URL --image-checksum SUM; {SUMS}/ has a \
                 folder for each day, with disk images and SHA512SUMS"
            ));
        }
        let node = self.node()?.name.clone();
        let storage = match self.answers.storage.clone() {
            Some(named) => {
                self.check_storage(&named, &node);
                named
            }
            None => match best_storage(seen, &node) {
                Some((found, why)) => {
                    self.reasons.push(("storage", why.to_owned()));
                    found.name.clone()
                }
                None => {
                    let takes = "pvesm set STORAGE --content images,rootdir";
                    self.wrong.push(format!(
                        "no storage of {node} takes disk images; on a node: {takes}"
                    ));
                    return None;
                }
            },
        };
        let bridge = match self.answers.bridge.clone() {
            Some(named) => {
                self.check_bridge(&named, slice::from_ref(&node));
                named
            }
            None => match best_bridge(seen, &node) {
                Some(found) => found,
                None => {
                    self.wrong
                        .push(format!("{node} has no bridge: make one in its System > Network"));
                    return None;
                }
            },
        };
        let here = |name: &str| seen.storages.iter().find(|one| one.name == name);
        let imports =
            |one: &&super::StorageSeen| one.takes("import") && one.free.contains_key(&node);
        let import = here("local").filter(imports).or(seen.storages.iter().find(imports));
        let import_storage = import.map_or("local", |one| &one.name).to_owned();
        let prepare = import.is_none().then(|| {
            let content = here("local").map(|one| content_with(&one.content, "import"));
            let content = content.unwrap_or_else(|| "import".to_owned());
            format!("pvesm set local --content {content}")
        });
        let common = here(&storage).is_some_and(|one| one.is_common(seen));
        let many = common && seen.online().count() > 1;
        if seen.online().count() > 1 {
            let agents = match common {
                true => "agents run on all nodes".to_owned(),
                false => format!(
                    "agents run on this node alone, because the other nodes do not share its storage `{storage}`"
                ),
            };
            let why = self.reasons.iter_mut().find(|(about, _)| *about == "node");
            match why {
                Some((_, why)) => *why = format!("{why}; {agents}"),
                None => self.reasons.push(("node", agents)),
            }
        }
        let nodes = seen.online().filter(|_| many).map(|one| one.name.clone()).collect();
        let linked = links(seen, &storage);
        let image = image?;
        Some(Source::Image { image, node, nodes, storage, import_storage, prepare, bridge, linked })
    }
}

/// Why agents run on the nodes whose own template they are cloned from.
fn whose_clones(seen: &ClusterSeen, nodes: &[String], (name, storage): (&str, &str)) -> String {
    let others: Vec<&str> = seen
        .online()
        .map(|one| one.name.as_str())
        .filter(|one| !nodes.iter().any(|n| n == one))
        .collect();
    match (nodes.len(), others.is_empty()) {
        (1, true) => "the template's disk is there".to_owned(),
        (1, false) => format!(
            "agents run on this node alone, because the template's disk is on its storage `{storage}`, \
             which the other nodes do not share"
        ),
        (_, true) => format!("each has a template `{name}`, from which its agents are cloned"),
        (_, false) => format!(
            "each has a template `{name}`, from which its agents are cloned; none that fits is on {}",
            others.join(", ")
        ),
    }
}

/// The content types of a storage with one more.
fn content_with(content: &std::collections::BTreeSet<String>, more: &str) -> String {
    let all = content.iter().map(String::as_str).chain([more]);
    all.collect::<Vec<_>>().join(",")
}

impl Proposal {
    /// The summary for people: what would be made, each with why.
    pub fn summary(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        lines.push(("cluster", format!("{}, by {}", self.cluster, self.api_urls.join(", "))));
        let trust = match &self.trust {
            Trust::System => "certificates that this system trusts".to_owned(),
            Trust::Authority(_) => "the cluster's own authority (caFile)".to_owned(),
            Trust::Pins(pins) => format!("pinned certificates: {}", pins.join(", ")),
        };
        lines.push(("trust", trust));
        match &self.source {
            Source::Template { guests, name, by_name, nodes, storage, bridge, .. } => {
                let each = |(vmid, node): &(u32, String)| match by_name {
                    true => format!("{vmid} on {node}"),
                    false => vmid.to_string(),
                };
                let all = guests.iter().map(each).collect::<Vec<_>>().join(", ");
                lines.push(match by_name {
                    true => ("template", format!("`{name}`, which is {all}")),
                    false => ("template", format!("{all} `{name}`")),
                });
                let subject = if nodes.len() > 1 { "nodes" } else { "node" };
                lines.push((subject, nodes.join(", ")));
                lines.push(("storage", storage.clone()));
                let bridge = bridge.clone().unwrap_or_else(|| "the template's own".to_owned());
                lines.push(("bridge", bridge));
            }
            Source::Image { image, node, storage, bridge, import_storage, prepare, .. } => {
                lines.push(("template", format!("drover builds `debian` from {}", image.url)));
                lines.push(("node", node.clone()));
                lines.push(("storage", storage.clone()));
                if prepare.is_some() {
                    let text = format!("{import_storage} takes disk images to import from now on");
                    lines.push(("downloads", text));
                }
                lines.push(("bridge", bridge.clone()));
            }
        }
        lines.push(("VMIDs", format!("{} (for agents, and nothing else)", self.vmids)));
        lines.push(("labels", self.labels.join(", ")));
        lines.push(("pool", format!("{} (drover changes only guests in it)", self.pool)));
        lines.push(("token", format!("{} (with the least rights that this needs)", self.token)));
        lines.push(("login in guests", self.guest_user.clone()));
        for (subject, text) in &mut lines {
            let subject = if *subject == "nodes" { "node" } else { subject };
            if let Some((_, why)) = self.reasons.iter().find(|(about, _)| *about == subject) {
                let _ = write!(text, " ({why})");
            }
        }
        lines
    }
}
