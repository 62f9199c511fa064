//! The class `foreload.Loader`, which loads fields of any kind, and from which the other loaders derive.

mod fields;
mod files;
mod images;
mod streams;

pub(super) use files::FileLoader;
pub(super) use images::ImageLoader;
pub(super) use streams::StreamEngine;

use super::batches::Batches;
use super::error::{no_labels, raise};
use super::notices::deliver;
use super::peers::{PythonMeeting, own_command};
use super::settings::{self, LoaderArguments, whole_number};
use base::names::NamedValue;
use base::notices::Notices;
use data::dataset::{Contents, DatasetIndex, IndexOptions, UNLISTED};
use data::schedule::Shuffling;
use data::state::State;
use engine::config::LoaderKind;
use engine::pipeline::{ConcealedLog, Cursor, Epoch, FailureLog, Pipeline, SampleFailure, Start};
use engine::sharing::Sharing;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict, PyTuple};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Interval at which a waiting call checks for Ctrl-C.
pub(super) const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// The class `foreload.Loader`. Its documentation is generated from the table of settings, see
/// `settings::describe`.
#[pyclass(frozen, subclass, module = "foreload")]
pub(super) struct Loader {
    pipeline: SharedPipeline,
    rank: Option<u32>,
    world_size: Option<u32>,
    split: Option<String>,
    train: bool,
    meeting: Option<Arc<PythonMeeting>>,
    cursor: Mutex<Cursor>,
    failures: Mutex<FailureLog>,
    concealed: Mutex<ConcealedLog>,
}

/// A pipeline that a loader and its iterations share. When the last owner is dropped, it waits for the pipeline's
/// threads without the GIL.
#[derive(Clone)]
pub(super) struct SharedPipeline(Option<Arc<Pipeline>>);

impl std::ops::Deref for SharedPipeline {
    type Target = Pipeline;
    fn deref(&self) -> &Pipeline {
        self.0.as_ref().expect("only dropping takes it out")
    }
}

impl Drop for SharedPipeline {
    fn drop(&mut self) {
        let pipeline = self.0.take();
        // If the interpreter is ending, there is no GIL to release, and the pipeline is simply dropped.
        let _ = Python::try_attach(|py| py.detach(move || drop(pipeline)));
    }
}

#[pymethods]
impl Loader {
    #[new]
    #[pyo3(signature = (*arguments, **settings))]
    fn new(
        py: Python<'_>,
        arguments: &Bound<'_, PyTuple>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Self::open(py, settings::read(LoaderKind::Fields, arguments, settings)?, settings)
    }

    /// Sets the epoch that the next iteration runs.
    fn set_epoch(&self, epoch: &Bound<'_, PyAny>) -> PyResult<()> {
        lock(&self.cursor).choose(whole_number("epoch", epoch, u64::MAX)?);
        Ok(())
    }

    /// The current epoch, or between epochs the epoch that the next iteration runs.
    #[getter]
    fn epoch(&self) -> u64 {
        lock(&self.cursor).epoch()
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Py<Batches>> {
        let (rank, world_size) = self.place_in_world(py)?;
        let start = lock(&self.cursor).start();
        let epoch = py.detach(|| match &start {
            Start::State(state) => self.pipeline.resume(state, rank, world_size),
            Start::Epoch(number) => self.pipeline.epoch(*number, rank, world_size, 0),
        });
        let epoch = self.started_or_raise(py, epoch)?;
        lock(&self.cursor).begin(epoch.progress().clone());
        self.iterate(py, epoch)
    }

    /// Iterates over one epoch (None: the attribute `epoch`) from `first_step` on.
    #[pyo3(signature = (epoch=None, first_step=None), text_signature = "($self, epoch=None, first_step=0)")]
    fn batches(
        &self,
        py: Python<'_>,
        epoch: Option<Bound<'_, PyAny>>,
        first_step: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<Batches>> {
        let number = self.epoch_or_this(epoch.as_ref())?;
        let first_step = first_step.map_or(Ok(0), |step| whole_number("first_step", &step, u64::MAX))?;
        let (rank, world_size) = self.place_in_world(py)?;
        let epoch = py.detach(|| self.pipeline.epoch(number, rank, world_size, first_step));
        let epoch = self.started_or_raise(py, epoch)?;
        self.iterate(py, epoch)
    }

    /// Returns the state for a checkpoint: a dict of numbers and strings.
    #[pyo3(signature = (*, at_step=None))]
    fn state_dict<'py>(&self, py: Python<'py>, at_step: Option<u64>) -> PyResult<Bound<'py, PyAny>> {
        let (epoch, reached) = {
            let cursor = lock(&self.cursor);
            (cursor.epoch(), cursor.state(at_step))
        };
        let state = match reached {
            Some(state) => state,
            None => {
                let (rank, world_size) = self.place_in_world(py)?;
                self.pipeline.state(epoch, rank, world_size).and_then(|state| state.at_step(at_step))
            }
        };
        as_dict(py, &raise(py, state)?)
    }

