//! The order of an epoch in bins: batches whose samples together cost at most a budget.
//!
//! The packer takes the draws in the order of the epoch, and looks at [`WINDOW`] of them at a time. A bin first takes
//! the draws that have waited longest, so that none waits for long. When about two average draws are left of the
//! budget, or the next draw does not fit, the bin takes the largest draw of the window that fits, until none fits. So
//! the bins of an epoch depend on its order, the costs and the budget, but not on the number of ranks.
//!
//! A plan takes 4 bytes for each draw and 4 for each bin, and 4 more for each draw if positions of samples are asked
//! for, which caches do. The costs take 4 bytes for each draw. (→ tests/data/bins.rs)

use super::LastBatch;
use base::error::{Error, Result};
use base::rng::RandomStream;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

/// The number of draws among which the packer chooses.
const WINDOW: usize = 1024;

/// A bin has at most this many times the draws that a bin has on average, so that batch buffers are not sized for a bin
/// of the smallest draws alone.
const MOST_TIMES_MEAN: u64 = 32;

/// The number of draws that are tried as the substitute of a failed one.
const ATTEMPTS: u32 = 64;

/// The cost of each draw of an epoch, by the number of the draw, and the budget of a bin.
#[derive(Debug)]
pub struct CostTable {
    costs: Vec<u32>,
    budget: u32,
    /// The number of draws that fit into a bin alone.
    fitting: u64,
    /// The sum of their costs.
    total: u64,
    /// The largest number of draws in a bin.
    most: u32,
    /// The draw of the lowest cost.
    cheapest: u32,
    digest: [u8; 32],
}

impl CostTable {
    /// Makes a table of the costs of draws, fewer than 2³². A cost of 0 counts as 1.
    pub fn new(mut costs: Vec<u32>, budget: u32) -> Self {
        costs.iter_mut().for_each(|cost| *cost = (*cost).max(1));
        let mut fitting: Vec<u32> = costs.iter().copied().filter(|cost| *cost <= budget).collect();
        let total: u64 = fitting.iter().copied().map(u64::from).sum();
        let mean = (total / (fitting.len() as u64).max(1)).max(1);
        let limit = (MOST_TIMES_MEAN * u64::from(budget).div_ceil(mean)).min(fitting.len() as u64) as usize;
        // The most draws that fit into a bin are the cheapest.
        if limit < fitting.len() {
            fitting.select_nth_unstable(limit);
        }
        let count = fitting.len() as u64;
        fitting.truncate(limit);
        fitting.sort_unstable();
        let sums = fitting.iter().scan(0u64, |sum, cost| {
            *sum += u64::from(*cost);
            Some(*sum)
        });
        let most = sums.take_while(|sum| *sum <= u64::from(budget)).count() as u32;
        let cheapest =
            costs.iter().enumerate().min_by_key(|(_, cost)| **cost).map_or(0, |(draw, _)| draw as u32);
        let mut digest = Sha256::new().chain_update(budget.to_le_bytes());
        for part in costs.chunks(1 << 16) {
            digest.update(part.iter().flat_map(|cost| cost.to_le_bytes()).collect::<Vec<_>>());
        }
        Self { costs, budget, fitting: count, total, most, cheapest, digest: digest.finalize().into() }
    }

    /// Returns the budget of a bin.
    pub fn budget(&self) -> u32 {
        self.budget
    }

    /// Returns the cost of a draw.
    pub fn cost(&self, draw: u64) -> u32 {
        self.costs[draw as usize]
    }

    /// Returns the numbers of the draws that cost more than the budget. No bin has them.
    pub fn over_budget(&self) -> impl Iterator<Item = u64> {
        let over = |(draw, cost): (usize, &u32)| (*cost > self.budget).then_some(draw as u64);
        self.costs.iter().enumerate().filter_map(over)
    }

    /// Returns the number of draws that are in the bins of an epoch.
    pub fn fitting(&self) -> u64 {
        self.fitting
    }

    /// Returns the largest number of draws in a bin.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Returns the digest of the costs and the budget.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

/// The draws that the packer chooses from.
struct PackerWindow<I> {
    coming: I,
    /// Draws by cost, and of equal costs the one that has waited longest last. The second number counts down.
    by_cost: BTreeMap<(u32, u32), u32>,
    waiting: VecDeque<(u32, u32)>,
    next: u32,
}

impl<I: Iterator<Item = u64>> PackerWindow<I> {
    fn fill(&mut self, table: &CostTable) {
        while self.by_cost.len() < WINDOW {
            let Some(draw) = self.coming.next() else { return };
            let cost = table.cost(draw);
            if cost <= table.budget {
                self.by_cost.insert((cost, self.next), draw as u32);
                self.waiting.push_back((cost, self.next));
                self.next = self.next.wrapping_sub(1);
            }
        }
    }

    /// Returns the key of the draw that has waited longest.
    fn longest(&mut self) -> Option<(u32, u32)> {
        while let Some(first) = self.waiting.front().copied() {
            if self.by_cost.contains_key(&first) {
                return Some(first);
            }
            self.waiting.pop_front();
        }
        None
    }

