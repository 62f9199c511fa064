//! The transforms that a list may have, with torchvision v2's names, parameters and defaults.
//!
//! Each transform is a row of one table (`table.rs`): a Rust type with its parameters, defaults and comments, in the
//! file of its kind. The table reads the JSON of lists. `foreload.transforms` makes its classes from the table at
//! import; only the checks of types are in Python.
//!
//! A transform is a [`GeometryTransform`], and those of a list fold into one view; or a [`PixelTransform`], which draws
//! operations; or it sets the type of the result.

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
mod policies;
mod resizes;
pub(crate) mod table;
mod values;
mod warps;

pub use conversion::{Normalize, ToDtype};
pub use crops::CenterCrop;
pub use flips::RandomHorizontalFlip;
pub use resizes::{RandomResizedCrop, WholeResize};
pub use table::{transforms_json, transforms_stub};

pub(crate) use values::check_choice;
pub use values::{BadParameter, MAX_SIDE, Sides};

use super::draw::PixelDraw;
use super::geometry::{GeometryBuilder, GeometryDraw};
use crate::augment::ImageSize;
use crate::augment::mix::{CutMix, MixUp};
use colours::{ColorJitter, Grayscale, RandomChannelPermutation, RandomGrayscale, RandomPhotometricDistort};
use containers::{RandomApply, RandomChoice, RandomOrder, check_children_places};
use crops::RandomCrop;
use erasing::RandomErasing;
use filters::{GaussianBlur, RandomAdjustSharpness};
use flips::RandomVerticalFlip;
use iou_crop::RandomIoUCrop;
use levels::{RandomAutocontrast, RandomEqualize, RandomInvert, RandomPosterize, RandomSolarize};
use pads::{Pad, RandomZoomOut};
use policies::{AugMix, AutoAugment, RandAugment, TimmRandAugment, TrivialAugmentWide};
use resizes::{RandomResize, RandomShortestSize, ScaleJitter, WholeResize as Resize};
use serde::Deserialize;
use table::TransformRow;
use warps::{RandomAffine, RandomRotation};

/// The default bounds of a random crop's share of the image's area.
pub const CROP_SCALE: (f64, f64) = (0.08, 1.0);

/// The default bounds of a random crop's width / height.
pub const CROP_RATIO: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);

/// A transform of geometry. Those of a list fold into one view.
pub(in crate::augment::recipe) trait GeometryTransform {
    /// Checks its parameters by themselves.
    fn check(&self) -> Result<(), BadParameter>;

    /// Returns whether it draws random numbers.
    fn is_random(&self) -> bool {
        true
    }

    /// Returns the grey levels of pixels that it adds.
    fn fill(&self) -> [u8; 3] {
        [0; 3]
    }

    /// Adds itself to the geometry of a list.
    ///
    /// # Errors
    /// Why it cannot follow the transforms before it, and what to do. The message continues its name.
    fn join(&self, list: &mut GeometryBuilder) -> Result<(), String>;

    /// Applies it to one image, with random numbers in the order in which torchvision draws them.
    ///
    /// # Errors
    /// Why it cannot be applied to an image of that size. The message continues its name.
    fn apply(&self, draw: &mut GeometryDraw<'_>) -> Result<(), String>;
}

/// A transform that changes pixels after the geometry.
pub(in crate::augment::recipe) trait PixelTransform {
    /// Checks its parameters by themselves.
    fn check(&self) -> Result<(), BadParameter> {
        Ok(())
    }

    /// Checks that it may be at this place of a list.
    ///
    /// # Errors
    /// What is wrong and what to do. The message continues its name.
    fn suits(&self, place: PixelPlace) -> Result<(), String> {
        match self.children() {
            Some(children) => check_children_places(children, place),
            None if place.is_float => Err("works on uint8 grey levels: put it before ToDtype".into()),
            None => Ok(()),
        }
    }

    /// Returns whether it draws random numbers.
    fn is_random(&self) -> bool {
        true
    }

    /// Returns the transforms inside of a container; `None` for other transforms.
    fn children(&self) -> Option<&[Transform]> {
        None
    }

    /// Returns the largest number of chains of operations whose results are mixed.
    fn most_chains(&self) -> usize {
        self.children().unwrap_or_default().iter().map(Transform::most_chains).max().unwrap_or(0)
    }

