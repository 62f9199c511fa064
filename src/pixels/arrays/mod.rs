//! Arrays of numbers of any rank: the types of their elements, and their way into the rows of a batch. A box of a
//! stored chunk is gathered into a box of a row, and each element is converted on the way ([`gather()`],
//! [`NumberConversion`]).

mod convert;
mod floats;
mod gather;
mod loops;
#[cfg(test)]
mod tests;

pub use convert::{Arithmetic, NumberConversion, WorkType};
pub use gather::{BoxCorner, GatheredBox, copied_bytes, fill, gather};

pub(crate) use floats::{brain_to_single, single_to_brain};

use base::names::named;
use serde::{Deserialize, Serialize};

/// The type of an array's elements. The names are NumPy's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Number {
    /// Booleans of one byte each.
    Bool,
    /// Signed integers of 1, 2, 4 or 8 bytes.
    Signed(u8),
    /// Unsigned integers of 1, 2, 4 or 8 bytes.
    Unsigned(u8),
    /// IEEE floats of 2, 4 or 8 bytes.
    Float(u8),
    /// bfloat16.
    Brain,
}

named!(Number:
    "bool" => Bool, "int8" => Signed(1), "int16" => Signed(2), "int32" => Signed(4), "int64" => Signed(8),
    "uint8" => Unsigned(1), "uint16" => Unsigned(2), "uint32" => Unsigned(4), "uint64" => Unsigned(8),
    "float16" => Float(2), "float32" => Float(4), "float64" => Float(8), "bfloat16" => Brain,
);

impl Number {
    /// Returns the number of bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::Signed(bytes) | Self::Unsigned(bytes) | Self::Float(bytes) => usize::from(bytes),
            Self::Brain => 2,
        }
    }

    /// Returns whether elements are floats.
    pub fn is_float(self) -> bool {
        matches!(self, Self::Float(_) | Self::Brain)
    }

    /// Returns the bits of the element that stands for `value`: the nearest float, or exactly this integer. `None` if
    /// an integer type cannot hold it.
    pub fn bits_of(self, value: f64) -> Option<u64> {
        let bits = 8 * self.size() as i32;
        let (least, end) = match self {
            Self::Float(8) => return Some(value.to_bits()),
            Self::Float(4) => return Some((value as f32).to_bits().into()),
            Self::Float(_) => return Some(floats::single_to_half(floats::odd(value)).into()),
            Self::Brain => return Some(single_to_brain(floats::odd(value)).into()),
            Self::Bool => (0.0, 2.0),
            Self::Unsigned(_) => (0.0, 2f64.powi(bits)),
            Self::Signed(_) => (-2f64.powi(bits - 1), 2f64.powi(bits - 1)),
        };
        let fits = value.fract() == 0.0 && value >= least && value < end;
        fits.then(|| if value < 0.0 { value as i64 as u64 & (u64::MAX >> (64 - bits)) } else { value as u64 })
    }
}

/// How the elements of an array are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoredType {
    /// The type of the elements.
    pub number: Number,
    /// Whether their byte order is not this machine's.
    pub swapped: bool,
}

/// The order of an array's elements in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemoryOrder {
    /// The last index changes fastest (C).
    RowMajor,
    /// The first index changes fastest (Fortran).
    ColumnMajor,
}

impl MemoryOrder {
    /// Returns the distances in elements between neighbours along each dimension of a contiguous array. Distances that
    /// exceed 64 bits are `u64::MAX`; no memory has such an array.
    pub fn strides(self, shape: &[u64]) -> Vec<u64> {
        let mut strides = vec![0; shape.len()];
        let mut step = 1u64;
        let mut next = |(stride, length): (&mut u64, &u64)| {
            *stride = step;
            step = step.saturating_mul(*length);
        };
        let dimensions = strides.iter_mut().zip(shape);
        match self {
            Self::RowMajor => dimensions.rev().for_each(&mut next),
            Self::ColumnMajor => dimensions.for_each(&mut next),
        }
        strides
    }
}
