//! State that a pipeline shares with its threads. It outlives the threads, which can be replaced.

use super::{context::SampleContext, cpu_share::CpuBudget, stopwatch::Stopwatch, waker::FetchWaker};
use base::trace::Trace;
use std::sync::{Arc, Mutex, OnceLock};

pub(crate) struct EngineShared {
    pub trace: Trace,
    /// The stopwatch of the consumer, which is the thread that takes batches. It may be any thread.
    pub consumer: Arc<Mutex<Stopwatch>>,
    pub io: Mutex<String>,
    /// For each decoder of the GPU, its name and a description of what it can decode. Set when the threads start.
    pub decoders: OnceLock<Vec<(&'static str, String)>>,
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

    pub(crate) fn cores(&self) -> Option<f64> {
        self.budget.get().map(|budget| budget.cores())
    }
}

/// State that is shared by threads that are started together.
#[derive(Clone)]
pub(crate) struct ThreadContext {
    pub context: Arc<SampleContext>,
    pub engine: Arc<EngineShared>,
    pub waker: Arc<FetchWaker>,
}
