//! What a pipeline knows of its threads, whichever of them run.

use super::{context::SampleContext, cpu_share::CpuBudget, stopwatch::Stopwatch, waker::FetchWaker};
use base::trace::Trace;
use std::sync::{Arc, Mutex, OnceLock};

/// What all threads of a pipeline share with its owner, from one set of threads to the next.
pub(crate) struct EngineShared {
    pub trace: Trace,
    /// The stopwatch of the consumer, whichever thread that is.
    pub consumer: Arc<Mutex<Stopwatch>>,
    /// How bytes are read, in words. It is known once the reader is open.
    pub io: Mutex<String>,
    /// What the GPU's decoders can do, in words, each by its name. It is known once the threads have started.
    pub decoders: OnceLock<Vec<(&'static str, String)>>,
    /// The processor time that the threads may take, with `cpu=`. It is known once the threads have started.
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

    /// The processors that the threads may keep busy on average.
    pub(crate) fn cores(&self) -> Option<f64> {
        self.budget.get().map(|budget| budget.cores())
    }
}

/// What all threads of one start share.
#[derive(Clone)]
pub(crate) struct ThreadContext {
    /// What samples are made by; of several recipes, by the first.
    pub context: Arc<SampleContext>,
    pub engine: Arc<EngineShared>,
    /// What wakes the thread that opens batches.
    pub waker: Arc<FetchWaker>,
}
