//! The Python module `foreload._core`: conversion of values, release of the GIL, and exceptions. It has no logic of its
//! own.

mod batches;
mod cache_stats;
mod calls;
mod error;
mod loader;
mod notices;
mod peers;
mod settings;
mod streams;
mod tensor;

use base::error::Result;
use pixels::augment::{Fidelity, ImageSize, MemoryFormat, Recipe, Transforms};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Foreload's core, in Rust. Use the names that `foreload` exports.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::batches::{Batches, PyBatch};
    #[pymodule_export]
    use super::error::{
        ConfigError, DatasetChangedError, DatasetError, DecodeError, Error, GpuError, InternalError, IoError,
        SampleError, TooManyErrorsError, UnavailableError, Warning,
    };
    #[pymodule_export]
    use super::loader::{FileLoader, ImageLoader, Loader, StreamEngine};
    #[pymodule_export]
    use super::tensor::PyTensor;
    #[pymodule_export]
    use super::{
        compiled_size, drawn_operations, is_for_evaluation, is_random, main, release_gpus, replay_operations,
        same_transforms, without_secrets,
    };

    use base::names::NamedValue;
    use data::dataset::kind::IMAGE_EXTENSIONS;
    use data::dataset::label_column::{LABELS, MORE_LABELS};
    use pixels::augment::{DType, transforms_json};
    use pyo3::prelude::*;
    use pyo3::types::{PyDict, PyTuple};
    use std::path::PathBuf;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // pip installs NVIDIA's wheels into these directories.
        let packages: Vec<PathBuf> = module.py().import("sys")?.getattr("path")?.extract()?;
        engine::config::look_for_libraries_in(packages);
        super::settings::add_objects(module)?;
        super::settings::describe(module)?;
        base::version::set(env!("FORELOAD_VERSION"));
        // Python calls these functions at exit, while CUDA's libraries still work and threads can still get the GIL.
        let atexit = module.py().import("atexit")?;
        atexit.call_method1("register", (module.getattr("release_gpus")?,))?;
        atexit.call_method1("register", (wrap_pyfunction!(super::calls::end, module)?,))?;
        let at_fork = PyDict::new(module.py());
        at_fork.set_item("after_in_child", wrap_pyfunction!(super::calls::forget, module)?)?;
        module.py().import("os")?.call_method("register_at_fork", (), Some(&at_fork))?;
        module.add("IMAGE_EXTENSIONS", PyTuple::new(module.py(), IMAGE_EXTENSIONS)?)?;
        module.add("LABEL_COLUMNS", PyTuple::new(module.py(), LABELS.names)?)?;
        module.add("LONE_LABEL_COLUMNS", PyTuple::new(module.py(), MORE_LABELS)?)?;
        module.add("DTYPES", names::<DType>(module.py())?)?;
        module.add("TRANSFORMS", transforms_json())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    fn names<T: NamedValue>(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, T::NAMES.iter().map(|(name, _)| *name))
    }
}

/// Frees everything that this process keeps on GPUs for its next loader.
#[pyfunction]
fn release_gpus(py: Python<'_>) {
    py.detach(engine::pipeline::release_gpus);
}

/// Returns a path, URL or command without secrets, for messages.
#[pyfunction]
fn without_secrets(place: std::path::PathBuf) -> std::path::PathBuf {
    data::source::shown(&place).into_owned()
}

/// Returns the height and width of the images that a list of transforms makes, if they are the same for every image.
#[pyfunction]
fn compiled_size(py: Python<'_>, transforms: &str) -> PyResult<Option<(u32, u32)>> {
    error::raise(py, compiled(transforms)).map(|recipe| {
        let size = recipe.views()[0].size();
        size.map(|ImageSize { width, height }| (height, width))
    })
}

/// Whether a split is for evaluation, by its name.
#[pyfunction]
fn is_for_evaluation(split: &str) -> bool {
    data::dataset::is_for_evaluation(split)
}

/// Whether any transform of a list draws random numbers.
#[pyfunction]
fn is_random(py: Python<'_>, transforms: &str) -> PyResult<bool> {
    error::raise(py, compiled(transforms)).map(|recipe| recipe.is_random())
}

/// Compiles a list of transforms with the default memory format and fidelity, on which no result of the callers
/// depends.
fn compiled(transforms: &str) -> Result<Recipe> {
    Recipe::new(&Transforms::from_json(transforms)?, MemoryFormat::default(), Fidelity::default())
}

/// Whether two lists of transforms are equal, including the defaults of omitted parameters.
#[pyfunction]
fn same_transforms(py: Python<'_>, one: &str, other: &str) -> PyResult<bool> {
    let asked = |text| error::raise(py, Transforms::from_json(text));
    Ok(asked(one)? == asked(other)?)
}

/// Returns the operations and the erasures that a list of transforms draws in epoch 0 for each of `samples` samples of
/// this width and height: a JSON list of pairs of lists.
#[pyfunction]
#[pyo3(signature = (transforms, width, height, samples, seed=0))]
fn drawn_operations(
    py: Python<'_>,
    transforms: &str,
    width: u32,
    height: u32,
    samples: u64,
    seed: u64,
) -> PyResult<String> {
    let drawn = py.detach(|| compiled(transforms)?.draws_json(seed, samples, (width, height)));
    error::raise(py, drawn)
}

/// Applies operations, a JSON list as in `ImageLoader.view`, to the grey levels of an image: planes of R, G, B.
#[pyfunction]
fn replay_operations<'py>(
    py: Python<'py>,
    ops: &str,
    levels: &[u8],
    width: u32,
    height: u32,
) -> PyResult<Bound<'py, PyBytes>> {
    let made = py.detach(|| pixels::augment::replay_operations(ops, levels, (width, height)));
    error::raise(py, made).map(|made| PyBytes::new(py, &made))
}

/// Runs the command line program with `arguments` (the program's name first) and returns its exit code.
#[pyfunction]
fn main(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> i32 {
    py.detach(|| crate::cli::main(arguments, Some(&peers::PythonJob)))
}
