//! Colours: what is done to the grey levels of R, G and B of one image at the output's size, behind the geometry and before
//! the element type.

use super::transform::Transform;

/// A step; each works on whole planes, so that what needs a statistic of the image can have it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ColourStep {}

impl ColourStep {
    /// The step that a transform is, if it is one of colour.
    pub(super) fn of(transform: &Transform) -> Option<Self> {
        let _ = transform;
        None
    }

    /// The transform's name.
    pub(super) fn name(self) -> &'static str {
        match self {}
    }

    /// Changes the levels of one image; its planes are equally long.
    pub(super) fn apply(self, _planes: [&mut [u8]; 3]) {
        match self {}
    }
}
