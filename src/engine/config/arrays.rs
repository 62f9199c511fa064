//! The options of arrays: as the user requests them ([`ArrayOptions`]), and as resolved for one dataset
//! ([`ArrayPlan`]).

use super::{FieldOptions, FieldWindow};
use crate::batch::{BatchLayout, Element, Raggedness};
use base::error::{Error, Result};
use base::names::NamedValue;
use base::simd::Level;
use data::dataset::arrays::{ArrayField, CfFacts};
use data::dataset::{DatasetIndex, FieldKind};
use pixels::arrays::{Arithmetic, Number, NumberConversion, StoredType, WorkType};
use serde::{Deserialize, Deserializer};

/// What is computed from the elements of an array, and what its samples look like.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArrayOptions {
    /// The type of the elements in batches; `None` for the stored type, or for a float type if floats are computed.
    pub dtype: Option<Number>,
    /// Whether the attributes of NetCDF's conventions decode the elements. The options below replace the attributes.
    pub cf: bool,
    /// The factor of each element.
    pub scale: Option<f64>,
    /// The summand of each element, after the factor.
    pub offset: Option<f64>,
    /// The stored elements that become NaN.
    #[serde(deserialize_with = "one_or_more")]
    pub missing: Vec<f64>,
    /// The means that are subtracted: none, one, or one for each index along `axis`.
    #[serde(deserialize_with = "one_or_more")]
    pub mean: Vec<f64>,
    /// The standard deviations by which elements are divided: none, one, or one for each index along `axis`.
    #[serde(deserialize_with = "one_or_more")]
    pub std: Vec<f64>,
    /// The dimension of a sample's array along which means and standard deviations differ. Negative numbers count from
    /// the last dimension.
    pub axis: Option<i64>,
    /// The shape that each sample's array must have.
    pub shape: Option<Vec<u64>>,
}

fn one_or_more<'de, D: Deserializer<'de>>(given: D) -> std::result::Result<Vec<f64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneNumber {
        Whole(i64),
        Float(f64),
        // JSON has no infinities and no NaN.
        Text(String),
    }
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "mean, std and missing must be numbers, or lists of numbers")]
    enum OneOrMore {
        One(OneNumber),
        More(Vec<OneNumber>),
    }
    let number = |one: OneNumber| -> std::result::Result<f64, D::Error> {
        match one {
            OneNumber::Whole(whole) => exact(whole)
                .ok_or_else(|| serde::de::Error::custom(format!("{whole} does not fit float64 exactly"))),
            OneNumber::Float(number) => Ok(number),
            OneNumber::Text(number) => number.parse().map_err(serde::de::Error::custom),
        }
    };
    match OneOrMore::deserialize(given)? {
        OneOrMore::One(one) => Ok(vec![number(one)?]),
        OneOrMore::More(more) => more.into_iter().map(number).collect(),
    }
}

/// Returns a whole number as a float; `None` if the float would be another number, as for many fill values of int64.
pub(super) fn exact(whole: i64) -> Option<f64> {
    let float = whole as f64;
    (float as i128 == i128::from(whole)).then_some(float)
}

impl ArrayOptions {
    /// The names of these options.
    pub(super) const NAMES: [&str; 9] =
        ["dtype", "cf", "scale", "offset", "missing", "mean", "std", "axis", "shape"];

    /// Checks what needs no dataset. The error continues a sentence about the field, which has these options.
    pub(super) fn check(&self, field: &FieldOptions) -> std::result::Result<(), String> {
        if *self != Self::default() && field.kind() != FieldKind::Array {
            return Err("has options of arrays: use foreload.fields.Array".into());
        }
        if self.shape.is_some() && field.ragged {
            return Err("has both shape and ragged=True: remove one of the two".into());
        }
        if self.mean.len().max(self.std.len()) > 1 && self.axis.is_none() {
            return Err(
                "has several values of mean or std: set axis, the dimension along which they differ".into()
            );
        }
        match self.shape.iter().flatten().find(|&&length| u32::try_from(length).is_err()) {
            Some(length) => Err(format!("has a shape with the length {length}, the limit is {}", u32::MAX)),
            None => Ok(()),
        }
    }
}

/// Position of arrays in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrayPlace {
    /// The index of a column: all arrays have one type and one shape.
    Column(usize),
    /// The index among the lists of values whose lengths differ.
    Values(usize),
}