    /// Takes the draw for a bin of which `room` is left; `None` if no draw fits.
    fn take(&mut self, room: u32, reserve: u32) -> Option<(u32, u32)> {
        let longest = self.longest().filter(|(cost, _)| room > reserve && *cost <= room);
        let largest = || self.by_cost.range(..=(room, u32::MAX)).next_back().map(|(key, _)| *key);
        let key = longest.or_else(largest)?;
        Some((self.by_cost.remove(&key)?, key.0))
    }
}

/// The bins of an epoch.
#[derive(Debug)]
pub(super) struct BinOrder {
    table: Arc<CostTable>,
    /// The numbers of the draws, one bin after another.
    draws: Vec<u32>,
    /// The position of each bin's first draw, then the number of draws.
    starts: Vec<u32>,
    /// The position of each draw; `u32::MAX` for draws above the budget.
    positions: OnceLock<Vec<u32>>,
}

impl BinOrder {
    /// Packs the draws that an epoch takes in this `order`.
    pub(super) fn new(table: Arc<CostTable>, order: impl Iterator<Item = u64>) -> Self {
        let mean = table.total / table.fitting.max(1);
        let reserve = (2 * mean).min(u64::from(table.budget / 2)) as u32;
        let (by_cost, waiting) = (BTreeMap::new(), VecDeque::new());
        let mut window = PackerWindow { coming: order, by_cost, waiting, next: u32::MAX };
        let (mut draws, mut starts) = (Vec::with_capacity(table.fitting as usize), vec![0]);
        loop {
            let (start, mut room) = (draws.len(), table.budget);
            while draws.len() - start < table.most as usize {
                window.fill(&table);
                let Some((draw, cost)) = window.take(room, reserve) else { break };
                draws.push(draw);
                room -= cost;
            }
            if draws.len() == start {
                break;
            }
            starts.push(draws.len() as u32);
        }
        Self { table, draws, starts, positions: OnceLock::new() }
    }

    pub(super) fn table(&self) -> &CostTable {
        &self.table
    }

    /// Returns the number of draws in all bins.
    pub(super) fn len(&self) -> u64 {
        self.draws.len() as u64
    }

    /// Returns the number of bins.
    pub(super) fn bins(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    /// Returns the position of the first draw of a bin, or of the end.
    pub(super) fn start(&self, bin: u64) -> u64 {
        u64::from(self.starts[bin as usize])
    }

    /// Returns the number of the draw at `position`.
    pub(super) fn number(&self, position: u64) -> u64 {
        u64::from(self.draws[position as usize])
    }

    /// Returns the position of a draw; `None` if it costs more than the budget.
    pub(super) fn position(&self, number: u64) -> Option<u64> {
        let positions = self.positions.get_or_init(|| {
            let mut positions = vec![u32::MAX; self.table.costs.len()];
            for (position, &draw) in (0..).zip(&self.draws) {
                positions[draw as usize] = position;
            }
            positions
        });
        Some(positions[number as usize]).filter(|position| *position != u32::MAX).map(u64::from)
    }

    /// Draws a substitute for the draw at `position` that costs at most as much, so that its bin keeps to the budget.
    pub(super) fn substitute(&self, position: u64, random: &mut RandomStream) -> u64 {
        let cost = self.table.cost(self.number(position));
        let any = |_| random.below(self.table.costs.len() as u64);
        let found = (0..ATTEMPTS).map(any).find(|draw| self.table.cost(*draw) <= cost);
        found.unwrap_or(self.table.cheapest.into())
    }

    /// Returns the number of steps of each rank, if each global step has `step_bins` bins.
    pub(super) fn steps(&self, step_bins: u32, world_size: u32, last: LastBatch) -> u64 {
        let (bins, step, world) = (self.bins(), u64::from(step_bins), u64::from(world_size));
        match last {
            LastBatch::Drop => bins / step * (step / world),
            LastBatch::Pad => bins.div_ceil(step) * (step / world),
            LastBatch::Partial => bins.div_ceil(world),
        }
    }

    /// Returns how full the first `bins` bins are on average, as a share of the budget.
    pub(super) fn fullness(&self, bins: u64) -> f64 {
        let end = self.start(bins) as usize;
        let cost: u64 = self.draws[..end].iter().map(|draw| u64::from(self.table.cost((*draw).into()))).sum();
        cost as f64 / (bins.max(1) as f64 * f64::from(self.table.budget))
    }
}

/// Checks that ranks can divide a global step of `step_bins` bins evenly.
///
/// # Errors
/// [`Error::Config`] for `bins`, or for a rank outside the world.
pub(super) fn check_bins(step_bins: u32, rank: u32, world_size: u32) -> Result<()> {
    if world_size == 0 || rank >= world_size {
        let message = format!("is {rank}, must be below world_size, which is {world_size}");
        return Err(Error::config("rank", message));
    }
    if step_bins == 0 || !step_bins.is_multiple_of(world_size) {
        let message = format!(
            "is {step_bins}, but {world_size} ranks divide the bins of a step evenly: use a multiple of {world_size}"
        );
        return Err(Error::config("bins", message));
    }
    Ok(())
}

/// How an epoch is packed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Packing {
    /// The number of bins, without padding.
    pub bins: u64,
    /// The number of samples in them.
    pub samples: u64,
    /// The average cost of a bin, as a share of the budget.
    pub fullness: f64,
    /// The number of samples that cost more than the budget, which no epoch has.
    pub over_budget: u64,
    /// The number of samples that this epoch leaves out, because their bins do not fill the last step.
    pub left_out: u64,
    /// The number of bins that repeat bins of the epoch's beginning, as padding.
    pub padding: u64,
    /// The largest number of samples that a bin can have.
    pub most_samples: u32,
}

impl Packing {
    /// Returns the numbers by their names.
    pub fn counts(&self) -> [(&'static str, u64); 6] {
        [
            ("bins", self.bins),
            ("samples", self.samples),
            ("most_samples", self.most_samples.into()),
            ("over_budget", self.over_budget),
            ("left_out", self.left_out),
            ("padding_bins", self.padding),
        ]
    }
}
