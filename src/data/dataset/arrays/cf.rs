//! How the attributes of NetCDF's conventions (CF) decode the elements of an array: missing values, scale and offset.
//!
//! The rules are those of xarray's `mask_and_scale` (`xarray/coding/variables.py`), which differ from netCDF4-python's:
//! `valid_min`, `valid_max` and `valid_range` are ignored. Containers convert their attributes to [`CfAttributes`].
//!
//! A stored element is missing if it equals `_FillValue` or one of `missing_value` exactly. xarray rounds elements to
//! the type of the computation before it compares them. So it misses a missing value that is not exact in that type,
//! such as -2147483647 in float32; here such elements are missing.

use crate::dataset::gather::float;
use pixels::arrays::{Number, StoredType, WorkType};
use serde::{Deserialize, Serialize};

/// The decoding that the attributes of an array ask for. It is applied only on request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CfFacts {
    /// The attribute `scale_factor`. It is finite.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "bits")]
    pub scale: Option<f64>,
    /// The attribute `add_offset`. It is finite.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "bits")]
    pub offset: Option<f64>,
    /// The bits of stored elements that stand for a missing value, in this machine's byte order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<u64>,
    /// Whether elements that are stored as signed integers are unsigned, or the reverse (`_Unsigned`): see
    /// [`CfFacts::number`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsigned: bool,
    /// The type in which elements are decoded.
    pub work: WorkType,
}

// No number in it is NaN.
impl Eq for CfFacts {}

impl CfFacts {
    /// The type as which elements of the type `stored` are read.
    pub fn number(&self, stored: Number) -> Number {
        match stored {
            Number::Signed(size) if self.unsigned => Number::Unsigned(size),
            Number::Unsigned(size) if self.unsigned => Number::Signed(size),
            _ => stored,
        }
    }
}

/// Stores floats by their bits, because JSON parsers do not return every float exactly.
mod bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(f64::to_bits).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        let value = Option::<u64>::deserialize(deserializer)?.map(f64::from_bits);
        Ok(value.filter(|value| value.is_finite()))
    }
}

/// The names of the attributes, in the order of the fields of [`CfAttributes`].
pub(in crate::dataset) const CF_ATTRIBUTES: [&str; 5] =
    ["scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned"];

/// The attributes of an array that decode its elements, as the container has them. Absent ones are empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::dataset) struct CfAttributes {
    pub(in crate::dataset) scale: Vec<CfNumber>,
    pub(in crate::dataset) offset: Vec<CfNumber>,
    pub(in crate::dataset) fill: Vec<CfNumber>,
    pub(in crate::dataset) missing: Vec<CfNumber>,
    /// The text `true` or `false`.
    pub(in crate::dataset) unsigned: Option<String>,
}

/// A number of an attribute. Its type determines the type of the computation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::dataset) enum CfNumber {
    Integer(i128),
    Single(f32),
    /// A float64. A float of two bytes is one too: xarray computes with it in the same way unless it stands alone.
    Double(f64),
}

impl CfNumber {
    fn double(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Single(value) => value.into(),
            Self::Double(value) => value,
        }
    }

    /// The bits of the element of the type `number` that equals this number; `None` if there is none.
    fn bits_in(self, number: Number) -> Option<u64> {
        if let (Self::Integer(value), Number::Signed(_) | Number::Unsigned(_)) = (self, number) {
            let bits = 8 * number.size() as u32;
            let least = if matches!(number, Number::Signed(_)) { -(1i128 << (bits - 1)) } else { 0 };
            let fits = value >= least && value < least + (1i128 << bits);
            return fits.then_some(value as u64 & (u64::MAX >> (64 - bits)));
        }
        let value = self.double();
        if matches!(self, Self::Integer(exact) if value as i128 != exact) {
            return None;
        }
        let bits = number.bits_of(value)?;
        let stored = match number {
            Number::Brain => f32::from_bits((bits as u32) << 16).into(),
            Number::Float(size) => float(&bits.to_le_bytes()[..usize::from(size)]),
            _ => value,
        };
        (stored == value).then_some(bits)
    }
}