/// The conversion of a field's arrays, and what is known of them before they are read.
#[derive(Debug, Clone)]
pub struct ArrayPlan {
    options: ArrayOptions,
    /// The type of the elements in batches, if it is the same in all samples.
    number: Option<Number>,
    /// The shape of every sample's array, if it is known.
    shape: Option<Vec<u64>>,
}

impl ArrayPlan {
    /// Resolves the options of `field`, which is the selected member with the index `member` of `index`, and of which a
    /// `window` is read.
    ///
    /// # Errors
    /// [`Error::Config`] that names the field and what does not fit the dataset's arrays.
    pub(super) fn new(
        field: &FieldOptions,
        window: Option<&FieldWindow>,
        index: &DatasetIndex,
        member: usize,
    ) -> Result<Self> {
        let found: Vec<ArrayField> = index.array_fields(member).collect();
        // Nothing is known of arrays in members and cells before they are read.
        let is_known = !found.is_empty() && found.len() == index.parts().len();
        Self::of(&field.array, window, &found, is_known)
            .map_err(|why| Error::config("fields", format!("has {}, which {why}", field.shown())))
    }

    /// `found` has the arrays of each dataset, and `is_known` says whether these are all arrays of the field.
    fn of(
        options: &ArrayOptions,
        window: Option<&FieldWindow>,
        found: &[ArrayField],
        is_known: bool,
    ) -> std::result::Result<Self, String> {
        let mut plan = Self { options: options.clone(), number: options.dtype, shape: options.shape.clone() };
        let (mut numbers, mut rows) = (Vec::new(), Vec::new());
        for ArrayField { stored, shape, cf, .. } in found {
            let row = window.map_or_else(|| shape.clone(), |window| window.row_shape(shape));
            if let Some(wanted) = &options.shape {
                let fits =
                    |(wanted, length): (&u64, &Option<u64>)| length.is_none_or(|length| length == *wanted);
                if wanted.len() != row.len() || !wanted.iter().zip(&row).all(fits) {
                    let shape = shown_shape(&row);
                    return Err(format!(
                        "has shape={wanted:?}, but the arrays of samples have shape {shape}"
                    ));
                }
            }
            // A length that differs between samples is checked when a sample is read.
            let channels = options.mean.len().max(options.std.len()) as u64;
            let lengths: Vec<u64> = shape.iter().map(|length| length.unwrap_or(channels)).collect();
            rows.push(row);
            for cf in cf {
                plan.conversion(*stored, cf.as_ref(), &lengths)?;
                numbers.push(plan.number(*stored, cf.as_ref()));
            }
        }
        if !is_known {
            // A field that follows another can have further dimensions.
            let lengths = window.filter(|window| window.follows.is_none()).map(|window| &window.lengths[..]);
            plan.shape = plan.shape.or_else(|| lengths?.iter().copied().collect());
            return Ok(plan);
        }
        if let Some(other) = numbers.iter().find(|number| **number != numbers[0]) {
            let (one, other) = (numbers[0].name(), other.name());
            return Err(format!("is {one} in one file and {other} in another: set dtype"));
        }
        plan.number = numbers.first().copied().or(plan.number);
        if plan.shape.is_none() && rows.iter().all(|row| *row == rows[0]) {
            plan.shape = rows[0].iter().copied().collect();
        }
        Ok(plan)
    }

    /// Adds the arrays to a layout: as a column if their type and shape are known, and `ragged` is false.
    pub(super) fn place(&self, ragged: bool, layout: &mut BatchLayout) -> ArrayPlace {
        let lengths = |shape: &Vec<u64>| shape.iter().map(|&length| u32::try_from(length).ok()).collect();
        let shape: Option<Vec<u32>> = self.shape.as_ref().filter(|_| !ragged).and_then(lengths);
        match self.number.zip(shape) {
            Some((number, shape)) => ArrayPlace::Column(layout.add_column(number.into(), shape)),
            None if ragged => {
                let element = self.number.map_or(Element::F32, Element::from);
                let offsets = Element::I64;
                ArrayPlace::Values(layout.add_values(Raggedness::Always { element, columns: None, offsets }))
            }
            None => ArrayPlace::Values(layout.add_values(Raggedness::AsTheyAre)),
        }
    }

