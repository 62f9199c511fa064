//! Tests of recipes: golden numbers, torchvision's distribution and rounding, and the messages of refused lists.

mod canvases;
mod sizes;
mod turned;

use super::*;
use crate::augment::{Axis, DType, Filter, Padding, View};

/// Returns the height and width that a recipe gives every image.
fn fixed_size(recipe: &Recipe) -> Option<(u32, u32)> {
    recipe.views()[0].size().map(|ImageSize { width, height }| (height, width))
}

fn request(text: &str) -> Transforms {
    Transforms::from_json(text).unwrap()
}

pub(super) fn recipe(text: &str) -> Recipe {
    Recipe::new(&request(text), MemoryFormat::Nchw, Fidelity::Fast).unwrap()
}

pub(super) fn refusal(text: &str) -> String {
    let recipe = Transforms::from_json(text)
        .and_then(|request| Recipe::new(&request, MemoryFormat::Nchw, Fidelity::Fast));
    match recipe {
        Err(Error::Config { setting: "transforms", message }) => message,
        other => panic!("{text}: {other:?}"),
    }
}

const IMAGENET: &str = r#"[{"RandomResizedCrop": {"size": 224}}, {"RandomHorizontalFlip": {}}]"#;

pub(super) fn drawn(recipe: &Recipe, sample: u64, size: (u32, u32)) -> DrawnView {
    recipe.draw(&recipe.keys(11, 2), sample, 0, size).unwrap().views()[0].clone()
}

/// Returns left, top, width and height of the crop in the source, and whether it is mirrored.
fn crop(drawn: &DrawnView) -> (u32, u32, u32, u32, bool) {
    let View { x, y, flip, .. } = drawn.view;
    (x.start, y.start, x.length, y.length, flip)
}