/// The decoding that attributes ask for; `None` if they ask for nothing.
///
/// # Errors
/// What is wrong with an attribute, which continues a sentence about the array.
pub(in crate::dataset) fn cf(
    stored: StoredType,
    attributes: CfAttributes,
) -> Result<Option<CfFacts>, String> {
    let number = stored.number;
    let [scale, offset] =
        [("scale_factor", &attributes.scale), ("add_offset", &attributes.offset)].map(|(name, values)| {
            match values[..] {
                [] => Ok(None),
                [value] if value.double().is_finite() => Ok(Some(value)),
                [value] => Err(format!("has the attribute {name}={}, which must be finite", value.double())),
                _ => Err(format!("has {} values in the attribute {name}, must be one", values.len())),
            }
        });
    let (scale, offset) = (scale?, offset?);
    let unsigned = matches!(
        (number, attributes.unsigned.as_deref()),
        (Number::Signed(_), Some("true")) | (Number::Unsigned(_), Some("false"))
    );
    let mut found = CfFacts {
        scale: scale.map(CfNumber::double),
        offset: offset.map(CfNumber::double),
        missing: Vec::new(),
        unsigned,
        work: WorkType::of(number),
    };
    let (elements, mask) = (found.number(number), u64::MAX >> (64 - 8 * number.size()));
    found.missing.extend(attributes.missing.iter().filter_map(|value| value.bits_in(elements)));
    found.missing.extend(attributes.fill.iter().filter_map(|value| match *value {
        // The fill value is stated as elements are stored, however they are read.
        CfNumber::Integer(value) if unsigned => Some(value as u64 & mask),
        value => value.bits_in(elements),
    }));
    found.missing.sort_unstable();
    found.missing.dedup();
    let mut stated = attributes.fill.iter().chain(&attributes.missing).peekable();
    let has_only_nan = stated.peek().is_some() && stated.all(|value| value.double().is_nan());
    let is_integer = matches!(number, Number::Signed(_) | Number::Unsigned(_));
    found.work = match (scale, offset) {
        (None, None) => found.work,
        // xarray takes an array with a missing value for one that was converted already.
        _ if has_only_nan && number.is_float() => found.work,
        (Some(CfNumber::Single(_)), None) => WorkType::F32,
        (Some(CfNumber::Single(_)), Some(CfNumber::Single(_))) if !is_integer || number.size() != 4 => {
            WorkType::F32
        }
        // Of a scale that is an integer, xarray gives integers, which are equal to these floats up to 2^53.
        _ => WorkType::F64,
    };
    let is_plain = scale.is_none() && offset.is_none() && found.missing.is_empty() && !unsigned;
    Ok((!is_plain).then_some(found))
}

#[cfg(test)]
mod tests {
    use super::CfNumber::{Double, Integer, Single};
    use super::*;

    fn found(number: Number, attributes: CfAttributes) -> Option<CfFacts> {
        cf(StoredType { number, swapped: false }, attributes).expect("valid attributes")
    }

    fn scaled(scale: &[CfNumber], offset: &[CfNumber]) -> CfAttributes {
        CfAttributes { scale: scale.to_vec(), offset: offset.to_vec(), ..CfAttributes::default() }
    }

    /// What xarray's `_choose_float_dtype` and `maybe_promote` return.
    #[test]
    fn elements_are_decoded_in_the_type_that_xarray_chooses() {
        let (f4, f8, i) = (Single(0.5), Double(0.5), Integer(2));
        let work = |number, scale: &[CfNumber], offset: &[CfNumber]| {
            found(number, scaled(scale, offset)).map(|found| found.work)
        };
        let (single, double) = (Some(WorkType::F32), Some(WorkType::F64));
        assert_eq!(work(Number::Signed(2), &[], &[]), None);
        assert_eq!(work(Number::Signed(2), &[f4], &[f4]), single);
        assert_eq!(work(Number::Signed(4), &[f4], &[f4]), double);
        assert_eq!(work(Number::Float(4), &[f4], &[f4]), single);
        assert_eq!(work(Number::Signed(8), &[f4], &[f4]), single);
        assert_eq!(work(Number::Signed(2), &[f8], &[f8]), double);
        assert_eq!(work(Number::Signed(2), &[f4], &[f8]), double);
        assert_eq!(work(Number::Signed(2), &[], &[f4]), double);
        assert_eq!(work(Number::Signed(2), &[i], &[i]), double);
        assert_eq!(work(Number::Signed(4), &[f4], &[]), single);
        assert_eq!(work(Number::Float(4), &[f8], &[]), double);
        assert_eq!(work(Number::Signed(2), &[i], &[]), double);
        let masked = |number| {
            found(number, CfAttributes { fill: vec![Integer(7)], ..CfAttributes::default() })
                .map(|found| (found.work, found.missing.len()))
        };
        for (number, work) in [
            (Number::Signed(1), WorkType::F32),
            (Number::Unsigned(2), WorkType::F32),
            (Number::Signed(4), WorkType::F64),
            (Number::Float(4), WorkType::F32),
            (Number::Float(8), WorkType::F64),
        ] {
            assert_eq!(masked(number), Some((work, 1)), "{number:?}");
        }
    }

