//! A recipe: an image with the values of its variables, and the version that it makes.

use std::collections::{BTreeMap, BTreeSet};

use super::spec::{ImageSource, ImageSpec, IsoImage};
use crate::ambient::{fnv1a, mint_agent};
use crate::id::AgentId;
use crate::spec::{StepSpec, StepWork};
use crate::time::WallTime;

/// Why a variable cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VariableError {
    #[error("image `{image}` has no variable `{name}`; its `variables` names them")]
    Unknown { image: String, name: String },
    #[error(
        "the checksum of image `{image}` has {got} characters, and one of kind {algorithm} has \
         {wanted} digits: copy it from the publisher's list"
    )]
    Checksum { image: String, algorithm: String, got: usize, wanted: usize },
}

/// How many hexadecimal digits a checksum has; none for a kind that Proxmox does not know.
fn digits(algorithm: &str) -> Option<usize> {
    match algorithm {
        "md5" => Some(32),
        "sha1" => Some(40),
        "sha224" => Some(56),
        "sha256" => Some(64),
        "sha384" => Some(96),
        "sha512" => Some(128),
        _ => None,
    }
}

/// Whether a source's checksum can be one of its kind.
fn check_sum(spec: &ImageSpec) -> Result<(), VariableError> {
    let (sum, algorithm) = match &spec.source {
        Some(
            ImageSource::Url { checksum, algorithm, .. }
            | ImageSource::Iso { iso: IsoImage::Url { checksum, algorithm, .. }, .. },
        ) => (checksum, algorithm),
        Some(ImageSource::Iso { .. } | ImageSource::Template(_)) | None => return Ok(()),
    };
    let is_sum = sum.bytes().all(|byte| byte.is_ascii_hexdigit());
    match digits(algorithm).filter(|wanted| *wanted != sum.len() || !is_sum) {
        Some(wanted) => Err(VariableError::Checksum {
            image: spec.id.name.to_string(),
            algorithm: algorithm.clone(),
            got: sum.len(),
            wanted,
        }),
        None => Ok(()),
    }
}

/// What a build makes: everything that is filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// With the steps as they are run.
    pub spec: ImageSpec,
    /// The values that somebody gave, against those of the configuration.
    pub given: BTreeMap<String, String>,
    /// How often it was time for another version since 1970; 0 where that is never.
    period: u64,
    /// Days since 1970.
    today: u64,
    /// Whether it makes a version of today, whatever there is of the period.
    afresh: bool,
}

/// How many earlier periods a version is known of.
const PERIODS_KNOWN: usize = 50;
/// For how many days a version that was made afresh is known as one of the recipe.
const DAYS_KNOWN: u64 = 400;
/// The milliseconds of a day.
const DAY_MS: u64 = 24 * 3600 * 1000;

impl Recipe {
    /// Fills in the variables: what somebody gives wins over the configuration.
    ///
    /// # Errors
    /// When the image has no variable of a given name, or its checksum cannot be one.
    pub fn new(spec: &ImageSpec, given: &BTreeMap<String, String>) -> Result<Self, VariableError> {
        if let Some(name) = given.keys().find(|name| !spec.variables.contains_key(*name)) {
            let (image, name) = (spec.id.name.to_string(), name.clone());
            return Err(VariableError::Unknown { image, name });
        }
        let mut spec = spec.clone();
        spec.variables.extend(given.clone());
        let values = std::mem::take(&mut spec.variables);
        for step in &mut spec.machine.steps {
            step.work = filled(&step.work, &values);
        }
        spec.source = spec.source.map(|source| match source {
            ImageSource::Url { url, checksum, algorithm } => ImageSource::Url {
                url: fill(&url, &values),
                checksum: fill(&checksum, &values),
                algorithm,
            },
            ImageSource::Iso { iso: IsoImage::Url { url, checksum, algorithm }, disk_gb } => {
                let (url, checksum) = (fill(&url, &values), fill(&checksum, &values));
                ImageSource::Iso { iso: IsoImage::Url { url, checksum, algorithm }, disk_gb }
            }
            ImageSource::Iso { iso: IsoImage::Volume(volume), disk_gb } => {
                ImageSource::Iso { iso: IsoImage::Volume(fill(&volume, &values)), disk_gb }
            }
            template @ ImageSource::Template(_) => template,
        });
        spec.variables = values;
        check_sum(&spec)?;
        Ok(Self { spec, given: given.clone(), period: 0, today: 0, afresh: false })
    }

    /// The recipe at this time: where the image is rebuilt, it makes another version in each period
    /// of so many days.
    #[must_use]
    pub fn at(self, now: WallTime) -> Self {
        let today = u64::try_from(now.0).unwrap_or(0) / DAY_MS;
        let period = self.spec.rebuild_days.map_or(0, |span| today / u64::from(span.max(1)));
        Self { period, today, ..self }
    }

