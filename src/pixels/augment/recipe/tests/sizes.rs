//! Tests of transforms that draw a size: the distribution of the size, and how it becomes part of the view.

use super::{drawn, fixed_size, recipe};

/// The usual recipe for segmentation: a random size, then a crop of a fixed size, with padding if the image is smaller.
/// A chi-squared test checks that the sizes are uniform.
#[test]
fn a_random_size_and_a_crop_of_it_is_one_view() {
    const N: u64 = 122_000;
    let text = r#"[{"RandomResize": {"min_size": 20, "max_size": 81}},
        {"RandomCrop": {"size": [40, 48], "pad_if_needed": true, "fill": 9}}, {"RandomHorizontalFlip": {}}]"#;
    let recipe = recipe(text);
    assert_eq!(fixed_size(&recipe), Some((40, 48)));
    let mut seen = [0u32; 61];
    for sample in 0..N {
        let view = drawn(&recipe, sample, (60, 45)).view;
        assert_eq!((view.x.length, view.y.length), (60, 45));
        assert_eq!(view.x.resized, view.y.resized * 60 / 45);
        seen[view.y.resized as usize - 20] += 1;
        let room = view.x.resized as i32 - 48;
        assert!((room.min(0)..=room.max(0)).contains(&view.x.offset), "{view:?}");
    }
    let expected = N as f64 / 61.0;
    let chi_squared: f64 = seen.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
    // 60 degrees of freedom: the probability of a larger value is one in a million.
    assert!(chi_squared < 122.0, "{chi_squared}: {seen:?}");
}

/// A Kolmogorov-Smirnov test checks that ScaleJitter draws a uniform factor.
#[test]
fn jitter_is_uniform_between_its_bounds() {
    const N: u64 = 100_000;
    let text = r#"[{"ScaleJitter": {"target_size": [10000, 10000], "scale_range": [0.5, 1.5]}}]"#;
    let recipe = recipe(text);
    let mut widths: Vec<u32> = (0..N).map(|sample| drawn(&recipe, sample, (400, 300)).width).collect();
    widths.sort_unstable();
    let distance = widths.iter().enumerate().map(|(below, &width)| {
        let share = (f64::from(width) - 5000.0) / 10_000.0;
        (share - below as f64 / N as f64).abs()
    });
    let largest = distance.fold(0.0, f64::max);
    // The probability of a distance above 2.7 / √N is one in a million.
    assert!(largest < 2.7 / (N as f64).sqrt(), "{largest}");
}

/// A Kolmogorov-Smirnov test checks that the place of the image on its canvas and the size of the canvas are uniform.
#[test]
fn zooming_out_adds_pixels_on_all_sides() {
    const N: u64 = 100_000;
    let recipe = recipe(r#"[{"RandomZoomOut": {"fill": 9, "side_range": [1.5, 3], "p": 0.25}}]"#);
    assert_eq!(fixed_size(&recipe), None);
    let size = (2000, 1000);
    let zoomed: Vec<_> = (0..N)
        .map(|sample| drawn(&recipe, sample, size))
        .filter(|drawn| (drawn.width, drawn.height) != size)
        .collect();
    let share = zoomed.len() as f64 / N as f64;
    assert!((share - 0.25).abs() < 0.007, "{share}");
    let place = |offset: i32, room: u32| f64::from(-offset) / f64::from(room);
    let uniform = [
        zoomed.iter().map(|drawn| (f64::from(drawn.width) / 2000.0 - 1.5) / 1.5).collect::<Vec<_>>(),
        zoomed.iter().map(|drawn| place(drawn.view.x.offset, drawn.width - 2000)).collect(),
        zoomed.iter().map(|drawn| place(drawn.view.y.offset, drawn.height - 1000)).collect(),
    ];
    for mut values in uniform {
        values.sort_unstable_by(f64::total_cmp);
        let n = values.len() as f64;
        let distance = values.iter().enumerate().map(|(below, value)| (value - below as f64 / n).abs());
        let largest = distance.fold(0.0, f64::max);
        // The probability of a distance above 2.7 / √n is one in a million; rounding to pixels adds 1 / 500.
        assert!(largest < 2.7 / n.sqrt() + 0.002, "{largest}");
    }
    for drawn in &zoomed {
        assert_eq!(drawn.height, drawn.width / 2, "{drawn:?}");
    }
}

#[test]
fn a_drawn_size_is_no_fixed_size() {
    let size = |text: &str| fixed_size(&recipe(text));
    assert_eq!(size(r#"[{"RandomShortestSize": {"min_size": 20, "max_size": 30}}]"#), None);
    assert_eq!(size(r#"[{"CenterCrop": {"size": 9}}, {"ScaleJitter": {"target_size": [9, 9]}}]"#), None);
}

#[test]
fn one_of_the_lengths_is_drawn() {
    let recipe = recipe(r#"[{"RandomShortestSize": {"min_size": [20, 30, 40], "max_size": 60}}]"#);
    let mut seen = [0u32; 2];
    for sample in 0..3000 {
        let drawn = drawn(&recipe, sample, (80, 40));
        // If the shorter side became 40, the longer side would exceed 60 and be reduced to it, so lengths of 30 and 40
        // give the same size.
        let of = [(40, 20), (60, 30)].iter().position(|&size| size == (drawn.width, drawn.height));
        seen[of.unwrap_or_else(|| panic!("{}×{}", drawn.width, drawn.height))] += 1;
    }
    assert!(seen[0].abs_diff(1000) < 130, "{seen:?}");
}
