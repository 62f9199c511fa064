//! The iterator over an epoch's batches, and the batches that it yields to Python.

use super::cache_stats::{cache_stats, peer_stats, set_number};
use super::error::{no_labels, raise, to_python};
use super::loader::{SIGNAL_CHECK, SharedPipeline, as_dict, lock};
use super::notices::deliver;
use super::tensor::PyTensor;
use data::dataset::{Extent, FieldKind, IMAGE};
use engine::batch;
use engine::config::{Device, FieldValue, LABEL, LoaderConfig};
use engine::pipeline::{Epoch, Poll};
use pixels::gpu::StreamRef;
use pyo3::exceptions::{PyAttributeError, PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyIterator, PyList, PyTuple};
use std::sync::Mutex;

/// One iteration over an epoch.
#[pyclass(frozen, module = "foreload")]
pub(super) struct Batches {
    epoch: Mutex<Epoch>,
    /// Keeps the pipeline's threads alive if only the iterator is left: `for batch in ImageLoader(...)`.
    pipeline: SharedPipeline,
    /// A warning that came with the latest batch, and that the user's filter turned into an error. The next call raises
    /// it.
    warned: Mutex<Option<PyErr>>,
}

impl Drop for Batches {
    fn drop(&mut self) {
        if let Some(warning) = lock(&self.warned).take() {
            // No further call was made to raise this warning, so it is reported as unraisable. An exception that is
            // being raised at this moment is saved before the report and restored after it.
            Python::attach(|py| {
                let raised = PyErr::take(py);
                warning.write_unraisable(py, None);
                raised.into_iter().for_each(|raised| raised.restore(py));
            });
        }
    }
}

impl Batches {
    pub(super) fn of(py: Python<'_>, pipeline: &SharedPipeline, epoch: Epoch) -> PyResult<Py<Self>> {
        Py::new(py, Self { epoch: Mutex::new(epoch), pipeline: pipeline.clone(), warned: Mutex::default() })
    }
}

#[pymethods]
impl Batches {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyBatch>> {
        let notices = self.pipeline.index().notices();
        // Deliver before a batch is taken: an error from a warning would lose the batch.
        deliver(py, notices)?;
        if let Some(warning) = lock(&self.warned).take() {
            return Err(warning);
        }
        loop {
            let (polled, is_last) = py.detach(|| {
                let mut epoch = lock(&self.epoch);
                (epoch.poll(SIGNAL_CHECK), epoch.next_step() == epoch.steps())
            });
            match polled {
                Ok(Poll::Batch(batch)) => {
                    let batch = PyBatch { batch, pipeline: self.pipeline.clone() };
                    // A caller that knows the number of batches makes no further call, so notices are delivered now. An
                    // error from a warning must not lose this last batch, so it is kept for later.
                    if is_last && let Err(warning) = deliver(py, notices) {
                        *lock(&self.warned) = Some(warning);
                    }
                    return Ok(Some(batch));
                }
                Ok(Poll::End) => return deliver(py, notices).map(|()| None),
                Ok(Poll::Pending) => {
                    py.check_signals()?;
                    // The notices may explain the delay. No batch was taken yet that an error could lose.
                    deliver(py, notices)?;
                }
                Err(error) => {
                    // A notice may explain the error, but the error is what ends the epoch.
                    let _ = deliver(py, notices);
                    return raise(py, Err(error));
                }
            }
        }
    }

