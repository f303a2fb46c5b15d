//! Specs, entries and asks with plain values.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::container::GuestType;
use crate::id::{
    AgentId, CloudId, ClusterId, Generation, Installation, LeaseId, NodeName, TemplateId, VmId,
};
use crate::image::{Bios, Downloader, Hardware, ImageLimits, ImageSource, ImageSpec};
use crate::journal_state::{AgentEntry, Commands};
use crate::marks::{Kind, Marks};
use crate::order::MachineOrders;
use crate::phase::AgentPhase;
use crate::ports::{Calendar, WindowStatus};
use crate::record::{LeaseAsk, Want};
use crate::spec::{
    CloneStrategy, CloudSpec, HerdSpec, LimitSpec, Mode, SshSpec, StepSpec, StepWork, TemplateSpec,
    WindowSpec,
};
use crate::status::{AgentStatus, Standing};
use crate::time::{Moment, Now, WallTime};

pub const CLUSTER: &str = "9f31c0aa52e7d410";

pub fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A moment some seconds after the start, on both clocks.
pub fn at(seconds: u64) -> Now {
    let wall = WallTime(1_800_000_000_000 + i64::try_from(seconds).unwrap() * 1000);
    Now { mono: Moment(seconds * 1000), wall }
}

pub fn template_id(text: &str) -> TemplateId {
    let (cloud, name) = text.split_once('/').unwrap();
    TemplateId::new(CloudId::new(cloud), name)
}

/// A template of one executor, no cap and no minimum.
pub fn template(text: &str, labels: &[&str]) -> TemplateSpec {
    let bare = TemplateSpec::bare(template_id(text), VmId(9000));
    TemplateSpec {
        generation: Generation(1),
        node: Some(NodeName::new("pve1")),
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        clone: CloneStrategy::Linked,
        remote_fs: "/home/ci".into(),
        mode: Mode::Normal,
        ssh: SshSpec { credentials_id: "ssh".into(), user: "ci".into(), ..bare.ssh },
        limits: LimitSpec {
            clone: seconds(3600),
            startup: seconds(300),
            prepare: seconds(300),
            shutdown: seconds(30),
            retire: seconds(600),
            ..bare.limits
        },
        ..bare
    }
}

/// An image from a URL, of one step.
pub fn image(text: &str) -> ImageSpec {
    let step = StepSpec {
        name: "packages".into(),
        work: StepWork::Packages(vec!["git".into()]),
        timeout: seconds(600),
    };
    ImageSpec {
        id: template_id(text),
        source: Some(ImageSource::Url {
            url: "https://cloud.example/debian-13.qcow2".into(),
            checksum: "ab".repeat(32),
            algorithm: "sha256".into(),
        }),
        hardware: Hardware {
            machine: "q35".into(),
            bios: Bios::Ovmf,
            cpu: "host".into(),
            scsi: "virtio-scsi-single".into(),
            serial: true,
            os_type: "l26".into(),
            bridge: "vmbr0".into(),
            vlan: None,
        },
        machine: TemplateSpec { steps: vec![step], ..template(text, &[]) },
        variables: BTreeMap::new(),
        clean: "clean".into(),
        nodes: vec![NodeName::new("pve1")],
        storage: "local-lvm".into(),
        import_storage: "local".into(),
        downloader: Downloader::Node,
        vmid_floor: VmId(9000),
        keep: 1,
        rebuild_days: None,
        build_missing: false,
        limits: ImageLimits { pull: seconds(7200), lock: seconds(7800), build: seconds(9000) },
    }
}

/// The status of an agent of which only this is known.
pub fn agent_status(
    agent: &str,
    template: &TemplateId,
    phase: AgentPhase,
    standing: Standing,
) -> AgentStatus {
    let started = AgentStatus::started(AgentId::new(agent), template.clone(), at(0).wall);
    AgentStatus { phase, standing, ..started }
}

