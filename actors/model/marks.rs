//! Ownership marks: the name and the description block that say whose a guest is
//! (book: safety, rule 2; book: agents, marks). Matching is exact, never by prefix.

use serde::{Deserialize, Serialize};

use crate::container::GuestType;
use crate::id::{AgentId, ClusterId, Installation, VmId, is_crockford};

const FENCE_OPEN: &str = "```drover-1";
const FENCE_CLOSE: &str = "```";
/// Only containers have this line: descriptions of virtual machines stay as older versions wrote
/// them.
const CONTAINER_LINE: &str = "guest container\n";
/// The longest readable head of a guest's name.
pub const SLUG_MAX: usize = 36;

/// What a marked guest is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A machine for work.
    Agent,
    /// A template made by drover, or taken over by it.
    Image,
    /// A machine that is being made into a template.
    Builder,
    /// A long-lived machine that the configuration declares.
    Machine,
}

impl Kind {
    fn label(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Image => "image",
            Self::Builder => "builder",
            Self::Machine => "machine",
        }
    }
}

/// The marks of one guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// Whose it is.
    pub installation: Installation,
    /// Which agent it is; of an image its version, of a builder the build, of a machine the making
    /// of it.
    pub agent: AgentId,
    /// The VMID it was made with.
    pub vmid: VmId,
    /// The cluster it was made on.
    pub cluster: ClusterId,
    /// What it is.
    pub kind: Kind,
    /// Whether it is a container; a description says so only of containers.
    #[serde(default, skip_serializing_if = "GuestType::is_vm")]
    pub guest: GuestType,
    /// The journal's sequence of its `CloneIntended`.
    pub seq: u64,
    /// The cloud's name, for people.
    pub cloud: String,
    /// The template's name, for people; of images and builders the image's, of a machine its own.
    pub template: String,
    /// When it was born, RFC 3339, for people.
    pub born: String,
}

/// What a guest's name and description say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Neither a block nor a name of drover's.
    Unmarked,
    /// Exactly one block, and the name agrees with it.
    Marked(Box<Marks>),
    /// Something of drover's that does not add up; never touched.
    Damaged(String),
}

impl Marks {
    /// The guest's name: `<slug>-<installation>-<agent>`, at most 62 characters.
    pub fn name(&self, prefix: &str) -> String {
        let slug = slug(prefix, &self.template);
        format!("{slug}-{}-{}", self.installation, self.agent)
    }

