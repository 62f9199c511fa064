//! The transforms that a list may have, with torchvision v2's names, parameters and defaults.
//!
//! Each transform is a row of one table (`table.rs`): a Rust type with its parameters, defaults and comments, in the
//! file of its kind. The table reads the JSON of lists. `foreload.transforms` makes its classes from the table at
//! import; only the checks of types are in Python.
//!
//! There are three kinds. The [`GeometryTransform`]s of a list are combined into one view: a crop with a resize and
//! flips. A [`PixelTransform`] draws operations on the pixels of the view. The remaining transforms set the type of the
//! result.

mod colours;
mod containers;
mod conversion;
mod crops;
mod erasing;
mod filters;
mod flips;
mod iou_crop;
mod levels;
mod pads;
mod patchify;
mod policies;
mod resizes;
pub(crate) mod table;
mod values;
mod warps;

pub use conversion::{Normalize, ToDtype};
pub use crops::{CenterCrop, RandomCrop};
pub use flips::RandomHorizontalFlip;
pub use resizes::{RandomResizedCrop, ResizeToCover, WholeResize};
pub use table::{transforms_json, transforms_stub};

pub(crate) use values::check_choice;
pub use values::{BadParameter, MAX_SIDE, SizeParameter};

use super::draw::PixelDraw;
use super::geometry::{GeometryBuilder, GeometryDraw};
use crate::augment::ImageSize;
use crate::augment::mix::{CutMix, MixUp};
use colours::{ColorJitter, Grayscale, RandomChannelPermutation, RandomGrayscale, RandomPhotometricDistort};
use containers::{RandomApply, RandomChoice, RandomOrder, check_children_places};
use erasing::RandomErasing;
use filters::{GaussianBlur, RandomAdjustSharpness};
use flips::RandomVerticalFlip;
use iou_crop::RandomIoUCrop;
use levels::{RandomAutocontrast, RandomEqualize, RandomInvert, RandomPosterize, RandomSolarize};
use pads::{Pad, RandomZoomOut};
use patchify::Patchify;
use policies::{AugMix, AutoAugment, RandAugment, TimmRandAugment, TrivialAugmentWide};
use resizes::{RandomResize, RandomShortestSize, ScaleJitter, WholeResize as Resize};
use serde::Deserialize;
use table::TransformRow;
use warps::{RandomAffine, RandomRotation};

/// The default bounds of a random crop's area, as a share of the image's area.
pub const CROP_SCALE: (f64, f64) = (0.08, 1.0);

/// The default bounds of a random crop's width / height.
pub const CROP_RATIO: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);

/// A transform of geometry, for example a crop or a resize. All transforms of geometry in a list are combined into one
/// view: a crop with a resize and flips.
pub(in crate::augment::recipe) trait GeometryTransform {
    fn check(&self) -> Result<(), BadParameter>;

    fn is_random(&self) -> bool {
        true
    }

    /// Returns the colour (R, G, B) of the pixels that the transform adds around an image.
    fn fill(&self) -> [u8; 3] {
        [0; 3]
    }

    /// Adds the transform to the geometry of a list.
    ///
    /// # Errors
    /// The reason why the transform cannot follow the transforms before it, and what to do. The caller puts the
    /// transform's name in front of the message.
    fn add_to(&self, list: &mut GeometryBuilder) -> Result<(), String>;

    /// Applies the transform to one image, with random numbers in the order in which torchvision draws them.
    ///
    /// # Errors
    /// The reason why the transform cannot be applied to an image of that size. The caller puts the transform's name in
    /// front of the message.
    fn apply(&self, draw: &mut GeometryDraw<'_>) -> Result<(), String>;
}

/// A transform that changes pixels after the geometry.
pub(in crate::augment::recipe) trait PixelTransform {
    fn check(&self) -> Result<(), BadParameter> {
        Ok(())
    }

