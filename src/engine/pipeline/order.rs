//! The order of an epoch and the batches of each rank, as the settings define them.
//!
//! An epoch's order is a permutation of its draws. It depends on (dataset fingerprint, selection, seed, epoch) and
//! `repeats` alone. Global batch g is positions [g·B, (g+1)·B), and rank r takes its r-th slice. With
//! `assignment="locality"`, a rank takes other places of the same global batch, but the same number of places. So a
//! state is one position, and it fits any number of ranks with the same global batch. (→ tests/data/schedule.rs,
//! tests/data/locality.rs, tests/data/selection.rs)

use super::{Pipeline, context::SampleContext, notify};
use base::error::{Error, Result};
use base::names::NamedValue;
use data::dataset::Fingerprint;
use data::schedule::{Assignment, Order, Packing, SampleOwners, Schedule, Shuffling};
use data::state::{OrderIdentity, State};
use pixels::augment::MIX_GROUP_SIZE;
use std::sync::{Arc, Mutex, PoisonError};
use store::tier::Verify;

pub(crate) struct OrderPlan {
    context: Arc<SampleContext>,
    /// Everything that the order depends on. A state must have the same identity.
    pub identity: Arc<OrderIdentity>,
    /// The owner node of each sample, for `assignment="locality"`. Set when the ranks exchange what each node
    /// caches.
    homes: Mutex<Option<Arc<SampleOwners>>>,
    /// With bins, the latest order that was packed, with its epoch.
    in_bins: Mutex<Option<(u64, Order)>>,
}

impl OrderPlan {
    pub(crate) fn new(context: &Arc<SampleContext>) -> Self {
        let config = &context.config;
        let identity = OrderIdentity {
            fingerprint: context.index.fingerprint().to_string(),
            seed: config.seed,
            epoch_size: config.selection.draws(),
            shuffle: config.shuffling != Shuffling::Off,
            blocks: config
                .blocks()
                .map(|neighbour_blocks| Fingerprint(*neighbour_blocks.digest()).to_string()),
            last_batch: config.last_batch,
            selection: config.selection.digest().map(|digest| Fingerprint(*digest).to_string()),
            repeats: config.repeats,
            mix: config.mix.as_ref().map(|plan| plan.mixing.text().to_owned()),
            buckets: config.bucket_table.as_ref().map(|table| Fingerprint(*table.digest()).to_string()),
            bins: config.cost_table.as_ref().map(|table| Fingerprint(*table.digest()).to_string()),
        };
        let (homes, in_bins) = (Mutex::default(), Mutex::default());
        Self { context: context.clone(), identity: Arc::new(identity), homes, in_bins }
    }

    pub(crate) fn set_homes(&self, homes: Arc<SampleOwners>) {
        *self.homes.lock().unwrap_or_else(PoisonError::into_inner) = Some(homes);
    }

    /// Returns the batches of a rank under `assignment="order"`, in which ranks take slices of the order. A state needs
    /// no more, because an assignment does not change global batches.
    ///
    /// # Errors
    /// The errors of [`Pipeline::schedule`].
    pub(crate) fn in_slices(&self, epoch: u64, rank: u32, world_size: u32) -> Result<Schedule> {
        let config = &self.context.config;
        let order = self.order(epoch, world_size)?;
        if config.bucket_table.is_some() && order.is_empty() {
            let global = u64::from(config.batch_size) * u64::from(world_size);
            let message = format!(
                "is {}, but no bucket has the {global} samples of a global batch: lower batch_size, or set last_batch \
                 to \"pad\" or \"partial\"",
                config.batch_size
            );
            return Err(Error::config("batch_size", message));
        }
        if config.cost_table.is_some() {
            let step_bins = config.step_bins.unwrap_or(world_size);
            return Schedule::of_bins(order, step_bins, rank, world_size, config.last_batch);
        }
        let repeats = u64::from(order.repeats());
        let schedule = Schedule::new(order, config.batch_size, rank, world_size, config.last_batch)?;
        let schedule = if config.mix.is_none() { schedule } else { schedule.with_unit(MIX_GROUP_SIZE) };
        let least = u64::from(MIX_GROUP_SIZE) * repeats;
        if config.mix.is_some() && repeats > 1 && schedule.global_batch() < least {
            let message = format!(
                "is {}, which gives {} places in a step of all ranks, but mix= with repeats={repeats} needs at least \
                 {least}: with fewer than {MIX_GROUP_SIZE} samples in a step, a sample could be mixed with itself",
                config.batch_size,
                schedule.global_batch(),
            );
            return Err(Error::config("batch_size", message));
        }
        Ok(schedule)
    }

