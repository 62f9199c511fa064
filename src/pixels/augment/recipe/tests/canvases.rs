//! Images that are padded and then resized have the same pixels as a whole painted canvas that is resized.

use super::{drawn, recipe, request};
use crate::augment::recipe::{DrawnViews, Recipe};
use crate::augment::{
    Axis, CanvasAxis, CanvasPainter, Fidelity, ImageToDraw, MemoryFormat, PaddedCanvas, Padding, Renderer,
    View,
};
use crate::decode::{ColorModel, Plane, Planes, Region, Turn};
use base::rng::{RandomKey, RandomStream, Use};
use base::simd::Level;

const SIZE: (u32, u32) = (61, 43);

pub(super) fn stream(case: u64) -> RandomStream {
    RandomKey::new(b"canvas", 1, 0, Use::Augment).stream(case)
}

/// An image of noise; the chroma samples span `steps` columns and rows.
pub(super) fn noise(
    random: &mut RandomStream,
    size: (u32, u32),
    color: ColorModel,
    steps: [u32; 2],
) -> Planes {
    let mut plane = |[step_x, step_y]: [u32; 2]| {
        let (width, height) = (size.0.div_ceil(step_x), size.1.div_ceil(step_y));
        let data = (0..width * height + 64).map(|_| random.next_u32() as u8).collect();
        let (full_width, full_height, stride) = (width, height, width as usize);
        let (x0, y0) = (0, 0);
        Plane { data, stride, x0, y0, width, height, full_width, full_height, step_x, step_y }
    };
    let planes = [plane([1, 1]), plane(steps), plane(steps)];
    Planes { image_width: size.0, image_height: size.1, color, planes }
}

pub(super) fn rendered(recipe: &Recipe, planes: &Planes, drawn: &DrawnViews) -> Vec<Vec<u8>> {
    let mut planes = planes.clone();
    CanvasPainter::new(Level::detect()).paint(&mut planes, drawn);
    let mut renderer = Renderer::new(recipe, Level::detect());
    let render = |(number, (view, drawn))| {
        let (view, drawn): (&super::RecipeView, _) = (view, drawn);
        let mut out = vec![0xa5; view.output(drawn).bytes()];
        renderer.render(number, &planes, drawn, &mut out);
        out
    };
    recipe.views().iter().zip(drawn.views()).enumerate().map(render).collect()
}

/// Returns the expected canvas: the padded image, painted pixel by pixel in RGB.
fn painted(image: &Planes, canvas: &PaddedCanvas, view: &View) -> Planes {
    let (width, height) = (view.x.length, view.y.length);
    let mut all = Planes::default();
    all.shape_rgb(Region { x: 0, y: 0, width, height });
    for (c, plane) in all.planes.iter_mut().enumerate() {
        for (at, to) in plane.data[..(width * height) as usize].iter_mut().enumerate() {
            let (x, y) = (at as u32 % width, at as u32 / width);
            let source = canvas.x.source(canvas.padding, x).zip(canvas.y.source(canvas.padding, y));
            *to = source.map_or(canvas.fill[c], |(x, y)| image.planes[c].data[(y * SIZE.0 + x) as usize]);
        }
    }
    all
}

/// Returns a copy of one region of an image, as a decoder would return it.
fn decoded(image: &Planes, region: Region) -> Planes {
    let mut planes = Planes::default();
    planes.shape_rgb(region);
    for (to, from) in planes.planes.iter_mut().zip(&image.planes) {
        for (row, to) in to.data.chunks_exact_mut(to.stride).take(region.height as usize).enumerate() {
            let first = (region.y as usize + row) * from.stride + region.x as usize;
            to.copy_from_slice(&from.data[first..][..to.len()]);
        }
    }
    planes
}

