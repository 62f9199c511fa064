//! Settings with a few named values. The names stand here, for Python and the command line alike.

use super::OnError;
use crate::augment::{DType, Fidelity, MemoryFormat};
use crate::dataset::{Changed, FieldKind};
use crate::decode::Damaged;
use crate::error::{Error, Result};
use crate::io::{Direct, IoChoice};
use crate::schedule::LastBatch;
use crate::tier::{FillChoice, Verify};

/// A setting with a few named values, in one list for Python and the command line.
pub(crate) trait Choice: Copy + PartialEq + 'static {
    /// Every value, by the name that users write.
    const NAMES: &'static [(&'static str, Self)];

    /// The value called `name`.
    ///
    /// # Errors
    /// [`Error::Config`] that lists the names there are.
    fn parse(setting: &'static str, name: &str) -> Result<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, value)| *value).ok_or_else(|| {
            let known: Vec<_> = Self::NAMES.iter().map(|(name, _)| *name).collect();
            Error::config(setting, format!("is {name:?}, must be one of {}", known.join(", ")))
        })
    }

    /// The name of this value.
    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, value)| *value == self).map_or("?", |(name, _)| name)
    }
}

impl Choice for OnError {
    const NAMES: &'static [(&'static str, Self)] =
        &[("raise", Self::Raise), ("skip", Self::Skip), ("zero", Self::Zero)];
}

impl Choice for Changed {
    const NAMES: &'static [(&'static str, Self)] = Self::NAMES;
}

impl Choice for Damaged {
    const NAMES: &'static [(&'static str, Self)] = &[("refuse", Self::Refuse), ("conceal", Self::Conceal)];
}

impl Choice for LastBatch {
    const NAMES: &'static [(&'static str, Self)] =
        &[("drop", Self::Drop), ("pad", Self::Pad), ("partial", Self::Partial)];
}

impl Choice for DType {
    const NAMES: &'static [(&'static str, Self)] = Self::NAMES;
}

impl Choice for MemoryFormat {
    const NAMES: &'static [(&'static str, Self)] = &[("nchw", Self::Nchw), ("nhwc", Self::Nhwc)];
}

impl Choice for Fidelity {
    const NAMES: &'static [(&'static str, Self)] = &[("fast", Self::Fast), ("exact", Self::Exact)];
}

impl Choice for IoChoice {
    const NAMES: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("io_uring", Self::Uring), ("pread", Self::Pread)];
}

impl Choice for FillChoice {
    const NAMES: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("use", Self::Use), ("ahead", Self::Ahead)];
}

impl Choice for Verify {
    /// [`Verify::Never`] has no name, because the setting `immutable` stands for it.
    const NAMES: &'static [(&'static str, Self)] = &[("stamp", Self::Stamp), ("checksum", Self::Checksum)];
}

impl Choice for Direct {
    const NAMES: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("on", Self::On), ("off", Self::Off)];
}

impl Choice for FieldKind {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("image", Self::Image),
        ("mask", Self::Mask),
        ("boxes", Self::Boxes),
        ("text", Self::Text),
        ("json", Self::Json),
        ("array", Self::Array),
        ("integer", Self::Integer),
        ("float", Self::Float),
        ("bytes", Self::Bytes),
    ];
}
