//! `foreload.ImageLoader`.

use super::Loader;
use super::arguments::{Bytes, Class, Indices, Roots, Size, TransformsGiven, WeightsGiven, selected};
use crate::augment::{DrawnView, Transforms};
use crate::config::{Choice, LoaderOptions, check_said_once};
use crate::dataset::IndexOptions;
use crate::python::error::raise;
use crate::schedule::Draw;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

#[doc = include_str!(concat!(env!("OUT_DIR"), "/ImageLoader"))]
#[pyclass(frozen, extends = Loader, module = "foreload")]
pub(in crate::python) struct ImageLoader;

#[pymethods]
impl ImageLoader {
    #[new]
    #[pyo3(signature = (
        path, *, batch_size=64, image_size=None, seed=0, train=true, transforms=None, shuffle=None, last_batch=None,
        indices=None, classes=None, files=None, weights=None, ratios=None, epoch_size=None,
        decoded=true, keep=1, device="auto", cpu_decode="fallback", device_memory=None, dtype=None,
        memory_format="nchw", mean=None, std=None, scale=None, ratio=None, flip=None, resize=None, decode="fast", threads=None, memory=None, io="auto", direct="auto", queue_depth=None,
        cache_dir=None, cache_size=None, cache_fill="auto", verify="stamp", immutable=false, stage_bandwidth=None, local_world_size=None,
        damaged="conceal", on_error="raise", max_errors=None, max_pixels=None, rank=None, world_size=None, index_dir=None,
        rebuild_index=false, changed="rebuild", progress=true,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments")]
    fn new(
        py: Python<'_>,
        path: Roots,
        batch_size: u32,
        image_size: Option<Size>,
        seed: u64,
        train: bool,
        transforms: Option<TransformsGiven>,
        shuffle: Option<bool>,
        last_batch: Option<&str>,
        indices: Option<Indices>,
        classes: Option<Vec<Class>>,
        files: Option<PathBuf>,
        weights: Option<WeightsGiven>,
        ratios: Option<Vec<f64>>,
        epoch_size: Option<u64>,
        decoded: bool,
        keep: u32,
        device: &str,
        cpu_decode: &str,
        device_memory: Option<Bytes>,
        dtype: Option<&str>,
        memory_format: &str,
        mean: Option<[f32; 3]>,
        std: Option<[f32; 3]>,
        scale: Option<(f64, f64)>,
        ratio: Option<(f64, f64)>,
        flip: Option<f64>,
        resize: Option<u32>,
        decode: &str,
        threads: Option<u32>,
        memory: Option<Bytes>,
        io: &str,
        direct: &str,
        queue_depth: Option<u32>,
        cache_dir: Option<PathBuf>,
        cache_size: Option<Bytes>,
        cache_fill: &str,
        verify: &str,
        immutable: bool,
        stage_bandwidth: Option<Bytes>,
        local_world_size: Option<u32>,
        damaged: &str,
        on_error: &str,
        max_errors: Option<u64>,
        max_pixels: Option<u64>,
        rank: Option<u32>,
        world_size: Option<u32>,
        index_dir: Option<PathBuf>,
        rebuild_index: bool,
        changed: &str,
        progress: bool,
    ) -> PyResult<PyClassInitializer<Self>> {
        let usual = LoaderOptions::default();
        let asked = || -> crate::Result<LoaderOptions> {
            if transforms.is_some() {
                let given = [
                    ("image_size", image_size.is_some()),
                    ("dtype", dtype.is_some()),
                    ("mean", mean.is_some()),
                    ("std", std.is_some()),
                    ("scale", scale.is_some()),
                    ("ratio", ratio.is_some()),
                    ("flip", flip.is_some()),
                    ("resize", resize.is_some()),
                ];
                let given: Vec<_> = given.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
                check_said_once(&given)?;
            }
            Ok(LoaderOptions {
                batch_size,
                image_size: image_size.map_or(usual.image_size, Size::sides),
                seed,
                train,
                transforms: transforms.map(|given| Transforms::from_json(&given.0)).transpose()?,
                shuffle,
                last_batch: last_batch.map(|name| Choice::parse("last_batch", name)).transpose()?,
                select: selected(indices, classes, files),
                weights: weights.map(WeightsGiven::weights).transpose()?,
                ratios,
                epoch_size,
                decoded,
                keep,
                device: device.into(),
                cpu_decode: Choice::parse("cpu_decode", cpu_decode)?,
                device_memory: device_memory.map(|bytes| bytes.number("device_memory")).transpose()?,
                dtype: dtype.map_or(Ok(usual.dtype), |name| Choice::parse("dtype", name))?,
                memory_format: Choice::parse("memory_format", memory_format)?,
                mean: mean.unwrap_or(usual.mean),
                std: std.unwrap_or(usual.std),
                scale: scale.unwrap_or(usual.scale),
                ratio: ratio.unwrap_or(usual.ratio),
                flip: flip.unwrap_or(usual.flip),
                resize,
                decode: Choice::parse("decode", decode)?,
                threads,
                memory: memory.map(|bytes| bytes.number("memory")).transpose()?,
                io: Choice::parse("io", io)?,
                direct: Choice::parse("direct", direct)?,
                queue_depth,
                cache_dir,
                cache_size: cache_size.map(|bytes| bytes.number("cache_size")).transpose()?,
                cache_fill: Choice::parse("cache_fill", cache_fill)?,
                verify: Choice::parse("verify", verify)?,
                immutable,
                stage_bandwidth: stage_bandwidth.map(|bytes| bytes.number("stage_bandwidth")).transpose()?,
                local_world_size,
                damaged: Choice::parse("damaged", damaged)?,
                on_error: Choice::parse("on_error", on_error)?,
                max_errors: max_errors.unwrap_or(usual.max_errors),
                max_pixels: max_pixels.unwrap_or(usual.max_pixels),
            })
        };
        let options = raise(py, asked())?;
        let index_options = IndexOptions {
            directory: index_dir,
            rebuild: rebuild_index,
            changed: raise(py, Choice::parse("changed", changed))?,
            progress,
            ..IndexOptions::default()
        };
        let loader = Loader::open(py, path.paths(), options, index_options, (rank, world_size))?;
        Ok(PyClassInitializer::from(loader).add_subclass(Self))
    }