    /// Makes the next iteration resume from a saved state.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let text: String = py.import("json")?.call_method1("dumps", (state,))?.extract()?;
        let state = State::from_json(&text).and_then(|state| self.pipeline.check(&state).map(|()| state));
        lock(&self.cursor).load(raise(py, state)?);
        Ok(())
    }

    /// The number of this rank's batches in one epoch.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let (rank, world_size) = self.place_in_world(py)?;
        let epoch = self.epoch();
        Ok(raise(py, py.detach(|| self.pipeline.steps(epoch, rank, world_size)))? as usize)
    }

    /// Returns how an epoch (None: the attribute `epoch`) is packed, with `batch_tokens`: a dict of numbers.
    #[pyo3(signature = (epoch=None))]
    fn packing<'py>(
        &self,
        py: Python<'py>,
        epoch: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        fields::packing(py, &self.pipeline, self.epoch_or_this(epoch.as_ref())?, self.place_in_world(py)?)
    }

    /// The number of samples in the dataset.
    #[getter]
    fn samples(&self) -> u64 {
        self.pipeline.index().len()
    }

    /// The number of samples that an epoch draws, for all ranks together.
    #[getter]
    fn epoch_size(&self) -> u64 {
        self.pipeline.config().selection.draws()
    }

    /// The number of samples per batch and rank.
    #[getter]
    fn batch_size(&self) -> u32 {
        self.pipeline.config().batch_size
    }

    /// The policy for the samples that do not fill the last batch, by name. Never None, because the default has been
    /// resolved.
    #[getter]
    fn last_batch(&self) -> &'static str {
        self.pipeline.config().last_batch.name()
    }

    /// The device of the batches: `cpu` or `cuda:N`.
    #[getter]
    fn device(&self) -> String {
        self.pipeline.config().device.to_string()
    }

    /// The reason for the device: the GPU's name, or why no GPU can be used.
    #[getter]
    fn device_reason(&self) -> String {
        self.pipeline.config().device_reason.clone()
    }

    /// The fields of the batches by name, in the order in which they were asked for, with the kind of each.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match self.pipeline.index().contents() {
            Contents::Images => fields::kinds(py, self.pipeline.config()),
            Contents::Files => Ok(PyDict::new(py)),
        }
    }

    /// The names of the optional fields, in the order in which they were asked for.
    #[getter]
    fn _optional(&self) -> Vec<String> {
        fields::optional(self.pipeline.config())
    }

    /// Whether images are mixed but their class numbers are not. Batches then also have the class numbers of the images
    /// that were mixed in.
    #[getter]
    fn _mixes_hard_labels(&self) -> bool {
        fields::mixes_hard_labels(self.pipeline.config())
    }

    /// Returns the tensors that have the same size for all samples: for each, its field, its element type, and the
    /// number of its dimensions per sample. Some consumers take only such tensors.
    fn _dense(&self, py: Python<'_>) -> PyResult<Vec<(String, &'static str, usize)>> {
        fields::dense(py, self.pipeline.config())
    }

    /// Whether samples have labels.
    #[getter]
    fn labeled(&self) -> bool {
        self.pipeline.index().is_labeled()
    }

    /// Raises an error if samples have no labels, which `with_labels` needs. For functions that return images with
    /// labels.
    fn _check_labeled(&self, py: Python<'_>) -> PyResult<()> {
        if self.pipeline.config().fields.gives_label() {
            return Ok(());
        }
        let needs = self.pipeline.index().check_labeled("with_labels");
        let alone = |error| match error {
            crate::Error::Config { setting, message } => crate::Error::config(
                setting,
                format!("{message}; use with_labels=False for images without labels"),
            ),
            other => other,
        };
        raise(py, needs.map_err(alone))
    }

    /// The (rank, world size). Determined at every iteration, because a process group may have been made in the
    /// meantime.
    #[pyo3(name = "_place_in_world")]
    fn place_in_world(&self, py: Python<'_>) -> PyResult<(u32, u32)> {
        let ranks = py.import("foreload._ranks")?;
        ranks.call_method1("resolve", (self.rank, self.world_size, self.fingerprint()))?.extract()
    }

    /// The class names by number, or those of the boxes of COCO annotations if their `labels` are a field; empty if the
    /// dataset has only numbers.
    #[getter]
    fn classes(&self) -> Vec<String> {
        let index = self.pipeline.index();
        let names = index.classes();
        if names.is_empty() { index.classes_of_values() } else { names }.to_vec()
    }

    /// The class numbers of all samples: a NumPy array, int64 [samples]; -1 for a sample with a class that is not in
    /// `class_names`.
    #[getter]
    fn targets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let index = self.pipeline.index();
        if !index.is_labeled() {
            return Err(no_labels(index));
        }
        let number = |sample| match index.label(sample) {
            UNLISTED => -1,
            label => i64::from(label),
        };
        let bytes: Vec<u8> =
            py.detach(|| (0..index.len()).flat_map(|sample| number(sample).to_ne_bytes()).collect());
        let array = PyByteArray::new(py, &bytes);
        py.import("numpy")?.call_method1("frombuffer", (array, "int64"))
    }

    /// The SHA-256 of the dataset's layout, names, extents and labels, in hex.
    #[getter]
    fn fingerprint(&self) -> String {
        self.pipeline.index().fingerprint().to_string()
    }

    /// The interface that reads bytes, in words; empty before the first iteration.
    #[getter]
    fn io(&self) -> String {
        self.pipeline.io()
    }

    /// The failures of the latest iteration that were skipped or replaced by zeros (the first 1000), each a dict of
    /// step, sample_id, path, offset, message.
    #[getter]
    fn errors<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let failures = lock(&lock(&self.failures)).clone();
        let of_failure = |failure: &SampleFailure| {
            let dict = named(py, failure.sample, &failure.path, failure.offset, &failure.message)?;
            dict.set_item("step", failure.step)?;
            Ok(dict)
        };
        failures.iter().map(of_failure).collect()
    }

    /// The damaged images of the latest iteration that were decoded anyway (the first 1000), each a dict of sample_id,
    /// path, offset, message.
    #[getter]
    fn concealed<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let samples = lock(&self.concealed).samples();
        samples.iter().map(|of| named(py, of.sample, &of.path, of.offset, &of.message)).collect()
    }

    /// Returns the file of a sample: its path (in shards, the path of the shard), the offset of the sample's bytes, and
    /// their number. For a sample in a compressed block, offset and number are those of the block.
    fn locate(&self, py: Python<'_>, sample_id: &Bound<'_, PyAny>) -> PyResult<(PathBuf, u64, u32)> {
        let sample_id = whole_number("sample_id", sample_id, u64::MAX)?;
        let index = self.pipeline.index();
        if sample_id >= index.len() {
            let message = format!("is {sample_id}, but the dataset has {} samples", index.len());
            return raise(py, Err(crate::Error::config("sample_id", message)));
        }
        let extent = index.place_in_file(index.extent(sample_id));
        Ok((index.path(extent.file), extent.offset, extent.length))
    }

    /// The resolved settings of the batches, by name, for `repr`.
    #[getter]
    fn _decided<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let (loader, dict) = (this.get(), PyDict::new(this.py()));
        if let Some(split) = &loader.split {
            dict.set_item("split", split)?;
        }
        if !this.is_instance_of::<FileLoader>() {
            dict.set_item("train", loader.train)?;
        }
        match loader.pipeline.config().shuffling {
            Shuffling::Blocks => dict.set_item("shuffle", "blocks")?,
            order => dict.set_item("shuffle", order == Shuffling::On)?,
        }
        dict.set_item("last_batch", loader.last_batch())?;
        Ok(dict)
    }

    fn __repr__(this: &Bound<'_, Self>) -> PyResult<String> {
        let decided: Vec<String> = Self::_decided(this)?
            .iter()
            .map(|(name, value)| Ok(format!("{name}={}", value.repr()?)))
            .collect::<PyResult<_>>()?;
        let kind = this.get_type().name()?;
        let (index, config) = (this.get().pipeline.index(), this.get().pipeline.config());
        let roots: Vec<_> = index.parts().map(|(root, _)| root.display().to_string()).collect();
        Ok(format!(
            "foreload.{kind}({:?}: {} samples{}, {}, {}, threads={})",
            roots.join(", "),
            config.selection.members(),
            if index.is_labeled() { "" } else { " without labels" },
            decided.join(", "),
            config.size_of_batches(),
            config.threads
        ))
    }
}

