//! How large a machine somebody asks for, and which sizes a template gives.
//!
//! A template's labels say what its agents are; labels such as `cpu=8` say how large one of them is to
//! be. [`SizeLabels`] reads these labels and bounds what they ask for, [`Size`] is what came of it.
//! Equal inputs give equal sizes, so that a restart, a reload and a quota see the same machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::placement::Sizes;
use crate::record::Want;
use crate::spec::TemplateSpec;

/// Values of one key that an expression may name and that are tried: each is one way to read it.
const VALUES_MAX: usize = 4;

/// A part of a machine that may have a size of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The number of processor cores.
    Cores,
    /// Memory in MiB.
    Memory,
    /// The boot disk in GiB.
    Disk,
}

impl Part {
    pub const ALL: [Self; 3] = [Self::Cores, Self::Memory, Self::Disk];

    /// What its numbers count, for people.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Cores => "cores",
            Self::Memory => "MiB of memory",
            Self::Disk => "GiB of disk",
        }
    }

    /// What so many are, for people.
    pub const fn unit_of(self, many: u32) -> &'static str {
        match self {
            Self::Cores if many == 1 => "core",
            Self::Cores | Self::Memory | Self::Disk => self.unit(),
        }
    }

    /// Its key in `sizeLabels`.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Cores => "cpu",
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }

    /// A size as labels spell it.
    pub const fn example(self) -> &'static str {
        match self {
            Self::Cores => "8",
            Self::Memory => "16g",
            Self::Disk => "100g",
        }
    }

    /// Reads a size: a whole number of cores, of MiB or of GiB, the last two also with a unit (`m`,
    /// `g` or `t`, in either case, also as `GB`, `Gi` or `GiB`, all of 1024). None where it is no
    /// such number, is zero, or is no whole number of the part's unit.
    pub fn parse(self, text: &str) -> Option<u32> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let number: u64 = text[..digits].parse().ok()?;
        let unit = text[digits..].to_ascii_lowercase();
        let in_mib = match (unit.as_str(), self) {
            ("", Self::Cores | Self::Memory) => number,
            (_, Self::Cores) => return None,
            ("", Self::Disk) => number.checked_mul(1 << 10)?,
            ("m" | "mb" | "mi" | "mib", _) => number,
            ("g" | "gb" | "gi" | "gib", _) => number.checked_mul(1 << 10)?,
            ("t" | "tb" | "ti" | "tib", _) => number.checked_mul(1 << 20)?,
            _ => return None,
        };
        let size = match self {
            Self::Cores | Self::Memory => in_mib,
            Self::Disk if in_mib.is_multiple_of(1 << 10) => in_mib >> 10,
            Self::Disk => return None,
        };
        u32::try_from(size).ok().filter(|size| *size > 0)
    }
}

/// A machine's size, as far as somebody says it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Size {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Memory in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u32>,
    /// The boot disk in GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_gb: Option<u32>,
}

impl Size {
    /// Nothing is said of any part.
    pub const NONE: Self = Self { cores: None, memory_mb: None, disk_gb: None };

    /// Whether nothing is said.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// What is said of a part.
    pub const fn of(&self, part: Part) -> Option<u32> {
        match part {
            Part::Cores => self.cores,
            Part::Memory => self.memory_mb,
            Part::Disk => self.disk_gb,
        }
    }

    /// The same with this part.
    #[must_use]
    pub const fn with(mut self, part: Part, size: Option<u32>) -> Self {
        match part {
            Part::Cores => self.cores = size,
            Part::Memory => self.memory_mb = size,
            Part::Disk => self.disk_gb = size,
        }
        self
    }

    /// The parts of `above`, and below them those of this one.
    #[must_use]
    pub fn under(self, above: Self) -> Self {
        Self {
            cores: above.cores.or(self.cores),
            memory_mb: above.memory_mb.or(self.memory_mb),
            disk_gb: above.disk_gb.or(self.disk_gb),
        }
    }

    /// The larger one of each part.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            cores: self.cores.max(other.cores),
            memory_mb: self.memory_mb.max(other.memory_mb),
            disk_gb: self.disk_gb.max(other.disk_gb),
        }
    }

    /// What a machine of this size takes that is given another one.
    pub fn beside(self, sizes: Sizes) -> Sizes {
        Sizes {
            cores: sizes.cores.max(self.cores.unwrap_or(0)),
            memory_mb: sizes.memory_mb.max(self.memory_mb.map_or(0, u64::from)),
            disk_gb: sizes.disk_gb.max(self.disk_gb.map_or(0, u64::from)),
        }
    }
}

