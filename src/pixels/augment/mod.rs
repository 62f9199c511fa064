//! Augmentation: turns decoded planes into the tensors that a network takes.
//!
//! A recipe of transforms (`recipe/`) draws from (seed, epoch, sample) which part of an image becomes the output: a
//! view. One fused pass (`render.rs`) then resizes with antialiasing, converts colours, normalises, casts and stores.
//! Operations on grey levels (`ops/`) run after the resize and before the normalisation. `mix/` mixes finished images
//! of a batch (MixUp, CutMix).
//!
//! `cuda/` describes the same work to the GPU kernels in the repository's `cuda/` folder. Tests also compile these
//! kernels with a C compiler and compare them with the CPU, bit for bit.

mod canvas;
pub mod cuda;
mod kernels;
mod mask;
mod mix;
mod ops;
mod patches;
mod recipe;
mod render;
mod size;
mod taps;
mod turned;
mod upsample;
mod view;
mod weights;

pub use canvas::{CanvasAxis, CanvasPainter, PaddedCanvas};
pub use mask::render_mask;
pub use mix::{DrawnMix, MIX_GROUP_SIZE, MixKeys, MixRegion, MixWeights, Mixing, mix_images, partner};
pub use ops::replay as replay_operations;
pub use patches::{patch_positions, patches};
pub use recipe::{BadParameter, CROP_RATIO, CROP_SCALE, SizeParameter};
pub use recipe::{CenterCrop, Normalize, RandomHorizontalFlip, RandomResizedCrop, ToDtype, WholeResize};
pub use recipe::{DrawnView, DrawnViews, MAX_SIDE, RecipeKeys, RecipeView};
pub use recipe::{ImageTransforms, Recipe, Renderer, Transform, Transforms};
pub use recipe::{RandomCrop, ResizeToCover};
pub use recipe::{transforms_json, transforms_stub};
pub use render::Augmenter;
pub use size::ImageSize;
pub use turned::ImageToDraw;
pub use view::{Axis, Filter, Padding, View};

use base::names::named;

/// The element type of the images tensor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DType {
    /// 32-bit float.
    #[default]
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// Grey levels 0..=255, not normalised.
    U8,
}

named!(DType: "float32" => F32, "float16" => F16, "bfloat16" => Bf16, "uint8" => U8);

impl DType {
    /// Returns the size of an element in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::U8 => 1,
        }
    }
}

/// The meaning of a box's four numbers, which are in pixels: torchvision's `BoundingBoxFormat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BoxFormat {
    /// Left, top, right, bottom.
    #[default]
    Xyxy,
    /// Left, top, width, height.
    Xywh,
    /// The centre's x and y, width, height.
    Cxcywh,
}

named!(BoxFormat: "xyxy" => Xyxy, "xywh" => Xywh, "cxcywh" => Cxcywh);

/// The order of the dimensions of one image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemoryFormat {
    /// Channel, row, column.
    #[default]
    Nchw,
    /// Row, column, channel.
    Nhwc,
}

named!(MemoryFormat: "nchw" => Nchw, "nhwc" => Nhwc);

/// How closely the arithmetic follows PIL and torchvision (the setting `decode`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fidelity {
    /// The planes are resized, and colours are converted at output size.
    #[default]
    Fast,
    /// The arithmetic of PIL and torchvision. Chroma is upsampled, and colours are converted and clamped at source
    /// resolution. Then columns are resized before rows, and values are rounded to integer grey levels in between.
    /// (Pillow 13 resizes rows first if the height shrinks by more than twice as many pixels as the width. For such
    /// images, a fifth of the values differ by one level. With bicubic and Lanczos filters, they differ by more where
    /// black and white meet, because overshoots are clamped between the passes.)
    Exact,
}

named!(Fidelity: "fast" => Fast, "exact" => Exact);

/// The output of the pass for each image: always three channels, R, G, B.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The number of rows.
    pub height: u32,
    /// The number of columns.
    pub width: u32,
    /// The element type.
    pub dtype: DType,
    /// The order of dimensions.
    pub format: MemoryFormat,
    /// The mean of each channel, which is subtracted from values scaled to 0..1.
    pub mean: [f64; 3],
    /// The standard deviation of each channel, by which the difference is divided.
    pub std: [f64; 3],
    /// The grey levels of R, G and B, before normalisation, of pixels outside of the image with [`Padding::Constant`].
    pub fill: [u8; 3],
    /// How closely the arithmetic follows PIL and torchvision.
    pub fidelity: Fidelity,
}

impl Output {
    /// Returns the size of one image in bytes.
    pub fn bytes(&self) -> usize {
        3 * self.height as usize * self.width as usize * self.dtype.size()
    }

    /// Converts the values of a finished image back to grey levels: R, G and B of each pixel, row by row.
    pub fn levels_of(&self, image: &[u8]) -> Vec<u8> {
        let (size, pixels) = (self.dtype.size(), self.width as usize * self.height as usize);
        let level = |at: usize| {
            let (pixel, channel) = (at / 3, at % 3);
            let place = match self.format {
                MemoryFormat::Nchw => channel * pixels + pixel,
                MemoryFormat::Nhwc => at,
            };
            let value = match (self.dtype, &image[place * size..][..size]) {
                (DType::U8, levels) => return levels[0],
                (DType::F32, value) => f32::from_ne_bytes(value.try_into().expect("four bytes")),
                (DType::F16, value) => {
                    half::f16::from_ne_bytes(value.try_into().expect("two bytes")).to_f32()
                }
                (DType::Bf16, value) => {
                    half::bf16::from_ne_bytes(value.try_into().expect("two bytes")).to_f32()
                }
            };
            // The cast saturates, because values may be outside of 0..=255, for example after noise was added.
            ((f64::from(value) * self.std[channel] + self.mean[channel]) * 255.0).round() as u8
        };
        (0..3 * pixels).map(level).collect()
    }
}
