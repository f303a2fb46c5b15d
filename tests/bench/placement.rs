//! One decision where to put an agent, over a large cluster, beside one plain sum over its guests.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use drover_actors::placement::Claim;
use drover_actors::source::{Ground, choose};
use drover_model::id::{CloudId, NodeName, TemplateId, VmId};
use drover_model::placement::{
    Fleet, GuestObservation, NodeFigures, NodeObservation, Operator, Sizes, StorageObservation,
    Term,
};
use drover_model::spec::TemplateSpec;
use drover_model::template_image::{Candidate, Found, Sought};

use crate::figure::{Figure, Report, percentile};

const NODES: u32 = 100;
const GUESTS: u32 = 5000;
/// Of the guests, every fifth is drover's own.
const OWN: u32 = 5;
const TIMES: usize = 200;
const GIB: u64 = 1 << 30;

struct Bed(Vec<Claim>);

impl Ground for Bed {
    fn node_closed(&self, _: &NodeName) -> Option<String> {
        None
    }

    fn storage_closed(&self, _: &str, _: Option<&NodeName>) -> Option<String> {
        None
    }

    fn claims(&self) -> &[Claim] {
        &self.0
    }
}

fn node(n: u32) -> NodeName {
    NodeName::new(format!("pve{}", n % NODES))
}

/// A hundred nodes with a template each, five thousand guests, a thousand of them drover's own.
fn cluster() -> (Found, Bed) {
    let nodes = (0..NODES).map(|n| {
        let used = u64::from(n % 7) * 20 * GIB;
        let figures = NodeFigures { cpus: 64, busy: 9000, memory: 512 * GIB, used };
        (node(n), NodeObservation { figures: Some(figures), ..NodeObservation::default() })
    });
    let storages = (0..NODES).map(|n| StorageObservation {
        node: node(n),
        name: "local-lvm".into(),
        shared: false,
        kind: "lvmthin".into(),
        images: true,
        containers: true,
        reached: true,
        space: Some((GIB, 1000 * GIB)),
    });
    let guests: BTreeMap<VmId, GuestObservation> = (0..GUESTS)
        .map(|n| {
            let guest = GuestObservation {
                node: node(n),
                running: true,
                template: false,
                memory: 4 * GIB,
                used: GIB,
                cpus: 2,
                busy: 200,
                disk: 20 * GIB,
                tags: vec!["drover".into(), format!("team.{}", n % 40)],
            };
            (VmId(10_000 + n), guest)
        })
        .collect();
    let candidates = (0..NODES).map(|n| Candidate {
        vmid: VmId(1000 + n),
        node: node(n),
        name: "debian-13".into(),
        created: Some(u64::from(n)),
        storages: ["local-lvm".to_owned()].into(),
        digest: String::new(),
        sizes: Sizes { cores: 2, memory_mb: 4096, disk_gb: 20 },
    });
    let candidates: Vec<Candidate> = candidates.collect();
    let born = Arc::new(spec());
    let claims = (0..GUESTS).filter(|n| n % OWN == 0).map(|n| {
        let mut claim = Claim::coming(&born, node(n), None);
        claim.vmid = Some(VmId(10_000 + n));
        claim.sizes = Sizes { cores: 2, memory_mb: 4096, disk_gb: 20 };
        claim
    });
    let claims = claims.collect();
    let fleet = Arc::new(Fleet::new(nodes.collect(), storages.collect(), guests));
    (Found { candidates, fleet, whole: true }, Bed(claims))
}

fn spec() -> TemplateSpec {
    let mut spec = TemplateSpec::bare(TemplateId::new(CloudId::new("c"), "t"), VmId(0));
    spec.search = Some(Sought::Name("debian-13".into()));
    spec.placement.anywhere = true;
    spec.placement.headroom.memory_percent = 10;
    spec
}

/// The median of what one takes.
pub fn micros(mut one: impl FnMut()) -> f64 {
    let times: Vec<f64> = (0..TIMES)
        .map(|_| {
            let started = Instant::now();
            one();
            started.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    percentile(&times, 0.5)
}

/// Reports how long decisions take, plain and with terms of affinity.
pub fn report(report: &mut Report) {
    let (found, bed) = cluster();
    let sum = micros(|| {
        let all = found.fleet.guests().values().filter(|guest| guest.running);
        black_box(all.map(|guest| guest.memory).sum::<u64>());
    });
    let plain = spec();
    let mut apart = spec();
    apart.placement.anti_affinity =
        vec![Term { key: "team".into(), operator: Operator::In, values: vec!["7".into()] }];
    for (name, spec) in [("placement.decision", plain), ("placement.with-affinity", apart)] {
        assert!(choose(&spec, &found, &bed).is_ok(), "nothing was chosen");
        let took = micros(|| {
            let decided = Bed(bed.0.clone());
            black_box(choose(black_box(&spec), &found, &decided).is_ok());
        });
        report.add(Figure::alone(name, took, "us").against("a sum over all guests", sum));
    }
}
