//! Layers over the ports, and the macro that makes ports of their tables.
//!
//! `port!` reads a table of calls (`operations.rs`) and writes three things: the trait of the port,
//! the port under a [`Layer`], and where `fake` names one a fake for tests. A layer says once what becomes of every call:
//! it limits the time, reads the answers, or lets a test judge the call.

use std::sync::Arc;
use std::time::Duration;

use crate::demand::words::Words;
use crate::fault::{Culprit, Fault};
use crate::hardware::Devices;
use crate::id::{CloudId, SourceId, Upid, VmId};
use crate::order::MachineView;
use crate::placement::Fleet;
use crate::ports::{
    AddressObservation, Ask, Carried, CloneCall, ClusterObservation, ConfigureCall, Configured,
    CreateCall, EjectCall, FinishCall, Greeting, IdStatus, OrderCall, Ports, PullCall, Ran,
    SealCall, ShellTarget, Snapped, SnapshotCall, SourceObservation, StartRunnerCall, Survey,
    TaskEnd, VmObservation, VmRef,
};
use crate::template_image::Found;

/// A call that is about to leave, as its row of the table describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortCall {
    /// The port's method, such as `clone_vm`.
    pub name: &'static str,
    /// Whether it may change something; one without an answer may have had its effect then.
    pub changes: bool,
    /// The longest wait for its answer.
    pub limit: Duration,
    /// Who is to blame when no answer comes.
    pub culprit: Culprit,
    /// The guest it is about, where it is about one.
    pub vmid: Option<VmId>,
}

/// What becomes of the calls that go through it.
pub trait Layer: Send + Sync + 'static {
    /// Answers the call. Each use of `make` makes the call beneath once.
    fn ask<T: Reply>(&self, call: PortCall, make: impl Fn() -> Ask<T>) -> Ask<T>;
}

/// A port under a layer.
pub struct Layered<L, P: ?Sized> {
    pub layer: L,
    pub port: Arc<P>,
}

impl Ports {
    /// These ports with every call to Proxmox, to guests and to sources through this layer.
    #[must_use]
    pub fn under<L: Layer + Clone>(self, layer: &L) -> Self {
        let Self { hypervisor, shell, demand, .. } = self;
        let hypervisor = Arc::new(Layered { layer: layer.clone(), port: hypervisor });
        let shell = Arc::new(Layered { layer: layer.clone(), port: shell });
        let demand = Arc::new(Layered { layer: layer.clone(), port: demand });
        Self { hypervisor, shell, demand, ..self }
    }
}

/// The first argument of a call: what the call is about.
pub trait Subject {
    fn culprit(&self) -> Culprit;
    fn vmid(&self) -> Option<VmId> {
        None
    }
}

impl Subject for CloudId {
    fn culprit(&self) -> Culprit {
        Culprit::Cloud(self.clone())
    }
}

impl Subject for VmRef {
    fn culprit(&self) -> Culprit {
        self.cloud.culprit()
    }
    fn vmid(&self) -> Option<VmId> {
        Some(self.vmid)
    }
}

impl Subject for CloneCall {
    fn culprit(&self) -> Culprit {
        self.cloud.culprit()
    }
    fn vmid(&self) -> Option<VmId> {
        Some(self.marks.vmid)
    }
}

impl Subject for ConfigureCall {
    fn culprit(&self) -> Culprit {
        self.vm.culprit()
    }
    fn vmid(&self) -> Option<VmId> {
        self.vm.vmid()
    }
}

impl Subject for SnapshotCall {
    fn culprit(&self) -> Culprit {
        self.vm.culprit()
    }
    fn vmid(&self) -> Option<VmId> {
        self.vm.vmid()
    }
}

impl Subject for OrderCall {
    fn culprit(&self) -> Culprit {
        self.vm.culprit()
    }
    fn vmid(&self) -> Option<VmId> {
        self.vm.vmid()
    }
}

impl Subject for PullCall {
    fn culprit(&self) -> Culprit {
        self.cloud.culprit()
    }
}

impl Subject for CreateCall {
    fn culprit(&self) -> Culprit {
        self.cloud.culprit()
    }
    fn vmid(&self) -> Option<VmId> {
        Some(self.marks.vmid)
    }
}

impl Subject for EjectCall {
    fn culprit(&self) -> Culprit {
        self.vm.culprit()
    }
    fn vmid(&self) -> Option<VmId> {
        self.vm.vmid()
    }
}

impl Subject for FinishCall {
    fn culprit(&self) -> Culprit {
        self.vm.culprit()
    }
    fn vmid(&self) -> Option<VmId> {
        self.vm.vmid()
    }
}

impl Subject for SealCall {
    fn culprit(&self) -> Culprit {
        self.vm.culprit()
    }
    fn vmid(&self) -> Option<VmId> {
        self.vm.vmid()
    }
}

impl Subject for ShellTarget {
    fn culprit(&self) -> Culprit {
        Culprit::Guest
    }
}

impl Subject for StartRunnerCall {
    fn culprit(&self) -> Culprit {
        Culprit::Guest
    }
}

impl Subject for SourceId {
    fn culprit(&self) -> Culprit {
        Culprit::Source(self.clone())
    }
}

/// An answer, and what it says of the cloud that gave it.
pub trait Reply: Send + 'static {
    /// Whether it comes from endpoints without quorum, so that it is no evidence.
    fn lacks_quorum(&self) -> bool {
        false
    }
    /// The failure it reports.
    fn failure(&self) -> Option<&Fault> {
        None
    }
}

