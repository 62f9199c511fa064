//! Windows of arrays: as the user requests them ([`ArrayWindow`]), and as resolved for one dataset ([`FieldWindows`]).
//!
//! A window is a box in the array of a sample. Its lengths are fixed, so that all samples have rows of one shape.
//! `pipeline/windows.rs` draws the place of the box.

use super::FieldOptions;
use super::arrays::exact;
use super::fields::Fields;
use super::requested::RequestedFields;
use base::error::{Error, Result};
use base::names::NamedValue;
use data::dataset::arrays::record::RecordRanges;
use data::dataset::arrays::{ArrayField, ArrayRegion};
use data::dataset::{DatasetIndex, FieldKind};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use store::io::{record_gap, record_room};

/// The largest number of elements of a window. No batch can have more.
const MOST_ELEMENTS: u64 = 1 << 40;

/// The part of each array that is read.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct ArrayWindow {
    /// The window's length in each dimension of a sample's array; `None` for a dimension that is read whole. Without
    /// this list, the field has no window of its own.
    #[serde(default, rename = "window")]
    pub lengths: Option<Vec<Option<u64>>>,
    /// Where the window is in the array.
    #[serde(default)]
    pub at: WindowPlace,
    /// The elements outside of the array, in the array's own type; `None` if windows must be inside of the array.
    #[serde(default, deserialize_with = "pad")]
    pub pad: Option<f64>,
}

/// Where a window is in an array.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum WindowPlace {
    /// At a random place, which is drawn again each time the sample is used.
    #[default]
    Random,
    /// In the middle.
    Center,
    /// At this first index in each dimension.
    At(Vec<u64>),
}

impl TryFrom<Value> for WindowPlace {
    type Error = String;

    fn try_from(given: Value) -> Result<Self, String> {
        match given.as_str() {
            Some("random") => Ok(Self::Random),
            Some("center") => Ok(Self::Center),
            _ => serde_json::from_value(given).map(Self::At).map_err(|_| {
                "at= must be \"random\", \"center\" or a list of whole numbers, the first index in each dimension"
                    .into()
            }),
        }
    }
}

/// Reads a number. Numbers that JSON does not have are texts: "NaN", "inf" and "-inf".
fn pad<'a, D: Deserializer<'a>>(from: D) -> Result<Option<f64>, D::Error> {
    let given = Value::deserialize(from)?;
    let number = given.as_f64().or_else(|| given.as_str()?.parse().ok());
    let number = number.filter(|_| given.as_i64().is_none_or(|whole| exact(whole).is_some()));
    match number.is_some() || given.is_null() {
        true => Ok(number),
        false => {
            Err(serde::de::Error::custom(format!("pad= is {given}, must be a number that fits float64")))
        }
    }
}

impl ArrayWindow {
    /// Checks the window of one of the `asked` fields without the dataset.
    ///
    /// # Errors
    /// A message such as `has "x" with ...`.
    pub(super) fn check(field: &FieldOptions, asked: &[FieldOptions]) -> Result<(), String> {
        let Self { lengths, at, pad } = &field.window;
        let refused = |why: &str| Err(format!("has {} {why}", field.shown()));
        if field.kind() != FieldKind::Array {
            return match field.window == Self::default() {
                true => Ok(()),
                false => refused("with a window, but only arrays have windows: use foreload.fields.Array"),
            };
        }
        if let Some(follows) = &field.follows {
            if lengths.is_some() || *at != WindowPlace::Random {
                return refused(
                    "with follows=, which gives it the window of another field: remove window= and at=",
                );
            }
            let has_window = |other: &FieldOptions| {
                other.name == *follows
                    && (other.kind(), &other.follows) == (FieldKind::Array, &None)
                    && other.window.lengths.is_some()
            };
            return match asked.iter().any(has_window) {
                true => Ok(()),
                false => refused(&format!(
                    "which follows {follows:?}, but that is not the name of an array with window=: name one that has \
                     a window of its own"
                )),
            };
        }
        let Some(lengths) = lengths else {
            return match *at != WindowPlace::Random || pad.is_some() {
                true => refused("with at= or pad=, but without the lengths of a window: add window="),
                false => Ok(()),
            };
        };
        let elements = lengths.iter().flatten().try_fold(1u64, |all, length| all.checked_mul(*length));
        if !elements.is_some_and(|elements| (1..=MOST_ELEMENTS).contains(&elements)) {
            return refused("with a window that has no elements, or more than a batch can have");
        }
        if field.ragged && lengths.first().is_some_and(Option::is_some) {
            return refused(
                "as ragged, but its window has a fixed first length: remove ragged=, or use None there",
            );
        }
        match at {
            WindowPlace::At(at) if at.len() != lengths.len() => {
                refused("with at= and window= of different lengths: both need one entry for each dimension")
            }
            WindowPlace::At(at) if at.iter().zip(lengths).any(|(at, length)| *at > 0 && length.is_none()) => {
                refused("with at= in a dimension that window= reads whole (None): use 0 there")
            }
            _ => Ok(()),
        }
    }
}

