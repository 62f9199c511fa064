//! Pixels to the network's input: a recipe of transforms draws from (seed, epoch, sample) what of an image is
//! shown, then one fused pass of antialiased resize, colour conversion, normalisation, cast and store.

pub(crate) mod cuda;
mod kernels;
mod mask;
mod names;
mod recipe;
mod render;
mod upsample;
mod view;
mod weights;

pub(crate) use mask::render_mask;
pub(crate) use recipe::{BadParameter, CROP_RATIO, CROP_SCALE};
pub(crate) use recipe::{DrawnView, DrawnViews, LARGEST_SIDE, RecipeKeys, RecipeView, Renderer};
pub use recipe::{ImageTransforms, Recipe, Sides, Transform, Transforms};
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

/// What the four numbers of a box are, in pixels: torchvision's `BoundingBoxFormat`.
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
    /// twice as many pixels as the width; there a fifth of the values differ by one level, and by bicubic filters more
    /// where black and white meet, which overshoots are clamped at.)
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
    pub mean: [f64; 3],
    /// Divided by per channel, after the mean.
    pub std: [f64; 3],
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