    /// The number of batches of the whole epoch.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        if self.pipeline.index().is_stream() {
            return Err(PyTypeError::new_err("a stream has no length"));
        }
        Ok(py.detach(|| lock(&self.epoch).steps() as usize))
    }

    /// Returns the state of this iteration for a checkpoint: a dict of numbers and strings.
    #[pyo3(signature = (*, at_step=None))]
    fn state_dict<'py>(&self, py: Python<'py>, at_step: Option<u64>) -> PyResult<Bound<'py, PyAny>> {
        let progress = py.detach(|| lock(&self.epoch).progress().clone());
        as_dict(py, &raise(py, progress.state(at_step))?)
    }

    /// Returns counters and busy times of the stages so far: a dict.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (stats, failed) = py.detach(|| {
            let epoch = lock(&self.epoch);
            (epoch.stats(), epoch.failed())
        });
        let stages = &stats.stages;
        let dict = [
            ("read_busy_seconds", stages.read_busy),
            ("read_waiting_seconds", stages.read_waiting),
            ("read_blocked_seconds", stages.read_blocked),
            ("decode_busy_seconds", stages.decode_busy),
            ("augment_busy_seconds", stages.augment_busy),
            ("workers_waiting_seconds", stages.workers_waiting),
            ("consumer_waiting_seconds", stages.consumer_waiting),
        ]
        .into_py_dict(py)?;
        for (name, count) in [
            ("source_bytes", stats.reads.bytes),
            ("source_bytes_skipped", stats.reads.skipped),
            ("source_reads", stats.reads.reads),
            ("source_opens", stats.reads.opens),
            ("source_requests", stats.reads.requests + stats.cache.source.staged_requests),
            ("source_retries", stats.reads.retries),
            ("source_hedges", stats.reads.hedges),
            ("blocks_unpacked", stats.unpacked.blocks),
            ("blocks_unpacked_bytes", stats.unpacked.unpacked),
            ("rows_known", stats.rows_known),
            ("concealed", stats.concealed),
            ("rebuilt", stats.rebuilt),
            ("errors", failed),
        ] {
            dict.set_item(name, count)?;
        }
        for (backend, count) in stats.decoded.iter() {
            dict.set_item(format!("decoded_{}", backend.name()), count)?;
        }
        if let Device::Cuda { .. } = self.pipeline.config().device {
            let gpu = PyDict::new(py);
            gpu.set_item("decoders", self.pipeline.decoders().to_vec().into_py_dict(py)?)?;
            for (name, number) in stats.gpu_by_name() {
                set_number(&gpu, name, number)?;
            }
            dict.set_item("gpu", gpu)?;
        }
        dict.set_item("cores", self.pipeline.cores())?;
        // The entry exists even if the cache turned out to be unusable: then all counters are 0.
        if self.pipeline.config().cache.is_some() {
            let last_error = self.pipeline.cache().and_then(|cache| cache.last_error());
            dict.set_item("cache", cache_stats(py, &stats.cache, last_error)?)?;
        }
        if let Some(sharing) = self.pipeline.sharing_stats() {
            dict.set_item("shared", sharing.numbers().by_name().into_py_dict(py)?)?;
        }
        if self.pipeline.config().cache.as_ref().is_some_and(|cache| cache.peers.is_some()) {
            dict.set_item(
                "peers",
                peer_stats(py, self.pipeline.cache().map(|cache| &**cache).filter(|cache| cache.is_ours()))?,
            )?;
        }
        Ok(dict)
    }
}

/// A batch; see `_batches.pyi`.
#[pyclass(frozen, module = "foreload", name = "Batch")]
pub(super) struct PyBatch {
    batch: batch::Batch,
    pipeline: SharedPipeline,
}

impl PyBatch {
    fn config(&self) -> &LoaderConfig {
        self.pipeline.config()
    }

    fn no_field(&self, name: &str) -> PyErr {
        if self.batch.is_encoded() {
            return PyKeyError::new_err("a batch of files has no fields: use batch.files");
        }
        PyKeyError::new_err(format!("{name:?}: the batch has {}", self.keys().join(", ")))
    }