/// The windows of the fields.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldWindows(Vec<Option<FieldWindow>>);

/// The window of a field, which may be that of the field that it follows.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldWindow {
    /// Index of the field that this one follows; `None` if the window is the field's own.
    pub follows: Option<usize>,
    /// The lengths as in [`ArrayWindow::lengths`]. The array of a field that follows another may have more dimensions,
    /// which are read whole.
    pub lengths: Vec<Option<u64>>,
    /// Where the window is.
    pub at: WindowPlace,
    /// The elements outside of the array, before any conversion; `None` if windows must be inside of the array.
    pub pad: Option<f64>,
}

impl FieldWindows {
    /// Resolves the windows of the `asked` fields, which became `fields` of the dataset `index`.
    ///
    /// # Errors
    /// [`Error::Config`] for a window that no array of the dataset can have.
    pub(super) fn new(
        asked: Option<&RequestedFields<'_>>,
        fields: &Fields,
        index: &DatasetIndex,
    ) -> Result<Self> {
        let asked: Vec<&FieldOptions> =
            asked.into_iter().flat_map(|asked| asked.iter()).map(|(_, field)| field).collect();
        let windows = Self(asked.iter().map(|field| FieldWindow::new(field, &asked)).collect());
        for (number, field) in asked.iter().enumerate() {
            let Some(window) = windows.of(number) else { continue };
            let refused = |why: String| Error::config("fields", format!("has {}, {why}", field.shown()));
            let wrong_shape = |has: String| refused(format!("whose arrays have {has}"));
            let arrays = |number: usize| -> Vec<ArrayField> {
                let member = fields.list.get(number).and_then(|field| field.member);
                member.map(|member| index.array_fields(member).collect()).unwrap_or_default()
            };
            if fields.list.get(number).is_none_or(|field| field.member.is_none()) {
                return Err(refused("which is a number or a column of numbers: remove window=".into()));
            }
            let own = arrays(number);
            for ArrayField { stored, shape, .. } in &own {
                window.check_shape(shape).map_err(wrong_shape)?;
                if let Some(pad) = window.pad.filter(|pad| stored.number.bits_of(*pad).is_none()) {
                    let message =
                        format!("with pad={pad}, which its type {} cannot hold", stored.number.name());
                    return Err(refused(message));
                }
            }
            let Some(others) = window.follows.map(arrays) else { continue };
            // The shapes of members are known only after both are read, and fields are made one by one.
            if [&own, &others].iter().any(|arrays| arrays.len() != index.parts().len()) {
                let message = "which follows another array, but one of the two is not an array of a container such as \
                               .npy: store both in such files, or give both the same at=";
                return Err(refused(message.into()));
            }
            for (own, other) in own.iter().zip(others) {
                window.check_same(&own.shape, &other.shape).map_err(wrong_shape)?;
            }
        }
        Ok(windows)
    }

    #[cfg(test)]
    pub(crate) fn of_fields(windows: Vec<Option<FieldWindow>>) -> Self {
        Self(windows)
    }

    /// Returns the window of the field with the index `field`; `None` if its arrays are read whole.
    pub fn of(&self, field: usize) -> Option<&FieldWindow> {
        self.0.get(field)?.as_ref()
    }

    /// Whether all arrays are read whole.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Returns the `length` of a slot for the windows of the largest sample; `None` if arrays are read whole.
    pub(super) fn room(&self, fields: &Fields, index: &DatasetIndex) -> Option<usize> {
        let sample = index.largest_record().filter(|_| !self.is_empty())?;
        let (record, gap) = (index.record(index.extent(sample))?, record_gap(index));
        let mut room = 0_usize;
        for (number, field) in fields.list.iter().enumerate() {
            let Some(slab) = field.member.and_then(|member| index.array(sample, member)) else { continue };
            let (cells, ranges) = match self.of(number) {
                Some(window) => slab.widest(&window.lengths),
                None => (1, slab.touched(&ArrayRegion::whole(slab.shape())).collect()),
            };
            let one = record_room(index, &record, Some(&RecordRanges::of(ranges)), gap);
            room = room.saturating_add(one.saturating_add(gap as usize).saturating_mul(cells as usize));
        }
        Some(room)
    }

