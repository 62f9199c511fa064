//! The profiles of photographs: codings, sizes, bits per pixel and qualities.
//!
//! - `imagenet`: measured on 1 000 files of ILSVRC, one of each class, as published: 761 are 4:4:4, 203 4:2:0, 23 gray,
//!   12 4:2:2, all baseline with one scan, 979 with optimised Huffman tables. The tables below contain the 5, 25, 50,
//!   75 and 95 % quantiles. Qualities are computed from the mean of the luminance table on the usual scale (ITU-T T.81,
//!   annex K.1, as the Independent JPEG Group scales it).
//! - `web`: images of web pages, as in LAION: mostly 4:2:0, a fifth of them progressive, qualities 70 to 95, larger.
//!   This profile was not measured: it has usual sizes on web pages, and the bits per pixel of ImageNet's 4:2:0 images.
//! - `phone`: twelve million pixels, 4:2:0, with an EXIF orientation as the camera was held, and a small preview in
//!   EXIF.

use super::recipe::JpegCoding;
use serde::Serialize;

/// A population of photographs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Profile {
    /// Like ImageNet: three of four with full colour resolution, 500 pixels on the long side
    Imagenet,
    /// Like images of web pages: larger, mostly 4:2:0, a fifth of them progressive
    Web,
    /// Like a phone's photographs: 12 megapixels, rotated by EXIF, with a preview
    Phone,
}

/// The quantiles at which the tables of bits per pixel and of qualities have their values.
pub(crate) const RANKS: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];

pub(crate) struct Kind {
    pub coding: JpegCoding,
    /// The number of images of this kind per 1000.
    pub share: u32,
    /// The number of images with optimised Huffman tables, per 1000 images of this kind.
    pub own_tables: u32,
    /// Ranges of width and height with their shares per 1000, sorted by size.
    pub sizes: &'static [(u32, PixelRange, PixelRange)],
    /// Bits per pixel at [`RANKS`].
    pub rates: [f64; 5],
    /// The qualities at [`RANKS`]: files of low quality have few bits per pixel.
    pub qualities: [f64; 5],
}

pub(crate) type PixelRange = (u32, u32);

const fn just(pixels: u32) -> PixelRange {
    (pixels, pixels)
}

impl Profile {
    /// The kinds of this profile. The last kind is the most frequent.
    pub(crate) fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Imagenet => IMAGENET,
            Self::Web => WEB,
            Self::Phone => PHONE,
        }
    }
}

const IMAGENET: &[Kind] = &[
    Kind {
        coding: JpegCoding::Yuv422,
        share: 13,
        own_tables: 979,
        sizes: &[
            (100, (243, 300), (240, 300)),
            (250, just(500), just(375)),
            (50, just(600), (399, 480)),
            (320, just(640), just(480)),
            (200, just(800), just(600)),
            (80, just(1024), just(768)),
        ],
        rates: [0.66, 1.95, 2.93, 3.80, 6.13],
        qualities: [67.0, 85.0, 85.0, 96.0, 97.0],
    },
    Kind {
        coding: JpegCoding::Gray,
        share: 23,
        own_tables: 979,
        sizes: &[
            (100, (320, 334), (221, 333)),
            (50, just(500), just(221)),
            (150, just(500), just(333)),
            (400, just(500), just(375)),
            (100, just(375), just(500)),
            (150, just(334), just(500)),
            (50, just(680), just(500)),
        ],
        rates: [1.12, 1.74, 3.18, 4.02, 5.42],
        qualities: [75.0, 92.0, 96.0, 96.0, 96.0],
    },
    Kind {
        coding: JpegCoding::Yuv420,
        share: 203,
        own_tables: 979,
        sizes: &[
            (50, (100, 140), (100, 160)),
            (180, (140, 308), (140, 280)),
            (150, (300, 400), (225, 400)),
            (100, (400, 500), (281, 375)),
            (60, just(500), just(333)),
            (120, just(500), just(375)),
            (40, just(375), just(500)),
            (70, just(600), (400, 480)),
            (90, just(640), just(480)),
            (40, just(480), just(640)),
            (30, just(800), just(600)),
            (15, just(1024), just(768)),
            (50, (640, 800), (800, 900)),
            (5, (1000, 1600), (900, 1200)),
        ],
        rates: [0.86, 1.25, 1.77, 2.41, 3.90],
        qualities: [65.0, 75.0, 80.0, 90.0, 95.0],
    },
    Kind {
        coding: JpegCoding::Yuv444,
        share: 761,
        own_tables: 979,
        sizes: &[
            (55, (110, 280), (110, 280)),
            (55, (300, 500), (300, 500)),
            (175, just(500), just(333)),
            (295, just(500), just(375)),
            (130, just(500), (340, 499)),
            (70, (340, 499), just(500)),
            (160, just(375), just(500)),
            (60, just(333), just(500)),
        ],
        rates: [1.95, 4.02, 5.32, 6.82, 9.01],
        qualities: [86.0, 96.0, 96.0, 96.0, 96.0],
    },
];

const WEB_SIZES: &[(u32, PixelRange, PixelRange)] = &[
    (100, (250, 400), (200, 400)),
    (150, (400, 600), (300, 600)),
    (200, just(640), (360, 640)),
    (200, just(800), (450, 800)),
    (150, just(1024), (576, 1024)),
    (120, just(1200), (630, 1200)),
    (80, (1280, 2048), (720, 1600)),
];
/// The most frequent kind of [`WEB`]; the other kinds differ from it in a few fields.
const WEB_USUAL: Kind = Kind {
    coding: JpegCoding::Yuv420,
    share: 650,
    own_tables: 500,
    sizes: WEB_SIZES,
    rates: [0.86, 1.25, 1.77, 2.41, 3.90],
    qualities: [70.0, 75.0, 82.0, 90.0, 95.0],
};

const WEB: &[Kind] = &[
    Kind { coding: JpegCoding::Gray, share: 20, ..WEB_USUAL },
    Kind { coding: JpegCoding::Yuv444, share: 130, rates: [1.0, 1.6, 2.3, 3.2, 5.2], ..WEB_USUAL },
    Kind { coding: JpegCoding::Progressive, share: 200, own_tables: 1000, ..WEB_USUAL },
    WEB_USUAL,
];

const PHONE: &[Kind] = &[Kind {
    coding: JpegCoding::Yuv420,
    share: 1000,
    own_tables: 0,
    sizes: &[(1000, just(4032), just(3024))],
    rates: [1.0, 1.5, 2.0, 2.6, 4.0],
    qualities: [88.0, 90.0, 92.0, 94.0, 96.0],
}];
