//! What a command in a guest did.

use serde::{Deserialize, Serialize};

use crate::strip::stripped;

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Its exit status; none when a signal or the limit ended it.
    pub exit: Option<u32>,
    /// The last lines of its output, bounded. It may have secrets: see [`Ran::said`].
    pub tail: String,
}

impl Ran {
    /// The last lines of its output, without what looks like a secret: what people and other programs get of it.
    pub fn said(&self) -> String {
        stripped(self.tail.trim_end())
    }
}
