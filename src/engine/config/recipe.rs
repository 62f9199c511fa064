//! The transforms of images: the user's list, or the list that is equivalent to the flat settings (`image_size`, `flip`
//! and so on). Also chooses the device, which must support these transforms.

use super::device::{self, AllowedBackends, ChosenDevice, CpuDecode, Device, GpuDecoder};
use super::views::ViewKind;
use super::{Fields, ImageField, Images, LoaderKind, LoaderOptions};
use base::error::{Error, Result};
use data::dataset::DatasetIndex;
use pixels::augment::{
    BadParameter, CenterCrop, DType, MAX_SIDE, Normalize, RandomCrop, RandomHorizontalFlip,
    RandomResizedCrop, Recipe, RecipeView, ResizeToCover, SizeParameter, ToDtype, Transform, Transforms,
    WholeResize,
};

/// The flat settings that a list of transforms replaces, each with the transform to use instead.
const INCLUDED_IN_TRANSFORMS: &[(&str, &str)] = &[
    ("image_size", "the size of RandomResizedCrop, RandomCrop, Resize or CenterCrop"),
    ("image_size_from", "the same size for all epochs"),
    ("scale", "RandomResizedCrop(scale=...)"),
    ("ratio", "RandomResizedCrop(ratio=...)"),
    ("flip", "RandomHorizontalFlip(p)"),
    ("resize", "Resize(size)"),
    ("dtype", "ToDtype(dtype)"),
    ("mean", "Normalize(mean, std)"),
    ("std", "Normalize(mean, std)"),
];

/// Refuses a setting in `given` that repeats what `transforms` says.
///
/// # Errors
/// [`Error::Config`] that names the setting and its equivalent in `transforms`.
pub fn check_given_once(given: &[&str]) -> Result<()> {
    match INCLUDED_IN_TRANSFORMS.iter().find(|(setting, _)| given.contains(setting)) {
        None => Ok(()),
        Some((setting, by)) => Err(Error::config(
            setting,
            format!("cannot be combined with transforms, where {by} replaces it: remove one of the two"),
        )),
    }
}

impl LoaderOptions {
    fn default_transforms(&self) -> Vec<Transform> {
        let (height, width) = self.image_size;
        let size = SizeParameter::Both([height, width]);
        let flip = Transform::RandomHorizontalFlip(RandomHorizontalFlip { p: self.flip });
        let mut list = if self.buckets.is_set() {
            let cover = Transform::ResizeToCover(ResizeToCover { size, interpolation: Default::default() });
            match self.trains() {
                true => vec![cover, Transform::RandomCrop(RandomCrop::of_size(size)), flip],
                false => vec![cover, Transform::CenterCrop(CenterCrop { size })],
            }
        } else if self.trains() {
            vec![
                Transform::RandomResizedCrop(RandomResizedCrop {
                    size,
                    scale: self.scale,
                    ratio: self.ratio,
                    interpolation: Default::default(),
                }),
                flip,
            ]
        } else {
            // The product may be huge: the size is checked later.
            let usual = (height.max(width).saturating_mul(8) / 7).clamp(1, MAX_SIDE);
            let size_before = Some(SizeParameter::One(self.resize.unwrap_or(usual)));
            vec![
                Transform::Resize(WholeResize {
                    size: size_before,
                    max_size: None,
                    interpolation: Default::default(),
                }),
                Transform::CenterCrop(CenterCrop { size }),
            ]
        };
        list.push(Transform::ToDtype(ToDtype { dtype: self.dtype, scale: true }));
        if self.dtype != DType::U8 {
            list.push(Transform::Normalize(Normalize { mean: self.mean, std: self.std }));
        }
        list
    }

    pub(super) fn compiled(&self, request: &Transforms) -> Result<Recipe> {
        Recipe::new(request, self.memory_format, self.decode)
    }

    /// Returns the recipe of images without `transforms`.
    pub(super) fn default_recipe(&self) -> Result<Recipe> {
        let list = match self.kind {
            LoaderKind::Fields => Vec::new(),
            LoaderKind::Images | LoaderKind::Files => self.default_transforms(),
        };
        for transform in &list {
            transform.check().map_err(|BadParameter { parameter, message }| {
                Error::config(setting_of(transform.name(), parameter), message)
            })?;
        }
        self.compiled(&Transforms::single(list))
    }

