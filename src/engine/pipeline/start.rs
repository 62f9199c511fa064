//! Starts the threads of a pipeline: those that make batches in host memory or on a GPU, or the one thread that takes
//! batches from another process.

use super::{
    Pipeline, context::SampleContext, cuda, engine::ThreadContext, make::host::HostOpener,
    make::sample::SampleMaker, notify, take_shared, threads::Spawner, threads::Threads, threads::forked,
    waker::FetchWaker,
};
use crate::batch::BatchStorage;
use crate::config::Device;
use crate::sharing::BatchPosition;
use base::error::{Error, Result};
use base::slot::SlotPool;
use data::schedule::{Assignment, SampleOwners};
use std::sync::Arc;
use store::tier::{Cache, RankPlace, SharedJob};

impl Pipeline {
    /// Returns the threads for `context`, and starts them if none run. If they take shared batches, position `at` is
    /// the first batch that they take.
    ///
    /// # Errors
    /// [`Error::Unavailable`] in a forked child; the errors of starting threads.
    pub(crate) fn running<'t>(
        &self,
        threads: &'t mut Option<Threads>,
        context: &Arc<SampleContext>,
        place: RankPlace,
        at: BatchPosition,
    ) -> Result<&'t mut Threads> {
        if threads.as_ref().is_some_and(|threads| threads.process != std::process::id()) {
            return Err(forked());
        }
        // Images of another size need pools of another size, and threads keep their pools. So end the old threads
        // before new ones start.
        if let Some(former) = threads.take_if(|threads| !Arc::ptr_eq(&threads.of.context, context)) {
            former.end();
        }
        match threads {
            Some(threads) => Ok(threads),
            empty => Ok(empty.insert(self.start_threads(context, place, at)?)),
        }
    }

    fn start_threads(
        &self,
        context: &Arc<SampleContext>,
        place: RankPlace,
        at: BatchPosition,
    ) -> Result<Threads> {
        let waker = Arc::<FetchWaker>::default();
        let of = ThreadContext { context: context.clone(), engine: self.engine.clone(), waker };
        if let Some(shared) = &self.shared {
            match take_shared::start(of.clone(), shared, place, at) {
                Err(Error::Unavailable(why)) => context.index.notices().warn_once("shared", || {
                    format!("shared is set, but this loader cannot share batches and makes its own: {why}")
                }),
                attending => return attending,
            }
        }
        let config = &context.config;
        notify::blocks(context);
        // Encoded files are handed over in their slots, so a forked child must be able to read the arena.
        let arena = if config.decoded { SlotPool::new } else { SlotPool::inherited };
        let slots = arena(config.pools.slot_bytes)?;
        self.open_cache(context, place)?;
        match (config.device, &config.device_pools) {
            (Device::Cuda { ordinal }, Some(pools)) if config.images.list().is_empty() => {
                cuda::upload::start(of, slots, ordinal, pools)
            }
            (Device::Cuda { ordinal }, Some(pools)) => cuda::maker::start(of, slots, ordinal, pools),
            _ => {
                let storage = match config.decoded {
                    true if self.leases => BatchStorage::Shared,
                    true => BatchStorage::Host,
                    false => BatchStorage::Slots,
                };
                let context = context.clone();
                Spawner::new().start(of, slots, storage, HostOpener, move || SampleMaker::new(&context))
            }
        }
    }

    fn open_cache(&self, context: &SampleContext, place: RankPlace) -> Result<()> {
        let (config, source) = (&context.config, &context.source);
        let (Some(options), None) = (&config.cache, source.cache.get()) else { return Ok(()) };
        let job = SharedJob { place, selection: &config.selection, settings: self.order.agreement() };
        if let Some(cache) = Cache::open(&context.index, options.clone(), self.engine.trace.clone(), &job)? {
            source.cache.get_or_init(|| cache);
        }
        if options.peers.is_some() {
            let homes = source.cache.get().and_then(|cache| cache.owners());
            let homes = homes.unwrap_or_else(|| SampleOwners::on_one_node(place.world_size));
            let homes = if config.assignment == Assignment::EvenLocality {
                let index = context.index.clone();
                homes.with_even_bytes(move |sample| index.extent(sample).length.into())
            } else {
                homes
            };
            self.order.set_homes(Arc::new(homes));
        }
        Ok(())
    }
}
