//! `foreload._core.StreamEngine`, the base of `foreload.StreamLoader`.

use super::{SharedPipeline, fields, lock};
use crate::python::batches::Batches;
use crate::python::error::raise;
use crate::python::notices::deliver;
use crate::python::settings;
use crate::python::streams::{PythonScore, PythonSource, PythonVotes};
use base::error::{Error, Result};
use base::names::NamedValue;
use data::dataset::{Contents, DatasetIndex};
use engine::config::{LoaderKind, OnError, Setting};
use engine::pipeline::Pipeline;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use store::tier::RankPlace;
use stream::{RankShare, SampleStream, SavedStates, SourceSpec, StreamSpec, sample_id};

/// The class `foreload._core.StreamEngine`; see `_core.pyi` for the documentation.
#[pyclass(frozen, subclass, module = "foreload")]
pub(in crate::python) struct StreamEngine {
    stream: Arc<SampleStream>,
    /// Declared after `stream`, because fields are dropped in this order. The pipeline, as the last owner, then drops
    /// the stream without holding the GIL, which the threads of Python sources need to end.
    pipeline: SharedPipeline,
    place: RankPlace,
    /// The progress of the latest iteration, which counts failures.
    errors: Mutex<Option<Arc<engine::pipeline::Progress>>>,
}

#[pymethods]
impl StreamEngine {
    /// Makes the engine of `sources`: pairs of a description in JSON and a Python object or None. `score` is the user's
    /// scoring function, or None. `place` is the rank and the number of ranks. The ranks agree by calls of `votes`.
    #[new]
    #[pyo3(signature = (sources, spec, score, place, votes, **settings))]
    fn new(
        py: Python<'_>,
        sources: Vec<(String, Option<Py<PyAny>>)>,
        spec: &str,
        score: Option<Py<PyAny>>,
        place: (u32, u32),
        votes: Option<Py<PyAny>>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (options, _) = settings::read_named(LoaderKind::Images, py, settings, |name, _| {
            if Setting::named(name).is_some_and(Setting::is_of_datasets) {
                let message =
                    "applies only to datasets, which have an index and epochs: remove it for a stream";
                return Err(settings::wrong(name, message));
            }
            Ok(false)
        })?;
        let spec = raise(py, StreamSpec::from_json(spec))?;
        let checked = raise(py, py.detach(|| options.validate()))?;
        let index_options = checked.index_options(Contents::Images);
        let notices = index_options.notices.clone();
        let (rank, world_size) = place;
        let share = RankShare { rank, world_size };
        let open = || -> Result<(Arc<SampleStream>, Arc<DatasetIndex>)> {
            let max_bytes = spec.max_bytes()?;
            let mut opened = Vec::new();
            for (described, object) in sources {
                let iterator = |name| {
                    let none = || Error::Internal("an iterator is not given".into());
                    let object = object.ok_or_else(none)?;
                    PythonSource::new(name, object, max_bytes, share).map(|source| Box::new(source) as _)
                };
                opened.push(SourceSpec::from_json(&described)?.open(max_bytes, share, &notices, iterator)?);
            }
            let labeled = !index_options.without_labels;
            let (batch, seed, raises) =
                (options.batch_size, options.seed, options.on_error == OnError::Raise);
            let mut stream = spec.options(batch, seed, raises, labeled, share, &notices)?;
            stream.votes = votes.map(|votes| Arc::new(PythonVotes::new(votes)) as _);
            stream.score = score.map(PythonScore::shared);
            let stream = SampleStream::new(stream, opened)?;
            let index = DatasetIndex::of_stream(stream.live(), spec.classes.clone(), &index_options);
            Ok((stream, Arc::new(index)))
        };
        let (stream, index) = raise(py, py.detach(open))?;
        let config = raise(py, py.detach(|| checked.check(&index)))?;
        deliver(py, index.notices())?;
        let pipeline = Pipeline::of_stream(index, config, stream.clone());
        Ok(Self {
            pipeline: SharedPipeline(Some(Arc::new(pipeline))),
            stream,
            place: RankPlace { rank, world_size },
            errors: Mutex::default(),
        })
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Py<Batches>> {
        let errors = self.failed();
        let epoch = py.detach(|| self.pipeline.stream(self.place, errors));
        let epoch = raise(py, epoch)?;
        deliver(py, self.pipeline.index().notices())?;
        *lock(&self.errors) = Some(epoch.progress().clone());
        Batches::of(py, &self.pipeline, epoch)
    }

    /// Returns the state after the last yielded batch, as JSON.
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        let errors = self.failed();
        let state = py.detach(|| self.stream.state(errors));
        deliver(py, self.pipeline.index().notices())?;
        let text = state.and_then(|state| {
            serde_json::to_string(&state)
                .map_err(|error| Error::Internal(format!("the state cannot be written as JSON: {error}")))
        });
        raise(py, text)
    }

