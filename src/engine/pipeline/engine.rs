//! State that a pipeline shares with its threads. It outlives the threads, which can be replaced.

use super::{context::SampleContext, cpu_share::CpuBudget, stopwatch::Stopwatch, waker::FetchWaker};
use base::trace::Trace;
use std::sync::{Arc, Mutex, OnceLock};

/// State that all threads of a pipeline share with its owner. It is kept when the threads are replaced.
pub(crate) struct EngineShared {
    pub trace: Trace,
    /// The stopwatch of the consumer, which may be any thread.
    pub consumer: Arc<Mutex<Stopwatch>>,
    /// A description of how bytes are read, set when the reader is opened.
    pub io: Mutex<String>,
    /// The GPU's decoders by name, each with a description of what it can decode. Set when the threads start.
    pub decoders: OnceLock<Vec<(&'static str, String)>>,
    /// The processor time that the threads may use, with `cpu=`. Set when the threads start.
    pub(super) budget: OnceLock<Arc<CpuBudget>>,
}

impl EngineShared {
    pub(crate) fn new(trace: Trace) -> Self {
        Self {
            consumer: Arc::new(Mutex::new(Stopwatch::new(trace.lane("consumer")))),
            trace,
            io: Mutex::default(),
            decoders: OnceLock::new(),
            budget: OnceLock::new(),
        }
    }

    /// Returns the average number of processors that the threads may keep busy; `None` without `cpu=`.
    pub(crate) fn cores(&self) -> Option<f64> {
        self.budget.get().map(|budget| budget.cores())
    }
}

/// State that is shared by threads that are started together.
#[derive(Clone)]
pub(crate) struct ThreadContext {
    /// The settings by which samples are made.
    pub context: Arc<SampleContext>,
    pub engine: Arc<EngineShared>,
    /// Wakes the thread that opens batches.
    pub waker: Arc<FetchWaker>,
}
