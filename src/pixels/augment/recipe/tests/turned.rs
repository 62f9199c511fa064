//! The views of an image that is stored rotated or mirrored are the views of the upright image.

use super::canvases::{noise, rendered, stream};
use super::{Recipe, request};
use crate::augment::{Fidelity, ImageToDraw, MemoryFormat};
use crate::decode::{ColorModel, Plane, Planes, Region, Turn};

/// Sides that all subsampling factors divide, so that mirrored components are components, too.
const SIZE: (u32, u32) = (60, 44);

const LISTS: [&str; 6] = [
    r#"[{"RandomResizedCrop": {"size": [17, 19]}}, {"RandomHorizontalFlip": {}}]"#,
    r#"[{"Resize": {"size": [31, 26], "interpolation": "bicubic"}}, {"RandomVerticalFlip": {}},
        {"Pad": {"padding": [5, 0, 3, 9], "fill": [9, 99, 199]}}, {"RandomCrop": {"size": 24}}]"#,
    r#"[{"Resize": {"size": 70, "interpolation": "lanczos"}},
        {"Pad": {"padding": [5, 0, 3, 9], "padding_mode": "reflect"}}, {"RandomCrop": {"size": [30, 70]}},
        {"RandomGrayscale": {"p": 0.5}}, {"RandomErasing": {"p": 1}}]"#,
    r#"[{"RandomCrop": {"size": 33}}, {"Resize": {"size": [20, 29], "interpolation": "nearest"}}]"#,
    r#"[{"RandomResizedCrop": {"size": 40, "interpolation": "nearest-exact"}}]"#,
    r#"[{"RandomZoomOut": {"fill": 7}}, {"RandomResizedCrop": {"size": [17, 19]}}]"#,
];

/// Returns the samples of a component as they are shown.
fn turned(turn: Turn, plane: &Plane) -> Plane {
    let (width, height) = turn.shown((plane.width, plane.height));
    let [step_x, step_y] = match turn.transposes() {
        true => [plane.step_y, plane.step_x],
        false => [plane.step_x, plane.step_y],
    };
    let sample = |at: u32| {
        let shown = Region { x: at % width, y: at / width, width: 1, height: 1 };
        let Region { x, y, .. } = turn.stored_region(shown, (width, height));
        plane.data[y as usize * plane.stride + x as usize]
    };
    let data = (0..width * height).map(sample).chain([0; 64]).collect();
    let (stride, x0, y0, full_width, full_height) = (width as usize, 0, 0, width, height);
    Plane { data, stride, x0, y0, width, height, full_width, full_height, step_x, step_y }
}

fn turned_planes(turn: Turn, of: &Planes) -> Planes {
    let (image_width, image_height) = turn.shown(SIZE);
    Planes {
        image_width,
        image_height,
        color: of.color,
        planes: of.planes.each_ref().map(|p| turned(turn, p)),
    }
}

/// Returns the image in RGB, as libjpeg converts it.
fn in_rgb(image: &Planes) -> Planes {
    let (pixels, mut all) = (image.rgb(), Planes::default());
    all.shape_rgb(Region { x: 0, y: 0, width: SIZE.0, height: SIZE.1 });
    for (at, pixel) in pixels.as_chunks::<3>().0.iter().enumerate() {
        all.planes.iter_mut().zip(pixel).for_each(|(plane, level)| plane.data[at] = *level);
    }
    all
}

/// Overwrites all samples that a decoder of `region` does not give.
fn spoil(image: &mut Planes, region: Region) {
    for plane in &mut image.planes {
        let along = |start: u32, n: u32, step: u32| {
            let margin = u32::from(step > 1);
            (start / step).saturating_sub(margin)..(start + n).div_ceil(step) + margin
        };
        let columns = along(region.x, region.width, plane.step_x);
        let rows = along(region.y, region.height, plane.step_y);
        for (y, x) in (0..plane.height).flat_map(|y| (0..plane.width).map(move |x| (y, x))) {
            if !columns.contains(&x) || !rows.contains(&y) {
                plane.data[y as usize * plane.stride + x as usize] ^= 0x55;
            }
        }
    }
}

#[test]
fn a_turned_image_has_the_views_of_the_upright_image() {
    let colors = [
        (ColorModel::YCbCr, [1, 1]),
        (ColorModel::YCbCr, [2, 1]),
        (ColorModel::YCbCr, [2, 2]),
        (ColorModel::YCbCr, [1, 2]),
        (ColorModel::YCbCr, [4, 1]),
        (ColorModel::Rgb, [1, 1]),
        (ColorModel::Gray, [1, 1]),
    ];
    let (mut equal, mut near) = (0, 0);
    for (number, list) in LISTS.into_iter().enumerate() {
        for (fidelity, format) in
            [(Fidelity::Fast, MemoryFormat::Nchw), (Fidelity::Exact, MemoryFormat::Nhwc)]
        {
            let recipe = Recipe::new(&request(list), format, fidelity).unwrap();
            let keys = recipe.keys(11, 0);
            for ((color, steps), exif) in colors.into_iter().flat_map(|c| (1..=8).map(move |exif| (c, exif)))
            {
                let turn = Turn::of_exif(Some(exif));
                for sample in 0..3 {
                    let mut image = noise(&mut stream(sample + 10 * number as u64), SIZE, color, steps);
                    let of = ImageToDraw { stored: SIZE, turn, boxes: &[] };
                    let drawn = recipe.draw_image(&keys, sample, 0, &of).unwrap();
                    let upright = recipe.draw(&keys, sample, 0, turn.shown(SIZE)).unwrap();
                    assert_eq!(drawn.image_size(), upright.image_size());
                    assert_eq!(drawn.views()[0].view, upright.views()[0].view);
                    let is_exact = drawn.needs_upright_planes();
                    let source = if is_exact { in_rgb(&image) } else { image.clone() };
                    let expected = rendered(&recipe, &turned_planes(turn, &source), &upright);
                    spoil(&mut image, drawn.region());
                    let got = rendered(&recipe, &image, &drawn);
                    let context = format!("{list} {fidelity:?} {color:?} {steps:?} {exif} {sample}");
                    // Weights that are rounded differ from their mirror image in the last place.
                    if is_exact || turn.mirrors() == [false; 2] {
                        equal += 1;
                        assert!(got == expected, "{context}");
                    } else {
                        near += 1;
                        let most = got[0].iter().zip(&expected[0]).map(|(a, b)| a.abs_diff(*b)).max();
                        assert!(most <= Some(1), "{context}: {most:?}");
                    }
                }
            }
        }
    }
    assert!(equal > 1000 && near > 300, "{equal} {near}");
}
