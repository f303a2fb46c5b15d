//! Phases that an older journal does not hold: spelled as empty text, as they always were.

use serde::{Deserialize, Deserializer, Serializer};

use crate::phase::AgentPhase;

pub(super) fn serialize<S: Serializer>(
    phase: &Option<AgentPhase>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(phase.map_or("", AgentPhase::name))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    reader: D,
) -> Result<Option<AgentPhase>, D::Error> {
    let word = String::deserialize(reader)?;
    let phase = Some(word).filter(|word| !word.is_empty());
    phase.map(|word| word.parse().map_err(serde::de::Error::custom)).transpose()
}
