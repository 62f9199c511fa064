//! Orientations: how the stored pixels of an image are mirrored and transposed so that the image is upright.

use super::Region;

/// For each EXIF orientation from 1 on: whether columns are mirrored (1), rows are mirrored (2), and whether both axes
/// were exchanged before (4).
const OF_EXIF: [u8; 8] = [0, 1, 3, 2, 4, 5, 7, 6];

/// How an image is shown, compared with how it is stored: the stored image is first transposed (rows become columns) or
/// not, and then its columns and its rows are mirrored or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turn(u8);

impl Turn {
    /// Images that are shown as they are stored.
    pub const UPRIGHT: Self = Self(0);

    /// Returns what an EXIF orientation means. Anything but 2 to 8 means upright.
    pub fn of_exif(orientation: Option<u8>) -> Self {
        Self(
            orientation
                .and_then(|from_1| OF_EXIF.get(usize::from(from_1).wrapping_sub(1)).copied())
                .unwrap_or(0),
        )
    }

    /// Returns the EXIF orientation, 1 to 8.
    pub fn exif(self) -> u8 {
        OF_EXIF.iter().position(|&turn| turn == self.0).map_or(1, |at| at as u8 + 1)
    }

    /// Returns whether rows become columns.
    pub fn transposes(self) -> bool {
        self.0 & 4 != 0
    }

    /// Returns whether columns are mirrored (left and right), and whether rows are. Both are counted in the image as it
    /// is shown.
    pub fn mirrors(self) -> [bool; 2] {
        [self.0 & 1 != 0, self.0 & 2 != 0]
    }

    /// Returns the width and height of the shown image.
    pub fn shown(self, (width, height): (u32, u32)) -> (u32, u32) {
        if self.transposes() { (height, width) } else { (width, height) }
    }

    /// Returns the part of the stored image that becomes `region` of the shown image of `size` (width, height).
    pub fn stored_region(self, region: Region, (width, height): (u32, u32)) -> Region {
        let [across, down] = self.mirrors();
        let start = |mirror, start, length, full: u32| if mirror { full - start - length } else { start };
        let x = start(across, region.x, region.width, width);
        let y = start(down, region.y, region.height, height);
        self.transposed_region(Region { x, y, ..region })
    }

    /// Exchanges the axes of a region if this turn exchanges those of the image.
    pub(crate) fn transposed_region(self, Region { x, y, width, height }: Region) -> Region {
        match self.transposes() {
            true => Region { x: y, y: x, width: height, height: width },
            false => Region { x, y, width, height },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orientations_are_those_of_exif() {
        // The corners of a stored image of 3×2 pixels, as the standard says where they are shown: the first row of
        // orientation 6 is the visual right side, and its first column the visual top.
        let shown = |orientation| {
            let turn = Turn::of_exif(Some(orientation));
            assert_eq!(turn.exif(), orientation);
            let (width, height) = turn.shown((3, 2));
            let pixel = |x, y| {
                let Region { x, y, .. } =
                    turn.stored_region(Region { x, y, width: 1, height: 1 }, (width, height));
                y * 3 + x
            };
            (0..height).flat_map(|y| (0..width).map(move |x| pixel(x, y))).collect::<Vec<_>>()
        };
        assert_eq!(shown(1), [0, 1, 2, 3, 4, 5]);
        assert_eq!(shown(2), [2, 1, 0, 5, 4, 3]);
        assert_eq!(shown(3), [5, 4, 3, 2, 1, 0]);
        assert_eq!(shown(4), [3, 4, 5, 0, 1, 2]);
        assert_eq!(shown(5), [0, 3, 1, 4, 2, 5]);
        assert_eq!(shown(6), [3, 0, 4, 1, 5, 2]);
        assert_eq!(shown(7), [5, 2, 4, 1, 3, 0]);
        assert_eq!(shown(8), [2, 5, 1, 4, 0, 3]);
        for none in [None, Some(0), Some(1), Some(9)] {
            assert_eq!(Turn::of_exif(none), Turn::UPRIGHT);
        }
    }
}