    /// Checks that the transform may be at this place of a list.
    ///
    /// # Errors
    /// What is wrong and what to do. The caller puts the transform's name in front of the message.
    fn check_place(&self, place: PixelPlace) -> Result<(), String> {
        match self.children() {
            Some(children) => check_children_places(children, place),
            None if place.is_float => Err("works on uint8 grey levels: put it before ToDtype".into()),
            None => Ok(()),
        }
    }

    fn is_random(&self) -> bool {
        true
    }

    /// Returns the transforms inside of a container; `None` for other transforms.
    fn children(&self) -> Option<&[Transform]> {
        None
    }

    /// Returns how many chains of operations the widest AugMix among this transform and its children mixes; 0 without
    /// AugMix.
    fn max_chains(&self) -> usize {
        self.children().unwrap_or_default().iter().map(Transform::max_chains).max().unwrap_or(0)
    }

    /// Draws the transform's operations on one image, with random numbers in the order in which torchvision draws them.
    ///
    /// # Errors
    /// The reason why the transform cannot be applied to an image of that size. The caller puts the transform's name in
    /// front of the message.
    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String>;
}

/// A place in a list of transforms, after the list's geometry.
#[derive(Debug, Clone, Copy)]
pub(in crate::augment::recipe) struct PixelPlace {
    /// Whether values are floats at this place, not grey levels.
    pub(in crate::augment::recipe) is_float: bool,
    /// The size of the output, if all images have the same size.
    pub(in crate::augment::recipe) size: Option<ImageSize>,
}

/// Defines the type of all transforms and their table. Each transform is in one of these lists: geometry; the type of
/// the result; or one of three lists of transforms that change pixels after the geometry. These three lists differ in
/// whether mirroring can be moved across a transform. It cannot if the drawn operations treat left and right, or top
/// and bottom, differently ("position dependent"). For containers, this depends on the transforms inside.
macro_rules! kinds {
    (
        geometry: $($geometry:ident),+;
        type: $($typed:ident),+;
        position independent: $($independent:ident),+;
        position dependent: $($dependent:ident),+;
        containers: $($container:ident),+ $(,)?
    ) => {
        /// One transform of a list. Each variant has the name and the parameters of a class of torchvision v2.
        #[derive(Debug, Clone, PartialEq, Deserialize)]
        #[allow(missing_docs, reason = "each has the comment of its type")]
        pub enum Transform {
            $($geometry($geometry),)+
            $($independent($independent),)+
            $($dependent($dependent),)+
            $($container($container),)+
            $($typed($typed),)+
        }

        /// The table of all transforms, in the order in which messages list them.
        fn transform_table() -> Vec<TransformRow> {
            vec![
                $(TransformRow::of::<$geometry>(stringify!($geometry)),)+
                $(TransformRow::of::<$independent>(stringify!($independent)),)+
                $(TransformRow::of::<$dependent>(stringify!($dependent)),)+
                $(TransformRow::of::<$container>(stringify!($container)),)+
                $(TransformRow::of::<$typed>(stringify!($typed)),)+
                TransformRow::of::<MixUp>("MixUp"),
                TransformRow::of::<CutMix>("CutMix"),
            ]
        }

        impl Transform {
            /// Returns torchvision's name of the transform, which is part of the key of its random numbers.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$geometry(_) => stringify!($geometry),)+
                    $(Self::$typed(_) => stringify!($typed),)+
                    $(Self::$independent(_) => stringify!($independent),)+
                    $(Self::$dependent(_) => stringify!($dependent),)+
                    $(Self::$container(_) => stringify!($container),)+
                }
            }

            pub(in crate::augment::recipe) fn geometry(&self) -> Option<&dyn GeometryTransform> {
                match self {
                    $(Self::$geometry(transform) => Some(transform),)+
                    _ => None,
                }
            }

            pub(in crate::augment::recipe) fn pixels(&self) -> Option<&dyn PixelTransform> {
                match self {
                    $(Self::$independent(transform) => Some(transform),)+
                    $(Self::$dependent(transform) => Some(transform),)+
                    $(Self::$container(transform) => Some(transform),)+
                    $(Self::$geometry(_))|+ | $(Self::$typed(_))|+ => None,
                }
            }

            /// Returns whether the drawn operations treat left and right, or top and bottom, differently, so that
            /// mirroring cannot be moved across them.
            pub(in crate::augment::recipe) fn depends_on_position(&self) -> bool {
                match self {
                    $(Self::$dependent(_))|+ => true,
                    $(Self::$container(_))|+ => self.children().iter().any(Self::depends_on_position),
                    $(Self::$geometry(_))|+ | $(Self::$typed(_))|+ | $(Self::$independent(_))|+ => false,
                }
            }

            /// Checks the parameters of this transform alone.
            pub fn check(&self) -> Result<(), BadParameter> {
                match self {
                    $(Self::$geometry(transform) => transform.check(),)+
                    $(Self::$typed(transform) => transform.check(),)+
                    $(Self::$independent(transform) => transform.check(),)+
                    $(Self::$dependent(transform) => transform.check(),)+
                    $(Self::$container(transform) => transform.check(),)+
                }
            }
        }
    };
}

