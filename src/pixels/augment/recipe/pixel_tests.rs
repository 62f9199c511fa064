//! Tests of transforms of pixels: what they draw, where they may be in a list, and the messages of refused lists.

use super::tests::{drawn, recipe, refusal};
use super::*;
use crate::augment::ops::{ErasureValues, PixelOp, Rectangle};

const SIZE: (u32, u32) = (60, 40);

/// Returns what a list draws for 400 samples, after a resize to 30 × 20 pixels.
fn many(list: &str) -> Vec<DrawnView> {
    let recipe = recipe(&format!(r#"[{{"Resize": {{"size": [20, 30]}}}}, {list}]"#));
    (0..400).map(|sample| drawn(&recipe, sample, SIZE)).collect()
}

fn ops(list: &str) -> Vec<Vec<PixelOp>> {
    many(list).into_iter().map(|drawn| drawn.ops).collect()
}

fn is_random(list: &str) -> bool {
    recipe(&format!("[{list}]")).is_random()
}

#[test]
fn a_fixed_factor_is_drawn_for_every_image_and_is_not_random() {
    let fixed = r#"{"ColorJitter": {"brightness": [1.5, 1.5]}}"#;
    assert!(ops(fixed).iter().all(|ops| *ops == [PixelOp::AdjustBrightness { brightness_factor: 1.5 }]));
    assert!(!is_random(fixed));
    // A factor that changes nothing is left out, as in torchvision.
    let none = r#"{"ColorJitter": {"brightness": [1, 1], "contrast": null, "hue": 0}}"#;
    assert!(ops(none).iter().all(Vec::is_empty));
    assert!(!is_random(none) && is_random(r#"{"ColorJitter": {"brightness": 0.1}}"#));
    assert!(!is_random(r#"{"GaussianBlur": {"kernel_size": 3, "sigma": 1}}"#));
    assert!(is_random(r#"{"GaussianBlur": {"kernel_size": 3}}"#));
    assert!(is_random(r#"{"RandomApply": {"transforms": [{"Grayscale": {}}]}}"#));
}

/// Golden draws of nested transforms, of policies, and of distributions other than the uniform one.
#[test]
fn draws_of_pixels_are_what_they_were_when_they_were_promised() {
    let jitter = r#"{"ColorJitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}}"#;
    let within = format!(r#"{{"RandomApply": {{"transforms": [{jitter}], "p": 0.8}}}}"#);
    let one = format!(
        r#"[{{"Resize": {{"size": [20, 30]}}}}, {within}, {{"RandAugment": {{}}}},
            {{"GaussianBlur": {{"kernel_size": 3}}}}, {FLOATS}, {{"RandomErasing": {{"value": "random", "p": 1}}}}]"#
    );
    let other = r#"[{"TimmRandAugment": {"magnitude": 9, "magnitude_std": 0.5, "increasing": true}},
                    {"AugMix": {"mixture_width": 1}}]"#;
    for (list, sample, golden) in [(one.as_str(), 1, GOLDEN), (other, 0, GOLDEN_MIX)] {
        let recipe = recipe(list);
        let drawn = recipe.draw(&recipe.keys(11, 0), sample, 0, SIZE).unwrap().views()[0].clone();
        let text = serde_json::to_string(&(drawn.ops, drawn.erasures)).unwrap();
        assert_eq!(text, golden.split_whitespace().collect::<String>());
    }
}

const GOLDEN: &str = r#"
    [[{"op": "adjust_brightness", "brightness_factor": 0.8600376292281579},
      {"op": "adjust_hue", "hue_factor": -0.052131719337935215},
      {"op": "adjust_saturation", "saturation_factor": 0.9196221484738198},
      {"op": "adjust_contrast", "contrast_factor": 0.7343911498199928},
      {"op": "posterize", "bits": 7},
      {"op": "affine", "angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, -5.142764761143517],
       "interpolation": "nearest", "fill": null, "center": [0.0, 0.0]},
      {"op": "gaussian_blur", "kernel_size": [3, 3], "sigma": [0.3253684362949243, 0.3253684362949243]}],
     [{"i": 8, "j": 9, "h": 10, "w": 14,
       "v": {"noise": {"key": [3762587391, 795852728], "mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0]}}}]]"#;

const GOLDEN_MIX: &str = r#"
    [[{"op": "adjust_brightness", "brightness_factor": 1.8767998451532923},
      {"op": "augmix", "weights": [0.0459767511752214],
       "chains": [[{"op": "adjust_sharpness", "sharpness_factor": 1.0999999940395355},
                   {"op": "affine", "angle": 0.0, "translate": [0, 1], "scale": 1.0, "shear": [0.0, 0.0],
                    "interpolation": "bilinear", "fill": null, "center": null},
                   {"op": "rotate", "angle": 6.666666507720947, "interpolation": "bilinear", "fill": null,
                    "center": null}]]}], []]"#;

#[test]
fn jitter_draws_every_order_and_factors_within_bounds() {
    let drawn =
        ops(r#"{"ColorJitter": {"brightness": 1.5, "contrast": [0.2, 0.3], "saturation": 0.5, "hue": 0.1}}"#);
    let mut orders = std::collections::BTreeSet::new();
    for ops in drawn {
        let mut order = Vec::new();
        for op in &ops {
            let (kind, factor, low, high) = match *op {
                PixelOp::AdjustBrightness { brightness_factor } => (0, brightness_factor, 0.0, 2.5),
                PixelOp::AdjustContrast { contrast_factor } => (1, contrast_factor, 0.2, 0.3),
                PixelOp::AdjustSaturation { saturation_factor } => (2, saturation_factor, 0.5, 1.5),
                PixelOp::AdjustHue { hue_factor } => (3, hue_factor, -0.1, 0.1),
                ref other => panic!("{other:?}"),
            };
            assert!((low..=high).contains(&factor), "{op:?}");
            order.push(kind);
        }
        assert_eq!(order.len(), 4);
        orders.insert(order);
    }
    assert_eq!(orders.len(), 24);
}

/// Adding a transform to the list, or to the same container, changes no draw of the other transforms.
#[test]
fn what_stands_beside_changes_no_draws() {
    let jitter = r#"{"ColorJitter": {"brightness": 0.4, "hue": 0.1}}"#;
    let alone = ops(jitter);
    let with_blur = ops(&format!(r#"{{"GaussianBlur": {{"kernel_size": 3}}}}, {jitter}"#));
    assert!(alone.iter().zip(&with_blur).all(|(alone, with)| *alone == with[1..]));
    let apply = |more: &str| ops(&format!(r#"{{"RandomApply": {{"transforms": [{more}{jitter}]}}}}"#));
    let (one, two) = (apply(""), apply(r#"{"RandomInvert": {}}, "#));
    for (one, two) in one.iter().zip(&two) {
        let rest: Vec<_> = two.iter().filter(|op| **op != PixelOp::Invert).collect();
        assert_eq!(one.iter().collect::<Vec<_>>(), rest);
    }
    // A nested transform's key includes its container, so it draws other numbers than outside of the container.
    assert!(one.iter().flatten().zip(alone.iter().flatten()).any(|(within, alone)| within != alone));
    let always = format!(r#"{{"RandomApply": {{"transforms": [{jitter}], "p": 1}}}}"#);
    let twice = ops(&format!("{always}, {always}"));
    assert!(twice.iter().all(|ops| ops[..2] != ops[2..]));
}

#[test]
fn containers_choose_as_often_as_they_are_told() {
    let (grey, invert) = (r#"{"Grayscale": {}}"#, r#"{"RandomInvert": {"p": 1}}"#);
    let equalize = r#"{"RandomEqualize": {"p": 1}}"#;
    let all = format!("[{grey}, {invert}, {equalize}]");
    let count = |list: &str, op: PixelOp| ops(list).iter().filter(|ops| ops.contains(&op)).count();
    let applied =
        count(&format!(r#"{{"RandomApply": {{"transforms": {all}, "p": 0.25}}}}"#), PixelOp::Invert);
    assert!((60..140).contains(&applied), "{applied}");
    let weighted = format!(r#"{{"RandomChoice": {{"transforms": {all}, "p": [3, 0, 1]}}}}"#);
    assert_eq!(count(&weighted, PixelOp::Invert), 0);
    let grey = count(&weighted, PixelOp::RgbToGrayscale);
    assert!((260..340).contains(&grey), "{grey}");
    let even = count(&format!(r#"{{"RandomChoice": {{"transforms": {all}}}}}"#), PixelOp::Equalize);
    assert!((95..172).contains(&even), "{even}");
    let orders: std::collections::BTreeSet<String> =
        ops(&format!(r#"{{"RandomOrder": {{"transforms": {all}}}}}"#))
            .iter()
            .map(|ops| format!("{ops:?}"))
            .collect();
    assert_eq!(orders.len(), 6);
    assert!(ops(r#"{"RandomApply": {"transforms": [], "p": 1}}"#).iter().all(Vec::is_empty));
}

/// Mirroring is part of the geometry if this gives the same pixels; otherwise it is an operation.
#[test]
fn mirroring_moves_to_the_geometry_where_it_may() {
    let flip = r#"{"RandomHorizontalFlip": {}}"#;
    let jitter = many(&format!(
        r#"{{"ColorJitter": {{"hue": 0.1}}}}, {{"GaussianBlur": {{"kernel_size": 5}}}}, {flip}"#
    ));
    assert!(jitter.iter().all(|drawn| !drawn.ops.contains(&PixelOp::HorizontalFlip)));
    let rotated = many(&format!(r#"{{"RandomRotation": {{"degrees": 20}}}}, {flip}"#));
    let alone = many(flip);
    assert!(jitter.iter().zip(&rotated).any(|(geometry, _)| geometry.view.flip));
    for ((geometry, op), alone) in jitter.iter().zip(&rotated).zip(&alone) {
        assert!(!op.view.flip);
        assert_eq!(op.ops.last() == Some(&PixelOp::HorizontalFlip), geometry.view.flip);
        assert_eq!(geometry.view.flip, alone.view.flip);
    }
    let within = many(&format!(r#"{{"RandomApply": {{"transforms": [{flip}]}}}}"#));
    assert!(within.iter().all(|drawn| !drawn.view.flip));
    let flips = within.iter().filter(|drawn| drawn.ops == [PixelOp::HorizontalFlip]).count();
    assert!((60..140).contains(&flips), "{flips}");
}

const FLOATS: &str = r#"{"ToDtype": {"dtype": "float32"}}"#;
const NORMALIZE: &str = r#"{"Normalize": {"mean": [0.5, 0.25, 0.0], "std": [0.25, 0.5, 2.0]}}"#;

#[test]
fn erasing_writes_levels_or_finished_values_on_the_scale_of_its_place() {
    let erasing = |value: &str| format!(r#"{{"RandomErasing": {{"p": 1, "value": {value}}}}}"#);
    let levels = many(&format!("{}, {FLOATS}, {NORMALIZE}", erasing("[1, 2, 255]")));
    for drawn in &levels {
        assert!(
            matches!(drawn.ops[..], [PixelOp::Erase { v: [1, 2, 255], .. }]) && drawn.erasures.is_empty()
        );
    }
    let values = |list: &str| {
        let drawn = many(list).into_iter().find(|drawn| !drawn.erasures.is_empty()).unwrap();
        assert!(drawn.ops.is_empty());
        drawn.erasures[0].v.clone()
    };
    let behind = format!("{FLOATS}, {NORMALIZE}, {}", erasing("0.5"));
    assert_eq!(values(&behind), ErasureValues::Values([0.5; 3]));
    let before = format!("{FLOATS}, {}, {NORMALIZE}", erasing("1"));
    assert_eq!(values(&before), ErasureValues::Values([2.0, 1.5, 0.5]));
    let noise = |list: &str| match values(list) {
        ErasureValues::Noise { mean, std, .. } => (mean, std),
        other => panic!("{other:?}"),
    };
    let behind = |value: &str| format!("{FLOATS}, {NORMALIZE}, {}", erasing(value));
    assert_eq!(noise(&behind(r#""random""#)), ([0.0; 3], [1.0; 3]));
    assert_eq!(noise(&behind(r#""pixel""#)), ([0.0; 3], [1.0; 3]));
    let before = format!("{FLOATS}, {}, {NORMALIZE}", erasing(r#""random""#));
    assert_eq!(noise(&before), ([-2.0, -0.5, 0.0], [4.0, 2.0, 0.5]));
    let ErasureValues::Values([r, g, b]) = values(&behind(r#""color""#)) else { panic!("no colour") };
    assert!(r != g && g != b && [r, g, b].iter().all(|value| value.abs() < 6.0));
    let keys: std::collections::BTreeSet<String> =
        many(&behind(r#""random""#)).iter().map(|drawn| format!("{:?}", drawn.erasures)).collect();
    assert!(keys.len() > 390);
}

#[test]
fn an_erased_rectangle_is_smaller_than_the_image_and_moves_when_mirrored() {
    let erasing = r#"{"RandomErasing": {"p": 1, "scale": [0.02, 0.9]}}"#;
    let rectangles = |drawn: &[DrawnView]| -> Vec<Option<Rectangle>> {
        drawn.iter().map(|drawn| drawn.erasures.first().map(|erasure| erasure.rectangle)).collect()
    };
    let alone = many(&format!("{FLOATS}, {erasing}"));
    let mirrored = many(&format!(r#"{FLOATS}, {erasing}, {{"RandomHorizontalFlip": {{"p": 1}}}}"#));
    assert!(mirrored.iter().all(|drawn| drawn.ops == [PixelOp::HorizontalFlip]));
    for (one, other) in rectangles(&alone).into_iter().zip(rectangles(&mirrored)) {
        let Some(Rectangle { i, j, h, w }) = one else {
            assert_eq!(other, None);
            continue;
        };
        assert!(i + h <= 20 && j + w <= 30 && h < 20 && w < 30);
        assert_eq!(other, Some(Rectangle { i, j: 30 - j - w, h, w }));
    }
    assert!(rectangles(&alone).iter().flatten().count() > 300);
    let never = many(&format!(r#"{FLOATS}, {{"RandomErasing": {{"p": 1, "scale": [1, 1]}}}}"#));
    assert!(rectangles(&never).iter().all(Option::is_none));
}

#[test]
fn a_list_without_operations_on_levels_keeps_the_direct_way() {
    let levels = |list: &str| recipe(&format!("[{list}]")).views()[0].levels().is_some();
    let erasing = r#"{"RandomErasing": {}}"#;
    assert!(!levels(&format!("{FLOATS}, {NORMALIZE}, {erasing}")));
    assert!(!levels(&format!(r#"{FLOATS}, {{"RandomApply": {{"transforms": [{erasing}]}}}}"#)));
    assert!(levels(erasing));
    let flip = r#"{"RandomHorizontalFlip": {}}"#;
    assert!(levels(&format!(r#"{FLOATS}, {{"RandomOrder": {{"transforms": [{erasing}, {flip}]}}}}"#)));
    assert!(levels(&format!("{FLOATS}, {erasing}, {flip}")));
    assert!(!levels(&format!("{FLOATS}, {flip}, {erasing}")));
}

#[test]
fn an_image_that_is_too_small_for_a_filter_is_named() {
    let blur = recipe(r#"[{"GaussianBlur": {"kernel_size": [3, 23]}}]"#);
    let failure = blur.draw(&blur.keys(0, 0), 0, 0, (20, 11)).unwrap_err().to_string();
    assert!(
        failure.contains("GaussianBlur cannot blur an image of 20×11 pixels with a kernel of 3×23"),
        "{failure}"
    );
    assert!(blur.draw(&blur.keys(0, 0), 0, 0, (2, 12)).is_ok());
}

/// Lists that are refused, and the part of the message that says where the error is and what to do.
const REFUSED: &[(&str, &str)] = &[
    (
        r#"[{"ColorJitter": {"brightness": -0.1}}]"#,
        "step 1 of 1, ColorJitter: brightness: is -0.1, must be a number of at least 0, or two with 0 <= low <= high",
    ),
    (r#"[{"ColorJitter": {"contrast": [2, 1]}}]"#, "contrast: is (2, 1), must be"),
    (r#"[{"ColorJitter": {"hue": 0.6}}]"#, "hue: is 0.6, must be a number from 0 to 0.5"),
    (r#"[{"ColorJitter": {"hue": [-0.7, 0]}}]"#, "hue: is (-0.7, 0), must be"),
    (r#"[{"ColorJitter": {"colour": 0.6}}]"#, "step 1 of 1, ColorJitter: unknown field `colour`"),
    (r#"[{"RandomPosterize": {"bits": 9}}]"#, "bits: is 9, must be a whole number from 0 to 8"),
    (r#"[{"RandomSolarize": {"threshold": 256}}]"#, "threshold: is 256, must be a grey level from 0 to 255"),
    (r#"[{"RandomSolarize": {}}]"#, "RandomSolarize: missing field `threshold`"),
    (r#"[{"RandomEqualize": {"p": 2}}]"#, "RandomEqualize: p: is 2, must be a probability"),
    (
        r#"[{"RandomAdjustSharpness": {"sharpness_factor": -1}}]"#,
        "sharpness_factor: is -1, must be a number of at least 0",
    ),
    (r#"[{"GaussianBlur": {"kernel_size": 4}}]"#, "kernel_size: is 4, must be an odd number"),
    (r#"[{"GaussianBlur": {"kernel_size": 3, "sigma": 0}}]"#, "sigma: is (0, 0), must be above 0"),
    (
        r#"[{"CenterCrop": {"size": 10}}, {"GaussianBlur": {"kernel_size": 23}}]"#,
        "step 2 of 2, GaussianBlur: cannot blur an image of 10×10 pixels with a kernel of 23×23",
    ),
    (
        r#"[{"ToDtype": {"dtype": "float32"}}, {"ColorJitter": {}}]"#,
        "step 2 of 2, ColorJitter: works on uint8 grey levels: put it before ToDtype",
    ),
    (
        r#"[{"ToDtype": {"dtype": "float32"}}, {"RandomOrder": {"transforms": [{"RandomInvert": {}}]}}]"#,
        "step 2 of 2, RandomOrder: contains RandomInvert, which works on uint8 grey levels: put it before ToDtype",
    ),
    (
        r#"[{"ColorJitter": {}}, {"RandomCrop": {"size": 9}}]"#,
        "step 2 of 2, RandomCrop: must come before ColorJitter",
    ),
    (
        r#"[{"RandomApply": {"transforms": [{"Grayscale": {}}, {"RandomCrop": {"size": 9}}]}}]"#,
        "RandomApply: transforms: step 2 of 2, RandomCrop: cannot be in RandomApply, which takes only transforms \
         that change pixels, and flips: put it before the RandomApply",
    ),
    (
        r#"[{"RandomApply": {"transforms": [{"RandomOrder": {"transforms": [{"RandomInvert": {"p": 7}}]}}]}}]"#,
        "RandomApply: transforms: step 1 of 1, RandomOrder: transforms: step 1 of 1, RandomInvert: p: is 7, must be",
    ),
    (
        r#"[{"RandomChoice": {"transforms": []}}]"#,
        "RandomChoice: transforms: is empty, must have at least one",
    ),
    (
        r#"[{"RandomChoice": {"transforms": [{"Grayscale": {}}], "p": [1, 2]}}]"#,
        "p: has 2 weights, must have one for each of 1 transforms",
    ),
    (
        r#"[{"RandomChoice": {"transforms": [{"Grayscale": {}}], "p": [0]}}]"#,
        "p: is [0.0], must be weights of at least 0, not all 0",
    ),
    (r#"[{"RandomErasing": {"scale": [0.5, 0.1]}}]"#, "scale: is (0.5, 0.1), must be 0 <= low <= high <= 1"),
    (
        r#"[{"RandomErasing": {"value": "noise"}}]"#,
        "RandomErasing: must be one number, three numbers, \"random\"",
    ),
    (
        r#"[{"RandomErasing": {"value": "random"}}]"#,
        "RandomErasing: writes normally distributed floats, but the values are uint8 here: put it after ToDtype",
    ),
    (
        r#"[{"RandomErasing": {"value": 0.5}}]"#,
        "RandomErasing: value: is 0.5, must be a whole grey level from 0 to 255",
    ),
    (
        r#"[{"RandomRotation": {"degrees": 9, "expand": true}}]"#,
        "expand: is True, must be False: all images of a batch have the same size",
    ),
    (r#"[{"RandomRotation": {"degrees": -9}}]"#, "degrees: is -9, must be a number of degrees of at least 0"),
    (
        r#"[{"RandomRotation": {"degrees": 9, "interpolation": "nearest-exact"}}]"#,
        "interpolation: is \"nearest-exact\", must be one of nearest, bilinear, bicubic",
    ),
    (r#"[{"RandomRotation": {"degrees": 9, "fill": 300}}]"#, "fill: is 300, must be from 0 to 255"),
    (
        r#"[{"RandomAffine": {"degrees": 0, "translate": [0.5, 2]}}]"#,
        "translate: is [0.5, 2.0], must be two fractions",
    ),
    (r#"[{"RandomAffine": {"degrees": 0, "scale": [0, 2]}}]"#, "scale: is (0, 2), must be 0 < low <= high"),
    (r#"[{"RandomAffine": {"degrees": 0, "shear": [1, 2, 3]}}]"#, "RandomAffine: must be a number, or two"),
];

#[test]
fn what_cannot_be_done_to_pixels_is_refused_by_name_with_what_to_do() {
    for (text, words) in REFUSED {
        let said = refusal(text);
        assert!(said.contains(words), "{text}: {said}");
    }
}
