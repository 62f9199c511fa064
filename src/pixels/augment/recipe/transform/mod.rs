//! The transforms that a list may have, with torchvision v2's names, parameters and defaults.
//!
//! Each is a type in the file of its kind, which says all about it: a [`GeometryTransform`], of which lists fold all
//! into one view; a [`PixelTransform`], which draws operations; or the type of the result.

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
pub use values::{BadParameter, LARGEST_SIDE, Sides};

use super::draw::PixelDraw;
use super::geometry::{GeometryBuilder, GeometryDraw};
use crate::augment::ImageSize;
use crate::augment::mix::{CutMix, MixUp};
use colours::{ColorJitter, Grayscale, RandomChannelPermutation, RandomGrayscale, RandomPhotometricDistort};
use containers::{RandomApply, RandomChoice, RandomOrder, all_suit};
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

/// What a transform of geometry says of itself. A list folds all of these into one view.
pub(in crate::augment::recipe) trait GeometryTransform {
    /// Checks what can be wrong with its parameters by themselves.
    fn check(&self) -> Result<(), BadParameter>;

    /// Whether it draws random numbers.
    fn is_random(&self) -> bool {
        true
    }

    /// The grey levels of pixels that it adds.
    fn fill(&self) -> [u8; 3] {
        [0; 3]
    }

    /// Joins the transforms that come before it in a list.
    ///
    /// # Errors
    /// The message why it cannot follow them and what to do, to follow its name.
    fn join(&self, list: &mut GeometryBuilder) -> Result<(), String>;

    /// Applies it to one image, with random numbers in the order in which torchvision draws them.
    ///
    /// # Errors
    /// Why it cannot be done to an image of that size, to follow its name.
    fn apply(&self, draw: &mut GeometryDraw<'_>) -> Result<(), String>;
}

/// What a transform that changes pixels behind the geometry says of itself.
pub(in crate::augment::recipe) trait PixelTransform {
    /// Checks what can be wrong with its parameters by themselves.
    fn check(&self) -> Result<(), BadParameter> {
        Ok(())
    }

    /// Checks that it may stand at this place of a list.
    ///
    /// # Errors
    /// What is wrong and what to do, to follow its name.
    fn suits(&self, place: PixelPlace) -> Result<(), String> {
        match self.children() {
            Some(children) => all_suit(children, place),
            None if place.is_float => Err("works on grey levels: put it before ToDtype".into()),
            None => Ok(()),
        }
    }

    /// Whether it draws random numbers.
    fn is_random(&self) -> bool {
        true
    }

    /// The transforms of which it applies some; `None` for one that holds none.
    fn children(&self) -> Option<&[Transform]> {
        None
    }

    /// The most chains of operations that an image goes through side by side, before they are mixed.
    fn most_chains(&self) -> usize {
        self.children().unwrap_or_default().iter().map(Transform::most_chains).max().unwrap_or(0)
    }

    /// Draws what it does to one image, in the order in which torchvision draws.
    ///
    /// # Errors
    /// Why it cannot be done to an image of that size, to follow its name.
    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String>;
}

/// A place in a list, behind its geometry.
#[derive(Debug, Clone, Copy)]
pub(in crate::augment::recipe) struct PixelPlace {
    /// Whether values are floats there, and grey levels no more.
    pub(in crate::augment::recipe) is_float: bool,
    /// The size of the output, where every image has the same.
    pub(in crate::augment::recipe) size: Option<ImageSize>,
}

/// Makes the type of all transforms and the table of them, and says what each is: geometry; the type of the result; or
/// what changes pixels behind the geometry. Of these it says which mind places: what they draw treats left and right,
/// or top and bottom, differently, so that mirroring cannot be moved across it. Each is in one of the lists; those that
/// hold others mind places where one of these does.
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
            /// The name that torchvision gives the transform, by which its random numbers are keyed, too.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$geometry(_) => stringify!($geometry),)+
                    $(Self::$typed(_) => stringify!($typed),)+
                    $(Self::$alike(_) => stringify!($alike),)+
                    $(Self::$placed(_) => stringify!($placed),)+
                    $(Self::$holder(_) => stringify!($holder),)+
                }
            }

            /// The transform as one of geometry; `None` for others.
            pub(in crate::augment::recipe) fn geometry(&self) -> Option<&dyn GeometryTransform> {
                match self {
                    $(Self::$geometry(transform) => Some(transform),)+
                    _ => None,
                }
            }

            /// The transform as one that changes pixels; `None` for geometry and the element type.
            pub(in crate::augment::recipe) fn pixels(&self) -> Option<&dyn PixelTransform> {
                match self {
                    $(Self::$alike(transform) => Some(transform),)+
                    $(Self::$placed(transform) => Some(transform),)+
                    $(Self::$holder(transform) => Some(transform),)+
                    $(Self::$geometry(_))|+ | $(Self::$typed(_))|+ => None,
                }
            }

            /// Whether what the transform draws treats left and right, or top and bottom, differently, so that
            /// mirroring cannot be moved across it.
            pub(in crate::augment::recipe) fn minds_places(&self) -> bool {
                match self {
                    $(Self::$placed(_))|+ => true,
                    $(Self::$holder(_))|+ => self.children().iter().any(Self::minds_places),
                    $(Self::$geometry(_))|+ | $(Self::$typed(_))|+ | $(Self::$alike(_))|+ => false,
                }
            }

            /// Checks what can be wrong with a transform by itself.
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
    /// Whether the transform draws random numbers.
    pub(super) fn is_random(&self) -> bool {
        self.geometry().is_some_and(GeometryTransform::is_random)
            || self.pixels().is_some_and(PixelTransform::is_random)
    }

    /// Whether the transform changes pixels behind the geometry, by operations that it draws.
    pub(super) fn changes_pixels(&self) -> bool {
        self.pixels().is_some()
    }

    /// Whether the transform mirrors, which can be done in the geometry and behind it.
    pub(super) fn mirrors(&self) -> bool {
        matches!(self, Self::RandomHorizontalFlip(_) | Self::RandomVerticalFlip(_))
    }

    /// Whether the transform chooses by the boxes of a sample.
    pub(super) fn chooses_by_boxes(&self) -> bool {
        matches!(self, Self::RandomIoUCrop(_))
    }

    /// The transforms of which this one applies some.
    pub(super) fn children(&self) -> &[Transform] {
        self.pixels().and_then(PixelTransform::children).unwrap_or_default()
    }

    /// The most chains of operations that an image goes through side by side, before they are mixed.
    pub(super) fn most_chains(&self) -> usize {
        self.pixels().map_or(0, PixelTransform::most_chains)
    }
}
