//! The parts of a stream that run Python code: an iterator that gives samples, a function that scores them, and the
//! agreement of ranks.

use super::calls::{call, has_ended, show};
use base::error::{Error, Result};
use pyo3::exceptions::{PyException, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyString, PyTuple};
use std::sync::Arc;
use std::time::Duration;
use stream::{
    Arrival, RankShare, RankVotes, Received, Record, Replay, ScoreFunction, SourcePosition, StreamSource,
    members,
};

/// Pause after an iterator has returned None.
const NOTHING_NOW: Duration = Duration::from_millis(1);

pub(super) struct PythonSource {
    name: String,
    object: Py<PyAny>,
    iterator: Option<Py<PyAny>>,
    replays: bool,
    acknowledges: bool,
    most: u32,
    share: RankShare,
    next: u64,
}

impl PythonSource {
    /// Makes the source of the iterable `object`. The source can replay samples if `object` has a method `seek`, and
    /// can acknowledge samples if it has a method `acknowledge`.
    ///
    /// # Errors
    /// [`Error::Config`] for an object that is not iterable.
    pub(super) fn new(name: String, object: Py<PyAny>, most: u32, share: RankShare) -> Result<Self> {
        Python::attach(|py| {
            let bound = object.bind(py);
            let has = |method| bound.hasattr(method).unwrap_or(false);
            if !has("__iter__") && !has("__next__") {
                return Err(Error::config(
                    "Iterator",
                    "is not iterable: pass an object that a for loop accepts",
                ));
            }
            let (replays, acknowledges) = (has("seek"), has("acknowledge"));
            Ok(Self {
                name,
                replays,
                acknowledges,
                most,
                share,
                next: 0,
                iterator: None,
                object: object.clone_ref(py),
            })
        })
    }

    /// Takes the next sample: `None` at the end, `Some(None)` if the iterator has no sample now and returned None.
    fn next(&mut self, py: Python<'_>) -> Result<Option<Option<Arrival>>> {
        let Some(iterator) = &self.iterator else {
            return Err(Error::Internal("an iterator was not opened".into()));
        };
        let item = match iterator.bind(py).call_method0("__next__") {
            Ok(item) => item,
            Err(stop) if stop.is_instance_of::<PyStopIteration>(py) => return Ok(None),
            Err(error) => return Err(self.raised(py, &error)),
        };
        if item.is_none() {
            // An iterator that returns without waiting must not keep the GIL from other threads.
            py.detach(|| std::thread::sleep(NOTHING_NOW));
            return Ok(Some(None));
        }
        let (key, sample) = match item.cast::<PyTuple>() {
            Ok(pair) if pair.len() == 2 => {
                let items = (pair.get_item(0), pair.get_item(1));
                let (Ok(key), Ok(sample)) = items else {
                    return Err(Error::Unavailable(format!(
                        "the iterator {:?} returned an invalid (key, sample) pair",
                        self.name
                    )));
                };
                let key = match key.is_none() {
                    true => self.share.key(self.next),
                    false => key.str().map(|key| key.to_string_lossy().into_owned()).unwrap_or_default(),
                };
                (key, sample)
            }
            _ => (self.share.key(self.next), item),
        };
        self.next += 1;
        let record = self.record(&key, &sample);
        Ok(Some(Some(Arrival { key, record, gap: 0 })))
    }

    fn record(&self, key: &str, sample: &Bound<'_, PyAny>) -> Result<Record, String> {
        let Ok(sample) = sample.cast::<PyDict>() else {
            return Err("it is not a dict of members, such as {\"jpg\": bytes, \"cls\": 3}".to_owned());
        };
        let given = members_of(sample)?;
        let sum: usize = given.iter().map(|(_, bytes)| bytes.len()).sum();
        if sum > self.most as usize {
            return Err(format!("it has {sum} bytes, and max_bytes allows {}", self.most));
        }
        let given: Vec<(&str, &[u8])> = given.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
        Record::new(&self.name, key, &given)
    }

    fn raised(&self, py: Python<'_>, error: &PyErr) -> Error {
        show(py, error);
        Error::Unavailable(format!("the iterator of stream {:?} raised {error}", self.name))
    }

    fn call(&self, method: &str, argument: Option<&str>) -> Result<()> {
        call(|py| {
            let called = self.object.bind(py).call_method1(method, (argument,));
            called.map(drop).map_err(|error| self.raised(py, &error))
        })
    }
}

fn members_of(sample: &Bound<'_, PyDict>) -> Result<Vec<(String, Vec<u8>)>, String> {
    let member = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name = name.str().map_err(|error| error.to_string())?.to_string_lossy().into_owned();
        let bytes = bytes_of(&value).map_err(|error| format!("its member {name:?} {error}"))?;
        // The class is called `label` in batches, and `cls` in members, as in WebDataset.
        Ok((if name == "label" { "cls".to_owned() } else { name }, bytes))
    };
    sample.iter().map(member).collect()
}