    /// The description: what people wrote, then the block.
    pub fn describe(&self, people: &str) -> String {
        let mut text = String::new();
        let people = people.trim_end();
        if !people.is_empty() {
            text.push_str(people);
            text.push_str("\n\n");
        }
        text.push_str(&format!(
            "{FENCE_OPEN}\ninstallation {}\nagent {}\nvmid {}\ncluster {}\nkind {}\n{}seq {}\ncloud {}\ntemplate {}\nborn {}\n{FENCE_CLOSE}\n",
            self.installation,
            self.agent,
            self.vmid,
            self.cluster,
            self.kind.label(),
            match self.guest {
                GuestType::Vm => "",
                GuestType::Container => CONTAINER_LINE,
            },
            self.seq,
            one_line(&self.cloud),
            one_line(&self.template),
            self.born,
        ));
        text
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The readable head of a guest's name: `[a-z0-9]([a-z0-9-]{0,34}[a-z0-9])?`.
pub fn slug(prefix: &str, template: &str) -> String {
    let mut out = String::new();
    for ch in format!("{prefix}-{template}").chars() {
        let ch = ch.to_ascii_lowercase();
        let ch = if ch.is_ascii_alphanumeric() { ch } else { '-' };
        if ch == '-' && (out.is_empty() || out.ends_with('-')) {
            continue;
        }
        out.push(ch);
        if out.len() == SLUG_MAX {
            break;
        }
    }
    let out = out.trim_end_matches('-');
    if out.is_empty() { "agent".into() } else { out.into() }
}

/// Reads the installation and agent off a guest's name, from the right.
pub fn parse_name(name: &str) -> Option<(Installation, AgentId)> {
    let (rest, agent) = name.rsplit_once('-')?;
    let (slug, installation) = rest.rsplit_once('-')?;
    let well_formed = !slug.is_empty() && is_crockford(agent, 16) && is_crockford(installation, 8);
    well_formed.then(|| (Installation::new(installation), AgentId::new(agent)))
}

/// The lines of each block in a description.
fn blocks(description: &str) -> Vec<Vec<&str>> {
    let mut found: Vec<Vec<&str>> = Vec::new();
    let mut inside = false;
    for line in description.lines() {
        let trimmed = line.trim_end();
        if inside {
            if trimmed == FENCE_CLOSE {
                inside = false;
            } else if let Some(block) = found.last_mut() {
                block.push(trimmed);
            }
        } else if trimmed == FENCE_OPEN {
            inside = true;
            found.push(Vec::new());
        }
    }
    found
}

/// Reads a guest's marks.
pub fn read(name: &str, description: &str) -> Reading {
    let named = parse_name(name);
    let found = blocks(description);
    let block = match found.as_slice() {
        [] if named.is_none() => return Reading::Unmarked,
        [] => {
            return Reading::Damaged(
                "the name is drover's, and the description has lost drover's block".into(),
            );
        }
        [block] => block,
        [_, _, ..] => {
            return Reading::Damaged(format!("the description has {} blocks", found.len()));
        }
    };
    match parse_block(block) {
        Err(text) => Reading::Damaged(text),
        Ok(marks) => match named {
            Some((installation, agent))
                if installation == marks.installation && agent == marks.agent =>
            {
                Reading::Marked(Box::new(marks))
            }
            Some(_) => Reading::Damaged("the name and the block name different agents".into()),
            None => {
                let called: String = name.chars().filter(|ch| !ch.is_control()).take(64).collect();
                Reading::Damaged(format!(
                    "the block in its description is drover's, and it is called `{called}`"
                ))
            }
        },
    }
}

fn parse_block(lines: &[&str]) -> Result<Marks, String> {
    let field = |key: &str| -> Result<&str, String> {
        let mut hits = lines.iter().filter_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        let value = hits.next().ok_or_else(|| format!("the block lacks `{key}`"))?;
        if hits.next().is_some() {
            Err(format!("the block gives `{key}` twice"))
        } else {
            Ok(value)
        }
    };
    let installation = field("installation")?;
    let agent = field("agent")?;
    if !is_crockford(installation, 8) || !is_crockford(agent, 16) {
        return Err("the block's ids are malformed".into());
    }
    let guest = match lines.iter().any(|line| line.starts_with("guest ")) {
        false => GuestType::Vm,
        true if field("guest")? == "container" => GuestType::Container,
        true => return Err("the block's type of guest is unknown".into()),
    };
    let number = |key: &str| -> Result<u64, String> {
        field(key)?.parse().map_err(|_| format!("the block's `{key}` is not a number"))
    };
    let kind = match field("kind")? {
        "agent" => Kind::Agent,
        "image" => Kind::Image,
        "builder" => Kind::Builder,
        "machine" => Kind::Machine,
        other => return Err(format!("the block's kind `{other}` is unknown")),
    };
    let vmid = u32::try_from(number("vmid")?).map_err(|_| "the block's `vmid` is too large")?;
    Ok(Marks {
        installation: Installation::new(installation),
        agent: AgentId::new(agent),
        vmid: VmId(vmid),
        cluster: ClusterId::new(field("cluster")?),
        kind,
        guest,
        seq: number("seq")?,
        cloud: field("cloud")?.into(),
        template: field("template")?.into(),
        born: field("born")?.into(),
    })
}

/// The tag of a guest that is being retired: the fence that is set before it is stopped.
pub const RETIRING: &str = "drover-retiring";

/// Whether whatever is left of drover's marks names nobody but this machine.
pub fn names_only(name: &str, description: &str, machine: &Marks) -> bool {
    let named = parse_name(name);
    let slug = format!("{}-", slug("", &machine.template));
    let is_its = named.is_none_or(|(installation, _)| {
        installation == machine.installation && name.starts_with(&slug)
    });
    is_its
        && blocks(description).iter().all(|block| {
            parse_block(block).is_ok_and(|found| {
                found.installation == machine.installation
                    && found.kind == machine.kind
                    && found.template == machine.template
            })
        })
}

/// What people wrote in a description, without drover's blocks.
pub fn without_blocks(description: &str) -> String {
    let mut inside = false;
    let kept = description.lines().filter(|line| {
        let line = line.trim_end();
        let opens = !inside && line == FENCE_OPEN;
        let closes = inside && line == FENCE_CLOSE;
        let drops = inside || opens;
        inside = (inside || opens) && !closes;
        !drops
    });
    kept.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

/// Whether a reading is exactly these marks: installation, agent, VMID, cluster, kind and type of
/// guest.
pub fn is_ours(reading: &Reading, expected: &Marks, at: VmId) -> bool {
    match reading {
        Reading::Marked(marks) => {
            marks.installation == expected.installation
                && marks.agent == expected.agent
                && marks.vmid == expected.vmid
                && marks.vmid == at
                && marks.cluster == expected.cluster
                && marks.kind == expected.kind
                && marks.guest == expected.guest
        }
        Reading::Unmarked | Reading::Damaged(_) => false,
    }
}

#[cfg(test)]
mod tests;