impl fmt::Display for Size {
    /// What is said, in words; nothing where nothing is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = Part::ALL.into_iter().filter_map(|part| {
            let size = self.of(part)?;
            Some(format!("{size} {}", part.unit_of(size)))
        });
        f.write_str(&each.collect::<Vec<_>>().join(", "))
    }
}

/// The label that gives one part its size, and the sizes that it may give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SizeLabel {
    /// The key of the label: `cpu` for `cpu=8`.
    pub label: String,
    /// The smallest size, in the unit of the part.
    pub min: u32,
    /// The largest one.
    pub max: u32,
}

/// The labels that give agents of a template another size (`sizeLabels`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SizeLabels {
    pub cores: Option<SizeLabel>,
    pub memory: Option<SizeLabel>,
    pub disk: Option<SizeLabel>,
}

/// Why a template gives no agent of a size, in words that stand behind its name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SizeFault {
    /// A label of size that cannot be read.
    #[error("cannot read `{label}`: write it such as `{key}={example}`", example = .part.example())]
    Unreadable { label: String, key: String, part: Part },
    /// Two labels give one part different sizes.
    #[error("cannot give both `{one}` and `{other}`")]
    Twice { one: String, other: String },
    /// The template has no label for this part.
    #[error("gives no other number of {unit}: its `sizeLabels` has no `{key}`",
        unit = .part.unit(), key = .part.key())]
    Fixed { part: Part },
    /// It is beyond the limits.
    #[error("gives {min} to {max} {unit} (`sizeLabels`), not {asked}", unit = .part.unit())]
    Beyond { part: Part, asked: u32, min: u32, max: u32 },
    /// Disks only grow.
    #[error("has {own} GiB of disk, and disks only grow: not {asked}")]
    Shrinks { asked: u32, own: u32 },
    /// The agent was started with one size, and another is asked for.
    #[error("has another size")]
    Other,
}

impl SizeLabels {
    /// Whether no label gives a size.
    pub fn is_none(&self) -> bool {
        self.each().next().is_none()
    }

    /// What is said of a part.
    pub const fn of(&self, part: Part) -> Option<&SizeLabel> {
        match part {
            Part::Cores => self.cores.as_ref(),
            Part::Memory => self.memory.as_ref(),
            Part::Disk => self.disk.as_ref(),
        }
    }

    /// The parts that labels give a size to.
    pub fn each(&self) -> impl Iterator<Item = (Part, &SizeLabel)> {
        Part::ALL.into_iter().filter_map(|part| Some((part, self.of(part)?)))
    }

    /// The largest size that labels give.
    pub fn largest(&self) -> Size {
        self.each().fold(Size::NONE, |size, (part, one)| size.with(part, Some(one.max)))
    }