kinds! {
    geometry: RandomResizedCrop, Resize, ResizeToCover, RandomResize, RandomShortestSize, ScaleJitter, CenterCrop,
        RandomCrop, Pad,
        RandomZoomOut, RandomIoUCrop, RandomHorizontalFlip, RandomVerticalFlip, Patchify;
    type: ToDtype, Normalize;
    position independent: Grayscale, RandomGrayscale, ColorJitter, RandomPhotometricDistort, RandomChannelPermutation,
        RandomInvert, RandomPosterize, RandomSolarize, RandomAutocontrast, RandomEqualize, RandomAdjustSharpness,
        GaussianBlur;
    position dependent: RandomRotation, RandomAffine, AutoAugment, RandAugment, TrivialAugmentWide, AugMix,
        TimmRandAugment, RandomErasing;
    containers: RandomApply, RandomChoice, RandomOrder,
}

impl Transform {
    pub(super) fn is_random(&self) -> bool {
        self.geometry().is_some_and(GeometryTransform::is_random)
            || self.pixels().is_some_and(PixelTransform::is_random)
    }

    pub(super) fn changes_pixels(&self) -> bool {
        self.pixels().is_some()
    }

    pub(super) fn mirrors(&self) -> bool {
        matches!(self, Self::RandomHorizontalFlip(_) | Self::RandomVerticalFlip(_))
    }

    pub(super) fn chooses_by_boxes(&self) -> bool {
        matches!(self, Self::RandomIoUCrop(_))
    }

    /// Returns the side of the patches into which the transform cuts images, in pixels.
    pub(super) fn patch(&self) -> Option<u32> {
        match self {
            Self::Patchify(Patchify { patch }) => Some(*patch),
            _ => None,
        }
    }

    /// Whether the size of the transform's result is random, for images of one size.
    pub(super) fn draws_size(&self) -> bool {
        let fixed = matches!(self, Self::RandomResizedCrop(_) | Self::RandomCrop(_)) || self.mirrors();
        !fixed && self.geometry().is_some_and(GeometryTransform::is_random)
    }

    /// Returns the size that the transform gives images, if that is a parameter which may be `"bucket"`.
    pub(super) fn size_mut(&mut self) -> Option<&mut SizeParameter> {
        match self {
            Self::RandomResizedCrop(RandomResizedCrop { size, .. })
            | Self::ResizeToCover(ResizeToCover { size, .. })
            | Self::CenterCrop(CenterCrop { size })
            | Self::RandomCrop(RandomCrop { size, .. }) => Some(size),
            Self::Resize(resize) => resize.size.as_mut(),
            _ => None,
        }
    }

    pub(super) fn children(&self) -> &[Transform] {
        self.pixels().and_then(PixelTransform::children).unwrap_or_default()
    }

    pub(super) fn max_chains(&self) -> usize {
        self.pixels().map_or(0, PixelTransform::max_chains)
    }
}
