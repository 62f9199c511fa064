//! The size of an image with named sides, because settings and tensors give the height first, and files the width.

/// The size of an image in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSize {
    /// The number of columns.
    pub width: u32,
    /// The number of rows.
    pub height: u32,
}

impl ImageSize {
    /// The longer side.
    pub fn longest(self) -> u32 {
        self.width.max(self.height)
    }
}