impl Reply for () {}
impl Reply for AddressObservation {}
impl Reply for ClusterObservation {}
impl Reply for Configured {}
impl Reply for Devices {}
impl Reply for Fleet {}
impl Reply for Found {}
impl Reply for Greeting {}
impl Reply for MachineView {}
impl Reply for Ran {}
impl Reply for Snapped {}
impl Reply for SourceObservation {}
impl Reply for Upid {}
impl Reply for Words {}
impl<T: Send + 'static> Reply for Vec<T> {}
impl<T: Send + 'static> Reply for Option<T> {}

impl Reply for Carried {
    fn failure(&self) -> Option<&Fault> {
        self.outcome.as_ref().err()
    }
}

impl Reply for TaskEnd {
    fn failure(&self) -> Option<&Fault> {
        match self {
            Self::Failed(fault) => Some(fault),
            Self::Done { .. } | Self::Unknown(_) => None,
        }
    }
}

impl Reply for IdStatus {
    fn lacks_quorum(&self) -> bool {
        *self == Self::Unknown
    }
}

impl Reply for VmObservation {
    fn lacks_quorum(&self) -> bool {
        self.id.lacks_quorum()
    }
}

impl Reply for Survey {
    fn lacks_quorum(&self) -> bool {
        !self.quorate
    }
}

/// Makes a port of its table. A row is `read` or `change`, the method, its answer, the longest wait
/// for it and, where the first argument does not say which guest the call is about, that guest.
macro_rules! port {
    // The port, and a fake of it.
    (
        $(#[$port_doc:meta])*
        trait $port:ident, fake $fake:ident { $($rows:tt)+ }
        $(notes { $($notes:tt)+ })?
    ) => {
        port! { $(#[$port_doc])* trait $port { $($rows)+ } $(notes { $($notes)+ })? }
        port! { @fake $port $fake { $($rows)+ } $(notes { $($notes)+ })? }
    };
    (
        $(#[$port_doc:meta])*
        trait $port:ident {
            $(
                $(#[$doc:meta])*
                $effect:ident fn $name:ident($subject:ident: $subject_type:ty
                    $(, $arg:ident: $type:ty)* $(,)?) -> $answer:ty,
                    within $limit:expr $(, about $vmid:expr)?;
            )+
        }
        $(notes {
            $(#[$note_doc:meta])*
            fn $note:ident($($note_arg:ident: $note_type:ty),+);
        })?
    ) => {
        $(#[$port_doc])*
        pub trait $port: Send + Sync + 'static {
            $(
                $(#[$note_doc])*
                fn $note(&self, $($note_arg: $note_type),+);
            )?
            $(
                $(#[$doc])*
                fn $name(&self, $subject: $subject_type $(, $arg: $type)*) -> Ask<$answer>;
            )+
        }

        impl<L: Layer> $port for Layered<L, dyn $port> {
            $(
                fn $note(&self, $($note_arg: $note_type),+) {
                    self.port.$note($($note_arg),+);
                }
            )?
            $(
                fn $name(&self, $subject: $subject_type $(, $arg: $type)*) -> Ask<$answer> {
                    let call = PortCall {
                        name: stringify!($name),
                        changes: port!(@$effect),
                        limit: $limit,
                        culprit: $subject.culprit(),
                        vmid: port!(@about $subject $($vmid)?),
                    };
                    self.layer.ask(call, || {
                        self.port.$name(Clone::clone(&$subject) $(, Clone::clone(&$arg))*)
                    })
                }
            )+
        }
    };
    (
        @fake $port:ident $fake:ident {
            $(
                $(#[$doc:meta])*
                $effect:ident fn $name:ident($subject:ident: $subject_type:ty
                    $(, $arg:ident: $type:ty)* $(,)?) -> $answer:ty,
                    within $limit:expr $(, about $vmid:expr)?;
            )+
        }
        $(notes {
            $(#[$note_doc:meta])*
            fn $note:ident($($note_arg:ident: $note_type:ty),+);
        })?
    ) => {
        /// The port for tests that serve a few of its calls.
        #[cfg(any(test, feature = "testing"))]
        pub trait $fake: Send + Sync + 'static {
            /// Answers a call that is not served.
            fn unserved<T: Send + 'static>(&self, call: &'static str) -> Ask<T>;
            $(
                fn $note(&self, $($note_arg: $note_type),+) {
                    let _ = ($($note_arg),+);
                }
            )?
            $(
                fn $name(&self, $subject: $subject_type $(, $arg: $type)*) -> Ask<$answer> {
                    let _ = ($subject, $($arg),*);
                    self.unserved(stringify!($name))
                }
            )+
        }

        #[cfg(any(test, feature = "testing"))]
        impl<F: $fake> $port for F {
            $(
                fn $note(&self, $($note_arg: $note_type),+) {
                    $fake::$note(self, $($note_arg),+);
                }
            )?
            $(
                fn $name(&self, $subject: $subject_type $(, $arg: $type)*) -> Ask<$answer> {
                    $fake::$name(self, $subject $(, $arg)*)
                }
            )+
        }
    };
    (@read) => { false };
    (@change) => { true };
    (@about $subject:ident) => { $subject.vmid() };
    (@about $subject:ident $vmid:expr) => { $vmid };
}

pub(crate) use port;
