//! Draws the windows of arrays, and chooses the ranges of a record that are read for them.
//!
//! A window depends only on the seed, the epoch, the draw of the sample, the name of the field and the shape of the
//! array. So the reading thread draws it to know which bytes are needed, and the worker draws it again to use them.

use super::{context::SampleContext, run::EpochRun};
use crate::config::{FieldWindow, FieldWindows, Fields, LoaderConfig, WindowPlace};
use base::error::DecodeError;
use base::rng::{RandomKey, Use};
use data::dataset::arrays::ArrayRegion;
use data::dataset::arrays::record::RecordRanges;
use data::dataset::{DatasetIndex, Extent, MemberBytes};
use data::schedule::Draw;
use std::sync::Arc;

/// The random keys of the windows in one epoch, or in one iteration over a stream: one for each field.
pub(crate) struct WindowKeys(Vec<Option<RandomKey>>);

impl WindowKeys {
    pub(crate) fn new(windows: &FieldWindows, fields: &Fields, seed: u64, epoch: u64) -> Self {
        let key = |number: usize| {
            let window = windows.of(number).filter(|window| window.at == WindowPlace::Random)?;
            // A field that follows another has the other's key, and so the same windows.
            let name = &fields.list[window.follows.unwrap_or(number)].name;
            let key = RandomKey::new(&[], seed, epoch, Use::Augment).of_field(name);
            Some(key.part([0, 0], "RandomWindow", 0))
        };
        Self((0..fields.list.len()).map(key).collect())
    }
}

/// The part of one sample's array that fills a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DrawnWindow {
    /// The part of the array that is in the window. It may be empty.
    pub region: ArrayRegion,
    /// The index in the row of the region's first element.
    pub at: Vec<u64>,
    /// The shape of the row.
    pub shape: Vec<u64>,
}

impl DrawnWindow {
    /// All of an array of this shape.
    pub(crate) fn whole(shape: &[u64]) -> Self {
        Self { region: ArrayRegion::whole(shape), at: vec![0; shape.len()], shape: shape.to_vec() }
    }

    /// Whether elements of the row are outside of the array. They get the value of `pad`.
    pub(crate) fn is_padded(&self) -> bool {
        self.region.length != self.shape
    }

    /// Draws a window. It is at a random place if there is a `key`.
    fn new(window: &FieldWindow, key: Option<&RandomKey>, draw: Draw, shape: &[u64]) -> Result<Self, String> {
        window.check_shape(&known(shape))?;
        let mut random = key.map(|key| key.stream_of(draw.sample, draw.occurrence));
        let mut drawn = Self::whole(shape);
        for (dimension, length) in window.lengths.iter().enumerate() {
            let (Some(length), whole) = (*length, shape[dimension]) else { continue };
            let rest = whole.abs_diff(length);
            // Each dimension takes one number, also if there is only one place. So the lengths of one dimension do not
            // change the place in another.
            let first = match (&window.at, &mut random) {
                (WindowPlace::At(at), _) => at[dimension].min(whole),
                (WindowPlace::Random, Some(random)) => random.below(rest.saturating_add(1)),
                _ => rest / 2,
            };
            // If the array is the shorter of the two, it has a place in the window.
            let is_longer = length > whole && !matches!(window.at, WindowPlace::At(_));
            let (start, at) = if is_longer { (0, first) } else { (first, 0) };
            (drawn.region.start[dimension], drawn.at[dimension]) = (start, at);
            drawn.region.length[dimension] = length.min(whole - start);
            drawn.shape[dimension] = length;
        }
        Ok(drawn)
    }
}

fn known(shape: &[u64]) -> Vec<Option<u64>> {
    shape.iter().copied().map(Some).collect()
}

/// Draws the window of the field with the index `field` in an array of this shape: all of the array if the field has no
/// window.
///
/// # Errors
/// [`DecodeError::Damaged`] if the array does not have the window, or cannot follow the array of another field.
pub(crate) fn draw_window(
    run: &EpochRun,
    field: usize,
    draw: Draw,
    shape: &[u64],
) -> Result<DrawnWindow, DecodeError> {
    let SampleContext { config, index, .. } = &*run.context;
    checked_window(config, index, &run.windows, field, draw, shape)
        .map_err(|has| DecodeError::Damaged(format!("its array has {has}")))
}