impl Loader {
    fn epoch_or_this(&self, argument: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
        argument.map_or_else(|| Ok(self.epoch()), |epoch| whole_number("epoch", epoch, u64::MAX))
    }

    /// Returns an epoch that was started, or raises the error of starting it. If a Python exception ended the exchange
    /// of addresses between the ranks (`meeting`), that exception is raised unchanged.
    fn started_or_raise(&self, py: Python<'_>, epoch: crate::Result<Epoch>) -> PyResult<Epoch> {
        let raised = self.meeting.as_ref().and_then(|meeting| meeting.take_raised());
        if let (Err(_), Some(exception)) = (&epoch, raised) {
            return Err(exception);
        }
        let epoch = raise(py, epoch)?;
        deliver(py, self.pipeline.index().notices())?;
        Ok(epoch)
    }

    fn open(
        py: Python<'_>,
        arguments: LoaderArguments,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let LoaderArguments { paths: roots, mut options, given } = arguments;
        let mut meeting = None;
        if options.peers.on
            && let Some(peers) = settings.map(|settings| settings.get_item("peers")).transpose()?.flatten()
        {
            let met = PythonMeeting::new(&peers)?;
            options.peers.meeting = Some(met.clone());
            meeting = Some(met);
        }
        let ranks = py.import("foreload._ranks")?;
        let local = ranks.call_method1("local_world_size", (options.local_world_size,))?;
        options.local_world_size = local.extract()?;
        let checked = raise(py, py.detach(|| options.validate()))?;
        let contents = if options.kind == LoaderKind::Files { Contents::Files } else { Contents::Images };
        let index = open_index(py, &roots, &checked.index_options(contents))?;
        let config = match checked.reads_headers() {
            true => interruptible(py, index.notices(), |cancel| checked.check_until(&index, cancel))?,
            false => raise(py, py.detach(|| checked.check(&index)))?,
        };
        deliver(py, index.notices())?;
        let mut pipeline = Pipeline::new(Arc::new(index), config);
        if options.shared.is_some() {
            let opened = (&**pipeline.index(), pipeline.identity(), pipeline.config());
            let command = own_command(py)?;
            let sharing = py.detach(|| Sharing::new(&roots, &given, &options, opened, command));
            if let Some(sharing) = raise(py, sharing)? {
                pipeline = pipeline.sharing(sharing);
            }
        }
        let pipeline = SharedPipeline(Some(Arc::new(pipeline)));
        Ok(Self {
            pipeline,
            rank: options.rank,
            world_size: options.world_size,
            train: options.trains(),
            split: options.split,
            meeting,
            cursor: Mutex::default(),
            failures: Mutex::default(),
            concealed: Mutex::default(),
        })
    }

