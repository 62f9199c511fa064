//! Converts elements from any stored type to any type of a batch. Missing values, scale and offset, and normalisation
//! are computed in the same pass over the memory.
//!
//! Blocks of elements go through loops of one step each, in buffers that stay in the L1 cache. The loops are compiled
//! for every SIMD level and give the same bits at all of them: the bits that NumPy gives for the same steps. Only
//! bfloat16 of 64-bit numbers differs, which ml_dtypes rounds twice.

use super::loops::{
    WorkFloat, fit, load_doubles, load_integers, load_odd, load_singles, mask, store_doubles, store_integers,
    store_singles, swap,
};
use super::{Number, StoredType};
use crate::level::vectorised;
use base::error::DecodeError;
use base::names::{NamedValue, named};
use base::simd::Level;

/// The most elements that are converted at a time.
pub(super) const BLOCK: usize = 512;

/// The type in which missing values, scale, offset, mean and standard deviation are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkType {
    /// float32.
    F32,
    /// float64.
    F64,
}

named!(WorkType: "float32" => F32, "float64" => F64);

impl WorkType {
    /// Returns the smaller type that holds all values of `number` exactly, or float64 if neither does. xarray masks
    /// values in the same type.
    pub fn of(number: Number) -> Self {
        match number {
            Number::Bool | Number::Brain | Number::Signed(1 | 2) | Number::Unsigned(1 | 2) => Self::F32,
            Number::Float(2 | 4) => Self::F32,
            _ => Self::F64,
        }
    }

    /// Returns this type as the type of elements.
    pub fn number(self) -> Number {
        match self {
            Self::F32 => Number::Float(4),
            Self::F64 => Number::Float(8),
        }
    }
}

/// What is computed from each element: (element · scale + offset − mean) / std, with a rounding after each operation.
/// The default computes nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Arithmetic {
    /// The bits of stored elements that stand for a missing value, in this machine's byte order. Such elements become
    /// NaN.
    pub missing: Vec<u64>,
    /// The factor, if not 1.
    pub scale: Option<f64>,
    /// The summand, if not 0.
    pub offset: Option<f64>,
    /// The means: none, one, or one for each index along `axis`.
    pub mean: Vec<f64>,
    /// The standard deviations: none, one, or one for each index along `axis`.
    pub std: Vec<f64>,
    /// The dimension along which means and standard deviations differ, if there are several.
    pub axis: usize,
    /// The type of the computation. By default float64 if the result is float64, else [`WorkType::of`] the stored type.
    pub work: Option<WorkType>,
}

impl Arithmetic {
    fn computes(&self) -> bool {
        self.scale.is_some() || self.offset.is_some() || !self.mean.is_empty() || !self.std.is_empty()
    }
}

/// The conversion of the elements of an array.
#[derive(Debug, Clone)]
pub struct NumberConversion {
    pub(super) from: StoredType,
    pub(super) to: Number,
    pub(super) axis: usize,
    /// The number of indices along `axis`, or 1 if all elements have the same mean and standard deviation.
    pub(super) channels: usize,
    missing: Vec<u64>,
    work: Work,
    level: Level,
}

#[derive(Debug, Clone)]
enum Work {
    Copy,
    /// Integers of the result's type are between these.
    Integers([i64; 2]),
    Singles(FloatSteps<f32>),
    /// `odd`: integers are rounded to odd, because the result is rounded again.
    Doubles {
        steps: FloatSteps<f64>,
        odd: bool,
    },
}