    /// Returns the shape that every sample's array must have, if it is known.
    pub(crate) fn shape(&self) -> Option<&[u64]> {
        self.shape.as_deref()
    }

    fn cf<'a>(&self, cf: Option<&'a CfFacts>) -> Option<&'a CfFacts> {
        cf.filter(|_| self.options.cf)
    }

    /// Returns the type in which the elements of an array come in batches.
    pub(crate) fn number(&self, stored: StoredType, cf: Option<&CfFacts>) -> Number {
        let Self { options, number, .. } = self;
        let cf = self.cf(cf);
        let computes = |scale: Option<f64>, offset: Option<f64>, has_missing: bool| {
            scale.is_some() || offset.is_some() || has_missing
        };
        let from = decoded(stored, cf).number;
        number.unwrap_or_else(|| match cf {
            Some(cf) if computes(cf.scale, cf.offset, !cf.missing.is_empty()) => cf.work.number(),
            _ if from.is_float() => from,
            _ if computes(options.scale, options.offset, !options.missing.is_empty()) => {
                WorkType::of(from).number()
            }
            _ if options.mean.is_empty() && options.std.is_empty() => from,
            _ => WorkType::of(from).number(),
        })
    }

    /// Returns whether means or standard deviations differ along [`ArrayPlan::axis`].
    pub(crate) fn has_channels(&self) -> bool {
        self.options.mean.len().max(self.options.std.len()) > 1
    }

    /// Returns the element by which windows are padded, as it would be stored.
    ///
    /// # Errors
    /// What is wrong, for a message that names the field.
    pub(crate) fn padding(
        &self,
        pad: f64,
        stored: StoredType,
        cf: Option<&CfFacts>,
    ) -> std::result::Result<Vec<u8>, String> {
        let StoredType { number, swapped } = decoded(stored, self.cf(cf));
        let name = number.name();
        let bits = number.bits_of(pad).ok_or_else(|| format!("has pad={pad}, which {name} cannot hold"))?;
        let mut bytes = bits.to_le_bytes()[..number.size()].to_vec();
        if swapped == cfg!(target_endian = "little") {
            bytes.reverse();
        }
        Ok(bytes)
    }

    /// Returns the dimension along which means and standard deviations differ, in an array with `rank` dimensions.
    ///
    /// # Errors
    /// What is wrong, for a message that names the field.
    pub(crate) fn axis(&self, rank: usize) -> std::result::Result<usize, String> {
        let Some(axis) = self.options.axis else { return Ok(0) };
        let from_start = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
        let found = from_start.and_then(|axis| usize::try_from(axis).ok()).filter(|axis| *axis < rank);
        found.ok_or_else(|| format!("has axis={axis}, but the array of a sample has {rank} dimensions"))
    }

    /// Plans the conversion of an array of this shape.
    ///
    /// # Errors
    /// What is wrong, for a message that names the field.
    pub(crate) fn conversion(
        &self,
        stored: StoredType,
        cf: Option<&CfFacts>,
        shape: &[u64],
    ) -> std::result::Result<NumberConversion, String> {
        let Self { options, .. } = self;
        let to = self.number(stored, cf);
        let cf = self.cf(cf);
        let from = decoded(stored, cf);
        let bits = |&value: &f64| {
            let name = from.number.name();
            from.number.bits_of(value).ok_or_else(|| format!("has missing={value}, which {name} cannot hold"))
        };
        let missing = match options.missing.is_empty() {
            true => cf.map(|cf| cf.missing.clone()).unwrap_or_default(),
            false => options.missing.iter().map(bits).collect::<std::result::Result<_, _>>()?,
        };
        let with = Arithmetic {
            missing,
            scale: options.scale.or(cf.and_then(|cf| cf.scale)),
            offset: options.offset.or(cf.and_then(|cf| cf.offset)),
            mean: options.mean.clone(),
            std: options.std.clone(),
            axis: self.axis(shape.len())?,
            work: cf.map(|cf| cf.work),
        };
        NumberConversion::new(Level::detect(), from, shape, to, &with)
    }
}

/// Returns the type of the stored elements. An attribute can say that integers are signed or unsigned.
fn decoded(stored: StoredType, cf: Option<&CfFacts>) -> StoredType {
    StoredType { number: cf.map_or(stored.number, |cf| cf.number(stored.number)), ..stored }
}

