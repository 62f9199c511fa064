//! Tests of operations: torchvision's results, the same bits on every SIMD level, and erased rectangles.

use super::*;
use crate::augment::{DType, Fidelity, MemoryFormat, Output};
use base::rng::{RandomKey, RandomStream, Use};
use base::simd::Level;

fn run(level: Level, ops: &[PixelOp], planes: &[u8], size: (u32, u32)) -> Vec<u8> {
    let mut pass = PixelPass::new(level);
    pass.levels(planes.len() / 3).copy_from_slice(planes);
    pass.run(ops, size).to_vec()
}

/// An image of 7 × 5 pixels whose level in channel c, row y, column x is (37x + 91y + 53c + 11xy) mod 256.
fn sample() -> Vec<u8> {
    let level = |c: u32, y: u32, x: u32| (37 * x + 91 * y + 53 * c + 11 * x * y) as u8;
    (0..3u32).flat_map(|c| (0..5).flat_map(move |y| (0..7).map(move |x| level(c, y, x)))).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

#[test]
fn operations_are_torchvisions() {
    for (op, planes) in golden() {
        let expected: Vec<u8> = planes.into_iter().flat_map(bytes).collect();
        for level in Level::available() {
            let found = run(level, std::slice::from_ref(&op), &sample(), (7, 5));
            assert_eq!(found, expected, "{op:?} with {}", level.name());
        }
    }
}

#[test]
fn equalize_is_torchvisions() {
    // torchvision does not change an image that has fewer pixels than levels.
    assert_eq!(run(Level::Portable, &[PixelOp::Equalize], &sample(), (7, 5)), sample());
    // With its pixels repeated twice across and nine times down, the image has enough pixels.
    let tiled: Vec<u8> = sample()
        .chunks(35)
        .flat_map(|plane| std::iter::repeat_n(plane, 9).flatten())
        .copied()
        .collect::<Vec<_>>()
        .chunks(7)
        .flat_map(|row| [row, row].concat())
        .collect();
    let found = run(Level::Portable, &[PixelOp::Equalize], &tiled, (14, 45));
    for (plane, expected) in found.chunks(14 * 45).zip(["00365199bdf3ff", "2d637ec6eaff09", "75abc6ffff2d51"])
    {
        assert_eq!(plane[..7], bytes(expected));
    }
}

#[test]
fn timms_addition_ends_at_a_threshold() {
    let op = PixelOp::SolarizeAdd { addition: 60, threshold: 128 };
    let expected: Vec<u8> = sample().iter().map(|&x| if x < 128 { x + 60 } else { x }).collect();
    assert_eq!(run(Level::Portable, &[op], &sample(), (7, 5)), expected);
}

/// The seed of a test, from the environment so that a failure can be repeated.
pub(super) fn seed() -> u64 {
    let given = std::env::var("FORELOAD_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into())
}

fn sampling(stream: &mut RandomStream) -> WarpSampling {
    WarpSampling {
        interpolation: [Filter::Nearest, Filter::Bilinear, Filter::Bicubic][stream.below(3) as usize],
        fill: [None, Some([124.0, 116.25, 255.0])][stream.below(2) as usize],
        center: [None, Some([0.0; 2]), Some([3.25, 9.5])][stream.below(3) as usize],
    }
}

fn operation(stream: &mut RandomStream, (width, height): (u32, u32), depth: u32) -> PixelOp {
    let factor = stream.uniform(0.0, 2.0);
    match stream.below(if depth == 0 { 20 } else { 19 }) {
        0 => PixelOp::RgbToGrayscale,
        1 => PixelOp::AdjustBrightness { brightness_factor: factor },
        2 => PixelOp::AdjustContrast { contrast_factor: factor },
        3 => PixelOp::AdjustSaturation { saturation_factor: factor },
        4 => PixelOp::AdjustHue { hue_factor: stream.uniform(-0.5, 0.5) },
        5 => PixelOp::AdjustSharpness { sharpness_factor: factor },
        6 => PixelOp::Invert,
        7 => PixelOp::Posterize { bits: stream.below(9) as u32 },
        8 => PixelOp::Solarize { threshold: stream.uniform(0.0, 256.0) },
        9 => PixelOp::SolarizeAdd { addition: stream.below(110) as i32, threshold: 128 },
        10 => PixelOp::Autocontrast,
        11 => PixelOp::Equalize,
        12 => PixelOp::PermuteChannels { permutation: [[2, 0, 1], [1, 0, 2]][stream.below(2) as usize] },
        13 => PixelOp::GaussianBlur {
            kernel_size: [stream.below(12) as u32 * 2 + 1, stream.below(5) as u32 * 2 + 1],
            sigma: [stream.uniform(0.1, 3.0), stream.uniform(0.1, 3.0)],
        },
        14 => PixelOp::Affine(Affine {
            angle: [0.0, stream.uniform(-180.0, 180.0)][stream.below(2) as usize],
            translate: [
                stream.below(9) as f64 - 4.0,
                [0.0, stream.uniform(-4.0, 4.0)][stream.below(2) as usize],
            ],
            scale: [1.0, stream.uniform(0.3, 3.0)][stream.below(2) as usize],
            shear: [stream.uniform(-60.0, 60.0), [0.0, 20.0][stream.below(2) as usize]],
            sampling: sampling(stream),
        }),
        15 => PixelOp::Rotate { angle: stream.uniform(-360.0, 360.0), sampling: sampling(stream) },
        16 => PixelOp::HorizontalFlip,
        17 => PixelOp::VerticalFlip,
        18 => PixelOp::Erase {
            rectangle: Rectangle {
                i: stream.below(height.into()) as u32,
                j: 0,
                h: height,
                w: width.div_ceil(2),
            },
            v: [1, 2, 3],
        },
        _ => PixelOp::Augmix {
            weights: vec![0.2, 0.5],
            chains: vec![operations(stream, (width, height), 1), operations(stream, (width, height), 1)],
        },
    }
}

fn operations(stream: &mut RandomStream, size: (u32, u32), depth: u32) -> Vec<PixelOp> {
    (0..stream.below(5)).map(|_| operation(stream, size, depth)).collect()
}

#[test]
fn levels_of_instructions_and_ways_to_run_agree() {
    let seed = seed();
    let mut stream = RandomKey::new(&[], seed, 0, Use::Augment).stream(0);
    for round in 0..300 {
        let side = |stream: &mut RandomStream| [1, 2, 3, 31, 32, 33, 65][stream.below(7) as usize];
        let size = (side(&mut stream), side(&mut stream));
        let few = stream.below(2) == 0;
        let level = |stream: &mut RandomStream| {
            if few { stream.below(5) as u8 * 60 } else { stream.next_u32() as u8 }
        };
        let planes: Vec<u8> = (0..3 * size.0 * size.1).map(|_| level(&mut stream)).collect();
        let ops = operations(&mut stream, size, 0);
        let expected = run(Level::Portable, &ops, &planes, size);
        for level in Level::available() {
            let what = format!("FORELOAD_SEED={seed} round {round}, {}: {ops:?} of {size:?}", level.name());
            assert!(run(level, &ops, &planes, size) == expected, "{what}");
            let one = |planes: Vec<u8>, op: &PixelOp| run(level, std::slice::from_ref(op), &planes, size);
            assert!(ops.iter().fold(planes.clone(), one) == expected, "one after the other, {what}");
        }
    }
}

#[test]
fn operations_can_be_run_again_from_their_text() {
    let seed = seed();
    let mut stream = RandomKey::new(&[], seed, 0, Use::Augment).stream(0);
    for round in 0..100 {
        let size = (9 + stream.below(30) as u32, 7 + stream.below(30) as u32);
        let planes: Vec<u8> = (0..3 * size.0 * size.1).map(|_| stream.next_u32() as u8).collect();
        let ops = operations(&mut stream, size, 0);
        let text = serde_json::to_string(&ops).unwrap();
        let what = format!("FORELOAD_SEED={seed} round {round}: {text} of {size:?}");
        assert!(replay(&text, &planes, size).unwrap() == run(Level::detect(), &ops, &planes, size), "{what}");
    }
}

fn output(dtype: DType, format: MemoryFormat) -> Output {
    let (mean, std) = ([0.0; 3], [1.0; 3]);
    Output { height: 5, width: 7, dtype, format, mean, std, fill: [0; 3], fidelity: Fidelity::Fast }
}

fn element<'a>(output: &Output, image: &'a [u8], [c, y, x]: [usize; 3]) -> &'a [u8] {
    let place = match output.format {
        MemoryFormat::Nchw => (c * 5 + y) * 7 + x,
        MemoryFormat::Nhwc => (y * 7 + x) * 3 + c,
    };
    &image[place * output.dtype.size()..][..output.dtype.size()]
}