pub fn cloud(id: &str, cap: Option<u32>) -> CloudSpec {
    CloudSpec {
        id: CloudId::new(id),
        name: id.into(),
        cap,
        vmid_floor: VmId(10_000),
        vmid_ceiling: VmId(20_000),
        operation_timeout: seconds(300),
        cleanup_orphans: true,
        reconcile_period: seconds(60),
        orphan_grace: seconds(300),
        node_grace: seconds(120),
        clones_per_storage: 100,
        operations_per_node: 100,
        image_storages: BTreeSet::new(),
        adapt_lanes: false,
        connection: 1,
        overrides: crate::overridden::CloudOverrides::default(),
    }
}

pub fn herd(clouds: Vec<CloudSpec>, templates: Vec<TemplateSpec>) -> Arc<HerdSpec> {
    Arc::new(HerdSpec {
        generation: Generation(1),
        clouds: clouds.into_iter().map(|spec| (spec.id.clone(), Arc::new(spec))).collect(),
        templates: templates.into_iter().map(|spec| (spec.id.clone(), Arc::new(spec))).collect(),
        ..HerdSpec::default()
    })
}

pub fn labels(labels: &[&str]) -> Want {
    Want::Labels(labels.iter().map(|label| (*label).to_owned()).collect())
}

pub fn ask(lease: &str, want: Want, asked: u64) -> LeaseAsk {
    LeaseAsk {
        lease: LeaseId::new(lease),
        want,
        principal: "alice".into(),
        owner: "build".into(),
        ttl_ms: 3_600_000,
        public_key: None,
        key_hash: None,
        body_hash: "body".into(),
        asked: at(asked).wall,
        source: None,
        whole: false,
        user_data: false,
        group: None,
        wait_ms: None,
    }
}

pub fn marks(agent: &str, vmid: u32) -> Marks {
    Marks {
        installation: Installation::new("7k2m9qxw"),
        agent: AgentId::new(agent),
        vmid: VmId(vmid),
        cluster: ClusterId::new(CLUSTER),
        kind: Kind::Agent,
        guest: GuestType::Vm,
        seq: 5,
        cloud: "c".into(),
        template: "t".into(),
        born: "2026-11-21T08:11:02Z".into(),
    }
}

pub fn entry(agent: &str, vmid: u32, spec: TemplateSpec, state: AgentPhase) -> AgentEntry {
    AgentEntry {
        marks: marks(agent, vmid),
        node: NodeName::new("pve1"),
        spec: Box::new(spec),
        intended: at(0).wall,
        upid: None,
        settled: true,
        addresses: Vec::new(),
        called: None,
        volumes: Vec::new(),
        mac: None,
        host_keys: Vec::new(),
        address: None,
        state: Some(state),
        since: None,
        leases: BTreeMap::new(),
        uses: 0,
        retiring: None,
        expelling: BTreeMap::new(),
        owner: None,
        ran: false,
        clean: false,
        unswept: false,
        commands: Commands::default(),
        machine: MachineOrders::default(),
        stranded: None,
    }
}

/// A window open each day from one hour to another, counted from the clock's start, with the
/// minimums of all and of idle agents.
pub fn window(from: u64, to: u64, (minimum, idle_minimum): (u32, u32)) -> WindowSpec {
    WindowSpec {
        cron: from.to_string(),
        duration: seconds((to - from) * 3600),
        time_zone: String::new(),
        minimum,
        idle_minimum,
    }
}

/// Knows days of 24 hours, counted from the clock's start, and patterns that are an hour.
pub struct Hours;

impl Calendar for Hours {
    fn observation(&self, window: &WindowSpec, at: WallTime) -> WindowStatus {
        const HOUR: i64 = 3_600_000;
        let day = 24 * HOUR;
        let now = at.0 - crate::testing::at(0).wall.0;
        let from = window.cron.parse::<i64>().unwrap_or(0) * HOUR;
        let open_for = i64::try_from(window.duration.as_millis()).unwrap_or(i64::MAX);
        let opened = (now - from).div_euclid(day) * day + from;
        let wall = |of: i64| WallTime(crate::testing::at(0).wall.0 + of);
        let open = now < opened + open_for;
        WindowStatus {
            open,
            closed: (!open && opened >= 0).then_some(wall(opened + open_for)),
            until: Some(wall(if open { opened + open_for } else { opened + day })),
        }
    }
}
