//! `foreload.Resources`: the settings for threads, memory and reading, in one object.

use super::ObjectRow;
use crate::config::settings::table::SETTINGS;

pub(super) static ROW: ObjectRow = ObjectRow {
    keyword: "resources",
    is_usual: true,
    positional: 0,
    members: SETTINGS,
    summary: "The threads, memory and reads of a loader, for `resources=` of a loader.",
    story: "The same settings are keywords of the loaders; each may be given in one place only. Settings that are not \
            given are chosen for you.",
    example: "resources=foreload.Resources(threads=8, memory=\"4GB\")",
};

/// Description of the accepted values of `resources`.
pub const RESOURCES_MAY_BE: &str =
    "a foreload.Resources(threads=..., memory=..., ...), a dict of its arguments, or None";