    /// Draws its operations on one image, in the order in which torchvision draws.
    ///
    /// # Errors
    /// Why it cannot be applied to an image of that size. The message continues its name.
    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String>;
}

/// A place in a list, after its geometry.
#[derive(Debug, Clone, Copy)]
pub(in crate::augment::recipe) struct PixelPlace {
    /// Whether values are floats there instead of grey levels.
    pub(in crate::augment::recipe) is_float: bool,
    /// The size of the output, if every image has the same.
    pub(in crate::augment::recipe) size: Option<ImageSize>,
}

/// Defines the type of all transforms and their table. Each transform is in one of these lists: geometry; the type of
/// the result; or the three lists of transforms that change pixels after the geometry. Those differ in whether
/// mirroring can be moved across a transform. It cannot if the drawn operations treat left and right, or top and
/// bottom, differently ("by their places"). For containers it depends on what they contain.
macro_rules! kinds {
    (
        geometry: $($geometry:ident),+;
        type: $($typed:ident),+;
        pixels, all alike: $($alike:ident),+;
        pixels, by their places: $($placed:ident),+;
        pixels, as others do: $($holder:ident),+ $(,)?
    ) => {
        /// One transform of a list. Each variant has the name and the parameters of a class of torchvision v2.
        #[derive(Debug, Clone, PartialEq, Deserialize)]
        #[allow(missing_docs, reason = "each has the comment of its type")]
        pub enum Transform {
            $($geometry($geometry),)+
            $($alike($alike),)+
            $($placed($placed),)+
            $($holder($holder),)+
            $($typed($typed),)+
        }

        /// The table of all transforms, in the order in which messages list them.
        fn transform_table() -> Vec<TransformRow> {
            vec![
                $(TransformRow::of::<$geometry>(stringify!($geometry)),)+
                $(TransformRow::of::<$alike>(stringify!($alike)),)+
                $(TransformRow::of::<$placed>(stringify!($placed)),)+
                $(TransformRow::of::<$holder>(stringify!($holder)),)+
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
                    $(Self::$alike(_) => stringify!($alike),)+
                    $(Self::$placed(_) => stringify!($placed),)+
                    $(Self::$holder(_) => stringify!($holder),)+
                }
            }

            /// Returns the transform as one of geometry; `None` for others.
            pub(in crate::augment::recipe) fn geometry(&self) -> Option<&dyn GeometryTransform> {
                match self {
                    $(Self::$geometry(transform) => Some(transform),)+
                    _ => None,
                }
            }

            /// Returns the transform as one that changes pixels; `None` for geometry and the element type.
            pub(in crate::augment::recipe) fn pixels(&self) -> Option<&dyn PixelTransform> {
                match self {
                    $(Self::$alike(transform) => Some(transform),)+
                    $(Self::$placed(transform) => Some(transform),)+
                    $(Self::$holder(transform) => Some(transform),)+
                    $(Self::$geometry(_))|+ | $(Self::$typed(_))|+ => None,
                }
            }

            /// Returns whether the drawn operations treat left and right, or top and bottom, differently, so that
            /// mirroring cannot be moved across them.
            pub(in crate::augment::recipe) fn minds_places(&self) -> bool {
                match self {
                    $(Self::$placed(_))|+ => true,
                    $(Self::$holder(_))|+ => self.children().iter().any(Self::minds_places),
                    $(Self::$geometry(_))|+ | $(Self::$typed(_))|+ | $(Self::$alike(_))|+ => false,
                }
            }

            /// Checks the transform's parameters by themselves.
            pub fn check(&self) -> Result<(), BadParameter> {
                match self {
                    $(Self::$geometry(transform) => transform.check(),)+
                    $(Self::$typed(transform) => transform.check(),)+
                    $(Self::$alike(transform) => transform.check(),)+
                    $(Self::$placed(transform) => transform.check(),)+
                    $(Self::$holder(transform) => transform.check(),)+
                }
            }
        }
    };
}

kinds! {
    geometry: RandomResizedCrop, Resize, RandomResize, RandomShortestSize, ScaleJitter, CenterCrop, RandomCrop, Pad,
        RandomZoomOut, RandomIoUCrop, RandomHorizontalFlip, RandomVerticalFlip;
    type: ToDtype, Normalize;
    pixels, all alike: Grayscale, RandomGrayscale, ColorJitter, RandomPhotometricDistort, RandomChannelPermutation,
        RandomInvert, RandomPosterize, RandomSolarize, RandomAutocontrast, RandomEqualize, RandomAdjustSharpness,
        GaussianBlur;
    pixels, by their places: RandomRotation, RandomAffine, AutoAugment, RandAugment, TrivialAugmentWide, AugMix,
        TimmRandAugment, RandomErasing;
    pixels, as others do: RandomApply, RandomChoice, RandomOrder,
}

impl Transform {
    /// Returns whether the transform draws random numbers.
    pub(super) fn is_random(&self) -> bool {
        self.geometry().is_some_and(GeometryTransform::is_random)
            || self.pixels().is_some_and(PixelTransform::is_random)
    }

    /// Returns whether the transform changes pixels after the geometry, by operations that it draws.
    pub(super) fn changes_pixels(&self) -> bool {
        self.pixels().is_some()
    }

    /// Returns whether the transform mirrors, which can be done in the geometry or after it.
    pub(super) fn mirrors(&self) -> bool {
        matches!(self, Self::RandomHorizontalFlip(_) | Self::RandomVerticalFlip(_))
    }

    /// Returns whether the transform chooses by the boxes of a sample.
    pub(super) fn chooses_by_boxes(&self) -> bool {
        matches!(self, Self::RandomIoUCrop(_))
    }

    /// Returns the transforms inside of a container; none for other transforms.
    pub(super) fn children(&self) -> &[Transform] {
        self.pixels().and_then(PixelTransform::children).unwrap_or_default()
    }

    /// Returns the largest number of chains of operations whose results are mixed.
    pub(super) fn most_chains(&self) -> usize {
        self.pixels().map_or(0, PixelTransform::most_chains)
    }
}
