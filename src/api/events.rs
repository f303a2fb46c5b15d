//! Kinds of events.

/// Makes the enum of the kinds with the word of each, so that none is missing in the list.
macro_rules! kinds {
    ($($kind:ident = $name:literal),* $(,)?) => {
        /// The kind of an event of `GET /v1/events`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum EventKind {
            $(#[doc = concat!("`", $name, "`.")] $kind),*
        }

        impl EventKind {
            /// Every kind that this version of drover sends or prints.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The word in the stream.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name),*
                }
            }
        }
    };
}

kinds! {
    ConfigApplied = "configApplied",
    ConfigRefused = "configRefused",
    ConfigSynced = "configSynced",
    ConfigNotSynced = "configNotSynced",
    Ordered = "ordered",
    Agent = "agent",
    Step = "step",
    AgentGone = "agentGone",
    Alarm = "alarm",
    Lease = "lease",
    Template = "template",
    Breaker = "breaker",
    Resets = "resets",
    HoldNext = "holdNext",
    TemplateGone = "templateGone",
    Cloud = "cloud",
    CloudGone = "cloudGone",
    Source = "source",
    SourceGone = "sourceGone",
    JobLost = "jobLost",
    OtherDrover = "otherDrover",
    AddressPools = "addressPools",
    Image = "image",
    Machine = "machine",
    Reconciled = "reconciled",
    Restarted = "restarted",
    Lagged = "lagged",
}

impl EventKind {
    /// The kind of this word; `None` where this version of drover does not know it.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}