    fn iterate(&self, py: Python<'_>, epoch: Epoch) -> PyResult<Py<Batches>> {
        *lock(&self.failures) = epoch.failures().clone();
        *lock(&self.concealed) = epoch.concealed().clone();
        Batches::of(py, &self.pipeline, epoch)
    }
}

fn named<'py>(
    py: Python<'py>,
    sample: u64,
    path: &Path,
    offset: u64,
    message: &str,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("sample_id", sample)?;
    dict.set_item("path", path)?;
    dict.set_item("offset", offset)?;
    dict.set_item("message", message)?;
    Ok(dict)
}

/// Opens or builds the index, and can be interrupted.
fn open_index(py: Python<'_>, roots: &[PathBuf], options: &IndexOptions) -> PyResult<DatasetIndex> {
    interruptible(py, &options.notices, |cancel| DatasetIndex::open_all(roots, options, cancel))
}

/// Runs `work` on another thread, so that this thread can check for Ctrl-C, which sets the flag that `work` gets.
fn interruptible<T: Send>(
    py: Python<'_>,
    notices: &Notices,
    work: impl FnOnce(&Arc<AtomicBool>) -> crate::Result<T> + Send,
) -> PyResult<T> {
    let cancel = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let started = std::thread::Builder::new().spawn_scoped(scope, || work(&cancel));
        let refused =
            |e| crate::Error::Unavailable(format!("cannot start a thread: {e}; see ulimit -u and ulimit -v"));
        let work = raise(py, started.map_err(refused))?;
        // An existing index loads at once; only long work is worth longer sleeps.
        let mut nap = Duration::from_micros(50);
        while !work.is_finished() {
            py.detach(|| std::thread::sleep(nap));
            nap = (2 * nap).min(SIGNAL_CHECK);
            // Warnings about a slow start must appear during the start.
            let heard = if nap == SIGNAL_CHECK { deliver(py, notices) } else { Ok(()) };
            if let Err(interrupt) = py.check_signals().and(heard) {
                cancel.store(true, Ordering::Relaxed);
                // The work was cancelled, so its error is expected.
                let _ = py.detach(|| work.join());
                return Err(interrupt);
            }
        }
        let done = work.join().unwrap_or_else(|panic| Err(crate::Error::panicked("indexing", &*panic)));
        raise(py, done)
    })
}

pub(super) fn as_dict<'py>(py: Python<'py>, state: &State) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (state.to_json(),))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
