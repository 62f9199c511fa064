//! The transform that cuts images into patches.

use super::table::transform;
use super::values::{BadParameter, check_length};
use super::{GeometryBuilder, GeometryDraw, GeometryTransform};
use crate::augment::ImageSize;
use crate::augment::recipe::torchvision::centred;

transform! {
    /// Cuts an image into square patches, as vision transformers take images of any size. It is the last of the list.
    ///
    /// The image is cropped to whole patches as by `CenterCrop`, together with the crops of the list. Images that are
    /// smaller than a patch fail their samples. `batch["image"]` is then a tuple of three tensors. The values are those
    /// of the patches of all images, row by row of each image, `[patches, 3 * patch * patch]`. The values of a patch
    /// are in the order of `memory_format`: (channel, row, column), or (row, column, channel) with `nhwc`. The second,
    /// int32 `[n + 1]`, has the index of each image's first patch, then the number of all patches (`cu_seqlens`). The
    /// third, int32 `[patches, 2]`, has the row and the column of each patch in its image.
    pub Patchify {
        /// The side of a patch in pixels.
        pub patch: u32;
    }
}

impl Patchify {
    fn whole(&self, ImageSize { width, height }: ImageSize) -> Result<ImageSize, String> {
        let [w, h] = [width, height].map(|side| side / self.patch * self.patch);
        match w.min(h) {
            0 => Err(format!(
                "needs images of at least {0}×{0} pixels, this one has {width}×{height}",
                self.patch
            )),
            _ => Ok(ImageSize { width: w, height: h }),
        }
    }
}

impl GeometryTransform for Patchify {
    fn check(&self) -> Result<(), BadParameter> {
        check_length("patch", self.patch)
    }

    fn is_random(&self) -> bool {
        false
    }

    fn add_to(&self, list: &mut GeometryBuilder) -> Result<(), String> {
        let size = list.size().map(|size| self.whole(size)).transpose()?;
        list.cut(size);
        Ok(())
    }

    fn apply(&self, draw: &mut GeometryDraw<'_>) -> Result<(), String> {
        let ImageSize { width, height } = draw.fold.size();
        let ImageSize { width: w, height: h } = self.whole(draw.fold.size())?;
        draw.fold.crop([centred(width - w), centred(height - h), w, h]);
        Ok(())
    }
}