    /// Returns the two values of `images, labels = batch`. Fails for a batch with other fields. (Iterating over it like
    /// over a dict would yield names of fields instead of tensors.)
    fn pair<'py>(&self, py: Python<'py>) -> PyResult<[Bound<'py, PyAny>; 2]> {
        let keys = self.keys();
        let write = match &self.config().mix {
            _ if self.batch.is_encoded() => match self.labels() {
                Ok(labels) => {
                    return Ok([self.files()?.into_pyobject(py)?, labels.into_pyobject(py)?.into_any()]);
                }
                Err(_) => "batch.files".to_owned(),
            },
            Some(plan) if !plan.labels.are_mixed() => "batch.images and batch.mixed".to_owned(),
            _ if keys == [IMAGE, LABEL] => {
                return Ok([self.__getitem__(py, IMAGE)?, self.__getitem__(py, LABEL)?]);
            }
            _ if keys == [IMAGE] => "batch.images".to_owned(),
            _ => {
                let each: Vec<_> = keys.iter().map(|key| format!("batch[{key:?}]")).collect();
                format!("{}, or loop over batch.items()", each.join(", "))
            }
        };
        let message =
            format!("only a batch of images and labels can be unpacked into two values: write {write}");
        Err(PyTypeError::new_err(message))
    }

    fn shapes(&self, number: usize) -> PyResult<PyTensor> {
        let columns = self.config().bucket.as_ref().and_then(|bucket| bucket.columns);
        let columns = columns.filter(|_| !self.batch.is_encoded());
        let missing =
            || PyAttributeError::new_err("only batches of images with buckets= have the shapes of images");
        Ok(self.batch.further(columns.ok_or_else(missing)?[number]).into())
    }

    fn presence(&self, name: &str) -> PyResult<batch::Tensor> {
        self.config().present(&self.batch, name).ok_or_else(|| {
            match self.keys().iter().any(|key| key == name) {
                true => PyAttributeError::new_err(format!(
                    "the field {name:?} is not optional: all samples have it"
                )),
                false => self.no_field(name),
            }
        })
    }

    fn converted<'py>(&self, py: Python<'py>, field: FieldValue) -> PyResult<Bound<'py, PyAny>> {
        match field {
            FieldValue::Tensor(tensor) => Ok(PyTensor::from(tensor).into_pyobject(py)?.into_any()),
            FieldValue::Ragged { values, offsets } => {
                let pair = (PyTensor::from(values), PyTensor::from(offsets));
                Ok(pair.into_pyobject(py)?.into_any())
            }
            FieldValue::Patches { values, offsets, positions } => {
                let three = [values, offsets, positions].map(PyTensor::from);
                PyTuple::new(py, three).map(Bound::into_any)
            }
            FieldValue::Tensors(tensors) => {
                let tensors: Vec<_> = tensors.into_iter().map(|tensor| tensor.map(PyTensor::from)).collect();
                PyList::new(py, tensors).map(Bound::into_any)
            }
            FieldValue::Texts(texts) => PyList::new(py, texts).map(Bound::into_any),
            FieldValue::Json(documents) => {
                let loads = py.import("json")?.getattr("loads")?;
                let parsed = documents.iter().enumerate().map(|(place, document)| match document {
                    Some(document) => loads
                        .call1((PyBytes::new(py, document),))
                        .map_err(|error| self.unreadable(py, place, error)),
                    None => Ok(py.None().into_bound(py)),
                });
                PyList::new(py, parsed.collect::<PyResult<Vec<_>>>()?).map(Bound::into_any)
            }
            FieldValue::Bytes(bytes) => {
                let bytes = bytes.iter().map(|bytes| bytes.as_deref().map(|bytes| PyBytes::new(py, bytes)));
                PyList::new(py, bytes).map(Bound::into_any)
            }
            FieldValue::Views(views) => {
                let views = views.into_iter().map(|view| self.converted(py, view));
                PyTuple::new(py, views.collect::<PyResult<Vec<_>>>()?).map(Bound::into_any)
            }
        }
    }

    /// Returns the error for a sample whose JSON is well-formed but that Python cannot read, because it is nested too
    /// deep or has a number with too many digits.
    fn unreadable(&self, py: Python<'_>, place: usize, error: PyErr) -> PyErr {
        let ids = self.batch.sample_ids();
        let ids = ids.read().unwrap_or_default();
        let id = ids.as_chunks().0.get(place).map_or(0, |id| u64::from_ne_bytes(*id));
        let (index, message) = (self.pipeline.index(), error.value(py).to_string());
        let Extent { file, offset, length } = index.extent(id);
        let source =
            Box::new(crate::DecodeError::Damaged(format!("its JSON cannot be read: {message}")).into());
        let (key, path) = (index.key_in_tar(id), index.path(file).into());
        let failed = to_python(py, &crate::Error::Sample { id, key, path, offset, length, source });
        failed.set_cause(py, Some(error));
        failed
    }
}