#[test]
fn erasures_overwrite_their_rectangles_of_finished_images() {
    let rectangle = Rectangle { i: 1, j: 2, h: 2, w: 4 };
    let noise = ErasureValues::Noise { key: [3, 4], mean: [100.0, 0.0, -1.0], std: [1.0, 2.0, 0.5] };
    for v in [ErasureValues::Values([1.5, -2.25, 200.7]), noise] {
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::U8] {
            for format in [MemoryFormat::Nchw, MemoryFormat::Nhwc] {
                let output = output(dtype, format);
                let mut image = vec![77; output.bytes()];
                erase(Level::Portable, &[Erasure { rectangle, v: v.clone() }], &output, &mut image);
                for place in (0..105).map(|i| [i / 35, i / 7 % 5, i % 7]) {
                    let [c, y, x] = place;
                    let value = match v {
                        ErasureValues::Values(values) => values[c],
                        ErasureValues::Noise { key, mean, std } => {
                            let mut normal = [0.0];
                            noise::fill(Level::Portable, key, ((c * 5 + y) * 7 + x) as u64, &mut normal);
                            normal[0] * std[c] + mean[c]
                        }
                    };
                    let expected = match dtype {
                        _ if !(1..3).contains(&y) || !(2..6).contains(&x) => vec![77; dtype.size()],
                        DType::F32 => value.to_ne_bytes().to_vec(),
                        DType::F16 => half::f16::from_f32(value).to_ne_bytes().to_vec(),
                        DType::Bf16 => half::bf16::from_f32(value).to_ne_bytes().to_vec(),
                        DType::U8 => vec![value as u8],
                    };
                    assert_eq!(element(&output, &image, place), expected, "{dtype:?} {format:?} {place:?}");
                }
            }
        }
    }
}

