//! Pixels to the network's input: random crop and flip drawn from (seed, epoch, sample), then one fused pass of
//! antialiased resize, colour conversion, normalisation, cast and store.

pub mod cuda;
mod kernels;
mod mask;
mod policy;
mod render;
mod upsample;
mod view;
mod weights;

pub use mask::{Nearest, render_mask};
pub use render::Augmenter;
pub use view::{Axis, Filter, Padding, View};

/// Element type of the images tensor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DType {
    /// 32-bit float.
    #[default]
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    Bf16,
    /// Grey levels 0..=255; not normalised.
    U8,
}

impl DType {
    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::U8 => 1,
        }
    }
}

/// Order of the dimensions of one image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemoryFormat {
    /// channel, row, column.
    #[default]
    Nchw,
    /// row, column, channel.
    Nhwc,
}

/// How faithful the arithmetic is (`decode=`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fidelity {
    /// Resize the planes, convert colours at output size.
    #[default]
    Fast,
    /// As PIL and torchvision: upsample chroma, convert and clamp at source resolution, then resize, columns before
    /// rows, with whole grey levels between. (Pillow 13 resizes rows first where the height shrinks by more than
    /// twice as many pixels as the width; there a fifth of the values differ by one level.)
    Exact,
}

/// What the pass writes for each image: always three channels, R, G, B.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
    /// Element type.
    pub dtype: DType,
    /// Order of dimensions.
    pub format: MemoryFormat,
    /// Subtracted per channel, of values scaled to 0..1.
    pub mean: [f32; 3],
    /// Divided by per channel, after the mean.
    pub std: [f32; 3],
    /// Grey levels of R, G and B, before normalisation, where a view shows no image and [`Padding::Constant`] pads.
    pub fill: [u8; 3],
    /// Arithmetic.
    pub fidelity: Fidelity,
}

impl Output {
    /// Bytes of one image.
    pub fn bytes(&self) -> usize {
        3 * self.height as usize * self.width as usize * self.dtype.size()
    }
}

/// Which part of an image to take.
#[derive(Debug, Clone, PartialEq)]
pub enum Policy {
    /// RandomResizedCrop(scale, ratio) + RandomHorizontalFlip(flip), distributed as torchvision's.
    Train {
        /// Bounds of the crop's share of the image area.
        scale: (f64, f64),
        /// Bounds of the crop's width / height.
        ratio: (f64, f64),
        /// Probability of a flip.
        flip: f64,
    },
    /// Resize the shorter side to `resize`, then CenterCrop to the output size, as torchvision's.
    Eval {
        /// Shorter side in pixels.
        resize: u32,
    },
}
