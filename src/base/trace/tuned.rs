//! Changes that a loader made to itself, in the log: each is an instant, which viewers show as a mark.

use serde::{Deserialize, Serialize};

/// The category of such lines.
pub(super) const CATEGORY: &str = "tuner";

/// A knob that was changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TunedRecord {
    /// The name of the knob.
    pub knob: String,
    /// The value before.
    pub from: u64,
    /// The value from then on.
    pub to: u64,
    /// Why, in words.
    pub why: String,
}