    /// The keys of these labels.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.each().map(|(_, one)| one.label.as_str())
    }

    /// The part that a label gives a size to, with its key and value.
    fn part_of<'a>(&self, label: &'a str) -> Option<(Part, &'a str, &'a str)> {
        let (key, value) = label.split_once('=')?;
        let (part, _) = self.each().find(|(_, one)| one.label == key)?;
        Some((part, key, value))
    }

    /// Whether a label gives a size.
    pub fn has(&self, label: &str) -> bool {
        self.part_of(label).is_some()
    }

    /// The size that a label gives.
    fn read(&self, label: &str) -> Option<Result<(Part, u32), SizeFault>> {
        let (part, key, value) = self.part_of(label)?;
        let unreadable =
            || SizeFault::Unreadable { label: label.to_owned(), key: key.to_owned(), part };
        Some(part.parse(value).map(|size| (part, size)).ok_or_else(unreadable))
    }

    /// The size that all labels of size among these give.
    fn sum<'a>(&self, labels: impl Iterator<Item = &'a str>) -> Result<Size, SizeFault> {
        let mut given: BTreeMap<Part, (&str, u32)> = BTreeMap::new();
        for label in labels {
            let Some(read) = self.read(label) else { continue };
            let (part, size) = read?;
            let (one, before) = *given.entry(part).or_insert((label, size));
            if before != size {
                let (one, other) = (one.to_owned(), label.to_owned());
                return Err(SizeFault::Twice { one, other });
            }
        }
        let each = given.into_iter();
        Ok(each.fold(Size::NONE, |sum, (part, (_, size))| sum.with(part, Some(size))))
    }

    /// Labels of size among these that an agent has.
    pub fn had_by<'a>(
        &self,
        spec: &TemplateSpec,
        labels: impl Iterator<Item = &'a str>,
    ) -> impl Iterator<Item = &'a str> {
        labels.filter(|label| match self.read(label) {
            Some(Ok((part, size))) => spec.own_size().of(part) == Some(size),
            Some(Err(_)) | None => false,
        })
    }

    /// The sizes by which a want is met by somebody with these labels, the least asked for first;
    /// none where it is not met by any. A want by name is met by `named`, and one without labels,
    /// but for those of size, by `open`.
    pub fn met(
        &self,
        own: &BTreeSet<String>,
        want: &Want,
        (named, open): (impl Fn(&str) -> bool, bool),
    ) -> Vec<Result<Size, SizeFault>> {
        match want {
            Want::Template(name) if named(name) => vec![Ok(Size::NONE)],
            Want::Template(_) => Vec::new(),
            Want::Labels(labels) => {
                let mut others = labels.iter().filter(|label| !self.has(label)).peekable();
                let met = match others.peek() {
                    None => open,
                    Some(_) => others.all(|label| own.contains(label)),
                };
                let size = || self.sum(labels.iter().map(String::as_str));
                if met { vec![size()] } else { Vec::new() }
            }
            Want::Expression(expression) => {
                let ways = self.ways(expression.names());
                let holds = ways.into_iter().filter(|(_, labels)| {
                    let more = labels.iter().map(|label| (*label).to_owned());
                    if labels.is_empty() {
                        expression.matches(own)
                    } else {
                        expression.matches(&own.iter().cloned().chain(more).collect())
                    }
                });
                holds.map(|(size, _)| Ok(size)).collect()
            }
            Want::Sized(want, size) => {
                let met = self.met(own, want, (named, open));
                met.into_iter().map(|asked| Ok(asked?.under(*size))).collect()
            }
        }
    }

    /// The ways to choose among labels of size that an expression names: of each key none or one.
    fn ways<'a>(&self, names: BTreeSet<&'a str>) -> Vec<(Size, Vec<&'a str>)> {
        let mut named: BTreeMap<Part, BTreeMap<u32, Vec<&'a str>>> = BTreeMap::new();
        for name in names {
            if let Some(Ok((part, size))) = self.read(name) {
                named.entry(part).or_default().entry(size).or_default().push(name);
            }
        }
        let mut ways = vec![(Size::NONE, Vec::new())];
        for (part, values) in named {
            let more = values.into_iter().take(VALUES_MAX).flat_map(|(size, labels)| {
                let with = |(way, with): &(Size, Vec<&'a str>)| {
                    (way.with(part, Some(size)), [&with[..], &labels[..]].concat())
                };
                ways.iter().map(with).collect::<Vec<_>>()
            });
            let more: Vec<_> = more.collect();
            ways.extend(more);
        }
        let parts = |size: &Size| Part::ALL.iter().filter(|part| size.of(**part).is_some()).count();
        ways.sort_by_key(|(size, _)| (parts(size), *size));
        ways
    }
}

impl TemplateSpec {
    /// Its own size, as far as it says it.
    pub const fn own_size(&self) -> Size {
        Size { cores: self.cores, memory_mb: self.memory_mb, disk_gb: self.disk_gb }
    }

    /// How large its agent is, where that was asked for; nothing where the template alone says it.
    pub fn asked_size(&self) -> Size {
        if self.size.is_none() { Size::NONE } else { self.own_size() }
    }

    /// The size that an agent is started with so that it has what is asked for: what the template
    /// has anyway is left out. An agent with a size of its own gives that alone.
    ///
    /// # Errors
    /// The size is beyond the limits of the template, or another than the agent's.
    pub fn size_for(&self, asked: Size) -> Result<Size, SizeFault> {
        let mut size = Size::NONE;
        for part in Part::ALL {
            let own = self.own_size().of(part);
            match asked.of(part) {
                None if self.size.of(part).is_some() => return Err(SizeFault::Other),
                None => {}
                Some(asked) if own == Some(asked) => {}
                Some(_) if !self.size.is_none() => return Err(SizeFault::Other),
                Some(asked) => {
                    let limit = self.size_labels.of(part).ok_or(SizeFault::Fixed { part })?;
                    let (min, max) = (limit.min, limit.max);
                    if !(min..=max).contains(&asked) {
                        return Err(SizeFault::Beyond { part, asked, min, max });
                    }
                    if let Some(own) = own.filter(|own| part == Part::Disk && *own > asked) {
                        return Err(SizeFault::Shrinks { asked, own });
                    }
                    size = size.with(part, Some(asked));
                }
            }
        }
        Ok(size)
    }

    /// The same for an agent of this size.
    #[must_use]
    pub fn sized(&self, size: Size) -> Self {
        let Size { cores, memory_mb, disk_gb } = self.own_size().under(size);
        Self { cores, memory_mb, disk_gb, size, ..self.clone() }
    }
}

#[cfg(test)]
mod tests;