/// Writes a shape like Python's, with `None` for a length that differs between samples.
fn shown_shape(shape: &[Option<u64>]) -> String {
    let lengths = shape.iter().map(|length| length.map_or("None".to_owned(), |length| length.to_string()));
    format!("[{}]", lengths.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::WindowPlace;
    use super::*;
    use serde_json::{Value, json};

    fn options(given: Value) -> ArrayOptions {
        serde_json::from_value(given).unwrap()
    }

    fn field(number: &str, shape: &[Option<u64>], cf: &[Option<CfFacts>]) -> ArrayField {
        let stored = StoredType { number: Number::find(number).unwrap(), swapped: false };
        ArrayField { stored, shape: shape.to_vec(), cf: cf.to_vec() }
    }

    fn plan(given: Value, found: &[ArrayField]) -> std::result::Result<ArrayPlan, String> {
        ArrayPlan::of(&options(given), None, found, !found.is_empty())
    }

    /// The type and the shape of the column that arrays become; `None` if they become values.
    fn column(plan: &ArrayPlan, ragged: bool) -> Option<(&'static str, Vec<u32>)> {
        let mut layout = BatchLayout::default();
        match plan.place(ragged, &mut layout) {
            ArrayPlace::Column(0) => {
                Some((layout.columns[0].element.name(), layout.columns[0].shape.clone()))
            }
            place => {
                assert_eq!((place, layout.values.len()), (ArrayPlace::Values(0), 1));
                None
            }
        }
    }

    #[test]
    fn arrays_of_a_known_type_and_shape_are_columns() {
        let plain = [None];
        let x = field("int16", &[Some(2), Some(3)], &plain);
        let other = field("int16", &[Some(2), Some(4)], &plain);
        let ragged = field("int16", &[None, Some(3)], &plain);
        let single = field("float32", &[Some(2), Some(3)], &plain);
        let of = |given: Value, found: &[&ArrayField]| {
            let found: Vec<ArrayField> = found.iter().map(|found| (*found).clone()).collect();
            column(&plan(given, &found).unwrap(), false)
        };
        assert_eq!(of(json!({}), &[&x]), Some(("int16", vec![2, 3])));
        assert_eq!(of(json!({"dtype": "bfloat16"}), &[&x, &x]), Some(("bfloat16", vec![2, 3])));
        assert_eq!(of(json!({}), &[&field("uint64", &[], &plain)]), Some(("uint64", vec![])));
        assert_eq!(of(json!({"dtype": "float64"}), &[&x, &single]), Some(("float64", vec![2, 3])));
        for (given, found) in [(json!({}), [&x, &other]), (json!({}), [&ragged, &ragged])] {
            assert_eq!(of(given, &found), None);
        }
        assert_eq!(of(json!({"shape": [5, 3]}), &[&ragged]), Some(("int16", vec![5, 3])));
        // Nothing is known of members before they are read.
        assert_eq!(of(json!({}), &[]), None);
        assert_eq!(of(json!({"shape": [4]}), &[]), None);
        assert_eq!(of(json!({"shape": [4], "dtype": "uint8"}), &[]), Some(("uint8", vec![4])));
        assert_eq!(column(&plan(json!({}), &[x]).unwrap(), true), None);
        let (lengths, at) = (vec![Some(7), None], WindowPlace::Center);
        let window = FieldWindow { follows: None, lengths, at, pad: None };
        let windows = ArrayPlan::of(&options(json!({})), Some(&window), &[ragged], true).unwrap();
        assert_eq!(column(&windows, false), Some(("int16", vec![7, 3])));
    }

    #[test]
    fn the_type_is_that_of_the_file_or_of_the_computation() {
        let cf = |scale, work| CfFacts { scale, offset: None, missing: vec![], unsigned: true, work };
        let (scaled, unscaled) = (cf(Some(0.5), WorkType::F64), cf(None, WorkType::F32));
        for (stored, given, cf, expected) in [
            ("int16", json!({"mean": 3}), None, "float32"),
            ("int32", json!({"std": [2.0]}), None, "float64"),
            ("uint8", json!({"missing": 255}), None, "float32"),
            ("float16", json!({"scale": 2.0}), None, "float16"),
            ("bool", json!({}), None, "bool"),
            ("int32", json!({"offset": 1, "dtype": "float16"}), None, "float16"),
            ("int16", json!({}), Some(&scaled), "int16"),
            ("int16", json!({"cf": true}), Some(&scaled), "float64"),
            ("int16", json!({"cf": true}), Some(&unscaled), "uint16"),
            ("int16", json!({"cf": true, "dtype": "float32"}), Some(&scaled), "float32"),
        ] {
            let found = field(stored, &[Some(4)], &[cf.cloned()]);
            let plan = plan(given.clone(), &[found]).unwrap();
            assert_eq!(column(&plan, false).unwrap().0, expected, "{stored} {given}");
        }
    }

    #[test]
    fn what_does_not_fit_the_arrays_is_refused() {
        let plain = [None];
        let x = || field("float32", &[Some(2), None], &plain);
        let bytes = || field("uint8", &[Some(2), Some(3)], &plain);
        for (given, found, message) in [
            (json!({"dtype": "int32"}), vec![x()], "is stored as float32, which is not converted to int32"),
            (json!({"dtype": "int16", "scale": 2}), vec![bytes()], "but its dtype is int16: set dtype"),
            (json!({"missing": -1}), vec![bytes()], "has missing=-1, which uint8 cannot hold"),
            (json!({"missing": "inf"}), vec![bytes()], "has missing=inf, which uint8 cannot hold"),
            (json!({"std": 0}), vec![x()], "has std=0, which must be finite and not 0"),
            (json!({"mean": [1, 2, 3], "axis": 0}), vec![x()], "has 3 values of mean or std for axis 0"),
            (
                json!({"mean": [1, 2], "axis": 2}),
                vec![x()],
                "has axis=2, but the array of a sample has 2 dim",
            ),
            (json!({"mean": [1, 2], "axis": -3}), vec![x()], "has axis=-3, but the array"),
            (
                json!({"shape": [2]}),
                vec![x()],
                "has shape=[2], but the arrays of samples have shape [2, None]",
            ),
            (json!({"shape": [3, 3]}), vec![x()], "has shape=[3, 3]"),
            (json!({}), vec![x(), bytes()], "is float32 in one file and uint8 in another: set dtype"),
        ] {
            match plan(given.clone(), &found) {
                Err(why) => assert!(why.contains(message), "{given}: {why}"),
                Ok(_) => panic!("{given} is not refused"),
            }
        }
        plan(json!({"mean": [1, 2], "axis": -2}), &[x()]).unwrap();
        // The length of this dimension is known when a sample is read.
        let plan = plan(json!({"std": [1, 2], "axis": 1}), &[x()]).unwrap();
        let stored = x().stored;
        assert!(
            plan.conversion(stored, None, &[2, 2]).is_ok() && plan.conversion(stored, None, &[2, 3]).is_err()
        );
    }

    #[test]
    fn options_are_checked_without_the_dataset() {
        let refused = |given: Value| serde_json::from_value::<ArrayOptions>(given).unwrap_err().to_string();
        assert!(refused(json!({"dtype": "float"})).contains("must be one of bool, int8"));
        assert!(refused(json!({"mean": "much"})).contains("invalid float literal"));
        assert!(refused(json!({"mean": {}})).contains("mean, std and missing must be numbers"));
        assert!(options(json!({"missing": "NaN"})).missing[0].is_nan());
        assert_eq!(options(json!({"missing": [-9999, 0.5, "inf"]})).missing, [-9999.0, 0.5, f64::INFINITY]);
        let fill = i64::MIN + 2;
        assert_eq!(options(json!({"missing": i64::MIN})).missing, [-2f64.powi(63)]);
        assert!(refused(json!({"missing": fill})).contains(&format!("{fill} does not fit float64")));
        let array = |given: Value| FieldOptions {
            kind: Some(FieldKind::Array),
            array: options(given),
            ..FieldOptions::named("x")
        };
        let check = |field: &FieldOptions| field.array.check(field).unwrap_err();
        assert!(check(&array(json!({"std": [1, 2]}))).contains("set axis"));
        assert!(check(&array(json!({"shape": [1_u64 << 32]}))).contains("the limit is 4294967295"));
        assert!(check(&FieldOptions { ragged: true, ..array(json!({"shape": [4]})) }).contains("remove one"));
        let text = FieldOptions { kind: Some(FieldKind::Text), ..array(json!({"cf": true})) };
        assert!(check(&text).contains("use foreload.fields.Array"));
    }
}