    /// Whether any window is at a random place.
    pub fn are_random(&self) -> bool {
        self.0.iter().flatten().any(|window| window.at == WindowPlace::Random)
    }
}

impl FieldWindow {
    /// Resolves the window of `field`, which may be that of another of the `asked` fields.
    pub(super) fn new(field: &FieldOptions, asked: &[&FieldOptions]) -> Option<Self> {
        let pad = field.window.pad;
        let Some(follows) = &field.follows else {
            let lengths = field.window.lengths.clone()?;
            return Some(Self { follows: None, lengths, at: field.window.at.clone(), pad });
        };
        let other = asked.iter().position(|other| other.name == *follows)?;
        let ArrayWindow { lengths, at, .. } = &asked[other].window;
        // Dimensions after the last that has a length may be missing here, such as the channels of an image whose
        // labels have none.
        let mut lengths = lengths.clone()?;
        lengths.truncate(lengths.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
        Some(Self { follows: Some(other), lengths, at: at.clone(), pad })
    }

    /// Returns the shape of the rows if the arrays have the shape `shape`. `None` is a length that differs.
    pub(crate) fn row_shape(&self, shape: &[Option<u64>]) -> Vec<Option<u64>> {
        let windowed = self.lengths.iter().chain(std::iter::repeat(&None));
        shape.iter().zip(windowed).map(|(whole, length)| length.or(*whole)).collect()
    }

    /// Checks whether an array of this shape has the window. `None` is a length that is not known.
    ///
    /// # Errors
    /// What the array has, and what the window needs.
    pub(crate) fn check_shape(&self, shape: &[Option<u64>]) -> Result<(), String> {
        let (rank, windowed) = (shape.len(), self.lengths.len());
        if rank < windowed || rank > windowed && self.follows.is_none() {
            return Err(format!(
                "{rank} dimensions, but its window has {windowed}: give a length or None for each dimension of a \
                 sample's array"
            ));
        }
        for (dimension, (whole, length)) in shape.iter().zip(&self.lengths).enumerate() {
            let (Some(whole), Some(length), None) = (whole, length, self.pad) else { continue };
            let first = if let WindowPlace::At(at) = &self.at { at[dimension] } else { 0 };
            let needed = first.saturating_add(*length);
            if needed > *whole {
                return Err(format!(
                    "{whole} elements in dimension {dimension}, but its window needs {needed}: use a smaller \
                     window, or pad=VALUE"
                ));
            }
        }
        Ok(())
    }

    /// Checks that an array of this shape has the same windows as an array of the shape `other` of the field that it
    /// follows.
    ///
    /// # Errors
    /// What the one has, and what the other has.
    pub(crate) fn check_same(&self, shape: &[Option<u64>], other: &[Option<u64>]) -> Result<(), String> {
        let both = shape.iter().zip(other).zip(&self.lengths).enumerate();
        for (dimension, ((whole, other), length)) in both {
            if let (Some(whole), Some(other), Some(_)) = (whole, other, length)
                && whole != other
            {
                return Err(format!(
                    "{whole} elements in dimension {dimension}, but the array that it follows has {other}: windows can \
                     be at the same place only if these are the same"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(given: Value) -> Result<Vec<FieldOptions>, String> {
        let fields: Vec<FieldOptions> = serde_json::from_value(given).map_err(|error| error.to_string())?;
        Fields::check_list(&fields).map(|()| fields)
    }

    fn array(mut more: Value) -> Value {
        for (key, value) in [("kind", "array"), ("source", "/x"), ("name", "x")] {
            if more[key].is_null() {
                more[key] = value.into();
            }
        }
        more
    }

    #[test]
    fn windows_are_read_as_python_writes_them() {
        let given = json!([
            array(
                json!({"window": [64, null, 8], "at": "center", "pad": -1, "follows": null, "ragged": false})
            ),
            array(json!({"name": "y", "follows": "x", "pad": "NaN"})),
            array(json!({"name": "z", "window": null, "at": "random", "pad": null})),
            array(json!({"name": "w", "window": [3, 4], "at": [0, 7]})),
        ]);
        let [x, y, z, w] = &fields(given).unwrap()[..] else { panic!("four fields") };
        let lengths = Some(vec![Some(64), None, Some(8)]);
        assert_eq!(x.window, ArrayWindow { lengths, at: WindowPlace::Center, pad: Some(-1.0) });
        assert!(y.window.pad.is_some_and(f64::is_nan) && y.follows.as_deref() == Some("x"));
        assert_eq!(z.window, ArrayWindow::default());
        assert_eq!(w.window.at, WindowPlace::At(vec![0, 7]));
        let asked = [x, y, z, w];
        let windows = FieldWindows(asked.iter().map(|field| FieldWindow::new(field, &asked)).collect());
        assert!(
            !windows.are_random()
                && !windows.is_empty()
                && windows.of(2).is_none()
                && windows.of(9).is_none()
        );
        let row = |field: usize, shape: &[Option<u64>]| windows.of(field).unwrap().row_shape(shape);
        assert_eq!(row(0, &[None, None, Some(9)]), [Some(64), None, Some(8)]);
        assert_eq!(row(1, &[Some(70), Some(5), Some(9), Some(3)]), [Some(64), Some(5), Some(8), Some(3)]);
    }

    #[test]
    fn impossible_windows_are_refused() {
        let x = array(json!({"window": [4]}));
        for (given, message) in [
            (json!([array(json!({"windows": [4]}))]), "unknown field `windows`"),
            (json!([array(json!({"window": [4, -1]}))]), "invalid value: integer `-1`"),
            (
                json!([array(json!({"window": [4], "at": "centre"}))]),
                "at= must be \"random\", \"center\" or a list",
            ),
            (json!([array(json!({"window": [4], "pad": "much"}))]), "pad= is \"much\", must be a number"),
            (
                json!([{"source": "a.txt", "name": "t", "window": [4]}]),
                "\"t\" (of \"a.txt\") with a window, but only",
            ),
            (json!([array(json!({"at": "center"}))]), "but without the lengths of a window"),
            (json!([array(json!({"pad": 0}))]), "but without the lengths of a window"),
            (json!([array(json!({"window": [4, 0]}))]), "a window that has no elements"),
            (json!([array(json!({"window": [4294967296u64, 4294967296u64]}))]), "more than a batch can have"),
            (json!([array(json!({"window": [4], "ragged": true}))]), "as ragged, but its window has a fixed"),
            (json!([array(json!({"window": [4, 4], "at": [1]}))]), "at= and window= of different lengths"),
            (json!([array(json!({"window": [4, null], "at": [1, 2]}))]), "reads whole (None): use 0 there"),
            (json!([array(json!({"follows": "y"}))]), "follows \"y\", but that is not the name of an array"),
            (json!([array(json!({"follows": "x"}))]), "follows \"x\", but that is not the name of an array"),
            (
                json!([x, array(json!({"name": "y", "follows": "x", "window": [4]}))]),
                "the window of another field",
            ),
            (
                json!([{"source": "t", "name": "t", "follows": "x"}, x]),
                "but only images, masks, boxes and arrays",
            ),
        ] {
            match fields(given.clone()) {
                Err(error) => assert!(error.contains(message), "{given}: {error}"),
                Ok(_) => panic!("{given} is not refused"),
            }
        }
        fields(json!([array(json!({"window": [null, 4], "ragged": true}))])).unwrap();
    }

    #[test]
    fn shapes_are_checked_as_far_as_they_are_known() {
        let window = |at: WindowPlace, pad| {
            let lengths = vec![Some(4), None, Some(2)];
            FieldWindow { follows: None, lengths, at, pad }
        };
        let random = window(WindowPlace::Random, None);
        for (shape, message) in [
            (vec![Some(4), Some(1), Some(2)], None),
            (vec![None, None, Some(2)], None),
            (vec![Some(3), Some(9), Some(2)], Some("3 elements in dimension 0, but its window needs 4")),
            (vec![None, None, Some(1)], Some("1 elements in dimension 2, but its window needs 2")),
            (vec![Some(9), Some(9)], Some("2 dimensions, but its window has 3")),
            (vec![Some(9); 4], Some("4 dimensions, but its window has 3")),
        ] {
            let found = random.check_shape(&shape).err();
            assert_eq!(found.is_some(), message.is_some(), "{shape:?}: {found:?}");
            assert!(found.unwrap_or_default().starts_with(message.unwrap_or_default()), "{shape:?}");
        }
        window(WindowPlace::Random, Some(0.0)).check_shape(&[Some(1); 3]).unwrap();
        let at = |first, whole| {
            window(WindowPlace::At(vec![first, 0, 0]), None).check_shape(&[Some(whole), None, None])
        };
        assert_eq!((at(3, 7).is_ok(), at(3, 6).is_ok(), at(u64::MAX, 9).is_ok()), (true, false, false));
        let follower = FieldWindow { follows: Some(0), ..random };
        follower.check_shape(&[Some(9); 5]).unwrap();
        let same = |own: [u64; 3], other: [u64; 4]| follower.check_same(&own.map(Some), &other.map(Some));
        assert_eq!((same([9, 8, 7], [9, 5, 7, 3]), same([9, 8, 7], [9, 8, 6, 3]).is_ok()), (Ok(()), false));
    }
}