#[pymethods]
impl PyBatch {
    /// The images, of shape [n, 3, height, width], or [n, height, width, 3] with `memory_format="nhwc"`.
    #[getter]
    fn images(&self) -> PyResult<PyTensor> {
        if self.batch.is_encoded() {
            let message = "a batch of files has no images: use batch.files";
            return Err(PyAttributeError::new_err(message));
        }
        let mut names = self.config().field_names();
        let Some((name, _)) = names.find(|(_, kind)| *kind == FieldKind::Image) else {
            return Err(PyAttributeError::new_err("the batch has no image, because fields= names none"));
        };
        match self.config().field(&self.batch, name).map(FieldValue::first_view) {
            Some(FieldValue::Tensor(images)) => Ok(images.into()),
            Some(FieldValue::Patches { .. }) => {
                let message =
                    format!("the images are patches: use batch[{name:?}], a tuple of three tensors");
                Err(PyAttributeError::new_err(message))
            }
            _ => {
                let message = format!("the images have different sizes: use batch[{name:?}], a list of them");
                Err(PyAttributeError::new_err(message))
            }
        }
    }

    /// The bytes of the samples, each a uint8 tensor of shape [bytes].
    #[getter]
    fn files(&self) -> PyResult<Vec<PyTensor>> {
        if !self.batch.is_encoded() {
            let message =
                "only batches of a FileLoader, or with decoded=False, have `files`; this one has `images`";
            return Err(PyAttributeError::new_err(message));
        }
        Ok(self.batch.encoded().into_iter().map(PyTensor::from).collect())
    }

    /// Class numbers, int64 [n], or the column `label` of `labels=`: int64, float32 or uint8, [n] or [n, length]; or
    /// mixed labels, float32 [n, classes].
    #[getter]
    fn labels(&self) -> PyResult<PyTensor> {
        match self.config().field(&self.batch, LABEL) {
            Some(FieldValue::Tensor(labels)) => Ok(labels.into()),
            Some(_) => Err(PyAttributeError::new_err("the labels are texts: use batch[\"label\"]")),
            None if self.pipeline.index().is_labeled() => Ok(self.batch.labels().into()),
            None => Err(no_labels(self.pipeline.index())),
        }
    }

    /// Class numbers, class numbers of the partners, and the share of each image's own class: int64, int64, float32,
    /// all [n].
    #[getter]
    fn mixed(&self) -> PyResult<(PyTensor, PyTensor, PyTensor)> {
        let Some(plan) = &self.config().mix else {
            return Err(PyAttributeError::new_err("the images are not mixed, because mix= is not set"));
        };
        let Some((partners, shares)) = plan.labels.hard_columns() else {
            let message = "the labels are vectors, not class numbers: use batch.labels, which has them mixed";
            return Err(PyAttributeError::new_err(message));
        };
        let batch = &self.batch;
        Ok((batch.labels().into(), batch.further(partners).into(), batch.further(shares).into()))
    }

    /// Returns the names of the fields, in the order of the setting `fields`.
    fn keys(&self) -> Vec<String> {
        if self.batch.is_encoded() {
            return Vec::new();
        }
        self.config().field_names().map(|(name, _)| name.to_owned()).collect()
    }

