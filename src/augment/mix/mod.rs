//! MixUp and CutMix: what becomes of two finished images of a batch, and of their labels.
//!
//! An image is mixed with one partner. The draw is one for a global batch, by its number in the epoch, so that neither
//! threads nor ranks can change it. [`Mixing`] is the user's list, checked; [`Mixing::draw`] says what becomes of the
//! pairs of a batch, and [`mix_images`] does it in place.

mod draw;
mod pixels;
mod request;

pub(crate) use draw::{DrawnMix, MixKeys, MixRegion};
pub(crate) use pixels::{MixWeights, mix_images};
pub use request::Mixing;