#[test]
fn a_canvas_is_resized_as_a_padded_image_is() {
    let mut zoomed = 0;
    for (number, filter) in ["nearest", "bilinear", "bicubic", "lanczos"].into_iter().enumerate() {
        for (padding, cut) in [
            (r#"{"RandomZoomOut": {"fill": [9, 99, 199], "p": 1}}"#, r#"{"RandomCrop": {"size": [40, 50]}}"#),
            (
                r#"{"Pad": {"padding": [20, 9, 1, 30], "padding_mode": "reflect"}}"#,
                r#"{"RandomCrop": {"size": 60}}"#,
            ),
            (r#"{"Pad": {"padding": 40, "padding_mode": "symmetric"}}"#, r#"{"RandomCrop": {"size": 20}}"#),
            (r#"{"Pad": {"padding": 12, "padding_mode": "edge"}}"#, r#"{"CenterCrop": {"size": [50, 80]}}"#),
        ] {
            let list = format!(
                r#"[{padding}, {cut}, {{"Resize": {{"size": [31, 26], "interpolation": {filter:?}}}}},
                    {{"RandomHorizontalFlip": {{}}}}, {{"RandomCrop": {{"size": 20}}}}]"#
            );
            for fidelity in [Fidelity::Fast, Fidelity::Exact] {
                let recipe = Recipe::new(&request(&list), MemoryFormat::Nchw, fidelity).unwrap();
                let keys = recipe.keys(11, 0);
                for sample in 0..12 {
                    let image =
                        noise(&mut stream(sample + 100 * number as u64), SIZE, ColorModel::Rgb, [1; 2]);
                    let drawn = recipe.draw(&keys, sample, 0, SIZE).unwrap();
                    let seen = &drawn.views()[0];
                    let Some(canvas) = &seen.canvas else { continue };
                    zoomed += 1;
                    let whole = |axis: Axis| Axis { start: 0, filled: [0; 2], ..axis };
                    let view = View { x: whole(seen.view.x), y: whole(seen.view.y), ..seen.view };
                    let mut expected = vec![0; 3 * 20 * 20];
                    let mut augmenter =
                        crate::augment::Augmenter::new(recipe.views()[0].output(seen), Level::detect());
                    augmenter.render(&painted(&image, canvas, &view), &view, &mut expected);
                    let decoded = decoded(&image, drawn.region());
                    assert!(rendered(&recipe, &decoded, &drawn)[0] == expected, "{list} {sample}: {seen:?}");
                }
            }
        }
    }
    assert!(zoomed > 250, "{zoomed}");
}

/// If one view pads the image onto a canvas, all views have a canvas. A view without padding has the same pixels as in
/// a recipe of its own.
#[test]
fn views_share_one_sheet() {
    let crop = r#"{"RandomResizedCrop": {"size": [17, 19]}}"#;
    let text = format!(
        r#"[{{"Views": {{"n": 1, "transforms": [{crop}]}}}},
            {{"Views": {{"n": 2, "transforms": [{{"RandomZoomOut": {{"fill": 7}}}}, {crop}]}}}}]"#
    );
    for (color, step) in [(ColorModel::YCbCr, 2), (ColorModel::YCbCr, 1), (ColorModel::Gray, 1)] {
        let of = |text: &str| Recipe::new(&request(text), MemoryFormat::Nhwc, Fidelity::Exact).unwrap();
        let (all, alone) = (of(&text), of(&format!("[{crop}]")));
        let mut sheets = 0;
        for sample in 0..40 {
            let image = noise(&mut stream(sample), SIZE, color, [step; 2]);
            let drawn = all.draw(&all.keys(3, 0), sample, 0, SIZE).unwrap();
            let first = alone.draw(&alone.keys(3, 0), sample, 0, SIZE).unwrap();
            assert_eq!(drawn.views()[0].first_pixel(), first.views()[0].first_pixel());
            assert_eq!(drawn.views()[0].source_pixels(), first.views()[0].source_pixels());
            let together = rendered(&all, &image, &drawn);
            assert!(together[0] == rendered(&alone, &image, &first)[0], "{color:?}, sample {sample}");
            let on_canvas = drawn.views().iter().filter(|view| view.canvas.is_some()).count();
            assert_eq!(on_canvas, if drawn.canvas().is_some() { 3 } else { 0 });
            sheets += usize::from(on_canvas > 0);
        }
        assert!((15..40).contains(&sheets), "{sheets}");
    }
}

/// The padded canvas is more than 16000 pixels wide, but only pixels close to the image take memory.
#[test]
fn far_padding_takes_no_memory() {
    let text = r#"[{"Pad": {"padding": 8000}}, {"Resize": {"size": [160, 160]}}]"#;
    let recipe = recipe(text);
    let drawn = recipe.draw(&recipe.keys(0, 0), 0, 0, SIZE).unwrap();
    let (region, _) = drawn.canvas().unwrap();
    // The resize needs at most 205 padding pixels on each side of the image.
    assert!(region.width <= 61 + 410 && region.height <= 43 + 410, "{region:?}");
    let error = |text: &str| {
        let recipe = self::recipe(text);
        recipe.draw(&recipe.keys(0, 0), 0, 0, SIZE).unwrap_err().to_string()
    };
    let side = error(r#"[{"Pad": {"padding": 9000}}, {"Resize": {"size": [160, 160]}}]"#);
    assert!(side.contains("Resize would resize an image that was padded to 18061 pixels"), "{side}");
    let tiny =
        r#"[{"Views": {"n": 9, "transforms": [{"Pad": {"padding": 8000}}, {"Resize": {"size": [1, 1]}}]}}]"#;
    assert!(error(tiny).contains("pixels before the resize, more than"), "{}", error(tiny));
}

/// A CenterCrop that is larger than the image pads the image with black, even if a resize follows.
#[test]
fn a_small_image_is_padded_before_the_resize() {
    let recipe = recipe(r#"[{"CenterCrop": {"size": 32}}, {"Resize": {"size": [8, 8]}}]"#);
    assert_eq!(drawn(&recipe, 0, (50, 60)).canvas, None);
    let seen = drawn(&recipe, 0, (20, 41));
    let (x, y) = (CanvasAxis { first: 0, length: 20, at: 6 }, CanvasAxis { first: 4, length: 32, at: 0 });
    assert_eq!(seen.canvas, Some(PaddedCanvas { x, y, padding: Padding::Constant, fill: [0; 3] }));
    assert_eq!(seen.added_before_resize(), [6, 0, 6, 0]);
    assert!(recipe.may_pad_before_resize() && recipe.padding_before_resize().is_none());
}

/// RandomIoUCrop uses the positions of the boxes on the padded canvas. Boxes that the crop drops become zeros and keep
/// their rows.
#[test]
fn a_crop_by_boxes_sees_them_on_the_canvas() {
    let text = r#"[{"RandomHorizontalFlip": {"p": 1}}, {"RandomZoomOut": {"side_range": [3, 3], "p": 1}},
        {"RandomIoUCrop": {"sampler_options": [0.02]}}, {"Resize": {"size": [30, 30]}}]"#;
    let recipe = recipe(text);
    assert_eq!(recipe.chooses_by_boxes(), Some("RandomIoUCrop"));
    let boxes = [[2.0, 3.0, 30.0, 20.0], [50.0, 30.0, 60.0, 42.0], [f32::NAN; 4]];
    let mut kept = [0; 3];
    for sample in 0..100 {
        let of = ImageToDraw { stored: SIZE, turn: Turn::UPRIGHT, boxes: &boxes };
        let drawn = recipe.draw_image(&recipe.keys(5, 0), sample, 0, &of).unwrap();
        let seen = &drawn.views()[0];
        let mut followed = boxes;
        let shares = seen.map_boxes(crate::augment::BoxFormat::Xyxy, &mut followed);
        assert_eq!(seen.dropped.len(), 3);
        for (row, dropped) in seen.dropped.iter().enumerate() {
            kept[row] += usize::from(!dropped);
            assert_eq!(*dropped, followed[row] == [0.0; 4] && shares[row] == 0.0, "{seen:?} {followed:?}");
            let [x1, y1, x2, y2] = followed[row];
            assert!(*dropped || 0.0 <= x1 && x1 < x2 && x2 <= 30.0 && 0.0 <= y1 && y1 < y2 && y2 <= 30.0);
        }
        assert!(seen.dropped.contains(&false));
    }
    assert!(kept[0] > 60 && kept[1] > 10 && kept[2] == 0, "{kept:?}");
    // Without boxes, RandomIoUCrop leaves the image whole.
    let whole = drawn(&recipe, 0, SIZE);
    assert_eq!((whole.view.x.length, whole.dropped.len()), (183, 0));
}