#[test]
fn draws_are_what_they_were_when_the_streams_were_promised() {
    let recipe = recipe(IMAGENET);
    let golden: Vec<_> = (0..4).map(|i| crop(&drawn(&recipe, i, (500, 375)))).collect();
    assert_eq!(golden, GOLDEN);
    let again = recipe.draw(&recipe.keys(11, 2), 0, 1, (500, 375)).unwrap();
    assert_eq!(crop(&again.views()[0]), AGAIN);
    let cifar = self::recipe(r#"[{"RandomCrop": {"size": 32, "padding": 4}}]"#);
    let places: Vec<_> =
        (0..4).map(|i| drawn(&cifar, i, (32, 32)).view).map(|v| (v.x.offset, v.y.offset)).collect();
    assert_eq!(places, PLACES);
}

const GOLDEN: [(u32, u32, u32, u32, bool); 4] = [
    (327, 56, 164, 208, false),
    (54, 68, 347, 278, true),
    (8, 56, 258, 313, false),
    (123, 5, 362, 362, true),
];

/// The crop of the first sample when it is drawn a second time.
const AGAIN: (u32, u32, u32, u32, bool) = (90, 42, 312, 333, true);

/// Left and top of crops in an image of 32 pixels; negative if the crop begins in the padding.
const PLACES: [(i32, i32); 4] = [(-1, -2), (0, 0), (3, -4), (0, 4)];

/// A transform's numbers do not depend on the other transforms of the list.
#[test]
fn a_transform_or_a_view_more_changes_no_others_draws() {
    let alone = recipe(IMAGENET);
    let crops: Vec<_> = (0..50).map(|i| crop(&drawn(&alone, i, (500, 375)))).collect();
    for more in [
        r#"[{"RandomHorizontalFlip": {}}, {"RandomResizedCrop": {"size": 96}}, {"ToDtype": {"dtype": "float16"}}]"#,
        r#"[{"RandomResizedCrop": {"size": 224}}, {"RandomHorizontalFlip": {}}, {"RandomCrop": {"size": 20}}]"#,
    ] {
        let more = recipe(more);
        for (i, expected) in crops.iter().enumerate() {
            let (left, top, width, height, flip) = crop(&drawn(&more, i as u64, (500, 375)));
            // If the flip is before the crop, the place that was drawn is counted from the right.
            let left = if fixed_size(&more) == Some((96, 96)) && flip { 500 - left - width } else { left };
            assert_eq!((left, top, width, height, flip), *expected, "sample {i}");
        }
    }
    let list = IMAGENET;
    let text = |n| {
        format!(
            r#"[{{"Views": {{"n": {n}, "transforms": {list}}}}}, {{"Views": {{"n": 1, "transforms": {list}}}}}]"#
        )
    };
    let (two, three) = (recipe(&text(2)), recipe(&text(3)));
    let of = |recipe: &Recipe| recipe.draw(&recipe.keys(11, 2), 7, 0, (500, 375)).unwrap().views().to_vec();
    let (two, three) = (of(&two), of(&three));
    assert_eq!((&two[0], &two[1], &two[2]), (&three[0], &three[1], &three[3]));
    assert_eq!(two[0], drawn(&alone, 7, (500, 375)));
    assert!(two[0] != two[1] && two[1] != two[2] && two[0] != two[2] && three[2] != two[2]);
}

/// Each step of each view has its own random key, whether it changes colours or geometry.
#[test]
fn every_step_of_every_view_has_a_key_of_its_own() {
    let crop = r#"{"CenterCrop": {"size": 9}}"#;
    let list = format!(
        r#"[{crop}, {{"Grayscale": {{}}}}, {{"Grayscale": {{}}}}, {{"ToDtype": {{"dtype": "float32"}}}}]"#
    );
    let recipe = recipe(&format!(r#"{{"Views": {{"n": 2, "transforms": {list}}}}}"#));
    let RecipeKeys(keys) = recipe.keys(11, 2);
    assert_eq!(keys.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
    let all = RandomKey::new(&[], 11, 2, Use::Augment);
    let flat: Vec<_> = keys.into_iter().flatten().map(|keys| keys.own).collect();
    assert_eq!(flat[5..7], [all.part([0, 1], "Grayscale", 0), all.part([0, 1], "Grayscale", 1)]);
    assert!(flat.iter().enumerate().all(|(i, key)| !flat[..i].contains(key)));
    assert!(!recipe.is_random());
}

#[test]
fn what_is_decoded_holds_every_view() {
    let text =
        r#"{"Views": {"n": 8, "transforms": [{"RandomResizedCrop": {"size": 96, "scale": [0.05, 0.3]}}]}}"#;
    let recipe = recipe(text);
    let keys = recipe.keys(3, 0);
    for sample in 0..100 {
        let drawn = recipe.draw(&keys, sample, 0, (400, 300)).unwrap();
        assert_eq!(drawn.views().len(), 8);
        let all = drawn.region();
        for (one, view) in drawn.views().iter().zip(recipe.views()) {
            assert_eq!(one.view.region(&view.output(one)).union(all), all);
        }
        // The region is no larger than needed: each of its edges is the edge of a view's region.
        let regions = || drawn.views().iter().map(|one| one.view.region(&recipe.views()[0].output(one)));
        assert_eq!(regions().map(|r| r.x).min(), Some(all.x));
        assert_eq!(regions().map(|r| r.y + r.height).max(), Some(all.y + all.height));
    }
}

/// Compares mean and standard deviation of (area share, log ratio, centre) with an independent computation.
#[test]
fn crops_are_distributed_as_torchvision_says() {
    const N: u64 = 40_000;
    let (width, height) = (500u32, 375u32);
    let mut flips = 0u32;
    let mut seen = [[0f64; 2]; 4];
    let recipe = recipe(IMAGENET);
    let keys = recipe.keys(11, 2);
    for index in 0..N {
        let (left, top, w, h, flip) =
            crop(&recipe.draw(&keys, index, 0, (width, height)).unwrap().views()[0]);
        flips += u32::from(flip);
        assert!(left + w <= width && top + h <= height);
        let (w, h) = (f64::from(w), f64::from(h));
        for (sum, value) in seen.iter_mut().zip([
            w * h / f64::from(width * height),
            (w / h).ln(),
            (f64::from(left) + w / 2.0) / f64::from(width),
            (f64::from(top) + h / 2.0) / f64::from(height),
        ]) {
            sum[0] += value;
            sum[1] += value * value;
        }
    }
    // Expected: the same distribution, computed on a regular grid over (area, log ratio) without the pairs that do not
    // fit. For a given box, its centre is uniform over all places that it can have.
    let (mut weight, mut expected) = (0.0, [[0f64; 2]; 4]);
    let (lo, hi) = ((0.75f64).ln(), (4.0f64 / 3.0).ln());
    for i in 0..1000 {
        for j in 0..400 {
            let target = 187_500.0 * (0.08 + 0.92 * (f64::from(i) + 0.5) / 1000.0);
            let aspect = (lo + (hi - lo) * (f64::from(j) + 0.5) / 400.0).exp();
            let (w, h) = ((target * aspect).sqrt().round(), (target / aspect).sqrt().round());
            if w > 500.0 || h > 375.0 {
                continue;
            }
            weight += 1.0;
            let room = [(500.0 - w) / 500.0, (375.0 - h) / 375.0];
            for (sum, (mean, variance)) in expected.iter_mut().zip([
                (w * h / 187_500.0, 0.0),
                ((w / h).ln(), 0.0),
                (0.5, room[0] * room[0] / 12.0),
                (0.5, room[1] * room[1] / 12.0),
            ]) {
                sum[0] += mean;
                sum[1] += mean * mean + variance;
            }
        }
    }
    for (s, e) in seen.iter().zip(&expected) {
        let (mean, second) = (s[0] / N as f64, s[1] / N as f64);
        let (want_mean, want_second) = (e[0] / weight, e[1] / weight);
        let deviation = (want_second - want_mean * want_mean).sqrt();
        let spread = (second - mean * mean).sqrt();
        // Five standard errors of a mean of N draws.
        assert!((mean - want_mean).abs() < 5.0 * deviation / 200.0, "mean {mean}, expected {want_mean}");
        assert!((spread / deviation - 1.0).abs() < 0.03, "spread {spread}, expected {deviation}");
    }
    assert!((f64::from(flips) / N as f64 - 0.5).abs() < 0.0125, "{flips} flips");
}

#[test]
fn an_image_no_try_fits_gets_the_centre() {
    let recipe = recipe(r#"[{"RandomResizedCrop": {"size": 8, "scale": [1, 1]}}]"#);
    let draw = |w, h| {
        let (left, top, width, height, _) = crop(&drawn(&recipe, 0, (w, h)));
        (left, top, width, height)
    };
    assert_eq!(draw(1000, 10), (493, 0, 13, 10));
    assert_eq!(draw(10, 1000), (0, 493, 10, 13));
    assert_eq!(draw(1, 500), (0, 249, 1, 1));
    assert_eq!(draw(1, 1), (0, 0, 1, 1));
}

#[test]
fn evaluation_resizes_and_centres_as_torchvision() {
    let draw = |width, height, size: u32| {
        let text = format!(r#"[{{"Resize": {{"size": 256}}}}, {{"CenterCrop": {{"size": {size}}}}}]"#);
        let v = drawn(&recipe(&text), 0, (width, height)).view;
        ((v.x.resized, v.y.resized), (v.x.offset, v.y.offset))
    };
    assert_eq!(draw(500, 375, 224), ((341, 256), (58, 16)));
    assert_eq!(draw(375, 500, 224), ((256, 341), (16, 58)));
    assert_eq!(draw(343, 256, 224), ((343, 256), (60, 16)));
    // The crop is larger than the resized image: the image is padded, and the odd pixel is at the right and the bottom.
    assert_eq!(draw(256, 256, 299), ((256, 256), (-21, -21)));
    assert_eq!(draw(1, 1, 224), ((256, 256), (16, 16)));
}

#[test]
fn padding_without_a_resize_is_a_window_that_begins_outside() {
    let text = r#"[{"RandomCrop": {"size": 32, "padding": 4, "padding_mode": "reflect"}}]"#;
    let views: Vec<_> = (0..200).map(|i| drawn(&recipe(text), i, (32, 32)).view).collect();
    let whole = Axis { start: 0, length: 32, resized: 32, offset: 0, filled: [0; 2] };
    assert!(views.iter().all(|v| v.padding == Padding::Reflect && Axis { offset: 0, ..v.x } == whole));
    let windows = |of: fn(&View) -> i32| {
        let all: std::collections::BTreeSet<i32> = views.iter().map(of).collect();
        all.into_iter().collect::<Vec<_>>()
    };
    let nine: Vec<i32> = (-4..=4).collect();
    assert_eq!((windows(|v| v.x.offset), windows(|v| v.y.offset)), (nine.clone(), nine));
    // A smaller image is padded on both sides by the missing pixels, as in torchvision, then cropped at random.
    let needed = recipe(r#"[{"RandomCrop": {"size": [20, 40], "pad_if_needed": true}}]"#);
    let columns: std::collections::BTreeSet<i32> =
        (0..300).map(|i| drawn(&needed, i, (30, 20)).view.x.offset).collect();
    assert_eq!((columns.first(), columns.last()), (Some(&-10), Some(&0)));
}

/// If an image is mirrored before its resize, nearest sampling picks other pixels. Its mask must be sampled in the same
/// way.
#[test]
fn a_list_that_mirrors_before_it_resizes_says_so() {
    let crop = r#"{"RandomResizedCrop": {"size": 9}}"#;
    for (axis, flip) in
        [r#"{"RandomHorizontalFlip": {}}"#, r#"{"RandomVerticalFlip": {}}"#].iter().enumerate()
    {
        let (before, behind) = (recipe(&format!("[{flip}, {crop}]")), recipe(&format!("[{crop}, {flip}]")));
        let flips = |drawn: &DrawnView| [drawn.view.flip, drawn.view.vertical_flip];
        let mut flipped = 0;
        for sample in 0..20 {
            let (before, behind) = (drawn(&before, sample, (40, 30)), drawn(&behind, sample, (40, 30)));
            assert_eq!((flips(&before), before.is_resized_mirrored), (flips(&behind), flips(&behind)));
            assert_eq!(behind.is_resized_mirrored, [false; 2]);
            assert!(!flips(&behind)[1 - axis]);
            flipped += u32::from(flips(&behind)[axis]);
        }
        assert!((4..17).contains(&flipped));
    }
}

#[test]
fn the_size_is_known_where_the_list_fixes_it() {
    let size = |text: &str| fixed_size(&recipe(text));
    assert_eq!(size("[]"), None);
    assert_eq!(size(r#"[{"Resize": {"size": 9}}]"#), None);
    assert_eq!(size(r#"[{"Resize": {"size": [9, 7]}}]"#), Some((9, 7)));
    assert_eq!(size(r#"[{"Resize": {"size": 9}}, {"CenterCrop": {"size": 8}}]"#), Some((8, 8)));
    assert_eq!(
        size(r#"[{"CenterCrop": {"size": [30, 20]}}, {"Resize": {"size": 10, "max_size": 12}}]"#),
        Some((12, 8))
    );
    assert_eq!(size(r#"[{"Resize": {"size": [9, 7]}}, {"Pad": {"padding": [1, 2, 3, 4]}}]"#), Some((15, 11)));
    assert_eq!(size(r#"[{"Pad": {"padding": 3}}]"#), None);
    let own = recipe(r#"[{"Resize": {"size": null, "max_size": 50}}, {"Pad": {"padding": [1, 0]}}]"#);
    let shown = drawn(&own, 0, (100, 40));
    assert_eq!((shown.width, shown.height), (52, 20));
    assert_eq!(own.views()[0].output(&shown).bytes(), 3 * 52 * 20);
}

#[test]
fn values_have_the_scale_that_the_list_says() {
    let output = |text: &str| recipe(text).views()[0].fixed_output().clone();
    let levels = output("[]");
    assert_eq!(levels.dtype, DType::U8);
    let scaled = output(
        r#"[{"ToDtype": {"dtype": "float16"}}, {"Normalize": {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}}]"#,
    );
    assert_eq!((scaled.dtype, scaled.mean, scaled.std), (DType::F16, [0.5; 3], [0.25; 3]));
    let raw = output(
        r#"[{"ToDtype": {"dtype": "float32", "scale": false}}, 
            {"Normalize": {"mean": [51, 51, 51], "std": [255, 255, 255]}}]"#,
    );
    assert_eq!((raw.mean, raw.std), ([0.2; 3], [1.0; 3]));
    let kept =
        output(r#"[{"ToDtype": {"dtype": "float32", "scale": false}}, {"ToDtype": {"dtype": "bfloat16"}}]"#);
    assert_eq!((kept.dtype, kept.std), (DType::Bf16, [1.0 / 255.0; 3]));
    let padded = output(r#"[{"Pad": {"padding": 1, "fill": [1, 2, 3]}}]"#);
    assert_eq!(padded.fill, [1, 2, 3]);
    let cubic = recipe(r#"[{"Resize": {"size": 9, "interpolation": "bicubic"}}]"#);
    assert_eq!(drawn(&cubic, 0, (20, 20)).view.filter, Filter::Bicubic);
}

/// Lists that are refused, and the part of the message that says where the error is and what to do.
const REFUSED: &[(&str, &str)] = &[
    ("{", "not JSON"),
    ("3", "must be a list of transforms"),
    (r#"["Grey"]"#, "step 1 of 1, a transform: unknown variant `Grey`, expected one of `RandomResizedCrop`"),
    (r#"[{"Resize": {"size": 9, "antialias": true}}]"#, "step 1 of 1, Resize: unknown field `antialias`"),
    (
        r#"[{"Resize": {"size": 9, "interpolation": "hamming"}}]"#,
        "Resize: is \"hamming\", must be one of nearest,",
    ),
    (
        r#"[{"CenterCrop": {"size": 9}}, {"CenterCrop": {"size": [9]}}]"#,
        "step 2 of 2, CenterCrop: must be a number of",
    ),
    (r#"[{"CenterCrop": {"size": 0}}]"#, "step 1 of 1, CenterCrop: size: is 0, must be at least 1"),
    (r#"[{"CenterCrop": {"size": 20000}}]"#, "CenterCrop: size: is 20000, must be at most 16384"),
    (
        r#"[{"RandomResizedCrop": {"size": 9, "scale": [1.2, 2]}}]"#,
        "scale: is (1.2, 2), must be 0 < low <= high <= 1",
    ),
    (r#"[{"RandomResizedCrop": {"size": 9, "ratio": [2, 1]}}]"#, "ratio: is (2, 1), must be"),
    (r#"[{"RandomHorizontalFlip": {"p": 1.5}}]"#, "RandomHorizontalFlip: p: is 1.5, must be a probability"),
    (r#"[{"Resize": {"size": null}}]"#, "size: is None: give a length, or set max_size"),
    (r#"[{"Resize": {"size": 9, "max_size": 9}}]"#, "max_size: is 9, must be more than size, 9"),
    (r#"[{"Resize": {"size": [9, 9], "max_size": 10}}]"#, "max_size: is 10, but size already sets both"),
    (
        r#"[{"RandomResize": {"min_size": 9, "max_size": 9}}]"#,
        "RandomResize: max_size: is 9, must be more than min_size, 9",
    ),
    (
        r#"[{"RandomResize": {"min_size": 0, "max_size": 9}}]"#,
        "RandomResize: min_size: is 0, must be at least 1",
    ),
    (
        r#"[{"RandomShortestSize": {"min_size": []}}]"#,
        "RandomShortestSize: min_size: is empty, must have at least one length",
    ),
    (
        r#"[{"RandomShortestSize": {"min_size": [9, 0]}}]"#,
        "RandomShortestSize: min_size: is 0, must be at least 1",
    ),
    (
        r#"[{"ScaleJitter": {"target_size": [9, 9], "scale_range": [2, 1]}}]"#,
        "ScaleJitter: scale_range: is (2, 1), must be 0 < low <= high",
    ),
    (
        r#"[{"ScaleJitter": {"target_size": [9, 9]}}, {"RandomResize": {"min_size": 8, "max_size": 9}}]"#,
        "RandomResize: cannot come after ScaleJitter: an image is resized only once",
    ),
    (
        r#"[{"RandomZoomOut": {"side_range": [0.5, 2]}}]"#,
        "RandomZoomOut: side_range: is (0.5, 2), must be 1 <= low <= high",
    ),
    (r#"[{"RandomZoomOut": {"p": 2}}]"#, "RandomZoomOut: p: is 2, must be a probability"),
    (
        r#"[{"RandomIoUCrop": {"min_scale": 0.5, "max_scale": 1.5}}]"#,
        "RandomIoUCrop: min_scale: is 0.5 (max_scale=1.5), must be 0 < min_scale <= max_scale <= 1",
    ),
    (
        r#"[{"RandomIoUCrop": {"min_aspect_ratio": 3}}]"#,
        "RandomIoUCrop: min_aspect_ratio: is (3, 2), must be 0 < low <= high",
    ),
    (
        r#"[{"RandomIoUCrop": {"sampler_options": []}}]"#,
        "sampler_options: is [], must be a list of at least one finite overlap",
    ),
    (r#"[{"RandomIoUCrop": {"trials": 0}}]"#, "RandomIoUCrop: trials: is 0, must be from 1 to 1000"),
    (
        r#"[{"Grayscale": {}}, {"RandomIoUCrop": {}}]"#,
        "step 2 of 2, RandomIoUCrop: must come before Grayscale",
    ),
    (
        r#"[{"Pad": {"padding": 1}}, {"Resize": {"size": 9}}, {"Pad": {"padding": 1, "fill": 3}}]"#,
        "step 3 of 3, Pad: cannot pad an image that Pad has padded, unless both use the same constant fill",
    ),
    (r#"[{"Pad": {"padding": 70000}}]"#, "padding: is 70000, must be at most"),
    (r#"[{"Pad": {"padding": 1, "fill": 300}}]"#, "Pad: must be one or three grey levels"),
    (
        r#"[{"RandomResizedCrop": {"size": 9}}, {"Resize": {"size": 9}}]"#,
        "step 2 of 2, Resize: cannot come after RandomResizedCrop: an image is resized only once",
    ),
    (
        r#"[{"Resize": {"size": 9}}, {"RandomCrop": {"size": 8}}, {"Resize": {"size": 224}}]"#,
        "Resize: cannot come after RandomCrop: an image is resized only once",
    ),
    (
        r#"[{"Resize": {"size": 9}}, {"CenterCrop": {"size": 8}}, {"Pad": {"padding": 1}}]"#,
        "step 3 of 3, Pad: cannot pad an image that CenterCrop has cropped: put Pad before CenterCrop",
    ),
    (
        r#"[{"Pad": {"padding": 1}}, {"Pad": {"padding": 1, "fill": 7}}]"#,
        "step 2 of 2, Pad: cannot pad an image that Pad has padded",
    ),
    (
        r#"[{"Pad": {"padding": 1, "padding_mode": "edge"}}, {"Pad": {"padding": 1, "padding_mode": "edge"}}]"#,
        "cannot pad an image that Pad has padded",
    ),
    (
        r#"[{"RandomHorizontalFlip": {}}, {"Resize": {"size": 9, "interpolation": "nearest"}}]"#,
        "Resize: cannot come after RandomHorizontalFlip with nearest interpolation",
    ),
    (
        r#"[{"RandomVerticalFlip": {}}, {"RandomResizedCrop": {"size": 9, "interpolation": "nearest-exact"}}]"#,
        "RandomResizedCrop: cannot come after RandomVerticalFlip with nearest interpolation",
    ),
    (
        r#"[{"Resize": {"size": [8, 8]}}, {"RandomCrop": {"size": 9}}]"#,
        "RandomCrop: size: is 9 rows and 9 columns, but the image has 8 and 8 at this step",
    ),
    (
        r#"[{"ToDtype": {"dtype": "float32"}}, {"Normalize": {"mean": [0,0,0], "std": [1,1,1]}},
            {"CenterCrop": {"size": 9}}]"#,
        "step 3 of 3, CenterCrop: must come before Normalize",
    ),
    (
        r#"[{"ToDtype": {"dtype": "float32"}}, {"Pad": {"padding": 1, "fill": 5}}]"#,
        "step 2 of 2, Pad: fill: is [5, 5, 5] in grey levels, but the values are floats here: put the transform",
    ),
    (r#"[{"Normalize": {"mean": [0,0,0], "std": [1,1,1]}}]"#, "Normalize: needs floats: put ToDtype"),
    (
        r#"[{"ToDtype": {"dtype": "float32"}}, {"ToDtype": {"dtype": "uint8"}}]"#,
        "ToDtype: converts floats back to uint8",
    ),
    (
        r#"[{"ToDtype": {"dtype": "float32"}}, {"Normalize": {"mean": [0,0,0], "std": [1,0,1]}}]"#,
        "step 2 of 2, Normalize: std: is [1.0, 0.0, 1.0], must be numbers above 0",
    ),
    (r#"[{"Grayscale": {"num_output_channels": 1}}]"#, "Grayscale: num_output_channels: is 1, must be 3"),
    (
        r#"[{"Grayscale": {}}, {"CenterCrop": {"size": 9}}]"#,
        "step 2 of 2, CenterCrop: must come before Grayscale",
    ),
    (
        r#"[{"ToDtype": {"dtype": "float32"}}, {"Grayscale": {}}]"#,
        "step 2 of 2, Grayscale: works on uint8 grey levels: put it before ToDtype",
    ),
    (r#"{"Views": {"n": 0, "transforms": []}}"#, "Views: n: is 0, must be at least 1"),
    (r#"{"Views": {"n": 65, "transforms": []}}"#, "Views: n: is 65 in total, must be at most 64"),
    (r#"{"Views": {"n": 2}}"#, "Views: must have n, a whole number, and transforms, a list"),
    (
        r#"[{"Views": {"n": 2, "transforms": []}}, {"CenterCrop": {"size": 9}}]"#,
        "mixes Views with other transforms",
    ),
    (
        r#"[{"Views": {"n": 2, "transforms": []}}, {"Views": {"n": 1, "transforms": [{"CenterCrop": {"size": 0}}]}}]"#,
        "Views 2 of 2, step 1 of 1, CenterCrop: size: is 0",
    ),
];

#[test]
fn what_cannot_be_done_is_refused_by_name_with_what_to_do() {
    for (text, words) in REFUSED {
        let said = refusal(text);
        assert!(said.contains(words), "{text}: {said}");
    }
}

/// If a transform cannot be applied to an image's size, the sample fails. The error names the transform and both sizes.
#[test]
fn an_image_that_a_transform_cannot_take_is_named() {
    let failure = |text: &str, size| {
        let recipe = recipe(text);
        recipe.draw(&recipe.keys(0, 0), 0, 0, size).unwrap_err().to_string()
    };
    let small = failure(r#"[{"RandomCrop": {"size": 32}}]"#, (20, 40));
    assert!(
        small.contains("RandomCrop cannot crop 32×32 pixels from an image of 20×40: set pad_if_needed=True"),
        "{small}"
    );
    let reflected = failure(r#"[{"Pad": {"padding": 9, "padding_mode": "reflect"}}]"#, (9, 40));
    assert!(reflected.contains("Pad would pad a side of 9 pixels by 9"), "{reflected}");
    let mixed = failure(r#"[{"Pad": {"padding": 1, "fill": 9}}, {"CenterCrop": {"size": 32}}]"#, (20, 40));
    assert!(
        mixed.contains("CenterCrop would pad 22×42 pixels with black, but Pad pads differently"),
        "{mixed}"
    );
    let long = failure(r#"[{"Resize": {"size": 300}}]"#, (2, 400));
    assert!(long.contains("the image becomes 300×60000 pixels"), "{long}");
}