impl NumberConversion {
    /// Plans the conversion of an array of this shape to elements of the type `to`.
    ///
    /// # Errors
    /// What is wrong, for a message that names the field: a type cannot become the other type, or `with` has numbers
    /// that cannot be used.
    pub fn new(
        level: Level,
        from: StoredType,
        shape: &[u64],
        to: Number,
        with: &Arithmetic,
    ) -> Result<Self, String> {
        let number = from.number;
        let (number_name, to_name) = (number.name(), to.name());
        let needs_floats = with.computes() || !with.missing.is_empty();
        if needs_floats && !to.is_float() {
            return Err(format!(
                "has scale, offset, missing, mean or std, which give floats, but its dtype is {to_name}: set dtype \
                 to a float type"
            ));
        }
        let [means, stds] = [with.mean.len(), with.std.len()];
        if means > 1 && stds > 1 && means != stds {
            return Err(format!("has {means} values of mean, but {stds} of std: give as many, or one"));
        }
        let channels = means.max(stds).max(1);
        let along = shape.get(with.axis).copied();
        if channels > 1 && along != Some(channels as u64) {
            return Err(format!(
                "has {channels} values of mean or std for axis {}, but shape {shape:?}",
                with.axis
            ));
        }
        let computes_in = match with.work {
            Some(work) if with.computes() => work,
            _ if to == Number::Float(8) => WorkType::F64,
            _ => WorkType::of(number),
        };
        let work = match computes_in {
            _ if number == to && !needs_floats => Work::Copy,
            _ if !to.is_float() && !number.is_float() && to != Number::Bool => {
                // Integers that do not fit i64 become negative when they are loaded, so no result may be negative.
                let [least, most] = integers(to);
                Work::Integers([if number == Number::Unsigned(8) { 0 } else { least }, most])
            }
            _ if !to.is_float() => {
                return Err(format!("is stored as {number_name}, which is not converted to {to_name}"));
            }
            WorkType::F32 => Work::Singles(FloatSteps::new(with, channels)?),
            WorkType::F64 => Work::Doubles {
                steps: FloatSteps::new(with, channels)?,
                odd: !with.computes() && to != Number::Float(8),
            },
        };
        let mut missing = with.missing.clone();
        if number.is_float() {
            let sign = 1u64 << (8 * number.size() - 1);
            if missing.iter().any(|bits| bits & !sign == 0) {
                missing.extend([0, sign]);
            }
        }
        Ok(Self { from, to, axis: with.axis, channels, missing, work, level: level.lowered() })
    }

    /// Returns whether the elements stay as they are stored.
    pub fn is_copy(&self) -> bool {
        matches!(self.work, Work::Copy) && !self.from.swapped
    }

    /// Converts at most [`BLOCK`] elements, which are contiguous on both sides.
    ///
    /// # Errors
    /// [`DecodeError::Damaged`] for an integer that does not fit the result's type.
    pub(super) fn block(
        &self,
        raw: &[u8],
        channel: ChannelRun,
        space: &mut WorkSpace,
        out: &mut [u8],
    ) -> Result<(), DecodeError> {
        convert(self.level, self, raw, channel, space, out).map_err(|value| {
            let exceeds = self.from.number == Number::Unsigned(8);
            let shown = if exceeds { value.cast_unsigned().to_string() } else { value.to_string() };
            let to = self.to.name();
            DecodeError::Damaged(format!(
                "has the number {shown}, which {to} cannot hold: choose another dtype"
            ))
        })
    }
}

/// The least and the greatest integer of a type, of those that fit i64.
fn integers(number: Number) -> [i64; 2] {
    match number {
        Number::Signed(bytes) => {
            let unused = 64 - 8 * u32::from(bytes);
            [i64::MIN >> unused, i64::MAX >> unused]
        }
        Number::Unsigned(bytes @ (1 | 2 | 4)) => [0, (1 << (8 * bytes)) - 1],
        _ => [0, i64::MAX],
    }
}

/// The channels of a block of elements, which select their means and standard deviations.
#[derive(Debug, Clone, Copy)]
pub(super) enum ChannelRun {
    /// All elements have this channel.
    Same(usize),
    /// The first element has this channel, and each next element the next channel.
    From(usize),
}

/// The buffers of one block.
pub(super) struct WorkSpace {
    native: [u8; 8 * BLOCK],
    singles: [f32; BLOCK],
    doubles: [f64; BLOCK],
    integers: [i64; BLOCK],
}

impl WorkSpace {
    pub(super) fn new() -> Self {
        Self { native: [0; 8 * BLOCK], singles: [0.0; BLOCK], doubles: [0.0; BLOCK], integers: [0; BLOCK] }
    }
}

