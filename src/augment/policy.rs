//! Which part of an image to take: torchvision's crops, drawn from the sample's own stream.

use super::{Axis, Filter, Output, Padding, Policy, View};
use crate::rng::Stream;

/// Attempts at a random crop before the centre crop, as torchvision's `RandomResizedCrop.get_params`.
const TRIES: usize = 10;

impl Policy {
    /// The view of an image of `width` × `height` pixels; `stream` is the sample's own.
    ///
    /// Training reads the stream in this order: for each try one uniform for the area and one for the ratio; after
    /// the first try that fits inside the image, the row and the column of the crop; last, the flip. Evaluation
    /// reads nothing.
    pub fn draw(&self, stream: &mut Stream, width: u32, height: u32, output: &Output) -> View {
        match *self {
            Self::Train { scale, ratio, flip } => {
                let (left, top, w, h) = random_crop(stream, (width, height), scale, ratio);
                View {
                    x: Axis { start: left, length: w, full: output.width, window: 0 },
                    y: Axis { start: top, length: h, full: output.height, window: 0 },
                    flip: stream.unit() < flip,
                    filter: Filter::default(),
                    padding: Padding::default(),
                }
            }
            Self::Eval { resize } => {
                let (w, h) = resized(width, height, resize);
                View {
                    x: Axis { start: 0, length: width, full: w, window: centred(w, output.width) },
                    y: Axis { start: 0, length: height, full: h, window: centred(h, output.height) },
                    flip: false,
                    filter: Filter::default(),
                    padding: Padding::default(),
                }
            }
        }
    }
}

/// Left, top, width and height of a random crop, or of the centre crop if no try fitted.
fn random_crop(
    stream: &mut Stream,
    (width, height): (u32, u32),
    scale: (f64, f64),
    ratio: (f64, f64),
) -> (u32, u32, u32, u32) {
    let area = f64::from(width) * f64::from(height);
    // libm, not the system's: two machines must not disagree about a crop by a last digit.
    let log_ratio = (libm::log(ratio.0), libm::log(ratio.1));
    for _ in 0..TRIES {
        let target = area * stream.uniform(scale.0, scale.1);
        let aspect = libm::exp(stream.uniform(log_ratio.0, log_ratio.1));
        // `as` saturates, so absurd settings only make a try fail.
        let w = (target * aspect).sqrt().round_ties_even() as u32;
        let h = (target / aspect).sqrt().round_ties_even() as u32;
        if (1..=width).contains(&w) && (1..=height).contains(&h) {
            let top = stream.below(u64::from(height - h) + 1) as u32;
            let left = stream.below(u64::from(width - w) + 1) as u32;
            return (left, top, w, h);
        }
    }
    let (w, h) = (f64::from(width), f64::from(height));
    let (w, h) = if w / h < ratio.0 {
        (width, (w / ratio.0).round_ties_even() as u32)
    } else if w / h > ratio.1 {
        ((h * ratio.1).round_ties_even() as u32, height)
    } else {
        (width, height)
    };
    let (w, h) = (w.clamp(1, width), h.clamp(1, height));
    ((width - w) / 2, (height - h) / 2, w, h)
}

/// Size after torchvision's `Resize(resize)`: the shorter side becomes `resize`, the longer is truncated.
fn resized(width: u32, height: u32, resize: u32) -> (u32, u32) {
    let long = |long: u32, short: u32| {
        // At least 1, and small enough that every later coordinate fits an i32.
        ((f64::from(resize) * f64::from(long) / f64::from(short)) as u32).clamp(1, i32::MAX as u32 / 2)
    };
    if width <= height { (resize, long(height, width)) } else { (long(width, height), resize) }
}