fn checked_window(
    config: &LoaderConfig,
    index: &DatasetIndex,
    keys: &WindowKeys,
    field: usize,
    draw: Draw,
    shape: &[u64],
) -> Result<DrawnWindow, String> {
    let Some(window) = config.windows.of(field) else { return Ok(DrawnWindow::whole(shape)) };
    let member = window.follows.and_then(|followed| config.fields.list.get(followed)?.member);
    if let Some(followed) = member.and_then(|member| index.array(draw.sample, member)) {
        window.check_same(&known(shape), &known(followed.shape()))?;
    }
    DrawnWindow::new(window, keys.0.get(field).and_then(Option::as_ref), draw, shape)
}

/// Returns the ranges of a sample's record at `extent` that all `draws` need together. `None` if the whole record must
/// be read, or if the sample has no record.
pub(crate) fn wanted_ranges(
    run: &EpochRun,
    extent: Extent,
    draws: impl Iterator<Item = Draw>,
) -> Option<Arc<RecordRanges>> {
    let SampleContext { config, index, .. } = &*run.context;
    if config.windows.is_empty() {
        return None;
    }
    let draws: Vec<Draw> = draws.collect();
    let ranges = ranges_of_draws(config, index, &run.windows, &draws)?;
    (ranges.bytes() < extent.length).then(|| Arc::new(ranges))
}