    #[test]
    fn missing_values_are_compared_as_they_are_stored() {
        let missing = |number, fill: &[CfNumber], missing: &[CfNumber], unsigned: Option<&str>| {
            let (fill, missing) = (fill.to_vec(), missing.to_vec());
            let unsigned = unsigned.map(str::to_owned);
            let found = found(number, CfAttributes { fill, missing, unsigned, ..CfAttributes::default() });
            found.map(|found| (found.missing, found.unsigned))
        };
        let is = |bits: &[u64]| Some((bits.to_vec(), false));
        assert_eq!(missing(Number::Signed(2), &[Integer(-1)], &[Integer(-2)], None), is(&[0xfffe, 0xffff]));
        assert_eq!(missing(Number::Signed(2), &[Integer(-1)], &[Double(-1.0)], None), is(&[0xffff]));
        // A number that no element can have stands for nothing.
        assert_eq!(missing(Number::Signed(1), &[Integer(255), Double(0.5)], &[], None), None);
        assert_eq!(missing(Number::Float(4), &[Double(1e20)], &[], None), None);
        assert_eq!(missing(Number::Float(4), &[Single(1e20)], &[], None), is(&[1e20_f32.to_bits().into()]));
        assert_eq!(missing(Number::Float(8), &[Single(0.1)], &[], None), is(&[f64::from(0.1_f32).to_bits()]));
        assert_eq!(missing(Number::Float(2), &[Double(1.5)], &[], None), is(&[0x3e00]));
        assert_eq!(missing(Number::Brain, &[Integer(-2)], &[], None), is(&[0xc000]));
        assert_eq!(missing(Number::Float(4), &[Single(f32::NAN)], &[], None), None);
        let most = i128::from(i64::MAX);
        assert_eq!(missing(Number::Signed(8), &[Integer(most)], &[], None), is(&[most as u64]));
        assert_eq!(missing(Number::Float(8), &[Integer(most)], &[], None), None);
        // `_FillValue` is stated as elements are stored, `missing_value` as they are read.
        let both = Some((vec![0xff], true));
        assert_eq!(missing(Number::Signed(1), &[Integer(-1)], &[Integer(-1)], Some("true")), both);
        assert_eq!(missing(Number::Signed(1), &[], &[Integer(255)], Some("true")), both);
        assert_eq!(missing(Number::Unsigned(1), &[Integer(255)], &[], Some("false")), both);
        assert_eq!(missing(Number::Unsigned(1), &[], &[Integer(-1)], Some("false")), both);
        assert_eq!(missing(Number::Signed(1), &[], &[], Some("true")), Some((vec![], true)));
        assert_eq!(missing(Number::Signed(1), &[], &[], Some("false")), None);
        assert_eq!(missing(Number::Float(4), &[], &[], Some("true")), None);
    }

    #[test]
    fn numbers_survive_the_index_file_exactly() {
        for value in [0.1, -1.0 / 3.0, f64::MIN_POSITIVE, 1.797_693_134_862_315_7e308, -0.0] {
            let found = found(Number::Signed(2), scaled(&[Double(value)], &[])).expect("a scale");
            let text = serde_json::to_string(&found).expect("JSON");
            let again: CfFacts = serde_json::from_str(&text).expect("the same");
            assert_eq!(again.scale.map(f64::to_bits), Some(value.to_bits()), "{text}");
            assert_eq!((again.offset, again.work), (None, WorkType::F64));
        }
    }

    #[test]
    fn attributes_that_mean_nothing_are_named() {
        let stored = StoredType { number: Number::Signed(2), swapped: false };
        let refused = |scale: &[CfNumber]| cf(stored, scaled(scale, &[])).expect_err("an error");
        assert!(refused(&[Double(f64::NAN)]).contains("scale_factor=NaN"));
        assert!(refused(&[Single(1.0); 2]).contains("2 values in the attribute scale_factor"));
    }
}