    /// The same recipe for a version of today: what it installs may be newer than what is there.
    #[must_use]
    pub fn afresh(self) -> Self {
        Self { afresh: true, ..self }
    }

    /// The versions that the recipe made in the periods before this one.
    pub fn earlier(&self) -> BTreeSet<AgentId> {
        let content = self.content();
        let before = (0..self.period).rev().take(PERIODS_KNOWN);
        let made = before.map(|period| Self::hash(&Self::of_period(period), &content));
        let days = self.first_day()..self.period_start();
        made.chain(days.map(|day| Self::hash(&Self::of_day(day), &content))).collect()
    }

    /// The versions that are up to date: that of the period, and those that were made afresh in it. Of a
    /// recipe that is built afresh it is today's alone.
    pub fn current(&self) -> BTreeSet<AgentId> {
        if self.afresh {
            return [self.version()].into();
        }
        let content = self.content();
        let days = self.period_start().max(self.first_day())..=self.today;
        let made = days.map(|day| Self::hash(&Self::of_day(day), &content));
        made.chain([Self::hash(&Self::of_period(self.period), &content)]).collect()
    }

    fn first_day(&self) -> u64 {
        self.today.saturating_sub(DAYS_KNOWN)
    }

    fn period_start(&self) -> u64 {
        self.spec.rebuild_days.map_or(0, |span| self.period * u64::from(span.max(1)))
    }

    fn of_period(period: u64) -> String {
        if period == 0 { String::new() } else { format!("{period} ") }
    }

    fn of_day(day: u64) -> String {
        format!("day {day} ")
    }

    /// The version that it makes: a hash of everything that is in the image. Where it is built, and
    /// how long that may take, makes no other version.
    pub fn version(&self) -> AgentId {
        let when = match self.afresh {
            true => Self::of_day(self.today),
            false => Self::of_period(self.period),
        };
        Self::hash(&when, &self.content())
    }

    fn hash(when: &str, content: &str) -> AgentId {
        let mut part = 0;
        mint_agent(|| {
            part += 1;
            fnv1a(&format!("{part} {when}{content}"))
        })
    }

    /// What is in the image, as text.
    fn content(&self) -> String {
        let spec = &self.spec;
        let machine = &spec.machine;
        let steps: Vec<(&str, &StepWork)> =
            machine.steps.iter().map(|StepSpec { name, work, .. }| (name.as_str(), work)).collect();
        format!(
            "{:?}",
            (
                (&spec.source, &spec.hardware, &spec.clean, steps),
                (machine.cores, machine.memory_mb, machine.disk_gb, &machine.ssh.user),
                machine.cloud_init.seed.as_ref().map(|seed| &seed.user_data),
            )
        )
    }
}

fn filled(work: &StepWork, values: &BTreeMap<String, String>) -> StepWork {
    match work {
        StepWork::Run(command) => StepWork::Run(fill(command, values)),
        StepWork::Packages(names) => {
            StepWork::Packages(names.iter().map(|name| fill(name, values)).collect())
        }
        upload @ StepWork::Upload(_) => upload.clone(),
    }
}

/// The variable of a source's address or checksum that has no value, if there is one. A command may
/// hold `${…}` of the shell.
pub fn unfilled_variable(source: &ImageSource) -> Option<&str> {
    let texts: &[&String] = match source {
        ImageSource::Url { url, checksum, .. }
        | ImageSource::Iso { iso: IsoImage::Url { url, checksum, .. }, .. } => &[url, checksum],
        ImageSource::Iso { iso: IsoImage::Volume(volume), .. } => &[volume],
        ImageSource::Template(_) => &[],
    };
    texts.iter().find_map(|text| {
        let (_, after) = text.split_once("${")?;
        after.split_once('}').map(|(name, _)| name)
    })
}