/// Returns the bytes of a member: bytes unchanged, text as UTF-8, integers as text, and everything else as JSON.
fn bytes_of(value: &Bound<'_, PyAny>) -> Result<Vec<u8>, String> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_string_lossy().as_bytes().to_vec());
    }
    let py = value.py();
    let as_bytes = |value: &Bound<'_, PyAny>| -> PyResult<Vec<u8>> {
        let view = py.import("builtins")?.getattr("memoryview")?.call1((value,))?;
        let bytes = view.call_method0("tobytes")?;
        Ok(bytes.cast::<PyBytes>()?.as_bytes().to_vec())
    };
    let is_bytes = value.is_instance_of::<PyByteArray>()
        || value.get_type().name().is_ok_and(|name| name == "memoryview");
    if is_bytes {
        return as_bytes(value).map_err(|error| error.to_string());
    }
    if let Ok(number) = value.call_method0("__index__") {
        return number
            .str()
            .map(|text| text.to_string_lossy().into_owned().into_bytes())
            .map_err(|error| error.to_string());
    }
    let json = py.import("json").and_then(|json| json.call_method1("dumps", (value,)));
    let json =
        json.map_err(|error| format!("cannot be written as bytes, text, a number or JSON: {error}"))?;
    json.str().map(|text| text.to_string_lossy().into_owned().into_bytes()).map_err(|error| error.to_string())
}

impl StreamSource for PythonSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn replay(&self) -> Replay {
        if self.replays { Replay::Ordered } else { Replay::Never }
    }

    fn open(&mut self, position: &SourcePosition) -> Result<()> {
        if self.replays {
            self.call("seek", position.after.as_deref())?;
        }
        // Replayed samples get the same indices as before. Without replay, samples get indices that were never used.
        let given = match self.replays {
            true => position.after.as_deref().and_then(RankShare::number_in),
            false => position.highest_number(),
        };
        self.next = given.map_or(0, |number| number + 1);
        let iterator = call(|py| {
            let iterator = self.object.bind(py).try_iter().map(|iterator| iterator.into_any().unbind());
            iterator.map_err(|error| self.raised(py, &error))
        })?;
        self.iterator = Some(iterator);
        Ok(())
    }

    fn redistribute(&self, former: Vec<SourcePosition>) -> Result<SourcePosition> {
        if self.replays {
            let message = format!(
                "the iterator {:?} resumes with `seek`, which takes the position of one rank: resume with as many \
                 ranks as before, or use a source that ranks can divide, such as Redis or a folder",
                self.name
            );
            return Err(Error::config("world_size", message));
        }
        Ok(SourcePosition::after_all(former))
    }

    fn receive(&mut self, most: usize, _: Duration, into: &mut Vec<Arrival>) -> Result<Received> {
        if most == 0 {
            return Ok(Received::More);
        }
        // The next sample may take long, so pass each sample on at once.
        match call(|py| self.next(py)) {
            Ok(next) => {
                let Some(next) = next else { return Ok(Received::End) };
                into.extend(next);
                Ok(Received::More)
            }
            // The interpreter is ending. Report neither an end nor an error of the stream, because a thread of the user
            // may still wait for samples.
            Err(_) if has_ended() => {
                std::thread::sleep(NOTHING_NOW);
                Ok(Received::More)
            }
            Err(error) => Err(error),
        }
    }

    fn acknowledge(&mut self, position: &SourcePosition) -> Result<bool> {
        self.call("acknowledge", position.after.as_deref())?;
        Ok(true)
    }

    fn needs_acknowledge(&self) -> bool {
        self.acknowledges
    }

    fn fetch(&mut self, key: &str) -> Result<Record> {
        let gone = |name: &str| {
            Error::Unavailable(format!(
                "the iterator of stream {name:?} ended before it gave the sample {key:?} again"
            ))
        };
        loop {
            let next = call(|py| self.next(py))?.ok_or_else(|| gone(&self.name))?;
            if let Some(arrival) = next
                && arrival.key == key
            {
                return arrival.record.map_err(|what| {
                    Error::Unavailable(format!(
                        "sample {key:?} of stream {:?} cannot be used again: {what}",
                        self.name
                    ))
                });
            }
        }
    }

    fn describe(&self) -> String {
        format!("the iterator {:?}", self.name)
    }
}

pub(super) struct PythonScore(Py<PyAny>);

impl PythonScore {
    pub(super) fn shared(function: Py<PyAny>) -> Arc<ScoreFunction> {
        let score = Self(function);
        Arc::new(move |record| score.of(record))
    }

    fn of(&self, record: &Record) -> Result<f64> {
        call(|py| {
            let score = || -> PyResult<f64> {
                let sample = PyDict::new(py);
                for (name, range) in members(record.bytes()) {
                    let bytes = &record.bytes()[range];
                    match name {
                        "__key__" | "__stream__" => {
                            sample.set_item(name, std::str::from_utf8(bytes).unwrap_or_default())?
                        }
                        _ => sample.set_item(name, PyBytes::new(py, bytes))?,
                    }
                }
                self.0.bind(py).call1((sample,))?.extract()
            };
            score().map_err(|error| {
                let is_ordinary = error.is_instance_of::<PyException>(py);
                show(py, &error);
                let what = if is_ordinary { "raised" } else { "was interrupted by" };
                Error::Unavailable(format!("the score of sample {:?} {what} {error}", record.key()))
            })
        })
    }
}

/// The function by which the ranks of a stream agree: `foreload._agree.Agreement.gather`, or a replacement.
pub(super) struct PythonVotes(Py<PyAny>);

impl PythonVotes {
    pub(super) fn new(gather: Py<PyAny>) -> Self {
        Self(gather)
    }
}

impl RankVotes for PythonVotes {
    fn gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        call(|py| {
            let votes = self.0.bind(py).call1((PyBytes::new(py, mine),)).and_then(|votes| votes.extract());
            votes.map_err(|error: PyErr| Error::Unavailable(error.value(py).to_string()))
        })
    }
}
