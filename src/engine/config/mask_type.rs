//! The types that the values of masks can have in batches.

use crate::batch::Element;
use base::names::named;

/// Type of a mask's values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MaskType {
    /// Values from 0 to 255.
    #[default]
    Uint8,
    /// All values that a PNG can hold.
    Int32,
    /// All values that a PNG can hold, in the type that torch's losses require.
    Int64,
}

named!(MaskType: "uint8" => Uint8, "int32" => Int32, "int64" => Int64);

impl MaskType {
    /// Returns the type of the tensor.
    pub fn element(self) -> Element {
        match self {
            Self::Uint8 => Element::U8,
            Self::Int32 => Element::I32,
            Self::Int64 => Element::I64,
        }
    }
}