    pub(crate) fn order(&self, epoch: u64, world_size: u32) -> Result<Order> {
        let (config, fingerprint) = (&self.context.config, self.context.index.fingerprint());
        let selection = config.selection.clone();
        if let Some(table) = &config.bucket_table {
            let global_batch = u64::from(config.batch_size) * u64::from(world_size);
            let (of, is_shuffled) = ((&fingerprint, config.seed, epoch), config.shuffling != Shuffling::Off);
            let (table, last) = (table.clone(), config.last_batch);
            return Ok(Order::by_buckets(selection, table, of, global_batch.max(1), is_shuffled, last));
        }
        let order = match (config.shuffling, &config.neighbour_blocks) {
            (Shuffling::Blocks, Some(neighbour_blocks)) => {
                let divided = config.divided(world_size)?;
                if divided.parts > world_size {
                    notify::parts(&self.context, divided.parts, world_size);
                }
                let neighbour_blocks = neighbour_blocks.clone();
                Order::by_neighbour_blocks(
                    selection,
                    neighbour_blocks,
                    &fingerprint,
                    config.seed,
                    epoch,
                    divided,
                )
            }
            (Shuffling::Off, _) => Order::listed(selection),
            _ => Order::drawn(selection, &fingerprint, config.seed, epoch),
        };
        let Some(table) = &config.cost_table else { return Ok(order.repeated(config.repeats)) };
        let mut latest = self.in_bins.lock().unwrap_or_else(PoisonError::into_inner);
        match &*latest {
            Some((of, in_bins)) if *of == epoch => Ok(in_bins.clone()),
            _ => Ok(latest.insert((epoch, order.in_bins(table.clone()))).1.clone()),
        }
    }

    pub(crate) fn warn_of_padding(&self, schedule: &Schedule) {
        let (left_out, draws) = (schedule.order().left_out(), self.context.config.selection.draws());
        // Some samples nearly always are left out, in each epoch others.
        if left_out.saturating_mul(100) > draws {
            self.context.index.notices().warn_once("left out", || {
                format!(
                    "buckets: {left_out} of {draws} samples ({:.2} %) do not fill a batch of their size, and are left \
                     out of each epoch: set last_batch to \"pad\" or \"partial\", or lower batch_size",
                    left_out as f64 * 100.0 / draws as f64
                )
            });
        }
        if let Some(Packing { left_out, bins, .. }) = schedule.packing()
            && left_out.saturating_mul(100) > draws
        {
            self.context.index.notices().warn_once("left out", || {
                format!(
                    "bins: {left_out} of {draws} samples ({:.2} %) are in bins that do not fill the last step after \
                     {bins} bins, and are left out of the epoch: set last_batch to \"pad\" or \"partial\", or lower \
                     bins",
                    left_out as f64 * 100.0 / draws as f64
                )
            });
        }
        let (padded, world_size) = (schedule.padded_ranks(), schedule.world_size());
        if padded > 0 {
            self.context.index.notices().warn_once("padded ranks", || {
                let left = schedule.order().len() % schedule.global_batch();
                format!(
                    "last_batch is partial, and the last step of an epoch has {left} samples for {world_size} ranks: \
                     {padded} of them get a last batch of one repeated sample, for which `mask` is False. Exclude it \
                     from losses and metrics (with_mask=True in foreload.torch and foreload.dali), or choose \
                     last_batch=\"drop\" or a batch_size that leaves more samples"
                )
            });
        }
    }

