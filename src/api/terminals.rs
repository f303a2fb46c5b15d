//! Terminals in agents.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A terminal as it is asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TerminalIn {
    /// From 20 to 300.
    pub columns: u16,
    /// From 5 to 120.
    pub rows: u16,
    /// Holds an agent that is free for so long first: drover hands it out to nobody meanwhile, and destroys it
    /// afterwards. Without it no terminal is opened in an agent that is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_seconds: Option<u64>,
}

/// A terminal that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TerminalOut {
    /// Names the terminal for its reader, its keys and its end.
    pub id: String,
    pub agent: String,
    /// After how many seconds without a key it is closed.
    pub idle_seconds: u64,
    /// After how many seconds it is closed in any case.
    pub longest_seconds: u64,
}

/// Terminals that are open: those of the caller, and to an admin all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TerminalsOut {
    /// The oldest first.
    pub terminals: Vec<OpenTerminalOut>,
}

/// A terminal as lists have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct OpenTerminalOut {
    pub id: String,
    pub agent: String,
    /// Who opened it.
    pub principal: String,
    /// The address that it was opened from.
    pub peer: String,
    /// For how many seconds it is open.
    pub open_seconds: u64,
    /// How many seconds ago the last key came.
    pub last_key_seconds: u64,
}

/// What is typed into a terminal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TerminalKeysIn {
    /// At most 16,384 bytes, as a terminal sends keys.
    pub text: String,
}

/// Another size of a terminal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TerminalSizeIn {
    /// From 20 to 300.
    pub columns: u16,
    /// From 5 to 120.
    pub rows: u16,
}

/// A piece of a line of a terminal: its text, and how it is drawn, as [`TerminalScreenOut::above`] has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalPiece(pub String, pub String);

/// The screen of a terminal, or what changed on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TerminalScreenOut {
    pub columns: u16,
    pub rows: u16,
    /// Whether this is all of the screen and of the lines above it; else it is what changed.
    pub whole: bool,
    /// Row and column of the cursor, from 0; null while it is hidden.
    // Clients that are made from the document know no arrays with a type for each place.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<u16>>))]
    pub cursor: Option<(u16, u16)>,
    /// What the programs call the terminal.
    pub title: String,
    /// Whether a program has the other screen, as editors have, which keeps no lines that leave it.
    pub full_screen: bool,
    /// Whether arrow keys are sent as `ESC O A`, and not as `ESC [ A`.
    pub application_keys: bool,
    /// Whether what is pasted is put between `ESC [ 200 ~` and `ESC [ 201 ~`.
    pub bracketed_paste: bool,
    /// Lines that left the screen since the last one, the oldest first. A line is of pieces, a piece is its text and
    /// how it is drawn: words with a blank between, `b` bold, `d` dim, `i` italic, `u` underlined, `r` with its colours
    /// exchanged, `w` a letter of two columns, `fN` and `gN` the colour N of text and ground (0 to 255), `f#RRGGBB`
    /// and `g#RRGGBB` any colour.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Vec<Vec<String>>>))]
    pub above: Vec<Vec<TerminalPiece>>,
    /// Lines that changed, by their number from 0.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<u16, Vec<Vec<String>>>))]
    pub lines: BTreeMap<u16, Vec<TerminalPiece>>,
}
