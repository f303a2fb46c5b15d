//! An orphan as an agent: its marks become an entry that is already being retired, so that one
//! code path destroys guests, whoever's record they lost.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::{NodeName, TemplateId};
use crate::ledger::{AgentEntry, Wishes};
use crate::marks::Marks;
use crate::record::Reason;
use crate::spec::TemplateSpec;
use crate::time::WallTime;

/// The entry of an orphan; `template` when one of its name is still configured.
pub fn entry(
    marks: &Marks,
    node: NodeName,
    template: &TemplateId,
    spec: Option<&TemplateSpec>,
    now: WallTime,
) -> AgentEntry {
    let spec = spec.cloned().unwrap_or_else(|| bare_spec(template, marks));
    AgentEntry {
        marks: marks.clone(),
        node,
        spec: Box::new(spec),
        intended: now,
        upid: None,
        settled: true,
        addresses: Vec::new(),
        called: None,
        volumes: Vec::new(),
        mac: None,
        host_keys: Vec::new(),
        address: None,
        state: "Retiring".into(),
        leases: BTreeMap::new(),
        uses: 0,
        retiring: Some(Reason::Orphaned),
        expelling: BTreeMap::new(),
        owner: None,
        ran: false,
        clean: false,
        unswept: false,
        wishes: Wishes::default(),
        stranded: None,
    }
}

/// Just enough of a spec to retire a guest by: nobody in it is waited for.
fn bare_spec(template: &TemplateId, marks: &Marks) -> TemplateSpec {
    let mut spec = TemplateSpec::bare(template.clone(), marks.vmid);
    spec.name.clone_from(&marks.template);
    spec.limits.shutdown = Duration::ZERO;
    spec
}