    /// Resumes from a saved state, or from the saved states of all ranks, given as JSON.
    fn load(&self, py: Python<'_>, states: &str) -> PyResult<()> {
        raise(py, SavedStates::from_json(states).and_then(|states| self.stream.load(states)))
    }

    /// Lets sources discard the samples that a state, given as JSON, includes.
    fn acknowledge(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        let state = raise(py, SavedStates::from_json(state))?;
        let outcome = py.detach(|| self.stream.acknowledge(state));
        deliver(py, self.pipeline.index().notices())?;
        raise(py, outcome)
    }

    /// Withdraws samples by their streams and keys. Returns how many of them were waiting or kept.
    fn withdraw(&self, py: Python<'_>, samples: Vec<(String, String)>) -> PyResult<u64> {
        let ids: HashSet<u64> = samples.iter().map(|(stream, key)| sample_id(stream, key)).collect();
        raise(py, py.detach(|| self.stream.withdraw(&ids)))
    }

    /// The names of the streams.
    #[getter]
    fn streams(&self) -> Vec<String> {
        self.stream.names().to_vec()
    }

    /// Returns the counters of all samples, and their latencies.
    fn stream_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (account, latencies, (kept, kept_bytes)) = py.detach(|| self.stream.stats());
        let dict = account.by_name().into_py_dict(py)?;
        dict.set_item("kept", kept)?;
        dict.set_item("kept_bytes", kept_bytes)?;
        for (name, quantile) in [("latency_p50_seconds", 0.5), ("latency_p99_seconds", 0.99)] {
            dict.set_item(name, latencies.quantile(quantile))?;
        }
        Ok(dict)
    }

    /// The number of samples in a batch.
    #[getter]
    fn batch_size(&self) -> u32 {
        self.pipeline.config().batch_size
    }

    /// The device of the batches: `cpu` or `cuda:N`.
    #[getter]
    fn device(&self) -> String {
        self.pipeline.config().device.to_string()
    }

    /// The fields of the batches by name, with the kind of each.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        fields::kinds(py, self.pipeline.config())
    }

    /// The names of the optional fields.
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
    /// number of its dimensions per sample.
    fn _dense(&self, py: Python<'_>) -> PyResult<Vec<(String, &'static str, usize)>> {
        fields::dense(py, self.pipeline.config())
    }

    /// The order of the images' dimensions, by name.
    #[getter]
    fn memory_format(&self) -> &'static str {
        self.pipeline.config().output().format.name()
    }

    /// The class names by number; empty if there are only numbers.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.pipeline.index().classes().to_vec()
    }

    /// The interface that reads bytes, in words; empty before the first iteration.
    #[getter]
    fn io(&self) -> String {
        self.pipeline.io()
    }
}

impl StreamEngine {
    /// Returns the number of failures so far, including former iterations and runs.
    fn failed(&self) -> u64 {
        let failed = lock(&self.errors).as_ref().map(|progress| progress.failed());
        failed.unwrap_or_else(|| self.stream.loaded_errors())
    }
}