    /// Iterates over images and labels, for `images, labels = batch`.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyTuple::new(py, self.pair(py)?)?.try_iter()
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        name.extract::<String>().is_ok_and(|name| self.keys().contains(&name))
    }

    /// Returns the fields, in the order of `keys()`.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.keys().iter().map(|name| self.__getitem__(py, name)).collect()
    }

    /// Returns pairs of name and field, in the order of `keys()`.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        let pair = |name: String| self.__getitem__(py, &name).map(|field| (name, field));
        self.keys().into_iter().map(pair).collect()
    }

    /// Returns a field by its name, or `default` if the batch does not have it.
    #[pyo3(signature = (name, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.keys().iter().any(|known| known == name) {
            return self.__getitem__(py, name);
        }
        Ok(default.unwrap_or_else(|| py.None().into_bound(py)))
    }

    /// Returns a field. The names `images` and `labels` mean the attributes if no field has that name.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        match (self.config().field(&self.batch, name), name) {
            (Some(field), _) => self.converted(py, field),
            (None, "images" | "labels") => {
                let attribute = if name == "images" { self.images() } else { self.labels() };
                let tensor = attribute.map_err(|error| PyKeyError::new_err(error.value(py).to_string()))?;
                Ok(tensor.into_pyobject(py)?.into_any())
            }
            (None, _) => Err(self.no_field(name)),
        }
    }

    /// Returns which samples have an optional field: bool [n].
    fn present(&self, name: &str) -> PyResult<PyTensor> {
        Ok(self.presence(name)?.into())
    }

    /// Returns `present` as uint8, for versions of torch that do not take bool by DLPack.
    fn _present_bytes(&self, name: &str) -> PyResult<PyTensor> {
        Ok(self.presence(name)?.of_bytes().into())
    }

    /// The ids of the samples, which are their indices in the dataset, int64 [n]; with `on_error="skip"` the ids of the
    /// substitutes.
    #[getter]
    fn sample_ids(&self) -> PyTensor {
        self.batch.sample_ids().into()
    }

    /// For each sample, the index of this draw among the epoch's draws of the same sample, int64 [n]: 0 if the epoch
    /// draws each sample once.
    #[getter]
    fn occurrences(&self) -> PyTensor {
        self.batch.occurrences().into()
    }

    /// bool [n]; false for padding and for failed samples replaced by zeros.
    #[getter]
    fn mask(&self) -> PyTensor {
        self.batch.mask().into()
    }

    /// The mask as uint8, for versions of torch that do not take bool by DLPack.
    #[getter]
    fn _mask_bytes(&self) -> PyTensor {
        self.batch.mask_bytes().into()
    }

    /// Lets another CUDA stream read the batch too.
    fn used_by(&self, py: Python<'_>, stream: i64) -> PyResult<()> {
        // torch uses 0 for its default stream, which is the legacy default stream, number 1.
        let number = if stream == 0 { 1 } else { stream };
        // SAFETY: as documented, the caller keeps the stream alive, and reads there only until the batch is dropped.
        let stream = raise(py, unsafe { StreamRef::from_number(number) })?;
        let batch = &self.batch;
        raise(py, py.detach(|| batch.used_by(stream)))
    }

    /// The size of the images with `buckets=`, (height, width); else None.
    #[getter]
    fn bucket(&self) -> Option<(u32, u32)> {
        let sizes = &self.config().bucket.as_ref()?.sizes;
        sizes.list().get(self.batch.layout()).map(|size| (size.height, size.width))
    }

    /// The sizes of the first images before they were resized, (height, width), int64 [n, 2], with `buckets=`.
    #[getter]
    fn original_sizes(&self) -> PyResult<PyTensor> {
        self.shapes(0)
    }

    /// The places of the crops, (top, left), int64 [n, 2], with `buckets=`.
    #[getter]
    fn crops(&self) -> PyResult<PyTensor> {
        self.shapes(1)
    }

    /// The index of the batch in the epoch.
    #[getter]
    fn step(&self) -> u64 {
        self.batch.step()
    }

    fn __len__(&self) -> usize {
        self.batch.len()
    }

    fn __repr__(&self) -> String {
        let step = self.batch.step();
        if self.batch.is_encoded() {
            return format!("foreload.Batch(step={step}, {} files)", self.batch.len());
        }
        if self.batch.num_images() == 0 {
            return format!(
                "foreload.Batch(step={step}, {} samples: {})",
                self.batch.len(),
                self.keys().join(", ")
            );
        }
        let images = self.batch.images();
        format!("foreload.Batch(step={step}, images={:?} {})", images.shape(), images.element().name())
    }
}
