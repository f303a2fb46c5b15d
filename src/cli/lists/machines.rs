//! Declared machines, with what differs where nothing else is to say; and the hardware of one machine.

use drover_api::{ConfigOutValue, DeclaredMachineOut, DriftOut};
use drover_model::phase::{DeclaredPhase, Power};

use super::Listed;
use crate::cli::table::{Cell, Column, Kind, Tone, View, column};

impl Listed for DeclaredMachineOut {
    const COLUMNS: &'static [Column] = &[
        column("MACHINE", Kind::Name, 0),
        column("STATE", Kind::State, 0),
        column("POWER", Kind::State, 1),
        column("VMID", Kind::Number, 3),
        column("NODE", Kind::Name, 2),
        column("ADDRESS", Kind::Name, 4),
        column("DETAIL", Kind::Text, 1),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        let drift = || self.drift.iter().map(differs).collect::<Vec<_>>().join("; ");
        let detail = if self.detail.is_empty() { drift() } else { self.detail.clone() };
        let power = match self.power {
            Power::Running => Tone::Good,
            Power::Stopped => Tone::Gone,
            Power::Suspended | Power::Unknown => Tone::Busy,
        };
        vec![
            Cell::of(&self.name),
            Cell::State(machine_state(self), tone(self)),
            Cell::State(self.power.to_string(), power),
            Cell::maybe(self.vmid),
            Cell::maybe(self.node.as_ref()),
            Cell::maybe(self.addresses.first()),
            Cell::of(detail),
        ]
    }
}

/// Where a declared machine is in its life.
pub(in crate::cli) fn machine_state(out: &DeclaredMachineOut) -> String {
    match (out.state, out.drift.is_empty()) {
        (DeclaredPhase::Kept, false) => "kept, with drift".to_owned(),
        (state, _) => state.name().to_owned(),
    }
}

fn tone(out: &DeclaredMachineOut) -> Tone {
    match out.state {
        DeclaredPhase::Kept if out.drift.is_empty() => Tone::Good,
        DeclaredPhase::Kept
        | DeclaredPhase::Waiting
        | DeclaredPhase::Creating
        | DeclaredPhase::Configuring
        | DeclaredPhase::Starting
        | DeclaredPhase::Correcting => Tone::Busy,
        DeclaredPhase::Blocked | DeclaredPhase::Missing | DeclaredPhase::Foreign => Tone::Bad,
        DeclaredPhase::Left | DeclaredPhase::Removing | DeclaredPhase::Removed => Tone::Gone,
    }
}

/// A difference between a machine and its declaration.
pub(in crate::cli) fn differs(one: &DriftOut) -> String {
    format!("{} is {}, declared {}", one.what, one.found, one.declared)
}

impl Listed for ConfigOutValue {
    const COLUMNS: &'static [Column] = &[
        column("HARDWARE", Kind::Name, 0),
        column("NOW", Kind::Text, 0),
        column("AFTER A RESTART", Kind::Text, 0),
    ];

    fn name(&self) -> String {
        self.key.clone()
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        let after = match self.deleted {
            true => Cell::State("is taken away".to_owned(), Tone::Busy),
            false => Cell::maybe(self.pending.as_ref()),
        };
        vec![Cell::of(&self.key), Cell::maybe(self.value.as_ref()), after]
    }
}