/// The arithmetic in one type.
#[derive(Debug, Clone)]
struct FloatSteps<F> {
    scale: Option<[F; 2]>,
    /// Means and standard deviations of the channels. Of several channels they are repeated, so that a block finds its
    /// own from each channel on.
    norm: Option<[Vec<F>; 2]>,
}

impl<F: WorkFloat> FloatSteps<F> {
    fn new(with: &Arithmetic, channels: usize) -> Result<Self, String> {
        let in_range = |what: &str, value: f64| {
            let rounded = F::of(value);
            let is_valid = rounded.double().is_finite() && (what != "std" || rounded.double() != 0.0);
            let must = if what == "std" { "finite and not 0" } else { "finite" };
            is_valid.then_some(rounded).ok_or_else(|| format!("has {what}={value}, which must be {must}"))
        };
        let repeated = |what: &str, values: &[f64], without: f64| -> Result<Vec<F>, String> {
            let without = [without];
            let values = if values.is_empty() { &without[..] } else { values };
            let repeats = if channels > 1 { BLOCK.div_ceil(channels) + 1 } else { 1 };
            let all = values.iter().cycle().take(repeats * channels);
            all.map(|&value| in_range(what, value)).collect()
        };
        let scaled = with.scale.is_some() || with.offset.is_some();
        // Adding −0 changes nothing, while adding 0 would change −0.
        let scale =
            [in_range("scale", with.scale.unwrap_or(1.0))?, in_range("offset", with.offset.unwrap_or(-0.0))?];
        let normalised = !with.mean.is_empty() || !with.std.is_empty();
        let norm = [repeated("mean", &with.mean, 0.0)?, repeated("std", &with.std, 1.0)?];
        Ok(Self { scale: scaled.then_some(scale), norm: normalised.then_some(norm) })
    }

    #[inline(always)]
    fn apply(&self, channel: ChannelRun, values: &mut [F]) {
        if let Some([scale, offset]) = self.scale {
            for value in &mut *values {
                *value = *value * scale + offset;
            }
        }
        match (&self.norm, channel) {
            (Some([means, stds]), ChannelRun::Same(channel)) => {
                let (mean, std) = (means[channel], stds[channel]);
                for value in values {
                    *value = (*value - mean) / std;
                }
            }
            (Some([means, stds]), ChannelRun::From(channel)) => {
                for ((value, &mean), &std) in values.iter_mut().zip(&means[channel..]).zip(&stds[channel..]) {
                    *value = (*value - mean) / std;
                }
            }
            (None, _) => {}
        }
    }
}

vectorised! {
    /// Converts a block of elements. The error is the first integer that does not fit; of uint64, its bits.
    fn convert(
        with: &NumberConversion,
        raw: &[u8],
        channel: ChannelRun,
        space: &mut WorkSpace,
        out: &mut [u8],
    ) -> Result<(), i64> {
        let WorkSpace { native, singles, doubles, integers } = space;
        let (number, size) = (with.from.number, with.from.number.size());
        let count = raw.len() / size;
        let raw = if with.from.swapped && size > 1 {
            let native = &mut native[..raw.len()];
            swap(size, raw, native);
            &*native
        } else {
            raw
        };
        match &with.work {
            Work::Copy => out.copy_from_slice(raw),
            &Work::Integers(range) => {
                let integers = &mut integers[..count];
                load_integers(number, raw, integers);
                fit(integers, range)?;
                store_integers(with.to.size(), integers, out);
            }
            Work::Singles(steps) => {
                let singles = &mut singles[..count];
                load_singles(number, raw, singles);
                mask(&with.missing, size, raw, singles);
                steps.apply(channel, singles);
                store_singles(with.to, singles, out);
            }
            Work::Doubles { steps, odd } => {
                let doubles = &mut doubles[..count];
                if *odd {
                    load_odd(number, raw, doubles);
                } else {
                    load_doubles(number, raw, doubles);
                }
                mask(&with.missing, size, raw, doubles);
                steps.apply(channel, doubles);
                store_doubles(with.to, doubles, out);
            }
        }
        Ok(())
    }
}