    /// Chooses the device on which batches end. The device must support the requested transforms and image formats.
    ///
    /// # Errors
    /// The errors of [`device::choose`]; [`Error::Config`] if the requested GPU does not support the images.
    pub(super) fn choose_device(
        &self,
        images: &Images,
        fields: &Fields,
        index: &DatasetIndex,
    ) -> Result<ChosenDevice> {
        let cpu = |why: String| {
            let chosen = device::choose("cpu", self.decoder, false)?;
            Ok(if self.device == "cpu" { chosen } else { ChosenDevice { why, ..chosen } })
        };
        if !self.decoded {
            return cpu("files stay in host memory with decoded=False".to_owned());
        }
        let are_arrays = images.list().is_empty() && !fields.arrays.is_empty();
        // Arrays need no decoder of images, and so no nvJPEG.
        let decoder = if are_arrays { GpuDecoder::Own } else { self.gpu_decoder() };
        let mut images_in_order = images.list().iter().enumerate();
        let of_own_sizes =
            images_in_order.find(|(image, _)| ViewKind::of(images.recipe(*image)) != ViewKind::Tensors);
        let missing = match of_own_sizes {
            _ if self.batch_tokens.is_some() => "batches by budget".to_owned(),
            _ if are_arrays && index.is_stream() => "arrays of streams".to_owned(),
            _ if are_arrays && self.shared.is_some() => "shared batches of arrays".to_owned(),
            _ if are_arrays => return device::choose(&self.device, decoder, false),
            _ if images.list().is_empty() => "batches without images".to_owned(),
            _ if self.buckets.is_set() => "batches of buckets".to_owned(),
            Some((_, ImageField { name, .. })) => {
                format!("batches of images of varying size (from the transforms of {name:?})")
            }
            None => {
                let chosen = device::choose(&self.device, decoder, index.is_packed())?;
                if chosen.decoder != decoder {
                    index.notices().warn_once("decoder", || {
                        "nvJPEG cannot be loaded. It is not needed, because this dataset is packed; the CPU decodes \
                         files in it that were not converted. Set decoder=\"own\" to silence this warning"
                            .to_owned()
                    });
                }
                return Ok(chosen);
            }
        };
        if self.device.starts_with("cuda") {
            let message = format!(
                "is {}, but {missing} are not supported on a GPU yet: use device=\"cpu\"",
                self.device
            );
            return Err(Error::config("device", message));
        }
        if device::choose(&self.device, decoder, index.is_packed())?.device != Device::Cpu {
            index.notices().warn_once("device", || {
                format!(
                    "batches are made on the CPU: {missing} are not supported on a GPU yet. Set device=\"cpu\" to \
                     silence this warning"
                )
            });
        }
        cpu(format!("{missing} are not supported on a GPU yet"))
    }

    /// If `cpu_decode` is `never`, checks that a GPU can decode and transform the images without the CPU's decoder.
    ///
    /// # Errors
    /// [`Error::Config`] naming the transform.
    pub(super) fn check_gpu_decoder(
        &self,
        images: &Images,
        index: &DatasetIndex,
        (decoder, allowed): (GpuDecoder, AllowedBackends),
    ) -> Result<()> {
        if self.cpu_decode != CpuDecode::Never {
            return Ok(());
        }
        if allowed == AllowedBackends::Cpu {
            let message = "is never, but FORELOAD_GPU_BACKEND=cpu allows only the CPU to decode: unset the variable, \
                           or use cpu_decode=\"fallback\"";
            return Err(Error::config("cpu_decode", message));
        }
        let why = match decoder {
            GpuDecoder::Own if !index.is_packed() => Some(
                "is own, which decodes only packed and indexed images, and cpu_decode is never, but this dataset is \
                 not packed: run `foreload pack`, or use cpu_decode=\"fallback\"",
            ),
            GpuDecoder::NvJpeg if index.has_packed() => Some(
                "is nvjpeg, which cannot decode packed images, and cpu_decode is never, but this dataset has packed \
                 shards: use decoder=\"auto\" or cpu_decode=\"fallback\"",
            ),
            _ => None,
        };
        if let Some(why) = why {
            return Err(Error::config("decoder", why));
        }
        match images.recipes().iter().find_map(Recipe::padding_before_resize) {
            None => Ok(()),
            Some(name) => Err(Error::config(
                "cpu_decode",
                format!(
                    "is never, but only the CPU can pad before a resize, as {name} does: move {name} after the resize, \
                     or use cpu_decode=\"fallback\""
                ),
            )),
        }
    }

    /// Warns if `mean` and `std` look like statistics of pixel values in 0..255, which some other loaders expect.
    /// Statistics of images in 0..1 never look like that.
    pub(super) fn warn_about_scale(&self, images: &Images, index: &DatasetIndex) {
        let outputs = images.recipes().iter().flat_map(Recipe::views).map(RecipeView::fixed_output);
        let outputs = outputs.filter(|output| self.decoded && output.dtype != DType::U8);
        for (setting, values) in outputs.flat_map(|output| [("mean", output.mean), ("std", output.std)]) {
            if values.iter().any(|value| value.abs() > 1.0) {
                index.notices().warn_once(setting, || {
                    let scaled = values.map(|value| (value / 255.0 * 1000.0).round() / 1000.0);
                    let values = values.map(|value| value as f32);
                    format!(
                        "{setting} is {values:?}, but mean and std are on the scale 0..1 here: if the values are for \
                         0..255, use {scaled:?}"
                    )
                });
            }
        }
    }
}

fn setting_of(transform: &str, parameter: &'static str) -> &'static str {
    match (transform, parameter) {
        ("Resize", "size") => "resize",
        (_, "size") => "image_size",
        (_, "p") => "flip",
        (_, same) => same,
    }
}