/// Where torchvision's `CenterCrop` starts in `full` pixels; negative when it pads.
fn centred(full: u32, n: u32) -> i32 {
    if full >= n { (f64::from(full - n) / 2.0).round_ties_even() as i32 } else { -(((n - full) / 2) as i32) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::augment::{DType, Fidelity, MemoryFormat};
    use crate::rng::{Key, Use};

    const IMAGENET: Policy = Policy::Train { scale: (0.08, 1.0), ratio: (3.0 / 4.0, 4.0 / 3.0), flip: 0.5 };

    fn output(size: u32) -> Output {
        Output {
            height: size,
            width: size,
            dtype: DType::F32,
            format: MemoryFormat::Nchw,
            mean: [0.0; 3],
            std: [1.0; 3],
            fill: [0; 3],
            fidelity: Fidelity::Fast,
        }
    }

    fn train(index: u64, width: u32, height: u32) -> View {
        let mut stream = Key::new(b"", 11, 2, Use::Augment).stream(index);
        IMAGENET.draw(&mut stream, width, height, &output(224))
    }

    #[test]
    fn draws_are_what_they_were_when_the_stream_was_promised() {
        let golden: Vec<_> = (0..4)
            .map(|i| {
                let v = train(i, 500, 375);
                (v.x.start, v.y.start, v.x.length, v.y.length, v.flip)
            })
            .collect();
        assert_eq!(golden, GOLDEN);
    }

    /// Left, top, width, height, flip.
    const GOLDEN: [(u32, u32, u32, u32, bool); 4] = [
        (126, 61, 229, 237, true),
        (92, 49, 227, 213, false),
        (148, 35, 301, 292, true),
        (297, 106, 190, 237, true),
    ];

    /// Mean and standard deviation of (area share, log ratio, centre) against an independent simulation by rejection.
    #[test]
    fn crops_are_distributed_as_torchvision_says() {
        const N: u64 = 40_000;
        let (width, height) = (500u32, 375u32);
        let mut flips = 0u32;
        let mut seen = [[0f64; 2]; 4];
        for index in 0..N {
            let v = train(index, width, height);
            flips += u32::from(v.flip);
            let (w, h) = (f64::from(v.x.length), f64::from(v.y.length));
            assert!(v.x.start + v.x.length <= width && v.y.start + v.y.length <= height);
            for (sum, value) in seen.iter_mut().zip([
                w * h / f64::from(width * height),
                (w / h).ln(),
                (f64::from(v.x.start) + w / 2.0) / f64::from(width),
                (f64::from(v.y.start) + h / 2.0) / f64::from(height),
            ]) {
                sum[0] += value;
                sum[1] += value * value;
            }
        }
        // The same distribution by a regular grid over (area, log ratio), where a pair that does not fit is left out;
        // given the box, its centre is uniform over the room it has.
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
        let policy = Policy::Train { scale: (1.0, 1.0), ratio: (0.75, 4.0 / 3.0), flip: 0.0 };
        let draw = |w, h| {
            let v = policy.draw(&mut Key::new(b"", 0, 0, Use::Augment).stream(0), w, h, &output(8));
            (v.x.start, v.y.start, v.x.length, v.y.length)
        };
        assert_eq!(draw(1000, 10), (493, 0, 13, 10));
        assert_eq!(draw(10, 1000), (0, 493, 10, 13));
        assert_eq!(draw(1, 500), (0, 249, 1, 1));
        assert_eq!(draw(1, 1), (0, 0, 1, 1));
    }

    #[test]
    fn eval_resizes_and_centres_as_torchvision() {
        let policy = Policy::Eval { resize: 256 };
        let draw = |w, h, size| {
            let v = policy.draw(&mut Key::new(b"", 0, 0, Use::Augment).stream(0), w, h, &output(size));
            ((v.x.full, v.y.full), (v.x.window, v.y.window))
        };
        // int(256 * 500 / 375) = 341; round((341 - 224) / 2) = round(58.5) = 58, half to even.
        assert_eq!(draw(500, 375, 224), ((341, 256), (58, 16)));
        assert_eq!(draw(375, 500, 224), ((256, 341), (16, 58)));
        // round((343 - 224) / 2) = round(59.5) = 60.
        assert_eq!(draw(343, 256, 224), ((343, 256), (60, 16)));
        // Larger than the resized image: padded, the odd pixel at the right and bottom.
        assert_eq!(draw(256, 256, 299), ((256, 256), (-21, -21)));
        assert_eq!(draw(1, 1, 224), ((256, 256), (16, 16)));
    }
}