/// The text with `${name}` replaced where `name` is a variable. Any other `$` is the shell's.
fn fill(text: &str, values: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        out.push_str(before);
        let value = after.find('}').and_then(|end| Some((values.get(&after[..end])?, end)));
        match value {
            Some((value, end)) => {
                out.push_str(value);
                rest = &after[end + 1..];
            }
            None => {
                out.push_str("${");
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::id::{NodeName, is_crockford};
    use crate::testing::image;

    fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn with_step(command: &str) -> ImageSpec {
        let mut spec = image("c/debian");
        let timeout = Duration::from_secs(60);
        let work = StepWork::Run(command.into());
        spec.machine.steps = vec![StepSpec { name: "one".into(), work, timeout }];
        spec.variables = given(&[("version", "13")]);
        spec
    }

    // Invariant: the same recipe makes the same version, and another recipe another one.

    #[test]
    fn a_version_depends_on_what_is_in_the_image_and_on_nothing_else() {
        let version = |spec: &ImageSpec| Recipe::new(spec, &given(&[])).unwrap().version();
        let spec = with_step("echo ${version}");
        let known = version(&spec);
        assert!(is_crockford(known.as_str(), 16), "{known}");
        let mut same = spec.clone();
        same.keep = 9;
        same.nodes = vec![NodeName::new("pve3")];
        same.limits.build *= 2;
        same.machine.limits.prepare *= 2;
        assert_eq!(version(&same), known);
        let changes: [fn(&mut ImageSpec); 5] = [
            |spec| spec.hardware.cpu = "x86-64-v2".into(),
            |spec| spec.machine.cores = Some(7),
            |spec| spec.machine.ssh.user = "other".into(),
            |spec| spec.clean.push_str("; true"),
            |spec| spec.variables = given(&[("version", "14")]),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let mut other = spec.clone();
            change(&mut other);
            assert_ne!(version(&other), known, "change {at}");
        }
    }

    // Invariant: an image that is rebuilt has one version in each of its periods, and knows the last.

    #[test]
    fn a_rebuilt_image_has_another_version_in_each_period() {
        let day = |day: i64| WallTime(day * 24 * 3600 * 1000 + 5);
        let spec = ImageSpec { rebuild_days: Some(10), ..with_step("true") };
        let at = |now: WallTime| Recipe::new(&spec, &given(&[])).unwrap().at(now);
        assert_eq!(at(day(20_000)).version(), at(day(20_009)).version());
        let next = at(day(20_010));
        assert_ne!(next.version(), at(day(20_009)).version());
        assert!(next.earlier().contains(&at(day(20_009)).version()));
        assert!(
            !next.earlier().contains(&next.version()) && next.current().contains(&next.version())
        );
        let never = Recipe::new(&with_step("true"), &given(&[])).unwrap();
        assert_eq!(never.clone().at(day(20_000)).version(), never.version());
        assert!(never.at(day(20_000)).earlier().is_empty());
    }

    // Invariant: a version that is made afresh is up to date until its period is over, then an earlier one.

    #[test]
    fn a_version_that_is_made_afresh_counts_as_the_recipes() {
        let day = |day: i64| WallTime(day * 24 * 3600 * 1000 + 5);
        for rebuild_days in [Some(10), None] {
            let spec = ImageSpec { rebuild_days, ..with_step("true") };
            let at = |now: WallTime| Recipe::new(&spec, &given(&[])).unwrap().at(now);
            let made = at(day(20_003)).afresh().version();
            assert_ne!(made, at(day(20_003)).version());
            assert_ne!(made, at(day(20_004)).afresh().version(), "one a day");
            for later in [20_003, 20_009] {
                let later = at(day(later));
                assert!(later.current().contains(&made) && !later.earlier().contains(&made));
            }
            let next = at(day(20_010));
            let over = rebuild_days.is_some();
            assert_eq!(
                (next.earlier().contains(&made), next.current().contains(&made)),
                (over, !over)
            );
        }
        let other = Recipe::new(&with_step("false"), &given(&[])).unwrap().at(day(20_003));
        let made = Recipe::new(&with_step("true"), &given(&[])).unwrap().at(day(20_003)).afresh();
        assert!(!other.current().contains(&made.version()), "another recipe");
    }

    // Invariant: variables have the values that were given, else those of the configuration.

    #[test]
    fn variables_are_filled_in_and_the_shells_own_stay() {
        let spec = with_step("echo ${version} ${HOME} $version $(id) ${");
        let run = |values: &[(&str, &str)]| {
            let recipe = Recipe::new(&spec, &given(values)).unwrap();
            recipe.spec.machine.steps[0].work.clone()
        };
        let echoes =
            |version| StepWork::Run(format!("echo {version} ${{HOME}} $version $(id) ${{"));
        assert_eq!(run(&[]), echoes("13"));
        assert_eq!(run(&[("version", "14")]), echoes("14"));
        let mut wrong = spec.clone();
        let url = "https://a/b.qcow2".to_owned();
        let (checksum, algorithm) = ("${version}".to_owned(), "sha512".to_owned());
        wrong.source = Some(ImageSource::Url { url, checksum, algorithm });
        let fault = Recipe::new(&wrong, &given(&[])).unwrap_err().to_string();
        assert!(fault.contains("has 2 characters, and one of kind sha512 has 128"), "{fault}");
        let unknown = Recipe::new(&spec, &given(&[("verson", "14")]));
        let text = "image `debian` has no variable `verson`; its `variables` names them";
        assert_eq!(unknown.unwrap_err().to_string(), text);
    }
}
