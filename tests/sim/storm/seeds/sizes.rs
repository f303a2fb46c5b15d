//! Leases and jobs that ask for machines of another size, drawn by dice of their own for a part of the
//! seeds. Anyone who gets an agent gets just that size, within the limits of its template.

use drover_model::ambient::Dice;
use drover_model::record::Want;
use drover_model::size::{Part, Size};
use drover_model::spec::TemplateSpec;
use serde::{Deserialize, Serialize};

use super::draw::one_of;
use super::plan::{Deed, Plan};

/// Cores of an agent where nobody asks for others.
const OWN_CORES: u32 = 2;
/// The most GiB of memory that labels ask for.
const MEMORY: u32 = 4;

/// What an asker or a job says of the size of its machine; 0 for nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Asked {
    pub cores: u32,
    /// Memory in whole GiB.
    pub memory: u32,
}

impl Asked {
    /// The labels that say it.
    pub fn labels(self) -> Vec<String> {
        let cores = (self.cores > 0).then(|| format!("cpu={}", self.cores));
        let memory = (self.memory > 0).then(|| format!("memory={}g", self.memory));
        cores.into_iter().chain(memory).collect()
    }

    /// The size that a lease brings beside its labels.
    pub fn size(self) -> Size {
        let some = |size: u32| Some(size).filter(|size| *size > 0);
        Size { cores: some(self.cores), memory_mb: some(self.memory * 1024), disk_gb: None }
    }
}

/// The keys of a template whose labels ask for up to so many cores.
pub fn keys(most: u32) -> String {
    if most == 0 {
        return String::new();
    }
    format!(
        ", cores: {OWN_CORES}, sizeLabels: {{cpu: {{max: {most}}}, memory: {{max: {MEMORY}Gi}}}}"
    )
}

/// Has some ask for sizes in some of the seeds.
pub fn lay(seed: u64, plan: &mut Plan) {
    let mut dice = Dice::from_number(seed).fork("sizes");
    if dice.below(4) > 0 {
        return;
    }
    // What is kept warm must fit where memory is short.
    let roomy = plan.stage.memory == 0;
    let most = [(); 3].map(|()| one_of(&mut dice, &[0, 4, 8, 8]));
    for (conf, most) in plan.stage.templates.iter_mut().zip(most) {
        conf.iter_mut().for_each(|conf| conf.cores = most);
    }
    for event in &mut plan.events {
        match &mut event.deed {
            // A reload may take it back for a while.
            Deed::Template(number, Some(conf)) => {
                conf.cores = one_of(&mut dice, &[0, most[*number], most[*number]]);
            }
            Deed::Ask { template, size, .. } | Deed::Jobs { template, size, .. } => {
                let cores = one_of(&mut dice, &[0, 0, OWN_CORES, 3, 4, 8]);
                let memory = one_of(&mut dice, &[0, 0, 3, MEMORY]);
                if most[*template] > 0 {
                    size.cores = cores.min(most[*template]);
                    size.memory = if roomy { memory } else { 0 };
                }
            }
            _ => {}
        }
    }
}

/// The size that is asked for, by its words alone.
pub(super) fn asked(want: &Want) -> Size {
    let number = |label: &str, key: &str, behind: &str| {
        label.strip_prefix(key)?.strip_suffix(behind)?.parse::<u32>().ok()
    };
    let names = want.names();
    let cores = names.iter().find_map(|label| number(label, "cpu=", ""));
    let memory = names.iter().find_map(|label| number(label, "memory=", "g"));
    let by_labels = Size { cores, memory_mb: memory.map(|size| size * 1024), disk_gb: None };
    match want {
        Want::Sized(_, size) => by_labels.under(*size),
        Want::Template(_) | Want::Labels(_) | Want::Expression(_) => by_labels,
    }
}

/// What is wrong with an agent of this spec for somebody who asks for a size.
pub(super) fn unfit(spec: &TemplateSpec, asked: Size) -> Option<String> {
    Part::ALL.into_iter().find_map(|part| {
        let (own, size) = (spec.own_size().of(part), spec.size.of(part));
        let most = spec.size_labels.of(part).map(|limit| limit.max);
        let fits = match asked.of(part) {
            Some(asked) => own == Some(asked),
            None => size.is_none(),
        };
        let within = size.is_none_or(|size| most.is_some_and(|most| size <= most));
        let unit = part.unit();
        (!fits || !within).then(|| {
            format!("{own:?} {unit} for {:?}, of at most {most:?}, given {size:?}", asked.of(part))
        })
    })
}

/// What is wrong with a guest's configuration for somebody who asks for a size.
pub(super) fn misshapen(
    read: impl Fn(&'static str) -> Option<String>,
    asked: Size,
) -> Option<String> {
    let parts = [("cores", asked.cores), ("memory", asked.memory_mb)];
    parts.into_iter().find_map(|(key, asked)| {
        let (asked, has) = (asked?.to_string(), read(key));
        (has.as_ref() != Some(&asked)).then(|| format!("{key} is {has:?} for {asked}"))
    })
}

/// Has nobody ask for a size.
pub fn none(plan: &mut Plan) {
    for event in &mut plan.events {
        if let Deed::Ask { size, .. } | Deed::Jobs { size, .. } = &mut event.deed {
            *size = Asked::default();
        }
    }
}
