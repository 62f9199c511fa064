//! `foreload.FileLoader`.

use super::Loader;
use super::arguments::{Bytes, Indices, Roots, WeightsGiven, selected};
use crate::config::{Choice, LoaderOptions};
use crate::dataset::{Contents, IndexOptions};
use crate::python::error::raise;
use pyo3::prelude::*;
use std::path::PathBuf;

#[doc = include_str!(concat!(env!("OUT_DIR"), "/FileLoader"))]
#[pyclass(frozen, extends = Loader, module = "foreload")]
pub(in crate::python) struct FileLoader;

#[pymethods]
impl FileLoader {
    #[new]
    #[pyo3(signature = (
        path, *, batch_size=64, seed=0, shuffle=true, last_batch="drop", indices=None, files=None, weights=None,
        ratios=None, epoch_size=None, keep=1, memory=None, io="auto", direct="auto", queue_depth=None,
        cache_dir=None, cache_size=None, cache_fill="auto", verify="stamp", immutable=false, stage_bandwidth=None, local_world_size=None,
        on_error="raise", max_errors=None, rank=None, world_size=None, index_dir=None, rebuild_index=false,
        changed="rebuild", progress=true,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments")]
    fn new(
        py: Python<'_>,
        path: Roots,
        batch_size: u32,
        seed: u64,
        shuffle: bool,
        last_batch: &str,
        indices: Option<Indices>,
        files: Option<PathBuf>,
        weights: Option<WeightsGiven>,
        ratios: Option<Vec<f64>>,
        epoch_size: Option<u64>,
        keep: u32,
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
        on_error: &str,
        max_errors: Option<u64>,
        rank: Option<u32>,
        world_size: Option<u32>,
        index_dir: Option<PathBuf>,
        rebuild_index: bool,
        changed: &str,
        progress: bool,
    ) -> PyResult<PyClassInitializer<Self>> {
        let usual = LoaderOptions::default();
        let asked = || -> crate::Result<LoaderOptions> {
            Ok(LoaderOptions {
                batch_size,
                seed,
                shuffle: Some(shuffle),
                last_batch: Some(Choice::parse("last_batch", last_batch)?),
                select: selected(indices, None, files),
                weights: weights.map(WeightsGiven::weights).transpose()?,
                ratios,
                epoch_size,
                decoded: false,
                keep,
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
                on_error: Choice::parse("on_error", on_error)?,
                max_errors: max_errors.unwrap_or(usual.max_errors),
                ..usual
            })
        };
        let options = raise(py, asked())?;
        let index_options = IndexOptions {
            directory: index_dir,
            rebuild: rebuild_index,
            changed: raise(py, Choice::parse("changed", changed))?,
            progress,
            contents: Contents::Files,
            ..IndexOptions::default()
        };
        let loader = Loader::open(py, path.paths(), options, index_options, (rank, world_size))?;
        Ok(PyClassInitializer::from(loader).add_subclass(Self))
    }
}
