//! An orphan as an agent: its marks become an entry that is already being retired, so that one
//! code path destroys guests, whoever's record they lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::id::{Generation, NodeName, TemplateId};
use crate::ledger::AgentEntry;
use crate::marks::Marks;
use crate::record::Reason;
use crate::spec::{
    BreakerSpec, CloneStrategy, CloudInitSpec, JavaDistribution, JavaSpec, LimitSpec, Mode,
    SshSpec, TemplateSpec,
};
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
        volumes: Vec::new(),
        host_keys: Vec::new(),
        address: None,
        state: "Retiring".into(),
        leases: BTreeMap::new(),
        uses: 0,
        retiring: Some(Reason::Orphaned),
        expelling: BTreeMap::new(),
        unswept: false,
        stranded: None,
    }
}

/// Just enough of a spec to retire a guest by.
fn bare_spec(template: &TemplateId, marks: &Marks) -> TemplateSpec {
    let minutes = |n: u64| Duration::from_secs(n * 60);
    TemplateSpec {
        id: template.clone(),
        name: marks.template.clone(),
        generation: Generation::default(),
        node: None,
        source: marks.vmid,
        labels: BTreeSet::new(),
        executors: 1,
        clone: CloneStrategy::Full,
        target_storage: None,
        target_pool: None,
        cores: None,
        memory_mb: None,
        disk_gb: None,
        remote_fs: String::new(),
        mode: Mode::Exclusive,
        ssh: SshSpec {
            credentials_id: String::new(),
            user: String::new(),
            port: 22,
            public_key: String::new(),
        },
        java: JavaSpec {
            distribution: JavaDistribution::None,
            major: 0,
            path: String::new(),
            options: String::new(),
        },
        idle: None,
        cap: None,
        minimum: 0,
        max_uses: None,
        name_prefix: String::new(),
        tags: BTreeSet::new(),
        description: String::new(),
        cloud_init: CloudInitSpec {
            user: None,
            ip_config: None,
            nameserver: None,
            search_domain: None,
        },
        guest_networks: Vec::new(),
        ready_command: None,
        limits: LimitSpec {
            queue: minutes(10),
            call: minutes(1),
            operation: minutes(5),
            clone: minutes(60),
            startup: minutes(5),
            prepare: minutes(5),
            shutdown: Duration::ZERO,
            retire: minutes(10),
            lifetime: None,
        },
        breaker: BreakerSpec { threshold: 3, cooldown: minutes(2), cooldown_cap: minutes(30) },
    }
}