    /// Where batches end: `cpu` or `cuda:N`.
    #[getter]
    fn device(this: PyRef<'_, Self>) -> String {
        this.as_super().pipeline.config().device.to_string()
    }

    /// Why there: the GPU's name, or why none serves.
    #[getter]
    fn device_reason(this: PyRef<'_, Self>) -> String {
        this.as_super().pipeline.config().device_reason.clone()
    }

    /// Element type of the images, by name.
    #[getter]
    fn dtype(this: PyRef<'_, Self>) -> &'static str {
        this.as_super().pipeline.config().output().dtype.name()
    }

    /// What an epoch makes of a sample: dict of x, y, width, height (source pixels that are resized), resized_width,
    /// resized_height (what they are resized to), left, top (where the output's window begins in that), flip,
    /// output_width, output_height.
    #[pyo3(signature = (sample_id, epoch=None, occurrence=0))]
    fn view<'py>(
        this: PyRef<'py, Self>,
        py: Python<'py>,
        sample_id: u64,
        epoch: Option<u64>,
        occurrence: u32,
    ) -> PyResult<Bound<'py, PyDict>> {
        let epoch = epoch.unwrap_or_else(|| this.as_super().epoch());
        let draw = Draw { sample: sample_id, occurrence };
        let pipeline = this.as_super().pipeline.clone();
        let view = py.detach(|| pipeline.view(draw, epoch));
        let DrawnView { view, width, height } = raise(py, view)?;
        let dict = PyDict::new(py);
        dict.set_item("x", view.x.start)?;
        dict.set_item("y", view.y.start)?;
        dict.set_item("width", view.x.length)?;
        dict.set_item("height", view.y.length)?;
        dict.set_item("resized_width", view.x.full)?;
        dict.set_item("resized_height", view.y.full)?;
        dict.set_item("left", view.x.window)?;
        dict.set_item("top", view.y.window)?;
        dict.set_item("flip", view.flip)?;
        dict.set_item("output_width", width)?;
        dict.set_item("output_height", height)?;
        Ok(dict)
    }
}