/// Returns the ranges that the draws of one sample need; `None` if it has no arrays.
fn ranges_of_draws(
    config: &LoaderConfig,
    index: &DatasetIndex,
    keys: &WindowKeys,
    draws: &[Draw],
) -> Option<RecordRanges> {
    let sample = draws.first()?.sample;
    let (mut ranges, mut has_arrays) = (Vec::new(), false);
    for (number, field) in config.fields.list.iter().enumerate() {
        let Some((slab, member)) =
            field.member.and_then(|member| Some((index.array(sample, member)?, member)))
        else {
            continue;
        };
        has_arrays = true;
        if config.windows.of(number).is_none() {
            if let MemberBytes::InExtent(range) = index.member(sample, member) {
                ranges.push(range.start as u32..range.end as u32);
            }
            continue;
        }
        for &draw in draws {
            let drawn = checked_window(config, index, keys, number, draw, slab.shape());
            // If there is no window, nothing of the array is read. The worker finds the same error.
            if let Ok(DrawnWindow { region, .. }) = drawn {
                ranges.extend(slab.touched(&region));
            }
        }
    }
    has_arrays.then(|| RecordRanges::of(ranges))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Field, FieldContent, FieldOptions, LoaderKind, LoaderOptions};
    use data::dataset::{Contents, FieldKind};
    use std::path::Path;

    fn window(lengths: &[u64], at: WindowPlace, pad: Option<f64>) -> FieldWindow {
        FieldWindow { follows: None, lengths: lengths.iter().copied().map(Some).collect(), at, pad }
    }

    fn key(name: &str, seed: u64, epoch: u64) -> RandomKey {
        RandomKey::new(&[], seed, epoch, Use::Augment).of_field(name).part([0, 0], "RandomWindow", 0)
    }

    /// The first index in each dimension of a random window.
    fn place(lengths: &[u64], key: &RandomKey, (sample, occurrence): (u64, u32), shape: &[u64]) -> Vec<u64> {
        let window = window(lengths, WindowPlace::Random, None);
        DrawnWindow::new(&window, Some(key), Draw { sample, occurrence }, shape).unwrap().region.start
    }

    // The numbers are those of a program in Python that computes SHA-256, Philox and Lemire's product.
    #[test]
    fn windows_stay_where_they_were_promised() {
        let lengths = [4, 50, 7, 1];
        for (key, draw, expected) in [
            (key("x", 11, 2), (5, 0), [2, 26, 0, 282]),
            (key("x", 11, 2), (5, 1), [1, 150, 0, 820]),
            (key("x", 11, 2), (6, 0), [2, 1, 0, 436]),
            (key("x", 11, 3), (5, 0), [0, 25, 0, 125]),
            (key("y", 11, 2), (5, 0), [1, 10, 0, 976]),
        ] {
            assert_eq!(place(&lengths, &key, draw, &[10, 200, 7, 1000]), expected);
            // A dimension with one place takes a number, too.
            assert_eq!(place(&lengths, &key, draw, &[10, 200, 70, 1000])[3], expected[3]);
        }
    }

    #[test]
    fn a_key_depends_on_no_other_field() {
        let field = |name: &str| {
            let (name, source) = (name.to_owned(), "/x".to_owned());
            Field { name, source, member: Some(0), content: FieldContent::Label, optional: None }
        };
        let keys = |fields: &[(&str, Option<usize>)]| {
            let window = |follows| Some(FieldWindow { follows, ..window(&[4], WindowPlace::Random, None) });
            let windows =
                FieldWindows::of_fields(fields.iter().map(|(_, follows)| window(*follows)).collect());
            let list = fields.iter().map(|(name, _)| field(name)).collect();
            let fields = Fields { list, arrays: Vec::new() };
            WindowKeys::new(&windows, &fields, 11, 2).0
        };
        let x = Some(key("x", 11, 2));
        assert_eq!(keys(&[("x", None)]), [x]);
        let [y, of_x, z] = keys(&[("y", None), ("x", None), ("z", Some(1))])[..] else {
            panic!("three keys")
        };
        assert_eq!((of_x, z), (x, x));
        assert_eq!(y, Some(key("y", 11, 2)));
    }

    /// With 8 times 8 places, the statistic exceeds 103.4 in one of a thousand keys.
    #[test]
    fn all_places_are_equally_likely() {
        let (key, mut counts) = (key("x", 0, 0), [0u32; 64]);
        for draw in 0..64_000 {
            let place = place(&[3, 5], &key, (draw / 4, (draw % 4) as u32), &[10, 12]);
            counts[(8 * place[0] + place[1]) as usize] += 1;
        }
        let squares = counts.iter().map(|count| (f64::from(*count) - 1000.0).powi(2) / 1000.0);
        let statistic: f64 = squares.sum();
        assert!(statistic < 103.4, "{statistic}: {counts:?}");
    }

    /// A window is an interval of each dimension. Its row has every element that is in both, in order, at one distance.
    #[test]
    fn windows_are_boxes_of_the_array() {
        for seed in 0..3000 {
            let mut random = RandomKey::new(b"windows", seed, 0, Use::Order).stream(0);
            let rank = random.below(5) as usize;
            let mut lengths =
                |least: u64, of: u64| (0..rank).map(|_| random.below(of) + least).collect::<Vec<_>>();
            let (shape, wanted, first) = (lengths(0, 9), lengths(1, 9), lengths(0, 4));
            let at = match random.below(3) {
                0 => WindowPlace::Random,
                1 => WindowPlace::Center,
                _ => WindowPlace::At(first.clone()),
            };
            let pad = (random.below(3) > 0).then_some(0.0);
            let mut window = window(&wanted, at, pad);
            window.lengths.iter_mut().filter(|_| random.below(4) == 0).for_each(|length| *length = None);
            let shown = format!("seed {seed}: {window:?} of {shape:?}");
            let drawn = DrawnWindow::new(
                &window,
                Some(&key("x", seed, 0)),
                Draw { sample: seed, occurrence: 0 },
                &shape,
            );
            let fits = (0..rank).all(|of| {
                let first = if let WindowPlace::At(_) = window.at { first[of] } else { 0 };
                window.lengths[of].is_none_or(|length| first + length <= shape[of])
            });
            assert_eq!(drawn.is_ok(), fits || pad.is_some(), "{shown}");
            let Ok(drawn) = drawn else { continue };
            assert!(drawn.is_padded() != fits || rank == 0, "{shown}: {drawn:?}");
            for of in 0..rank {
                let (start, length, at) = (drawn.region.start[of], drawn.region.length[of], drawn.at[of]);
                let (whole, row) = (shape[of], drawn.shape[of]);
                assert_eq!(row, window.lengths[of].unwrap_or(whole), "{shown}");
                assert!(start + length <= whole && at + length <= row, "{shown}: {drawn:?}");
                assert!(start == 0 || at == 0, "{shown}: {drawn:?}");
                assert!(start + length == whole || at + length == row, "{shown}: {drawn:?}");
                let (before, after) = (start + row - at - length, whole - start - length + at);
                match &window.at {
                    WindowPlace::At(_) if window.lengths[of].is_some() => {
                        assert_eq!((start, at), (first[of].min(whole), 0), "{shown}");
                    }
                    WindowPlace::Center => {
                        let (start, end) =
                            if row > whole { (at, row - whole - at) } else { (start, whole - row - start) };
                        assert!(start == end || start + 1 == end, "{shown}: {drawn:?} {before} {after}");
                    }
                    _ => {}
                }
            }
        }
    }

    fn array(name: &str, window: &str) -> FieldOptions {
        let window = serde_json::from_str(window).unwrap();
        let source = format!("{name}.npy");
        FieldOptions { kind: Some(FieldKind::Array), window, source, ..FieldOptions::named(name) }
    }

    /// Seven samples: x has 40 rows of 3000 float32, and y has 2.
    fn dataset(root: &Path, fields: Vec<FieldOptions>) -> base::error::Result<(DatasetIndex, LoaderConfig)> {
        for (name, shape) in [("x", "(7, 40, 3000)"), ("y", "(7, 2)")] {
            let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
            let header = format!("{header:<117}\n");
            let bytes = if name == "x" { 7 * 40 * 3000 * 4 } else { 7 * 2 * 4 };
            let file = [&b"\x93NUMPY\x01\x00\x76\x00"[..], header.as_bytes(), &vec![0; bytes]].concat();
            std::fs::create_dir_all(root.join("data")).unwrap();
            std::fs::write(root.join("data").join(format!("{name}.npy")), file).unwrap();
        }
        let asked = LoaderOptions {
            kind: LoaderKind::Fields,
            index_dir: Some(root.join("index")),
            device: "cpu".into(),
            batch_size: 2,
            fields: Some(fields),
            ..LoaderOptions::default()
        };
        let checked = asked.validate()?;
        let index = DatasetIndex::open(&root.join("data"), &checked.index_options(Contents::Images))?;
        let config = checked.check(&index)?;
        Ok((index, config))
    }

    #[test]
    fn all_draws_of_a_read_need_their_windows_and_whole_fields() {
        let root = tempfile::tempdir().unwrap();
        let fields = vec![array("x", r#"{"window": [3, 100]}"#), array("y", "{}")];
        let (index, config) = dataset(root.path(), fields).unwrap();
        let keys = WindowKeys::new(&config.windows, &config.fields, config.seed, 1);
        let draws = [Draw { sample: 4, occurrence: 0 }, Draw { sample: 4, occurrence: 1 }];
        let mut expected: Vec<_> = std::iter::once(480_000..480_008).collect();
        for draw in draws {
            let drawn = checked_window(&config, &index, &keys, 0, draw, &[40, 3000]).unwrap();
            for row in drawn.region.start[0]..drawn.region.start[0] + 3 {
                let start = (row * 3000 + drawn.region.start[1]) as u32 * 4;
                expected.push(start..start + 400);
            }
        }
        let ranges = ranges_of_draws(&config, &index, &keys, &draws).unwrap();
        assert_eq!(ranges, RecordRanges::of(expected));
        assert!(ranges.bytes() > 8 + 3 * 400 && ranges.bytes() <= 8 + 6 * 400);
        assert_eq!(ranges_of_draws(&config, &index, &keys, &[]), None);
    }

    #[test]
    fn windows_that_no_array_has_are_refused_at_opening() {
        for (fields, message) in [
            (vec![array("x", r#"{"window": [3]}"#)], "whose arrays have 2 dimensions, but its window has 1"),
            (
                vec![array("x", r#"{"window": [null, 3001]}"#)],
                "3000 elements in dimension 1, but its window needs 3001",
            ),
            (vec![array("x", r#"{"window": [3, 4], "at": [38, 0]}"#)], "40 elements in dimension 0"),
            (
                vec![
                    array("x", r#"{"window": [3, 4]}"#),
                    FieldOptions { follows: Some("x".into()), ..array("y", "{}") },
                ],
                "whose arrays have 1 dimensions",
            ),
        ] {
            let root = tempfile::tempdir().unwrap();
            match dataset(root.path(), fields) {
                Err(error) => assert!(error.to_string().contains(message), "{error}"),
                Ok(_) => panic!("not refused: {message}"),
            }
        }
        let root = tempfile::tempdir().unwrap();
        let padded = array("x", r#"{"window": [50, 3], "pad": "NaN", "at": "center"}"#);
        let (index, config) = dataset(root.path(), vec![padded]).unwrap();
        let keys = WindowKeys::new(&config.windows, &config.fields, 0, 0);
        let drawn = checked_window(&config, &index, &keys, 0, Draw::first(3), &[40, 3000]).unwrap();
        assert_eq!((&drawn.region.start[..], &drawn.at[..]), (&[0, 1498][..], &[5, 0][..]));
        assert!(drawn.is_padded() && !config.windows.are_random());
    }
}
