//! Starts the threads that make batches on a GPU. Opens batches as assemblies, which collect the samples that workers
//! have prepared.

use super::GpuStage;
use super::assembly::{Assembly, GpuPlace, LaneQueues, SubBatchesInFlight};
use super::lane;
use super::prepare::Preparer;
use crate::batch::{BatchStorage, Sink};
use crate::config::{DevicePools, LANES};
use crate::pipeline::{
    engine::ThreadContext, make::BatchOpener, notify, run::EpochRun, threads::Spawner, threads::Threads,
};
use base::error::Result;
use base::slot::SlotPool;
use crossbeam_channel::unbounded;
use std::sync::{Arc, Weak};
use std::time::Duration;

struct GpuOpener {
    stage: Arc<GpuStage>,
    lanes: LaneQueues,
    gathering: Vec<Weak<Assembly>>,
    sub_batches_in_flight: SubBatchesInFlight,
}

impl BatchOpener for GpuOpener {
    type Place = GpuPlace;

    /// How long the reading thread waits for a free slot. Then it sends the samples of incomplete batches to the lanes
    /// (threads that make batches on the GPU), because the lanes free the slots of these samples.
    const SLOT_WAIT: Option<Duration> = Some(Duration::from_millis(50));

    fn attach_thread(&self) {
        self.stage.attach_thread();
    }

    fn begin(&mut self, run: &Arc<EpochRun>, step: u64, len: u32) -> Result<Option<Vec<GpuPlace>>> {
        let sink: Arc<dyn Sink> = run.inbox.clone();
        let Some((closer, tickets)) = run.batches.begin(step, len, &sink)? else { return Ok(None) };
        if len == 0 {
            closer.close();
            return Ok(Some(Vec::new()));
        }
        let pieces = self.sub_batches_in_flight.clone();
        let assembly = Arc::new(Assembly::new(run.clone(), &self.lanes, pieces, step, len, closer));
        self.gathering.retain(|assembly| assembly.strong_count() > 0);
        self.gathering.push(Arc::downgrade(&assembly));
        let place = |ticket| GpuPlace { ticket, assembly: assembly.clone() };
        Ok(Some(tickets.into_iter().map(place).collect()))
    }

    /// Sends the samples of incomplete batches to the lanes, to free their slots. Does nothing if a lane already has
    /// slots to free.
    fn release_slots(&mut self) {
        if self.sub_batches_in_flight.is_empty() {
            self.gathering.iter().filter_map(Weak::upgrade).for_each(|assembly| assembly.flush());
        }
    }
}

/// Starts the threads that make batches on the GPU with the index `ordinal`.
///
/// # Errors
/// The errors of [`GpuStage::open`]; [`base::error::Error::Unavailable`] if no thread can be started.
pub(crate) fn start(
    of: ThreadContext,
    slots: SlotPool,
    ordinal: u32,
    pools: &DevicePools,
) -> Result<Threads> {
    let context = of.context.clone();
    let stage = Arc::new(GpuStage::open(ordinal, &context.config, pools, &slots)?);
    of.engine.decoders.get_or_init(|| stage.decoders());
    if let Some((backend, why)) = stage.failed() {
        notify::probe_failed(&context, *backend, why);
    }
    let storage = BatchStorage::Cuda(stage.storage()?);
    let mut spawner = Spawner::new();
    let (common, whole) = unbounded();
    let queues: [_; LANES] = std::array::from_fn(|_| unbounded());
    let lanes = LaneQueues { common, own: queues.each_ref().map(|(own, _)| own.clone()) };
    for (i, (_, own)) in queues.into_iter().enumerate() {
        let (of, stage, whole) = (of.clone(), stage.clone(), whole.clone());
        spawner.spawn(format!("foreload-lane-{i}"), move || lane::run(&of, &stage, i, [&own, &whole]))?;
    }
    let opener = GpuOpener {
        stage: stage.clone(),
        lanes,
        gathering: Vec::new(),
        sub_batches_in_flight: SubBatchesInFlight::default(),
    };
    spawner.start(of, slots, storage, opener, move || Preparer::new(&context, &stage))
}