    pub(crate) fn assigned(&self, schedule: Schedule) -> Result<Schedule> {
        if self.context.config.assignment == Assignment::Order {
            return Ok(schedule);
        }
        let homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let unknown = "needs to know what each node caches, which the nodes exchange when the first iteration starts: \
                       start an iteration first";
        schedule.by_locality(homes.ok_or_else(|| Error::config("assignment", unknown))?)
    }

    /// Returns the settings that must be the same on all ranks, by name: the settings that decide the contents of a
    /// batch, and how ranks divide the samples.
    pub(crate) fn agreement(&self) -> Vec<(String, String)> {
        let config = &self.context.config;
        let verify = match config.cache.as_ref().map(|cache| cache.verify) {
            None | Some(Verify::Never) => "never (immutable)",
            Some(verify) => verify.name(),
        };
        // A copy of a sample has only the members or arrays that are read.
        let members = config.fields.list.iter().filter(|field| field.member.is_some());
        let mut sources: Vec<&str> = members.map(|field| &field.source[..]).collect();
        sources.sort_unstable();
        sources.dedup();
        let more = [
            ("fields", sources.join(", ")),
            ("batch_size", config.batch_size.to_string()),
            ("bins", config.step_bins.map_or("None".into(), |bins| bins.to_string())),
            ("assignment", config.assignment.name().to_owned()),
            ("verify", verify.to_owned()),
        ];
        let values = self.identity.values().into_iter().chain(more);
        values.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl Pipeline {
    /// Returns the batches of `rank` in `epoch`.
    ///
    /// # Errors
    /// The errors of [`Schedule::new`]; [`Error::Config`] if a sample would be mixed with itself. With
    /// `assignment="locality"` also [`Error::Config`] if the owner nodes are not known, or were determined for another
    /// number of ranks.
    pub fn schedule(&self, epoch: u64, rank: u32, world_size: u32) -> Result<Schedule> {
        self.order.assigned(self.order.in_slices(epoch, rank, world_size)?)
    }

    /// Returns the order of an epoch. Each rank takes a part of it.
    ///
    /// # Errors
    /// [`Error::Config`] if blocks are divided among ranks whose number does not divide a global batch.
    pub fn order(&self, epoch: u64, world_size: u32) -> Result<Order> {
        self.order.order(epoch, world_size)
    }

    /// Returns the number of steps of `epoch`, which is the same on every rank, and without bins in every epoch.
    ///
    /// # Errors
    /// The errors of [`Pipeline::schedule`].
    pub fn steps(&self, epoch: u64, rank: u32, world_size: u32) -> Result<u64> {
        let config = self.config();
        if config.bucket_table.is_some() || config.cost_table.is_some() {
            return Ok(self.order.in_slices(epoch, rank, world_size)?.steps());
        }
        let draws = config.selection.draws();
        Schedule::count(draws, config.batch_size, rank, world_size, config.last_batch)
    }

    /// Returns how `epoch` is packed into bins.
    ///
    /// # Errors
    /// The errors of [`Pipeline::schedule`]; [`Error::Config`] without `batch_tokens`.
    pub fn packing(&self, epoch: u64, rank: u32, world_size: u32) -> Result<Packing> {
        let packing = self.order.in_slices(epoch, rank, world_size)?.packing();
        packing.ok_or_else(|| Error::config("batch_tokens", "is not set, so batches are not packed"))
    }

    /// Checks that `state` belongs to this pipeline's order.
    ///
    /// # Errors
    /// The errors of [`State::check`].
    pub fn check(&self, state: &State) -> Result<()> {
        state.check(&self.order.identity)
    }

    /// Returns the state before the first step of `epoch`.
    ///
    /// # Errors
    /// The errors of [`Pipeline::schedule`].
    pub fn state(&self, epoch: u64, rank: u32, world_size: u32) -> Result<State> {
        let schedule = self.order.in_slices(epoch, rank, world_size)?;
        Ok(State::new(&self.order.identity, epoch, &schedule, 0, 0))
    }

    /// Returns everything that the order of samples depends on.
    pub fn identity(&self) -> &OrderIdentity {
        &self.order.identity
    }
}