#[test]
fn rectangles_end_with_the_image() {
    let output = output(DType::U8, MemoryFormat::Nchw);
    let mut image = vec![0; output.bytes()];
    let rectangle = Rectangle { i: 4, j: 6, h: 9, w: u32::MAX };
    erase(Level::Portable, &[Erasure { rectangle, v: ErasureValues::Values([1.0; 3]) }], &output, &mut image);
    assert_eq!(image.iter().filter(|&&level| level == 1).count(), 3);
}

/// Operations, and the planes that torchvision 0.29 computes from the [`sample`].
fn golden() -> Vec<(PixelOp, [&'static str; 3])> {
    vec![
        (
            PixelOp::RgbToGrayscale,
            [
                "2b50759abfc65586b6c8624676a6c3685792af54433c82aa5a549ac297ca398abd2c7d",
                "2b50759abfc65586b6c8624676a6c3685792af54433c82aa5a549ac297ca398abd2c7d",
                "2b50759abfc65586b6c8624676a6c3685792af54433c82aa5a549ac297ca398abd2c7d",
            ],
        ),
        (
            PixelOp::AdjustBrightness { brightness_factor: 1.37 },
            [
                "00326598cafdff7cbeffff2466a8f9ff3c8dddff201777d7ff3898f793ff1382f10170",
                "487bade0ffff1ac5ffff2b6daff1ff3484d5ff18695fbfff2080e0ffdcff5bcaff49b8",
                "91c3f6ffff2f62ffff3274b6f7ff2b7ccdff1061b2a8ff0969c9ff2aff35a4ff2392ff",
            ],
        ),
        (
            PixelOp::AdjustContrast { contrast_factor: 0.63 },
            [
                "2f465e758ca3bb6886a5c3405e7ca2c74b7095ba3e3a6692be4975a173a6386b9e3063",
                "50687f96aec53b8aa8c64361809ec3476c91b63a5f5b87b33e6a96c294c7598cbf5184",
                "7289a0b8cf455cabc9466483a1bf43688db3365c817ca8335f8bb842b6477aae3f72a5",
            ],
        ),
        (
            PixelOp::AdjustSaturation { saturation_factor: 1.71 },
            [
                "00062b5075afff3c6cb1ff002c5cacff0d4898ff00003893ff0a50ab4db30040a60033",
                "3c6186abd0ff0097c7ff005787b7ff0068a3f300544d93ee0065abffa8ff4a9bff3d8e",
                "96bbe0ffff003ef1ff004bb1e1ff0051c2fd003daea7ed0043bfff00ff00a4f50097e8",
            ],
        ),
        (
            PixelOp::AdjustHue { hue_factor: -0.21 },
            [
                "00254a6f94ee745b8bf0811b4b7beb872c67d773181157d279296fea6cf20e5fe50152",
                "6a8fb4d9fe2313c5f5252085b5e5202696d10c12827bc1071893d91fd62778c91a6bbc",
                "193e6388ae23de74a525eb34649520f145800cdd312a7007e342881f852727781a1a6b",
            ],
        ),
        (
            PixelOp::AdjustSharpness { sharpness_factor: 1.9 },
            [
                "00254a6f94b9de5b9ddeff00277bb6ff0055b4ff181145afff006fb56cbd0e5fb00152",
                "355a7fa4c9ee1390e3ff002c80b0eb004faeff004d468cff004cb6eaa1f24394e53687",
                "6a8fb4d9fe2348c5ff003185d8e52049a8ff0023827bf6003ba5ff1fd62778c91a6bbc",
            ],
        ),
        (
            PixelOp::Invert,
            [
                "ffdab5906b4621a4744414e4b484490ed3985d22e7eea8621cd6904a9342f1a04ffead",
                "caa5805b3611ec6f3f0fdfaf7f4f14d99e6328edb2b9732de7a15b155e0dbc6b1ac978",
                "95704b2601dcb73a0adaaa7a4a1adfa4692ef3b87d843ef8b26c26e029d88736e59443",
            ],
        ),
        (
            PixelOp::Posterize { bits: 3 },
            [
                "0020406080a0c04080a0e0004060a0e02060a0c000004080e02060a060a00040a00040",
                "204060a0c0e00080c0e0204080a0e0206080c000404080c00040a0e0a0e04080e02080",
                "6080a0c0e02040c0e0204080a0e0204080c000408060c0004080c000c02060c00060a0",
            ],
        ),
        (
            PixelOp::Solarize { threshold: 100.0 },
            [
                "00254a906b46215b7444141b4b84490e2c985d22181157621c29904a93420e5f4f0152",
                "355a805b3611136f3f0f20507f4f1426616328124d46732d185e5b155e0d436b1a3678",
                "95704b260123483a0a25557a4a1a205b692e0c477d843e074d6c261f292787361a9443",
            ],
        ),
        (
            PixelOp::Autocontrast,
            [
                "00274e759cc3ea6093c5f81c4f82c0fe2e6cabe919115ca6f02b75bf72c70e64ba0156",
                "27517ca6d0fa018fc6fc0f467db3f716599de000433b8ada0656a6f5a2fe3793f02885",
                "668cb2d8fe1c43c4f51e5082b3e5195693d005427e77c0004890d818d52174c81367ba",
            ],
        ),
        (
            PixelOp::PermuteChannels { permutation: [2, 0, 1] },
            [
                "6a8fb4d9fe2348c5f5255585b5e5205b96d10c47827bc1074d93d91fd62778c91a6bbc",
                "00254a6f94b9de5b8bbbeb1b4b7bb6f12c67a2dd1811579de3296fb56cbd0e5fb00152",
                "355a7fa4c9ee1390c0f0205080b0eb26619cd7124d468cd2185ea4eaa1f24394e53687",
            ],
        ),
        (
            PixelOp::GaussianBlur { kernel_size: [5, 3], sigma: [1.1, 0.7] },
            [
                "46567281838d9478818c8a7c77789995898584827e6d757f827973736c6e71746a5b56",
                "7b838d8f93969293948f817b7d7f85817f7e7a6e6a888882797c868ea19c8c8285888b",
                "a19e9a9f9c897f9f978680858d92747778746d72767a74686b757d7c7e756a6e747f83",
            ],
        ),
        (
            PixelOp::HorizontalFlip,
            [
                "deb9946f4a25007b4b1bebbb8b5b18dda2672cf1b6b56f29e39d57115201b05f0ebd6c",
                "13eec9a47f5a35b0805020f0c0904d12d79c6126ebeaa45e18d28c468736e59443f2a1",
                "4823fed9b48f6ae5b5855525f5c582470cd1965b201fd9934d07c17bbc6b1ac97827d6",
            ],
        ),
        (
            PixelOp::VerticalFlip,
            [
                "6cbd0e5fb0015211579de3296fb5b6f12c67a2dd185b8bbbeb1b4b7b00254a6f94b9de",
                "a1f24394e53687468cd2185ea4eaeb26619cd7124d90c0f0205080b0355a7fa4c9ee13",
                "d62778c91a6bbc7bc1074d93d91f205b96d10c4782c5f5255585b5e56a8fb4d9fe2348",
            ],
        ),
        (
            PixelOp::Erase { rectangle: Rectangle { i: 1, j: 2, h: 3, w: 4 }, v: [9, 99, 199] },
            [
                "00254a6f94b9de5b8b090909097bb6f10909090918115709090909b56cbd0e5fb00152",
                "355a7fa4c9ee1390c063636363b0eb26636363634d468c63636363eaa1f24394e53687",
                "6a8fb4d9fe2348c5f5c7c7c7c7e5205bc7c7c7c7827bc1c7c7c7c71fd62778c91a6bbc",
            ],
        ),
        (
            PixelOp::Rotate {
                angle: 25.0,
                sampling: WarpSampling {
                    interpolation: Filter::Nearest,
                    fill: Some([10.0, 20.0, 30.0]),
                    center: None,
                },
            },
            [
                "0a0a6f944b7b0a254aebeba2dd185b8b2c67a26fb5b6f12ce3e3b0010a11570e5f0a0a",
                "1414a4c980b0145a7f2020d7124d90c0619cd7a4eaeb26611818e53614468c43941414",
                "1e1ed9feb5e51e8fb455550c4782c5f596d10cd91f205b964d4d1a6b1e7bc178c91e1e",
            ],
        ),
        (
            PixelOp::Rotate {
                angle: -50.0,
                sampling: WarpSampling {
                    interpolation: Filter::Bilinear,
                    fill: None,
                    center: Some([2.0, 1.5]),
                },
            },
            [
                "6a56260d000000beaa884e0a00007b39b49968000064a7802e8176004b8968af5fbc21",
                "928b5a180000007e8ebd7b0e00008b61796d8f00008f62a462b66b007c628f4c923703",
                "57c08d230000004ea770a8130000838f60a2b500003d668874841b00ad715d52c76a0b",
            ],
        ),
        (
            PixelOp::Affine(Affine {
                angle: 0.0,
                translate: [0.0, 0.0],
                scale: 1.0,
                shear: [20.0, 0.0],
                sampling: WarpSampling {
                    interpolation: Filter::Bilinear,
                    fill: Some([124.0, 116.0, 104.0]),
                    center: Some([0.0, 0.0]),
                },
            }),
            [
                "072c51769bc0ab75a5d57935655dec3e629dd82a716ab0b03c82817c4d429340355a7c",
                "3c6186abd0c622aada7e3a6a9a64385c97d224486a9f9f2b71b79b748277c8756a5c74",
                "7196bbe0d62a43df833f6f9fcf685691cc1e427d608e1a60a6a62d685bac594e9f5b68",
            ],
        ),
        (
            PixelOp::Affine(Affine {
                angle: 5.0,
                translate: [1.0, -1.0],
                scale: 0.8,
                shear: [0.0, -30.0],
                sampling: WarpSampling { interpolation: Filter::Bilinear, fill: None, center: None },
            }),
            [
                "00078286cf9720000f7484673ea700001a25bc8d670000000048558a0000000000154e",
                "000f81804acc190016a9ae9c698a0000225a36886600000000698aa900000000002483",
                "0017657b68de08001d8843d17c690000116c66529b0000000067755d000000000014a1",
            ],
        ),
        (
            PixelOp::Affine(Affine {
                angle: 0.0,
                translate: [2.0, -1.0],
                scale: 1.0,
                shear: [0.0, 0.0],
                sampling: WarpSampling {
                    interpolation: Filter::Nearest,
                    fill: Some([1.0, 2.0, 3.0]),
                    center: None,
                },
            }),
            [
                "01015b8bbbeb1b0101b6f12c67a2010111579de32901016cbd0e5fb001010101010101",
                "020290c0f020500202eb26619cd70202468cd2185e0202a1f24394e502020202020202",
                "0303c5f52555850303205b96d10c03037bc1074d930303d62778c91a03030303030303",
            ],
        ),
        (
            PixelOp::Augmix {
                weights: vec![0.3, 0.45],
                chains: vec![
                    vec![PixelOp::Invert, PixelOp::AdjustHue { hue_factor: 0.3 }],
                    vec![PixelOp::Posterize { bits: 2 }],
                ],
            },
            [
                "2c2a45435ea9b8445fa9b72b4543aab72a44abb82b2b45abb82a43aa44a92c44aa2c45",
                "5974728da89a0e8ea99a0e758f8d9a0d748e9b0e75758f9c0e748d9a8d9a758e9b598f",
                "6d8886a19f0d75a29f0d748986a10e7488a20f75896ca20f7588a10ea10d6ca20e6d86",
            ],
        ),
    ]
}
